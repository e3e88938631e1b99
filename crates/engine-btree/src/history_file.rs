//! History on disk: values that only old snapshots see and that outgrew history's share of memory.
//!
//! One file per engine, made when it is first needed and removed at opening: no snapshot outlives its process, so
//! nothing in it is synced or read by another. It consists of segments of [`SEGMENT_BYTES`], each written once, in one
//! piece, with values of any leaves behind each other. A segment's room is free again with the last value that refers
//! to it: what one snapshot held goes together. The keys, and which version is whose, stay in memory; a value knows its
//! place, its length and its checksum ([`Spilled`]). Where the file system has keys each value has its seal before it.

use bytes::Bytes;
use crypt::{Keys, SEAL_BYTES};
use engine::{EngineError, Result};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Access, File, FileSystem};

/// See the module.
const SEGMENT_BYTES: usize = 1 << 20;
/// Longer values stay in memory.
pub(crate) const VALUE_BYTES_MAX: usize = SEGMENT_BYTES - SEAL_BYTES;
/// Shorter values stay in memory: to know where one lies takes as much.
pub(crate) const VALUE_BYTES_MIN: usize = 64;
/// What a seal is bound to, and the value's offset in its segment.
const CONTEXT: &[u8] = b"history value";
/// What the file leaves free of the disk: the log and the checkpoints need room more than an old snapshot does.
const FREE_BYTES_MIN: u64 = 500 << 20;

/// See the module.
pub(crate) struct HistoryFile {
    fs: Arc<dyn FileSystem>,
    directory: PathBuf,
    path: PathBuf,
    keys: Option<Arc<Keys>>,
    segments: Mutex<Segments>,
}

/// Invariant: `free` has the segments below `end` that no [`Segment`] is of.
#[derive(Default)]
struct Segments {
    /// `None` until there is a first one.
    file: Option<Arc<dyn File>>,
    free: BTreeSet<u32>,
    end: u32,
}

impl Segments {
    fn used(&self) -> u64 {
        u64::from(self.end) - self.free.len() as u64
    }
}

/// The room of a segment, until nobody refers to it.
struct Segment {
    owner: Arc<HistoryFile>,
    file: Arc<dyn File>,
    number: u32,
}

impl Segment {
    fn offset(&self) -> u64 {
        u64::from(self.number) * SEGMENT_BYTES as u64
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        let inserted = self.owner.segments.lock().free.insert(self.number);
        debug_assert!(inserted, "a segment is given back once");
    }
}

/// A value in the file.
#[derive(Clone)]
pub(crate) struct Spilled {
    segment: Arc<Segment>,
    offset: u32,
    bytes: u32,
    checksum: u32,
}

impl Spilled {
    /// Reads the value. Not to be called with a latch held or an epoch pinned.
    pub(crate) fn read(&self) -> Result<Bytes> {
        debug_assert!(
            !rcu::is_pinned(),
            "nothing that was replaced could be freed while the disk is read"
        );
        let offset = self.segment.offset() + u64::from(self.offset);
        let HistoryFile { path, keys, .. } = &*self.segment.owner;
        let sealed_bytes = if keys.is_some() { SEAL_BYTES } else { 0 };
        let mut value = vec![0; sealed_bytes + self.bytes as usize];
        self.segment
            .file
            .read_exact_at(&mut value, offset)
            .map_err(|source| EngineError::Io {
                operation: "read",
                path: path.clone(),
                source,
            })?;
        let corrupt = |reason| EngineError::Corrupt {
            path: path.clone(),
            offset,
            reason,
        };
        let mut value = Bytes::from(match keys {
            None => value,
            Some(keys) => {
                let (seal, text) = value
                    .split_first_chunk_mut()
                    .ok_or_else(|| corrupt("it is shorter than a seal".to_owned()))?;
                let opened = keys.open(&context(self.offset), seal, text);
                opened.map_err(|error| corrupt(error.to_string()))?;
                value
            }
        });
        let value = value.split_off(sealed_bytes);
        let found = crc32c::crc32c(&value);
        if found != self.checksum {
            let expected = self.checksum;
            return Err(corrupt(format!(
                "the checksum is {found:#010x}, {expected:#010x} expected"
            )));
        }
        Ok(value)
    }
}

fn context(offset: u32) -> Vec<u8> {
    [CONTEXT, &offset.to_le_bytes()].concat()
}

/// Values on their way into a segment.
pub(crate) struct SegmentBuffer {
    keys: Option<Arc<Keys>>,
    bytes: Vec<u8>,
    /// Offsets, lengths and checksums.
    values: Vec<(u32, u32, u32)>,
}

impl SegmentBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Takes a value in; false when it does not fit beside the others.
    pub(crate) fn push(&mut self, value: &[u8]) -> bool {
        let sealed_bytes = if self.keys.is_some() { SEAL_BYTES } else { 0 };
        if self.bytes.len() + sealed_bytes + value.len() > SEGMENT_BYTES {
            return false;
        }
        let (offset, bytes) = (self.bytes.len() as u32, value.len() as u32);
        self.bytes.resize(self.bytes.len() + sealed_bytes, 0);
        let text = self.bytes.len();
        self.bytes.extend_from_slice(value);
        if let Some(keys) = &self.keys {
            let seal = keys.seal(&context(offset), &mut self.bytes[text..]);
            self.bytes[text - sealed_bytes..text].copy_from_slice(&seal);
        }
        self.values.push((offset, bytes, crc32c::crc32c(value)));
        true
    }
}

impl Drop for HistoryFile {
    fn drop(&mut self) {
        if self.segments.get_mut().file.is_some() {
            let _ = self.fs.remove_file(&self.path);
        }
    }
}

impl HistoryFile {
    /// In a directory, where what a process left behind is removed.
    pub(crate) fn new(fs: &Arc<dyn FileSystem>, directory: &Path) -> Arc<Self> {
        let path = directory.join("history.tmp");
        // What cannot be removed is emptied before it is used.
        let _ = fs.remove_file(&path);
        Arc::new(Self {
            fs: fs.clone(),
            directory: directory.to_owned(),
            path,
            keys: fs.keys().cloned(),
            segments: Mutex::default(),
        })
    }

    /// For values to come.
    pub(crate) fn buffer(&self) -> SegmentBuffer {
        SegmentBuffer {
            keys: self.keys.clone(),
            bytes: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Bytes of the segments in use.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments.lock().used() * SEGMENT_BYTES as u64
    }

    /// Writes the values and answers them in order; `None` when the file would have more than `bytes_max`, or the disk
    /// has no room to spare, or an error. The buffer is empty then.
    pub(crate) fn write(self: &Arc<Self>, buffer: &mut SegmentBuffer, bytes_max: u64) -> Option<Vec<Spilled>> {
        let SegmentBuffer { bytes, values, .. } = std::mem::replace(buffer, self.buffer());
        let segment = Arc::new(self.take_segment(bytes_max)?);
        segment.file.write_all_at(&bytes, segment.offset()).ok()?;
        let spilled = |(offset, bytes, checksum)| Spilled {
            segment: segment.clone(),
            offset,
            bytes,
            checksum,
        };
        Some(values.into_iter().map(spilled).collect())
    }

    fn take_segment(self: &Arc<Self>, bytes_max: u64) -> Option<Segment> {
        let has_room = |segments: &Segments| (segments.used() + 1) * SEGMENT_BYTES as u64 <= bytes_max;
        if !has_room(&self.segments.lock()) {
            return None;
        }
        let space = self.fs.space(&self.directory).ok()?;
        let mut segments = self.segments.lock();
        if space.available_bytes < FREE_BYTES_MIN + SEGMENT_BYTES as u64 || !has_room(&segments) {
            return None;
        }
        let file = match &segments.file {
            Some(file) => file.clone(),
            None => {
                let file = self.fs.open(&self.path, Access::OpenOrCreate).ok()?;
                file.set_len(0).ok()?;
                segments.file.insert(file).clone()
            }
        };
        let number = segments.free.pop_first().unwrap_or_else(|| {
            segments.end += 1;
            segments.end - 1
        });
        drop(segments);
        Some(Segment {
            owner: self.clone(),
            file,
            number,
        })
    }

    /// Cuts off what is free at the file's end. A failure leaves it for the next time.
    pub(crate) fn trim(&self) {
        let mut segments = self.segments.lock();
        let end = segments.end;
        while segments.end > 0 && {
            let last = segments.end - 1;
            segments.free.remove(&last)
        } {
            segments.end -= 1;
        }
        if segments.end < end
            && let Some(file) = &segments.file
        {
            let _ = file.set_len(u64::from(segments.end) * SEGMENT_BYTES as u64);
        }
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use vfs::SimulatedFs;

    fn file(fs: &SimulatedFs) -> Arc<HistoryFile> {
        let fs: Arc<dyn FileSystem> = Arc::new(fs.clone());
        fs.create_directory_all(Path::new("/h")).expect("a directory");
        HistoryFile::new(&fs, Path::new("/h"))
    }

    fn spill(file: &Arc<HistoryFile>, values: &[&[u8]], bytes_max: u64) -> Option<Vec<Spilled>> {
        let mut buffer = file.buffer();
        values.iter().for_each(|value| assert!(buffer.push(value)));
        file.write(&mut buffer, bytes_max)
    }

    #[test]
    fn values_are_read_back_and_room_comes_back_with_the_last_of_a_segment() {
        let file = file(&SimulatedFs::new(1));
        let first = spill(&file, &[b"one", b"", b"three"], u64::MAX).expect("room");
        let second = spill(&file, &[&[7; VALUE_BYTES_MAX]], u64::MAX).expect("room");
        let read: Vec<Bytes> = first.iter().map(|value| value.read().expect("it is there")).collect();
        assert_eq!(read, [&b"one"[..], b"", b"three"]);
        assert_eq!(second[0].read().expect("it is there"), vec![7; VALUE_BYTES_MAX]);
        let bytes = |segments: u64| segments * SEGMENT_BYTES as u64;
        assert_eq!(file.bytes(), bytes(2));
        let [one, rest @ ..] = &first[..] else {
            panic!("three values")
        };
        let one = one.clone();
        drop(rest.to_vec());
        drop(first);
        assert_eq!(file.bytes(), bytes(2), "one value still refers to it");
        drop(one);
        assert_eq!(file.bytes(), bytes(1));
        let third = spill(&file, &[b"third"], u64::MAX).expect("room");
        assert_eq!(third[0].segment.number, 0, "the room is taken again");
        drop((second, third));
        file.trim();
        let length = file
            .segments
            .lock()
            .file
            .as_ref()
            .map(|file| file.len().expect("a length"));
        assert_eq!((length, file.bytes()), (Some(0), 0));
    }

    #[test]
    fn a_value_is_sealed_where_there_are_keys() {
        let plain = SimulatedFs::new(1);
        let fs: Arc<dyn FileSystem> = Arc::new(vfs::KeyedFs::new(Arc::new(plain.clone()), Arc::new(Keys::ephemeral())));
        fs.create_directory_all(Path::new("/h")).expect("a directory");
        let file = HistoryFile::new(&fs, Path::new("/h"));
        let value = b"what somebody wrote a while ago";
        let spilled = spill(&file, &[value, &[7; 1000], value], u64::MAX).expect("room");
        for (spilled, value) in spilled.iter().zip([&value[..], &[7; 1000], value]) {
            assert_eq!(spilled.read().expect("it is there"), value);
        }
        let raw = plain
            .open(Path::new("/h/history.tmp"), Access::ReadWrite)
            .expect("the file");
        let mut bytes = vec![0; raw.len().expect("a length") as usize];
        raw.read_exact_at(&mut bytes, 0).expect("the file");
        assert!(!bytes.windows(value.len()).any(|window| window == value));
        assert!(!bytes.windows(16).any(|window| window == [7; 16]));
        // The same value where the first one was.
        let last = spilled[2].offset as usize;
        raw.write_all_at(&bytes[last..last + SEAL_BYTES + value.len()], 0)
            .expect("an overwrite");
        assert!(matches!(spilled[0].read(), Err(EngineError::Corrupt { .. })));
    }

    #[test]
    fn a_bound_a_full_disk_and_damage_are_told() {
        let fs = SimulatedFs::new(1);
        let file = file(&fs);
        assert!(spill(&file, &[b"x"], SEGMENT_BYTES as u64 - 1).is_none());
        let value = spill(&file, &[b"a value"], SEGMENT_BYTES as u64).expect("room for one");
        assert!(spill(&file, &[b"x"], SEGMENT_BYTES as u64).is_none());
        fs.set_free_bytes(Some(FREE_BYTES_MIN));
        assert!(spill(&file, &[b"x"], u64::MAX).is_none(), "the log needs the rest");
        let raw = fs
            .open(Path::new("/h/history.tmp"), Access::ReadWrite)
            .expect("the file");
        raw.write_all_at(b"b", 0).expect("an overwrite");
        assert!(matches!(value[0].read(), Err(EngineError::Corrupt { offset: 0, .. })));
        raw.set_len(3).expect("a cut");
        assert!(matches!(value[0].read(), Err(EngineError::Io { .. })));
    }
}
