//! Users, and how a connection proves to be one.

use super::{Bench, code, first_batch, succeeded};
use crate::{Client, Peer};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use std::sync::Arc;

fn bench() -> Bench {
    let bench = Bench::new();
    let user = doc! {
        "createUser": "amy",
        "pwd": "s3same",
        "roles": ["readWrite", { "role": "read", "db": "other" }],
        "customData": { "shift": "late" },
    };
    bench.ok(user);
    bench
}

fn binary(bytes: &str) -> Bson {
    Bson::Binary(Binary {
        subtype: BinarySubtype::Generic,
        bytes: bytes.as_bytes().to_vec(),
    })
}

fn payload(reply: &Document) -> String {
    String::from_utf8(reply.get_binary_generic("payload").unwrap().clone()).unwrap()
}

fn start(user: &str, mechanism: &str) -> Document {
    doc! {
        "saslStart": 1,
        "mechanism": mechanism,
        "payload": binary(&format!("n,,n={user},r=abc")),
        "options": { "skipEmptyExchange": true },
    }
}

/// The client's last message, as SCRAM-SHA-256 has it.
fn proof(user: &str, password: &str, server_first: &str) -> String {
    let hmac = |key: &[u8], data: &str| {
        let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
        mac.update(data.as_bytes());
        mac.finalize().into_bytes()
    };
    let field = |name: &str| {
        server_first
            .split(',')
            .find_map(|part| part.strip_prefix(name))
            .unwrap()
    };
    let mut salted = [0; 32];
    let salt = STANDARD.decode(field("s=")).unwrap();
    pbkdf2::pbkdf2_hmac::<Sha256>(password.as_bytes(), &salt, field("i=").parse().unwrap(), &mut salted);
    let client_key = hmac(&salted, "Client Key");
    let without_proof = format!("c=biws,r={}", field("r="));
    let signed = format!("n={user},r=abc,{server_first},{without_proof}");
    let signature = hmac(&Sha256::digest(client_key), &signed);
    let proof: Vec<u8> = client_key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    format!("{without_proof},p={}", STANDARD.encode(proof))
}

/// A whole conversation on `database`; the last reply.
fn log_in(bench: &Bench, client: &Arc<Client>, database: &str, user: &str, password: &str) -> Document {
    let first = succeeded(bench.run_as(client, database, start(user, "SCRAM-SHA-256")));
    assert_eq!(first.get_bool("done").ok(), Some(false));
    let last = doc! {
        "saslContinue": 1,
        "conversationId": first.get_i32("conversationId").unwrap(),
        "payload": binary(&proof(user, password, &payload(&first))),
    };
    bench.run_as(client, database, last)
}

fn who(bench: &Bench, client: &Arc<Client>) -> (usize, usize) {
    let status = succeeded(bench.run_as(client, "test", doc! { "connectionStatus": 1 }));
    let info = status.get_document("authInfo").unwrap();
    let count = |field| info.get_array(field).unwrap().len();
    (count("authenticatedUsers"), count("authenticatedUserRoles"))
}

#[test]
fn a_connection_has_a_name_of_its_own() {
    let bench = bench();
    let name = |client: &Arc<Client>| {
        let mut status = succeeded(bench.run_as(client, "test", doc! { "connectionStatus": 1 }));
        status.remove("uuid").expect("a name")
    };
    let other = bench.stranger();
    assert_eq!(name(&bench.client), name(&bench.client));
    assert_ne!(name(&bench.client), name(&other));
}

#[test]
fn a_user_is_stored_as_tools_read_it() {
    let bench = bench();
    let stored = first_batch(&succeeded(bench.admin(doc! { "find": "system.users" })));
    let [user] = &stored[..] else { panic!("{stored:?}") };
    assert_eq!(user.get_str("_id").ok(), Some("test.amy"));
    assert_eq!(
        (user.get_str("user").ok(), user.get_str("db").ok()),
        (Some("amy"), Some("test"))
    );
    let roles = [
        doc! { "role": "readWrite", "db": "test" },
        doc! { "role": "read", "db": "other" },
    ];
    assert_eq!(user.get_array("roles").unwrap(), &roles.map(Bson::Document));
    let credentials = user.get_document("credentials").unwrap();
    for (mechanism, iterations, salt_bytes) in [("SCRAM-SHA-1", 10_000, 16), ("SCRAM-SHA-256", 15_000, 28)] {
        let kept = credentials.get_document(mechanism).unwrap();
        assert_eq!(kept.get_i32("iterationCount").ok(), Some(iterations));
        assert_eq!(
            STANDARD.decode(kept.get_str("salt").unwrap()).unwrap().len(),
            salt_bytes
        );
    }
    let schema = first_batch(&succeeded(bench.admin(doc! { "find": "system.version" })));
    assert_eq!(schema, [doc! { "_id": "authSchema", "currentVersion": 5 }]);
}

#[test]
fn a_right_password_is_proven_and_a_change_of_the_user_is_seen_at_once() {
    let bench = bench();
    let client = bench.server.connect(Peer::Tcp("127.0.0.1:2".into(), None));
    let last = succeeded(log_in(&bench, &client, "test", "amy", "s3same"));
    assert_eq!(last.get_bool("done").ok(), Some(true));
    assert!(payload(&last).starts_with("v="));
    assert_eq!(who(&bench, &client), (1, 2));
    assert_eq!(who(&bench, &bench.client), (0, 0), "another connection is nobody");
    bench.ok(doc! { "revokeRolesFromUser": "amy", "roles": ["readWrite"] });
    assert_eq!(who(&bench, &client), (1, 1));
    bench.ok(doc! { "grantRolesToUser": "amy", "roles": ["dbAdmin", "dbAdmin", "userAdmin"] });
    assert_eq!(who(&bench, &client), (1, 3));
    bench.ok(doc! { "dropUser": "amy" });
    assert_eq!(who(&bench, &client), (0, 0));
    bench.ok(doc! { "createUser": "amy", "pwd": "s3same", "roles": [] });
    assert_eq!(
        who(&bench, &client),
        (0, 0),
        "a new user of the same name is another one"
    );
}

#[test]
fn logout_forgets_the_user_of_its_database() {
    let bench = bench();
    let client = bench.server.connect(Peer::Tcp("127.0.0.1:2".into(), None));
    succeeded(log_in(&bench, &client, "test", "amy", "s3same"));
    succeeded(bench.run_as(&client, "other", doc! { "logout": 1 }));
    assert_eq!(who(&bench, &client), (1, 2));
    succeeded(bench.run_as(&client, "test", doc! { "logout": 1 }));
    assert_eq!(who(&bench, &client), (0, 0));
}

#[test]
fn a_wrong_password_and_a_wrong_name_look_the_same() {
    let bench = bench();
    let attempt = |database, user, password| log_in(&bench, &bench.client, database, user, password);
    let wrong = attempt("test", "amy", "sesame");
    assert_eq!(code(&wrong), 18);
    assert_eq!(attempt("test", "bob", "s3same"), wrong);
    assert_eq!(attempt("other", "amy", "s3same"), wrong);
    assert_eq!(who(&bench, &bench.client), (0, 0));
    let first = |user| payload(&succeeded(bench.run(start(user, "SCRAM-SHA-256"))));
    let shape = |message: String| {
        let parts = message.split(',').map(|part| (part[..2].to_owned(), part.len()));
        (parts.collect::<Vec<_>>(), message.rsplit(',').next().map(str::to_owned))
    };
    assert_eq!(shape(first("amy")), shape(first("bob")));
    let salt = |message: String| message.split(',').nth(1).map(str::to_owned);
    assert_eq!(
        salt(first("bob")),
        salt(first("bob")),
        "asking twice tells nothing either"
    );
}

#[test]
fn a_database_with_a_dot_does_not_borrow_a_user() {
    let bench = Bench::new();
    bench.ok(doc! { "createUser": "b.c", "pwd": "s3same", "roles": [] });
    assert_eq!(code(&log_in(&bench, &bench.client, "test.b", "c", "s3same")), 18);
    succeeded(log_in(&bench, &bench.client, "test", "b.c", "s3same"));
}

#[test]
fn a_conversation_has_one_try_and_one_order() {
    let bench = bench();
    let go_on = |id: i32, text: &str| {
        let command = doc! { "saslContinue": 1, "conversationId": id, "payload": binary(text) };
        bench.code(command)
    };
    assert_eq!(go_on(1, ""), 17, "none has begun");
    let first = bench.ok(start("amy", "SCRAM-SHA-256"));
    let id = first.get_i32("conversationId").unwrap();
    let right = proof("amy", "s3same", &payload(&first));
    assert_eq!(go_on(id, &right.replace("p=", "p=A")), 18);
    assert_eq!(go_on(id, &right), 17, "the conversation is over");
    bench.ok(start("amy", "SCRAM-SHA-256"));
    assert_eq!(go_on(id, &right), 17, "the number of another conversation");
    let first = bench.ok(start("amy", "SCRAM-SHA-256"));
    assert_ne!(first.get_i32("conversationId").ok(), Some(id));
    assert_eq!(
        go_on(first.get_i32("conversationId").unwrap(), &right),
        18,
        "an old proof"
    );
    assert_eq!(who(&bench, &bench.client), (0, 0));
}

#[test]
fn without_skip_empty_exchange_the_proof_counts_after_the_empty_message() {
    let bench = bench();
    let mut begin = start("amy", "SCRAM-SHA-256");
    begin.remove("options");
    let first = bench.ok(begin);
    let id = first.get_i32("conversationId").unwrap();
    let go_on = |text: &str| bench.ok(doc! { "saslContinue": 1, "conversationId": id, "payload": binary(text) });
    let second = go_on(&proof("amy", "s3same", &payload(&first)));
    assert_eq!(second.get_bool("done").ok(), Some(false));
    assert_eq!(who(&bench, &bench.client), (0, 0));
    assert_eq!(go_on("").get_bool("done").ok(), Some(true));
    assert_eq!(who(&bench, &bench.client), (1, 2));
}

#[test]
fn mechanisms_that_are_not_there_are_refused_by_name() {
    let bench = bench();
    assert_eq!(bench.code(start("amy", "PLAIN")), 334);
    assert_eq!(bench.code(doc! { "authenticate": 1, "mechanism": "MONGODB-X509" }), 18);
    assert_eq!(bench.code(doc! { "authenticate": 1, "mechanism": "MONGODB-CR" }), 18);
    assert_eq!(bench.code(doc! { "authenticate": 1, "mechanism": "GSSAPI" }), 2);
    assert_eq!(bench.code(doc! { "getnonce": 1 }), 59);
}

#[test]
fn hello_names_mechanisms_and_begins_the_conversation() {
    let bench = bench();
    bench.ok(doc! { "createUser": "old", "pwd": "x", "roles": [], "mechanisms": ["SCRAM-SHA-1"] });
    let mechanisms = |user: &str| {
        let reply = bench.ok(doc! { "hello": 1, "saslSupportedMechs": user });
        reply.get_array("saslSupportedMechs").unwrap().len()
    };
    assert_eq!(
        (
            mechanisms("test.amy"),
            mechanisms("test.old"),
            mechanisms("test.nobody")
        ),
        (2, 1, 2)
    );
    assert_eq!(bench.code(doc! { "hello": 1, "saslSupportedMechs": "amy" }), 2);
    // Nobody learns which certificates there are users for.
    bench.keep_user("$external", "CN=amy", &[]);
    for user in ["$external.CN=amy", "$external.CN=nobody"] {
        let reply = bench.ok(doc! { "hello": 1, "saslSupportedMechs": user });
        assert_eq!(
            reply.get_array("saslSupportedMechs").unwrap(),
            &vec!["MONGODB-X509".into()]
        );
    }
    let mut request = start("amy", "SCRAM-SHA-256");
    request.insert("db", "test");
    let reply = bench.ok(doc! { "hello": 1, "speculativeAuthenticate": request.clone() });
    let first = reply.get_document("speculativeAuthenticate").unwrap();
    let last = doc! {
        "saslContinue": 1,
        "conversationId": first.get_i32("conversationId").unwrap(),
        "payload": binary(&proof("amy", "s3same", &payload(first))),
    };
    bench.ok(last);
    assert_eq!(who(&bench, &bench.client), (1, 2));
    request.insert("mechanism", "PLAIN");
    let reply = bench.ok(doc! { "hello": 1, "speculativeAuthenticate": request });
    assert!(!reply.contains_key("speculativeAuthenticate"));
}

#[test]
fn users_info_shows_credentials_only_when_asked() {
    let bench = bench();
    bench.ok(doc! { "createUser": "bob", "pwd": "x", "roles": ["read"] });
    let users = |command: Document| {
        let users = bench.ok(command).get_array("users").unwrap().clone();
        users
            .into_iter()
            .map(|user| user.as_document().unwrap().clone())
            .collect::<Vec<_>>()
    };
    let [amy] = &users(doc! { "usersInfo": "amy" })[..] else {
        panic!("one user")
    };
    assert!(!amy.contains_key("credentials") && amy.contains_key("customData") && amy.contains_key("userId"));
    assert_eq!(amy.get_array("mechanisms").unwrap().len(), 2);
    let shown =
        users(doc! { "usersInfo": { "user": "amy", "db": "test" }, "showCredentials": true, "showCustomData": false });
    assert!(shown[0].contains_key("credentials") && !shown[0].contains_key("customData"));
    assert_eq!(users(doc! { "usersInfo": 1 }).len(), 2);
    assert_eq!(
        users(doc! { "usersInfo": 1, "filter": { "roles.role": "read", "user": "bob" } }).len(),
        1
    );
    assert_eq!(
        users(doc! { "usersInfo": ["bob", { "user": "amy", "db": "other" }] }).len(),
        1
    );
    assert_eq!(users(doc! { "usersInfo": [] }).len(), 0);
    assert_eq!(users(doc! { "usersInfo": { "forAllDBs": true } }).len(), 2);
    assert_eq!(users(doc! { "usersInfo": { "user": "my", "db": "test.a" } }).len(), 0);
    assert_eq!(
        bench.code(doc! { "usersInfo": { "user": { "$ne": "" }, "db": "test" } }),
        14,
        "no operators in names"
    );
    // What is not shown cannot be found out by asking either.
    let found = |filter: Document, shows: bool| {
        users(doc! { "usersInfo": "amy", "filter": filter, "showCredentials": shows, "showCustomData": shows }).len()
    };
    for filter in [
        doc! { "credentials.SCRAM-SHA-256.storedKey": { "$regex": "^." } },
        doc! { "customData.shift": "late" },
    ] {
        assert_eq!((found(filter.clone(), false), found(filter, true)), (0, 1));
    }
    assert_eq!(found(doc! { "mechanisms": "SCRAM-SHA-256" }, false), 1);
    assert_eq!(bench.ok(doc! { "dropAllUsersFromDatabase": 1 }), doc! { "n": 2 });
    assert_eq!(users(doc! { "usersInfo": 1 }).len(), 0);
}

#[test]
fn a_changed_password_is_the_only_one() {
    let bench = bench();
    bench.ok(doc! { "updateUser": "amy", "pwd": "other" });
    assert_eq!(code(&log_in(&bench, &bench.client, "test", "amy", "s3same")), 18);
    succeeded(log_in(&bench, &bench.client, "test", "amy", "other"));
    assert_eq!(who(&bench, &bench.client), (1, 2), "the roles stay");
    bench.ok(doc! { "updateUser": "amy", "mechanisms": ["SCRAM-SHA-1"] });
    assert_eq!(code(&log_in(&bench, &bench.client, "test", "amy", "other")), 18);
    assert_eq!(
        bench.code(doc! { "updateUser": "amy", "mechanisms": ["SCRAM-SHA-256"] }),
        2
    );
}

#[test]
fn bad_users_are_refused() {
    let bench = bench();
    let refused = |change: Document| {
        let mut command = doc! { "createUser": "bob", "pwd": "x", "roles": [] };
        for (name, value) in change {
            match value {
                Bson::Null => drop(command.remove(name)),
                value => drop(command.insert(name, value)),
            }
        }
        bench.code(command)
    };
    assert_eq!(refused(doc! { "createUser": "amy" }), 51003);
    assert_eq!(refused(doc! { "createUser": "" }), 2);
    assert_eq!(refused(doc! { "createUser": 1 }), 14);
    assert_eq!(refused(doc! { "pwd": null }), 2);
    assert_eq!(refused(doc! { "pwd": "" }), 2);
    assert_eq!(refused(doc! { "pwd": "a\u{7}b" }), 2);
    assert_eq!(refused(doc! { "roles": null }), 40414);
    assert_eq!(refused(doc! { "roles": ["root"] }), 31, "a role of admin alone");
    assert_eq!(refused(doc! { "roles": [{ "role": "read" }] }), 40414);
    assert_eq!(refused(doc! { "mechanisms": [] }), 2);
    assert_eq!(refused(doc! { "mechanisms": ["PLAIN"] }), 2);
    assert_eq!(
        refused(doc! { "digestPassword": false, "mechanisms": ["SCRAM-SHA-256"] }),
        2
    );
    assert_eq!(
        refused(doc! { "authenticationRestrictions": [{ "clientSource": ["10.0.0.0/33"] }] }),
        2
    );
    assert_eq!(refused(doc! { "passwd": "x" }), 40415);
    for (database, expected) in [("local", 2), ("$external", 2)] {
        let reply = bench.run_on(database, doc! { "createUser": "bob", "pwd": "x", "roles": [] });
        assert_eq!(code(&reply), expected, "{database}");
    }
    assert_eq!(bench.code(doc! { "updateUser": "bob", "pwd": "x" }), 11);
    assert_eq!(bench.code(doc! { "updateUser": "amy" }), 2);
    assert_eq!(bench.code(doc! { "dropUser": "bob" }), 11);
    assert_eq!(bench.code(doc! { "grantRolesToUser": "bob", "roles": ["read"] }), 11);
}

#[test]
fn no_command_shows_a_secret() {
    let bench = bench();
    for (command, body) in [
        ("createUser", doc! { "createUser": "bob", "pwd": "s3cret", "roles": [] }),
        ("updateUser", doc! { "updateUser": "bob", "pwd": "s3cret" }),
        ("saslStart", doc! { "saslStart": 1, "payload": "s3cret" }),
        ("saslContinue", doc! { "saslContinue": 1, "payload": "s3cret" }),
        (
            "explain",
            doc! { "explain": { "createUser": "bob", "pwd": "s3cret", "roles": [] } },
        ),
        (
            "hello",
            doc! { "hello": 1, "speculativeAuthenticate": { "payload": "s3cret" } },
        ),
        (
            "isMaster",
            doc! { "isMaster": 1, "speculativeAuthenticate": { "payload": "s3cret" } },
        ),
    ] {
        let (command, _) = bench.server.commands.find(command).unwrap();
        let raw = bson::RawDocumentBuf::try_from(&body).unwrap();
        let shown = Document::try_from(&*command.shown(&raw)).unwrap();
        assert_eq!(shown.len(), body.len());
        assert!(!shown.to_string().contains("s3cret"), "{shown}");
    }
}

#[test]
fn older_ways_of_proving_are_refused_by_name() {
    let bench = bench();
    for command in [
        doc! { "getnonce": 1 },
        doc! { "authenticate": 1, "user": "amy", "nonce": "x", "key": "y" },
        doc! { "authenticate": 1, "mechanism": "MONGODB-CR", "user": "amy" },
    ] {
        let reply = bench.run(command.clone());
        assert!(
            reply.get_str("errmsg").unwrap().contains("MONGODB-CR"),
            "{command}: {reply}"
        );
    }
    assert_eq!(bench.code(doc! { "getnonce": 1 }), 59);
    assert_eq!(bench.code(doc! { "authenticate": 1, "mechanism": "MONGODB-X509" }), 18);
    assert_eq!(bench.code(start("amy", "GSSAPI")), 334);
}
