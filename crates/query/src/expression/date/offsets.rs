//! Offsets from Greenwich as text has them: `+02:00`, `CEST`, military letters.

use super::calendar::{MS_PER_HOUR, MS_PER_MINUTE};

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

/// Milliseconds east of Greenwich of a zone's abbreviation, or of one of the military letters: A to M but J go east, N
/// to Y west.
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
