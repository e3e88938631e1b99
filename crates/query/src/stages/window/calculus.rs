//! `$derivative`, `$integral`, `$covariancePop` and `$covarianceSamp`: functions of two numbers of each document.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::RawDocument;

use super::super::failure;
use super::removable_sum::RemovableSum;
use super::sliding::{Part, TwoStacks, WindowState};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, TimeUnit};
use crate::value::Value;
use crate::value::number::Number;
use keys::Decimal;

/// The quotient: a decimal where one of the two is, else a double.
pub(super) fn divide(a: Number, b: Number) -> Number {
    match (a, b) {
        (Number::Decimal(_), _) | (_, Number::Decimal(_)) => Number::Decimal(a.to_decimal() / b.to_decimal()),
        _ => Number::Double(a.to_f64() / b.to_f64()),
    }
}

/// What `$derivative` and `$integral` are taken of.
#[derive(Debug)]
pub(super) struct Curve {
    /// The height.
    pub(super) input: Expression,
    /// The place: what the documents are sorted by.
    pub(super) sort: Expression,
    /// The unit of places that are dates.
    pub(super) unit: Option<TimeUnit>,
}

#[derive(Clone)]
struct Point {
    x: Value<'static>,
    y: Value<'static>,
}

impl Curve {
    fn point(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<Point, QueryError> {
        Ok(Point {
            x: self.sort.evaluate_on(document, context)?.into_owned(),
            y: self.input.evaluate_on(document, context)?.into_owned(),
        })
    }

    /// A place as a number, dates in milliseconds. Dates need a unit, and numbers must not have one. The codes are
    /// those of a unit without a date, a date without a unit, and what is neither date nor number.
    fn place(&self, name: &str, x: &Value<'_>, codes: [i32; 3]) -> Result<Number, QueryError> {
        let (code, expected) = match (x, self.unit, Number::of(x)) {
            (Value::Date(ms), Some(_), _) => return Ok(Number::Int64(*ms)),
            (_, Some(_), _) => (codes[0], "with 'unit' expects the sortBy field to be a Date"),
            (_, None, Some(number)) => return Ok(number),
            (Value::Date(_), None, _) => (codes[1], "(with no 'unit') expects the sortBy field to be numeric"),
            _ => (codes[2], "(with no 'unit') expects the sortBy field to be numeric"),
        };
        failure(code, format!("{name} {expected}"))
    }

    /// Milliseconds of the unit.
    fn unit_ms(&self) -> Option<Number> {
        self.unit.and_then(TimeUnit::fixed_ms).map(Number::Int64)
    }
}

/// `$derivative`: the slope from the first to the last point.
pub(super) struct Derivative {
    curve: Arc<Curve>,
    points: VecDeque<(Point, usize)>,
    bytes: usize,
}

impl Derivative {
    pub(super) fn new(curve: Arc<Curve>) -> Self {
        Self {
            curve,
            points: VecDeque::new(),
            bytes: 0,
        }
    }
}

impl WindowState for Derivative {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let point = self.curve.point(document, context)?;
        let bytes = point.x.approximate_bytes() + point.y.approximate_bytes();
        self.bytes += bytes;
        self.points.push_back((point, bytes));
        Ok(())
    }

    fn remove(&mut self) {
        if let Some((_, bytes)) = self.points.pop_front() {
            self.bytes -= bytes;
        }
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        let (Some((first, _)), Some((last, _))) = (self.points.front(), self.points.back()) else {
            return Ok(Value::Null);
        };
        // One point is both ends, and its types count as well.
        let place = |x| self.curve.place("$derivative", x, [5624900, 5624901, 5624902]);
        let run = place(&last.x)?.minus(place(&first.x)?);
        let rise = rise(&first.y, &last.y)?;
        if run.is_zero() {
            return Ok(Value::Null);
        }
        let slope = divide(rise, run);
        Ok(match self.curve.unit_ms() {
            Some(ms) => slope.times(ms),
            None => slope,
        }
        .value())
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}

/// From one height to another: of numbers, or of dates in milliseconds.
fn rise(first: &Value<'_>, last: &Value<'_>) -> Result<Number, QueryError> {
    match (first, last, Number::of(first), Number::of(last)) {
        (Value::Date(y1), Value::Date(y2), ..) => match y2.checked_sub(*y1) {
            Some(ms) => Ok(Number::Int64(ms)),
            None => failure(wire::ErrorCode::Overflow.0, "date overflow"),
        },
        (.., Some(y1), Some(y2)) => Ok(y2.minus(y1)),
        _ if first.is_nullish() || last.is_nullish() => {
            failure(5624903, "$derivative expects its input to be numeric, found null")
        }
        _ => {
            let wrong = if last.is_number() { first } else { last };
            failure(
                wire::ErrorCode::TypeMismatch.0,
                format!("$derivative expects numbers, found {}", wrong.type_name()),
            )
        }
    }
}

/// `$integral`: the trapezoids between neighbouring points. The invariant: there is one trapezoid less than points,
/// and none when there are none.
pub(super) struct Integral {
    curve: Arc<Curve>,
    /// How many points there are, and the last of them.
    points: usize,
    last: (Number, Number),
    trapezoids: VecDeque<Number>,
    sum: RemovableSum,
}

/// The code of a point of `$integral` that is none: its height is no number, its place neither number nor date.
const NOT_TO_INTEGRATE: i32 = 5423900;

impl Integral {
    pub(super) fn new(curve: Arc<Curve>) -> Self {
        Self {
            curve,
            points: 0,
            last: (Number::Int32(0), Number::Int32(0)),
            trapezoids: VecDeque::new(),
            sum: RemovableSum::default(),
        }
    }
}

impl WindowState for Integral {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let point = self.curve.point(document, context)?;
        let Some(y2) = Number::of(&point.y) else {
            return failure(
                NOT_TO_INTEGRATE,
                format!(
                    "$integral expects its input to be numeric, found {}",
                    point.y.type_name()
                ),
            );
        };
        let x2 = self
            .curve
            .place("$integral", &point.x, [5423901, 5423902, NOT_TO_INTEGRATE])?;
        if self.points > 0 {
            let (x1, y1) = self.last;
            let area = divide(y1.plus(y2).times(x2.minus(x1)), Number::Int32(2));
            self.sum.add(area);
            self.trapezoids.push_back(area);
        }
        self.points += 1;
        self.last = (x2, y2);
        Ok(())
    }

    fn remove(&mut self) {
        self.points -= 1;
        if let Some(area) = self.trapezoids.pop_front() {
            self.sum.remove(area);
        }
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        if self.points == 0 {
            return Ok(Value::Null);
        }
        let area = self.sum.total();
        Ok(match self.curve.unit_ms() {
            Some(ms) => divide(area, ms),
            None => area,
        }
        .value())
    }

    fn bytes(&self) -> usize {
        self.trapezoids.len() * size_of::<Number>()
    }
}

/// Count, means and the sum of products of distances; joins as in Chan, Golub, LeVeque 1979. Decimals when one was
/// seen.
#[derive(Clone)]
struct CovariancePart {
    count: i64,
    x: Number,
    y: Number,
    products: Number,
    /// The sum of what stands for pairs with NaN or an infinity, which are not counted.
    non_finite: Option<Number>,
}

impl CovariancePart {
    const NOTHING: Self = Self {
        count: 0,
        x: Number::Double(0.0),
        y: Number::Double(0.0),
        products: Number::Double(0.0),
        non_finite: None,
    };
}

impl Part for CovariancePart {
    fn merge(&mut self, later: &Self) {
        let non_finite = match (self.non_finite, later.non_finite) {
            (Some(earlier), Some(later)) => Some(earlier.plus(later)),
            (earlier, later) => earlier.or(later),
        };
        self.non_finite = non_finite;
        if later.count == 0 {
            return;
        }
        if self.count == 0 {
            *self = Self {
                non_finite,
                ..later.clone()
            };
            return;
        }
        let count = self.count + later.count;
        let (dx, dy) = (later.x.minus(self.x), later.y.minus(self.y));
        let of_all = |part: Number, n: i64| divide(part.times(Number::Int64(n)), Number::Int64(count));
        self.products = self
            .products
            .plus(later.products)
            .plus(of_all(dx.times(dy).times(Number::Int64(self.count)), later.count));
        self.x = self.x.plus(of_all(dx, later.count));
        self.y = self.y.plus(of_all(dy, later.count));
        self.count = count;
    }
}

/// `$covariancePop`, `$covarianceSamp`.
pub(super) struct Covariance {
    pair: Arc<Expression>,
    sample: bool,
    parts: TwoStacks<CovariancePart>,
}

impl Covariance {
    pub(super) fn new(pair: Arc<Expression>, sample: bool) -> Self {
        Self {
            pair,
            sample,
            parts: TwoStacks::new(CovariancePart::NOTHING),
        }
    }
}

/// A double, or a decimal.
fn widened(number: Number) -> Number {
    match number {
        Number::Decimal(_) => number,
        other => Number::Double(other.to_f64()),
    }
}

/// What stands for a pair that has NaN or an infinity: NaN, or the infinity when all in it are of one sign.
fn non_finite(x: Number, y: Number) -> Option<Number> {
    let is_infinite = |number: &Number| match number {
        Number::Double(n) => n.is_infinite(),
        Number::Decimal(n) => matches!(n, Decimal::Infinity { .. }),
        _ => false,
    };
    let pair = [widened(x), widened(y)];
    let mut odd = pair.iter().filter(|number| number.is_nan() || is_infinite(number));
    let first = *odd.next()?;
    let sum = odd.fold(first, |sum, number| sum.plus(*number));
    let is_decimal = pair.iter().any(|number| matches!(number, Number::Decimal(_)));
    Some(if is_decimal {
        Number::Decimal(sum.to_decimal())
    } else {
        sum
    })
}

impl WindowState for Covariance {
    fn add(&mut self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<(), QueryError> {
        let pair = self.pair.evaluate_on(document, context)?;
        let numbers = match &pair {
            Value::Array(array) => array.to_vec()?,
            _ => Vec::new(),
        };
        let part = match &numbers[..] {
            [x, y] => Number::of(x).zip(Number::of(y)),
            _ => None,
        };
        let non_finite = part.and_then(|(x, y)| non_finite(x, y));
        // What is no pair of numbers takes its place in the queue, and counts for nothing.
        self.parts.push(match part {
            None => CovariancePart::NOTHING,
            Some(_) if non_finite.is_some() => CovariancePart {
                non_finite,
                ..CovariancePart::NOTHING
            },
            Some((x, y)) => CovariancePart {
                non_finite,
                count: 1,
                x: widened(x),
                y: widened(y),
                products: match (x, y) {
                    (Number::Decimal(_), _) | (_, Number::Decimal(_)) => Number::Decimal(Decimal::ZERO),
                    _ => Number::Double(0.0),
                },
            },
        });
        Ok(())
    }

    fn remove(&mut self) {
        self.parts.pop();
    }

    fn value(&self) -> Result<Value<'static>, QueryError> {
        let total = self.parts.total();
        let divisor = total.count - i64::from(self.sample);
        let products = match total.non_finite {
            None => total.products,
            Some(non_finite) => total.products.plus(non_finite),
        };
        Ok(match divisor {
            ..=0 => Value::Null,
            // Of a single pair, whatever is beside it.
            1 if !self.sample => Value::Double(0.0),
            divisor => divide(products, Number::Int64(divisor)).value(),
        })
    }

    fn bytes(&self) -> usize {
        self.parts.bytes()
    }
}
