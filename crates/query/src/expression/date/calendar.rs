//! The proleptic Gregorian calendar on milliseconds, for every int64 date; knows no time zones.
//!
//! Day numbers count from 1970-01-01. Conversions between day numbers and dates: Hinnant, "chrono-compatible low-level
//! date algorithms" (2013), in int64.

pub(super) const MS_PER_SECOND: i64 = 1_000;
pub(super) const MS_PER_MINUTE: i64 = 60_000;
pub(super) const MS_PER_HOUR: i64 = 3_600_000;
pub(super) const MS_PER_DAY: i64 = 86_400_000;

pub(super) const MONTHS: [&str; 12] = [
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

pub(super) const WEEKDAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

/// A date and time of day without a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
    /// Milliseconds since midnight.
    pub(super) time: i64,
}

/// The day number of a date; `month` is 1 to 12, `day` may be out of the month.
pub(super) fn day_number(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day number.
pub(super) fn date_of_day(number: i64) -> (i64, i64, i64) {
    let shifted = number + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

pub(super) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

impl Civil {
    /// Of milliseconds since 1970-01-01T00:00 on the same clock.
    pub(super) fn of_ms(ms: i64) -> Self {
        let (year, month, day) = date_of_day(ms.div_euclid(MS_PER_DAY));
        Self {
            year,
            month,
            day,
            time: ms.rem_euclid(MS_PER_DAY),
        }
    }

    /// Milliseconds since 1970-01-01T00:00, when they fit.
    pub(super) fn to_ms(self) -> Option<i64> {
        day_number(self.year, self.month, self.day)
            .checked_mul(MS_PER_DAY)?
            .checked_add(self.time)
    }

    pub(super) fn hour(self) -> i64 {
        self.time / MS_PER_HOUR
    }

    pub(super) fn minute(self) -> i64 {
        self.time / MS_PER_MINUTE % 60
    }

    pub(super) fn second(self) -> i64 {
        self.time / MS_PER_SECOND % 60
    }

    pub(super) fn millisecond(self) -> i64 {
        self.time % MS_PER_SECOND
    }

    pub(super) fn day_number(self) -> i64 {
        day_number(self.year, self.month, self.day)
    }

    /// 0 is Sunday.
    pub(super) fn weekday(self) -> i64 {
        weekday(self.day_number())
    }

    /// 1 is Monday, 7 Sunday.
    pub(super) fn iso_weekday(self) -> i64 {
        match self.weekday() {
            0 => 7,
            day => day,
        }
    }

    /// 1 to 366.
    pub(super) fn day_of_year(self) -> i64 {
        self.day_number() - day_number(self.year, 1, 1) + 1
    }

    /// Weeks begin on Sunday; days before the first are in week 0.
    pub(super) fn week(self) -> i64 {
        (self.day_of_year() + 6 - self.weekday()) / 7
    }

    /// ISO 8601 year and week: the week belongs to the year of its Thursday.
    pub(super) fn iso_week(self) -> (i64, i64) {
        let thursday = self.day_number() - (self.iso_weekday() - 4);
        let (year, ..) = date_of_day(thursday);
        (year, (thursday - day_number(year, 1, 1)) / 7 + 1)
    }
}

/// The weekday of a day number; 0 is Sunday.
pub(super) fn weekday(day: i64) -> i64 {
    // 1970-01-01 was a Thursday.
    (day + 4).rem_euclid(7)
}

/// The day number of an ISO 8601 week date.
pub(super) fn day_of_iso_week(year: i64, week: i64, day: i64) -> i64 {
    let january_fourth = day_number(year, 1, 4);
    let first_monday = january_fourth - (weekday(january_fourth) + 6) % 7;
    first_monday + (week - 1) * 7 + day - 1
}
