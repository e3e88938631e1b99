//! Moving and merging stages.
//!
//! Rules, applied until none does anything: neighbouring `$match`, `$limit` and `$skip` merge; a `$match` (or the parts
//! of its conjunction that can) goes ahead of stages that do not touch what it reads; `$limit` and `$skip` go ahead of
//! stages that make one document of each; `$sort` learns how many documents are wanted. Each rule shortens the pipeline
//! or moves a stage forward, so this ends.

use super::StageSpec;
use super::pushdown::dependencies;
use crate::expression::{Dependencies, ExpressionContext};
use crate::matcher::{MatchExpr, Matcher};

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
            true
        } else {
            place + 1 < stages.len() && improve_pair(stages, place, context)
        };
        // A stage that has moved forward may go on: look again from one before.
        place = if changed { place.saturating_sub(1) } else { place + 1 };
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

/// Applies one rule to the stages at `place` and after it. Returns whether anything changed.
fn improve_pair(stages: &mut Vec<StageSpec>, place: usize, context: &ExpressionContext) -> bool {
    if improve_unpacking(stages, place, context) {
        return true;
    }
    match (&stages[place], &stages[place + 1]) {
        (StageSpec::Limit(a), StageSpec::Limit(b)) => {
            stages[place] = StageSpec::Limit(*a.min(b));
            stages.remove(place + 1);
            true
        }
        (StageSpec::Skip(a), StageSpec::Skip(b)) => {
            stages[place] = StageSpec::Skip(a.saturating_add(*b));
            stages.remove(place + 1);
            true
        }
        // Scores are known behind the search, and not while it goes on.
        (before, StageSpec::Match { matcher, .. }) if before.searches() && is_random(matcher.root()) => false,
        (StageSpec::Match { matcher: a, .. }, StageSpec::Match { matcher: b, .. }) => {
            let both = conjuncts(a).into_iter().chain(conjuncts(b)).collect();
            stages[place] = match_of(both, context);
            stages.remove(place + 1);
            true
        }
        (before, StageSpec::Limit(_) | StageSpec::Skip(_)) if makes_one_of_each(before) => {
            stages.swap(place, place + 1);
            true
        }
        (before, StageSpec::Match { matcher, .. }) => match split(matcher, before) {
            None => false,
            Some((ahead, rest)) => {
                let ahead = match_of(ahead, context);
                if rest.is_empty() {
                    stages.remove(place + 1);
                } else {
                    stages[place + 1] = match_of(rest, context);
                }
                stages.insert(place, ahead);
                true
            }
        },
        _ => false,
    }
}

fn makes_one_of_each(stage: &StageSpec) -> bool {
    matches!(
        stage,
        StageSpec::Project { .. } | StageSpec::ReplaceRoot { .. } | StageSpec::Lookup(_) | StageSpec::GraphLookup(_)
    )
}

fn conjuncts(matcher: &Matcher) -> Vec<MatchExpr> {
    match matcher.root() {
        MatchExpr::And(parts) => parts.clone(),
        other => vec![other.clone()],
    }
}

fn match_of(mut parts: Vec<MatchExpr>, context: &ExpressionContext) -> StageSpec {
    let root = match (parts.pop(), parts.is_empty()) {
        (None, _) => MatchExpr::AlwaysTrue,
        (Some(only), true) => only,
        (Some(last), false) => {
            parts.push(last);
            MatchExpr::And(parts)
        }
    };
    let matcher = Matcher::from_expr(root, context.comparer.shared_collator());
    StageSpec::Match {
        filter: matcher.to_document(),
        matcher,
    }
}

/// The parts of a filter that may be tested before `stage`, and the others. `None` when there are no such parts.
fn split(matcher: &Matcher, stage: &StageSpec) -> Option<(Vec<MatchExpr>, Vec<MatchExpr>)> {
    if let StageSpec::Planned(stage) = stage {
        let lets_ahead = |part: &MatchExpr| {
            let mut read = Dependencies::default();
            part.add_dependencies(&mut read);
            stage.lets_ahead(part, &read)
        };
        let (ahead, rest): (Vec<_>, Vec<_>) = conjuncts(matcher).into_iter().partition(lets_ahead);
        return (!ahead.is_empty()).then_some((ahead, rest));
    }
    let touched: Vec<String> = match stage {
        StageSpec::Sort { limit: None, .. } => Vec::new(),
        StageSpec::Project {
            changed: Some(changed), ..
        } => changed.clone(),
        StageSpec::Unwind(unwind) => unwind
            .index()
            .map(|path| replaced(&path.to_string()))
            .into_iter()
            .chain([unwind.path().to_string()])
            .collect(),
        StageSpec::Lookup(lookup) => vec![replaced(&lookup.target().to_string())],
        StageSpec::GraphLookup(lookup) => vec![replaced(&lookup.target().to_string())],
        _ => return None,
    };
    let (ahead, rest): (Vec<_>, Vec<_>) = conjuncts(matcher)
        .into_iter()
        .partition(|part| is_independent(part, &touched));
    (!ahead.is_empty()).then_some((ahead, rest))
}

fn is_independent(part: &MatchExpr, touched: &[String]) -> bool {
    let mut read = Dependencies::default();
    part.add_dependencies(&mut read);
    if touched.is_empty() {
        return true;
    }
    !is_random(part)
        && !read.whole_document
        && read
            .paths
            .iter()
            .all(|path| touched.iter().all(|other| !overlap(path, other)))
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

/// Whether one path is the other or leads into it.
fn overlap(a: &str, b: &str) -> bool {
    let leads_into = |short: &str, long: &str| {
        long.strip_prefix(short)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    leads_into(a, b) || leads_into(b, a)
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
