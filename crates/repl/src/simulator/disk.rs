//! A member's log on its disk: a journal of which a crash keeps what was synced and a part of the rest.

use crate::LogView;
use bytes::Bytes;
use engine::Seq;
use oplog::HardState;
use std::cell::RefCell;
use std::rc::Rc;

/// An entry in a log; its place is one more than its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub term: u64,
    pub bytes: Bytes,
}

enum Record {
    Entry(LogEntry),
    TakeBack(Seq),
    State(HardState),
}

/// A log and the last state.
#[derive(Clone, Default)]
pub struct Image {
    pub entries: Vec<LogEntry>,
    pub state: Option<HardState>,
}

/// See the module.
#[derive(Default)]
pub struct Disk {
    /// As the member sees it.
    pub now: Image,
    /// As it is after a crash, but for a part of `pending`.
    pub synced: Image,
    pending: Vec<Record>,
    /// Records ever written, and of these the synced ones.
    written: u64,
    synced_records: u64,
}

impl Image {
    pub fn last(&self) -> Seq {
        Seq(self.entries.len() as u64)
    }

    pub fn get(&self, seq: Seq) -> Option<&LogEntry> {
        self.entries.get((seq.0 as usize).checked_sub(1)?)
    }

    fn take(&mut self, record: &Record) {
        match record {
            Record::Entry(entry) => self.entries.push(entry.clone()),
            Record::TakeBack(from) => self.entries.truncate(from.0 as usize - 1),
            Record::State(state) => self.state = Some(*state),
        }
    }
}

impl Disk {
    pub fn append(&mut self, term: u64, bytes: Bytes) {
        self.write(Record::Entry(LogEntry { term, bytes }));
    }

    pub fn take_back(&mut self, from: Seq) {
        self.write(Record::TakeBack(from));
    }

    pub fn write_state(&mut self, state: HardState) {
        self.write(Record::State(state));
    }

    /// How much has been written: what [`Disk::sync_to`] takes.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// What was written up to `mark` is on disk.
    pub fn sync_to(&mut self, mark: u64) {
        let count = (mark - self.synced_records.min(mark)) as usize;
        for record in self.pending.drain(..count) {
            self.synced.take(&record);
        }
        self.synced_records = self.synced_records.max(mark);
    }

    /// Power is lost; `kept` decides how many of the unsynced records were written all the same.
    pub fn crash(&mut self, kept: impl FnOnce(usize) -> usize) {
        let kept = kept(self.pending.len());
        self.sync_to(self.synced_records + kept as u64);
        self.pending.clear();
        self.written = self.synced_records;
        self.now = self.synced.clone();
    }

    /// Everything is lost.
    pub fn wipe(&mut self) {
        *self = Self::default();
    }

    /// Begins with a copy of another disk's entries, durably, as a member that nobody has voted for.
    pub fn begin_with(&mut self, entries: &[LogEntry]) {
        let image = Image {
            entries: entries.to_vec(),
            state: Some(HardState {
                term: entries.last().map_or(0, |entry| entry.term),
                vote: 0,
                commit: Seq(entries.len() as u64),
            }),
        };
        self.put_back(image);
    }

    /// Is what it once was.
    pub fn put_back(&mut self, image: Image) {
        *self = Self {
            now: image.clone(),
            synced: image,
            ..Self::default()
        };
    }

    fn write(&mut self, record: Record) {
        self.now.take(&record);
        self.pending.push(record);
        self.written += 1;
    }
}

/// A disk that a member and its driver share.
#[derive(Clone, Default)]
pub struct SharedDisk(pub Rc<RefCell<Disk>>);

impl LogView for SharedDisk {
    fn first(&self) -> Seq {
        Seq(1)
    }

    fn last(&self) -> Seq {
        self.0.borrow().now.last()
    }

    fn term(&self, seq: Seq) -> Result<u64, String> {
        let disk = self.0.borrow();
        match seq.0 {
            0 => Ok(0),
            _ => disk.now.get(seq).map(|entry| entry.term).ok_or(format!("no {seq:?}")),
        }
    }
}
