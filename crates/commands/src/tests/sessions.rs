//! Logical sessions: who is listed, and when they end.

use super::{Bench, first_batch, succeeded};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use std::time::Duration;

fn lsid(number: u8) -> Document {
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![number; 16],
    };
    doc! { "id": id }
}

fn listed(reply: Document) -> Vec<u8> {
    let mut sessions: Vec<u8> = first_batch(&succeeded(reply))
        .iter()
        .map(|document| match document.get_document("_id").map(|id| id.get("id")) {
            Ok(Some(Bson::Binary(id))) => id.bytes[0],
            other => panic!("{other:?}"),
        })
        .collect();
    sessions.sort_unstable();
    sessions
}

fn list(bench: &Bench) -> Vec<u8> {
    listed(bench.admin(doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": {} }], "cursor": {} }))
}

#[test]
fn sessions_are_listed_from_their_first_use_to_their_end() {
    let bench = Bench::new();
    assert_eq!(list(&bench), [0_u8; 0]);
    for number in [1, 2, 3] {
        bench.ok(doc! { "ping": 1, "lsid": lsid(number) });
    }
    bench.ok(doc! { "refreshSessions": [lsid(4)] });
    assert_eq!(list(&bench), [1, 2, 3, 4]);
    bench.ok(doc! { "endSessions": [lsid(2), lsid(9)] });
    assert_eq!(list(&bench), [1, 3, 4]);
    let everywhere = bench.run_on(
        "config",
        doc! { "aggregate": "system.sessions", "pipeline": [{ "$listSessions": { "allUsers": true } }], "cursor": {} },
    );
    assert_eq!(listed(everywhere), [1, 3, 4]);
    for (stage, collection, code) in [
        (doc! { "$listSessions": {} }, Bson::from("c"), 73),
        (doc! { "$listLocalSessions": {} }, "c".into(), 73),
        (
            doc! { "$listLocalSessions": { "allUsers": true, "users": [{ "user": "a", "db": "b" }] } },
            1.into(),
            12,
        ),
        (
            doc! { "$listLocalSessions": { "users": [{ "user": "a" }] } },
            1.into(),
            40414,
        ),
        (doc! { "$listLocalSessions": { "users": 1 } }, 1.into(), 14),
    ] {
        let command = doc! { "aggregate": collection, "pipeline": [stage.clone()], "cursor": {} };
        assert_eq!(bench.code(command), code, "{stage}");
    }
    // An empty list is as none, and so is one of nulls.
    for options in [
        doc! { "allUsers": true, "users": [] },
        doc! { "allUsers": true, "users": [null] },
        doc! { "users": [null] },
    ] {
        let stage = doc! { "$listLocalSessions": options };
        assert_eq!(
            listed(bench.admin(doc! { "aggregate": 1, "pipeline": [stage], "cursor": {} })),
            [1, 3, 4]
        );
    }
}

#[test]
fn a_session_ends_when_nobody_has_used_it_for_half_an_hour() {
    let bench = Bench::new();
    bench.insert("c", &[doc! {}, doc! {}, doc! {}]);
    let find = |number: u8| {
        let reply = bench.run(doc! { "find": "c", "batchSize": 1, "lsid": lsid(number), "noCursorTimeout": true });
        succeeded(reply).get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let (unused, used) = (find(1), find(2));
    let more = |cursor: i64, number: u8| {
        bench.run(doc! { "getMore": cursor, "collection": "c", "batchSize": 1, "lsid": lsid(number) })
    };
    bench.clock.advance(Duration::from_secs(20 * 60));
    bench.ok(doc! { "refreshSessions": [lsid(2)] });
    bench.clock.advance(Duration::from_secs(11 * 60));
    for _ in 0..16 {
        bench.server.tick();
    }
    assert_eq!(list(&bench), [2]);
    assert_eq!(super::code(&more(unused, 1)), 43, "its cursor ended with it");
    succeeded(more(used, 2));
}

/// The empty list means the caller's own, whatever the caller may do.
#[test]
fn nobody_kills_sessions_of_others_that_they_do_not_name() {
    let bench = Bench::guarded();
    let read = doc! { "role": "readWrite", "db": "test" };
    let app = bench.user("app", &[read.into()]);
    bench.insert("c", &[doc! {}, doc! {}]);
    let open = || {
        let reply = bench.run_as(&app, "test", doc! { "find": "c", "batchSize": 1, "lsid": lsid(1) });
        succeeded(reply).get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let more = |cursor: i64| {
        let more = doc! { "getMore": cursor, "collection": "c", "batchSize": 1, "lsid": lsid(1) };
        bench.run_as(&app, "test", more).get_i32("code").unwrap_or(0)
    };
    let kept = open();
    bench.ok(doc! { "killSessions": [] });
    succeeded(bench.run_as(&bench.stranger(), "admin", doc! { "endSessions": [lsid(1)] }));
    assert_eq!(more(kept), 0);
    let killed = open();
    bench.ok(doc! { "killSessions": [lsid(1)] });
    assert_eq!(more(killed), 43);
    let own = open();
    succeeded(bench.run_as(&app, "test", doc! { "killSessions": [] }));
    assert_eq!(more(own), 43);
}

#[test]
fn users_see_their_own() {
    let bench = Bench::guarded();
    let (alice, bob) = (bench.user("alice", &[]), bench.user("bob", &[]));
    let admin = bench.user("admin", &[doc! { "role": "clusterAdmin", "db": "admin" }.into()]);
    for (client, number) in [(&alice, 1), (&bob, 2), (&admin, 3)] {
        succeeded(bench.run_as(client, "test", doc! { "ping": 1, "lsid": lsid(number) }));
    }
    let list = |client, options: Document| {
        bench.run_as(
            client,
            "admin",
            doc! { "aggregate": 1, "pipeline": [{ "$listLocalSessions": options }], "cursor": {} },
        )
    };
    assert_eq!(listed(list(&alice, doc! {})), [1]);
    assert_eq!(super::code(&list(&alice, doc! { "allUsers": true })), 13);
    assert_eq!(listed(list(&admin, doc! { "allUsers": true })), [1, 2, 3]);
    let of_bob = list(&admin, doc! { "users": [{ "user": "bob", "db": "test" }] });
    let user = first_batch(&of_bob)[0].get_str("user").unwrap().to_owned();
    assert_eq!((user.as_str(), listed(of_bob)), ("bob@test", vec![2]));
}

#[test]
fn what_begins_and_kills_sessions_takes() {
    let bench = Bench::new();
    for field in ["nonesuch", "$nonesuch", "query"] {
        bench.ok(doc! { "startSession": 1, field: 1 });
        bench.ok(doc! { "killSessions": [lsid(1)], field: { "x": 1 } });
        for other in ["endSessions", "refreshSessions"] {
            assert_eq!(bench.code(doc! { other: [lsid(1)], field: 1 }), 40415, "{other}");
        }
    }
    bench.ok(doc! { "killSessions": [Bson::Null] });
    bench.ok(doc! { "killSessions": [lsid(1), Bson::Null] });
    assert_eq!(bench.code(doc! { "killSessions": Bson::Null }), 40414);
    let id = |subtype, bytes| doc! { "id": Binary { subtype, bytes: vec![7; bytes] } };
    for (id, code) in [
        (id(BinarySubtype::UuidOld, 16), 14),
        (id(BinarySubtype::Generic, 16), 14),
        (id(BinarySubtype::Generic, 3), 14),
        (id(BinarySubtype::Uuid, 8), 207),
        (id(BinarySubtype::Uuid, 32), 207),
        (doc! { "id": Bson::Null }, 40414),
    ] {
        assert_eq!(bench.code(doc! { "killSessions": [id.clone()] }), code, "{id}");
        assert_eq!(bench.code(doc! { "ping": 1, "lsid": id.clone() }), code, "{id}");
    }
}
