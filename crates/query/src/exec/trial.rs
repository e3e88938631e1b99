//! The race of candidate plans, and the trial of a cached one.
//!
//! Each candidate works in turns that grow fourfold, from its own state, until one has given as many results as a first
//! batch holds or has ended; it wins. When none has by the last turn, the one with most results for its work wins,
//! earlier candidates (see [`crate::plan::planner::Planner::rank`]) first among equals, and one that failed only when
//! all did. The work of the race is thrown away: the winner starts anew. Scripts are not run: the collection is locked
//! meanwhile.
//!
//! A cached plan runs alone, and what it gives is held back until it has given a first batch or has ended. It fails
//! where it works many times what it did in its race: the values of this query are not those that it won for. Then
//! nothing of it has been seen, and there is a race. After a trial that it stood it is watched no more. The collection
//! is locked meanwhile, so a trial that takes long ends, and so does one for which somebody waits who wants the
//! collection for itself, with all who come behind: the plan goes on from there as one that stood it. One that
//! waits for a transaction ends no trial: it would not have the collection sooner, and readers pass it.
//!
//! One that a `$lookup` starts anew, for the next document with other values of its variables, is tried each time:
//! what it gives is held back where it is read ahead in any case, and nothing is locked that a run would not lock
//! ([`super::executor::Planned::try_anew`]).

use super::context::{ExecContext, Run};
use super::held::HeldRows;
use super::stage::{Flow, Ran, Stage};
use crate::QueryError;
use crate::evaluation::{EvaluationContext, is_interruption};
use crate::plan::cache::{WORKS_FACTOR, WORKS_MIN};
use crate::plan::planner::{Candidate, Planner};
use std::time::Duration;
use storage::{CollectionGuard, StorageError};

/// Results that end a race, or the trial of a cached plan.
pub(crate) const RESULTS_MAX: u64 = 101;
/// Bytes that the trial of a cached plan holds back.
const HELD_BYTES_MAX: usize = 4 << 20;
/// The trial of a cached plan ends after this time.
const TIME_MAX: Duration = Duration::from_secs(1);
/// Rows looked at in the first turn, and in all turns of one candidate.
const FIRST_TURN_ROWS: u32 = 32;
const LAST_TURN_ROWS: u32 = 8192;

/// How a race ended.
pub(crate) struct Outcome {
    /// Position among the candidates.
    pub(crate) winner: usize,
    /// Rows the winner looked at.
    pub(crate) works: u64,
    /// The winner had given a first batch or had ended. It needs more than `works` otherwise.
    pub(crate) is_decided: bool,
    /// The winner has failed, as all others have.
    pub(crate) has_failed: bool,
    /// How far each candidate came, the winner first.
    pub(crate) tried: Vec<Stage>,
}

impl Outcome {
    fn of(mut runners: Vec<Runner>, winner: usize, is_decided: bool) -> Self {
        runners.swap(0, winner);
        let (works, has_failed) = (runners[0].works, runners[0].has_failed);
        let tried = runners.into_iter().map(|mut runner| {
            runner.stage.save();
            runner.stage
        });
        Self {
            winner,
            works,
            is_decided,
            has_failed,
            tried: tried.collect(),
        }
    }
}

/// How the trial of a cached plan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trial {
    /// The plan goes on.
    Stood,
    /// It worked much more than in its race.
    TooMuchWork,
    /// It ended with an error. That may be this query's fault: for others of its shape the plan is as good as before.
    Failed,
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
            let results = &mut runner.results;
            let run = Run::new(context, &view, guard, &evaluation)
                .looking_at(turn)
                .giving(RESULTS_MAX.saturating_sub(*results));
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
        if let Some((_, winner)) = best {
            return Ok(Outcome::of(runners, winner, true));
        }
        turn *= 4;
    }
    let score = |runner: &Runner| runner.results.saturating_mul(1 << 20) / runner.works.max(1);
    // What one that failed has given came with work that was not counted.
    let mut winner: Option<usize> = None;
    for (i, runner) in runners.iter().enumerate().filter(|(_, runner)| !runner.has_failed) {
        if winner.is_none_or(|best| score(runner) > score(&runners[best])) {
            winner = Some(i);
        }
    }
    Ok(Outcome::of(runners, winner.unwrap_or(0), false))
}

/// The rows that a cached plan may look at in its trial, by the work of its race.
pub(crate) fn rows_of_trial(works: u64) -> u32 {
    let works_max = works.max(WORKS_MIN).saturating_mul(WORKS_FACTOR);
    u32::try_from(works_max).unwrap_or(u32::MAX)
}

/// Runs a cached plan until it has given `results_max` rows, as many as may be held back, or all of them, or until it
/// has failed. What it has given is in `held`. `works` is the work of its race.
pub(crate) fn try_cached(
    context: ExecContext<'_>,
    guard: &CollectionGuard,
    stage: &mut Stage,
    works: u64,
    results_max: u64,
    held: &mut HeldRows,
) -> Result<Trial, QueryError> {
    let started = context.op.clock().monotonic();
    let evaluation = EvaluationContext::new(context.op).with_scripts(context.scripts);
    let mut left = rows_of_trial(works);
    loop {
        let view = context.data().view()?;
        let run = Run::new(context, &view, guard, &evaluation)
            .looking_at(left)
            .giving(results_max.saturating_sub(held.len() as u64));
        let ran = stage.run(&run, &mut |row| {
            held.push(&row, &evaluation)?;
            let is_enough = held.len() as u64 >= results_max || held.bytes() >= HELD_BYTES_MAX;
            Ok(if is_enough { Flow::Stop } else { Flow::Continue })
        });
        stage.save();
        match ran {
            Ok(Ran::Yield) => {
                left = run.rows_left();
                if left == 0 {
                    return Ok(Trial::TooMuchWork);
                }
                let time = context.op.clock().monotonic().saturating_sub(started);
                if time >= TIME_MAX || guard.keeps_others_out() {
                    return Ok(Trial::Stood);
                }
            }
            Ok(ran) => {
                held.are_all = ran == Ran::Exhausted;
                return Ok(Trial::Stood);
            }
            Err(error) if is_interruption(&error) => return Err(error),
            Err(_) => {
                context.op.check_now().map_err(StorageError::from)?;
                return Ok(Trial::Failed);
            }
        }
    }
}
