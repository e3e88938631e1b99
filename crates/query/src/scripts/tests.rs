//! Scripts end with their operation, and what they have is its.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc, rawdoc};
use storage::{Interrupted, MemoryBudget, Operation, ScriptLimits, StorageError};

use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::evaluation::tests::LookedAt;
use crate::expression::ExpressionContext;
use crate::matcher::Matcher;
use crate::project::Projection;

const MIB: u64 = 1 << 20;

fn operation(budget: &Arc<MemoryBudget>) -> Arc<Operation> {
    Arc::new(Operation::within(Arc::new(LookedAt::default()), 1, budget))
}

fn limited_operation(limits: Arc<ScriptLimits>) -> Arc<Operation> {
    let (clock, budget) = (Arc::new(LookedAt::default()), MemoryBudget::unlimited());
    Arc::new(Operation::for_client(clock, 1, &budget, limits))
}

fn matcher(filter: Document, operation: &Arc<Operation>) -> Result<Matcher, QueryError> {
    let context = ExpressionContext::new(0, Arc::new(vfs::SeededRandom::new(1))).for_operation(operation);
    let filter = RawDocumentBuf::try_from(&filter).unwrap();
    Matcher::parse_ordered(&filter, &context)
}

fn matches(filter: Document, operation: &Arc<Operation>) -> Result<bool, QueryError> {
    matcher(filter, operation)?.matches(&rawdoc! { "a": 6 }, &EvaluationContext::new(operation))
}

fn code(result: Result<bool, QueryError>) -> i32 {
    result.unwrap_err().code().unwrap().0
}

#[test]
fn a_script_ends_with_its_operation() {
    let endless = || doc! { "$where": "while (true) {}" };
    let ended = operation(&MemoryBudget::unlimited());
    ended.set_deadline_ms(1000);
    let expired = matches(endless(), &ended);
    let Err(QueryError::Storage(StorageError::Interrupted(Interrupted::TimeExpired))) = expired else {
        panic!("{expired:?}");
    };
    let limits = Arc::new(ScriptLimits::default());
    limits.set_call_ms_max(1000);
    let limited = limited_operation(limits);
    assert_eq!(code(matches(endless(), &limited)), 139);
    let killed = operation(&MemoryBudget::unlimited());
    let filter = matcher(endless(), &killed).unwrap();
    killed.kill();
    let interrupted = filter.matches(&rawdoc! {}, &EvaluationContext::new(&killed));
    let Err(QueryError::Storage(StorageError::Interrupted(Interrupted::Killed))) = interrupted else {
        panic!("{interrupted:?}");
    };
}

#[test]
fn the_heap_is_the_operations_memory() {
    let budget = MemoryBudget::new(64 * MIB, 64 * MIB);
    let operation = operation(&budget);
    let filter = matcher(
        doc! { "$where": "new Uint8Array(20 << 20).length > this.a" },
        &operation,
    )
    .unwrap();
    let evaluation = EvaluationContext::new(&operation);
    assert_eq!(budget.used(), 0, "what parsing took has gone back");
    assert!(filter.matches(&rawdoc! { "a": 6 }, &evaluation).unwrap());
    assert_eq!(budget.used(), 32 * MIB, "it had to grow once");
    drop(evaluation);
    assert_eq!(budget.used(), 0);
    let too_large = matches(doc! { "$where": "new Uint8Array(50 << 20)" }, &operation);
    let Err(QueryError::Storage(StorageError::MemoryExceeded(_))) = too_large else {
        panic!("{too_large:?}");
    };
    let limits = Arc::new(ScriptLimits::default());
    limits.set_heap_bytes_max(16 * MIB);
    let limited = limited_operation(limits);
    assert_eq!(
        code(matches(doc! { "$where": "new Uint8Array(20 << 20)" }, &limited)),
        139
    );
}

const MUCH: &str = "new Uint8Array(20 << 20).length > 0";

/// The first run of a call leaves nothing for the second one, with more heap.
#[test]
fn a_call_that_begins_again_sees_nothing_of_its_first_run() {
    let operation = operation(&MemoryBudget::unlimited());
    let counts = format!("globalThis.runs = (globalThis.runs || 0) + 1; return {MUCH} && runs == 1");
    assert!(matches(doc! { "$where": counts }, &operation).unwrap());
}

/// What scripts keep from one document to the next is never lost without a word.
#[test]
fn what_scripts_keep_is_not_lost_when_the_heap_grows() {
    let run = |keeps: &str| {
        let operation = operation(&MemoryBudget::unlimited());
        let source = format!("function f() {{ {keeps}; return this.a < 2 || {MUCH} }}");
        let filter = matcher(doc! { "$where": source }, &operation).unwrap();
        let evaluation = EvaluationContext::new(&operation);
        let small = filter.matches(&rawdoc! { "a": 1 }, &evaluation);
        assert!(small.unwrap(), "{keeps}");
        filter.matches(&rawdoc! { "a": 2 }, &evaluation)
    };
    assert!(run("let n = 1").unwrap());
    for keeps in [
        "globalThis.n = (globalThis.n || 0) + 1",
        "f.n = 1",
        "f.prototype.n = 1",
        "Array.prototype.n = 1",
        "args.push(1)",
        "emit = 1",
        "Object.setPrototypeOf(Math, tojson)",
    ] {
        assert_eq!(code(run(keeps)), 139, "{keeps}");
    }
}

#[test]
fn what_is_checked_does_not_run() {
    let operation = operation(&MemoryBudget::unlimited());
    for source in [
        "function() {}), (() => { while (true) {} })(), (function() {}",
        "function() {}, (() => { while (true) {} })()",
    ] {
        assert!(matcher(doc! { "$where": source }, &operation).is_ok(), "{source}");
    }
    let broken = matcher(doc! { "$where": "function( {" }, &operation);
    assert_eq!(broken.unwrap_err().code().unwrap().0, 139);
}

#[test]
fn other_conditions_are_asked_first() {
    let operation = operation(&MemoryBudget::unlimited());
    let throws = || doc! { "$where": "throw new Error('asked')" };
    let mut filter = throws();
    filter.insert("a", 5);
    assert!(!matches(filter, &operation).unwrap());
    let alternatives = doc! { "$and": [{ "$or": [throws(), { "b": 1 }] }, { "a": 5 }] };
    assert!(!matches(alternatives, &operation).unwrap());
    assert_eq!(code(matches(throws(), &operation)), 139);
}

/// A positional projection asked the whole filter again for the element that it had found, and scripts ran twice.
#[test]
fn the_element_that_a_filter_has_found_is_told_without_scripts() {
    let operation = operation(&MemoryBudget::unlimited());
    let once = "globalThis.calls = (globalThis.calls || 0) + 1; if (calls > 2) throw new Error('again'); return true";
    let function = doc! { "body": format!("function() {{ {once} }}"), "args": [], "lang": "js" };
    let filter = doc! { "$where": once, "$expr": { "$function": function }, "a": 2 };
    let filter = matcher(filter, &operation).unwrap();
    let evaluation = EvaluationContext::new(&operation);
    let document = rawdoc! { "_id": 1, "a": [3, 1, 2] };
    assert!(filter.matches(&document, &evaluation).unwrap());
    let context = ExpressionContext::new(0, Arc::new(vfs::SeededRandom::new(1))).for_operation(&operation);
    let projection = Projection::parse(&rawdoc! { "a.$": 1 }, &context).unwrap();
    let mut projected = Vec::new();
    projection
        .apply(&document, Some(&filter), &evaluation, &mut projected)
        .unwrap();
    assert_eq!(projected, rawdoc! { "_id": 1, "a": [2] }.as_bytes());
}

#[test]
fn without_scripting_nothing_runs() {
    let limits = Arc::new(ScriptLimits::default());
    limits.disable();
    let operation = limited_operation(limits);
    assert_eq!(code(matches(doc! { "$where": "true" }, &operation)), 6108304);
    let function = doc! { "body": "function() { return true }", "args": [], "lang": "js" };
    assert_eq!(
        code(matches(doc! { "$expr": { "$function": function } }, &operation)),
        31264
    );
}
