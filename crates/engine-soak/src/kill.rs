//! An engine in a process of its own that is killed, again and again, on the machine's file system.
//!
//! The child writes the events of a plan, one after the other, and notes each mark that a checkpoint answered with in a
//! file. The parent kills it at a random moment, computes from the plan what must be there at the recovered mark, and
//! compares. A killed process loses its memory and nothing it gave to the operating system.

use crate::check;
use crate::dice::Dice;
use crate::model::Model;
use crate::place::Place;
use crate::plan::{Event, Plan, event_at};
use anyhow::{Context, Result, ensure};
use engine::{CloseMode, Maintenance, Seq};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfs::{Access, Clock, FileSystem, RealFs, SystemClock};

/// Positions after which a directory is full enough, and a new plan begins.
const POSITIONS_MAX: u64 = 20_000;

fn marks(root: &Path) -> PathBuf {
    root.join("acknowledged")
}

fn note_mark(root: &Path, mark: Seq) -> std::io::Result<()> {
    let file = RealFs::new().open(&marks(root), Access::OpenOrCreate)?;
    file.write_all_at(&mark.0.to_le_bytes(), 0)
}

fn noted_mark(root: &Path) -> Seq {
    let mut bytes = [0; 8];
    let read = RealFs::new()
        .open(&marks(root), Access::Read)
        .and_then(|file| file.read_exact_at(&mut bytes, 0));
    read.map_or(Seq::ZERO, |()| Seq(u64::from_le_bytes(bytes)))
}

fn failure(root: &Path) -> PathBuf {
    root.join("failed")
}

/// For the parent, which would not see it otherwise when it kills the child while that comes to its end.
fn note_failure(root: &Path, what: &str) {
    let noted = RealFs::new()
        .open(&failure(root), Access::OpenOrCreate)
        .and_then(|file| file.write_all_at(what.as_bytes(), 0));
    if let Err(error) = noted {
        eprintln!("a failure cannot be noted: {error}");
    }
}

fn plan_of(seed: u64, is_betree: bool) -> Plan {
    let plan = Plan {
        late_loads: false,
        ..Plan::wide(seed)
    };
    if is_betree { plan.for_betree() } else { plan }
}

/// What must be there at a position.
fn model_at(plan: &Plan, mut model: Model, at: Seq) -> Model {
    while model.newest() < at {
        let seq = model.newest().next();
        match event_at(plan, &model, seq) {
            Event::Batch(batch) => model.apply(&batch, seq),
            Event::Load { create, table, rows } => {
                model.apply(&create, seq);
                model.load(table, &rows, seq);
            }
        }
        model.forget_below(seq);
    }
    model
}

/// What the child does until it is killed.
pub fn child(root: PathBuf, seed: u64, is_betree: bool) -> Result<()> {
    let (print, place) = (std::panic::take_hook(), root.clone());
    std::panic::set_hook(Box::new(move |panic| {
        note_failure(&place, &panic.to_string());
        print(panic);
    }));
    write_on(&root, seed, is_betree).inspect_err(|error| note_failure(&root, &format!("{error:#}")))
}

fn write_on(root: &Path, seed: u64, is_betree: bool) -> Result<()> {
    let plan = plan_of(seed, is_betree);
    let place = Place::real(root.to_path_buf());
    let engine = plan.open(&place.env(), &place.directory())?;
    let mut model = model_at(&plan, Model::default(), engine.durable_seq());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let dice = Dice::new(seed ^ engine.durable_seq().0);
            while !stop.load(Ordering::Acquire) {
                let done = match dice.below(20) {
                    0 => engine
                        .maintain(&Maintenance::Compact(None))
                        .map(|_| engine.durable_seq()),
                    _ => engine.checkpoint(),
                };
                match done {
                    Ok(mark) => note_mark(root, mark).expect("the file of marks can be written"),
                    Err(error) => panic!("{error}"),
                }
                std::thread::yield_now();
            }
        });
        // Whatever becomes of the writer, the other thread stops: a panic must end the process.
        let _stop = scopeguard::guard(&stop, |stop| stop.store(true, Ordering::Release));
        (|| -> Result<()> {
            while model.newest().0 < POSITIONS_MAX {
                let seq = model.newest().next();
                match event_at(&plan, &model, seq) {
                    Event::Batch(batch) => {
                        model.apply(&batch, seq);
                        engine.apply(&batch, seq)?;
                    }
                    Event::Load { create, table, rows } => {
                        model.apply(&create, seq);
                        model.load(table, &rows, seq);
                        engine.apply(&create, seq)?;
                        engine.bulk_load(table, &mut rows.into_iter(), seq)?;
                    }
                }
                engine.publish(seq);
                model.forget_below(seq);
            }
            Ok(())
        })()
    })
}

/// See the module.
pub struct KillLoop {
    root: PathBuf,
    seed: u64,
    plan: Plan,
    /// What must be there at the last recovered mark.
    model: Model,
    dice: Dice,
    /// Times that a process was killed.
    pub kills: u64,
}

impl KillLoop {
    /// A loop in an empty directory.
    pub fn new(root: PathBuf, seed: u64, is_betree: bool) -> Result<Self> {
        RealFs::new()
            .create_directory_all(&root)
            .context("create the directory")?;
        Ok(Self {
            root,
            seed,
            plan: plan_of(seed, is_betree),
            model: Model::default(),
            dice: Dice::new(seed),
            kills: 0,
        })
    }

    /// Starts a child, kills it, and looks at what it left. False when the plan has come to its end.
    pub fn round(&mut self) -> Result<bool> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["child", "--seed", &self.seed.to_string(), "--directory"])
            .arg(&self.root)
            .args(self.plan.betree.is_some().then_some("--betree"))
            .stdout(Stdio::null())
            .spawn()
            .context("start a child")?;
        let clock = SystemClock::new();
        let until = clock.monotonic() + Duration::from_millis(self.dice.within(20, 1500));
        let mut ended = None;
        while ended.is_none() && clock.monotonic() < until {
            ended = child.try_wait()?;
            std::thread::park_timeout(Duration::from_millis(5));
        }
        if ended.is_none() {
            child.kill()?;
            self.kills += 1;
        }
        let status = child.wait()?;
        ensure!(ended.is_none() || status.success(), "the child failed: {status}");
        ensure!(
            !RealFs::new().exists(&failure(&self.root))?,
            "the child failed before it was killed: {}",
            failure(&self.root).display()
        );
        self.look()?;
        Ok(self.model.newest().0 < POSITIONS_MAX && ended.is_none())
    }

    fn look(&mut self) -> Result<()> {
        let place = Place::real(self.root.clone());
        let acknowledged = noted_mark(&self.root);
        let engine = self.plan.open(&place.env(), &place.directory())?;
        let mark = engine.durable_seq();
        ensure!(
            mark >= acknowledged && mark >= self.model.newest(),
            "{mark:?} came back; {acknowledged:?} was durable"
        );
        self.model = model_at(&self.plan, std::mem::take(&mut self.model), mark);
        check::engine_is_the_model(&*engine, &self.model, mark, "after a kill")?;
        check::engine_is_sound(&*engine, "after a kill")?;
        engine.close(CloseMode::Abandon)?;
        Ok(())
    }
}
