//! Documents: `$mergeObjects`, `$getField`, `$setField`, `$unsetField`, `$objectToArray`, `$arrayToObject`.

use std::collections::HashMap;

use bson::{RawBsonRef, RawDocument};
use wire::ErrorCode;

use super::failure::failure;
use super::operator::{Apply, ApplyNamed, Arity, Computed, NamedOperator, Operator};
use super::parse::Parser;
use super::{Gathered, Node, elements, finished_document};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::value::scan::{Element, Elements, Malformed};
use crate::value::{ArrayValue, Comparer, DocumentValue, DocumentWriter, Text, Value};

/// The operators of this module with positional arguments.
pub(super) const OPERATORS: &[Operator] = &[
    Operator {
        name: "$mergeObjects",
        arity: Arity::Any,
        apply: Apply::Walk(merge_objects),
    },
    Operator {
        name: "$objectToArray",
        arity: Arity::Exactly(1),
        apply: Apply::Walk(object_to_array),
    },
    Operator {
        name: "$arrayToObject",
        arity: Arity::Exactly(1),
        apply: Apply::Walk(array_to_object),
    },
];

/// The operators of this module with named arguments.
pub(super) const NAMED: &[NamedOperator] = &[
    NamedOperator {
        name: "$getField",
        fields: &[("field", Some(3041702)), ("input", Some(3041703))],
        apply: ApplyNamed::Values(get_field),
        codes: [3041701, 3041701],
        check: None,
    },
    NamedOperator {
        name: "$setField",
        fields: &[
            ("field", Some(4161102)),
            ("value", Some(4161103)),
            ("input", Some(4161109)),
        ],
        apply: ApplyNamed::Values(set_field),
        codes: [4161100, 4161101],
        check: Some(check_field),
    },
    NamedOperator {
        name: "$unsetField",
        fields: &[("field", Some(4161102)), ("input", Some(4161109))],
        apply: ApplyNamed::Values(unset_field),
        codes: [4161100, 4161101],
        check: Some(check_field),
    },
];

/// `{$getField: "name"}` means `{$getField: {field: "name", input: "$$CURRENT"}}`; nothing else has a short form.
pub(super) fn shorthand(
    operator: &'static NamedOperator,
    raw: RawBsonRef<'_>,
    parser: &mut Parser<'_>,
) -> Result<Option<Node>, QueryError> {
    if operator.name != "$getField" {
        return Ok(None);
    }
    if let RawBsonRef::Document(document) = raw
        && !document
            .into_iter()
            .next()
            .is_some_and(|first| first.is_ok_and(|(name, _)| name.as_str().starts_with('$')))
    {
        return Ok(None);
    }
    let field = Some(parser.operand(raw)?);
    let input = Some(parser.operand(RawBsonRef::String("$$CURRENT"))?);
    Ok(Some(Node::Named {
        operator,
        comparer: parser.context.comparer.clone(),
        arguments: vec![field, input],
    }))
}

/// Fields up to which one is looked for by a walk; beyond, by a table.
const WALKED_FIELDS_MAX: usize = 8;

/// Concatenates documents; a later field replaces an earlier one in its place.
pub(crate) fn merge_documents<'d>(documents: impl IntoIterator<Item = &'d RawDocument>) -> Result<Vec<u8>, QueryError> {
    let mut merged: Vec<Element<'d>> = Vec::new();
    // Behind `merged` until there are too many for a walk.
    let mut positions: HashMap<&'d [u8], usize> = HashMap::new();
    for element in documents.into_iter().flat_map(Elements::new) {
        let element = element?;
        let position = if merged.len() <= WALKED_FIELDS_MAX {
            merged.iter().position(|earlier| earlier.name == element.name)
        } else {
            let unlisted = positions.len()..;
            positions.extend(
                unlisted
                    .clone()
                    .zip(&merged[unlisted])
                    .map(|(at, earlier)| (earlier.name, at)),
            );
            positions.get(element.name).copied()
        };
        match position {
            Some(position) => merged[position] = element,
            None => merged.push(element),
        }
    }
    let bytes = merged
        .iter()
        .map(|element| element.name.len() + element.value.len() + 2)
        .sum::<usize>()
        + 5;
    super::check_result_bytes(bytes)?;
    let mut out = Vec::with_capacity(bytes);
    let mut writer = DocumentWriter::new(&mut out);
    for element in merged {
        writer.append_raw(element.kind, element.name, element.value);
    }
    writer.finish();
    Ok(out)
}

fn merge_objects<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    // One argument that is an array merges its elements.
    let operands = match <[Value<'a>; 1]>::try_from(operands) {
        Ok([Value::Array(array)]) => elements(context, &array)?,
        Ok([other]) => vec![other],
        Err(operands) => operands,
    };
    let mut documents = Vec::with_capacity(operands.len());
    for operand in operands {
        context.steps(1 + operand.steps())?;
        match operand {
            Value::Document(document) => documents.push(document),
            nullish if nullish.is_nullish() => {}
            other => {
                return failure(
                    40400,
                    format!(
                        "$mergeObjects requires object inputs, but input {} is of type {}",
                        other.render(),
                        other.type_name()
                    ),
                );
            }
        }
    }
    match documents.len() {
        1 => Ok(documents.pop().map_or(Value::Missing, Value::Document)),
        _ => finished_document(merge_documents(documents.iter().map(|document| &**document))?),
    }
}

fn only(operands: Vec<Value<'_>>) -> Value<'_> {
    operands.into_iter().next().unwrap_or(Value::Missing)
}

fn object_to_array<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let document = match only(operands) {
        Value::Document(document) => document,
        nullish if nullish.is_nullish() => return Ok(Value::Null),
        other => {
            return failure(
                40390,
                format!("$objectToArray requires an object input, found: {}", other.type_name()),
            );
        }
    };
    let mut pairs = Gathered::new(context);
    for element in Elements::new(&document) {
        let element = element?;
        let mut bytes = Vec::with_capacity(element.value.len() + element.name.len() + 24);
        let mut writer = DocumentWriter::new(&mut bytes);
        writer.append("k", &Value::String(Text::Borrowed(element.name_str()?)));
        writer.append_raw(element.kind, b"v", element.value);
        writer.finish();
        pairs.push(finished_document(bytes)?)?;
    }
    pairs.finish()
}

fn array_to_object<'a>(context: &EvaluationContext<'_>, _: &Comparer, operands: Vec<Value<'a>>) -> Computed<'a> {
    let array = match only(operands) {
        Value::Array(array) => array,
        nullish if nullish.is_nullish() => return Ok(Value::Null),
        other => {
            return failure(
                40386,
                format!("$arrayToObject requires an array input, found: {}", other.type_name()),
            );
        }
    };
    let mut fields: Vec<(String, Value<'a>)> = Vec::new();
    let mut places = HashMap::new();
    let mut pairs_of_arrays = None;
    for item in array.iter() {
        let item = item?;
        let is_array = matches!(item, Value::Array(_));
        if *pairs_of_arrays.get_or_insert(is_array) != is_array {
            let (code, before) = if is_array { (40391, "Object") } else { (40396, "Array") };
            return failure(
                code,
                format!(
                    "$arrayToObject requires a consistent input format. Elements must all be arrays or all be objects. \
                     {before} was detected, now found: {}",
                    item.type_name()
                ),
            );
        }
        let (name, value) = match &item {
            Value::Array(pair) => pair_of_array(pair)?,
            Value::Document(document) => pair_of_document(document, &item)?,
            other => {
                return failure(
                    40398,
                    format!(
                        "Unrecognised input type format for $arrayToObject: {}",
                        other.type_name()
                    ),
                );
            }
        };
        context.steps(1 + value.steps())?;
        context.hold(2 * (name.len() + size_of::<String>()) + value.owned_bytes())?;
        if name.contains('\0') {
            let code = if is_array { 4940400 } else { 4940401 };
            return failure(code, "Key field cannot contain an embedded null byte");
        }
        match places.get(&name) {
            Some(&place) => fields[place] = (name, value),
            None => {
                places.insert(name.clone(), fields.len());
                fields.push((name, value));
            }
        }
    }
    let mut bytes = Vec::with_capacity(64);
    bytes.extend_from_slice(&[0; 4]);
    for (name, value) in &fields {
        value.append_to(&mut bytes, name);
        super::check_result_bytes(bytes.len())?;
    }
    DocumentWriter::close(&mut bytes);
    finished_document(bytes)
}

fn pair_of_array<'a>(pair: &ArrayValue<'a>) -> Result<(String, Value<'a>), QueryError> {
    let items = pair.to_vec()?;
    let given = items.len();
    let Ok([name, value]) = <[Value<'a>; 2]>::try_from(items) else {
        return failure(
            40397,
            format!("$arrayToObject requires an array of size 2 arrays,found array of size: {given}"),
        );
    };
    match name.as_str() {
        Some(name) => Ok((name.to_owned(), value)),
        None => failure(
            40395,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type string. Found key type: {}",
                name.type_name()
            ),
        ),
    }
}

fn pair_of_document<'a>(document: &DocumentValue<'a>, item: &Value<'a>) -> Result<(String, Value<'a>), QueryError> {
    let count = Elements::new(document).count();
    if count != 2 {
        return failure(
            40392,
            format!("$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of keys:{count}"),
        );
    }
    let (name, value) = (item.get_field("k")?, item.get_field("v")?);
    if name.is_missing() || value.is_missing() {
        return failure(
            40393,
            "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys",
        );
    }
    match name.as_str() {
        Some(name) => Ok((name.to_owned(), value)),
        None => failure(
            40394,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must be of type string. Found type: {}",
                name.type_name()
            ),
        ),
    }
}

/// The `field` of `$setField` and `$unsetField`: a string as it stands, or as a `$literal`.
fn check_field(name: &'static str, arguments: &RawDocument) -> Result<(), QueryError> {
    let Some(field) = arguments.get("field").map_err(|_| Malformed)? else {
        return Ok(());
    };
    let (constant, is_literal) = match field {
        RawBsonRef::Document(expression) if !expression.is_empty() => {
            let mut parts = expression.into_iter();
            match (parts.next().transpose().map_err(|_| Malformed)?, parts.next()) {
                (Some((operator, constant)), None) if matches!(operator.as_str(), "$literal" | "$const") => {
                    (constant, true)
                }
                _ => return failure(4161106, format!("{name} requires 'field' to evaluate to a constant")),
            }
        }
        RawBsonRef::Array(_) => return failure(4161106, format!("{name} requires 'field' to evaluate to a constant")),
        constant => (constant, false),
    };
    match constant {
        RawBsonRef::String(path) if !is_literal && path.starts_with('$') => failure(
            4161108,
            format!(
                "'{path}' is a field path reference which is not allowed in this context. Did you mean {{$literal: '{path}'}}?"
            ),
        ),
        RawBsonRef::String(path) if path.contains('\0') => {
            failure(9534700, format!("{name} requires 'field' to have no null byte"))
        }
        RawBsonRef::String(_) => Ok(()),
        other => {
            let found = Value::from_raw(other).type_name();
            failure(
                4161107,
                format!("{name} requires 'field' to evaluate to type String, but got {found}"),
            )
        }
    }
}

fn field_name<'v>(name: &str, code: i32, field: &'v Option<Value<'_>>) -> Result<&'v str, QueryError> {
    match field.as_ref().and_then(Value::as_str) {
        Some(field) => Ok(field),
        None => {
            let found = field.as_ref().map_or("missing", Value::type_name);
            failure(
                code,
                format!("{name} requires 'field' to evaluate to type String, but got {found}"),
            )
        }
    }
}

fn get_field<'a>(name: &'static str, _: &EvaluationContext<'_>, arguments: Vec<Option<Value<'a>>>) -> Computed<'a> {
    let mut arguments = arguments.into_iter();
    let (field, input) = (arguments.next().flatten(), arguments.next().flatten());
    let field = field_name(name, 3041704, &field)?;
    match input {
        Some(input @ Value::Document(_)) => Ok(input.get_field(field)?),
        Some(Value::Null | Value::Undefined) => Ok(Value::Null),
        _ => Ok(Value::Missing),
    }
}

fn replace_field<'a>(input: Value<'a>, field: &str, value: &Value<'a>, code: i32, name: &str) -> Computed<'a> {
    let document = match input {
        Value::Document(document) => document,
        nullish if nullish.is_nullish() => return Ok(Value::Null),
        other => {
            return failure(
                code,
                format!(
                    "{name} requires 'input' to evaluate to type Object, but got {}",
                    other.type_name()
                ),
            );
        }
    };
    let mut out = Vec::with_capacity(document.as_bytes().len() + 32);
    let mut writer = DocumentWriter::new(&mut out);
    let mut replaced = false;
    for element in Elements::new(&document) {
        let element = element?;
        if element.name == field.as_bytes() {
            writer.append(field, value);
            replaced = true;
        } else {
            writer.append_raw(element.kind, element.name, element.value);
        }
    }
    if !replaced {
        writer.append(field, value);
    }
    writer.finish();
    finished_document(out)
}

fn set_field<'a>(name: &'static str, _: &EvaluationContext<'_>, arguments: Vec<Option<Value<'a>>>) -> Computed<'a> {
    let Ok([field, Some(value), Some(input)]) = <[Option<Value<'a>>; 3]>::try_from(arguments) else {
        return failure(ErrorCode::InternalError.0, "missing arguments to $setField");
    };
    let field = field_name(name, 4161107, &field)?;
    replace_field(input, field, &value, 4161105, name)
}

fn unset_field<'a>(name: &'static str, _: &EvaluationContext<'_>, arguments: Vec<Option<Value<'a>>>) -> Computed<'a> {
    let Ok([field, Some(input)]) = <[Option<Value<'a>>; 2]>::try_from(arguments) else {
        return failure(ErrorCode::InternalError.0, "missing arguments to $unsetField");
    };
    replace_field(
        input,
        field_name(name, 4161107, &field)?,
        &Value::Missing,
        4161105,
        name,
    )
}
