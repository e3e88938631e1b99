//! `engine-soak`: random runs of the btree engine for as long as asked.
//!
//! `run` draws plan after plan from a seed; each is a run on a simulated disk, one on the machine's, or a loop of processes that
//! are killed. When one fails it prints the plan's seed, with which `--once` repeats it, and keeps the directory.

#![allow(clippy::disallowed_macros, reason = "a tool that prints")]

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use engine_soak::{Dice, KillLoop, Place, Plan, Run, Weights, child};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;
use vfs::{Clock, FileSystem, Random, RealFs, SystemClock, SystemRandom};

#[derive(Parser)]
#[command(about = "Random runs of the btree engine against a model")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Runs until the time is over, or something fails.
    Run {
        /// Seconds to run.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Where the plans' seeds come from; random when absent.
        #[arg(long)]
        seed: Option<u64>,
        /// Only the plan of this very seed.
        #[arg(long)]
        once: bool,
        /// Steps of a run that is not killed.
        #[arg(long, default_value_t = 3000)]
        steps: usize,
        /// Only this kind of run.
        #[arg(long)]
        only: Option<Kind>,
        /// Where directories are made.
        #[arg(long, default_value = "/tmp/engine-soak")]
        directory: PathBuf,
    },
    /// What a killed process does; started by `run`.
    #[command(hide = true)]
    Child {
        #[arg(long)]
        directory: PathBuf,
        #[arg(long)]
        seed: u64,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// A simulated disk, tiny pages.
    Simulated,
    /// The machine's disk.
    Real,
    /// Processes that are killed.
    Kill,
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Task::Child { directory, seed } => child(directory, seed),
        Task::Run {
            seconds,
            seed,
            once,
            steps,
            only,
            directory,
        } => {
            let seeds = Dice::new(seed.unwrap_or_else(|| SystemRandom::new().next_u64()));
            let clock = SystemClock::new();
            let end = clock.monotonic() + Duration::from_secs(seconds);
            let mut runs = 0;
            while clock.monotonic() < end {
                let plan_seed = match seed {
                    Some(seed) if once => seed,
                    _ => seeds.next(),
                };
                let kind =
                    only.unwrap_or_else(|| Dice::new(plan_seed).one_of(&[Kind::Simulated, Kind::Real, Kind::Kill]));
                let root = directory.join(format!("{}-{plan_seed}", std::process::id()));
                println!("run {runs}: {kind:?} --seed {plan_seed}");
                let outcome = catch_unwind(AssertUnwindSafe(|| {
                    one_run(kind, plan_seed, steps, root.clone(), &clock, end)
                }));
                let failure = match outcome {
                    Ok(Ok(())) => None,
                    Ok(Err(error)) => Some(format!("{error:#}")),
                    Err(panic) => Some(match panic.downcast_ref::<String>() {
                        Some(text) => text.clone(),
                        None => panic.downcast_ref::<&str>().unwrap_or(&"a panic").to_string(),
                    }),
                };
                if let Some(failure) = failure {
                    let name = format!("{kind:?}").to_lowercase();
                    println!("FAILED: {failure}");
                    println!(
                        "repeat with: run --once --only {name} --steps {steps} --seed {plan_seed}; files in {}",
                        root.display()
                    );
                    anyhow::bail!("a run failed");
                }
                RealFs::new().remove_directory_all(&root)?;
                runs += 1;
                if once {
                    break;
                }
            }
            println!("{runs} runs, no failure");
            Ok(())
        }
    }
}

fn one_run(kind: Kind, seed: u64, steps: usize, root: PathBuf, clock: &SystemClock, end: Duration) -> Result<()> {
    let (plan, place) = match kind {
        Kind::Kill => {
            let mut kills = KillLoop::new(root, seed)?;
            while kills.round()? && kills.kills < 20 && clock.monotonic() < end {}
            println!("  {} kills", kills.kills);
            return Ok(());
        }
        Kind::Simulated => (Plan::tiny(seed), Place::simulated(seed)),
        Kind::Real => {
            RealFs::new().create_directory_all(&root)?;
            (Plan::wide(seed), Place::real(root))
        }
    };
    let mut run = Run::new(plan, Weights::default(), place, Dice::new(seed));
    let mut left = steps;
    while left > 0 && clock.monotonic() < end {
        run.steps(left.min(100))?;
        left = left.saturating_sub(100);
    }
    run.finish()?;
    Ok(())
}
