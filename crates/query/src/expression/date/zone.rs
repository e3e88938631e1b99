//! Time zones: UTC, fixed offsets, and the bundled IANA database.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::calendar::{Civil, MS_PER_HOUR, MS_PER_MINUTE};
use crate::error::QueryError;
use crate::expression::operator::failure;
use crate::value::Value;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A zone.
#[derive(Clone, Debug)]
pub(super) enum Zone {
    Utc,
    /// Milliseconds east of Greenwich.
    Fixed(i64),
    Named(TimeZone),
}

impl Zone {
    /// The zone of an Olson name or of an offset (`+04:45`, `-0530`, `+03`).
    pub(super) fn parse(name: &str) -> Result<Zone, QueryError> {
        if matches!(name, "UTC" | "GMT" | "Z") {
            return Ok(Zone::Utc);
        }
        if let Some(offset) = parse_offset(name) {
            return Ok(Zone::Fixed(offset));
        }
        match DATABASE.get(name) {
            // The database finds names in any case.
            Ok(zone) if zone.iana_name() == Some(name) => Ok(Zone::Named(zone)),
            _ => failure(40485, format!("unrecognized time zone identifier: \"{name}\"")),
        }
    }

    /// The zone of an operator's argument: UTC when not given, `None` when null.
    pub(super) fn of_value(value: Option<&Value<'_>>) -> Result<Option<Zone>, QueryError> {
        match value {
            None => Ok(Some(Zone::Utc)),
            Some(Value::String(name)) => Zone::parse(name).map(Some),
            Some(nullish) if nullish.is_nullish() => Ok(None),
            Some(other) => failure(
                40517,
                format!("timezone must evaluate to a string, found {}", other.type_name()),
            ),
        }
    }

    /// Milliseconds to add to UTC at that time.
    pub(super) fn offset_ms(&self, utc_ms: i64) -> i64 {
        match self {
            Zone::Utc => 0,
            Zone::Fixed(offset) => *offset,
            Zone::Named(zone) => {
                // Outside the years -9999 to 9999 the rules of the nearest end apply.
                let limits = (Timestamp::MIN.as_millisecond() + 1, Timestamp::MAX.as_millisecond() - 1);
                match Timestamp::from_millisecond(utc_ms.clamp(limits.0, limits.1)) {
                    Ok(timestamp) => i64::from(zone.to_offset(timestamp).seconds()) * 1000,
                    Err(_) => 0,
                }
            }
        }
    }

    /// The local date and time of a UTC time.
    pub(super) fn local(&self, utc_ms: i64) -> Civil {
        Civil::of_ms(utc_ms.saturating_add(self.offset_ms(utc_ms)))
    }

    /// The UTC time of a local one: the first of two, or as far after a gap as it lies in it. `None` when it overflows.
    pub(super) fn utc_ms(&self, local: Civil) -> Option<i64> {
        let ms = local.to_ms()?;
        match self {
            Zone::Utc => Some(ms),
            Zone::Fixed(offset) => ms.checked_sub(*offset),
            Zone::Named(zone) => match civil_time(local) {
                Some(time) => zone
                    .to_ambiguous_timestamp(time)
                    .compatible()
                    .ok()
                    .map(Timestamp::as_millisecond),
                None => ms.checked_sub(self.offset_ms(ms)),
            },
        }
    }
}

fn civil_time(local: Civil) -> Option<DateTime> {
    DateTime::new(
        i16::try_from(local.year).ok()?,
        i8::try_from(local.month).ok()?,
        i8::try_from(local.day).ok()?,
        i8::try_from(local.hour()).ok()?,
        i8::try_from(local.minute()).ok()?,
        i8::try_from(local.second()).ok()?,
        i32::try_from(local.millisecond() * 1_000_000).ok()?,
    )
    .ok()
}

/// Abbreviations that mean one zone nearly everywhere, and their hours east of Greenwich; those of half hours are not
/// among them.
const ABBREVIATIONS: [(&str, i64); 37] = [
    ("UTC", 0),
    ("GMT", 0),
    ("WET", 0),
    ("WEST", 1),
    ("BST", 1),
    ("CET", 1),
    ("CEST", 2),
    ("MET", 1),
    ("MEST", 2),
    ("EET", 2),
    ("EEST", 3),
    ("SAST", 2),
    ("MSK", 3),
    ("PKT", 5),
    ("WIB", 7),
    ("HKT", 8),
    ("AWST", 8),
    ("JST", 9),
    ("KST", 9),
    ("AEST", 10),
    ("AEDT", 11),
    ("NZST", 12),
    ("NZDT", 13),
    ("AST", -4),
    ("ADT", -3),
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
    ("AKST", -9),
    ("AKDT", -8),
    ("HST", -10),
    ("SST", -11),
];

/// Milliseconds east of Greenwich of a zone's abbreviation, or of one of the military letters: A to M but J go east, N to
/// Y west.
pub(super) fn of_abbreviation(name: &str) -> Option<i64> {
    if let [letter] = name.as_bytes() {
        let hours = match letter.to_ascii_uppercase() {
            letter @ b'A'..=b'I' => i64::from(letter - b'A') + 1,
            letter @ b'K'..=b'M' => i64::from(letter - b'K') + 10,
            letter @ b'N'..=b'Y' => -(i64::from(letter - b'N') + 1),
            b'Z' => 0,
            _ => return None,
        };
        return Some(hours * MS_PER_HOUR);
    }
    let known = ABBREVIATIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    known.map(|(_, hours)| hours * MS_PER_HOUR)
}

/// Milliseconds of `+hh`, `+hhmm`, `+hh:mm`.
pub(super) fn parse_offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let digits: String = match rest.split_once(':') {
        Some((hours, minutes)) if hours.len() == 2 && minutes.len() == 2 => format!("{hours}{minutes}"),
        Some(_) => return None,
        None => rest.to_owned(),
    };
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let hours: i64 = digits[..2].parse().ok()?;
    let minutes: i64 = digits
        .get(2..)
        .filter(|minutes| !minutes.is_empty())
        .map_or(Some(0), |minutes| minutes.parse().ok())?;
    Some(sign * (hours * 60 + minutes) * MS_PER_MINUTE)
}
