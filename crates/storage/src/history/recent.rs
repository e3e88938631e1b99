//! Readers of history, and what they share.
//!
//! 1. `Recent` holds the units that were decoded last, without a gap: all of them between two positions of the log.
//! 2. A reader inside of it takes its next unit from there. One at its end moves the end: it decodes what comes next
//!    for all.
//! 3. A reader in front of it reads the log itself until it is inside. One behind it (nobody has read for a while)
//!    begins it anew at its own place.
//!
//! Whoever moves the end holds `tail` while it reads the log; the units themselves are locked for a moment only.
//!
//! A reader of the log has a file of it open, and a piece of that in memory. Between two units a few of those that were
//! used last keep theirs; the others, as cursors that nobody fetches from, begin again where they stand.

use super::unit::Decoder;
use super::{HistoryExtent, HistoryUnit};
use crate::StorageError;
use crate::storage::Storage;
use engine::Seq;
use oplog::LogReader;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// So many readers keep what they go on with in the log.
const RESTING_MAX: usize = 16;
/// Bytes of units kept for all readers.
const RECENT_BYTES_MAX: usize = 16 << 20;
/// Entries that who moves the end decodes at a time, and bytes of them behind which it stops.
const AHEAD_ENTRIES: usize = 64;
const AHEAD_BYTES: usize = 1 << 20;
/// Units of so many bytes are shared by those who read them in front of what is kept for all.
const LARGE_UNIT_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub(crate) struct Recent {
    units: Mutex<Units>,
    tail: Mutex<Option<LogReader>>,
    readers: AtomicUsize,
    /// Units read in front of those, while somebody has them: of a large one that many readers are in there is one.
    large: Mutex<BTreeMap<Seq, Weak<HistoryUnit>>>,
    /// The first unit that can be told, and for which floor (see [`Storage::history_floor`]) it was found.
    first: Mutex<Option<(Seq, Seq)>>,
    /// Those that keep what they go on with, the one that was used last at the end.
    resting: Mutex<VecDeque<Weak<Own>>>,
}

/// What a reader goes on with, and the chain that it is in.
type Own = Mutex<Option<Box<(LogReader, Decoder)>>>;

/// All units of the entries from `first` on, up to `next`.
#[derive(Default)]
struct Units {
    first: Seq,
    next: Seq,
    units: VecDeque<Arc<HistoryUnit>>,
    bytes: usize,
}

enum Found {
    Unit(Arc<HistoryUnit>),
    /// Nothing up to this position.
    NothingBefore(Seq),
    /// The reader stands at the end.
    AtEnd,
    Behind,
    InFront,
}

impl Units {
    fn find(&self, from: Seq) -> Found {
        if from < self.first {
            return Found::InFront;
        }
        if from >= self.next {
            return if from == self.next { Found::AtEnd } else { Found::Behind };
        }
        let place = self.units.partition_point(|unit| unit.seq < from);
        match self.units.get(place) {
            Some(unit) => Found::Unit(unit.clone()),
            None => Found::NothingBefore(self.next),
        }
    }

    fn begin_anew(&mut self, at: Seq) {
        *self = Self {
            first: at,
            next: at,
            ..Self::default()
        };
    }

    fn push(&mut self, unit: Option<HistoryUnit>, next: Seq) {
        debug_assert!(self.next < next, "{:?} to {next:?}", self.next);
        debug_assert!(
            unit.as_ref()
                .is_none_or(|unit| self.next <= unit.seq && unit.seq < next),
            "a unit is of the entries that are added"
        );
        self.next = next;
        let Some(unit) = unit else { return };
        self.bytes += unit.bytes;
        self.units.push_back(Arc::new(unit));
        // The newest one stays, whatever it takes: its reader comes for it.
        while self.bytes > RECENT_BYTES_MAX && self.units.len() > 1 {
            let gone = self.units.pop_front().expect("it is not empty");
            self.bytes -= gone.bytes;
            self.first = gone.seq.next();
        }
    }
}

/// Reads units in order, from a position on.
pub struct HistoryReader {
    storage: Arc<Storage>,
    extent: HistoryExtent,
    next: Seq,
    /// See [`HistoryReader::looked_up_to`].
    looked_up_to: Seq,
    /// Between two units, if it reads by itself.
    own: Arc<Own>,
}

impl Recent {
    pub(super) fn first_unit_behind(&self, floor: Seq) -> Option<Seq> {
        self.first.lock().filter(|(of, _)| *of == floor).map(|(_, first)| first)
    }

    pub(super) fn set_first_unit_behind(&self, floor: Seq, first: Seq) {
        *self.first.lock() = Some((floor, first));
    }

    /// The unit, or what another reader has of it.
    fn share(&self, unit: HistoryUnit) -> Arc<HistoryUnit> {
        if unit.bytes < LARGE_UNIT_BYTES {
            return Arc::new(unit);
        }
        let mut large = self.large.lock();
        large.retain(|_, unit| unit.strong_count() > 0);
        if let Some(there) = large.get(&unit.seq).and_then(Weak::upgrade) {
            // Log entries are made anew where the end of the log was taken back.
            if (there.time, there.term) == (unit.time, unit.term) {
                return there;
            }
        }
        let unit = Arc::new(unit);
        large.insert(unit.seq, Arc::downgrade(&unit));
        unit
    }

    /// A reader rests, and may go on with what it has unless others do so later.
    fn rest(&self, own: &Arc<Own>) {
        let mut resting = self.resting.lock();
        resting.retain(|other| other.strong_count() > 0 && !std::ptr::eq(other.as_ptr(), Arc::as_ptr(own)));
        resting.push_back(Arc::downgrade(own));
        let gone = match resting.len() > RESTING_MAX {
            true => resting.pop_front(),
            false => None,
        };
        drop(resting);
        if let Some(own) = gone.and_then(|gone| gone.upgrade()) {
            let gone = own.lock().take();
            // Its file is closed with no lock held.
            drop(gone);
        }
    }
}

impl HistoryReader {
    pub(super) fn new(storage: Arc<Storage>, from: Seq, extent: HistoryExtent) -> Self {
        storage.recent.readers.fetch_add(1, Ordering::Relaxed);
        Self {
            storage,
            extent,
            next: from,
            looked_up_to: Seq::ZERO,
            own: Arc::default(),
        }
    }

    /// Where it goes on.
    pub fn position(&self) -> Seq {
        self.next
    }

    /// The last entry that it may read up to, now.
    pub(crate) fn end(&self) -> Seq {
        self.storage.history_end(self.extent)
    }

    /// The last entry that it might have read up to when it answered that there is no unit.
    pub fn looked_up_to(&self) -> Seq {
        self.looked_up_to
    }

    /// Whether it would go on with what it has in the log.
    #[cfg(test)]
    pub(super) fn holds_log(&self) -> bool {
        self.own.lock().is_some()
    }

    /// Gives up what it would go on with sooner, before it rests.
    pub fn rest(&mut self) {
        *self.own.lock() = None;
    }

    /// The next unit; `None` when there is none yet.
    ///
    /// Errors: [`StorageError::HistoryLost`] when its place in the log has been recycled, and damage.
    pub fn next_unit(&mut self) -> Result<Option<Arc<HistoryUnit>>, StorageError> {
        let mut own = self.own.lock().take();
        let unit = self.find_unit(&mut own);
        if own.is_some() {
            *self.own.lock() = own;
            self.storage.recent.rest(&self.own);
        }
        unit
    }

    fn find_unit(
        &mut self,
        own: &mut Option<Box<(LogReader, Decoder)>>,
    ) -> Result<Option<Arc<HistoryUnit>>, StorageError> {
        loop {
            let end = self.end();
            self.looked_up_to = end;
            if self.next > end {
                return Ok(None);
            }
            let storage = self.storage.clone();
            let found = storage.recent.units.lock().find(self.next);
            match found {
                Found::Unit(unit) => {
                    *own = None;
                    if unit.seq > end {
                        return Ok(None);
                    }
                    self.next = unit.seq.next();
                    return Ok(Some(unit));
                }
                Found::NothingBefore(next) => self.next = next,
                Found::AtEnd => {
                    *own = None;
                    storage.move_recent(self.next)?;
                }
                Found::Behind => {
                    let mut tail = storage.recent.tail.lock();
                    let mut units = storage.recent.units.lock();
                    if self.next > units.next {
                        units.begin_anew(self.next);
                        *tail = None;
                    }
                }
                Found::InFront => match self.read_own(own)? {
                    Some(unit) if unit.seq > end => {
                        // A chain whose end no reader of this kind is shown yet.
                        *own = None;
                        return Ok(None);
                    }
                    Some(unit) => {
                        self.next = unit.seq.next();
                        return Ok(Some(unit));
                    }
                    None => {}
                },
            }
        }
    }

    /// The next unit from the log itself, on which the caller moves; `None` when the next entry did not end one. Within
    /// a chain its place stays the chain's first entry: it may have to begin there again.
    fn read_own(
        &mut self,
        own: &mut Option<Box<(LogReader, Decoder)>>,
    ) -> Result<Option<Arc<HistoryUnit>>, StorageError> {
        let storage = &self.storage;
        if own.is_none() {
            // It opens a file, for as long as clients like.
            let checked = storage.env.fs.check_descriptors();
            checked.map_err(|error| StorageError::OutOfDescriptors(format!("cannot read old history: {error}")))?;
            *own = Some(Box::new((storage.read_log(self.next)?, Decoder::new())));
        }
        let reading = own.as_mut().expect("it was just made");
        match read_unit(storage, reading) {
            Ok((unit, next)) => {
                self.next = next.unwrap_or(self.next);
                Ok(unit.map(|unit| storage.recent.share(unit)))
            }
            Err(error) => {
                // From here on it would only say that it has ended.
                *own = None;
                Err(error)
            }
        }
    }
}

/// Reads an entry, and answers the unit that it ends, and where to go on if not within a chain.
fn read_unit(
    storage: &Storage,
    own: &mut (LogReader, Decoder),
) -> Result<(Option<HistoryUnit>, Option<Seq>), StorageError> {
    let (reader, decoder) = own;
    let Some((seq, bytes)) = storage.read_entry(reader)? else {
        return Ok((None, None));
    };
    let unit = decoder.add(storage, (seq, &bytes, reader.term()))?;
    let goes_on = unit.is_none() && !decoder.is_open();
    Ok((unit, goes_on.then(|| seq.next())))
}

impl Drop for HistoryReader {
    fn drop(&mut self) {
        let recent = &self.storage.recent;
        if recent.readers.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        // The last one: nobody comes for what is kept. One that was made meanwhile may be moving the end, and counts on
        // what it found there until it gives `tail` back.
        let mut tail = recent.tail.lock();
        if recent.readers.load(Ordering::Relaxed) == 0 {
            *tail = None;
            recent.units.lock().begin_anew(Seq::ZERO);
        }
    }
}

impl Storage {
    fn read_log(&self, from: Seq) -> Result<LogReader, StorageError> {
        self.log.read_appended(from).map_err(|error| self.history_error(error))
    }

    fn read_entry(&self, reader: &mut LogReader) -> Result<Option<(Seq, bytes::Bytes)>, StorageError> {
        reader.next().transpose().map_err(|error| self.history_error(error))
    }

    /// Decodes what comes at the end of what is kept, if that is still `at`.
    fn move_recent(&self, at: Seq) -> Result<(), StorageError> {
        let recent = &self.recent;
        let mut tail = recent.tail.lock();
        if recent.units.lock().next != at {
            return Ok(());
        }
        let reader = match &mut *tail {
            Some(reader) if reader.next_seq() == at => reader,
            other => other.insert(self.read_log(at)?),
        };
        let end = self.history_end(HistoryExtent::Applied);
        let (mut decoder, mut bytes_read) = (Decoder::new(), 0);
        for _ in 0..AHEAD_ENTRIES {
            let is_enough = bytes_read >= AHEAD_BYTES && !decoder.is_open();
            if is_enough || reader.next_seq() > end {
                break;
            }
            let read = match self.read_entry(reader) {
                Ok(read) => read,
                Err(error) => {
                    // It only says that it has ended from here on: whoever comes next needs another one.
                    *tail = None;
                    return Err(error);
                }
            };
            let Some((seq, bytes)) = read else {
                break;
            };
            bytes_read += bytes.len();
            let decoded = decoder.add(self, (seq, &bytes, reader.term()));
            let is_open = decoder.is_open();
            match decoded {
                // A unit's entries are moved over together.
                Ok(None) if is_open => {}
                Ok(unit) => recent.units.lock().push(unit, seq.next()),
                Err(error) => {
                    *tail = None;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::{Calls, Machine};
    use bson::rawdoc;

    /// The last reader went while another one came: what was kept for all began at the beginning of the log from then
    /// on, with a gap, and whoever resumed in that was not told of anything there.
    #[test]
    fn a_reader_that_comes_while_the_last_one_goes_finds_no_gap() {
        let machine = Machine::new(1);
        let (storage, op) = (machine.open().unwrap(), machine.operation());
        storage.keep_history();
        storage.make(&op, "c", rawdoc! {});
        let end = storage.last_seq().next();
        let last = storage.history(end, HistoryExtent::Applied);
        storage.recent.units.lock().begin_anew(end);
        // It stands before the tail, which somebody has.
        let tail = storage.recent.tail.lock();
        let going = std::thread::spawn(move || drop(last));
        while storage.recent.readers.load(Ordering::Relaxed) > 0 {
            std::thread::yield_now();
        }
        let mut coming = storage.history(end, HistoryExtent::Applied);
        drop(tail);
        going.join().unwrap();
        assert_eq!(storage.recent.units.lock().next, end);
        storage.put(&op, "c", rawdoc! { "_id": 1 }).unwrap();
        assert!(coming.next_unit().unwrap().is_some());
        assert_eq!(storage.recent.units.lock().first, end);
    }
}
