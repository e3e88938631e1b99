//! `$densify`: documents for the steps of a field that no document has.
//!
//! Its input comes sorted by the field (by the partition's fields first where each partition has bounds of its own).
//! Each partition knows its next step; a document lets the steps before its own value out first. When the source has
//! ended, partitions go on to the upper bound where there is one for all.
//!
//! What is known of partitions is in memory: of those that may still get documents, which is one after the other where
//! each has bounds of its own. Where there are too many, the rest of the work is done partition by partition, from disk
//! (see [`super::densify_disk`]).

use std::collections::{HashMap, HashSet, VecDeque};

use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};
use keys::KeySet;
use storage::Spilling;
use wire::ErrorCode;

use super::densify_disk::{DiskWriter, OnDisk};
use super::filter::Checkpoint;
use super::specification::{StageSpec, stage_document};
use super::{PlannedStage, Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::{EvaluationContext, StageMemory};
use crate::expression::{Dependencies, ExpressionContext, FieldPath, TimeUnit};
use crate::path::array_index;
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{Comparer, DocumentWriter, SharedDocument, SortPattern, Value, with_path};

/// Documents that one stage may make.
pub const GENERATED_MAX: u64 = 500_000;

/// From where to where.
#[derive(Clone, Debug)]
enum Bounds {
    /// From the least to the greatest value of all documents, both included.
    Full,
    /// From the least to the greatest value of the partition.
    Partition,
    /// From the first, included, to the second, not included.
    Between(Value<'static>, Value<'static>),
}

#[derive(Clone, Debug)]
struct Range {
    step: Number,
    unit: Option<TimeUnit>,
    bounds: Bounds,
}

#[derive(Debug)]
struct DensifySpec {
    written: RawDocumentBuf,
    field: FieldPath,
    partition: Vec<FieldPath>,
    range: Range,
    comparer: Comparer,
    /// The order of partitions, where one comes after the other: those before a new key are over.
    successive: Option<SortPattern>,
}

fn wrong_type<T>(field: &str, raw: RawBsonRef<'_>, wanted: &str) -> Result<T, QueryError> {
    let found = Value::from_raw(raw).type_name();
    failure(
        ErrorCode::TypeMismatch.0,
        format!("BSON field '$densify.{field}' is the wrong type '{found}', expected type '{wanted}'"),
    )
}

fn missing<T>(field: &str) -> Result<T, QueryError> {
    failure(
        40414,
        format!("BSON field '$densify.{field}' is missing but a required field"),
    )
}

/// Parses `$densify`; appends the sort and the stage.
pub(super) fn parse(
    stages: &mut Vec<StageSpec>,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            5733400,
            format!("The $densify specification must be an object, found {found}"),
        );
    };
    let (mut field, mut partition, mut range) = (None, Vec::new(), None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match (name.as_str(), raw) {
            ("field", RawBsonRef::String(path)) => field = Some(FieldPath::parse(path)?),
            ("field", other) => return wrong_type("field", other, "string"),
            ("partitionByFields", RawBsonRef::Array(fields)) => {
                for item in fields {
                    match item.map_err(|_| Malformed)? {
                        RawBsonRef::String(path) => partition.push(FieldPath::parse(path)?),
                        other => return wrong_type("partitionByFields", other, "string"),
                    }
                }
            }
            ("partitionByFields", RawBsonRef::Null | RawBsonRef::Undefined) => {}
            ("partitionByFields", other) => return wrong_type("partitionByFields", other, "array"),
            ("range", RawBsonRef::Document(argument)) => range = Some(argument),
            ("range", other) => return wrong_type("range", other, "object"),
            (other, _) => return failure(40415, format!("BSON field '$densify.{other}' is an unknown field.")),
        }
    }
    let Some(field) = field else { return missing("field") };
    let Some(range) = range else { return missing("range") };
    let range = parse_range(range, !partition.is_empty(), context)?;
    check_partition(&field, &partition)?;
    let first = match range.bounds {
        Bounds::Partition => &partition[..],
        Bounds::Full | Bounds::Between(..) => &[],
    };
    let ascending = |paths: &mut dyn Iterator<Item = &FieldPath>| {
        let (mut pattern, mut seen) = (Vec::new(), HashSet::new());
        let mut writer = DocumentWriter::new(&mut pattern);
        for path in paths.map(FieldPath::to_string) {
            // A sort has a path once, a partition may be by it twice.
            if !seen.contains(&path) {
                writer.append(&path, &Value::Int32(1));
                seen.insert(path);
            }
        }
        writer.finish();
        let pattern = RawDocumentBuf::from_bytes(pattern).map_err(|_| Malformed)?;
        SortPattern::parse(&pattern, &context.comparer)
    };
    stages.push(StageSpec::Sort {
        pattern: ascending(&mut first.iter().chain([&field]))?,
        limit: None,
    });
    // A number in a path is an array's index to a sort, and a field's name to what partitions.
    let has_number = |path: &FieldPath| path.parts().iter().any(|part| array_index(part.as_bytes()).is_some());
    let successive = match first.is_empty() || first.iter().any(has_number) {
        true => None,
        false => Some(ascending(&mut first.iter())?),
    };
    stages.push(StageSpec::Planned(Box::new(DensifySpec {
        written: stage_document("$_internalDensify", &Value::from_raw(raw)),
        field,
        partition,
        range,
        comparer: context.comparer.clone(),
        successive,
    })));
    Ok(())
}

/// The field and those partitioned by must not contain each other.
fn check_partition(field: &FieldPath, partition: &[FieldPath]) -> Result<(), QueryError> {
    let leads_into = |short: &FieldPath, long: &FieldPath| long.parts().starts_with(short.parts());
    for path in partition {
        if leads_into(field, path) {
            return failure(
                8993000,
                "BSON field '$densify.partitionByFields' contains the field that is being densified",
            );
        }
        if leads_into(path, field) {
            return failure(
                9554500,
                "The field that is being densified lies in a field of '$densify.partitionByFields'",
            );
        }
    }
    Ok(())
}

fn parse_range(document: &RawDocument, partitioned: bool, context: &ExpressionContext) -> Result<Range, QueryError> {
    let (mut step, mut bounds, mut unit) = (None, None, None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match (name.as_str(), raw) {
            ("step", raw) => match Number::of(&Value::from_raw(raw)) {
                Some(number) => step = Some(number),
                None => return wrong_type("range.step", raw, "[int, decimal, double, long]"),
            },
            ("bounds", raw) => bounds = Some(raw),
            ("unit", RawBsonRef::String(name)) => unit = Some(TimeUnit::parse(name)?),
            ("unit", RawBsonRef::Null | RawBsonRef::Undefined) => {}
            ("unit", other) => return wrong_type("range.unit", other, "string"),
            (other, _) => {
                return failure(
                    40415,
                    format!("BSON field '$densify.range.{other}' is an unknown field."),
                );
            }
        }
    }
    let Some(step) = step else { return missing("range.step") };
    let Some(bounds) = bounds else {
        return missing("range.bounds");
    };
    let is_positive = step.to_f64() > 0.0 && !step.is_nan();
    if !is_positive {
        return failure(
            5733401,
            "the step parameter in a range statement must be a strictly positive numeric value",
        );
    }
    let range = Range {
        step,
        unit,
        bounds: parse_bounds(bounds, step, unit, partitioned, context)?,
    };
    if unit.is_some() && step.to_exact_i64().is_none() {
        return failure(
            6586400,
            "The step parameter in a range statement must be a whole number when densifying a date range",
        );
    }
    Ok(range)
}

fn parse_bounds(
    raw: RawBsonRef<'_>,
    step: Number,
    unit: Option<TimeUnit>,
    partitioned: bool,
    context: &ExpressionContext,
) -> Result<Bounds, QueryError> {
    let array = match raw {
        RawBsonRef::String("full") => return Ok(Bounds::Full),
        RawBsonRef::String("partition") if partitioned => return Ok(Bounds::Partition),
        RawBsonRef::String("partition") => {
            return failure(
                5733408,
                "one may not specify the bounds as 'partition' without specifying a non-empty array of partitionByFields. You may have meant to specify 'full' bounds.",
            );
        }
        RawBsonRef::Array(array) => array,
        _ => {
            return failure(
                5946800,
                "the bounds in a range statement must be the string 'full', 'partition', or an ascending array of two numbers or two dates",
            );
        }
    };
    let items = array
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Malformed)?;
    let [first, second] = items[..] else {
        return failure(
            5733403,
            "a bounding array in a range statement must have exactly two elements",
        );
    };
    let (first, second) = (
        Value::from_raw(first).into_owned(),
        Value::from_raw(second).into_owned(),
    );
    if context.comparer.compare(&first, &second).is_gt() {
        return failure(
            5733402,
            "a bounding array must be an ascending array of either two dates or two numbers",
        );
    }
    let mixed = "a bounding array must contain either both dates or both numeric types";
    match (&first, &second) {
        (Value::Date(_), Value::Date(_)) if unit.is_some() => {}
        (Value::Date(_), Value::Date(_)) => return failure(5733410, "a bounding array of dates must specify a unit"),
        (Value::Date(_), _) => return failure(5733405, mixed),
        (number, _) if number.is_number() && unit.is_some() => {
            return failure(5733409, "numeric bounds may not have unit parameter");
        }
        (number, other) if number.is_number() && !other.is_number() => return failure(5733406, mixed),
        (number, other) if number.is_number() => {
            let step = step.value();
            if [other.type_name(), step.type_name()] != [number.type_name(); 2] {
                return failure(
                    5876900,
                    "upper bound, lower bound, and step must all have the same type",
                );
            }
        }
        _ => return failure(5946800, "explicit bounds must be numeric or dates"),
    }
    Ok(Bounds::Between(first, second))
}

impl PlannedStage for DensifySpec {
    fn name(&self) -> &'static str {
        "$_internalDensify"
    }

    fn written(&self) -> RawDocumentBuf {
        self.written.clone()
    }

    fn start(self: Box<Self>, source: Box<dyn Stage>) -> Box<dyn Stage> {
        Box::new(DensifyStage {
            source,
            spec: *self,
            partitions: Vec::new(),
            places: HashMap::new(),
            successor: Vec::new(),
            has_arrays: false,
            writing: None,
            disk: None,
            full: None,
            waiting: None,
            is_exhausted: false,
            ending: VecDeque::new(),
            generated: 0,
            bytes: 0,
            memory: StageMemory::default(),
            checkpoint: Checkpoint::default(),
        })
    }

    fn add_dependencies(&self, dependencies: &mut Dependencies) -> bool {
        let paths = self.partition.iter().chain([&self.field]);
        dependencies.paths.extend(paths.map(|path| path.to_string()));
        true
    }
}

/// A partition.
pub(super) struct Part {
    /// What its new documents have of it.
    pub(super) fields: SharedDocument,
    /// The next step; none when the values are too large for another one.
    pub(super) next: Option<Value<'static>>,
}

struct DensifyStage {
    source: Box<dyn Stage>,
    spec: DensifySpec,
    partitions: Vec<Part>,
    places: HashMap<Vec<u8>, usize>,
    /// Where partitions come one after the other, the place of the newest in their order.
    successor: Vec<u8>,
    /// One of them has an array: such may come again, elsewhere in the order.
    has_arrays: bool,
    /// While the rest goes to disk, since there were too many partitions.
    writing: Option<DiskWriter>,
    /// Where the rest is then. `partitions` is the one at hand.
    disk: Option<OnDisk>,
    /// The least and the greatest value, where the bounds are those of all documents.
    full: Option<(Value<'static>, Value<'static>)>,
    /// A document, its value, and its partition: steps before it come first.
    waiting: Option<(SharedDocument, Value<'static>, usize)>,
    is_exhausted: bool,
    /// Partitions that go on to the upper bound.
    ending: VecDeque<usize>,
    generated: u64,
    bytes: usize,
    memory: StageMemory,
    checkpoint: Checkpoint,
}

impl DensifyStage {
    /// The value to step by; `None` of a document that has none and just passes.
    fn value(&self, document: &SharedDocument) -> Result<Option<Value<'static>>, QueryError> {
        let value = self.spec.field.of_document(document)?;
        match (&value, self.spec.range.unit) {
            (value, _) if value.is_nullish() => Ok(None),
            (Value::Date(_), Some(_)) => Ok(Some(value.into_owned())),
            (Value::Date(_), None) => failure(
                6053600,
                "Encountered date densify value in collection when step does not have a date unit.",
            ),
            (number, Some(_)) if number.is_number() => failure(
                6053600,
                "Encountered numeric densify value in collection when step has a date unit.",
            ),
            (number, None) if number.is_number() => Ok(Some(value.into_owned())),
            (other, _) => failure(
                5733201,
                format!(
                    "Densify field type must be numeric or a date, but it was {}",
                    other.type_name()
                ),
            ),
        }
    }

    /// The partition of a document whose value is `value`; `None` when there is no room for another one.
    ///
    /// Errors: 6007200 without room where the disk may not be used.
    fn part(
        &mut self,
        document: &SharedDocument,
        value: &Value<'static>,
        context: &StageContext<'_>,
    ) -> Result<Option<usize>, QueryError> {
        let key = self.partition_key(document)?;
        if let Some(place) = self.places.get(&key) {
            return Ok(Some(*place));
        }
        let part = self.new_part(document, value)?;
        let bytes = part.fields.as_bytes().len() + key.len() + size_of::<Part>() + 64;
        let blocking = context.execution.blocking();
        if self.bytes + bytes > blocking.bytes(Spilling::Densify) {
            return blocking.disk(Spilling::Densify).map(|_| None);
        }
        match self.memory.grow(context.evaluation, bytes) {
            // Others need the memory, too.
            Err(_) if self.bytes > 0 && blocking.disk.is_some() => return Ok(None),
            grown => grown?,
        }
        self.bytes += bytes;
        self.partitions.push(part);
        self.places.insert(key, self.partitions.len() - 1);
        Ok(Some(self.partitions.len() - 1))
    }

    fn partition_key(&self, document: &SharedDocument) -> Result<Vec<u8>, QueryError> {
        let mut key = Vec::new();
        for path in &self.spec.partition {
            self.spec.comparer.append_key(&path.of_document(document)?, &mut key);
        }
        Ok(key)
    }

    /// The partition that a document with this value is the first of.
    fn new_part(&mut self, document: &SharedDocument, value: &Value<'static>) -> Result<Part, QueryError> {
        let mut fields = SharedDocument::empty();
        for path in &self.spec.partition {
            let part = path.of_document(document)?;
            self.has_arrays |= matches!(part, Value::Array(_));
            fields = with_path(&fields, path.parts(), &part)?;
        }
        let next = match (&self.spec.range.bounds, &self.full) {
            (Bounds::Between(first, _), _) => first.clone(),
            (Bounds::Full, Some((least, _))) => least.clone(),
            _ => value.clone(),
        };
        Ok(Part {
            fields,
            next: Some(next),
        })
    }

    /// Where partitions come one after the other: forgets those that are over when a document of the next one comes.
    fn leave_partitions(
        &mut self,
        document: &SharedDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<(), QueryError> {
        let Some(order) = &self.spec.successive else {
            return Ok(());
        };
        let mut key = Vec::new();
        order.append_key(document, context, &mut KeySet::new(), &mut key)?;
        if key != self.successor {
            self.successor = key;
            if !self.has_arrays {
                self.partitions.clear();
                self.places.clear();
                self.memory.clear();
                self.bytes = 0;
            }
        }
        Ok(())
    }

    /// There are too many partitions: writes them and all documents from `document` on to disk, from where they come
    /// partition by partition.
    fn go_to_disk(
        &mut self,
        document: SharedDocument,
        value: &Value<'static>,
        context: &mut StageContext<'_>,
    ) -> Result<(), QueryError> {
        let mut partitions: Vec<Option<Part>> = self.partitions.drain(..).map(Some).collect();
        let known = self
            .places
            .drain()
            .filter_map(|(key, place)| Some((key, partitions.get_mut(place)?.take()?)));
        self.memory.clear();
        self.bytes = 0;
        let mut writer = OnDisk::write(known, context)?;
        self.write_document(&mut writer, document, Some(value), context)?;
        self.writing = Some(writer);
        Ok(())
    }

    /// Writes the source's documents to disk, until there are no more.
    fn write_rest(&mut self, mut writer: DiskWriter, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        loop {
            let document = match self.source.next(context) {
                Ok(Some(document)) => document,
                Ok(None) => break,
                Err(error) => {
                    self.writing = Some(writer);
                    return Err(error);
                }
            };
            self.checkpoint.tick(context)?;
            let value = self.value(&document)?;
            self.write_document(&mut writer, document, value.as_ref(), context)?;
        }
        self.is_exhausted = true;
        self.disk = Some(writer.finish(context)?);
        Ok(())
    }

    fn write_document(
        &mut self,
        writer: &mut DiskWriter,
        document: SharedDocument,
        value: Option<&Value<'static>>,
        context: &StageContext<'_>,
    ) -> Result<(), QueryError> {
        let Some(value) = value else {
            return writer.push(self.key_on_disk(&document)?, document, context);
        };
        if matches!(self.spec.range.bounds, Bounds::Full) {
            self.note_value(value);
        }
        writer.push(self.partition_key(&document)?, document, context)
    }

    /// The next document from disk: of the partition at hand, a step of it, or of the partition behind it.
    fn next_from_disk(
        &mut self,
        disk: &mut OnDisk,
        context: &StageContext<'_>,
    ) -> Result<Option<SharedDocument>, QueryError> {
        loop {
            if let Some(waiting) = self.waiting.take() {
                return self.next_before(waiting, context).map(Some);
            }
            if let Some(document) = disk.next_of_partition(context, |document| self.key_on_disk(document))? {
                let Some(value) = self.value(&document)? else {
                    return Ok(Some(document));
                };
                if self.partitions.is_empty() {
                    let part = self.new_part(&document, &value)?;
                    self.partitions.push(part);
                }
                return self.next_before((document, value, 0), context).map(Some);
            }
            if let Some(part) = self.partitions.first()
                && !matches!(self.spec.range.bounds, Bounds::Partition)
                && part.next.as_ref().is_some_and(|next| self.is_in_bounds(next))
            {
                return self.generate(0, context).map(Some);
            }
            let mut known = Vec::new();
            let is_open = disk.open_next(context, |document| self.key_on_disk(document), &mut known)?;
            self.partitions = known;
            if !is_open {
                return Ok(None);
            }
        }
    }

    fn key_on_disk(&self, document: &SharedDocument) -> Result<Vec<u8>, QueryError> {
        match self.value(document)? {
            Some(_) => self.partition_key(document),
            // It just passes, and comes first.
            None => Ok(Vec::new()),
        }
    }

    fn note_value(&mut self, value: &Value<'static>) {
        let least = self.full.take().map_or_else(|| value.clone(), |(least, _)| least);
        self.full = Some((least, value.clone()));
    }

    fn step_on(&self, value: &Value<'_>) -> Option<Value<'static>> {
        let range = &self.spec.range;
        let next = match (value, range.unit) {
            (Value::Date(ms), Some(unit)) => range
                .step
                .to_exact_i64()
                .and_then(|amount| unit.add(*ms, amount))
                .map(Value::Date),
            (value, _) => Number::of(value).map(|number| number.plus(range.step).value()),
        };
        next.filter(|next| self.spec.comparer.compare(next, value).is_gt())
    }

    /// Whether the step may be made, but for documents that have it.
    fn is_in_bounds(&self, step: &Value<'_>) -> bool {
        let compare = |limit| self.spec.comparer.compare(step, limit);
        match (&self.spec.range.bounds, &self.full) {
            (Bounds::Between(_, upper), _) => compare(upper).is_lt(),
            (Bounds::Full, Some((_, greatest))) => compare(greatest).is_le(),
            _ => true,
        }
    }

    /// The document for the next step of a partition.
    fn generate(&mut self, place: usize, context: &StageContext<'_>) -> Result<SharedDocument, QueryError> {
        self.checkpoint.tick(context)?;
        self.generated += 1;
        if self.generated > GENERATED_MAX {
            return failure(
                5897900,
                format!(
                    "Generated {} documents in $densify, which is over the limit of {GENERATED_MAX}",
                    self.generated
                ),
            );
        }
        let part = &self.partitions[place];
        let own = part.next.clone().unwrap_or(Value::Missing);
        let document = with_path(&part.fields, self.spec.field.parts(), &own)?;
        let next = self.step_on(&own);
        if next.is_none() {
            return failure(
                ErrorCode::Overflow.0,
                "$densify cannot take another step: the values are too large",
            );
        }
        self.partitions[place].next = next;
        Ok(document)
    }

    /// The next of the documents that come before the waiting one, or that one.
    fn next_before(
        &mut self,
        (document, value, place): (SharedDocument, Value<'static>, usize),
        context: &StageContext<'_>,
    ) -> Result<SharedDocument, QueryError> {
        let Some(next) = &self.partitions[place].next else {
            return Ok(document);
        };
        let order = self.spec.comparer.compare(next, &value);
        if order.is_lt() && self.is_in_bounds(next) {
            self.waiting = Some((document, value, place));
            return self.generate(place, context);
        }
        if order.is_eq() {
            self.partitions[place].next = self.step_on(&value);
        }
        Ok(document)
    }

    /// The source has ended: which partitions go on.
    fn begin_ending(&mut self, context: &StageContext<'_>) -> Result<(), QueryError> {
        let goes_on = !matches!(self.spec.range.bounds, Bounds::Partition);
        if matches!(self.spec.range.bounds, Bounds::Between(..)) && self.spec.partition.is_empty() {
            // Even without any document.
            let _only = self.part(&SharedDocument::empty(), &Value::Null, context)?;
        }
        if goes_on {
            self.ending = (0..self.partitions.len()).collect();
        }
        Ok(())
    }
}

impl Stage for DensifyStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if let Some(writer) = self.writing.take() {
            self.write_rest(writer, context)?;
        }
        if let Some(mut disk) = self.disk.take() {
            let next = self.next_from_disk(&mut disk, context);
            self.disk = Some(disk);
            return next;
        }
        if let Some(waiting) = self.waiting.take() {
            return self.next_before(waiting, context).map(Some);
        }
        if !self.is_exhausted {
            if let Some(document) = self.source.next(context)? {
                self.checkpoint.tick(context)?;
                let Some(value) = self.value(&document)? else {
                    return Ok(Some(document));
                };
                if matches!(self.spec.range.bounds, Bounds::Full) {
                    self.note_value(&value);
                }
                self.leave_partitions(&document, context.evaluation)?;
                let Some(place) = self.part(&document, &value, context)? else {
                    self.go_to_disk(document, &value, context)?;
                    return self.next(context);
                };
                return self.next_before((document, value, place), context).map(Some);
            }
            self.is_exhausted = true;
            self.begin_ending(context)?;
        }
        while let Some(&place) = self.ending.front() {
            let next = self.partitions[place].next.as_ref();
            if next.is_some_and(|next| self.is_in_bounds(next)) {
                return self.generate(place, context).map(Some);
            }
            self.ending.pop_front();
        }
        self.memory.clear();
        Ok(None)
    }

    fn add_statistics(&self, statistics: &mut Document) {
        let on_disk = self.disk.as_ref().map(OnDisk::statistics);
        on_disk.unwrap_or_default().add_to(statistics);
    }
}
