//! An `$or` as a candidate: each of its branches on an index of its own.

use super::access::Access;
use super::planner::{Candidate, Planner, Source};
use super::predicate::Predicate;
use super::wildcard;
use crate::QueryError;
use crate::exec::index_scan::IndexScan;
use crate::matcher::{MatchExpr, Matcher};
use engine::Direction;
use std::sync::Arc;
use storage::Index;

/// Most branches of an `$or` whose sorted scans are merged: each is open all the time.
const MERGED_BRANCHES_MAX: usize = 1000;

/// From so many branches on, what a branch has found is matched with that branch alone. With fewer a record that
/// several find is read once.
const OWN_FILTERS_MIN: usize = 16;

/// Memory that the branches of an `$or` may have for themselves: with more, a union is no candidate.
const UNION_BYTES_MAX: usize = 64 << 20;

/// Memory of a branch beside its lists: how it is looked up, and its scan.
const BRANCH_BYTES: usize = size_of::<Access>() + size_of::<IndexScan>();

/// An index for each branch of an `$or`.
#[derive(Clone)]
pub(crate) struct Union {
    pub(super) accesses: Vec<Access>,
    /// Which of the filter's conjuncts the `$or` is; `None` for one further inside.
    pub(super) part: Option<usize>,
}

/// An index for each branch of an `$or`, each scanned in the order of the sort.
#[derive(Clone)]
pub(crate) struct MergedUnion {
    pub(super) accesses: Vec<(Access, Direction)>,
    /// As that of a [`Union`].
    part: Option<usize>,
}

/// A filter taken apart at its `$or`.
pub(super) struct OwnFilters {
    /// `None` for a branch whose bounds tell everything.
    pub(super) of_branches: Vec<Option<Arc<Matcher>>>,
    /// Its other conjuncts.
    pub(super) beside: Option<Arc<Matcher>>,
}

impl Union {
    /// What each branch has to be matched with, where that spares matching each record with all of them.
    pub(super) fn own_filters(&self, filter: Option<&Matcher>) -> Option<OwnFilters> {
        match self.accesses.len() {
            0..OWN_FILTERS_MIN => None,
            branches => OwnFilters::of(filter?, self.part?, branches, |branch| self.accesses[branch].exact),
        }
    }
}

impl MergedUnion {
    /// What each branch has to be matched with. Each reads its records by itself in any case.
    pub(super) fn own_filters(&self, filter: Option<&Matcher>) -> Option<OwnFilters> {
        OwnFilters::of(filter?, self.part?, self.accesses.len(), |branch| {
            self.accesses[branch].0.exact
        })
    }
}

impl OwnFilters {
    /// Those of a filter whose conjunct `part` is the `$or`; `None` where that has not so many branches. A branch may
    /// be a large tree, which is copied for its filter alone: not where bounds are exact.
    fn of(filter: &Matcher, part: usize, branches_wanted: usize, is_exact: impl Fn(usize) -> bool) -> Option<Self> {
        let conjuncts = filter.root().conjuncts();
        let MatchExpr::Or(branches) = conjuncts.get(part)? else {
            return None;
        };
        if branches.len() != branches_wanted {
            return None;
        }
        let matcher = |root: MatchExpr| Arc::new(Matcher::from_expr(root, filter.collator().cloned()));
        let of_branch = |(i, branch): (usize, &MatchExpr)| (!is_exact(i)).then(|| matcher(branch.clone()));
        let others = conjuncts.iter().enumerate().filter(|(i, _)| *i != part);
        let beside = MatchExpr::and(others.map(|(_, other)| other.clone()));
        Some(Self {
            of_branches: branches.iter().enumerate().map(of_branch).collect(),
            beside: Some(matcher(beside)).filter(|beside| !beside.is_always_true()),
        })
    }
}

impl Planner<'_> {
    /// Adds what an `$or` among the conjuncts makes possible: each branch, together with the other conjuncts, on its
    /// own best index.
    pub(super) fn add_unions(
        &self,
        indexes: &[&Arc<Index>],
        predicate: &Predicate,
        hinted: bool,
        candidates: &mut Vec<Candidate>,
    ) -> Result<(), QueryError> {
        if hinted && !candidates.is_empty() {
            return Ok(());
        }
        let conjuncts = predicate.conjuncts();
        if !conjuncts.iter().any(|conjunct| matches!(conjunct, Predicate::Or(_))) {
            return Ok(());
        }
        // A partial index that the whole filter does not imply may serve none of the branches.
        let mut usable = Vec::with_capacity(indexes.len());
        for index in indexes {
            if self.holds_matches_in_time(index)? {
                usable.push(*index);
            }
        }
        for (position, conjunct) in conjuncts.iter().enumerate() {
            let Predicate::Or(branches) = conjunct else { continue };
            self.evaluation.steps(conjuncts.len())?;
            let others: Vec<&Predicate> = conjuncts
                .iter()
                .enumerate()
                .filter(|(i, _)| *i != position)
                .map(|(_, other)| *other)
                .collect();
            let mark = self.evaluation.held();
            let part = predicate
                .top_conjuncts()
                .iter()
                .position(|top| std::ptr::eq(top, *conjunct));
            let Some(union) = self.union_of(branches, part, &others, &usable, hinted)? else {
                self.evaluation.release_to(mark);
                continue;
            };
            candidates.push(union);
            break;
        }
        Ok(())
    }

    /// Each branch on its own best index; `None` when one has none, or the lists take too much memory.
    fn union_of(
        &self,
        branches: &[Predicate],
        part: Option<usize>,
        others: &[&Predicate],
        usable: &[&Arc<Index>],
        hinted: bool,
    ) -> Result<Option<Candidate>, QueryError> {
        let has_leaf = |parts: &[&Predicate]| parts.iter().any(|part| matches!(part, Predicate::Leaf(_)));
        // Nothing bounds an index for such a branch: not worth planning the others.
        if !has_leaf(others) && branches.iter().any(|branch| !has_leaf(&branch.conjuncts())) {
            return Ok(None);
        }
        let mut told = Vec::with_capacity(usable.len());
        for index in usable {
            self.evaluation.steps(others.len())?;
            told.push(told_to(index, others));
        }
        let before = self.evaluation.held();
        let sort = self.sort_fields().filter(|_| branches.len() <= MERGED_BRANCHES_MAX);
        let (mut union, mut merge) = (Vec::with_capacity(branches.len()), Vec::new());
        for branch in branches {
            let own = branch.conjuncts();
            let mut accesses = Vec::new();
            for (index, others) in usable.iter().zip(&told) {
                let parts = [own.as_slice(), others].concat();
                self.evaluation.steps(parts.len())?;
                accesses.extend(wildcard::all_accesses(index, &parts, self.evaluation)?);
            }
            self.evaluation.hold(BRANCH_BYTES)?;
            // What the branch shares with the other conjuncts is there once.
            for access in &accesses {
                let (intervals, bytes) = access.own_intervals();
                self.evaluation.steps(1 + intervals)?;
                self.evaluation.hold(bytes)?;
            }
            if !hinted && self.evaluation.held() - before > UNION_BYTES_MAX {
                return Ok(None);
            }
            let ordered = accesses
                .iter()
                .filter_map(|access| Some((access, access.direction_for(sort?)?)));
            let ordered = ordered.min_by_key(|(access, _)| access.rank());
            merge.extend(ordered.map(|(access, direction)| (access.clone(), direction)));
            let Some(best) = accesses.into_iter().min_by_key(|access| access.rank()) else {
                return Ok(None);
            };
            union.push(best);
        }
        if !merge.is_empty() && merge.len() == branches.len() {
            return Ok(Some(Candidate {
                exact: merge.iter().all(|(access, _)| access.exact),
                source: Source::Merge(MergedUnion { accesses: merge, part }),
                sorted: true,
            }));
        }
        Ok(Some(Candidate {
            exact: union.iter().all(|access| access.exact),
            source: Source::Union(Union { accesses: union, part }),
            sorted: self.sort_fields().is_none(),
        }))
    }
}

/// What an index is told of the conjuncts beside an `$or`, for each of its branches: those on its fields. One opaque
/// member stands for all others, which the index does not answer.
fn told_to<'c>(index: &Index, conjuncts: &[&'c Predicate]) -> Vec<&'c Predicate> {
    if index.wildcard().is_some() {
        return conjuncts.to_vec();
    }
    let fields = index.pattern().fields();
    let is_on_field = |part: &&&Predicate| match part {
        Predicate::Leaf(leaf) => fields.iter().any(|field| field.path() == leaf.path),
        _ => false,
    };
    let mut told: Vec<&Predicate> = conjuncts.iter().filter(is_on_field).copied().collect();
    if told.len() < conjuncts.len() {
        told.push(&Predicate::Opaque);
    }
    told
}
