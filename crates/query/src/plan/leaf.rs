//! What a predicate on one field says about index keys: the set of keys that every matching document has one of.
//!
//! "Superset" is the rule: if a document matches, at least one of its keys lies in the leaf's set. A leaf is *exact*
//! when the converse holds too, so that no filter has to be run. Null, missing and arrays make most of the difference:
//! a missing field has the key null, an empty array the key undefined, an array one key per element.

use super::encode::{StringKeys, bracket, encode, everything, point};
use super::interval::{Interval, Intervals, successor};
use crate::value::CompareOp;
use bson::raw::RawBsonRef;
use bson::spec::ElementType;
use keys::FieldKind;

/// A predicate on one path, as a set of keys.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    /// Dotted path.
    pub(crate) path: String,
    /// Keys in ascending encoding.
    pub(crate) set: Intervals,
    /// Keys in fields of other kinds than values.
    pub(crate) special: Vec<(FieldKind, Intervals)>,
    /// Every document with a key in the set matches.
    pub(crate) exact: bool,
    /// A document without the field may match: a sparse index does not do.
    pub(crate) matches_missing: bool,
    /// Says nothing about the keys of a field with arrays.
    pub(crate) scalar_only: bool,
    /// Part of the `$elemMatch` on this path with this number.
    pub(crate) element: Option<(String, usize)>,
}

/// A comparison that orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// `$lt`
    Less,
    /// `$lte`
    LessOrEqual,
    /// `$gt`
    Greater,
    /// `$gte`
    GreaterOrEqual,
}

impl Leaf {
    fn new(path: &str, set: Intervals, exact: bool) -> Self {
        Self {
            path: path.to_owned(),
            set,
            special: Vec::new(),
            exact,
            matches_missing: false,
            scalar_only: false,
            element: None,
        }
    }

    /// A set that every matching document has a key in, and others may.
    pub(crate) fn superset(path: &str, set: Intervals) -> Self {
        Self::new(path, set, false)
    }

    /// `path` equals `value`.
    pub(crate) fn equal(path: &str, value: RawBsonRef<'_>, keys: StringKeys<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Null | RawBsonRef::Undefined => {
                let nulls = vec![point(RawBsonRef::Null), point(RawBsonRef::Undefined)];
                let leaf = Self::new(path, Intervals::from_unsorted(nulls), false);
                Some(Self {
                    matches_missing: true,
                    ..leaf
                })
            }
            RawBsonRef::Array(array) => {
                // The whole array (keyed by its elements, an empty one as undefined), or an element that is this array.
                let first = match array.into_iter().next() {
                    None => point(RawBsonRef::Undefined),
                    Some(element) => keys.point(element.ok()?)?,
                };
                Some(Self::new(
                    path,
                    Intervals::from_unsorted(vec![first, keys.point(value)?]),
                    false,
                ))
            }
            RawBsonRef::RegularExpression(_) => None,
            _ => Some(Self::new(path, Intervals::one(keys.point(value)?), true)),
        }
    }

    /// `path` compares so with `value`.
    pub(crate) fn compare(
        path: &str,
        comparison: Comparison,
        value: RawBsonRef<'_>,
        keys: StringKeys<'_>,
    ) -> Option<Self> {
        let or_equal = matches!(comparison, Comparison::LessOrEqual | Comparison::GreaterOrEqual);
        match value {
            RawBsonRef::Null | RawBsonRef::Undefined => {
                return if or_equal { Self::equal(path, value, keys) } else { None };
            }
            RawBsonRef::Array(_) | RawBsonRef::MinKey | RawBsonRef::MaxKey | RawBsonRef::RegularExpression(_) => {
                return None;
            }
            RawBsonRef::JavaScriptCodeWithScope(_) | RawBsonRef::DbPointer(_) => return None,
            // No document is less.
            RawBsonRef::Document(document) if comparison == Comparison::LessOrEqual && document.is_empty() => {
                return Self::equal(path, value, keys);
            }
            _ => {}
        }
        if is_nan(value) {
            let set = if or_equal {
                Intervals::one(point(value))
            } else {
                Intervals::none()
            };
            return Some(Self::new(path, set, true));
        }
        let of_type = bracket(value.element_type());
        let encoded = keys.encode(value)?;
        let first = match keys::canonical_type(value.element_type()) == keys::canonical_type(ElementType::Double) {
            true => encode(RawBsonRef::Double(f64::NEG_INFINITY)),
            false => of_type.start().to_vec(),
        };
        let range = match comparison {
            Comparison::Less => Interval::range(first, encoded),
            Comparison::LessOrEqual => Interval::range(first, successor(&encoded)),
            Comparison::Greater => Interval::range(successor(&encoded), of_type.end()),
            Comparison::GreaterOrEqual => Interval::range(encoded, of_type.end()),
        };
        Some(Self::new(path, Intervals::one(range), true))
    }

    /// The value at `path`, all of it and whatever its type, compares so with a scalar in the order of all values: what
    /// `$expr` asks. `None` for what is no scalar, or is nothing.
    pub(crate) fn in_order_of_all(
        path: &str,
        op: CompareOp,
        value: RawBsonRef<'_>,
        keys: StringKeys<'_>,
    ) -> Option<Self> {
        if !is_scalar(value) {
            return None;
        }
        let (encoded, all) = (keys.encode(value)?, everything());
        let range = match op {
            CompareOp::Eq => return Some(Self::superset(path, Intervals::one(Interval::point(encoded)))),
            CompareOp::Lt => Interval::range(all.start().to_vec(), encoded),
            CompareOp::Lte => Interval::range(all.start().to_vec(), successor(&encoded)),
            CompareOp::Gt => Interval::range(successor(&encoded), all.end()),
            CompareOp::Gte => Interval::range(encoded, all.end()),
        };
        Some(Self {
            // An array compares as a whole, and has keys of its elements.
            scalar_only: true,
            matches_missing: matches!(op, CompareOp::Lt | CompareOp::Lte),
            ..Self::superset(path, Intervals::one(range))
        })
    }

    /// `path` is one of `values`; regular expressions among them come in `regexes`.
    pub(crate) fn one_of<'v>(
        path: &str,
        values: impl Iterator<Item = RawBsonRef<'v>>,
        regexes: impl Iterator<Item = (&'v str, &'v str)>,
        keys: StringKeys<'_>,
    ) -> Option<Self> {
        let (mut list, mut exact, mut matches_missing) = (Vec::new(), true, false);
        for value in values {
            let leaf = Self::equal("", value, keys)?;
            exact &= leaf.exact;
            matches_missing |= leaf.matches_missing;
            list.extend(leaf.set.list().iter().cloned());
        }
        for (pattern, options) in regexes {
            exact = false;
            list.extend(Self::regex("", pattern, options, keys).set.list().iter().cloned());
        }
        Some(Self {
            matches_missing,
            ..Self::new(path, Intervals::from_unsorted(list), exact)
        })
    }

    /// `path` is a string that matches a regular expression, or that expression itself. The expression looks at the
    /// string as it is, whatever the order of strings.
    pub(crate) fn regex(path: &str, pattern: &str, options: &str, keys: StringKeys<'_>) -> Self {
        let prefix = literal_prefix(pattern, options).filter(|_| keys.is_binary());
        let strings = match &prefix {
            Some(prefix) if !prefix.is_empty() => prefix_range(prefix),
            _ => bracket(ElementType::String),
        };
        let set = Intervals::from_unsorted(vec![strings, bracket(ElementType::RegularExpression)]);
        Self::new(path, set, false)
    }

    /// `path` is there, or is not.
    pub(crate) fn exists(path: &str, exists: bool) -> Self {
        if exists {
            return Self::new(path, Intervals::one(everything()), false);
        }
        let missing = Self::new(path, Intervals::one(point(RawBsonRef::Null)), false);
        Self {
            matches_missing: true,
            scalar_only: true,
            ..missing
        }
    }

    /// The documents that this leaf does not match; `None` where the keys do not tell.
    pub(crate) fn negated(self) -> Option<Self> {
        let nulls = Intervals::from_unsorted(vec![point(RawBsonRef::Null), point(RawBsonRef::Undefined)]);
        let null = self.set == nulls;
        if !(self.exact || null) || self.element.is_some() {
            return None;
        }
        // A null among the values (`$nin: [1, null]`) is inexact and was turned down above. "Not null" leaves undefined
        // in: the key of an empty array.
        let outside = if null {
            Intervals::one(point(RawBsonRef::Null))
        } else {
            self.set
        };
        let set = outside.complement_in(&everything());
        Some(Self {
            set,
            special: Vec::new(),
            exact: false,
            matches_missing: !null,
            scalar_only: null,
            ..self
        })
    }

    /// The keys in a field of this kind.
    pub(crate) fn set_of(&self, kind: FieldKind) -> Option<&Intervals> {
        match kind {
            FieldKind::Value => Some(&self.set),
            kind => self.special.iter().find(|(of, _)| *of == kind).map(|(_, set)| set),
        }
    }

    /// How much a scan of the set can be expected to leave out: smaller is better.
    pub(crate) fn rank(&self) -> (u8, usize) {
        let points = self.set.list().len();
        match () {
            () if self.set.is_empty() => (0, 0),
            () if self.set.single_point().is_some() => (1, 1),
            () if self.set.all_points() => (2, points),
            () if super::encode::is_everything(&self.set) => (9, 1),
            () if self.exact => (3, points),
            () => (4, points),
        }
    }
}

fn is_nan(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Double(number) => number.is_nan(),
        RawBsonRef::Decimal128(_) => encode(value) == encode(RawBsonRef::Double(f64::NAN)),
        _ => false,
    }
}

/// Strings that start with `prefix`: from its encoding without the end mark.
pub(super) fn prefix_range(prefix: &str) -> Interval {
    let start = encode(RawBsonRef::String(prefix));
    // The next string of the same length: the prefix with its last character one higher, which orders the same in
    // UTF-8.
    let mut characters: Vec<char> = prefix.chars().collect();
    while let Some(last) = characters.pop() {
        let next = (last as u32 + 1..=char::MAX as u32).find_map(char::from_u32);
        if let Some(next) = next {
            characters.push(next);
            let above: String = characters.iter().collect();
            return Interval::range(start, encode(RawBsonRef::String(&above)));
        }
    }
    Interval::range(start, bracket(ElementType::String).end())
}

/// The text that every match starts with; `None` when the pattern is not anchored at the start of the string.
pub(crate) fn literal_prefix(pattern: &str, options: &str) -> Option<String> {
    if options.contains(['i', 'x', 'm']) {
        return None;
    }
    let rest = pattern.strip_prefix('^').or_else(|| pattern.strip_prefix("\\A"))?;
    if rest.contains('|') {
        return None;
    }
    let mut prefix = String::new();
    let mut characters = rest.chars().peekable();
    while let Some(c) = characters.next() {
        let literal = match c {
            '\\' => match characters.next() {
                Some(escaped) if !escaped.is_alphanumeric() && escaped.is_ascii() => escaped,
                // Marks alone: a quantifier behind them is that of the character before.
                Some('Q' | 'E') => {
                    prefix.pop();
                    break;
                }
                _ => break,
            },
            // So are comments.
            '(' if characters.clone().take(2).eq("?#".chars()) => {
                prefix.pop();
                break;
            }
            '.' | '[' | ']' | '(' | ')' | '{' | '}' | '^' | '$' | '*' | '+' | '?' => break,
            other => other,
        };
        match characters.peek() {
            // The character may be absent.
            Some('*' | '?' | '{') => break,
            Some('+') => {
                prefix.push(literal);
                break;
            }
            _ => prefix.push(literal),
        }
    }
    Some(prefix)
}

/// Whether a value stands for itself in an index: one key, and no other value with the same.
pub(crate) fn is_scalar(value: RawBsonRef<'_>) -> bool {
    matches!(
        value,
        RawBsonRef::String(_)
            | RawBsonRef::Int32(_)
            | RawBsonRef::Int64(_)
            | RawBsonRef::Double(_)
            | RawBsonRef::Decimal128(_)
            | RawBsonRef::ObjectId(_)
            | RawBsonRef::DateTime(_)
            | RawBsonRef::Timestamp(_)
            | RawBsonRef::Boolean(_)
            | RawBsonRef::Binary(_)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: StringKeys<'static> = StringKeys::Alike(None);

    #[test]
    fn prefixes_of_patterns() {
        let cases = [
            ("^abc", "", Some("abc")),
            ("^abc", "i", None),
            ("abc", "", None),
            ("^ab*c", "", Some("a")),
            ("^ab+c", "", Some("ab")),
            ("^ab{0}", "", Some("a")),
            ("^a\\.b$", "", Some("a.b")),
            ("^a\\d", "", Some("a")),
            ("^(a)", "", Some("")),
            ("^a|b", "", None),
            ("\\Aab", "", Some("ab")),
            ("^\\Qa.b\\E", "", Some("")),
            ("^ab\\E*", "", Some("a")),
            ("^ab\\Q\\E*", "", Some("a")),
            ("^ab(?#x)*", "", Some("a")),
            ("^ab(?:x)*", "", Some("ab")),
            ("^(?#x)ab", "", Some("")),
        ];
        for (pattern, options, wanted) in cases {
            assert_eq!(literal_prefix(pattern, options).as_deref(), wanted, "{pattern}");
        }
    }

    fn inside(set: &Intervals, value: RawBsonRef<'_>) -> bool {
        let encoded = encode(value);
        set.list()
            .iter()
            .any(|interval| interval.place(&encoded) == super::super::interval::Place::Inside)
    }

    #[test]
    fn a_prefix_takes_the_strings_that_start_with_it() {
        let leaf = Leaf::regex("a", "^ab", "", BINARY);
        for (text, wanted) in [
            ("ab", true),
            ("abz", true),
            ("ab\u{10FFFF}", true),
            ("ac", false),
            ("aa", false),
            ("", false),
        ] {
            assert_eq!(inside(&leaf.set, RawBsonRef::String(text)), wanted, "{text}");
        }
    }

    #[test]
    fn ranges_stay_within_their_type() {
        let below = Leaf::compare("a", Comparison::Less, RawBsonRef::Int32(5), BINARY).expect("a number has a range");
        assert!(inside(&below.set, RawBsonRef::Double(4.5)));
        assert!(inside(&below.set, RawBsonRef::Double(f64::NEG_INFINITY)));
        for outside in [
            RawBsonRef::Int32(5),
            RawBsonRef::Double(f64::NAN),
            RawBsonRef::Null,
            RawBsonRef::String(""),
        ] {
            assert!(!inside(&below.set, outside), "{outside:?}");
        }
        let from = Leaf::compare("a", Comparison::GreaterOrEqual, RawBsonRef::String("b"), BINARY)
            .expect("a string has a range");
        assert!(inside(&from.set, RawBsonRef::String("b")) && inside(&from.set, RawBsonRef::String("zz")));
        assert!(!inside(&from.set, RawBsonRef::String("a")) && !inside(&from.set, RawBsonRef::Int32(9)));
    }

    #[test]
    fn negation_keeps_to_what_keys_tell() {
        let not_five = Leaf::equal("a", RawBsonRef::Int32(5), BINARY)
            .and_then(Leaf::negated)
            .expect("an exact leaf has a complement");
        assert!(!inside(&not_five.set, RawBsonRef::Double(5.0)) && inside(&not_five.set, RawBsonRef::Null));
        assert!(not_five.matches_missing && !not_five.scalar_only);
        let not_null = Leaf::equal("a", RawBsonRef::Null, BINARY)
            .and_then(Leaf::negated)
            .expect("null has a complement");
        assert!(!inside(&not_null.set, RawBsonRef::Null) && inside(&not_null.set, RawBsonRef::Undefined));
        assert!(!not_null.matches_missing && not_null.scalar_only);
        assert!(Leaf::regex("a", "^x", "", BINARY).negated().is_none());
    }
}
