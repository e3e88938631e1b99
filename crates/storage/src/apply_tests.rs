//! How long definitions may be.

#![allow(clippy::unwrap_used)]

use crate::testing::{Calls, Machine, index, ns};
use crate::{CollectionChange, IndexSpec, StorageError};
use bson::rawdoc;

/// A definition that was longer than a row of the catalog may be ended the server, and all others of its set.
#[test]
fn definitions_have_a_bound() {
    let machine = Machine::new(2);
    let (storage, op) = (machine.open().unwrap(), machine.operation());
    let filter = |name: &str| {
        let key = match name {
            "a" => rawdoc! { "a": 1 },
            "b" => rawdoc! { "b": 1 },
            _ => rawdoc! { "d": 1 },
        };
        let filter = rawdoc! { "partialFilterExpression": { "a": "x".repeat(6_000_000) } };
        index(name, key, filter)
    };
    let is_refused = |result: Result<(), StorageError>| {
        assert!(
            matches!(result, Err(StorageError::DocumentTooLarge { .. })),
            "{result:?}"
        );
    };
    let created = |specs: &[IndexSpec]| storage.create_indexes(&op, &ns("c"), specs).map(drop);
    storage.make(&op, "c", rawdoc! {});
    created(&[filter("a")]).unwrap();
    created(&[filter("b")]).unwrap();
    is_refused(created(&[filter("d")]));
    let long = || "x".repeat(crate::limits::DOCUMENT_BYTES_MAX);
    is_refused(storage.create_collection(&op, &ns("e"), &rawdoc! { "validator": { "a": long() } }));
    let change = CollectionChange {
        set_options: rawdoc! { "validator": { "a": "x".repeat(5_000_000) } },
        ..CollectionChange::default()
    };
    is_refused(storage.modify_collection(&op, &ns("c"), &change));
    let pipeline = bson::RawArrayBuf::from_iter([rawdoc! { "$match": { "a": long() } }]);
    is_refused(storage.create_view(&op, &ns("v"), "c", pipeline, &rawdoc! {}));
    let mut transaction = storage.begin_transaction().unwrap();
    is_refused(transaction.create_collection(&op, &ns("e"), &rawdoc! { "validator": { "a": long() } }));
    transaction.create_collection(&op, &ns("e"), &rawdoc! {}).unwrap();
    let specs = ["a", "b", "d"].map(filter);
    is_refused(transaction.create_indexes(&op, &ns("e"), &specs).map(drop));
    drop(transaction);
    // All is as it was.
    storage.drop_index(&op, &ns("c"), "a").unwrap();
    created(&[filter("d")]).unwrap();
    storage.log().flush().unwrap();
    drop(storage);
    let storage = machine.open().unwrap();
    assert_eq!(storage.catalog().collection(&ns("c")).unwrap().indexes().len(), 3);
    assert!(storage.catalog().collection(&ns("e")).is_none());
}
