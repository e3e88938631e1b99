//! What the readers of dates share: a walk over a text, and what it has said.

use wire::ErrorCode;

use super::calendar::{MONTHS, MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND};
use super::offsets::{of_abbreviation, parse_offset};
use crate::error::QueryError;

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
    pub(super) fn set_time(&mut self, number: i64, unit: i64, most: i64) -> Option<()> {
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
    let message = format!("Error parsing date string '{text}'; {why}");
    Err(QueryError::new(ErrorCode::ConversionFailure, message))
}

/// Milliseconds since midnight; `None` for what no clock shows.
pub(super) fn time_of_day(hour: i64, minute: i64, second: i64) -> Option<i64> {
    let is_shown = hour <= 23 && minute <= 59 && second <= 59;
    is_shown.then_some(hour * MS_PER_HOUR + minute * MS_PER_MINUTE + second * MS_PER_SECOND)
}
