//! Dates as text: `$dateToString`, `$dateFromString`, and the ISO form that conversions use.

use std::fmt::Write;

use wire::ErrorCode;

use super::calendar::{Civil, MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND, day_of_iso_week, days_in_month};
use super::zone::{Zone, parse_offset};
use crate::error::QueryError;
use crate::expression::operator::failure;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The default of `$dateToString`, in UTC.
const ISO_UTC: &str = "%Y-%m-%dT%H:%M:%S.%LZ";
/// The default in other zones.
const ISO_LOCAL: &str = "%Y-%m-%dT%H:%M:%S.%L";

/// `2018-03-27T16:58:51.538Z`; fails for years that have more than four digits.
pub(in crate::expression) fn iso_text(ms: i64) -> Result<String, QueryError> {
    format_date(ms, &Zone::Utc, ISO_UTC)
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
            return failure(18535, "Unmatched '%' at end of format string");
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
            let _ = write!(out, "{sign}{:03}", offset.abs());
        }
        other => return failure(18536, format!("Invalid format character '%{other}' in format string")),
    }
    Ok(())
}

/// What a text says about a date.
#[derive(Default)]
struct Parsed {
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    /// Milliseconds since midnight.
    time: i64,
    offset: Option<i64>,
}

/// Walks over a text, taking digits and signs.
struct Scanner<'t> {
    rest: &'t str,
}

impl<'t> Scanner<'t> {
    /// A number of `least` to `most` digits.
    fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let length = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        if length < least {
            return None;
        }
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        digits.parse().ok()
    }

    fn skip(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// A fraction of a second, as milliseconds.
    fn milliseconds(&mut self) -> Option<i64> {
        let length = self.rest.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.rest.split_at(length);
        self.rest = rest;
        let padded = format!("{digits:0<3}");
        padded.get(..3).filter(|_| length > 0)?.parse().ok()
    }

    /// An offset: `Z`, `+hh`, `+hhmm`, `+hh:mm`.
    fn offset(&mut self) -> Option<i64> {
        if self.skip('Z') || self.skip('z') {
            return Some(0);
        }
        for length in [6, 5, 3] {
            if let Some(offset) = self.rest.get(..length).and_then(parse_offset) {
                self.rest = &self.rest[length..];
                return Some(offset);
            }
        }
        None
    }

    fn month_name(&mut self, full: bool) -> Option<i64> {
        for (index, name) in MONTHS.iter().enumerate() {
            let name = if full { name } else { &name[..3] };
            if self
                .rest
                .get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
            {
                self.rest = &self.rest[name.len()..];
                return Some(index as i64 + 1);
            }
        }
        None
    }
}

fn parse_error<T>(text: &str, why: &str) -> Result<T, QueryError> {
    failure(
        ErrorCode::ConversionFailure.0,
        format!("Error parsing date string '{text}'; {why}"),
    )
}

/// The date of ISO 8601 text (also with a space for the `T`, and without separators); UTC when it names no offset.
pub(in crate::expression) fn parse_date(text: &str) -> Result<i64, QueryError> {
    parse_iso(text, &Zone::Utc)
}

/// As [`parse_date`], in `zone` where the text names no offset.
pub(super) fn parse_iso(text: &str, zone: &Zone) -> Result<i64, QueryError> {
    let mut scanner = Scanner { rest: text.trim() };
    let parsed = scan_iso(&mut scanner);
    match parsed {
        Some(parsed) if scanner.rest.is_empty() => resolve(text, parsed, zone),
        _ => parse_error(text, "the text is no ISO 8601 date"),
    }
}

fn scan_iso(scanner: &mut Scanner<'_>) -> Option<Parsed> {
    let mut parsed = Parsed {
        year: Some(scanner.number(4, 4)?),
        ..Parsed::default()
    };
    let separated = scanner.skip('-') || scanner.skip('/');
    parsed.month = Some(scanner.number(if separated { 1 } else { 2 }, 2)?);
    if separated {
        if scanner.skip('-') || scanner.skip('/') {
            parsed.day = Some(scanner.number(1, 2)?);
        }
    } else {
        parsed.day = Some(scanner.number(2, 2)?);
    }
    parsed.day.get_or_insert(1);
    if scanner.rest.is_empty() {
        return Some(parsed);
    }
    if !(scanner.skip('T') || scanner.skip('t') || scanner.skip(' ')) {
        return None;
    }
    let hour = scanner.number(2, 2)?;
    let separated = scanner.skip(':');
    let minute = if separated || scanner.rest.starts_with(|c: char| c.is_ascii_digit()) {
        scanner.number(2, 2)?
    } else {
        0
    };
    let mut second = 0;
    let mut millisecond = 0;
    if scanner.skip(':') || (!separated && scanner.rest.starts_with(|c: char| c.is_ascii_digit())) {
        second = scanner.number(2, 2)?;
        if scanner.skip('.') || scanner.skip(',') {
            millisecond = scanner.milliseconds()?;
        }
    }
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    parsed.time = hour * MS_PER_HOUR + minute * MS_PER_MINUTE + second * MS_PER_SECOND + millisecond;
    scanner.skip(' ');
    if !scanner.rest.is_empty() {
        parsed.offset = Some(
            if let Some(rest) = scanner.rest.strip_prefix("UTC").or(scanner.rest.strip_prefix("GMT")) {
                scanner.rest = rest;
                0
            } else {
                scanner.offset()?
            },
        );
    }
    Some(parsed)
}

/// The date of text in a format with `%` specifiers.
pub(super) fn parse_format(text: &str, format: &str, zone: &Zone) -> Result<i64, QueryError> {
    let mut scanner = Scanner { rest: text };
    let mut parsed = Parsed::default();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            if !scanner.skip(c) {
                return parse_error(text, &format!("the text does not match the format at '{c}'"));
            }
            continue;
        }
        let Some(specifier) = chars.next() else {
            return failure(18535, "Unmatched '%' at end of format string");
        };
        match scan_specifier(&mut scanner, &mut parsed, specifier) {
            Some(true) => {}
            Some(false) => {
                return failure(
                    18536,
                    format!("Invalid format character '%{specifier}' in format string"),
                );
            }
            None => return parse_error(text, &format!("the text does not match '%{specifier}'")),
        }
    }
    if !scanner.rest.is_empty() {
        return parse_error(text, "trailing data");
    }
    resolve(text, parsed, zone)
}

/// Takes in one specifier. `None`: the text does not fit; false: there is no such specifier.
fn scan_specifier(scanner: &mut Scanner<'_>, parsed: &mut Parsed, specifier: char) -> Option<bool> {
    let bounded = |number: i64, most: i64| (number <= most).then_some(number);
    match specifier {
        'Y' => parsed.year = Some(scanner.number(4, 4)?),
        'G' => parsed.iso_year = Some(scanner.number(4, 4)?),
        'm' => parsed.month = Some(scanner.number(1, 2)?),
        'd' => parsed.day = Some(scanner.number(1, 2)?),
        'H' => parsed.time += bounded(scanner.number(1, 2)?, 23)? * MS_PER_HOUR,
        'M' => parsed.time += bounded(scanner.number(1, 2)?, 59)? * MS_PER_MINUTE,
        'S' => parsed.time += bounded(scanner.number(1, 2)?, 59)? * MS_PER_SECOND,
        'L' => parsed.time += scanner.number(1, 3)?,
        'j' => parsed.day_of_year = Some(scanner.number(1, 3)?),
        'V' => parsed.iso_week = Some(scanner.number(1, 2)?),
        'u' => parsed.iso_day = Some(scanner.number(1, 1)?),
        'b' => parsed.month = Some(scanner.month_name(false)?),
        'B' => parsed.month = Some(scanner.month_name(true)?),
        'z' => parsed.offset = Some(scanner.offset()?),
        'Z' => {
            let sign = if scanner.skip('-') { -1 } else { 1 };
            scanner.skip('+');
            parsed.offset = Some(sign * scanner.number(1, 4)? * MS_PER_MINUTE);
        }
        '%' => return scanner.skip('%').then_some(true),
        _ => return Some(false),
    }
    Some(true)
}

fn resolve(text: &str, parsed: Parsed, zone: &Zone) -> Result<i64, QueryError> {
    let day = match (parsed.year, parsed.iso_year) {
        (Some(_), Some(_)) => return parse_error(text, "mixing of ISO dates with natural dates is not allowed."),
        (None, Some(year)) => {
            let (week, day) = (parsed.iso_week.unwrap_or(1), parsed.iso_day.unwrap_or(1));
            if !(1..=53).contains(&week) || !(1..=7).contains(&day) {
                return parse_error(text, "the week date is out of range");
            }
            day_of_iso_week(year, week, day)
        }
        (Some(year), None) => match parsed.day_of_year {
            Some(day) if (1..=366).contains(&day) => super::calendar::day_number(year, 1, day),
            Some(_) => return parse_error(text, "the day of the year is out of range"),
            None => {
                let (month, day) = (parsed.month.unwrap_or(1), parsed.day.unwrap_or(1));
                if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
                    return parse_error(text, "the date is not in the calendar");
                }
                super::calendar::day_number(year, month, day)
            }
        },
        (None, None) => return parse_error(text, "an incomplete date was given: a year is missing"),
    };
    let (year, month, day) = super::calendar::date_of_day(day);
    let local = Civil {
        year,
        month,
        day,
        time: parsed.time,
    };
    let zone = parsed.offset.map_or_else(|| zone.clone(), Zone::Fixed);
    match zone.utc_ms(local) {
        Some(ms) => Ok(ms),
        None => parse_error(text, "the date is out of range"),
    }
}
