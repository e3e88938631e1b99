//! Window functions that have no window: ranks, `$shift`, `$expMovingAvg`, `$linearFill` and `$locf`.

use std::sync::Arc;

use keys::KeySet;
use wire::ErrorCode;

use super::super::{StageContext, failure};
use super::calculus::divide;
use super::partition::Partitions;
use super::{Runner, SortBy};
use crate::error::QueryError;
use crate::expression::Expression;
use crate::value::number::Number;
use crate::value::{Comparer, SharedDocument, Value};

/// How documents of the same sort key are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ranking {
    /// `$rank`: alike; the next has its own number.
    Rank,
    /// `$denseRank`: alike; the next has the next number.
    Dense,
    /// `$documentNumber`: each its own.
    Number,
}

pub(super) struct RankRunner {
    pub(super) ranking: Ranking,
    pub(super) sort: Arc<SortBy>,
    pub(super) last_key: Vec<u8>,
    pub(super) rank: i64,
}

/// As an int32 where it fits.
fn count_value(n: i64) -> Value<'static> {
    i32::try_from(n).map_or(Value::Int64(n), Value::Int32)
}

fn own_document(
    partitions: &mut Partitions,
    current: usize,
    context: &mut StageContext<'_>,
) -> Result<SharedDocument, QueryError> {
    match partitions.document(current, context)? {
        Some(document) => Ok(document),
        None => failure(
            ErrorCode::InternalError.0,
            "a window function runs behind its partition's end",
        ),
    }
}

impl Runner for RankRunner {
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let place = i64::try_from(current).unwrap_or(i64::MAX).saturating_add(1);
        if self.ranking == Ranking::Number {
            return Ok(count_value(place));
        }
        let document = own_document(partitions, current, context)?;
        let mut key = Vec::with_capacity(self.last_key.len());
        self.sort
            .append_key(&document, context.evaluation, &mut KeySet::new(), &mut key)?;
        if current == 0 || key != self.last_key {
            self.rank = match self.ranking {
                Ranking::Dense => self.rank + 1,
                Ranking::Rank | Ranking::Number => place,
            };
            self.last_key = key;
        }
        Ok(count_value(self.rank))
    }

    fn needed_from(&self, next: usize) -> usize {
        next
    }

    fn bytes(&self) -> usize {
        self.last_key.len()
    }
}

/// `$shift`.
#[derive(Debug)]
pub(super) struct Shift {
    pub(super) output: Expression,
    pub(super) by: i64,
    pub(super) default: Value<'static>,
}

pub(super) struct ShiftRunner(pub(super) Arc<Shift>);

impl ShiftRunner {
    /// The number of the document that `current` looks at; `None` before the first.
    fn target(&self, current: usize) -> Option<usize> {
        let current = i64::try_from(current).unwrap_or(i64::MAX);
        usize::try_from(current.saturating_add(self.0.by)).ok()
    }
}

impl Runner for ShiftRunner {
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let document = match self.target(current) {
            Some(number) => partitions.document(number, context)?,
            None => None,
        };
        let value = match &document {
            Some(document) => self.0.output.evaluate_on(document, context.evaluation)?.into_owned(),
            None => Value::Missing,
        };
        Ok(if value.is_missing() {
            self.0.default.clone()
        } else {
            value
        })
    }

    fn needed_from(&self, next: usize) -> usize {
        self.target(next).unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// `$expMovingAvg`: `current * alpha + last * (1 - alpha)`.
#[derive(Debug)]
pub(super) struct MovingAverage {
    pub(super) input: Expression,
    pub(super) alpha: Number,
}

pub(super) struct MovingRunner {
    pub(super) spec: Arc<MovingAverage>,
    pub(super) last: Option<Number>,
}

impl Runner for MovingRunner {
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let document = own_document(partitions, current, context)?;
        if let Some(number) = Number::of(&self.spec.input.evaluate_on(&document, context.evaluation)?) {
            self.last = Some(match self.last {
                None => number,
                Some(last) => self.spec.average(number, last),
            });
        }
        Ok(self.last.map_or(Value::Null, Number::value))
    }

    fn needed_from(&self, next: usize) -> usize {
        next
    }

    fn bytes(&self) -> usize {
        0
    }
}

impl MovingAverage {
    fn average(&self, number: Number, last: Number) -> Number {
        let is_decimal = matches!(number, Number::Decimal(_)) || matches!(last, Number::Decimal(_));
        let alpha = if is_decimal {
            self.alpha
        } else {
            Number::Double(self.alpha.to_f64())
        };
        let rest = Number::Int32(1).minus(alpha);
        number.times(alpha).plus(last.times(rest))
    }
}

/// `$locf`: the last value that was not null.
pub(super) struct LocfRunner {
    pub(super) input: Arc<Expression>,
    pub(super) last: Value<'static>,
}

impl Runner for LocfRunner {
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let document = own_document(partitions, current, context)?;
        let value = self.input.evaluate_on(&document, context.evaluation)?;
        if !value.is_nullish() {
            self.last = value.into_owned();
        }
        Ok(self.last.clone())
    }

    fn needed_from(&self, next: usize) -> usize {
        next
    }

    fn bytes(&self) -> usize {
        self.last.approximate_bytes()
    }
}

/// `$linearFill`: nulls get the value on the line between the values around them.
#[derive(Debug)]
pub(super) struct LinearFill {
    pub(super) input: Expression,
    pub(super) sort: Expression,
    pub(super) comparer: Comparer,
}

/// A place that has a value.
#[derive(Clone, Debug)]
struct Known {
    x: Number,
    y: Number,
    number: usize,
}

pub(super) struct LinearRunner {
    spec: Arc<LinearFill>,
    left: Option<Known>,
    right: Option<Known>,
    /// Documents up to this number have been looked at; none behind it has a value when `right` is none.
    seen: usize,
    /// The sort value of the last document looked at.
    last_place: Option<Value<'static>>,
}

impl LinearRunner {
    pub(super) fn new(spec: Arc<LinearFill>) -> Self {
        Self {
            spec,
            left: None,
            right: None,
            seen: 0,
            last_place: None,
        }
    }

    /// Looks at the next document: a value, when it has one.
    fn look(&mut self, document: &SharedDocument, context: &StageContext<'_>) -> Result<Option<Known>, QueryError> {
        let place = self.spec.sort.evaluate_on(document, context.evaluation)?.into_owned();
        let x = match (&place, &self.last_place) {
            (Value::Date(ms), None | Some(Value::Date(_))) => Some(Number::Int64(*ms)),
            (Value::Date(_), Some(_)) | (_, Some(Value::Date(_))) => None,
            (place, _) => Number::of(place),
        };
        let Some(x) = x else {
            return failure(
                ErrorCode::TypeMismatch.0,
                format!(
                    "The sortBy field for $linearFill must be numeric or a date, the same for all, but is {}",
                    place.type_name()
                ),
            );
        };
        if let Some(last) = &self.last_place
            && self.spec.comparer.equal(&place, last)
        {
            return failure(6050106, "There can be no repeated values in the sort field");
        }
        self.last_place = Some(place);
        let number = self.seen;
        self.seen += 1;
        match self.spec.input.evaluate_on(document, context.evaluation)? {
            nullish if nullish.is_nullish() => Ok(None),
            value => match Number::of(&value) {
                Some(y) => Ok(Some(Known { x, y, number })),
                None => failure(
                    ErrorCode::TypeMismatch.0,
                    format!(
                        "Value to be filled must be numeric or nullish, but found type {}",
                        value.type_name()
                    ),
                ),
            },
        }
    }
}

impl Runner for LinearRunner {
    fn next(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        if self.right.as_ref().is_some_and(|right| right.number <= current) {
            self.left = self.right.take();
        }
        // To the next value: at `current` itself, or behind it.
        let passed = self.left.as_ref().is_some_and(|left| left.number == current);
        while self.right.is_none() && !passed {
            let Some(document) = partitions.document(self.seen, context)? else {
                break;
            };
            context.evaluation.step()?;
            self.right = self.look(&document, context)?;
        }
        if let Some(known) = [&self.left, &self.right]
            .into_iter()
            .flatten()
            .find(|known| known.number == current)
        {
            return Ok(known.y.value());
        }
        let (Some(left), Some(right)) = (&self.left, &self.right) else {
            return Ok(Value::Null);
        };
        let document = own_document(partitions, current, context)?;
        let x = match self.spec.sort.evaluate_on(&document, context.evaluation)? {
            Value::Date(ms) => Number::Int64(ms),
            value => Number::of(&value).unwrap_or(left.x),
        };
        let slope = divide(right.y.minus(left.y), right.x.minus(left.x));
        Ok(left.y.plus(x.minus(left.x).times(slope)).value())
    }

    fn needed_from(&self, next: usize) -> usize {
        next
    }

    fn bytes(&self) -> usize {
        self.last_place.as_ref().map_or(0, Value::approximate_bytes)
    }
}
