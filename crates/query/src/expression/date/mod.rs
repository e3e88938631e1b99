//! Dates: parts, text, arithmetic, time zones.
//!
//! Dates are int64 milliseconds and keep working outside the years that text can express. A constant zone is looked up
//! once, at parsing.

mod arithmetic;
mod calendar;
mod format;
mod natural;
mod offsets;
mod parse;
mod parts;
mod scan;
mod zone;

use bson::RawBsonRef;

use super::convert::object_id_ms;
use super::failure::failure;
use super::operator::{Answer, ApplyNamed, Computed, NamedOperator};
use super::parse::Parser;
use super::{Evaluation, Node, Special};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::Value;
use crate::value::number::Number;
use crate::value::scan::Malformed;
use arithmetic::{Unit, parse_weekday};
use calendar::Civil;
pub(super) use format::{iso_text, timestamp_text};
pub(super) use parse::parse_date;
use zone::Zone;

/// The place of `onNull` among the arguments of `$dateToString`.
const TO_STRING_NULL: usize = 3;
/// The places of `onError` and `onNull` among the arguments of `$dateFromString`.
const FROM_STRING_ERROR: usize = 3;
const FROM_STRING_NULL: usize = 4;

/// The operators with named arguments.
pub(super) const NAMED: &[NamedOperator] = &[
    NamedOperator {
        name: "$dateToString",
        fields: &[
            ("date", Some(18628)),
            ("format", None),
            ("timezone", None),
            ("onNull", None),
        ],
        apply: ApplyNamed::Lazy(TO_STRING_NULL, date_to_string),
        codes: [18629, 18534],
        check: None,
    },
    NamedOperator {
        name: "$dateFromString",
        fields: &[
            ("dateString", Some(40542)),
            ("format", None),
            ("timezone", None),
            ("onError", None),
            ("onNull", None),
        ],
        apply: ApplyNamed::Lazy(FROM_STRING_ERROR, date_from_string),
        codes: [40540, 40541],
        check: None,
    },
    NamedOperator {
        name: "$dateToParts",
        fields: &[("date", Some(40522)), ("timezone", None), ("iso8601", None)],
        apply: ApplyNamed::Values(parts::date_to_parts),
        codes: [40524, 40520],
        check: None,
    },
    NamedOperator {
        name: "$dateFromParts",
        fields: parts::FROM_PARTS,
        apply: ApplyNamed::Values(parts::date_from_parts),
        codes: [40519, 40518],
        check: Some(parts::check_parts),
    },
    NamedOperator {
        name: "$dateAdd",
        fields: &[
            ("startDate", Some(5166402)),
            ("unit", Some(5166402)),
            ("amount", Some(5166402)),
            ("timezone", None),
        ],
        apply: ApplyNamed::Values(|name, _, v| date_add(name, v, 1)),
        codes: [5166400, 5166401],
        check: None,
    },
    NamedOperator {
        name: "$dateSubtract",
        fields: &[
            ("startDate", Some(5166402)),
            ("unit", Some(5166402)),
            ("amount", Some(5166402)),
            ("timezone", None),
        ],
        apply: ApplyNamed::Values(|name, _, v| date_add(name, v, -1)),
        codes: [5166400, 5166401],
        check: None,
    },
    NamedOperator {
        name: "$dateDiff",
        fields: &[
            ("startDate", Some(5166303)),
            ("endDate", Some(5166304)),
            ("unit", Some(5166305)),
            ("timezone", None),
            ("startOfWeek", None),
        ],
        apply: ApplyNamed::Values(date_diff),
        codes: [5166301, 5166302],
        check: None,
    },
    NamedOperator {
        name: "$dateTrunc",
        fields: &[
            ("date", Some(5439009)),
            ("unit", Some(5439010)),
            ("binSize", None),
            ("timezone", None),
            ("startOfWeek", None),
        ],
        apply: ApplyNamed::Values(date_trunc),
        codes: [5439007, 5439008],
        check: None,
    },
];

/// A part of a date: a number of its local date and time.
type Part = fn(Civil) -> i64;

const PARTS: &[(&str, Part)] = &[
    ("$year", |local| local.year),
    ("$month", |local| local.month),
    ("$dayOfMonth", |local| local.day),
    ("$hour", Civil::hour),
    ("$minute", Civil::minute),
    ("$second", Civil::second),
    ("$millisecond", Civil::millisecond),
    ("$dayOfWeek", |local| local.weekday() + 1),
    ("$dayOfYear", Civil::day_of_year),
    ("$week", Civil::week),
    ("$isoWeek", |local| local.iso_week().1),
    ("$isoWeekYear", |local| local.iso_week().0),
    ("$isoDayOfWeek", Civil::iso_weekday),
];

struct DatePart {
    name: &'static str,
    part: Part,
    date: Node,
    zone: Option<Node>,
    /// The zone where it is constant.
    known: Option<Zone>,
}

impl std::fmt::Debug for DatePart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({:?}, {:?})", self.name, self.date, self.zone)
    }
}

impl Special for DatePart {
    fn evaluate<'a>(&'a self, evaluation: &mut Evaluation<'a>) -> Computed<'a> {
        let date = self.date.evaluate(evaluation)?;
        if date.is_nullish() {
            return Ok(Value::Null);
        }
        let ms = date_ms(&date)?;
        let computed;
        let zone = match (&self.known, &self.zone) {
            (Some(zone), _) => zone,
            (None, zone) => {
                let zone = match zone {
                    Some(zone) => Some(zone.evaluate(evaluation)?),
                    None => None,
                };
                let Some(zone) = Zone::of_value(zone.as_ref())? else {
                    return Ok(Value::Null);
                };
                computed = zone;
                &computed
            }
        };
        let number = (self.part)(zone.local(ms));
        // The ISO year is the only part that a wide date could take out of int32.
        Ok(if self.name == "$isoWeekYear" {
            Value::Int64(number)
        } else {
            i32::try_from(number).map_or(Value::Int64(number), Value::Int32)
        })
    }

    fn visit_children(&self, visit: &mut dyn FnMut(&Node)) {
        visit(&self.date);
        self.zone.iter().for_each(visit);
    }
}

/// Whether it is `$year` or its like.
pub(super) fn is_part(name: &str) -> bool {
    PARTS.iter().any(|(known, _)| *known == name)
}

/// Parses `$year` and its like: an operand, or `{date, timezone}`.
pub(super) fn parse_part(parser: &mut Parser<'_>, name: &str, raw: RawBsonRef<'_>) -> Result<Option<Node>, QueryError> {
    let Some((name, part)) = PARTS.iter().find(|(known, _)| *known == name) else {
        return Ok(None);
    };
    let (mut date, mut zone) = (None, None);
    match raw {
        RawBsonRef::Document(document) if !is_operator(document) => {
            for element in document {
                let (field, raw) = element.map_err(|_| Malformed)?;
                match field.as_str() {
                    "date" => date = Some(parser.operand(raw)?),
                    "timezone" => zone = Some(parser.operand(raw)?),
                    other => return failure(40535, format!("unrecognized option to {name}: \"{other}\"")),
                }
            }
            if date.is_none() {
                let given = super::parse::render(document);
                return failure(
                    40539,
                    format!("missing 'date' argument to {name}, provided: {name}: {given}"),
                );
            }
        }
        RawBsonRef::Array(_) => {
            let mut operands = parser.arguments(raw)?;
            if operands.len() != 1 {
                return failure(
                    40536,
                    format!(
                        "{name} accepts exactly one argument if given an array, but was given {}",
                        operands.len()
                    ),
                );
            }
            date = operands.pop();
        }
        other => date = Some(parser.operand(other)?),
    }
    let known = match &zone {
        None => Some(Zone::Utc),
        Some(Node::Constant(Value::String(zone))) => Some(Zone::parse(zone)?),
        Some(_) => None,
    };
    let Some(date) = date else { return Ok(None) };
    Ok(Some(Node::Special(Box::new(DatePart {
        name,
        part: *part,
        date,
        zone,
        known,
    }))))
}

fn is_operator(document: &bson::RawDocument) -> bool {
    document
        .into_iter()
        .next()
        .is_some_and(|first| first.is_ok_and(|(name, _)| name.as_str().starts_with('$')))
}

/// The milliseconds of a date, timestamp or ObjectId.
fn date_ms(value: &Value<'_>) -> Result<i64, QueryError> {
    match value {
        Value::Date(ms) => Ok(*ms),
        Value::Timestamp(timestamp) => Ok(i64::from(timestamp.time) * 1000),
        Value::ObjectId(id) => Ok(object_id_ms(*id)),
        other => failure(
            16006,
            format!("can't convert from BSON type {} to Date", other.type_name()),
        ),
    }
}

/// The arguments of a named operator by position.
struct Arguments<'a> {
    values: std::vec::IntoIter<Option<Value<'a>>>,
}

impl<'a> Arguments<'a> {
    fn new(values: Vec<Option<Value<'a>>>) -> Self {
        Self {
            values: values.into_iter(),
        }
    }

    /// The next argument, `None` when not given.
    fn optional(&mut self) -> Option<Value<'a>> {
        self.values.next().flatten()
    }

    /// The next argument.
    fn required(&mut self) -> Value<'a> {
        self.optional().unwrap_or(Value::Missing)
    }
}

/// The `format` of an operator, when it is given and not null; it is checked before anything else.
fn given_format<'f>(
    operator: &str,
    format: Option<&'f Value<'_>>,
    (code, specifiers): (i32, &str),
) -> Result<Option<&'f str>, QueryError> {
    match format {
        Some(Value::String(text)) => {
            format::check_specifiers(text, specifiers)?;
            Ok(Some(text))
        }
        Some(other) if !other.is_nullish() => failure(
            code,
            format!(
                "{operator} requires that 'format' be a string, found: {} with value {}",
                other.type_name(),
                other.render()
            ),
        ),
        _ => Ok(None),
    }
}

fn date_to_string(arguments: Vec<Option<Value<'_>>>) -> Result<Answer<'_>, QueryError> {
    let mut arguments = Arguments::new(arguments);
    let (date, format, zone) = (arguments.required(), arguments.optional(), arguments.optional());
    let text = given_format("$dateToString", format.as_ref(), (18533, format::SPECIFIERS))?;
    let zone = Zone::of_value(zone.as_ref())?;
    if date.is_nullish() {
        return Ok(Answer::Instead(TO_STRING_NULL, Ok(Value::Null)));
    }
    let (Some(zone), false) = (zone, is_null(&format)) else {
        return Ok(Answer::Value(Value::Null));
    };
    let text = text.unwrap_or(format::default_format(&zone));
    let text = format::format_date(date_ms(&date)?, &zone, text)?;
    Ok(Answer::Value(Value::string(text)))
}

fn date_from_string(arguments: Vec<Option<Value<'_>>>) -> Result<Answer<'_>, QueryError> {
    let mut arguments = Arguments::new(arguments);
    let (text, format, zone) = (arguments.required(), arguments.optional(), arguments.optional());
    let pattern = given_format("$dateFromString", format.as_ref(), (40684, parse::SPECIFIERS))?;
    let zone = Zone::of_value(zone.as_ref())?;
    // A text that is null, or is none, comes before anything else that is null.
    if text.is_nullish() {
        return Ok(Answer::Instead(FROM_STRING_NULL, Ok(Value::Null)));
    }
    let parsed = match (&text, pattern, &zone) {
        (Value::String(_), _, None) => return Ok(Answer::Value(Value::Null)),
        (Value::String(_), None, _) if format.is_some() => return Ok(Answer::Value(Value::Null)),
        (Value::String(text), None, Some(zone)) => parse::parse_text(text, zone),
        (Value::String(text), Some(pattern), Some(zone)) => parse::parse_format(text, pattern, zone),
        (other, ..) => failure(
            wire::ErrorCode::ConversionFailure.0,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                other.type_name(),
                other.render()
            ),
        ),
    };
    match parsed {
        Err(error) if error.code() == Some(wire::ErrorCode::ConversionFailure) => {
            Ok(Answer::Instead(FROM_STRING_ERROR, Err(error)))
        }
        parsed => Ok(Answer::Value(Value::Date(parsed?))),
    }
}

fn overflow<T>(code: i32, name: &str) -> Result<T, QueryError> {
    failure(code, format!("{name} overflowed"))
}

fn date_add<'a>(name: &'static str, arguments: Vec<Option<Value<'a>>>, sign: i64) -> Computed<'a> {
    let mut arguments = Arguments::new(arguments);
    let (date, unit, amount, zone) = (
        arguments.required(),
        arguments.required(),
        arguments.required(),
        arguments.optional(),
    );
    if date.is_nullish() || unit.is_nullish() || amount.is_nullish() {
        return Ok(Value::Null);
    }
    let unit = Unit::parse(&unit, 5439013, name)?;
    let Some(zone) = Zone::of_value(zone.as_ref())? else {
        return Ok(Value::Null);
    };
    let Ok(ms) = date_ms(&date) else {
        return failure(
            5166403,
            format!("{name} requires startDate to be convertible to a date"),
        );
    };
    let Some(amount) = Number::of(&amount).and_then(Number::to_exact_i64) else {
        return failure(5166405, format!("{name} expects integer amount of time units"));
    };
    if sign < 0 && amount == i64::MIN {
        return failure(6045000, format!("{name}: an 'amount' of {amount} cannot be negated"));
    }
    if arithmetic::is_beyond_dates(unit, amount) {
        return failure(5976500, format!("{name}: an 'amount' of {amount} is out of range"));
    }
    match amount
        .checked_mul(sign)
        .and_then(|amount| arithmetic::add(ms, unit, amount, &zone))
    {
        Some(ms) => Ok(Value::Date(ms)),
        None => overflow(5166406, name),
    }
}

/// The first day of weeks: Sunday unless said otherwise; `None` when null.
fn week_start(value: Option<&Value<'_>>, code: i32, name: &str) -> Result<Option<i64>, QueryError> {
    match value {
        None => Ok(Some(0)),
        Some(Value::String(day)) => match parse_weekday(day) {
            Some(day) => Ok(Some(day)),
            None => failure(5439016, format!("{name}: '{}' is no day of the week", &**day)),
        },
        Some(nullish) if nullish.is_nullish() => Ok(None),
        Some(other) => failure(
            code,
            format!(
                "{name} requires 'startOfWeek' to be a string, but got {}",
                other.type_name()
            ),
        ),
    }
}

/// Whether an argument is given and null, which comes before all errors of the others.
fn is_null(argument: &Option<Value<'_>>) -> bool {
    argument.as_ref().is_some_and(Value::is_nullish)
}

/// Whether the first day of weeks is null where it counts.
fn is_null_week(unit: &Value<'_>, first_day: &Option<Value<'_>>) -> bool {
    is_null(first_day) && matches!(unit, Value::String(name) if &**name == "week")
}

fn date_diff<'a>(name: &'static str, _: &EvaluationContext<'_>, arguments: Vec<Option<Value<'a>>>) -> Computed<'a> {
    let mut arguments = Arguments::new(arguments);
    let (start, end, unit) = (arguments.required(), arguments.required(), arguments.required());
    let (zone, first_day) = (arguments.optional(), arguments.optional());
    if [&start, &end, &unit].into_iter().any(Value::is_nullish) || is_null(&zone) || is_null_week(&unit, &first_day) {
        return Ok(Value::Null);
    }
    let unit = Unit::parse(&unit, 5439013, name)?;
    let Some(zone) = Zone::of_value(zone.as_ref())? else {
        return Ok(Value::Null);
    };
    let first_day = match unit {
        Unit::Week => week_start(first_day.as_ref(), 5439015, name)?,
        _ => Some(0),
    };
    let Some(first_day) = first_day else {
        return Ok(Value::Null);
    };
    let (Ok(from), Ok(to)) = (date_ms(&start), date_ms(&end)) else {
        let which = if date_ms(&start).is_err() {
            ("startDate", &start)
        } else {
            ("endDate", &end)
        };
        return failure(
            5166307,
            format!(
                "{name} requires '{}' to be a date, but got {}",
                which.0,
                which.1.type_name()
            ),
        );
    };
    match arithmetic::difference(from, to, unit, &zone, first_day) {
        Some(count) => Ok(Value::Int64(count)),
        None => overflow(5166308, name),
    }
}

/// The largest `binSize` of days and longer units.
const BIN_SIZE_MAX: i64 = 100_000_000_000;

fn date_trunc<'a>(name: &'static str, _: &EvaluationContext<'_>, arguments: Vec<Option<Value<'a>>>) -> Computed<'a> {
    let mut arguments = Arguments::new(arguments);
    let (date, unit, size) = (arguments.required(), arguments.required(), arguments.optional());
    let (zone, first_day) = (arguments.optional(), arguments.optional());
    let is_any_null = date.is_nullish() || unit.is_nullish() || is_null(&size) || is_null(&zone);
    if is_any_null || is_null_week(&unit, &first_day) {
        return Ok(Value::Null);
    }
    let unit = Unit::parse(&unit, 5439013, name)?;
    let size = match size {
        None => 1,
        Some(size) => match Number::of(&size).and_then(Number::to_exact_i64) {
            Some(size) if size > 0 => size,
            Some(size) => {
                return failure(
                    5439018,
                    format!("{name} requires 'binSize' to be greater than 0, but got value {size}"),
                );
            }
            None => {
                return failure(
                    5439017,
                    format!(
                        "{name} requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                        size.render(),
                        size.type_name()
                    ),
                );
            }
        },
    };
    let Some(zone) = Zone::of_value(zone.as_ref())? else {
        return Ok(Value::Null);
    };
    let first_day = match unit {
        Unit::Week => week_start(first_day.as_ref(), 5439015, name)?,
        _ => Some(0),
    };
    let Some(first_day) = first_day else {
        return Ok(Value::Null);
    };
    let Ok(ms) = date_ms(&date) else {
        return failure(
            5166307,
            format!("{name} requires 'date' to be a date, but got {}", date.type_name()),
        );
    };
    let too_large = |code| failure(code, format!("{name} does not support a 'binSize' of {size}"));
    match unit {
        Unit::Milliseconds(ms) if ms.checked_mul(size).is_none() => return too_large(5439002),
        Unit::Day | Unit::Week | Unit::Months(_) if size > BIN_SIZE_MAX => return too_large(5439006),
        _ => {}
    }
    match arithmetic::truncate(ms, unit, size, &zone, first_day) {
        Some(ms) => Ok(Value::Date(ms)),
        None => overflow(5166406, name),
    }
}

/// A unit of time for stages that step through dates, in UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeUnit(Unit);

impl TimeUnit {
    /// The unit of a name.
    pub(crate) fn parse(name: &str) -> Result<Self, QueryError> {
        let code = wire::ErrorCode::FailedToParse.0;
        Unit::parse(&Value::borrowed_str(name), code, "").map(Self)
    }

    /// A date plus so many units; `None` when it overflows.
    pub(crate) fn add(self, date_ms: i64, amount: i64) -> Option<i64> {
        arithmetic::add(date_ms, self.0, amount, &Zone::Utc)
    }

    /// Milliseconds of the unit; `None` of a month and more, whose length varies.
    pub(crate) fn fixed_ms(self) -> Option<i64> {
        match self.0 {
            Unit::Milliseconds(ms) => Some(ms),
            Unit::Day => Some(calendar::MS_PER_DAY),
            Unit::Week => Some(7 * calendar::MS_PER_DAY),
            Unit::Months(_) => None,
        }
    }
}
