//! Strings. Positions count bytes or code points, as the operator's name says; case is folded in ASCII only.

use keys::decimal::Rounding;

use super::Gathered;
use super::arithmetic::out_of_long;
use super::bounds::check_string_bytes;
use super::convert::operand_text;
use super::failure::failure;
use super::operator::{Apply, ApplyNamed, Arity, Computed, NamedOperator, Operator};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::number::{Number, exact_i64_of_f64};
use crate::value::{Comparer, Value};

/// The operators with positional arguments.
pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$concat",
        arity: Arity::Any,
        apply: Apply::Many(concat),
    },
    Operator {
        name: "$toUpper",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(|_, value| Ok(Value::string(operand_text(&value)?.to_ascii_uppercase()))),
    },
    Operator {
        name: "$toLower",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(|_, value| Ok(Value::string(operand_text(&value)?.to_ascii_lowercase()))),
    },
    Operator {
        name: "$strcasecmp",
        arity: Arity::Exactly(2),
        apply: Apply::Binary(strcasecmp),
    },
    Operator {
        name: "$substr",
        arity: Arity::Exactly(3),
        apply: Apply::Many(substr_bytes),
    },
    Operator {
        name: "$substrBytes",
        arity: Arity::Exactly(3),
        apply: Apply::Many(substr_bytes),
    },
    Operator {
        name: "$substrCP",
        arity: Arity::Exactly(3),
        apply: Apply::Many(substr_cp),
    },
    Operator {
        name: "$strLenBytes",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(|name, value| length(name, &value, 34473, str::len)),
    },
    Operator {
        name: "$strLenCP",
        arity: Arity::Exactly(1),
        apply: Apply::Unary(|name, value| length(name, &value, 34471, |text| text.chars().count())),
    },
    Operator {
        name: "$split",
        arity: Arity::Exactly(2),
        apply: Apply::Walk(split),
    },
    Operator {
        name: "$indexOfBytes",
        arity: Arity::Between(2, 4),
        apply: Apply::Many(index_of_bytes),
    },
    Operator {
        name: "$indexOfCP",
        arity: Arity::Between(2, 4),
        apply: Apply::Many(index_of_cp),
    },
];

const TRIM: &[(&str, Option<i32>)] = &[("input", Some(50695)), ("chars", None)];
const REPLACE: &[(&str, Option<i32>)] = &[
    ("input", Some(51749)),
    ("find", Some(51748)),
    ("replacement", Some(51747)),
];

/// The operators with named arguments.
pub(super) const NAMED: &[NamedOperator] = &[
    NamedOperator {
        name: "$trim",
        fields: TRIM,
        apply: ApplyNamed::Values(|name, context, v| trim(name, context, v, true, true)),
        codes: [50696, 50694],
        check: None,
    },
    NamedOperator {
        name: "$ltrim",
        fields: TRIM,
        apply: ApplyNamed::Values(|name, context, v| trim(name, context, v, true, false)),
        codes: [50696, 50694],
        check: None,
    },
    NamedOperator {
        name: "$rtrim",
        fields: TRIM,
        apply: ApplyNamed::Values(|name, context, v| trim(name, context, v, false, true)),
        codes: [50696, 50694],
        check: None,
    },
    NamedOperator {
        name: "$replaceOne",
        fields: REPLACE,
        apply: ApplyNamed::Values(|name, _, v| replace(name, v, 1)),
        codes: [51751, 51750],
        check: None,
    },
    NamedOperator {
        name: "$replaceAll",
        fields: REPLACE,
        apply: ApplyNamed::Values(|name, _, v| replace(name, v, usize::MAX)),
        codes: [51751, 51750],
        check: None,
    },
];

fn concat<'a>(_: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    let mut texts = Vec::with_capacity(operands.len());
    for operand in &operands {
        match operand {
            Value::String(text) => texts.push(&**text),
            nullish if nullish.is_nullish() => return Ok(Value::Null),
            other => {
                return failure(
                    16702,
                    format!("$concat only supports strings, not {}", other.type_name()),
                );
            }
        }
    }
    // A null among them comes before their length.
    check_string_bytes(texts.iter().map(|text| text.len()).sum())?;
    Ok(Value::string(texts.concat()))
}

fn strcasecmp<'a>(_: &'static str, a: Value<'a>, b: Value<'a>) -> Computed<'a> {
    let (a, b) = (
        operand_text(&a)?.to_ascii_uppercase(),
        operand_text(&b)?.to_ascii_uppercase(),
    );
    Ok(Value::Int32(a.as_bytes().cmp(b.as_bytes()) as i32))
}

fn three<'v, 'a>(operands: &'v [Value<'a>]) -> Result<[&'v Value<'a>; 3], QueryError> {
    match operands {
        [a, b, c] => Ok([a, b, c]),
        _ => failure(16020, "an operator got a wrong number of arguments"),
    }
}

/// A number as an int64: a double must lie in its range, a decimal outside of it is the least one.
fn cut_to_long(number: Number) -> Result<i64, QueryError> {
    match number {
        Number::Int32(n) => Ok(i64::from(n)),
        Number::Int64(n) => Ok(n),
        Number::Double(n) => exact_i64_of_f64(n.trunc()).map_or_else(|| out_of_long(n), Ok),
        Number::Decimal(n) => Ok(n.to_i64(Rounding::HalfEven).unwrap_or(i64::MIN)),
    }
}

fn substr_bytes<'a>(name: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    let [text, start, count] = three(&operands)?;
    let text = operand_text(text)?;
    let name = if name == "$substr" { "$substrBytes" } else { name };
    let number = |value: &Value<'_>, code, what: &str| match Number::of(value) {
        Some(number) => Ok(number),
        None => failure(
            code,
            format!(
                "{name}: {what} must be a numeric type (is BSON type {})",
                value.type_name()
            ),
        ),
    };
    let start = number(start, 16034, "starting index")?;
    let count = number(count, 16035, "length")?;
    let start = cut_to_long(start)?;
    let Ok(start) = usize::try_from(start) else {
        return failure(
            50752,
            format!("{name}: starting index must be non-negative (got: {start})"),
        );
    };
    let count = cut_to_long(count)?;
    let end = match usize::try_from(count) {
        Ok(count) => start.saturating_add(count).min(text.len()),
        Err(_) => text.len(),
    };
    if start >= text.len() {
        return Ok(Value::borrowed_str(""));
    }
    if !text.is_char_boundary(start) {
        return failure(
            28656,
            format!("{name}:  Invalid range, starting index is a UTF-8 continuation byte."),
        );
    }
    match text.get(start..end) {
        Some(part) => Ok(Value::string(part)),
        None => failure(
            28657,
            format!("{name}:  Invalid range, ending index is in the middle of a UTF-8 character."),
        ),
    }
}

fn substr_cp<'a>(name: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    let [text, start, count] = three(&operands)?;
    let text = operand_text(text)?;
    let integer = |value: &Value<'_>, codes: [i32; 2], what: &str| {
        let Some(number) = Number::of(value) else {
            return failure(
                codes[0],
                format!(
                    "{name}: {what} must be a numeric type (is BSON type {})",
                    value.type_name()
                ),
            );
        };
        match number.to_exact_i32() {
            Some(n) => Ok(n),
            None => failure(
                codes[1],
                format!(
                    "{name}: {what} cannot be represented as a 32-bit integral value: {}",
                    value.render()
                ),
            ),
        }
    };
    let not_negative = |n: i32, code, what: &str| match usize::try_from(n) {
        Ok(n) => Ok(n),
        Err(_) => failure(code, format!("{name}: {what} must be a nonnegative integer.")),
    };
    let start = integer(start, [34450, 34451], "starting index")?;
    let count = integer(count, [34452, 34453], "length")?;
    let count = not_negative(count, 34454, "length")?;
    let start = not_negative(start, 34455, "starting index")?;
    Ok(Value::string(text.chars().skip(start).take(count).collect::<String>()))
}

fn length<'a>(name: &str, value: &Value<'a>, code: i32, measure: fn(&str) -> usize) -> Computed<'a> {
    match value.as_str() {
        Some(text) => match i32::try_from(measure(text)) {
            Ok(n) => Ok(Value::Int32(n)),
            Err(_) => failure(34470, "string length could not be represented as an int."),
        },
        None => failure(
            code,
            format!("{name} requires a string argument, found: {}", value.type_name()),
        ),
    }
}

fn split<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let [text, separator] = &operands[..] else {
        return failure(16020, "an operator got a wrong number of arguments");
    };
    if text.is_nullish() || separator.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(input) = text.as_str() else {
        return failure(
            40085,
            format!(
                "$split requires an expression that evaluates to a string as a first argument, found: {}",
                text.type_name()
            ),
        );
    };
    let Some(separator) = separator.as_str() else {
        return failure(
            40086,
            format!(
                "$split requires an expression that evaluates to a string as a second argument, found: {}",
                separator.type_name()
            ),
        );
    };
    if separator.is_empty() {
        return failure(40087, "$split requires a non-empty separator");
    }
    let mut parts = Gathered::new(context);
    for part in input.split(separator) {
        parts.push(Value::string(part))?;
    }
    parts.finish()
}

/// Start and end position of a search; `None` when not given. The end is bounded by nothing yet.
pub(super) fn search_range(
    name: &str,
    start: Option<&Value<'_>>,
    end: Option<&Value<'_>>,
) -> Result<(usize, Option<usize>), QueryError> {
    let position = |value: &Value<'_>, what: &str| {
        let Some(n) = Number::of(value).and_then(Number::to_exact_i32) else {
            return failure(
                40096,
                format!(
                    "{name} requires an integral {what} index, found a value of type: {}, with value: {}",
                    value.type_name(),
                    value.render()
                ),
            );
        };
        match usize::try_from(n) {
            Ok(n) => Ok(n),
            Err(_) => failure(40097, format!("{name} requires a nonnegative {what} index, found: {n}")),
        }
    };
    let start = start.map_or(Ok(0), |start| position(start, "starting"))?;
    let end = end.map(|end| position(end, "ending")).transpose()?;
    Ok((start, end))
}

fn found<'a>(place: Option<usize>) -> Value<'a> {
    Value::Int32(place.and_then(|place| i32::try_from(place).ok()).unwrap_or(-1))
}

fn search_operands<'v>(
    name: &str,
    operands: &'v [Value<'_>],
    codes: [i32; 2],
) -> Result<Option<(&'v str, &'v str)>, QueryError> {
    let (first, second) = (
        operands.first().unwrap_or(&Value::Missing),
        operands.get(1).unwrap_or(&Value::Missing),
    );
    if first.is_nullish() {
        return Ok(None);
    }
    let Some(text) = first.as_str() else {
        return failure(
            codes[0],
            format!(
                "{name} requires a string as the first argument, found: {}",
                first.type_name()
            ),
        );
    };
    let Some(pattern) = second.as_str() else {
        return failure(
            codes[1],
            format!(
                "{name} requires a string as the second argument, found: {}",
                second.type_name()
            ),
        );
    };
    Ok(Some((text, pattern)))
}

fn index_of_bytes<'a>(name: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    let Some((text, pattern)) = search_operands(name, &operands, [40091, 40092])? else {
        return Ok(Value::Null);
    };
    let (start, end) = search_range(name, operands.get(2), operands.get(3))?;
    let end = end.unwrap_or(text.len()).min(text.len());
    if start > end {
        return Ok(Value::Int32(-1));
    }
    let haystack = &text.as_bytes()[start..end];
    let place = memchr::memmem::find(haystack, pattern.as_bytes());
    Ok(found(place.map(|place| place + start)))
}

fn index_of_cp<'a>(name: &'static str, operands: Vec<Value<'a>>) -> Computed<'a> {
    let Some((text, pattern)) = search_operands(name, &operands, [40093, 40094])? else {
        return Ok(Value::Null);
    };
    let (start, end) = search_range(name, operands.get(2), operands.get(3))?;
    // Code points to bytes: where the start and the end are, the end of the text at most.
    let mut places = text.char_indices().map(|(place, _)| place).chain([text.len()]);
    let Some(from) = places.nth(start) else {
        return Ok(Value::Int32(-1));
    };
    // Not even the empty string is found where nothing is left, but in an empty text.
    if start > 0 && from == text.len() {
        return Ok(Value::Int32(-1));
    }
    let to = match end {
        Some(_) if text.is_empty() => 0,
        Some(end) if end <= start => return Ok(Value::Int32(-1)),
        Some(end) => places.nth(end - start - 1).unwrap_or(text.len()),
        None => text.len(),
    };
    // A match begins before the end, and may reach beyond it.
    let reach = to.saturating_add(pattern.len().saturating_sub(1)).min(text.len());
    let place = memchr::memmem::find(&text.as_bytes()[from..reach], pattern.as_bytes());
    Ok(found(
        place.map(|place| start + text[from..from + place].chars().count()),
    ))
}

/// What `$trim` removes when not told: ASCII and Unicode spaces, and NUL.
const SPACES: &[char] = &[
    '\0', ' ', '\t', '\n', '\u{b}', '\u{c}', '\r', '\u{a0}', '\u{1680}', '\u{2000}', '\u{2001}', '\u{2002}',
    '\u{2003}', '\u{2004}', '\u{2005}', '\u{2006}', '\u{2007}', '\u{2008}', '\u{2009}', '\u{200a}',
];

/// The characters that `$trim` removes.
struct CharSet {
    ascii: [bool; 128],
    /// The others, rising.
    others: Vec<char>,
}

impl CharSet {
    fn new(chars: impl Iterator<Item = char>) -> Self {
        let mut set = Self {
            ascii: [false; 128],
            others: Vec::new(),
        };
        for c in chars {
            match set.ascii.get_mut(c as usize) {
                Some(there) => *there = true,
                None => set.others.push(c),
            }
        }
        set.others.sort_unstable();
        set.others.dedup();
        set
    }

    fn contains(&self, c: char) -> bool {
        match self.ascii.get(c as usize) {
            Some(there) => *there,
            None => self.others.binary_search(&c).is_ok(),
        }
    }
}

fn trim<'a>(
    name: &str,
    context: &EvaluationContext<'_>,
    arguments: Vec<Option<Value<'a>>>,
    left: bool,
    right: bool,
) -> Computed<'a> {
    let mut arguments = arguments.into_iter();
    let input = arguments.next().flatten().unwrap_or(Value::Missing);
    let chars = arguments.next().flatten();
    if input.is_nullish() {
        return Ok(Value::Null);
    }
    let Some(text) = input.as_str() else {
        return failure(
            50699,
            format!(
                "{name} requires its input to be a string, got {} (of type {}) instead.",
                input.render(),
                input.type_name()
            ),
        );
    };
    let set = match &chars {
        None => CharSet::new(SPACES.iter().copied()),
        Some(chars) if chars.is_nullish() => return Ok(Value::Null),
        Some(chars) => match chars.as_str() {
            Some(chars) => CharSet::new(chars.chars()),
            None => {
                return failure(
                    50700,
                    format!(
                        "{name} requires 'chars' to be a string, got {} (of type {}) instead.",
                        chars.render(),
                        chars.type_name()
                    ),
                );
            }
        },
    };
    let mut trimmed = text;
    if left {
        let mut rest = trimmed.chars();
        while rest.clone().next().is_some_and(|c| set.contains(c)) {
            context.step()?;
            rest.next();
        }
        trimmed = rest.as_str();
    }
    if right {
        let mut rest = trimmed.chars();
        while rest.clone().next_back().is_some_and(|c| set.contains(c)) {
            context.step()?;
            rest.next_back();
        }
        trimmed = rest.as_str();
    }
    Ok(Value::string(trimmed))
}

fn replace<'a>(name: &str, arguments: Vec<Option<Value<'a>>>, most: usize) -> Computed<'a> {
    let mut null = false;
    let mut texts = Vec::with_capacity(3);
    for (argument, (field, code)) in arguments
        .iter()
        .zip([("input", 51746), ("find", 51745), ("replacement", 51744)])
    {
        let value = argument.as_ref().unwrap_or(&Value::Missing);
        match value.as_str() {
            Some(text) => texts.push(text),
            None if value.is_nullish() => null = true,
            None => {
                return failure(
                    code,
                    format!("{name} requires that '{field}' be a string, found: {}", value.render()),
                );
            }
        }
    }
    let (false, [input, find, replacement]) = (null, &texts[..]) else {
        return Ok(Value::Null);
    };
    // How long it will be, before it is built.
    let count = input.matches(find).take(most).count();
    let bytes = (input.len() - count * find.len()).saturating_add(count.saturating_mul(replacement.len()));
    check_string_bytes(bytes)?;
    Ok(Value::string(match most {
        1 => input.replacen(find, replacement, 1),
        _ => input.replace(find, replacement),
    }))
}
