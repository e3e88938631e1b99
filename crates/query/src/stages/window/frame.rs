//! Which documents of its partition a document's window has: bounds as written, and as numbers of documents.
//!
//! Both ends of a window only ever move forward as the current document does, in a partition sorted as the bounds ask
//! for. A window by range keeps the sort values from its lower end to as far as it has looked.

use std::collections::VecDeque;

use bson::RawBsonRef;
use wire::ErrorCode;

use super::super::{StageContext, failure};
use super::partition::Partitions;
use super::{SortBy, parse_failure};
use crate::error::QueryError;
use crate::expression::{Expression, ExpressionContext, TimeUnit};
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{Comparer, Value};

/// One end of a window.
#[derive(Clone, Debug)]
enum Bound<T> {
    Unbounded,
    /// The current document itself, whichever others have its sort value.
    Current,
    Offset(T),
}

/// A parsed `window`.
#[derive(Clone, Debug)]
pub(super) enum Window {
    Documents(Bounds<i64>),
    Range {
        bounds: Bounds<Number>,
        unit: Option<TimeUnit>,
    },
}

/// Lower and upper end.
#[derive(Clone, Debug)]
pub(super) struct Bounds<T> {
    lower: Bound<T>,
    upper: Bound<T>,
}

impl<T> Bounds<T> {
    const WHOLE: Self = Self {
        lower: Bound::Unbounded,
        upper: Bound::Unbounded,
    };
}

impl Window {
    /// The whole partition.
    pub(super) const WHOLE: Self = Window::Documents(Bounds::WHOLE);

    /// Whether documents leave it as the current one moves on.
    pub(super) fn slides(&self) -> bool {
        match self {
            Window::Documents(bounds) => !matches!(bounds.lower, Bound::Unbounded),
            Window::Range { bounds, .. } => !matches!(bounds.lower, Bound::Unbounded),
        }
    }

    /// Parses the value of `window`.
    pub(super) fn parse(
        raw: RawBsonRef<'_>,
        sort: Option<&SortBy>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let RawBsonRef::Document(document) = raw else {
            return parse_failure("'window' field must be an object");
        };
        let (mut documents, mut range, mut unit) = (None, None, None);
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match name.as_str() {
                "documents" => documents = Some(raw),
                "range" => range = Some(raw),
                "unit" => unit = Some(raw),
                _ => {
                    return parse_failure(
                        "'window' field can only contain 'documents' as the only argument or 'range' with an optional 'unit' field",
                    );
                }
            }
        }
        match (documents, range, unit) {
            (None, None, None) => Ok(Self::WHOLE),
            (Some(_), Some(_), _) => {
                parse_failure("Window bounds can specify either 'documents' or 'range', not both.")
            }
            (_, None, Some(_)) => parse_failure("Window bounds can only specify 'unit' with range-based bounds."),
            (Some(documents), None, None) => Self::parse_documents(documents, sort, context),
            (None, Some(range), unit) => Self::parse_range(range, unit, sort, context),
        }
    }

    fn parse_documents(
        raw: RawBsonRef<'_>,
        sort: Option<&SortBy>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let bounds = parse_bounds(
            raw,
            context,
            &mut |value| match Number::of(value).and_then(Number::to_exact_i64) {
                Some(n) => Ok(n),
                None => parse_failure("Numeric document-based bounds must be an integer"),
            },
        )?;
        check_order(&bounds, 0, i64::cmp)?;
        let is_whole = matches!((&bounds.lower, &bounds.upper), (Bound::Unbounded, Bound::Unbounded));
        if sort.is_none() && !is_whole {
            return failure(5339901, "Document-based bounds require a sortBy");
        }
        Ok(Window::Documents(bounds))
    }

    fn parse_range(
        raw: RawBsonRef<'_>,
        unit: Option<RawBsonRef<'_>>,
        sort: Option<&SortBy>,
        context: &ExpressionContext,
    ) -> Result<Self, QueryError> {
        let unit = match unit {
            None => None,
            Some(RawBsonRef::String(name)) => Some(TimeUnit::parse(name)?),
            Some(_) => return parse_failure("'unit' must be a string"),
        };
        let bounds = parse_bounds(raw, context, &mut |value| match Number::of(value) {
            Some(n) if unit.is_some() && n.to_exact_i64().is_none() => {
                parse_failure("With 'unit', range-based bounds must be an integer")
            }
            Some(n) => Ok(n),
            None => parse_failure("Range-based bounds expression must be a number"),
        })?;
        let comparer = Comparer::default();
        check_order(&bounds, Number::Int32(0), |a, b| {
            comparer.compare(&a.value(), &b.value())
        })?;
        let Some(sort) = sort.filter(|sort| sort.single().is_some()) else {
            return failure(5339902, "Range-based bounds require sortBy a single field");
        };
        if sort.is_descending() {
            return failure(8947401, "Range-based bounds require a non-descending sortBy");
        }
        Ok(Window::Range { bounds, unit })
    }
}

/// `[lower, upper]`, of which each is a keyword or a constant expression.
fn parse_bounds<T>(
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
    offset: &mut dyn FnMut(&Value<'static>) -> Result<T, QueryError>,
) -> Result<Bounds<T>, QueryError> {
    let RawBsonRef::Array(array) = raw else {
        return parse_failure("Window bounds must be a 2-element array");
    };
    let items = array
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Malformed)?;
    let [lower, upper] = items[..] else {
        return parse_failure("Window bounds must be a 2-element array");
    };
    let mut bound = |raw: RawBsonRef<'_>| match raw {
        RawBsonRef::String("unbounded") => Ok(Bound::Unbounded),
        RawBsonRef::String("current") => Ok(Bound::Current),
        RawBsonRef::String(text) if !text.starts_with('$') => {
            parse_failure("Window bounds must be 'unbounded', 'current', or a number.")
        }
        raw => match Expression::parse(raw, context)?.as_constant() {
            Some(value) => Ok(Bound::Offset(offset(value)?)),
            None => parse_failure("Window bounds expression must be a constant"),
        },
    };
    Ok(Bounds {
        lower: bound(lower)?,
        upper: bound(upper)?,
    })
}

fn check_order<T>(
    bounds: &Bounds<T>,
    zero: T,
    compare: impl Fn(&T, &T) -> std::cmp::Ordering,
) -> Result<(), QueryError> {
    let place = |bound| match bound {
        &Bound::Unbounded => None,
        Bound::Current => Some(&zero),
        Bound::Offset(offset) => Some(offset),
    };
    match (place(&bounds.lower), place(&bounds.upper)) {
        (Some(lower), Some(upper)) if compare(lower, upper).is_gt() => {
            failure(5339900, "Lower bound must not exceed upper bound")
        }
        _ => Ok(()),
    }
}

/// The window of one document after the other.
pub(super) struct Frame {
    window: Window,
    sort: Option<Expression>,
    comparer: Comparer,
    low: usize,
    high: usize,
    /// Sort values of the documents from number `first_value`.
    values: VecDeque<Value<'static>>,
    first_value: usize,
    bytes: usize,
}

impl Frame {
    pub(super) fn new(window: Window, sort: Option<&SortBy>, comparer: &Comparer) -> Self {
        Self {
            window,
            sort: sort.and_then(SortBy::expression),
            comparer: comparer.clone(),
            low: 0,
            high: 0,
            values: VecDeque::new(),
            first_value: 0,
            bytes: 0,
        }
    }

    /// The first document of `current`'s window, and the first behind it.
    pub(super) fn advance(
        &mut self,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<(usize, usize), QueryError> {
        match self.window.clone() {
            Window::Documents(bounds) => self.by_documents(&bounds, partitions, current, context)?,
            Window::Range { bounds, unit } => self.by_range(&bounds, unit, partitions, current, context)?,
        }
        Ok((self.low, self.high))
    }

    /// The first document that it will still ask for.
    pub(super) fn needed_from(&self) -> usize {
        match self.window {
            Window::Documents(_) => usize::MAX,
            Window::Range { .. } => self.first_value + self.values.len(),
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn by_documents(
        &mut self,
        bounds: &Bounds<i64>,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<(), QueryError> {
        let at = |offset: i64| {
            let number = i64::try_from(current).unwrap_or(i64::MAX).saturating_add(offset);
            usize::try_from(number).unwrap_or(0)
        };
        let end = match bounds.upper {
            Bound::Unbounded => usize::MAX,
            Bound::Current => current + 1,
            Bound::Offset(offset) => at(offset.saturating_add(1)),
        };
        self.high = end.min(partitions.read_to(end, context)?);
        self.low = match bounds.lower {
            Bound::Unbounded => 0,
            Bound::Current => current,
            Bound::Offset(offset) => at(offset),
        }
        .min(self.high);
        Ok(())
    }

    fn by_range(
        &mut self,
        bounds: &Bounds<Number>,
        unit: Option<TimeUnit>,
        partitions: &mut Partitions,
        current: usize,
        context: &mut StageContext<'_>,
    ) -> Result<(), QueryError> {
        // Nobody looks back behind the current document and the ends that are compared with.
        let low = match bounds.lower {
            Bound::Offset(_) => self.low,
            Bound::Unbounded | Bound::Current => current,
        };
        let done = low.min(self.high).min(current);
        while self.first_value < done {
            let Some(value) = self.values.pop_front() else { break };
            self.bytes -= value.approximate_bytes();
            self.first_value += 1;
        }
        let Some(own) = self.value(current, unit, partitions, context)? else {
            return Ok(());
        };
        let limit = |offset: &Number| offset_value(&own, *offset, unit);
        match &bounds.lower {
            Bound::Unbounded => {}
            Bound::Current => self.low = current,
            Bound::Offset(offset) => {
                let limit = limit(offset)?;
                while let Some(value) = self.value(self.low, unit, partitions, context)?
                    && self.comparer.compare(&value, &limit).is_lt()
                {
                    self.low += 1;
                }
            }
        }
        match &bounds.upper {
            Bound::Unbounded => {
                while self.value(self.high, unit, partitions, context)?.is_some() {
                    self.high += 1;
                }
            }
            Bound::Current => self.high = current + 1,
            Bound::Offset(offset) => {
                let limit = limit(offset)?;
                self.high = self.high.max(self.low);
                while let Some(value) = self.value(self.high, unit, partitions, context)?
                    && self.comparer.compare(&value, &limit).is_le()
                {
                    self.high += 1;
                }
            }
        }
        self.high = self.high.max(self.low);
        Ok(())
    }

    /// The sort value of a document, which must have the type that the bounds ask for.
    fn value(
        &mut self,
        number: usize,
        unit: Option<TimeUnit>,
        partitions: &mut Partitions,
        context: &mut StageContext<'_>,
    ) -> Result<Option<Value<'static>>, QueryError> {
        while self.first_value + self.values.len() <= number {
            let next = self.first_value + self.values.len();
            let Some(document) = partitions.document(next, context)? else {
                return Ok(None);
            };
            let value = match &self.sort {
                Some(sort) => sort.evaluate_on(&document, context.evaluation)?.into_owned(),
                None => Value::Missing,
            };
            check_type(&value, unit)?;
            self.bytes += value.approximate_bytes();
            self.values.push_back(value);
        }
        debug_assert!(
            number >= self.first_value,
            "the value of document {number} is forgotten"
        );
        Ok(self.values.get(number - self.first_value).cloned())
    }
}

fn check_type(value: &Value<'_>, unit: Option<TimeUnit>) -> Result<(), QueryError> {
    match (value, unit) {
        (Value::Date(_), Some(_)) => Ok(()),
        (_, Some(_)) => failure(
            5429513,
            format!(
                "Invalid range: Expected the sortBy field to be a Date, but it was {}",
                value.type_name()
            ),
        ),
        (value, None) if value.is_number() => Ok(()),
        (_, None) => failure(
            5429414,
            format!(
                "Invalid range: Expected the sortBy field to be a number, but it was {}",
                value.type_name()
            ),
        ),
    }
}

/// A sort value moved by the offset of a bound.
fn offset_value(value: &Value<'_>, offset: Number, unit: Option<TimeUnit>) -> Result<Value<'static>, QueryError> {
    let moved = match (value, unit) {
        (Value::Date(date), Some(unit)) => offset
            .to_exact_i64()
            .and_then(|amount| unit.add(*date, amount))
            .map(Value::Date),
        _ => Number::of(value).map(|number| number.plus(offset).value()),
    };
    match moved {
        Some(moved) => Ok(moved),
        None => failure(ErrorCode::Overflow.0, "a window's bound lies beyond all dates"),
    }
}
