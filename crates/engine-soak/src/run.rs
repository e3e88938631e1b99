//! One thread that does everything to an engine, and compares.

use crate::check;
use crate::dice::Dice;
use crate::model::Model;
use crate::place::{Place, copy_file};
use crate::plan::{Event, Plan, random_event};
use crate::subject::Subject;
use engine::{CloseMode, ErrorKind, Maintenance, Result, Seq, Snapshot};
use std::sync::Arc;

/// How often each thing is done, in thousandths; what is left is writing.
#[derive(Clone, Copy, Debug)]
pub struct Weights {
    /// Opening a snapshot.
    pub open_view: u64,
    /// Comparing a snapshot, or the newest state.
    pub read: u64,
    /// Comparing all of a snapshot.
    pub read_all: u64,
    /// Closing a snapshot.
    pub drop_view: u64,
    /// Checkpoints.
    pub checkpoint: u64,
    /// Checking pages and space.
    pub verify: u64,
    /// Giving space back.
    pub compact: u64,
    /// Closing and opening.
    pub reopen: u64,
    /// Crashing and opening.
    pub crash: u64,
    /// Backing up and opening the copy.
    pub backup: u64,
}

impl Default for Weights {
    fn default() -> Self {
        Self {
            open_view: 50,
            read: 120,
            read_all: 10,
            drop_view: 45,
            checkpoint: 50,
            verify: 8,
            compact: 8,
            reopen: 8,
            crash: 8,
            backup: 4,
        }
    }
}

/// See the module.
pub struct Run {
    plan: Plan,
    weights: Weights,
    place: Place,
    dice: Dice,
    model: Model,
    views: Vec<Arc<dyn Snapshot>>,
    engine: Option<Arc<dyn Subject>>,
    /// The newest mark that a checkpoint answered with.
    acknowledged: Seq,
    published: Seq,
    backups: u64,
    /// How many of the checkpoints on a simulated disk are looked at in a copy, in percent.
    pub copies_percent: u64,
}

impl Run {
    /// Opens an engine at a place without files.
    pub fn new(plan: Plan, weights: Weights, place: Place, dice: Dice) -> Self {
        Self {
            plan,
            weights,
            place,
            dice,
            model: Model::default(),
            views: Vec::new(),
            engine: None,
            acknowledged: Seq::ZERO,
            published: Seq::ZERO,
            backups: 0,
            copies_percent: 20,
        }
    }

    /// The place.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// What must be in the engine.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The choices.
    pub fn dice(&self) -> &Dice {
        &self.dice
    }

    /// The engine that is open.
    pub fn engine(&self) -> &dyn Subject {
        &**self.engine.as_ref().expect("it is open between steps")
    }

    /// Whether an engine is open and answers. After an error it need not be: the step may have closed it, or it
    /// stopped.
    pub fn is_working(&self) -> bool {
        self.engine.as_ref().is_some_and(|engine| engine.snapshot().is_ok())
    }

    /// Does `steps` things. An error is the engine's, and expected only where the disk was made to fail.
    pub fn steps(&mut self, steps: usize) -> Result<()> {
        if self.engine.is_none() {
            self.open()?;
        }
        for _ in 0..steps {
            self.step()?;
        }
        Ok(())
    }

    /// Compares everything, at the end of a run.
    pub fn finish(&mut self) -> Result<()> {
        for view in self.views.clone() {
            let outcome = check::view_is_the_model(&view, &self.model, "a view at the end");
            self.unless_ended(&view, outcome)?;
        }
        self.views.clear();
        let engine = self.engine.clone().expect("it is open");
        check::engine_is_the_model(&*engine, &self.model, self.published, "at the end")?;
        check::engine_is_sound(&*engine, "at the end")
    }

    fn step(&mut self) -> Result<()> {
        let mut chance = self.dice.below(1000);
        let weights = self.weights;
        let mut is = |weight: u64| {
            let hit = chance < weight;
            chance = chance.wrapping_sub(weight);
            if hit {
                chance = u64::MAX;
            }
            hit
        };
        if is(weights.open_view) {
            self.views.push(self.engine().snapshot()?);
            if self.views.len() > 12 {
                self.views.remove(0);
            }
            Ok(())
        } else if is(weights.read) {
            let view = self.some_view()?;
            let outcome = check::ranges_are_the_model(&view, &self.model, self.plan.keys, &self.dice, "a view");
            self.unless_ended(&view, outcome)
        } else if is(weights.read_all) {
            let view = self.some_view()?;
            let outcome = check::view_is_the_model(&view, &self.model, "a view");
            self.unless_ended(&view, outcome)
        } else if is(weights.drop_view) {
            if !self.views.is_empty() {
                self.views
                    .swap_remove(self.dice.below(self.views.len() as u64) as usize);
                self.forget();
            }
            Ok(())
        } else if is(weights.checkpoint) {
            self.checkpoint()
        } else if is(weights.verify) {
            check::engine_is_sound(self.engine(), "a check")
        } else if is(weights.compact) {
            let tables = self.model.tables_at(self.published);
            let tables = (self.dice.percent(50) && !tables.is_empty()).then(|| vec![self.dice.one_of(&tables).0]);
            self.engine().maintain(&Maintenance::Compact(tables)).map(|_| ())?;
            self.acknowledged = self.acknowledged.max(self.engine().durable_seq());
            Ok(())
        } else if is(weights.reopen) {
            self.reopen()
        } else if is(weights.crash) {
            self.crash();
            self.recover()
        } else if is(weights.backup) {
            self.back_up()
        } else {
            self.write()
        }
    }

    fn some_view(&self) -> Result<Arc<dyn Snapshot>> {
        match self.dice.below(self.views.len() as u64 + 1) as usize {
            0 => self.engine().snapshot(),
            number => Ok(self.views[number - 1].clone()),
        }
    }

    /// What was found in a view, unless the engine has ended it: it keeps a bounded history. It never ends the newest.
    fn unless_ended(&mut self, view: &Arc<dyn Snapshot>, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(error) if error.kind() == ErrorKind::SnapshotTooOld && view.seq() < self.published => {
                self.views.retain(|other| other.seq() > view.seq());
                self.forget();
                Ok(())
            }
            other => other,
        }
    }

    /// Forgets versions that neither a view nor a crash can bring back.
    fn forget(&mut self) {
        let oldest = self.views.iter().map(|view| view.seq()).min();
        let low = oldest.unwrap_or(self.published).min(self.acknowledged);
        self.model.forget_below(low);
    }

    /// Writes the next positions, and publishes them all at once.
    fn write(&mut self) -> Result<()> {
        let count = if self.dice.percent(10) { 3 } else { 1 };
        for _ in 0..count {
            let seq = Seq(self.model.newest().0 + if self.dice.percent(5) { 7 } else { 1 });
            let engine = self.engine.clone().expect("it is open");
            match random_event(&self.plan, &self.model, seq, &self.dice) {
                Event::Batch(batch) => {
                    // Into the model first: a crash may come when the engine has it and has not said so.
                    self.model.apply(&batch, seq);
                    engine.apply(&batch, seq)?;
                }
                Event::Load { create, table, rows } => {
                    self.model.apply(&create, seq);
                    engine.apply(&create, seq)?;
                    if self.plan.late_loads && self.dice.percent(30) {
                        self.publish(seq);
                        if self.dice.percent(30) {
                            self.checkpoint()?;
                        }
                    }
                    let loaded = engine.bulk_load(table, &mut rows.clone().into_iter(), seq)?;
                    assert_eq!(loaded, rows.len() as u64, "rows of a load");
                    self.model.load(table, &rows, seq);
                    // Older views in the model see none of it: nor must those of the engine.
                    self.views.retain(|view| view.seq() < seq);
                }
            }
        }
        self.publish(self.model.newest());
        Ok(())
    }

    fn publish(&mut self, seq: Seq) {
        self.engine().publish(seq);
        self.published = seq;
    }

    /// Writes a checkpoint, and compares what a copy of the disk holds now and then.
    pub fn checkpoint(&mut self) -> Result<()> {
        let mark = self.engine().checkpoint()?;
        assert!(
            mark >= self.published,
            "a checkpoint at {mark:?} misses {:?}",
            self.published
        );
        assert_eq!(self.engine().durable_seq(), mark);
        self.acknowledged = mark;
        self.model.loads_are_durable();
        self.look_at_copy(mark)?;
        self.forget();
        Ok(())
    }

    /// Opens a copy of a simulated disk as a crash now would leave it: it must hold the checkpoint that has just been
    /// made.
    fn look_at_copy(&mut self, mark: Seq) -> Result<()> {
        let Place::Simulated(fs) = &self.place else {
            return Ok(());
        };
        if fs.has_crashed() || !self.dice.percent(self.copies_percent) {
            return Ok(());
        }
        let copy = Place::Simulated(fs.after_crash(self.dice.next()));
        let engine = self.plan.open(&copy.env(), &copy.directory())?;
        assert_eq!(engine.durable_seq(), mark, "a copy's position");
        check::engine_is_the_model(&*engine, &self.model, mark, "a copy of the disk")?;
        check::engine_is_sound(&*engine, "a copy of the disk")
    }

    fn open(&mut self) -> Result<()> {
        let engine = self.plan.open(&self.place.env(), &self.place.directory())?;
        self.engine = Some(engine);
        Ok(())
    }

    fn reopen(&mut self) -> Result<()> {
        self.views.clear();
        let mode = if self.dice.percent(60) {
            CloseMode::Checkpoint
        } else {
            CloseMode::Abandon
        };
        let engine = self.engine.take().expect("it is open");
        if mode == CloseMode::Checkpoint {
            engine.close(mode)?;
            self.acknowledged = self.published;
            self.model.loads_are_durable();
        } else {
            engine.close(mode)?;
        }
        drop(engine);
        self.recover()
    }

    /// Stops the machine. [`Run::recover`] starts it again.
    pub fn crash(&mut self) {
        self.place.copy_for_crash();
        self.views.clear();
        if let Some(engine) = self.engine.take() {
            // Whether it notices makes no difference.
            let _ = engine.close(CloseMode::Abandon);
        }
        self.place.restart();
    }

    /// Opens what a crash left, and compares: the state must be that of exactly one position, which no checkpoint's
    /// answer lies above.
    pub fn recover(&mut self) -> Result<()> {
        self.views.clear();
        self.engine = None;
        self.open()?;
        let engine = self.engine.clone().expect("it was just opened");
        let mark = engine.durable_seq();
        assert!(
            self.acknowledged <= mark && mark <= self.model.newest(),
            "{mark:?} came back; {:?} was durable and {:?} the last applied",
            self.acknowledged,
            self.model.newest()
        );
        self.model.rewind(mark);
        self.published = mark;
        self.acknowledged = mark;
        self.settle_loads(&*engine)?;
        check::engine_is_the_model(&*engine, &self.model, mark, "after opening")?;
        check::engine_is_sound(&*engine, "after opening")?;
        self.model.loads_are_durable();
        Ok(())
    }

    /// A load that no checkpoint is known to have is there as a whole, or not at all.
    fn settle_loads(&mut self, engine: &dyn Subject) -> Result<()> {
        let view = engine.snapshot()?;
        for table in self.model.uncertain_loads() {
            if !self.model.tables_at(view.seq()).iter().any(|(id, _)| *id == table) {
                continue;
            }
            let mut cursor = view
                .clone()
                .cursor(table, engine::KeyRange::all(), engine::Direction::Forward)?;
            if !cursor.fill(&mut engine::Rows::new(), engine::FillLimits::default())? {
                self.model.unload(table);
            }
        }
        Ok(())
    }

    fn back_up(&mut self) -> Result<()> {
        let backup = self.engine().backup()?;
        self.acknowledged = self.acknowledged.max(self.engine().durable_seq());
        self.model.loads_are_durable();
        let seq = backup.seq();
        // What comes meanwhile is not in it.
        let before = self.model.clone();
        for _ in 0..self.dice.below(4) {
            self.write()?;
            self.checkpoint()?;
        }
        self.backups += 1;
        let target = self.place.directory_beside(&format!("backup-{}", self.backups));
        let env = self.place.env();
        let failed = |source| engine::EngineError::Io {
            operation: "copy a backup to",
            path: target.clone(),
            source,
        };
        let source = self.place.directory().join(backup.root());
        env.fs.create_directory_all(&target).map_err(failed)?;
        for (name, bytes) in backup.files() {
            let to = target.join(&name);
            env.fs
                .create_directory_all(to.parent().expect("it lies in a directory"))
                .map_err(failed)?;
            copy_file(&*env.fs, &source.join(&name), &to, bytes).map_err(failed)?;
        }
        let restored = self.plan.open(&env, &target)?;
        assert_eq!(restored.durable_seq(), seq, "a backup's position");
        check::engine_is_the_model(&*restored, &before, seq, "a backup")?;
        check::engine_is_sound(&*restored, "a backup")?;
        restored.close(CloseMode::Abandon)?;
        drop(restored);
        env.fs.remove_directory_all(&target).map_err(failed)
    }

    /// Whether an error is what a disk without space leads to.
    pub fn is_out_of_space(error: &engine::EngineError) -> bool {
        error.kind() == ErrorKind::OutOfSpace
    }
}
