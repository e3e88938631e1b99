//! Dates as text: `$dateToString`, and the ISO form that conversions use.

use std::fmt::Write;

use bson::Timestamp;

use super::calendar::{Civil, MONTHS, MS_PER_MINUTE, MS_PER_SECOND};
use super::zone::Zone;
use crate::error::QueryError;
use crate::expression::failure::failure;

/// The default of `$dateToString`, in UTC.
const ISO_UTC: &str = "%Y-%m-%dT%H:%M:%S.%LZ";
/// The default in other zones.
const ISO_LOCAL: &str = "%Y-%m-%dT%H:%M:%S.%L";

/// `2018-03-27T16:58:51.538Z`; fails for years that have more than four digits.
pub(in crate::expression) fn iso_text(ms: i64) -> Result<String, QueryError> {
    format_date(ms, &Zone::Utc, ISO_UTC)
}

/// `Mar  7 16:58:51:1`: C's `ctime` without its day of the week and its year, and the increment.
pub(in crate::expression) fn timestamp_text(timestamp: Timestamp) -> String {
    let date = Civil::of_ms(i64::from(timestamp.time) * MS_PER_SECOND);
    let month = &MONTHS[date.month as usize - 1][..3];
    let (day, hour, minute, second) = (date.day, date.hour(), date.minute(), date.second());
    format!(
        "{month} {day:2} {hour:02}:{minute:02}:{second:02}:{}",
        timestamp.increment
    )
}

/// The specifiers that dates are written by.
pub(super) const SPECIFIERS: &str = "YGmdHMSLjwuUVBbzZ%";

/// Checks a format ahead of its use: that it has no other specifiers, and none that is cut off.
pub(super) fn check_specifiers(format: &str, specifiers: &str) -> Result<(), QueryError> {
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            continue;
        }
        match chars.next() {
            None => return unmatched(),
            Some(specifier) if !specifiers.contains(specifier) => return invalid(specifier),
            Some(_) => {}
        }
    }
    Ok(())
}

fn unmatched<T>() -> Result<T, QueryError> {
    failure(18535, "Unmatched '%' at end of format string")
}

fn invalid<T>(specifier: char) -> Result<T, QueryError> {
    failure(
        18536,
        format!("Invalid format character '%{specifier}' in format string"),
    )
}

/// The default format for a zone that was given or not.
pub(super) fn default_format(zone: &Zone) -> &'static str {
    if matches!(zone, Zone::Utc) { ISO_UTC } else { ISO_LOCAL }
}

/// Formats a date; `format` has `%` specifiers.
pub(super) fn format_date(ms: i64, zone: &Zone, format: &str) -> Result<String, QueryError> {
    let local = zone.local(ms);
    let mut out = String::with_capacity(format.len() + 12);
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(specifier) = chars.next() else {
            return unmatched();
        };
        let four_digits = |year: i64| {
            if (0..=9999).contains(&year) {
                Ok((year, 4))
            } else {
                failure(
                    18537,
                    format!(
                        "Could not convert date to string: date component was outside the supported range of 0-9999: {year}"
                    ),
                )
            }
        };
        let (number, width) = match specifier {
            'Y' => four_digits(local.year)?,
            'G' => four_digits(local.iso_week().0)?,
            'm' => (local.month, 2),
            'd' => (local.day, 2),
            'H' => (local.hour(), 2),
            'M' => (local.minute(), 2),
            'S' => (local.second(), 2),
            'L' => (local.millisecond(), 3),
            'j' => (local.day_of_year(), 3),
            'w' => (local.weekday() + 1, 1),
            'u' => (local.iso_weekday(), 1),
            'U' => (local.week(), 2),
            'V' => (local.iso_week().1, 2),
            other => {
                push_text(&mut out, other, local, zone.offset_ms(ms) / MS_PER_MINUTE)?;
                continue;
            }
        };
        // Writing to a string cannot fail.
        let _ = write!(out, "{number:0width$}");
    }
    Ok(out)
}

/// The specifiers that are not plain numbers.
fn push_text(out: &mut String, specifier: char, local: Civil, offset: i64) -> Result<(), QueryError> {
    let month = MONTHS.get(local.month as usize - 1).copied().unwrap_or("");
    let sign = if offset < 0 { '-' } else { '+' };
    match specifier {
        '%' => out.push('%'),
        'B' => out.push_str(month),
        'b' => out.push_str(&month[..month.len().min(3)]),
        'z' => {
            let _ = write!(out, "{sign}{:02}{:02}", offset.abs() / 60, offset.abs() % 60);
        }
        'Z' => {
            let _ = write!(out, "{offset}");
        }
        other => return invalid(other),
    }
    Ok(())
}
