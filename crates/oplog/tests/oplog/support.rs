//! A simulated environment, entries whose bytes tell where and when they were written, and a model to compare with.

use engine::Seq;
use oplog::{Log, LogOptions, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vfs::{Env, FileSystem, KeyedFs, Random, SeededRandom, SimulatedClock, SimulatedFs};

pub const DIRECTORY: &str = "/data/oplog";
pub const POSITION_FILE: &str = "/data/oplog.position";

/// What a process started now on this machine gets. As in life, no two processes draw the same random numbers.
pub fn env(fs: &SimulatedFs, seed: u64) -> Env {
    let disk = Arc::new(fs.clone());
    Env {
        fs: match crate::keys() {
            Some(keys) => Arc::new(KeyedFs::new(disk, keys)),
            None => disk,
        },
        clock: Arc::new(SimulatedClock::new(0)),
        random: Arc::new(SeededRandom::new(seed ^ (fs.operations() << 32))),
    }
}

/// Small segments (three blocks of frames), no thread.
pub fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 2 * oplog::SEGMENT_BYTES_MIN,
        background: false,
        position_file: Some(POSITION_FILE.into()),
        ..LogOptions::new(DIRECTORY)
    }
}

/// The bytes of an entry: by position, by the life of the process that wrote it, of pseudo-random length up to `max`.
/// Half of it repeats, so that it can be compressed.
pub fn entry(seq: Seq, life: u64, max: u64) -> Vec<u8> {
    let random = SeededRandom::new(seq.0.wrapping_mul(0x9E37_79B9) ^ life.rotate_left(32));
    let length = (random.next_u64() % (max + 1)) as usize;
    let mut bytes = vec![0; length];
    random.fill(&mut bytes[..length.div_ceil(2)]);
    bytes
}

/// What the log must hold: `entries[i]` has position `i + 1`.
#[derive(Clone, Default)]
pub struct Model {
    pub entries: Vec<Vec<u8>>,
    /// The last entry whose durability was acknowledged.
    pub acknowledged: u64,
    /// The engine's durable mark.
    pub mark: u64,
}

impl Model {
    pub fn last(&self) -> Seq {
        Seq(self.entries.len() as u64)
    }

    /// Appends one entry to both.
    pub fn append(&mut self, log: &Log, life: u64, max: u64) -> Result<Seq> {
        let bytes = entry(self.last().next(), life, max);
        let (left, right) = bytes.split_at(bytes.len() / 3);
        let seq = log.append(&[left, &[], right])?;
        self.entries.push(bytes);
        assert_eq!(seq, self.last(), "positions rise by one");
        Ok(seq)
    }

    /// Compares everything readable after the mark with the model, and forgets what a crash may have lost.
    pub fn compare(&mut self, log: &Log) {
        let last = log.last_seq();
        assert_eq!(log.durable_seq(), last, "all that is found is durable");
        assert!(
            last.0 >= self.acknowledged,
            "acknowledged {}, found {last:?}",
            self.acknowledged
        );
        assert!(last <= self.last(), "appended {:?}, found {last:?}", self.last());
        self.entries.truncate(last.0 as usize);
        self.acknowledged = last.0;
        let mut due = Seq(self.mark).next();
        for item in log.read(due).unwrap() {
            let (seq, bytes) = item.unwrap();
            assert_eq!(seq, due);
            assert_eq!(bytes, self.entries[seq.0 as usize - 1], "{seq:?}");
            due = seq.next();
        }
        assert_eq!(due, last.next(), "everything up to the last entry is read");
    }
}

/// Paths of the segments, in order.
pub fn segments(fs: &dyn FileSystem) -> Vec<PathBuf> {
    let names = fs.list(Path::new(DIRECTORY)).unwrap();
    let logs = names
        .into_iter()
        .filter(|name| name.extension().is_some_and(|extension| extension == "log"));
    logs.map(|name| Path::new(DIRECTORY).join(name)).collect()
}
