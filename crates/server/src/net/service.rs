//! What the network layer needs of the layer above.

use auth::SubjectName;
use commands::{Client, Outcome, Peer, Request, Traffic};
use std::sync::Arc;
use wire::Compressor;

/// Answers requests. Shared by all connections.
pub trait Service: Send + Sync + 'static {
    /// What the layer above keeps of a connection.
    type Client: Send + Sync + 'static;

    /// A connection was accepted.
    fn connect(&self, peer: Peer) -> Arc<Self::Client>;

    /// The connection has ended, or its other end is gone while an operation runs: that is interrupted. May be called
    /// twice.
    fn disconnect(&self, client: &Arc<Self::Client>);

    /// The client takes no replies any more, and is still connected: called again and again while a request runs.
    fn abandon(&self, client: &Arc<Self::Client>);

    /// The client has shown a certificate of this name, which TLS has verified. Called before its first request.
    fn certified(&self, client: &Arc<Self::Client>, name: SubjectName);

    /// Whether the client has still to prove who it is.
    fn is_stranger(&self, client: &Self::Client) -> bool;

    /// A connection was closed as soon as it came, because there are too many.
    fn count_refused(&self);

    /// The connection's number, for log lines.
    fn number(&self, client: &Self::Client) -> u32;

    /// Appends exactly one document to `reply`. A request that waits for its turn is put off
    /// ([`Outcome::put_off`]), and handled anew once it was resumed.
    fn handle(&self, client: &Arc<Self::Client>, request: &Request<'_>, reply: &mut Vec<u8>) -> Outcome;

    /// Whether a command goes before reads and writes of documents when there are many.
    fn is_urgent(&self, command: &str) -> bool;

    /// So many requests that are not urgent may be behind.
    fn queue_max(&self) -> usize;

    /// Has requests that were put off, and have to end, resumed.
    fn end_late(&self);

    /// Whether clients may use a compressor.
    fn takes(&self, compressor: Compressor) -> bool;

    /// Counts the bytes of a request and its reply.
    fn count_network(&self, traffic: Traffic);

    /// Whether the begin and the end of connections go unlogged.
    fn is_quiet(&self) -> bool;

    /// A command has asked the process to end.
    fn request_shutdown(&self);
}

/// The commands layer as a service.
pub struct CommandService {
    server: Arc<commands::Server>,
    request_shutdown: Box<dyn Fn() + Send + Sync>,
}

impl CommandService {
    /// Serves `server`; `request_shutdown` is called for the `shutdown` command, after its reply was sent.
    pub fn new(server: Arc<commands::Server>, request_shutdown: Box<dyn Fn() + Send + Sync>) -> Arc<Self> {
        Arc::new(Self {
            server,
            request_shutdown,
        })
    }
}

impl Service for CommandService {
    type Client = Client;

    fn connect(&self, peer: Peer) -> Arc<Client> {
        self.server.connect(peer)
    }

    fn disconnect(&self, client: &Arc<Client>) {
        self.server.disconnect(client);
    }

    fn abandon(&self, client: &Arc<Client>) {
        self.server.abandon(client);
    }

    fn certified(&self, client: &Arc<Client>, name: SubjectName) {
        client.set_certificate_name(name);
    }

    fn is_stranger(&self, client: &Client) -> bool {
        self.server.is_stranger(client)
    }

    fn count_refused(&self) {
        self.server.count_refused();
    }

    fn number(&self, client: &Client) -> u32 {
        client.id()
    }

    fn handle(&self, client: &Arc<Client>, request: &Request<'_>, reply: &mut Vec<u8>) -> Outcome {
        self.server.handle(client, request, reply)
    }

    fn is_urgent(&self, command: &str) -> bool {
        self.server.is_urgent(command)
    }

    fn queue_max(&self) -> usize {
        self.server.queue_max()
    }

    fn end_late(&self) {
        self.server.end_late();
    }

    fn takes(&self, compressor: Compressor) -> bool {
        compressor == Compressor::Noop || self.server.settings.compressors.contains(&compressor)
    }

    fn count_network(&self, traffic: Traffic) {
        self.server.count_network(traffic);
    }

    fn is_quiet(&self) -> bool {
        self.server.is_quiet()
    }

    fn request_shutdown(&self) {
        (self.request_shutdown)();
    }
}
