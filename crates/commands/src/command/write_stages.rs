//! `$out` and `$merge`: the results of a pipeline are written.
//!
//! The stages before run as they would for a client, in batches; each batch is written like a client's own writes.
//! `$out` fills a collection of its own, with the options and indexes of the one it is to be, and takes its place in
//! one step when all is written; whatever fails before leaves everything as it was. `$merge` writes document by
//! document, and what it has written when it fails stays. One that writes where it reads sees the state of its
//! beginning.

use super::merge_stage::{Inherited, Merge, parse_merge};
use super::primary_output::PrimaryOutput;
use super::stage_destination::{failure, named, target, unknown_field};
use super::timeseries;
use super::write_output::Output;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::pinned::PinnedState;
use bson::Document;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use query::plan::AggregateRequest;
use query::{DocumentSink, ExecState, SinkState};
use storage::Namespace;
use wire::ErrorCode;

/// Documents and bytes that are written together.
const BATCH_DOCUMENTS: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;

/// A stage that writes.
pub enum WriteStage {
    /// `$out`, with the options of a time-series collection
    Out(Namespace, Option<Document>),
    /// `$merge`
    Merge(Box<Merge>),
}

impl WriteStage {
    /// Where it writes.
    pub fn destination(&self) -> &Namespace {
        match self {
            Self::Out(into, _) => into,
            Self::Merge(merge) => &merge.into,
        }
    }

    /// As pipelines call it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Out(..) => "$out",
            Self::Merge(_) => "$merge",
        }
    }
}

/// A pipeline that writes: the stage at its end, as it is written, too, and the stages before it.
pub struct Split<'d> {
    /// The stage.
    pub stage: WriteStage,
    /// Its text.
    pub source: &'d RawDocument,
    /// What runs before it.
    pub before: RawArrayBuf,
}

/// Takes the stage that writes off a pipeline's end; `None` when it has none.
pub fn split<'d>(call: &Invocation<'d>, pipeline: &'d RawArray) -> Result<Option<Split<'d>>> {
    let mut stages = RawArrayBuf::new();
    let mut last = None;
    for stage in pipeline {
        if let Some(before) = last.replace(stage?) {
            stages.push(before);
        }
    }
    let Some(RawBsonRef::Document(source)) = last else {
        return Ok(None);
    };
    let Some(stage) = parse(call, source)? else {
        return Ok(None);
    };
    for before in stages.into_iter().flatten() {
        let field = before.as_document().and_then(|stage| stage.into_iter().next());
        if let Some((name, _)) = field.transpose()?
            && (name == "$out" || name == "$merge")
        {
            let message = format!("{} can only be the final stage in the pipeline", name.as_str());
            return failure(40601, message);
        }
    }
    // A stream has no end at which something could be written.
    if let Some(Ok(RawBsonRef::Document(first))) = pipeline.into_iter().next()
        && first.get("$changeStream")?.is_some()
    {
        let name = stage.name();
        return failure(20, format!("{name} is not permitted in a $changeStream pipeline"));
    }
    Ok(Some(Split {
        stage,
        source,
        before: stages,
    }))
}

/// Whether a command has a pipeline whose last stage writes, as far as its name tells.
pub fn writes(body: &RawDocument) -> bool {
    let Ok(Some(RawBsonRef::Array(pipeline))) = body.get("pipeline") else {
        return false;
    };
    let Some(Ok(RawBsonRef::Document(last))) = pipeline.into_iter().last() else {
        return false;
    };
    matches!(last.into_iter().next(), Some(Ok((name, _))) if name == "$out" || name == "$merge")
}

/// A stage that writes; `None` for another one.
pub fn parse<'d>(call: &Invocation<'d>, stage: &'d RawDocument) -> Result<Option<WriteStage>> {
    let mut fields = stage.into_iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Ok(None);
    };
    let (name, argument) = field?;
    Ok(match name.as_str() {
        "$out" => {
            let (into, timeseries) = parse_out(call, argument)?;
            Some(WriteStage::Out(into, timeseries))
        }
        "$merge" => Some(WriteStage::Merge(Box::new(parse_merge(call, argument)?))),
        _ => None,
    })
}

fn parse_out<'d>(call: &Invocation<'d>, argument: RawBsonRef<'d>) -> Result<(Namespace, Option<Document>)> {
    let missing = |field| {
        let message = format!("BSON field '$out.{field}' is missing but a required field");
        failure(40414, message)
    };
    let Some(named) = named("$out", argument)? else {
        let found = crate::arguments::type_name(argument);
        let message = format!("$out only supports a string or object argument, but found {found}");
        return failure(16990, message);
    };
    if let Some(other) = named.other {
        return unknown_field(&format!("$out.{other}"));
    }
    let (db, coll) = match (named.db, named.coll) {
        (_, None) => return missing("coll"),
        (None, Some(_)) if matches!(argument, RawBsonRef::Document(_)) => return missing("db"),
        (db, Some(coll)) => (db.unwrap_or(call.database), coll),
    };
    let is_name = !coll.is_empty() && !coll.starts_with('.') && !coll.contains('\0');
    if is_name && Namespace::new(db, "x").is_ok() && Namespace::new(db, coll).is_err() {
        // One that a collection cannot be renamed to, which MongoDB finds at the end.
        return failure(20, format!("$out: error with target namespace: {db}.{coll}"));
    }
    let into = target(db, coll, "$out", 31321, 17385)?;
    let timeseries = named
        .timeseries
        .map(|given| timeseries::definition::parse(&into, given));
    Ok((into, timeseries.transpose()?))
}

/// Documents of one batch.
#[derive(Default)]
struct Batch {
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

impl DocumentSink for Batch {
    fn wanted(&self) -> u64 {
        (BATCH_DOCUMENTS - self.documents.len()) as u64
    }

    fn push(&mut self, document: &RawDocument) -> SinkState {
        self.bytes += document.as_bytes().len();
        self.documents.push(document.to_owned());
        match self.documents.len() >= BATCH_DOCUMENTS || self.bytes >= BATCH_BYTES {
            true => SinkState::Full,
            false => SinkState::Continue,
        }
    }
}

/// Runs the stages before the one that writes, and writes: a secondary has the primary do that.
pub fn run(call: &mut Invocation<'_>, request: &AggregateRequest<'_>, split: &Split<'_>) -> Result<()> {
    if call.transaction_number().is_some() {
        return Err(CommandError::new(
            ErrorCode::OperationNotSupportedInTransaction,
            "Aggregation stages $out and $merge cannot run within a multi-document transaction",
        ));
    }
    let pinned = call.pinned.clone();
    if let WriteStage::Merge(merge) = &split.stage
        && pinned.is_none()
        && may_read(call, request, &merge.into)
    {
        // One moment: what is written is not to be read again.
        let storage = &call.server.storage;
        let time = storage.applied().time;
        call.pinned = Some(PinnedState {
            view: storage.read_pinned()?,
            time,
        });
    }
    let is_writable = call.server.replica_set().is_none_or(|set| set.is_writable());
    let done = match is_writable {
        true => write_here(call, request, &split.stage),
        false => write_on_primary(call, request, split),
    };
    call.pinned = pinned;
    done
}

fn write_here(call: &mut Invocation<'_>, request: &AggregateRequest<'_>, stage: &WriteStage) -> Result<()> {
    let collation = query::aggregate_collation(&call.context(), request)?;
    let inherited = Inherited::of(call, collation, request.variables)?;
    let (output, _name) = Output::begin(call, stage, inherited)?;
    let written = each_batch(call, request, &mut |call, documents| output.write(call, documents));
    let finished = written.and_then(|()| output.finish(call));
    if finished.is_err() {
        output.abandon(call)?;
    }
    finished
}

fn write_on_primary(call: &mut Invocation<'_>, request: &AggregateRequest<'_>, split: &Split<'_>) -> Result<()> {
    let collation = query::aggregate_collation(&call.context(), request)?;
    let inherited = Inherited::of(call, collation, request.variables)?;
    let mut primary = PrimaryOutput::begin(call, split.source, inherited)?;
    let written = each_batch(call, request, &mut |call, documents| primary.write(call, &documents));
    let finished = written.and_then(|()| primary.finish(call));
    if finished.is_err() {
        primary.abandon(call);
    }
    finished
}

/// Whether a pipeline may read a collection: its own, or one that a stage or a view names.
fn may_read(call: &Invocation<'_>, request: &AggregateRequest<'_>, into: &Namespace) -> bool {
    let Some(ns) = &request.ns else { return true };
    let reads_others = |stage: &RawDocument| {
        let name = stage
            .into_iter()
            .next()
            .and_then(|field| Some(field.ok()?.0.as_str().to_owned()));
        name.is_some_and(|name| READS_OTHERS.contains(&name.as_str()))
    };
    ns == into
        || call.server.storage.catalog().view(ns).is_some()
        || request
            .pipeline
            .into_iter()
            .flatten()
            .filter_map(|stage| stage.as_document())
            .any(reads_others)
}

/// Stages that read collections beside the pipeline's own.
const READS_OTHERS: &[&str] = &["$lookup", "$graphLookup", "$unionWith", "$facet"];

/// Hands the results over in batches; `write` sees no pinned state.
fn each_batch(
    call: &mut Invocation<'_>,
    request: &AggregateRequest<'_>,
    write: &mut dyn FnMut(&mut Invocation<'_>, Vec<RawDocumentBuf>) -> Result<()>,
) -> Result<()> {
    let mut executor = query::aggregate(&call.context(), request)?;
    call.set_plan_summary(executor.plan_summary());
    loop {
        let mut batch = Batch::default();
        let state = executor.next_documents(&call.context(), &mut batch)?;
        if !batch.documents.is_empty() {
            let pinned = call.pinned.take();
            // What is written has plans of its own, which are not the command's.
            let plan = std::mem::take(&mut call.report.plan_summary);
            let written = write(call, batch.documents);
            call.set_plan_summary(plan);
            call.pinned = pinned;
            written?;
        }
        if state == ExecState::Exhausted {
            return Ok(());
        }
    }
}

/// `explain` of a pipeline that writes shows how it would read.
pub fn check_explained(stage: &WriteStage, runs: bool) -> Result<()> {
    let name = stage.name();
    match runs {
        true => failure(
            51029,
            format!("explain with executionStats or more is not allowed for {name}: it would write"),
        ),
        false => Ok(()),
    }
}
