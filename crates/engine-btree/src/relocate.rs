//! Emptying segments of the files, so that files get shorter: what lies in them is written anew elsewhere
//! (`block_mover`).
//!
//! The block store chooses segments after each checkpoint, and bounds what they cost. One is read as a whole, and each
//! block in it is moved. The old blocks are free with the next checkpoint, which also cuts the file.
//!
//! Where a block's key is too long for a label, or the block cannot be read, the segment is given up, used like any
//! other, and not chosen again before an eighth of what is in it has gone.

use crate::block_mover::BlockMover;
use crate::foundation::Foundation;
use crate::job::Job;
use crate::workers::{Class, Workers};
use crate::write_back::Move;
use blocks::{BlockStore, SegmentBlocks};
use engine::{EngineStatus, Result};
use rcu::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blocks that are moved with one flush. Few: a checkpoint that needs a leaf waits until it is written, and this runs
/// only when nobody else wants a processor.
const STEP: usize = 16;

/// See the module.
pub(crate) struct Relocator {
    store: Arc<BlockStore>,
    mover: Arc<BlockMover>,
    workers: Arc<Workers>,
    status: Arc<EngineStatus>,
    job: Arc<Job>,
    /// Held by whoever empties segments. A leaf that one has begun to write another cannot move.
    emptying: Mutex<()>,
    /// Compactions that run. The background leaves segments to them: at its priority it may hold up what it has begun
    /// for long.
    compactions: AtomicUsize,
}

/// A compaction that runs, until this goes.
pub(crate) struct Compaction<'r>(&'r Relocator);

impl Drop for Compaction<'_> {
    fn drop(&mut self) {
        self.0.compactions.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Relocator {
    pub(crate) fn new(base: &Foundation, mover: Arc<BlockMover>) -> Arc<Self> {
        let relocator = Arc::new(Self {
            store: base.store.clone(),
            mover,
            workers: base.workers.clone(),
            status: base.status.clone(),
            job: Job::new(Class::Background),
            emptying: Mutex::new(()),
            compactions: AtomicUsize::new(0),
        });
        relocator
            .job
            .set_work(&relocator, &relocator.status, "moving blocks", |relocator| {
                relocator.relocate(|| !relocator.is_compacting())
            });
        relocator
    }

    /// A compaction begins.
    pub(crate) fn begin_compaction(&self) -> Compaction<'_> {
        self.compactions.fetch_add(1, Ordering::AcqRel);
        Compaction(self)
    }

    /// Has a background thread empty the segments that were chosen. With no threads the caller does the work.
    pub(crate) fn relocate_soon(&self) {
        if !self.is_compacting() && !self.store.segments_to_empty().is_empty() {
            self.job.soon(&self.workers);
        }
    }

    fn is_compacting(&self) -> bool {
        self.compactions.load(Ordering::Acquire) > 0
    }

    /// Writes anew what lies in the segments that the block store wants to empty, as long as `goes_on`.
    pub(crate) fn relocate(&self, goes_on: impl Fn() -> bool) -> Result<()> {
        let _alone = self.emptying.lock();
        let mut writer = self.mover.writer();
        for (volume, segment) in self.store.segments_to_empty() {
            self.status.check_running()?;
            if !goes_on() {
                return Ok(());
            }
            let SegmentBlocks { blocks, is_damaged } = self.store.read_segment_to_empty(volume, segment)?;
            let mut cold = Vec::new();
            let mut outcome = if is_damaged { Move::Impossible } else { Move::Done };
            for step in blocks.chunks(STEP) {
                for block in step {
                    outcome = outcome.max(self.mover.move_block(block, &mut writer, &mut cold)?);
                }
                writer.flush()?;
                if outcome == Move::NotNow || !goes_on() {
                    outcome = Move::NotNow;
                    break;
                }
            }
            for (tree, leaf) in cold {
                self.mover.drop_again(&tree, &leaf);
            }
            match outcome {
                Move::Done => {}
                Move::Impossible => self.store.give_up_emptying(volume, segment),
                // The checkpoint or compaction that runs chooses segments again.
                Move::NotNow => return Ok(()),
            }
        }
        Ok(())
    }
}
