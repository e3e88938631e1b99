//! Views on views, and pipelines that read views.

use super::Bench;
use bson::{Bson, Document, doc};

/// The code of a refusal, 0 for what is taken.
fn code(reply: &Document) -> i32 {
    reply.get_i32("code").unwrap_or(0)
}

/// A stage of each kind that reads another collection.
fn reading(from: &str) -> Vec<Document> {
    let lookup = doc! { "$lookup": { "from": from, "localField": "a", "foreignField": "a", "as": "as" } };
    let graph_lookup = doc! { "$graphLookup": {
        "from": from, "startWith": "$a", "connectFromField": "a", "connectToField": "b", "as": "as",
    } };
    let inner = doc! { "$lookup": { "from": "c", "pipeline": [{ "$unionWith": from }], "as": "as" } };
    vec![
        doc! { "$facet": { "f": [lookup.clone()] } },
        lookup,
        graph_lookup,
        doc! { "$unionWith": from },
        inner,
    ]
}

fn create(bench: &Bench, name: &str, on: &str, pipeline: Vec<Document>) -> Document {
    bench.run(doc! { "create": name, "viewOn": on, "pipeline": pipeline })
}

fn aggregate(bench: &Bench, name: &str, stage: Document, collation: Document) -> Document {
    bench.run(doc! { "aggregate": name, "pipeline": [stage], "cursor": {}, "collation": collation })
}

/// Twenty views, each of which reads the next one several times, were checked and run along each of the ways through
/// them.
#[test]
fn views_that_read_each_other_may_be_twenty() {
    let bench = Bench::new();
    for n in (1..=20).rev() {
        let next = format!("v{}", n + 1);
        assert_eq!(
            code(&create(&bench, &format!("v{n}"), &next, reading(&next))),
            0,
            "v{n}"
        );
    }
    assert_eq!(code(&create(&bench, "v0", "v1", vec![])), 165);
    assert_eq!(code(&create(&bench, "v21", "v22", vec![])), 165);
    for stage in reading("v1") {
        assert_eq!(code(&create(&bench, "v0", "c", vec![stage.clone()])), 165, "{stage}");
        assert_eq!(code(&aggregate(&bench, "v10", stage.clone(), doc! {})), 165, "{stage}");
        assert_eq!(code(&aggregate(&bench, "c", stage.clone(), doc! {})), 165, "{stage}");
    }
    assert_eq!(code(&create(&bench, "middle", "v10", vec![])), 0);
    assert_eq!(bench.code(doc! { "collMod": "v20", "viewOn": "v1", "pipeline": [] }), 5);
}

#[test]
fn pipelines_inside_pipelines_are_counted() {
    let bench = Bench::new();
    let mut stage = doc! { "$unionWith": "c" };
    for _ in 0..20 {
        stage = doc! { "$lookup": { "from": "c", "pipeline": [stage], "as": "as" } };
    }
    assert_eq!(code(&aggregate(&bench, "c", stage, doc! {})), 232);
}

#[test]
fn views_that_read_each_other_have_one_collation() {
    let bench = Bench::new();
    let (simple, other) = (doc! { "locale": "simple" }, doc! { "locale": "en", "strength": 2 });
    let create = |name: &str, on: &str, pipeline: Vec<Document>, collation: &Document| {
        code(&bench.run(doc! { "create": name, "viewOn": on, "pipeline": pipeline, "collation": collation.clone() }))
    };
    bench.ok(doc! { "create": "of_other", "collation": other.clone() });
    bench.ok(doc! { "create": "times", "timeseries": { "timeField": "at" } });
    assert_eq!(create("v", "of_other", vec![], &simple), 0);
    assert_eq!(create("w", "c", vec![], &other), 0);
    // The collation of a collection is another matter.
    assert_eq!(create("x", "times", reading("of_other"), &other), 0);
    assert_eq!(create("y", "v", vec![], &other), 167);
    assert_eq!(create("early", "late", vec![], &simple), 0);
    assert_eq!(create("late", "c", vec![], &other), 167);
    for stage in reading("v") {
        assert_eq!(create("y", "c", vec![stage.clone()], &other), 167, "{stage}");
        assert_eq!(code(&aggregate(&bench, "c", stage.clone(), doc! {})), 0, "{stage}");
        assert_eq!(
            code(&aggregate(&bench, "of_other", stage.clone(), simple.clone())),
            0,
            "{stage}"
        );
        assert_eq!(
            code(&aggregate(&bench, "c", stage.clone(), other.clone())),
            167,
            "{stage}"
        );
        assert_eq!(
            code(&aggregate(&bench, "of_other", stage.clone(), doc! {})),
            167,
            "{stage}"
        );
        assert_eq!(code(&aggregate(&bench, "w", stage.clone(), doc! {})), 167, "{stage}");
    }
    for (read, wanted) in [
        (doc! { "count": "w" }, 0),
        (doc! { "count": "w", "collation": other.clone() }, 0),
        (doc! { "count": "w", "collation": simple.clone() }, 167),
        (doc! { "distinct": "w", "key": "a" }, 0),
        (doc! { "distinct": "w", "key": "a", "collation": simple }, 167),
    ] {
        for verbosity in ["queryPlanner", "executionStats"] {
            let explain = doc! { "explain": read.clone(), "verbosity": verbosity };
            assert_eq!(code(&bench.run(explain)), wanted, "{read}");
        }
    }
    let explain = doc! { "aggregate": "c", "pipeline": reading("w"), "cursor": {} };
    assert_eq!(bench.code(doc! { "explain": Bson::from(explain) }), 167);
}

/// Times are taken of names, whatever is behind them.
#[test]
fn latencies_of_a_view() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    assert_eq!(code(&create(&bench, "v", "c", vec![])), 0);
    let stats = |options: Document| aggregate(&bench, "v", doc! { "$collStats": options }, doc! {});
    let reply = stats(doc! { "latencyStats": {} });
    let found = super::first_batch(&reply).remove(0);
    assert_eq!(found.get_str("ns").unwrap(), "test.v");
    assert!(found.get_document("latencyStats").unwrap().contains_key("reads"));
    for option in ["storageStats", "count"] {
        assert_eq!(code(&stats(doc! { "latencyStats": {}, option: {} })), 166);
    }
}

#[test]
fn a_view_made_again_is_compared() {
    let bench = Bench::new();
    bench.insert("c", &[doc! { "_id": 1 }]);
    let make = |name: &str, options: Document| {
        let mut command = doc! { "create": name, "viewOn": "c", "pipeline": [] };
        command.extend(options);
        code(&bench.run(command))
    };
    assert_eq!(make("v", doc! {}), 0);
    assert_eq!(make("v", doc! {}), 0);
    assert_eq!(make("v", doc! { "collation": { "locale": "en" } }), 48);
    assert_eq!(make("w", doc! { "collation": { "locale": "en" } }), 0);
    assert_eq!(make("w", doc! { "collation": { "locale": "en" } }), 0);
    assert_eq!(make("w", doc! {}), 48);
    // That the name is taken comes before what is wrong with the view.
    assert_eq!(code(&create(&bench, "c", "c", vec![])), 48);
    assert_eq!(code(&create(&bench, "v", "c", vec![doc! { "$unknown": 1 }])), 48);
    let id_index = doc! { "key": { "_id": 1 }, "name": "_id_" };
    assert_eq!(make("u", doc! { "idIndex": id_index }), 72);
}
