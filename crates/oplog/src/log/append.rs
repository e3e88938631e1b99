//! Appending: a copy into memory, of what has its place on disk.

use super::Log;
use super::room::AppendPurpose;
use crate::limits::{ENTRY_BYTES_MAX, ENTRY_LENGTH_BYTES};
use crate::{LogError, LogMode, Result};
use engine::Seq;
use std::sync::atomic::Ordering;

impl Log {
    /// Appends one entry made of concatenated parts and gives it the next `Seq`. The order of calls is the log's: a
    /// caller that has to know it calls under its own lock. Copies into memory, and does no I/O where
    /// [`Log::lacks_room_for`] says no: what is taken has its place in the segments that there are and those that there
    /// are files for, and where it would not, such files are made first.
    ///
    /// Errors: `EntryTooLarge`; `BufferFull` where [`Log::is_overfull`]; `OutOfSpace` where the disk has no room for
    /// such a file, `NoDescriptors` where it cannot be opened; `Failed`, `Closed`. After an error nothing was
    /// appended. Cost: about 50 ns and the copy.
    ///
    /// It has the term of the entry before it; of the first one that is 0.
    pub fn append(&self, parts: &[&[u8]]) -> Result<Seq> {
        self.append_all(None, &[parts], AppendPurpose::Write)
    }

    /// As [`Log::append`], for a place that the caller knows to be the next one, and with a term that is not below that
    /// of the entry before. Otherwise `NotNext`, and nothing was appended. `NoJournal` when the log is off. The caller
    /// has waited for room ([`Log::wait_for_room`]); what a long entry needs beyond that, and what a state has taken
    /// of it since, comes from what is left to checkpoints.
    pub fn append_at(&self, seq: Seq, term: u64, parts: &[&[u8]]) -> Result<()> {
        self.append_all(Some((seq, term)), &[parts], AppendPurpose::Checkpoint)
            .map(drop)
    }

    /// As [`Log::append`], or [`Log::append_at`] where a place is given, of entries that belong together: all of them,
    /// one right behind the other, or none. Answers the last one's place. The others who append wait for the copy.
    pub fn append_all(&self, place: Option<(Seq, u64)>, entries: &[&[&[u8]]], purpose: AppendPurpose) -> Result<Seq> {
        debug_assert!(!entries.is_empty(), "there is a last one");
        let shared = &*self.shared;
        let lengths = entries.iter().map(|parts| byte_len(parts));
        if let Some(bytes) = lengths.clone().find(|bytes| *bytes > ENTRY_BYTES_MAX) {
            return Err(LogError::EntryTooLarge {
                bytes,
                max: ENTRY_BYTES_MAX,
            });
        }
        let count = entries.len();
        let bytes = lengths.clone().sum::<usize>();
        let added = count * ENTRY_LENGTH_BYTES + bytes;
        let mut tried = None;
        loop {
            let mut buffer = shared.buffer.lock();
            shared.check_open()?;
            if shared.mode == LogMode::Off {
                if place.is_some() {
                    return Err(LogError::NoJournal);
                }
                shared.entry_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
                let count = count as u64;
                return Ok(Seq(shared.last.fetch_add(count, Ordering::Release) + count));
            }
            let before = shared.buffered.load(Ordering::Relaxed);
            if before > shared.buffer_bytes_refused {
                return Err(LogError::BufferFull { bytes: before });
            }
            let (next, last_term) = buffer.end();
            let term = match place {
                None => last_term,
                Some((seq, term)) if seq == next && term >= last_term => term,
                Some((given, term)) => {
                    return Err(LogError::NotNext {
                        given,
                        term,
                        next,
                        last_term,
                    });
                }
            };
            let lengths = lengths.clone().map(|bytes| ENTRY_LENGTH_BYTES + bytes);
            let wanted = shared.room.segments_for((&buffer, before), (term, lengths), purpose);
            if wanted > 0 && shared.catalog.spares() < wanted {
                match tried.take() {
                    None => {
                        drop(buffer);
                        tried = Some(shared.make_spares(wanted));
                        continue;
                    }
                    Some(Err(error)) if error.passes() => return Err(error),
                    // Others were faster.
                    Some(Ok(())) => continue,
                    // What else is wrong the segment itself meets, where somebody can act on it.
                    Some(Err(_)) => {}
                }
            }
            if term != last_term {
                shared.terms.lock().note(next, term);
            }
            debug_assert_eq!(
                next.0,
                shared.last.load(Ordering::Relaxed) + 1,
                "no hole, nothing twice"
            );
            // All under one hold of the buffer: between two of them a state or a pin could take the room of the second.
            for parts in entries {
                buffer.push(term, parts, byte_len(parts));
            }
            let seq = Seq(buffer.end().0.0 - 1);
            shared.last.store(seq.0, Ordering::Release);
            // Written under the lock only, so the counter needs no atomic addition.
            let entry_bytes = shared.entry_bytes.load(Ordering::Relaxed) + bytes as u64;
            shared.entry_bytes.store(entry_bytes, Ordering::Relaxed);
            let before = shared.buffered.fetch_add(added, Ordering::Relaxed);
            drop(buffer);
            if before < shared.flush_soon_bytes && before + added >= shared.flush_soon_bytes {
                shared.ask(|duty| duty.flush_soon = true);
            }
            return Ok(seq);
        }
    }
}

fn byte_len(parts: &[&[u8]]) -> usize {
    parts.iter().map(|part| part.len()).sum()
}
