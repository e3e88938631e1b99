//! `$merge`: how it is written, and what it does with a batch of documents.
//!
//! Documents are merged one by one, in no order that anybody may count on: one that cannot be does not keep the others
//! of its batch from being so. What was written when the stage fails stays.

use super::insert::InsertBatch;
use super::stage_destination::{failure, insert_batch, named, target, unknown_field};
use super::update::{self, Images, Statement};
use super::write_targets::WriteTargets;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use bson::oid::ObjectId;
use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;
use collation::Collation;
use query::expression::{Expression, OuterVariable, check_user_variable};
use query::update::Update;
use query::value::{DocumentWriter, SharedDocument, Value};
use std::sync::Arc;
use storage::{IndexSpec, Namespace};
use wire::ErrorCode;

/// How often a document that others insert and delete meanwhile is tried.
const MERGE_RETRIES: usize = 16;
/// MergeStageNoMatchingDocument
const NO_MATCH: ErrorCode = ErrorCode::MergeStageNoMatchingDocument;

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
    /// Where it writes.
    pub into: Namespace,
    on: Vec<String>,
    /// Else it is `_id`, which needs no index to be looked for.
    is_on_given: bool,
    matched: Matched,
    not_matched: NotMatched,
    /// Variables of the pipeline, evaluated on each document.
    variables: RawDocumentBuf,
    /// That of the pipeline.
    collation: Option<Arc<Collation>>,
    /// The same where documents are looked for by an index for `on`: that of the collection may be another one.
    of_index: Option<RawDocumentBuf>,
    /// The values of the command's variables, which the stage's own go before.
    constants: RawDocumentBuf,
}

/// What a stage that writes has of the command that it is a part of.
#[derive(Clone, Debug)]
pub struct Inherited {
    /// The pipeline's.
    pub collation: Option<Arc<Collation>>,
    /// The values of the variables of `let`.
    pub constants: RawDocumentBuf,
}

impl Inherited {
    /// That of an `aggregate` with this `let`.
    pub fn of(
        call: &Invocation<'_>,
        collation: Option<Arc<Collation>>,
        variables: Option<&RawDocument>,
    ) -> Result<Self> {
        let mut values = Vec::new();
        let mut writer = DocumentWriter::new(&mut values);
        if let Some(variables) = variables {
            let (expressions, evaluation) = (call.expressions().with_let(variables)?, call.evaluation());
            for field in variables {
                let name = field?.0.as_str();
                let value = Expression::parse(RawBsonRef::String(&format!("$${name}")), &expressions)?;
                writer.append(name, &value.evaluate_on(&SharedDocument::empty(), &evaluation)?);
            }
        }
        writer.finish();
        Ok(Self {
            collation,
            constants: RawDocumentBuf::from_bytes(values)?,
        })
    }
}

impl Merge {
    /// The stage in its command.
    pub fn with(&self, inherited: Inherited) -> Self {
        let Inherited { collation, constants } = inherited;
        let simple = || rawdoc! { "locale": "simple" };
        let document = || {
            collation
                .as_deref()
                .map_or_else(simple, |collation| collation.document().to_owned())
        };
        Self {
            of_index: self.is_on_given.then(document),
            collation,
            constants,
            ..self.clone()
        }
    }
}

/// Parses the argument of `$merge`.
pub fn parse_merge<'d>(call: &Invocation<'d>, argument: RawBsonRef<'d>) -> Result<Merge> {
    let merge_target = |db: &str, coll: &str| target(db, coll, "$merge", 31319, 31319);
    let mut merge = Merge {
        into: Namespace::new(call.database, "x")?,
        on: vec!["_id".to_owned()],
        is_on_given: false,
        matched: Matched::Merge,
        not_matched: NotMatched::Insert,
        variables: rawdoc! { "new": "$$ROOT" },
        collation: None,
        of_index: None,
        constants: RawDocumentBuf::new(),
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
            "on" => (merge.on, merge.is_on_given) = (parse_on(value)?, true),
            "let" => match value {
                RawBsonRef::Document(document) => variables = Some(document),
                RawBsonRef::Null | RawBsonRef::Undefined => {}
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
                    RawBsonRef::Null | RawBsonRef::Undefined => NotMatched::Insert,
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
        (Matched::Fail | Matched::KeepExisting, not_matched) => not_matched == NotMatched::Insert,
        _ => true,
    };
    if !is_possible {
        return failure(
            51181,
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
    let Some(named) = named("$merge.into", value)? else {
        let found = crate::arguments::type_name(value);
        let message = format!("$merge 'into' field  must be either a string or an object, but found {found}");
        return failure(51178, message);
    };
    if let Some(other) = named.other.or(named.timeseries.map(|_| "timeseries")) {
        return unknown_field(&format!("$merge.into.{other}"));
    }
    match named.coll {
        None => failure(
            51178,
            "$merge 'into' field must specify a 'coll' that is not empty, null or undefined",
        ),
        Some(coll) => Ok((named.db.unwrap_or(call.database), coll)),
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
        check_user_variable(name.as_str())?;
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

impl Merge {
    /// Whether the update itself inserts what has no match.
    fn upserts(&self) -> bool {
        matches!(self.matched, Matched::Merge | Matched::KeepExisting) && self.not_matched == NotMatched::Insert
    }
}

/// The fields of `on` must find one document at most, by the pipeline's collation.
pub(super) fn check_on(call: &Invocation<'_>, merge: &Merge) -> Result<()> {
    let mut wanted: Vec<&str> = merge.on.iter().map(String::as_str).collect();
    wanted.sort_unstable();
    let is_fit = |spec: &IndexSpec| {
        let mut fields: Vec<&str> = spec.key.iter().flatten().map(|(name, _)| name.as_str()).collect();
        // Hashes and cells are the same for different values.
        let has_values = spec
            .key
            .iter()
            .flatten()
            .all(|(_, kind)| !matches!(kind, RawBsonRef::String(_)));
        fields.sort_unstable();
        let is_unique = spec.unique || fields == ["_id"];
        // Values that a sparse index lacks are refused.
        is_unique
            && has_values
            && spec.partial_filter.is_none()
            && spec.collation == merge.collation
            && fields == wanted
    };
    let is_there = match call.server.storage.catalog().collection(&merge.into) {
        _ if !merge.is_on_given => true,
        None => wanted == ["_id"],
        Some(into) => into.indexes().iter().any(|index| is_fit(index.parsed_spec())),
    };
    match is_there {
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
        // It does not lead into arrays.
        for name in field.split('.') {
            value = match value {
                RawBsonRef::Document(inner) => inner.get(name)?.unwrap_or(RawBsonRef::Null),
                _ => RawBsonRef::Null,
            };
        }
        if matches!(value, RawBsonRef::Array(_)) {
            return failure(51185, format!("$merge write error: 'on' field '{field}' is an array"));
        }
        if matches!(value, RawBsonRef::Null | RawBsonRef::Undefined) {
            return failure(
                51132,
                format!("$merge write error: 'on' field '{field}' cannot be missing, null or undefined"),
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

/// A document of a batch.
struct Merging {
    document: RawDocumentBuf,
    filter: RawDocumentBuf,
    /// The stage's own variables, of this document. Those of the command, which all documents share, are added when it
    /// is written: they may be as large as a message.
    variables: RawDocumentBuf,
}

/// The variables that the stage evaluates on each document, parsed.
type Variables<'m> = Vec<(&'m str, Expression)>;

/// The pipeline of `whenMatched`, parsed once for all documents of a batch.
struct ParsedPipeline<'m> {
    update: Update,
    /// The stage's own variables, in their order.
    variables: Vec<(&'m str, OuterVariable)>,
}

impl ParsedPipeline<'_> {
    /// Gives the variables the values of a document. False where one of them has none there: for that document the
    /// pipeline names a variable that there is not.
    fn set_variables(&self, values: &RawDocument) -> Result<bool> {
        let mut values = values.into_iter();
        for (name, variable) in &self.variables {
            match values.next().transpose()? {
                Some((of, value)) if of.as_str() == *name => variable.set(Value::from_raw(value).into_owned()),
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Merges a batch. A document without what `on` wants has nothing of it written; else a document that cannot be
/// merged does not keep the others from being so, and the first error is told when they are.
pub(super) fn write_merged(call: &mut Invocation<'_>, merge: &Merge, documents: Vec<RawDocumentBuf>) -> Result<()> {
    let (variables, pipeline) = match &merge.matched {
        Matched::Pipeline(stages) => (parsed_variables(call, merge)?, parsed_pipeline(call, merge, stages)),
        _ => (Vec::new(), None),
    };
    let batch = documents
        .into_iter()
        .map(|document| prepare(call, merge, &variables, document));
    let batch = batch.collect::<Result<Vec<_>>>()?;
    let mut failed: Option<CommandError> = None;
    for merging in &batch {
        match merge_document(call, merge, pipeline.as_ref(), merging) {
            Ok(()) => {}
            Err(error) if call.is_fatal(&error) => return Err(error),
            // That there is none to merge with comes behind what is wrong with a document.
            Err(error) if failed.as_ref().is_none_or(|first| first.code == NO_MATCH) => {
                failed = match failed {
                    Some(first) if error.code == NO_MATCH => Some(first),
                    _ => Some(error),
                };
            }
            Err(_) => {}
        }
    }
    failed.map_or(Ok(()), Err)
}

fn prepare(
    call: &Invocation<'_>,
    merge: &Merge,
    variables: &Variables<'_>,
    document: RawDocumentBuf,
) -> Result<Merging> {
    let document = match merge.on.iter().any(|field| field == "_id") {
        true => with_id(document)?,
        false => document,
    };
    Ok(Merging {
        filter: filter_on(merge, &document)?,
        variables: evaluated(call, variables, &document)?,
        document,
    })
}

fn merge_document(
    call: &mut Invocation<'_>,
    merge: &Merge,
    pipeline: Option<&ParsedPipeline<'_>>,
    merging: &Merging,
) -> Result<()> {
    if merge.matched == Matched::Fail {
        return insert(call, merge, &merging.document);
    }
    for _ in 0..MERGE_RETRIES {
        match update_matched(call, merge, pipeline, merging) {
            Ok(false) => {}
            // Somebody else was faster, if it is there now.
            Err(error)
                if merge.upserts()
                    && error.code == ErrorCode::DuplicateKey
                    && is_there(call, merge, &merging.filter)? =>
            {
                continue;
            }
            done => return done.map(|_| ()),
        }
        match merge.not_matched {
            NotMatched::Discard => return Ok(()),
            NotMatched::Fail => {
                return Err(CommandError::new(
                    NO_MATCH,
                    "$merge could not find a matching document in the target collection for at least one document in the source collection",
                ));
            }
            NotMatched::Insert => match insert(call, merge, &merging.document) {
                // Somebody else was faster, if it is there now.
                Err(error) if error.code == ErrorCode::DuplicateKey && is_there(call, merge, &merging.filter)? => {}
                inserted => return inserted,
            },
        }
    }
    Err(CommandError::new(
        ErrorCode::WriteConflict,
        "$merge: a document was inserted and deleted by others again and again",
    ))
}

/// Inserts a document, one of many.
fn insert(call: &mut Invocation<'_>, merge: &Merge, document: &RawDocument) -> Result<()> {
    let documents = [document];
    let batch = InsertBatch {
        is_one_of_many: true,
        ..InsertBatch::of_results(&documents)
    };
    insert_batch(call, &merge.into, &batch)
}

/// Whether the document that was in the way is there for readers.
fn is_there(call: &mut Invocation<'_>, merge: &Merge, filter: &RawDocument) -> Result<bool> {
    call.wait_to_look_again()?;
    let mut statement = Statement::new(None);
    statement.filter = filter;
    statement.collation = merge.of_index.as_deref();
    match WriteTargets::find(call, &merge.into, &statement)? {
        Some(mut targets) => Ok(targets.next(call)?.is_some()),
        None => Ok(false),
    }
}

/// Whether there was a document to merge with, or one was inserted by an upsert.
fn update_matched(
    call: &mut Invocation<'_>,
    merge: &Merge,
    pipeline: Option<&ParsedPipeline<'_>>,
    merging: &Merging,
) -> Result<bool> {
    let mut statement = Statement::new(None);
    statement.filter = &merging.filter;
    statement.is_one_of_many = true;
    statement.keep_empty_timestamps = true;
    statement.collation = merge.of_index.as_deref();
    let (fields, constants);
    match &merge.matched {
        // The names of fields are paths here.
        Matched::KeepExisting | Matched::Merge => {
            fields = match merge.matched {
                Matched::Merge => rawdoc! { "$set": merging.document.clone() },
                _ => rawdoc! { "$setOnInsert": merging.document.clone() },
            };
            statement.change = RawBsonRef::Document(&fields);
            statement.upsert = merge.upserts();
        }
        Matched::Replace => statement.change = RawBsonRef::Document(&merging.document),
        Matched::Pipeline(given) => {
            statement.change = RawBsonRef::Array(given);
            match pipeline {
                Some(pipeline) if pipeline.set_variables(&merging.variables)? => {
                    statement.parsed = Some(&pipeline.update);
                }
                _ => {
                    constants = with_inherited(merge, &merging.variables)?;
                    statement.constants = Some(&constants);
                }
            }
        }
        Matched::Fail => return Ok(false),
    }
    call.server.metrics.operations.update.add(1);
    let done = update::run(call, &merge.into, &statement, Images::None).map_err(|mut error| {
        error.message = format!(
            "PlanExecutor error during aggregation :: caused by :: {}",
            error.message
        );
        error
    })?;
    Ok(done.matched > 0 || done.upserted.is_some())
}

/// The variables of `let`, which may read those of the command.
fn parsed_variables<'m>(call: &Invocation<'_>, merge: &'m Merge) -> Result<Variables<'m>> {
    let expressions = call.expressions().with_constants(&merge.constants)?;
    let parsed = merge.variables.iter().map(|field| {
        let (name, value) = field?;
        Ok((name.as_str(), Expression::parse(value, &expressions)?))
    });
    parsed.collect()
}

/// The pipeline of `whenMatched`. `None` where it cannot be parsed before its variables have values: then it is parsed
/// for each document, for which that may fail.
fn parsed_pipeline<'m>(call: &Invocation<'_>, merge: &'m Merge, stages: &RawArray) -> Option<ParsedPipeline<'m>> {
    let names = merge.variables.iter().flatten().map(|(name, _)| name.as_str());
    let variables: Vec<_> = names.map(|name| (name, OuterVariable::default())).collect();
    let outer = variables
        .iter()
        .map(|(name, variable)| ((*name).to_owned(), variable.clone()));
    let mut statement = Statement::new(None);
    statement.change = RawBsonRef::Array(stages);
    let expressions = call.expressions_on(&merge.into, None, merge.of_index.as_deref()).ok()?;
    let expressions = expressions.with_constants(&merge.constants).ok()?.with_outer(outer);
    let update = update::parse_change(&merge.into, &statement, &expressions).ok()?;
    Some(ParsedPipeline { update, variables })
}

/// The values of `let` on a document.
fn evaluated(call: &Invocation<'_>, variables: &Variables<'_>, document: &RawDocument) -> Result<RawDocumentBuf> {
    if variables.is_empty() {
        return Ok(RawDocumentBuf::new());
    }
    let (root, evaluation) = (SharedDocument::copy_of(document), call.evaluation());
    let mut values = Vec::new();
    let mut writer = DocumentWriter::new(&mut values);
    for (name, value) in variables {
        writer.append(name, &value.evaluate_on(&root, &evaluation)?);
    }
    writer.finish();
    Ok(RawDocumentBuf::from_bytes(values)?)
}

/// The variables of the pipeline where it is parsed for one document: those of the command, and the stage's own, which
/// go before them.
fn with_inherited(merge: &Merge, own: &RawDocument) -> Result<RawDocumentBuf> {
    let mut all = RawDocumentBuf::new();
    for field in &merge.constants {
        let (name, value) = field?;
        if merge.variables.get(name.as_str())?.is_none() {
            all.append(name, value);
        }
    }
    for field in own {
        let (name, value) = field?;
        all.append(name, value);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use query::EvaluationContext;
    use query::expression::ExpressionContext;
    use query::matcher::MatchDetails;
    use query::update::UpdateContext;
    use vfs::SeededRandom;

    /// It was parsed for each document.
    #[test]
    fn a_pipeline_that_is_parsed_once_has_the_values_that_are_set() {
        let variables = ["v", "new"].map(|name| (name, OuterVariable::default()));
        let outer = variables.clone().map(|(name, variable)| (name.to_owned(), variable));
        let expressions = ExpressionContext::new(0, Arc::new(SeededRandom::new(1))).with_outer(outer);
        let stages = rawdoc! { "u": [{ "$set": { "a": "$$new.a", "v": { "$add": ["$$v", 1] } } }] };
        let stages = stages.get("u").expect("valid").expect("there");
        let pipeline = ParsedPipeline {
            update: Update::parse(stages, None, &expressions).expect("a pipeline"),
            variables: variables.into(),
        };
        let context = UpdateContext {
            now_ms: 0,
            timestamp: bson::Timestamp { time: 1, increment: 1 },
            keep_empty_timestamps: true,
            details: MatchDetails::default(),
        };
        let old = rawdoc! { "_id": 1 };
        for v in [5, 7] {
            let values = rawdoc! { "v": v, "new": { "a": v * 2 } };
            assert!(pipeline.set_variables(&values).expect("valid"));
            let new = pipeline
                .update
                .apply(&old, &context, &EvaluationContext::uninterrupted())
                .expect("applied")
                .expect("changed");
            let wanted = rawdoc! { "_id": 1, "a": v * 2, "v": v + 1 };
            assert_eq!(RawDocumentBuf::from_bytes(new).expect("valid"), wanted);
        }
        for lacking in [rawdoc! { "new": { "a": 1 } }, rawdoc! { "v": 1 }, rawdoc! {}] {
            assert!(!pipeline.set_variables(&lacking).expect("valid"), "{lacking:?}");
        }
    }
}
