//! From a filter document to its tree.
//!
//! MongoDB's texts are kept where they are known: programs and tests match them. What MongoDB has and Tenon has not is
//! answered with 238 and its name, what nobody has with 2.

mod disjunction;
mod elements;

use std::sync::Arc;

use bson::raw::RawRegexRef;
use bson::spec::ElementType;
use bson::{RawArray, RawBsonRef, RawDocument};
use keys::Collator;
use wire::ErrorCode;

use super::DEPTH_MAX;
use super::geo::GeoTest;
use super::near::{self, NearTest};
use super::number::{integral, is_number, truncated, type_code};
use super::regex::RegexTest;
use super::schema::Schema;
use super::script::ScriptTest;
use super::text::{TextTest, check_searches};
use super::tree::{BitOp, BitTest, ExprPredicate, InList, MatchExpr, Test, TypeSet, ValueTest};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, ExpressionContext};
use crate::path::{Path, is_reference_field};
use crate::raw::{self, Constant, Elements};
use crate::value::scan::frame;
use crate::value::{CompareOp, Value};

pub(crate) use elements::{ValuePredicate, array_filter, element_condition, pull_condition};

/// Whether a filter has `$expr`, at the top or below `$and`, `$or` and `$nor`.
pub(crate) fn names_expr(filter: &RawDocument) -> Result<bool, QueryError> {
    for element in Elements::new(filter) {
        let element = element?;
        match element.name() {
            b"$expr" => return Ok(true),
            b"$and" | b"$or" | b"$nor" => {
                let RawBsonRef::Array(parts) = element.value()? else {
                    continue;
                };
                for part in Elements::new(frame(parts.as_bytes())?) {
                    if let RawBsonRef::Document(part) = part?.value()?
                        && names_expr(part)?
                    {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Top-level operators of MongoDB that are not built.
const UNBUILT_TOP: [&str; 1] = ["$_internalSchemaObjectMatch"];
/// Operators on a field that are not built.
const UNBUILT: [&str; 2] = ["$encStrStartsWith", "$_internalExprEq"];

/// Parses a filter.
pub(super) fn filter(filter: &RawDocument, context: &ExpressionContext) -> Result<MatchExpr, QueryError> {
    Parser {
        context: Some(context),
        is_stored: context.is_stored(),
        in_element: false,
        may_be_near: Nearness::Refused,
        may_search: Searching::Refused,
        may_run: Running::Refused,
    }
    .document(filter, 0)
}

/// Whether a filter is a new one, or that of a definition which is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    New,
    Stored,
}

/// Parses a filter that has no variables, no `$expr` and no collation: that of a partial index.
pub(super) fn partial_filter(filter: &RawDocument, origin: Origin) -> Result<MatchExpr, QueryError> {
    Parser {
        context: None,
        is_stored: origin == Origin::Stored,
        in_element: false,
        may_be_near: Nearness::Refused,
        may_search: Searching::Refused,
        may_run: Running::Refused,
    }
    .document(filter, 0)
}

/// Parses a filter that may have one `$text`.
pub(super) fn searching_filter(filter: &RawDocument, context: &ExpressionContext) -> Result<MatchExpr, QueryError> {
    let parsed = Parser {
        context: Some(context),
        is_stored: context.is_stored(),
        in_element: false,
        may_be_near: Nearness::Refused,
        may_search: Searching::Allowed,
        may_run: Running::Refused,
    }
    .document(filter, 0)?;
    check_searches(&parsed)?;
    Ok(parsed)
}

/// Parses a filter that may have one `$near` or `$nearSphere`, beside other conditions and not inside of one.
pub(super) fn ordered_filter(filter: &RawDocument, context: &ExpressionContext) -> Result<MatchExpr, QueryError> {
    let parsed = Parser {
        context: Some(context),
        is_stored: context.is_stored(),
        in_element: false,
        may_be_near: Nearness::Conjunct,
        may_search: Searching::Allowed,
        may_run: Running::Allowed,
    }
    .document(filter, 0)?;
    check_searches(&parsed)?;
    let is_near = |part: &&MatchExpr| {
        matches!(
            part,
            MatchExpr::Path {
                test: Test::Near(_),
                ..
            }
        )
    };
    if parsed.conjuncts().iter().filter(is_near).count() > 1 {
        return Err(QueryError::bad_value("Too many geoNear expressions"));
    }
    if parsed.conjuncts().iter().any(|part| is_near(&part)) && super::text_in(&parsed).is_some() {
        return Err(QueryError::bad_value("text and geoNear not allowed in same query"));
    }
    Ok(parsed)
}

/// Whether `$text` may stand where the parser is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Searching {
    Allowed,
    /// No: it is below a negation.
    Negated,
    /// No: there is no index to search in.
    Refused,
}

/// Whether `$where` may stand where the parser is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Running {
    Allowed,
    /// No: the filter is none of a query or a write.
    Refused,
}

/// Whether `$near` may stand where the parser is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nearness {
    /// Yes: what is parsed is a conjunct of the whole filter.
    Conjunct,
    /// No: something is around it.
    Nested,
    /// No: nobody sorts.
    Refused,
}

impl Nearness {
    fn below(self) -> Self {
        match self {
            Self::Conjunct => Self::Nested,
            other => other,
        }
    }
}

/// Where in the filter the parser is.
#[derive(Clone, Copy)]
struct Parser<'c> {
    /// Without one there is no `$expr`.
    context: Option<&'c ExpressionContext>,
    /// The filter is that of a stored definition.
    is_stored: bool,
    /// Inside `$elemMatch`, where `$expr` cannot be.
    in_element: bool,
    may_be_near: Nearness,
    may_search: Searching,
    may_run: Running,
}

/// Whether a document is a list of operators: its first name begins with a dollar, and it is no DBRef, which has both
/// `$ref` and `$id`.
pub(crate) fn is_operators(document: &RawDocument) -> bool {
    let has = |name: &[u8]| matches!(raw::find(document, name), Ok(Some(_)));
    begins_with_dollar(document) && !(has(b"$ref") && has(b"$id"))
}

fn begins_with_dollar(document: &RawDocument) -> bool {
    first_name(document).is_some_and(|name| name.starts_with(b"$"))
}

/// The name of a document's first field.
fn first_name(document: &RawDocument) -> Option<&[u8]> {
    Some(Elements::new(document).next()?.ok()?.name())
}

/// Whether a document begins with an operator that stands on no field: it is a filter on documents.
fn begins_pathless(document: &RawDocument) -> bool {
    let pathless = |name: &[u8]| {
        matches!(
            name,
            b"$and"
                | b"$or"
                | b"$nor"
                | b"$expr"
                | b"$where"
                | b"$text"
                | b"$jsonSchema"
                | b"$sampleRate"
                | b"$comment"
                | b"$alwaysTrue"
                | b"$alwaysFalse"
        )
    };
    first_name(document).is_some_and(pathless)
}

fn check_depth(depth: usize) -> Result<(), QueryError> {
    if depth > DEPTH_MAX {
        return Err(QueryError::bad_value(format!(
            "exceeded maximum query tree depth of {DEPTH_MAX}"
        )));
    }
    Ok(())
}

impl Parser<'_> {
    fn document(self, document: &RawDocument, depth: usize) -> Result<MatchExpr, QueryError> {
        check_depth(depth)?;
        let mut parts = Vec::new();
        for element in Elements::new(document) {
            let element = element?;
            let (name, value) = (element.name_str()?, element.value()?);
            if name.starts_with('$') {
                parts.push(self.top_operator(name, value, depth)?);
                continue;
            }
            let path = Path::new(name)?;
            match value {
                RawBsonRef::Document(operators) if is_operators(operators) => {
                    parts.extend(on_path(&path, self.operators(operators, depth + 1)?));
                }
                value => parts.push(MatchExpr::on(path, implicit(value)?)),
            }
        }
        Ok(MatchExpr::and(parts))
    }

    fn evaluation(&self) -> EvaluationContext<'_> {
        match self.context {
            Some(context) => context.evaluation(),
            None => EvaluationContext::uninterrupted(),
        }
    }

    fn nested(self) -> Self {
        Self {
            may_be_near: self.may_be_near.below(),
            ..self
        }
    }

    fn top_operator(self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<MatchExpr, QueryError> {
        match name {
            "$and" => Ok(MatchExpr::and(self.list(name, value, depth)?)),
            "$or" => {
                let parts = self.nested().list(name, value, depth)?;
                Ok(MatchExpr::or(disjunction::join_equalities(parts, self.collator())))
            }
            "$nor" => Ok(match self.negating().list(name, value, depth)? {
                mut parts if parts.len() == 1 => MatchExpr::not(parts.remove(0)),
                parts => MatchExpr::Nor(parts),
            }),
            "$text" => self.text(value),
            "$where" => self.script(value),
            "$expr" => self.expr(value),
            "$jsonSchema" => self.schema(value),
            "$sampleRate" => self.sample_rate(value),
            "$comment" => Ok(MatchExpr::AlwaysTrue),
            name if is_reference_field(name.as_bytes()) => Ok(MatchExpr::on(Path::new(name)?, equality(value)?)),
            "$alwaysTrue" | "$alwaysFalse" => {
                if integral(value) != Some(1) {
                    return Err(QueryError::failed_to_parse(format!(
                        "{name} must be an integer value of 1"
                    )));
                }
                Ok(if name == "$alwaysTrue" {
                    MatchExpr::AlwaysTrue
                } else {
                    MatchExpr::AlwaysFalse
                })
            }
            name if UNBUILT_TOP.contains(&name) => Err(QueryError::not_implemented(name)),
            "$not" => Err(QueryError::bad_value(
                "unknown top level operator: $not. If you are trying to negate an entire expression, use $nor.",
            )),
            name => Err(QueryError::bad_value(format!(
                "unknown top level operator: {name}. If you have a field name that starts with a '$' symbol, consider \
                 using $getField or $setField."
            ))),
        }
    }

    /// Below a negation, where nothing is searched for.
    fn negating(self) -> Self {
        let may_search = match self.may_search {
            Searching::Allowed => Searching::Negated,
            other => other,
        };
        Self {
            may_search,
            ..self.nested()
        }
    }

    fn text(self, value: RawBsonRef<'_>) -> Result<MatchExpr, QueryError> {
        if self.in_element {
            return Err(QueryError::bad_value(
                "$text can only be applied to the top-level document",
            ));
        }
        match self.may_search {
            Searching::Allowed => Ok(MatchExpr::Text(TextTest::parse(value)?)),
            Searching::Negated => Err(QueryError::bad_value("text expression not allowed in nor")),
            Searching::Refused => Err(QueryError::bad_value("$text is not allowed in this context")),
        }
    }

    fn script(self, value: RawBsonRef<'_>) -> Result<MatchExpr, QueryError> {
        if self.in_element {
            return Err(QueryError::bad_value(
                "$where can only be applied to the top-level document",
            ));
        }
        match self.context {
            Some(context) if self.may_run == Running::Allowed => {
                Ok(MatchExpr::Where(Arc::new(ScriptTest::parse(value, context)?)))
            }
            _ => Err(QueryError::bad_value("$where is not allowed in this context")),
        }
    }

    fn list(self, name: &str, value: RawBsonRef<'_>, depth: usize) -> Result<Vec<MatchExpr>, QueryError> {
        let RawBsonRef::Array(array) = value else {
            return Err(QueryError::bad_value(format!("{name} must be an array")));
        };
        let mut parts = Vec::new();
        let evaluation = self.evaluation();
        for item in Elements::new(frame(array.as_bytes())?) {
            evaluation.step()?;
            match item?.value()? {
                RawBsonRef::Document(document) => parts.push(self.document(document, depth + 1)?),
                _ => return Err(QueryError::bad_value("$or/$and/$nor entries need to be full objects")),
            }
        }
        if parts.is_empty() {
            return Err(QueryError::bad_value("$and/$or/$nor must be a nonempty array"));
        }
        Ok(parts)
    }

    fn expr(self, value: RawBsonRef<'_>) -> Result<MatchExpr, QueryError> {
        if self.in_element {
            return Err(QueryError::bad_value(
                "$expr can only be applied to the top-level document",
            ));
        }
        let context = self.context.ok_or_else(|| {
            QueryError::new(
                ErrorCode::QueryFeatureNotAllowed,
                "$expr is not allowed in this context",
            )
        })?;
        let expression = Expression::parse(value, context)?;
        if let Some(constant) = expression.as_constant() {
            return Ok(if constant.is_true() {
                MatchExpr::AlwaysTrue
            } else {
                MatchExpr::AlwaysFalse
            });
        }
        Ok(MatchExpr::Expr(Arc::new(ExprPredicate {
            expression,
            source: Constant::new(value),
        })))
    }

    fn schema(self, value: RawBsonRef<'_>) -> Result<MatchExpr, QueryError> {
        if self.in_element {
            return Err(QueryError::new(
                ErrorCode::QueryFeatureNotAllowed,
                "$jsonSchema is not allowed in this context",
            ));
        }
        match value {
            RawBsonRef::Document(schema) => Ok(MatchExpr::Schema(Schema::parse(schema)?)),
            _ => Err(QueryError::type_mismatch("$jsonSchema must be an object")),
        }
    }

    /// `$sampleRate: p` is `$expr: {$lt: [{$rand: {}}, p]}`.
    fn sample_rate(self, value: RawBsonRef<'_>) -> Result<MatchExpr, QueryError> {
        let rate = match value {
            RawBsonRef::Int32(n) => f64::from(n),
            RawBsonRef::Int64(n) => n as f64,
            RawBsonRef::Double(n) => n,
            RawBsonRef::Decimal128(n) => keys::Decimal::from(n).to_f64(),
            _ => {
                return Err(QueryError::bad_value("argument to $sampleRate must be a numeric type"));
            }
        };
        if !(0.0..=1.0).contains(&rate) {
            return Err(QueryError::bad_value(
                "numeric argument to $sampleRate must be in [0, 1]",
            ));
        }
        if rate == 0.0 {
            return Ok(MatchExpr::AlwaysFalse);
        }
        if rate == 1.0 {
            return Ok(MatchExpr::AlwaysTrue);
        }
        let comparison = bson::rawdoc! {"$lt": [{"$rand": {}}, rate]};
        self.expr(RawBsonRef::Document(&comparison))
    }

    /// The operators on one field.
    fn operators(self, operators: &RawDocument, depth: usize) -> Result<Vec<ValueTest>, QueryError> {
        check_depth(depth)?;
        let mut tests = Vec::new();
        for element in Elements::new(operators) {
            let element = element?;
            let (name, value) = (element.name_str()?, element.value()?);
            match name {
                "$eq" => tests.push(compare(CompareOp::Eq, value)?),
                "$lt" => tests.push(compare(CompareOp::Lt, value)?),
                "$lte" => tests.push(compare(CompareOp::Lte, value)?),
                "$gt" => tests.push(compare(CompareOp::Gt, value)?),
                "$gte" => tests.push(compare(CompareOp::Gte, value)?),
                "$ne" => {
                    if matches!(value, RawBsonRef::RegularExpression(_)) {
                        return Err(QueryError::bad_value("Can't have regex as arg to $ne."));
                    }
                    tests.push(ValueTest::Not(vec![compare(CompareOp::Eq, value)?]));
                }
                "$in" => tests.push(ValueTest::Is(Test::In(self.in_list(name, value)?))),
                "$nin" => tests.push(ValueTest::Not(vec![ValueTest::Is(Test::In(
                    self.in_list(name, value)?,
                ))])),
                "$exists" => {
                    let exists = ValueTest::Is(Test::Exists);
                    let wanted = Value::from_raw(value).is_true();
                    tests.push(if wanted { exists } else { ValueTest::Not(vec![exists]) });
                }
                "$type" => tests.push(ValueTest::Is(Test::Type(types(value)?))),
                "$size" => tests.push(ValueTest::Is(Test::Size(size(value)?))),
                "$mod" => tests.push(ValueTest::Is(modulus(value)?)),
                "$regex" => tests.push(ValueTest::Is(Test::Regex(regex(
                    value,
                    raw::find(operators, b"$options")?,
                )?))),
                "$options" => {
                    if raw::find(operators, b"$regex")?.is_none() {
                        return Err(QueryError::bad_value("$options needs a $regex"));
                    }
                }
                "$not" => tests.push(ValueTest::Not(self.negated(value, depth)?)),
                "$elemMatch" => tests.push(ValueTest::Is(self.element_match(value, depth)?)),
                "$all" => self.all(value, depth, &mut tests)?,
                "$bitsAllSet" => tests.push(bits(BitOp::AllSet, name, value)?),
                "$bitsAnySet" => tests.push(bits(BitOp::AnySet, name, value)?),
                "$bitsAllClear" => tests.push(bits(BitOp::AllClear, name, value)?),
                "$bitsAnyClear" => tests.push(bits(BitOp::AnyClear, name, value)?),
                "$geoWithin" | "$within" => {
                    tests.push(ValueTest::Is(Test::Geo(GeoTest::within(value, &self.evaluation())?)))
                }
                "$geoIntersects" => tests.push(ValueTest::Is(Test::Geo(GeoTest::intersects(
                    value,
                    &self.evaluation(),
                )?))),
                "$near" | "$nearSphere" | "$geoNear" => {
                    tests.push(ValueTest::Is(Test::Near(self.near(name, operators)?)));
                }
                // Beside the operator that they belong to.
                "$maxDistance" | "$minDistance" | "$uniqueDocs" if near::has_near(operators) => {}
                // It stands on no field. Definitions were stored with it when it was passed over.
                "$comment" if self.is_stored => {}
                name if UNBUILT.contains(&name) => return Err(QueryError::not_implemented(name)),
                name => return Err(QueryError::bad_value(format!("unknown operator: {name}"))),
            }
        }
        Ok(tests)
    }

    fn near(self, name: &str, operators: &RawDocument) -> Result<Arc<NearTest>, QueryError> {
        match self.may_be_near {
            Nearness::Conjunct => NearTest::parse(name, operators),
            Nearness::Nested => Err(QueryError::bad_value("geo $near must be top-level expr")),
            Nearness::Refused => Err(QueryError::new(
                near::NEAR_REFUSED,
                "$geoNear, $near, and $nearSphere are not allowed in this context, as these operators require sorting \
                 geospatial data. If you do not need sort, consider using $geoWithin instead.",
            )),
        }
    }

    fn negated(self, value: RawBsonRef<'_>, depth: usize) -> Result<Vec<ValueTest>, QueryError> {
        let this = self.nested();
        match value {
            RawBsonRef::RegularExpression(regex) => Ok(vec![ValueTest::Is(Test::Regex(RegexTest::from_value(regex)?))]),
            RawBsonRef::Document(operators) if operators.is_empty() => {
                Err(QueryError::bad_value("$not cannot be empty"))
            }
            RawBsonRef::Document(operators) => this.operators(operators, depth + 1),
            _ => Err(QueryError::bad_value("$not needs a regex or a document")),
        }
    }

    fn element_match(self, value: RawBsonRef<'_>, depth: usize) -> Result<Test, QueryError> {
        let RawBsonRef::Document(filter) = value else {
            return Err(QueryError::bad_value("$elemMatch needs an Object"));
        };
        let inner = Self {
            in_element: true,
            ..self.nested()
        };
        // A part of a DBRef is enough: `{$id: 1}` looks into elements.
        let is_reference = Elements::new(filter).any(|e| e.is_ok_and(|e| is_reference_field(e.name())));
        if begins_with_dollar(filter) && !is_reference && !begins_pathless(filter) {
            return Ok(Test::ElemMatchValue(inner.operators(filter, depth + 1)?));
        }
        Ok(Test::ElemMatchObject(Box::new(inner.document(filter, depth + 1)?)))
    }

    fn all(self, value: RawBsonRef<'_>, depth: usize, tests: &mut Vec<ValueTest>) -> Result<(), QueryError> {
        let RawBsonRef::Array(array) = value else {
            return Err(QueryError::bad_value("$all needs an array"));
        };
        let before = tests.len();
        let mut element_matches = 0;
        let evaluation = self.evaluation();
        for item in Elements::new(frame(array.as_bytes())?) {
            evaluation.step()?;
            let value = item?.value()?;
            let test = match value {
                RawBsonRef::Document(document) if is_operators(document) => {
                    let first = Elements::new(document).next();
                    match first.and_then(Result::ok) {
                        Some(first) if first.name() == b"$elemMatch" => {
                            element_matches += 1;
                            self.element_match(first.value()?, depth + 1)?
                        }
                        _ => return Err(QueryError::bad_value("no $ expressions in $all")),
                    }
                }
                value => implicit(value)?,
            };
            tests.push(ValueTest::Is(test));
        }
        if element_matches != 0 && element_matches != tests.len() - before {
            return Err(QueryError::bad_value("$all/$elemMatch has to be consistent"));
        }
        if tests.len() == before {
            let never = InList {
                values: Vec::new(),
                regexes: Vec::new(),
                has_null: false,
            };
            tests.push(ValueTest::Is(Test::In(never)));
        }
        Ok(())
    }

    fn in_list(self, name: &str, value: RawBsonRef<'_>) -> Result<InList, QueryError> {
        let RawBsonRef::Array(array) = value else {
            return Err(QueryError::bad_value(format!("{name} needs an array")));
        };
        in_list(array, self.collator(), &self.evaluation())
    }

    fn collator(&self) -> Option<&dyn Collator> {
        self.context.and_then(|context| context.comparer.collator())
    }
}

fn in_list(
    array: &RawArray,
    collator: Option<&dyn Collator>,
    evaluation: &EvaluationContext<'_>,
) -> Result<InList, QueryError> {
    let mut list = InList {
        values: Vec::new(),
        regexes: Vec::new(),
        has_null: false,
    };
    for item in Elements::new(frame(array.as_bytes())?) {
        evaluation.step()?;
        let value = item?.value()?;
        match value {
            RawBsonRef::RegularExpression(regex) => list.regexes.push(RegexTest::from_value(regex)?),
            RawBsonRef::Document(document) if is_operators(document) => {
                return Err(QueryError::bad_value("cannot nest $ under $in"));
            }
            RawBsonRef::Undefined => {
                return Err(QueryError::bad_value("InMatchExpression equality cannot be undefined"));
            }
            value => {
                list.has_null |= matches!(value, RawBsonRef::Null);
                list.values.push(Constant::new(value));
            }
        }
    }
    list.sort(collator);
    Ok(list)
}

/// The tests as predicates on a path.
fn on_path(path: &Path, tests: Vec<ValueTest>) -> impl Iterator<Item = MatchExpr> {
    tests.into_iter().map(|test| match test {
        ValueTest::Is(Test::In(list)) if list.values.is_empty() && list.regexes.is_empty() => MatchExpr::AlwaysFalse,
        ValueTest::Is(test) => MatchExpr::on(path.clone(), test),
        ValueTest::Not(inner) => MatchExpr::not(MatchExpr::and(on_path(path, inner).collect::<Vec<_>>())),
    })
}

/// A value in place of operators: equality, or a regular expression to match.
fn implicit(value: RawBsonRef<'_>) -> Result<Test, QueryError> {
    match value {
        RawBsonRef::RegularExpression(regex) => Ok(Test::Regex(RegexTest::from_value(regex)?)),
        value => equality(value),
    }
}

fn compare(op: CompareOp, value: RawBsonRef<'_>) -> Result<ValueTest, QueryError> {
    match value {
        RawBsonRef::Undefined => Err(QueryError::bad_value("cannot compare to undefined")),
        RawBsonRef::RegularExpression(_) if op != CompareOp::Eq => Err(QueryError::bad_value(format!(
            "Can't have RegEx as arg to predicate over field with {}.",
            op.name()
        ))),
        value => Ok(ValueTest::Is(Test::Compare {
            op,
            value: Constant::new(value),
        })),
    }
}

/// Equality with a value that is taken as it is.
fn equality(value: RawBsonRef<'_>) -> Result<Test, QueryError> {
    match value {
        RawBsonRef::Undefined => Err(QueryError::bad_value("cannot compare to undefined")),
        value => Ok(Test::Compare {
            op: CompareOp::Eq,
            value: Constant::new(value),
        }),
    }
}

fn bits(op: BitOp, name: &str, value: RawBsonRef<'_>) -> Result<ValueTest, QueryError> {
    Ok(ValueTest::Is(Test::Bits(BitTest::parse(op, name, value)?)))
}

fn size(value: RawBsonRef<'_>) -> Result<i64, QueryError> {
    let failure = |what: &str| {
        QueryError::bad_value(format!(
            "Failed to parse $size. Expected {what} in: $size: {}",
            raw::describe(value)
        ))
    };
    if !is_number(value) {
        return Err(failure("a number"));
    }
    match integral(value) {
        None => Err(failure("an integer")),
        Some(size) if size < 0 => Err(failure("a non-negative number")),
        Some(size) if size > i64::from(i32::MAX) => Err(failure("an integer of 32 bits")),
        Some(size) => Ok(size),
    }
}

fn modulus(value: RawBsonRef<'_>) -> Result<Test, QueryError> {
    let RawBsonRef::Array(array) = value else {
        return Err(QueryError::bad_value("malformed mod, needs to be an array"));
    };
    let items: Vec<_> = Elements::new(frame(array.as_bytes())?).collect::<Result<_, _>>()?;
    let (divisor, remainder) = match items.as_slice() {
        [] | [_] => return Err(QueryError::bad_value("malformed mod, not enough elements")),
        [divisor, remainder] => (divisor.value()?, remainder.value()?),
        _ => return Err(QueryError::bad_value("malformed mod, too many elements")),
    };
    let integer = |value, what: &str| {
        if !is_number(value) {
            return Err(QueryError::bad_value(format!("malformed mod, {what} not a number")));
        }
        truncated(value).ok_or_else(|| {
            QueryError::bad_value(format!(
                "malformed mod, {what} value is invalid :: caused by :: out of range"
            ))
        })
    };
    let (divisor, remainder) = (integer(divisor, "divisor")?, integer(remainder, "remainder")?);
    if divisor == 0 {
        return Err(QueryError::bad_value("divisor cannot be 0"));
    }
    Ok(Test::Mod { divisor, remainder })
}

fn regex(value: RawBsonRef<'_>, options: Option<raw::Element<'_>>) -> Result<RegexTest, QueryError> {
    let options = match options.map(|options| options.value()).transpose()? {
        None => None,
        Some(RawBsonRef::String(options)) => Some(options),
        Some(_) => return Err(QueryError::bad_value("$options has to be a string")),
    };
    match value {
        RawBsonRef::String(pattern) => RegexTest::new(pattern, options.unwrap_or("")),
        RawBsonRef::RegularExpression(RawRegexRef { pattern, options: own }) => match options {
            Some(_) if !own.is_empty() => Err(QueryError::new(
                ErrorCode(51075),
                "options set in both $regex and $options",
            )),
            other => RegexTest::new(pattern.as_str(), other.unwrap_or(own.as_str())),
        },
        _ => Err(QueryError::bad_value("$regex has to be a string")),
    }
}

fn types(value: RawBsonRef<'_>) -> Result<TypeSet, QueryError> {
    let mut set = TypeSet::default();
    if let RawBsonRef::Array(array) = value {
        for item in Elements::new(frame(array.as_bytes())?) {
            set.add(named_type(item?.value()?)?);
        }
        if set == TypeSet::default() {
            return Err(QueryError::failed_to_parse("$type must match at least one type"));
        }
        return Ok(set);
    }
    named_type(value)
}

pub(super) fn named_type(value: RawBsonRef<'_>) -> Result<TypeSet, QueryError> {
    let all = || (0..=u8::MAX).filter_map(ElementType::from);
    match value {
        RawBsonRef::String("number") => Ok(TypeSet::NUMBERS),
        RawBsonRef::String(name) => match all().find(|element_type| raw::type_name(*element_type) == name) {
            Some(element_type) => Ok(TypeSet::of(element_type)),
            None => Err(QueryError::bad_value(format!("Unknown type name alias: {name}"))),
        },
        value if is_number(value) => {
            let code = integral(value);
            match all().find(|element_type| Some(i64::from(type_code(*element_type))) == code) {
                Some(element_type) => Ok(TypeSet::of(element_type)),
                None => Err(QueryError::bad_value(format!(
                    "Invalid numerical type code: {}",
                    raw::describe(value)
                ))),
            }
        }
        _ => Err(QueryError::type_mismatch(
            "type must be represented as a number or a string",
        )),
    }
}
