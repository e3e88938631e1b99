//! Text into a server.
//!
//! 1. One thread finds the documents' texts and gathers them into batches.
//! 2. Workers make BSON of a batch, side by side, and report what is wrong with it one after the other, in the order
//!    of the text ([`Order`]). After text that is no JSON nothing is sent that stands behind it.
//! 3. They send their batches side by side. A batch is sent once: when its reply does not come, what became of it is
//!    told ([`TransferError::Unknown`]), and nothing is sent again.

use crate::decode::{Decoded, Decoder};
use crate::error::{Result, TransferError};
use crate::limits::{BATCH_BYTES, BATCH_DOCUMENTS};
use crate::reader::{Item, Reader, TextForm};
use bench::interrupt::Interrupt;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};
use dump::{Client, DumpError, Namespace, Server};
use indicatif::ProgressBar;
use parking_lot::{Condvar, Mutex};
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;

/// `drop` of something that is not there.
const NAMESPACE_NOT_FOUND: i32 = 26;
/// A server that stops, or an operation that somebody ended: part of the batch may have been done.
const ENDED_CODES: [i32; 6] = [50, 91, 262, 11600, 11601, 11602];

/// Between two looks at whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(100);
/// So long batches on their way may take when the user wants to stop.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is done with each document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportMode {
    /// It is inserted.
    Insert,
    /// It replaces the one with the same key, or is inserted.
    Upsert,
    /// Its fields are put into the one with the same key, or it is inserted.
    Merge,
    /// The one with the same key is removed.
    Delete,
}

/// What to import, from where to where.
pub struct ImportOptions {
    /// The server.
    pub server: Server,
    /// The collection.
    pub target: Namespace,
    /// How documents stand in the text.
    pub form: TextForm,
    /// How their texts become documents.
    pub decoder: Decoder,
    /// What is done with them.
    pub mode: ImportMode,
    /// The key of all modes but insert.
    pub key_fields: Vec<String>,
    /// Removes the collection first.
    pub drop: bool,
    /// Ends at the first document that is wrong or refused.
    pub stop_on_error: bool,
    /// Threads that make BSON and send it, at least one. With one, documents are sent in their order.
    pub workers: usize,
    /// Of every write.
    pub write_concern: Document,
    /// Asks the server not to validate.
    pub bypass_validation: bool,
    /// Ends it early; what has been sent stays.
    pub interrupt: Interrupt,
    /// The number of the input's first line: 2 behind a header.
    pub first_line: u64,
    /// Counts bytes of text, as far as it is read.
    pub progress: ProgressBar,
}

/// What was imported.
#[derive(Debug, Default)]
pub struct Imported {
    /// Documents that the server took: inserted, replaced, merged or removed.
    pub documents: u64,
    /// Documents that are wrong, or that the server refused.
    pub failed: u64,
    /// Rows left out, as the user has asked for with [`crate::Grace::SkipRow`].
    pub skipped: u64,
    /// Documents to remove that the server did not find.
    pub missing: u64,
    /// Why the import ended before its end.
    pub error: Option<TransferError>,
}

#[derive(Debug, Default)]
struct Batch {
    number: u64,
    items: Vec<Item>,
    bytes: usize,
}

/// The batches' order: what is known of all before the next one to be judged.
#[derive(Debug, Default)]
struct Order {
    /// The batch whose turn it is.
    next: u64,
    /// Nothing more is to be sent.
    has_ended: bool,
    /// Workers that have ended.
    workers_ended: usize,
    /// The first line at which the import has ended by itself.
    ended_line: Option<u64>,
    imported: Imported,
}

/// What became of a batch whose reply came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    Whole,
    /// The server refused a document, and the user wants to end there.
    Ended,
}

impl Order {
    fn end_at(&mut self, line: u64) {
        self.has_ended = true;
        self.ended_line = Some(self.ended_line.map_or(line, |ended| ended.min(line)));
    }
}

struct Shared<'a> {
    options: &'a ImportOptions,
    order: Mutex<Order>,
    turned: Condvar,
    /// Ends the waiting for replies. After the user wants to stop there is [`PATIENCE`] to know what batches did.
    patience: Interrupt,
    batches: Mutex<Receiver<Batch>>,
    tell: &'a (dyn Fn(&str) + Sync),
}

/// Imports. `tell` gets a line for each document that is wrong, refused or skipped.
pub fn import(options: &ImportOptions, input: impl Read + Send, tell: &(dyn Fn(&str) + Sync)) -> Result<Imported> {
    let mut client = Client::open(&options.server, &options.interrupt)?;
    if options.drop {
        match client.run(&options.target.database, &doc! { "drop": &options.target.collection }) {
            Err(DumpError::Server(bench::Error::Refused { code, .. })) if code == NAMESPACE_NOT_FOUND => {}
            other => drop(other?),
        }
    }
    let workers = options.workers.max(1);
    let (sender, receiver) = sync_channel(workers);
    let shared = Shared {
        options,
        order: Mutex::default(),
        turned: Condvar::new(),
        patience: Interrupt::new(),
        batches: Mutex::new(receiver),
        tell,
    };
    let read = std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| shared.work());
        }
        let read = shared.gather(input, &sender);
        // The workers end when there are no more batches.
        drop(sender);
        shared.end(workers);
        read
    });
    let Order {
        ended_line,
        mut imported,
        ..
    } = shared.order.into_inner();
    if let Err(error) = read {
        imported.error.get_or_insert(error);
    }
    if let (Some(line), None) = (ended_line, &imported.error) {
        imported.error = Some(TransferError::Choice(format!("ended at line {line}")));
    }
    Ok(imported)
}

impl Shared<'_> {
    /// Step 1. Text without a next document ends the import behind what was found so far.
    fn gather(&self, input: impl Read, sender: &SyncSender<Batch>) -> Result<()> {
        let mut reader =
            Reader::new(self.options.progress.wrap_read(input), self.options.form).at_line(self.options.first_line);
        let mut batch = Batch::default();
        let ended = loop {
            if self.options.interrupt.asked() {
                self.order.lock().has_ended = true;
                return Err(TransferError::Choice("stopped".to_owned()));
            }
            if self.order.lock().has_ended {
                return Ok(());
            }
            match reader.next_item() {
                Ok(Some(item)) => {
                    batch.bytes += item.bytes();
                    batch.items.push(item);
                }
                Ok(None) => break Ok(()),
                // Ended for the user: seen above.
                Err(_) if self.options.interrupt.asked() => continue,
                Err(error) => break Err(error),
            }
            if batch.items.len() >= BATCH_DOCUMENTS || batch.bytes >= BATCH_BYTES {
                let number = batch.number + 1;
                self.hand_over(sender, std::mem::take(&mut batch));
                batch.number = number;
            }
        };
        self.hand_over(sender, batch);
        ended
    }

    /// Gives the workers a batch, once one of them has room for it; not when the user wants to stop before.
    fn hand_over(&self, sender: &SyncSender<Batch>, mut batch: Batch) {
        // Held from the look until the wait begins: who takes a batch tells of it under the lock.
        let mut order = self.order.lock();
        // All workers are there until the sender is gone.
        while let Err(TrySendError::Full(back)) = sender.try_send(batch) {
            if self.options.interrupt.asked() {
                // Nobody else may see it any more: what is dropped here may be the last batch.
                order.has_ended = true;
                let message = || TransferError::Choice("stopped".to_owned());
                order.imported.error.get_or_insert_with(message);
                return;
            }
            batch = back;
            self.turned.wait_for(&mut order, LOOK);
        }
    }

    /// Waits for the workers.
    fn end(&self, workers: usize) {
        let mut order = self.order.lock();
        let mut asked = None;
        while order.workers_ended < workers {
            self.turned.wait_for(&mut order, LOOK);
            if self.options.interrupt.asked() {
                order.has_ended = true;
                let message = || TransferError::Choice("stopped".to_owned());
                order.imported.error.get_or_insert_with(message);
                if asked.get_or_insert_with(Instant::now).elapsed() > PATIENCE {
                    self.patience.ask();
                }
            }
        }
    }

    fn work(&self) {
        let mut client = None;
        loop {
            let Ok(batch) = self.batches.lock().recv() else {
                self.order.lock().workers_ended += 1;
                self.turned.notify_all();
                return;
            };
            let decoded: Vec<_> = batch
                .items
                .iter()
                .map(|item| (item.line, self.options.decoder.decode(item)))
                .collect();
            let entries = self.judge(batch.number, decoded);
            if entries.is_empty() {
                continue;
            }
            if let Err(error) = self.send(&mut client, &entries) {
                let mut order = self.order.lock();
                order.has_ended = true;
                order.imported.error.get_or_insert(error);
            }
        }
    }

    /// Step 2: the batch's statements, in their order, after all batches before it have been judged.
    fn judge(&self, number: u64, decoded: Vec<(u64, std::result::Result<Decoded, crate::Fault>)>) -> Vec<Entry> {
        let mut order = self.order.lock();
        while order.next < number {
            self.turned.wait(&mut order);
        }
        let mut entries = Vec::with_capacity(decoded.len());
        for (line, decoded) in decoded {
            if order.has_ended {
                break;
            }
            let fault = match decoded {
                Ok(Decoded::Document(document)) => match self.options.entry(line, &document) {
                    Ok(entry) => {
                        entries.push(entry);
                        continue;
                    }
                    Err(what) => crate::Fault {
                        line,
                        what,
                        is_final: false,
                    },
                },
                Ok(Decoded::Skipped(why)) => {
                    order.imported.skipped += 1;
                    (self.tell)(&format!("line {line}: skipped: {why}"));
                    continue;
                }
                Err(fault) => fault,
            };
            order.imported.failed += 1;
            (self.tell)(&format!("line {}: {}", fault.line, fault.what));
            if fault.is_final || self.options.stop_on_error {
                order.end_at(fault.line);
            }
        }
        order.next = number + 1;
        self.turned.notify_all();
        entries
    }

    /// Step 3.
    fn send(&self, client: &mut Option<Client>, entries: &[Entry]) -> Result<()> {
        let mut rest = entries;
        while !rest.is_empty() {
            if self.options.interrupt.asked() {
                return Ok(());
            }
            let mut bytes = 0;
            let count = rest
                .iter()
                .take_while(|entry| {
                    let fits = bytes == 0 || bytes + entry.bytes.as_bytes().len() <= BATCH_BYTES;
                    bytes += entry.bytes.as_bytes().len();
                    fits
                })
                .count();
            let (now, later) = rest.split_at(count);
            if self.send_batch(client, now)? == Sent::Ended {
                return Ok(());
            }
            rest = later;
        }
        Ok(())
    }

    fn send_batch(&self, client: &mut Option<Client>, entries: &[Entry]) -> Result<Sent> {
        let options = self.options;
        let client = match client {
            Some(client) => client,
            None => client.insert(Client::open(&options.server, &self.patience)?),
        };
        let (command, identifier) = match options.mode {
            ImportMode::Insert => ("insert", "documents"),
            ImportMode::Upsert | ImportMode::Merge => ("update", "updates"),
            ImportMode::Delete => ("delete", "deletes"),
        };
        let mut body = doc! {
            command: &options.target.collection,
            "ordered": options.stop_on_error,
            "writeConcern": options.write_concern.clone(),
        };
        if options.bypass_validation && options.mode != ImportMode::Delete {
            body.insert("bypassDocumentValidation", true);
        }
        let body = RawDocumentBuf::try_from(&body).map_err(|error| TransferError::Choice(error.to_string()))?;
        let bytes: Vec<u8> = entries
            .iter()
            .flat_map(|entry| entry.bytes.as_bytes())
            .copied()
            .collect();
        let reply = client
            .write(&options.target.database, &body, identifier, &bytes)
            .map_err(|source| match source {
                DumpError::Server(bench::Error::Refused { code, .. }) if !ENDED_CODES.contains(&code) => source.into(),
                source => TransferError::Unknown {
                    first_line: entries.first().map_or(0, |entry| entry.line),
                    last_line: entries.last().map_or(0, |entry| entry.line),
                    source,
                },
            })?;
        self.count(entries, &reply)
    }

    fn count(&self, entries: &[Entry], reply: &Document) -> Result<Sent> {
        let number = |document: &Document, name: &str| match document.get(name) {
            Some(Bson::Int32(value)) => u64::try_from(*value).unwrap_or(0),
            Some(Bson::Int64(value)) => u64::try_from(*value).unwrap_or(0),
            Some(Bson::Double(value)) => *value as u64,
            _ => 0,
        };
        let errors = reply.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
        let done = number(reply, "n");
        let mut order = self.order.lock();
        order.imported.documents += done;
        order.imported.failed += errors.len() as u64;
        if self.options.mode == ImportMode::Delete && errors.is_empty() {
            order.imported.missing += (entries.len() as u64).saturating_sub(done);
        }
        for error in errors.iter().filter_map(Bson::as_document) {
            let line = usize::try_from(number(error, "index"))
                .ok()
                .and_then(|index| entries.get(index))
                .map_or(0, |entry| entry.line);
            let message = error.get_str("errmsg").unwrap_or("no message");
            (self.tell)(&format!("line {line}: {message} (code {})", number(error, "code")));
            if self.options.stop_on_error {
                order.end_at(line);
            }
        }
        drop(order);
        if let Ok(error) = reply.get_document("writeConcernError") {
            let message = error.get_str("errmsg").unwrap_or("no message");
            return Err(TransferError::Choice(format!(
                "the write concern is not met: {message}"
            )));
        }
        Ok(if self.options.stop_on_error && !errors.is_empty() {
            Sent::Ended
        } else {
            Sent::Whole
        })
    }
}

/// A statement of a write command, and where its document began.
struct Entry {
    line: u64,
    bytes: RawDocumentBuf,
}

impl ImportOptions {
    fn entry(&self, line: u64, document: &RawDocumentBuf) -> std::result::Result<Entry, String> {
        if self.mode == ImportMode::Insert {
            return Ok(Entry {
                line,
                bytes: document.clone(),
            });
        }
        let key = self.key(document)?;
        let mut bytes = RawDocumentBuf::new();
        match (self.mode, key) {
            (ImportMode::Delete, None) => {
                return Err(format!("no field of the key {} is there", self.key_fields.join(", ")));
            }
            (ImportMode::Delete, Some(key)) => {
                bytes.append(bson::cstr!("q"), key);
                bytes.append(bson::cstr!("limit"), 1);
            }
            (mode, key) => {
                let key = match key {
                    Some(key) => key,
                    None => new_key(document)?,
                };
                bytes.append(bson::cstr!("q"), key);
                if mode == ImportMode::Merge {
                    check_names(document)?;
                    let mut update = RawDocumentBuf::new();
                    update.append(bson::cstr!("$set"), document.clone());
                    bytes.append(bson::cstr!("u"), update);
                } else {
                    check_replacement(document)?;
                    bytes.append(bson::cstr!("u"), document.clone());
                }
                bytes.append(bson::cstr!("upsert"), true);
            }
        }
        if bytes.as_bytes().len() > DOCUMENT_INTERNAL_BYTES_MAX {
            return Err("the document leaves no room for its key".to_owned());
        }
        Ok(Entry { line, bytes })
    }

    /// A filter for the documents with the same key, where a field that is not there is null; `None` when none is
    /// there.
    fn key(&self, document: &RawDocument) -> std::result::Result<Option<RawDocumentBuf>, String> {
        let mut key = RawDocumentBuf::new();
        let mut has_any = false;
        for path in &self.key_fields {
            let mut equal = RawDocumentBuf::new();
            match at_path(document, path)? {
                Some(value) => {
                    has_any = true;
                    equal.append(bson::cstr!("$eq"), value);
                }
                None => equal.append(bson::cstr!("$eq"), bson::raw::RawBson::Null),
            }
            let name = bson::raw::CString::try_from(path.clone()).map_err(|error| error.to_string())?;
            key.append(name, equal);
        }
        Ok(has_any.then_some(key))
    }
}

fn at_path<'a>(document: &'a RawDocument, path: &str) -> std::result::Result<Option<RawBsonRef<'a>>, String> {
    let mut value = None;
    let mut inner = Some(document);
    for part in path.split('.') {
        let Some(document) = inner else { return Ok(None) };
        value = document.get(part).map_err(|error| error.to_string())?;
        inner = match value {
            Some(RawBsonRef::Document(document)) => Some(document),
            _ => None,
        };
    }
    Ok(value)
}

/// A filter that finds nothing: a document without its key is a new one. With the document's own id, which the one that
/// is made gets from here, or with one that no other has.
fn new_key(document: &RawDocument) -> std::result::Result<RawDocumentBuf, String> {
    let mut key = RawDocumentBuf::new();
    match document.get("_id").map_err(|error| error.to_string())? {
        Some(id) => {
            let mut equal = RawDocumentBuf::new();
            equal.append(bson::cstr!("$eq"), id);
            key.append(bson::cstr!("_id"), equal);
            // The id may be there: that is a duplicate, and no document to replace.
            let everything = RawDocumentBuf::new();
            let mut none = bson::raw::RawArrayBuf::new();
            none.push(everything);
            key.append(bson::cstr!("$nor"), none);
        }
        None => key.append(bson::cstr!("_id"), bson::oid::ObjectId::new()),
    }
    Ok(key)
}

/// `$set` takes names with dots for paths, and a name with a dollar for an operator.
fn check_names(document: &RawDocument) -> std::result::Result<(), String> {
    for name in names(document) {
        let name = name?;
        if name.contains('.') || name.starts_with('$') || name.is_empty() {
            return Err(format!("a field with the name {name:?} cannot be merged"));
        }
    }
    Ok(())
}

/// A document whose first field has a dollar would be a list of operators, and change what it should replace.
fn check_replacement(document: &RawDocument) -> std::result::Result<(), String> {
    match names(document).next().transpose()? {
        Some(name) if name.starts_with('$') => {
            Err(format!("a document that begins with {name:?} cannot replace another"))
        }
        _ => Ok(()),
    }
}

fn names(document: &RawDocument) -> impl Iterator<Item = std::result::Result<String, String>> {
    document.iter_elements().map(|element| match element {
        Ok(element) => Ok(element.key().as_str().to_owned()),
        Err(error) => Err(error.to_string()),
    })
}
