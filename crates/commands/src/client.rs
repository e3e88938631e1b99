//! A connected client: what the server knows of the other end.

use std::sync::atomic::AtomicBool;

/// The other end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// TCP address, `127.0.0.1:54321`.
    Tcp(String),
    /// A Unix-domain socket's path.
    Unix(String),
}

/// A connection as commands see it. Shared with `currentOp` and `killOp`.
pub struct Client {
    id: u32,
    peer: Peer,
    /// Set by the server when the other end is gone.
    pub(crate) gone: AtomicBool,
}

impl Client {
    pub(crate) fn new(id: u32, peer: Peer) -> Self {
        Self { id, peer, gone: AtomicBool::new(false) }
    }

    /// The connection's number, from 1; log lines show it as `conn<id>`.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// The other end.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }
}
