//! Regular expressions of filters, compiled by PCRE2.

use std::sync::Arc;

use bson::raw::RawRegexRef;
use pcre2::bytes::{Regex, RegexBuilder};
use wire::ErrorCode;

use crate::QueryError;
use crate::raw::{Constant, Element};

/// A regular expression as a predicate: strings that it matches, and stored regular expressions equal to it.
#[derive(Clone)]
pub struct RegexTest {
    pattern: Box<str>,
    options: Box<str>,
    compiled: Arc<Regex>,
}

/// Longest pattern accepted, in bytes, as MongoDB's.
pub(crate) const PATTERN_BYTES_MAX: usize = 16 << 10;

/// PCRE2's code of a match that needs more than the 32 KiB that its compiled patterns use of the thread's stack.
const JIT_STACK_EXHAUSTED: i32 = -46;

/// What such a match may have instead. A match cannot be interrupted, and takes time by the square of what the stack
/// allows: the bound is on time.
const JIT_STACK_BYTES_MAX: usize = 1 << 20;

/// What a compiled pattern may go back by in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JitStack {
    /// Enough for most.
    Small,
    /// For a match that [`exhausts_stack`] otherwise; allocated with the pattern.
    Large,
}

/// Whether a match failed because it needs a large stack.
pub(crate) fn exhausts_stack(error: &pcre2::Error) -> bool {
    error.code() == JIT_STACK_EXHAUSTED
}

fn failed(error: &pcre2::Error) -> QueryError {
    QueryError::new(
        ErrorCode(51156),
        format!("Error occurred while executing regular expression: {error}"),
    )
}

/// Why a pattern cannot be compiled; the places that take patterns word it in their own ways.
pub(crate) enum RegexFault {
    /// Longer than [`PATTERN_BYTES_MAX`].
    TooLong,
    /// An option outside `imsxu`.
    Option(char),
    /// PCRE2's own words.
    Syntax(String),
}

/// Compiles a pattern with options out of `imsxu`.
pub(crate) fn compile(pattern: &str, options: &str, stack: JitStack) -> Result<Regex, RegexFault> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(RegexFault::TooLong);
    }
    builder(options, stack)?
        .build(pattern)
        .map_err(|error| RegexFault::Syntax(error.to_string()))
}

fn builder(options: &str, stack: JitStack) -> Result<RegexBuilder, RegexFault> {
    let mut builder = RegexBuilder::new();
    builder.utf(true).jit_if_available(true);
    if stack == JitStack::Large {
        builder.max_jit_stack_size(Some(JIT_STACK_BYTES_MAX));
    }
    for option in options.chars() {
        match option {
            'i' => builder.caseless(true),
            'm' => builder.multi_line(true),
            's' => builder.dotall(true),
            'x' => builder.extended(true),
            'u' => builder.utf(true),
            other => return Err(RegexFault::Option(other)),
        };
    }
    Ok(builder)
}

/// As [`compile`], for a pattern that is searched for many times in one text: PCRE2 then does not check the rest of the
/// text for being UTF-8 before each search. `None` when that is not possible, or the pattern is wrong.
pub(crate) fn compile_for_repeated(pattern: &str, options: &str, stack: JitStack) -> Option<Regex> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return None;
    }
    // The library skips the check where it is told to expect anything, which it only is together with Unicode classes:
    // `(?a)` takes those back. It stands behind what may only stand at the very beginning, as `(*NO_JIT)`.
    let start = start_items(pattern);
    let pattern = match pattern[..start].contains("(*UCP)") {
        true => pattern.to_owned(),
        false => format!("{}(?a){}", &pattern[..start], &pattern[start..]),
    };
    builder(options, stack).ok()?.ucp(true).build(&pattern).ok()
}

/// Length of the items `(*NAME)` and `(*NAME=1)` that a pattern starts with.
fn start_items(pattern: &str) -> usize {
    let mut length = 0;
    while let Some(item) = pattern[length..].strip_prefix("(*")
        && let Some(end) = item.find(')')
        && item[..end]
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'='))
    {
        length += end + 3;
    }
    length
}

impl RegexTest {
    /// Compiles a pattern with options out of `imsxu`.
    pub fn new(pattern: &str, options: &str) -> Result<Self, QueryError> {
        if pattern.contains('\0') {
            return Err(QueryError::bad_value(
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        let compiled = compile(pattern, options, JitStack::Small).map_err(|fault| match fault {
            RegexFault::TooLong => QueryError::new(
                ErrorCode(51091),
                format!("Regular expression is invalid: pattern of more than {PATTERN_BYTES_MAX} bytes"),
            ),
            RegexFault::Option(other) => {
                QueryError::new(ErrorCode(51108), format!("invalid flag in regex options: {other}"))
            }
            RegexFault::Syntax(error) => {
                QueryError::new(ErrorCode(51091), format!("Regular expression is invalid: {error}"))
            }
        })?;
        Ok(Self {
            pattern: pattern.into(),
            options: options.into(),
            compiled: Arc::new(compiled),
        })
    }

    pub(super) fn from_value(value: RawRegexRef<'_>) -> Result<Self, QueryError> {
        Self::new(value.pattern.as_str(), value.options.as_str())
    }

    /// The pattern.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The options, as the client wrote them.
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the text contains a match. Text that is not UTF-8 has none.
    #[inline]
    pub fn is_match(&self, text: &[u8]) -> Result<bool, QueryError> {
        match self.compiled.is_match(text) {
            Ok(found) => Ok(found),
            Err(_) if std::str::from_utf8(text).is_err() => Ok(false),
            Err(error) if exhausts_stack(&error) => self.is_match_on_large_stack(text),
            Err(error) => Err(failed(&error)),
        }
    }

    /// As [`RegexTest::is_match`], for what goes back farther in a text than most: few matches need a stack of their
    /// own, and filters may have many patterns.
    #[cold]
    fn is_match_on_large_stack(&self, text: &[u8]) -> Result<bool, QueryError> {
        match compile(&self.pattern, &self.options, JitStack::Large) {
            Ok(compiled) => compiled.is_match(text).map_err(|error| failed(&error)),
            // It was compiled before.
            Err(_) => Ok(false),
        }
    }

    /// Whether a value is text with a match or the same regular expression.
    pub(super) fn matches(&self, element: Element<'_>) -> Result<bool, QueryError> {
        match element.kind() {
            0x02 | 0x0E => self.is_match(element.text()?),
            0x0B => {
                // Both parts end in a zero byte.
                let mut parts = element.value_bytes().split(|byte| *byte == 0);
                Ok(parts.next() == Some(self.pattern.as_bytes()) && parts.next() == Some(self.options.as_bytes()))
            }
            _ => Ok(false),
        }
    }

    /// The regular expression as a value.
    pub fn to_constant(&self) -> Constant {
        let mut bytes = Vec::with_capacity(self.pattern.len() + self.options.len() + 10);
        let frame = crate::raw::Frame::begin(&mut bytes);
        crate::raw::append_header(&mut bytes, 0x0B, b"");
        bytes.extend_from_slice(self.pattern.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.options.as_bytes());
        bytes.push(0);
        frame.finish(&mut bytes);
        let document = bson::RawDocument::from_bytes(&bytes).expect("the frame was just written");
        let element = crate::raw::Elements::new(document).next();
        let value = element
            .and_then(Result::ok)
            .and_then(|element| element.to_owned_value().ok());
        Constant::new(
            value
                .as_ref()
                .expect("the frame holds one regular expression")
                .as_raw_bson_ref(),
        )
    }
}

impl std::fmt::Debug for RegexTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole query failed (51156).
    #[test]
    fn a_match_that_goes_back_far_has_the_stack_it_needs() {
        let test = RegexTest::new("(a|b)+[xy]", "").expect("a pattern");
        for (text, expected) in [
            ("ab".repeat(2_000), false),
            ("ab".repeat(2_000) + "x", true),
            ("abx".to_owned(), true),
        ] {
            assert_eq!(test.is_match(text.as_bytes()).expect("a result"), expected);
        }
    }
}
