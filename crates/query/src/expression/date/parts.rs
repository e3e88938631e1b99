//! `$dateToParts` and `$dateFromParts`.

use bson::RawDocument;

use super::calendar::{
    Civil, MS_PER_DAY, MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND, date_of_day, day_number, day_of_iso_week,
};
use super::zone::Zone;
use super::{Arguments, date_ms};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::failure::failure;
use crate::expression::finished_document;
use crate::expression::operator::Computed;
use crate::value::number::Number;
use crate::value::scan::Malformed;
use crate::value::{DocumentWriter, Value};

pub(super) fn date_to_parts<'a>(
    _: &'static str,
    _: &EvaluationContext<'_>,
    arguments: Vec<Option<Value<'a>>>,
) -> Computed<'a> {
    let mut arguments = Arguments::new(arguments);
    let (date, zone, iso) = (arguments.required(), arguments.optional(), arguments.optional());
    let Some(zone) = Zone::of_value(zone.as_ref())? else {
        return Ok(Value::Null);
    };
    let iso = match iso {
        None => false,
        Some(Value::Boolean(iso)) => iso,
        Some(nullish) if nullish.is_nullish() => return Ok(Value::Null),
        Some(other) => {
            return failure(
                40521,
                format!("iso8601 must evaluate to a bool, found {}", other.type_name()),
            );
        }
    };
    if date.is_nullish() {
        return Ok(Value::Null);
    }
    let local = zone.local(date_ms(&date)?);
    let mut bytes = Vec::with_capacity(128);
    let mut writer = DocumentWriter::new(&mut bytes);
    let mut append = |name: &str, number: i64| {
        writer.append(name, &i32::try_from(number).map_or(Value::Int64(number), Value::Int32));
    };
    if iso {
        append("isoWeekYear", local.iso_week().0);
        append("isoWeek", local.iso_week().1);
        append("isoDayOfWeek", local.iso_weekday());
    } else {
        append("year", local.year);
        append("month", local.month);
        append("day", local.day);
    }
    append("hour", local.hour());
    append("minute", local.minute());
    append("second", local.second());
    append("millisecond", local.millisecond());
    writer.finish();
    finished_document(bytes)
}

/// The arguments of `$dateFromParts`, in the order in which [`date_from_parts`] takes them.
pub(super) const FROM_PARTS: &[(&str, Option<i32>)] = &[
    ("year", None),
    ("month", None),
    ("day", None),
    ("isoWeekYear", None),
    ("isoWeek", None),
    ("isoDayOfWeek", None),
    ("hour", None),
    ("minute", None),
    ("second", None),
    ("millisecond", None),
    ("timezone", None),
];

/// Bounds of the parts besides years and milliseconds.
const PART_RANGE: std::ops::RangeInclusive<i64> = -32_768..=32_767;

/// One part; `None` when null.
fn part(value: Option<&Value<'_>>, name: &str, default: i64) -> Result<Option<i64>, QueryError> {
    let Some(value) = value else { return Ok(Some(default)) };
    if value.is_nullish() {
        return Ok(None);
    }
    let Some(number) = Number::of(value).and_then(Number::to_exact_i64) else {
        return failure(
            40515,
            format!(
                "'{name}' must evaluate to an integer, found {} with value {}",
                value.type_name(),
                value.render()
            ),
        );
    };
    if matches!(name, "year" | "isoWeekYear") {
        if !(1..=9999).contains(&number) {
            return failure(
                if name == "year" { 40523 } else { 31095 },
                format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {number}"),
            );
        }
    } else if !matches!(name, "second" | "millisecond") && !PART_RANGE.contains(&number) {
        return failure(
            31034,
            format!("'{name}' must evaluate to a value in the range [-32768, 32767]; value {number} is not in range"),
        );
    }
    Ok(Some(number))
}

/// A year of one kind, and no parts of the other kind.
pub(super) fn check_parts(name: &'static str, arguments: &RawDocument) -> Result<(), QueryError> {
    let any = |names: &[&str]| -> Result<bool, QueryError> {
        for name in names {
            if arguments.get(name).map_err(|_| Malformed)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match (any(&["year"])?, any(&["isoWeekYear"])?) {
        (false, false) => failure(
            40516,
            format!("{name} requires either 'year' or 'isoWeekYear' to be present"),
        ),
        (true, _) if any(&["isoWeekYear", "isoWeek", "isoDayOfWeek"])? => failure(
            40489,
            format!("{name} does not allow mixing natural dates with ISO dates"),
        ),
        (_, true) if any(&["month", "day"])? => failure(
            40525,
            format!("{name} does not allow mixing ISO dates with natural dates"),
        ),
        _ => Ok(()),
    }
}

pub(super) fn date_from_parts<'a>(
    name: &'static str,
    _: &EvaluationContext<'_>,
    arguments: Vec<Option<Value<'a>>>,
) -> Computed<'a> {
    let given = |index: usize| arguments.get(index).and_then(Option::as_ref);
    let iso = given(3).is_some();
    let Some(zone) = Zone::of_value(given(10))? else {
        return Ok(Value::Null);
    };
    // Year, month, day; or year, week, weekday.
    let mut parts = [0_i64; 7];
    let first = if iso { 3 } else { 0 };
    for (index, slot) in [first, first + 1, first + 2, 6, 7, 8, 9].into_iter().enumerate() {
        let default = i64::from(index < 3);
        match part(given(slot), FROM_PARTS[slot].0, default)? {
            Some(number) => parts[index] = number,
            None => return Ok(Value::Null),
        }
    }
    // They are counted in microseconds first.
    if parts[6].checked_mul(1000).is_none() {
        return failure(159, format!("{name}: {} milliseconds are out of range", parts[6]));
    }
    match assemble(parts, iso).and_then(|local| zone.utc_ms(local)) {
        Some(ms) => Ok(Value::Date(ms)),
        None => failure(wire::ErrorCode::Overflow.0, format!("{name} overflowed")),
    }
}

/// Parts may be out of their usual range: they carry over.
fn assemble([year, second_part, day, hour, minute, second, millisecond]: [i64; 7], iso: bool) -> Option<Civil> {
    let day = if iso {
        day_of_iso_week(year, second_part, day)
    } else {
        let months = year * 12 + second_part - 1;
        day_number(months.div_euclid(12), months.rem_euclid(12) + 1, 1) + day - 1
    };
    let time = (hour * MS_PER_HOUR)
        .checked_add(minute * MS_PER_MINUTE)?
        .checked_add(second.checked_mul(MS_PER_SECOND)?)?
        .checked_add(millisecond)?;
    let (year, month, day) = date_of_day(day.checked_add(time.div_euclid(MS_PER_DAY))?);
    Some(Civil {
        year,
        month,
        day,
        time: time.rem_euclid(MS_PER_DAY),
    })
}
