//! What a window holds, where documents leave it at the one end while others enter at the other.
//!
//! What leaves is subtracted from sums, as in MongoDB, to the last digit. Deviations and the like are kept as a queue
//! of two stacks: the back one has the partial result of all that came in, each item of the front one that of all up
//! to the stacks' border. There nothing is ever subtracted, so what has left leaves no rounding error behind; entering
//! and leaving cost a few merges each.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use bson::RawDocument;
use keys::KeySet;

use super::removable_sum::RemovableSum;
use crate::accumulators::{
    Accumulator, AccumulatorKind as Kind, AccumulatorSpec, Deviation, Percentiles, Shape, finite_or_infinite, rank,
};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::Evaluation;
use crate::value::number::Number;
use crate::value::{Comparer, Value};

/// Bookkeeping of one kept value, about.
const KEPT_BYTES: usize = 48;

/// What a window holds of its documents.
pub(super) trait WindowState: Send {
    /// A document enters at the end.
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError>;
    /// The first document leaves. Never called when documents only enter.
    fn remove(&mut self);
    /// The result over the documents inside.
    fn value(&self) -> Result<Value<'static>, QueryError>;
    /// Bytes held, about.
    fn bytes(&self) -> usize;
}

/// The state of an accumulator. `slides` says whether documents leave.
pub(super) fn state_of(spec: &std::sync::Arc<AccumulatorSpec>, slides: bool) -> Box<dyn WindowState> {
    let items = Items {
        spec: spec.clone(),
        sizes: VecDeque::new(),
        bytes: 0,
    };
    match spec.kind() {
        Kind::Percentile => Box::new(SortedState {
            percentiles: spec.percentiles().cloned(),
            spec: spec.clone(),
            arrived: VecDeque::new(),
            sorted: SortedNumbers::default(),
        }),
        _ if !slides => Box::new(Growing {
            state: spec.start(),
            spec: spec.clone(),
            bytes: 0,
        }),
        Kind::Sum | Kind::Avg => Box::new(SumState {
            spec: spec.clone(),
            arrived: VecDeque::new(),
            sum: RemovableSum::default(),
        }),
        Kind::StdDevPop => Box::new(Stacked::new(spec, DeviationPart::new(false))),
        Kind::StdDevSamp => Box::new(Stacked::new(spec, DeviationPart::new(true))),
        Kind::Min => Box::new(Stacked::new(spec, ExtremePart::new(spec, Ordering::Less))),
        Kind::Max => Box::new(Stacked::new(spec, ExtremePart::new(spec, Ordering::Greater))),
        Kind::AddToSet => Box::new(SetState {
            items,
            arrived: VecDeque::new(),
            values: BTreeMap::new(),
        }),
        Kind::MinN | Kind::MaxN | Kind::Top | Kind::TopN | Kind::Bottom | Kind::BottomN => Box::new(OrderedState {
            items,
            arrived: VecDeque::new(),
            values: BTreeMap::new(),
            arrivals: 0,
        }),
        _ => Box::new(QueueState {
            items,
            values: VecDeque::new(),
        }),
    }
}

/// A window that only grows: the accumulator of `$group`.
struct Growing {
    spec: std::sync::Arc<AccumulatorSpec>,
    state: Accumulator,
    bytes: usize,
}

impl WindowState for Growing {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let grown = self
            .spec
            .accumulate(&mut self.state, &mut Evaluation::new(document, context))?;
        self.bytes = self.bytes.saturating_add_signed(grown);
        Ok(())
    }

    fn remove(&mut self) {}

    fn value(&self) -> Result<Value<'static>, QueryError> {
        self.state.result()
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Partial results that join: `earlier.merge(later)`.
pub(super) trait Part: Clone + Send {
    fn merge(&mut self, later: &Self);
    fn bytes(&self) -> usize {
        size_of::<Self>()
    }
}

/// The queue of two stacks. The invariant: `front` is in reverse order of arrival, and each of its parts is that of all
/// documents from it to the border; `back_total` is that of `back`.
#[derive(Clone)]
pub(super) struct TwoStacks<P> {
    empty: P,
    front: Vec<P>,
    back: Vec<P>,
    back_total: P,
    bytes: usize,
}

impl<P: Part> TwoStacks<P> {
    pub(super) fn new(empty: P) -> Self {
        Self {
            back_total: empty.clone(),
            empty,
            front: Vec::new(),
            back: Vec::new(),
            bytes: 0,
        }
    }

    pub(super) fn push(&mut self, part: P) {
        self.back_total.merge(&part);
        self.bytes += part.bytes();
        self.back.push(part);
    }

    pub(super) fn pop(&mut self) {
        if self.front.is_empty() {
            let mut total: Option<P> = None;
            while let Some(mut part) = self.back.pop() {
                if let Some(later) = &total {
                    part.merge(later);
                }
                self.front.push(part.clone());
                total = Some(part);
            }
            self.back_total = self.empty.clone();
            self.bytes = self.front.iter().map(P::bytes).sum();
        }
        if let Some(part) = self.front.pop() {
            self.bytes -= part.bytes();
        }
    }

    pub(super) fn total(&self) -> P {
        let mut total = self.front.last().unwrap_or(&self.empty).clone();
        total.merge(&self.back_total);
        total
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// A part made of one value, and the result of a total.
trait ValuePart: Part {
    fn of(&self, value: Value<'_>) -> Self;
    fn result(&self) -> Value<'static>;
}

struct Stacked<P> {
    spec: std::sync::Arc<AccumulatorSpec>,
    stacks: TwoStacks<P>,
}

impl<P: ValuePart> Stacked<P> {
    fn new(spec: &std::sync::Arc<AccumulatorSpec>, empty: P) -> Self {
        Self {
            spec: spec.clone(),
            stacks: TwoStacks::new(empty),
        }
    }
}

impl<P: ValuePart> WindowState for Stacked<P> {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let value = self.spec.argument().evaluate_on(document, context)?;
        let part = self.stacks.empty.of(value);
        self.stacks.push(part);
        Ok(())
    }

    fn remove(&mut self) {
        self.stacks.pop();
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        Ok(self.stacks.total().result())
    }

    fn bytes(&self) -> usize {
        self.stacks.bytes()
    }
}

/// `$sum`, `$avg`.
struct SumState {
    spec: std::sync::Arc<AccumulatorSpec>,
    /// The numbers in order of arrival; none for what is no number.
    arrived: VecDeque<Option<Number>>,
    sum: RemovableSum,
}

impl WindowState for SumState {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let number = Number::of(&self.spec.argument().evaluate_on(document, context)?);
        if let Some(number) = number {
            self.sum.add(number);
        }
        self.arrived.push_back(number);
        Ok(())
    }

    fn remove(&mut self) {
        if let Some(Some(number)) = self.arrived.pop_front() {
            self.sum.remove(number);
        }
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        Ok(match self.spec.kind() {
            Kind::Avg => self.sum.average().map_or(Value::Null, Number::value),
            _ => self.sum.total().value(),
        })
    }

    fn bytes(&self) -> usize {
        self.arrived.len() * size_of::<Option<Number>>()
    }
}

/// A window that slides answers null as long as NaN or an infinity is in it, where one that grows answers NaN.
#[derive(Clone)]
struct DeviationPart {
    deviation: Deviation,
    has_non_finite: bool,
    sample: bool,
}

impl DeviationPart {
    fn new(sample: bool) -> Self {
        Self {
            deviation: Deviation::default(),
            has_non_finite: false,
            sample,
        }
    }
}

impl Part for DeviationPart {
    fn merge(&mut self, later: &Self) {
        self.deviation.merge(later.deviation);
        self.has_non_finite |= later.has_non_finite;
    }
}

impl ValuePart for DeviationPart {
    fn of(&self, value: Value<'_>) -> Self {
        let mut part = Self::new(self.sample);
        match Number::of(&value).map(Number::to_f64) {
            Some(x) if x.is_finite() => part.deviation.add(x),
            Some(_) => part.has_non_finite = true,
            None => {}
        }
        part
    }

    fn result(&self) -> Value<'static> {
        match self.has_non_finite {
            true => Value::Null,
            // An integer, where a window that only grows has a double.
            false if !self.sample && self.deviation.count() == 1 => Value::Int32(0),
            false => self.deviation.result(self.sample),
        }
    }
}

/// Of equal values the least is the first that came, and the greatest the last.
#[derive(Clone)]
struct ExtremePart {
    value: Option<Value<'static>>,
    better: Ordering,
    comparer: Comparer,
}

impl ExtremePart {
    fn new(spec: &AccumulatorSpec, better: Ordering) -> Self {
        Self {
            value: None,
            better,
            comparer: spec.comparer().clone(),
        }
    }
}

impl Part for ExtremePart {
    fn merge(&mut self, later: &Self) {
        let Some(other) = &later.value else { return };
        let replaces = match &self.value {
            None => true,
            Some(own) => match self.comparer.compare(other, own) {
                Ordering::Equal => self.better == Ordering::Greater,
                order => order == self.better,
            },
        };
        if replaces {
            self.value = Some(other.clone());
        }
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.value.as_ref().map_or(0, Value::approximate_bytes)
    }
}

impl ValuePart for ExtremePart {
    fn of(&self, value: Value<'_>) -> Self {
        Self {
            value: (!value.is_nullish()).then(|| value.into_owned()),
            better: self.better,
            comparer: self.comparer.clone(),
        }
    }

    fn result(&self) -> Value<'static> {
        self.value.clone().unwrap_or(Value::Null)
    }
}

/// The spec of a state that keeps values, and how large each is.
struct Items {
    spec: std::sync::Arc<AccumulatorSpec>,
    sizes: VecDeque<usize>,
    bytes: usize,
}

impl Items {
    fn evaluate(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<Value<'static>, QueryError> {
        Ok(self.spec.argument().evaluate_on(document, context)?.into_owned())
    }

    fn grow(&mut self, bytes: usize) {
        self.sizes.push_back(bytes + KEPT_BYTES);
        self.bytes += bytes + KEPT_BYTES;
    }

    fn shrink(&mut self) {
        self.bytes -= self.sizes.pop_front().unwrap_or(0);
    }
}

/// `$push`, `$first`, `$last`, `$firstN`, `$lastN`.
struct QueueState {
    items: Items,
    values: VecDeque<Value<'static>>,
}

impl WindowState for QueueState {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let value = self.items.evaluate(document, context)?;
        self.items.grow(value.approximate_bytes());
        self.values.push_back(value);
        Ok(())
    }

    fn remove(&mut self) {
        self.values.pop_front();
        self.items.shrink();
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        let n = self.items.spec.n();
        let values = self.values.iter().cloned();
        match self.items.spec.kind() {
            Kind::First => Ok(self.values.front().cloned().unwrap_or(Value::Null)),
            Kind::Last => Ok(self.values.back().cloned().unwrap_or(Value::Null)),
            // A missing value is null here, and not there in `$push`.
            Kind::FirstN => Value::array(values.take(n).collect()),
            Kind::LastN => Value::array(values.skip(self.values.len().saturating_sub(n)).collect()),
            _ => Value::array(values.filter(|value| !value.is_missing()).collect()),
        }
    }

    fn bytes(&self) -> usize {
        self.items.bytes
    }
}

/// `$addToSet`: of equal values the first that is still there.
struct SetState {
    items: Items,
    /// The keys in order of arrival; none for what is missing.
    arrived: VecDeque<Option<Vec<u8>>>,
    values: BTreeMap<Vec<u8>, VecDeque<Value<'static>>>,
}

impl WindowState for SetState {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let value = self.items.evaluate(document, context)?;
        if value.is_missing() {
            self.arrived.push_back(None);
            self.items.grow(0);
            return Ok(());
        }
        let mut key = Vec::new();
        self.items.spec.comparer().append_key(&value, &mut key);
        self.items.grow(2 * key.len() + value.approximate_bytes());
        self.values.entry(key.clone()).or_default().push_back(value);
        self.arrived.push_back(Some(key));
        Ok(())
    }

    fn remove(&mut self) {
        self.items.shrink();
        let Some(Some(key)) = self.arrived.pop_front() else {
            return;
        };
        if let Some(equal) = self.values.get_mut(&key) {
            equal.pop_front();
            if equal.is_empty() {
                self.values.remove(&key);
            }
        }
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        Value::array(self.values.values().filter_map(VecDeque::front).cloned().collect())
    }

    fn bytes(&self) -> usize {
        self.items.bytes
    }
}

/// A key and when it came.
type Place = (Vec<u8>, u64);

/// `$minN`, `$maxN`, `$top`, `$bottom` and their `N` forms. Ties are in order of arrival.
struct OrderedState {
    items: Items,
    arrived: VecDeque<Option<Place>>,
    values: BTreeMap<Place, Value<'static>>,
    arrivals: u64,
}

impl WindowState for OrderedState {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let value = self.items.evaluate(document, context)?;
        let mut key = Vec::new();
        let value = match self.items.spec.sort() {
            Some(sort) => {
                sort.append_key(document, context, &mut KeySet::new(), &mut key)?;
                if value.is_missing() { Value::Null } else { value }
            }
            None if value.is_nullish() => {
                self.arrived.push_back(None);
                self.items.grow(0);
                return Ok(());
            }
            None => {
                self.items.spec.comparer().append_key(&value, &mut key);
                value
            }
        };
        self.items.grow(2 * key.len() + value.approximate_bytes());
        let place = (key, self.arrivals);
        self.arrivals += 1;
        self.arrived.push_back(Some(place.clone()));
        self.values.insert(place, value);
        Ok(())
    }

    fn remove(&mut self) {
        self.items.shrink();
        if let Some(Some(place)) = self.arrived.pop_front() {
            self.values.remove(&place);
        }
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        let (n, values) = (self.items.spec.n(), self.values.values());
        // Never through all of them: the window may be large, and n small.
        let least = || values.clone().take(n).cloned().collect();
        let greatest = || values.clone().rev().take(n).cloned().collect::<Vec<_>>();
        match self.items.spec.kind() {
            Kind::MinN | Kind::TopN => Shape::Rising.value(least()),
            Kind::Top => Shape::Single.value(least()),
            Kind::MaxN => Value::array(greatest()),
            Kind::BottomN => Shape::Falling.value(greatest()),
            _ => Shape::Single.value(greatest()),
        }
    }

    fn bytes(&self) -> usize {
        self.items.bytes
    }
}

/// `$percentile`, `$median`: exact, of all numbers in order.
struct SortedState {
    spec: std::sync::Arc<AccumulatorSpec>,
    percentiles: Option<Percentiles>,
    arrived: VecDeque<Option<f64>>,
    sorted: SortedNumbers,
}

impl WindowState for SortedState {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let number = finite_or_infinite(&self.spec.argument().evaluate_on(document, context)?);
        number.iter().for_each(|x| self.sorted.insert(*x));
        self.arrived.push_back(number);
        Ok(())
    }

    fn remove(&mut self) {
        if let Some(Some(x)) = self.arrived.pop_front() {
            self.sorted.remove(x);
        }
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        let Some(percentiles) = &self.percentiles else {
            return Ok(Value::Null);
        };
        let n = self.sorted.len;
        let at = |p: &f64| self.sorted.get(rank(*p, n));
        let found = (n > 0).then(|| percentiles.of().iter().map(at).collect());
        percentiles.value(found)
    }

    fn bytes(&self) -> usize {
        self.arrived.len() * size_of::<Option<f64>>() + self.sorted.len * size_of::<f64>()
    }
}

/// Numbers in order, in runs that are short enough to insert into.
#[derive(Default)]
struct SortedNumbers {
    runs: Vec<Vec<f64>>,
    len: usize,
}

/// Numbers of one run; a full one is cut in two.
const RUN_MAX: usize = 1024;

impl SortedNumbers {
    /// The run that `x` belongs to: the first whose last number is not less.
    fn run_of(&self, x: f64) -> usize {
        let before = |run: &Vec<f64>| run.last().is_some_and(|last| last.total_cmp(&x).is_lt());
        self.runs.partition_point(before)
    }

    fn insert(&mut self, x: f64) {
        self.len += 1;
        let place = self.run_of(x).min(self.runs.len().saturating_sub(1));
        let Some(run) = self.runs.get_mut(place) else {
            self.runs.push(vec![x]);
            return;
        };
        let at = run.partition_point(|other| other.total_cmp(&x).is_lt());
        run.insert(at, x);
        if run.len() >= RUN_MAX {
            let later = run.split_off(RUN_MAX / 2);
            self.runs.insert(place + 1, later);
        }
    }

    fn remove(&mut self, x: f64) {
        let place = self.run_of(x);
        let Some(run) = self.runs.get_mut(place) else { return };
        let at = run.partition_point(|other| other.total_cmp(&x).is_lt());
        if at < run.len() {
            run.remove(at);
            self.len -= 1;
        }
        if run.is_empty() {
            self.runs.remove(place);
        }
    }

    fn get(&self, mut index: usize) -> f64 {
        for run in &self.runs {
            match run.get(index) {
                Some(x) => return *x,
                None => index -= run.len(),
            }
        }
        f64::NAN
    }
}
