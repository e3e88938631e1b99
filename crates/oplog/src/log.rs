//! The handle: append, group commit, back-pressure, life and death.
//!
//! Three locks, never held together except writer then buffer or waiters: `buffer` (append; memory only), `writer`
//! (held across I/O by the leader), and that of `waiters` (who leads, who sleeps; see there). Below the writer's are
//! `purging` and then that of the position file. Whoever needs durability
//! and finds nobody flushing flushes itself; what is appended meanwhile makes the next group.
//!
//! Invariants: `durable <= last`; both rise, and fall only in [`Log::truncate`], which is noted in `truncations`
//! before. `buffered` is the bytes from `durable` to `last`. Once `failure` is set nothing is acknowledged any more.

mod append;
mod damage;
mod readers;
mod room;
mod states;

pub use room::{AppendPurpose, ShortageHandler};

use crate::buffer::{Buffer, BufferedEntries};
use crate::catalog::{Catalog, Purge};
use crate::disk::{Disk, SYNC_DIRECTORY};
use crate::format::{FRAMES_START, HardState};
use crate::limits::{flush_soon_bytes, group_bytes, spare_bytes};
use crate::position::PositionFile;
use crate::reader::Extent;
use crate::recovery::recover;
use crate::terms::Terms;
use crate::waiters::{Lead, Turn, Waiters};
use crate::writer::{LogEnd, Writer};
use crate::{
    FailureHandler, LogError, LogMode, LogOptions, LogReader, LogStats, PinnedLog, ReadAhead, Result, Retention,
};
use engine::Seq;
use rcu::thread::{self, JoinHandle};
use rcu::{Condvar, Mutex};
use room::Room;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vfs::{Clock, Env, WaitList};

/// How often a waiter asks whether its wait is to be ended.
const WAIT_SLICE: Duration = Duration::from_millis(10);

/// Behind every entry.
const SEQ_NEVER: Seq = Seq(u64::MAX);

/// Asked by a waiter now and then: false ends its wait.
type GoOn<'g> = Option<&'g dyn Fn() -> bool>;

/// The log, shared by all threads. Dropping it without [`Log::close`] leaves the disk as a crash would.
pub struct Log {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    mode: LogMode,
    buffer_bytes_max: usize,
    flush_soon_bytes: usize,
    buffer_bytes_refused: usize,
    background: bool,
    on_failure: Option<FailureHandler>,
    clock: Arc<dyn Clock>,
    pub disk: Disk,
    pub catalog: Catalog,
    position: PositionFile,
    /// Held by whoever removes segments. Taken before that of `position`.
    purging: Mutex<()>,
    buffer: Mutex<Buffer>,
    writer: Mutex<Writer>,
    room: Room,
    last: AtomicU64,
    opened_at: Seq,
    durable: AtomicU64,
    buffered: AtomicUsize,
    entry_bytes: AtomicU64,
    retention: Mutex<Retention>,
    terms: Mutex<Terms>,
    /// The first entry of each tail that was taken back, in the order of the calls.
    truncations: Mutex<Vec<Seq>>,
    /// Its length, for those who look every time.
    truncation_count: AtomicUsize,
    /// The newest one, perhaps not yet on disk.
    hard_state: Mutex<Option<HardState>>,
    damages: Vec<LogError>,
    /// Behind the last of them, and of those that were stepped over since.
    readable_from: AtomicU64,
    may_lack_consensus: bool,
    states_appended: AtomicU64,
    states_durable: AtomicU64,
    failure: OnceLock<Arc<str>>,
    /// Set with the buffer locked.
    closed: AtomicBool,
    /// The last flush lacked space or a file descriptor: it is to be tried again.
    stuck: AtomicBool,
    /// It was space that one lacked since the last one that was not stuck.
    full: AtomicBool,
    waiters: Waiters,
    /// Those who wait for more to be on disk without a thread.
    wait_list: Arc<WaitList>,
    /// Nothing is flushed any more: set at the very end of [`Log::close`].
    over: AtomicBool,
    interval_us: AtomicU64,
    duty: Mutex<Duty>,
    duty_wake: Condvar,
}

/// What the background flusher is asked to do.
#[derive(Default)]
struct Duty {
    stop: bool,
    flush_soon: bool,
    prepare_spare: bool,
}

impl Log {
    /// Opens or creates the log of a directory: validates what may have to be replayed, cuts a torn tail, refuses
    /// damage. `durable` is the engine's mark: entries up to it are not needed, checked only where that is cheap, and
    /// may be damaged ([`Log::damages`]).
    ///
    /// Errors: `Corrupt`, `MissingSegment`, `Gap` (entries after `durable` are missing), `Behind` (it ends before
    /// `durable`, see [`crate::EngineAhead`]), `Version`, `Io`, `OutOfSpace`, `NoDescriptors`. Only the last three
    /// change anything.
    pub fn open(env: &Env, options: LogOptions, durable: Seq) -> Result<Log> {
        options.check()?;
        let disk = Disk::new(env);
        let found = recover(&disk, &options, durable, env)?;
        if options.mode == LogMode::On {
            found.position.lock().note(&disk, &found.catalog, found.last)?;
        }
        let mut terms = found.terms;
        terms.reach_back_to(found.last.next());
        let term = terms.last();
        let end = LogEnd {
            tail: found.tail,
            next_number: found.next_number,
            state: found.state,
            term,
        };
        let writer = Writer::new(
            end,
            options.segment_bytes,
            options.codec,
            group_bytes(options.buffer_bytes_max),
            env,
        )?;
        found.catalog.entered();
        let past_middle = writer.room() < options.segment_bytes / 2;
        let shared = Arc::new(Shared {
            mode: options.mode,
            // So that a spare file takes all of it.
            buffer_bytes_max: options.buffer_bytes_max.min(options.segment_bytes as usize / 2),
            flush_soon_bytes: flush_soon_bytes(options.buffer_bytes_max),
            buffer_bytes_refused: options.buffer_bytes_refused,
            background: options.background && options.mode == LogMode::On,
            on_failure: options.on_failure,
            clock: env.clock.clone(),
            disk,
            catalog: found.catalog,
            position: found.position,
            purging: Mutex::default(),
            room: Room::new(writer.room(), options.segment_bytes),
            buffer: Mutex::new(Buffer::new(
                found.last.next(),
                term,
                // So that a segment takes several frames, but for long entries.
                options
                    .frame_bytes
                    .min((options.segment_bytes - FRAMES_START) as usize / 2),
                spare_bytes(options.buffer_bytes_max),
            )),
            writer: Mutex::new(writer),
            last: AtomicU64::new(found.last.0),
            opened_at: found.last,
            durable: AtomicU64::new(found.last.0),
            buffered: AtomicUsize::new(0),
            entry_bytes: AtomicU64::new(0),
            retention: Mutex::new(options.retention),
            terms: Mutex::new(terms),
            truncations: Mutex::default(),
            truncation_count: AtomicUsize::new(0),
            hard_state: Mutex::new(found.state),
            damages: found.damages,
            readable_from: AtomicU64::new(found.readable_from.0),
            may_lack_consensus: found.may_lack_consensus,
            states_appended: AtomicU64::new(0),
            states_durable: AtomicU64::new(0),
            failure: OnceLock::new(),
            closed: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            full: AtomicBool::new(false),
            waiters: Waiters::default(),
            wait_list: Arc::default(),
            over: AtomicBool::new(false),
            interval_us: AtomicU64::new(options.commit_interval.as_micros() as u64),
            duty: Mutex::new(Duty {
                prepare_spare: past_middle,
                ..Duty::default()
            }),
            duty_wake: Condvar::new(),
        });
        let thread = if shared.background {
            Some(start_flusher(shared.clone())?)
        } else {
            None
        };
        Ok(Log {
            shared,
            thread: Mutex::new(thread),
        })
    }

    /// Takes the entries from `from` on back, those on disk too: on return no crash brings them back, and `from` is the
    /// next place to append at. Not on disk they are forgotten; of those that are, a new segment says that they are
    /// void. Waits for entries that went, and readers that have passed `from`, get `Truncated`.
    ///
    /// Must not be called beside [`Log::append`], nor for what an engine holds. Errors: `Purged`; `OutOfSpace`,
    /// `NoDescriptors`, `Io`: nothing was taken back; `Failed`, `Closed`, `NoJournal`.
    pub fn truncate(&self, from: Seq) -> Result<()> {
        let shared = &*self.shared;
        if shared.mode == LogMode::Off {
            return Err(LogError::NoJournal);
        }
        let mut writer = loop {
            // Waits for a group under way; without the writer nobody begins another.
            let writer = shared.writer.lock();
            shared.check_open()?;
            if from > self.last_seq() {
                return Ok(());
            }
            if from > self.durable_seq() || !shared.catalog.needs_spare() {
                break writer;
            }
            drop(writer);
            // So that whoever can make room is told where there is none.
            shared.make_spare()?;
        };
        let first = self.first_seq();
        if from < first {
            return Err(LogError::Purged { wanted: from, first });
        }
        let term = self.term_of(Seq(from.0 - 1))?;
        let durable = self.durable_seq();
        let _purging = shared.purging.lock();
        // Until the marks have fallen nobody says more.
        let mut position = shared.position.lock();
        position.note(&shared.disk, &shared.catalog, durable.min(Seq(from.0 - 1)))?;
        let place = (&shared.disk, &shared.catalog);
        let bytes = match writer.truncate(from, term, durable, place, &shared.buffer) {
            Err(error) if error.passes() => return Err(error),
            Err(error) => {
                let failed = shared.fail(&error);
                drop(writer);
                shared.wake_all();
                return Err(failed);
            }
            Ok(bytes) => bytes,
        };
        shared.set_left(writer.room());
        // Noted before the marks fall: whoever sees a mark that fell looks at the note first.
        {
            let mut truncations = shared.truncations.lock();
            truncations.push(from);
            shared.truncation_count.store(truncations.len(), Ordering::Release);
        }
        shared.terms.lock().truncate(from);
        shared.buffered.fetch_sub(bytes, Ordering::Relaxed);
        let last = from.0 - 1;
        shared.durable.store(durable.0.min(last), Ordering::Release);
        drop(position);
        shared.last.store(last, Ordering::Release);
        drop(writer);
        shared.wake_all();
        Ok(())
    }

    /// The term of an entry, or of the one before the first that can be read: of that `Purged` as well, where damage
    /// was met since opening that is older than the engine's mark was then. `Purged`, `NotAppended`. Reads the disk
    /// only for what is older than that mark was.
    pub fn term_of(&self, seq: Seq) -> Result<u64> {
        let shared = &*self.shared;
        let last = self.last_seq();
        if seq > last {
            return Err(LogError::NotAppended { seq, last });
        }
        if let Some(term) = shared.terms.lock().of(seq) {
            return Ok(term);
        }
        if let Some(first) = shared.catalog.first()
            && first.header.first == seq.next()
        {
            return Ok(first.header.term_before);
        }
        let mut reader = self.read(seq)?;
        match reader.next() {
            Some(entry) => entry.map(|_| reader.term()),
            None => Err(LogError::Truncated { wanted: seq, from: seq }),
        }
    }

    /// Returns when the entry `seq` and all before it are on disk. Flushes itself when nobody else does; otherwise
    /// waits for the group in the device, and then for one that holds the entry.
    ///
    /// Errors: `NoJournal` when the log is off; `NotAppended`; `OutOfSpace`, `NoDescriptors`: the entry stays buffered
    /// and reaches the disk when space, or a descriptor, returns; `Failed`, `Closed`.
    pub fn wait_durable(&self, seq: Seq) -> Result<()> {
        self.wait(seq, None)
    }

    /// As [`Log::wait_durable`], while `go_on`, which is asked every few milliseconds, says so: `Interrupted` when it
    /// does not. A sync under way by this thread's own hand is not cut short. The entry reaches the disk all the same.
    pub fn wait_durable_while(&self, seq: Seq, go_on: &dyn Fn() -> bool) -> Result<()> {
        self.wait(seq, Some(go_on))
    }

    fn wait(&self, seq: Seq, go_on: GoOn<'_>) -> Result<()> {
        if self.shared.mode == LogMode::Off {
            return Err(LogError::NoJournal);
        }
        if self.shared.durable_seq() >= seq {
            return self.shared.check_open();
        }
        self.shared.check_open()?;
        let last = self.last_seq();
        if seq > last {
            return Err(LogError::NotAppended { seq, last });
        }
        self.shared.flush_to(seq, go_on)
    }

    /// Brings everything appended so far to disk (unless the log is off), and returns the durable mark.
    pub fn flush(&self) -> Result<Seq> {
        self.shared.check_open()?;
        if self.shared.mode == LogMode::On {
            self.shared.flush_to(self.last_seq(), None)?;
        }
        Ok(self.durable_seq())
    }

    /// The last entry appended.
    pub fn last_seq(&self) -> Seq {
        Seq(self.shared.last.load(Ordering::Acquire))
    }

    /// The last entry known to be on disk (or in the engine, right after opening).
    pub fn durable_seq(&self) -> Seq {
        self.shared.durable_seq()
    }

    /// The first entry from which on all can be read, as far as is known: behind what was stepped over; the one to come
    /// when there is none.
    pub fn first_seq(&self) -> Seq {
        let readable_from = Seq(self.shared.readable_from.load(Ordering::Acquire));
        self.shared.first_seq().max(readable_from)
    }

    /// Bytes of history that purging leaves.
    pub fn retained_bytes(&self) -> u64 {
        self.shared.retention.lock().bytes
    }

    /// What purging leaves.
    pub fn retention(&self) -> Retention {
        *self.shared.retention.lock()
    }

    /// Changes what purging leaves from here on. What is gone stays gone.
    pub fn set_retention(&self, retention: Retention) {
        *self.shared.retention.lock() = retention;
    }

    /// Bytes of the segments that hold entries.
    pub fn segment_bytes(&self) -> u64 {
        self.shared.catalog.bytes()
    }

    /// Bytes that are written of those from the one with the entry `from` on: what is preallocated is not among them.
    pub fn written_bytes(&self, from: Seq) -> u64 {
        self.shared.catalog.written_bytes(from)
    }

    /// A reader of the durable entries from `from` on, which may lie in the future. `Purged` when it is gone.
    pub fn read(&self, from: Seq) -> Result<LogReader> {
        self.reader(from, Extent::Durable)
    }

    /// As [`Log::read`], of everything appended, what is only in memory included. A crash may take such entries back.
    pub fn read_appended(&self, from: Seq) -> Result<LogReader> {
        self.reader(from, Extent::Appended)
    }

    fn reader(&self, from: Seq, extent: Extent) -> Result<LogReader> {
        self.shared.check_open()?;
        let first = self.first_seq();
        if from < first {
            return Err(LogError::Purged { wanted: from, first });
        }
        Ok(LogReader::new(self.shared.clone(), from, extent))
    }

    /// Like [`Log::read`], by a thread of its own that reads, checks and decompresses ahead of the caller.
    pub fn read_ahead(&self, from: Seq) -> Result<ReadAhead> {
        ReadAhead::start(self.read(from)?).map_err(|source| LogError::Io {
            operation: "start the thread",
            path: crate::read_ahead::THREAD_NAME.into(),
            source,
        })
    }

    /// Recycles the segments whose entries are all at or below `up_to`, but for what [`crate::Retention`] keeps: its
    /// bytes only as long as the disk has room for the next segment. Does file operations on the caller's thread,
    /// beside appends and flushes. An `Io` error may be tried again; a failed sync of the directory ends the log
    /// (`Failed`).
    pub fn purge(&self, up_to: Seq) -> Result<()> {
        self.purge_for(up_to, 0, 0)
    }

    /// As [`Log::purge`]. Bytes of history that are to be kept make way for so many bytes at once in so many entries,
    /// too, where that is enough.
    pub fn purge_for(&self, up_to: Seq, bytes: usize, entries: usize) -> Result<()> {
        let shared = &*self.shared;
        shared.check_open()?;
        if shared.mode == LogMode::Off {
            return Ok(());
        }
        let wanted = match entries {
            0 => 0,
            _ => shared.room.segments_for_some(&shared.buffer.lock(), bytes, entries),
        };
        let result = {
            let _purging = shared.purging.lock();
            // What is named later is a later segment.
            let named = shared
                .position
                .lock()
                .note(&shared.disk, &shared.catalog, shared.durable_seq())?;
            let purge = Purge {
                up_to,
                named,
                retention: *shared.retention.lock(),
                now_ms: shared.clock.now_ms().max(0) as u64,
                segments_max: usize::MAX,
            };
            let purged = shared.catalog.purge(&shared.disk, &purge);
            purged.and_then(|()| shared.give_history_up(purge, wanted))
        };
        result.map_err(|error| match error {
            LogError::Io {
                operation: SYNC_DIRECTORY,
                ..
            } => {
                let failed = shared.fail(&error);
                shared.wake_all();
                failed
            }
            other => other,
        })
    }

    /// Pins the segments with the entries after `after`, see [`PinnedLog`]: all that was appended before the call is in
    /// them, and the entry to come begins a new one. Where none came yet the last segment is pinned, and none where
    /// nothing was ever appended or there is no log. Errors: those of [`Log::flush`]; `Purged`.
    pub fn pin(&self, after: Seq) -> Result<PinnedLog> {
        let shared = &*self.shared;
        let has_entry = self.flush()? > after;
        if shared.mode == LogMode::Off {
            return Ok(PinnedLog::new(Vec::new()));
        }
        // Not to be left without any segment where the disk is full, nor without room for what was appended since.
        let mut wanted = 1;
        let _writer = loop {
            shared.make_spares(wanted)?;
            let mut writer = shared.writer.lock();
            let buffer = shared.buffer.lock();
            shared.check_open()?;
            wanted = shared.room.segments_behind_end(&buffer);
            if shared.catalog.spares() >= wanted {
                writer.end_segment();
                shared.room.set_left(writer.room());
                break writer;
            }
        };
        match shared.catalog.pin(after.next()) {
            Some(segments) => Ok(PinnedLog::new(segments)),
            None if has_entry => Err(LogError::Purged {
                wanted: after.next(),
                first: self.first_seq(),
            }),
            None => Ok(PinnedLog::new(Vec::new())),
        }
    }

    /// Changes `commit_interval`.
    pub fn set_commit_interval(&self, interval: Duration) {
        let micros = interval.max(Duration::from_millis(1)).as_micros();
        self.shared
            .interval_us
            .store(micros.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
        self.shared.ask(|duty| duty.flush_soon = true);
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> LogStats {
        let shared = &*self.shared;
        LogStats {
            // Less than none, where some of those at the start were taken back.
            entries: self.last_seq().0.saturating_sub(shared.opened_at.0),
            entry_bytes: shared.entry_bytes.load(Ordering::Relaxed),
            buffered_bytes: shared.buffered.load(Ordering::Relaxed) as u64,
            segments: shared.catalog.len() as u64,
            is_short: shared.is_short(),
            ..shared.disk.counters.read()
        }
    }

    /// Flushes and ends the log; everything later answers `Closed`, and so do waits for what could not be flushed.
    /// Closing twice is fine.
    pub fn close(&self) -> Result<()> {
        let shared = &*self.shared;
        {
            let _buffer = shared.buffer.lock();
            if shared.closed.swap(true, Ordering::SeqCst) {
                return Ok(());
            }
        }
        self.stop_flusher();
        let result = shared.check_alive().and_then(|()| match shared.mode {
            LogMode::On => shared
                .flush_to(self.last_seq(), None)
                .map_err(|error| self.given_up(error))
                .and_then(|()| shared.note_position()),
            LogMode::Off => Ok(()),
        });
        shared.over.store(true, Ordering::Release);
        shared.wake_all();
        result
    }

    /// What closing without having flushed means.
    fn given_up(&self, error: LogError) -> LogError {
        match self.last_seq().0.saturating_sub(self.durable_seq().0) {
            0 => error,
            entries => LogError::GivenUp {
                entries,
                source: Box::new(error),
            },
        }
    }

    fn stop_flusher(&self) {
        self.shared.ask(|duty| duty.stop = true);
        if let Some(thread) = self.thread.lock().take() {
            // The flusher's panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop_flusher();
    }
}

impl Shared {
    pub fn durable_seq(&self) -> Seq {
        Seq(self.durable.load(Ordering::Acquire))
    }

    pub fn first_seq(&self) -> Seq {
        self.catalog.first_seq().unwrap_or_else(|| self.durable_seq().next())
    }

    /// The mark under the lock: the segments are those that hold it, or later ones.
    fn note_position(&self) -> Result<()> {
        let mut position = self.position.lock();
        position.note(&self.disk, &self.catalog, self.durable_seq()).map(drop)
    }

    /// An error after a failure.
    pub fn check_alive(&self) -> Result<()> {
        self.failure
            .get()
            .map_or(Ok(()), |reason| Err(LogError::Failed(reason.clone())))
    }

    /// An error after a failure or `close`.
    fn check_open(&self) -> Result<()> {
        self.check_alive()?;
        if self.closed.load(Ordering::Relaxed) {
            Err(LogError::Closed)
        } else {
            Ok(())
        }
    }

    fn ask(&self, what: impl FnOnce(&mut Duty)) {
        if self.background {
            what(&mut self.duty.lock());
            self.duty_wake.notify_one();
        }
    }

    /// Leads or follows until `seq`, which has been appended, is durable.
    fn flush_to(&self, seq: Seq, go_on: GoOn<'_>) -> Result<()> {
        self.flush_until(seq, &|| self.durable_seq() >= seq, go_on)
    }

    /// As [`Shared::flush_to`], for what `served` says. At the latest when everything that was appended before is on
    /// disk, it must.
    fn flush_until(&self, seq: Seq, served: &dyn Fn() -> bool, go_on: GoOn<'_>) -> Result<()> {
        let over = || go_on.is_some_and(|go_on| !go_on());
        let truncations = self.truncation_count.load(Ordering::Acquire);
        loop {
            if seq != SEQ_NEVER
                && let Some(from) = self.truncated_since(truncations)
                && from <= seq
            {
                // There may be another entry at its place by now.
                return Err(LogError::Truncated { wanted: seq, from });
            }
            if served() {
                return Ok(());
            }
            self.check_alive()?;
            if self.over.load(Ordering::Acquire) {
                return Err(LogError::Closed);
            }
            match self.waiters.enter(seq, served) {
                Turn::Served => {}
                Turn::Lead(lead) => {
                    self.lead(&lead)?;
                    lead.leave(self.durable_seq());
                    self.wait_list.wake_all();
                }
                Turn::Sleep(ticket) => {
                    let slice = go_on.map(|_| WAIT_SLICE);
                    if !self.waiters.sleep(ticket, served, over, slice) {
                        return Err(LogError::Interrupted);
                    }
                }
            }
        }
    }

    /// The earliest entry that was taken back since there were so many truncations.
    pub fn truncated_since(&self, truncations: usize) -> Option<Seq> {
        if self.truncation_count.load(Ordering::Acquire) == truncations {
            return None;
        }
        self.truncations.lock()[truncations..].iter().min().copied()
    }

    /// How many truncations there were.
    pub fn truncations(&self) -> usize {
        self.truncation_count.load(Ordering::Acquire)
    }

    /// The last entry appended.
    pub fn last_seq(&self) -> Seq {
        Seq(self.last.load(Ordering::Acquire))
    }

    /// Entries that are in memory still.
    pub fn buffered(&self, from: Seq) -> Option<BufferedEntries> {
        self.buffer.lock().read(from)
    }

    /// Takes what is buffered and flushes groups until nothing taken is left.
    fn lead(&self, lead: &Lead<'_>) -> Result<()> {
        // Free but for a moment of `pin`: only the leader writes.
        let mut writer = self.writer.lock();
        self.check_alive()?;
        writer.take(&self.buffer);
        loop {
            let flushed = writer.flush_group(&self.disk, &self.catalog, &self.position);
            match flushed {
                Ok(None) => {
                    self.note_unstuck();
                    return Ok(());
                }
                Ok(Some(flushed)) => {
                    debug_assert!(flushed.last >= self.durable_seq() && flushed.last <= self.last_seq());
                    self.durable.store(flushed.last.0, Ordering::Release);
                    self.states_durable.fetch_add(flushed.states, Ordering::Release);
                    // After the mark has risen: a reader finds each entry in memory or on disk.
                    let left = writer.room();
                    // Together with the frames that it has taken in: who appends sees no room twice, and all there is.
                    writer.forget(flushed.chunks, &self.buffer, || self.enter_segment(left));
                    // Not before: who looks without the lock sees no room twice either.
                    self.buffered.fetch_sub(flushed.raw_bytes, Ordering::Release);
                    if flushed.more {
                        lead.served(flushed.last);
                    }
                    if flushed.past_middle && self.catalog.needs_spare() {
                        self.ask(|duty| duty.prepare_spare = true);
                    }
                }
                Err(error) if error.passes() => {
                    // There may be a new segment all the same.
                    self.set_left(writer.room());
                    self.note_stuck(&error);
                    return Err(error);
                }
                Err(error) => return Err(self.fail(&error)),
            }
        }
    }

    /// What the segment in use has left is known. With the writer held.
    fn set_left(&self, left: u64) {
        let _buffer = self.buffer.lock();
        self.enter_segment(left);
    }

    /// As [`Shared::set_left`], with the buffer locked.
    fn enter_segment(&self, left: u64) {
        // In this order: who looks without a lock counts no file twice.
        self.catalog.entered();
        self.room.set_left(left);
    }

    /// Everybody has to look again: the log failed, is closed or was cut.
    fn wake_all(&self) {
        self.waiters.wake_all();
        self.wait_list.wake_all();
    }

    /// Ends the log for ever.
    fn fail(&self, error: &LogError) -> LogError {
        let reason: Arc<str> = error.to_string().into();
        if self.failure.set(reason.clone()).is_ok()
            && let Some(handler) = &self.on_failure
        {
            handler(error);
        }
        LogError::Failed(reason)
    }

    /// The background thread: flushes what nobody waits for, and makes files ahead of time.
    fn run_flusher(&self) {
        loop {
            let interval = Duration::from_micros(self.interval_us.load(Ordering::Relaxed));
            let mut duty = self.duty.lock();
            if !duty.stop && !duty.flush_soon && !duty.prepare_spare {
                duty = self.duty_wake.wait_for(duty, interval);
            }
            let asked = std::mem::take(&mut *duty);
            drop(duty);
            if asked.stop || self.check_alive().is_err() {
                return;
            }
            // A full disk is met again, and a failure is reported, where somebody can act on it.
            let _ = self.flush_to(self.last_seq(), None);
            if asked.prepare_spare || self.room.is_short() {
                let _ = self.make_spare();
            }
        }
    }
}

fn start_flusher(shared: Arc<Shared>) -> Result<JoinHandle<()>> {
    thread::Builder::new()
        .name("oplog-flush".to_owned())
        .spawn(move || shared.run_flusher())
        .map_err(|source| LogError::Io {
            operation: "start a thread for",
            path: Default::default(),
            source,
        })
}
