//! Who a visitor is: name and password as HTTP sends them, proven by the conversation that drivers have with the
//! server.
//!
//! So the rules of users hold here, too: attempts are slowed down and logged, restrictions of addresses are kept, and
//! credentials are never looked at beside the one place where that is done.

use super::collect::call;
use auth::{ClientConversation, Mechanism};
use bson::spec::BinarySubtype;
use bson::{Binary, Document, rawdoc};
use commands::{Client, Server};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Users of the page are those of this database.
const DATABASE: &str = "admin";

/// Works out proofs, one at a time: tens of thousands of hashes each, which whoever reaches the port can ask for.
#[derive(Default)]
pub struct Login {
    one_at_a_time: Mutex<()>,
    under_way: AtomicUsize,
}

/// Proofs under way at a time. Who failed before waits in one, and must not take all connections.
const UNDER_WAY_MAX: usize = 8;

/// What came of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Given,
    Failed,
    /// Too many are under way.
    NotAsked,
}

impl Login {
    /// Whether `client` is now the user. Waits when proofs of that name failed before.
    pub fn prove(&self, server: &Arc<Server>, client: &Arc<Client>, user: &str, password: &str) -> Proof {
        let before = self.under_way.fetch_add(1, Ordering::Relaxed);
        let _done = scopeguard::guard(&self.under_way, |under_way| {
            under_way.fetch_sub(1, Ordering::Relaxed);
        });
        if before >= UNDER_WAY_MAX {
            return Proof::NotAsked;
        }
        match self.converse(server, client, user, password) {
            Some(()) => Proof::Given,
            None => Proof::Failed,
        }
    }

    fn converse(&self, server: &Arc<Server>, client: &Arc<Client>, user: &str, password: &str) -> Option<()> {
        let mechanism = mechanism_of(server, client, user)?;
        let mut random = [0; 24];
        server.env.random.fill_secret(&mut random);
        let (first, conversation) = ClientConversation::begin(mechanism, user, password, &random).ok()?;
        let begin = rawdoc! {
            "saslStart": 1,
            "mechanism": mechanism.name(),
            "payload": payload(first),
            "options": { "skipEmptyExchange": true },
            "$db": DATABASE,
        };
        let reply = call(server, client, &begin).ok()?;
        let number = reply.get_i32("conversationId").ok()?;
        let (last, proof) = {
            let _alone = self.one_at_a_time.lock();
            conversation.prove(payload_of(&reply)?).ok()?
        };
        let prove = rawdoc! {
            "saslContinue": 1, "conversationId": number, "payload": payload(last), "$db": DATABASE,
        };
        let reply = call(server, client, &prove).ok()?;
        proof.verify(payload_of(&reply)?).ok()?;
        reply.get_bool("done").ok().filter(|done| *done).map(drop)
    }
}

/// The strongest that the user has credentials for; any for who does not exist.
fn mechanism_of(server: &Arc<Server>, client: &Arc<Client>, user: &str) -> Option<Mechanism> {
    let question = rawdoc! { "hello": 1, "saslSupportedMechs": format!("{DATABASE}.{user}"), "$db": DATABASE };
    let reply = call(server, client, &question).ok()?;
    let names = reply.get_array("saslSupportedMechs").ok()?;
    let has = |mechanism: &Mechanism| names.iter().any(|name| name.as_str() == Some(mechanism.name()));
    [Mechanism::ScramSha256, Mechanism::ScramSha1].into_iter().find(has)
}

fn payload(text: String) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: text.into_bytes(),
    }
}

fn payload_of(reply: &Document) -> Option<&[u8]> {
    reply.get_binary_generic("payload").ok().map(Vec::as_slice)
}
