//! Candidates: the ways a query can be run, as trees of stages.
//!
//! 1. The filter becomes predicates on indexed paths.
//! 2. Each index that bounds its first field, or gives the sort's order, is a candidate; so are an OR of one index per
//!    branch of an `$or`, and merges of scans that are each in the sort's order. A collection scan is one only when
//!    there is no other, or when hinted at.
//! 3. FETCH with the whole filter follows, unless the bounds are exact, and SORT, SKIP, LIMIT and a projection where
//!    asked. A clustering index gives documents by itself: its scan has the filter, and nothing is fetched. So do the
//!    documents of a clustered collection, by `_id`.
//!
//! Which candidate runs is decided in [`crate::exec`]: one alone, one that finds at most one record, the plan cache's,
//! or the winner of a short race.

use super::access::{Access, Unbounded, holds_all};
use super::allowed_indexes::{AllowedIndexes, Otherwise};
use super::convert::Converter;
use super::encode::{StringKeys, encode_key_document};
use super::index_bounds::IndexBounds;
use super::interval::Intervals;
use super::predicate::Predicate;
use super::query::{Order, Query, Wish};
use super::text::{TextAccess, TextBranch};
use super::union::{MergedUnion, Union};
use super::wildcard;
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::exec::blocking::Sort;
use crate::exec::filter::{Limit, Project, Shape, Skip};
use crate::exec::index_scan::{IndexScan, ScanKind};
use crate::exec::key_document::{KeyDocument, holds_fields};
use crate::exec::known::RowMetadata;
use crate::exec::merge::{Or, SortMerge};
use crate::exec::near::Near;
use crate::exec::scan::CollectionScan;
use crate::exec::sort_key::SortKeys;
use crate::exec::stage::{Stage, StageCounters};
use crate::matcher::Matcher;
use crate::metadata::MetadataField;
use crate::path::Path;
use crate::project::Projection;
use crate::sort_field::SortField;
use bson::{RawBsonRef, RawDocument};
use engine::{Direction, TableId};
use keys::Collator;
use keys::extract::PatternField;
use std::collections::HashSet;
use std::sync::Arc;
use storage::{Collection, Index};
use wire::ErrorCode;

/// Intervals and bytes of a list up to which its memory is not counted: the lists of ordinary queries.
const UNCOUNTED_INTERVALS: usize = 64;
const UNCOUNTED_BYTES: usize = 64 << 10;

/// How the records are found.
#[derive(Clone)]
pub(crate) enum Source {
    /// Nothing matches.
    Nothing,
    Collection(Direction),
    Index(Access, Direction),
    /// The keys of an index between two bounds (`min`, `max`).
    Range(Arc<Index>, IndexBounds, Direction),
    /// One index, scanned once for each combination of values, merged.
    Split(Access, Vec<IndexBounds>, Direction),
    /// An index around a point, ring by ring: the place of the geometry among its fields.
    Near(Access, usize, Path),
    /// A text index, term by term.
    Text(Box<TextAccess>),
    /// One index per branch, a text index among them.
    TextUnion(Vec<TextBranch>),
    /// One index per branch.
    Union(Union),
    /// One index per branch, each in order, merged.
    Merge(MergedUnion),
}

/// A way to run a query, before its tree is built.
#[derive(Clone)]
pub(crate) struct Candidate {
    pub(crate) source: Source,
    /// Rows come in the sort's order.
    pub(super) sorted: bool,
    /// Rows need no filter.
    pub(super) exact: bool,
}

/// Names a candidate in the plan cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Index(TableId),
    Split(TableId),
    /// A path of a wildcard index.
    Path(TableId, Arc<str>),
    Union,
    Merge,
}

impl Candidate {
    /// One whose rows need the filter.
    pub(super) fn of(source: Source, sorted: bool) -> Self {
        Self {
            source,
            sorted,
            exact: false,
        }
    }

    /// The candidate's name; `None` for those that are not raced.
    pub(crate) fn choice(&self) -> Option<Choice> {
        match &self.source {
            Source::Index(
                Access {
                    index,
                    wildcard: Some(wildcard),
                    ..
                },
                _,
            )
            | Source::Split(
                Access {
                    index,
                    wildcard: Some(wildcard),
                    ..
                },
                ..,
            ) => Some(Choice::Path(index.table(), wildcard.path.clone())),
            Source::Index(access, _) => Some(Choice::Index(access.index.table())),
            Source::Split(access, ..) => Some(Choice::Split(access.index.table())),
            Source::Union(_) => Some(Choice::Union),
            Source::Merge(_) => Some(Choice::Merge),
            Source::Nothing
            | Source::Collection(_)
            | Source::Range(..)
            | Source::Near(..)
            | Source::Text(_)
            | Source::TextUnion(_) => None,
        }
    }

    /// Whether the fields that it takes for ones without arrays still are.
    pub(crate) fn is_current(&self) -> bool {
        match &self.source {
            Source::Nothing | Source::Collection(_) => true,
            // Its order depends on them, and how is not kept.
            Source::Range(..) => false,
            Source::Index(access, _) | Source::Split(access, ..) | Source::Near(access, ..) => access.is_current(),
            Source::Text(text) => text.access().is_current(),
            Source::TextUnion(branches) => branches.iter().all(|branch| match branch {
                TextBranch::Text(text) => text.access().is_current(),
                TextBranch::Index(access) => access.is_current(),
            }),
            Source::Union(union) => union.accesses.iter().all(Access::is_current),
            Source::Merge(merged) => merged.accesses.iter().all(|(access, _)| access.is_current()),
        }
    }

    /// The memory that the longer lists of its bounds take, each counted once.
    pub(crate) fn bounds_bytes(&self) -> usize {
        let mut counted = HashSet::new();
        let mut bytes = 0;
        let mut count = |sets: &[Intervals]| {
            // A scan of a descending field has the complement alone.
            let sets = sets.iter().flat_map(Intervals::with_complements);
            let is_long = |set: &Intervals| set.list().len() > UNCOUNTED_INTERVALS || set.own_bytes() > UNCOUNTED_BYTES;
            for set in sets.filter(|set| is_long(set)) {
                if counted.insert(set.identity()) {
                    bytes += set.own_bytes();
                }
            }
        };
        match &self.source {
            Source::Nothing | Source::Collection(_) | Source::Range(..) => {}
            Source::Index(access, _) | Source::Near(access, ..) => count(access.sets()),
            Source::Split(access, scans, _) => {
                count(access.sets());
                scans.iter().for_each(|bounds| count(bounds.fields()));
            }
            Source::Text(text) => count(text.access().sets()),
            Source::TextUnion(branches) => branches.iter().for_each(|branch| match branch {
                TextBranch::Text(text) => count(text.access().sets()),
                TextBranch::Index(access) => count(access.sets()),
            }),
            Source::Union(union) => union.accesses.iter().for_each(|access| count(access.sets())),
            Source::Merge(merged) => merged.accesses.iter().for_each(|(access, _)| count(access.sets())),
        }
        bytes
    }

    /// True when at most one record can be found.
    pub(crate) fn finds_one(&self) -> bool {
        matches!(&self.source, Source::Index(access, _) if access.is_unique_point())
    }
}

/// A collection and a parsed query.
pub(crate) struct Planner<'p> {
    pub(crate) collection: &'p Collection,
    pub(crate) query: &'p Query,
    /// The indexes that may be considered, where not all are.
    pub(crate) allowed: Option<&'p AllowedIndexes>,
    /// What is planned for.
    pub(crate) evaluation: &'p EvaluationContext<'p>,
}

impl Planner<'_> {
    /// All candidates: at least one, but where only some indexes are allowed that cannot answer the query, and all are
    /// to be asked then.
    pub(crate) fn candidates(&self, wish: &Wish) -> Result<Vec<Candidate>, QueryError> {
        if self.query.limit == Some(0) {
            return Ok(vec![Candidate {
                source: Source::Nothing,
                sorted: true,
                exact: true,
            }]);
        }
        if let Some(near) = &self.query.near {
            return self.only(self.near(near, wish));
        }
        if let Some(test) = self.query.text() {
            return self.only(self.text(test, wish));
        }
        let natural = match (wish, &self.query.order) {
            (Wish::Natural(direction), _) => Some(*direction),
            (_, Order::Natural(direction)) => Some(*direction),
            _ if self.query.tailable => Some(Direction::Forward),
            _ => None,
        };
        if let Some(direction) = natural {
            return Ok(vec![self.natural_scan(direction)]);
        }
        let indexes: Vec<&Arc<Index>> = match wish {
            Wish::Index(position) => self.collection.access_paths().get(*position).into_iter().collect(),
            _ => self
                .collection
                .access_paths()
                .iter()
                .filter(|index| self.considers(index))
                .collect(),
        };
        let (alike, others): (Vec<_>, Vec<_>) = indexes.iter().partition(|index| self.is_alike(index));
        let predicate = self.predicate(&alike, self.string_keys());
        let conjuncts = predicate.conjuncts();
        if conjuncts.iter().any(|part| matches!(part, Predicate::Never)) {
            return Ok(vec![Candidate {
                source: Source::Nothing,
                sorted: true,
                exact: true,
            }]);
        }
        let hinted = matches!(wish, Wish::Index(_));
        let mut candidates = Vec::new();
        for index in &alike {
            self.evaluation.steps(conjuncts.len())?;
            self.add_index(index, &conjuncts, hinted, &mut candidates)?;
        }
        if !others.is_empty() {
            let of_others = self.predicate(&others, StringKeys::Other);
            let conjuncts = of_others.conjuncts();
            for index in &others {
                self.evaluation.steps(conjuncts.len())?;
                self.add_index(index, &conjuncts, hinted, &mut candidates)?;
            }
        }
        self.add_unions(&alike, &predicate, hinted, &mut candidates)?;
        if candidates.is_empty() {
            if hinted {
                return Err(QueryError::new(
                    ErrorCode::NoQueryExecutionPlans,
                    "error processing query: planner returned error :: caused by :: the hinted index cannot answer the query: \
                     it does not hold every match",
                ));
            }
            match self.allowed.map(|allowed| allowed.otherwise) {
                None => candidates.push(self.collection_scan(Direction::Forward)),
                Some(Otherwise::Scan(direction)) => candidates.push(self.natural_scan(direction)),
                Some(Otherwise::AllIndexes) => {}
            }
        }
        Ok(candidates)
    }

    /// The one way to run a query that needs an index of its kind.
    fn only(&self, candidate: Result<Candidate, QueryError>) -> Result<Vec<Candidate>, QueryError> {
        match candidate {
            // The error, if it stays one, is that of a plan with all indexes.
            Err(_)
                if self
                    .allowed
                    .is_some_and(|allowed| allowed.otherwise == Otherwise::AllIndexes) =>
            {
                Ok(Vec::new())
            }
            candidate => Ok(vec![candidate?]),
        }
    }

    pub(super) fn considers(&self, index: &Index) -> bool {
        !index.hidden() && self.allowed.is_none_or(|allowed| allowed.allows(index))
    }

    /// The candidate of this name, if there still is one.
    pub(crate) fn candidate(&self, choice: &Choice) -> Result<Option<Candidate>, QueryError> {
        if let Choice::Index(table) | Choice::Split(table) | Choice::Path(table, _) = choice {
            let Some(index) = self
                .collection
                .access_paths()
                .iter()
                .find(|index| index.table() == *table && self.considers(index))
            else {
                return Ok(None);
            };
            let predicate = self.predicate(&[index], self.string_keys_of(index));
            let mut candidates = Vec::new();
            self.add_index(index, &predicate.conjuncts(), false, &mut candidates)?;
            return Ok(candidates
                .into_iter()
                .find(|candidate| candidate.choice().as_ref() == Some(choice)));
        }
        let all = self.candidates(&Wish::None)?;
        Ok(all
            .into_iter()
            .find(|candidate| candidate.choice().as_ref() == Some(choice)))
    }

    /// The scan of an index between `min` (with it) and `max` (without it).
    pub(crate) fn key_range(
        &self,
        index: &Arc<Index>,
        min: Option<&RawDocument>,
        max: Option<&RawDocument>,
    ) -> Result<Candidate, QueryError> {
        let incompatible = |why: &str| {
            let message = format!("The index chosen is not compatible with min/max: {why}");
            QueryError::new(ErrorCode(51174), message)
        };
        // Strings stand in the index in the order of its own collation.
        if !self.is_alike(index) && min.into_iter().chain(max).any(has_strings) {
            return Err(incompatible("the query has another collation than the index"));
        }
        let encode = |document: &RawDocument| {
            encode_key_document(index, document)
                .ok_or_else(|| incompatible("the fields of both must be the index' fields"))
        };
        let bounds = IndexBounds::between(min.map(encode).transpose()?, max.map(encode).transpose()?);
        if bounds.is_empty() && min.is_some() && max.is_some() {
            return Err(QueryError::new(ErrorCode(51175), "max() must be greater than min()"));
        }
        let whole = Access::whole(index, false);
        // Arrays are sorted by an element that may be out of bounds.
        let orders = |sort: &&[SortField]| self.is_alike(index) && !whole.sorts_arrays(sort);
        let direction = match self.sort_fields() {
            None => Some(Direction::Forward),
            Some(sort) => Some(sort).filter(orders).and_then(|sort| whole.direction_for(sort)),
        };
        let sorted = direction.is_some();
        let source = Source::Range(index.clone(), bounds, direction.unwrap_or(Direction::Forward));
        Ok(Candidate {
            source,
            sorted,
            exact: self.query.filter.is_none(),
        })
    }

    /// Order of preference between candidates that did equally well.
    pub(crate) fn rank(&self, candidate: &Candidate) -> impl Ord + use<> {
        let needs_sort = matches!(self.query.order, Order::Fields(_)) && !candidate.sorted;
        let access = match &candidate.source {
            Source::Index(access, _) | Source::Split(access, ..) => Some(access),
            _ => None,
        };
        let keys_suffice = self.query.count_only && candidate.exact || self.is_covered(candidate);
        // What has to be fetched, or is dragged along for nothing.
        let reads_more = access.is_some_and(|access| access.index.clustering() == keys_suffice);
        (
            needs_sort,
            access.is_none(),
            !candidate.finds_one(),
            reads_more,
            access.map(Access::rank),
        )
    }

    /// The scan in record order: of a clustered collection, whose order is that of `_id`, between the bounds that the
    /// filter has.
    fn natural_scan(&self, direction: Direction) -> Candidate {
        let bounded = self.collection.clustered_index().and_then(|index| {
            let predicate = self.predicate(&[index], self.string_keys_of(index));
            Access::of(index, &predicate.conjuncts(), Unbounded::Refuse)
        });
        let Some(access) = bounded else {
            return self.collection_scan(direction);
        };
        let sorted = self
            .sort_fields()
            .is_none_or(|sort| self.is_alike(&access.index) && access.direction_for(sort) == Some(direction));
        Candidate {
            exact: access.exact,
            source: Source::Index(access, direction),
            sorted,
        }
    }

    /// The scan of all records.
    pub(crate) fn collection_scan(&self, direction: Direction) -> Candidate {
        let sorted = !matches!(self.query.order, Order::Fields(_));
        Candidate {
            source: Source::Collection(direction),
            sorted,
            exact: true,
        }
    }

    /// Whether the index has strings in the order that the query has them in.
    pub(super) fn is_alike(&self, index: &Index) -> bool {
        index.collation() == self.query.collation.as_ref()
    }

    fn string_keys(&self) -> StringKeys<'_> {
        let collation = self.query.collation.as_deref();
        StringKeys::Alike(collation.map(|collation| collation as &dyn Collator))
    }

    pub(super) fn string_keys_of(&self, index: &Index) -> StringKeys<'_> {
        match self.is_alike(index) {
            true => self.string_keys(),
            false => StringKeys::Other,
        }
    }

    pub(super) fn predicate(&self, indexes: &[&Arc<Index>], keys: StringKeys<'_>) -> Predicate {
        let indexed = |path: &str| {
            let fields = indexes.iter().flat_map(|index| index.pattern().fields());
            let on_path = fields.filter(|field| field.path() == path).map(PatternField::kind);
            let wild = indexes.iter().filter_map(|index| wildcard::kind_at(index, path));
            on_path.chain(wild).collect()
        };
        Converter::convert(self.query.filter.as_deref(), &indexed, keys)
    }

    pub(super) fn sort_fields(&self) -> Option<&[SortField]> {
        match &self.query.order {
            Order::Fields(fields) => Some(fields),
            _ => None,
        }
    }

    /// True when every document that matches the filter is in the index.
    pub(super) fn holds_matches(&self, index: &Index) -> bool {
        let query = self.query;
        super::implication::holds_matches(index, query.filter.as_deref(), query.collation.as_ref())
    }

    /// As [`Planner::holds_matches`], where one index is asked after the other: each partial one is compared with a
    /// filter that may be as large as a message.
    pub(super) fn holds_matches_in_time(&self, index: &Index) -> Result<bool, QueryError> {
        if index.partial_filter().is_some() {
            self.evaluation.steps(usize::MAX)?;
        }
        Ok(self.holds_matches(index))
    }

    fn add_index(
        &self,
        index: &Arc<Index>,
        conjuncts: &[&Predicate],
        hinted: bool,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryError> {
        // A hinted one answers with what it has, as a sparse one does.
        let answers = self.holds_matches_in_time(index)? || hinted && index.wildcard().is_none();
        if !answers {
            return Ok(());
        }
        if index.wildcard().is_some() {
            for access in wildcard::accesses(index, conjuncts, self.evaluation)? {
                self.add_access(access, candidates);
            }
            return Ok(());
        }
        let sort = self.sort_fields();
        let is_alike = self.is_alike(index);
        let bounded = Access::of(index, conjuncts, Unbounded::Refuse);
        let access = match bounded {
            Some(access) => access,
            None => {
                // Useful for its order only, and then it must hold every document.
                let complete = hinted || !index.sparse() && holds_all(index);
                let wanted = hinted || sort.is_some_and(|sort| !sort.is_empty());
                match Access::of(index, conjuncts, Unbounded::Allow).filter(|_| complete && wanted) {
                    Some(access) if hinted || is_alike && sort.is_some_and(|sort| access.orders(sort)) => access,
                    _ => return Ok(()),
                }
            }
        };
        self.add_access(access, candidates);
        Ok(())
    }

    /// The candidate of an access.
    fn add_access(&self, access: Access, candidates: &mut Vec<Candidate>) {
        let sort = self.sort_fields();
        let is_alike = self.is_alike(&access.index);
        let direction = sort.map(|sort| access.direction_for(sort).filter(|_| is_alike));
        if let (Some(None), Some(sort), true) = (direction, sort, is_alike)
            && let Some((scans, direction)) = access.split_for(sort)
        {
            let exact = access.exact;
            candidates.push(Candidate {
                source: Source::Split(access, scans, direction),
                sorted: true,
                exact,
            });
            return;
        }
        let exact = access.exact;
        let (sorted, direction) = match direction {
            None => (true, Direction::Forward),
            Some(Some(direction)) => (true, direction),
            Some(None) => (false, Direction::Forward),
        };
        candidates.push(Candidate {
            source: Source::Index(access, direction),
            sorted,
            exact,
        });
    }

    /// The tree of a candidate.
    pub(crate) fn build(&self, candidate: &Candidate) -> Result<Stage, QueryError> {
        let query = self.query;
        let covered = self.is_covered(candidate);
        let counts_keys = query.count_only && candidate.exact;
        let filter = query.filter.clone().filter(|_| !candidate.exact);
        // The place of a document in a clustered collection is fixed.
        let once = |access: &Access| access.may_repeat() || query.for_write && !access.index.is_clustered();
        let scan = |access: &Access, bounds: &IndexBounds, direction: Direction, kind: ScanKind| {
            let scan = IndexScan::new(access.index.clone(), bounds.clone(), direction, kind, once(access));
            scan.on_path(access.wildcard.as_ref())
        };
        let with_documents = |mut scan: IndexScan, filter: Option<Arc<Matcher>>| -> Stage {
            if !scan.gives_documents() {
                return Stage::fetch(Stage::IndexScan(Box::new(scan)), filter);
            }
            scan.filter = filter;
            Stage::IndexScan(Box::new(scan))
        };
        let mut stage = match &candidate.source {
            Source::Nothing => return Ok(Stage::Eof),
            Source::Collection(direction) => Stage::CollectionScan(Box::new(CollectionScan::new(
                *direction,
                query.filter.clone(),
                query.tailable,
                query.for_write,
            ))),
            Source::Index(access, direction) => {
                let kind = if counts_keys {
                    ScanKind::Count
                } else {
                    ScanKind::Entries
                };
                let scan = scan(access, &access.bounds(), *direction, kind);
                if covered || counts_keys {
                    Stage::IndexScan(Box::new(scan))
                } else {
                    with_documents(scan, filter)
                }
            }
            Source::Range(index, bounds, direction) => {
                let scan = IndexScan::new(index.clone(), bounds.clone(), *direction, ScanKind::Entries, true);
                with_documents(scan, filter)
            }
            Source::Split(access, scans, direction) => {
                let inputs = scans
                    .iter()
                    .map(|bounds| with_documents(scan(access, bounds, *direction, ScanKind::Entries), filter.clone()));
                self.merged(inputs.collect())?
            }
            Source::Near(access, place, path) => {
                let near_query = query.near.clone().ok_or_else(|| {
                    QueryError::new(ErrorCode::InternalError, "a search for what is near without a point")
                })?;
                let near = Near::new(access.clone(), *place, path.clone(), near_query, filter.clone())?;
                // Writers pass over what has changed meanwhile, and sorts take all.
                let is_last_word = candidate.sorted && !query.for_write;
                let wanted = query.rows_wanted().filter(|_| is_last_word);
                Stage::Near(Box::new(near.knowing(query.needs).wanting(wanted)))
            }
            Source::Text(text) => self.build_text(text),
            Source::TextUnion(branches) => self.build_text_union(branches),
            Source::Union(union) => {
                let accesses = &union.accesses;
                let all_give_documents = !counts_keys && accesses.iter().all(|access| access.index.clustering());
                let own = match candidate.exact {
                    true => None,
                    false => union.own_filters(query.filter.as_deref()),
                };
                let inputs = accesses.iter().enumerate().map(|(branch, access)| {
                    let scan = scan(access, &access.bounds(), Direction::Forward, ScanKind::Entries);
                    match &own {
                        Some(own) => match &own.of_branches[branch] {
                            Some(filter) => with_documents(scan, Some(filter.clone())),
                            None => Stage::IndexScan(Box::new(scan)),
                        },
                        None if all_give_documents => with_documents(scan, filter.clone()),
                        None => Stage::IndexScan(Box::new(scan)),
                    }
                });
                let stage = Stage::Or(Box::new(Or::new(inputs.collect())));
                match own {
                    Some(own) => Stage::fetch(stage, own.beside),
                    None if counts_keys || all_give_documents => stage,
                    None => Stage::fetch(stage, filter.clone()),
                }
            }
            Source::Merge(merged) => {
                let own = match candidate.exact {
                    true => None,
                    false => merged.own_filters(query.filter.as_deref()),
                };
                let inputs = merged.accesses.iter().enumerate().map(|(branch, (access, direction))| {
                    let scan = scan(access, &access.bounds(), *direction, ScanKind::Entries);
                    let Some(own) = &own else {
                        return with_documents(scan, filter.clone());
                    };
                    // Such bounds tell of the other conjuncts, too.
                    let Some(filter) = &own.of_branches[branch] else {
                        return with_documents(scan, None);
                    };
                    let input = with_documents(scan, Some(filter.clone()));
                    match &own.beside {
                        // Before the merge, which remembers each record that it is given.
                        Some(beside) => Stage::fetch(input, Some(beside.clone())),
                        None => input,
                    }
                });
                self.merged(inputs.collect())?
            }
        };
        if let (Some(fields), false) = (self.sort_fields(), candidate.sorted) {
            stage = Stage::Sort(Box::new(Sort::new(
                stage,
                SortKeys::new(fields, query.collation.as_ref())?,
                query.rows_wanted(),
                query.return_key || query.needs.has(MetadataField::IndexKey),
                &query.blocking,
            )));
        }
        if query.skip > 0 {
            stage = Stage::Skip(Box::new(Skip::new(stage, query.skip)));
        }
        if let Some(limit) = query.limit {
            stage = Stage::Limit(Box::new(Limit::new(stage, limit)));
        }
        self.projected(stage, covered)
    }

    fn merged(&self, inputs: Vec<Stage>) -> Result<Stage, QueryError> {
        let fields = self.sort_fields().unwrap_or_default();
        Ok(Stage::SortMerge(Box::new(SortMerge::new(
            inputs,
            SortKeys::new(fields, self.query.collation.as_ref())?,
        ))))
    }

    /// What is made of rows: of those that an index covers, all that is looked at.
    fn projection(&self, covered: bool) -> Option<&Arc<Projection>> {
        let covering = self.query.covering.as_ref().filter(|_| covered);
        self.query.projection.as_ref().or(covering)
    }

    fn projected(&self, input: Stage, covered: bool) -> Result<Stage, QueryError> {
        let query = self.query;
        let projection = self.projection(covered);
        let shape = match () {
            () if query.return_key => Shape::ReturnKey,
            () if projection.is_none() && !query.show_record_id => return Ok(input),
            () if covered => Shape::Covered,
            () => Shape::Document,
        };
        let positional = projection.is_some_and(|projection| projection.is_positional());
        Ok(Stage::Project(Box::new(Project {
            known: RowMetadata::new(query)?,
            input,
            projection: projection.cloned(),
            shape,
            show_record_id: query.show_record_id,
            matcher: query.filter.clone().filter(|_| positional),
            key_document: KeyDocument::default(),
            scratch: Vec::new(),
            counters: StageCounters::default(),
        })))
    }

    /// True when the index' keys hold everything that filter and projection need.
    fn is_covered(&self, candidate: &Candidate) -> bool {
        let Source::Index(access, _) = &candidate.source else {
            return false;
        };
        let has_keys = !access.is_multikey() && !access.index.is_clustered();
        if !candidate.exact || !candidate.sorted || !has_keys || self.query.return_key {
            return false;
        }
        let projection = self.projection(true);
        let Some(wanted) = projection.and_then(|projection| projection.simple_inclusion()) else {
            return false;
        };
        match &access.wildcard {
            Some(wildcard) => {
                access.index.collation().is_none()
                    && access.index.pattern().fields().len() == 2
                    && matches!(wanted.as_slice(), [only] if **only == *wildcard.path)
            }
            None => holds_fields(&access.index, &wanted),
        }
    }
}

/// Whether a bound has a value that a collation orders.
fn has_strings(bound: &RawDocument) -> bool {
    let is_ordered = |value| {
        matches!(
            value,
            RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::Document(_) | RawBsonRef::Array(_)
        )
    };
    bound.iter().flatten().any(|(_, value)| is_ordered(value))
}
