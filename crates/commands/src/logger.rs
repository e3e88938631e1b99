//! The server's log: one line of JSON per event, in the shape MongoDB writes since 4.4.
//!
//! A line goes to the sink (standard output or a file) and into a ring of the newest lines for `getLog`. What is
//! filtered by verbosity costs one atomic load. The logger knows nothing of what it logs. It writes a file of its own
//! with the standard library, not through `vfs`: log lines are outside what crash tests control.
//!
//! Invariants: a line is written by one call, so lines of different threads do not mix; no ring is locked while bytes
//! go to a file; nobody waits for whoever reads standard output, or a pipe, but the thread that ends the process and
//! the one that rotates the log, for a second at most.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the log file is no part of what crash tests control"
)]

mod component;
mod file;
pub mod id;
mod json;
mod line_queue;
mod terminal;

pub use component::{Component, Severity};
pub use file::LogFile;
pub use id::LogId;

use bson::Document;
use line_queue::Notice;
pub(crate) use line_queue::{LineQueue, Urgency};
use parking_lot::Mutex;
use std::borrow::Borrow;
use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI8, AtomicU64, Ordering};
use std::time::Duration;
use vfs::Clock;

/// Lines each ring keeps, at most.
pub const RING_LINES: usize = 1024;
/// And their bytes: a slow statement's line is long.
pub const RING_BYTES: usize = 1024 * 1024;
/// How long the end of the process waits for whoever reads standard output.
pub(crate) const READER_PATIENCE: Duration = Duration::from_secs(1);

const LINES_ARE_MISSING: &str = "Lines are missing before this one: the log could not be written";

/// Where lines go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Standard output.
    Stdout,
    /// Standard output, which somebody watches: lines for people.
    Terminal,
    /// A file.
    File {
        /// Its path.
        path: PathBuf,
        /// Go on after what is there; otherwise an existing file is renamed first.
        append: bool,
        /// What [`Logger::rotate`] does.
        rotate: Rotate,
    },
    /// Nowhere but the rings (tests).
    Rings,
}

/// What rotation does with a file that is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// Renames it with the time as suffix and begins a new one.
    Rename,
    /// Opens the same path again: an outside tool has renamed the file.
    Reopen,
}

/// How times are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeFormat {
    /// `2026-01-31T12:00:00.000+00:00`
    #[default]
    Iso8601Utc,
    /// The same with the machine's zone.
    Iso8601Local,
}

/// What a logger is made with.
#[derive(Clone, Debug)]
pub struct LoggerOptions {
    /// Where lines go.
    pub destination: Destination,
    /// How times are written.
    pub time_format: TimeFormat,
    /// Verbosity of all components, 0 to 5.
    pub verbosity: i8,
}

impl Default for LoggerOptions {
    fn default() -> Self {
        Self {
            destination: Destination::Stdout,
            time_format: TimeFormat::default(),
            verbosity: 0,
        }
    }
}

/// The rings `getLog` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ring {
    /// Every line.
    Global,
    /// Warnings of the start-up.
    StartupWarnings,
}

#[derive(Default)]
struct RingLines {
    total: u64,
    lines: VecDeque<Arc<str>>,
    bytes: usize,
}

impl RingLines {
    fn push(&mut self, line: Arc<str>) {
        self.bytes += line.len();
        self.lines.push_back(line);
        self.total += 1;
        // The newest stays, whatever its length.
        while self.lines.len() > RING_LINES || (self.bytes > RING_BYTES && self.lines.len() > 1) {
            self.bytes -= self.lines.pop_front().map_or(0, |line| line.len());
        }
    }
}

enum Sink {
    /// Written by a thread: standard output, or a file that is a pipe or a device.
    Queue(LineQueue, Option<Arc<LogFile>>),
    File(LogFile),
    Rings,
}

/// Verbosity that a component takes from its parent.
const INHERIT: i8 = -1;

/// The server's log. Shared by all threads.
pub struct Logger {
    clock: Arc<dyn Clock>,
    destination: Destination,
    zone: jiff::tz::TimeZone,
    sink: Sink,
    global: Mutex<RingLines>,
    startup_warnings: Mutex<RingLines>,
    /// As set by users, [`INHERIT`] included; changed only under this lock.
    configured: Mutex<[i8; Component::COUNT]>,
    /// What is in force, inheritance resolved.
    effective: [AtomicI8; Component::COUNT],
    /// Lines that the sink has refused. Of those that its thread could not write, the thread tells.
    refused_lines: AtomicU64,
    /// How many of them a later line has told of.
    told_lines: AtomicU64,
}

impl Logger {
    /// Opens the log. An existing file that shall not be appended to is renamed first.
    pub fn new(clock: Arc<dyn Clock>, options: &LoggerOptions) -> io::Result<Arc<Self>> {
        let zone = match options.time_format {
            TimeFormat::Iso8601Utc => jiff::tz::TimeZone::UTC,
            TimeFormat::Iso8601Local => jiff::tz::TimeZone::system(),
        };
        let mut renamed = None;
        let is_terminal = options.destination == Destination::Terminal;
        let notice = || notice(clock.clone(), zone.clone(), is_terminal);
        let sink = match &options.destination {
            Destination::Stdout | Destination::Terminal => {
                Sink::Queue(LineQueue::of_standard_output(Some(notice()))?, None)
            }
            Destination::Rings => Sink::Rings,
            Destination::File { path, append, rotate } => {
                let file;
                (file, renamed) = LogFile::open(path, *append, *rotate, clock.now_ms())?;
                match file.is_regular() {
                    true => Sink::File(file),
                    false => {
                        let file = Arc::new(file);
                        let of_thread = file.clone();
                        let queue = LineQueue::new(move |line| of_thread.put(line), Some(notice()))?;
                        Sink::Queue(queue, Some(file))
                    }
                }
            }
        };
        let mut configured = [INHERIT; Component::COUNT];
        configured[Component::Default as usize] = options.verbosity;
        let logger = Self {
            clock,
            destination: options.destination.clone(),
            zone,
            sink,
            global: Mutex::default(),
            startup_warnings: Mutex::default(),
            configured: Mutex::new(configured),
            effective: std::array::from_fn(|_| AtomicI8::new(options.verbosity)),
            refused_lines: AtomicU64::new(0),
            told_lines: AtomicU64::new(0),
        };
        if let Some(to) = renamed {
            let attr = bson::doc! { "newLogPath": to.display().to_string() };
            logger.log(id::LOG_FILE_RENAMED, "main", "Renamed existing log file", attr);
        }
        Ok(Arc::new(logger))
    }

    /// Does somebody watch the lines as they come?
    pub fn is_watched(&self) -> bool {
        self.destination == Destination::Terminal
    }

    /// A logger that only fills its rings.
    pub fn for_tests(clock: Arc<dyn Clock>) -> Arc<Self> {
        let options = LoggerOptions {
            destination: Destination::Rings,
            ..LoggerOptions::default()
        };
        Self::new(clock, &options).expect("rings need no file")
    }

    /// True when lines of this level (1 to 5) of a component are written.
    #[inline]
    pub fn enabled(&self, component: Component, level: i8) -> bool {
        level <= self.effective[component as usize].load(Ordering::Relaxed)
    }

    /// Writes a line. `context` is the thread or connection: `conn12`, `listener`.
    pub fn log(&self, id: LogId, context: &str, message: &str, attributes: impl Borrow<Document>) {
        self.write(id, context, message, attributes.borrow(), Ring::Global);
    }

    /// A warning of the start-up; `getLog: "startupWarnings"` shows it until the process ends.
    pub fn startup_warning(&self, id: LogId, message: &str, attributes: Document) {
        self.write(id, "initandlisten", message, &attributes, Ring::StartupWarnings);
    }

    fn write(&self, id: LogId, context: &str, message: &str, attributes: &Document, ring: Ring) {
        match self.try_write(id, context, message, attributes, ring) {
            Ok(()) if self.is_failing() => {}
            Ok(()) => self.tell_of_lost_lines(),
            Err(_) => drop(self.refused_lines.fetch_add(1, Ordering::Relaxed)),
        }
        if id.severity == Severity::Fatal {
            self.flush();
        }
    }

    /// Waits until lines for standard output are written, for a second at most: called before the process ends.
    pub fn flush(&self) {
        if let Sink::Queue(queue, _) = &self.sink {
            queue.wait_until_empty(READER_PATIENCE);
        }
    }

    /// Whether the line that was written last, by another thread, could not be.
    fn is_failing(&self) -> bool {
        matches!(&self.sink, Sink::Queue(queue, _) if queue.is_failing())
    }

    fn try_write(&self, id: LogId, context: &str, message: &str, attributes: &Document, ring: Ring) -> io::Result<()> {
        let now = time_text(self.clock.now_ms(), &self.zone);
        let warning_of_startup = ring == Ring::StartupWarnings;
        let line = json::Line {
            now: &now,
            id,
            context,
            message,
            attributes,
            warning_of_startup,
        };
        let mut text = line.to_json();
        let kept: Arc<str> = Arc::from(text.as_str());
        self.global.lock().push(kept.clone());
        if warning_of_startup {
            self.startup_warnings.lock().push(kept);
        }
        if self.destination == Destination::Terminal {
            text = line.to_terminal();
        }
        text.push('\n');
        let urgency = match id.severity {
            // What is behind it may never be logged.
            Severity::Fatal => Urgency::Last,
            _ => Urgency::Usual,
        };
        match &self.sink {
            Sink::Rings => Ok(()),
            Sink::File(file) => file.put(text.as_bytes()),
            Sink::Queue(queue, _) => queue.put(text, urgency),
        }
    }

    /// Lines can be written again: whoever reads them is told how many are missing.
    fn tell_of_lost_lines(&self) {
        let lost = self.refused_lines.load(Ordering::Relaxed);
        if lost == self.told_lines.load(Ordering::Relaxed) {
            return;
        }
        // Whoever comes first tells.
        let untold = lost.saturating_sub(self.told_lines.fetch_max(lost, Ordering::Relaxed));
        let attributes = bson::doc! { "lines": untold as i64 };
        if untold > 0
            && self
                .try_write(id::LINES_LOST, "logger", LINES_ARE_MISSING, &attributes, Ring::Global)
                .is_err()
        {
            self.told_lines.fetch_sub(untold, Ordering::Relaxed);
        }
    }

    /// The newest lines of a ring, oldest first, and the number of lines it ever got.
    pub fn ring(&self, ring: Ring) -> (u64, Vec<Arc<str>>) {
        let lines = match ring {
            Ring::Global => self.global.lock(),
            Ring::StartupWarnings => self.startup_warnings.lock(),
        };
        (lines.total, lines.lines.iter().cloned().collect())
    }

    /// Lines the sink refused (disk full, pipe closed or not read); they are in the rings only.
    pub fn lost_lines(&self) -> u64 {
        let failed = match &self.sink {
            Sink::Queue(queue, _) => queue.failed(),
            _ => 0,
        };
        self.refused_lines.load(Ordering::Relaxed) + failed
    }

    /// Begins a new file as [`Rotate`] says; nothing happens without a file.
    pub fn rotate(&self) -> io::Result<()> {
        let file = match &self.sink {
            Sink::File(file) => file,
            Sink::Queue(_, Some(file)) => &**file,
            _ => return Ok(()),
        };
        self.log(id::LOG_ROTATION, "logRotate", "Log rotation initiated", Document::new());
        self.flush();
        file.rotate(self.clock.now_ms()).map(drop)
    }

    /// Sets the verbosity (0 to 5) of a component, `None` to take its parent's. [`Component::Default`] has no parent
    /// and takes `None` as 0.
    pub fn set_verbosity(&self, component: Component, level: Option<i8>) {
        let mut configured = self.configured.lock();
        configured[component as usize] = match level {
            Some(level) => level.clamp(0, 5),
            None if component == Component::Default => 0,
            None => INHERIT,
        };
        for each in Component::ALL {
            let mut at = each;
            while configured[at as usize] == INHERIT {
                at = at.parent();
            }
            self.effective[each as usize].store(configured[at as usize], Ordering::Relaxed);
        }
    }

    /// The verbosity users set for a component, `None` when it takes its parent's.
    pub fn verbosity(&self, component: Component) -> Option<i8> {
        Some(self.configured.lock()[component as usize]).filter(|level| *level != INHERIT)
    }
}

/// What the thread of a queue writes before the first line behind some that it could not write.
fn notice(clock: Arc<dyn Clock>, zone: jiff::tz::TimeZone, is_for_people: bool) -> Notice {
    Box::new(move |lines: u64| {
        let line = json::Line {
            now: &time_text(clock.now_ms(), &zone),
            id: id::LINES_LOST,
            context: "logger",
            message: LINES_ARE_MISSING,
            attributes: &bson::doc! { "lines": lines as i64 },
            warning_of_startup: false,
        };
        let text = match is_for_people {
            true => line.to_terminal(),
            false => line.to_json(),
        };
        text + "\n"
    })
}

/// A time as log lines have it and as tools that read operations parse it: with a fraction and an offset, always.
pub(crate) fn utc_text(now_ms: i64) -> String {
    time_text(now_ms, &jiff::tz::TimeZone::UTC)
}

/// ISO 8601 with milliseconds and offset; always 29 bytes for years 0 to 9999.
fn time_text(now_ms: i64, zone: &jiff::tz::TimeZone) -> String {
    let time = jiff::Timestamp::from_millisecond(now_ms).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    time.to_zoned(zone.clone())
        .strftime("%Y-%m-%dT%H:%M:%S.%3f%:z")
        .to_string()
}

#[cfg(test)]
mod tests;
