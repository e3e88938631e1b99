//! The sub-pipeline of a `$lookup`, parsed once for all documents of the pipeline outside.
//!
//! - The variables of its `let` are set for each document and read where they stand ([`OuterVariable`]); what is
//!   computed of them at parsing, and for good, cannot be run so, and the sub-pipeline is parsed for each document.
//! - Its leading `$match` may ask that a field equals what variables tell (`$expr` with `$eq`): then a join finds a
//!   superset of the documents, and the [`Suffix`] runs on those.
//! - Its first stages may read no such variable: then their documents are the same every time.

use bson::{RawDocument, RawDocumentBuf};
use std::sync::Arc;

use super::lookup::{LookupSpec, of_this_operation};
use super::source::FilledSource;
use super::{Pipeline, Stage, StageContext, StageSpec};
use crate::error::QueryError;
use crate::evaluation::is_interruption;
use crate::expression::{ExpressionContext, OuterVariable};
use crate::matcher::{ExprPredicate, MatchExpr, Matcher};
use crate::value::{SharedDocument, Value};

/// Names that stand, wherever they do in a stage, for what gives other documents each time it is run.
const CHANCE: [&[u8]; 5] = [b"$rand", b"$sample", b"$where", b"$function", b"$accumulator"];

/// See the module.
pub(super) struct SubPipeline {
    /// Those of the `let`, in its order.
    variables: Vec<OuterVariable>,
    /// What the stages are parsed with.
    pub(super) context: ExpressionContext,
    /// What the leading `$match` asks of fields; empty where no join can stand for it.
    equalities: Vec<OuterEquality>,
    /// Whether all stages can run on documents that a join has found.
    pub(super) runs_on_found: bool,
    /// So many stages at the front find the same for every document, and none behind them tells what to read.
    pub(super) independent: usize,
}

/// That a field equals what variables tell.
struct OuterEquality {
    path: String,
    predicate: Arc<ExprPredicate>,
    /// Its place among those of the predicate.
    place: usize,
}

impl SubPipeline {
    /// `None` where the pipeline has to be parsed for each document.
    ///
    /// Errors: the operation has ended.
    pub(super) fn parse(spec: &LookupSpec, context: &StageContext<'_>) -> Result<Option<Self>, QueryError> {
        let variables: Vec<_> = spec.variables.iter().map(|_| OuterVariable::default()).collect();
        let names = spec.variables.iter().map(|(name, _)| name.clone());
        let expressions = spec.context.with_outer(names.zip(variables.iter().cloned()));
        let expressions = of_this_operation(expressions, context);
        let mut pipeline = match Pipeline::parse_stages(&spec.pipeline, &expressions, spec.depth) {
            Ok(pipeline) => pipeline,
            Err(error) if is_interruption(&error) => return Err(error),
            Err(_) => return Ok(None),
        };
        let makes_documents = matches!(
            pipeline.stages().first(),
            Some(StageSpec::Initial { .. } | StageSpec::GeoNear(_))
        );
        let searches = pipeline.stages().first().is_some_and(StageSpec::searches);
        pipeline.optimize();
        let leading = match pipeline.stages().first() {
            Some(StageSpec::Match { matcher, .. }) => Some(matcher),
            _ => None,
        };
        let equalities = leading.map(equalities).unwrap_or_default();
        // One that has got to the front may bound an index.
        let independent = match leading.is_some_and(|matcher| matcher.root().reads_outer()) {
            true => 0,
            false => independent(spec, context)?,
        };
        let needs = pipeline.take_pushdown().needs;
        Ok(Some(Self {
            variables,
            context: expressions,
            equalities,
            runs_on_found: !makes_documents && !searches && needs.is_empty(),
            independent,
        }))
    }

    /// Gives the variables the values that a document of the pipeline outside has for them.
    pub(super) fn set_variables(
        &self,
        spec: &LookupSpec,
        document: &RawDocument,
        context: &StageContext<'_>,
    ) -> Result<(), QueryError> {
        for (variable, (_, expression)) in self.variables.iter().zip(&spec.variables) {
            let value = expression.evaluate_on(document, context.evaluation)?;
            variable.set(value.into_owned());
        }
        Ok(())
    }

    /// The paths that a join can find documents by.
    pub(super) fn join_paths(&self) -> Vec<&str> {
        self.equalities.iter().map(|equality| equality.path.as_str()).collect()
    }

    /// What the field at one of [`SubPipeline::join_paths`] is to equal; `None` where that cannot be computed.
    pub(super) fn wanted(&self, path: usize, context: &StageContext<'_>) -> Result<Option<Value<'static>>, QueryError> {
        let Some(equality) = self.equalities.get(path) else {
            return Ok(None);
        };
        let equalities = equality.predicate.expression.outer_equalities();
        let Some((_, operand)) = equalities.get(equality.place) else {
            return Ok(None);
        };
        match operand.evaluate(context.evaluation) {
            Ok(value) => Ok(Some(value)),
            Err(error) if is_interruption(&error) => Err(error),
            // Whether anybody sees the error depends on the documents there are.
            Err(_) => Ok(None),
        }
    }

    /// The stages from one on, to be run on documents from elsewhere.
    pub(super) fn suffix(
        &self,
        spec: &LookupSpec,
        from: usize,
        context: &StageContext<'_>,
    ) -> Result<Suffix, QueryError> {
        let stages = spec.pipeline.get(from..).unwrap_or_default().to_vec();
        Suffix::new(stages, self.context.clone(), spec.depth, context)
    }
}

fn equalities(matcher: &Matcher) -> Vec<OuterEquality> {
    let mut found = Vec::new();
    for part in matcher.root().conjuncts() {
        let MatchExpr::Expr(predicate) = part else { continue };
        for (place, (path, _)) in predicate.expression.outer_equalities().into_iter().enumerate() {
            found.push(OuterEquality {
                path: path.to_string(),
                predicate: predicate.clone(),
                place,
            });
        }
    }
    found
}

/// How many stages at the front can be parsed without variables that change.
fn independent(spec: &LookupSpec, context: &StageContext<'_>) -> Result<usize, QueryError> {
    let constants = of_this_operation(spec.context.without_outer(), context);
    let constants = match spec.variables.as_slice() {
        [] => constants,
        // A constant of the same name is not what the stages mean.
        variables => constants.without(variables.iter().map(|(name, _)| name.as_str())),
    };
    for (place, stage) in spec.pipeline.iter().enumerate() {
        let bytes = stage.as_bytes();
        let by_chance = |name: &&[u8]| bytes.windows(name.len()).any(|part| part == *name);
        if CHANCE.iter().any(by_chance) {
            return Ok(place);
        }
        match Pipeline::parse_stages(std::slice::from_ref(stage), &constants, spec.depth) {
            Ok(_) => {}
            Err(error) if is_interruption(&error) => return Err(error),
            Err(_) => return Ok(place),
        }
    }
    Ok(spec.pipeline.len())
}

/// Stages that run over and over, each time on other documents and with other values of the variables.
pub(super) struct Suffix {
    stages: Vec<RawDocumentBuf>,
    context: ExpressionContext,
    depth: usize,
    /// The leading `$match`.
    filter: Option<Matcher>,
    source: FilledSource,
    /// The stages behind it, if there are any.
    top: Option<Box<dyn Stage>>,
    /// How many documents the first of those takes.
    wanted: usize,
    has_run: bool,
}

impl Suffix {
    fn new(
        stages: Vec<RawDocumentBuf>,
        expressions: ExpressionContext,
        depth: usize,
        context: &StageContext<'_>,
    ) -> Result<Self, QueryError> {
        let expressions = of_this_operation(expressions, context);
        let mut pipeline = Pipeline::parse_stages(&stages, &expressions, depth)?;
        pipeline.optimize();
        let filter = pipeline.take_match();
        let wanted = match pipeline.stages().first() {
            Some(StageSpec::Limit(limit)) => usize::try_from(*limit).unwrap_or(usize::MAX),
            _ => usize::MAX,
        };
        let source = FilledSource::default();
        let top = match pipeline.is_empty() {
            true => None,
            false => Some(pipeline.run(Box::new(source.clone()))?),
        };
        Ok(Self {
            stages,
            context: expressions,
            depth,
            filter,
            source,
            top,
            wanted,
            has_run: false,
        })
    }

    /// Whether nothing is done with the documents that its filter lets through.
    pub(super) fn is_filter(&self) -> bool {
        self.top.is_none()
    }

    /// So many of the documents that the filter lets through are enough.
    pub(super) fn wanted(&self) -> usize {
        self.wanted
    }

    /// Whether its filter lets a document through.
    #[inline]
    pub(super) fn lets_through(&self, document: &RawDocument, context: &StageContext<'_>) -> Result<bool, QueryError> {
        match &self.filter {
            None => Ok(true),
            Some(filter) => filter.matches(document, context.evaluation),
        }
    }

    /// Runs the stages behind the filter on documents that it has let through.
    pub(super) fn run(
        &mut self,
        documents: impl IntoIterator<Item = SharedDocument>,
        context: &mut StageContext<'_>,
        each: &mut dyn FnMut(SharedDocument) -> Result<(), QueryError>,
    ) -> Result<(), QueryError> {
        if self.has_run
            && let Some(top) = &mut self.top
            && !top.restart(context)?
        {
            let stages = std::mem::take(&mut self.stages);
            *self = Self::new(stages, self.context.clone(), self.depth, context)?;
        }
        self.has_run = true;
        self.source.fill(documents);
        let top: &mut dyn Stage = match &mut self.top {
            Some(top) => &mut **top,
            None => &mut self.source,
        };
        while let Some(document) = top.next(context)? {
            context.evaluation.step()?;
            each(document)?;
        }
        Ok(())
    }
}
