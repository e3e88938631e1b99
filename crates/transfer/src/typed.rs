//! Types of columns, and values of them.

use crate::layout::Layout;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128};

/// What the values of a column are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A number where it looks like one, else text.
    Auto,
    /// Base 64.
    Base64,
    /// Base 32.
    Base32,
    /// Hexadecimal digits.
    Hexadecimal,
    /// `true`, `false`, and their short forms.
    Boolean,
    /// A date of a layout.
    Date(Layout),
    /// A decimal of 128 bits.
    Decimal,
    /// A double.
    Double,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// Text as it stands.
    Text,
}

/// What becomes of a value that is not of its column's type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Grace {
    /// It is read as [`ColumnType::Auto`].
    AutoCast,
    /// The document has no such field.
    SkipField,
    /// The document is left out.
    SkipRow,
    /// Nothing more is imported.
    #[default]
    Stop,
}

impl ColumnType {
    /// A name and what stands in its brackets, as in `date(2006-01-02)`; an error says what is wrong.
    pub(crate) fn named(name: &str, argument: &str) -> Result<Self, String> {
        let layout = |made: fn(&str) -> Layout| match argument {
            "" => Err(format!("{name}() needs a layout")),
            text => Ok(Self::Date(made(text))),
        };
        let plain = |found: Self| match argument {
            "" => Ok(found),
            _ => Err(format!("{name}() takes nothing in its brackets")),
        };
        match name {
            "auto" => plain(Self::Auto),
            "boolean" => plain(Self::Boolean),
            "decimal" => plain(Self::Decimal),
            "double" => plain(Self::Double),
            "int32" => plain(Self::Int32),
            "int64" => plain(Self::Int64),
            "string" => plain(Self::Text),
            "date" | "date_go" => layout(Layout::go),
            "date_ms" => layout(Layout::microsoft),
            "date_oracle" => layout(Layout::oracle),
            "binary" => match argument {
                "base64" => Ok(Self::Base64),
                "base32" => Ok(Self::Base32),
                "hex" => Ok(Self::Hexadecimal),
                _ => Err("binary() takes base64, base32 or hex".to_owned()),
            },
            _ => Err(format!("there is no type {name}()")),
        }
    }

    /// The value; `None` when the text is none of this type.
    pub(crate) fn parse(&self, text: &str) -> Option<Bson> {
        match self {
            Self::Auto => Some(auto(text)),
            Self::Text => Some(Bson::String(text.to_owned())),
            Self::Boolean => match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(Bson::Boolean(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(Bson::Boolean(false)),
                _ => None,
            },
            Self::Int32 => text.parse().ok().map(Bson::Int32),
            Self::Int64 => text.parse().ok().map(Bson::Int64),
            Self::Double => double(text).map(Bson::Double),
            Self::Decimal => text.parse::<Decimal128>().ok().map(Bson::Decimal128),
            Self::Date(layout) => layout
                .parse_ms(text)
                .map(|date_ms| Bson::DateTime(DateTime::from_millis(date_ms))),
            Self::Base64 => BASE64_STANDARD.decode(text).ok().map(binary),
            Self::Base32 => base32(text).map(binary),
            Self::Hexadecimal => hexadecimal(text).map(binary),
        }
    }
}

fn auto(text: &str) -> Bson {
    if let Ok(int) = text.parse::<i32>() {
        return Bson::Int32(int);
    }
    if let Ok(long) = text.parse::<i64>() {
        return Bson::Int64(long);
    }
    double(text).map_or_else(|| Bson::String(text.to_owned()), Bson::Double)
}

/// Infinite is only what says so: digits of a hash, such as 7e12345, are no number when they are beyond all doubles.
fn double(text: &str) -> Option<f64> {
    let is_said = !text.bytes().any(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|double: &f64| double.is_finite() || is_said)
}

fn binary(bytes: Vec<u8>) -> Bson {
    Bson::Binary(Binary {
        subtype: BinarySubtype::Generic,
        bytes,
    })
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pairs = text.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}

/// RFC 4648 with padding: five bits a character, eight characters a group.
fn base32(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(8) || !matches!(text.len() - digits.len(), 0 | 1 | 3 | 4 | 6) {
        return None;
    }
    let mut out = Vec::with_capacity(digits.len() * 5 / 8);
    let (mut bits, mut count) = (0u16, 0);
    for byte in digits.bytes() {
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return None,
        };
        bits = bits << 5 | u16::from(digit);
        count += 5;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    (bits == 0).then_some(out)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{ColumnType, auto, base32, hexadecimal};
    use bson::Bson;

    #[test]
    fn values_of_each_type() {
        assert_eq!(auto("-7"), Bson::Int32(-7));
        assert_eq!(auto("2147483648"), Bson::Int64(2_147_483_648));
        assert_eq!(auto("9223372036854775808"), Bson::Double(9_223_372_036_854_775_808.0));
        assert_eq!(auto("1.5e3"), Bson::Double(1500.0));
        assert_eq!(auto(""), Bson::String(String::new()));
        for hash in ["7e12345", "-1e999"] {
            assert_eq!(auto(hash), Bson::String(hash.to_owned()));
            assert!(ColumnType::Double.parse(hash).is_none());
        }
        assert_eq!(auto("-Infinity"), Bson::Double(f64::NEG_INFINITY));
        assert_eq!(auto("1e-999"), Bson::Double(0.0));
        assert_eq!(auto("0x10"), Bson::String("0x10".to_owned()));
        assert_eq!(base32("MZXW6===").unwrap(), b"foo");
        assert_eq!(base32("MZXW6YTBOI======").unwrap(), b"foobar");
        assert!(base32("MZXW6==").is_none() && base32("mzxw6===").is_none() && base32("MZXW7===").is_none());
        assert_eq!(hexadecimal("00fF").unwrap(), [0, 255]);
        assert!(hexadecimal("0").is_none() && hexadecimal("+1").is_none());
        assert!(ColumnType::Int32.parse("2147483648").is_none());
        assert!(ColumnType::Boolean.parse("yes").is_none());
        assert!(ColumnType::Decimal.parse("1.20").is_some());
        assert!(ColumnType::named("date", "").is_err() && ColumnType::named("int32", "x").is_err());
    }
}
