//! The race of candidate plans.
//!
//! Each candidate works in turns that grow fourfold, from its own state, until one has given as many results as a first
//! batch holds or has ended; it wins. When none has by the last turn, the one with most results for its work wins,
//! earlier candidates (see [`crate::plan::planner::Planner::rank`]) first among equals. The work of the race is thrown
//! away: the winner starts anew. Scripts are not run: the collection is locked meanwhile.

use super::context::{ExecContext, Run};
use super::stage::{Flow, Ran, Stage};
use crate::QueryError;
use crate::evaluation::EvaluationContext;
use crate::plan::planner::{Candidate, Planner};
use storage::CollectionGuard;

/// Results that end a race.
const RESULTS_MAX: u64 = 101;
/// Rows looked at in the first turn, and in all turns of one candidate.
const FIRST_TURN_ROWS: u32 = 32;
const LAST_TURN_ROWS: u32 = 8192;

/// How a race ended.
pub(crate) struct Outcome {
    /// Position among the candidates.
    pub(crate) winner: usize,
    /// Rows the winner looked at.
    pub(crate) works: u64,
    /// How far each candidate came, the winner first.
    pub(crate) tried: Vec<Stage>,
}

impl Outcome {
    fn of(mut runners: Vec<Runner>, winner: usize, works: u64) -> Self {
        runners.swap(0, winner);
        let tried = runners.into_iter().map(|mut runner| {
            runner.stage.save();
            runner.stage
        });
        Self {
            winner,
            works,
            tried: tried.collect(),
        }
    }
}

struct Runner {
    stage: Stage,
    results: u64,
    works: u64,
    /// It is not run again: what ended it may have taken long.
    has_failed: bool,
}

/// Runs the candidates against each other, at least one of them.
pub(crate) fn race(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    planner: &Planner<'_>,
    candidates: &[Candidate],
) -> Result<Outcome, QueryError> {
    let view = context.data().view()?;
    let evaluation = EvaluationContext::new(context.op).without_scripts();
    let mut runners = Vec::with_capacity(candidates.len());
    for candidate in candidates {
        runners.push(Runner {
            stage: planner.build(candidate)?,
            results: 0,
            works: 0,
            has_failed: false,
        });
    }
    let mut turn = FIRST_TURN_ROWS;
    while turn <= LAST_TURN_ROWS {
        let mut best: Option<(u64, usize)> = None;
        for (i, runner) in runners.iter_mut().enumerate().filter(|(_, runner)| !runner.has_failed) {
            let run = Run::with_budget(context, &view, guard, &evaluation, turn);
            let results = &mut runner.results;
            let ran = runner.stage.run(&run, &mut |_| {
                *results += 1;
                Ok(if *results >= RESULTS_MAX {
                    Flow::Stop
                } else {
                    Flow::Continue
                })
            });
            // A plan that fails (a sort out of memory) only loses the race.
            let Ok(ran) = ran else {
                runner.has_failed = true;
                continue;
            };
            runner.works += u64::from(turn - run.rows_left());
            if matches!(ran, Ran::Exhausted | Ran::Stopped) {
                let key = (runner.works, i);
                best = Some(best.map_or(key, |best| best.min(key)));
            }
        }
        if let Some((works, winner)) = best {
            return Ok(Outcome::of(runners, winner, works));
        }
        turn *= 4;
    }
    let score = |runner: &Runner| runner.results.saturating_mul(1 << 20) / runner.works.max(1);
    let mut winner = 0;
    for (i, runner) in runners.iter().enumerate() {
        if score(runner) > score(&runners[winner]) {
            winner = i;
        }
    }
    let works = runners[winner].works;
    Ok(Outcome::of(runners, winner, works))
}
