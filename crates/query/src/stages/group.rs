//! `$group`: one state per distinct key.
//!
//! Keys are hashed by their key bytes, so that values that compare equal (1 and 1.0) are one group; the first seen
//! value is the group's `_id`. A constant key needs no hashing. Groups come out in the order of their first document,
//! but for those that have been spilled, see [`super::groups`].

use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf};

use super::filter::Checkpoint;
use super::groups::{Group, Groups};
use super::{Stage, StageContext, failure};
use crate::accumulators::{AccumulatorSpec, Ties};
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::{Dependencies, Evaluation, Expression, ExpressionContext};
use crate::value::scan::Malformed;
use crate::value::{Comparer, DocumentWriter, SharedDocument, Value};

/// A parsed `$group`.
#[derive(Debug)]
pub struct GroupSpec {
    written: RawDocumentBuf,
    id: Expression,
    fields: Vec<(Box<str>, AccumulatorSpec)>,
    comparer: Comparer,
}

/// A document as `_id` names the group's parts: it is no projection, where a number or a boolean includes a field.
fn check_id(raw: RawBsonRef<'_>) -> Result<(), QueryError> {
    let RawBsonRef::Document(parts) = raw else {
        return Ok(());
    };
    for element in parts {
        let (name, part) = element.map_err(|_| Malformed)?;
        if name.as_str().starts_with('$') {
            return Ok(());
        }
        let part = Value::from_raw(part);
        if part.is_number() || matches!(part, Value::Boolean(_)) {
            return failure(17390, "$group does not support inclusion-style expressions");
        }
    }
    Ok(())
}

/// The key's expression. In a document of one field what is missing is null, as it is without the document; of several
/// fields those that are missing stay so.
fn parse_id(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Expression, QueryError> {
    if let RawBsonRef::Document(parts) = raw {
        let mut parts = parts.into_iter();
        if let (Some(Ok((name, part))), None) = (parts.next(), parts.next())
            && !name.as_str().starts_with('$')
        {
            let mut bytes = Vec::new();
            let mut writer = DocumentWriter::new(&mut bytes);
            let mut field = writer.document(name.as_str());
            let mut operands = field.array("$ifNull");
            operands.push(&Value::from_raw(part));
            operands.push(&Value::Null);
            operands.finish();
            field.finish();
            writer.finish();
            let id = RawDocumentBuf::from_bytes(bytes).map_err(|_| Malformed)?;
            return Expression::parse(RawBsonRef::Document(&id), context);
        }
    }
    Expression::parse(raw, context)
}

impl GroupSpec {
    /// Parses the argument of `$group`.
    pub(super) fn parse(raw: RawBsonRef<'_>, context: &ExpressionContext) -> Result<Self, QueryError> {
        let RawBsonRef::Document(document) = raw else {
            return failure(15947, "a group's fields must be specified in an object");
        };
        let (mut id, mut fields) = (None, Vec::new());
        for element in document {
            let (name, raw) = element.map_err(|_| Malformed)?;
            let name = name.as_str();
            if name == "_id" {
                if id.is_some() {
                    return failure(15948, "a group's _id may only be specified once");
                }
                check_id(raw)?;
                id = Some(parse_id(raw, context)?);
            } else if name == "$doingMerge" {
                return failure(17030, "$doingMerge should be true if present");
            } else {
                let field = parse_field(name, raw, context)?.with_ties(Ties::Last);
                fields.push((Box::from(name), field));
            }
        }
        let Some(id) = id else {
            return failure(15955, "a group specification must include an _id");
        };
        let written = super::specification::stage_document("$group", &Value::from_raw(raw));
        Ok(Self {
            written,
            id,
            fields,
            comparer: context.comparer.clone(),
        })
    }

    /// The stage as written.
    pub fn written(&self) -> &RawDocument {
        &self.written
    }

    /// The key.
    pub fn id(&self) -> &Expression {
        &self.id
    }

    /// The accumulated fields.
    pub fn fields(&self) -> &[(Box<str>, AccumulatorSpec)] {
        &self.fields
    }

    /// How keys compare.
    pub(super) fn comparer(&self) -> &Comparer {
        &self.comparer
    }

    /// Adds the fields that are read.
    pub fn add_dependencies(&self, dependencies: &mut Dependencies) {
        self.id.add_dependencies(dependencies);
        self.fields
            .iter()
            .for_each(|(_, accumulator)| accumulator.add_dependencies(dependencies));
    }
}

pub(super) fn parse_field(
    name: &str,
    raw: RawBsonRef<'_>,
    context: &ExpressionContext,
) -> Result<AccumulatorSpec, QueryError> {
    if name.contains('.') {
        return failure(40235, format!("The field name '{name}' cannot contain '.'"));
    }
    if name.starts_with('$') {
        return failure(40236, format!("The field name '{name}' cannot be an operator name"));
    }
    let RawBsonRef::Document(document) = raw else {
        return failure(40234, format!("The field '{name}' must be an accumulator object"));
    };
    let mut elements = document.into_iter();
    let (Some(only), None) = (elements.next(), elements.next()) else {
        return failure(40238, format!("The field '{name}' must specify one accumulator"));
    };
    let (operator, argument) = only.map_err(|_| Malformed)?;
    if !operator.as_str().starts_with('$') {
        return failure(40234, format!("The field '{name}' must be an accumulator object"));
    }
    AccumulatorSpec::parse(operator.as_str(), argument, context)
}

/// The running stage.
pub(super) struct GroupStage {
    source: Box<dyn Stage>,
    spec: GroupSpec,
    groups: Option<Groups>,
    /// Whether the source has been consumed.
    is_complete: bool,
    output_bytes: u64,
}

impl GroupStage {
    pub(super) fn new(source: Box<dyn Stage>, spec: GroupSpec) -> Self {
        Self {
            source,
            spec,
            groups: None,
            is_complete: false,
            output_bytes: 0,
        }
    }

    fn consume(&mut self, context: &mut StageContext<'_>) -> Result<(), QueryError> {
        let spec = &self.spec;
        let groups = self
            .groups
            .get_or_insert_with(|| Groups::new(context.execution.blocking()));
        let mut checkpoint = Checkpoint::default();
        let is_constant = spec.id.as_constant().is_some();
        while let Some(document) = self.source.next(context)? {
            checkpoint.tick(context)?;
            context.evaluation.on(document.metadata());
            let mut evaluation = Evaluation::new(&document, context.evaluation);
            // There is only one group, which needs no looking up.
            if !is_constant || !groups.add_to_only(spec, &mut evaluation)? {
                let id = match spec.id.evaluate(&mut evaluation)? {
                    Value::Missing => Value::Null,
                    id => id,
                };
                groups.add(spec, id, &mut evaluation)?;
            }
        }
        groups.end_input(context.evaluation)?;
        self.is_complete = true;
        Ok(())
    }
}

fn document_of(
    spec: &GroupSpec,
    group: Group,
    evaluation: &EvaluationContext<'_>,
) -> Result<SharedDocument, QueryError> {
    let mut out = Vec::with_capacity(64);
    let mut writer = DocumentWriter::new(&mut out);
    writer.append("_id", &group.id);
    for ((name, field), state) in spec.fields.iter().zip(group.states) {
        match field.finish(state, evaluation)? {
            Value::Missing => writer.append(name, &Value::Null),
            value => writer.append(name, &value),
        }
    }
    writer.finish();
    SharedDocument::computed(out)
}

impl Stage for GroupStage {
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError> {
        if !self.is_complete {
            self.consume(context)?;
        }
        let next = self.groups.as_mut().map(|groups| groups.next(&self.spec, context));
        let Some(group) = next.transpose()?.flatten() else {
            return Ok(None);
        };
        let document = document_of(&self.spec, group, context.evaluation)?;
        self.output_bytes += document.as_bytes().len() as u64;
        Ok(Some(document))
    }

    fn restart(&mut self, context: &StageContext<'_>) -> Result<bool, QueryError> {
        self.groups = None;
        self.is_complete = false;
        self.source.restart(context)
    }

    fn add_statistics(&self, statistics: &mut Document) {
        let spilled = self.groups.as_ref().map(Groups::statistics).unwrap_or_default();
        statistics.insert("totalOutputDataSizeBytes", self.output_bytes as i64);
        spilled.add_to(statistics);
        statistics.insert("numBytesSpilledEstimate", spilled.bytes as i64);
    }
}
