//! The stages as data, between parsing and running.

use bson::{RawDocument, RawDocumentBuf};

use super::geo_near::GeoNearSpec;
use super::graph_lookup::GraphLookupSpec;
use super::group::GroupSpec;
use super::lookup::{LookupSpec, UnionSpec};
use super::positions::SPLIT_LARGE_EVENT;
use super::unpack::UnpackSpec;
use super::unwind::UnwindSpec;
use super::{
    Pipeline, PlannedStage, Stage, facet, filter, graph_lookup, group, lookup_stage, pushdown, sort, source, transform,
    unwind,
};
use crate::error::QueryError;
use crate::expression::{Dependencies, Expression, ExpressionContext};
use crate::matcher::Matcher;
use crate::project::Projection;
use crate::value::{DocumentWriter, SortPattern, Value};

/// A parsed stage.
#[derive(Debug)]
#[non_exhaustive]
pub enum StageSpec {
    /// `$match`
    Match {
        /// The filter as written.
        filter: RawDocumentBuf,
        /// The filter, parsed.
        matcher: Matcher,
    },
    /// `$project`, `$addFields`/`$set`, `$unset`
    Project {
        /// The stage's name.
        name: &'static str,
        /// The stage's argument as written, in a document under its name.
        written: RawDocumentBuf,
        /// What it does.
        projection: Projection,
        /// Dotted paths whose values it sets, changes or leaves out; `None` when that is not known (an inclusion).
        changed: Option<Vec<String>>,
    },
    /// `$replaceRoot`/`$replaceWith`
    ReplaceRoot {
        /// The stage as written.
        written: RawDocumentBuf,
        /// The new document.
        expression: Expression,
    },
    /// `$redact`
    Redact {
        /// The stage as written.
        written: RawDocumentBuf,
        /// What is evaluated for each level, with that level as `$$CURRENT`.
        expression: Expression,
    },
    /// `$sort`, with a limit when one follows
    Sort {
        /// By what.
        pattern: SortPattern,
        /// How many documents are wanted.
        limit: Option<u64>,
    },
    /// `$limit`
    Limit(u64),
    /// `$skip`
    Skip(u64),
    /// `$group`
    Group(GroupSpec),
    /// `$unwind`
    Unwind(UnwindSpec),
    /// `$count`
    Count {
        /// The name of the result's field.
        field: String,
    },
    /// `$sample`
    Sample {
        /// How many documents.
        size: u64,
        /// Where randomness comes from.
        context: ExpressionContext,
    },
    /// `$geoNear`; always first
    GeoNear(Box<GeoNearSpec>),
    /// `$lookup`
    Lookup(Box<LookupSpec>),
    /// `$graphLookup`
    GraphLookup(Box<GraphLookupSpec>),
    /// `$unionWith`
    Union(Box<UnionSpec>),
    /// `$facet`: name and pipeline of each
    Facet(Vec<(String, Pipeline)>),
    /// `$_internalUnpackBucket`
    Unpack(Box<UnpackSpec>),
    /// A stage that stands alone.
    Planned(Box<dyn PlannedStage>),
    /// `$out`, `$merge`: carried out by whoever runs the pipeline, never here.
    Write {
        /// The stage's name.
        name: &'static str,
        /// The stage as written.
        written: RawDocumentBuf,
    },
    /// `$changeStreamSplitLargeEvent`; the change stream takes it off its pipeline.
    SplitLargeEvent {
        /// The stage as written.
        written: RawDocumentBuf,
    },
    /// A stage that makes documents by itself; always first.
    Initial {
        /// With `$`.
        name: String,
        /// Its argument; of `$documents` the array, under the empty name.
        specification: RawDocumentBuf,
    },
}

/// `{name: value}`.
pub(super) fn stage_document(name: &str, value: &Value<'_>) -> RawDocumentBuf {
    let mut bytes = Vec::with_capacity(32);
    let mut writer = DocumentWriter::new(&mut bytes);
    writer.append(name, value);
    writer.finish();
    RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
}

fn count_value(n: u64) -> Value<'static> {
    Value::Int64(i64::try_from(n).unwrap_or(i64::MAX))
}

fn document_value(document: &RawDocument) -> Value<'_> {
    Value::from_raw(bson::RawBsonRef::Document(document))
}

impl StageSpec {
    /// Whether it is a `$match` that searches for text.
    pub(crate) fn searches(&self) -> bool {
        matches!(self, Self::Match { matcher, .. } if matcher.text().is_some())
    }

    /// The stage's name with its `$`.
    pub fn name(&self) -> &str {
        match self {
            StageSpec::Match { .. } => "$match",
            StageSpec::Project { name, .. } => name,
            StageSpec::ReplaceRoot { .. } => "$replaceRoot",
            StageSpec::Redact { .. } => "$redact",
            StageSpec::Sort { .. } => "$sort",
            StageSpec::Limit(_) => "$limit",
            StageSpec::Skip(_) => "$skip",
            StageSpec::Group(_) => "$group",
            StageSpec::Unwind(_) => "$unwind",
            StageSpec::Count { .. } => "$count",
            StageSpec::Sample { .. } => "$sample",
            StageSpec::GeoNear(_) => "$geoNear",
            StageSpec::Lookup(_) => "$lookup",
            StageSpec::GraphLookup(_) => "$graphLookup",
            StageSpec::Union(_) => "$unionWith",
            StageSpec::Facet(_) => "$facet",
            StageSpec::Unpack(_) => crate::timeseries::UNPACK,
            StageSpec::Planned(stage) => stage.name(),
            StageSpec::Write { name, .. } => name,
            StageSpec::SplitLargeEvent { .. } => SPLIT_LARGE_EVENT,
            StageSpec::Initial { name, .. } => name,
        }
    }

    /// The stage as a document.
    pub fn to_document(&self) -> RawDocumentBuf {
        match self {
            StageSpec::Match { filter, .. } => stage_document("$match", &document_value(filter)),
            StageSpec::Project { written, .. }
            | StageSpec::ReplaceRoot { written, .. }
            | StageSpec::Redact { written, .. }
            | StageSpec::Write { written, .. }
            | StageSpec::SplitLargeEvent { written } => written.clone(),
            StageSpec::Sort { pattern, limit } => {
                let sort = stage_document("sortKey", &document_value(pattern.document()));
                let Some(limit) = limit else {
                    return stage_document("$sort", &document_value(&sort));
                };
                let mut bytes = Vec::new();
                let mut writer = DocumentWriter::new(&mut bytes);
                writer.append("sortKey", &document_value(pattern.document()));
                writer.append("limit", &count_value(*limit));
                writer.finish();
                let inner = RawDocumentBuf::from_bytes(bytes).unwrap_or_default();
                stage_document("$sort", &document_value(&inner))
            }
            StageSpec::Limit(n) => stage_document("$limit", &count_value(*n)),
            StageSpec::Skip(n) => stage_document("$skip", &count_value(*n)),
            StageSpec::Group(group) => group.written().to_owned(),
            StageSpec::Unwind(unwind) => unwind.written().to_owned(),
            StageSpec::Count { field } => stage_document("$count", &Value::borrowed_str(field)),
            StageSpec::Sample { size, .. } => {
                let inner = stage_document("size", &count_value(*size));
                stage_document("$sample", &document_value(&inner))
            }
            StageSpec::GeoNear(near) => near.written.clone(),
            StageSpec::Lookup(lookup) => lookup.written().to_owned(),
            StageSpec::GraphLookup(lookup) => lookup.written().to_owned(),
            StageSpec::Union(union) => union.written().to_owned(),
            StageSpec::Facet(facets) => facet_document(facets),
            StageSpec::Unpack(unpack) => unpack.written(),
            StageSpec::Planned(stage) => stage.written(),
            StageSpec::Initial { name, specification } => stage_document(name, &document_value(specification)),
        }
    }

    /// Puts the running stage on top of `source`.
    pub(super) fn start(self, source: Box<dyn Stage>) -> Result<Box<dyn Stage>, QueryError> {
        Ok(match self {
            StageSpec::Match { matcher, .. } => Box::new(filter::MatchStage::new(source, matcher)),
            StageSpec::Project { projection, .. } => Box::new(transform::ProjectStage::new(source, projection)),
            StageSpec::ReplaceRoot { expression, .. } => Box::new(transform::ReplaceRootStage::new(source, expression)),
            StageSpec::Redact { expression, .. } => Box::new(transform::RedactStage::new(source, expression)),
            StageSpec::Sort { pattern, limit } => Box::new(sort::SortStage::new(source, pattern, limit)),
            StageSpec::Limit(n) => Box::new(filter::LimitStage::new(source, n)),
            StageSpec::Skip(n) => Box::new(filter::SkipStage::new(source, n)),
            StageSpec::Group(spec) => Box::new(group::GroupStage::new(source, spec)),
            StageSpec::Unwind(spec) => Box::new(unwind::UnwindStage::new(source, spec)),
            StageSpec::Count { field } => Box::new(filter::CountStage::new(source, field)),
            StageSpec::Sample { size, context } => Box::new(sort::SampleStage::new(source, size, context.random)),
            StageSpec::Lookup(spec) => Box::new(lookup_stage::LookupStage::new(source, *spec)),
            StageSpec::GraphLookup(spec) => Box::new(graph_lookup::GraphLookupStage::new(source, *spec)),
            StageSpec::Union(spec) => Box::new(lookup_stage::UnionStage::new(source, *spec)),
            StageSpec::Facet(facets) => Box::new(facet::FacetStage::new(source, facets)?),
            StageSpec::Unpack(spec) => spec.start(source),
            StageSpec::Planned(stage) => stage.start(source),
            StageSpec::Initial { name, specification } if name == "$documents" => {
                Box::new(source::IteratorSource::of_array(&specification)?)
            }
            // The source is this stage already.
            StageSpec::Initial { .. } | StageSpec::SplitLargeEvent { .. } => source,
            // The plan does it; what is no collection has no index that could.
            StageSpec::GeoNear(_) => {
                return Err(QueryError::new(
                    wire::ErrorCode::NoQueryExecutionPlans,
                    "$geoNear needs a collection with a 2d or 2dsphere index",
                ));
            }
            StageSpec::Write { name, .. } => {
                return Err(QueryError::new(
                    wire::ErrorCode::IllegalOperation,
                    format!("{name} is only allowed in an aggregation of a client's"),
                ));
            }
        })
    }

    /// Adds the fields that the stage reads. Returns whether documents after it may hold fields of the source that
    /// neither it nor any stage before has asked for, so that what later stages read counts as well.
    pub(super) fn add_dependencies(&self, dependencies: &mut Dependencies) -> bool {
        match self {
            StageSpec::Match { matcher, .. } => {
                matcher.root().add_dependencies(dependencies);
                true
            }
            StageSpec::Sort { pattern, .. } => {
                dependencies
                    .paths
                    .extend(pattern.fields().map(|(path, _)| path.to_owned()));
                true
            }
            StageSpec::Limit(_) | StageSpec::Skip(_) | StageSpec::Sample { .. } => true,
            StageSpec::Project {
                projection, changed, ..
            } => {
                projection.add_dependencies(dependencies);
                // Only an inclusion bounds what comes out.
                changed.is_some()
            }
            StageSpec::Group(group) => {
                group.add_dependencies(dependencies);
                false
            }
            StageSpec::Count { .. } => false,
            StageSpec::Planned(stage) => stage.add_dependencies(dependencies),
            StageSpec::ReplaceRoot { expression, .. } => {
                expression.add_dependencies(dependencies);
                false
            }
            StageSpec::Unwind(unwind) => {
                dependencies.paths.insert(unwind.path().to_string());
                true
            }
            StageSpec::Facet(facets) => {
                for (_, pipeline) in facets {
                    dependencies.merge(&pushdown::dependencies(&pipeline.stages));
                }
                false
            }
            StageSpec::GeoNear(_)
            | StageSpec::Lookup(_)
            | StageSpec::GraphLookup(_)
            | StageSpec::Union(_)
            | StageSpec::Redact { .. }
            | StageSpec::Unpack(_)
            | StageSpec::SplitLargeEvent { .. }
            | StageSpec::Write { .. }
            | StageSpec::Initial { .. } => {
                dependencies.whole_document = true;
                false
            }
        }
    }

    pub(super) fn add_foreign(&self, found: &mut Vec<(Option<String>, String)>) {
        match self {
            StageSpec::Lookup(lookup) => lookup.add_foreign(found),
            StageSpec::GraphLookup(lookup) => lookup.add_foreign(found),
            StageSpec::Union(union) => union.add_foreign(found),
            StageSpec::Facet(facets) => {
                for (_, pipeline) in facets {
                    found.extend(pipeline.foreign_collections());
                }
            }
            _ => {}
        }
    }
}

fn facet_document(facets: &[(String, Pipeline)]) -> RawDocumentBuf {
    let mut bytes = Vec::new();
    let mut writer = DocumentWriter::new(&mut bytes);
    let mut inner = writer.document("$facet");
    for (name, pipeline) in facets {
        let mut array = inner.array(name);
        for stage in pipeline.to_documents() {
            array.push(&document_value(&stage));
        }
        array.finish();
    }
    inner.finish();
    writer.finish();
    RawDocumentBuf::from_bytes(bytes).unwrap_or_default()
}
