//! A reader with a thread of its own: reading, checking and decompressing go on while the caller works on what it has.

use crate::{LogReader, Result};
use bytes::Bytes;
use engine::Seq;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

pub(crate) const THREAD_NAME: &str = "log-reader";
/// Entries handed over at once, and their bytes, at most about.
const BATCH_ENTRIES: usize = 1024;
const BATCH_BYTES: usize = 1 << 20;
/// Batches that wait for the caller.
const BATCHES_MAX: usize = 4;

type Item = Result<(Seq, Bytes)>;

/// Yields what a [`LogReader`] yields. Dropping it ends the thread.
pub struct ReadAhead {
    batches: Option<Receiver<Vec<Item>>>,
    batch: std::vec::IntoIter<Item>,
    thread: Option<JoinHandle<()>>,
}

impl ReadAhead {
    pub(crate) fn start(reader: LogReader) -> std::io::Result<Self> {
        let (sender, receiver) = sync_channel(BATCHES_MAX);
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || send_all(reader, &sender))?;
        Ok(Self {
            batches: Some(receiver),
            batch: Vec::new().into_iter(),
            thread: Some(thread),
        })
    }
}

fn send_all(reader: LogReader, sender: &SyncSender<Vec<Item>>) {
    let mut batch = Vec::new();
    let mut bytes = 0;
    for item in reader {
        bytes += item.as_ref().map_or(0, |(_, entry)| entry.len());
        batch.push(item);
        if batch.len() == BATCH_ENTRIES || bytes >= BATCH_BYTES {
            bytes = 0;
            // The caller has gone: so do we.
            if sender.send(std::mem::take(&mut batch)).is_err() {
                return;
            }
        }
    }
    let _ = sender.send(batch);
}

impl Iterator for ReadAhead {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            if let Some(item) = self.batch.next() {
                return Some(item);
            }
            self.batch = self.batches.as_ref()?.recv().ok()?.into_iter();
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Log, LogOptions};
    use engine::Seq;
    use std::sync::Arc;
    use vfs::{Env, SeededRandom, SimulatedClock, SimulatedFs};

    #[test]
    fn reads_what_a_plain_reader_reads_and_ends_when_dropped_early() {
        let env = Env {
            fs: Arc::new(SimulatedFs::new(1)),
            clock: Arc::new(SimulatedClock::new(0)),
            random: Arc::new(SeededRandom::new(1)),
        };
        let options = LogOptions {
            segment_bytes: crate::SEGMENT_BYTES_MIN,
            background: false,
            ..LogOptions::new("/log")
        };
        let log = Log::open(&env, options, Seq::ZERO).expect("opens");
        for number in 1..=5000_u64 {
            log.append(&[&number.to_le_bytes().repeat(1 + number as usize % 40)])
                .expect("appends");
        }
        log.flush().expect("flushes");
        let plain: Vec<_> = log
            .read(Seq(1))
            .expect("reads")
            .map(|item| item.expect("whole"))
            .collect();
        assert_eq!(plain.len(), 5000);
        let ahead: Vec<_> = log
            .read_ahead(Seq(1))
            .expect("reads")
            .map(|item| item.expect("whole"))
            .collect();
        assert_eq!(plain, ahead);
        let mut early = log.read_ahead(Seq(17)).expect("reads");
        assert_eq!(early.next().expect("there is one").expect("whole"), plain[16]);
        drop(early);
    }
}
