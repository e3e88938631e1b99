//! Lines for standard output, and for files that are pipes or devices, written by a thread of their own: a terminal
//! that somebody has stopped, or a pipe that nobody reads, holds up that thread and nothing else.
//!
//! Invariants: lines are written in the order in which they were put; the lines that wait have at most a given number
//! of bytes, and one beyond that is refused rather than waited for, unless it may be the last one; before the first
//! line that could be written again stands how many could not.

use super::file::append;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Some fifteen thousand lines: what a reader may be behind.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// What becomes of a line for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It is refused.
    Usual,
    /// It waits with the others: the process may end behind it.
    Last,
}

/// The line that tells how many are missing before it.
pub(crate) type Notice = Box<dyn Fn(u64) -> String + Send>;

/// Whether standard output has the beginning of a line only. Locked by whoever writes there: lines stay whole.
static STANDARD_OUTPUT_IS_CUT: Mutex<AtomicBool> = Mutex::new(AtomicBool::new(false));

/// The lines that wait, with the thread that writes them. The thread ends with the value, behind the last line.
pub(crate) struct LineQueue {
    shared: Arc<Shared>,
    bytes_max: usize,
}

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// There is a line, or the value has gone.
    is_needed: Condvar,
    /// All lines are written.
    is_empty: Condvar,
    /// The line before could not be written.
    is_failing: AtomicBool,
    /// Lines that could not be written.
    failed: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    lines: VecDeque<String>,
    /// Of these lines.
    bytes: usize,
    /// The one before them is not written yet.
    is_writing: bool,
    has_gone: bool,
}

/// Without the buffer of the standard library, which keeps what could not be written.
struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::io::write(io::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl LineQueue {
    /// Starts the thread, which hands each line to `write`.
    pub(crate) fn new(
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
        notice: Option<Notice>,
    ) -> io::Result<Self> {
        Self::bounded(write, notice, WAITING_BYTES_MAX)
    }

    /// As [`LineQueue::new`], for the process's standard output.
    pub(crate) fn of_standard_output(notice: Option<Notice>) -> io::Result<Self> {
        let write = |line: &[u8]| append(&mut StandardOutput, line, &STANDARD_OUTPUT_IS_CUT.lock());
        Self::new(write, notice)
    }

    fn bounded(
        mut write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
        notice: Option<Notice>,
        bytes_max: usize,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = shared.clone();
        std::thread::Builder::new().name("logger".to_owned()).spawn(move || {
            let mut untold = 0_u64;
            of_thread.write(&mut |line| {
                let told = match &notice {
                    Some(notice) if untold > 0 => write(notice(untold).as_bytes()),
                    _ => Ok(()),
                };
                if told.is_ok() {
                    untold = 0;
                }
                let written = told.and_then(|()| write(line.as_bytes()));
                if written.is_err() {
                    untold += 1;
                    of_thread.failed.fetch_add(1, Ordering::Relaxed);
                }
                of_thread.is_failing.store(written.is_err(), Ordering::Relaxed);
            });
        })?;
        Ok(Self { shared, bytes_max })
    }

    /// Has a line written. An error when too much waits already.
    pub(crate) fn put(&self, line: String, urgency: Urgency) -> io::Result<()> {
        let mut waiting = self.shared.waiting.lock();
        if urgency == Urgency::Usual && waiting.bytes + line.len() > self.bytes_max {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        waiting.bytes += line.len();
        waiting.lines.push_back(line);
        drop(waiting);
        self.shared.is_needed.notify_one();
        Ok(())
    }

    /// Whether the last line that the thread has tried to write could not be written.
    pub(super) fn is_failing(&self) -> bool {
        self.shared.is_failing.load(Ordering::Relaxed)
    }

    /// Lines that were taken, and could not be written.
    pub(crate) fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Waits until no line waits, for so long at most.
    pub(crate) fn wait_until_empty(&self, patience: Duration) {
        let mut waiting = self.shared.waiting.lock();
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        self.shared.is_empty.wait_while_for(&mut waiting, is_busy, patience);
    }
}

impl Drop for LineQueue {
    fn drop(&mut self) {
        self.shared.waiting.lock().has_gone = true;
        self.shared.is_needed.notify_one();
    }
}

impl Shared {
    /// Writes what is put, until the value has gone.
    fn write(&self, write: &mut dyn FnMut(&str)) {
        let mut waiting = self.waiting.lock();
        loop {
            match waiting.lines.pop_front() {
                Some(line) => {
                    waiting.bytes = waiting.bytes.saturating_sub(line.len());
                    waiting.is_writing = true;
                    // Never with the lock held: this may wait for ever.
                    MutexGuard::unlocked(&mut waiting, || write(&line));
                    waiting.is_writing = false;
                }
                None if waiting.has_gone => return,
                None => {
                    self.is_empty.notify_all();
                    self.is_needed.wait(&mut waiting);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Read as _;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn to(mut out: impl Write + Send + 'static) -> impl FnMut(&[u8]) -> io::Result<()> + Send + 'static {
        move |line| out.write_all(line)
    }

    fn lines(of: std::ops::Range<usize>) -> impl Iterator<Item = String> {
        of.map(|number| format!("{number:0999}\n"))
    }

    /// Whoever wrote a line waited for whoever was to read it: a pipe that was not read stopped the whole server.
    #[test]
    fn nobody_waits_for_a_pipe_that_is_not_read() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = LineQueue::bounded(to(writer), None, 100_000).unwrap();
        // A pipe takes 64 KiB, the queue a hundred lines more.
        let taken: Vec<String> = lines(0..1000)
            .filter(|line| queue.put(line.clone(), Urgency::Usual).is_ok())
            .collect();
        assert!((100..300).contains(&taken.len()), "{}", taken.len());
        queue.put("the end\n".to_owned(), Urgency::Last).unwrap();
        queue.wait_until_empty(Duration::from_millis(1));
        // What was taken is written, in its order, also when nobody has the queue any more.
        let shared = queue.shared.clone();
        drop(queue);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, taken.concat() + "the end\n");
        let failed = shared.failed.load(Ordering::Relaxed);
        assert_eq!(failed, 0, "whoever put the others counts them");
    }

    #[test]
    fn the_end_waits_for_a_reader_that_reads() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = LineQueue::new(to(writer), None).unwrap();
        let read = std::thread::spawn(move || {
            let mut read = String::new();
            reader.read_to_string(&mut read).map(|_| read)
        });
        for line in lines(0..1000) {
            queue.put(line, Urgency::Usual).unwrap();
        }
        queue.wait_until_empty(PATIENCE);
        assert!(queue.shared.waiting.lock().lines.is_empty());
        drop(queue);
        assert_eq!(read.join().unwrap().unwrap(), lines(0..1000).collect::<String>());
    }

    #[test]
    fn lines_for_a_pipe_that_is_closed_are_counted() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let queue = LineQueue::new(to(writer), None).unwrap();
        for line in lines(0..3) {
            queue.put(line, Urgency::Usual).unwrap();
        }
        queue.wait_until_empty(PATIENCE);
        assert!(queue.is_failing());
        assert_eq!(queue.failed(), 3);
    }

    /// It stood behind the first line that could be written again, or came with the next one, hours later.
    #[test]
    fn a_gap_is_told_where_it_is() {
        let (mut reader, mut writer) = io::pipe().unwrap();
        let mut calls = 0;
        let write = move |line: &[u8]| {
            calls += 1;
            // The first line, and the notice before the second.
            match calls <= 2 {
                true => Err(io::ErrorKind::StorageFull.into()),
                false => writer.write_all(line),
            }
        };
        let notice: Notice = Box::new(|lines: u64| format!("{lines} are missing\n"));
        let queue = LineQueue::new(write, Some(notice)).unwrap();
        for line in ["a\n", "b\n", "c\n", "d\n"] {
            queue.put(line.to_owned(), Urgency::Usual).unwrap();
        }
        queue.wait_until_empty(PATIENCE);
        assert!(!queue.is_failing() && queue.failed() == 2);
        drop(queue);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "2 are missing\nc\nd\n");
    }
}
