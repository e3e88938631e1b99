//! `apiVersion` and `apiStrict`.

use super::{Bench, code, succeeded};
use bson::{Bson, Document, doc};
use std::time::Duration;

#[test]
fn the_stable_api_is_kept_to() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    let with = |command: Document, options: Document| {
        let mut command = command;
        command.extend(options);
        bench.run(command)
    };
    let strict = doc! { "apiVersion": "1", "apiStrict": true };
    succeeded(with(doc! { "find": "c" }, strict.clone()));
    // A client that keeps to it can log in: what is wrong with these is something else.
    for login in [
        doc! { "saslStart": 1, "mechanism": "PLAIN", "payload": "" },
        doc! { "saslContinue": 1, "conversationId": 1, "payload": "" },
        doc! { "authenticate": 1, "mechanism": "PLAIN" },
    ] {
        assert_ne!(code(&with(login.clone(), strict.clone())), 323, "{login}");
    }
    succeeded(with(doc! { "logout": 1 }, strict.clone()));
    for outside in [
        doc! { "distinct": "c", "key": "a" },
        doc! { "aggregate": "c", "pipeline": [{ "$indexStats": {} }], "cursor": {} },
        doc! { "explain": { "distinct": "c", "key": "a" } },
        doc! { "explain": { "find": "c", "min": { "a": 1 } } },
        doc! { "collMod": "c", "index": { "name": "a", "prepareUnique": true } },
        doc! { "aggregate": "c", "pipeline": [], "explain": true },
    ] {
        assert_eq!(code(&with(outside.clone(), strict.clone())), 323, "{outside}");
    }
    for field in [
        "returnKey",
        "showRecordId",
        "tailable",
        "awaitData",
        "noCursorTimeout",
        "oplogReplay",
    ] {
        assert_eq!(
            code(&with(doc! { "find": "c", field: false }, strict.clone())),
            323,
            "{field}"
        );
    }
    for pipeline in [
        doc! { "$collStats": { "count": {}, "latencyStats": {} } },
        doc! { "$changeStream": { "showExpandedEvents": false } },
        doc! { "$unionWith": { "coll": "d", "pipeline": [{ "$collStats": { "latencyStats": {} } }] } },
        doc! { "$lookup": { "from": "d", "pipeline": [{ "$indexStats": {} }], "as": "x" } },
        doc! { "$facet": { "x": [], "y": [{ "$indexStats": {} }] } },
    ] {
        let aggregate = doc! { "aggregate": "c", "pipeline": [pipeline.clone()], "cursor": {} };
        assert_eq!(code(&with(aggregate, strict.clone())), 323, "{pipeline}");
        let view = doc! { "create": "v", "viewOn": "c", "pipeline": [pipeline.clone()] };
        assert_eq!(code(&with(view, strict.clone())), 323, "{pipeline}");
    }
    let counted = doc! { "aggregate": "c", "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} };
    succeeded(with(counted, strict.clone()));
    assert_eq!(
        code(&with(
            doc! { "create": "d", "capped": true, "size": 4096 },
            strict.clone()
        )),
        323
    );
    succeeded(with(doc! { "create": "d", "capped": false }, strict.clone()));
    for index in [
        doc! { "key": { "a": "text" }, "name": "a" },
        doc! { "key": { "a": 1 }, "name": "a", "sparse": true },
        doc! { "key": { "a": 1 }, "name": "a", "background": true },
    ] {
        let indexes = doc! { "createIndexes": "c", "indexes": [index.clone()] };
        assert_eq!(code(&with(indexes, strict.clone())), 323, "{index}");
    }
    succeeded(with(
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a" }] },
        strict.clone(),
    ));
    let ping = doc! { "ping": 1 };
    assert_eq!(code(&with(ping.clone(), doc! { "apiVersion": "nonsense" })), 322);
    assert_eq!(code(&with(ping.clone(), doc! { "apiStrict": true })), 4_886_600);
    assert_eq!(code(&with(ping, doc! { "apiVersion": 1 })), 14);
}

#[test]
fn a_cursor_goes_on_with_the_parameters_that_it_was_made_with() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]);
    let parameters = [
        doc! {},
        doc! { "apiVersion": "1" },
        doc! { "apiVersion": "1", "apiStrict": true },
        doc! { "apiVersion": "1", "apiStrict": false, "apiDeprecationErrors": true },
    ];
    let with = |mut command: Document, parameters: &Document| {
        command.extend(parameters.clone());
        bench.run(command)
    };
    for made in &parameters {
        for other in &parameters {
            let opened = succeeded(with(doc! { "find": "c", "batchSize": 1 }, made));
            let id = opened.get_document("cursor").unwrap().get_i64("id").unwrap();
            let more = |parameters| with(doc! { "getMore": id, "collection": "c", "batchSize": 1 }, parameters);
            if made != other {
                let refused = more(other);
                assert_eq!(code(&refused), 347, "{made} {other}");
                assert_eq!(refused.get_str("codeName").unwrap(), "APIMismatchError");
            }
            succeeded(more(made));
            succeeded(with(doc! { "killCursors": "c", "cursors": [id] }, made));
        }
    }
}

/// Nobody could tell which applications had still to be moved to a version of the API.
#[test]
fn the_versions_that_applications_use_are_told() {
    let bench = Bench::new();
    let told = || {
        let status = succeeded(bench.admin(doc! { "serverStatus": 1 }));
        let metrics = status.get_document("metrics").unwrap();
        metrics.get_document("apiVersions").unwrap().clone()
    };
    // Who has not said who it is.
    assert_eq!(told(), doc! {});
    let driver = doc! { "driver": { "name": "d", "version": "1" }, "os": { "type": "Linux" } };
    let connected = |application: Option<&str>, options: Document| {
        let client = bench.stranger();
        succeeded(bench.run_as(&client, "admin", doc! { "ping": 1 }));
        let mut metadata = driver.clone();
        if let Some(name) = application {
            metadata.insert("application", doc! { "name": name });
        }
        let mut hello = doc! { "hello": 1, "client": metadata };
        hello.extend(options.clone());
        succeeded(bench.run_as(&client, "admin", hello));
        client
    };
    let version = doc! { "apiVersion": "1" };
    let shop = connected(Some("shop"), version.clone());
    connected(Some("shell"), doc! {});
    connected(None, doc! {});
    let expected = doc! { "": ["default"], "shell": ["default"], "shop": ["1"] };
    assert_eq!(told(), expected);
    // One that fails counts as well.
    assert_eq!(
        code(&bench.run_as(&shop, "test", doc! { "count": "c", "limit": "x" })),
        2
    );
    assert_eq!(told().get("shop"), Some(&Bson::from(vec!["default", "1"])));
    let mut ping = doc! { "ping": 1 };
    ping.extend(version);
    for _ in 0..30 {
        bench.clock.advance(Duration::from_secs(3600));
        succeeded(bench.run_as(&shop, "test", ping.clone()));
    }
    assert_eq!(told(), doc! { "shop": ["1"] });
}
