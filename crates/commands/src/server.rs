//! The state all commands share, and the way in.

use crate::{Client, Peer, Settings, logger::Logger};
use bson::RawDocument;
use std::sync::Arc;
use storage::Storage;
use vfs::Env;

/// A request, parsed from OP_MSG or a legacy OP_QUERY on `*.$cmd`. All documents in it have been validated.
pub struct Request<'m> {
    /// The command document. For OP_QUERY the framing layer has put the database in [`Request::legacy_database`].
    pub body: &'m RawDocument,
    /// Document sequences (kind 1 sections): identifier and the documents, back to back.
    pub sequences: &'m [(&'m str, &'m [u8])],
    /// `Some(db)` for OP_QUERY, where the database stands in the namespace and not in `$db`.
    pub legacy_database: Option<&'m str>,
    /// The client accepts a chain of replies (`exhaustAllowed`).
    pub exhaust_allowed: bool,
}

/// What the server does after sending the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Set `moreToCome` on the reply and call [`Server::handle`] again with [`Outcome::next_request`]'s document.
    pub more_to_come: bool,
    /// Close the connection after the reply.
    pub close: bool,
    /// The command was `shutdown`: end the process in an orderly way.
    pub shutdown: bool,
}

/// Everything commands need, shared by all connections.
pub struct Server {
    _storage: Arc<Storage>,
}

impl Server {
    /// Puts the parts together. Errors name a `--setParameter` that does not exist or has a bad value.
    pub fn new(_env: Env, storage: Arc<Storage>, _logger: Arc<Logger>, _settings: Settings) -> Result<Arc<Self>, String> {
        Ok(Arc::new(Self { _storage: storage }))
    }

    /// A new connection. Call [`Server::disconnect`] when it ends.
    pub fn connect(&self, _peer: Peer) -> Arc<Client> {
        unimplemented!()
    }

    /// The connection has ended: its running operation is interrupted.
    pub fn disconnect(&self, _client: &Client) {
        unimplemented!()
    }

    /// Runs one request and appends exactly one BSON document to `reply`. Never panics on the request's content.
    pub fn handle(self: &Arc<Self>, _client: &Arc<Client>, _request: &Request<'_>, _reply: &mut Vec<u8>) -> Outcome {
        unimplemented!()
    }

    /// Counts bytes of one request and its reply for `serverStatus.network`.
    pub fn count_network(&self, _bytes_in: u64, _bytes_out: u64) {
        unimplemented!()
    }

    /// The orderly end: refuses new operations with `InterruptedAtShutdown`, interrupts running ones, ends cursors.
    pub fn begin_shutdown(&self) {
        unimplemented!()
    }

    /// Work to be done about once a second by a background thread: cursor time-outs.
    pub fn tick(&self) {
        unimplemented!()
    }
}
