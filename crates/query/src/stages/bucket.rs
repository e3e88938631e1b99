//! Stages that are other stages written short: `$sortByCount` and `$bucket` become `$group` and `$sort`.

use bson::{RawBsonRef, RawDocumentBuf};

use super::failure;
use super::group::GroupSpec;
use super::specification::{StageSpec, stage_document};
use crate::error::QueryError;
use crate::expression::{Expression, ExpressionContext};
use crate::value::scan::Malformed;
use crate::value::{DocumentWriter, SharedDocument, SortPattern, Value};

/// Appends `$group` with this argument, then a `$sort` by one field.
fn push_group_and_sort(
    stages: &mut Vec<StageSpec>,
    group: Vec<u8>,
    sort: (&str, i32),
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let group = RawDocumentBuf::from_bytes(group).map_err(|_| Malformed)?;
    stages.push(StageSpec::Group(GroupSpec::parse(
        RawBsonRef::Document(&group),
        context,
    )?));
    let pattern = stage_document(sort.0, &Value::Int32(sort.1));
    stages.push(StageSpec::Sort {
        pattern: SortPattern::parse(&pattern, &context.comparer)?,
        limit: None,
    });
    Ok(())
}

fn append_count(writer: &mut DocumentWriter<'_>) {
    let mut sum = writer.document("count");
    sum.append("$sum", &Value::Int32(1));
    sum.finish();
}

pub(super) fn parse_sort_by_count(
    stages: &mut Vec<StageSpec>,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    match raw {
        RawBsonRef::String(path) if path.starts_with('$') => {}
        RawBsonRef::String(_) => {
            return failure(
                40148,
                "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
            );
        }
        RawBsonRef::Document(document) => {
            let first = document.into_iter().next().transpose().map_err(|_| Malformed)?;
            if !first.is_some_and(|(name, _)| name.as_str().starts_with('$')) {
                return failure(
                    40147,
                    "the sortByCount field must be defined as a $-prefixed path or an expression inside an object",
                );
            }
        }
        _ => {
            return failure(
                40149,
                "the sortByCount field must be specified as a string or as an object",
            );
        }
    }
    let mut bytes = Vec::new();
    let mut writer = DocumentWriter::new(&mut bytes);
    writer.append("_id", &Value::from_raw(raw));
    append_count(&mut writer);
    writer.finish();
    push_group_and_sort(stages, bytes, ("count", -1), context)
}

/// The constant that an option of `$bucket` must be; the time is none.
fn constant(
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
    code: i32,
    what: &str,
) -> Result<Value<'static>, QueryError> {
    let context = context.apart();
    let expression = Expression::parse(raw, &context)?;
    if let (Some(value), false) = (expression.as_constant(), context.reads_time()) {
        return Ok(value.clone());
    }
    let shown = Value::from_raw(raw).render();
    failure(
        code,
        format!("The $bucket '{what}' must be a constant expression, but found expression: {shown}"),
    )
}

pub(super) fn parse_bucket(
    stages: &mut Vec<StageSpec>,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let RawBsonRef::Document(document) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40201,
            format!("Argument to $bucket stage must be an object, but found type: {found}."),
        );
    };
    let (mut group_by, mut boundaries, mut default, mut output) = (None, None, None, None);
    for element in document {
        let (name, raw) = element.map_err(|_| Malformed)?;
        match (name.as_str(), raw) {
            ("groupBy", raw @ RawBsonRef::Document(_)) => group_by = Some(raw),
            ("groupBy", raw @ RawBsonRef::String(path)) if path.starts_with('$') => group_by = Some(raw),
            ("groupBy", other) => {
                let shown = Value::from_raw(other).render();
                return failure(
                    40202,
                    format!(
                        "The $bucket 'groupBy' field must be defined as a $-prefixed path or an expression, but found: {shown}."
                    ),
                );
            }
            ("boundaries", raw) => boundaries = Some(parse_boundaries(raw, context)?),
            ("default", raw) => default = Some(constant(raw, context, 40195, "default")?),
            ("output", raw @ RawBsonRef::Document(_)) => output = Some(raw),
            ("output", other) => {
                let found = Value::from_raw(other).type_name();
                return failure(
                    40196,
                    format!("The $bucket 'output' field must be an object, but found type: {found}."),
                );
            }
            (other, _) => return failure(40197, format!("Unrecognized option to $bucket: {other}.")),
        }
    }
    let (Some(group_by), Some(boundaries)) = (group_by, boundaries) else {
        return failure(40198, "$bucket requires 'groupBy' and 'boundaries' to be specified.");
    };
    check_boundaries(&boundaries, default.as_ref(), context)?;
    let mut bytes = Vec::new();
    let mut writer = DocumentWriter::new(&mut bytes);
    append_switch(&mut writer, &Value::from_raw(group_by), &boundaries, default.as_ref());
    match output {
        Some(RawBsonRef::Document(output)) => {
            for element in output {
                let (name, raw) = element.map_err(|_| Malformed)?;
                writer.append(name.as_str(), &Value::from_raw(raw));
            }
        }
        _ => append_count(&mut writer),
    }
    writer.finish();
    push_group_and_sort(stages, bytes, ("_id", 1), context)
}

fn parse_boundaries(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Vec<Value<'static>>, QueryError> {
    let RawBsonRef::Array(array) = raw else {
        let found = Value::from_raw(raw).type_name();
        return failure(
            40200,
            format!("The $bucket 'boundaries' field must be an array, but found type: {found}."),
        );
    };
    array
        .into_iter()
        .map(|item| constant(item.map_err(|_| Malformed)?, context, 40191, "boundaries"))
        .collect()
}

fn check_boundaries(
    boundaries: &[Value<'static>],
    default: Option<&Value<'static>>,
    context: &ExpressionContext,
) -> Result<(), QueryError> {
    let [lowest, .., highest] = boundaries else {
        return failure(
            40192,
            format!(
                "The $bucket 'boundaries' field must have at least 2 values, but found {} value(s).",
                boundaries.len()
            ),
        );
    };
    for pair in boundaries.windows(2) {
        let [low, high] = pair else { continue };
        if crate::value::type_rank(low) != crate::value::type_rank(high) {
            return failure(
                40193,
                format!(
                    "All values in the the 'boundaries' option to $bucket must have the same type. Found conflicting types {} and {}.",
                    low.type_name(),
                    high.type_name()
                ),
            );
        }
        if context.comparer.compare(low, high).is_ge() {
            return failure(
                40194,
                "The 'boundaries' option to $bucket must be sorted, but elements are not in ascending order",
            );
        }
    }
    let Some(default) = default else { return Ok(()) };
    let inside =
        context.comparer.compare(default, lowest).is_ge() && context.comparer.compare(default, highest).is_lt();
    if inside {
        return failure(
            40199,
            "The $bucket 'default' field must be less than the lowest boundary or greater than or equal to the highest boundary.",
        );
    }
    Ok(())
}

/// `_id: {$switch: {branches: [{case: {$and: [{$gte: [by, low]}, {$lt: [by, high]}]}, then: low} …], default}}`.
fn append_switch(
    writer: &mut DocumentWriter<'_>,
    group_by: &Value<'_>,
    boundaries: &[Value<'static>],
    default: Option<&Value<'static>>,
) {
    let literal = |value: &Value<'static>| as_value(stage_document("$literal", value));
    let compare = |operator: &str, bound: &Value<'static>| {
        let mut bytes = Vec::new();
        let mut writer = DocumentWriter::new(&mut bytes);
        let mut operands = writer.array(operator);
        operands.push(group_by);
        operands.push(&literal(bound));
        operands.finish();
        writer.finish();
        as_value(RawDocumentBuf::from_bytes(bytes).unwrap_or_default())
    };
    let mut id = writer.document("_id");
    let mut switch = id.document("$switch");
    let mut branches = switch.array("branches");
    for pair in boundaries.windows(2) {
        let [low, high] = pair else { continue };
        let mut bytes = Vec::new();
        let mut branch = DocumentWriter::new(&mut bytes);
        let mut case = branch.document("case");
        let mut both = case.array("$and");
        both.push(&compare("$gte", low));
        both.push(&compare("$lt", high));
        both.finish();
        case.finish();
        branch.append("then", &literal(low));
        branch.finish();
        branches.push(&as_value(RawDocumentBuf::from_bytes(bytes).unwrap_or_default()));
    }
    branches.finish();
    if let Some(default) = default {
        switch.append("default", &literal(default));
    }
    switch.finish();
    id.finish();
}

fn as_value(document: RawDocumentBuf) -> Value<'static> {
    Value::document(SharedDocument::from(document))
}
