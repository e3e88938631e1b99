//! Query shapes: what queries that differ in their values alone have in common, as `setQuerySettings` means it.
//!
//! A shape is a document: the command's name, its namespace, and what it asks for, each value replaced by the name of
//! its type (`?number`). Names, paths, operators, directions, collations and the stages of pipelines stay, in the order
//! that the client wrote them in. Hints, read concerns, batch sizes, limits of time and comments are no part of it.
//! The hash of the shape's bytes is the same on every member and in every version; it is not MongoDB's value, whose
//! algorithm is published nowhere.
//!
//! Shapes are made of commands as they were sent, before anybody has parsed them: what cannot be parsed has a shape,
//! too, and fails afterwards.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{RawArrayBuf, RawBson, rawdoc};
use sha2::{Digest, Sha256};
use std::fmt;

/// The hash of a shape: SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShapeHash([u8; Self::BYTES]);

impl ShapeHash {
    const BYTES: usize = 32;
    /// Hexadecimal digits of a hash.
    pub const DIGITS: usize = 2 * Self::BYTES;

    /// Reads hexadecimal digits, of either case; `None` for what is no hash.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != Self::DIGITS {
            return None;
        }
        let mut hash = [0; Self::BYTES];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
        }
        Some(Self(hash))
    }
}

impl fmt::Display for ShapeHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02X}"))
    }
}

/// The shape of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryShape(RawDocumentBuf);

impl QueryShape {
    /// The shape of a `find`, `distinct` or `aggregate` on a database; `None` for other commands.
    pub fn of(command: &RawDocument, database: &str) -> Option<Self> {
        let (name, target) = command.iter().next()?.ok()?;
        let collection = match target {
            RawBsonRef::String(collection) => collection,
            _ => "$cmd.aggregate",
        };
        let mut shape = rawdoc! { "cmdNs": { "db": database, "coll": collection }, "command": name.as_str() };
        let fields: &[(&str, Part)] = match name.as_str() {
            "find" => FIND,
            "distinct" => DISTINCT,
            "aggregate" => AGGREGATE,
            _ => return None,
        };
        for ((field, part), value) in fields.iter().zip(given(command, fields)) {
            if let Some(value) = value.and_then(|value| part.of(value)) {
                append(&mut shape, field, value);
            }
        }
        Some(Self(shape))
    }

    /// Its hash.
    pub fn hash(&self) -> ShapeHash {
        ShapeHash(Sha256::digest(self.0.as_bytes()).into())
    }

    /// As `debugQueryShape` shows it.
    pub fn document(&self) -> &RawDocument {
        &self.0
    }
}

/// The values of a command's fields, as its parser takes them: where a field is repeated, the last one.
fn given<'c>(command: &'c RawDocument, fields: &[(&str, Part)]) -> Vec<Option<RawBsonRef<'c>>> {
    let mut values = vec![None; fields.len()];
    for (name, value) in command.iter().flatten().skip(1) {
        if let Some(place) = fields.iter().position(|(field, _)| *field == name.as_str()) {
            let (_, part) = fields[place];
            // `query: null` says nothing, not even that there is none.
            if !matches!((part, value), (Part::Filter, RawBsonRef::Null)) {
                values[place] = Some(value);
            }
        }
    }
    values
}

const FIND: &[(&str, Part)] = &[
    ("filter", Part::Filter),
    ("sort", Part::Sort),
    ("projection", Part::Projection),
    ("skip", Part::Count),
    ("limit", Part::Count),
    ("singleBatch", Part::Flag),
    ("max", Part::Values),
    ("min", Part::Values),
    ("returnKey", Part::Flag),
    ("showRecordId", Part::Flag),
    ("tailable", Part::Flag),
    ("awaitData", Part::Flag),
    ("let", Part::Variables),
    ("collation", Part::AsIs),
];
const DISTINCT: &[(&str, Part)] = &[("key", Part::AsIs), ("query", Part::Filter), ("collation", Part::AsIs)];
const AGGREGATE: &[(&str, Part)] = &[
    ("pipeline", Part::Pipeline),
    ("let", Part::Variables),
    ("collation", Part::AsIs),
];

/// What a field of a command or of a stage is.
#[derive(Clone, Copy)]
enum Part {
    /// Names, which make a different query when they are different.
    AsIs,
    Filter,
    Sort,
    Projection,
    Pipeline,
    /// An expression, or a document of expressions.
    Expression,
    /// The expressions of a `let`.
    Variables,
    /// Words that a stage knows, and values.
    Words,
    /// By field, what is computed for it: `Words` under one name.
    Outputs(&'static str),
    /// A document whose values do not matter.
    Values,
    /// A number, where 0 is nothing.
    Count,
    /// A boolean, where false is nothing.
    Flag,
}

impl Part {
    /// What the shape has of a value; `None` for what is as if it were not there.
    fn of(self, value: RawBsonRef<'_>) -> Option<RawBson> {
        Some(match (self, value) {
            (
                Self::AsIs | Self::Filter | Self::Sort | Self::Projection | Self::Variables | Self::Values,
                RawBsonRef::Null,
            ) => return None,
            (
                Self::AsIs | Self::Sort | Self::Projection | Self::Variables | Self::Values,
                RawBsonRef::Document(document),
            ) if document.is_empty() => {
                return None;
            }
            (Self::AsIs, value) => value.into(),
            (Self::Filter, RawBsonRef::Document(document)) => match filter(document) {
                all if all.is_empty() => return None,
                conditions => conditions.into(),
            },
            (Self::Sort, RawBsonRef::Document(document)) => sort(document).into(),
            (Self::Projection, RawBsonRef::Document(document)) => projection(document).into(),
            (Self::Pipeline, RawBsonRef::Array(stages)) => pipeline(stages).into(),
            (Self::Expression | Self::Variables, value) => expression(value),
            (Self::Words, value) => words(value),
            (Self::Outputs(word), RawBsonRef::Document(fields)) => each_field(fields, |output| match output {
                RawBsonRef::Document(output) => with_other(output, word, words).into(),
                output => expression(output),
            })
            .into(),
            (Self::Values, RawBsonRef::Document(document)) => each_field(document, type_of).into(),
            (Self::Count, value) if is_true(value) => type_of(value),
            (Self::Flag, value) if is_true(value) => true.into(),
            (Self::Count | Self::Flag, _) => return None,
            // It is not what it has to be; the query fails.
            (_, value) => type_of(value),
        })
    }
}

fn append(document: &mut RawDocumentBuf, name: &str, value: RawBson) {
    // Names come out of documents, which hold none with a NUL.
    if let Ok(name) = bson::raw::CString::try_from(name) {
        document.append(&name, value);
    }
}

fn each_field(document: &RawDocument, of: impl Fn(RawBsonRef<'_>) -> RawBson) -> RawDocumentBuf {
    let mut shape = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        append(&mut shape, name.as_str(), of(value));
    }
    shape
}

fn one_field(name: &str, value: impl Into<RawBson>) -> RawDocumentBuf {
    let mut shape = RawDocumentBuf::new();
    append(&mut shape, name, value.into());
    shape
}

fn is_true(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Boolean(value) => value,
        RawBsonRef::Int32(value) => value != 0,
        RawBsonRef::Int64(value) => value != 0,
        RawBsonRef::Double(value) => value != 0.0,
        RawBsonRef::Null | RawBsonRef::Undefined => false,
        _ => true,
    }
}

/// The name of a value's type, in the place of the value: `?number`, `?array<?string>`.
fn type_of(value: RawBsonRef<'_>) -> RawBson {
    RawBson::String(type_name(value))
}

fn type_name(value: RawBsonRef<'_>) -> String {
    let name = match value {
        RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) | RawBsonRef::Decimal128(_) => "number",
        RawBsonRef::Array(array) => {
            // One type of all elements, none where there are several.
            let mut of_elements: Option<String> = None;
            for element in array.into_iter().flatten() {
                let name = match element {
                    RawBsonRef::Array(_) => "?array".to_owned(),
                    element => type_name(element),
                };
                match &of_elements {
                    Some(known) if *known != name => return "?array<>".to_owned(),
                    _ => of_elements = Some(name),
                }
            }
            return match of_elements {
                Some(name) => format!("?array<{name}>"),
                None => "[]".to_owned(),
            };
        }
        other => crate::raw::type_name(other.element_type()),
    };
    format!("?{name}")
}

/// The conditions of a filter: one by itself, several under `$and`.
fn filter(document: &RawDocument) -> RawDocumentBuf {
    let mut conditions = Vec::new();
    for (name, value) in document.iter().flatten() {
        let name = name.as_str();
        match (name, value) {
            ("$comment", _) => {}
            ("$and" | "$or" | "$nor", RawBsonRef::Array(parts)) => {
                let mut shapes = RawArrayBuf::new();
                for part in parts.into_iter().flatten() {
                    match part {
                        RawBsonRef::Document(part) => shapes.push(filter(part)),
                        other => shapes.push(type_of(other)),
                    }
                }
                conditions.push(one_field(name, shapes));
            }
            ("$expr", value) => conditions.push(one_field(name, expression(value))),
            ("$text", RawBsonRef::Document(search)) => conditions.push(one_field(name, each_field(search, type_of))),
            (_, value) if name.starts_with('$') => conditions.push(one_field(name, type_of(value))),
            (path, RawBsonRef::Document(tests)) if has_operators(tests) => {
                conditions.extend(operators(tests).into_iter().map(|test| one_field(path, test)));
            }
            (path, value) => conditions.push(one_field(path, equality(value))),
        }
    }
    match conditions.len() {
        0 | 1 => conditions.pop().unwrap_or_default(),
        _ => one_field("$and", array_of(conditions)),
    }
}

fn array_of(documents: Vec<RawDocumentBuf>) -> RawArrayBuf {
    let mut array = RawArrayBuf::new();
    documents.into_iter().for_each(|document| array.push(document));
    array
}

fn equality(value: RawBsonRef<'_>) -> RawDocumentBuf {
    match value {
        RawBsonRef::RegularExpression(_) => rawdoc! { "$regex": "?string" },
        value => one_field("$eq", type_of(value)),
    }
}

fn has_operators(document: &RawDocument) -> bool {
    let first = document.iter().flatten().next();
    first.is_some_and(|(name, _)| name.as_str().starts_with('$'))
}

/// The tests of a path, each by itself.
fn operators(tests: &RawDocument) -> Vec<RawDocumentBuf> {
    let mut shapes = Vec::new();
    for (name, value) in tests.iter().flatten() {
        shapes.push(match (name.as_str(), value) {
            ("$options", _) => continue,
            ("$regex", _) => {
                let mut shape = rawdoc! { "$regex": "?string" };
                if let Ok(Some(options)) = tests.get("$options") {
                    append(&mut shape, "$options", type_of(options));
                }
                shape
            }
            ("$not", RawBsonRef::Document(inner)) => one_field("$not", all_tests(inner)),
            ("$not", value) => one_field("$not", equality(value)),
            ("$elemMatch", RawBsonRef::Document(inner)) if has_operators(inner) && !is_logical(inner) => {
                one_field("$elemMatch", all_tests(inner))
            }
            ("$elemMatch", RawBsonRef::Document(inner)) => one_field("$elemMatch", filter(inner)),
            (name, value) => one_field(name, type_of(value)),
        });
    }
    shapes
}

/// The tests of one value, as one document.
fn all_tests(tests: &RawDocument) -> RawDocumentBuf {
    let mut all = RawDocumentBuf::new();
    for test in operators(tests) {
        for (name, value) in test.iter().flatten() {
            append(&mut all, name.as_str(), value.into());
        }
    }
    all
}

fn is_logical(document: &RawDocument) -> bool {
    let first = document.iter().flatten().next();
    first.is_some_and(|(name, _)| matches!(name.as_str(), "$and" | "$or" | "$nor" | "$expr"))
}

fn sort(pattern: &RawDocument) -> RawDocumentBuf {
    each_field(pattern, direction)
}

/// `1` and `-1`, whichever type of number they are.
fn direction(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::Int32(n) => RawBson::Int32(n.signum()),
        RawBsonRef::Int64(n) => RawBson::Int32(n.signum() as i32),
        RawBsonRef::Double(n) => RawBson::Int32(i32::from(n > 0.0) - i32::from(n < 0.0)),
        other => other.into(),
    }
}

/// A pattern, or the direction of whole values.
fn sort_by(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::Document(pattern) => sort(pattern).into(),
        value => direction(value),
    }
}

/// Strings stay.
fn words(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::String(word) => RawBson::String(word.to_owned()),
        RawBsonRef::Document(document) => each_field(document, words).into(),
        RawBsonRef::Array(array) => {
            let mut shape = RawArrayBuf::new();
            array
                .into_iter()
                .flatten()
                .for_each(|element| shape.push(words(element)));
            shape.into()
        }
        other => type_of(other),
    }
}

fn projection(document: &RawDocument) -> RawDocumentBuf {
    each_field(document, |value| match value {
        RawBsonRef::Boolean(_) | RawBsonRef::Int32(_) | RawBsonRef::Int64(_) | RawBsonRef::Double(_) => {
            is_true(value).into()
        }
        RawBsonRef::Document(inner) if !has_operators(inner) => projection(inner).into(),
        RawBsonRef::Document(inner) => match inner.get_document("$elemMatch") {
            Ok(elements) => rawdoc! { "$elemMatch": filter(elements) }.into(),
            Err(_) => expression(value),
        },
        other => expression(other),
    })
}

/// Paths, variables and operators stay.
fn expression(value: RawBsonRef<'_>) -> RawBson {
    match value {
        RawBsonRef::String(text) if text.starts_with('$') => RawBson::String(text.to_owned()),
        RawBsonRef::Document(document) => with_other(document, "", expression).into(),
        RawBsonRef::Array(array) => {
            let is_constant = |value: RawBsonRef<'_>| match value {
                RawBsonRef::String(text) => !text.starts_with('$'),
                RawBsonRef::Document(_) | RawBsonRef::Array(_) => false,
                _ => true,
            };
            // However many constants there are in it.
            if array.into_iter().flatten().all(is_constant) {
                return type_of(value);
            }
            let mut shape = RawArrayBuf::new();
            array
                .into_iter()
                .flatten()
                .for_each(|element| shape.push(expression(element)));
            shape.into()
        }
        other => type_of(other),
    }
}

/// A document of expressions, operators among them, but for one name, whose value is something else.
fn with_other(document: &RawDocument, other: &str, of: impl Fn(RawBsonRef<'_>) -> RawBson) -> RawDocumentBuf {
    let mut shape = RawDocumentBuf::new();
    for (name, value) in document.iter().flatten() {
        let value = match name.as_str() {
            name if name == other => of(value),
            name => operation(name, value),
        };
        append(&mut shape, name.as_str(), value);
    }
    shape
}

fn operation(operator: &str, argument: RawBsonRef<'_>) -> RawBson {
    let name_or_expression = |value: RawBsonRef<'_>| match value {
        RawBsonRef::String(name) => RawBson::String(name.to_owned()),
        value => expression(value),
    };
    match (operator, argument) {
        ("$literal" | "$const", value) => type_of(value),
        // Names, though they are no paths.
        ("$meta" | "$getField", RawBsonRef::String(name)) => RawBson::String(name.to_owned()),
        ("$getField" | "$setField" | "$unsetField", RawBsonRef::Document(arguments)) => {
            with_other(arguments, "field", name_or_expression).into()
        }
        ("$top" | "$topN" | "$bottom" | "$bottomN" | "$sortArray", RawBsonRef::Document(arguments)) => {
            with_other(arguments, "sortBy", sort_by).into()
        }
        ("$derivative" | "$integral", RawBsonRef::Document(arguments)) => {
            with_other(arguments, "unit", name_or_expression).into()
        }
        (_, value) => expression(value),
    }
}

fn pipeline(stages: &RawArray) -> RawArrayBuf {
    let mut shape = RawArrayBuf::new();
    for stage in stages.into_iter().flatten() {
        match stage {
            RawBsonRef::Document(document) => {
                let mut stage = RawDocumentBuf::new();
                for (name, value) in document.iter().flatten() {
                    append(&mut stage, name.as_str(), of_stage(name.as_str(), value));
                }
                shape.push(stage);
            }
            other => shape.push(type_of(other)),
        }
    }
    shape
}

/// The shape of a stage's specification.
fn of_stage(stage: &str, value: RawBsonRef<'_>) -> RawBson {
    let whole = match stage {
        "$match" => Part::Filter,
        "$sort" => Part::Sort,
        "$project" => Part::Projection,
        // The name of a collection.
        "$unionWith" | "$merge" if value.as_str().is_some() => Part::AsIs,
        "$count" | "$unset" | "$unwind" | "$out" | "$querySettings" | "$collStats" | "$indexStats"
        | "$planCacheStats" | "$currentOp" | "$listSessions" | "$listLocalSessions" => Part::AsIs,
        _ => Part::Expression,
    };
    let options = match value {
        RawBsonRef::Document(options) if !matches!(stage, "$set" | "$addFields" | "$group") => options,
        value => return whole.of(value).unwrap_or_else(|| RawDocumentBuf::new().into()),
    };
    if !matches!(whole, Part::Expression) {
        return whole.of(value).unwrap_or_else(|| RawDocumentBuf::new().into());
    }
    let mut shape = RawDocumentBuf::new();
    for (name, value) in options.iter().flatten() {
        let name = name.as_str();
        let part = match (stage, name) {
            ("$facet", _) => Part::Pipeline,
            ("$lookup" | "$unionWith", "pipeline") | ("$merge", "whenMatched") if value.as_array().is_some() => {
                Part::Pipeline
            }
            ("$lookup", "from" | "localField" | "foreignField" | "as")
            | ("$graphLookup", "from" | "connectFromField" | "connectToField" | "as" | "depthField")
            | ("$unionWith", "coll" | "db")
            | ("$merge", "into" | "on" | "whenMatched" | "whenNotMatched")
            | ("$geoNear", "distanceField" | "includeLocs" | "key" | "spherical")
            | ("$bucketAuto", "granularity")
            | ("$densify", "field" | "partitionByFields")
            | ("$fill", "partitionByFields")
            | ("$changeStream", "fullDocument" | "fullDocumentBeforeChange") => Part::AsIs,
            ("$lookup" | "$merge", "let") => Part::Variables,
            ("$densify", "range") => Part::Words,
            ("$fill", "output") => Part::Outputs("method"),
            ("$setWindowFields", "output") => Part::Outputs("window"),
            ("$graphLookup", "restrictSearchWithMatch") | ("$geoNear", "query") => Part::Filter,
            ("$setWindowFields" | "$fill", "sortBy") => Part::Sort,
            _ => Part::Expression,
        };
        if let Some(value) = part.of(value) {
            append(&mut shape, name, value);
        }
    }
    shape.into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
