//! What is said of documents that break a validator.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bson::{Bson, Document, doc};
use storage::{MemoryBudget, Operation, StorageError};

use super::Validator;
use crate::evaluation::tests::LookedAt;
use crate::matcher::tests::{context, raw_of};
use crate::{EvaluationContext, QueryError};

/// `details` of the report on a document, which must be turned down.
fn details(validator: Document, document: Document) -> Document {
    let compiled = Validator::compile(&raw_of(&validator), &context()).unwrap();
    let evaluation = EvaluationContext::uninterrupted();
    let raw = raw_of(&document);
    assert!(
        !compiled.accepts(&raw, &evaluation).unwrap(),
        "{validator} accepts {document}"
    );
    let (report, bytes) = compiled.explain(&raw, 1 << 20, &evaluation).unwrap();
    assert_eq!(report.get("failingDocumentId"), document.get("_id"));
    assert_eq!(bytes, raw_of(&report).as_bytes().len());
    report.get_document("details").unwrap().clone()
}

#[test]
fn comparisons_say_what_they_looked_at() {
    assert_eq!(
        details(doc! { "a": { "$gt": 5 } }, doc! { "_id": 1, "a": 3 }),
        doc! { "operatorName": "$gt", "specifiedAs": { "a": { "$gt": 5 } }, "reason": "comparison failed", "consideredValue": 3 }
    );
    assert_eq!(
        details(doc! { "a": 5 }, doc! { "_id": 1 }),
        doc! { "operatorName": "$eq", "specifiedAs": { "a": 5 }, "reason": "field was missing" }
    );
    let several = details(doc! { "a": { "$lt": 5 } }, doc! { "_id": 1, "a": [7, 8] });
    assert_eq!(
        several.get_array("consideredValues").unwrap(),
        &[7.into(), 8.into()],
        "{several}"
    );
    let inverted = details(doc! { "a": { "$not": { "$gt": 5 } } }, doc! { "_id": 1, "a": 7 });
    assert_eq!(inverted.get_str("operatorName").ok(), Some("$not"));
    assert_eq!(
        inverted.get_document("details").unwrap().get_str("reason").ok(),
        Some("comparison succeeded"),
        "{inverted}"
    );
}

#[test]
fn clauses_name_those_that_failed() {
    let both = details(doc! { "a": 1, "b": { "$exists": true } }, doc! { "_id": 1, "a": 2 });
    assert_eq!(both.get_str("operatorName").ok(), Some("$and"));
    let failed = both.get_array("clausesNotSatisfied").unwrap();
    let places: Vec<_> = failed
        .iter()
        .map(|clause| clause.as_document().unwrap().get_i32("index").unwrap())
        .collect();
    assert_eq!(places, [0, 1]);
    let one = details(
        doc! { "$or": [{ "a": 1 }, { "b": 1 }] },
        doc! { "_id": 1, "a": 2, "b": 2 },
    );
    assert_eq!(one.get_array("clausesNotSatisfied").unwrap().len(), 2);
    let expression = details(
        doc! { "$expr": { "$gt": ["$a", "$b"] } },
        doc! { "_id": 1, "a": 2, "b": 2 },
    );
    assert_eq!(
        expression,
        doc! {
            "operatorName": "$expr", "specifiedAs": { "$expr": { "$gt": ["$a", "$b"] } }, "reason": "expression did not match",
            "expressionResult": false,
        }
    );
}

/// An expression that fails ends the walk: what stands around it is wrong, too, whatever comes behind.
#[test]
fn what_stands_around_an_expression_that_fails_is_told() {
    let fails = doc! { "$expr": { "$concat": ["$a", "z"] } };
    let document = doc! { "_id": 1, "a": 2 };
    let of = |details: &Document, name: &str, field: &str| {
        assert_eq!(details.get_str("operatorName").ok(), Some(name), "{details}");
        let told = details.get_array(field).unwrap();
        assert_eq!(told.len(), 1, "{details}");
        told[0].as_document().unwrap().get_document("details").unwrap().clone()
    };
    let either = doc! { "$or": [fails.clone(), { "a": 2 }] };
    let told = details(doc! { "$and": [either, { "a": 2 }] }, document.clone());
    let told = of(&told, "$and", "clausesNotSatisfied");
    let told = of(&told, "$or", "clausesNotSatisfied");
    assert_eq!(
        told.get_str("reason").ok(),
        Some("failed to evaluate aggregation expression")
    );
    let neither = doc! { "$nor": [{ "$and": [fails, { "a": 3 }] }] };
    let told = details(doc! { "$and": [neither, { "a": 2 }] }, document);
    let told = of(&told, "$and", "clausesNotSatisfied");
    let told = of(&told, "$nor", "clausesSatisfied");
    of(&told, "$and", "clausesSatisfied");
}

#[test]
fn schemas_name_rules_and_properties() {
    let schema = doc! {
        "bsonType": "object", "required": ["name", "year"],
        "properties": { "year": { "bsonType": "int", "minimum": 2017, "description": "when" }, "name": { "bsonType": "string" } },
    };
    let told = details(doc! { "$jsonSchema": schema }, doc! { "_id": 1, "year": 2010 });
    assert_eq!(
        told,
        doc! {
            "operatorName": "$jsonSchema",
            "schemaRulesNotSatisfied": [
                {
                    "operatorName": "properties",
                    "propertiesNotSatisfied": [{
                        "propertyName": "year",
                        "description": "when",
                        "details": [{
                            "operatorName": "minimum", "specifiedAs": { "minimum": 2017 }, "reason": "comparison failed",
                            "consideredValue": 2010,
                        }],
                    }],
                },
                { "operatorName": "required", "specifiedAs": { "required": ["name", "year"] }, "missingProperties": ["name"] },
            ],
        },
        "{told}"
    );
}

#[test]
fn a_report_without_room_is_short() {
    let compiled = Validator::compile(&raw_of(&doc! { "a": "x".repeat(1000) }), &context()).unwrap();
    let (report, bytes) = compiled
        .explain(
            &raw_of(&doc! { "_id": 7, "a": 1 }),
            100,
            &EvaluationContext::uninterrupted(),
        )
        .unwrap();
    assert_eq!(
        (report, bytes),
        (
            doc! { "failingDocumentId": 7, "note": "detailed error was too large" },
            0
        )
    );
}

#[test]
fn what_reads_the_time_is_compiled_anew() {
    for (validator, expected) in [
        (doc! { "$expr": { "$lt": ["$t", "$$NOW"] } }, true),
        (
            doc! { "$or": [{ "a": 1 }, { "$expr": { "$lt": ["$t", { "$add": [1, "$$NOW"] }] } }] },
            true,
        ),
        (doc! { "a": "$$NOW" }, false),
        (doc! { "$expr": { "$eq": ["$t", { "$literal": "$$NOW" }] } }, false),
    ] {
        let compiled = Validator::compile(&raw_of(&validator), &context()).unwrap();
        assert_eq!(compiled.depends_on_time(), expected, "{validator}");
    }
}

#[test]
fn what_no_validator_may_have_is_refused() {
    for (validator, code) in [
        (doc! { "$where": "1" }, 2),
        (doc! { "$text": { "$search": "x" } }, 2),
        (doc! { "a": { "$near": [0, 0] } }, 5_626_500),
        (doc! { "$jsonSchema": { "required": [] } }, 9),
        (doc! { "$jsonSchema": { "minimum": "x" } }, 14),
        (doc! { "$jsonSchema": { "$ref": "x" } }, 9),
        (doc! { "$nonesuch": 1 }, 2),
        (doc! { "a": { "$gt": 5, "$comment": "x" } }, 2),
    ] {
        let error = Validator::compile(&raw_of(&validator), &context())
            .err()
            .unwrap_or_else(|| panic!("{validator}"));
        assert_eq!(error.code().map(|code| code.0), Some(code), "{validator}: {error}");
    }
}

/// It was passed over once, and validators were stored with it.
#[test]
fn a_comment_on_a_field_of_a_stored_validator_is_passed_over() {
    let validator = raw_of(&doc! { "a": { "$gt": 5, "$comment": "x" } });
    let compiled = Validator::compile(&validator, &context().for_stored()).unwrap();
    let evaluation = EvaluationContext::uninterrupted();
    for (a, accepted) in [(5, false), (6, true)] {
        let document = raw_of(&doc! { "_id": 1, "a": a });
        assert_eq!(compiled.accepts(&document, &evaluation).unwrap(), accepted, "{a}");
        assert!(compiled.explain(&document, 1 << 20, &evaluation).is_ok());
    }
}

/// Looking for many names takes no memory that grows with the document, and where an expression finds none, nobody says
/// that the document breaks the rules.
#[test]
fn want_of_memory_turns_no_document_down() {
    let budget = MemoryBudget::new(u64::MAX, 2 << 20);
    let operation = Operation::within(Arc::new(LookedAt::default()), 1, &budget);
    let evaluation = EvaluationContext::new(&operation);
    let accepts = |validator: Document, document: &Document| {
        let compiled = Validator::compile(&raw_of(&validator), &context()).unwrap();
        compiled.accepts(&raw_of(document), &evaluation)
    };
    let names: Vec<String> = (0..40).map(|n| format!("f{}", 5000 * n)).collect();
    let document: Document = (0..200_000).map(|n| (format!("f{n}"), Bson::Int32(n))).collect();
    assert!(accepts(doc! { "$jsonSchema": { "required": names } }, &document).unwrap());
    let size = doc! { "$expr": { "$size": { "$map": { "input": { "$range": [0, "$n"] }, "in": "$$this" } } } };
    assert!(accepts(size.clone(), &doc! { "n": 1000 }).unwrap());
    let error = accepts(size, &doc! { "n": 1_000_000 }).unwrap_err();
    assert!(
        matches!(error, QueryError::Storage(StorageError::MemoryExceeded(_))),
        "{error}"
    );
}
