//! Types: `$convert` and its short forms, `$type`, sizes, and the text of a value.

mod numbers;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bson::oid::ObjectId;
use keys::Decimal;
use keys::decimal::Rounding;
use wire::ErrorCode;

use self::numbers::{
    ByteOrder, bytes_of_number, has_coefficient, is_beyond_doubles, number_of_bytes, parse_decimal, parse_double,
};
use super::bounds::is_string_length;
use super::date::{iso_text, parse_date, timestamp_text};
use super::failure::failure;
use super::operator::{Answer, Apply, ApplyNamed, Arity, Computed, NamedOperator, Operator};
use crate::error::QueryError;
use crate::value::number::Number;
use crate::value::{Blob, DocumentWriter, SharedDocument, Value};

const fn unary(name: &'static str, function: for<'a> fn(&'static str, Value<'a>) -> Computed<'a>) -> Operator {
    Operator {
        name,
        arity: Arity::Exactly(1),
        apply: Apply::Unary(function),
    }
}

/// A short form of `$convert`.
const fn short_form(name: &'static str, function: for<'a> fn(&'static str, Value<'a>) -> Computed<'a>) -> Operator {
    Operator {
        name,
        arity: Arity::One { otherwise: 50723 },
        apply: Apply::Unary(function),
    }
}

/// The operators with positional arguments.
pub(super) const OPERATORS: &[Operator] = &[
    unary("$type", |_, value| Ok(Value::borrowed_str(value.type_name()))),
    unary("$isNumber", |_, value| Ok(Value::Boolean(value.is_number()))),
    short_form("$toString", |_, value| short(value, Target::String)),
    short_form("$toInt", |_, value| short(value, Target::Int)),
    short_form("$toLong", |_, value| short(value, Target::Long)),
    short_form("$toDouble", |_, value| short(value, Target::Double)),
    short_form("$toDecimal", |_, value| short(value, Target::Decimal)),
    short_form("$toBool", |_, value| short(value, Target::Bool)),
    short_form("$toDate", |_, value| short(value, Target::Date)),
    short_form("$toObjectId", |_, value| short(value, Target::ObjectId)),
    short_form("$toUUID", |_, value| short(value, Target::BinData)),
    unary("$binarySize", binary_size),
    unary("$bsonSize", bson_size),
    unary("$toHashedIndexKey", hashed_index_key),
    unary("$tsSecond", |name, value| {
        of_timestamp(name, value, 5687301, |time, _| time)
    }),
    unary("$tsIncrement", |name, value| {
        of_timestamp(name, value, 5687302, |_, increment| increment)
    }),
];

/// The operators with named arguments.
pub(super) const NAMED: &[NamedOperator] = &[NamedOperator {
    name: "$convert",
    fields: &[
        ("input", Some(9)),
        ("to", Some(9)),
        ("format", None),
        ("base", None),
        ("byteOrder", None),
        ("onError", None),
        ("onNull", None),
    ],
    apply: ApplyNamed::Lazy(ON_ERROR, convert),
    codes: [9, 9],
    check: None,
}];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Double,
    String,
    BinData,
    ObjectId,
    Bool,
    Date,
    Int,
    Long,
    Decimal,
    /// A type that exists and that nothing converts to.
    Unsupported(&'static str),
}

impl Target {
    fn name(self) -> &'static str {
        match self {
            Target::Double => "double",
            Target::String => "string",
            Target::BinData => "binData",
            Target::ObjectId => "objectId",
            Target::Bool => "bool",
            Target::Date => "date",
            Target::Int => "int",
            Target::Long => "long",
            Target::Decimal => "decimal",
            Target::Unsupported(name) => name,
        }
    }

    fn of_name(name: &str) -> Option<Target> {
        Some(match name {
            "double" => Target::Double,
            "string" => Target::String,
            "binData" => Target::BinData,
            "objectId" => Target::ObjectId,
            "bool" => Target::Bool,
            "date" => Target::Date,
            "int" => Target::Int,
            "long" => Target::Long,
            "decimal" => Target::Decimal,
            "object" => Target::Unsupported("object"),
            "array" => Target::Unsupported("array"),
            "undefined" => Target::Unsupported("undefined"),
            "null" => Target::Unsupported("null"),
            "regex" => Target::Unsupported("regex"),
            "dbPointer" => Target::Unsupported("dbPointer"),
            "javascript" => Target::Unsupported("javascript"),
            "symbol" => Target::Unsupported("symbol"),
            "javascriptWithScope" => Target::Unsupported("javascriptWithScope"),
            "timestamp" => Target::Unsupported("timestamp"),
            "minKey" => Target::Unsupported("minKey"),
            "maxKey" => Target::Unsupported("maxKey"),
            "missing" => Target::Unsupported("missing"),
            _ => return None,
        })
    }

    fn of_number(number: i64) -> Option<Target> {
        const NAMES: [&str; 20] = [
            "missing",
            "double",
            "string",
            "object",
            "array",
            "binData",
            "undefined",
            "objectId",
            "bool",
            "date",
            "null",
            "regex",
            "dbPointer",
            "javascript",
            "symbol",
            "javascriptWithScope",
            "int",
            "timestamp",
            "long",
            "decimal",
        ];
        Target::of_name(match number {
            -1 => "minKey",
            127 => "maxKey",
            number => NAMES.get(usize::try_from(number).ok()?)?,
        })
    }
}

fn unconvertible<T>(message: String) -> Result<T, QueryError> {
    failure(ErrorCode::ConversionFailure.0, message)
}

const NO_HANDLER: &str = "in $convert with no onError value";

fn short<'a>(value: Value<'a>, target: Target) -> Computed<'a> {
    if value.is_nullish() {
        Ok(Value::Null)
    } else {
        convert_to(&value, target)
    }
}

/// The places of `onError` and `onNull` among the arguments of `$convert`.
const ON_ERROR: usize = 5;
const ON_NULL: usize = 6;

fn convert(arguments: Vec<Option<Value<'_>>>) -> Result<Answer<'_>, QueryError> {
    let mut arguments = arguments.into_iter();
    let mut next = || arguments.next().flatten();
    let (input, to) = (next().unwrap_or(Value::Missing), next().unwrap_or(Value::Missing));
    let (format, base, byte_order) = (next(), next(), next());
    if base.is_some_and(|base| !base.is_nullish()) {
        return failure(ErrorCode::NotImplemented.0, "$convert's 'base' is not implemented");
    }
    // What is wrong with the operator itself is told whatever the input is, and no fault of the conversion.
    let wanted = Wanted::of(&to)?;
    if input.is_nullish() {
        return Ok(Answer::Instead(ON_NULL, Ok(Value::Null)));
    }
    let Some(Wanted { target, subtype }) = wanted else {
        return Ok(Answer::Value(Value::Null));
    };
    let format = Format::of(format.as_ref())?;
    let byte_order = ByteOrder::of(byte_order.as_ref())?;
    let converted = match (&input, target) {
        (Value::Binary(..), Target::String) | (Value::String(_), Target::BinData) => match format {
            Some(format) => format.convert(&input, subtype),
            None => {
                return failure(
                    4341115,
                    format!(
                        "Format must be specified when converting from or to binData: to {}",
                        target.name()
                    ),
                );
            }
        },
        (Value::Binary(own, _), Target::BinData) => match subtype == *own {
            true => Ok(input.clone()),
            false => unconvertible(format!(
                "BinData of subtype {own} is not converted to subtype {subtype} {NO_HANDLER}"
            )),
        },
        (Value::Binary(subtype, bytes), Target::Int | Target::Long | Target::Double) => {
            number_of_bytes(*subtype, bytes, target, byte_order)
        }
        (Value::Int32(_) | Value::Int64(_) | Value::Double(_), Target::BinData) => {
            bytes_of_number(&input, subtype, byte_order)
        }
        _ => convert_to(&input, target),
    };
    match converted {
        Err(error) if is_of_conversion(&error) => Ok(Answer::Instead(ON_ERROR, Err(error))),
        converted => converted.map(Answer::Value),
    }
}

/// Whether `onError` stands for it: a value cannot be converted, or a date has a year of more than four digits.
fn is_of_conversion(error: &QueryError) -> bool {
    matches!(error.code(), Some(ErrorCode::ConversionFailure | ErrorCode(18537)))
}

/// What `$convert` is asked for.
struct Wanted {
    target: Target,
    /// Of binData, 0 without.
    subtype: u8,
}

impl Wanted {
    /// What `to` says; `None` when it is null.
    fn of(to: &Value<'_>) -> Result<Option<Self>, QueryError> {
        let (kind, subtype) = match to {
            Value::Document(_) => (to.get_field("type")?, to.get_field("subtype")?),
            _ => (to.clone(), Value::Missing),
        };
        let target = match &kind {
            nullish if nullish.is_nullish() => return Ok(None),
            Value::String(name) => match Target::of_name(name) {
                Some(target) => target,
                None => return failure(ErrorCode::BadValue.0, format!("Unknown type name: {}", &**name)),
            },
            other => match Number::of(other).and_then(Number::to_exact_i64) {
                Some(number) => match Target::of_number(number) {
                    Some(target) => target,
                    None => {
                        return failure(
                            ErrorCode::FailedToParse.0,
                            format!("In $convert, numeric value for 'to' does not correspond to a BSON type: {number}"),
                        );
                    }
                },
                None => {
                    return failure(
                        ErrorCode::FailedToParse.0,
                        format!(
                            "$convert's 'to' argument must be a string or number, but is {}",
                            other.type_name()
                        ),
                    );
                }
            },
        };
        let subtype = wanted_subtype(&subtype)?;
        Ok(Some(Self { target, subtype }))
    }
}

/// The subtype of binData that `$convert` is asked for, 0 without.
fn wanted_subtype(subtype: &Value<'_>) -> Result<u8, QueryError> {
    let Some(number) = Number::of(subtype) else {
        return match subtype.is_nullish() {
            true => Ok(0),
            false => failure(4341108, "$convert's 'to.subtype' must be a number"),
        };
    };
    let Some(whole) = number.to_exact_i32() else {
        return failure(4341106, "$convert's 'to.subtype' must be a 32-bit integer");
    };
    match u8::try_from(whole) {
        Ok(subtype @ (0..=8 | 128..)) => Ok(subtype),
        _ => failure(4341107, format!("In $convert, {whole} is no subtype of binData")),
    }
}

/// How `$convert` writes bytes as text, or reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    /// UUIDs as such, all else in base64.
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

impl Format {
    /// What is given; `None` when that is nothing, or null.
    fn of(given: Option<&Value<'_>>) -> Result<Option<Self>, QueryError> {
        match given {
            Some(Value::String(name)) => Ok(Some(match &**name {
                "auto" => Self::Auto,
                "base64" => Self::Base64,
                "base64url" => Self::Base64Url,
                "hex" => Self::Hex,
                "utf8" => Self::Utf8,
                "uuid" => Self::Uuid,
                other => return failure(4341125, format!("Invalid 'format' argument for $convert: {other}")),
            })),
            Some(other) if !other.is_nullish() => failure(
                4341114,
                format!(
                    "$convert requires that 'format' be a string, found: {}",
                    other.type_name()
                ),
            ),
            _ => Ok(None),
        }
    }

    /// Bytes as text, or text as bytes of the wanted subtype.
    fn convert<'a>(self, value: &Value<'a>, subtype: u8) -> Computed<'a> {
        match value {
            Value::Binary(subtype, bytes) => self.text(*subtype, bytes).map(Value::string),
            value => {
                let text = value.as_str().unwrap_or_default();
                let bytes = self.bytes(subtype, text)?;
                Ok(Value::Binary(subtype, Blob::Shared(bytes.into())))
            }
        }
    }

    fn text(self, subtype: u8, bytes: &[u8]) -> Result<String, QueryError> {
        let is_uuid = subtype == UUID_SUBTYPE && bytes.len() == 16;
        let text = match self {
            Self::Uuid | Self::Auto if is_uuid => uuid_text(bytes),
            Self::Uuid => return unconvertible(format!("Only UUIDs are written with the format 'uuid' {NO_HANDLER}")),
            Self::Auto | Self::Base64 => STANDARD.encode(bytes),
            Self::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
            Self::Hex => bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
            // Too long a text of this form is no fault of the conversion.
            Self::Utf8 => {
                return match std::str::from_utf8(bytes) {
                    Ok(text) => Ok(text.to_owned()),
                    Err(_) => unconvertible(format!("BinData is not valid UTF-8 {NO_HANDLER}")),
                };
            }
        };
        match is_string_length(text.len()) {
            true => Ok(text),
            false => unconvertible(format!(
                "BinData of {} bytes is too long for a string {NO_HANDLER}",
                bytes.len()
            )),
        }
    }

    fn bytes(self, subtype: u8, text: &str) -> Result<Vec<u8>, QueryError> {
        let bytes = match self {
            Self::Uuid | Self::Auto if subtype == UUID_SUBTYPE => parse_uuid(text),
            Self::Uuid => return unconvertible(format!("The format 'uuid' is for subtype 4 of binData {NO_HANDLER}")),
            _ if subtype == UUID_SUBTYPE => {
                return unconvertible(format!(
                    "Subtype 4 of binData is read with the format 'uuid' {NO_HANDLER}"
                ));
            }
            Self::Auto | Self::Base64 => STANDARD.decode(text).ok(),
            Self::Base64Url => URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok(),
            Self::Hex => hex_bytes(text),
            Self::Utf8 => Some(text.as_bytes().to_vec()),
        };
        match bytes {
            Some(bytes) => Ok(bytes),
            None => unconvertible(format!(
                "Input string is not valid for the format of binData: {text} {NO_HANDLER}"
            )),
        }
    }
}

const UUID_SUBTYPE: u8 = 4;

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text
        .chars()
        .map(|c| c.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    let whole = pairs.remainder().is_empty();
    whole.then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

fn convert_to<'a>(value: &Value<'a>, target: Target) -> Computed<'a> {
    let unsupported = || {
        unconvertible(format!(
            "Unsupported conversion from {} to {} {NO_HANDLER}",
            value.type_name(),
            target.name()
        ))
    };
    if let (Target::Int | Target::Long | Target::Double, Value::Binary(subtype, bytes)) = (target, value) {
        return number_of_bytes(*subtype, bytes, target, ByteOrder::Little);
    }
    match target {
        Target::Double => to_double(value).unwrap_or_else(unsupported),
        Target::Decimal => to_decimal(value).unwrap_or_else(unsupported),
        Target::Int | Target::Long => to_integer(value, target).unwrap_or_else(unsupported),
        Target::Bool => Ok(Value::Boolean(value.is_true())),
        Target::Date => to_date(value).unwrap_or_else(unsupported),
        Target::String => match value {
            Value::Boolean(on) => Ok(Value::borrowed_str(if *on { "true" } else { "false" })),
            Value::ObjectId(id) => Ok(Value::string(id.to_hex())),
            Value::String(_) => Ok(value.clone()),
            Value::Int32(_) | Value::Int64(_) | Value::Double(_) | Value::Decimal(_) | Value::Date(_) => {
                Ok(Value::string(text_of(value)?))
            }
            Value::Binary(subtype, bytes) => Format::Auto.text(*subtype, bytes).map(Value::string),
            _ => unsupported(),
        },
        Target::ObjectId => match value {
            Value::ObjectId(_) => Ok(value.clone()),
            Value::String(text) => match ObjectId::parse_str(&**text) {
                Ok(id) => Ok(Value::ObjectId(id)),
                Err(_) => unconvertible(format!(
                    "Failed to parse objectId '{}' {NO_HANDLER}: Invalid string length for parsing to OID, expected 24 but found {}",
                    &**text,
                    text.len()
                )),
            },
            _ => unsupported(),
        },
        Target::BinData => match value {
            Value::Binary(4, _) => Ok(value.clone()),
            Value::String(text) => match parse_uuid(text) {
                Some(bytes) => Ok(Value::Binary(4, Blob::Shared(bytes.into()))),
                None => unconvertible(format!("Input string is not a valid UUID: {} {NO_HANDLER}", &**text)),
            },
            _ => unsupported(),
        },
        Target::Unsupported(_) => unsupported(),
    }
}

fn not_a_number<T>(text: &str) -> Result<T, QueryError> {
    unconvertible(format!(
        "Failed to parse number '{text}' {NO_HANDLER}: Did not consume whole string."
    ))
}

fn to_double<'a>(value: &Value<'a>) -> Option<Computed<'a>> {
    Some(match value {
        Value::Boolean(on) => Ok(Value::Double(f64::from(u8::from(*on)))),
        Value::Date(ms) => Ok(Value::Double(*ms as f64)),
        Value::Decimal(decimal) => {
            let number = Decimal::from(*decimal);
            let double = number.to_f64();
            if is_beyond_doubles(double, || number.is_zero()) && !matches!(number, Decimal::Infinity { .. }) {
                unconvertible(format!("Conversion would overflow target type {NO_HANDLER}: {decimal}"))
            } else {
                Ok(Value::Double(double))
            }
        }
        Value::String(text) => match parse_double(text) {
            Some(Some(double)) => Ok(Value::Double(double)),
            Some(None) => unconvertible(format!(
                "Failed to parse number '{}' {NO_HANDLER}: Out of range",
                &**text
            )),
            None => not_a_number(text),
        },
        other => Ok(Value::Double(Number::of(other)?.to_f64())),
    })
}

fn to_decimal<'a>(value: &Value<'a>) -> Option<Computed<'a>> {
    let decimal = |n: i64| Ok(Value::Decimal(Decimal::from(n).into()));
    Some(match value {
        Value::Boolean(on) => decimal(i64::from(*on)),
        Value::Date(ms) => decimal(*ms),
        Value::String(text) => match parse_decimal(text) {
            Some(decimal) if has_coefficient(text) => Ok(Value::Decimal(decimal)),
            _ => not_a_number(text),
        },
        // As it is, with the sign of a NaN.
        Value::Decimal(_) => Ok(value.clone()),
        other => Ok(Value::Decimal(Number::of(other)?.to_decimal().into())),
    })
}

fn to_integer<'a>(value: &Value<'a>, target: Target) -> Option<Computed<'a>> {
    let overflow = || {
        unconvertible(format!(
            "Conversion would overflow target type {NO_HANDLER}: {}",
            value.render()
        ))
    };
    let whole = match value {
        Value::Boolean(on) => i64::from(*on),
        Value::Date(ms) if target == Target::Long => *ms,
        Value::String(text) => {
            let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Some(not_a_number(text));
            }
            match text.parse() {
                Ok(n) => n,
                Err(_) => {
                    return Some(unconvertible(format!(
                        "Failed to parse number '{}' {NO_HANDLER}: Overflow",
                        &**text
                    )));
                }
            }
        }
        other => {
            let number = Number::of(other)?;
            let double = number.to_f64();
            if number.is_nan() {
                return Some(unconvertible(format!(
                    "Attempt to convert NaN value to integer type {NO_HANDLER}"
                )));
            }
            let whole = match number {
                Number::Int32(n) => Some(i64::from(n)),
                Number::Int64(n) => Some(n),
                Number::Double(n) if n.is_infinite() => {
                    return Some(unconvertible(format!(
                        "Attempt to convert infinity value to integer type {NO_HANDLER}"
                    )));
                }
                Number::Double(_) => crate::value::number::exact_i64_of_f64(double.trunc()),
                Number::Decimal(Decimal::Infinity { .. }) => {
                    return Some(unconvertible(format!(
                        "Attempt to convert infinity value to integer type {NO_HANDLER}"
                    )));
                }
                Number::Decimal(n) => n.to_i64(Rounding::TowardZero),
            };
            match whole {
                Some(whole) => whole,
                None => return Some(overflow()),
            }
        }
    };
    Some(match (target, i32::try_from(whole)) {
        (Target::Int, Ok(n)) => Ok(Value::Int32(n)),
        (Target::Int, Err(_)) => overflow(),
        _ => Ok(Value::Int64(whole)),
    })
}

fn to_date<'a>(value: &Value<'a>) -> Option<Computed<'a>> {
    let overflow = || {
        unconvertible(format!(
            "Conversion would overflow target type {NO_HANDLER}: {}",
            value.render()
        ))
    };
    Some(match value {
        Value::Date(_) => Ok(value.clone()),
        Value::ObjectId(id) => Ok(Value::Date(object_id_ms(*id))),
        Value::Timestamp(timestamp) => Ok(Value::Date(i64::from(timestamp.time) * 1000)),
        Value::Int64(ms) => Ok(Value::Date(*ms)),
        Value::Double(ms) => {
            crate::value::number::exact_i64_of_f64(ms.trunc()).map_or_else(overflow, |ms| Ok(Value::Date(ms)))
        }
        Value::Decimal(ms) => Decimal::from(*ms)
            .to_i64(Rounding::TowardZero)
            .map_or_else(overflow, |ms| Ok(Value::Date(ms))),
        Value::String(text) => parse_date(text).map(Value::Date),
        _ => return None,
    })
}

/// When an object id was made, in milliseconds since the Unix epoch: its seconds have a sign.
pub(super) fn object_id_ms(id: ObjectId) -> i64 {
    let [a, b, c, d, ..] = id.bytes();
    i64::from(i32::from_be_bytes([a, b, c, d])) * 1000
}

/// The text that string operators see: numbers, dates, strings; null is empty. Doubles have six digits, as C's `%g`
/// writes them, and not all as `$toString` does.
pub(super) fn operand_text(value: &Value<'_>) -> Result<String, QueryError> {
    match value {
        Value::Double(n) => Ok(six_digits(*n)),
        value => text_of(value),
    }
}

/// A double as C's `%g`.
fn six_digits(n: f64) -> String {
    const DIGITS: i32 = 6;
    if n.is_nan() {
        return "nan".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    let scientific = format!("{n:.*e}", DIGITS as usize - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(exponent) if (-4..DIGITS).contains(&exponent) => {
            trimmed(&format!("{n:.*}", (DIGITS - 1 - exponent) as usize))
        }
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
        }
        Err(_) => scientific,
    }
}

/// The text that `$toString` makes of numbers, dates and strings; null is empty.
fn text_of(value: &Value<'_>) -> Result<String, QueryError> {
    Ok(match value {
        Value::Missing | Value::Null | Value::Undefined => String::new(),
        Value::String(text) | Value::Symbol(text) | Value::JavaScript(text) => text.to_string(),
        Value::Int32(n) => n.to_string(),
        Value::Int64(n) => n.to_string(),
        Value::Double(n) => double_text(*n),
        Value::Decimal(n) => n.to_string(),
        Value::Date(ms) => iso_text(*ms)?,
        Value::Timestamp(timestamp) => timestamp_text(*timestamp),
        other => {
            return failure(
                16007,
                format!("can't convert from BSON type {} to String", other.type_name()),
            );
        }
    })
}

/// The shortest text that reads back as the same double; exponents outside 1e-4 .. 1e16.
pub(super) fn double_text(n: f64) -> String {
    if n.is_nan() {
        return "NaN".to_owned();
    }
    if n.is_infinite() {
        return if n > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let size = n.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) {
        return n.to_string();
    }
    let text = format!("{n:e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{mantissa}e-{exponent:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => text,
    }
}

fn uuid_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

fn parse_uuid(text: &str) -> Option<Vec<u8>> {
    let places: Vec<usize> = text.match_indices('-').map(|(place, _)| place).collect();
    if text.len() != 36 || places != [8, 13, 18, 23] {
        return None;
    }
    hex_bytes(&text.replace('-', ""))
}

fn binary_size<'a>(_: &'static str, value: Value<'a>) -> Computed<'a> {
    match &value {
        Value::String(text) => Ok(Value::Int32(text.len() as i32)),
        Value::Binary(_, bytes) => Ok(Value::Int32(bytes.len() as i32)),
        nullish if nullish.is_nullish() => Ok(Value::Null),
        other => failure(
            51276,
            format!(
                "$binarySize requires a string or BinData argument, found: {}",
                other.type_name()
            ),
        ),
    }
}

fn bson_size<'a>(_: &'static str, value: Value<'a>) -> Computed<'a> {
    match &value {
        Value::Document(document) => Ok(Value::Int32(document.as_bytes().len() as i32)),
        nullish if nullish.is_nullish() => Ok(Value::Null),
        other => failure(
            31393,
            format!("$bsonSize requires a document input, found: {}", other.type_name()),
        ),
    }
}

fn hashed_index_key<'a>(_: &'static str, value: Value<'a>) -> Computed<'a> {
    let hash = match value.as_raw() {
        Some(raw) => keys::hash(raw),
        None => {
            let mut bytes = Vec::new();
            let mut writer = DocumentWriter::new(&mut bytes);
            writer.append("", &value);
            writer.finish();
            let document = SharedDocument::new(bytes.into())?;
            let written = document.as_raw().get("").ok().flatten();
            keys::hash(written.unwrap_or(bson::RawBsonRef::Null))
        }
    };
    Ok(Value::Int64(hash))
}

fn of_timestamp<'a>(name: &str, value: Value<'a>, code: i32, part: fn(u32, u32) -> u32) -> Computed<'a> {
    match &value {
        Value::Timestamp(timestamp) => Ok(Value::Int64(i64::from(part(timestamp.time, timestamp.increment)))),
        nullish if nullish.is_nullish() => Ok(Value::Null),
        other => failure(
            code,
            format!("Argument to {name} must be a timestamp, but is {}", other.type_name()),
        ),
    }
}
