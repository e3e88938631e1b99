//! `engine-soak`: random runs of engines for as long as asked.
//!
//! `run` draws plan after plan from a seed; each is a run on a simulated disk, one on the machine's, or a loop of
//! processes that are killed. When one fails it prints the plan's seed, with which `--once` repeats it, and keeps the
//! directory. `hold` works on any engine beside one snapshot that stays open.

#![allow(clippy::disallowed_macros, reason = "a tool that prints")]

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};
use engine::Engine;
use engine_betree::{BetreeEngine, BetreeOptions};
use engine_btree::{BtreeEngine, BtreeOptions};
use engine_inmemory::{InMemoryEngine, InMemoryOptions};
use engine_mmapv1::{Mmapv1Engine, Mmapv1Options};
use engine_soak::{Dice, Hold, KillLoop, Place, Plan, Run, Weights, child};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Clock, Env, FileSystem, Random, RealFs, SystemClock, SystemRandom};

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
        /// Runs of the engine betree instead of btree.
        #[arg(long)]
        betree: bool,
        /// Where directories are made.
        #[arg(long, default_value = "/tmp/engine-soak")]
        directory: PathBuf,
    },
    /// Random batches and checkpoints beside one snapshot that is held open all the time.
    Hold {
        /// The engine.
        #[arg(long)]
        engine: EngineName,
        /// Seconds to run.
        #[arg(long, default_value_t = 60)]
        seconds: u64,
        /// Where the batches come from; random when absent.
        #[arg(long)]
        seed: Option<u64>,
        /// The engine's memory in MiB.
        #[arg(long, default_value_t = 64)]
        memory_mb: u64,
        /// Where the engine's directory is made.
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
        #[arg(long)]
        betree: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EngineName {
    Btree,
    Betree,
    #[value(name = "inMemory")]
    InMemory,
    Mmapv1,
    #[cfg(feature = "rocksdb")]
    Rocksdb,
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
        Task::Child {
            directory,
            seed,
            betree,
        } => child(directory, seed, betree),
        Task::Hold {
            engine,
            seconds,
            seed,
            memory_mb,
            directory,
        } => {
            let seed = seed.unwrap_or_else(|| SystemRandom::new().next_u64());
            let root = directory.join(format!("hold-{engine:?}-{}-{seed}", std::process::id()).to_lowercase());
            println!("{engine:?}, --seed {seed}, in {}", root.display());
            hold(engine, seed, memory_mb << 20, Duration::from_secs(seconds), &root)?;
            RealFs::new().remove_directory_all(&root)?;
            Ok(())
        }
        Task::Run {
            seconds,
            seed,
            once,
            steps,
            only,
            betree,
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
                    one_run(kind, plan_seed, betree, steps, root.clone(), &clock, end)
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
                    let of_betree = if betree { " --betree" } else { "" };
                    println!("FAILED: {failure}");
                    println!(
                        "repeat with: run --once --only {name}{of_betree} --steps {steps} --seed {plan_seed}; files in {}",
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

fn one_run(
    kind: Kind,
    seed: u64,
    is_betree: bool,
    steps: usize,
    root: PathBuf,
    clock: &SystemClock,
    end: Duration,
) -> Result<()> {
    let (plan, place) = match kind {
        Kind::Kill => {
            let mut kills = KillLoop::new(root, seed, is_betree)?;
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
    let plan = if is_betree { plan.for_betree() } else { plan };
    let mut run = Run::new(plan, Weights::default(), place, Dice::new(seed));
    let mut left = steps;
    while left > 0 && clock.monotonic() < end {
        run.steps(left.min(100))?;
        left = left.saturating_sub(100);
    }
    run.finish()?;
    Ok(())
}

/// Prints a line a minute.
const REPORT_EVERY: Duration = Duration::from_secs(60);

fn hold(name: EngineName, seed: u64, memory_bytes: u64, time: Duration, root: &Path) -> Result<()> {
    let env = Place::real(root.to_owned()).env();
    let plan = Plan::wide(seed);
    let engine = open(name, &env, root, memory_bytes)?;
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let mut hold = Hold::new(plan, engine, Dice::new(seed));
    let mut reported = start;
    while clock.monotonic() - start < time {
        let held = hold.step()?;
        if clock.monotonic() - reported >= REPORT_EVERY {
            reported = clock.monotonic();
            println!("{:?} s: {held:?}", (reported - start).as_secs());
        }
    }
    let held = hold.finish()?;
    println!("no failure: {held:?}");
    Ok(())
}

fn open(name: EngineName, env: &Env, directory: &Path, memory_bytes: u64) -> Result<Arc<dyn Engine>> {
    Ok(match name {
        EngineName::Btree => {
            let options = BtreeOptions {
                cache_bytes: memory_bytes,
                ..BtreeOptions::default()
            };
            Arc::new(BtreeEngine::open(env, directory, options)?)
        }
        EngineName::Betree => {
            let options = BetreeOptions {
                cache_bytes: memory_bytes,
                ..BetreeOptions::default()
            };
            Arc::new(BetreeEngine::open(env, directory, options)?)
        }
        EngineName::InMemory => {
            let options = InMemoryOptions {
                memory_bytes,
                ..InMemoryOptions::default()
            };
            Arc::new(InMemoryEngine::open(env, directory, options)?)
        }
        EngineName::Mmapv1 => {
            let options = Mmapv1Options {
                first_file_bytes: 1 << 20,
                preallocate: false,
                ..Mmapv1Options::with_cache(memory_bytes)
            };
            Arc::new(Mmapv1Engine::open(env, directory, options)?)
        }
        #[cfg(feature = "rocksdb")]
        EngineName::Rocksdb => {
            let options = engine_rocksdb::RocksOptions {
                cache_size_bytes: memory_bytes,
                ..engine_rocksdb::RocksOptions::default()
            };
            Arc::new(engine_rocksdb::RocksEngine::open(env, directory, options)?)
        }
    })
}
