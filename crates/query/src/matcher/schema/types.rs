//! `type` and `bsonType`.

use bson::spec::ElementType;
use bson::{Bson, Document, RawBsonRef, doc};

use super::{Fields, Parsed, Reporter, Rule, Subject, malformed, to_bson, wrong_type};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::parse::named_type;
use crate::matcher::tree::TypeSet;
use crate::raw;
use crate::value::scan::Malformed;

/// The names of JSON Schema, and what they stand for.
const JSON_TYPES: [(&str, &str); 6] = [
    ("array", "array"),
    ("boolean", "bool"),
    ("null", "null"),
    ("number", "number"),
    ("object", "object"),
    ("string", "string"),
];

/// The types that the schema states, and whether it names one only.
pub(super) fn stated(fields: &Fields<'_>) -> Result<(Option<TypeSet>, bool), QueryError> {
    match (fields.get("type"), fields.get("bsonType")) {
        (Some(_), Some(_)) => Err(QueryError::failed_to_parse(
            "Cannot specify both $jsonSchema keywords 'type' and 'bsonType'",
        )),
        (Some(value), None) => types("type", value),
        (None, Some(value)) => types("bsonType", value),
        (None, None) => Ok((None, false)),
    }
}

pub(super) fn types(name: &'static str, value: RawBsonRef<'_>) -> Result<(Option<TypeSet>, bool), QueryError> {
    let mut set = TypeSet::default();
    let mut seen: Vec<&str> = Vec::new();
    match value {
        RawBsonRef::String(alias) => {
            set.add(alias_of(name, alias)?);
            seen.push(alias);
        }
        RawBsonRef::Array(aliases) => {
            for alias in aliases {
                let RawBsonRef::String(alias) = alias.map_err(|_| Malformed)? else {
                    return Err(wrong_type(name, "array elements must be strings"));
                };
                if seen.contains(&alias) {
                    return Err(malformed(name, &format!("has duplicate value: {alias}")));
                }
                set.add(alias_of(name, alias)?);
                seen.push(alias);
            }
            if seen.is_empty() {
                return Err(malformed(name, "must name at least one type"));
            }
        }
        _ => return Err(wrong_type(name, "must be either a string or an array of strings")),
    }
    Ok((Some(set), seen.len() == 1))
}

fn alias_of(name: &str, alias: &str) -> Result<TypeSet, QueryError> {
    if name == "bsonType" {
        return named_type(RawBsonRef::String(alias));
    }
    match JSON_TYPES.iter().find(|(json, _)| *json == alias) {
        Some((_, alias)) => named_type(RawBsonRef::String(alias)),
        None if alias == "integer" => Err(QueryError::failed_to_parse(
            "$jsonSchema type 'integer' is not currently supported.",
        )),
        None => Err(QueryError::bad_value(format!("Unknown type name alias: {alias}"))),
    }
}

#[derive(Debug)]
struct Types {
    name: &'static str,
    types: TypeSet,
    specified: Bson,
}

pub(super) fn rule(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    let types = fields.stated.unwrap_or_default();
    let specified = to_bson(value)?;
    Ok(Some(Box::new(Types { name, types, specified })))
}

impl Rule for Types {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        Ok(self.types.contains_kind(value.kind()))
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let specified = doc! { self.name: self.specified.clone() };
        reporter.scalar(report, specified, "type did not match", value)?;
        let considered = ElementType::from(value.kind()).ok_or(Malformed)?;
        report.insert("consideredType", raw::type_name(considered));
        Ok(())
    }
}
