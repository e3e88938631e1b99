//! `$setWindowFields`: fields computed over a window of documents around each one.
//!
//! The stage becomes a `$sort` by partition and sort key, which an index may answer, and this stage behind it, which
//! sees one partition after the other. Where the partition is computed, it sorts by itself. Each field of `output`
//! runs over the partition on its own ([`Runner`]) and asks for documents by number; what nobody will ask for again is
//! forgotten, so a window of a few documents holds a few documents, however long its partition is.

mod calculus;
mod frame;
mod function;
#[cfg(test)]
mod output_tests;
mod partition;
mod position;
mod removable_sum;
mod sliding;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};
use keys::KeySet;
use storage::Spilling;
use wire::ErrorCode;

use super::specification::{StageSpec, stage_document};
use super::{PlannedStage, Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::expression::{Dependencies, Expression, ExpressionContext, FieldPath};
use crate::matcher::{MatchExpr, Test, ValueTest};
use crate::path::array_index;
use crate::project::Projection;
use crate::value::scan::{Elements, Malformed};
use crate::value::{DocumentWriter, SharedDocument, SortPattern, Value};

use function::{FunctionParser, Output};
use partition::{PartitionSort, Partitions, check_bytes};

/// One field of `output`, running over one partition.
trait Runner: Send {
    /// The value for document number `current`: called with each number once, rising.
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError>;

    /// The first document that it may ask for when `next` is the next one.
    fn needed_from(&self, next: usize) -> usize;

    /// Bytes held, about.
    fn bytes(&self) -> usize;
}

/// A parsed `sortBy`; it may be empty.
#[derive(Debug, Default)]
struct SortBy {
    pattern: Option<SortPattern>,
    /// Paths, and whether they are descending.
    fields: Vec<(String, bool)>,
}

impl SortBy {
    fn parse(raw: &RawDocument, context: &ExpressionContext) -> Result<Self, QueryError> {
        if raw.is_empty() {
            return Ok(Self::default());
        }
        let pattern = SortPattern::parse(raw, &context.comparer)?;
        let fields = pattern
            .fields()
            .map(|(path, order)| (path.to_owned(), order == keys::FieldOrder::Descending))
            .collect();
        Ok(Self {
            pattern: Some(pattern),
            fields,
        })
    }

    /// The path, when there is one only.
    fn single(&self) -> Option<&str> {
        match &self.fields[..] {
            [(path, _)] => Some(path),
            _ => None,
        }
    }

    fn is_descending(&self) -> bool {
        self.fields.iter().any(|(_, descending)| *descending)
    }

    /// The value sorted by, when that is one only.
    fn expression(&self) -> Option<Expression> {
        self.single().and_then(|path| Expression::field(path).ok())
    }

    fn append_key(
        &self,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
        keys: &mut KeySet,
        key: &mut Vec<u8>,
    ) -> Result<(), QueryError> {
        match &self.pattern {
            Some(pattern) => pattern.append_key(document, context, keys, key),
            None => Ok(()),
        }
    }
}

fn parse_failure<T>(message: impl Into<String>) -> Result<T, QueryError> {
    failure(ErrorCode::FailedToParse.0, message)
}

/// The stage behind the sort.
#[derive(Debug)]
struct WindowSpec {
    written: RawDocumentBuf,
    /// What partitions by, when anything does.
    partition: Option<Arc<Expression>>,
    /// It is not one of the documents' fields: the stage sorts.
    is_computed: bool,
    sort: Option<Arc<SortBy>>,
    outputs: Vec<Output>,
    context: ExpressionContext,
}

/// The name of the stage behind the sort, as `explain` shows it.
const INTERNAL_NAME: &str = "$_internalSetWindowFields";

/// Parses `$setWindowFields`; appends the stages that it becomes.
pub(super) fn parse(
    stages: &mut Vec<StageSpec>,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return parse_failure(format!(
            "the $setWindowFields stage specification must be an object, found {found}"
        ));
    };
    let (mut partition, mut sort, mut output) = (None, None, None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match (name.as_str(), raw) {
            ("partitionBy", raw) => partition = Some(raw),
            ("sortBy", RawBsonRef::Null) => {}
            ("sortBy", RawBsonRef::Document(pattern)) => sort = Some(pattern),
            ("output", RawBsonRef::Document(fields)) => output = Some(fields),
            (name @ ("sortBy" | "output"), other) => {
                let found = Value::from_raw(other).type_name();
                return failure(
                    ErrorCode::TypeMismatch.0,
                    format!("BSON field '$setWindowFields.{name}' is the wrong type '{found}', expected type 'object'"),
                );
            }
            (other, _) => {
                return failure(
                    40415,
                    format!("BSON field '$setWindowFields.{other}' is an unknown field."),
                );
            }
        }
    }
    let Some(output) = output else {
        return failure(
            40414,
            "BSON field '$setWindowFields.output' is missing but a required field",
        );
    };
    let partition = match partition {
        Some(raw) => Some(Expression::parse(raw, context)?),
        None => None,
    };
    let sort = match sort {
        Some(pattern) => Some(Arc::new(SortBy::parse(pattern, context)?)),
        None => None,
    };
    // An array to partition by is told of behind what is wrong with the functions.
    let outputs = parse_outputs(output, sort.as_deref(), context)?;
    let partition = partition_by(partition)?;
    let is_computed = partition.as_ref().is_some_and(|by| sortable_path(by).is_none());
    if !is_computed {
        push_sort(
            stages,
            partition.as_deref().and_then(sortable_path),
            sort.as_deref(),
            context,
        )?;
    }
    stages.push(StageSpec::Planned(Box::new(WindowSpec {
        written: stage_document(INTERNAL_NAME, &Value::from_raw(raw)),
        partition,
        is_computed,
        sort,
        outputs,
        context: context.clone(),
    })));
    Ok(())
}

/// A constant is one partition for all.
fn partition_by(expression: Option<Expression>) -> Result<Option<Arc<Expression>>, QueryError> {
    let Some(expression) = expression else {
        return Ok(None);
    };
    match expression.as_constant() {
        Some(Value::Array(_)) => failure(
            ErrorCode::TypeMismatch.0,
            "An expression used to partition cannot evaluate to value of type array",
        ),
        Some(_) => Ok(None),
        None => Ok(Some(Arc::new(expression))),
    }
}

/// The path of a partition that a sort by this path brings together. A number in a path is an array's index to a sort,
/// and a field's name to an expression.
fn sortable_path(by: &Expression) -> Option<String> {
    let path = by.as_field()?;
    let has_number = path.parts().iter().any(|part| array_index(part.as_bytes()).is_some());
    (!has_number).then(|| path.to_string())
}

fn push_sort(
    stages: &mut Vec<StageSpec>,
    partition: Option<String>,
    sort: Option<&SortBy>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let mut pattern = Vec::new();
    let mut writer = DocumentWriter::new(&mut pattern);
    if let Some(path) = &partition {
        writer.append(path, &Value::Int32(1));
    }
    for (path, descending) in sort.map_or(&[][..], |sort| &sort.fields) {
        // Within a partition all have the same.
        if partition.as_ref() != Some(path) {
            writer.append(path, &Value::Int32(if *descending { -1 } else { 1 }));
        }
    }
    writer.finish();
    let pattern = RawDocumentBuf::from_bytes(pattern).map_err(|_| Malformed)?;
    if !pattern.is_empty() {
        stages.push(StageSpec::Sort {
            pattern: SortPattern::parse(&pattern, &context.comparer)?,
            limit: None,
        });
    }
    Ok(())
}

fn parse_outputs(
    output: &RawDocument,
    sort: Option<&SortBy>,
    context: &ExpressionContext,
) -> Result<Vec<Output>, QueryError> {
    let parser = FunctionParser { sort, context };
    let mut outputs: Vec<Output> = Vec::new();
    let mut paths = BTreeSet::new();
    for element in output {
        let (path, raw) = element.map_err(|_| Malformed)?;
        let path = path.as_str();
        FieldPath::parse(path)?;
        if conflicts(path, &paths) {
            return failure(
                6307900,
                format!("$setWindowFields 'output' specification contains two conflicting paths, one of them '{path}'"),
            );
        }
        paths.insert(path);
        outputs.push(parser.parse(path, raw)?);
    }
    Ok(outputs)
}

/// Whether a path is one of `others`, leads into one of them or is below one.
fn conflicts(path: &str, others: &BTreeSet<&str>) -> bool {
    let ends = path.match_indices('.').map(|(dot, _)| dot).chain([path.len()]);
    if ends.map(|end| &path[..end]).any(|prefix| others.contains(prefix)) {
        return true;
    }
    let below = format!("{path}.");
    let mut behind = others.range::<str, _>((Bound::Excluded(below.as_str()), Bound::Unbounded));
    behind.next().is_some_and(|next| next.starts_with(&below))
}

/// Whether the path `long` is `short` or below it.
fn leads_into(short: &str, long: &str) -> bool {
    long.strip_prefix(short)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl PlannedStage for WindowSpec {
    fn name(&self) -> &'static str {
        INTERNAL_NAME
    }

    fn written(&self) -> RawDocumentBuf {
        self.written.clone()
    }

    fn start(self: Box<Self>, source: Box<dyn Stage>) -> Box<dyn Stage> {
        let comparer = self.context.comparer.clone();
        let source = match &self.partition {
            Some(by) if self.is_computed => Box::new(PartitionSort::new(
                source,
                by.clone(),
                self.sort.clone(),
                comparer.clone(),
            )),
            _ => source,
        };
        Box::new(WindowStage {
            partitions: Partitions::new(source, self.partition.clone(), comparer),
            spec: *self,
            runners: Vec::new(),
            current: None,
            charged: 0,
            memory: StageMemory::default(),
        })
    }

    fn add_dependencies(&self, dependencies: &mut Dependencies) -> bool {
        if let Some(by) = &self.partition {
            by.add_dependencies(dependencies);
        }
        if let Some(sort) = &self.sort {
            dependencies
                .paths
                .extend(sort.fields.iter().map(|(path, _)| path.clone()));
        }
        self.outputs
            .iter()
            .for_each(|output| output.add_dependencies(dependencies));
        true
    }

    /// A filter that only looks at the field partitioned by takes whole partitions away, where it cannot tell apart
    /// what is one partition.
    fn lets_ahead(&self, part: &MatchExpr, read: &Dependencies) -> bool {
        let Some(path) = self.partition.as_deref().and_then(sortable_path) else {
            return false;
        };
        let sets_it = |output: &Output| leads_into(&output.path, &path) || leads_into(&path, &output.path);
        !read.whole_document
            && !read.paths.is_empty()
            && read.paths.iter().all(|other| *other == path)
            && !self.outputs.iter().any(sets_it)
            && treats_equals_alike(part)
    }
}

/// Whether a filter answers the same for 1 and 1.0, for null and for what is missing. Comparisons do; not so a test of
/// the type or of the bytes.
fn treats_equals_alike(part: &MatchExpr) -> bool {
    match part {
        MatchExpr::AlwaysTrue | MatchExpr::AlwaysFalse => true,
        MatchExpr::And(parts) | MatchExpr::Or(parts) | MatchExpr::Nor(parts) => parts.iter().all(treats_equals_alike),
        MatchExpr::Not(part) => treats_equals_alike(part),
        MatchExpr::Path { test, .. } => is_comparison(test),
        MatchExpr::Expr(_) | MatchExpr::Schema(_) | MatchExpr::Text(_) | MatchExpr::Where(_) => false,
    }
}

fn is_comparison(test: &Test) -> bool {
    match test {
        Test::Compare { .. } => true,
        Test::In(list) => list.regexes.is_empty(),
        Test::ElemMatchValue(tests) => tests
            .iter()
            .all(|test| matches!(test, ValueTest::Is(test) if is_comparison(test))),
        _ => false,
    }
}

/// Documents are written when they take such a part of the stage's memory at least.
const SPILLED_PART: usize = 16;

/// The running stage.
struct WindowStage {
    spec: WindowSpec,
    partitions: Partitions,
    runners: Vec<Box<dyn Runner>>,
    /// The number of the next document in the open partition.
    current: Option<usize>,
    /// Bytes of the runners that are charged.
    charged: usize,
    memory: StageMemory,
}

impl WindowStage {
    /// Charges what the runners hold.
    fn charge(&mut self, context: &StageContext<'_>) -> Result<(), QueryError> {
        let bytes: usize = self.runners.iter().map(|runner| runner.bytes()).sum();
        let blocking = context.execution.blocking();
        let together = bytes.saturating_add(self.partitions.bytes());
        if blocking.disk.is_none() {
            check_bytes(together, context)?;
        }
        check_bytes(bytes, context)?;
        // Documents go to disk by the piece, however little room the values of windows leave.
        let piece = blocking.bytes(Spilling::SetWindowFields) / SPILLED_PART;
        if check_bytes(together, context).is_err() && self.partitions.bytes() >= piece {
            self.partitions.spill(context)?;
        }
        match bytes.checked_sub(self.charged) {
            Some(0) => {}
            Some(more) => self.memory.grow(context.evaluation, more)?,
            None => self.memory.shrink(self.charged - bytes),
        }
        self.charged = bytes;
        Ok(())
    }

    fn document(
        &self,
        document: &SharedDocument,
        values: &[Value<'static>],
        context: &StageContext<'_>,
    ) -> Result<SharedDocument, QueryError> {
        let outputs = || self.spec.outputs.iter().zip(values);
        let simple: Vec<(&str, &Value<'static>)> = outputs()
            .filter(|(output, _)| !output.path.contains('.'))
            .map(|(output, value)| (output.path.as_str(), value))
            .collect();
        let mut result = with_fields(document, &simple)?;
        for (output, value) in outputs().filter(|(output, _)| output.path.contains('.')) {
            let literal = stage_document("$literal", value);
            let field = stage_document(&output.path, &Value::document(SharedDocument::from(literal)));
            let projection = Projection::parse_add_fields(&field, &self.spec.context)?;
            let mut out = Vec::with_capacity(result.as_bytes().len() + 32);
            projection.apply(&result, None, context.evaluation, &mut out)?;
            result = SharedDocument::new(out.into())?;
        }
        Ok(result.with_metadata(document.metadata().cloned()))
    }
}

/// Fields up to which they are looked for one by one.
const SEARCHED_FIELDS: usize = 32;

/// `document` with these fields in place of the old ones of their names, or behind.
fn with_fields(document: &SharedDocument, fields: &[(&str, &Value<'static>)]) -> Result<SharedDocument, QueryError> {
    let mut out = Vec::with_capacity(document.as_bytes().len() + 16 + 32 * fields.len());
    let mut writer = DocumentWriter::new(&mut out);
    let mut written = vec![false; fields.len()];
    let places: HashMap<&[u8], usize> = match fields.len() {
        0..=SEARCHED_FIELDS => HashMap::new(),
        _ => fields.iter().map(|(name, _)| name.as_bytes()).zip(0..).collect(),
    };
    let place_of = |name: &[u8]| match places.is_empty() {
        true => fields.iter().position(|(field, _)| field.as_bytes() == name),
        false => places.get(name).copied(),
    };
    for element in Elements::new(document) {
        let element = element?;
        match place_of(element.name) {
            Some(place) => {
                let (name, value) = fields[place];
                if !std::mem::replace(&mut written[place], true) {
                    writer.append(name, value);
                }
            }
            None => writer.append_raw(element.kind, element.name, element.value),
        }
    }
    for ((name, value), written) in fields.iter().zip(written) {
        if !written {
            writer.append(name, value);
        }
    }
    writer.finish();
    SharedDocument::computed(out)
}

impl Stage for WindowStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            let Some(current) = self.current else {
                if !self.partitions.open_next(context)? {
                    self.memory.clear();
                    return Ok(None);
                }
                let start = |output: &Output| output.start(self.spec.sort.as_ref(), &self.spec.context.comparer);
                self.runners = self.spec.outputs.iter().map(start).collect();
                self.current = Some(0);
                continue;
            };
            if self.spec.sort.is_none() {
                // The windows are the whole partition. A source that pauses must not do so between two runners; one
                // that is sorted does not pause any more.
                self.partitions.read_to(usize::MAX, context)?;
            }
            let Some(document) = self.partitions.document(current, context)? else {
                self.current = None;
                self.runners.clear();
                self.charge(context)?;
                continue;
            };
            let mut values = Vec::with_capacity(self.runners.len());
            for runner in &mut self.runners {
                values.push(runner.next(&mut self.partitions, current, context)?);
            }
            context
                .evaluation
                .steps(1 + values.iter().map(Value::steps).sum::<usize>())?;
            self.charge(context)?;
            let needed = self.runners.iter().map(|runner| runner.needed_from(current + 1)).min();
            self.partitions
                .forget_before(needed.map_or(current + 1, |needed| needed.min(current + 1)));
            self.current = Some(current + 1);
            return self.document(&document, &values, context).map(Some);
        }
    }

    fn add_statistics(&self, statistics: &mut Document) {
        self.partitions.statistics().add_to(statistics);
    }
}
