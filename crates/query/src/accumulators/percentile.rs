//! The arguments of `$percentile` and `$median`, which accumulator, window function and expression share.

use std::sync::Arc;

use bson::RawBsonRef;
use wire::ErrorCode;

use super::digest::rank;
use super::failure;
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, ExpressionContext};
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{ArrayValue, Value};

/// Which percentiles, and how they are answered.
#[derive(Clone, Debug)]
pub struct Percentiles {
    /// From 0 to 1.
    of: Arc<[f64]>,
    /// `$median`: one number and no array.
    is_median: bool,
}

impl Percentiles {
    /// From 0 to 1, in the order asked for.
    pub fn of(&self) -> &[f64] {
        &self.of
    }

    /// The answer made of these numbers; null, or an array of nulls, where there are none.
    pub fn value(&self, found: Option<Vec<f64>>) -> Result<Value<'static>, QueryError> {
        let found = match found {
            Some(found) => found.into_iter().map(Value::Double).collect(),
            None => vec![Value::Null; self.of.len()],
        };
        match (self.is_median, found.first()) {
            (true, Some(median)) => Ok(median.clone()),
            _ => Value::array(found),
        }
    }

    /// The answer over numbers at hand. What is no number, and NaN, is left out.
    pub(crate) fn of_value(
        &self,
        input: &Value<'_>,
        context: &EvaluationContext<'_>,
    ) -> Result<Value<'static>, QueryError> {
        let mut numbers = Vec::new();
        let mut add = |value: &Value<'_>| numbers.extend(finite_or_infinite(value));
        match input {
            Value::Array(array) => add_all(array, &mut add)?,
            single => add(single),
        }
        let numbers = context.sort(numbers, f64::total_cmp)?;
        let at = |p: &f64| numbers[rank(*p, numbers.len())];
        self.value((!numbers.is_empty()).then(|| self.of.iter().map(at).collect()))
    }
}

fn add_all(array: &ArrayValue<'_>, add: &mut impl FnMut(&Value<'_>)) -> Result<(), QueryError> {
    for item in array.iter() {
        add(&item?);
    }
    Ok(())
}

/// The number of a value, unless it is none or NaN.
pub(crate) fn finite_or_infinite(value: &Value<'_>) -> Option<f64> {
    Number::of(value).map(Number::to_f64).filter(|x| !x.is_nan())
}

/// Parses `{input, p, method}` of `$percentile`, `{input, method}` of `$median`. The input is the caller's to parse.
pub(crate) fn parse_percentiles<'r>(
    name: &str,
    raw: RawBsonRef<'r>,
    context: &ExpressionContext,
) -> Result<(RawBsonRef<'r>, Percentiles), QueryError> {
    let is_median = name == "$median";
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).render();
        return failure(
            if is_median { 7436100 } else { 7429703 },
            format!("specification must be an object; found {name}: {found}"),
        );
    };
    let (mut input, mut of, mut method) = (None, None, None);
    for element in document {
        let (field, raw) = element.map_err(|_| Malformed)?;
        match field.as_str() {
            "input" => input = Some(raw),
            "p" if !is_median => of = Some(raw),
            "method" => method = Some(raw),
            other => return failure(40415, format!("BSON field '{name}.{other}' is an unknown field.")),
        }
    }
    let missing = |field: &str| format!("BSON field '{name}.{field}' is missing but a required field");
    let Some(input) = input else {
        return failure(40414, missing("input"));
    };
    let Some(method) = method else {
        return failure(40414, missing("method"));
    };
    check_method(name, method)?;
    let of = match of {
        _ if is_median => vec![0.5],
        Some(of) => parse_p(of, context)?,
        None => return failure(40414, missing("p")),
    };
    Ok((
        input,
        Percentiles {
            of: of.into(),
            is_median,
        },
    ))
}

fn check_method(name: &str, method: RawBsonRef<'_>) -> Result<(), QueryError> {
    match method {
        RawBsonRef::String("approximate") => Ok(()),
        RawBsonRef::String(_) => failure(
            ErrorCode::BadValue.0,
            "Currently only 'approximate' can be used as percentile 'method'.",
        ),
        other => {
            let found = Value::from_raw(other).type_name();
            failure(
                ErrorCode::TypeMismatch.0,
                format!("BSON field '{name}.method' is the wrong type '{found}', expected type 'string'"),
            )
        }
    }
}

fn parse_p(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Vec<f64>, QueryError> {
    let expression = Expression::parse(raw, context)?;
    let Some(constant) = expression.as_constant() else {
        return failure(
            7750300,
            format!(
                "The $percentile 'p' field must be an array of constant values, but found value: {}.",
                Value::from_raw(raw).render()
            ),
        );
    };
    let items = match constant {
        Value::Array(array) if !array.is_empty() => array.to_vec()?,
        other => {
            return failure(
                7750301,
                format!(
                    "The $percentile 'p' field must be a non-empty array of numbers from [0.0, 1.0], but found: {}.",
                    other.render()
                ),
            );
        }
    };
    let number = |item: &Value<'_>| {
        let Some(p) = Number::of(item).map(Number::to_f64) else {
            return failure(
                7750302,
                format!(
                    "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}.",
                    item.render()
                ),
            );
        };
        match (0.0..=1.0).contains(&p) {
            true => Ok(p),
            false => failure(
                7750303,
                format!(
                    "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}.",
                    item.render()
                ),
            ),
        }
    };
    items.iter().map(number).collect()
}
