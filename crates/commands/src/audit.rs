//! The audit log: who did what to users, roles, collections and the server itself, who was let in, and who was refused.
//!
//! An event has the fields of MongoDB's audit messages: `atype`, `ts`, `uuid`, `local`, `remote`, `users`, `roles`,
//! `param`, `result` (0, or the error's code). It is handed to the system before the client has its reply: of what
//! clients were told, a crash of the process loses no event, one of the machine may. On standard output, which may not
//! be read, or in a pipe, events are written a moment later, by a thread. An event that cannot be written is counted,
//! and the server's log tells of it, unless it was that thread that could not write.
//!
//! The file is written with the standard library, as the server's log is ([`crate::logger`]).

use crate::counter::Counter;
use crate::logger::{LineQueue, LogFile, READER_PATIENCE, Rotate, Urgency};
use bson::raw::RawDocument;
use bson::{DateTime, Document, RawDocumentBuf};
use extjson::JsonForm;
use query::EvaluationContext;
use query::expression::ExpressionContext;
use query::matcher::Matcher;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use storage::Operation;
use vfs::{Clock, Env};

/// Where events go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditDestination {
    /// Standard output, as lines of JSON.
    Console,
    /// A file, which is appended to.
    File {
        /// Its path.
        path: PathBuf,
        /// What [`Audit::rotate`] does.
        rotate: Rotate,
        /// How events are written.
        format: AuditFormat,
    },
}

/// How events are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFormat {
    /// A line of relaxed Extended JSON each.
    Json,
    /// BSON documents, one behind the other.
    Bson,
}

/// What auditing is set up with (`auditLog`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditOptions {
    /// Where events go.
    pub destination: AuditDestination,
    /// A query filter, as Extended JSON: events that it does not find are left out.
    pub filter: Option<String>,
}

enum Sink {
    /// Standard output, or a file that is a pipe or a device.
    Queue(LineQueue),
    File(LogFile, AuditFormat),
}

/// The audit log of a server. Shared by all threads.
pub struct Audit {
    sink: Sink,
    filter: Option<Matcher>,
    clock: Arc<dyn Clock>,
    written: Counter,
    lost: Counter,
    /// The server's end is told once, of who has asked for it.
    has_end: AtomicBool,
}

impl Audit {
    /// Opens the log.
    ///
    /// # Errors
    /// A sentence: the filter is no query, or the file cannot be opened.
    pub fn open(options: &AuditOptions, env: &Env) -> Result<Self, String> {
        let filter = options.filter.as_deref().map(|text| {
            let parsing = ExpressionContext::new(env.clock.now_ms(), Arc::clone(&env.random));
            let parsed = extjson::parse(text).map_err(|error| error.to_string());
            parsed.and_then(|document| Matcher::parse(&document, &parsing).map_err(|error| error.to_string()))
        });
        let filter = filter
            .transpose()
            .map_err(|error| format!("auditLog.filter: {error}"))?;
        let sink = match &options.destination {
            AuditDestination::Console => {
                let queue = LineQueue::of_standard_output(None);
                Sink::Queue(queue.map_err(|error| format!("the audit log cannot be written: {error}"))?)
            }
            AuditDestination::File { path, rotate, format } => {
                let opened = LogFile::open(path, true, *rotate, env.clock.now_ms());
                let (file, _) =
                    opened.map_err(|error| format!("the audit log {} cannot be opened: {error}", path.display()))?;
                match format {
                    AuditFormat::Json if !file.is_regular() => {
                        let queue = LineQueue::new(move |line| file.put(line), None);
                        Sink::Queue(queue.map_err(|error| format!("the audit log cannot be written: {error}"))?)
                    }
                    _ => Sink::File(file, *format),
                }
            }
        };
        Ok(Self {
            sink,
            filter,
            clock: Arc::clone(&env.clock),
            written: Counter::default(),
            lost: Counter::default(),
            has_end: AtomicBool::new(false),
        })
    }

    /// The time, as events have it.
    pub(crate) fn now(&self) -> DateTime {
        DateTime::from_millis(self.clock.now_ms())
    }

    /// Whether the server's end is to be told: the first time.
    pub(crate) fn begin_end(&self) -> bool {
        !self.has_end.swap(true, Ordering::Relaxed)
    }

    /// Events written, and events that could not be.
    pub(crate) fn counts(&self) -> (i64, i64) {
        let failed = match &self.sink {
            Sink::Queue(queue) => queue.failed() as i64,
            Sink::File(..) => 0,
        };
        (self.written.get() - failed, self.lost.get() + failed)
    }

    /// Waits until events for standard output are written, for a second at most: called before the process ends.
    pub(crate) fn flush(&self) {
        if let Sink::Queue(queue) = &self.sink {
            queue.wait_until_empty(READER_PATIENCE);
        }
    }

    /// Writes an event, unless the filter leaves it out.
    pub(crate) fn record(&self, event: &Document) -> io::Result<()> {
        let recorded = self.write(event);
        match recorded {
            Ok(true) => self.written.add(1),
            Ok(false) => {}
            Err(_) => self.lost.add(1),
        }
        recorded.map(drop)
    }

    /// False: the filter leaves it out.
    fn write(&self, event: &Document) -> io::Result<bool> {
        let document = RawDocumentBuf::try_from(event).map_err(io::Error::other)?;
        if !self.is_wanted(&document) {
            return Ok(false);
        }
        match &self.sink {
            Sink::File(file, AuditFormat::Bson) => file.put_whole(document.as_bytes()),
            Sink::File(file, AuditFormat::Json) => file.put_whole(line(&document)?.as_bytes()),
            Sink::Queue(queue) => queue.put(line(&document)?, Urgency::Usual),
        }?;
        Ok(true)
    }

    fn is_wanted(&self, event: &RawDocument) -> bool {
        let Some(filter) = &self.filter else { return true };
        let operation = Operation::new(Arc::clone(&self.clock), 0);
        // What it cannot be asked about is kept.
        filter
            .matches(event, &EvaluationContext::new(&operation))
            .unwrap_or(true)
    }

    /// Begins a new file; the name of the former one, where it was renamed. Nothing happens without a file.
    pub fn rotate(&self) -> io::Result<Option<PathBuf>> {
        match &self.sink {
            Sink::Queue(_) => Ok(None),
            Sink::File(file, _) => file.rotate(self.clock.now_ms()),
        }
    }
}

fn line(event: &RawDocument) -> io::Result<String> {
    let mut line = String::with_capacity(512);
    extjson::write(event.as_bytes(), JsonForm::Relaxed, &mut line).map_err(io::Error::other)?;
    line.push('\n');
    Ok(line)
}
