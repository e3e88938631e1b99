//! Connections: listening, reading requests, writing replies.
//!
//! A connection with traffic has a thread that blocks in `recv`: two system calls a request, no hand-over. When it
//! stays quiet it is parked in one epoll set and costs a few hundred bytes. All idle threads wait on that set together;
//! whichever the kernel wakes serves the connection itself, so a parked connection's request costs one wake-up. This
//! module knows framing (`wire`) and threads, but no command: those come in by [`Service`].
//!
//! Which thread has which connection is crate `crew`'s affair.

mod connection;
mod listener;
mod pool;
mod service;
mod tls;

pub use listener::{Acceptor, Endpoints, Listeners};
pub use pool::{Limits, Pool};
pub use service::{CommandService, Service};
pub use tls::{Mode as TlsMode, Tls, TlsOptions};

#[cfg(test)]
mod tests;
