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

use crate::config::{HttpConfig, NetConfig};
use crate::net::{Endpoints, Listeners, Tls};
use bson::doc;
use commands::Server;
use commands::logger::id;
use connections::Connections;
use site::Site;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The page's sockets. Nothing is answered before [`Bound::start`].
pub struct Bound {
    listeners: Listeners,
    config: HttpConfig,
}

/// The threads that serve the page.
pub struct Http {
    listeners: Listeners,
    connections: Arc<Connections>,
}

impl Bound {
    /// Begins to serve.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(self, server: &Arc<Server>, tls: Option<Arc<Tls>>) -> io::Result<Http> {
        let Self { mut listeners, config } = self;
        let attributes = doc! {
            "addresses": listeners.addresses(), "port": i32::from(listeners.port()), "ssl": tls.is_some(),
        };
        let site = Site::new(server.clone(), &config);
        let connections = Connections::new(site, tls, server.env.clock.clone());
        listeners.start(connections.clone(), server.logger.clone())?;
        let message = "The monitoring page is served";
        server.logger.log(id::PAGE_IS_SERVED, "listener", message, attributes);
        Ok(Http { listeners, connections })
    }
}

impl Http {
    /// Listens, where that is wanted.
    ///
    /// # Errors
    /// An address cannot be listened on.
    pub fn bind(config: &NetConfig) -> io::Result<Option<Bound>> {
        let Some(http) = &config.http else { return Ok(None) };
        let listeners = Listeners::bind(&Endpoints {
            bind: http.bind.clone(),
            port: http.port,
            // An address that is given in full is meant.
            ipv6: config.endpoints.ipv6 || http.bind.iter().any(|host| host.contains(':')),
            unix: None,
        })?;
        Ok(Some(Bound {
            listeners,
            config: http.clone(),
        }))
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
