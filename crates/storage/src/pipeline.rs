//! What lies between a write's evaluation and its publication, see `commit.rs`.

use crate::Collection;
use crate::catalog::collection::CollectionShared;
use crate::cluster_time::ClusterTime;
use crate::effect::Effect;
use crate::limits::QUEUED_BYTES_MAX;
use engine::{Seq, TableId};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use vfs::WaitList;

/// What the next entry's place and time follow from.
#[derive(Default)]
pub(crate) struct Order {
    /// Log bytes since the last checkpoint.
    pub(crate) log_bytes: u64,
    /// Of the last entry.
    pub(crate) cluster_time: ClusterTime,
    /// The term that the next entry begins.
    pub(crate) new_term: Option<u64>,
    /// The last entry that writes counts down.
    pub(crate) counts_proposed: Seq,
    /// Whether this server appends to the log.
    pub(crate) leads: Leads,
}

/// Whether a server appends entries of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Leads {
    #[default]
    Yes,
    /// It was elected, and what the leaders before it left is not applied yet: only its term's first entry.
    Draining,
    No,
}

impl Order {
    /// Cluster time that others have seen is not given again.
    pub(crate) fn saw_time(&mut self, time: ClusterTime) {
        self.cluster_time = self.cluster_time.max(time);
    }
}

/// What changes as entries take effect.
#[derive(Default)]
pub(crate) struct Applied {
    /// Collections whose counts differ from those in the statistics table, each once.
    pub(crate) changed_counts: Vec<(TableId, Arc<CollectionShared>)>,
    /// What the statistics table lacks is told by the entries from behind this one on.
    pub(crate) counted_at: Seq,
}

impl Applied {
    /// The counts of a collection differ from those written down last. Free when that was known.
    pub(crate) fn counts_changed(&mut self, collection: &Collection) {
        let shared = &collection.shared;
        // Only who applies looks at the flag.
        if !shared.counts_changed.load(Ordering::Relaxed) {
            shared.counts_changed.store(true, Ordering::Relaxed);
            self.changed_counts.push((collection.table(), shared.clone()));
        }
    }
}

/// An effect at its place in the log.
pub(crate) struct Proposed {
    pub(crate) seq: Seq,
    pub(crate) effect: Effect,
    /// Of its rows.
    bytes: u64,
}

/// What lies between propose and apply.
pub(crate) struct Pipeline {
    pub(crate) order: Mutex<Order>,
    pub(crate) applying: Mutex<Applied>,
    /// In the order of the log. Locked for a moment only.
    pub(crate) queue: Mutex<VecDeque<Proposed>>,
    /// Bytes of the rows in `queue`. Changes with that locked.
    queued_bytes: AtomicU64,
    /// Entries up to here stay; the largest number where this server decides alone.
    pub(crate) committed: AtomicU64,
    /// Entries from here on have their effects in the queue; those before are applied from the log (`follow.rs`).
    pub(crate) queue_from: AtomicU64,
    /// Those before `queue_from` have been taken from the log up to here.
    pub(crate) followed: AtomicU64,
    /// Where following begins anew; 0: it goes on where it was.
    pub(crate) follow_from: AtomicU64,
    /// What other servers wrote is applied so many milliseconds later.
    pub(crate) apply_delay_ms: AtomicU64,
    /// Whether this server appends to the log, for those who look without `order`.
    pub(crate) leads: AtomicBool,
    /// Rises when this server ceases to lead, as what it has proposed since may be lost, and when it begins to: while
    /// it follows, what others write is applied without a lock, so nothing that is evaluated then is proposed later.
    epoch: AtomicU64,
    /// The last epoch in which this server led that is over, and what was applied at its end.
    ended: Mutex<Option<(u64, Seq)>>,
    /// The last one applied and published: snapshots have it.
    published: AtomicU64,
    /// The last one that has taken effect as a whole: what is kept in memory beside the engine has it, too.
    installed: AtomicU64,
    /// Cluster times of those two.
    published_time: AtomicU64,
    applied_time: AtomicU64,
    pub(crate) waiters: AtomicU32,
    /// Those who wait without a thread for something to take effect.
    pub(crate) wait_list: Arc<WaitList>,
    pub(crate) waiting: Mutex<()>,
    pub(crate) advanced: Condvar,
}

impl Pipeline {
    pub(crate) fn new() -> Self {
        Self {
            order: Mutex::default(),
            applying: Mutex::default(),
            queue: Mutex::default(),
            queued_bytes: AtomicU64::new(0),
            committed: AtomicU64::new(u64::MAX),
            queue_from: AtomicU64::new(0),
            followed: AtomicU64::new(0),
            follow_from: AtomicU64::new(0),
            apply_delay_ms: AtomicU64::new(0),
            leads: AtomicBool::new(true),
            epoch: AtomicU64::new(0),
            ended: Mutex::default(),
            published: AtomicU64::new(0),
            installed: AtomicU64::new(0),
            published_time: AtomicU64::new(0),
            applied_time: AtomicU64::new(0),
            waiters: AtomicU32::new(0),
            wait_list: Arc::default(),
            waiting: Mutex::default(),
            advanced: Condvar::new(),
        }
    }

    /// An entry waits to be applied, behind those before it.
    pub(crate) fn enqueue(&self, seq: Seq, effect: Effect) {
        let bytes = effect.row_bytes();
        let mut queue = self.queue.lock();
        self.queued_bytes.fetch_add(bytes, Ordering::Relaxed);
        queue.push_back(Proposed { seq, effect, bytes });
    }

    /// The next one to be applied, when it is committed.
    pub(crate) fn dequeue_committed(&self) -> Option<Proposed> {
        let mut queue = self.queue.lock();
        let proposed = match queue.front() {
            Some(proposed) if self.is_committed(proposed.seq) => queue.pop_front()?,
            _ => return None,
        };
        let before = self.queued_bytes.fetch_sub(proposed.bytes, Ordering::Relaxed);
        debug_assert!(
            before >= proposed.bytes && (before == proposed.bytes || !queue.is_empty()),
            "{before} bytes are in the queue, {} of them go, and {} entries stay",
            proposed.bytes,
            queue.len()
        );
        Some(proposed)
    }

    /// What is proposed is not applied from here.
    pub(crate) fn clear_queue(&self) {
        let mut queue = self.queue.lock();
        self.queued_bytes.store(0, Ordering::Relaxed);
        queue.clear();
    }

    /// Whether what is proposed and not applied takes so much memory that nobody is to go on before it is.
    pub(crate) fn is_full(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) >= QUEUED_BYTES_MAX
    }

    /// The newest proposed entry that changes who is a member of the set, if one is not applied yet.
    pub(crate) fn change_of_members(&self) -> Option<Seq> {
        let queue = self.queue.lock();
        let mut changes = queue.iter().rev().filter(|proposed| proposed.effect.changes_members());
        changes.next().map(|proposed| proposed.seq)
    }

    pub(crate) fn published(&self) -> Seq {
        Seq(self.published.load(Ordering::Acquire))
    }

    pub(crate) fn published_time(&self) -> ClusterTime {
        ClusterTime(self.published_time.load(Ordering::Acquire))
    }

    /// Entries up to `seq`, which was made at `time`, are applied and published. By who applies, and by recovery.
    pub(crate) fn set_published(&self, seq: Seq, time: ClusterTime) {
        // The time first: who finds a time together with a position in front of it sees that a state is on its way.
        raise(&self.published_time, time);
        self.published.store(seq.0, Ordering::Release);
    }

    /// What a snapshot shows may be ahead of this, for a moment: whoever goes on behind an entry waits for this one.
    pub(crate) fn installed(&self) -> Seq {
        Seq(self.installed.load(Ordering::Acquire))
    }

    /// Entries up to `seq` have taken effect as a whole. As [`Pipeline::set_published`].
    pub(crate) fn set_installed(&self, seq: Seq, time: ClusterTime) {
        self.installed.store(seq.0, Ordering::Release);
        raise(&self.applied_time, time);
    }

    pub(crate) fn applied_time(&self) -> ClusterTime {
        ClusterTime(self.applied_time.load(Ordering::Acquire))
    }

    /// From here on entries stay when [`crate::Storage::commit_to`] says so. When all that was proposed is applied.
    pub(crate) fn await_commits(&self) {
        self.committed.store(self.published().0, Ordering::Release);
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// This server leads from here on. Before it says so, and with `order` held.
    pub(crate) fn begin_to_lead(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// What is proposed and not applied is lost. With both mutexes held.
    pub(crate) fn cease_to_lead(&self) {
        *self.ended.lock() = Some((self.epoch(), self.published()));
        self.epoch.fetch_add(1, Ordering::AcqRel);
    }

    /// Whether the entry that was proposed at `seq` in an epoch is still the one at that place, as far as is known.
    pub(crate) fn is_kept(&self, seq: Seq, epoch: u64) -> bool {
        let stayed = |(ended, kept)| ended == epoch && seq <= kept;
        epoch == self.epoch() || self.ended.lock().is_some_and(stayed)
    }

    /// Whether what comes before the queue has been applied.
    pub(crate) fn is_drained(&self) -> bool {
        self.followed.load(Ordering::Acquire) + 1 >= self.queue_from.load(Ordering::Acquire)
    }

    pub(crate) fn is_committed(&self, seq: Seq) -> bool {
        seq.0 <= self.committed.load(Ordering::Acquire)
    }

    pub(crate) fn wake(&self) {
        // Pairs with the count's rise in `wait_installed`: either the waiter sees what was installed, or it is counted
        // here.
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.waiters.load(Ordering::SeqCst) > 0 {
            let _waiting = self.waiting.lock();
            self.advanced.notify_all();
        }
        self.wait_list.wake_all();
    }
}

/// Entries of old formats have no time. One thread at a time does this.
fn raise(of: &AtomicU64, time: ClusterTime) {
    let before = of.load(Ordering::Relaxed);
    of.store(before.max(time.0), Ordering::Release);
}
