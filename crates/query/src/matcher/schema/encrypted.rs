//! `encrypt` and `encryptMetadata`: of what clients encrypt, field by field. The server sees that a value is encrypted,
//! and of which type it was; algorithms and keys are the clients' affair.

use bson::spec::BinarySubtype;
use bson::{Bson, Document, RawBsonRef, RawDocument, doc};

use super::types::types;
use super::{Fields, Parsed, Reporter, Rule, Subject, to_bson, wrong_type};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::matcher::tree::TypeSet;
use crate::value::scan::Malformed;
use wire::ErrorCode;

/// Where in an encrypted value the type stands that it had: behind the kind of encryption and the key's id.
const TYPE_AT: usize = 17;

#[derive(Debug)]
struct Encrypted {
    types: Option<TypeSet>,
    specified: Bson,
}

pub(super) fn rule(fields: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    if let Some(stated) = ["type", "bsonType"]
        .into_iter()
        .find(|stated| fields.get(stated).is_some())
    {
        return Err(QueryError::failed_to_parse(format!(
            "$jsonSchema keyword '{name}' cannot be used in conjunction with '{stated}'"
        )));
    }
    let options = options(name, value)?;
    let stated = options.get("bsonType").map_err(|_| Malformed)?;
    let types = stated.map(|stated| types("bsonType", stated)).transpose()?;
    Ok(Some(Box::new(Encrypted {
        types: types.and_then(|(types, _)| types),
        specified: to_bson(value)?,
    })))
}

/// Says how fields below are to be encrypted, which asks nothing by itself.
pub(super) fn metadata(_: &Fields<'_>, name: &'static str, value: RawBsonRef<'_>) -> Parsed {
    options(name, value)?;
    Ok(None)
}

fn options<'d>(name: &str, value: RawBsonRef<'d>) -> Result<&'d RawDocument, QueryError> {
    let RawBsonRef::Document(options) = value else {
        return Err(wrong_type(name, "must be an object"));
    };
    for option in options {
        let (option, value) = option.map_err(|_| Malformed)?;
        let option = option.as_str();
        let is_right = match option {
            "algorithm" => matches!(value, RawBsonRef::String(_)),
            "keyId" => matches!(value, RawBsonRef::String(_) | RawBsonRef::Array(_)),
            "bsonType" if name == "encrypt" => true,
            _ => {
                return Err(QueryError::new(
                    ErrorCode(40415),
                    format!("BSON field '{name}.{option}' is an unknown field."),
                ));
            }
        };
        if !is_right {
            return Err(wrong_type(name, &format!("has the wrong type for '{option}'")));
        }
    }
    Ok(options)
}

impl Rule for Encrypted {
    fn passes(&self, value: Subject<'_>, _: &EvaluationContext<'_>) -> Result<bool, QueryError> {
        let RawBsonRef::Binary(binary) = value.value()? else {
            return Ok(false);
        };
        let was_one_of = |types: &TypeSet| {
            let kind = binary.bytes.get(TYPE_AT);
            kind.is_some_and(|kind| types.contains_kind(*kind))
        };
        Ok(binary.subtype == BinarySubtype::Encrypted && self.types.as_ref().is_none_or(was_one_of))
    }

    fn explain(&self, value: Subject<'_>, reporter: &Reporter<'_>, report: &mut Document) -> Result<(), QueryError> {
        let specified = doc! { "encrypt": self.specified.clone() };
        reporter.scalar(report, specified, "value was not encrypted", value)
    }
}
