//! Stages that make other documents of documents: `$project` and its family, `$replaceRoot`, `$redact`.

use bson::RawDocument;

use super::filter::Checkpoint;
use super::{Stage, StageContext, failure};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::Expression;
use crate::project::Projection;
use crate::value::scan::{self, Elements};
use crate::value::{DocumentWriter, SharedDocument, Value};

pub(super) struct ProjectStage {
    source: Box<dyn Stage>,
    projection: Projection,
    /// The size of the last result, as a guess at the next one's.
    capacity: usize,
}

impl ProjectStage {
    pub(super) fn new(source: Box<dyn Stage>, projection: Projection) -> Self {
        Self {
            source,
            projection,
            capacity: 64,
        }
    }
}

impl Stage for ProjectStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let Some(document) = self.source.next(context)? else {
            return Ok(None);
        };
        let mut out = Vec::with_capacity(self.capacity);
        context.evaluation.on(document.metadata());
        self.projection.apply(&document, None, context.evaluation, &mut out)?;
        self.capacity = out.len();
        Ok(Some(
            SharedDocument::new(out.into())?.with_metadata(document.metadata().cloned()),
        ))
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.source.restart(context)
    }
}

pub(super) struct ReplaceRootStage {
    source: Box<dyn Stage>,
    expression: Expression,
}

impl ReplaceRootStage {
    pub(super) fn new(source: Box<dyn Stage>, expression: Expression) -> Self {
        Self { source, expression }
    }
}

/// The document that `expression` makes of `document`.
pub(crate) fn replace_root(
    expression: &Expression,
    document: &SharedDocument,
    context: &EvaluationContext<'_>,
) -> Result<SharedDocument, QueryError> {
    match expression.evaluate_on(document, context)?.shared_in(document) {
        Value::Document(new) => Ok(new.to_shared()),
        other => failure(
            40228,
            format!(
                "'newRoot' expression  must evaluate to an object, but resulting value was: {}. Type of resulting value: '{}'. Input document: {}",
                other.render(),
                other.type_name(),
                bson::Document::try_from(document.as_raw()).map_or_else(|_| String::new(), |input| input.to_string())
            ),
        ),
    }
}

impl Stage for ReplaceRootStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        let Some(document) = self.source.next(context)? else {
            return Ok(None);
        };
        context.evaluation.on(document.metadata());
        let new = replace_root(&self.expression, &document, context.evaluation)?;
        Ok(Some(new.with_metadata(document.metadata().cloned())))
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.source.restart(context)
    }
}

pub(super) struct RedactStage {
    source: Box<dyn Stage>,
    expression: Expression,
    checkpoint: Checkpoint,
}

impl RedactStage {
    pub(super) fn new(source: Box<dyn Stage>, expression: Expression) -> Self {
        Self {
            source,
            expression,
            checkpoint: Checkpoint::default(),
        }
    }
}

/// The variables that only `$redact` knows, as their values.
pub(super) fn redact_variables() -> impl Iterator<Item = (String, Value<'static>)> {
    let variables = [("DESCEND", "descend"), ("PRUNE", "prune"), ("KEEP", "keep")];
    variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Value::borrowed_str(value)))
}

/// Levels of a document that `$redact` descends into; stored documents have no more.
const REDACT_DEPTH_MAX: usize = 200;

/// What decides about each level of one document.
#[derive(Clone, Copy)]
struct Redaction<'r> {
    expression: &'r Expression,
    context: &'r EvaluationContext<'r>,
    /// The whole document, `$$ROOT`.
    root: &'r RawDocument,
}

/// What is kept of one level; `None` when all of it goes. Paths mean the level looked at.
fn redact(redaction: Redaction<'_>, level: &RawDocument, depth: usize) -> Result<Option<Vec<u8>>, QueryError> {
    let Redaction {
        expression,
        context,
        root,
    } = redaction;
    context.step()?;
    let decision = expression.evaluate_at(level, root, context)?;
    match decision.as_str() {
        Some("keep") => return Ok(Some(level.as_bytes().to_vec())),
        Some("prune") => return Ok(None),
        Some("descend") if depth < REDACT_DEPTH_MAX => {}
        _ => {
            return failure(
                17053,
                format!(
                    "$redact's expression should not return anything aside from the variables $$KEEP, $$DESCEND, and $$PRUNE, but returned {}",
                    decision.render()
                ),
            );
        }
    }
    let mut out = Vec::with_capacity(level.as_bytes().len());
    let mut writer = DocumentWriter::new(&mut out);
    for element in Elements::new(level) {
        let element = element?;
        match element.kind {
            0x03 => {
                if let Some(inner) = redact(redaction, scan::frame(element.value)?, depth + 1)? {
                    writer.append_raw(element.kind, element.name, &inner);
                }
            }
            0x04 => {
                let kept = redact_array(redaction, scan::frame(element.value)?, depth + 1)?;
                writer.append_raw(element.kind, element.name, &kept);
            }
            _ => writer.append_raw(element.kind, element.name, element.value),
        }
    }
    writer.finish();
    Ok(Some(out))
}

fn redact_array(redaction: Redaction<'_>, array: &RawDocument, depth: usize) -> Result<Vec<u8>, QueryError> {
    if depth > REDACT_DEPTH_MAX {
        return failure(wire::ErrorCode::Overflow.0, "$redact met arrays nested too deeply");
    }
    let mut out = Vec::with_capacity(array.as_bytes().len());
    let mut writer = DocumentWriter::new(&mut out);
    let mut place = 0_usize;
    for element in Elements::new(array) {
        let element = element?;
        let inner;
        let kept = match element.kind {
            0x03 => match redact(redaction, scan::frame(element.value)?, depth + 1)? {
                Some(kept) => {
                    inner = kept;
                    &inner[..]
                }
                None => continue,
            },
            0x04 => {
                inner = redact_array(redaction, scan::frame(element.value)?, depth + 1)?;
                &inner[..]
            }
            _ => element.value,
        };
        writer.append_raw(element.kind, place.to_string().as_bytes(), kept);
        place += 1;
    }
    writer.finish();
    Ok(out)
}

impl Stage for RedactStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        while let Some(document) = self.source.next(context)? {
            context.evaluation.on(document.metadata());
            let redaction = Redaction {
                expression: &self.expression,
                context: context.evaluation,
                root: &document,
            };
            if let Some(kept) = redact(redaction, &document, 0)? {
                let kept = SharedDocument::new(kept.into())?;
                return Ok(Some(kept.with_metadata(document.metadata().cloned())));
            }
            self.checkpoint.tick(context)?;
        }
        Ok(None)
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.source.restart(context)
    }
}
