//! Writes that are sent again as other ones than they were.

use super::transactions::{bench, numbered};
use super::{Bench, code, write_errors};
use bson::{Document, doc};

fn modify(fields: Document) -> Document {
    let mut command = doc! { "findAndModify": "c", "query": { "_id": 1 } };
    command.extend(fields);
    command
}

/// The code with which the second of two commands of one number is refused.
fn second(bench: &Bench, number: i64, first: Document, second: Document) -> i32 {
    bench.ok(numbered(first, number));
    code(&bench.run(numbered(second, number)))
}

/// It answered as if it had done what the other one did.
#[test]
fn a_find_and_modify_is_not_answered_by_another_write() {
    let bench = bench();
    let change = || modify(doc! { "update": { "$inc": { "a": 1 } } });
    let remove = || modify(doc! { "remove": true });
    assert_eq!(second(&bench, 1, change(), remove()), 40609);
    let insert = doc! { "insert": "c", "documents": [{ "_id": 3 }] };
    assert_eq!(second(&bench, 2, insert, remove()), 40608);
    let upsert = modify(doc! { "query": { "_id": 4 }, "update": { "$inc": { "a": 1 } }, "upsert": true });
    assert_eq!(second(&bench, 3, upsert, change()), 40608);
    let update = || doc! { "update": "c", "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "a": 1 } } }] };
    assert_eq!(second(&bench, 4, update(), change()), 40612);
    let new = modify(doc! { "update": { "$inc": { "a": 1 } }, "new": true });
    assert_eq!(second(&bench, 5, update(), new), 40611);
    let delete = |id: i32| doc! { "delete": "c", "deletes": [{ "q": { "_id": id }, "limit": 1 }] };
    assert_eq!(second(&bench, 6, delete(2), remove()), 40607);
    assert_eq!(second(&bench, 7, delete(3), change()), 40606);
    bench.ok(numbered(delete(4), 8));
    assert_eq!(write_errors(&bench.ok(numbered(update(), 8))), [(0, 40638)]);
    assert_eq!(bench.find("c", doc! {}), [doc! { "_id": 1, "a": 4 }]);
}

#[test]
fn statements_have_their_numbers_from_one_field() {
    let bench = bench();
    let both = doc! { "insert": "c", "documents": [{ "_id": 3 }], "stmtId": 1, "stmtIds": [1] };
    assert_eq!(bench.code(numbered(both, 1)), 72);
    let both = doc! {
        "bulkWrite": 1, "nsInfo": [{ "ns": "test.c" }], "ops": [{ "insert": 0, "document": { "_id": 3 } }],
        "stmtId": 1, "stmtIds": [1],
    };
    assert_eq!(code(&bench.admin(numbered(both, 1))), 72);
    assert_eq!(bench.find("c", doc! { "_id": 3 }), [] as [Document; 0]);
}

/// Any one `findAndModify` of a large document with a long `_id` ended the server, and all others of its set.
#[test]
fn a_largest_document_is_found_and_modified_and_told_again() {
    let bench = bench();
    let id = "i".repeat(8_000_000);
    let query = || doc! { "_id": &id };
    // History has the `_id` beside the document.
    let padding = (16 << 20) - 100 - 2 * id.len();
    let modify = |fields: Document| {
        let mut command = doc! { "findAndModify": "c", "query": query(), "fields": { "n": 1, "_id": 0 } };
        command.extend(fields);
        command
    };
    let insert = || modify(doc! { "update": { "$set": { "p": "x".repeat(padding) } }, "upsert": true, "new": true });
    let told = |reply: &Document| {
        let last = reply.get_document("lastErrorObject").unwrap();
        let value = reply.get_document("value").unwrap();
        (last.get_str("upserted").ok() == Some(&*id), value.get_i32("n").ok())
    };
    let increment = |is_new: bool| modify(doc! { "update": { "$inc": { "n": 1 } }, "new": is_new });
    for (number, command, expected) in [
        (1, insert(), (true, None)),
        (2, increment(false), (false, None)),
        (3, increment(true), (false, Some(2))),
        (4, increment(false), (false, Some(2))),
        (5, modify(doc! { "remove": true }), (false, Some(3))),
    ] {
        for _ in 0..2 {
            let reply = bench.ok(numbered(command.clone(), number));
            assert_eq!(told(&reply), expected, "{number}");
        }
    }
}
