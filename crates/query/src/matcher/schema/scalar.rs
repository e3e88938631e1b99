//! Keywords about numbers and strings.

use bson::{Bson, Document, RawBsonRef, doc};

use super::{Fields, Parsed, Reporter, Rule, Subject, malformed, to_bson, wrong_type};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::evaluate::compares;
use crate::matcher::number::{integral, is_number};
use crate::matcher::regex::RegexTest;
use crate::raw::{self, Constant};
use crate::value::number::Number;
use crate::value::{CompareOp, Value};

/// An argument that is a number of things.
pub(super) fn count(name: &str, value: RawBsonRef<'_>) -> Result<u64, QueryError> {
    let failure = |what: &str| QueryError::failed_to_parse(format!("{what} {name}: {}", raw::describe(value)));
    if !is_number(value) {
        return Err(failure("Expected a number in:"));
    }
    let number = integral(value).ok_or_else(|| failure("Expected an integer:"))?;
    u64::try_from(number).map_err(|_| failure("Expected a non-negative number in:"))
}

fn number(name: &str, value: RawBsonRef<'_>) -> Result<(), QueryError> {
    match is_number(value) {
        true => Ok(()),
        false => Err(wrong_type(name, "must be a number")),
    }
}

/// `minimum` and `maximum`.
#[derive(Debug)]
struct Limit {
    op: CompareOp,
    limit: Constant,
    specified: Document,
}

fn limit(
    fields: &Fields<'_>,
    name: &'static str,
    exclusive: &str,
    value: RawBsonRef<'_>,
    ops: [CompareOp; 2],
) -> Parsed {
    number(name, value)?;
    let mut specified = doc! { name: to_bson(value)? };
    let mut op = ops[0];
    if let Some(is_exclusive) = fields.get(exclusive) {
        specified.insert(exclusive, to_bson(is_exclusive)?);
        if is_exclusive == RawBsonRef::Boolean(true) {
            op = ops[1];
        }
    }
    Ok(Some(Box::new(Limit {
        op,
        limit: Constant::new(value),
        specified,
    })))
}

pub(super) fn minimum(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    limit(fields, name, "exclusiveMinimum", value, [CompareOp::Gte, CompareOp::Gt])
}

pub(super) fn maximum(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    limit(fields, name, "exclusiveMaximum", value, [CompareOp::Lte, CompareOp::Lt])
}

/// What belongs to a limit is its part of the rule.
fn exclusive(fields: &Fields<'_>, limit: &str, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    if fields.get(limit).is_none() {
        return Err(malformed(limit, &format!("must be present if {name} is present")));
    }
    match value {
        RawBsonRef::Boolean(_) => Ok(None),
        _ => Err(wrong_type(name, "must be a boolean")),
    }
}

pub(super) fn exclusive_minimum(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    exclusive(fields, "minimum", name, value)
}

pub(super) fn exclusive_maximum(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    exclusive(fields, "maximum", name, value)
}

impl Rule for Limit {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        match value {
            Subject::Root(_) => Ok(true),
            Subject::Value(element) => Ok(compares(self.op, &self.limit, element, None)?),
        }
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        reporter.scalar(report, self.specified.clone(), "comparison failed", value)
    }
}

/// `multipleOf`.
#[derive(Debug)]
struct MultipleOf {
    divisor: keys::Decimal,
    specified: Bson,
}

pub(super) fn multiple_of(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    number(name, value)?;
    let divisor = decimal(value).filter(|divisor| {
        let is_positive = !divisor.is_negative() && !divisor.is_zero();
        is_positive && !divisor.is_nan()
    });
    let divisor = divisor.ok_or_else(|| malformed(name, "must have a positive value"))?;
    let specified = to_bson(value)?;
    Ok(Some(Box::new(MultipleOf { divisor, specified })))
}

fn decimal(value: RawBsonRef<'_>) -> Option<keys::Decimal> {
    Number::of(&Value::from_raw(value)).map(Number::to_decimal)
}

impl Rule for MultipleOf {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(decimal(value.value()?).is_some_and(|number| (number % self.divisor).is_zero()))
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let reason = "considered value is not a multiple of the specified value";
        reporter.scalar(report, doc! { "multipleOf": self.specified.clone() }, reason, value)
    }
}

/// `minLength` and `maxLength`.
#[derive(Debug)]
struct Length {
    name: &'static str,
    min: u64,
    max: u64,
    specified: Bson,
}

pub(super) fn min_length(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (min, max, specified) = (count(name, value)?, u64::MAX, to_bson(value)?);
    Ok(Some(Box::new(Length {
        name,
        min,
        max,
        specified,
    })))
}

pub(super) fn max_length(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (min, max, specified) = (0, count(name, value)?, to_bson(value)?);
    Ok(Some(Box::new(Length {
        name,
        min,
        max,
        specified,
    })))
}

impl Rule for Length {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let RawBsonRef::String(text) = value.value()? else {
            return Ok(true);
        };
        let characters = text.chars().count() as u64;
        Ok((self.min..=self.max).contains(&characters))
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let reason = "specified string length was not satisfied";
        reporter.scalar(report, doc! { self.name: self.specified.clone() }, reason, value)
    }
}

/// `pattern`.
#[derive(Debug)]
struct Pattern(RegexTest);

pub(super) fn pattern(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    match value {
        RawBsonRef::String(pattern) => Ok(Some(Box::new(Pattern(RegexTest::new(pattern, "")?)))),
        _ => Err(wrong_type(name, "must be a string")),
    }
}

impl Rule for Pattern {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        match value {
            Subject::Root(_) => Ok(true),
            Subject::Value(element) => self.0.is_match(element.text()?),
        }
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let specified = doc! { "pattern": self.0.pattern() };
        reporter.scalar(report, specified, "regular expression did not match", value)
    }
}
