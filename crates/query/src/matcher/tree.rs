//! The parsed filter: what the planner reads and the evaluation walks.
//!
//! Parsing has normalised it: `$ne`, `$nin` and `$exists: false` are [`MatchExpr::Not`] over their positive forms,
//! `$all` is an [`MatchExpr::And`] of tests on one path, several operators on one path are separate predicates, nested
//! `$and` is flat, `$and` and `$or` of one are that one.

use std::sync::Arc;

use bson::RawBsonRef;
use bson::spec::ElementType;

use super::geo::GeoTest;
use super::near::NearTest;
use super::regex::RegexTest;
use super::schema::Schema;
use super::script::ScriptTest;
use super::text::TextTest;
use crate::expression::Expression;
use crate::path::Path;
use crate::raw::Constant;
use crate::value::CompareOp;
use keys::Collator;

/// A filter or a part of one.
#[derive(Clone, Debug)]
pub enum MatchExpr {
    /// Every document.
    AlwaysTrue,
    /// No document.
    AlwaysFalse,
    /// All of them; at least two.
    And(Vec<MatchExpr>),
    /// Any of them; at least two.
    Or(Vec<MatchExpr>),
    /// None of them; at least one.
    Nor(Vec<MatchExpr>),
    /// Not this one.
    Not(Box<MatchExpr>),
    /// Some value at the path passes the test.
    Path {
        /// Where.
        path: Path,
        /// What.
        test: Test,
    },
    /// `$expr`: the expression is true.
    Expr(Arc<ExprPredicate>),
    /// `$jsonSchema`: the document conforms.
    Schema(Schema),
    /// `$text`: the document has the text.
    Text(Arc<TextTest>),
    /// `$where`: the script says so.
    Where(Arc<ScriptTest>),
}

impl MatchExpr {
    /// Whether it reads variables of a `$lookup` around.
    pub(crate) fn reads_outer(&self) -> bool {
        match self {
            MatchExpr::And(parts) | MatchExpr::Or(parts) | MatchExpr::Nor(parts) => {
                parts.iter().any(MatchExpr::reads_outer)
            }
            MatchExpr::Not(part) => part.reads_outer(),
            MatchExpr::Expr(predicate) => predicate.expression.reads_outer(),
            MatchExpr::AlwaysTrue
            | MatchExpr::AlwaysFalse
            | MatchExpr::Path { .. }
            | MatchExpr::Schema(_)
            | MatchExpr::Text(_)
            | MatchExpr::Where(_) => false,
        }
    }
}

/// `$expr`.
#[derive(Debug)]
pub struct ExprPredicate {
    /// The expression.
    pub expression: Expression,
    /// As the client wrote it.
    pub source: Constant,
}

/// A test of one value. Arrays have been walked into as the operator wants before it is asked.
#[derive(Clone, Debug)]
pub enum Test {
    /// `$eq $lt $lte $gt $gte`.
    Compare {
        /// Which.
        op: CompareOp,
        /// The right-hand side.
        value: Constant,
    },
    /// `$in`.
    In(InList),
    /// `$regex`, or a regular expression as a value.
    Regex(RegexTest),
    /// `$exists: true`.
    Exists,
    /// `$type`.
    Type(TypeSet),
    /// `$size`: an array of so many elements.
    Size(i64),
    /// `$mod`.
    Mod {
        /// Not zero.
        divisor: i64,
        /// As the client wrote it; it may lie out of range and then nothing matches.
        remainder: i64,
    },
    /// `$bitsAllSet` and the like.
    Bits(BitTest),
    /// `$geoWithin` and `$geoIntersects`.
    Geo(Arc<GeoTest>),
    /// `$near` and `$nearSphere`: the distance is looked at by the plan, which gives matches in its order.
    Near(Arc<NearTest>),
    /// `$elemMatch` with a filter: some element is a document (or array) that matches it.
    ElemMatchObject(Box<MatchExpr>),
    /// `$elemMatch` with operators: some element passes all tests.
    ElemMatchValue(Vec<ValueTest>),
}

/// A test inside `$elemMatch`, on the element itself.
#[derive(Clone, Debug)]
pub enum ValueTest {
    /// Passes the test.
    Is(Test),
    /// Does not pass all of these.
    Not(Vec<ValueTest>),
}

/// The list of `$in`.
#[derive(Clone, Debug)]
pub struct InList {
    /// The values, rising in comparison order, without duplicates.
    pub values: Vec<Constant>,
    /// The regular expressions among them.
    pub regexes: Vec<RegexTest>,
    /// Null is among the values: then missing fields match.
    pub has_null: bool,
}

impl InList {
    /// Brings the values into their order, and leaves each once.
    pub(super) fn sort(&mut self, collator: Option<&dyn Collator>) {
        let order = |a: &Constant, b: &Constant| keys::order::compare_with(a.value(), b.value(), collator);
        self.values.sort_by(order);
        self.values.dedup_by(|a, b| order(a, b).is_eq());
    }
}

/// The types of `$type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypeSet(u32);

impl TypeSet {
    /// int, long, double and decimal: `$type: "number"`.
    pub const NUMBERS: TypeSet = TypeSet(1 << 0x01 | 1 << 0x10 | 1 << 0x12 | 1 << 0x13);

    /// Adds the types of another set.
    pub fn add(&mut self, other: TypeSet) {
        self.0 |= other.0;
    }

    /// The set of one type.
    pub fn of(element_type: ElementType) -> Self {
        Self(1 << Self::bit(element_type as u8))
    }

    /// Whether a type is in the set.
    pub fn contains(self, element_type: ElementType) -> bool {
        self.contains_kind(element_type as u8)
    }

    /// As [`TypeSet::contains`], by BSON's type byte.
    #[inline]
    pub fn contains_kind(self, kind: u8) -> bool {
        self.0 & 1 << Self::bit(kind) != 0
    }

    /// Types are small numbers but for MinKey (0xFF) and MaxKey (0x7F), which share their low bits.
    fn bit(kind: u8) -> u8 {
        if kind == 0x7F { 30 } else { kind & 0x1F }
    }

    /// The types, rising by type byte.
    pub fn types(self) -> impl Iterator<Item = ElementType> {
        (0..=u8::MAX)
            .filter_map(ElementType::from)
            .filter(move |element_type| self.contains(*element_type))
    }
}

/// Which of the bits must be how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitOp {
    /// `$bitsAllSet`
    AllSet,
    /// `$bitsAnySet`
    AnySet,
    /// `$bitsAllClear`
    AllClear,
    /// `$bitsAnyClear`
    AnyClear,
}

impl BitOp {
    /// The operator's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllSet => "$bitsAllSet",
            Self::AnySet => "$bitsAnySet",
            Self::AllClear => "$bitsAllClear",
            Self::AnyClear => "$bitsAnyClear",
        }
    }
}

/// A bit operator with its positions, rising; numbers are sign-extended beyond bit 63, binaries zero-extended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitTest {
    /// Which.
    pub op: BitOp,
    /// Bit positions from the least significant one.
    pub positions: Vec<u32>,
}

impl MatchExpr {
    /// A predicate on a path.
    pub fn on(path: Path, test: Test) -> Self {
        Self::Path { path, test }
    }

    /// The conjunction in normal form.
    pub fn and(parts: impl IntoIterator<Item = MatchExpr>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Self::AlwaysTrue => {}
                Self::AlwaysFalse => return Self::AlwaysFalse,
                Self::And(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        // Scripts take longest: they are asked about what all others have let through.
        if flat.iter().any(Self::runs_script) {
            flat.sort_by_key(Self::runs_script);
        }
        match flat.len() {
            0 => Self::AlwaysTrue,
            1 => flat.remove(0),
            _ => Self::And(flat),
        }
    }

    /// Whether it runs a script, by itself or in a part.
    pub(crate) fn runs_script(&self) -> bool {
        match self {
            Self::Where(_) => true,
            Self::And(parts) | Self::Or(parts) | Self::Nor(parts) => parts.iter().any(Self::runs_script),
            Self::Not(part) => part.runs_script(),
            _ => false,
        }
    }

    /// The disjunction in normal form.
    pub fn or(parts: impl IntoIterator<Item = MatchExpr>) -> Self {
        let mut flat = Vec::new();
        for part in parts {
            match part {
                Self::AlwaysFalse => {}
                Self::AlwaysTrue => return Self::AlwaysTrue,
                Self::Or(inner) => flat.extend(inner),
                other => flat.push(other),
            }
        }
        match flat.len() {
            0 => Self::AlwaysFalse,
            1 => flat.remove(0),
            _ => Self::Or(flat),
        }
    }

    /// The negation in normal form.
    #[expect(clippy::should_implement_trait, reason = "a constructor beside `and` and `or`")]
    pub fn not(part: MatchExpr) -> Self {
        match part {
            Self::AlwaysTrue => Self::AlwaysFalse,
            Self::AlwaysFalse => Self::AlwaysTrue,
            Self::Not(inner) => *inner,
            other => Self::Not(Box::new(other)),
        }
    }

    /// The conjuncts: those of an `And`, else the expression itself; none for `AlwaysTrue`.
    pub fn conjuncts(&self) -> &[MatchExpr] {
        match self {
            Self::AlwaysTrue => &[],
            Self::And(parts) => parts,
            other => std::slice::from_ref(other),
        }
    }

    /// The path and value of an equality.
    pub fn as_equality(&self) -> Option<(&Path, RawBsonRef<'_>)> {
        match self {
            Self::Path {
                path,
                test:
                    Test::Compare {
                        op: CompareOp::Eq,
                        value,
                    },
            } => Some((path, value.value())),
            _ => None,
        }
    }

    /// As [`MatchExpr::as_equality`]; an `$in` with one value is one, too.
    pub fn as_single_value(&self) -> Option<(&Path, RawBsonRef<'_>)> {
        match self {
            Self::Path {
                path,
                test: Test::In(list),
            } if list.regexes.is_empty() => match list.values.as_slice() {
                [value] => Some((path, value.value())),
                _ => None,
            },
            _ => self.as_equality(),
        }
    }
}
