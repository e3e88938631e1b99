//! Time zones: UTC, fixed offsets, and the bundled IANA database.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{TimeZone, TimeZoneDatabase};
use wire::ErrorCode;

use super::calendar::Civil;
use super::offsets::parse_offset;
use crate::error::QueryError;
use crate::value::Value;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

fn refused(code: i32, message: String) -> QueryError {
    QueryError::new(ErrorCode(code), message)
}

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
        if matches!(name, "UTC" | "GMT") {
            return Ok(Zone::Utc);
        }
        match parse_offset(name) {
            Some(0) => return Ok(Zone::Utc),
            Some(offset) => return Ok(Zone::Fixed(offset)),
            None => {}
        }
        match DATABASE.get(name) {
            // The database finds names in any case.
            Ok(zone) if zone.iana_name() == Some(name) => Ok(Zone::Named(zone)),
            _ => Err(refused(40485, format!("unrecognized time zone identifier: \"{name}\""))),
        }
    }

    /// The zone of an operator's argument: UTC when not given, `None` when null.
    pub(super) fn of_value(value: Option<&Value<'_>>) -> Result<Option<Zone>, QueryError> {
        match value {
            None => Ok(Some(Zone::Utc)),
            Some(Value::String(name)) => Zone::parse(name).map(Some),
            Some(nullish) if nullish.is_nullish() => Ok(None),
            Some(other) => Err(refused(
                40517,
                format!("timezone must evaluate to a string, found {}", other.type_name()),
            )),
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
