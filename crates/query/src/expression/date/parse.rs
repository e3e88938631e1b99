//! Dates from text: `$dateFromString` and conversions, in a format with `%` specifiers or as people write them.

use wire::ErrorCode;

use super::calendar::{
    Civil, MS_PER_DAY, MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND, date_of_day, day_number, day_of_iso_week,
    days_in_month, weekday,
};
use super::format::MONTHS;
use super::natural::scan_natural;
use super::zone::{Zone, of_abbreviation, parse_offset};
use crate::error::QueryError;
use crate::expression::operator::failure;

/// What a text says about a date.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) year: Option<i64>,
    pub(super) month: Option<i64>,
    pub(super) day: Option<i64>,
    pub(super) day_of_year: Option<i64>,
    pub(super) iso_year: Option<i64>,
    pub(super) iso_week: Option<i64>,
    /// 1 is Monday.
    pub(super) iso_day: Option<i64>,
    /// The date moves on to the next such day; 0 is Sunday.
    pub(super) weekday: Option<i64>,
    /// Milliseconds since midnight.
    pub(super) time: i64,
    pub(super) offset: Option<i64>,
}

impl Parsed {
    /// Sets the part of the time that counts in `unit`s of milliseconds; `None` where `number` is not below `most`.
    fn set_time(&mut self, number: i64, unit: i64, most: i64) -> Option<()> {
        self.time += (number - self.time / unit % most) * unit;
        (number < most).then_some(())
    }
}

/// Walks over a text, taking digits, signs and names.
pub(super) struct Scanner<'t> {
    pub(super) rest: &'t str,
}

impl<'t> Scanner<'t> {
    /// How many digits come next.
    pub(super) fn digits(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_digit).count()
    }

    /// How many ASCII letters come next.
    pub(super) fn letters(&self) -> usize {
        self.rest.bytes().take_while(u8::is_ascii_alphabetic).count()
    }

    /// The next `length` bytes, which are ASCII.
    pub(super) fn take(&mut self, length: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    /// A number of `least` to `most` digits.
    pub(super) fn number(&mut self, least: usize, most: usize) -> Option<i64> {
        let length = self.digits().min(most);
        if length < least {
            return None;
        }
        self.take(length).parse().ok()
    }

    pub(super) fn skip(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    pub(super) fn skip_any(&mut self, chars: &[char]) {
        self.rest = self.rest.trim_start_matches(chars);
    }

    /// A fraction of a second, as milliseconds.
    pub(super) fn milliseconds(&mut self) -> Option<i64> {
        let digits = self.take(self.digits());
        let padded = format!("{digits:0<3}");
        padded.get(..3).filter(|_| !digits.is_empty())?.parse().ok()
    }

    /// An offset or a zone's abbreviation, in milliseconds: `+hh`, `+hhmm`, `+hh:mm`, also behind `GMT` and `UTC`; `Z`
    /// and the other military letters; `EST`.
    pub(super) fn zone(&mut self) -> Option<i64> {
        if let Some(offset) = self.offset() {
            return Some(offset);
        }
        let name = &self.rest[..self.letters()];
        let offset = of_abbreviation(name)?;
        self.take(name.len());
        match name.to_ascii_uppercase().as_str() {
            "GMT" | "UTC" => Some(self.offset().unwrap_or(offset)),
            _ => Some(offset),
        }
    }

    fn offset(&mut self) -> Option<i64> {
        for length in [6, 5, 3] {
            if let Some(offset) = self.rest.get(..length).and_then(parse_offset) {
                self.take(length);
                return Some(offset);
            }
        }
        None
    }

    pub(super) fn month_name(&mut self, full: bool) -> Option<i64> {
        for (index, name) in MONTHS.iter().enumerate() {
            let name = if full { name } else { &name[..3] };
            let start = self.rest.get(..name.len());
            if start.is_some_and(|start| start.eq_ignore_ascii_case(name)) {
                self.take(name.len());
                return Some(index as i64 + 1);
            }
        }
        None
    }
}

pub(super) fn parse_error<T>(text: &str, why: &str) -> Result<T, QueryError> {
    failure(
        ErrorCode::ConversionFailure.0,
        format!("Error parsing date string '{text}'; {why}"),
    )
}

/// The date of a text: ISO 8601 (also with a space for the `T`, and without separators), or what [`scan_natural`]
/// takes; UTC when it names no offset.
pub(in crate::expression) fn parse_date(text: &str) -> Result<i64, QueryError> {
    parse_text(text, &Zone::Utc)
}

/// As [`parse_date`], in `zone` where the text names no offset.
pub(super) fn parse_text(text: &str, zone: &Zone) -> Result<i64, QueryError> {
    let mut scanner = Scanner { rest: text.trim() };
    match scan_iso(&mut scanner) {
        Some(parsed) if scanner.rest.is_empty() => resolve(text, parsed, zone),
        _ => resolve(text, scan_natural(text)?, zone),
    }
}

/// The most frequent form; what it does not take may still be a date.
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
    let minute = if separated || scanner.digits() > 0 {
        scanner.number(2, 2)?
    } else {
        0
    };
    let mut second = 0;
    let mut millisecond = 0;
    if scanner.skip(':') || (!separated && scanner.digits() > 0) {
        second = scanner.number(2, 2)?;
        if scanner.skip('.') || scanner.skip(',') {
            millisecond = scanner.milliseconds()?;
        }
    }
    parsed.time = time_of_day(hour, minute, second)? + millisecond;
    scanner.skip(' ');
    if !scanner.rest.is_empty() {
        parsed.offset = Some(scanner.zone()?);
    }
    Some(parsed)
}

/// Milliseconds since midnight; `None` for what no clock shows.
pub(super) fn time_of_day(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let is_shown = hour <= 23 && minute <= 59 && second <= 59;
    is_shown.then_some(hour * MS_PER_HOUR + minute * MS_PER_MINUTE + second * MS_PER_SECOND)
}

/// The date of text in a format with `%` specifiers.
pub(super) fn parse_format(text: &str, format: &str, zone: &Zone) -> Result<i64, QueryError> {
    let mut scanner = Scanner { rest: text };
    let mut parsed = Parsed::default();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if scanner.rest.is_empty() {
            return parse_error(text, "Data missing");
        }
        if c != '%' {
            if !scanner.skip(c) {
                return parse_error(text, &format!("Format literal not found: '{c}'"));
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
        return parse_error(text, "Trailing data");
    }
    resolve(text, parsed, zone)
}

/// Takes in one specifier. `None`: the text does not fit; false: there is no such specifier.
fn scan_specifier(scanner: &mut Scanner<'_>, parsed: &mut Parsed, specifier: char) -> Option<bool> {
    match specifier {
        'Y' => parsed.year = Some(scanner.number(4, 4)?),
        'G' => parsed.iso_year = Some(scanner.number(1, 4)?),
        'm' => parsed.month = Some(scanner.number(1, 2)?),
        'd' => parsed.day = Some(scanner.number(1, 2)?),
        'H' => parsed.set_time(scanner.number(1, 2)?, MS_PER_HOUR, 24)?,
        'M' => parsed.set_time(scanner.number(1, 2)?, MS_PER_MINUTE, 60)?,
        'S' => parsed.set_time(scanner.number(1, 2)?, MS_PER_SECOND, 60)?,
        'L' => parsed.set_time(scanner.milliseconds()?, 1, 1000)?,
        'j' => parsed.day_of_year = Some(scanner.number(1, 3)?),
        'V' => parsed.iso_week = Some(scanner.number(1, 2)?),
        'u' => parsed.iso_day = Some(scanner.number(1, 1)?),
        'b' => parsed.month = Some(scanner.month_name(false)?),
        'B' => parsed.month = Some(scanner.month_name(true)?),
        'z' => {
            scanner.skip_any(&[' ', '\t']);
            parsed.offset = Some(scanner.zone()?);
        }
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

/// The time that a text names; `text` is for errors alone.
fn resolve(text: &str, parsed: Parsed, zone: &Zone) -> Result<i64, QueryError> {
    const INVALID: &str = "The parsed date was invalid";
    let natural = [parsed.year, parsed.month, parsed.day, parsed.day_of_year];
    let iso = [parsed.iso_year, parsed.iso_week, parsed.iso_day];
    let is_natural = natural.iter().any(Option::is_some);
    let mut day = match (is_natural, parsed.year, parsed.iso_year) {
        (true, ..) if iso.iter().any(Option::is_some) => {
            return parse_error(text, "Mixing of ISO dates with natural dates is not allowed");
        }
        (false, _, Some(year)) => {
            let (week, day) = (parsed.iso_week.unwrap_or(1), parsed.iso_day.unwrap_or(1));
            if !(1..=53).contains(&week) || !(1..=7).contains(&day) {
                return parse_error(text, INVALID);
            }
            day_of_iso_week(year, week, day)
        }
        (true, Some(year), _) => match parsed.day_of_year {
            Some(day) if (1..=366).contains(&day) => day_number(year, 1, day),
            Some(_) => return parse_error(text, INVALID),
            None => {
                let (month, day) = (parsed.month.unwrap_or(1), parsed.day.unwrap_or(1));
                if !(1..=12).contains(&month) || !(1..=days_in_month(year, month)).contains(&day) {
                    return parse_error(text, INVALID);
                }
                day_number(year, month, day)
            }
        },
        _ if iso.iter().any(Option::is_some) => return parse_error(text, INVALID),
        _ => {
            return failure(
                ErrorCode::ConversionFailure.0,
                format!("an incomplete date/time string has been found, with elements missing: \"{text}\""),
            );
        }
    };
    if let Some(wanted) = parsed.weekday {
        day += (wanted - weekday(day)).rem_euclid(7);
    }
    if parsed.offset.is_some() && !matches!(zone, Zone::Utc) {
        return failure(
            ErrorCode::ConversionFailure.0,
            "you cannot pass in a date/time string with GMT offset together with a timezone argument",
        );
    }
    let (year, month, day) = date_of_day(day);
    let local = Civil {
        year,
        month,
        day,
        time: parsed.time,
    };
    debug_assert!((0..MS_PER_DAY).contains(&local.time), "a time of day");
    let zone = parsed.offset.map_or_else(|| zone.clone(), Zone::Fixed);
    match zone.utc_ms(local) {
        Some(ms) => Ok(ms),
        None => parse_error(text, "the date is out of range"),
    }
}
