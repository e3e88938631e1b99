//! Updates by a pipeline of stages that work on one document.

use bson::{RawArray, RawBsonRef, RawDocument};
use wire::ErrorCode;

use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Expression, ExpressionContext};
use crate::project::Projection;
use crate::raw::{self, Element, Elements, Frame};
use crate::stages::{makes_documents, parse_new_root};
use crate::value::scan::frame;

/// The stages.
pub(super) struct Pipeline {
    stages: Vec<Stage>,
}

enum Stage {
    Project(Projection),
    ReplaceRoot(Expression),
}

impl Pipeline {
    pub(super) fn parse(stages: &RawArray, context: &ExpressionContext) -> Result<Self, QueryError> {
        let mut parsed = Vec::new();
        for stage in Elements::new(frame(stages.as_bytes())?) {
            let stage = specification(stage?)?;
            let mut fields = Elements::new(stage);
            let (Some(only), None) = (fields.next().transpose()?, fields.next()) else {
                let message = "A pipeline stage specification object must contain exactly one field.";
                return Err(QueryError::new(ErrorCode(40323), message));
            };
            parsed.push(parse_stage(only, context)?);
        }
        Ok(Self { stages: parsed })
    }

    /// The changed document, the old `_id` in front.
    pub(super) fn apply(
        &self,
        document: &RawDocument,
        evaluation: &EvaluationContext<'_>,
    ) -> Result<Vec<u8>, QueryError> {
        let mut current = document.as_bytes().to_vec();
        for stage in &self.stages {
            let mut next = Vec::with_capacity(current.len() + 64);
            match stage {
                Stage::Project(projection) => projection.apply(frame(&current)?, None, evaluation, &mut next)?,
                Stage::ReplaceRoot(expression) => {
                    let value = expression.evaluate_on(frame(&current)?, evaluation)?;
                    let Some(root) = value.as_document() else {
                        let message = format!(
                            "'newRoot' expression must evaluate to an object, but resulting value was of type: '{}'",
                            value.type_name()
                        );
                        return Err(QueryError::new(ErrorCode(40228), message));
                    };
                    next.extend_from_slice(root.as_bytes());
                }
            }
            current = next;
        }
        restore_id(document, current)
    }
}

/// Puts the old `_id` in front when the stages lost it.
fn restore_id(old: &RawDocument, new: Vec<u8>) -> Result<Vec<u8>, QueryError> {
    let document = frame(&new)?;
    let first = Elements::new(document).next().transpose()?;
    if first.is_some_and(|first| first.name() == b"_id") {
        return Ok(new);
    }
    let id = match raw::find(document, b"_id")? {
        Some(id) => Some(id),
        None => raw::find(old, b"_id")?,
    };
    let Some(id) = id else { return Ok(new) };
    let mut out = Vec::with_capacity(new.len() + 32);
    let whole = Frame::begin(&mut out);
    out.extend_from_slice(id.whole());
    for element in Elements::new(document) {
        let element = element?;
        if element.name() != b"_id" {
            out.extend_from_slice(element.whole());
        }
    }
    whole.finish(&mut out);
    Ok(out)
}

/// Fails on a stage that is no document (14), or that there is not at all (40324).
pub(super) fn check_stages(stages: &RawArray) -> Result<(), QueryError> {
    for stage in Elements::new(frame(stages.as_bytes())?) {
        if let Some(only) = Elements::new(specification(stage?)?).next().transpose()?
            && !BUILT.contains(&only.name_str()?)
            && !is_stage(only.name_str()?)
        {
            return Err(unknown_stage(only.name_str()?));
        }
    }
    Ok(())
}

fn specification(stage: Element<'_>) -> Result<&RawDocument, QueryError> {
    match stage.value()? {
        RawBsonRef::Document(specification) => Ok(specification),
        _ => Err(QueryError::type_mismatch(
            "Each element of the 'pipeline' array must be an object",
        )),
    }
}

fn unknown_stage(name: &str) -> QueryError {
    QueryError::new(ErrorCode(40324), format!("Unrecognized pipeline stage name: '{name}'"))
}

/// The stages of updates.
const BUILT: [&str; 6] = [
    "$set",
    "$addFields",
    "$project",
    "$unset",
    "$replaceWith",
    "$replaceRoot",
];

fn parse_stage(stage: raw::Element<'_>, context: &ExpressionContext) -> Result<Stage, QueryError> {
    let name = stage.name_str()?;
    let value = stage.value()?;
    match (name, value) {
        ("$set" | "$addFields", RawBsonRef::Document(fields)) => {
            Ok(Stage::Project(Projection::parse_add_fields(fields, context)?))
        }
        ("$set" | "$addFields", _) => {
            let found = raw::type_name(stage.element_type()?);
            let message = format!("{name} specification stage must be an object, got {found}");
            Err(QueryError::new(ErrorCode(40272), message))
        }
        ("$project", RawBsonRef::Document(fields)) => Ok(Stage::Project(Projection::parse_project(fields, context)?)),
        ("$project", _) => Err(QueryError::new(
            ErrorCode(15969),
            "$project specification must be an object",
        )),
        ("$unset", value) => Ok(Stage::Project(Projection::parse_unset(value)?)),
        ("$replaceWith", value) => Ok(Stage::ReplaceRoot(Expression::parse(value, context)?)),
        ("$replaceRoot", value) => Ok(Stage::ReplaceRoot(parse_new_root(value, context)?)),
        (name, _) if is_stage(name) => Err(QueryError::new(
            ErrorCode::InvalidOptions,
            format!("{name} is not allowed to be used within an update"),
        )),
        (name, _) => Err(unknown_stage(name)),
    }
}

/// Stages of MongoDB that an update may not have.
fn is_stage(name: &str) -> bool {
    const STAGES: [&str; 23] = [
        "$match",
        "$group",
        "$sort",
        "$limit",
        "$skip",
        "$unwind",
        "$lookup",
        "$count",
        "$facet",
        "$sample",
        "$out",
        "$merge",
        "$bucket",
        "$bucketAuto",
        "$sortByCount",
        "$graphLookup",
        "$redact",
        "$unionWith",
        "$setWindowFields",
        "$geoNear",
        "$densify",
        "$fill",
        "$_internalInhibitOptimization",
    ];
    STAGES.contains(&name) || makes_documents(name)
}
