//! `$lookup` and `$unionWith`: documents of other collections.
//!
//! What is parsed of them, and the values that a join compares. How they run: `lookup_stage`.

use bson::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use super::positions::check_sub_pipeline;
use super::{PIPELINE_DEPTH_MAX, Pipeline, StageContext, failure};
use crate::error::QueryError;
use crate::expression::{Expression, ExpressionContext, FieldPath, OuterVariable, check_user_variable};
use crate::matcher::is_operators;
use crate::path::{Part, Path};
use crate::raw::{self, Elements, kind};
use crate::value::scan::Malformed;
use crate::value::{DocumentWriter, Value};

/// A collection named by a stage.
#[derive(Clone, Debug, Default)]
pub(super) struct ForeignName {
    pub(super) database: Option<String>,
    pub(super) collection: Option<String>,
}

/// A parsed `$lookup`.
#[derive(Debug)]
pub struct LookupSpec {
    pub(super) written: RawDocumentBuf,
    pub(super) from: ForeignName,
    /// `localField` and `foreignField`.
    pub(super) equality: Option<(Path, String)>,
    pub(super) variables: Vec<(String, Expression)>,
    pub(super) pipeline: Vec<RawDocumentBuf>,
    /// The sub-pipeline's own foreign collections.
    pub(super) nested: Vec<(Option<String>, String)>,
    pub(super) target: FieldPath,
    pub(super) context: ExpressionContext,
    pub(super) depth: usize,
}

/// A parsed `$unionWith`.
#[derive(Debug)]
pub struct UnionSpec {
    pub(super) written: RawDocumentBuf,
    pub(super) from: ForeignName,
    pub(super) pipeline: Vec<RawDocumentBuf>,
    pub(super) nested: Vec<(Option<String>, String)>,
    pub(super) context: ExpressionContext,
    pub(super) depth: usize,
}

fn bad<T>(message: impl Into<String>) -> Result<T, QueryError> {
    failure(ErrorCode::FailedToParse.0, message)
}

/// Copies the stages of a sub-pipeline.
fn stage_documents(array: &RawArray, stage: &str) -> Result<Vec<RawDocumentBuf>, QueryError> {
    let mut stages = Vec::new();
    for raw in array {
        match raw.map_err(|_| Malformed)? {
            RawBsonRef::Document(document) => stages.push(document.to_owned()),
            _ => {
                return failure(
                    ErrorCode::TypeMismatch.0,
                    format!("Each element of the 'pipeline' array of {stage} must be an object"),
                );
            }
        }
    }
    Ok(stages)
}

pub(super) fn check_depth(depth: usize) -> Result<(), QueryError> {
    if depth > PIPELINE_DEPTH_MAX {
        return failure(
            ErrorCode::MaxSubPipelineDepthExceeded.0,
            format!("Maximum number of nested sub-pipelines exceeded. Limit is {PIPELINE_DEPTH_MAX}"),
        );
    }
    Ok(())
}

/// The collection's name; of another database only where the stage may read that one.
pub(super) fn parse_from(
    stage: &str,
    raw: RawBsonRef<'_>,
    may_read: impl Fn(&str, &str) -> bool,
) -> Result<ForeignName, QueryError> {
    match raw {
        RawBsonRef::String(collection) if collection.is_empty() || collection.starts_with('.') => failure(
            ErrorCode::InvalidNamespace.0,
            format!("invalid {stage} namespace: '{collection}'"),
        ),
        RawBsonRef::String(collection) => Ok(ForeignName {
            database: None,
            collection: Some(collection.to_owned()),
        }),
        RawBsonRef::Document(document) => {
            let part = |name: &str| match document.get(name) {
                Ok(Some(RawBsonRef::String(text))) => text,
                _ => "",
            };
            let (db, coll) = (part("db"), part("coll"));
            if !may_read(db, coll) {
                return bad(format!(
                    "{stage} with syntax {{from: {{db:<>, coll:<>}},..}} is not supported for db: {db} and coll: {coll}"
                ));
            }
            Ok(ForeignName {
                database: Some(db.to_owned()),
                collection: Some(coll.to_owned()),
            })
        }
        other => {
            let value = Value::from_raw(other);
            bad(format!(
                "{stage} argument 'from: {}' must be a string, is type {}",
                value.render(),
                value.type_name()
            ))
        }
    }
}

impl LookupSpec {
    /// Parses the argument of `$lookup`.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext, depth: usize) -> Result<Self, QueryError> {
        check_depth(depth + 1)?;
        let RawBsonRef::Document(document) = raw else {
            let found = Value::from_raw(raw).type_name();
            return bad(format!(
                "the $lookup stage specification must be an object, but found {found}"
            ));
        };
        let (mut from, mut local, mut foreign, mut target) = (None, None, None, None);
        let (mut variables, mut pipeline) = (Vec::new(), None);
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            match (name.as_str(), raw) {
                ("from", raw) => {
                    let is_log = |db: &str, coll: &str| db == "local" && coll == "oplog.rs";
                    from = Some(parse_from("$lookup", raw, is_log)?);
                }
                ("pipeline", RawBsonRef::Array(array)) => pipeline = Some(stage_documents(array, "$lookup")?),
                ("pipeline", other) => {
                    let found = Value::from_raw(other).type_name();
                    return failure(
                        ErrorCode::TypeMismatch.0,
                        format!("'pipeline' option must be specified as an array, found {found}"),
                    );
                }
                ("let", RawBsonRef::Document(document)) => variables = parse_let(document, context)?,
                ("let", other) => {
                    let value = Value::from_raw(other);
                    return bad(format!(
                        "$lookup argument 'let: {}' must be an object, is type {}",
                        value.render(),
                        value.type_name()
                    ));
                }
                ("as", RawBsonRef::String(text)) => target = Some(FieldPath::parse(text)?),
                ("localField", RawBsonRef::String(text)) => {
                    FieldPath::parse(text)?;
                    local = Some(Path::new(text)?);
                }
                ("foreignField", RawBsonRef::String(text)) => foreign = Some(FieldPath::parse(text)?.to_string()),
                (field @ ("as" | "localField" | "foreignField"), other) => {
                    let value = Value::from_raw(other);
                    return bad(format!(
                        "$lookup argument '{field}: {}' must be a string, is type {}",
                        value.render(),
                        value.type_name()
                    ));
                }
                (other, _) => return bad(format!("unknown argument to $lookup: {other}")),
            }
        }
        let Some(target) = target else {
            return bad("must specify 'as' field for a $lookup");
        };
        let equality = match (local, foreign) {
            (Some(local), Some(foreign)) => Some((local, foreign)),
            (None, None) if pipeline.is_some() => None,
            (None, None) => {
                return bad(
                    "$lookup requires either 'pipeline' or both 'localField' and 'foreignField' to be specified",
                );
            }
            _ => return bad("$lookup requires both or neither of 'localField' and 'foreignField' to be specified"),
        };
        if !variables.is_empty() && pipeline.is_none() {
            return bad("$lookup with a 'let' argument must also specify 'pipeline'");
        }
        let pipeline = pipeline.unwrap_or_default();
        if from.is_none() && !starts_with_documents(&pipeline) {
            return bad("must specify 'from' field for a $lookup");
        }
        check_sub_pipeline("$lookup", pipeline.iter().map(|stage| &**stage))?;
        let nested = check_pipeline(&pipeline, &variables, context, depth + 1)?;
        Ok(Self {
            written: super::specification::stage_document("$lookup", &Value::from_raw(raw)),
            from: from.unwrap_or_default(),
            equality,
            variables,
            pipeline,
            nested,
            target,
            context: context.clone(),
            depth: depth + 1,
        })
    }

    /// The stage as written.
    pub fn written(&self) -> &RawDocument {
        &self.written
    }

    /// Where the results go.
    pub fn target(&self) -> &FieldPath {
        &self.target
    }

    pub(super) fn add_foreign(&self, found: &mut Vec<(Option<String>, String)>) {
        add_name(&self.from, found);
        found.extend(self.nested.iter().cloned());
    }

    /// Whether every document has the same results.
    pub(super) fn is_independent(&self) -> bool {
        self.equality.is_none() && self.variables.is_empty()
    }
}

pub(super) fn add_name(name: &ForeignName, found: &mut Vec<(Option<String>, String)>) {
    if let Some(collection) = &name.collection {
        found.push((name.database.clone(), collection.clone()));
    }
}

fn starts_with_documents(pipeline: &[RawDocumentBuf]) -> bool {
    pipeline
        .first()
        .is_some_and(|first| first.get("$documents").ok().flatten().is_some())
}

fn parse_let(document: &RawDocument, context: &ExpressionContext) -> Result<Vec<(String, Expression)>, QueryError> {
    let mut variables = Vec::new();
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        check_user_variable(name.as_str())?;
        variables.push((name.as_str().to_owned(), Expression::parse(raw, context)?));
    }
    Ok(variables)
}

/// Parses a sub-pipeline for its errors, with variables that have no value yet and are no constants. Returns the
/// collections it reads.
fn check_pipeline(
    pipeline: &[RawDocumentBuf],
    variables: &[(String, Expression)],
    context: &ExpressionContext,
    depth: usize,
) -> Result<Vec<(Option<String>, String)>, QueryError> {
    let names = variables.iter().map(|(name, _)| name.clone());
    let unknown = context.with_outer(names.map(|name| (name, OuterVariable::default())));
    let rest = match pipeline.split_first() {
        // What `$documents` makes of variables nobody can tell yet.
        Some((first, rest)) if starts_with_documents(pipeline) => {
            if let Ok(Some(documents)) = first.get("$documents") {
                Expression::parse(documents, &unknown)?;
            }
            rest
        }
        _ => pipeline,
    };
    Ok(Pipeline::parse_stages(rest, &unknown, depth)?.foreign_collections())
}

impl UnionSpec {
    /// Parses the argument of `$unionWith`.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext, depth: usize) -> Result<Self, QueryError> {
        check_depth(depth + 1)?;
        let (mut from, mut pipeline) = (ForeignName::default(), Vec::new());
        match raw {
            RawBsonRef::String(collection) => from.collection = Some(collection.to_owned()),
            RawBsonRef::Document(document) => {
                for element in document {
                    let (name, raw) = element.map_err(|_| Malformed)?;
                    match (name.as_str(), raw) {
                        ("coll", RawBsonRef::String(collection)) => from.collection = Some(collection.to_owned()),
                        ("pipeline", RawBsonRef::Array(array)) => pipeline = stage_documents(array, "$unionWith")?,
                        ("coll" | "pipeline", other) => {
                            let found = Value::from_raw(other).type_name();
                            return failure(
                                ErrorCode::TypeMismatch.0,
                                format!(
                                    "BSON field '$unionWith.{}' is the wrong type '{found}', expected type '{}'",
                                    name.as_str(),
                                    if name.as_str() == "coll" { "string" } else { "array" }
                                ),
                            );
                        }
                        (other, _) => {
                            return failure(40415, format!("BSON field '$unionWith.{other}' is an unknown field."));
                        }
                    }
                }
            }
            other => {
                let found = Value::from_raw(other).type_name();
                return bad(format!(
                    "the $unionWith stage specification must be an object or string, but found {found}"
                ));
            }
        }
        if from.collection.is_none() && !starts_with_documents(&pipeline) {
            return bad(
                "$unionWith stage without explicit collection must have a pipeline with $documents as first stage",
            );
        }
        check_sub_pipeline("$unionWith", pipeline.iter().map(|stage| &**stage))?;
        let nested = check_pipeline(&pipeline, &[], context, depth + 1)?;
        Ok(Self {
            written: super::specification::stage_document("$unionWith", &Value::from_raw(raw)),
            from,
            pipeline,
            nested,
            context: context.clone(),
            depth: depth + 1,
        })
    }

    /// The stage as written.
    pub fn written(&self) -> &RawDocument {
        &self.written
    }

    pub(super) fn add_foreign(&self, found: &mut Vec<(Option<String>, String)>) {
        add_name(&self.from, found);
        found.extend(self.nested.iter().cloned());
    }
}

/// The values at `localField`: those that a join compares. Numbers in the path are positions in arrays, other names
/// lead into each document of an array, and an array at the end stands for its elements.
pub(super) fn local_values<'d>(document: &'d RawDocument, path: &Path) -> Result<Vec<Value<'d>>, QueryError> {
    let mut values = Vec::new();
    add_local_values(document, path.parts(), &mut values)?;
    if values.is_empty() {
        values.push(Value::Null);
    }
    Ok(values)
}

/// Recursion ends with the path.
pub(super) fn add_local_values<'d>(
    document: &'d RawDocument,
    parts: &[Part],
    values: &mut Vec<Value<'d>>,
) -> Result<(), QueryError> {
    // The first component is a name, even when it is a number.
    let Some((first, mut rest)) = parts.split_first() else {
        return Ok(());
    };
    let Some(mut element) = raw::find(document, first.name().as_bytes())? else {
        return Ok(());
    };
    while let (kind::ARRAY, Some(position)) = (element.kind(), rest.first().and_then(Part::index)) {
        let Some(item) = Elements::new(element.frame()?).nth(position as usize).transpose()? else {
            return Ok(());
        };
        element = item;
        rest = &rest[1..];
    }
    match (element.kind(), rest) {
        (kind::ARRAY, []) => {
            for item in Elements::new(element.frame()?) {
                values.push(Value::from_raw(item?.value()?));
            }
        }
        (_, []) => values.push(Value::from_raw(element.value()?)),
        (kind::ARRAY, rest) => {
            for item in Elements::new(element.frame()?) {
                let item = item?;
                if item.kind() == kind::DOCUMENT {
                    add_local_values(item.frame()?, rest, values)?;
                }
            }
        }
        (kind::DOCUMENT, rest) => add_local_values(element.frame()?, rest, values)?,
        _ => {}
    }
    Ok(())
}

/// The filter for documents whose `field` equals one of `values`. Undefined equals itself alone.
pub(super) fn equality_filter(field: &str, values: &[Value<'_>]) -> Result<RawDocumentBuf, QueryError> {
    let mut bytes = Vec::with_capacity(64);
    let mut writer = DocumentWriter::new(&mut bytes);
    match values {
        [only] => {
            let mut test = writer.document(field);
            let (operator, operand) = equality_test(only);
            test.append(operator, operand);
            test.finish();
        }
        values if values.iter().any(is_no_operand_of_in) => {
            let (odd, plain): (Vec<_>, Vec<_>) = values.iter().partition(|value| is_no_operand_of_in(value));
            let mut branches = writer.array("$or");
            if !plain.is_empty() {
                let mut list = Vec::with_capacity(64);
                let mut branch = DocumentWriter::new(&mut list);
                append_in(&mut branch, field, &plain);
                branch.finish();
                branches.push_document(&RawDocumentBuf::from_bytes(list).map_err(|_| Malformed)?);
            }
            for value in odd {
                let (operator, operand) = equality_test(value);
                let equal = super::specification::stage_document(operator, operand);
                let branch =
                    super::specification::stage_document(field, &Value::from_raw(RawBsonRef::Document(&equal)));
                branches.push_document(&branch);
            }
            branches.finish();
        }
        values => append_in(&mut writer, field, &values.iter().collect::<Vec<_>>()),
    }
    writer.finish();
    RawDocumentBuf::from_bytes(bytes).map_err(|_| Malformed.into())
}

/// Appends that `field` is one of `values`.
fn append_in(filter: &mut DocumentWriter<'_>, field: &str, values: &[&Value<'_>]) {
    let mut test = filter.document(field);
    let mut list = test.array("$in");
    values.iter().for_each(|value| list.push(value));
    list.finish();
    test.finish();
}

/// Whether a value cannot stand in the list of `$in` as itself: a regular expression is a pattern there, and undefined
/// and documents that look like operators are refused.
fn is_no_operand_of_in(value: &Value<'_>) -> bool {
    matches!(value.type_name(), "regex" | "undefined") || value.as_document().is_some_and(is_operators)
}

/// The operator that finds what equals a value, and its operand: a query may not compare with undefined.
fn equality_test<'v, 'b>(value: &'v Value<'b>) -> (&'static str, &'v Value<'b>) {
    match value {
        Value::Undefined => ("$type", &Value::Int32(kind::UNDEFINED as i32)),
        value => ("$eq", value),
    }
}

/// What a sub-pipeline is parsed with: it ends with the operation that runs now, which need not be the one that parsed
/// the stage.
pub(super) fn of_this_operation(expressions: ExpressionContext, context: &StageContext<'_>) -> ExpressionContext {
    match context.execution.data() {
        Some(data) => expressions.for_operation(data.op),
        None => expressions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bson::rawdoc;

    /// Each of a hundred thousand values was a branch of its own beside one that looked like operators.
    #[test]
    fn values_that_a_list_may_have_stay_in_one() {
        let odd = rawdoc! { "$eq": 1 };
        let odd = Value::from_raw(RawBsonRef::Document(&odd));
        let values = [Value::Int32(1), odd.clone(), Value::Int32(2)];
        let filter = equality_filter("a", &values).expect("a filter");
        let expected = rawdoc! { "$or": [{ "a": { "$in": [1, 2] } }, { "a": { "$eq": { "$eq": 1 } } }] };
        assert_eq!(filter, expected);
        let filter = equality_filter("a", &[odd, Value::Undefined]).expect("a filter");
        let expected = rawdoc! { "$or": [{ "a": { "$eq": { "$eq": 1 } } }, { "a": { "$type": 6 } }] };
        assert_eq!(filter, expected);
    }
}
