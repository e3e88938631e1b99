//! Whole numbers as people write them: `256`, `100,000`, `1_000`, `2^20`, `16 KiB`, `1.5 GB`. A comma stands between
//! groups of three digits: where it may be meant for a point, it is refused.

/// Decimal and binary units.
const UNITS: [(&str, u64); 9] = [
    ("b", 1),
    ("kb", 1000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

/// The number; `None` for what is none, or is no whole number, or does not fit.
pub(super) fn parse(text: &str) -> Option<u64> {
    let text = ungrouped(text.trim())?.replace('_', "").to_ascii_lowercase();
    if let Some((base, exponent)) = text.split_once('^') {
        let (base, exponent) = (base.trim().parse::<u64>().ok()?, exponent.trim().parse().ok()?);
        return base.checked_pow(exponent);
    }
    let digits_end = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    let factor = if unit.is_empty() {
        1
    } else {
        UNITS.iter().find(|(name, _)| *name == unit)?.1
    };
    scaled(digits.trim(), factor)
}

/// Without the commas between thousands; `None` where a comma is none of these.
fn ungrouped(text: &str) -> Option<String> {
    let Some((first, rest)) = text.split_once(',') else {
        return Some(text.to_owned());
    };
    let digits = |group: &str| group.bytes().take_while(u8::is_ascii_digit).count();
    let groups: Vec<&str> = rest.split(',').collect();
    let (last, whole) = groups.split_last()?;
    let is_grouped = (1..=3).contains(&first.len())
        && digits(first) == first.len()
        && whole.iter().all(|group| group.len() == 3 && digits(group) == 3)
        && digits(last) == 3;
    is_grouped.then(|| text.replace(',', ""))
}

/// Bytes in the largest binary unit of which they are a whole number.
pub(super) fn bytes(number: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let fits = |(_, bits): &(&str, u32)| number > 0 && number.is_multiple_of(1 << bits);
    match units.into_iter().find(fits) {
        Some((unit, bits)) => format!("{} {unit}", number >> bits),
        None => number.to_string(),
    }
}

/// `digits` may have a fraction when the product has none.
fn scaled(digits: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || fraction.len() > 9 {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(factor)?;
    if fraction.is_empty() {
        return Some(whole);
    }
    let divisor = 10_u64.checked_pow(fraction.len() as u32)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(factor);
    let is_whole = part.is_multiple_of(u128::from(divisor));
    is_whole.then(|| whole.checked_add((part / u128::from(divisor)) as u64))?
}

#[cfg(test)]
mod tests {
    use super::{bytes, parse};

    #[test]
    fn bytes_are_shown_as_they_are_read() {
        for (number, text) in [
            (0, "0"),
            (1000, "1000"),
            (64 << 20, "64 MiB"),
            (1536, "1536"),
            (1 << 50, "1024 TiB"),
        ] {
            assert_eq!(bytes(number), text);
            assert_eq!(parse(text), Some(number));
        }
    }

    #[test]
    fn what_people_write() {
        let cases = [
            ("256", Some(256)),
            (" 100,000 ", Some(100_000)),
            ("1_048_576", Some(1 << 20)),
            ("2^20", Some(1 << 20)),
            ("16 KiB", Some(16 << 10)),
            ("16kib", Some(16 << 10)),
            ("11 GB", Some(11_000_000_000)),
            ("1.5 GiB", Some(3 << 29)),
            ("1,048,576", Some(1 << 20)),
            ("1,024 KiB", Some(1 << 20)),
            ("1,5 GiB", None),
            ("1,50 GiB", None),
            ("1048,576", None),
            ("10,0000", None),
            ("1.5,000 GiB", None),
            ("2^1,000", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("2^64", None),
            ("2^-1", None),
            ("1.5", None),
            ("-1", None),
            ("1e6", None),
            ("", None),
            ("KiB", None),
            ("16 parsec", None),
            ("1.2.3 GB", None),
            ("99999999 TiB", None),
        ];
        for (text, number) in cases {
            assert_eq!(parse(text), number, "{text:?}");
        }
    }
}
