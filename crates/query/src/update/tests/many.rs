//! Updates of many fields: children are then looked up, not looked through.

use super::*;

/// Names whose order as positions and as names goes in a circle are met all the same, each once.
#[test]
fn every_one_of_many_named_fields_is_met() {
    let mut names: Vec<String> = (0..300).map(|n| format!("f{n}")).collect();
    names.extend(["9", "10", "1a", "2", "20", "1b"].map(str::to_owned));
    let fields =
        |value: i32| -> bson::Document { names.iter().map(|name| (name.clone(), Bson::from(value))).collect() };
    let mut before = fields(1);
    before.insert("other", 1);
    let mut after = fields(2);
    after.insert("other", 1);
    gives(doc! {"$set": fields(2)}, before.clone(), after.clone());
    gives(doc! {"$set": {"other": 1}, "$inc": fields(1)}, before.clone(), after);
    gives(doc! {"$unset": fields(1)}, before, doc! {"other": 1});
    let nested = |value: i32| doc! {"_id": 1, "a": fields(value)};
    let paths: bson::Document = names.iter().map(|name| (format!("a.{name}"), Bson::from(2))).collect();
    gives(doc! {"$set": paths}, nested(1), nested(2));
}

#[test]
fn every_one_of_many_positions_is_met() {
    let paths = |positions: std::ops::Range<i32>| -> bson::Document {
        positions.map(|n| (format!("a.{n}"), Bson::from(n))).collect()
    };
    let before = doc! {"a": vec![-1; 40]};
    let array = |numbers: Vec<i32>| doc! {"a": numbers};
    gives(doc! {"$set": paths(0..40)}, before.clone(), array((0..40).collect()));
    let half = [vec![-1; 20], (20..60).collect()].concat();
    gives(doc! {"$set": paths(20..60)}, before, array(half));
}
