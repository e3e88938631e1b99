//! Keywords about objects.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeSet, HashMap};

use bson::{Bson, Document, RawBsonRef, RawDocument, doc};

use super::scalar::count;
use super::{Fields, Parsed, Reporter, Rule, Schema, Subject, about, malformed, to_bson, wrong_type};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::regex::{self, JitStack, RegexFault, RegexTest};
use crate::raw::{self, Element, Elements};
use crate::value::BYTES_PER_STEP;
use crate::value::scan::Malformed;

/// Object whose fields are schemas.
fn schemas<'d>(fields: &Fields<'_>, name: &str, value: RawBsonRef<'d>) -> Result<Vec<(&'d str, Schema)>, QueryError> {
    let RawBsonRef::Document(document) = value else {
        return Err(wrong_type(name, "must be an object"));
    };
    let mut schemas = Vec::new();
    for element in document {
        match element.map_err(|_| Malformed)? {
            (property, RawBsonRef::Document(schema)) => schemas.push((property.as_str(), fields.inner(schema)?)),
            (property, _) => {
                return Err(QueryError::type_mismatch(format!(
                    "Nested schema for $jsonSchema property '{property}' must be an object"
                )));
            }
        }
    }
    Ok(schemas)
}

/// Names that are looked for one by one in an object, before one walk of it answers for all others.
const FEW: usize = 16;

/// Names that are looked for in objects, each with its place.
#[derive(Debug, Default)]
struct Wanted(HashMap<Box<[u8]>, usize>);

impl Wanted {
    fn of<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let mut places: HashMap<Box<[u8]>, usize> = HashMap::new();
        for name in names {
            let next = places.len();
            places.entry(name.as_bytes().into()).or_insert(next);
        }
        Self(places)
    }
}

/// Which of many names an object has. The table is one of the names, and made with the schema: what an object takes
/// here is a bit for each of them, whatever it has itself.
struct Present<'a, 'c> {
    object: &'a RawDocument,
    wanted: &'c Wanted,
    /// How many were looked for.
    asked: Cell<usize>,
    /// A bit for each place, once many were looked for.
    met: OnceCell<Vec<u64>>,
    context: &'c EvaluationContext<'c>,
}

impl<'a, 'c> Present<'a, 'c> {
    fn of(value: Subject<'a>, wanted: &'c Wanted, context: &'c EvaluationContext<'c>) -> Result<Self, QueryError> {
        Ok(Self {
            object: value.frame()?,
            wanted,
            asked: Cell::new(0),
            met: OnceCell::new(),
            context,
        })
    }

    fn walk(&self) -> Result<Vec<u64>, QueryError> {
        let mut met = vec![0; self.wanted.0.len().div_ceil(64)];
        let mut left = self.wanted.0.len();
        for element in Elements::new(self.object) {
            let element = element?;
            self.context.step()?;
            let Some(place) = self.wanted.0.get(element.name()) else {
                continue;
            };
            let (word, bit) = (place / 64, 1_u64 << (place % 64));
            left -= usize::from(met[word] & bit == 0);
            met[word] |= bit;
            if left == 0 {
                break;
            }
        }
        Ok(met)
    }

    fn has(&self, name: &str) -> Result<bool, QueryError> {
        let name = name.as_bytes();
        let asked = self.asked.get();
        self.asked.set(asked + 1);
        let place = match asked < FEW {
            true => None,
            false => self.wanted.0.get(name).copied(),
        };
        let Some(place) = place else {
            let bytes = self.object.as_bytes().len();
            self.context.steps(1 + bytes / BYTES_PER_STEP)?;
            return Ok(raw::find(self.object, name)?.is_some());
        };
        self.context.step()?;
        let met = match self.met.get() {
            Some(met) => met,
            None => {
                let met = self.walk()?;
                self.met.get_or_init(|| met)
            }
        };
        Ok(met[place / 64] >> (place % 64) & 1 == 1)
    }

    fn has_all(&self, names: &[Box<str>]) -> Result<bool, QueryError> {
        for name in names {
            if !self.has(name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn missing(&self, names: &[Box<str>]) -> Result<Vec<Bson>, QueryError> {
        let mut missing = Vec::new();
        for name in names {
            if !self.has(name)? {
                missing.push(Bson::String(name.to_string()));
            }
        }
        Ok(missing)
    }
}

/// `properties`.
#[derive(Debug)]
struct Properties {
    schemas: Vec<(Box<str>, Schema)>,
    places: HashMap<Box<[u8]>, usize>,
}

pub(super) fn properties(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let schemas: Vec<(Box<str>, Schema)> = schemas(fields, name, value)?
        .into_iter()
        .map(|(property, schema)| (property.into(), schema))
        .collect();
    let names = schemas.iter().map(|(property, _)| property.as_bytes().into());
    let places = names.zip(0..).collect();
    Ok(Some(Box::new(Properties { schemas, places })))
}

impl Rule for Properties {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        for element in value.items()? {
            let element = element?;
            context.step()?;
            if let Some(place) = self.places.get(element.name())
                && !self.schemas[*place].1.passes(Subject::Value(element), context)?
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let mut broken = Vec::new();
        let mut elements: Vec<Option<Element<'_>>> = vec![None; self.schemas.len()];
        for element in value.items()? {
            let element = element?;
            reporter.context.step()?;
            if let Some(place) = self.places.get(element.name()) {
                // Of several fields of a name the first one counts.
                elements[*place].get_or_insert(element);
            }
        }
        for ((property, schema), element) in self.schemas.iter().zip(elements) {
            reporter.context.step()?;
            let Some(element) = element.map(Subject::Value) else {
                continue;
            };
            if !schema.passes(element, reporter.context)? {
                let mut detail = doc! { "propertyName": &**property };
                schema.explain_into(element, reporter, &mut detail)?;
                broken.push(Bson::Document(detail));
            }
        }
        report.insert("propertiesNotSatisfied", broken);
        Ok(())
    }
}

/// The pattern of a property's name, in the words of the keyword.
fn name_pattern(pattern: &str) -> Result<RegexTest, QueryError> {
    regex::compile(pattern, "", JitStack::Small).map_err(|fault| {
        let fault = match fault {
            RegexFault::Syntax(text) => text,
            RegexFault::TooLong | RegexFault::Option(_) => "too long".to_owned(),
        };
        let text = about(
            "patternProperties",
            &format!("has the invalid regular expression '{pattern}': {fault}"),
        );
        QueryError::bad_value(text)
    })?;
    RegexTest::new(pattern, "")
}

/// `patternProperties`.
#[derive(Debug)]
struct PatternProperties(Vec<(RegexTest, Schema)>);

pub(super) fn pattern_properties(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let mut patterns = Vec::new();
    for (pattern, schema) in schemas(fields, name, value)? {
        patterns.push((name_pattern(pattern)?, schema));
    }
    Ok(Some(Box::new(PatternProperties(patterns))))
}

impl Rule for PatternProperties {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        for element in value.items()? {
            let element = element?;
            for (pattern, schema) in &self.0 {
                context.step()?;
                if pattern.is_match(element.name())? && !schema.passes(Subject::Value(element), context)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let mut details = Vec::new();
        for (pattern, schema) in &self.0 {
            for element in value.items()? {
                let element = element?;
                reporter.context.step()?;
                if pattern.is_match(element.name())? && !schema.passes(Subject::Value(element), reporter.context)? {
                    let mut detail = doc! { "propertyName": element.name_lossy(), "regexMatched": pattern.pattern() };
                    schema.explain_into(Subject::Value(element), reporter, &mut detail)?;
                    details.push(Bson::Document(detail));
                }
            }
        }
        report.insert("details", details);
        Ok(())
    }
}

/// `additionalProperties`.
#[derive(Debug)]
struct AdditionalProperties {
    names: BTreeSet<Box<[u8]>>,
    patterns: Vec<RegexTest>,
    /// What the others have to be; without one there must be no others.
    schema: Option<Schema>,
}

pub(super) fn additional_properties(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let schema = match value {
        RawBsonRef::Boolean(true) => return Ok(None),
        RawBsonRef::Boolean(false) => None,
        RawBsonRef::Document(schema) => Some(fields.inner(schema)?),
        other => {
            let found = raw::type_name(other.element_type());
            let what = format!("must be an object or a boolean, but found an element of type {found}");
            return Err(wrong_type(name, &what));
        }
    };
    let keys = |keyword| match fields.get(keyword) {
        Some(RawBsonRef::Document(document)) => {
            let keys = document.into_iter().flatten();
            keys.map(|(key, _)| key.as_str()).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    let names = keys("properties").into_iter().map(|key| key.as_bytes().into());
    let patterns = keys("patternProperties").into_iter().map(name_pattern);
    Ok(Some(Box::new(AdditionalProperties {
        names: names.collect(),
        patterns: patterns.collect::<Result<_, _>>()?,
        schema,
    })))
}

impl AdditionalProperties {
    fn is_additional(&self, element: Element<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        context.step()?;
        if self.names.contains(element.name()) {
            return Ok(false);
        }
        for pattern in &self.patterns {
            context.step()?;
            if pattern.is_match(element.name())? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn failing<'a>(
        &self,
        value: Subject<'a>,
        context: &EvaluationContext<'_>,
    ) -> Result<Option<Element<'a>>, QueryError> {
        for element in value.items()? {
            let element = element?;
            let fails = match &self.schema {
                _ if !self.is_additional(element, context)? => false,
                None => true,
                Some(schema) => !schema.passes(Subject::Value(element), context)?,
            };
            if fails {
                return Ok(Some(element));
            }
        }
        Ok(None)
    }
}

impl Rule for AdditionalProperties {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(self.failing(value, context)?.is_none())
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let Some(schema) = &self.schema else {
            let mut others = Vec::new();
            for element in value.items()? {
                let element = element?;
                if self.is_additional(element, reporter.context)? {
                    others.push(Bson::String(element.name_lossy()));
                }
            }
            reporter.specified(report, doc! { "additionalProperties": false });
            report.insert("additionalProperties", others);
            return Ok(());
        };
        let reason = "at least one additional property did not match the subschema";
        report.insert("reason", reason);
        if let Some(element) = self.failing(value, reporter.context)? {
            report.insert("failingProperty", element.name_lossy());
            schema.explain_into(Subject::Value(element), reporter, report)?;
        }
        Ok(())
    }
}

/// A list of names, sorted: that of `required` or of a dependency.
fn names(keyword: &str, value: RawBsonRef<'_>) -> Result<Vec<Box<str>>, QueryError> {
    let type_of = |value: RawBsonRef<'_>| raw::type_name(value.element_type());
    let RawBsonRef::Array(array) = value else {
        let what = format!("must be an array, but found an element of type {}", type_of(value));
        return Err(wrong_type(keyword, &what));
    };
    let mut names = Vec::new();
    for item in array {
        match item.map_err(|_| Malformed)? {
            RawBsonRef::String(name) => names.push(Box::from(name)),
            other => {
                let what = format!(
                    "must be an array of strings, but found an element of type {}",
                    type_of(other)
                );
                return Err(wrong_type(keyword, &what));
            }
        }
    }
    if names.is_empty() {
        return Err(malformed(keyword, "cannot be an empty array"));
    }
    names.sort();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(malformed(keyword, "array cannot contain duplicate values"));
    }
    Ok(names)
}

/// `required`.
#[derive(Debug)]
struct Required {
    names: Vec<Box<str>>,
    wanted: Wanted,
    specified: Bson,
}

pub(super) fn required(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (names, specified) = (names(name, value)?, to_bson(value)?);
    let wanted = Wanted::of(names.iter().map(|name| &**name));
    Ok(Some(Box::new(Required {
        names,
        wanted,
        specified,
    })))
}

impl Rule for Required {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Present::of(value, &self.wanted, context)?.has_all(&self.names)
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        reporter.specified(report, doc! { "required": self.specified.clone() });
        let present = Present::of(value, &self.wanted, reporter.context)?;
        report.insert("missingProperties", present.missing(&self.names)?);
        Ok(())
    }
}

/// `minProperties` and `maxProperties`.
#[derive(Debug)]
struct NumberOfProperties {
    name: &'static str,
    min: u64,
    max: u64,
    specified: Bson,
}

pub(super) fn min_properties(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (min, max, specified) = (count(name, value)?, u64::MAX, to_bson(value)?);
    Ok(Some(Box::new(NumberOfProperties {
        name,
        min,
        max,
        specified,
    })))
}

pub(super) fn max_properties(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let (min, max, specified) = (0, count(name, value)?, to_bson(value)?);
    Ok(Some(Box::new(NumberOfProperties {
        name,
        min,
        max,
        specified,
    })))
}

impl Rule for NumberOfProperties {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let properties = value.items()?.count() as u64;
        Ok((self.min..=self.max).contains(&properties))
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        reporter.specified(report, doc! { self.name: self.specified.clone() });
        report.insert("reason", "specified number of properties was not satisfied");
        report.insert("numberOfProperties", value.items()?.count() as i32);
        Ok(())
    }
}

/// What the presence of a property asks for.
#[derive(Debug)]
enum Dependency {
    Properties(Vec<Box<str>>),
    Schema(Schema),
}

impl Dependency {
    /// Whether a value with these fields has what is asked for.
    fn passes(&self, value: Subject<'_>, present: &Present<'_, '_>) -> Result<bool, QueryError> {
        match self {
            Self::Properties(names) => present.has_all(names),
            Self::Schema(schema) => schema.passes(value, present.context),
        }
    }
}

/// `dependencies`.
#[derive(Debug)]
struct Dependencies {
    of_properties: Vec<(Box<str>, Dependency)>,
    wanted: Wanted,
    /// `title` and `description` that are strings, and so no properties: they are about the keyword.
    annotations: Document,
}

pub(super) fn dependencies(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let RawBsonRef::Document(document) = value else {
        return Err(wrong_type(name, "must be an object"));
    };
    let mut of_properties: Vec<(Box<str>, Dependency)> = Vec::new();
    let mut annotations = Document::new();
    for element in document {
        let (property, value) = element.map_err(|_| Malformed)?;
        let dependency = match value {
            RawBsonRef::Document(schema) => Dependency::Schema(fields.inner(schema)?),
            RawBsonRef::Array(_) => Dependency::Properties(names(name, value)?),
            RawBsonRef::String(text) if matches!(property.as_str(), "title" | "description") => {
                annotations.insert(property.as_str(), text);
                continue;
            }
            _ => {
                let what = format!("must be an object or an array for the property '{property}'");
                return Err(wrong_type(name, &what));
            }
        };
        of_properties.push((property.as_str().into(), dependency));
    }
    let wanted = Wanted::of(of_properties.iter().flat_map(|(property, dependency)| {
        let names: &[Box<str>] = match dependency {
            Dependency::Properties(names) => names,
            Dependency::Schema(_) => &[],
        };
        std::iter::once(&**property).chain(names.iter().map(|name| &**name))
    }));
    Ok(Some(Box::new(Dependencies {
        wanted,
        of_properties,
        annotations,
    })))
}

impl Rule for Dependencies {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let present = Present::of(value, &self.wanted, context)?;
        for (property, dependency) in &self.of_properties {
            if present.has(property)? && !dependency.passes(value, &present)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        report.extend(self.annotations.clone());
        let mut failing = Vec::new();
        let present = Present::of(value, &self.wanted, reporter.context)?;
        for (property, dependency) in &self.of_properties {
            if !present.has(property)? || dependency.passes(value, &present)? {
                continue;
            }
            let mut detail = doc! { "conditionalProperty": &**property };
            match dependency {
                Dependency::Properties(names) => {
                    detail.insert("missingProperties", present.missing(names)?);
                }
                Dependency::Schema(schema) => schema.explain_into(value, reporter, &mut detail)?,
            }
            failing.push(Bson::Document(detail));
        }
        report.insert("failingDependencies", failing);
        Ok(())
    }
}
