//! Runs: immutable, sorted entries, as they lie in a basement (rows) or on their way to one (messages).
//!
//! An entry is a key, the position from which on it counts, and what it says: a value, that there is none, or a
//! number to add to whatever lies below. Entries rise by key and, for one key, fall by position. A run may have
//! range tombstones, which take away what is older than they are. `docs/formats/betree.md` has the bytes.

use crate::bytes_io::{Damage, Reader, put_bytes, put_varint};
use bytes::Bytes;
use engine::{KeyRange, Seq};
use std::ops::Bound;

/// A key that several nodes share.
pub(crate) type Key = std::sync::Arc<[u8]>;

/// Bytes before the first entry.
const HEADER_BYTES: usize = 24;
const VERSION: u8 = 1;
const TAG_MASK: u8 = 0x0f;
const TAG_PUT: u8 = 0;
const TAG_DELETE: u8 = 1;
const TAG_ADD: u8 = 2;
/// The entry has a position; one without counts from the beginning.
const HAS_SEQ: u8 = 0x80;

/// What an entry says of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpRef<'a> {
    Put(&'a [u8]),
    Delete,
    Add(i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) seq: Seq,
    pub(crate) op: OpRef<'a>,
}

/// Everything older than `seq` from `start` on, up to and without `end`, is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub(crate) start: Key,
    pub(crate) end: Option<Key>,
    pub(crate) seq: Seq,
}

/// The first key behind `key`.
pub(crate) fn behind(key: &[u8]) -> Key {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// A range as its first key and the first key behind it.
pub(crate) fn half_open(range: &KeyRange) -> (Key, Option<Key>) {
    let start = match &range.start {
        Bound::Included(key) => Key::from(&key[..]),
        Bound::Excluded(key) => behind(key),
        Bound::Unbounded => Key::from(&[][..]),
    };
    let end = match &range.end {
        Bound::Included(key) => Some(behind(key)),
        Bound::Excluded(key) => Some(Key::from(&key[..])),
        Bound::Unbounded => None,
    };
    (start, end)
}

impl Tombstone {
    /// `None` where the range is empty.
    pub(crate) fn new(range: &KeyRange, seq: Seq) -> Option<Self> {
        let (start, end) = half_open(range);
        let is_empty = end.as_ref().is_some_and(|end| *end <= start);
        (!is_empty).then_some(Self { start, end, seq })
    }

    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        *self.start <= *key && self.end.as_ref().is_none_or(|end| *key < **end)
    }

    /// Whether it covers every key of a range.
    pub(crate) fn covers_all(&self, low: &[u8], high: Option<&[u8]>) -> bool {
        let reaches = match (&self.end, high) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(end), Some(high)) => **end >= *high,
        };
        *self.start <= *low && reaches
    }

    /// The part of it in a range.
    pub(crate) fn clipped(&self, low: &[u8], high: Option<&[u8]>) -> Option<Self> {
        let start = if *self.start < *low {
            Key::from(low)
        } else {
            self.start.clone()
        };
        let end = match (&self.end, high) {
            (Some(end), Some(high)) if **end <= *high => Some(end.clone()),
            (_, Some(high)) => Some(Key::from(high)),
            (end, None) => end.clone(),
        };
        let is_empty = end.as_ref().is_some_and(|end| *end <= start);
        (!is_empty).then_some(Self {
            start,
            end,
            seq: self.seq,
        })
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Run {
    raw: Bytes,
    seq_base: Seq,
    /// Where each entry begins.
    offsets: Box<[u32]>,
    tombstones: Box<[Tombstone]>,
}

/// Counts and the base of positions, from the front of a run.
fn read_header(reader: &mut Reader<'_>, bytes: usize) -> Result<(usize, usize, Seq), Damage> {
    if reader.u8()? != VERSION || reader.take(3)? != [0; 3] {
        return Err("a version of runs");
    }
    let count = reader.u32()? as usize;
    let seq_base = Seq(reader.u64()?);
    let tombstone_count = reader.u32()? as usize;
    if reader.u32()? != 0 {
        return Err("reserved bytes of a run");
    }
    if count > bytes || tombstone_count > bytes || bytes > u32::MAX as usize {
        return Err("a count of entries");
    }
    Ok((count, tombstone_count, seq_base))
}

/// Shows the entries of one key in a basement of which only the bytes are at hand, until `each` answers false. What
/// lies behind the key is not looked at.
pub(crate) fn visit_key<'a>(raw: &'a [u8], key: &[u8], mut each: impl FnMut(Entry<'a>) -> bool) -> Result<(), Damage> {
    let mut reader = Reader::new(raw);
    let (count, _, seq_base) = read_header(&mut reader, raw.len())?;
    for _ in 0..count {
        let entry = read_entry(&mut reader, seq_base)?;
        match entry.key.cmp(key) {
            std::cmp::Ordering::Less => {}
            std::cmp::Ordering::Equal if each(entry) => {}
            _ => break,
        }
    }
    Ok(())
}

impl Run {
    /// Reads what [`RunBuilder::finish`] wrote. Lengths are checked, the order is not: see [`Run::check_order`].
    pub(crate) fn decode(raw: Bytes) -> Result<Self, Damage> {
        let mut reader = Reader::new(&raw);
        let (count, tombstone_count, seq_base) = read_header(&mut reader, raw.len())?;
        let mut offsets = Vec::with_capacity(count);
        for _ in 0..count {
            offsets.push(reader.at() as u32);
            read_entry(&mut reader, seq_base)?;
        }
        let mut tombstones = Vec::with_capacity(tombstone_count);
        for _ in 0..tombstone_count {
            let seq = Seq(reader.varint()?);
            let start = Key::from(reader.bytes()?);
            let end = match reader.u8()? {
                0 => None,
                1 => Some(Key::from(reader.bytes()?)),
                _ => return Err("a bound of a tombstone"),
            };
            tombstones.push(Tombstone { start, end, seq });
        }
        if !reader.is_at_end() {
            return Err("bytes behind the last entry");
        }
        Ok(Self {
            seq_base,
            offsets: offsets.into(),
            tombstones: tombstones.into(),
            raw,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.offsets.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty() && self.tombstones.is_empty()
    }

    pub(crate) fn raw(&self) -> &Bytes {
        &self.raw
    }

    pub(crate) fn tombstones(&self) -> &[Tombstone] {
        &self.tombstones
    }

    /// No entry is newer.
    pub(crate) fn seq_base(&self) -> Seq {
        self.seq_base
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let keys: usize = self.tombstones.iter().map(|t| t.start.len() + 64).sum();
        self.raw.len() + self.offsets.len() * 4 + keys + 96
    }

    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Entry<'_> {
        let mut reader = Reader::new(&self.raw[self.offsets[index] as usize..]);
        read_entry(&mut reader, self.seq_base).expect("checked when it was decoded")
    }

    #[inline]
    pub(crate) fn key(&self, index: usize) -> &[u8] {
        self.entry(index).key
    }

    /// The first entry whose key is not below `key`.
    #[inline]
    pub(crate) fn lower_bound(&self, key: &[u8]) -> usize {
        self.offsets.partition_point(|&offset| {
            let mut reader = Reader::new(&self.raw[offset as usize..]);
            let entry = read_entry(&mut reader, self.seq_base).expect("checked when it was decoded");
            entry.key < key
        })
    }

    /// As [`Run::lower_bound`], where the whole run is mostly asked for: entries in its middle are not looked at then.
    pub(crate) fn start_bound(&self, low: &[u8]) -> usize {
        match self.offsets.is_empty() || self.key(0) >= low {
            true => 0,
            false => self.lower_bound(low),
        }
    }

    /// The first entry whose key is not below `high`; the end where there is no bound, or none that matters.
    pub(crate) fn end_bound(&self, high: Option<&[u8]>) -> usize {
        let last = self.len().checked_sub(1);
        match (high, last) {
            (Some(high), Some(last)) if self.key(last) >= high => self.lower_bound(high),
            _ => self.len(),
        }
    }

    /// Where in the raw bytes a value of an entry lies.
    #[inline]
    pub(crate) fn place_of(&self, value: &[u8]) -> std::ops::Range<usize> {
        let start = value.as_ptr() as usize - self.raw.as_ptr() as usize;
        debug_assert!(start + value.len() <= self.raw.len(), "a value of another run");
        start..start + value.len()
    }

    /// A sentence when entries are not in order.
    pub(crate) fn check_order(&self) -> Result<(), Damage> {
        for index in 1..self.len() {
            let (before, entry) = (self.entry(index - 1), self.entry(index));
            match before.key.cmp(entry.key) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal if before.seq > entry.seq => {}
                _ => return Err("an entry that does not follow the one before it"),
            }
        }
        Ok(())
    }
}

#[inline]
fn read_entry<'a>(reader: &mut Reader<'a>, seq_base: Seq) -> Result<Entry<'a>, Damage> {
    let head = reader.u8()?;
    let key_length = reader.varint()? as usize;
    let seq = match head & HAS_SEQ {
        0 => Seq::ZERO,
        _ => Seq(seq_base
            .0
            .checked_sub(reader.varint()?)
            .ok_or("a position of an entry")?),
    };
    let (key, op) = match head & !HAS_SEQ & 0x7f {
        TAG_PUT => {
            let value_length = reader.varint()? as usize;
            let key = reader.take(key_length)?;
            (key, OpRef::Put(reader.take(value_length)?))
        }
        TAG_DELETE => (reader.take(key_length)?, OpRef::Delete),
        TAG_ADD => {
            let amount = reader.u64()? as i64;
            (reader.take(key_length)?, OpRef::Add(amount))
        }
        _ => return Err("a tag of an entry"),
    };
    Ok(Entry { key, seq, op })
}

/// Makes a run of entries that come in order.
pub(crate) struct RunBuilder {
    raw: Vec<u8>,
    seq_base: Seq,
    offsets: Vec<u32>,
    tombstones: Vec<Tombstone>,
    last_key_at: std::ops::Range<usize>,
}

impl RunBuilder {
    /// No entry is newer than `seq_base`.
    pub(crate) fn new(seq_base: Seq) -> Self {
        Self {
            raw: vec![0; HEADER_BYTES],
            seq_base,
            offsets: Vec::new(),
            tombstones: Vec::new(),
            last_key_at: 0..0,
        }
    }

    pub(crate) fn push(&mut self, key: &[u8], seq: Seq, op: OpRef<'_>) {
        debug_assert!(seq <= self.seq_base, "{seq:?} is newer than {:?}", self.seq_base);
        let offset = u32::try_from(self.raw.len()).expect("a run is cut long before 4 GiB");
        self.offsets.push(offset);
        let tag = match op {
            OpRef::Put(_) => TAG_PUT,
            OpRef::Delete => TAG_DELETE,
            OpRef::Add(_) => TAG_ADD,
        };
        debug_assert!(tag <= TAG_MASK);
        let has_seq = if seq == Seq::ZERO { 0 } else { HAS_SEQ };
        self.raw.push(tag | has_seq);
        put_varint(&mut self.raw, key.len() as u64);
        if has_seq != 0 {
            put_varint(&mut self.raw, self.seq_base.0 - seq.0);
        }
        match op {
            OpRef::Put(value) => put_varint(&mut self.raw, value.len() as u64),
            OpRef::Delete => {}
            OpRef::Add(amount) => self.raw.extend_from_slice(&amount.to_le_bytes()),
        }
        self.last_key_at = self.raw.len()..self.raw.len() + key.len();
        self.raw.extend_from_slice(key);
        if let OpRef::Put(value) = op {
            self.raw.extend_from_slice(value);
        }
    }

    pub(crate) fn push_tombstone(&mut self, tombstone: Tombstone) {
        self.tombstones.push(tombstone);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty() && self.tombstones.is_empty()
    }

    /// Bytes so far.
    pub(crate) fn bytes(&self) -> usize {
        self.raw.len()
    }

    /// The key that was pushed last.
    pub(crate) fn last_key(&self) -> &[u8] {
        &self.raw[self.last_key_at.clone()]
    }

    pub(crate) fn finish(mut self) -> Run {
        for tombstone in &self.tombstones {
            put_varint(&mut self.raw, tombstone.seq.0);
            put_bytes(&mut self.raw, &tombstone.start);
            match &tombstone.end {
                None => self.raw.push(0),
                Some(end) => {
                    self.raw.push(1);
                    put_bytes(&mut self.raw, end);
                }
            }
        }
        let header = &mut self.raw[..HEADER_BYTES];
        header[0] = VERSION;
        header[4..8].copy_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        header[8..16].copy_from_slice(&self.seq_base.0.to_le_bytes());
        header[16..20].copy_from_slice(&(self.tombstones.len() as u32).to_le_bytes());
        Run {
            raw: self.raw.into(),
            seq_base: self.seq_base,
            offsets: self.offsets.into(),
            tombstones: self.tombstones.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_the_bytes_of_a_basement() {
        let mut builder = RunBuilder::new(Seq(9));
        builder.push(b"b", Seq::ZERO, OpRef::Put(b"first"));
        builder.push(b"d", Seq(9), OpRef::Add(4));
        builder.push(b"d", Seq(7), OpRef::Delete);
        builder.push(b"d", Seq::ZERO, OpRef::Put(b"old"));
        builder.push(b"e", Seq(3), OpRef::Put(b""));
        let run = builder.finish();
        let visit = |key: &[u8], most: usize| {
            let mut seen = Vec::new();
            visit_key(run.raw(), key, |entry| {
                assert_eq!(entry.key, key);
                seen.push(entry.seq.0);
                seen.len() < most
            })
            .map(|()| seen)
        };
        assert_eq!(visit(b"b", 9), Ok(vec![0]));
        assert_eq!(visit(b"d", 9), Ok(vec![9, 7, 0]));
        assert_eq!(visit(b"d", 2), Ok(vec![9, 7]));
        assert_eq!(visit(b"e", 9), Ok(vec![3]));
        for absent in [&b""[..], b"a", b"c", b"dd", b"f"] {
            assert_eq!(visit(absent, 9), Ok(vec![]));
        }
        for end in 0..run.raw().len() {
            assert!(visit_key(&run.raw()[..end], b"z", |_| true).is_err(), "cut to {end}");
        }
    }
}
