//! Numbers as people read them: three or four digits and a unit.

/// A plain number with three significant digits at least: `0.0123`, `4.56`, `789`, `12,345`, `1.23 M`.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if !value.is_finite() {
        return "-".to_owned();
    }
    if size >= 9_999_500.0 {
        return format!("{} M", digits(value / 1e6));
    }
    digits(value)
}

/// Three significant digits, or all before the point, those in threes.
fn digits(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 {
        return "0".to_owned();
    }
    if size >= 99.95 {
        return thousands(value.round());
    }
    if size >= 9.995 {
        return format!("{value:.1}");
    }
    if size >= 0.9995 {
        return format!("{value:.2}");
    }
    if size >= 0.000_5 {
        return format!("{value:.3}");
    }
    format!("{value:.1e}")
}

fn thousands(value: f64) -> String {
    let plain = format!("{:.0}", value.abs());
    let mut text = String::with_capacity(plain.len() + plain.len() / 3 + 1);
    if value < 0.0 {
        text.push('-');
    }
    for (index, digit) in plain.chars().enumerate() {
        if index > 0 && (plain.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count, all digits.
pub fn count(value: u64) -> String {
    thousands(value as f64)
}

/// Bytes in powers of 1000, as disks are sold and the sources' tables are written.
pub fn bytes(value: f64) -> String {
    let scaled = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")];
    let unit = scaled.into_iter().find(|(size, _)| value.abs() >= size * 0.9995);
    unit.map_or_else(
        || format!("{} B", digits(value)),
        |(size, name)| format!("{} {name}", digits(value / size)),
    )
}

/// Seconds, or parts of them.
pub fn seconds(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || size >= 0.9995 {
        return format!("{} s", digits(value));
    }
    if size >= 0.000_999_5 {
        return format!("{} ms", digits(value * 1e3));
    }
    if size >= 0.000_000_999_5 {
        format!("{} µs", digits(value * 1e6))
    } else {
        format!("{} ns", digits(value * 1e9))
    }
}

/// A ratio such as `1.42x`.
pub fn ratio(value: f64) -> String {
    if value >= 9.95 {
        format!("{}x", thousands(value.round()))
    } else {
        format!("{value:.2}x")
    }
}

/// A share as percent.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() >= 9.95 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}

/// A share as whole percent: 100 only when it is all, 0 only when it is nothing.
pub fn whole_percent(share: f64) -> String {
    match share {
        _ if share <= 0.0 => "0%".to_owned(),
        _ if share >= 1.0 => "100%".to_owned(),
        _ if share > 0.99 => ">99%".to_owned(),
        _ if share < 0.01 => "<1%".to_owned(),
        _ => format!("{:.0}%", share * 100.0),
    }
}

/// A figure whose name ends with its unit: `Share`, `Bytes`, `Seconds`, `Count`; a plain number otherwise.
pub fn named(name: &str, value: f64) -> String {
    if name.ends_with("Share") {
        percent(value)
    } else if name.ends_with("Bytes") {
        bytes(value)
    } else if name.ends_with("Count") {
        thousands(value)
    } else if name.ends_with("PerSecond") {
        format!("{}/s", short(value))
    } else if name.ends_with("Seconds") {
        seconds(value)
    } else {
        short(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.0123, "0.012"),
            (0.00001, "1.0e-5"),
            (4.56789, "4.57"),
            (9.999, "10.0"),
            (99.96, "100"),
            (123.4, "123"),
            (12_345.6, "12,346"),
            (-1_234_567.0, "-1,234,567"),
            (12_345_678.0, "12.3 M"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(short(value), text);
        }
    }

    #[test]
    fn units_change_where_four_digits_would_begin() {
        for (value, text) in [
            (0.0, "0 B"),
            (999.0, "999 B"),
            (999.9, "1.00 KB"),
            (1_500_000.0, "1.50 MB"),
            (2e12, "2.00 TB"),
        ] {
            assert_eq!(bytes(value), text);
        }
        for (value, text) in [
            (0.0, "0 s"),
            (5e-9, "5.00 ns"),
            (0.000_25, "250 µs"),
            (0.012, "12.0 ms"),
            (0.9999, "1.00 s"),
            (75.2, "75.2 s"),
        ] {
            assert_eq!(seconds(value), text);
        }
        assert_eq!(ratio(1.424), "1.42x");
        assert_eq!(ratio(23.4), "23x");
        assert_eq!(percent(0.0123), "1.2 %");
        assert_eq!(percent(0.5), "50 %");
        let whole = [0.0, 1e-9, 0.0099, 0.01, 0.5, 0.99, 0.999_999, 1.0].map(whole_percent);
        assert_eq!(whole, ["0%", "<1%", "<1%", "1%", "50%", "99%", ">99%", "100%"]);
        assert_eq!(count(1_000), "1,000");
        assert_eq!(named("consistentReadShare", 0.985), "98 %");
        assert_eq!(named("coldReadSeconds", 0.012), "12.0 ms");
        assert_eq!(named("oplogBytes", 2e6), "2.00 MB");
        assert_eq!(named("depth", 3.0), "3.00");
        assert_eq!(named("failoverCount", 3.0), "3");
    }
}
