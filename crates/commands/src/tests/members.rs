//! Members of a cluster that log in to each other.

use super::{Bench, code, succeeded};
use crate::{Client, MemberLogin, throttle};
use auth::{ClusterAuth, ClusterAuthMode, ClusterKeys};
use bson::{Document, RawDocumentBuf, doc};
use std::sync::Arc;
use std::time::Duration;
use vfs::SeededRandom;

fn keys(texts: &[&str]) -> ClusterAuth {
    ClusterAuth {
        mode: ClusterAuthMode::KeyFile,
        keys: Some(ClusterKeys::new(texts).unwrap()),
    }
}

fn bench(auth: ClusterAuth) -> Bench {
    let bench = Bench::build(&[], None, true, Some(auth)).unwrap();
    bench.server.keep_version().unwrap();
    bench
}

/// Logs `client` in to the bench's server as a member that has `auth` would.
fn log_in(bench: &Bench, client: &Arc<Client>, auth: &ClusterAuth) -> Result<(), String> {
    MemberLogin::new(auth, &SeededRandom::new(5)).run(&mut |command| {
        let command = Document::try_from(command).unwrap();
        let database = command.get_str("$db").unwrap().to_owned();
        let reply = bench.run_as(client, &database, command);
        match reply.get_f64("ok") {
            Ok(1.0) => Ok(RawDocumentBuf::try_from(&reply).unwrap()),
            _ => Err(reply.get_str("errmsg").unwrap().to_owned()),
        }
    })
}

#[test]
fn a_member_logs_in_with_any_of_the_keys_and_may_do_everything() {
    let bench = bench(keys(&["first+key", "second/key"]));
    for key in ["first+key", "second/key"] {
        let member = bench.stranger();
        assert_eq!(
            code(&bench.run_as(&member, "admin", doc! { "find": "system.keys" })),
            13
        );
        log_in(&bench, &member, &keys(&[key])).unwrap();
        succeeded(bench.run_as(&member, "admin", doc! { "find": "system.keys" }));
        succeeded(bench.run_as(&member, "local", doc! { "insert": "mine", "documents": [{}] }));
        succeeded(bench.run_as(&member, "admin", doc! { "shutdown": 1 }));
        let status = bench.run_as(&member, "admin", doc! { "connectionStatus": 1 });
        let info = status.get_document("authInfo").unwrap();
        assert_eq!(
            info,
            &doc! {
                "authenticatedUsers": [{ "user": "__system", "db": "local" }],
                "authenticatedUserRoles": [{ "role": "__system", "db": "admin" }],
            }
        );
        succeeded(bench.run_as(&member, "local", doc! { "logout": 1 }));
        assert_eq!(
            code(&bench.run_as(&member, "admin", doc! { "find": "system.keys" })),
            13
        );
    }
    // The first key is another cluster's: the next one is tried on the same connection.
    let member = bench.stranger();
    log_in(&bench, &member, &keys(&["wrong/key", "second/key"])).unwrap();
    succeeded(bench.run_as(&member, "admin", doc! { "find": "system.keys" }));
}

#[test]
fn another_clusters_key_opens_nothing() {
    let bench = bench(keys(&["first+key"]));
    let member = bench.stranger();
    let refused = log_in(&bench, &member, &keys(&["wrong/key"]));
    assert_eq!(refused, Err("Authentication failed.".to_owned()));
    assert_eq!(
        code(&bench.run_as(&member, "admin", doc! { "find": "system.keys" })),
        13
    );
    // By certificates alone, no key does.
    let by_certificate = ClusterAuth {
        mode: ClusterAuthMode::X509,
        ..keys(&["first+key"])
    };
    let bench = self::bench(by_certificate);
    let member = bench.stranger();
    assert!(log_in(&bench, &member, &keys(&["first+key"])).is_err());
}

/// A server without a key has no such user, whatever somebody wrote into the users' collection.
#[test]
fn the_user_of_members_is_no_user() {
    let guarded = Bench::guarded();
    assert!(log_in(&guarded, &guarded.stranger(), &keys(&["first+key"])).is_err());
    let bench = bench(keys(&["first+key"]));
    bench.keep_user("local", "__system", &[]);
    bench.keep_user("admin", "root", &[doc! { "role": "root", "db": "admin" }.into()]);
    bench.become_user(&bench.client, "admin", "root");
    let member = bench.stranger();
    log_in(&bench, &member, &keys(&["first+key"])).unwrap();
    succeeded(bench.run_as(&member, "admin", doc! { "find": "system.keys" }));
    for command in [
        doc! { "createUser": "__system", "pwd": "x", "roles": [] },
        doc! { "updateUser": "other", "pwd": "x" },
    ] {
        assert_ne!(
            bench.run_as(&bench.client, "local", command).get("ok"),
            Some(&1.0.into())
        );
    }
    let hello = bench.run_as(
        &bench.stranger(),
        "admin",
        doc! { "hello": 1, "saslSupportedMechs": "local.__system" },
    );
    assert_eq!(hello.get_array("saslSupportedMechs").unwrap().len(), 2);
}

/// A stranger who comes from the address that members come from, as behind one router, failed on and on, and members
/// were refused for as long.
#[test]
fn nobody_holds_members_up_whose_key_cannot_be_guessed() {
    let fails = |key: &str| {
        let bench = bench(keys(&[key]));
        for wrong in ["wrong+key", "another+wrong+key"] {
            log_in(&bench, &bench.stranger(), &keys(&[wrong])).expect_err("it is another key");
        }
        let remembered = bench.server.access.throttle.remembered();
        log_in(&bench, &bench.stranger(), &keys(&[key])).unwrap();
        remembered
    };
    assert_eq!(fails("short+key"), 1);
    assert_eq!(fails(&"long/key".repeat(4)), 0);
}

/// Drivers take 18 as final. An attempt that was not heard is to be made again.
#[test]
fn who_is_not_heard_is_told_to_try_again() {
    let auth = keys(&["short+key"]);
    let bench = bench(auth.clone());
    let address = bench.client.peer().address();
    let key = throttle::key(bench.server.pretence(), "__system", "local", address);
    let access = &bench.server.access;
    let now = bench.server.env.clock.monotonic();
    access.throttle.crowd(key, now);
    let mut last = Document::new();
    let client = bench.stranger();
    let told = MemberLogin::new(&auth, &SeededRandom::new(5)).run(&mut |command| {
        let command = Document::try_from(command).unwrap();
        let database = command.get_str("$db").unwrap().to_owned();
        last = bench.run_as(&client, &database, command);
        match last.get_f64("ok") {
            Ok(1.0) => Ok(RawDocumentBuf::try_from(&last).unwrap()),
            _ => Err(last.get_str("errmsg").unwrap().to_owned()),
        }
    });
    assert!(told.unwrap_err().contains("try again"));
    assert_eq!(code(&last), 462);
    assert!(
        last.get_array("errorLabels")
            .unwrap()
            .contains(&"RetryableError".into())
    );
    // Once it has been heard there is room for it, however many guess.
    access.throttle.scatter();
    bench.clock.advance(Duration::from_secs(30));
    log_in(&bench, &bench.stranger(), &auth).unwrap();
    assert!(access.throttle.is_proven(key, bench.server.env.clock.monotonic()));
    assert!(bench.server.has_proven_of_late(&bench.client, "local", "__system"));
}
