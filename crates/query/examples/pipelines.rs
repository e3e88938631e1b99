//! Cost per document of a few pipelines over documents in memory: `cargo run --release -p query --example pipelines`.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
use query::expression::ExpressionContext;
use query::stages::{Execution, ForeignRequest, IteratorSource, Pipeline, Stage, StageContext};
use query::value::SharedDocument;
use query::{EvaluationContext, QueryError};
use vfs::Clock;

struct Alone;

impl Execution for Alone {
    fn check(&self) -> Result<(), QueryError> {
        Ok(())
    }

    fn open_foreign(&self, _: ForeignRequest<'_>) -> Result<Box<dyn Stage>, QueryError> {
        Err(QueryError::not_implemented("another collection"))
    }
}

/// Runs the stages over the documents and prints nanoseconds per document.
fn measure(name: &str, stages: &[Document], documents: &[SharedDocument]) -> Result<(), Box<dyn std::error::Error>> {
    let context = ExpressionContext::new(0, Arc::new(vfs::SeededRandom::new(1)));
    let stages = stages
        .iter()
        .map(RawDocumentBuf::try_from)
        .collect::<Result<Vec<_>, _>>()?;
    let mut pipeline = Pipeline::parse_stages(&stages, &context, 0)?;
    pipeline.optimize();
    let input = documents.to_vec();
    let clock = vfs::SystemClock::new();
    let mut top = pipeline.run(Box::new(IteratorSource::new(input)))?;
    let mut results = 0;
    let evaluation = EvaluationContext::uninterrupted();
    let mut context = StageContext {
        execution: &Alone,
        evaluation: &evaluation,
    };
    while top.next(&mut context)?.is_some() {
        results += 1;
    }
    let per_document = clock.monotonic().as_nanos() / documents.len() as u128;
    println!("{name:<44} {per_document:>6} ns per document, {results} results");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut documents = Vec::new();
    for n in 0..1_000_000 {
        let document = doc! {"_id": n, "x": n % 1000, "y": f64::from(n) / 3.0, "name": format!("name {}", n % 5000), "tags": ["a", "b"]};
        documents.push(SharedDocument::from(RawDocumentBuf::try_from(&document)?));
    }
    measure(
        "$group _id null, $sum 1",
        &[doc! {"$group": {"_id": null, "n": {"$sum": 1}}}],
        &documents,
    )?;
    measure(
        "$match x < 500, $group null, $sum y",
        &[
            doc! {"$match": {"x": {"$lt": 500}}},
            doc! {"$group": {"_id": null, "n": {"$sum": "$y"}}},
        ],
        &documents,
    )?;
    measure(
        "$group by int (1000), $sum y",
        &[doc! {"$group": {"_id": "$x", "n": {"$sum": "$y"}}}],
        &documents,
    )?;
    measure(
        "$group by string (5000), $avg, $max",
        &[doc! {"$group": {"_id": "$name", "a": {"$avg": "$y"}, "m": {"$max": "$x"}}}],
        &documents,
    )?;
    measure(
        "$addFields $add, $multiply",
        &[doc! {"$addFields": {"z": {"$add": ["$x", {"$multiply": ["$y", 2]}]}}}],
        &documents,
    )?;
    measure(
        "$project x, name",
        &[doc! {"$project": {"x": 1, "name": 1}}],
        &documents,
    )?;
    measure("$unwind tags", &[doc! {"$unwind": "$tags"}], &documents)?;
    measure(
        "$sort y desc, $limit 10",
        &[doc! {"$sort": {"y": -1}}, doc! {"$limit": 10}],
        &documents,
    )?;
    measure(
        "$sort x",
        &[doc! {"$limit": 300_000}, doc! {"$sort": {"x": 1}}],
        &documents,
    )?;
    Ok(())
}
