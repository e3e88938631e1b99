//! Aggregation pipelines: parsing, rewriting, and pulling documents through.
//!
//! [`Pipeline::parse`] checks every stage; [`Pipeline::optimize`] moves and merges stages without changing the result;
//! [`Pipeline::take_pushdown`] gives the leading stages that a query plan can answer away; [`Pipeline::run`] puts the
//! rest on top of a source. Documents are pulled one by one ([`Stage::next`]) and are shared bytes, so a stage that
//! does not look into a document costs next to nothing.
//!
//! Stages know no storage. What they need of the world (interruption, other collections) is [`Execution`]'s, given anew
//! with each call, so that a pipeline can rest between two calls without pinning anything.

mod bucket;
mod bucket_auto;
mod correlated;
mod deep;
mod densify;
mod densify_disk;
mod facet;
mod fill;
mod filter;
mod geo_near;
mod granularity;
mod graph_lookup;
mod group;
mod groups;
mod inhibit;
mod join;
mod lookup;
mod lookup_stage;
mod lookup_unwind;
mod observed;
mod optimize;
mod parse;
mod planned;
mod positions;
mod pushdown;
mod run;
mod sort;
mod source;
mod specification;
#[cfg(test)]
mod tests;
mod transform;
mod unpack;
mod unwind;
mod window;

use bson::{Document, RawArray, RawDocument, RawDocumentBuf};
use wire::ErrorCode;

use crate::data::DataSource;
use crate::error::QueryError;
use crate::evaluation::EvaluationContext;
use crate::expression::ExpressionContext;
use crate::limits::BlockingLimits;
use crate::matcher::Matcher;
use crate::metadata::MetadataNeeds;
use crate::value::SharedDocument;

pub(crate) use deep::DeepStage;
pub use geo_near::GeoNearSpec;
pub use join::{EqualityJoin, JoinRequest, JoinStrategy, Joined};
pub(crate) use observed::{StageReport, observed};
pub(crate) use parse::parse_new_root;
pub use planned::PlannedStage;
pub use positions::each_stage;
pub(crate) use positions::{SPLIT_LARGE_EVENT, check_in_transaction, makes_documents, may_search};
pub use pushdown::{CountOnly, Pushdown};
pub use source::IteratorSource;
pub use specification::StageSpec;
pub use unpack::UnpackSpec;

/// Stages that a pipeline may have.
pub const STAGES_MAX: usize = 1000;

/// Bytes of memory that a blocking stage may hold.
pub const STAGE_BYTES_MAX: usize = 100 << 20;

/// Levels of pipelines inside pipelines (`$lookup`, `$facet`, `$unionWith`).
pub const PIPELINE_DEPTH_MAX: usize = 20;

/// A source of documents, or a step that documents go through.
pub trait Stage: Send {
    /// The next document, or `None` when there are no more (and on every later call).
    ///
    /// [`QueryError::Paused`] of a source is handed on, and the stage then asked again: it must go on where it was. So
    /// what it has gathered is in the stage, and nothing is lost in the call that fails.
    fn next(&mut self, context: &mut StageContext<'_>) -> Result<Option<SharedDocument>, QueryError>;

    /// Starts anew, as if nothing had been asked of it yet: variables that it reads have other values now. Answers
    /// false where it cannot, and is of no use any more then.
    fn restart(&mut self, _context: &StageContext<'_>) -> Result<bool, QueryError> {
        Ok(false)
    }

    /// Adds what explain tells of the stage's run beside what it tells of all.
    fn add_statistics(&self, _statistics: &mut Document) {}
}

/// What stages ask of the operation they run in.
pub trait Execution {
    /// Fails when the operation is to stop. Cheap: called every few documents by stages that consume many.
    fn check(&self) -> Result<(), QueryError>;

    /// Opens another collection (or view) for `$lookup`, `$unionWith` and the like: a sub-aggregation over it.
    fn open_foreign(&self, request: ForeignRequest<'_>) -> Result<Box<dyn Stage>, QueryError>;

    /// Opens a collection for an equality join; `None` where only [`Execution::open_foreign`] will do.
    fn open_join(&self, _request: JoinRequest<'_>) -> Result<Option<Box<dyn EqualityJoin>>, QueryError> {
        Ok(None)
    }

    /// What is read, where anything is: for sources made by the executor.
    fn data(&self) -> Option<DataSource<'_>> {
        None
    }

    /// What blocking stages may hold, and where they go on beyond it.
    fn blocking(&self) -> &BlockingLimits {
        static IN_MEMORY: BlockingLimits = BlockingLimits::IN_MEMORY;
        &IN_MEMORY
    }
}

/// Given to each call of [`Stage::next`].
pub struct StageContext<'a> {
    /// The operation.
    pub execution: &'a dyn Execution,
    /// What evaluations are bounded by.
    pub evaluation: &'a EvaluationContext<'a>,
}

/// A sub-aggregation over another collection.
pub struct ForeignRequest<'a> {
    /// Another database, when one is named.
    pub database: Option<&'a str>,
    /// The collection or view; `None` for a pipeline that starts with its own source (`$documents`).
    pub collection: Option<&'a str>,
    /// Which of its documents: for `$lookup`'s equality form, a filter on `foreignField`. May use an index.
    pub filter: Option<RawDocumentBuf>,
    /// The stages to run over them.
    pub pipeline: &'a [RawDocumentBuf],
    /// Time, comparison rules, and the variables that the stages see as constants.
    pub context: &'a ExpressionContext,
    /// The level of nesting, 1 for a pipeline inside the client's.
    pub depth: usize,
}

/// A parsed pipeline.
#[derive(Debug)]
pub struct Pipeline {
    stages: Vec<StageSpec>,
    context: ExpressionContext,
}

fn failure<T>(code: i32, message: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::new(ErrorCode(code), message))
}

impl Pipeline {
    /// Parses the array of a command.
    pub fn parse(stages: &RawArray, context: &ExpressionContext) -> Result<Pipeline, QueryError> {
        parse::parse_array(stages, context, 0)
    }

    /// Parses stages kept as documents, at a level of nesting (see [`ForeignRequest::depth`]).
    pub fn parse_stages(
        stages: &[RawDocumentBuf],
        context: &ExpressionContext,
        depth: usize,
    ) -> Result<Pipeline, QueryError> {
        parse::parse_documents(stages, context, depth)
    }

    /// The stages.
    pub fn stages(&self) -> &[StageSpec] {
        &self.stages
    }

    /// Takes the first stage off where it is a `$match`.
    pub(crate) fn take_match(&mut self) -> Option<Matcher> {
        self.take_match_at(0)
    }

    /// The same of the stage at a place.
    pub(crate) fn take_match_at(&mut self, place: usize) -> Option<Matcher> {
        match self.stages.get(place) {
            Some(StageSpec::Match { .. }) => match self.stages.remove(place) {
                StageSpec::Match { matcher, .. } => Some(matcher),
                _ => None,
            },
            _ => None,
        }
    }

    /// Takes the last stage off.
    pub(crate) fn pop(&mut self) -> Option<StageSpec> {
        self.stages.pop()
    }

    /// Whether there are no stages.
    pub fn is_empty(&self) -> bool {
        self.stages.is_empty()
    }

    /// The context it was parsed with.
    pub fn context(&self) -> &ExpressionContext {
        &self.context
    }

    /// The first stage when it makes documents by itself (`$indexStats`, `$currentOp`, `$documents` …): its name and
    /// its document. Whoever runs the pipeline supplies the source ([`IteratorSource`]).
    pub fn initial(&self) -> Option<(&str, &RawDocument)> {
        match self.stages.first() {
            Some(StageSpec::Initial { name, specification }) => Some((name, specification)),
            _ => None,
        }
    }

    /// Whether the first of these stages makes documents by itself.
    pub fn starts_with_source(stages: &[RawDocumentBuf]) -> bool {
        stages.first().is_some_and(|stage| positions::is_initial(stage))
    }

    /// The collections that the pipeline reads besides its own: (database, collection), with duplicates.
    pub fn foreign_collections(&self) -> Vec<(Option<String>, String)> {
        let mut found = Vec::new();
        self.stages.iter().for_each(|stage| stage.add_foreign(&mut found));
        found
    }

    /// The stages as documents, as `explain` shows them.
    pub fn to_documents(&self) -> Vec<RawDocumentBuf> {
        self.stages.iter().map(StageSpec::to_document).collect()
    }

    /// Moves and merges stages; the result stays the same.
    pub fn optimize(&mut self) {
        optimize::optimize(&mut self.stages, &self.context);
    }

    /// Takes away the leading stages that a query plan answers, and says what of the documents the rest needs.
    pub fn take_pushdown(&mut self) -> Pushdown {
        Pushdown {
            needs: self.metadata_needs(),
            runs_scripts: self.context.has_scripts(),
            ..pushdown::take(&mut self.stages)
        }
    }

    /// What the stages ask of documents beside their fields.
    fn metadata_needs(&self) -> MetadataNeeds {
        let needs = self.context.metadata_needs();
        self.stages.iter().fold(needs, |needs, stage| match stage {
            StageSpec::Sort { pattern, .. } => needs.and(pattern.metadata_needs()),
            StageSpec::Facet(facets) => facets
                .iter()
                .fold(needs, |needs, (_, pipeline)| needs.and(pipeline.metadata_needs())),
            _ => needs,
        })
    }
}
