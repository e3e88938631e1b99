//! The monitoring page and Prometheus' metrics, on a port of their own.
//!
//! What is shown is what commands answer: a connection is a client as any other, which calls `serverStatus` and the
//! like, so that figures have one source and rights are checked in one place. This module knows HTTP and what a page
//! looks like, and no figure's origin.
//!
//! Nothing here can hold the database up: connections are few, each has a thread of its own, requests are small and
//! have no bodies, every wait has an end, and one answer is worked out at a time.

mod collect;
mod connections;
mod exposition;
mod families;
mod json;
mod login;
mod reply;
mod request;
mod site;
mod stream;

use crate::config::NetConfig;
use crate::net::{Endpoints, Listeners, Tls};
use bson::doc;
use commands::Server;
use commands::logger::id;
use connections::Connections;
use site::Site;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The threads that serve the page.
pub struct Http {
    listeners: Listeners,
    connections: Arc<Connections>,
}

impl Http {
    /// Begins to serve, where that is wanted.
    ///
    /// # Errors
    /// An address cannot be listened on, or there is no thread to be had.
    pub fn start(config: &NetConfig, server: &Arc<Server>, tls: Option<Arc<Tls>>) -> io::Result<Option<Self>> {
        let Some(http) = &config.http else { return Ok(None) };
        let mut listeners = Listeners::bind(&Endpoints {
            bind: http.bind.clone(),
            port: http.port,
            // An address that is given in full is meant.
            ipv6: config.endpoints.ipv6 || http.bind.iter().any(|host| host.contains(':')),
            unix: None,
        })?;
        let attributes = doc! {
            "addresses": listeners.addresses(), "port": i32::from(listeners.port()), "ssl": tls.is_some(),
        };
        let site = Site::new(server.clone(), http);
        let connections = Connections::new(site, tls, server.env.clock.clone());
        listeners.start(connections.clone(), server.logger.clone())?;
        let message = "The monitoring page is served";
        server.logger.log(id::PAGE_IS_SERVED, "listener", message, attributes);
        Ok(Some(Self { listeners, connections }))
    }

    /// The port, the one that the system chose when 0 was asked for.
    pub fn port(&self) -> u16 {
        self.listeners.port()
    }

    /// Ends all connections, and waits for their threads, but no longer than `patience`.
    pub fn stop(&mut self, patience: Duration) {
        self.listeners.stop();
        self.connections.end(patience);
    }
}
