//! Any engine under random batches and checkpoints while one snapshot is held open all the time.
//!
//! What the snapshot showed when it was taken is kept as a model of its own, so that the model of the newest state can
//! forget.

use crate::check;
use crate::dice::Dice;
use crate::model::Model;
use crate::plan::{Event, Plan, random_event};
use engine::{CloseMode, Engine, ErrorKind, Maintenance, Result, Seq, Snapshot};
use std::sync::Arc;

/// Batches before a snapshot is taken: so much is there to be held.
const BATCHES_BEFORE: usize = 2000;

/// How far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Held {
    /// Batches since the beginning.
    pub batches: u64,
    /// Batches since the snapshot that is held was taken.
    pub batches_beside: u64,
    /// Snapshots that the engine has ended: it keeps a bounded history.
    pub ended: u64,
    /// Comparisons of all of the held snapshot.
    pub compared: u64,
    /// Rows of the newest state.
    pub rows: usize,
}

/// See the module.
pub struct Hold {
    plan: Plan,
    engine: Arc<dyn Engine>,
    dice: Dice,
    model: Model,
    snapshot: Option<(Arc<dyn Snapshot>, Model)>,
    held: Held,
}

impl Hold {
    /// Works on an engine that has no tables yet.
    pub fn new(plan: Plan, engine: Arc<dyn Engine>, dice: Dice) -> Self {
        Self {
            plan,
            engine,
            dice,
            model: Model::default(),
            snapshot: None,
            held: Held::default(),
        }
    }

    /// Writes a thousand batches with checkpoints between, and compares.
    pub fn step(&mut self) -> Result<Held> {
        if self.snapshot.is_none() {
            self.write(BATCHES_BEFORE)?;
            self.snapshot = Some((self.engine.snapshot()?, self.model.clone()));
            self.held.batches_beside = 0;
        }
        for _ in 0..5 {
            self.write(200)?;
            self.engine.checkpoint()?;
            let newest = self.engine.snapshot()?;
            check::ranges_are_the_model(&newest, &self.model, self.plan.keys, &self.dice, "the newest state")?;
            self.compare_held(false)?;
        }
        self.compare_held(true)?;
        if self.dice.percent(10) {
            check::engine_is_the_model(&*self.engine, &self.model, self.model.newest(), "the newest state")?;
        }
        if self.dice.percent(3) {
            self.engine.maintain(&Maintenance::Compact(None))?;
        }
        self.held.rows = self.model.len();
        Ok(self.held)
    }

    /// Compares everything once more, closes, and leaves the engine to be dropped.
    pub fn finish(mut self) -> Result<Held> {
        self.compare_held(true)?;
        self.snapshot = None;
        check::engine_is_the_model(&*self.engine, &self.model, self.model.newest(), "at the end")?;
        let report = self.engine.maintain(&Maintenance::Verify(None))?;
        assert!(report.problems.is_empty(), "at the end: {:#?}", report.problems);
        self.engine.close(CloseMode::Checkpoint)?;
        Ok(self.held)
    }

    fn compare_held(&mut self, all: bool) -> Result<()> {
        let Some((view, model)) = &self.snapshot else {
            return Ok(());
        };
        let outcome = match all {
            true => check::view_is_the_model(view, model, "the held snapshot"),
            false => check::ranges_are_the_model(view, model, self.plan.keys, &self.dice, "the held snapshot"),
        };
        self.held.compared += u64::from(all);
        match outcome {
            Err(error) if error.kind() == ErrorKind::SnapshotTooOld => {
                self.held.ended += 1;
                self.snapshot = None;
                Ok(())
            }
            other => other,
        }
    }

    fn write(&mut self, batches: usize) -> Result<()> {
        for _ in 0..batches {
            let seq = Seq(self.model.newest().0 + 1);
            // As the server's writers do.
            while !self.engine.throttle() {}
            match random_event(&self.plan, &self.model, seq, &self.dice) {
                Event::Batch(batch) => {
                    self.engine.apply(&batch, seq)?;
                    self.model.apply(&batch, seq);
                }
                Event::Load { create, table, rows } => {
                    self.engine.apply(&create, seq)?;
                    self.model.apply(&create, seq);
                    let loaded = self.engine.bulk_load(table, &mut rows.clone().into_iter(), seq)?;
                    assert_eq!(loaded, rows.len() as u64, "rows of a load");
                    self.model.load(table, &rows, seq);
                }
            }
            self.engine.publish(seq);
            self.held.batches += 1;
            self.held.batches_beside += 1;
        }
        self.model.forget_below(self.model.newest());
        Ok(())
    }
}
