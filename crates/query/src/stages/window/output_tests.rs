//! The fields that `$setWindowFields` sets, however many.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};

use super::super::tests::run;
use super::conflicts;

#[test]
fn outputs_that_lead_into_each_other_are_told_apart_from_neighbours() {
    let others = BTreeSet::from(["a.b", "a.b-c", "c", "d.e.f"]);
    for (path, expected) in [
        ("a", true),
        ("a.b", true),
        ("a.b.c", true),
        ("a.b-c.d", true),
        ("d", true),
        ("d.e", true),
        ("a.c", false),
        ("a.b-", false),
        ("aa", false),
        ("cc", false),
        ("d.e.g", false),
        ("d.f", false),
        ("b", false),
    ] {
        assert_eq!(conflicts(path, &others), expected, "{path}");
    }
}

/// As many fields as are found by a table, in place of old ones and behind them.
#[test]
fn many_outputs_are_set_as_few_are() {
    for count in [1, 32, 33, 40] {
        let old = doc! {"t": 1, "v0": "old", "w": 2, (format!("v{}", count - 1)): "old"};
        let output: Document = (0..count)
            .map(|i| (format!("v{i}"), Bson::from(doc! {"$sum": i})))
            .collect();
        let stage = doc! {"$setWindowFields": {"sortBy": {"t": 1}, "output": output}};
        let mut expected = old.clone();
        for i in 0..count {
            expected.insert(format!("v{i}"), i);
        }
        assert_eq!(run(&[stage], &[old]), [expected]);
    }
}
