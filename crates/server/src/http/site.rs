//! What there is to ask for, and who may.
//!
//! Without access control whoever reaches the port is shown everything; it is reached from this machine alone then. A
//! page of somebody else's that a browser of this machine shows could still ask, under a name of its own that means
//! this machine: so only addresses, and names that are certainly this machine's, are answered to.

use super::collect::{self, Refused};
use super::exposition;
use super::login::{Login, Proof};
use super::reply::Reply;
use super::request::Request;
use crate::config::HttpConfig;
use commands::{Client, Peer, Server};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::sync::Arc;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");
/// Version of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A client, from the first request of its connection on.
pub struct Visitor {
    peer: Peer,
    /// Who it is for commands.
    client: Option<Arc<Client>>,
    /// What has proven that.
    shown: Option<String>,
}

/// See the module.
pub struct Site {
    server: Arc<Server>,
    login: Login,
    /// Names that are answered to; `None` for all.
    names: Option<Vec<String>>,
    /// Held while an answer is worked out: however many ask, they take one processor.
    answering: Mutex<()>,
}

impl Site {
    /// The site of a server.
    pub fn new(server: Arc<Server>, config: &HttpConfig) -> Self {
        let is_guarded = server.settings.access_control || config.reaches_out;
        let names = config.bind.iter().map(|name| name.to_ascii_lowercase());
        Self {
            names: (!is_guarded).then(|| names.chain(["localhost".to_owned()]).collect()),
            server,
            login: Login::default(),
            answering: Mutex::new(()),
        }
    }

    /// A new client.
    pub fn visitor(&self, peer: Peer) -> Visitor {
        Visitor {
            peer,
            client: None,
            shown: None,
        }
    }

    /// A client's connection has ended.
    pub fn leave(&self, visitor: Visitor) {
        if let Some(client) = visitor.client {
            self.server.disconnect(&client);
        }
    }

    /// Answers a request.
    pub fn answer(&self, visitor: &mut Visitor, request: &Request) -> Reply {
        if !self.is_own_name(request.host.as_deref()) {
            let sentence = "This server does not go by that name: ask by its address, or as localhost.";
            return Reply::refusal((421, "Misdirected Request"), sentence);
        }
        let client = match self.admit(visitor, request) {
            Ok(client) => client,
            Err(Proof::NotAsked) => {
                let sentence = "Too many log in at this moment, or have failed to.";
                return Reply::refusal((503, "Service Unavailable"), sentence).with_header("Retry-After", "1");
            }
            Err(_) => {
                return Reply::refusal((401, "Unauthorized"), "Log in as a user of the database admin.")
                    .with_header("WWW-Authenticate", "Basic realm=\"tenond\", charset=\"UTF-8\"");
            }
        };
        let _alone = self.answering.lock();
        let server = &self.server;
        let answered = match request.path.as_str() {
            "/" => Ok(self.page()),
            "/metrics" => collect::server_status(server, &client).map(|status| {
                let set = collect::set_status(server, &client);
                let text = exposition::text(&status, set.as_ref());
                Reply::ok(METRICS_TYPE, text.into_bytes())
            }),
            "/status.json" => collect::page_status(server, &client)
                .map(|status| Reply::ok("application/json", status.to_string().into_bytes())),
            _ => Ok(Reply::refusal(
                (404, "Not Found"),
                "There is /, /metrics and /status.json.",
            )),
        };
        answered.unwrap_or_else(|refused| refusal(&refused))
    }

    fn is_own_name(&self, host: Option<&str>) -> bool {
        let (Some(names), Some(host)) = (&self.names, host) else {
            return true;
        };
        host.parse::<IpAddr>().is_ok() || names.iter().any(|name| name == host)
    }

    /// The client as commands know it; otherwise what came of its proof.
    fn admit(&self, visitor: &mut Visitor, request: &Request) -> Result<Arc<Client>, Proof> {
        if !self.server.settings.access_control {
            let connect = || self.server.connect(visitor.peer.clone());
            return Ok(visitor.client.get_or_insert_with(connect).clone());
        }
        if visitor.shown.is_some() && visitor.shown == request.authorization {
            return visitor.client.clone().ok_or(Proof::Failed);
        }
        // Another user is another client: nothing of the former's is left.
        visitor.shown = None;
        if let Some(former) = visitor.client.take() {
            self.server.disconnect(&former);
        }
        let (user, password) = request.credentials().ok_or(Proof::Failed)?;
        let client = visitor.client.insert(self.server.connect(visitor.peer.clone())).clone();
        match self.login.prove(&self.server, &client, &user, &password) {
            Proof::Given => {
                visitor.shown = request.authorization.clone();
                Ok(client)
            }
            proof => Err(proof),
        }
    }

    /// The page, whose own scripts and styles are the only ones that a browser takes.
    fn page(&self) -> Reply {
        let mut random = [0; 16];
        self.server.env.random.fill_secret(&mut random);
        let nonce: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let page = PAGE
            .replace("{nonce}", &nonce)
            .replace("{style}", STYLE)
            .replace("{script}", SCRIPT);
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        Reply::ok("text/html; charset=utf-8", page.into_bytes()).with_header("Content-Security-Policy", &policy)
    }
}

fn refusal(refused: &Refused) -> Reply {
    if refused.is_unauthorized() {
        return Reply::refusal((403, "Forbidden"), &refused.message);
    }
    Reply::refusal((503, "Service Unavailable"), &refused.message)
}
