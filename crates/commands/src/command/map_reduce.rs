//! `mapReduce`: a pipeline whose stages run the client's functions.
//!
//! `map` gives the documents `{k, v}` that it emits, `reduce` is an accumulator over those of a key, `finalize` a
//! projection; where results go is `$out` or `$merge`. Each function is what `$function` would be given.

use super::find::optional;
use super::insert::asks_for_bypass;
use super::write_stages;
use crate::arguments::{Arguments, missing_field, type_name};
use crate::authorization::target;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, ActionSet, Target};
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{RawBson, rawdoc};
use query::plan::{AggregateRequest, Verbosity};
use query::{BlockingLimits, DocumentSink, ExecState, SinkState};
use std::sync::Arc;
use storage::Namespace;
use wire::ErrorCode;

/// `mapReduce`.
pub const MAP_REDUCE: Command = Command::new(
    "mapReduce",
    "Runs functions over the documents of a collection.",
    OperationKind::Command,
    Access::Fields(may_run),
    map_reduce,
)
.ends_with_client_if(only_reads)
.takes_write_concern()
.aliases(&["mapreduce"])
.secondary_ok();

/// Bytes of results that fit into a reply.
const INLINE_BYTES_MAX: usize = 16 << 20;

/// What becomes of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Inline,
    Replace,
    Merge,
    Reduce,
}

/// `out`.
#[derive(Clone, Copy)]
struct Output<'a> {
    mode: Mode,
    db: Option<&'a str>,
    coll: &'a str,
}

/// The command's fields.
#[derive(Default)]
struct Request<'a> {
    map: Option<RawBsonRef<'a>>,
    reduce: Option<RawBsonRef<'a>>,
    finalize: Option<RawBsonRef<'a>>,
    query: Option<&'a RawDocument>,
    sort: Option<&'a RawDocument>,
    limit: Option<i64>,
    scope: Option<&'a RawDocument>,
    output: Option<Output<'a>>,
    collation: Option<&'a RawDocument>,
}

/// What the fields need: to read the collection, and to write what `out` names. Each occurrence of a field counts.
fn may_run(call: &Invocation<'_>) -> Result<bool> {
    let bypasses = asks_for_bypass(call.body)?;
    let mut outputs = Vec::new();
    for element in call.body {
        let (name, value) = element?;
        // What cannot be read fails before anything is written.
        if name.as_str() == "out" {
            outputs.extend(parse_output(value));
        }
    }
    let may_write = |output: &Output<'_>| {
        let writes: &[Action] = match output.mode {
            Mode::Inline => return true,
            Mode::Replace => &[Action::Insert, Action::Remove],
            Mode::Merge => &[Action::Insert, Action::Update],
            Mode::Reduce => &[Action::Find, Action::Insert, Action::Update],
        };
        let target = Target::Collection(output.db.unwrap_or(call.database), output.coll);
        call.rights.allow(target, ActionSet::of(writes))
            && (!bypasses
                || call
                    .rights
                    .allow(target, ActionSet::of(&[Action::BypassDocumentValidation])))
    };
    let may_read = call.rights.allow(target(call)?, ActionSet::of(&[Action::Find]));
    Ok(may_read && outputs.iter().all(may_write))
}

/// Whether all results go to the client.
fn only_reads(body: &RawDocument) -> bool {
    body.get("out")
        .is_ok_and(|out| out.is_some_and(|out| parse_output(out).is_ok_and(|output| output.mode == Mode::Inline)))
}

fn code<'a>(name: &str, value: RawBsonRef<'a>) -> Result<RawBsonRef<'a>> {
    match value {
        RawBsonRef::String(_) | RawBsonRef::JavaScriptCode(_) => Ok(value),
        _ => Err(CommandError::bad_value(format!(
            "'{name}' must be of string or code type"
        ))),
    }
}

fn parse_output(value: RawBsonRef<'_>) -> Result<Output<'_>> {
    let fields = match value {
        RawBsonRef::String(coll) => {
            return Ok(Output {
                mode: Mode::Replace,
                db: None,
                coll,
            });
        }
        RawBsonRef::Document(fields) => fields,
        _ => {
            return Err(CommandError::new(
                ErrorCode::FailedToParse,
                "'out' must be either a string or an object",
            ));
        }
    };
    let mut output = None;
    let mut db = None;
    for element in fields {
        let (name, value) = element?;
        let mode = match (name.as_str(), value) {
            ("inline", value) if crate::arguments::number_as_i64(value) == Some(1) => Mode::Inline,
            ("inline", _) => return Err(CommandError::bad_value("'inline' only allows the value 1")),
            ("replace", RawBsonRef::String(_)) => Mode::Replace,
            ("merge", RawBsonRef::String(_)) => Mode::Merge,
            ("reduce", RawBsonRef::String(_)) => Mode::Reduce,
            ("db", RawBsonRef::String(name)) => {
                db = Some(name);
                continue;
            }
            ("nonAtomic", RawBsonRef::Boolean(true)) => continue,
            ("nonAtomic", RawBsonRef::Boolean(false)) => {
                return Err(CommandError::new(
                    ErrorCode(15895),
                    "The nonAtomic:false option is no longer allowed in the mapReduce command. Please omit or specify \
                     nonAtomic:true",
                ));
            }
            ("sharded", RawBsonRef::Boolean(false)) => continue,
            ("sharded", RawBsonRef::Boolean(true)) => {
                return Err(CommandError::new(
                    ErrorCode::InvalidOptions,
                    "Cannot use mapReduce to create a new sharded collection. Please create and shard the target \
                     collection before proceeding.",
                ));
            }
            (name, value) => {
                return Err(CommandError::new(
                    ErrorCode::FailedToParse,
                    format!("'{name}' of type {} is not allowed in 'out'", type_name(value)),
                ));
            }
        };
        let coll = value.as_str().unwrap_or_default();
        if output.replace((mode, coll)).is_some() {
            return Err(CommandError::new(
                ErrorCode::FailedToParse,
                "'out' must have exactly one of 'inline', 'replace', 'merge' and 'reduce'",
            ));
        }
    }
    let Some((mode, coll)) = output else {
        return Err(CommandError::new(
            ErrorCode(13522),
            "please specify one of [replace|merge|reduce|inline] in 'out' object",
        ));
    };
    Ok(Output { mode, db, coll })
}

fn parse<'a>(call: &Invocation<'a>) -> Result<Request<'a>> {
    let arguments: Arguments<'_> = call.arguments();
    let mut request = Request::default();
    call.for_each_field(|name, value| {
        match name {
            "map" => request.map = Some(code(name, value)?),
            "reduce" => request.reduce = Some(code(name, value)?),
            "finalize" if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) => {}
            "finalize" => request.finalize = Some(code(name, value)?),
            "query" => request.query = optional(arguments, name, value)?,
            "sort" => request.sort = optional(arguments, name, value)?,
            "collation" => request.collation = optional(arguments, name, value)?,
            "scope" => request.scope = optional(arguments, name, value)?,
            "limit" => request.limit = Some(arguments.integer(name, value)?),
            "out" => request.output = Some(parse_output(value)?),
            "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
            // They have had no effect since functions run as stages.
            "jsMode" | "verbose" => drop(arguments.boolean(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(request)
}

/// The stages that give the results, without the one that writes them.
fn stages(request: &Request<'_>, map: RawBson, reduce: RawBson) -> RawArrayBuf {
    let mut stages = RawArrayBuf::new();
    if let Some(query) = request.query {
        stages.push(rawdoc! { "$match": query.to_owned() });
    }
    if let Some(sort) = request.sort {
        stages.push(rawdoc! { "$sort": sort.to_owned() });
    }
    if let Some(limit) = request.limit.filter(|limit| *limit != 0) {
        stages.push(rawdoc! { "$limit": limit });
    }
    let emit = rawdoc! { "eval": map, "this": "$$ROOT" };
    stages.push(rawdoc! { "$project": { "_id": 0, "emits": { "$_internalJsEmit": emit } } });
    stages.push(rawdoc! { "$unwind": "$emits" });
    let reduced = rawdoc! { "data": "$emits", "eval": reduce };
    stages.push(rawdoc! { "$group": { "_id": "$emits.k", "value": { "$_internalJsReduce": reduced } } });
    if let Some(finalize) = request.finalize {
        stages.push(finalized(finalize));
    }
    stages
}

fn finalized(finalize: RawBsonRef<'_>) -> RawDocumentBuf {
    let function = rawdoc! { "body": RawBson::from(finalize), "args": ["$_id", "$value"], "lang": "js" };
    rawdoc! { "$project": { "value": { "$function": function } } }
}

/// The stage that writes the results.
fn writing_stage(request: &Request<'_>, output: Output<'_>, db: &str, reduce: RawBson) -> RawDocumentBuf {
    let into = rawdoc! { "db": db, "coll": output.coll };
    if output.mode == Mode::Replace {
        return rawdoc! { "$out": into };
    }
    let mut merge = rawdoc! { "into": into, "on": "_id", "whenNotMatched": "insert" };
    if output.mode == Mode::Merge {
        merge.append(bson::raw::cstr!("whenMatched"), "replace");
        return rawdoc! { "$merge": merge };
    }
    let function = rawdoc! {
        "body": reduce,
        "args": ["$_id", ["$value", "$$new.value"]],
        "lang": "js",
    };
    let mut merged = RawArrayBuf::new();
    merged.push(rawdoc! { "$project": { "value": { "$function": function } } });
    if let Some(finalize) = request.finalize {
        merged.push(finalized(finalize));
    }
    merge.append(bson::raw::cstr!("whenMatched"), merged);
    rawdoc! { "$merge": merge }
}

/// A command whose fields have been checked.
struct Prepared<'a> {
    namespace: Namespace,
    request: Request<'a>,
    reduce: RawBson,
    output: Output<'a>,
    pipeline: RawArrayBuf,
}

impl Prepared<'_> {
    /// What gives the results.
    fn aggregate<'s>(&'s self, database: &'s str, blocking: BlockingLimits) -> AggregateRequest<'s> {
        let mut aggregate = AggregateRequest::new(self.namespace.clone(), database, &self.pipeline);
        aggregate.collation = self.request.collation;
        aggregate.blocking = blocking;
        aggregate.script_globals = self.request.scope.map(|scope| Arc::new(scope.to_owned()));
        aggregate
    }
}

fn prepare<'a>(call: &mut Invocation<'a>) -> Result<Prepared<'a>> {
    let namespace = call.namespace()?;
    let request = parse(call)?;
    let needed = |value: Option<RawBson>, field: &str| value.ok_or_else(|| missing_field("mapReduce", field));
    let map = needed(request.map.map(RawBson::from), "map")?;
    let reduce = needed(request.reduce.map(RawBson::from), "reduce")?;
    let output = request.output.ok_or_else(|| missing_field("mapReduce", "out"))?;
    if request.limit.is_some_and(|limit| limit < 0) {
        return Err(CommandError::new(
            ErrorCode(15958),
            "The limit specified to mapReduce must be positive",
        ));
    }
    if call.server.storage.catalog().view(&namespace).is_some() {
        return Err(CommandError::new(
            ErrorCode::CommandNotSupportedOnView,
            format!("Namespace {namespace} is a view, not a collection"),
        ));
    }
    let pipeline = stages(&request, map, reduce.clone());
    Ok(Prepared {
        namespace,
        request,
        reduce,
        output,
        pipeline,
    })
}

/// `explain` shows the pipeline; it runs none that would write.
pub fn explain(call: &mut Invocation<'_>, reply: &mut Reply<'_>, verbosity: Verbosity) -> Result<()> {
    let prepared = prepare(call)?;
    if prepared.output.mode != Mode::Inline && verbosity != Verbosity::QueryPlanner {
        return Err(CommandError::new(
            ErrorCode(51029),
            "explain with executionStats or more is not allowed for mapReduce with a collection in 'out': it would write",
        ));
    }
    let aggregate = prepared.aggregate(call.database, call.server.blocking_limits(None));
    super::explain::explain_aggregate(call, reply, &aggregate, verbosity)
}

fn map_reduce(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let prepared = prepare(call)?;
    let output = prepared.output;
    let aggregate = prepared.aggregate(call.database, call.server.blocking_limits(None));
    if output.mode == Mode::Inline {
        return reply_inline(call, reply, &aggregate);
    }
    let db = output.db.unwrap_or(call.database);
    Namespace::new(db, output.coll).map_err(|_| {
        let text = format!("Invalid output namespace {db}.{} for MapReduce", output.coll);
        CommandError::new(ErrorCode::InvalidNamespace, text)
    })?;
    let mut whole = RawArrayBuf::new();
    whole.push(writing_stage(&prepared.request, output, db, prepared.reduce.clone()));
    if let Some(split) = write_stages::split(call, &whole)? {
        write_stages::run(call, &aggregate, &split)?;
    }
    match output.db {
        None => reply.string("result", output.coll),
        Some(db) => {
            reply.open_document("result");
            reply.string("db", db);
            reply.string("collection", output.coll);
            reply.close();
        }
    }
    Ok(())
}

/// Results as they come, as far as a reply holds them.
#[derive(Default)]
struct Inline {
    documents: Vec<RawDocumentBuf>,
    bytes: usize,
}

impl DocumentSink for Inline {
    fn push(&mut self, document: &RawDocument) -> SinkState {
        self.bytes += document.as_bytes().len();
        if self.bytes > INLINE_BYTES_MAX {
            return SinkState::Refused;
        }
        self.documents.push(document.to_owned());
        SinkState::Continue
    }
}

fn reply_inline(call: &mut Invocation<'_>, reply: &mut Reply<'_>, request: &AggregateRequest<'_>) -> Result<()> {
    let mut executor = query::aggregate(&call.context(), request)?;
    call.set_plan_summary(executor.plan_summary());
    let mut results = Inline::default();
    while executor.next_documents(&call.context(), &mut results)? != ExecState::Exhausted {
        if results.bytes > INLINE_BYTES_MAX {
            return Err(CommandError::new(
                ErrorCode::BSONObjectTooLarge,
                format!("the results of mapReduce exceed {INLINE_BYTES_MAX} bytes; use 'out' with a collection"),
            ));
        }
    }
    reply.open_array("results");
    for (index, document) in results.documents.iter().enumerate() {
        reply.element(index, document);
    }
    reply.close();
    Ok(())
}
