//! Whole numbers as people write them: `256`, `100,000`, `1_000`, `2^20`, `16 KiB`, `1.5 GB`.

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
    let text: String = text.trim().replace([',', '_'], "").to_ascii_lowercase();
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
