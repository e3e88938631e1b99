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
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Users of the page are those of this database.
const DATABASE: &str = "admin";

/// Works out proofs, one at a time: tens of thousands of hashes each, which whoever reaches the port can ask for.
#[derive(Default)]
pub struct Login {
    one_at_a_time: Mutex<()>,
    under_way: Mutex<UnderWay>,
}

/// Proofs under way at a time, and as many again of users who have proven themselves of late.
const UNDER_WAY_MAX: usize = 8;
/// Of one user at one address, unless it has proven itself of late: one does not make another one wait.
const UNDER_WAY_OF_ONE_MAX: usize = 1;

/// Where a user has not proven itself of late its attempt waits in a place for no longer.
const WAIT_MAX: Duration = Duration::from_millis(250);

/// What came of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    Given,
    Failed,
    /// Too many are under way, or proofs of that name failed a moment ago.
    NotAsked,
}

/// The proofs that are under way.
#[derive(Default)]
struct UnderWay {
    proven: usize,
    /// Those of others, by the user's name and the client's address.
    others: HashMap<(String, Option<IpAddr>), usize>,
}

impl UnderWay {
    /// Takes a place; false where there is none.
    fn enter(&mut self, who: &(String, Option<IpAddr>), is_proven: bool) -> bool {
        if is_proven {
            let has_room = self.proven < UNDER_WAY_MAX;
            self.proven += usize::from(has_room);
            return has_room;
        }
        let all = self.others.values().sum::<usize>();
        let own = self.others.get(who).copied().unwrap_or(0);
        let has_room = all < UNDER_WAY_MAX && own < UNDER_WAY_OF_ONE_MAX;
        if has_room {
            self.others.insert(who.clone(), own + 1);
        }
        has_room
    }

    fn leave(&mut self, who: &(String, Option<IpAddr>), is_proven: bool) {
        if is_proven {
            self.proven -= 1;
            return;
        }
        if let Some(own) = self.others.get_mut(who) {
            *own -= 1;
        }
        self.others.retain(|_, count| *count > 0);
    }
}

impl Login {
    /// Whether `client` is now the user. When proofs of that name failed before it waits, but not for long: guesses at
    /// a few names would take all places.
    pub fn prove(&self, server: &Arc<Server>, client: &Arc<Client>, user: &str, password: &str) -> Proof {
        let is_proven = server.has_proven_of_late(client, DATABASE, user);
        let who = (user.to_owned(), client.peer().address());
        if !self.under_way.lock().enter(&who, is_proven) {
            return Proof::NotAsked;
        }
        let _done = scopeguard::guard(&self.under_way, |under_way| under_way.lock().leave(&who, is_proven));
        if !is_proven && server.wait_of_proof(client, DATABASE, user) > WAIT_MAX {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A dozen connections with wrong passwords took all places, for as long as they liked.
    #[test]
    fn guesses_leave_places_for_others() {
        let mut under_way = UnderWay::default();
        let who = |name: &str| (name.to_owned(), "192.0.2.1".parse().ok());
        let taken = |under_way: &mut UnderWay, name: &str, is_proven: bool| {
            (0..20).filter(|_| under_way.enter(&who(name), is_proven)).count()
        };
        assert_eq!(taken(&mut under_way, "guessed", false), UNDER_WAY_OF_ONE_MAX);
        assert_eq!(taken(&mut under_way, "another", false), UNDER_WAY_OF_ONE_MAX);
        assert!(under_way.enter(&who("scraper"), false));
        for number in 0..20 {
            taken(&mut under_way, &format!("name {number}"), false);
        }
        assert!(!under_way.enter(&who("somebody"), false));
        assert_eq!(taken(&mut under_way, "scraper", true), UNDER_WAY_MAX);
        under_way.leave(&who("guessed"), false);
        assert!(under_way.enter(&who("somebody"), false));
        for _ in 0..UNDER_WAY_MAX {
            under_way.leave(&who("scraper"), true);
        }
        assert_eq!(
            (under_way.proven, under_way.others.values().sum::<usize>()),
            (0, UNDER_WAY_MAX)
        );
    }
}
