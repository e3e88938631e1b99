//! Estimates: RocksDB knows sizes of files, not of what lies in memtables, so short ranges are counted and long ones
//! sampled.
//!
//! 1. Count up to [`COUNTED_MAX`] rows. If the range ends there, the answer is exact.
//! 2. Otherwise find its last key, and place keys on a line: what follows the bytes that first and last key share, as a
//!    64-bit number.
//! 3. Cut the line into [`SEGMENTS`] equal pieces and read up to [`SAMPLE`] rows at each piece's start: rows seen over length
//!    passed is the density, density times length the piece's rows.
//! 4. Split keys lie where the running sum of rows passes each share.

use crate::error::rocks_error;
use crate::layout::PREFIX_BYTES;
use crate::view::RocksSnapshot;
use engine::{Estimate, Result};
use rocksdb::{DBRawIterator, ReadOptions};

const COUNTED_MAX: u64 = 4096;
const SEGMENTS: u64 = 64;
const SAMPLE: u64 = 64;

/// For stored bounds with `from < to`.
pub(crate) fn estimate(snapshot: &RocksSnapshot, from: &[u8], to: &[u8], splits: usize) -> Result<Estimate> {
    let mut iterator = snapshot.iterate(from.to_vec(), to.to_vec(), ReadOptions::default());
    iterator.seek_to_first();
    let first = iterator.key().map(<[u8]>::to_vec);
    let mut counted = Estimate::default();
    let mut keys = Vec::new();
    while let Some((key, value)) = iterator.item() {
        if counted.rows == COUNTED_MAX {
            break;
        }
        counted.rows += 1;
        counted.bytes += (key.len() - PREFIX_BYTES + value.len()) as u64;
        if splits > 0 {
            keys.push(key[PREFIX_BYTES..].to_vec());
        }
        iterator.next();
    }
    iterator.status().map_err(rocks_error("estimate"))?;
    match first {
        Some(first) if iterator.valid() => sample(&mut iterator, &first, splits, &counted),
        _ => {
            let parts = (splits + 1).min(keys.len().max(1));
            counted.split_keys = (1..parts).map(|part| keys[keys.len() * part / parts].clone()).collect();
            Ok(counted)
        }
    }
}

/// The line keys are placed on.
struct Line {
    /// Bytes that first and last key share.
    shared: Vec<u8>,
    start: u64,
    end: u64,
}

impl Line {
    fn between(first: &[u8], last: &[u8]) -> Self {
        let length = first.iter().zip(last).take_while(|(a, b)| a == b).count();
        let mut line = Self {
            shared: first[..length].to_vec(),
            start: 0,
            end: 0,
        };
        (line.start, line.end) = (line.place(first), line.place(last));
        line
    }

    fn place(&self, key: &[u8]) -> u64 {
        let mut bytes = [0; 8];
        let rest = &key[self.shared.len().min(key.len())..];
        let length = rest.len().min(8);
        bytes[..length].copy_from_slice(&rest[..length]);
        u64::from_be_bytes(bytes)
    }

    /// The smallest stored key of a place.
    fn key(&self, place: u64) -> Vec<u8> {
        [&self.shared[..], &place.to_be_bytes()].concat()
    }
}

fn sample(iterator: &mut DBRawIterator<'_>, first: &[u8], splits: usize, counted: &Estimate) -> Result<Estimate> {
    iterator.seek_to_last();
    let last = iterator.key().unwrap_or(first).to_vec();
    let line = Line::between(first, &last);
    let length = ((line.end - line.start) / SEGMENTS).max(1);
    let mut rows_before = Vec::new();
    let mut rows = 0.0;
    let (mut seen, mut seen_bytes) = (counted.rows, counted.bytes);
    for segment in 0..SEGMENTS {
        let start = line.start.saturating_add(segment.saturating_mul(length));
        rows_before.push(rows);
        iterator.seek(line.key(start));
        let (mut found, mut passed) = (0, 0);
        while let Some((key, value)) = iterator.item() {
            let place = line.place(key);
            if found == SAMPLE || place - start >= length {
                break;
            }
            found += 1;
            passed = place - start + 1;
            seen_bytes += (key.len() - PREFIX_BYTES + value.len()) as u64;
            iterator.next();
        }
        seen += found;
        let whole = found < SAMPLE;
        rows += if whole {
            found as f64
        } else {
            found as f64 * (length as f64 / passed as f64)
        };
    }
    iterator.status().map_err(rocks_error("estimate"))?;
    rows_before.push(rows);
    let rows_total = (rows as u64).max(counted.rows);
    Ok(Estimate {
        rows: rows_total,
        bytes: (rows_total as f64 * seen_bytes as f64 / seen as f64) as u64,
        split_keys: split_keys(&line, length, &rows_before, splits, first, &last),
    })
}

fn split_keys(line: &Line, length: u64, rows_before: &[f64], splits: usize, first: &[u8], last: &[u8]) -> Vec<Vec<u8>> {
    let total = rows_before.last().copied().unwrap_or(0.0);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for split in 1..=splits {
        let wanted = total * split as f64 / (splits + 1) as f64;
        let segment = rows_before
            .partition_point(|&rows| rows <= wanted)
            .clamp(1, rows_before.len() - 1)
            - 1;
        let inside = (wanted - rows_before[segment]) / (rows_before[segment + 1] - rows_before[segment]).max(1.0);
        let offset = (segment as u64)
            .saturating_mul(length)
            .saturating_add((inside * length as f64) as u64);
        let key = line.key(line.start.saturating_add(offset));
        // Only keys strictly inside, so that no part is empty by construction.
        if key[..] > *first && key[..] <= *last && keys.last().is_none_or(|before| before[..] < key[PREFIX_BYTES..]) {
            keys.push(key[PREFIX_BYTES..].to_vec());
        }
    }
    keys
}
