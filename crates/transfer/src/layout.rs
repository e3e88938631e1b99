//! How dates are written in a column: layouts of Go, Microsoft SQL Server and Oracle, as `strptime` knows them.

use jiff::civil::Time;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::tz::TimeZone;

/// A layout of dates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    format: String,
    /// `Z` may stand for an offset of nothing.
    has_zulu: bool,
}

/// What a piece of a layout means to `strptime`. Of pieces that begin alike the longer one comes first.
type Pieces = &'static [(&'static str, &'static str)];

/// The pieces of Go are those of its reference time, Monday, 2 January 2006, 15:04:05 -0700.
const GO: Pieces = &[
    ("January", "%B"),
    ("Monday", "%A"),
    ("Z07:00", "%:z"),
    ("-07:00", "%:z"),
    ("Z0700", "%z"),
    ("-0700", "%z"),
    ("2006", "%Y"),
    ("Jan", "%b"),
    ("Mon", "%a"),
    ("002", "%j"),
    ("01", "%m"),
    ("02", "%d"),
    ("03", "%I"),
    ("04", "%M"),
    ("05", "%S%.f"),
    ("06", "%y"),
    ("15", "%H"),
    ("_2", "%e"),
    ("PM", "%p"),
    ("pm", "%p"),
    ("1", "%m"),
    ("2", "%d"),
    ("3", "%I"),
    ("4", "%M"),
    ("5", "%S%.f"),
];

const MICROSOFT: Pieces = &[
    ("yyyy", "%Y"),
    ("MMMM", "%B"),
    ("dddd", "%A"),
    ("zzz", "%:z"),
    ("MMM", "%b"),
    ("ddd", "%a"),
    ("yy", "%y"),
    ("MM", "%m"),
    ("dd", "%d"),
    ("HH", "%H"),
    ("hh", "%I"),
    ("mm", "%M"),
    ("ss", "%S%.f"),
    ("tt", "%p"),
    ("M", "%m"),
    ("d", "%d"),
    ("H", "%H"),
    ("h", "%I"),
    ("m", "%M"),
    ("s", "%S%.f"),
];

const ORACLE: Pieces = &[
    ("TZH:TZM", "%:z"),
    ("MONTH", "%B"),
    ("HH24", "%H"),
    ("HH12", "%I"),
    ("YYYY", "%Y"),
    ("A.M.", "%p"),
    ("P.M.", "%p"),
    ("DDD", "%j"),
    ("DAY", "%A"),
    ("MON", "%b"),
    ("YY", "%y"),
    ("MM", "%m"),
    ("DD", "%d"),
    ("DY", "%a"),
    ("HH", "%I"),
    ("MI", "%M"),
    ("SS", "%S%.f"),
    ("AM", "%p"),
    ("PM", "%p"),
];

impl Layout {
    /// A layout of Go's package `time`.
    pub fn go(text: &str) -> Self {
        let mut layout = translate(text, GO, &['0', '9']);
        layout.has_zulu = text.contains("Z07");
        layout
    }

    /// A format of Microsoft SQL Server's function `FORMAT`.
    pub fn microsoft(text: &str) -> Self {
        translate(text, MICROSOFT, &['f', 'F'])
    }

    /// A format of Oracle's function `TO_DATE`, in either case.
    pub fn oracle(text: &str) -> Self {
        translate(&text.to_ascii_uppercase(), ORACLE, &['F'])
    }

    /// Milliseconds since 1970; a date without an offset is in UTC.
    pub fn parse_ms(&self, text: &str) -> Option<i64> {
        let zulu = text.strip_suffix('Z').filter(|_| self.has_zulu);
        let with_offset = zulu.map(|rest| {
            let offset = if self.format.contains("%:z") { "+00:00" } else { "+0000" };
            format!("{rest}{offset}")
        });
        let parsed = BrokenDownTime::parse(&self.format, with_offset.as_deref().unwrap_or(text)).ok()?;
        if parsed.offset().is_some() {
            return parsed.to_timestamp().ok().map(jiff::Timestamp::as_millisecond);
        }
        let date = parsed.to_date().ok()?;
        let time = match parsed.hour() {
            Some(_) => parsed.to_time().ok()?,
            None => Time::midnight(),
        };
        let zoned = date.to_datetime(time).to_zoned(TimeZone::UTC).ok()?;
        Some(zoned.timestamp().as_millisecond())
    }
}

/// `fractions` are the digits that stand for fractions of a second behind a point or comma.
fn translate(text: &str, pieces: Pieces, fractions: &[char]) -> Layout {
    let mut format = String::new();
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some((piece, meaning)) = pieces.iter().find(|(piece, _)| rest.starts_with(piece)) {
            format.push_str(meaning);
            rest = &rest[piece.len()..];
            // The seconds take a fraction anyway.
            if meaning.ends_with("%.f") && rest.starts_with(['.', ',']) && rest[1..].starts_with(fractions) {
                rest = rest[1..].trim_start_matches(|next: char| fractions.contains(&next) || next.is_ascii_digit());
            }
            continue;
        }
        match character {
            '%' => format.push_str("%%"),
            other => format.push(other),
        }
        rest = &rest[character.len_utf8()..];
    }
    Layout {
        format,
        has_zulu: false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::Layout;

    #[test]
    fn dates_of_three_layouts() {
        let day_ms = 1_577_923_200_000;
        let moment_ms = 1_577_934_245_000;
        for (layout, text, found_ms) in [
            (Layout::go("2006-01-02"), "2020-01-02", day_ms),
            (
                Layout::go("2006-01-02T15:04:05Z07:00"),
                "2020-01-02T03:04:05Z",
                moment_ms,
            ),
            (
                Layout::go("2006-01-02T15:04:05.000Z07:00"),
                "2020-01-02T04:04:05.678+01:00",
                moment_ms + 678,
            ),
            (
                Layout::go("Jan 2, 2006 at 3:04:05PM"),
                "Jan 2, 2020 at 3:04:05AM",
                moment_ms,
            ),
            (
                Layout::microsoft("dd/MM/yyyy HH:mm:ss.fff"),
                "02/01/2020 03:04:05.678",
                moment_ms + 678,
            ),
            (Layout::microsoft("yyyyMMdd"), "20200102", day_ms),
            (
                Layout::oracle("mon dd, yyyy hh24:mi:ss"),
                "jan 02, 2020 03:04:05",
                moment_ms,
            ),
            (Layout::go("2006-01-02"), "1969-12-31", -86_400_000),
        ] {
            assert_eq!(layout.parse_ms(text), Some(found_ms), "{layout:?} {text}");
        }
        for text in ["", "2020-13-01", "2020-01-02x", "20-1-2-3"] {
            assert_eq!(Layout::go("2006-01-02").parse_ms(text), None, "{text}");
        }
    }
}
