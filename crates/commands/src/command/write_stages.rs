//! `$out` and `$merge`: the results of a pipeline are written.
//!
//! The stages before run as they would for a client, in batches; each batch is written like a client's own writes.
//! `$out` fills a collection of its own, with the options and indexes of the one it is to be, and takes its place in
//! one step when all is written; whatever fails before leaves everything as it was. `$merge` writes document by
//! document, and what it has written when it fails stays. One that writes where it reads sees the state of its
//! beginning.

use super::insert::{InsertBatch, insert_documents};
use super::primary_output::PrimaryOutput;
use super::timeseries;
use super::update::{self, Images, Statement};
use super::write_output::Output;
use super::write_result::WriteErrors;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::pinned::PinnedState;
use bson::oid::ObjectId;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Document, rawdoc};
use query::expression::Expression;
use query::plan::AggregateRequest;
use query::value::{DocumentWriter, SharedDocument};
use query::{DocumentSink, ExecState, SinkState};
use storage::{IndexSpec, Namespace};
use wire::ErrorCode;

/// Documents and bytes that are written together.
const BATCH_DOCUMENTS: usize = 1000;
const BATCH_BYTES: usize = 4 << 20;
/// How often a document that others insert and delete meanwhile is tried.
const MERGE_RETRIES: usize = 16;

fn failure<T>(code: i32, message: impl Into<String>) -> Result<T> {
    Err(CommandError::new(ErrorCode(code), message))
}

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

/// What `$merge` does with a document that is there.
#[derive(Clone, Debug, PartialEq)]
enum Matched {
    Replace,
    KeepExisting,
    Merge,
    Fail,
    Pipeline(RawArrayBuf),
}

/// What it does with one that is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NotMatched {
    Insert,
    Discard,
    Fail,
}

/// `$merge`.
#[derive(Clone, Debug)]
pub struct Merge {
    into: Namespace,
    on: Vec<String>,
    matched: Matched,
    not_matched: NotMatched,
    /// Variables of the pipeline, evaluated on each document.
    variables: RawDocumentBuf,
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

/// What `{db, coll}` names, and the first field that is neither.
struct Named<'d> {
    db: &'d str,
    coll: Option<&'d str>,
    other: Option<&'d str>,
    /// There is a document `timeseries`, which `$out` may have.
    has_timeseries: bool,
}

/// Reads a collection's name, or a document with it; `None` for a value that is neither.
fn named<'d>(call: &Invocation<'d>, value: RawBsonRef<'d>) -> Result<Option<Named<'d>>> {
    let mut named = Named {
        db: call.database,
        coll: None,
        other: None,
        has_timeseries: false,
    };
    match value {
        RawBsonRef::String(name) => named.coll = Some(name),
        RawBsonRef::Document(document) => {
            for field in document {
                match field? {
                    (name, RawBsonRef::String(text)) if name == "db" => named.db = text,
                    (name, RawBsonRef::String(text)) if name == "coll" => named.coll = Some(text),
                    (name, RawBsonRef::Document(_)) if name == "timeseries" => named.has_timeseries = true,
                    (name, _) => named.other = named.other.or(Some(name.as_str())),
                }
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(named))
}

fn unknown_field<T>(field: &str) -> Result<T> {
    failure(40415, format!("BSON field '{field}' is an unknown field."))
}

fn parse_out<'d>(call: &Invocation<'d>, argument: RawBsonRef<'d>) -> Result<(Namespace, Option<Document>)> {
    let timeseries = match argument {
        RawBsonRef::Document(options) => match options.get("timeseries")? {
            Some(RawBsonRef::Document(timeseries)) => Some(timeseries),
            Some(other) => {
                return Err(crate::arguments::wrong_type(
                    "$out",
                    "timeseries",
                    other,
                    "type 'object'",
                ));
            }
            None => None,
        },
        _ => None,
    };
    let into = match named(call, argument)? {
        None => failure(
            16990,
            format!(
                "$out only supports a string or object argument, but found {}",
                crate::arguments::type_name(argument)
            ),
        ),
        Some(Named { other: Some(other), .. }) => unknown_field(&format!("$out.{other}")),
        Some(Named { coll: None, .. }) => failure(40414, "BSON field '$out.coll' is missing but a required field"),
        Some(Named {
            db, coll: Some(coll), ..
        }) => target(db, coll, "$out", 31321, 17385),
    }?;
    let timeseries = timeseries.map(|given| timeseries::definition::parse(&into, given));
    Ok((into, timeseries.transpose()?))
}

/// A collection that may be written to so.
fn target(db: &str, coll: &str, stage: &str, internal: i32, special: i32) -> Result<Namespace> {
    let ns = Namespace::new(db, coll)?;
    if matches!(db, "admin" | "config" | "local") {
        return failure(internal, format!("Can't {stage} to internal database: {db}"));
    }
    if coll.starts_with("system.") {
        return failure(special, format!("Can't {stage} to special collection: {coll}"));
    }
    Ok(ns)
}

fn parse_merge<'d>(call: &Invocation<'d>, argument: RawBsonRef<'d>) -> Result<Merge> {
    let merge_target = |db: &str, coll: &str| target(db, coll, "$merge", 31319, 31319);
    let mut merge = Merge {
        into: Namespace::new(call.database, "x")?,
        on: vec!["_id".to_owned()],
        matched: Matched::Merge,
        not_matched: NotMatched::Insert,
        variables: rawdoc! { "new": "$$ROOT" },
    };
    let options = match argument {
        RawBsonRef::String(coll) => {
            merge.into = merge_target(call.database, coll)?;
            return Ok(merge);
        }
        RawBsonRef::Document(options) => options,
        other => {
            return failure(
                51182,
                format!(
                    "$merge only supports a string or object argument, not {}",
                    crate::arguments::type_name(other)
                ),
            );
        }
    };
    let (mut into, mut variables) = (None, None);
    for field in options {
        let (name, value) = field?;
        match name.as_str() {
            "into" => into = Some(parse_into(call, value)?),
            "on" => merge.on = parse_on(value)?,
            "let" => match value {
                RawBsonRef::Document(document) => variables = Some(document),
                other => {
                    let arguments = crate::arguments::wrong_type("$merge", "let", other, "type 'object'");
                    return Err(arguments);
                }
            },
            "whenMatched" => merge.matched = parse_matched(value)?,
            "whenNotMatched" => {
                merge.not_matched = match value {
                    RawBsonRef::String("insert") => NotMatched::Insert,
                    RawBsonRef::String("discard") => NotMatched::Discard,
                    RawBsonRef::String("fail") => NotMatched::Fail,
                    RawBsonRef::String(other) => return bad_mode("whenNotMatched", other),
                    other => {
                        return Err(crate::arguments::wrong_type(
                            "$merge",
                            name.as_str(),
                            other,
                            "type 'string'",
                        ));
                    }
                }
            }
            other => return unknown_field(&format!("$merge.{other}")),
        }
    }
    let Some((db, coll)) = into else {
        return failure(40414, "BSON field '$merge.into' is missing but a required field");
    };
    merge.into = merge_target(db, coll)?;
    if let Some(variables) = variables {
        merge.variables = parse_variables(&merge.matched, variables)?;
    }
    let is_possible = match (&merge.matched, merge.not_matched) {
        (Matched::Fail, not_matched) => not_matched == NotMatched::Insert,
        (Matched::KeepExisting, not_matched) => not_matched != NotMatched::Fail,
        _ => true,
    };
    if !is_possible {
        return failure(
            51189,
            "Combination of {whenMatched: fail or keepExisting} and that whenNotMatched is not supported",
        );
    }
    Ok(merge)
}

fn bad_mode<T>(field: &str, mode: &str) -> Result<T> {
    Err(CommandError::bad_value(format!(
        "Enumeration value '{mode}' for field '$merge.{field}' is not a valid value."
    )))
}

fn parse_into<'d>(call: &Invocation<'d>, value: RawBsonRef<'d>) -> Result<(&'d str, &'d str)> {
    match named(call, value)? {
        None => failure(
            51178,
            format!(
                "$merge 'into' field  must be either a string or an object, but found {}",
                crate::arguments::type_name(value)
            ),
        ),
        Some(Named { other: Some(other), .. }) => unknown_field(&format!("$merge.into.{other}")),
        Some(Named {
            has_timeseries: true, ..
        }) => unknown_field("$merge.into.timeseries"),
        Some(Named { coll: None, .. }) => failure(
            51178,
            "$merge 'into' field must specify a 'coll' that is not empty, null or undefined",
        ),
        Some(Named {
            db, coll: Some(coll), ..
        }) => Ok((db, coll)),
    }
}

fn parse_on(value: RawBsonRef<'_>) -> Result<Vec<String>> {
    let mut on = Vec::new();
    match value {
        RawBsonRef::String(field) => on.push(field.to_owned()),
        RawBsonRef::Array(fields) => {
            for field in fields {
                match field? {
                    RawBsonRef::String(field) => on.push(field.to_owned()),
                    other => {
                        return failure(
                            51134,
                            format!(
                                "$merge 'on' array elements must be strings, but found {}",
                                crate::arguments::type_name(other)
                            ),
                        );
                    }
                }
            }
        }
        other => {
            return failure(
                51186,
                format!(
                    "$merge 'on' field  must be either a string or an array of strings, but found {}",
                    crate::arguments::type_name(other)
                ),
            );
        }
    }
    if on.is_empty() {
        return failure(
            51187,
            "If explicitly specifying $merge 'on', must include at least one field",
        );
    }
    let mut seen = on.clone();
    seen.sort();
    if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
        return failure(31465, format!("Found a duplicate field '{}' in $merge.on", pair[0]));
    }
    Ok(on)
}

fn parse_matched(value: RawBsonRef<'_>) -> Result<Matched> {
    Ok(match value {
        RawBsonRef::String("replace") => Matched::Replace,
        RawBsonRef::String("keepExisting") => Matched::KeepExisting,
        RawBsonRef::String("merge") => Matched::Merge,
        RawBsonRef::String("fail") => Matched::Fail,
        RawBsonRef::String(other) => return bad_mode("whenMatched", other),
        RawBsonRef::Array(stages) => {
            query::update::check_types(RawBsonRef::Array(stages), None)?;
            Matched::Pipeline(stages.to_owned())
        }
        other => {
            return failure(
                51191,
                format!(
                    "$merge 'whenMatched' field  must be either a string or an array, but found {}",
                    crate::arguments::type_name(other)
                ),
            );
        }
    })
}

fn parse_variables(matched: &Matched, variables: &RawDocument) -> Result<RawDocumentBuf> {
    if !matches!(matched, Matched::Pipeline(_)) {
        return failure(
            51199,
            "Cannot use 'let' variables with a 'whenMatched' mode that is no pipeline",
        );
    }
    let mut all = RawDocumentBuf::new();
    let mut has_new = false;
    for field in variables {
        let (name, value) = field?;
        if name == "new" {
            has_new = true;
            if value != RawBsonRef::String("$$ROOT") {
                return failure(
                    51273,
                    "'let' may not define a value for the reserved 'new' variable other than '$$ROOT'",
                );
            }
        }
        all.append(name, value);
    }
    if !has_new {
        all.append(cstr!("new"), "$$ROOT");
    }
    Ok(all)
}

/// Documents of one batch.
#[derive(Default)]
struct Batch {
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

impl DocumentSink for Batch {
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
    let (output, _name) = Output::begin(call, stage)?;
    let written = each_batch(call, request, &mut |call, documents| output.write(call, documents));
    let finished = written.and_then(|()| output.finish(call));
    if finished.is_err() {
        output.abandon(call)?;
    }
    finished
}

fn write_on_primary(call: &mut Invocation<'_>, request: &AggregateRequest<'_>, split: &Split<'_>) -> Result<()> {
    let mut primary = PrimaryOutput::begin(call, split.source)?;
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
            let written = write(call, batch.documents);
            call.pinned = pinned;
            written?;
        }
        if state == ExecState::Exhausted {
            return Ok(());
        }
    }
}

pub(super) fn first_error(errors: WriteErrors) -> Result<()> {
    match errors.each().next() {
        None => Ok(()),
        Some((_, mut error)) => {
            error.message = format!(
                "PlanExecutor error during aggregation :: caused by :: {}",
                error.message
            );
            Err(error)
        }
    }
}

pub(super) fn insert(call: &mut Invocation<'_>, ns: &Namespace, documents: &[RawDocumentBuf]) -> Result<()> {
    let documents: Vec<&RawDocument> = documents.iter().map(|document| &**document).collect();
    let batch = InsertBatch::of_results(&documents);
    let mut errors = WriteErrors::new();
    insert_documents(call, ns, &batch, &mut errors)?;
    first_error(errors)
}

/// The fields of `on` must find one document at most.
pub(super) fn check_on(call: &Invocation<'_>, merge: &Merge) -> Result<()> {
    let wanted: Vec<&str> = merge.on.iter().map(String::as_str).collect();
    if wanted == ["_id"] {
        return Ok(());
    }
    let is_fit = |spec: &IndexSpec| {
        let mut fields: Vec<&str> = spec.key.iter().flatten().map(|(name, _)| name.as_str()).collect();
        // Hashes and cells are the same for different values.
        let has_values = spec
            .key
            .iter()
            .flatten()
            .all(|(_, kind)| !matches!(kind, RawBsonRef::String(_)));
        let mut wanted = wanted.clone();
        fields.sort_unstable();
        wanted.sort_unstable();
        spec.unique && has_values && spec.partial_filter.is_none() && !spec.sparse && fields == wanted
    };
    let collection = call.server.storage.catalog().collection(&merge.into);
    match collection.is_some_and(|into| into.indexes().iter().any(|index| is_fit(index.parsed_spec()))) {
        true => Ok(()),
        false => failure(51183, "Cannot find index to verify that join fields will be unique"),
    }
}

/// The filter that finds the document to merge with.
fn filter_on(merge: &Merge, document: &RawDocument) -> Result<RawDocumentBuf> {
    let mut filter = RawDocumentBuf::new();
    for field in &merge.on {
        query::expression::FieldPath::parse(field)?;
        let mut value = RawBsonRef::Document(document);
        for name in field.split('.') {
            value = match value {
                RawBsonRef::Document(inner) => inner.get(name)?.unwrap_or(RawBsonRef::Null),
                RawBsonRef::Array(_) => {
                    return failure(
                        51185,
                        format!("$merge write error: the path of 'on' field {field} has an array"),
                    );
                }
                _ => RawBsonRef::Null,
            };
        }
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined | RawBsonRef::Array(_)) {
            return failure(
                51132,
                "$merge write error: 'on' field cannot be missing, null, undefined or an array",
            );
        }
        let mut equal = RawDocumentBuf::new();
        equal.append(cstr!("$eq"), value);
        if let Ok(name) = bson::raw::CString::try_from(field.clone()) {
            filter.append(name, equal);
        }
    }
    Ok(filter)
}

/// A document with an `_id`, first.
fn with_id(document: RawDocumentBuf) -> Result<RawDocumentBuf> {
    if document.get("_id")?.is_some() {
        return Ok(document);
    }
    let mut with = rawdoc! { "_id": ObjectId::new() };
    for (name, value) in document.iter().flatten() {
        with.append(name, value);
    }
    Ok(with)
}

pub(super) fn write_merged(call: &mut Invocation<'_>, merge: &Merge, document: RawDocumentBuf) -> Result<()> {
    let document = match merge.on.iter().any(|field| field == "_id") {
        true => with_id(document)?,
        false => document,
    };
    let filter = filter_on(merge, &document)?;
    if merge.matched == Matched::Fail {
        return insert(call, &merge.into, &[document]);
    }
    for _ in 0..MERGE_RETRIES {
        if update_matched(call, merge, &filter, &document)? {
            return Ok(());
        }
        match merge.not_matched {
            NotMatched::Discard => return Ok(()),
            NotMatched::Fail => {
                return Err(CommandError::new(
                    ErrorCode(13113),
                    "$merge could not find a matching document in the target collection for at least one document in the source collection",
                ));
            }
            NotMatched::Insert => match insert(call, &merge.into, std::slice::from_ref(&document)) {
                // Somebody else was faster, if it is there now.
                Err(error) if error.code == ErrorCode::DuplicateKey && is_there(call, merge, &filter)? => {}
                inserted => return inserted,
            },
        }
    }
    Err(CommandError::new(
        ErrorCode::WriteConflict,
        "$merge: a document was inserted and deleted by others again and again",
    ))
}

fn is_there(call: &mut Invocation<'_>, merge: &Merge, filter: &RawDocument) -> Result<bool> {
    Ok(!super::user_store::find_in(call, &merge.into, &Document::try_from(filter)?)?.is_empty())
}

/// Whether there was a document to merge with.
fn update_matched(
    call: &mut Invocation<'_>,
    merge: &Merge,
    filter: &RawDocument,
    document: &RawDocument,
) -> Result<bool> {
    let mut statement = Statement::new(None);
    statement.filter = filter;
    statement.keep_empty_timestamps = true;
    let (stages, constants);
    match &merge.matched {
        Matched::KeepExisting => {
            return is_there(call, merge, filter);
        }
        Matched::Replace => statement.change = RawBsonRef::Document(document),
        Matched::Merge => {
            constants = rawdoc! { "new": document.to_owned() };
            let mut merged = RawArrayBuf::new();
            merged.push(rawdoc! { "$replaceWith": { "$mergeObjects": ["$$ROOT", "$$new"] } });
            stages = merged;
            (statement.change, statement.constants) = (RawBsonRef::Array(&stages), Some(&*constants));
        }
        Matched::Pipeline(given) => {
            constants = evaluated(call, &merge.variables, document)?;
            (statement.change, statement.constants) = (RawBsonRef::Array(given), Some(&*constants));
        }
        Matched::Fail => return Ok(false),
    }
    let done = update::run(call, &merge.into, &statement, Images::None).map_err(|mut error| {
        error.message = format!(
            "PlanExecutor error during aggregation :: caused by :: {}",
            error.message
        );
        error
    })?;
    Ok(done.matched > 0)
}

/// `let` on a document.
fn evaluated(call: &Invocation<'_>, variables: &RawDocument, document: &RawDocument) -> Result<RawDocumentBuf> {
    let expressions = call.expressions();
    let (root, evaluation) = (SharedDocument::copy_of(document), call.evaluation());
    let mut values = Vec::new();
    let mut writer = DocumentWriter::new(&mut values);
    for field in variables {
        let (name, value) = field?;
        let value = Expression::parse(value, &expressions)?;
        writer.append(name.as_str(), &value.evaluate_on(&root, &evaluation)?);
    }
    writer.finish();
    Ok(RawDocumentBuf::from_bytes(values)?)
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
