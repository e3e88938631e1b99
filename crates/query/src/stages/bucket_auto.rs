//! `$bucketAuto`: groups of about as many documents each, by the order of an expression.
//!
//! All documents are sorted first. Each bucket takes its share, and then all that are equal to its last; the last
//! bucket takes the rest. With a granularity a bucket's upper boundary is rounded up to a preferred number, and it
//! takes the documents below that, too.

use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};
use storage::Spilling;
use wire::ErrorCode;

use super::filter::Checkpoint;
use super::granularity::Granularity;
use super::group::parse_field;
use super::sort::document_of_spilled;
use super::specification::{StageSpec, stage_document};
use super::{PlannedStage, STAGE_BYTES_MAX, Stage, StageContext, failure};
use crate::accumulators::{Accumulator, AccumulatorSpec, StateReader, StateWriter};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Dependencies, Evaluation, Expression, ExpressionContext};
use crate::sorter::{Payload, Sorted, SortedRow, Sorter};
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{Comparer, DocumentWriter, SharedDocument, Value};

#[derive(Debug)]
struct BucketAutoSpec {
    written: RawDocumentBuf,
    group_by: Expression,
    buckets: usize,
    granularity: Option<Granularity>,
    fields: Vec<(Box<str>, AccumulatorSpec)>,
    comparer: Comparer,
}

/// Parses `$bucketAuto`.
pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<StageSpec, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40240,
            format!("The argument to $bucketAuto must be an object, but found type: {found}."),
        );
    };
    let (mut group_by, mut buckets, mut fields, mut granularity) = (None, None, None, None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        let type_name = || Value::from_raw(raw).type_name();
        match (name.as_str(), raw) {
            ("groupBy", raw) => group_by = Some(parse_group_by(raw, context)?),
            ("buckets", raw) => buckets = Some(parse_buckets(raw)?),
            ("output", RawBsonRef::Document(output)) => fields = Some(parse_output(output, context)?),
            ("output", _) => {
                return failure(
                    40244,
                    format!(
                        "The $bucketAuto 'output' field must be an object, but found type: {}.",
                        type_name()
                    ),
                );
            }
            ("granularity", RawBsonRef::String(name)) => granularity = Some(Granularity::parse(name)?),
            ("granularity", _) => {
                return failure(
                    40261,
                    format!(
                        "The $bucketAuto 'granularity' field must be a string, but found type: {}.",
                        type_name()
                    ),
                );
            }
            (other, _) => return failure(40245, format!("Unrecognized option to $bucketAuto: {other}.")),
        }
    }
    let (Some(group_by), Some(buckets)) = (group_by, buckets) else {
        return failure(40246, "$bucketAuto requires 'groupBy' and 'buckets' to be specified.");
    };
    // An empty output is as none.
    let fields = match fields.filter(|fields| !fields.is_empty()) {
        Some(fields) => fields,
        None => vec![("count".into(), count(context)?)],
    };
    Ok(StageSpec::Planned(Box::new(BucketAutoSpec {
        written: stage_document("$bucketAuto", &Value::from_raw(raw)),
        group_by,
        buckets,
        granularity,
        fields,
        comparer: context.comparer.clone(),
    })))
}

fn count(context: &ExpressionContext) -> Result<AccumulatorSpec, QueryError> {
    AccumulatorSpec::parse("$sum", RawBsonRef::Int32(1), context)
}

fn parse_group_by(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Expression, QueryError> {
    let is_expression = match raw {
        RawBsonRef::String(path) => path.starts_with('$'),
        RawBsonRef::Document(_) => true,
        _ => false,
    };
    if !is_expression {
        return failure(
            40239,
            format!(
                "The $bucketAuto 'groupBy' field must be defined as a $-prefixed path or an expression object, but found: {}.",
                Value::from_raw(raw).render()
            ),
        );
    }
    Expression::parse(raw, context)
}

fn parse_buckets(raw: RawBsonRef<'_>) -> Result<usize, QueryError> {
    let value = Value::from_raw(raw);
    let Some(number) = Number::of(&value) else {
        return failure(
            40241,
            format!(
                "The $bucketAuto 'buckets' field must be a numeric value, but found type: {}.",
                value.type_name()
            ),
        );
    };
    let Some(n) = number.to_exact_i32() else {
        return failure(
            40242,
            format!(
                "The $bucketAuto 'buckets' field must be representable as a 32-bit integer, but found {}.",
                value.render()
            ),
        );
    };
    match usize::try_from(n) {
        Ok(n) if n > 0 => Ok(n),
        _ => failure(
            40243,
            format!("The $bucketAuto 'buckets' field must be greater than 0, but found: {n}."),
        ),
    }
}

fn parse_output(
    output: &RawDocument,
    context: &ExpressionContext,
) -> Result<Vec<(Box<str>, AccumulatorSpec)>, QueryError> {
    let mut fields = Vec::new();
    for element in output {
        let (name, raw) = element.map_err(|_| Malformed)?;
        let field = parse_field(name.as_str(), raw, context)?;
        if !field.begins_alike() {
            return failure(4544714, "Can't refer to the group key in $bucketAuto");
        }
        fields.push((Box::from(name.as_str()), field));
    }
    Ok(fields)
}

impl PlannedStage for BucketAutoSpec {
    fn name(&self) -> &'static str {
        "$bucketAuto"
    }

    fn written(&self) -> RawDocumentBuf {
        self.written.clone()
    }

    fn start(self: Box<Self>, source: Box<dyn Stage>) -> Box<dyn Stage> {
        Box::new(BucketAutoStage {
            source,
            spec: *self,
            sorter: None,
            documents: 0,
            in_order: None,
            share: 1,
            made: 0,
            boundary: None,
        })
    }

    fn add_dependencies(&self, dependencies: &mut Dependencies) -> bool {
        self.group_by.add_dependencies(dependencies);
        self.fields
            .iter()
            .for_each(|(_, accumulator)| accumulator.add_dependencies(dependencies));
        false
    }
}

/// A document, with what it is ordered by.
struct Held {
    value: Value<'static>,
    document: SharedDocument,
}

impl Payload for Held {
    fn memory_bytes(&self) -> usize {
        self.document.as_bytes().len() + self.value.approximate_bytes()
    }

    fn append_head(&self, head: &mut Vec<u8>) {
        StateWriter(head).value(&self.value);
        self.document.append_head(head);
    }

    fn body(&self) -> &[u8] {
        self.document.as_bytes()
    }
}

/// The documents in order.
struct InOrder {
    sorted: Sorted<Held>,
    peeked: Option<Held>,
}

impl InOrder {
    fn next(&mut self, context: &StageContext<'_>) -> Result<Option<Held>, QueryError> {
        if let Some(peeked) = self.peeked.take() {
            return Ok(Some(peeked));
        }
        match self.sorted.next(context.evaluation)? {
            None => Ok(None),
            Some(SortedRow::Kept(held)) => Ok(Some(held)),
            Some(SortedRow::Spilled(row)) => {
                let mut row = StateReader(row);
                Ok(Some(Held {
                    value: row.value()?.into_owned(),
                    document: document_of_spilled(row.0)?,
                }))
            }
        }
    }

    fn next_if(
        &mut self,
        context: &StageContext<'_>,
        wanted: impl FnOnce(&Held) -> bool,
    ) -> Result<Option<Held>, QueryError> {
        match self.next(context)? {
            Some(next) if wanted(&next) => Ok(Some(next)),
            other => {
                self.peeked = other;
                Ok(None)
            }
        }
    }

    fn peek(&mut self, context: &StageContext<'_>) -> Result<Option<&Held>, QueryError> {
        self.peeked = self.next(context)?;
        Ok(self.peeked.as_ref())
    }
}

struct BucketAutoStage {
    source: Box<dyn Stage>,
    spec: BucketAutoSpec,
    /// While the source is read, with the number of its documents.
    sorter: Option<Sorter<Held>>,
    documents: u64,
    in_order: Option<InOrder>,
    /// Documents that each bucket takes.
    share: u64,
    /// Buckets that have been made.
    made: usize,
    /// The rounded upper boundary of the bucket before.
    boundary: Option<Value<'static>>,
}

impl BucketAutoStage {
    /// Takes the source's documents in, and reckons each bucket's share of them.
    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let sorter = self
            .sorter
            .get_or_insert_with(|| Sorter::new(Spilling::BucketAuto, None, context.execution.blocking()));
        let (mut key, mut checkpoint) = (Vec::new(), Checkpoint::default());
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            context.evaluation.on(document.metadata());
            let value = match self.spec.group_by.evaluate_on(&document, context.evaluation)? {
                Value::Missing | Value::Undefined => Value::Null,
                value => value.shared_in(&document),
            };
            if self.spec.granularity.is_some() {
                Granularity::check(&value)?;
            }
            key.clear();
            self.spec.comparer.append_key(&value, &mut key);
            sorter.push(context.evaluation, &key, || Held {
                value,
                document: document.kept(),
            })?;
            self.documents += 1;
        }
        let buckets = self.spec.buckets as u64;
        // Rounded, half up.
        self.share = ((self.documents + buckets / 2) / buckets).max(1);
        Ok(())
    }

    /// The next bucket, of documents that there are.
    fn bucket(&mut self, first: Held, context: &StageContext<'_>) -> Result<SharedDocument, QueryError> {
        let Self { spec, in_order, .. } = self;
        let Some(in_order) = in_order.as_mut() else {
            return failure(ErrorCode::InternalError.0, "$bucketAuto makes a bucket of nothing");
        };
        let mut states: Vec<Accumulator> = spec.fields.iter().map(|(_, field)| field.start()).collect();
        let mut bytes = 0_usize;
        for ((_, field), state) in spec.fields.iter().zip(&mut states) {
            bytes += field.begin(state, &Value::Missing, context.evaluation)?;
        }
        let mut take = |held: &Held| -> Result<(), QueryError> {
            context.evaluation.step()?;
            context.evaluation.on(held.document.metadata());
            let mut evaluation = Evaluation::new(&held.document, context.evaluation);
            for ((_, field), state) in spec.fields.iter().zip(&mut states) {
                bytes = bytes.saturating_add_signed(field.accumulate(state, &mut evaluation)?);
            }
            match bytes > STAGE_BYTES_MAX {
                true => failure(
                    ErrorCode::ExceededMemoryLimit.0,
                    format!("a bucket of $bucketAuto exceeds the memory limit of {STAGE_BYTES_MAX} bytes"),
                ),
                false => Ok(()),
            }
        };
        let is_last = self.made + 1 >= spec.buckets;
        let low = match &self.boundary {
            Some(boundary) => boundary.clone(),
            None => match &spec.granularity {
                Some(granularity) => granularity.round_down(Granularity::check(&first.value)?)?,
                None => first.value.clone(),
            },
        };
        take(&first)?;
        let mut last = first;
        let mut taken = 1;
        while taken < self.share || is_last {
            let Some(next) = in_order.next(context)? else { break };
            take(&next)?;
            last = next;
            taken += 1;
        }
        let equals_last = |next: &Held| spec.comparer.compare(&next.value, &last.value).is_eq();
        while let Some(next) = in_order.next_if(context, equals_last)? {
            take(&next)?;
        }
        let high = match &spec.granularity {
            Some(granularity) => {
                let boundary = granularity.round_up(Granularity::check(&last.value)?)?;
                let is_below = |next: &Held| spec.comparer.compare(&next.value, &boundary).is_lt();
                while let Some(next) = in_order.next_if(context, is_below)? {
                    take(&next)?;
                }
                self.boundary = Some(boundary.clone());
                boundary
            }
            None => match in_order.peek(context)? {
                Some(next) => next.value.clone(),
                None => last.value,
            },
        };
        self.made += 1;
        document_of(spec, &low, &high, states, context.evaluation)
    }
}

fn document_of(
    spec: &BucketAutoSpec,
    low: &Value<'_>,
    high: &Value<'_>,
    states: Vec<Accumulator>,
    evaluation: &EvaluationContext<'_>,
) -> Result<SharedDocument, QueryError> {
    let mut out = Vec::with_capacity(64);
    let mut writer = DocumentWriter::new(&mut out);
    let mut id = writer.document("_id");
    id.append("min", low);
    id.append("max", high);
    id.finish();
    for ((name, field), state) in spec.fields.iter().zip(states) {
        match field.finish(state, evaluation)? {
            Value::Missing => writer.append(name, &Value::Null),
            value => writer.append(name, &value),
        }
    }
    writer.finish();
    SharedDocument::computed(out)
}

impl Stage for BucketAutoStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if self.in_order.is_none() {
            self.consume(context)?;
            let sorter = self.sorter.take();
            let sorted = sorter.map(|sorter| sorter.finish(context.evaluation)).transpose()?;
            self.in_order = sorted.map(|sorted| InOrder { sorted, peeked: None });
        }
        let first = self.in_order.as_mut().map(|in_order| in_order.next(context));
        match first.transpose()?.flatten() {
            Some(first) => self.bucket(first, context).map(Some),
            None => Ok(None),
        }
    }

    fn add_statistics(&self, statistics: &mut Document) {
        let sorted = self.in_order.as_ref().map(|in_order| in_order.sorted.statistics());
        sorted.unwrap_or_default().spill.add_to(statistics);
    }
}
