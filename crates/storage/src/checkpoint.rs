//! Checkpoints, closing, and the background threads.
//!
//! A checkpoint makes the engine's published state durable and lets the log drop what it no longer needs. Its cost is
//! the engine's to say: where it grows with all data, checkpoints wait until the log has grown by as much.

use crate::background::{Alarm, Delayed, Thread, Work};
use crate::error::lacks_descriptors;
use crate::mutations::mutated;
use crate::storage::{LogShortage, Storage};
use crate::{Interrupted, KillFlag, StorageError};
use engine::{CheckpointCost, CloseMode, ErrorKind, Seq};
use oplog::LogError;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

/// Engines whose checkpoints write everything get none before the log has grown by this: some seconds of replay, and
/// while data are loaded each byte is then written about twice instead of once for every small step.
const ALL_DATA_LOG_BYTES_MIN: u64 = 512 << 20;
/// A checkpoint that found no space is tried again at least so often: it may be what writers wait for. So are threads
/// that the system did not have.
const STUCK_PERIOD_MAX: Duration = Duration::from_secs(5);

/// What starts threads.
type StartThread = fn(&str, Work) -> std::io::Result<JoinHandle<()>>;

fn start_thread(name: &str, work: Work) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work)
}

#[derive(PartialEq, Eq)]
enum Start {
    Done,
    Delayed,
}

impl Storage {
    /// The log has so many bytes since the last checkpoint. Answers whether one is to be taken; one that found no space
    /// is tried again when its time has come, and before writes are refused.
    pub(crate) fn log_has_grown(&self, log_bytes: u64) -> bool {
        match self.checkpointer.is_stuck.load(Ordering::Relaxed) {
            true => self.fills_memory(log_bytes) && !self.is_full(),
            false => self.checkpoint_due(log_bytes),
        }
    }

    /// Whether so much log is as much as the engine may hold in memory, where what it cannot write stays.
    fn fills_memory(&self, log_bytes: u64) -> bool {
        let all_in_memory = self.engine.info().capabilities.checkpoint_cost != CheckpointCost::Changes;
        !all_in_memory && log_bytes >= self.options.unwritten_bytes_max
    }

    /// The engine has written its state, or found no space for it. Under `running`: who takes checkpoints says alone
    /// whether there is room, so that what a successful one says stands.
    pub(crate) fn engine_found_space(&self, found: bool) {
        let is_full = !found && self.fills_memory(self.pipeline.order.lock().log_bytes);
        self.checkpointer.is_stuck.store(!found, Ordering::Relaxed);
        self.checkpointer.is_full.store(is_full, Ordering::Relaxed);
    }

    /// Whether the engine has as much in memory as it may and no space to write it to.
    pub(crate) fn is_full(&self) -> bool {
        self.checkpointer.is_full.load(Ordering::Relaxed) || self.engine.is_full()
    }

    /// Back-pressure of the log, to be called before locks are taken.
    ///
    /// Errors: [`StorageError::OutOfSpace`] or [`StorageError::OutOfDescriptors`], of the log or of the engine.
    pub(crate) fn wait_for_room(&self) -> Result<(), StorageError> {
        if self.is_full() {
            let lacks = |what| format!("the storage engine has {what} for what was written since the last checkpoint");
            return Err(match self.checkpointer.lacks_descriptors.load(Ordering::Relaxed) {
                true => StorageError::OutOfDescriptors(lacks("none")),
                false => StorageError::OutOfSpace(lacks("no space")),
            });
        }
        self.wait_for_log_room()
    }

    /// As [`Storage::wait_for_room`], of the log alone. Where that is short of segments a checkpoint lets some go.
    pub(crate) fn wait_for_log_room(&self) -> Result<(), StorageError> {
        self.wait_for_log_room_for(0, 0)
    }

    /// As [`Storage::wait_for_log_room`], for so many bytes at once in so many entries.
    pub(crate) fn wait_for_log_room_for(&self, bytes: usize, entries: usize) -> Result<(), StorageError> {
        let wait = || self.log.wait_for_room_for(bytes, entries);
        let is_refused = |waited: &Result<(), LogError>| matches!(waited, Err(LogError::OutOfSpace { .. }));
        match wait() {
            // Without threads of its own the storage does nothing unasked. With them one may be at it, or done by now.
            Err(LogError::OutOfSpace { .. }) if self.options.background => {}
            other => return other.map_err(|error| self.log_error(error)),
        }
        // Whoever takes one just now does it for all.
        let running = self.checkpointer.running.lock();
        let mut waited = wait();
        if is_refused(&waited) {
            self.purge_again(bytes, entries)?;
            waited = wait();
        }
        if is_refused(&waited) && self.log_can_be_freed() {
            self.checkpoint_alone(&running)?;
            self.purge_again(bytes, entries)?;
            waited = wait();
        }
        waited.map_err(|error| self.log_error(error))
    }

    /// Whether another checkpoint lets the log, which lacks room, drop anything.
    fn log_can_be_freed(&self) -> bool {
        !self.checkpointer.is_stuck.load(Ordering::Relaxed) && self.can_keep_more()
    }

    /// Whether a checkpoint would keep what the last one did not. What is applied late, and what was there when the
    /// storage was opened, is not in `log_bytes`.
    fn can_keep_more(&self) -> bool {
        self.engine.info().capabilities.checkpoint_cost != CheckpointCost::Never
            && (self.pipeline.order.lock().log_bytes > 0
                || self.pipeline.published().0 > self.checkpointer.taken_at.load(Ordering::Relaxed))
    }

    /// Lets the log drop what it may by the last checkpoint: backups end, history gets old, and may make way for so
    /// many bytes at once in so many entries. Under `running`.
    fn purge_again(&self, bytes: usize, entries: usize) -> Result<(), StorageError> {
        let may_go = Seq(self.checkpointer.may_go.load(Ordering::Relaxed));
        if may_go == Seq::ZERO {
            return Ok(());
        }
        self.purge_log(may_go, bytes, entries)
    }

    fn purge_log(&self, up_to: Seq, bytes: usize, entries: usize) -> Result<(), StorageError> {
        match self.log.purge_for(up_to, bytes, entries) {
            // The segments are there still, and the next one tries again.
            Err(error @ LogError::Io { .. }) => Err(StorageError::Log(error)),
            other => other.map_err(|error| self.log_error(error)),
        }
    }

    /// Brings the log to disk for a checkpoint. Where it has no room for all of it, a checkpoint of what is on disk may
    /// make some.
    fn flush_for_checkpoint(&self) -> Result<(), StorageError> {
        let mut flushed = self.log.flush();
        if matches!(flushed, Err(LogError::OutOfSpace { .. })) {
            self.purge_again(0, 0)?;
            flushed = self.log.flush();
        }
        match flushed {
            Err(error) if error.passes() && self.log.durable_seq() >= self.pipeline.published() => Ok(()),
            other => other.map(drop).map_err(|error| self.log_error(error)),
        }
    }

    fn checkpoint_due(&self, log_bytes: u64) -> bool {
        let due = match self.checkpointer.due_bytes.load(Ordering::Relaxed) {
            0 => self.set_due_bytes(),
            due => due,
        };
        log_bytes >= due
    }

    fn set_due_bytes(&self) -> u64 {
        let due = match self.engine.info().capabilities.checkpoint_cost {
            CheckpointCost::Changes => self.options.checkpoint_log_bytes.max(1),
            CheckpointCost::AllData => {
                let data: u64 = self
                    .catalog
                    .all_collections()
                    .iter()
                    .map(|collection| collection.data_bytes())
                    .sum();
                ALL_DATA_LOG_BYTES_MIN.max(data)
            }
            CheckpointCost::Never => u64::MAX,
        };
        self.checkpointer.due_bytes.store(due, Ordering::Relaxed);
        due
    }

    /// Takes a checkpoint, and lets the log drop what the engine now holds. Answers the engine's durable mark. Waits
    /// for a checkpoint that is running, then takes its own.
    pub fn checkpoint(&self) -> Result<Seq, StorageError> {
        let running = self.checkpointer.running.lock();
        self.checkpoint_alone(&running)
    }

    /// As [`Storage::checkpoint`], by the one that holds the checkpoint mutex.
    pub(crate) fn checkpoint_alone(&self, running: &MutexGuard<'_, ()>) -> Result<Seq, StorageError> {
        let is_stuck = || self.checkpointer.is_stuck.load(Ordering::Relaxed);
        let was_stuck = is_stuck();
        let taken = self.take_checkpoint(running);
        if is_stuck() && !was_stuck {
            // The thread sleeps for longer than it is to from now on.
            self.checkpointer.wake();
        }
        taken
    }

    fn take_checkpoint(&self, _running: &MutexGuard<'_, ()>) -> Result<Seq, StorageError> {
        self.check_running()?;
        let start = self.env.clock.monotonic();
        let durable = self.checkpoint_now().inspect_err(|_| {
            self.figures.checkpoints_failed.fetch_add(1, Ordering::Relaxed);
        })?;
        let took_ms = self.env.clock.monotonic().saturating_sub(start).as_millis() as u64;
        self.figures.checkpoint_took(took_ms);
        Ok(durable)
    }

    /// The steps. Under `running`.
    fn checkpoint_now(&self) -> Result<Seq, StorageError> {
        // The entries with the counts are refused where many large ones have come at once.
        self.flush_for_checkpoint()?;
        match self.write_counts() {
            // The log then keeps what tells them.
            Ok(()) => {}
            Err(error) if error.passes() => {}
            Err(error) => return Err(error),
        }
        let bytes_before = self.pipeline.order.lock().log_bytes;
        let counted_at = self.pipeline.applying.lock().counted_at;
        let published = self.pipeline.published();
        // All that was acknowledged so far, even where the engine keeps nothing. What comes until the engine's cut it
        // waits for itself, by the write-ahead rule.
        self.flush_for_checkpoint()?;
        if mutated!(RecyclesEarly) {
            self.log
                .purge(self.log.last_seq())
                .map_err(|error| self.log_error(error))?;
        }
        let taken = self.engine.checkpoint();
        let lacks_descriptors = taken.as_ref().is_err_and(lacks_descriptors);
        self.checkpointer
            .lacks_descriptors
            .store(lacks_descriptors, Ordering::Relaxed);
        match &taken {
            Ok(_) => self.engine_found_space(true),
            Err(error) if error.kind() == ErrorKind::OutOfSpace => self.engine_found_space(false),
            // Of an engine's space the log's failures tell nothing, nor others of its own.
            Err(_) => {}
        }
        let durable = taken.map_err(|error| self.checkpoint_error(error))?;
        // The entries behind the counts tell what has changed in them since.
        let counted_at = if mutated!(RecyclesCounts) { durable } else { counted_at };
        let may_go = durable.min(counted_at);
        self.checkpointer.may_go.store(may_go.0, Ordering::Relaxed);
        self.checkpointer.taken_at.store(published.0, Ordering::Relaxed);
        let purged = self.purge_log(may_go, 0, 0);
        self.pipeline.order.lock().log_bytes -= bytes_before;
        self.set_due_bytes();
        purged.map(|()| durable)
    }

    /// A full disk may pass; anything else that a checkpoint meets does not.
    fn checkpoint_error(&self, error: engine::EngineError) -> StorageError {
        match error.kind() {
            ErrorKind::OutOfSpace | ErrorKind::Unsupported | ErrorKind::Invalid => error.into(),
            _ => self.stop(&format!("a checkpoint failed: {error}")),
        }
    }

    /// Starts a named thread that [`Storage::close`] ends by `kill`, later where the system has none now: clients may
    /// have taken them all.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        name: &str,
        kill: Arc<KillFlag>,
        work: impl FnOnce(Arc<Storage>) + Send + 'static,
    ) {
        // The storage itself keeps it while it waits for a thread.
        let me = self.me.clone();
        let work = move || {
            if let Some(storage) = me.upgrade() {
                work(storage);
            }
        };
        let delayed = Delayed {
            name: name.to_owned(),
            kill,
            work: Box::new(work),
        };
        if self.spawn_or_delay(delayed, start_thread) == Start::Delayed {
            // The thread sleeps for longer than it is to from now on.
            self.checkpointer.wake();
        }
    }

    fn spawn_or_delay(&self, Delayed { name, kill, work }: Delayed, start: StartThread) -> Start {
        // A thread that cannot start does not give its work back.
        let work = Arc::new(Mutex::new(Some(work)));
        let of_thread = work.clone();
        let take = |work: &Mutex<Option<Work>>| work.lock().take();
        let started = start(
            &name,
            Box::new(move || {
                if let Some(work) = take(&of_thread) {
                    work();
                }
            }),
        );
        if let Ok(handle) = started {
            let (alarm, kill) = (None, Some(kill));
            self.checkpointer.threads.lock().push(Thread { handle, alarm, kill });
        } else if let Some(work) = take(&work) {
            self.checkpointer.delayed.lock().push(Delayed { name, kill, work });
            return Start::Delayed;
        }
        Start::Done
    }

    /// Tries again to start threads that the system did not have.
    fn spawn_delayed(&self, start: StartThread) {
        // Not in the head of the loop, which would hold the lock that is taken where there is still no thread.
        let delayed = std::mem::take(&mut *self.checkpointer.delayed.lock());
        for one in delayed {
            self.spawn_or_delay(one, start);
        }
    }

    pub(crate) fn keep_thread(
        &self,
        name: &str,
        alarm: Option<Arc<Alarm>>,
        kill: Option<Arc<KillFlag>>,
        work: impl FnOnce() + Send + 'static,
    ) {
        match std::thread::Builder::new().name(name.to_owned()).spawn(work) {
            Ok(handle) => self.checkpointer.threads.lock().push(Thread { handle, alarm, kill }),
            Err(error) => {
                self.stop(&format!("cannot start the thread {name}: {error}"));
            }
        }
    }

    /// Starts the threads that take checkpoints and delete expired documents. They hold the storage only while they
    /// work.
    pub(crate) fn start_background(&self) {
        let (me, alarm) = (self.me.clone(), self.checkpointer.alarm.clone());
        let of_log = alarm.clone();
        self.log.set_shortage_handler(Arc::new(move || of_log.ring()));
        // The log may have been short before it had a handler.
        let mut period = self.checkpoint_period();
        self.keep_thread("checkpointer", Some(alarm.clone()), None, move || {
            while alarm.wait(period) {
                let Some(storage) = me.upgrade() else { return };
                storage.spawn_delayed(start_thread);
                storage.scheduled_checkpoint();
                storage.tell_of_log_shortage();
                period = storage.checkpoint_period();
            }
        });
        let (me, alarm) = (self.me.clone(), self.ttl.alarm.clone());
        self.keep_thread(
            "ttl-monitor",
            Some(alarm.clone()),
            Some(self.ttl.kill.clone()),
            move || {
                let mut period = me.upgrade().map_or(Duration::ZERO, |storage| storage.ttl.sleep());
                while alarm.wait(period) {
                    let Some(storage) = me.upgrade() else { return };
                    period = storage.ttl.sleep();
                    if storage.ttl.take_turn() {
                        // What went wrong is met again at the next pass; a storage that has stopped says so itself.
                        let _ = storage.run_ttl_pass();
                    }
                }
            },
        );
    }

    /// The longest time until the next one; zero: until one is asked for.
    fn checkpoint_period(&self) -> Duration {
        // What a secondary has is applied later perhaps, a backup ends, history gets old: segments can go then.
        let is_stuck = self.checkpointer.is_stuck.load(Ordering::Relaxed) || self.log.is_short();
        let has_delayed = !self.checkpointer.delayed.lock().is_empty();
        match (is_stuck || has_delayed, self.sync_period()) {
            (true, Duration::ZERO) => STUCK_PERIOD_MAX,
            (true, period) => period.min(STUCK_PERIOD_MAX),
            (false, period) => period,
        }
    }

    /// The period is over, or the log has grown: takes a checkpoint if it pays.
    pub(crate) fn scheduled_checkpoint(&self) {
        if self.log.is_short() {
            let _running = self.checkpointer.running.lock();
            // It is tried again in the next turn; a log that has failed has stopped the storage.
            let _ = self.purge_again(0, 0);
        }
        let log_bytes = self.pipeline.order.lock().log_bytes;
        let wanted = match self.engine.info().capabilities.checkpoint_cost {
            _ if self.log.is_short() => self.can_keep_more(),
            CheckpointCost::Changes => log_bytes > 0,
            CheckpointCost::AllData if !self.options.journal => log_bytes > 0,
            CheckpointCost::AllData => self.checkpoint_due(log_bytes),
            CheckpointCost::Never => false,
        };
        if wanted {
            // A full disk is tried again after the next period; other failures have stopped the storage, which says so
            // itself.
            let taken = self.take_checkpoint(&self.checkpointer.running.lock());
            if let Err(error) = taken
                && self.check_running().is_ok()
                && let Some(handler) = &self.options.on_checkpoint_failure
            {
                handler(&error);
            }
        }
    }

    /// What a checkpoint did not end is told once, and so is each time that history went.
    fn tell_of_log_shortage(&self) {
        let now = self.log.stats();
        let mut told = self.checkpointer.told.lock();
        let shortage = LogShortage {
            is_short: now.is_short,
            history_given_up_bytes: now.history_given_up_bytes - told.1,
        };
        let has_news = shortage.history_given_up_bytes > 0 || now.is_short && !told.0;
        *told = (now.is_short, now.history_given_up_bytes);
        if has_news && let Some(handler) = &self.options.on_log_shortage {
            handler(shortage);
        }
    }

    /// Ends the storage. Clean: everything committed is in the engine's files, nothing is left to replay. Not clean:
    /// stops where it stands; the log has what was committed. Operations still running get [`StorageError::Closed`].
    /// Closing twice is fine.
    pub fn close(&self, clean: bool) -> Result<(), StorageError> {
        let stopped = self.check_running().is_err();
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        {
            // Who waits for a barrier goes on, and is refused: a thread that is to end may be among them.
            let _order = self.pipeline.order.lock();
            self.unblocked.notify_all();
        }
        self.checkpointer.delayed.lock().clear();
        let threads = std::mem::take(&mut *self.checkpointer.threads.lock());
        for thread in &threads {
            if let Some(kill) = &thread.kill {
                kill.set(Interrupted::Shutdown);
            }
            if let Some(alarm) = &thread.alarm {
                alarm.stop();
            }
        }
        for thread in threads {
            // A thread that panicked has said so on standard error; the storage ends all the same.
            let _ = thread.handle.join();
        }
        let _running = self.checkpointer.running.lock();
        // Whoever is in the middle of a commit ends it first; whoever comes later, or waits at a barrier, is refused.
        drop(self.pipeline.order.lock());
        drop(self.pipeline.applying.lock());
        // Where others take part an entry that none of them has any more is of no use.
        let counted = match clean && !stopped && !self.pending.is_used() {
            true => self.write_counts(),
            false => Ok(()),
        };
        let engine = match clean && !stopped {
            true => self
                .engine
                .close(CloseMode::Checkpoint)
                .map_err(|error| self.checkpoint_error(error)),
            false => self.engine.close(CloseMode::Abandon).map_err(StorageError::from),
        };
        let purged = match &engine {
            Ok(()) if clean && !stopped => {
                let needed = self.engine.durable_seq().min(self.pipeline.applying.lock().counted_at);
                self.log.purge(needed).map_err(StorageError::Log)
            }
            _ => Ok(()),
        };
        // Whatever the engine could not do, the log gets everything to disk; what it could not is told first.
        let log = self.log.close().map_err(StorageError::Log);
        log.and(counted).and(engine).and(purged)
    }
}

#[cfg(test)]
mod full_disk_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::*;
    use std::sync::atomic::AtomicBool;

    /// Clients that had all threads of the system ended the server where it wanted one more.
    #[test]
    fn work_without_a_thread_begins_later() {
        let machine = Machine::new(1);
        let storage = machine.open().unwrap();
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        storage.checkpointer.delayed.lock().push(Delayed {
            name: "builds".to_owned(),
            kill: Arc::default(),
            work: Box::new(move || done.store(true, Ordering::SeqCst)),
        });
        assert!(storage.checkpoint_period() > Duration::ZERO, "it is not asked for");
        // It held the list while it tried again, and then wanted to add to it.
        for _ in 0..2 {
            storage.spawn_delayed(|_, _| Err(std::io::ErrorKind::WouldBlock.into()));
            assert_eq!(storage.checkpointer.delayed.lock().len(), 1);
        }
        assert!(
            !storage.checkpointer.alarm.is_rung(),
            "it would be tried again without end"
        );
        storage.spawn_delayed(start_thread);
        assert!(storage.checkpointer.delayed.lock().is_empty());
        storage.close(true).unwrap();
        assert!(is_done.load(Ordering::SeqCst));
    }
}
