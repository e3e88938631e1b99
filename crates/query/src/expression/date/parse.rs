//! Dates from text: `$dateFromString` and conversions, in a format with `%` specifiers or as people write them.

use wire::ErrorCode;

use super::calendar::{
    Civil, MS_PER_DAY, MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND, date_of_day, day_number, day_of_iso_week,
    days_in_month, weekday,
};
use super::natural::scan_natural;
use super::scan::{Parsed, Scanner, parse_error, time_of_day};
use super::zone::Zone;
use crate::error::QueryError;

/// The date of a text: ISO 8601 (also with a space for the `T`, and without separators), or what [`scan_natural`]
/// takes; UTC when it names no offset.
pub(in crate::expression) fn parse_date(text: &str) -> Result<i64, QueryError> {
    parse_text(text, &Zone::Utc)
}

/// As [`parse_date`], in `zone` where the text names no offset.
pub(super) fn parse_text(text: &str, zone: &Zone) -> Result<i64, QueryError> {
    let trimmed = text.trim_matches(is_blank);
    let mut scanner = Scanner { rest: trimmed };
    match scan_iso(&mut scanner) {
        Some(parsed) if scanner.rest.is_empty() => resolve(text, parsed, zone),
        _ => resolve(text, scan_natural(trimmed)?, zone),
    }
}

/// What may stand around a date: of the spaces beyond ASCII the one without a break alone, but the zero byte as well.
fn is_blank(c: char) -> bool {
    c.is_ascii_whitespace() || matches!(c, '\0' | '\u{b}' | '\u{a0}')
}

/// The most frequent form; what it does not take may still be a date.
fn scan_iso(scanner: &mut Scanner<'_>) -> Option<Parsed> {
    let sign = match (scanner.skip('-'), scanner.skip('+')) {
        (false, false) => None,
        (is_negative, _) => Some(if is_negative { -1 } else { 1 }),
    };
    let mut parsed = Parsed {
        year: Some(sign.unwrap_or(1) * scanner.number(4, 4)?),
        ..Parsed::default()
    };
    let separated = scanner.skip('-') || (sign.is_none() && scanner.skip('/'));
    if sign.is_some() && !separated {
        return None;
    }
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

/// The specifiers that dates are read by.
pub(super) const SPECIFIERS: &str = "YGmdHMSLjVubBzZ%";

/// The date of text in a format with `%` specifiers, which are among those that there are.
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
            return parse_error(text, "Unmatched '%' at end of format string");
        };
        if scan_specifier(&mut scanner, &mut parsed, specifier).is_none() {
            return parse_error(text, &format!("the text does not match '%{specifier}'"));
        }
    }
    if !scanner.rest.is_empty() {
        return parse_error(text, "Trailing data");
    }
    resolve(text, parsed, zone)
}

/// Takes in one specifier. `None`: the text does not fit.
fn scan_specifier(scanner: &mut Scanner<'_>, parsed: &mut Parsed, specifier: char) -> Option<()> {
    match specifier {
        'Y' => parsed.year = Some(scanner.number(4, 4)?),
        'G' => parsed.iso_year = Some(scanner.number(1, 4)?),
        'm' => parsed.month = Some(scanner.number(1, 2)?),
        'd' => parsed.day = Some(scanner.number(1, 2)?),
        'H' => parsed.set_time(scanner.number(1, 2)?, MS_PER_HOUR, 24)?,
        'M' => parsed.set_time(scanner.number(1, 2)?, MS_PER_MINUTE, 60)?,
        'S' => parsed.set_time(scanner.number(1, 2)?, MS_PER_SECOND, 60)?,
        'L' => parsed.set_time(scanner.milliseconds()?, 1, 1000)?,
        // From 0, as MongoDB reads it, although `$dateToString` writes it from 1.
        'j' => parsed.day_of_year = Some(scanner.number(1, 3)? + 1),
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
        '%' => return scanner.skip('%').then_some(()),
        _ => return None,
    }
    Some(())
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
            Some(day) if (1..=367).contains(&day) => day_number(year, 1, day),
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
            let message = format!("an incomplete date/time string has been found, with elements missing: \"{text}\"");
            return Err(QueryError::new(ErrorCode::ConversionFailure, message));
        }
    };
    if let Some(wanted) = parsed.weekday {
        day += (wanted - weekday(day)).rem_euclid(7);
    }
    if parsed.offset.is_some() && !matches!(zone, Zone::Utc) {
        return Err(QueryError::new(
            ErrorCode::ConversionFailure,
            "you cannot pass in a date/time string with GMT offset together with a timezone argument",
        ));
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
