//! `$fill` is written short for `$setWindowFields` with `$locf` and `$linearFill`, and `$addFields` for constant
//! values.

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::specification::{StageSpec, stage_document};
use super::{failure, parse, window};
use crate::error::QueryError;
use crate::expression::{Expression, ExpressionContext, FieldPath};
use crate::value::scan::Malformed;
use crate::value::{DocumentWriter, SharedDocument, Value};

/// How a field is filled.
enum Method<'r> {
    Value(RawBsonRef<'r>),
    /// The window function.
    Function(&'static str),
}

/// The arguments that go on to `$setWindowFields`.
#[derive(Default)]
struct Arguments<'r> {
    partition_by: Option<RawBsonRef<'r>>,
    partition_by_fields: Option<RawBsonRef<'r>>,
    sort_by: Option<RawBsonRef<'r>>,
    output: Option<&'r RawDocument>,
}

fn wrong_type<T>(field: &str, raw: RawBsonRef<'_>, wanted: &str) -> Result<T, QueryError> {
    let found = Value::from_raw(raw).type_name();
    failure(
        ErrorCode::TypeMismatch.0,
        format!("BSON field '$fill.{field}' is the wrong type '{found}', expected type '{wanted}'"),
    )
}

/// Parses `$fill`; appends the stages that it becomes.
pub(super) fn parse(
    stages: &mut Vec<StageSpec>,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            ErrorCode::FailedToParse.0,
            format!("the $fill stage specification must be an object, found {found}"),
        );
    };
    let arguments = parse_arguments(document)?;
    let Some(output) = arguments.output else {
        return failure(40414, "BSON field '$fill.output' is missing but a required field");
    };
    if output.is_empty() {
        return failure(6050203, "$fill must specify an output field");
    }
    let (mut values, mut functions) = (Vec::new(), Vec::new());
    for element in output {
        let (path, raw) = element.map_err(|_| Malformed)?;
        FieldPath::parse(path.as_str())?;
        match parse_method(path.as_str(), raw)? {
            Method::Value(raw) => values.push((path.as_str(), raw)),
            Method::Function(function) => functions.push((path.as_str(), function)),
        }
    }
    let partition = partition_of(&arguments)?;
    if !functions.is_empty() {
        let window = window_document(partition.as_ref(), arguments.sort_by, &functions)?;
        window::parse(stages, RawBsonRef::Document(&window), context)?;
    } else {
        // They say nothing about values, but have to be right.
        if let Some(RawBsonRef::Document(pattern)) = arguments.sort_by
            && !pattern.is_empty()
        {
            crate::value::SortPattern::parse(pattern, &context.comparer)?;
        }
        if let Some(partition) = arguments.partition_by {
            Expression::parse(partition, context)?;
        }
    }
    if !values.is_empty() {
        stages.push(add_fields(&values, context)?);
    }
    Ok(())
}

fn parse_arguments(document: &RawDocument) -> Result<Arguments<'_>, QueryError> {
    let mut arguments = Arguments::default();
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match (name.as_str(), raw) {
            ("partitionBy" | "partitionByFields" | "sortBy", RawBsonRef::Null | RawBsonRef::Undefined) => {}
            ("partitionBy", RawBsonRef::String(path)) if !path.starts_with('$') => {
                return failure(16873, format!("FieldPath '{path}' doesn't start with $"));
            }
            ("partitionBy", RawBsonRef::Document(_) | RawBsonRef::String(_)) => arguments.partition_by = Some(raw),
            ("partitionBy", other) => return wrong_type("partitionBy", other, "object"),
            ("partitionByFields", RawBsonRef::Array(_)) => arguments.partition_by_fields = Some(raw),
            ("partitionByFields", other) => return wrong_type("partitionByFields", other, "array"),
            ("sortBy", RawBsonRef::Document(_)) => arguments.sort_by = Some(raw),
            ("sortBy", other) => return wrong_type("sortBy", other, "object"),
            ("output", RawBsonRef::Document(output)) => arguments.output = Some(output),
            ("output", other) => return wrong_type("output", other, "object"),
            (other, _) => return failure(40415, format!("BSON field '$fill.{other}' is an unknown field.")),
        }
    }
    if arguments.partition_by.is_some() && arguments.partition_by_fields.is_some() {
        return failure(
            6050204,
            "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'",
        );
    }
    Ok(arguments)
}

fn parse_method<'r>(path: &str, raw: RawBsonRef<'r>) -> Result<Method<'r>, QueryError> {
    let RawBsonRef::Document(document) = raw else {
        return failure(
            6050200,
            format!("Each fill output specification must be an object with exactly one field, '{path}' is not"),
        );
    };
    let (mut value, mut method) = (None, None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match name.as_str() {
            "value" => value = Some(raw),
            "method" => method = Some(raw),
            other => {
                return failure(
                    40415,
                    format!("BSON field '$fill.output.{path}.{other}' is an unknown field."),
                );
            }
        }
    }
    match (value, method) {
        (Some(value), None) => Ok(Method::Value(value)),
        (None, Some(RawBsonRef::String("locf"))) => Ok(Method::Function("$locf")),
        (None, Some(RawBsonRef::String("linear"))) => Ok(Method::Function("$linearFill")),
        (None, Some(RawBsonRef::String(_))) => failure(6050202, "Method must be either locf or linear"),
        (None, Some(other)) => wrong_type(&format!("output.{path}.method"), other, "string"),
        _ => failure(
            6050201,
            format!("Each fill output specification must have exactly one of 'value' and 'method', '{path}' has not"),
        ),
    }
}

/// What partitions: as written, or a document of the fields named.
fn partition_of(arguments: &Arguments<'_>) -> Result<Option<Value<'static>>, QueryError> {
    if let Some(raw) = arguments.partition_by {
        return Ok(Some(Value::from_raw(raw).into_owned()));
    }
    let Some(RawBsonRef::Array(fields)) = arguments.partition_by_fields else {
        return Ok(None);
    };
    let mut bytes = Vec::new();
    let mut writer = DocumentWriter::new(&mut bytes);
    let mut number = 0;
    for field in fields {
        let RawBsonRef::String(path) = field.map_err(|_| Malformed)? else {
            return failure(
                ErrorCode::TypeMismatch.0,
                "BSON field '$fill.partitionByFields' must be an array of strings",
            );
        };
        FieldPath::parse(path)?;
        // The names are of no interest, and paths are none.
        writer.append(&number.to_string(), &Value::string(format!("${path}")));
        number += 1;
    }
    writer.finish();
    let document = SharedDocument::new(bytes.into())?;
    Ok((number > 0).then(|| Value::document(document)))
}

fn window_document(
    partition: Option<&Value<'static>>,
    sort_by: Option<RawBsonRef<'_>>,
    functions: &[(&str, &'static str)],
) -> Result<RawDocumentBuf, QueryError> {
    let mut bytes = Vec::new();
    let mut writer = DocumentWriter::new(&mut bytes);
    if let Some(partition) = partition {
        writer.append("partitionBy", partition);
    }
    if let Some(sort_by) = sort_by {
        writer.append("sortBy", &Value::from_raw(sort_by));
    }
    let mut output = writer.document("output");
    for (path, function) in functions {
        let mut field = output.document(path);
        field.append(function, &Value::string(format!("${path}")));
        field.finish();
    }
    output.finish();
    writer.finish();
    Ok(RawDocumentBuf::from_bytes(bytes).map_err(|_| Malformed)?)
}

/// `{$addFields: {path: {$ifNull: ["$path", value]}, …}}`
fn add_fields(values: &[(&str, RawBsonRef<'_>)], context: &ExpressionContext) -> Result<StageSpec, QueryError> {
    let mut bytes = Vec::new();
    let mut writer = DocumentWriter::new(&mut bytes);
    for (path, value) in values {
        let mut field = writer.document(path);
        let mut operands = field.array("$ifNull");
        operands.push(&Value::string(format!("${path}")));
        operands.push(&Value::from_raw(*value));
        operands.finish();
        field.finish();
    }
    writer.finish();
    let fields = RawDocumentBuf::from_bytes(bytes).map_err(|_| Malformed)?;
    let written = stage_document("$addFields", &Value::from_raw(RawBsonRef::Document(&fields)));
    parse::parse_add_fields("$addFields", RawBsonRef::Document(&fields), written, context)
}
