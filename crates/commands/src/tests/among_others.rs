//! A member of several: what it makes of what another one says, and of copies of its data.

use super::{Bench, code, succeeded};
use crate::Server;
use crate::replica_set::ConsensusMembers;
use bson::{Bson, Document, doc};
use std::sync::Arc;
use std::time::Duration;
use storage::{Membership, Standing};

/// What a member among others would send them. Nobody is there.
struct NoMembers(Arc<Server>);

impl storage::Outlet for NoMembers {
    fn send(&self, _messages: Vec<storage::Message>) {}

    fn standing_changed(&self, standing: &Standing) {
        self.0.standing_changed(standing);
    }

    fn configuration_changed(&self) {}

    fn applied_more(&self) {}
}

/// A member that leads others, as far as its storage knows.
fn among_others() -> Bench {
    let bench = Bench::member(true);
    let members = Membership {
        voters: vec![1],
        own: Some(1),
        ..Membership::default()
    };
    let outlet = Arc::new(NoMembers(bench.server.clone()));
    let storage = &bench.server.storage;
    storage
        .take_part(&members, Duration::from_secs(10), outlet)
        .expect("it takes part");
    wait_standing(&bench, &|standing| standing.is_writable);
    bench
}

fn wait_standing(bench: &Bench, is_reached: &dyn Fn(&Standing) -> bool) {
    let operation = bench.server.new_operation();
    let waited = bench.server.storage.wait_members(&operation, None, is_reached);
    assert!(waited.expect("not ended"));
}

/// The configuration that there is, with more members, of which consensus knows these by number and instance.
fn configuration(bench: &Bench, version: i32, consensus: &[(i32, i64, u8)]) -> Document {
    let mut config = succeeded(bench.admin(doc! { "replSetGetConfig": 1 }));
    let mut config = config.get_document_mut("config").expect("a configuration").clone();
    config.insert("version", version);
    let members = config.get_array_mut("members").expect("members");
    let others = consensus.iter().filter(|(member, ..)| *member > 0);
    members
        .extend(others.map(|(member, ..)| Bson::from(doc! { "_id": member, "host": format!("localhost:{member}") })));
    let of = |(member, id, instance): &(i32, i64, u8)| {
        let instance = crate::copies::instance_binary([*instance; 16]);
        doc! { "_id": member, "id": id, "votes": true, "instance": instance }
    };
    let known: Vec<_> = consensus.iter().map(of).collect();
    config.insert("consensus", doc! { "next": 2_000_i64, "members": known });
    config
}

/// What a primary of a term says of this member's place.
fn says(bench: &Bench, term: u64, field: &str, value: impl Into<Bson>) {
    succeeded(bench.admin(doc! {
        "replSetHeartbeat": "rs", "fromId": 1, "from": "h:1", "toId": 0, "term": term as i64, "configVersion": 1_i64,
        "primary": true, field: value.into(),
    }));
}

/// A primary stood still while others elected another one, or a configuration was forced on one that it had lost. It
/// goes on saying that it is the primary, and where it takes the others to be. The one that leads now obeyed: it gave
/// its log up, and went on as the leader of consensus, so that nobody else was elected.
#[test]
fn who_led_an_earlier_term_is_not_obeyed() {
    let bench = among_others();
    let own = bench.server.storage.standing().expect("it takes part").term;
    let status = || bench.admin(doc! { "replSetGetStatus": 1 }).get_i32("myState").ok();
    let config = configuration(&bench, 1, &[(0, 1_234, 1)]);
    for earlier in 0..own {
        says(&bench, earlier, "leftBehind", true);
        says(&bench, earlier, "config", config.clone());
        assert_eq!(status(), Some(1), "of the term {earlier}");
    }
    // One that leads is believed, and this member leads no more.
    says(&bench, own + 1, "config", config);
    assert_eq!(status(), Some(3));
    wait_standing(&bench, &|standing| standing.leader.is_none());
    assert!(!bench.server.storage.leads());
}

/// It copied all data beside the files that somebody copied, and started anew with them: the lock was gone.
#[test]
fn a_locked_member_waits_for_the_unlock_to_become_another() {
    let bench = among_others();
    let own = bench.server.storage.standing().expect("it takes part").term;
    let status = || bench.admin(doc! { "replSetGetStatus": 1 }).get_i32("myState").ok();
    let lock = doc! { "fsync": 1, "lock": true };
    succeeded(bench.admin(lock.clone()));
    says(&bench, own + 1, "leftBehind", true);
    assert_eq!(status(), Some(1));
    succeeded(bench.admin(doc! { "fsyncUnlock": 1 }));
    says(&bench, own + 1, "leftBehind", true);
    assert_eq!(status(), Some(3));
    wait_standing(&bench, &|standing| standing.leader.is_none());
    assert_eq!(code(&bench.admin(lock)), 13_436);
    assert!(!bench.server.storage.holds_writes_back());
}

/// Who applies late did not know the members that had come since: its votes for them went nowhere, and a majority that
/// needed it could elect nobody before its delay was over.
#[test]
fn a_member_reaches_those_that_came_before_it_has_applied_that() {
    let bench = among_others();
    let own = bench.server.storage.standing().expect("it takes part").term;
    let set = bench.server.replica_set().expect("a member");
    let reached = || {
        let member = set.member();
        let (config, consensus) = member.newest_configuration().expect("there is one");
        let known = consensus.and_then(|consensus| consensus.by_id(1_777));
        known.and_then(|known| Some(config.member(known.member)?.host.clone()))
    };
    assert_eq!(reached(), None);
    let config = configuration(&bench, 5, &[(0, 1, 1), (3, 1_777, 7)]);
    says(&bench, own + 1, "config", config);
    assert_eq!(reached().as_deref(), Some("localhost:3"));
    let member = set.member();
    assert_eq!(
        member.config.expect("there").version,
        1,
        "what counts is what is applied"
    );
    let (config, consensus) = member.told.expect("it was told");
    set.change(|member| {
        (member.config, member.consensus) = (Some(config), Some(consensus));
        member.forget_told();
    });
    assert!(set.member().told.is_none());
    assert_eq!(reached().as_deref(), Some("localhost:3"));
}

/// The engine had given up the state that another member was copying. That one asked for the rest for ever, and the log
/// was kept for it.
#[test]
fn a_copy_whose_state_was_given_up_is_over() {
    let bench = among_others();
    bench.insert("c", &[doc! { "_id": 1, "n": 0 }]);
    let set = bench.server.replica_set().expect("a member");
    set.change(|member| {
        let mut consensus = ConsensusMembers::of_one(0, [1; 16]);
        consensus.take_in(1, [7; 16]);
        member.consensus = Some(consensus);
    });
    let begin = doc! { "_tenonCopyBegin": 1, "set": "rs", "instance": crate::copies::instance_binary([7; 16]) };
    let begun = succeeded(bench.admin(begin.clone()));
    let copy = begun.get_i64("copy").expect("its number");
    let mut again = begin;
    again.insert("again", copy);
    succeeded(bench.admin(again.clone()));
    bench.server.storage.engine().set_history_percent(0);
    let tables = begun.get_array("tables").expect("its tables").clone();
    let rows = |table: &Bson| {
        let id = table.as_document().and_then(|table| table.get_i64("id").ok());
        bench.admin(doc! { "_tenonCopyRows": copy, "table": id.expect("a number") })
    };
    let refused = (1..100).find_map(|n| {
        bench.ok(doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "n": n } } }] });
        tables.iter().map(rows).find(|reply| reply.contains_key("code"))
    });
    assert_eq!(code(&refused.expect("it was given up")), 239);
    assert_eq!(code(&bench.admin(again)), 43);
}
