//! Load generator for the server's speed figures, over the wire protocol only.
//!
//! It starts a server per engine on fresh data, drives it from blocking threads in a closed loop, and reads what that
//! cost the server from `/proc`. The generator shares the machine with the server, so operations per second say more
//! about the machine; CPU time per operation is the figure to compare. It knows nothing of the server's insides.

#![allow(
    clippy::disallowed_methods,
    reason = "a client program: time and files are the machine's own"
)]

pub mod connection;
pub mod messages;
pub mod options;
pub mod process;
pub mod report;
pub mod responder;
pub mod run;
pub mod session;
