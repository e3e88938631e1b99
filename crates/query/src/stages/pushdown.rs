//! What of a pipeline a query plan can do instead.

use bson::RawDocumentBuf;
use std::sync::Arc;

use super::StageSpec;
use crate::error::QueryError;
use crate::expression::Dependencies;
use crate::matcher::Matcher;
use crate::matcher::near::NearQuery;
use crate::metadata::MetadataNeeds;
use crate::value::{DocumentWriter, SharedDocument, SortPattern, Value};

/// The leading part of a pipeline as a find: filter, then sort, then skip, then limit. See
/// [`super::Pipeline::take_pushdown`].
#[derive(Debug, Default)]
pub struct Pushdown {
    /// The first `$match`: as a document, and parsed.
    pub filter: Option<(RawDocumentBuf, Matcher)>,
    /// The point of `$geoNear`, whose query is the filter.
    pub(crate) near: Option<Arc<NearQuery>>,
    /// What the stages ask of documents beside their fields.
    pub(crate) needs: MetadataNeeds,
    /// Scripts run with the pipeline.
    pub(crate) runs_scripts: bool,
    /// `$sort`
    pub sort: Option<SortPattern>,
    /// Documents to leave out.
    pub skip: u64,
    /// Documents wanted after that; `Some(0)` is none.
    pub limit: Option<u64>,
    /// The next stage, still in the pipeline, is a `$sample` of that many.
    pub sample: Option<u64>,
    /// What of the documents the remaining stages need.
    pub dependencies: Dependencies,
    /// What comes out may tell in which order the documents had their fields.
    pub shows_order: bool,
    /// The next stage, still in the pipeline, is a `$group` by this field that only wants the first document of each
    /// group, where there is an order, or none at all.
    pub first_by: Option<String>,
    /// The remaining stages, still in the pipeline, only count the documents.
    pub count: Option<CountOnly>,
}

/// A pipeline end that only counts: `$count`, or `$group` with a constant `_id` and nothing but `{$sum: 1}`.
#[derive(Clone, Debug)]
pub struct CountOnly {
    /// The constant `_id`, for a group.
    id: Option<Value<'static>>,
    fields: Vec<String>,
}

impl CountOnly {
    /// The only result document for a count; none when nothing was counted.
    pub fn document(&self, count: u64) -> Result<Option<SharedDocument>, QueryError> {
        if count == 0 {
            return Ok(None);
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        let value = i32::try_from(count).map_or(Value::Int64(count), Value::Int32);
        let mut bytes = Vec::with_capacity(32);
        let mut writer = DocumentWriter::new(&mut bytes);
        if let Some(id) = &self.id {
            writer.append("_id", id);
        }
        self.fields.iter().for_each(|field| writer.append(field, &value));
        writer.finish();
        Ok(Some(SharedDocument::new(bytes.into())?))
    }
}

pub(super) fn take(stages: &mut Vec<StageSpec>) -> Pushdown {
    let mut pushdown = Pushdown::default();
    let mut taken = 0;
    for stage in stages.iter() {
        let plain = pushdown.skip == 0 && pushdown.limit.is_none();
        match stage {
            StageSpec::Match { filter, matcher } if taken == 0 => {
                pushdown.filter = Some((filter.clone(), matcher.clone()))
            }
            StageSpec::GeoNear(spec) if taken == 0 => {
                pushdown.near = Some(spec.query.clone());
                pushdown.filter.clone_from(&spec.filter);
            }
            StageSpec::Sort { pattern, limit } if plain && pushdown.sort.is_none() => {
                pushdown.sort = Some(pattern.clone());
                pushdown.limit = *limit;
            }
            StageSpec::Limit(n) => pushdown.limit = Some(pushdown.limit.map_or(*n, |old| old.min(*n))),
            StageSpec::Skip(n) => {
                pushdown.skip = pushdown.skip.saturating_add(*n);
                pushdown.limit = pushdown.limit.map(|limit| limit.saturating_sub(*n));
            }
            _ => break,
        }
        taken += 1;
    }
    stages.drain(..taken);
    if let Some(StageSpec::Sample { size, .. }) = stages.first() {
        pushdown.sample = Some(*size);
    }
    pushdown.count = count_only(stages);
    pushdown.dependencies = dependencies(stages);
    pushdown.shows_order = shows_order(stages);
    pushdown.first_by = first_by(stages, pushdown.sort.is_some());
    pushdown
}

fn count_only(stages: &[StageSpec]) -> Option<CountOnly> {
    match stages {
        [StageSpec::Count { field }] => Some(CountOnly {
            id: None,
            fields: vec![field.clone()],
        }),
        [StageSpec::Group(group)] => {
            let id = match group.id().as_constant()? {
                Value::Missing => Value::Null,
                id => id.clone(),
            };
            let counts = group.fields().iter().all(|(_, accumulator)| accumulator.is_count());
            let fields = group.fields().iter().map(|(name, _)| name.to_string()).collect();
            counts.then_some(CountOnly { id: Some(id), fields })
        }
        _ => None,
    }
}

pub(super) fn dependencies(stages: &[StageSpec]) -> Dependencies {
    let mut dependencies = Dependencies::default();
    for stage in stages {
        if !stage.add_dependencies(&mut dependencies) {
            return dependencies;
        }
    }
    // The documents themselves come out at the end.
    dependencies.whole_document = true;
    dependencies
}

/// See [`Pushdown::shows_order`]; that documents come out whole is told by what the stages need.
fn shows_order(stages: &[StageSpec]) -> bool {
    for (i, stage) in stages.iter().enumerate() {
        match stage {
            StageSpec::Project { projection, .. } => {
                let passed = projection.passed_fields();
                // In documents `_id` is always in front.
                let orders = passed.iter().filter(|path| *path != "_id").count() > 1;
                let is_nested = passed.iter().any(|path| path.contains('.'));
                return orders && (is_nested || dependencies(&stages[i + 1..]).whole_document);
            }
            StageSpec::Facet(facets) => {
                return facets.iter().any(|(_, pipeline)| shows_order(&pipeline.stages));
            }
            stage if !stage.add_dependencies(&mut Dependencies::default()) => return false,
            _ => {}
        }
    }
    false
}

/// See [`Pushdown::first_by`].
fn first_by(stages: &[StageSpec], is_sorted: bool) -> Option<String> {
    let Some(StageSpec::Group(group)) = stages.first() else {
        return None;
    };
    let wants_firsts = group.fields().iter().all(|(_, accumulator)| accumulator.is_first());
    let has_order = is_sorted || group.fields().is_empty();
    let key = group.id().as_field()?;
    (wants_firsts && has_order).then(|| key.to_string())
}
