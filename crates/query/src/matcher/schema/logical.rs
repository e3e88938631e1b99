//! Keywords that combine schemas, and `enum`.

use bson::{Bson, Document, RawBsonRef, doc};

use super::unordered::ValueSet;
use super::{Fields, Parsed, Reporter, Rule, Schema, Subject, malformed, to_bson, wrong_type};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::raw;
use crate::value::scan::Malformed;

/// How many of the schemas have to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    Any,
    One,
}

/// `allOf`, `anyOf` and `oneOf`.
#[derive(Debug)]
struct Several {
    wanted: Wanted,
    schemas: Vec<Schema>,
}

fn several(fields: &Fields<'_>, name: &str, value: RawBsonRef<'_>, wanted: Wanted) -> Parsed {
    let RawBsonRef::Array(array) = value else {
        return Err(wrong_type(name, "must be an array"));
    };
    let mut schemas = Vec::new();
    for item in array {
        match item.map_err(|_| Malformed)? {
            RawBsonRef::Document(schema) => schemas.push(fields.inner(schema)?),
            other => {
                let found = raw::type_name(other.element_type());
                let what = format!("must be an array of objects, but found an element of type {found}");
                return Err(wrong_type(name, &what));
            }
        }
    }
    if schemas.is_empty() {
        let text = super::about(name, "must be a non-empty array");
        return Err(QueryError::bad_value(text));
    }
    Ok(Some(Box::new(Several { wanted, schemas })))
}

pub(super) fn all_of(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    several(fields, name, value, Wanted::All)
}

pub(super) fn any_of(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    several(fields, name, value, Wanted::Any)
}

pub(super) fn one_of(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    several(fields, name, value, Wanted::One)
}

impl Rule for Several {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let mut matching = 0;
        for schema in &self.schemas {
            let matches = schema.passes(value, context)?;
            matching += usize::from(matches);
            match self.wanted {
                Wanted::All if !matches => return Ok(false),
                Wanted::Any if matches => return Ok(true),
                Wanted::One if matching > 1 => return Ok(false),
                _ => {}
            }
        }
        Ok(match self.wanted {
            Wanted::All => true,
            Wanted::Any => false,
            Wanted::One => matching == 1,
        })
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let (mut matching, mut others) = (Vec::new(), Vec::new());
        for (index, schema) in self.schemas.iter().enumerate() {
            if schema.passes(value, reporter.context)? {
                matching.push(Bson::Int32(index as i32));
            } else {
                let mut other = doc! { "index": index as i32 };
                schema.explain_into(value, reporter, &mut other)?;
                others.push(Bson::Document(other));
            }
        }
        if self.wanted == Wanted::One && matching.len() > 1 {
            report.insert("reason", "more than one subschema matched");
            report.insert("matchingSchemaIndexes", matching);
        } else {
            report.insert("schemasNotSatisfied", others);
        }
        Ok(())
    }
}

/// `not`.
#[derive(Debug)]
struct Not(Schema);

pub(super) fn not(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    match value {
        RawBsonRef::Document(schema) => Ok(Some(Box::new(Not(fields.inner(schema)?)))),
        _ => Err(wrong_type(name, "must be an object")),
    }
}

impl Rule for Not {
    fn passes(&self, value: Subject<'_>, context: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(!self.0.passes(value, context)?)
    }

    fn explain(&self, _: Subject<'_>, _: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        report.insert("reason", "child expression matched");
        Ok(())
    }
}

/// `enum`.
#[derive(Debug)]
struct Enum {
    values: ValueSet,
    specified: Bson,
}

pub(super) fn one_of_values(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let RawBsonRef::Array(array) = value else {
        let found = raw::type_name(value.element_type());
        let what = format!("must be an array, but found an element of type {found}");
        return Err(wrong_type(name, &what));
    };
    let listed = array
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Malformed)?;
    if listed.is_empty() {
        return Err(malformed(name, "cannot be an empty array"));
    }
    let values = ValueSet::new(&listed)?;
    if values.len() < listed.len() {
        return Err(malformed(name, "array cannot contain duplicate values."));
    }
    let specified = to_bson(value)?;
    Ok(Some(Box::new(Enum { values, specified })))
}

impl Rule for Enum {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(self.values.contains(value.value()?)?)
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let specified = doc! { "enum": self.specified.clone() };
        reporter.scalar(report, specified, "value was not found in enum", value)
    }
}
