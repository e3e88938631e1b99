//! What the server does by the means of commands without being asked by a client.

use crate::command::UPDATE;
use crate::error::Result;
use crate::invocation::Invocation;
use crate::server::Server;
use crate::{Client, Peer};
use bson::rawdoc;
use std::sync::Arc;

impl Server {
    /// Runs `work` as a call on `admin` that may do anything.
    pub(crate) fn own_call<T>(self: &Arc<Self>, work: impl FnOnce(&mut Invocation<'_>) -> Result<T>) -> Result<T> {
        let client = Arc::new(Client::new(0, Peer::Unix(String::new())));
        let body = rawdoc! { "update": 1 };
        work(&mut Invocation::of_server(self, &client, &UPDATE, &body, "admin"))
    }
}
