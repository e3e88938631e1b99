//! `$dateAdd`, `$dateSubtract`, `$dateDiff`, `$dateTrunc`.
//!
//! Units of a day and more count on the local calendar of the zone, shorter ones on the time line.

use wire::ErrorCode;

use super::calendar::{
    Civil, MS_PER_DAY, MS_PER_HOUR, MS_PER_MINUTE, MS_PER_SECOND, WEEKDAYS, date_of_day, day_number, days_in_month,
    weekday,
};
use super::zone::Zone;
use crate::error::QueryError;
use crate::expression::failure::failure;
use crate::value::Value;

/// A unit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A fixed number of milliseconds, less than a day.
    Milliseconds(i64),
    Day,
    Week,
    /// A number of months: 1, 3, 12.
    Months(i64),
}

impl Unit {
    pub(super) fn parse(value: &Value<'_>, code: i32, operator: &str) -> Result<Unit, QueryError> {
        let Some(name) = value.as_str() else {
            return failure(
                code,
                format!(
                    "{operator} requires 'unit' to be a string, but got {}",
                    value.type_name()
                ),
            );
        };
        Ok(match name {
            "year" => Unit::Months(12),
            "quarter" => Unit::Months(3),
            "month" => Unit::Months(1),
            "week" => Unit::Week,
            "day" => Unit::Day,
            "hour" => Unit::Milliseconds(MS_PER_HOUR),
            "minute" => Unit::Milliseconds(MS_PER_MINUTE),
            "second" => Unit::Milliseconds(MS_PER_SECOND),
            "millisecond" => Unit::Milliseconds(1),
            other => return failure(ErrorCode::FailedToParse.0, format!("unknown time unit value: {other}")),
        })
    }
}

/// The weekday of a name ("mon" or "monday", in any case); 0 is Sunday.
pub(super) fn parse_weekday(name: &str) -> Option<i64> {
    let lower = name.to_ascii_lowercase();
    let day = WEEKDAYS.iter().position(|full| *full == lower || full[..3] == lower);
    day.map(|day| day as i64)
}

/// Days between the ends of all dates, and as many at most in years.
const DAYS_MAX: i64 = (u64::MAX / MS_PER_DAY as u64) as i64 + 1;
const YEARS_MAX: i64 = DAYS_MAX / 365 + 1;

/// Whether so many units of a day and more are beyond all dates, wherever they are counted from.
pub(super) fn is_beyond_dates(unit: Unit, amount: i64) -> bool {
    let most = match unit {
        Unit::Milliseconds(_) => return false,
        Unit::Day => DAYS_MAX,
        Unit::Week => DAYS_MAX / 7 + 1,
        Unit::Months(months) => YEARS_MAX * 12 / months,
    };
    amount.unsigned_abs() > most.unsigned_abs()
}

/// `date` plus `amount` units; `None` when it overflows.
pub(super) fn add(date: i64, unit: Unit, amount: i64, zone: &Zone) -> Option<i64> {
    let in_days = |days: i64| {
        let local = zone.local(date);
        let (year, month, day) = date_of_day(local.day_number().checked_add(days).filter(|day| day.abs() < 1 << 40)?);
        zone.utc_ms(Civil {
            year,
            month,
            day,
            ..local
        })
    };
    match unit {
        Unit::Milliseconds(ms) => date.checked_add(amount.checked_mul(ms)?),
        Unit::Day => in_days(amount),
        Unit::Week => in_days(amount.checked_mul(7)?),
        Unit::Months(months) => {
            let local = zone.local(date);
            let total = amount
                .checked_mul(months)?
                .checked_add(local.year * 12 + local.month - 1)?;
            let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
            if year.abs() > 300_000_000 {
                return None;
            }
            // The last day of a shorter month.
            let day = local.day.min(days_in_month(year, month));
            zone.utc_ms(Civil {
                year,
                month,
                day,
                ..local
            })
        }
    }
}

/// How many boundaries of the unit lie between two dates.
pub(super) fn difference(start: i64, end: i64, unit: Unit, zone: &Zone, week_start: i64) -> Option<i64> {
    match unit {
        Unit::Milliseconds(1) => end.checked_sub(start),
        Unit::Milliseconds(ms) => {
            // The boundaries are those of the local clock, whose offset may not be a whole number of units.
            let count = |date: i64| Some(date.checked_add(zone.offset_ms(start))?.div_euclid(ms));
            count(end)?.checked_sub(count(start)?)
        }
        Unit::Day => Some(zone.local(end).day_number() - zone.local(start).day_number()),
        Unit::Week => {
            let week = |date: i64| {
                let day = zone.local(date).day_number();
                (day - (weekday(day) - week_start).rem_euclid(7)).div_euclid(7)
            };
            Some(week(end) - week(start))
        }
        Unit::Months(months) => {
            let count = |date: i64| {
                let local = zone.local(date);
                (local.year * 12 + local.month - 1).div_euclid(months)
            };
            Some(count(end) - count(start))
        }
    }
}

/// The start of the bin of `size` units that the date lies in; bins count from 2000-01-01 in the zone. Bins shorter
/// than a day have one length, whatever the clock there does meanwhile.
pub(super) fn truncate(date: i64, unit: Unit, size: i64, zone: &Zone, week_start: i64) -> Option<i64> {
    let floor = |value: i64, origin: i64, bin: i64| {
        let distance = value.checked_sub(origin)?;
        distance.checked_sub(distance.rem_euclid(bin))?.checked_add(origin)
    };
    let origin_day = day_number(2000, 1, 1);
    let local = || zone.local(date);
    let midnight = |day: i64| {
        let (year, month, day) = date_of_day(day);
        zone.utc_ms(Civil {
            year,
            month,
            day,
            time: 0,
        })
    };
    match unit {
        Unit::Milliseconds(ms) => floor(date, midnight(origin_day)?, ms.checked_mul(size)?),
        Unit::Day => midnight(floor(local().day_number(), origin_day, size)?),
        Unit::Week => {
            let origin = origin_day + (week_start - weekday(origin_day)).rem_euclid(7);
            midnight(floor(local().day_number(), origin, size.checked_mul(7)?)?)
        }
        Unit::Months(months) => {
            let local = local();
            let month = floor(local.year * 12 + local.month - 1, 2000 * 12, months.checked_mul(size)?)?;
            zone.utc_ms(Civil {
                year: month.div_euclid(12),
                month: month.rem_euclid(12) + 1,
                day: 1,
                time: 0,
            })
        }
    }
}
