//! Rights that depend on fields which a check and the command itself could read differently, and on what was written
//! by nobody's command.

use super::{Bench, code, first_batch, succeeded};
use crate::command::user_store::{self, Store};
use crate::invocation::Invocation;
use crate::reply::Reply;
use crate::rights::Rights;
use crate::{Client, Request};
use bson::raw::{CString, RawArrayBuf, RawDocument, cstr};
use bson::{Bson, Decimal128, Document, RawBson, RawDocumentBuf, doc, rawdoc};
use std::sync::Arc;
use wire::ErrorCode;

fn role(role: &str, database: &str) -> Bson {
    doc! { "role": role, "db": database }.into()
}

/// The code with which a command fails, 0 when it succeeds.
fn result(bench: &Bench, client: &Arc<Client>, database: &str, command: Document) -> i32 {
    bench.run_as(client, database, command).get_i32("code").unwrap_or(0)
}

const UNAUTHORIZED: i32 = 13;
const UNKNOWN_FIELD: i32 = 40415;

/// `capped: null` counts as not given, and zeros as false; who said so made views on what they must not read.
#[test]
fn a_view_that_says_it_is_not_capped_is_checked_all_the_same() {
    let bench = Bench::guarded();
    bench.keep_user("admin", "writer", &[role("readWrite", "admin")]);
    let writer = bench.stranger();
    bench.become_user(&writer, "admin", "writer");
    let zero: Decimal128 = "0".parse().unwrap();
    let values = [
        Bson::Null,
        Bson::Undefined,
        0.into(),
        0_i64.into(),
        0.0.into(),
        zero.into(),
        false.into(),
    ];
    for capped in values {
        let secret = doc! { "create": "v", "viewOn": "system.users", "pipeline": [], "capped": capped.clone() };
        assert_eq!(
            result(&bench, &writer, "admin", secret.clone()),
            UNAUTHORIZED,
            "{secret}"
        );
        let mut by_stage = secret.clone();
        by_stage.insert("viewOn", "c");
        by_stage.insert("pipeline", vec![doc! { "$unionWith": "system.users" }]);
        assert_eq!(
            result(&bench, &writer, "admin", by_stage.clone()),
            UNAUTHORIZED,
            "{by_stage}"
        );
        let operation = doc! { "op": "c", "ns": "admin.$cmd", "o": secret };
        let replayed = doc! { "applyOps": [operation] };
        assert_eq!(
            result(&bench, &writer, "admin", replayed.clone()),
            UNAUTHORIZED,
            "{replayed}"
        );
        let own = doc! { "create": "own", "viewOn": "c", "pipeline": [], "capped": capped };
        assert_eq!(result(&bench, &writer, "admin", own.clone()), 0, "{own}");
        succeeded(bench.run_as(&writer, "admin", doc! { "drop": "own" }));
    }
    let capped = doc! { "create": "d", "capped": true, "size": 4096 };
    assert_eq!(result(&bench, &writer, "admin", capped), 0);
}

/// `collMod` leaves nulls out of a pipeline: another stage is the first then.
#[test]
fn a_changed_view_needs_what_its_first_stage_needs() {
    let bench = Bench::guarded();
    bench.insert("c", &[doc! { "_id": 1 }]);
    let on = |collection: &str, actions: &[&str]| doc! { "resource": { "db": "test", "collection": collection }, "actions": actions };
    let privileges = vec![
        on("c", &["find"]),
        on("v", &["find", "createCollection", "collMod"]),
        on("no", &["collMod"]),
    ];
    bench.ok(doc! { "createRole": "viewer", "privileges": privileges, "roles": [] });
    let eve = bench.user("eve", &[role("viewer", "test")]);
    assert_eq!(result(&bench, &eve, "test", doc! { "create": "v", "viewOn": "c" }), 0);
    let stats = Bson::from(doc! { "$collStats": { "count": {} } });
    for pipeline in [
        vec![stats.clone()],
        vec![Bson::Null, stats.clone()],
        vec![Bson::Undefined, stats],
    ] {
        let change = doc! { "collMod": "v", "viewOn": "c", "pipeline": pipeline };
        assert_eq!(result(&bench, &eve, "test", change.clone()), UNAUTHORIZED, "{change}");
    }
    let change = doc! { "collMod": "v", "viewOn": "c", "pipeline": [Bson::Null, doc! { "$match": {} }] };
    assert_eq!(result(&bench, &eve, "test", change), 0);
    // There could be such a view by the time the command runs.
    for change in [
        doc! { "collMod": "no", "viewOn": "secrets" },
        doc! { "collMod": "no", "pipeline": [{ "$unionWith": "secrets" }] },
    ] {
        assert_eq!(result(&bench, &eve, "test", change.clone()), UNAUTHORIZED, "{change}");
    }
}

#[test]
fn validators_are_passed_by_who_may_on_what_is_written() {
    let bench = Bench::guarded();
    bench.ok(doc! { "create": "a", "validator": { "a": { "$type": "int" } } });
    bench.run_on(
        "source",
        doc! { "insert": "s", "documents": [{ "_id": 7, "a": "bad" }] },
    );
    let writer = bench.user(
        "writer",
        &[
            role("readWrite", "test"),
            role("dbAdmin", "source"),
            role("read", "source"),
        ],
    );
    let owner = bench.user("owner", &[role("dbOwner", "test"), role("read", "source")]);
    let merge = doc! { "$merge": { "into": { "db": "test", "coll": "a" } } };
    let nobodys =
        doc! { "aggregate": "s", "pipeline": [{ "$match": {} }], "cursor": {}, "bypassDocumentValidation": true };
    let insert = doc! { "op": "i", "ns": "test.a", "o": { "_id": 1, "a": "x" } };
    let update = doc! { "op": "u", "ns": "test.a", "o2": { "_id": 1 }, "o": { "$set": { "a": "y" } } };
    let commands = [
        ("admin", doc! { "applyOps": [insert] }),
        ("admin", doc! { "applyOps": [update] }),
        ("source", doc! { "aggregate": "s", "pipeline": [merge], "cursor": {} }),
    ];
    for (database, command) in commands {
        assert_ne!(
            result(&bench, &writer, database, command.clone()),
            UNAUTHORIZED,
            "{command}"
        );
        let mut bypass = command.clone();
        bypass.insert("bypassDocumentValidation", true);
        assert_eq!(
            result(&bench, &writer, database, bypass.clone()),
            UNAUTHORIZED,
            "{bypass}"
        );
        assert_eq!(result(&bench, &owner, database, bypass.clone()), 0, "{bypass}");
    }
    assert_eq!(result(&bench, &owner, "source", nobodys), 0, "nothing is written");
    assert_eq!(
        bench.find("a", doc! {}),
        [doc! { "_id": 1, "a": "y" }, doc! { "_id": 7, "a": "bad" }]
    );
}

/// As many levels as a document may have took a piece of the thread's stack each.
#[test]
fn an_explained_explain_is_refused_whatever_is_in_it() {
    let bench = Bench::guarded();
    let nobody = bench.user("nobody", &[]);
    let mut nested = bson::rawdoc! { "find": "c" };
    for _ in 0..150 {
        nested = bson::rawdoc! { "explain": nested };
    }
    nested.append(cstr!("$db"), "test");
    let mut reply = Vec::new();
    bench.server.handle(&nobody, &crate::Request::of(&nested), &mut reply);
    let reply = Document::try_from(RawDocumentBuf::from_bytes(reply).unwrap()).unwrap();
    assert_eq!(code(&reply), 20, "{reply}");
    let find = doc! { "explain": { "find": "c" } };
    assert_eq!(result(&bench, &nobody, "test", find), UNAUTHORIZED);
}

/// Only commands said that users had changed. What another member wrote, or the TTL monitor, or a command whose client
/// did not wait for it, left open connections with the rights they had.
#[test]
fn rights_change_with_what_is_written_whoever_writes_it() {
    let bench = Bench::guarded();
    bench.insert("c", &[doc! { "_id": 1 }]);
    let eve = bench.user("eve", &[role("read", "test")]);
    let find = || bench.run_as(&eve, "test", doc! { "find": "c" });
    assert_eq!(first_batch(&find()), [doc! { "_id": 1 }]);
    let removed = bench
        .server
        .own_call(|call| user_store::remove(call, Store::Users, &user_store::key("test", "eve")));
    assert_eq!(removed.unwrap(), 1);
    assert_eq!(code(&find()), UNAUTHORIZED);
    // A role that is taken away.
    let privilege = doc! { "resource": { "db": "test", "collection": "c" }, "actions": ["find"] };
    bench.ok(doc! { "createRole": "reader", "privileges": [privilege], "roles": [] });
    let bob = bench.user("bob", &[role("reader", "test")]);
    let find = || result(&bench, &bob, "test", doc! { "find": "c" });
    assert_eq!(find(), 0);
    let removed = bench
        .server
        .own_call(|call| user_store::remove(call, Store::Roles, &doc! { "role": "reader", "db": "test" }));
    assert_eq!(removed.unwrap(), 1);
    assert_eq!(find(), UNAUTHORIZED);
}

/// Each stage that writes had all fields of the command looked at: one such command kept a thread for hours.
#[test]
fn fields_are_not_looked_at_anew_for_each_stage_that_writes() {
    // The product would not end while anybody waits for it.
    const STAGES: usize = 100_000;
    const FIELDS: usize = 1_000_000;
    let bench = Bench::guarded();
    let writer = bench.user("writer", &[role("readWrite", "test")]);
    let mut stages = RawArrayBuf::new();
    for _ in 0..STAGES {
        stages.push(rawdoc! { "$out": "a" });
    }
    let mut body = RawDocumentBuf::new();
    body.append(cstr!("aggregate"), "a");
    body.append(cstr!("pipeline"), stages);
    for number in 0..FIELDS {
        body.append(CString::try_from(format!("a{number}")).unwrap(), RawBson::Null);
    }
    body.append(cstr!("$db"), "test");
    let mut reply = Vec::new();
    bench.server.handle(&writer, &Request::of(&body), &mut reply);
    let reply = RawDocument::from_bytes(&reply).unwrap();
    // All of it is allowed, and none of it makes sense.
    assert_eq!(reply.get_i32("code").unwrap(), UNKNOWN_FIELD);
}

/// It was checked against the view that was there, or none, and changed the one that had come in its place.
#[test]
fn a_view_that_came_after_the_check_is_checked_again() {
    let bench = Bench::guarded();
    bench.ok(doc! { "create": "v", "viewOn": "secrets", "pipeline": [{ "$project": { "password": 0 } }] });
    let body = rawdoc! { "collMod": "v", "pipeline": [] };
    let (command, _) = bench.server.commands.find("collMod").unwrap();
    let changes = |rights| {
        let client = bench.stranger();
        let mut call = Invocation::of_server(&bench.server, &client, command, &body, "test");
        call.rights = rights;
        let mut reply = Vec::new();
        (command.run)(&mut call, &mut Reply::begin(&mut reply))
    };
    let refused = changes(Rights::Nobody).unwrap_err();
    assert_eq!(refused.code, ErrorCode::Unauthorized);
    assert!(changes(Rights::Unchecked).is_ok());
}
