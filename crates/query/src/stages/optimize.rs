//! Moving and merging stages.
//!
//! Rules, applied until none does anything: neighbouring `$match`, `$limit` and `$skip` merge; a `$match` (or the parts
//! of its conjunction that can) goes ahead of stages that do not touch what it reads; `$limit` and `$skip` go ahead of
//! stages that make one document of each; `$sort` learns how many documents are wanted. Each rule shortens the pipeline
//! or moves a stage forward, so this ends.
//!
//! A `$match` is taken ahead of all the stages that it may pass at once, and nothing of it is copied: it may be as
//! large as a message, and the stages a thousand.

use super::StageSpec;
use super::pushdown::dependencies;
use crate::expression::{Dependencies, ExpressionContext};
use crate::matcher::{MatchExpr, Matcher};
use bson::RawDocumentBuf;
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn optimize(stages: &mut Vec<StageSpec>, context: &ExpressionContext) {
    for stage in stages.iter_mut() {
        if let StageSpec::Facet(facets) = stage {
            facets.iter_mut().for_each(|(_, pipeline)| pipeline.optimize());
        }
    }
    let mut place = 0;
    while place < stages.len() {
        let changed = if is_always_true(&stages[place]) {
            stages.remove(place);
            Some(place)
        } else if place + 1 < stages.len() {
            improve_pair(stages, place, context)
        } else {
            None
        };
        // A stage that has moved forward may go on: look again from one before.
        place = changed.map_or(place + 1, |first| first.saturating_sub(1));
    }
    for stage in stages.iter_mut() {
        if let StageSpec::Match { filter, matcher } = stage
            && filter.is_empty()
        {
            *filter = matcher.to_document();
        }
    }
    for place in 0..stages.len() {
        limit_sort(stages, place);
    }
    for place in 0..stages.len() {
        let (ahead, behind) = stages.split_at_mut(place + 1);
        if let Some(StageSpec::Unpack(unpack)) = ahead.last_mut() {
            unpack.set_needed(&dependencies(behind));
        }
    }
}

fn is_always_true(stage: &StageSpec) -> bool {
    matches!(stage, StageSpec::Match { matcher, .. } if matcher.is_always_true())
}

/// Moves what is behind the making of measurements to the buckets. Returns whether anything changed.
fn improve_unpacking(stages: &mut Vec<StageSpec>, place: usize, context: &ExpressionContext) -> bool {
    let [StageSpec::Unpack(unpack), next] = &mut stages[place..=place + 1] else {
        return false;
    };
    match next {
        // Chance counts how many documents it is asked about, and a text is searched for by an index.
        StageSpec::Match { matcher, .. } if !is_random(matcher.root()) && matcher.text().is_none() => {
            let Ok(ahead) = unpack.take_match(matcher) else {
                return false;
            };
            stages.remove(place + 1);
            if !ahead.is_empty() {
                let collator = context.comparer.shared_collator();
                let matcher = Matcher::from_expr(MatchExpr::and(ahead), collator);
                let filter = matcher.to_document();
                stages.insert(place, StageSpec::Match { filter, matcher });
            }
            true
        }
        StageSpec::Sort { pattern, .. } => {
            let Ok(Some(on_buckets)) = unpack.take_sort(pattern, context) else {
                return false;
            };
            let on_buckets = StageSpec::Sort {
                pattern: on_buckets,
                limit: None,
            };
            stages.remove(place + 1);
            stages.insert(place, on_buckets);
            true
        }
        _ => false,
    }
}

/// Applies one rule to the stages at `place` and after it. Returns the first place where anything changed.
fn improve_pair(stages: &mut Vec<StageSpec>, place: usize, context: &ExpressionContext) -> Option<usize> {
    if improve_unpacking(stages, place, context) {
        return Some(place);
    }
    match (&stages[place], &stages[place + 1]) {
        (StageSpec::Limit(a), StageSpec::Limit(b)) => {
            stages[place] = StageSpec::Limit(*a.min(b));
            stages.remove(place + 1);
            Some(place)
        }
        (StageSpec::Skip(a), StageSpec::Skip(b)) => {
            stages[place] = StageSpec::Skip(a.saturating_add(*b));
            stages.remove(place + 1);
            Some(place)
        }
        // Scores are known behind the search, and not while it goes on.
        (before, StageSpec::Match { matcher, .. }) if before.searches() && is_random(matcher.root()) => None,
        // All in a row at once: what is in front of them may look at every part.
        (StageSpec::Match { .. }, StageSpec::Match { .. }) => {
            let mut end = place;
            let mut searches = false;
            while let Some(stage) = stages.get(end)
                && let StageSpec::Match { matcher, .. } = stage
                && !(searches && is_random(matcher.root()))
            {
                searches |= stage.searches();
                end += 1;
            }
            let parts = stages.drain(place..end).flat_map(conjuncts).collect();
            stages.insert(place, match_of(parts, context));
            Some(place)
        }
        (before, StageSpec::Limit(_) | StageSpec::Skip(_)) if makes_one_of_each(before) => {
            stages.swap(place, place + 1);
            Some(place)
        }
        (_, StageSpec::Match { .. }) => move_ahead(stages, place + 1, context),
        _ => None,
    }
}

fn makes_one_of_each(stage: &StageSpec) -> bool {
    matches!(
        stage,
        StageSpec::Project { .. } | StageSpec::ReplaceRoot { .. } | StageSpec::Lookup(_) | StageSpec::GraphLookup(_)
    )
}

/// The conjuncts of a `$match`.
fn conjuncts(stage: StageSpec) -> Vec<MatchExpr> {
    match stage {
        StageSpec::Match { matcher, .. } => match matcher.into_root() {
            MatchExpr::And(parts) => parts,
            other => vec![other],
        },
        _ => Vec::new(),
    }
}

/// The stage of these conjuncts. Its document is made when it has its place.
fn match_of(mut parts: Vec<MatchExpr>, context: &ExpressionContext) -> StageSpec {
    let root = match (parts.pop(), parts.is_empty()) {
        (None, _) => MatchExpr::AlwaysTrue,
        (Some(only), true) => only,
        (Some(last), false) => {
            parts.push(last);
            MatchExpr::And(parts)
        }
    };
    StageSpec::Match {
        filter: RawDocumentBuf::new(),
        matcher: Matcher::from_expr(root, context.comparer.shared_collator()),
    }
}

/// Takes the parts of the `$match` at `place` ahead of the stages that they may be tested before, each as far as it
/// may go. Returns the first place that has a part now; `None` where all stay.
fn move_ahead(stages: &mut Vec<StageSpec>, place: usize, context: &ExpressionContext) -> Option<usize> {
    let (before, behind) = stages.split_at(place);
    let Some(StageSpec::Match { matcher, .. }) = behind.first() else {
        return None;
    };
    let parts = match matcher.root() {
        MatchExpr::And(parts) => parts.as_slice(),
        other => std::slice::from_ref(other),
    };
    // What the parts read is not looked up in vain.
    if !before.last().is_some_and(may_be_passed) {
        return None;
    }
    let mut moving = Moving::new(parts);
    // Where parts end up, and which: the last places first.
    let mut stops: Vec<(usize, BTreeSet<usize>)> = Vec::new();
    let mut at = place;
    while let Some(stage) = at.checked_sub(1).map(|last| &before[last])
        && !moving.parts.is_empty()
    {
        let Some(stopped) = moving.stop_before(stage) else {
            break;
        };
        if !stopped.is_empty() {
            stops.push((at, stopped));
        }
        at -= 1;
    }
    if at == place
        || stops
            .first()
            .is_some_and(|(at, stopped)| *at == place && stopped.len() == parts.len())
    {
        return None;
    }
    if !moving.parts.is_empty() {
        stops.push((at, moving.parts.into_keys().collect()));
    }
    let mut parts: Vec<Option<MatchExpr>> = conjuncts(stages.remove(place)).into_iter().map(Some).collect();
    for (at, stopped) in &stops {
        let there = stopped.iter().filter_map(|part| parts[*part].take()).collect();
        stages.insert(*at, match_of(there, context));
    }
    stops.last().map(|(at, _)| *at)
}

/// Whether a `$match` may be tested before a stage of this kind, if it reads nothing that the stage changes. See
/// [`Moving::stop_before`].
fn may_be_passed(stage: &StageSpec) -> bool {
    matches!(
        stage,
        StageSpec::Planned(_)
            | StageSpec::Sort { limit: None, .. }
            | StageSpec::Project { changed: Some(_), .. }
            | StageSpec::Unwind(_)
            | StageSpec::Lookup(_)
            | StageSpec::GraphLookup(_)
    )
}

/// Parts of a filter on their way ahead, by what they read.
struct Moving<'m> {
    /// By their numbers.
    parts: BTreeMap<usize, (&'m MatchExpr, Dependencies)>,
    /// Those that read a path.
    by_path: BTreeMap<String, BTreeSet<usize>>,
    /// Those that pass nothing that changes documents.
    fixed: BTreeSet<usize>,
}

impl<'m> Moving<'m> {
    fn new(parts: &'m [MatchExpr]) -> Self {
        let mut moving = Self {
            parts: BTreeMap::new(),
            by_path: BTreeMap::new(),
            fixed: BTreeSet::new(),
        };
        for (number, part) in parts.iter().enumerate() {
            let mut read = Dependencies::default();
            part.add_dependencies(&mut read);
            if read.whole_document || is_random(part) {
                moving.fixed.insert(number);
            }
            for path in &read.paths {
                match moving.by_path.get_mut(path) {
                    Some(parts) => parts.insert(number),
                    None => moving.by_path.entry(path.clone()).or_default().insert(number),
                };
            }
            moving.parts.insert(number, (part, read));
        }
        moving
    }

    /// Takes off those that may not be tested before `stage`; `None` where none may be.
    fn stop_before(&mut self, stage: &StageSpec) -> Option<BTreeSet<usize>> {
        let stopped = match stage {
            StageSpec::Planned(stage) => {
                let stays = |(number, (part, read)): (&usize, &(&MatchExpr, Dependencies))| {
                    (!stage.lets_ahead(part, read)).then_some(*number)
                };
                self.parts.iter().filter_map(stays).collect()
            }
            StageSpec::Sort { limit: None, .. } => BTreeSet::new(),
            StageSpec::Project {
                changed: Some(changed), ..
            } => self.touched_by(changed),
            StageSpec::Unwind(unwind) => {
                let index = unwind.index().map(|path| replaced(&path.to_string()));
                let touched: Vec<String> = index.into_iter().chain([unwind.path().to_string()]).collect();
                self.touched_by(&touched)
            }
            StageSpec::Lookup(lookup) => self.touched_by(&[replaced(&lookup.target().to_string())]),
            StageSpec::GraphLookup(lookup) => self.touched_by(&[replaced(&lookup.target().to_string())]),
            _ => return None,
        };
        for number in &stopped {
            let Some((_, read)) = self.parts.remove(number) else {
                continue;
            };
            self.fixed.remove(number);
            for path in &read.paths {
                if let Some(parts) = self.by_path.get_mut(path) {
                    parts.remove(number);
                }
            }
        }
        Some(stopped)
    }

    /// Those that read one of these paths, what is below it, or what it is in.
    fn touched_by(&self, paths: &[String]) -> BTreeSet<usize> {
        if paths.is_empty() {
            return BTreeSet::new();
        }
        let mut touched = self.fixed.clone();
        for path in paths {
            let ends = path.match_indices('.').map(|(dot, _)| dot).chain([path.len()]);
            let above = ends.filter_map(|end| self.by_path.get(&path[..end]));
            let inside = format!("{path}.");
            let below = self.by_path.range(inside.clone()..);
            let below = below
                .take_while(|(other, _)| other.starts_with(&inside))
                .map(|(_, parts)| parts);
            touched.extend(above.chain(below).flatten());
        }
        touched
    }
}

/// Whether a filter is a matter of chance: then it counts how many documents it is asked about.
fn is_random(part: &MatchExpr) -> bool {
    match part {
        MatchExpr::And(parts) | MatchExpr::Or(parts) | MatchExpr::Nor(parts) => parts.iter().any(is_random),
        MatchExpr::Not(part) => is_random(part),
        MatchExpr::Expr(predicate) => predicate.expression.is_random(),
        MatchExpr::Where(_) => true,
        MatchExpr::AlwaysTrue
        | MatchExpr::AlwaysFalse
        | MatchExpr::Path { .. }
        | MatchExpr::Schema(_)
        | MatchExpr::Text(_) => false,
    }
}

/// What setting a value at a path may change: a scalar or an array on the way becomes a document.
pub(super) fn replaced(path: &str) -> String {
    path.split('.').next().unwrap_or(path).to_owned()
}

/// Tells a `$sort` how many documents the stages behind it let through.
fn limit_sort(stages: &mut Vec<StageSpec>, place: usize) {
    let mut skipped = 0_u64;
    let mut wanted = None;
    for (offset, stage) in stages.iter().enumerate().skip(place + 1) {
        match stage {
            StageSpec::Skip(n) => skipped = skipped.saturating_add(*n),
            StageSpec::Limit(n) => {
                wanted = Some((offset, skipped.saturating_add(*n)));
                break;
            }
            _ => break,
        }
    }
    let Some((offset, wanted)) = wanted else { return };
    let Some(StageSpec::Sort { limit, .. }) = stages.get_mut(place) else {
        return;
    };
    *limit = Some(limit.map_or(wanted, |old| old.min(wanted)));
    if skipped == 0 {
        stages.remove(offset);
    }
}
