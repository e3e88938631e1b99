//! What was retired and waits to be freed, in groups with the epoch by which they were: a thread's own, and what is for
//! all. Knows neither threads nor epochs; whoever takes a group drops it, with nothing here borrowed or locked.

use crate::retired::Retired;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Values of a group, but for the last one of a thread that flushes or ends.
const GROUP_VALUES: usize = 16;
/// A thread keeps so many groups for itself, or one of so many bytes: what more there is another may free, if this
/// thread should rest.
const OWN_GROUPS_MAX: usize = 64;
const OWN_BYTES_MAX: usize = 256 << 10;
/// Epochs until what was retired by one is out of everybody's sight.
pub(crate) const EPOCHS_IN_SIGHT: u64 = 2;

/// Values and the epoch by which they were retired.
pub(crate) struct Group {
    epoch: u64,
    bytes: usize,
    values: Vec<Retired>,
}

impl Group {
    /// Frees so many values; answers how many it were.
    pub(crate) fn free(&mut self, values: usize) -> usize {
        let before = self.values.len();
        self.values.truncate(before.saturating_sub(values));
        before - self.values.len()
    }

    fn is_over(&self, epoch: u64) -> bool {
        self.epoch + EPOCHS_IN_SIGHT <= epoch
    }
}

/// A thread's own.
#[derive(Default)]
pub(crate) struct Garbage {
    open: Vec<Retired>,
    open_bytes: usize,
    closed: VecDeque<Group>,
    closed_bytes: usize,
    /// Memory for a group.
    spare: Vec<Retired>,
}

impl Garbage {
    /// Takes a value. True when there are enough for a group.
    #[inline]
    pub(crate) fn push(&mut self, retired: Retired) -> bool {
        self.open_bytes += retired.bytes();
        self.open.push(retired);
        self.open.len() >= GROUP_VALUES
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    /// Whether the oldest group is out of sight in `epoch`.
    pub(crate) fn can_free(&self, epoch: u64) -> bool {
        self.closed.front().is_some_and(|group| group.is_over(epoch))
    }

    /// Whether there are groups, and none can be freed before the epoch rises.
    pub(crate) fn waits_in(&self, epoch: u64) -> bool {
        self.closed.front().is_some_and(|group| !group.is_over(epoch))
    }

    /// Takes back what is left of the oldest group.
    pub(crate) fn put_back(&mut self, group: Group) {
        if group.values.is_empty() {
            self.spare = group.values;
        } else {
            self.closed_bytes += group.bytes;
            self.closed.push_front(group);
        }
    }

    /// Makes a group of what was pushed, all of it retired by `epoch`. Answers the oldest one where there are too many.
    pub(crate) fn close(&mut self, epoch: u64) -> Option<Group> {
        let bytes = std::mem::take(&mut self.open_bytes);
        self.closed_bytes += bytes;
        self.closed.push_back(Group {
            epoch,
            bytes,
            values: std::mem::replace(&mut self.open, std::mem::take(&mut self.spare)),
        });
        let is_much = self.closed.len() > OWN_GROUPS_MAX || self.closed_bytes > OWN_BYTES_MAX;
        if is_much { self.pop() } else { None }
    }

    fn pop(&mut self) -> Option<Group> {
        let group = self.closed.pop_front()?;
        self.closed_bytes -= group.bytes;
        Some(group)
    }

    /// The oldest group, if it is out of sight in `epoch`.
    pub(crate) fn take(&mut self, epoch: u64) -> Option<Group> {
        if self.can_free(epoch) { self.pop() } else { None }
    }

    /// Everything, all of it retired by `epoch`.
    pub(crate) fn take_all(&mut self, epoch: u64) -> impl Iterator<Item = Group> + use<> {
        let overflow = if self.has_open() { self.close(epoch) } else { None };
        self.closed_bytes = 0;
        overflow.into_iter().chain(std::mem::take(&mut self.closed))
    }
}

/// What is for all.
pub(crate) struct Queue {
    groups: Mutex<VecDeque<Group>>,
    /// How many there are, for those who look every time.
    len: AtomicUsize,
}

impl Queue {
    pub(crate) const fn new() -> Self {
        Self {
            groups: Mutex::new(VecDeque::new()),
            len: AtomicUsize::new(0),
        }
    }

    pub(crate) fn push(&self, group: Group) {
        let mut groups = self.groups.lock();
        groups.push_back(group);
        self.len.store(groups.len(), Ordering::Relaxed);
    }

    /// The oldest group, if it is out of sight in `epoch`.
    pub(crate) fn take(&self, epoch: u64) -> Option<Group> {
        if self.len.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut groups = self.groups.lock();
        groups.front().filter(|group| group.is_over(epoch))?;
        let group = groups.pop_front();
        self.len.store(groups.len(), Ordering::Relaxed);
        group
    }

    /// Takes back what is left of the oldest group.
    pub(crate) fn put_back(&self, group: Group) {
        if !group.values.is_empty() {
            let mut groups = self.groups.lock();
            groups.push_front(group);
            self.len.store(groups.len(), Ordering::Relaxed);
        }
    }
}
