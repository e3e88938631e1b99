//! Proves who a client is: SCRAM as a state machine, and the credentials that are kept for it.
//!
//! This crate knows no storage, no sockets and no clock: bytes in, bytes out. Randomness comes from the caller.

mod credentials;
mod mechanism;
pub mod roles;
mod scram;

pub use credentials::{Credentials, CredentialsError};
pub use mechanism::Mechanism;
pub use scram::{ClientFirst, Exchange, ScramError, Verdict};
