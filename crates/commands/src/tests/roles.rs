//! Roles that are made: what they give, and what may not be made of them.

use super::{Bench, code, succeeded};
use crate::{Client, Peer};
use bson::{Bson, Document, doc};
use std::sync::Arc;

fn role(role: &str, database: &str) -> Bson {
    Bson::Document(doc! { "role": role, "db": database })
}

fn privilege(database: &str, collection: &str, actions: &[&str]) -> Document {
    doc! { "resource": { "db": database, "collection": collection }, "actions": actions }
}

fn create(name: &str, privileges: &[Document], roles: &[Bson]) -> Document {
    doc! { "createRole": name, "privileges": privileges, "roles": roles }
}

fn may(bench: &Bench, client: &Arc<Client>, command: Document) -> bool {
    bench.run_as(client, "test", command).get_i32("code").ok() != Some(13)
}

#[test]
fn a_role_gives_its_privileges_and_those_it_inherits_until_they_are_taken() {
    let bench = Bench::guarded();
    bench.ok(create("finder", &[privilege("test", "c", &["find"])], &[]));
    bench.ok(create("worker", &[], &[role("finder", "test")]));
    let eve = bench.user("eve", &[role("worker", "test")]);
    let (find, insert) = (doc! { "find": "c" }, doc! { "insert": "c", "documents": [{}] });
    let both = || (may(&bench, &eve, find.clone()), may(&bench, &eve, insert.clone()));
    assert_eq!(both(), (true, false));
    bench.ok(doc! { "grantPrivilegesToRole": "finder", "privileges": [privilege("test", "c", &["insert", "update"])] });
    assert_eq!(both(), (true, true));
    bench.ok(doc! { "revokePrivilegesFromRole": "finder", "privileges": [privilege("test", "c", &["find"])] });
    assert_eq!(both(), (false, true));
    bench.ok(doc! { "revokeRolesFromRole": "worker", "roles": ["finder"] });
    assert_eq!(both(), (false, false));
    bench.ok(doc! { "grantRolesToRole": "worker", "roles": ["readWrite"] });
    assert_eq!(both(), (true, true));
    bench.ok(doc! { "updateRole": "worker", "roles": ["read"] });
    assert_eq!(both(), (true, false));
    bench.ok(doc! { "dropRole": "worker" });
    assert_eq!(both(), (false, false));
    // The role is nobody's any more, so that one of the same name gives nothing.
    bench.ok(create("worker", &[], &["readWrite".into()]));
    assert_eq!(both(), (false, false));
    assert_eq!(bench.ok(doc! { "dropAllRolesFromDatabase": 1 }), doc! { "n": 2 });
    assert_eq!(bench.code(doc! { "dropRole": "worker" }), 31);
}

#[test]
fn what_no_role_can_be_is_refused() {
    let bench = Bench::guarded();
    bench.ok(create("a", &[], &[]));
    bench.ok(create("b", &[], &["a".into()]));
    bench.ok(create("c", &[], &["b".into()]));
    for (inherits, of) in [("c", "a"), ("b", "a"), ("a", "a"), ("c", "b")] {
        let grant = doc! { "grantRolesToRole": of, "roles": [inherits] };
        assert_eq!(bench.code(grant), 80, "{inherits} to {of}");
        assert_eq!(bench.code(doc! { "updateRole": of, "roles": [inherits] }), 80);
    }
    assert_eq!(bench.code(create("a", &[], &[])), 51002);
    assert_eq!(bench.code(create("", &[], &[])), 2);
    assert_eq!(bench.code(create("d", &[], &["nobody".into()])), 31);
    assert_eq!(bench.code(create("d", &[], &[role("read", "other")])), 80);
    assert_eq!(bench.code(create("d", &[privilege("other", "c", &["find"])], &[])), 80);
    assert_eq!(bench.code(create("d", &[privilege("", "", &["find"])], &[])), 80);
    assert_eq!(bench.code(create("d", &[privilege("test", "", &["fly"])], &[])), 9);
    assert_eq!(bench.code(create("d", &[privilege("test", "", &[])], &[])), 40414);
    for resource in [
        doc! {},
        doc! { "db": "test" },
        doc! { "cluster": false },
        doc! { "cluster": true, "db": "test" },
    ] {
        let privilege = doc! { "resource": resource.clone(), "actions": ["find"] };
        assert_eq!(bench.code(create("d", &[privilege], &[])), 2, "{resource}");
    }
    for name in ["read", "dbOwner"] {
        assert_eq!(bench.code(create(name, &[], &[])), 80);
        assert_eq!(bench.code(doc! { "dropRole": name }), 80);
        assert_eq!(bench.code(doc! { "grantRolesToRole": name, "roles": ["dbAdmin"] }), 80);
    }
    assert_eq!(
        bench.code(doc! { "createUser": "x", "pwd": "x", "roles": ["nobody"] }),
        31
    );
    assert_eq!(bench.code(doc! { "rolesInfo": 2 }), 2);
    // A role of `admin` may reach everything.
    succeeded(bench.admin(create("d", &[privilege("", "", &["find"])], &[role("read", "other")])));
}

/// Every way by which somebody might give themselves more than they have.
#[test]
fn nobody_gives_what_they_may_not_give() {
    let bench = Bench::guarded();
    bench.keep_user("admin", "victim", &[]);
    bench.ok(create("own", &[], &[]));
    let eve = bench.user("eve", &[role("userAdmin", "test")]);
    let refused = |database: &str, command: Document| {
        let reply = bench.run_as(&eve, database, command.clone());
        assert_eq!(code(&reply), 13, "{command}: {reply}");
    };
    let root = || [role("root", "admin")];
    refused("test", doc! { "createUser": "x", "pwd": "x", "roles": root() });
    refused(
        "test",
        doc! { "createUser": "x", "pwd": "x", "roles": [], "roles": root() },
    );
    refused("test", doc! { "grantRolesToUser": "eve", "roles": root() });
    refused(
        "test",
        doc! { "grantRolesToUser": "eve", "roles": [role("read", "other")] },
    );
    refused("test", doc! { "updateUser": "eve", "roles": root() });
    refused("test", create("x", &[], &root()));
    refused(
        "test",
        create(
            "x",
            &[doc! { "resource": { "cluster": true }, "actions": ["shutdown"] }],
            &[],
        ),
    );
    refused(
        "test",
        create(
            "x",
            &[doc! { "resource": { "anyResource": true }, "actions": ["anyAction"] }],
            &[],
        ),
    );
    refused(
        "test",
        create("x", &[privilege("admin", "system.users", &["update"])], &[]),
    );
    refused("test", create("x", &[privilege("", "", &["find"])], &[]));
    refused("test", doc! { "grantRolesToRole": "own", "roles": root() });
    refused(
        "test",
        doc! { "grantPrivilegesToRole": "own", "privileges": [privilege("admin", "", &["find"])] },
    );
    refused(
        "test",
        doc! { "updateRole": "own", "privileges": [privilege("other", "c", &["find"])] },
    );
    for database in ["admin", "other"] {
        refused(database, doc! { "createUser": "x", "pwd": "x", "roles": [] });
        refused(database, doc! { "updateUser": "victim", "pwd": "x" });
        refused(database, doc! { "updateUser": "nobody", "customData": {} });
        refused(database, doc! { "dropUser": "victim" });
        refused(database, doc! { "dropAllUsersFromDatabase": 1 });
        refused(database, doc! { "usersInfo": "victim" });
        refused(database, create("x", &[], &[]));
        refused(database, doc! { "dropRole": "x" });
        refused(database, doc! { "rolesInfo": 1 });
        refused(database, doc! { "invalidateUserCache": 1 });
    }
    refused("test", doc! { "usersInfo": { "user": "victim", "db": "admin" } });
    refused(
        "test",
        doc! { "usersInfo": [{ "user": "eve", "db": "test" }, { "user": "victim", "db": "admin" }] },
    );
    refused("test", doc! { "usersInfo": { "forAllDBs": true } });
    // What it is for, it may.
    succeeded(bench.run_as(
        &eve,
        "test",
        doc! { "createUser": "x", "pwd": "x", "roles": ["readWrite"] },
    ));
    succeeded(bench.run_as(
        &eve,
        "test",
        create("y", &[privilege("test", "c", &["find"])], &["dbAdmin".into()]),
    ));
}

#[test]
fn everybody_sees_themselves_and_nobody_else() {
    let bench = Bench::guarded();
    bench.ok(create("own", &[privilege("test", "c", &["find"])], &[]));
    let eve = bench.user("eve", &[role("own", "test")]);
    let run = |command: Document| bench.run_as(&eve, "test", command);
    let seen = succeeded(run(doc! { "usersInfo": "eve", "showPrivileges": true }));
    let user = seen.get_array("users").unwrap()[0].as_document().unwrap().clone();
    assert!(!user.contains_key("credentials"));
    assert_eq!(user.get_array("inheritedRoles").unwrap(), &[role("own", "test")]);
    assert_eq!(
        user.get_array("inheritedPrivileges").unwrap(),
        &[privilege("test", "c", &["find"]).into()]
    );
    assert_eq!(code(&run(doc! { "usersInfo": "eve", "showCredentials": true })), 13);
    assert_eq!(code(&run(doc! { "usersInfo": 1 })), 13);
    succeeded(run(doc! { "rolesInfo": "own" }));
    assert_eq!(code(&run(doc! { "rolesInfo": "read" })), 13);
    assert_eq!(code(&run(doc! { "rolesInfo": 1 })), 13);
    let status = succeeded(run(doc! { "connectionStatus": 1, "showPrivileges": true }));
    let info = status.get_document("authInfo").unwrap();
    assert_eq!(
        info.get_array("authenticatedUserPrivileges").unwrap(),
        &[privilege("test", "c", &["find"]).into()]
    );
    // Passwords of one's own are for those who may change them.
    let own = ["changeOwnPassword", "changeOwnCustomData"];
    bench.ok(doc! { "grantPrivilegesToRole": "own", "privileges": [privilege("test", "", &own)] });
    succeeded(run(doc! { "updateUser": "eve", "pwd": "y", "customData": { "a": 1 } }));
    bench.keep_user("test", "bob", &[]);
    assert_eq!(code(&run(doc! { "updateUser": "bob", "pwd": "y" })), 13);
    assert_eq!(
        code(&run(doc! { "updateUser": "eve", "pwd": "y", "roles": ["dbOwner"] })),
        13
    );
}

#[test]
fn roles_are_described_with_what_they_inherit() {
    let bench = Bench::guarded();
    bench.ok(create(
        "finder",
        &[
            privilege("test", "c", &["insert", "find"]),
            privilege("test", "c", &["update"]),
        ],
        &[],
    ));
    bench.ok(create("worker", &[], &["finder".into()]));
    let roles = |command: Document| bench.ok(command).get_array("roles").unwrap().clone();
    let worker = roles(doc! { "rolesInfo": "worker", "showPrivileges": true });
    let expected = doc! {
        "_id": "test.worker", "role": "worker", "db": "test", "roles": [role("finder", "test")],
        "inheritedRoles": [role("finder", "test")], "isBuiltin": false, "privileges": [],
        "inheritedPrivileges": [privilege("test", "c", &["find", "insert", "update"])],
    };
    assert_eq!(worker, [Bson::Document(expected)]);
    let count = |command: Document| roles(command).len();
    assert_eq!(count(doc! { "rolesInfo": 1 }), 2);
    assert_eq!(count(doc! { "rolesInfo": 1, "showBuiltinRoles": true }), 7);
    assert_eq!(
        count(doc! { "rolesInfo": ["worker", { "role": "root", "db": "admin" }, "nobody"] }),
        2
    );
    let kept = super::first_batch(&succeeded(
        bench.admin(doc! { "find": "system.roles", "filter": { "role": "worker" } }),
    ));
    assert_eq!(kept[0].get_str("_id").ok(), Some("test.worker"));
}

#[test]
fn restrictions_shut_out_who_comes_from_elsewhere() {
    let bench = Bench::guarded();
    let near = doc! { "clientSource": ["10.0.0.0/8"], "serverAddress": ["10.0.0.9"] };
    let reader =
        doc! { "createRole": "near", "privileges": [], "roles": ["read"], "authenticationRestrictions": [near] };
    bench.ok(reader);
    bench.keep_user("test", "eve", &[role("near", "test")]);
    let finds = |peer: Peer| {
        let client = bench.server.connect(peer);
        bench.become_user(&client, "test", "eve");
        may(&bench, &client, doc! { "find": "c" })
    };
    let from = |client: &str, server: &str| finds(Peer::Tcp(client.to_owned(), server.parse().ok()));
    assert!(from("10.1.1.1:5", "10.0.0.9"));
    assert!(!from("11.1.1.1:5", "10.0.0.9") && !from("10.1.1.1:5", "10.0.0.8") && !from("10.1.1.1:5", ""));
    assert!(!finds(Peer::Unix("/tmp/s".to_owned())));
    bench.ok(doc! { "updateRole": "near", "authenticationRestrictions": [] });
    assert!(from("11.1.1.1:5", "10.0.0.9"));
    bench.ok(doc! { "updateUser": "eve", "authenticationRestrictions": [{ "clientSource": ["127.0.0.1"] }] });
    assert!(!from("11.1.1.1:5", "10.0.0.9") && from("127.0.0.1:5", "10.0.0.9"));
    // What somebody wrote past the commands lets nobody in.
    let change = doc! { "$set": { "authenticationRestrictions": [{ "clientSource": ["somewhere"] }] } };
    succeeded(bench.admin(doc! { "update": "system.users", "updates": [{ "q": { "user": "eve" }, "u": change }] }));
    assert!(!from("127.0.0.1:5", "10.0.0.9"));
}
