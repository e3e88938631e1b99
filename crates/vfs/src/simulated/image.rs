//! The bytes of one file: as the running machine sees them, as the disk has them, and the changes between.
//!
//! Invariant: without faults, `durable` with every operation of `unsynced` applied in order equals `live`.

use crate::{Random, SeededRandom};

/// The unit in which a write can be torn.
pub(super) const SECTOR_BYTES: u64 = 512;

#[derive(Clone)]
enum Change {
    Write {
        offset: u64,
        bytes: Vec<u8>,
    },
    SetLen(u64),
    /// Extends, never cuts.
    Extend(u64),
}

/// The bytes of one file.
#[derive(Clone, Default)]
pub(super) struct Image {
    live: Vec<u8>,
    durable: Vec<u8>,
    unsynced: Vec<Change>,
    /// End of the space taken.
    pub allocated: u64,
}

/// How much of the unsynced changes of one file a crash keeps.
#[derive(Clone, Copy)]
enum Fate {
    All,
    Nothing,
    Some,
}

impl Image {
    pub fn live_bytes(&self) -> u64 {
        self.live.len() as u64
    }

    pub fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let Some(tail) = usize::try_from(offset).ok().and_then(|offset| self.live.get(offset..)) else {
            return 0;
        };
        let count = tail.len().min(buffer.len());
        buffer[..count].copy_from_slice(&tail[..count]);
        count
    }

    /// Writes to the cache, and towards `disk_offset` of the disk (`None`: nowhere).
    pub fn write(&mut self, bytes: &[u8], offset: u64, disk_offset: Option<u64>) {
        overlay(&mut self.live, bytes, offset);
        let end = self.live_bytes();
        self.allocated = self.allocated.max(offset + bytes.len() as u64);
        if disk_offset == Some(offset) {
            self.unsynced.push(Change::Write {
                offset,
                bytes: bytes.to_vec(),
            });
            return;
        }
        self.unsynced.push(Change::Extend(end));
        if let Some(there) = disk_offset.filter(|&there| there < end) {
            let fitting = bytes.len().min((end - there) as usize);
            self.unsynced.push(Change::Write {
                offset: there,
                bytes: bytes[..fitting].to_vec(),
            });
        }
    }

    pub fn set_len(&mut self, bytes: u64) {
        self.live.resize(bytes as usize, 0);
        self.allocated = self.allocated.min(bytes);
        self.unsynced.push(Change::SetLen(bytes));
    }

    pub fn allocate(&mut self, end: u64) {
        if end > self.live_bytes() {
            self.live.resize(end as usize, 0);
            self.unsynced.push(Change::Extend(end));
        }
        self.allocated = self.allocated.max(end);
    }

    /// Everything reaches the disk.
    pub fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            apply(&mut self.durable, &change);
        }
    }

    /// A part of what is unsynced reaches the disk, the rest never will.
    pub fn lose_unsynced(&mut self, random: &SeededRandom) {
        let changes = std::mem::take(&mut self.unsynced);
        let fate = match random.next_u64() % 5 {
            0 => Fate::Nothing,
            1 => Fate::All,
            _ => Fate::Some,
        };
        let mut bytes = self.durable.len() as u64;
        let mut data = self.durable.clone();
        for change in &changes {
            match change {
                Change::SetLen(length) if keeps(fate, random) => {
                    bytes = *length;
                    data.resize(bytes as usize, 0);
                }
                Change::Extend(length) if keeps(fate, random) => bytes = bytes.max(*length),
                Change::SetLen(_) | Change::Extend(_) => {}
                Change::Write { offset, bytes: written } => {
                    if keeps(fate, random) {
                        bytes = bytes.max(offset + written.len() as u64);
                    }
                    tear(&mut data, written, *offset, fate, random);
                }
            }
        }
        data.resize(bytes as usize, 0);
        self.durable = data;
    }

    /// The machine starts again: it sees what the disk has.
    pub fn reload(&mut self) {
        self.unsynced.clear();
        self.live = self.durable.clone();
    }

    pub fn flip_bit(&mut self, offset: u64, bit: u8) -> bool {
        let Ok(at) = usize::try_from(offset) else {
            return false;
        };
        let mut found = false;
        for bytes in [&mut self.live, &mut self.durable] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << (bit % 8);
                found = true;
            }
        }
        found
    }
}

/// The chance of one change.
fn keeps(fate: Fate, random: &SeededRandom) -> bool {
    match fate {
        Fate::All => true,
        Fate::Nothing => false,
        Fate::Some => random.next_u64().is_multiple_of(2),
    }
}

/// Applies the sectors of a write that survive.
fn tear(data: &mut Vec<u8>, written: &[u8], offset: u64, fate: Fate, random: &SeededRandom) {
    let whole = match fate {
        Fate::All => Some(true),
        Fate::Nothing => Some(false),
        // A third is torn; else all or nothing of it, since single losses find other mistakes than torn writes.
        Fate::Some => match random.next_u64() % 3 {
            0 => None,
            choice => Some(choice == 1),
        },
    };
    let mut at = 0;
    while at < written.len() {
        let position = offset + at as u64;
        let sector_end = (position / SECTOR_BYTES + 1) * SECTOR_BYTES;
        let end = written.len().min((sector_end - offset) as usize);
        if whole.unwrap_or_else(|| random.next_u64().is_multiple_of(2)) {
            overlay(data, &written[at..end], position);
        }
        at = end;
    }
}

fn apply(data: &mut Vec<u8>, change: &Change) {
    match change {
        Change::Write { offset, bytes } => overlay(data, bytes, *offset),
        Change::SetLen(bytes) => data.resize(*bytes as usize, 0),
        Change::Extend(bytes) => data.resize(data.len().max(*bytes as usize), 0),
    }
}

fn overlay(data: &mut Vec<u8>, bytes: &[u8], offset: u64) {
    let start = offset as usize;
    let end = start + bytes.len();
    if data.len() < end && !bytes.is_empty() {
        data.resize(end, 0);
    }
    if !bytes.is_empty() {
        data[start..end].copy_from_slice(bytes);
    }
}
