//! The partial state of one accumulator in one group.

use std::cmp::Ordering;
use std::collections::{HashSet, VecDeque};

use bson::RawDocument;
use keys::KeySet;

use super::digest::Digest;
use super::encode::{StateReader, StateWriter};
use super::ordered::{Kept, OrderedN};
use super::percentile::finite_or_infinite;
use super::script::ScriptState;
use super::{AccumulatorKind as Kind, AccumulatorSpec, Percentiles, failure};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{finished_document, merge_documents};
use crate::value::number::{Number, Sum};
use crate::value::{Comparer, SortPattern, Value};

/// One group's state of one accumulator.
#[derive(Debug)]
pub enum Accumulator {
    /// `$sum`
    Sum(Sum),
    /// `$avg`: sum and count.
    Average(Sum, i64),
    /// `$min` and `$max`; the ordering is that of a better value against the kept one.
    Extreme(Option<Value<'static>>, Ordering, Ties),
    /// `$first`
    First(Option<Value<'static>>),
    /// `$last`
    Last(Option<Value<'static>>),
    /// `$push`
    Push(Vec<Value<'static>>),
    /// `$addToSet`: key bytes seen, and the values as first seen.
    Set(HashSet<Box<[u8]>>, Vec<Value<'static>>),
    /// `$mergeObjects`
    Merge(MergedObjects),
    /// `$stdDevPop` (false) and `$stdDevSamp` (true).
    StdDev(Deviation, bool),
    /// `$firstN`
    FirstN(usize, Vec<Value<'static>>),
    /// `$lastN`
    LastN(usize, VecDeque<Value<'static>>),
    /// `$minN`, `$maxN`, `$top`, `$bottom` and their `N` forms.
    Ordered(OrderedN, Shape),
    /// `$percentile`, `$median`
    Percentile(Box<Digest>, Option<Percentiles>),
    /// What a client's functions have made; see [`AccumulatorSpec::finish`].
    Script(ScriptState),
}

/// Which of equal values `$min` and `$max` keep: they may differ in their types.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ties {
    /// The one that came first.
    #[default]
    First,
    /// The one that came last.
    Last,
}

/// How kept values become the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The only value.
    Single,
    /// An array, smallest first.
    Rising,
    /// An array, largest first.
    Falling,
}

/// Count, mean and sum of squared distances (Welford 1962; merging as in Chan, Golub, LeVeque 1979).
#[derive(Clone, Copy, Debug, Default)]
pub struct Deviation {
    count: i64,
    mean: f64,
    squares: f64,
}

impl Deviation {
    pub(crate) fn add(&mut self, x: f64) {
        self.count += 1;
        let distance = x - self.mean;
        self.mean += distance / self.count as f64;
        self.squares += distance * (x - self.mean);
    }

    pub(crate) fn merge(&mut self, other: Deviation) {
        if other.count == 0 {
            return;
        }
        let count = self.count + other.count;
        let distance = other.mean - self.mean;
        self.mean += distance * (other.count as f64 / count as f64);
        self.squares += other.squares + distance * distance * (self.count as f64 * other.count as f64 / count as f64);
        self.count = count;
    }

    pub(super) fn write(&self, out: &mut StateWriter<'_>) {
        out.u64(self.count as u64);
        out.f64(self.mean);
        out.f64(self.squares);
    }

    pub(super) fn read(&mut self, bytes: &mut StateReader<'_>) -> Result<(), QueryError> {
        self.count = bytes.u64()? as i64;
        self.mean = bytes.f64()?;
        self.squares = bytes.f64()?;
        Ok(())
    }

    /// How many numbers there are.
    pub(crate) fn count(&self) -> i64 {
        self.count
    }

    pub(crate) fn result(&self, sample: bool) -> Value<'static> {
        let divisor = self.count - i64::from(sample);
        if divisor <= 0 {
            Value::Null
        } else {
            Value::Double((self.squares / divisor as f64).sqrt())
        }
    }
}

impl Accumulator {
    pub(super) fn new(spec: &AccumulatorSpec) -> Self {
        Self::of_n(spec, spec.n)
    }

    /// As [`Accumulator::new`], with an `n` of its own.
    pub(super) fn of_n(spec: &AccumulatorSpec, n: usize) -> Self {
        match spec.kind {
            Kind::Sum => Accumulator::Sum(Sum::default()),
            Kind::Avg => Accumulator::Average(Sum::default(), 0),
            Kind::Min => Accumulator::Extreme(None, Ordering::Less, spec.ties),
            Kind::Max => Accumulator::Extreme(None, Ordering::Greater, spec.ties),
            Kind::First => Accumulator::First(None),
            Kind::Last => Accumulator::Last(None),
            Kind::Push => Accumulator::Push(Vec::new()),
            Kind::AddToSet => Accumulator::Set(HashSet::new(), Vec::new()),
            Kind::MergeObjects => Accumulator::Merge(MergedObjects::default()),
            Kind::StdDevPop => Accumulator::StdDev(Deviation::default(), false),
            Kind::StdDevSamp => Accumulator::StdDev(Deviation::default(), true),
            Kind::FirstN => Accumulator::FirstN(n, Vec::new()),
            Kind::LastN => Accumulator::LastN(n, VecDeque::new()),
            Kind::MinN | Kind::TopN => Accumulator::Ordered(OrderedN::new(n, Kept::Smallest), Shape::Rising),
            Kind::MaxN => Accumulator::Ordered(OrderedN::new(n, Kept::Largest), Shape::Falling),
            Kind::BottomN => Accumulator::Ordered(OrderedN::new(n, Kept::Largest), Shape::Rising),
            Kind::Top => Accumulator::Ordered(OrderedN::new(1, Kept::Smallest), Shape::Single),
            Kind::Bottom => Accumulator::Ordered(OrderedN::new(1, Kept::Largest), Shape::Single),
            Kind::Percentile => Accumulator::Percentile(Box::default(), spec.percentiles.clone()),
            Kind::Script => Accumulator::Script(ScriptState::default()),
        }
    }

    /// Takes in a value; returns by how many bytes the state has grown, roughly.
    #[inline]
    pub fn add(&mut self, value: Value<'_>, comparer: &Comparer) -> Result<usize, QueryError> {
        match self {
            Accumulator::Sum(sum) => {
                if let Some(number) = Number::of(&value) {
                    sum.add(number);
                }
                Ok(0)
            }
            Accumulator::Average(sum, count) => {
                if let Some(number) = Number::of(&value) {
                    sum.add(number);
                    *count += 1;
                }
                Ok(0)
            }
            Accumulator::Extreme(kept, better, ties) => {
                if value.is_nullish() {
                    return Ok(0);
                }
                let replaces = kept.as_ref().is_none_or(|kept| {
                    let order = comparer.compare(&value, kept);
                    order == *better || order.is_eq() && *ties == Ties::Last
                });
                Ok(if replaces { replace(kept, value) } else { 0 })
            }
            Accumulator::First(first) => Ok(if first.is_none() { replace(first, value) } else { 0 }),
            Accumulator::Last(last) => Ok(replace(last, value)),
            _ => self.add_to_collection(value, comparer),
        }
    }

    /// The kinds that keep more than one value, and the rare ones.
    fn add_to_collection(&mut self, value: Value<'_>, comparer: &Comparer) -> Result<usize, QueryError> {
        match self {
            Accumulator::Push(values) => {
                if value.is_missing() {
                    return Ok(0);
                }
                let bytes = value.approximate_bytes();
                values.push(value.into_owned());
                Ok(bytes)
            }
            Accumulator::Set(seen, values) => {
                if value.is_missing() {
                    return Ok(0);
                }
                let mut key = Vec::with_capacity(32);
                comparer.append_key(&value, &mut key);
                if seen.contains(key.as_slice()) {
                    return Ok(0);
                }
                let bytes = value.approximate_bytes() + key.len() + 32;
                seen.insert(key.into());
                values.push(value.into_owned());
                Ok(bytes)
            }
            Accumulator::Merge(merged) => merged.add(value),
            Accumulator::StdDev(deviation, _) => {
                if let Some(number) = Number::of(&value) {
                    deviation.add(number.to_f64());
                }
                Ok(0)
            }
            Accumulator::FirstN(n, values) => {
                if values.len() >= *n {
                    return Ok(0);
                }
                let value = null_for_missing(value);
                let bytes = value.approximate_bytes();
                values.push(value);
                Ok(bytes)
            }
            Accumulator::LastN(n, values) => {
                let value = null_for_missing(value);
                let bytes = value.approximate_bytes();
                values.push_back(value);
                if values.len() > *n {
                    values.pop_front();
                    return Ok(0);
                }
                Ok(bytes)
            }
            Accumulator::Percentile(digest, _) => Ok(finite_or_infinite(&value).map_or(0, |x| digest.add(x))),
            Accumulator::Ordered(kept, _) => {
                if value.is_nullish() {
                    return Ok(0);
                }
                let mut key = Vec::with_capacity(32);
                comparer.append_key(&value, &mut key);
                Ok(kept.add(key, || value.into_owned()))
            }
            _ => Ok(0),
        }
    }

    /// Takes in the output value of a document for `$top` and its relatives, ordered by `sort`.
    pub(super) fn add_sorted(
        &mut self,
        value: Value<'_>,
        sort: &SortPattern,
        document: &RawDocument,
        context: &EvaluationContext<'_>,
    ) -> Result<usize, QueryError> {
        let Accumulator::Ordered(kept, _) = self else {
            return Ok(0);
        };
        let (mut keys, mut key) = (KeySet::new(), Vec::with_capacity(32));
        sort.append_key_on(document, context, &mut keys, &mut key)?;
        Ok(kept.add(key, || null_for_missing(value)))
    }

    /// Adds what another state of the same spec has seen; it comes after this one's documents.
    pub fn merge(&mut self, other: Accumulator, comparer: &Comparer) -> Result<(), QueryError> {
        match (self, other) {
            (Accumulator::Sum(sum), Accumulator::Sum(other)) => sum.merge(&other),
            (Accumulator::Average(sum, count), Accumulator::Average(other, more)) => {
                sum.merge(&other);
                *count += more;
            }
            (Accumulator::StdDev(deviation, _), Accumulator::StdDev(other, _)) => deviation.merge(other),
            (Accumulator::Ordered(kept, _), Accumulator::Ordered(other, _)) => kept.merge(other),
            (Accumulator::Percentile(digest, _), Accumulator::Percentile(other, _)) => digest.merge(*other),
            (own @ Accumulator::First(None), first @ Accumulator::First(_)) => *own = first,
            (own, Accumulator::Last(Some(value)) | Accumulator::Extreme(Some(value), ..)) => {
                own.add(value, comparer)?;
            }
            (
                own,
                Accumulator::Push(values)
                | Accumulator::Set(_, values)
                | Accumulator::FirstN(_, values)
                | Accumulator::Merge(MergedObjects { documents: values, .. }),
            ) => {
                for value in values {
                    own.add(value, comparer)?;
                }
            }
            (own, Accumulator::LastN(_, values)) => {
                for value in values {
                    own.add(value, comparer)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The group's result; missing when there was no value.
    pub fn finish(self) -> Result<Value<'static>, QueryError> {
        match self {
            Accumulator::Extreme(kept, ..) => Ok(kept.unwrap_or(Value::Null)),
            Accumulator::First(kept) | Accumulator::Last(kept) => Ok(kept.unwrap_or(Value::Missing)),
            Accumulator::Push(values) | Accumulator::Set(_, values) | Accumulator::FirstN(_, values) => {
                Value::array(values)
            }
            Accumulator::LastN(_, values) => Value::array(values.into()),
            Accumulator::Ordered(kept, shape) => shape.value(kept.into_values()),
            other => other.result(),
        }
    }

    /// The result so far.
    pub fn result(&self) -> Result<Value<'static>, QueryError> {
        Ok(match self {
            Accumulator::Sum(sum) => sum.total().value(),
            Accumulator::Average(_, 0) => Value::Null,
            Accumulator::Average(sum, count) => sum.average(*count).value(),
            Accumulator::Extreme(kept, ..) => kept.clone().unwrap_or(Value::Null),
            Accumulator::First(kept) | Accumulator::Last(kept) => kept.clone().unwrap_or(Value::Missing),
            Accumulator::Push(values) | Accumulator::Set(_, values) | Accumulator::FirstN(_, values) => {
                Value::array(values.clone())?
            }
            Accumulator::Merge(merged) => merged.result()?,
            Accumulator::StdDev(deviation, sample) => deviation.result(*sample),
            Accumulator::LastN(_, values) => Value::array(values.iter().cloned().collect())?,
            Accumulator::Ordered(kept, shape) => shape.value(kept.values().cloned().collect())?,
            Accumulator::Percentile(digest, percentiles) => match percentiles {
                Some(percentiles) => percentiles.value(digest.percentiles(percentiles.of()))?,
                None => Value::Null,
            },
            // Its functions are needed for that.
            Accumulator::Script(_) => Value::Missing,
        })
    }
}

/// The documents of `$mergeObjects`, which become one. They are merged when those that wait weigh as much as what is
/// merged: a group of many different fields copies each of them a few times, and not once for each document behind it.
#[derive(Debug, Default)]
pub struct MergedObjects {
    /// What is merged, and behind it what waits, all documents.
    pub(super) documents: Vec<Value<'static>>,
    waiting_bytes: usize,
    /// The most that was held, which is what has been told as growth.
    bytes_max: usize,
}

impl MergedObjects {
    /// These documents, merged or not.
    pub(super) fn of(documents: Vec<Value<'static>>) -> Self {
        let waiting_bytes = documents.iter().skip(1).map(Value::approximate_bytes).sum();
        Self {
            bytes_max: waiting_bytes + documents.first().map_or(0, Value::approximate_bytes),
            documents,
            waiting_bytes,
        }
    }

    /// Takes in a document; returns by how many bytes this has grown, roughly.
    pub(super) fn add(&mut self, value: Value<'_>) -> Result<usize, QueryError> {
        if value.is_nullish() {
            return Ok(0);
        }
        if value.as_document().is_none() {
            return failure(
                40400,
                format!(
                    "$mergeObjects requires object inputs, but input {} is of type {}",
                    value.render(),
                    value.type_name()
                ),
            );
        }
        let value = value.into_owned();
        let merged_bytes = self.documents.first().map(Value::approximate_bytes);
        self.waiting_bytes += merged_bytes.map_or(0, |_| value.approximate_bytes());
        let bytes = merged_bytes.map_or_else(|| value.approximate_bytes(), |merged| merged + self.waiting_bytes);
        self.documents.push(value);
        if merged_bytes.is_some_and(|merged| self.waiting_bytes >= merged) {
            self.documents = vec![self.result()?];
            self.waiting_bytes = 0;
        }
        let grown = bytes.saturating_sub(self.bytes_max);
        self.bytes_max += grown;
        Ok(grown)
    }

    /// The one document.
    pub(super) fn result(&self) -> Result<Value<'static>, QueryError> {
        match &*self.documents {
            [only] => Ok(only.clone()),
            documents => finished_document(merge_documents(documents.iter().filter_map(Value::as_document))?),
        }
    }
}

impl Shape {
    /// The result of the kept values, which are in rising order.
    pub(crate) fn value(self, mut values: Vec<Value<'static>>) -> Result<Value<'static>, QueryError> {
        match self {
            Shape::Single => Ok(values.pop().unwrap_or(Value::Null)),
            Shape::Rising => Value::array(values),
            Shape::Falling => {
                values.reverse();
                Value::array(values)
            }
        }
    }
}

fn replace(kept: &mut Option<Value<'static>>, value: Value<'_>) -> usize {
    let before = kept.as_ref().map_or(0, Value::approximate_bytes);
    let value = value.into_owned();
    let grown = value.approximate_bytes().saturating_sub(before);
    *kept = Some(value);
    grown
}

fn null_for_missing(value: Value<'_>) -> Value<'static> {
    if value.is_missing() {
        Value::Null
    } else {
        value.into_owned()
    }
}
