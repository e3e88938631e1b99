//! Dates as people write them: `July 4th, 2017 11am`, `7/4/17`, `Tue, 04 Jul 2017 12:39:30 +0200`.
//!
//! MongoDB takes what PHP's timelib takes; its forms are those of the PHP manual's "Supported Date and Time Formats".
//! Of them this takes all dates, times and zones that stand for themselves; not what is relative to now ("yesterday",
//! "+1 week"), which leaves elements missing there and is refused here. A text is a row of elements in any order, each
//! at most once, with spaces and commas between.

use super::calendar::{MS_PER_DAY, MS_PER_HOUR, MS_PER_SECOND, WEEKDAYS};
use super::scan::{Parsed, Scanner, parse_error, time_of_day};
use crate::error::QueryError;

const SPACES: [char; 5] = [' ', '\t', '\n', '\r', ','];
/// What a text has said so far.
#[derive(Default)]
struct Reader {
    parsed: Parsed,
    has_date: bool,
    has_time: bool,
}

/// The elements of a text; `ConversionFailure` names the one that is none, or that comes twice.
pub(super) fn scan_natural(text: &str) -> Result<Parsed, QueryError> {
    let mut scanner = Scanner { rest: text };
    let mut reader = Reader::default();
    loop {
        scanner.skip_any(&SPACES);
        if scanner.rest.is_empty() {
            return Ok(reader.parsed);
        }
        let element = scanner.rest;
        if reader.element(&mut scanner).is_none() {
            let element = element.split(SPACES).next().unwrap_or_default();
            return parse_error(text, &format!("no part of a date, or one too many: '{element}'"));
        }
        debug_assert!(scanner.rest.len() < element.len(), "an element has characters");
    }
}

/// The year that two digits stand for.
fn full_year(digits: usize, year: i64) -> i64 {
    match (digits, year) {
        (2, ..70) => year + 2000,
        (2, _) => year + 1900,
        _ => year,
    }
}

impl Reader {
    fn element(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        match scanner.rest.as_bytes().first()? {
            b'0'..=b'9' => self.number(scanner),
            b'+' | b'-' if self.has_time => self.zone(scanner),
            b'@' => self.epoch(scanner),
            _ => self.word(scanner),
        }
    }

    /// `None` where there has been a date before.
    fn begin_date(&mut self) -> Option<()> {
        (!std::mem::replace(&mut self.has_date, true)).then_some(())
    }

    fn date(&mut self, year: Option<i64>, month: i64, day: i64) -> Option<()> {
        self.begin_date()?;
        (self.parsed.year, self.parsed.month, self.parsed.day) = (year, Some(month), Some(day));
        Some(())
    }

    fn time(&mut self, time: i64) -> Option<()> {
        if std::mem::replace(&mut self.has_time, true) {
            return None;
        }
        self.parsed.time = time;
        Some(())
    }

    fn zone(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        if self.parsed.offset.is_some() {
            return None;
        }
        self.parsed.offset = Some(scanner.zone()?);
        Some(())
    }

    /// Seconds since 1970.
    fn epoch(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        scanner.skip('@');
        let sign = if scanner.skip('-') { -1 } else { 1 };
        let seconds = sign * scanner.number(1, 12)?;
        let (day, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400) * MS_PER_SECOND);
        let (year, month, day) = super::calendar::date_of_day(day);
        if self.parsed.offset.replace(0).is_some() {
            return None;
        }
        self.date(Some(year), month, day)?;
        self.time(time)
    }

    fn number(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let digits = scanner.digits();
        let next = scanner.rest.as_bytes().get(digits).map(u8::to_ascii_lowercase);
        match (digits, next) {
            (1 | 2, Some(b':')) => self.clock(scanner),
            (4, Some(b'-' | b'/')) => self.year_first(scanner),
            (4, Some(b'w')) => self.week(scanner),
            (1 | 2, Some(b'/')) => self.american(scanner),
            (1 | 2, Some(b'-' | b'.')) if self.day_first(scanner).is_some() => Some(()),
            (1 | 2, _) if self.twelve_hours(scanner).is_some() => Some(()),
            (1 | 2, _) => self.day_and_name(scanner),
            (8, _) => {
                let (year, month, day) = (scanner.number(4, 4)?, scanner.number(2, 2)?, scanner.number(2, 2)?);
                self.date(Some(year), month, day)
            }
            (14, _) => {
                let (year, month, day) = (scanner.number(4, 4)?, scanner.number(2, 2)?, scanner.number(2, 2)?);
                self.date(Some(year), month, day)?;
                self.compact_time(scanner)
            }
            (7, _) => {
                let year = scanner.number(4, 4)?;
                self.day_of_year(scanner, year)
            }
            // Behind a day and a month: their year. In any other place it is a time, as in 2017, which lacks a date.
            (4, _) if self.has_date && self.parsed.year.is_none() => {
                self.parsed.year = Some(scanner.number(4, 4)?);
                Some(())
            }
            (4 | 6, _) => self.compact_time(scanner),
            _ => None,
        }
    }

    /// `hh:mm`, `hh:mm:ss`, `hh:mm.ss`, with a fraction, with a half of the day behind.
    fn clock(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let mut hour = scanner.number(1, 2)?;
        scanner.skip(':');
        let minute = scanner.number(2, 2)?;
        let (mut second, mut milliseconds) = (0, 0);
        if scanner.skip(':') || scanner.skip('.') {
            second = scanner.number(2, 2)?;
            if scanner.skip('.') || scanner.skip(',') {
                milliseconds = scanner.milliseconds()?;
            }
        }
        if let Some(half) = half_of_day(scanner) {
            hour = in_half(hour, half)?;
        }
        self.time(time_of_day(hour, minute, second)? + milliseconds)
    }

    /// `hhmm`, `hhmmss`.
    fn compact_time(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let (hour, minute) = (scanner.number(2, 2)?, scanner.number(2, 2)?);
        let second = scanner.number(2, 2).unwrap_or(0);
        self.time(time_of_day(hour, minute, second)?)
    }

    /// `11am`, `11 p.m.`
    fn twelve_hours(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let mut ahead = Scanner { rest: scanner.rest };
        let hour = ahead.number(1, 2)?;
        let half = half_of_day(&mut ahead)?;
        scanner.rest = ahead.rest;
        self.time(in_half(hour, half)? * MS_PER_HOUR)
    }

    /// `2017-07-04`, `2017/7/4`, `2017-07`, `2017-Jul-04`, `2017-W27-2`, `2017-185`.
    fn year_first(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let year = scanner.number(4, 4)?;
        let separator = if scanner.skip('-') { '-' } else { '/' };
        scanner.skip(separator);
        match scanner.digits() {
            0 if scanner.rest.starts_with(['W', 'w']) => self.week_of(scanner, year),
            0 => {
                let month = month(scanner)?;
                scanner.skip('-');
                let day = scanner.number(1, 2)?;
                self.date(Some(year), month, day)
            }
            3 if separator == '-' => self.day_of_year(scanner, year),
            _ => {
                let month = scanner.number(1, 2)?;
                let day = if scanner.skip(separator) {
                    scanner.number(1, 2)?
                } else {
                    1
                };
                self.date(Some(year), month, day)
            }
        }
    }

    /// `2017W27`, `2017W272`.
    fn week(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let year = scanner.number(4, 4)?;
        self.week_of(scanner, year)
    }

    fn week_of(&mut self, scanner: &mut Scanner<'_>, year: i64) -> Option<()> {
        self.begin_date()?;
        scanner.take(1);
        let parsed = &mut self.parsed;
        (parsed.iso_year, parsed.iso_week) = (Some(year), Some(scanner.number(2, 2)?));
        if scanner.skip('-') || scanner.digits() == 1 {
            parsed.iso_day = Some(scanner.number(1, 1)?);
        }
        Some(())
    }

    fn day_of_year(&mut self, scanner: &mut Scanner<'_>, year: i64) -> Option<()> {
        self.begin_date()?;
        let day = scanner.number(3, 3).filter(|day| *day <= 366)?;
        (self.parsed.year, self.parsed.day_of_year) = (Some(year), Some(day));
        Some(())
    }

    /// Month, day and year, if it is there: `7/4/2017`, `7/4/17`, `7/4`.
    fn american(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let month = scanner.number(1, 2)?;
        scanner.skip('/');
        let day = scanner.number(1, 2)?;
        let year = match scanner.skip('/') {
            true => Some(short_year(scanner)?),
            false => None,
        };
        self.date(year, month, day)
    }

    /// `04-07-2017`, `4.7.2017`, `4.7.17`, and with the year in front `17-07-04`.
    fn day_first(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let mut ahead = Scanner { rest: scanner.rest };
        let digits = ahead.digits();
        let first = ahead.number(1, 2)?;
        let separator = if ahead.skip('-') { '-' } else { '.' };
        ahead.skip(separator);
        let month = ahead.number(1, 2)?;
        if !ahead.skip(separator) {
            return None;
        }
        let (year, day) = match (ahead.digits(), separator) {
            (4, _) | (2, '.') => (short_year(&mut ahead)?, first),
            (1 | 2, '-') => (full_year(digits, first), ahead.number(1, 2)?),
            _ => return None,
        };
        scanner.rest = ahead.rest;
        self.date(Some(year), month, day)
    }

    /// `4 July 2017`, `4th July`, `04-Jul-17`.
    fn day_and_name(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let day = scanner.number(1, 2)?;
        ordinal(scanner);
        scanner.skip_any(&[' ', '\t', '.', '-']);
        let month = month(scanner)?;
        let year = year_behind(scanner);
        self.date(year, month, day)
    }

    fn word(&mut self, scanner: &mut Scanner<'_>) -> Option<()> {
        let word = scanner.rest[..scanner.letters()].to_ascii_lowercase();
        if let Some(weekday) = weekday(&word) {
            scanner.take(word.len());
            scanner.skip('.');
            return self.parsed.weekday.replace(weekday).is_none().then_some(());
        }
        match word.as_str() {
            "noon" | "midnight" => {
                scanner.take(word.len());
                self.time(if word == "noon" { MS_PER_DAY / 2 } else { 0 })
            }
            // `T12:39`, `t1239`.
            "t" if scanner.rest.as_bytes().get(1).is_some_and(u8::is_ascii_digit) => {
                scanner.take(1);
                match (scanner.digits(), scanner.rest.as_bytes().get(scanner.digits())) {
                    (1 | 2, Some(b':')) => self.clock(scanner),
                    (1 | 2, _) => {
                        let hour = scanner.number(1, 2)?;
                        self.time(time_of_day(hour, 0, 0)?)
                    }
                    _ => self.compact_time(scanner),
                }
            }
            _ => match month(scanner) {
                Some(month) => self.month_first(scanner, month),
                None => self.zone(scanner),
            },
        }
    }

    /// `July 4th, 2017`, `Jul 4`, `Jul-04-2017`, `July 2017`.
    fn month_first(&mut self, scanner: &mut Scanner<'_>, month: i64) -> Option<()> {
        scanner.skip_any(&[' ', '\t', '.', '-']);
        match scanner.digits() {
            4 => {
                let year = scanner.number(4, 4)?;
                self.date(Some(year), month, 1)
            }
            1 | 2 => {
                let day = scanner.number(1, 2)?;
                ordinal(scanner);
                let year = year_behind(scanner);
                self.date(year, month, day)
            }
            _ => None,
        }
    }
}

/// A year of two or four digits.
fn short_year(scanner: &mut Scanner<'_>) -> Option<i64> {
    let digits = scanner.digits();
    matches!(digits, 2 | 4).then_some(())?;
    Some(full_year(digits, scanner.number(2, 4)?))
}

/// The year behind a day and a month's name: four digits that no clock follows, or two right behind a hyphen.
fn year_behind(scanner: &mut Scanner<'_>) -> Option<i64> {
    let mut ahead = Scanner { rest: scanner.rest };
    let is_joined = ahead.rest.starts_with('-');
    ahead.skip_any(&[' ', '\t', '.', ',', '-']);
    let year = match ahead.digits() {
        4 => ahead.number(4, 4)?,
        2 if is_joined => short_year(&mut ahead)?,
        _ => return None,
    };
    scanner.rest = ahead.rest;
    Some(year)
}

/// `st`, `nd`, `rd`, `th`.
fn ordinal(scanner: &mut Scanner<'_>) {
    let suffix = &scanner.rest[..scanner.letters()];
    if ["st", "nd", "rd", "th"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(suffix))
    {
        scanner.take(2);
    }
}

/// A month's name, whole or its first three letters, `sept`.
fn month(scanner: &mut Scanner<'_>) -> Option<i64> {
    let word = &scanner.rest[..scanner.letters()];
    if word.eq_ignore_ascii_case("sept") {
        scanner.take(4);
        return Some(9);
    }
    let is_short = word.len() == 3;
    let mut ahead = Scanner { rest: word };
    let month = ahead.month_name(!is_short)?;
    ahead.rest.is_empty().then_some(())?;
    scanner.take(word.len());
    Some(month)
}

/// 0 is Sunday; whole names and the usual short ones.
fn weekday(word: &str) -> Option<i64> {
    let is_name = |name: &&str| match word.len() {
        3 => name.starts_with(word),
        _ => {
            *name == word
                || matches!(
                    (*name, word),
                    ("tuesday", "tues") | ("wednesday", "wednes") | ("thursday", "thur" | "thurs")
                )
        }
    };
    WEEKDAYS.iter().position(is_name).map(|place| place as i64)
}

/// Hours to add to those of a twelve-hour clock, of `am` or `pm`, with points or without, behind spaces or not.
fn half_of_day(scanner: &mut Scanner<'_>) -> Option<i64> {
    let mut ahead = Scanner { rest: scanner.rest };
    ahead.skip_any(&[' ', '\t']);
    let hours = match ahead.rest.chars().next()?.to_ascii_lowercase() {
        'a' => 0,
        'p' => 12,
        _ => return None,
    };
    ahead.take(1);
    ahead.skip('.');
    if !(ahead.skip('m') || ahead.skip('M')) {
        return None;
    }
    ahead.skip('.');
    if ahead.letters() > 0 {
        return None;
    }
    scanner.rest = ahead.rest;
    Some(hours)
}

/// The hour of a twelve-hour clock, on one of twenty-four.
fn in_half(hour: i64, half: i64) -> Option<i64> {
    (1..=12).contains(&hour).then_some(hour % 12 + half)
}

#[cfg(test)]
mod tests {
    use super::super::parse::parse_text;
    use super::super::zone::Zone;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_text_has_a_date_or_an_error(text in "([0-9]{1,4}|[-/.:@+TW ,]|am|pm|th|noon|jul|tue|utc|est|é){0,12}") {
            // What it answers is the corpus's business.
            let _ = parse_text(&text, &Zone::Utc);
        }
    }
}
