//! `$jsonSchema`: a schema of JSON Schema's draft 4 with BSON's types, compiled to rules.
//!
//! [`Schema::parse`] makes a rule of each keyword that restricts something, in the order in which a report lists them,
//! which is that of [`KEYWORDS`]. A rule about one sort of values holds for all others: only `type` and `bsonType` ask
//! for the sort itself. [`Schema::passes`] allocates nothing except for `uniqueItems`, objects in an `enum` and long
//! lists of names; [`Schema::explain`] tells which rules a value breaks, in MongoDB's form.
//!
//! A keyword is one row of the table and one implementation of [`Rule`].

mod array;
mod encrypted;
mod logical;
mod object;
mod scalar;
mod types;
mod unordered;

use std::sync::Arc;

use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf, doc};

use super::tree::TypeSet;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::raw::{Element, Elements, kind};
use crate::value::scan::Malformed;
use wire::ErrorCode;

/// How deep schemas may nest.
const DEPTH_MAX: usize = 100;

/// The value that a schema is asked about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Subject<'a> {
    /// The document as a whole.
    Root(&'a RawDocument),
    /// A field or an array's element.
    Value(Element<'a>),
}

impl<'a> Subject<'a> {
    fn kind(self) -> u8 {
        match self {
            Self::Root(_) => kind::DOCUMENT,
            Self::Value(element) => element.kind(),
        }
    }

    /// The fields of an object or the elements of an array.
    fn frame(self) -> Result<&'a RawDocument, Malformed> {
        match self {
            Self::Root(document) => Ok(document),
            Self::Value(element) => element.frame(),
        }
    }

    fn items(self) -> Result<impl Iterator<Item = Result<Element<'a>, Malformed>>, Malformed> {
        Ok(Elements::new(self.frame()?))
    }

    fn value(self) -> Result<RawBsonRef<'a>, Malformed> {
        match self {
            Self::Root(document) => Ok(RawBsonRef::Document(document)),
            Self::Value(element) => element.value(),
        }
    }

    fn to_bson(self) -> Result<Bson, QueryError> {
        to_bson(self.value()?)
    }
}

/// A value as a report shows it.
pub(crate) fn to_bson(value: RawBsonRef<'_>) -> Result<Bson, QueryError> {
    Ok(Bson::try_from(value).map_err(|_| Malformed)?)
}

/// The sort of values that a keyword is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Any,
    Number,
    String,
    Array,
    Object,
}

impl Sort {
    #[inline]
    fn has(self, kind: u8) -> bool {
        match self {
            Self::Any => true,
            Self::Number => matches!(kind, 0x01 | 0x10 | 0x12 | 0x13),
            Self::String => kind == 0x02,
            Self::Array => kind == kind::ARRAY,
            Self::Object => kind == kind::DOCUMENT,
        }
    }
}

/// What one keyword asks of a value of its sort.
trait Rule: std::fmt::Debug + Send + Sync {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError>;

    /// Adds to the report of a value that does not pass what this keyword has to say; the keyword's name is there.
    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError>;
}

type Parsed = Result<Option<Box<dyn Rule>>, QueryError>;

/// A keyword.
struct Keyword {
    name: &'static str,
    sort: Sort,
    /// Makes its rule, if there is anything to ask; checks the argument in any case.
    parse: fn(&Fields<'_>, &'static str, RawBsonRef<'_>) -> Parsed,
}

const fn keyword(
    name: &'static str,
    sort: Sort,
    parse: fn(&Fields<'_>, &'static str, RawBsonRef<'_>) -> Parsed,
) -> Keyword {
    Keyword { name, sort, parse }
}

/// The keywords, in the order of reports.
const KEYWORDS: [Keyword; 31] = [
    keyword("maximum", Sort::Number, scalar::maximum),
    keyword("exclusiveMaximum", Sort::Number, scalar::exclusive_maximum),
    keyword("minimum", Sort::Number, scalar::minimum),
    keyword("exclusiveMinimum", Sort::Number, scalar::exclusive_minimum),
    keyword("maxLength", Sort::String, scalar::max_length),
    keyword("minLength", Sort::String, scalar::min_length),
    keyword("pattern", Sort::String, scalar::pattern),
    keyword("multipleOf", Sort::Number, scalar::multiple_of),
    keyword("minItems", Sort::Array, array::min_items),
    keyword("maxItems", Sort::Array, array::max_items),
    keyword("uniqueItems", Sort::Array, array::unique_items),
    keyword("items", Sort::Array, array::items),
    keyword("additionalItems", Sort::Array, array::additional_items),
    keyword("properties", Sort::Object, object::properties),
    keyword("additionalProperties", Sort::Object, object::additional_properties),
    keyword("patternProperties", Sort::Object, object::pattern_properties),
    keyword("required", Sort::Object, object::required),
    keyword("minProperties", Sort::Object, object::min_properties),
    keyword("maxProperties", Sort::Object, object::max_properties),
    keyword("dependencies", Sort::Object, object::dependencies),
    keyword("allOf", Sort::Any, logical::all_of),
    keyword("anyOf", Sort::Any, logical::any_of),
    keyword("oneOf", Sort::Any, logical::one_of),
    keyword("not", Sort::Any, logical::not),
    keyword("enum", Sort::Any, logical::one_of_values),
    keyword("type", Sort::Any, types::rule),
    keyword("bsonType", Sort::Any, types::rule),
    keyword("title", Sort::Any, annotation),
    keyword("description", Sort::Any, annotation),
    keyword("encrypt", Sort::Any, encrypted::rule),
    keyword("encryptMetadata", Sort::Any, encrypted::metadata),
];

/// Keywords of the draft that MongoDB has not.
const UNSUPPORTED: [&str; 6] = ["$ref", "$schema", "default", "definitions", "format", "id"];

fn annotation(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    match value {
        RawBsonRef::String(_) => Ok(None),
        _ => Err(wrong_type(name, "must be of type string")),
    }
}

fn about(name: &str, what: &str) -> String {
    format!("$jsonSchema keyword '{name}' {what}")
}

/// 14: the argument of a keyword has the wrong type.
fn wrong_type(name: &str, what: &str) -> QueryError {
    QueryError::type_mismatch(about(name, what))
}

/// 9: the argument of a keyword makes no sense.
fn malformed(name: &str, what: &str) -> QueryError {
    QueryError::failed_to_parse(about(name, what))
}

/// The fields of the schema that is being parsed, each known and there once.
struct Fields<'d> {
    found: Vec<Option<RawBsonRef<'d>>>,
    /// What `type` or `bsonType` say.
    stated: Option<TypeSet>,
    /// They name one type only.
    is_single: bool,
    depth: usize,
}

impl<'d> Fields<'d> {
    fn read(document: &'d RawDocument, depth: usize) -> Result<Self, QueryError> {
        if depth > DEPTH_MAX {
            return Err(QueryError::new(
                ErrorCode::Overflow,
                format!("$jsonSchema nests deeper than {DEPTH_MAX} levels"),
            ));
        }
        let mut found: Vec<Option<RawBsonRef<'d>>> = vec![None; KEYWORDS.len()];
        for element in document {
            let (name, value) = element.map_err(|_| Malformed)?;
            let name = name.as_str();
            let Some(place) = KEYWORDS.iter().position(|keyword| keyword.name == name) else {
                return Err(QueryError::failed_to_parse(match UNSUPPORTED.contains(&name) {
                    true => about(name, "is not currently supported"),
                    false => format!("Unknown $jsonSchema keyword: {name}"),
                }));
            };
            if found[place].replace(value).is_some() {
                return Err(QueryError::failed_to_parse(format!(
                    "Duplicate $jsonSchema keyword: {name}"
                )));
            }
        }
        let mut fields = Self {
            found,
            stated: None,
            is_single: false,
            depth,
        };
        (fields.stated, fields.is_single) = types::stated(&fields)?;
        Ok(fields)
    }

    fn get(&self, name: &str) -> Option<RawBsonRef<'d>> {
        let place = KEYWORDS.iter().position(|keyword| keyword.name == name)?;
        self.found[place]
    }

    /// A schema inside of this one.
    fn inner(&self, schema: &RawDocument) -> Result<Schema, QueryError> {
        Schema::parse_at(schema, self.depth + 1)
    }

    /// A rule about a sort of values that the one stated type excludes asks nothing.
    fn excludes(&self, sort: Sort) -> bool {
        let has_any = |stated: TypeSet| stated.types().any(|found| sort.has(found as u8));
        self.is_single && self.stated.is_some_and(|stated| !has_any(stated))
    }
}

/// A compiled schema.
#[derive(Clone)]
pub struct Schema(Arc<Compiled>);

struct Compiled {
    source: RawDocumentBuf,
    /// `title` and `description`.
    annotations: Document,
    /// The stated type is not that of documents: as a filter it matches none.
    excludes_documents: bool,
    rules: Vec<(&'static Keyword, Box<dyn Rule>)>,
}

impl Schema {
    /// Compiles a schema. Errors carry MongoDB's codes and texts.
    pub fn parse(schema: &RawDocument) -> Result<Self, QueryError> {
        Self::parse_at(schema, 0)
    }

    fn parse_at(schema: &RawDocument, depth: usize) -> Result<Self, QueryError> {
        let fields = Fields::read(schema, depth)?;
        let mut rules = Vec::new();
        for (keyword, value) in KEYWORDS.iter().zip(&fields.found) {
            let Some(value) = *value else { continue };
            let rule = (keyword.parse)(&fields, keyword.name, value)?;
            if !fields.excludes(keyword.sort) {
                rules.extend(rule.map(|rule| (keyword, rule)));
            }
        }
        let mut annotations = Document::new();
        for name in ["title", "description"] {
            if let Some(RawBsonRef::String(text)) = fields.get(name) {
                annotations.insert(name, text);
            }
        }
        let documents = bson::spec::ElementType::EmbeddedDocument;
        Ok(Self(Arc::new(Compiled {
            source: schema.to_owned(),
            annotations,
            excludes_documents: fields.stated.is_some_and(|stated| !stated.contains(documents)),
            rules,
        })))
    }

    /// As the client wrote it.
    pub fn source(&self) -> &RawDocument {
        &self.0.source
    }

    /// Whether a document conforms.
    pub(crate) fn matches(&self, document: &RawDocument, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        self.passes(Subject::Root(document), context)
    }

    /// Whether a value conforms.
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        context.step()?;
        for (keyword, rule) in &self.0.rules {
            if keyword.sort.has(value.kind()) && !rule.passes(value, context)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The reports of the rules that a value breaks.
    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>) -> Result<Vec<Bson>, QueryError> {
        let mut reports = Vec::new();
        for (keyword, rule) in &self.0.rules {
            if keyword.sort.has(value.kind()) && !rule.passes(value, reporter.context)? {
                let mut report = doc! { "operatorName": keyword.name };
                rule.explain(value, reporter, &mut report)?;
                reports.push(Bson::Document(report));
            }
        }
        Ok(reports)
    }

    /// Adds the title, the description and the reports to what is told of a part of a value.
    fn explain_into(
        &self,
        value: Subject<'_>,
        reporter: &Reporter<'_>,
        report: &mut Document,
    ) -> Result<(), QueryError> {
        report.extend(self.0.annotations.clone());
        report.insert("details", self.explain(value, reporter)?);
        Ok(())
    }

    /// What a failed validation tells about `$jsonSchema`: why the document does not match, or for `inverted` that it
    /// does.
    pub(crate) fn explain_document(
        &self,
        document: &RawDocument,
        inverted: bool,
        reporter: &Reporter<'_>,
    ) -> Result<Document, QueryError> {
        let mut report = doc! { "operatorName": "$jsonSchema" };
        if self.0.excludes_documents && !inverted {
            let source = to_bson(RawBsonRef::Document(&self.0.source))?;
            reporter.specified(&mut report, doc! { "$jsonSchema": source });
            report.insert("reason", "expression always evaluates to false");
            return Ok(report);
        }
        report.extend(self.0.annotations.clone());
        match inverted {
            true => report.insert("reason", "schema matched"),
            false => {
                let broken = self.explain(Subject::Root(document), reporter)?;
                report.insert("schemaRulesNotSatisfied", broken)
            }
        };
        Ok(report)
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.source.fmt(f)
    }
}

/// Writes the parts of reports that may be left out where the whole would get too large.
pub(crate) struct Reporter<'c> {
    pub(crate) context: &'c EvaluationContext<'c>,
    /// Leaves values and specifications out.
    pub(crate) is_brief: bool,
}

impl Reporter<'_> {
    /// `specifiedAs`.
    pub(crate) fn specified(&self, report: &mut Document, specification: Document) {
        self.value(report, "specifiedAs", specification);
    }

    /// A field whose value is the client's.
    pub(crate) fn value(&self, report: &mut Document, field: &str, value: impl Into<Bson>) {
        if !self.is_brief {
            report.insert(field, value);
        }
    }

    /// `specifiedAs`, `reason` and `consideredValue` of a keyword.
    fn scalar(
        &self,
        report: &mut Document,
        specification: Document,
        reason: &str,
        value: Subject<'_>,
    ) -> Result<(), QueryError> {
        self.specified(report, specification);
        report.insert("reason", reason);
        self.value(report, "consideredValue", value.to_bson()?);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
