//! Who may run what: the whole table for every built-in role, and what is decided by the fields of a command.

use super::tables::{database, plain};
use super::{Bench, code, first_batch, succeeded};
use crate::definition::Access;
use crate::table::COMMANDS;
use crate::{Client, Peer};
use bson::{Bson, Document, doc};
use std::sync::Arc;

fn bench() -> Bench {
    let bench = Bench::guarded();
    bench.insert("c", &[doc! { "_id": 1 }]);
    bench.insert("secrets", &[doc! { "_id": 1, "pin": 1234 }]);
    bench
}

fn role(role: &str, database: &str) -> Bson {
    Bson::Document(doc! { "role": role, "db": database })
}

/// The message of a refusal; panics when the command was not refused.
fn refusal(bench: &Bench, client: &Arc<Client>, database: &str, command: Document) -> String {
    let reply = bench.run_as(client, database, command.clone());
    assert_eq!(reply.get_i32("code").ok(), Some(13), "{command}: {reply}");
    assert_eq!(reply.get_str("codeName").ok(), Some("Unauthorized"));
    reply.get_str("errmsg").unwrap().to_owned()
}

fn may(bench: &Bench, client: &Arc<Client>, database: &str, command: Document) -> bool {
    bench.run_as(client, database, command).get_i32("code").ok() != Some(13)
}

/// The commands of the table that a user with these roles is not refused.
fn allowed(roles: &[Bson]) -> Vec<&'static str> {
    let mut allowed = Vec::new();
    for command in COMMANDS.iter().filter(|command| command.name != "logout") {
        // Each on a fresh server: they remove, rename and lock.
        let bench = bench();
        let client = bench.user("eve", roles);
        if may(&bench, &client, database(command.name), plain(command.name)) {
            allowed.push(command.name);
        }
    }
    allowed
}

/// What needs no role.
const FREE: [&str; 20] = [
    "abortTransaction",
    "authenticate",
    "buildInfo",
    "commitTransaction",
    "connectionStatus",
    "endSessions",
    "getMore",
    "hello",
    "isMaster",
    "killCursors",
    "killSessions",
    "listCommands",
    "listDatabases",
    "ping",
    "refreshSessions",
    "saslContinue",
    "saslStart",
    "startSession",
    "testVersion2",
    "whatsmyuri",
];

#[test]
fn who_is_nobody_is_refused_every_command_but_the_open_ones() {
    let bench = bench();
    let stranger = bench.stranger();
    for command in COMMANDS.iter() {
        let call = plain(command.name);
        if matches!(command.access, Access::Open) {
            assert!(may(&bench, &stranger, database(command.name), call), "{}", command.name);
        } else {
            let expected = format!("Command {} requires authentication", command.name);
            assert_eq!(refusal(&bench, &stranger, database(command.name), call), expected);
        }
    }
}

#[test]
fn who_has_no_role_is_refused_every_command_that_needs_one() {
    assert_eq!(allowed(&[]), FREE);
}

#[test]
fn roles_allow_what_they_are_for() {
    let list = |groups: &[&'static str]| {
        let mut names: Vec<&str> = groups
            .iter()
            .flat_map(|group| group.split_whitespace())
            .chain(FREE)
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    };
    let read = "aggregate collStats count dataSize dbHash dbStats distinct explain filemd5 find listCollections listIndexes mapReduce";
    let write = "applyOps bulkWrite cloneCollectionAsCapped convertToCapped create createIndexes delete drop dropIndexes findAndModify insert renameCollection update";
    let administer = "collMod collStats compact convertToCapped create createIndexes dbHash dbStats drop dropDatabase dropIndexes \
                      listCollections listIndexes planCacheClear planCacheClearFilters planCacheListFilters planCacheSetFilter reIndex profile renameCollection validate";
    let users = "createRole createUser dropAllRolesFromDatabase dropAllUsersFromDatabase dropRole dropUser \
                 grantPrivilegesToRole grantRolesToRole grantRolesToUser revokePrivilegesFromRole revokeRolesFromRole \
                 revokeRolesFromUser rolesInfo updateRole usersInfo";
    let monitor = "collStats connPoolStats currentOp dbStats getClusterParameter getCmdLineOpts getDefaultRWConcern getDiagnosticData getLog getParameter hostInfo lockInfo replSetGetConfig \
                   replSetGetStatus serverStatus top";
    let host = "configureFailPoint logApplicationMessage dropConnections fsync fsyncUnlock invalidateUserCache killAllSessions killAllSessionsByPattern killOp logRotate rotateCertificates setParameter shutdown";
    let back_up = "aggregate appendOplogNote count dataSize distinct explain filemd5 find getParameter listCollections listIndexes lockInfo mapReduce serverStatus";
    let restore =
        "bulkWrite collMod convertToCapped create createIndexes drop getParameter insert listCollections updateUser";
    let manage = "appendOplogNote logApplicationMessage setQuerySettings removeQuerySettings setUserWriteBlockMode setClusterParameter getDefaultRWConcern setDefaultRWConcern setFeatureCompatibilityVersion replSetAbortPrimaryCatchUp replSetFreeze replSetGetConfig replSetGetStatus replSetInitiate \
                  replSetMaintenance replSetReconfig replSetResizeOplog replSetStepDown \
                  replSetStepUp replSetSyncFrom";
    for (name, of, expected) in [
        ("read", "test", vec![read]),
        ("read", "other", vec![]),
        ("readWrite", "test", vec![read, write]),
        ("dbAdmin", "test", vec![administer]),
        ("userAdmin", "test", vec![users, "updateUser"]),
        ("dbOwner", "test", vec![read, write, administer, users, "updateUser"]),
        ("readAnyDatabase", "admin", vec![read]),
        ("readWriteAnyDatabase", "admin", vec![read, write]),
        ("dbAdminAnyDatabase", "admin", vec![administer]),
        (
            "userAdminAnyDatabase",
            "admin",
            vec![users, "_mergeAuthzCollections updateUser invalidateUserCache"],
        ),
        ("clusterMonitor", "admin", vec![monitor]),
        ("clusterManager", "admin", vec![manage]),
        ("hostManager", "admin", vec![host]),
        ("clusterAdmin", "admin", vec![monitor, host, manage, "dropDatabase"]),
        ("backup", "admin", vec![back_up]),
        ("restore", "admin", vec![restore, users, "_mergeAuthzCollections"]),
    ] {
        assert_eq!(allowed(&[role(name, of)]), list(&expected), "{name}@{of}");
    }
    for name in ["root", "__system"] {
        let all: Vec<_> = COMMANDS
            .iter()
            .map(|command| command.name)
            .filter(|name| *name != "logout")
            // Between members: nobody but a member may.
            .filter(|command| {
                let of_members =
                    command.starts_with("_tenon") || matches!(*command, "replSetGetRBID" | "replSetHeartbeat");
                name == "__system" || !of_members
            })
            .collect();
        assert_eq!(allowed(&[role(name, "admin")]), all, "{name}");
    }
}

#[test]
fn the_refusal_names_the_command_and_shows_no_secret() {
    let bench = bench();
    let client = bench.user("eve", &[]);
    let find = doc! { "find": "c", "filter": { "a": 1 } };
    assert_eq!(
        refusal(&bench, &client, "test", find),
        "not authorized on test to execute command { find: \"c\", filter: { a: 1 }, $db: \"test\" }"
    );
    let create = doc! { "createUser": "bob", "pwd": "s3cret", "roles": [] };
    assert!(!refusal(&bench, &client, "test", create.clone()).contains("s3cret"));
    let insert = doc! { "insert": "c", "documents": [{ "text": "x".repeat(1 << 20) }] };
    assert!(refusal(&bench, &client, "test", insert).len() < 1000);
}

#[test]
fn pipelines_need_what_their_stages_read() {
    let bench = bench();
    let on_c = doc! { "resource": { "db": "test", "collection": "c" }, "actions": ["find"] };
    bench.ok(doc! { "createRole": "c", "privileges": [on_c], "roles": [] });
    let client = bench.user("eve", &[role("c", "test")]);
    let runs = |collection: Bson, pipeline: Bson| {
        let command = doc! { "aggregate": collection, "pipeline": pipeline, "cursor": {} };
        may(&bench, &client, "test", command)
    };
    let on_c = |stage: Document| runs("c".into(), bson::bson!([{ "$match": {} }, stage]));
    assert!(on_c(doc! { "$sort": { "a": 1 } }));
    assert!(!runs("secrets".into(), bson::bson!([])));
    let lookup = |from: &str, pipeline: Bson| doc! { "$lookup": { "from": from, "pipeline": pipeline, "as": "x" } };
    assert!(on_c(lookup("c", bson::bson!([]))));
    let forbidden = [
        lookup("secrets", bson::bson!([])),
        lookup("c", bson::bson!([lookup("secrets", bson::bson!([]))])),
        doc! { "$lookup": { "from": "secrets", "localField": "a", "foreignField": "b", "as": "x" } },
        doc! { "$lookup": { "from": { "db": "admin", "coll": "system.users" }, "pipeline": [], "as": "x" } },
        doc! { "$unionWith": "secrets" },
        doc! { "$unionWith": { "coll": "secrets" } },
        doc! { "$unionWith": { "coll": "c", "pipeline": [{ "$unionWith": "secrets" }] } },
        doc! { "$unionWith": { "coll": "c", "pipeline": [{ "$collStats": { "count": {} } }] } },
        doc! { "$facet": { "x": [{ "$lookup": { "from": "secrets", "pipeline": [], "as": "x" } }] } },
        doc! { "$graphLookup": { "from": "secrets", "startWith": 1, "connectFromField": "a", "connectToField": "b", "as": "x" } },
        doc! { "$out": "d" },
        doc! { "$merge": { "into": "d" } },
        doc! { "$merge": { "into": "d", "whenMatched": [{ "$lookup": { "from": "secrets", "pipeline": [], "as": "x" } }] } },
    ];
    for stage in forbidden {
        assert!(!on_c(stage.clone()), "{stage}");
        let explained = doc! { "aggregate": "c", "pipeline": [stage.clone()], "cursor": {} };
        assert!(!may(&bench, &client, "test", doc! { "explain": explained }), "{stage}");
    }
    assert!(!runs("c".into(), bson::bson!([{ "$collStats": { "count": {} } }])));
    assert!(!runs("c".into(), bson::bson!([{ "$indexStats": {} }])));
    let on_admin = |pipeline: Bson| {
        may(
            &bench,
            &client,
            "admin",
            doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} },
        )
    };
    assert!(on_admin(bson::bson!([{ "$currentOp": {} }])));
    assert!(!on_admin(bson::bson!([{ "$querySettings": {} }])));
    assert!(on_admin(bson::bson!([{ "$documents": [{ "a": 1 }] }])));
    assert!(!on_admin(bson::bson!([{ "$currentOp": { "allUsers": true } }])));
    assert!(!on_admin(bson::bson!([{ "$backupCursor": {} }])));
    assert!(!on_admin(
        bson::bson!([{ "$documents": [{}] }, { "$lookup": { "from": "system.users", "pipeline": [], "as": "x" } }])
    ));
}

/// Whoever reads a field twice may read it differently from who checked it.
#[test]
fn a_field_that_is_there_twice_is_refused() {
    let bench = bench();
    let client = bench.user("eve", &[role("read", "open")]);
    let run = |fields: &[(&str, Bson)]| {
        let mut raw = bson::RawDocumentBuf::new();
        for (name, value) in fields {
            let value = bson::RawBson::try_from(value.clone()).unwrap();
            raw.append(bson::raw::CString::try_from(*name).unwrap(), value);
        }
        let request = crate::Request::of(&raw);
        let mut reply = Vec::new();
        bench.server.handle(&client, &request, &mut reply);
        Document::try_from(bson::RawDocumentBuf::from_bytes(reply).unwrap()).unwrap()
    };
    let reads = |pipeline: Bson| ("pipeline", pipeline);
    let secret = bson::bson!([{ "$unionWith": { "coll": "secrets", "db": "test" } }]);
    for pipelines in [[bson::bson!([]), secret.clone()], [secret, bson::bson!([])]] {
        let [first, second] = pipelines;
        let reply = run(&[
            ("aggregate", "c".into()),
            reads(first),
            reads(second),
            ("cursor", bson::bson!({})),
            ("$db", "open".into()),
        ]);
        assert_eq!(code(&reply), 40413, "{reply}");
    }
    let reply = run(&[
        ("find", "secrets".into()),
        ("$db", "open".into()),
        ("$db", "test".into()),
    ]);
    assert_eq!(code(&reply), 40413, "{reply}");
    let reply = run(&[
        ("currentOp", 1.into()),
        ("$ownOps", true.into()),
        ("$ownOps", false.into()),
        ("$db", "admin".into()),
    ]);
    assert_eq!(code(&reply), 40413, "{reply}");
    let names = [
        ("nameOnly", true.into()),
        ("authorizedCollections", true.into()),
        ("nameOnly", false.into()),
    ];
    let [a, b, c] = names;
    let reply = run(&[("listCollections", 1.into()), a, b, c, ("$db", "test".into())]);
    assert_eq!(code(&reply), 40413, "{reply}");
}

/// What is looked at for each of several names is as much work as their product, or more.
#[test]
fn names_of_collections_stand_once() {
    let bench = bench();
    let eve = bench.user("eve", &[role("read", "test")]);
    let twice = |field: &str, value: &str, more: Document| {
        let mut raw = bson::RawDocumentBuf::new();
        for _ in 0..2 {
            raw.append(bson::raw::CString::try_from(field).unwrap(), value);
        }
        for (name, value) in more {
            let value = bson::RawBson::try_from(value).unwrap();
            raw.append(bson::raw::CString::try_from(name.as_str()).unwrap(), value);
        }
        raw
    };
    let run = |stage: &str, argument: bson::RawDocumentBuf| {
        let mut raw = bson::rawdoc! { "aggregate": "c", "cursor": {}, "$db": "test" };
        let mut one = bson::RawDocumentBuf::new();
        one.append(bson::raw::CString::try_from(stage).unwrap(), argument);
        let mut pipeline = bson::RawArrayBuf::new();
        pipeline.push(one);
        raw.append(bson::raw::cstr!("pipeline"), pipeline);
        let mut reply = Vec::new();
        bench.server.handle(&eve, &crate::Request::of(&raw), &mut reply);
        code(&Document::try_from(bson::RawDocumentBuf::from_bytes(reply).unwrap()).unwrap())
    };
    for (stage, field, more) in [
        ("$lookup", "from", doc! { "pipeline": [], "as": "x" }),
        ("$graphLookup", "from", doc! { "as": "x" }),
        ("$unionWith", "coll", doc! { "pipeline": [] }),
        ("$unionWith", "db", doc! { "coll": "c", "pipeline": [] }),
        ("$out", "db", doc! { "coll": "c" }),
        ("$out", "coll", doc! { "db": "test" }),
    ] {
        assert_eq!(run(stage, twice(field, "c", more)), 40413, "{stage} {field}");
    }
    let mut merge = bson::RawDocumentBuf::new();
    merge.append(bson::raw::cstr!("into"), twice("coll", "c", doc! {}));
    assert_eq!(run("$merge", merge), 40413);
    // As many levels as there may be are looked at once each.
    let mut nested = doc! { "$lookup": { "from": "c", "pipeline": [], "as": "x" } };
    for _ in 0..40 {
        nested = doc! { "$lookup": { "from": "c", "pipeline": [nested], "as": "x" } };
    }
    assert!(may(
        &bench,
        &eve,
        "test",
        doc! { "aggregate": "c", "pipeline": [nested], "cursor": {} }
    ));
}

/// A role may kill all cursors of one collection, and says so of that collection alone.
#[test]
fn cursors_of_a_collection_are_killed_by_who_may() {
    let bench = bench();
    for collection in ["mine", "other"] {
        bench.insert(collection, &[doc! {}, doc! {}]);
    }
    let resource = doc! { "db": "test", "collection": "mine" };
    bench.ok(
        doc! { "createRole": "k", "privileges": [{ "resource": resource, "actions": ["killAnyCursor"] }], "roles": [] },
    );
    let eve = bench.user("eve", &[role("k", "test")]);
    let open = |collection: &str| {
        let reply = bench.ok(doc! { "find": collection, "batchSize": 1 });
        reply.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let (mine, other) = (open("mine"), open("other"));
    // Whatever the call names.
    for named in ["mine", "other"] {
        refusal(&bench, &eve, "test", doc! { "killCursors": named, "cursors": [other] });
    }
    refusal(
        &bench,
        &eve,
        "test",
        doc! { "killCursors": "mine", "cursors": [mine, other] },
    );
    let killed = succeeded(bench.run_as(&eve, "test", doc! { "killCursors": "mine", "cursors": [mine] }));
    assert_eq!(killed.get_array("cursorsKilled").unwrap(), &vec![Bson::Int64(mine)]);
}

#[test]
fn a_view_is_read_by_its_own_name_and_made_by_who_may_read_below() {
    let bench = bench();
    bench.ok(doc! { "create": "v", "viewOn": "secrets", "pipeline": [{ "$project": { "_id": 1 } }] });
    let on = |collection: &str, actions: &[&str]| doc! { "resource": { "db": "test", "collection": collection }, "actions": actions };
    let own = ["find", "createCollection", "collMod"];
    bench.ok(doc! { "createRole": "v", "privileges": [on("v", &["find"]), on("own", &own), on("c", &["find"])], "roles": [] });
    let client = bench.user("eve", &[role("v", "test")]);
    let seen = first_batch(&succeeded(bench.run_as(&client, "test", doc! { "find": "v" })));
    assert_eq!(seen, [doc! { "_id": 1 }]);
    refusal(&bench, &client, "test", doc! { "find": "secrets" });
    refusal(
        &bench,
        &client,
        "test",
        doc! { "create": "own", "viewOn": "secrets", "pipeline": [] },
    );
    refusal(&bench, &client, "test", doc! { "create": "own", "viewOn": "secrets" });
    refusal(
        &bench,
        &client,
        "test",
        doc! { "create": "own", "viewOn": "c", "pipeline": [{ "$unionWith": "secrets" }] },
    );
    succeeded(bench.run_as(&client, "test", doc! { "create": "own", "viewOn": "c", "pipeline": [] }));
    refusal(&bench, &client, "test", doc! { "collMod": "own", "viewOn": "secrets" });
    refusal(
        &bench,
        &client,
        "test",
        doc! { "collMod": "own", "pipeline": [{ "$unionWith": "secrets" }] },
    );
}

#[test]
fn writes_need_what_they_do() {
    let bench = bench();
    let on_c = doc! { "resource": { "db": "test", "collection": "c" }, "actions": ["update"] };
    bench.ok(doc! { "createRole": "changer", "privileges": [on_c], "roles": [] });
    let client = bench.user("eve", &[role("changer", "test")]);
    let update =
        |upsert: bool| doc! { "update": "c", "updates": [{ "q": {}, "u": { "$set": { "a": 1 } }, "upsert": upsert }] };
    assert!(may(&bench, &client, "test", update(false)) && !may(&bench, &client, "test", update(true)));
    let mut bypass = update(false);
    bypass.insert("bypassDocumentValidation", true);
    refusal(&bench, &client, "test", bypass);
    refusal(
        &bench,
        &client,
        "test",
        doc! { "findAndModify": "c", "update": { "$set": { "a": 1 } } },
    );
    refusal(
        &bench,
        &client,
        "test",
        doc! { "explain": { "update": "secrets", "updates": [{ "q": {}, "u": {} }] } },
    );
    let bulk = |operation: Document, namespaces: &[Document]| {
        may(
            &bench,
            &client,
            "admin",
            doc! { "bulkWrite": 1, "ops": [operation], "nsInfo": namespaces },
        )
    };
    let change = |place: i32| doc! { "update": place, "filter": {}, "updateMods": { "$set": { "a": 2 } } };
    let (c, secrets) = (doc! { "ns": "test.c" }, doc! { "ns": "test.secrets" });
    assert!(bulk(change(0), std::slice::from_ref(&c)));
    assert!(!bulk(change(1), &[c.clone(), secrets.clone()]));
    assert!(!bulk(change(0), &[c.clone(), secrets]));
    assert!(!bulk(doc! { "delete": 0, "filter": {} }, std::slice::from_ref(&c)));
    assert!(!bulk(doc! { "insert": 0, "document": {} }, &[c]));
    assert!(!bulk(
        doc! { "insert": 0, "document": {} },
        &[doc! { "ns": "admin.system.users" }]
    ));
}

#[test]
fn map_reduce_needs_to_write_what_out_names() {
    let bench = bench();
    let on_d = doc! { "resource": { "db": "test", "collection": "d" }, "actions": ["insert", "update"] };
    bench.ok(doc! { "createRole": "merger", "privileges": [on_d], "roles": ["read"] });
    let client = bench.user("eve", &[role("merger", "test")]);
    let runs = |out: Bson, more: Document| {
        let mut call = plain("mapReduce");
        call.insert("out", out);
        call.extend(more);
        may(&bench, &client, "test", call)
    };
    let bypass = || doc! { "bypassDocumentValidation": true };
    assert!(runs(doc! { "inline": 1 }.into(), doc! {}));
    assert!(runs(doc! { "inline": 1 }.into(), bypass()));
    assert!(runs(doc! { "merge": "d" }.into(), doc! {}));
    assert!(runs(doc! { "reduce": "d" }.into(), doc! {}));
    assert!(!runs(doc! { "merge": "d" }.into(), bypass()));
    assert!(!runs(doc! { "merge": "e" }.into(), doc! {}));
    assert!(!runs(doc! { "merge": "d", "db": "other" }.into(), doc! {}));
    assert!(!runs("d".into(), doc! {}));
    let reader = bench.user("amy", &[role("merger", "test")]);
    let mut elsewhere = plain("mapReduce");
    elsewhere.insert("mapReduce", "c");
    assert!(!may(&bench, &reader, "other", elsewhere));
}

#[test]
fn system_collections_are_not_reached_by_roles_of_their_database() {
    let bench = bench();
    bench.keep_user(
        "admin",
        "writer",
        &[role("dbOwner", "admin"), role("readWriteAnyDatabase", "admin")],
    );
    let client = bench.stranger();
    bench.become_user(&client, "admin", "writer");
    for name in ["system.users", "system.roles", "system.keys", "system.version"] {
        for command in [
            doc! { "find": name },
            doc! { "count": name },
            doc! { "insert": name, "documents": [{}] },
            doc! { "update": name, "updates": [{ "q": {}, "u": { "$set": { "a": 1 } } }] },
            doc! { "delete": name, "deletes": [{ "q": {}, "limit": 0 }] },
            doc! { "drop": name },
            doc! { "aggregate": name, "pipeline": [], "cursor": {} },
            doc! { "aggregate": 1, "pipeline": [{ "$documents": [] }, { "$unionWith": name }], "cursor": {} },
            doc! { "create": "v", "viewOn": name, "pipeline": [] },
            doc! { "renameCollection": "admin.x", "to": format!("admin.{name}") },
            doc! { "renameCollection": format!("admin.{name}"), "to": "admin.x" },
        ] {
            assert!(!may(&bench, &client, "admin", command.clone()), "{command}");
        }
    }
}

#[test]
fn cursors_are_their_users() {
    let bench = bench();
    bench.insert("many", &(0..9).map(|i| doc! { "_id": i }).collect::<Vec<_>>());
    let eve = bench.user("eve", &[role("read", "test")]);
    let bob = bench.user("bob", &[role("read", "test")]);
    let open = || {
        let reply = succeeded(bench.run_as(&eve, "test", doc! { "find": "many", "batchSize": 1 }));
        reply.get_document("cursor").unwrap().get_i64("id").unwrap()
    };
    let id = open();
    let more = doc! { "getMore": id, "collection": "many", "batchSize": 1 };
    refusal(&bench, &bob, "test", more.clone());
    refusal(&bench, &bob, "test", doc! { "killCursors": "many", "cursors": [id] });
    // Another connection of the same user may go on.
    let again = bench.stranger();
    bench.become_user(&again, "test", "eve");
    succeeded(bench.run_as(&again, "test", more.clone()));
    succeeded(bench.run_as(&eve, "test", more.clone()));
    // The right to the collection is taken away, not the user.
    bench.ok(doc! { "revokeRolesFromUser": "eve", "roles": ["read"] });
    assert!(refusal(&bench, &eve, "test", more).contains("getMore"));
    succeeded(bench.run_as(&eve, "test", doc! { "killCursors": "many", "cursors": [id] }));
    bench.ok(doc! { "grantRolesToUser": "eve", "roles": ["read"] });
    let id = open();
    let killed = bench.ok(doc! { "killCursors": "many", "cursors": [id] });
    assert_eq!(
        killed.get_array("cursorsKilled").unwrap().len(),
        1,
        "an administrator may kill any"
    );
}

#[test]
fn rights_that_are_taken_are_gone_in_open_connections() {
    let bench = bench();
    let eve = bench.user("eve", &[role("read", "test")]);
    let find = || doc! { "find": "c" };
    assert!(may(&bench, &eve, "test", find()));
    bench.ok(doc! { "revokeRolesFromUser": "eve", "roles": ["read"] });
    refusal(&bench, &eve, "test", find());
    bench.ok(doc! { "updateUser": "eve", "roles": ["readWrite"] });
    assert!(may(&bench, &eve, "test", find()));
    bench.ok(doc! { "dropUser": "eve" });
    assert!(refusal(&bench, &eve, "test", find()).contains("requires authentication"));
    // Who is made under the same name is somebody else.
    bench.ok(doc! { "createUser": "eve", "pwd": "x", "roles": ["read"] });
    assert!(refusal(&bench, &eve, "test", find()).contains("requires authentication"));
    // Documents that are written like any others count as well.
    let bob = bench.user("bob", &[role("read", "test")]);
    assert!(may(&bench, &bob, "test", find()));
    let none: Vec<Bson> = Vec::new();
    succeeded(bench.admin(
        doc! { "update": "system.users", "updates": [{ "q": { "user": "bob" }, "u": { "$set": { "roles": none } } }] },
    ));
    refusal(&bench, &bob, "test", find());
}

#[test]
fn lists_show_what_one_may_see() {
    let bench = bench();
    bench.insert("d", &[doc! {}]);
    let on_c = doc! { "resource": { "db": "test", "collection": "c" }, "actions": ["find"] };
    bench.ok(doc! { "createRole": "c", "privileges": [on_c], "roles": [] });
    let eve = bench.user("eve", &[role("c", "test")]);
    let names = |reply: &Document| {
        first_batch(reply)
            .iter()
            .map(|entry| entry.get_str("name").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    refusal(&bench, &eve, "test", doc! { "listCollections": 1 });
    refusal(&bench, &eve, "test", doc! { "listCollections": 1, "nameOnly": true });
    let authorized = doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true };
    assert_eq!(names(&succeeded(bench.run_as(&eve, "test", authorized.clone()))), ["c"]);
    refusal(&bench, &eve, "admin", authorized.clone());
    assert_eq!(names(&bench.ok(authorized)), ["c", "d", "secrets"]);
    let databases = |client: &Arc<Client>, command: Document| {
        let reply = succeeded(bench.run_as(client, "admin", command));
        let list = reply.get_array("databases").unwrap();
        list.iter()
            .map(|entry| entry.as_document().unwrap().get_str("name").unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(databases(&eve, doc! { "listDatabases": 1 }), ["test"]);
    assert_eq!(
        databases(&eve, doc! { "listDatabases": 1, "authorizedDatabases": true }),
        ["test"]
    );
    refusal(
        &bench,
        &eve,
        "admin",
        doc! { "listDatabases": 1, "authorizedDatabases": false },
    );
    assert_eq!(
        databases(&bench.client, doc! { "listDatabases": 1 }),
        ["admin", "config", "local", "test"]
    );
    assert_eq!(databases(&bench.user("bob", &[]), doc! { "listDatabases": 1 }), [""; 0]);
}

/// The way in for who sets a server up is shut by the first user, for good.
#[test]
fn the_first_user_is_made_from_this_machine_and_no_other() {
    let bench = Bench::build(&[], None, true, None).unwrap();
    let create = |name: &str| doc! { "createUser": name, "pwd": "x", "roles": ["root"] };
    let far = bench.server.connect(Peer::Tcp("10.0.0.1:1".into(), None));
    refusal(&bench, &far, "admin", create("mallory"));
    refusal(
        &bench,
        &bench.client,
        "test",
        doc! { "createUser": "amy", "pwd": "x", "roles": [] },
    );
    refusal(&bench, &bench.client, "admin", doc! { "find": "system.users" });
    refusal(&bench, &bench.client, "admin", doc! { "usersInfo": 1 });
    let lists = doc! { "createRole": "lister", "privileges": [{ "resource": { "cluster": true }, "actions": ["listDatabases"] }], "roles": [] };
    succeeded(bench.admin(lists));
    let unix = bench.server.connect(Peer::Unix("/tmp/mongodb-27017.sock".into()));
    succeeded(bench.run_as(&unix, "admin", create("amy")));
    for client in [&bench.client, &unix] {
        refusal(&bench, client, "admin", create("bob"));
        refusal(
            &bench,
            client,
            "admin",
            doc! { "createRole": "r", "privileges": [], "roles": [] },
        );
    }
    bench.become_user(&unix, "admin", "amy");
    succeeded(bench.run_as(&unix, "admin", doc! { "dropUser": "amy" }));
    refusal(&bench, &bench.client, "admin", create("bob"));
}

/// As long as nobody had tried the way in while there was a user, it was open again when that was dropped.
#[test]
fn the_way_in_stays_shut_though_nobody_has_tried_it() {
    let bench = Bench::guarded();
    succeeded(bench.admin(doc! { "dropUser": "root" }));
    let create = doc! { "createUser": "mallory", "pwd": "x", "roles": ["root"] };
    refusal(&bench, &bench.stranger(), "admin", create);
}

/// Behind a proxy on this machine everybody comes from it.
#[test]
fn who_starts_the_server_can_shut_the_way_of_the_first_user() {
    let with = |value: &str| Bench::build(&[("enableLocalhostAuthBypass", value)], None, true, None);
    assert!(with("2").is_err());
    let create = doc! { "createUser": "mallory", "pwd": "x", "roles": ["root"] };
    let bench = with("0").unwrap();
    refusal(&bench, &bench.client, "admin", create.clone());
    bench.keep_user("admin", "root", &[role("root", "admin")]);
    bench.become_user(&bench.client, "admin", "root");
    let parameter = succeeded(bench.admin(doc! { "getParameter": 1, "enableLocalhostAuthBypass": 1 }));
    assert_eq!(parameter, doc! { "enableLocalhostAuthBypass": false });
    let set = bench.admin(doc! { "setParameter": 1, "enableLocalhostAuthBypass": true });
    assert_eq!(code(&set), 20);
    let bench = with("true").unwrap();
    succeeded(bench.admin(create));
}

#[test]
fn a_user_sees_and_ends_its_own_operations_alone() {
    let bench = bench();
    let eve = bench.user("eve", &[]);
    let own = succeeded(bench.run_as(&eve, "admin", doc! { "currentOp": 1, "$ownOps": true }));
    let [Bson::Document(running)] = &own.get_array("inprog").unwrap()[..] else {
        panic!("its own: {own}")
    };
    let users = running.get_array("effectiveUsers").unwrap();
    assert_eq!(users[..], [doc! { "user": "eve", "db": "test" }.into()]);
    refusal(&bench, &eve, "admin", doc! { "currentOp": 1 });
    refusal(&bench, &eve, "admin", doc! { "killOp": 1, "op": 12345 });
    let connections = |client: &Arc<Client>, pipeline: Bson| {
        let command = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} };
        first_batch(&succeeded(bench.run_as(client, "admin", command))).len()
    };
    assert_eq!(
        connections(&eve, bson::bson!([{ "$currentOp": { "idleConnections": true } }])),
        1
    );
    assert_eq!(
        connections(
            &bench.client,
            bson::bson!([{ "$currentOp": { "idleConnections": true, "allUsers": true } }])
        ),
        2
    );
}

#[test]
fn logging_out_gives_everything_up() {
    let bench = bench();
    let eve = bench.user("eve", &[role("read", "test")]);
    assert!(may(&bench, &eve, "test", doc! { "find": "c" }));
    let other = bench.run_as(&eve, "admin", doc! { "logout": 1 });
    succeeded(other);
    assert!(may(&bench, &eve, "test", doc! { "find": "c" }), "of another database");
    succeeded(bench.run_as(&eve, "test", doc! { "logout": 1 }));
    assert!(refusal(&bench, &eve, "test", doc! { "find": "c" }).contains("requires authentication"));
}

/// The same session number of two users is two sessions: neither is in the other's way.
#[test]
fn sessions_are_their_users() {
    let set = crate::replica_set::ReplicaSet::new("rs".to_owned(), true, ("localhost", 27017), [1; 16]);
    let bench = Bench::build(&[], Some(Arc::new(set)), true, None).unwrap();
    bench.server.keep_version().unwrap();
    bench.server.join_set(None).unwrap();
    bench.keep_user("admin", "root", &[role("root", "admin")]);
    bench.become_user(&bench.client, "admin", "root");
    bench.insert("c", &[doc! { "_id": 0 }]);
    let (eve, bob) = (
        bench.user("eve", &[role("readWrite", "test")]),
        bench.user("bob", &[role("readWrite", "test")]),
    );
    let session = Bson::Binary(bson::Binary {
        subtype: bson::spec::BinarySubtype::Uuid,
        bytes: vec![7; 16],
    });
    let in_transaction = |mut command: Document, starts: bool| {
        command.extend(doc! { "lsid": { "id": session.clone() }, "txnNumber": 1_i64, "autocommit": false });
        if starts {
            command.insert("startTransaction", true);
        }
        command
    };
    let insert = |id: i32| doc! { "insert": "c", "documents": [{ "_id": id }] };
    succeeded(bench.run_as(&eve, "test", in_transaction(insert(1), true)));
    succeeded(bench.run_as(&bob, "test", in_transaction(insert(2), true)));
    succeeded(bench.run_as(&bob, "admin", in_transaction(doc! { "abortTransaction": 1 }, false)));
    for kill in ["killSessions", "endSessions"] {
        succeeded(bench.run_as(&bob, "admin", doc! { kill: [{ "id": session.clone() }] }));
        succeeded(bench.run_as(
            &bench.stranger(),
            "admin",
            doc! { "endSessions": [{ "id": session.clone() }] },
        ));
    }
    succeeded(bench.run_as(&eve, "admin", in_transaction(doc! { "commitTransaction": 1 }, false)));
    assert_eq!(bench.find("c", doc! {}), [doc! { "_id": 0 }, doc! { "_id": 1 }]);
}

#[test]
fn a_server_is_ended_from_elsewhere_by_who_may_and_by_nobody_without_users() {
    let far = || Peer::Tcp("10.0.0.1:1".into(), None);
    let open = Bench::new();
    let client = open.server.connect(far());
    let ends = |bench: &Bench, client: &Arc<Client>| may(bench, client, "admin", doc! { "shutdown": 1 });
    assert!(!ends(&open, &client) && ends(&open, &open.client));
    let guarded = bench();
    let client = guarded.server.connect(far());
    assert!(!ends(&guarded, &client));
    guarded.become_user(&client, "admin", "root");
    assert!(ends(&guarded, &client));
}

/// The name stands behind the UUID, and is what rights are about.
#[test]
fn a_uuid_opens_nothing_that_its_name_does_not() {
    let bench = Bench::guarded();
    let uuid_of = |name: &str| {
        bench.ok(doc! { "create": name });
        let listed = first_batch(&bench.ok(doc! { "listCollections": 1, "filter": { "name": name } }));
        listed[0].get_document("info").unwrap().get("uuid").unwrap().clone()
    };
    let (plain, special) = (uuid_of("c"), uuid_of("system.js"));
    // All of a database but for what is the system's.
    let all = doc! { "resource": { "db": "test", "collection": "" }, "actions": ["find"] };
    bench.ok(doc! { "createRole": "all", "privileges": [all], "roles": [] });
    let one = doc! { "resource": { "db": "test", "collection": "c" }, "actions": ["find"] };
    bench.ok(doc! { "createRole": "one", "privileges": [one], "roles": [] });
    let (reader, narrow) = (
        bench.user("reader", &[doc! { "role": "all", "db": "test" }.into()]),
        bench.user("narrow", &[doc! { "role": "one", "db": "test" }.into()]),
    );
    let count = |client, uuid: &Bson| bench.run_as(client, "test", doc! { "count": uuid.clone() });
    assert_eq!(succeeded(count(&reader, &plain)), doc! { "n": 0 });
    assert_eq!(code(&count(&reader, &special)), 13);
    assert_eq!(code(&count(&narrow, &special)), 13);
}
