//! Replaying a log over restored documents.
//!
//! Documents were read at different moments, so they have seen different parts of the log already. Operations are
//! applied in order, and each can be applied again (`applyOps`). Indexes wait for the end: a unique one can
//! refuse documents of different moments. The log's own changes of indexes are made to the list of those that wait.

mod held;

use crate::client::Client;
use crate::error::{DumpError, Result};
use crate::found::Found;
use crate::indexes::{PendingIndexes, binary_order};
use crate::left_out::{LEFT_OUT_MAX, LeftOut, id_of};
use crate::namespace::{BUCKETS_PREFIX, Filter, Namespace};
use crate::oplog::{Command, applicable, inner, malformed};
use crate::texts::Texts;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, Timestamp, doc};
use query::timeseries;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use storage::TimeseriesOptions;
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;

/// Operations are sent together up to so many, or so many bytes: they are one document, which has at most 16 MB. One
/// that is larger goes alone.
const BATCH_OPERATIONS: usize = 1000;
const BATCH_BYTES: usize = 8 << 20;
/// Databases whose operations are those of the server that was dumped, not of its clients.
const OWN_DATABASES: [&str; 2] = ["local", "config"];

/// What a server says to who may not pass validation by.
const UNAUTHORIZED: i32 = 13;
/// Where MongoDB keeps its views, and versions before 4.2 wrote indexes to.
const VIEWS: &str = "system.views";
const OLD_INDEXES: &str = "system.indexes";

/// A log to replay.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The file, if it is not that of the dump.
    pub file: Option<PathBuf>,
    /// Nothing from this time on.
    pub until: Option<Timestamp>,
}

/// Who wrote a transaction, and its number.
type TransactionId = (Vec<u8>, i64);

/// A log that is being replayed.
pub(crate) struct Replay<'a> {
    client: &'a mut Client,
    filter: &'a Filter,
    until: Option<Timestamp>,
    indexes: &'a mut PendingIndexes,
    batch: Vec<Bson>,
    batch_bytes: usize,
    /// The operations of transactions whose end has not come.
    open: HashMap<TransactionId, Vec<Operation>>,
    operations: u64,
    has_ended: bool,
    /// Documents of a log were accepted once, whatever validator there is now. Not every user may say so.
    bypasses_validation: bool,
    /// Views with changes that are not replayed, and why.
    passed_over: BTreeMap<Namespace, String>,
    /// What the log is called.
    subject: String,
    /// What becomes of operations with text that is not UTF-8.
    pub(crate) texts: Texts,
    /// Documents whose changes are left out. It is bounded between entries.
    pub(crate) left_out: LeftOut,
    /// The options of time series, by the collections of their buckets, as far as they were asked for.
    series: HashMap<Namespace, Option<Arc<TimeseriesOptions>>>,
    /// Whether it ended as these were too many.
    gives_up: bool,
    /// Ends at the first view that the server refuses.
    stops: bool,
}

/// An operation, with valid content.
struct Operation {
    document: Document,
    /// The text that the log has in it.
    invalid: Option<Invalid>,
}

struct Invalid {
    as_found: RawDocumentBuf,
    what: String,
    place: String,
}

impl<'a> Replay<'a> {
    pub(crate) fn new(
        client: &'a mut Client,
        filter: &'a Filter,
        until: Option<Timestamp>,
        indexes: &'a mut PendingIndexes,
        subject: &str,
        texts: Texts,
        stops: bool,
    ) -> Self {
        Self {
            client,
            filter,
            until,
            indexes,
            batch: Vec::new(),
            batch_bytes: 0,
            open: HashMap::new(),
            operations: 0,
            has_ended: false,
            bypasses_validation: true,
            passed_over: BTreeMap::new(),
            subject: subject.to_owned(),
            texts,
            left_out: LeftOut::default(),
            series: HashMap::new(),
            gives_up: false,
            stops,
        }
    }

    /// The next entry of the log.
    pub(crate) fn found(&mut self, found: &Found) -> Result<()> {
        let valid = found.with_valid_content();
        let entry = RawDocument::from_bytes(&valid).map_err(|error| malformed(&error.to_string()))?;
        let time = entry
            .get_timestamp("ts")
            .map_err(|_| malformed("an entry without ts"))?;
        self.has_ended |= self.until.is_some_and(|until| time >= until);
        if !self.has_ended && self.left_out.is_full() {
            (self.has_ended, self.gives_up) = (true, true);
        }
        if self.has_ended {
            return Ok(());
        }
        let kind = entry.get_str("op").map_err(|_| malformed("an entry without op"))?;
        if kind != "c" {
            return self.operation(self.read(entry, Some(found.as_found()), found)?);
        }
        let o = entry.get_document("o").map_err(|_| malformed("a command without o"))?;
        let has = |name: &str| matches!(o.get(name), Ok(Some(value)) if value != RawBsonRef::Boolean(false));
        if has("abortTransaction") {
            self.open.remove(&transaction(entry)?);
            return Ok(());
        }
        if has("commitTransaction") {
            let operations = self.open.remove(&transaction(entry)?).unwrap_or_default();
            return self.together(operations);
        }
        let Some(operations) = inner(o)? else {
            return self.operation(self.read(entry, Some(found.as_found()), found)?);
        };
        // Those that have become valid, and beside them what they were.
        let o = found.as_found().get_document("o");
        let as_found = o.ok().and_then(|o| inner(o).ok().flatten()).unwrap_or_default();
        let operations = operations
            .into_iter()
            .enumerate()
            .map(|(index, operation)| self.read(operation, as_found.get(index).copied(), found));
        let operations = operations.collect::<Result<Vec<_>>>()?;
        if has("partialTxn") || has("prepare") {
            self.open.entry(transaction(entry)?).or_default().extend(operations);
            return Ok(());
        }
        let mut all = match transaction(entry) {
            Ok(transaction) => self.open.remove(&transaction).unwrap_or_default(),
            Err(_) => Vec::new(),
        };
        all.extend(operations);
        self.together(all)
    }

    /// An operation of an entry, from its form with valid content. Where it cannot be told which of the entry's it was,
    /// it counts as one whose text is invalid.
    fn read(&self, operation: &RawDocument, as_found: Option<&RawDocument>, entry: &Found) -> Result<Operation> {
        let document = applicable(operation)?;
        let mut what = match as_found {
            _ if entry.is_valid() => None,
            Some(as_found) => what_is_invalid(as_found),
            None => entry.what_is_invalid(),
        };
        // Looked into only where it is replayed.
        if what.is_none() && is_of_buckets(&document) && self.subject_of(&document)?.is_some() {
            what = what_is_hidden(operation);
        }
        let invalid = what.map(|what| Invalid {
            as_found: as_found.unwrap_or(operation).to_owned(),
            what: format!("{}: {what}", operation.get_str("ns").unwrap_or_default()),
            place: format!("{}: {}", self.subject, entry.place()),
        });
        Ok(Operation { document, invalid })
    }

    /// Operations that were done at once: of those that the replay ends at it does none.
    fn together(&mut self, operations: Vec<Operation>) -> Result<()> {
        if self.texts.are_errors() {
            // Looked at only: what is left out is noted where it is done.
            for Operation { document, invalid } in &operations {
                if let Some(Invalid { as_found, what, place }) = invalid
                    && self.subject_of(document)?.is_some()
                {
                    self.texts
                        .valid(as_found, what.clone(), place, DOCUMENT_INTERNAL_BYTES_MAX)?;
                }
            }
        }
        operations
            .into_iter()
            .try_for_each(|operation| self.operation(operation))
    }

    /// Whether an operation is asked for, and not left out for its text.
    fn is_taken(&mut self, operation: &Operation) -> Result<bool> {
        let document = &operation.document;
        let Some(namespace) = self.subject_of(document)? else {
            return Ok(false);
        };
        if self.is_of_left_out(document, &namespace) {
            if self.changes_held(operation, &namespace)? {
                return Ok(false);
            }
            let what =
                format!("{namespace}: a change of a document or bucket of which something was left out or replaced");
            self.texts.leave_out(what);
            return Ok(false);
        }
        let Some(Invalid { as_found, what, place }) = &operation.invalid else {
            return Ok(true);
        };
        // Its extents would no longer be those of its columns, and a change of it does not have all of them: it is made
        // anew as a whole, if at all.
        if namespace.of_measurements().is_some() && !self.texts.are_errors() {
            if self.begins_to_hold(operation, &namespace)? {
                return Ok(false);
            }
            self.texts.leave_out(format!("{what}, in a bucket of a time series"));
            self.left_out.add(namespace, changed_id(document));
            return Ok(false);
        }
        let valid = self
            .texts
            .valid(as_found, what.clone(), place, DOCUMENT_INTERNAL_BYTES_MAX)?;
        if valid.is_none() && is_whole(document) {
            self.left_out.add(namespace, changed_id(document));
        }
        Ok(valid.is_some())
    }

    /// Whether an operation changes what was left out: it would make a document of the change alone. What makes or
    /// removes the whole document ends that; of buckets only what removes it, as one that was older than the dump's
    /// would lack what is left out until then.
    fn is_of_left_out(&mut self, operation: &Document, namespace: &Namespace) -> bool {
        if self.left_out.is_empty() {
            return false;
        }
        let Some(id) = changed_id(operation).filter(|id| self.left_out.contains(namespace, id)) else {
            return false;
        };
        let ends = match operation.get_str("op") {
            Ok("d") => true,
            _ => is_whole(operation) && namespace.of_measurements().is_none(),
        };
        if ends {
            self.left_out.remove(namespace, &id);
        }
        !ends
    }

    /// What an operation is about, where that is asked for.
    fn subject_of(&self, operation: &Document) -> Result<Option<Namespace>> {
        let ns = operation.get_str("ns").unwrap_or_default();
        let (database, collection) = ns.split_once('.').unwrap_or((ns, ""));
        let kind = operation.get_str("op").unwrap_or_default();
        if kind == "n" || OWN_DATABASES.contains(&database) {
            return Ok(None);
        }
        let namespace = Namespace::new(database, collection);
        if kind == "c" {
            let command = Command::of(operation)?;
            let is_asked_for = match command.series_changed() {
                Some(series) => self.is_wanted(&series),
                None => command.name == "dropDatabase" || self.is_wanted(&command.namespace),
            };
            return Ok(is_asked_for.then_some(command.namespace));
        }
        let shown = match collection {
            VIEWS => view_named(operation),
            OLD_INDEXES => index_of(operation),
            // Buckets are wanted as the measurements in them are.
            _ => Some(namespace.of_measurements().unwrap_or_else(|| namespace.clone())),
        };
        // What has no name is told as malformed.
        Ok(shown.is_none_or(|shown| self.is_wanted(&shown)).then_some(namespace))
    }

    /// One operation, which is no transaction.
    fn operation(&mut self, operation: Operation) -> Result<()> {
        if !self.is_taken(&operation)? {
            return Ok(());
        }
        let operation = operation.document;
        if operation.get_str("op").ok() != Some("c") {
            let ns = operation.get_str("ns").unwrap_or_default();
            match ns.split_once('.').map(|(_, collection)| collection) {
                Some(VIEWS) => return self.view(&operation),
                Some(OLD_INDEXES) => {
                    self.old_index(&operation);
                    return Ok(());
                }
                _ => return self.push(operation),
            }
        }
        let command = Command::of(&operation)?;
        if let Some(measurements) = command.series_changed() {
            return Err(DumpError::Choice(format!(
                "the log has {} of the time-series collection {measurements}, which is not replayed: leave it out by --nsExclude",
                command.name
            )));
        }
        let Command { name, namespace } = command;
        let o = operation
            .get_document("o")
            .map_err(|_| malformed("a command without o"))?;
        match name.as_str() {
            "createIndexes" => {
                let mut index = o.get_document("spec").cloned().unwrap_or_else(|_| o.clone());
                index.remove("createIndexes");
                self.put_whole(&namespace, index);
                Ok(())
            }
            "commitIndexBuild" => {
                let indexes = o.get_array("indexes").into_iter().flatten();
                for index in indexes.filter_map(Bson::as_document) {
                    self.put_whole(&namespace, index.clone());
                }
                Ok(())
            }
            "startIndexBuild" | "abortIndexBuild" => Ok(()),
            "dropIndexes" | "deleteIndexes" | "deleteIndex" | "dropIndex" => {
                self.indexes.drop_named(&namespace, o.get("index"));
                Ok(())
            }
            "collMod" if o.contains_key("index") => {
                if let Ok(change) = o.get_document("index") {
                    self.indexes.change(&namespace, change);
                }
                let mut rest = o.clone();
                rest.remove("index");
                if rest.len() == 1 {
                    return Ok(());
                }
                let mut operation = operation.clone();
                operation.insert("o", rest);
                self.push(operation)
            }
            "drop" => {
                self.forget(&namespace);
                self.push(operation)
            }
            "dropDatabase" => self.drop_database(&namespace.database, operation),
            "renameCollection" => {
                let to = o.get_str("to").unwrap_or_default();
                let (database, collection) = to.split_once('.').unwrap_or((to, ""));
                let to = Namespace::new(database, collection);
                if !self.is_wanted(&to) {
                    return Ok(());
                }
                self.left_out.rename(&namespace, &to);
                self.indexes.rename(&namespace, to);
                self.push(operation)
            }
            _ => self.push(operation),
        }
    }

    /// What is to be left alone of a database outlives it.
    fn drop_database(&mut self, database: &str, operation: Document) -> Result<()> {
        if self.filter.exclude.is_empty() {
            self.indexes.drop_database(database);
            self.left_out.drop_database(database);
            return self.push(operation);
        }
        self.flush()?;
        for entry in self.client.collections(database)? {
            let namespace = Namespace::new(database, entry.get_str("name").unwrap_or_default());
            if self.is_wanted(&namespace) {
                self.forget(&namespace);
                self.push(command_operation(database, doc! { "drop": namespace.collection }))?;
            }
        }
        Ok(())
    }

    /// Nothing of a collection or a time series that is gone waits for the log's end: its indexes would make a
    /// collection anew.
    fn forget(&mut self, namespace: &Namespace) {
        self.indexes.drop_all(namespace);
        self.left_out.drop_collection(namespace);
    }

    /// A view as MongoDB logs it: a document of a collection of views. It is what became of a view that has the name by
    /// now. A collection stays: what was there before the dump was restored is not for the log to drop. A time series
    /// has such a document, too, and goes with it.
    fn view(&mut self, operation: &Document) -> Result<()> {
        let o = operation.get_document("o").map_err(|_| malformed("a view without o"))?;
        let kind = operation.get_str("op").unwrap_or_default();
        let namespace = view_named(operation).ok_or_else(|| malformed("a view without its name"))?;
        let name = namespace.collection.clone();
        let mut create = doc! { "create": &name };
        match o.get_str("viewOn") {
            _ if kind == "d" => {}
            // Of a time series what is told of its buckets counts.
            Ok(on) if on.starts_with(BUCKETS_PREFIX) => return Ok(()),
            Ok(_) => create.extend(o.clone().into_iter().filter(|(field, _)| field != "_id")),
            Err(_) => {
                let why = "the log changes this view in a way that is not replayed".to_owned();
                self.passed_over.insert(namespace, why);
                return Ok(());
            }
        }
        // What was there before counts no more.
        self.passed_over.remove(&namespace);
        self.flush()?;
        let listed = self.client.collections(&namespace.database)?;
        let there = listed
            .iter()
            .find(|entry| entry.get_str("name").ok() == Some(name.as_str()));
        match there.map(|entry| entry.get_str("type").unwrap_or_default()) {
            Some(what) if what == "view" || what == "timeseries" && kind == "d" => {
                self.push(command_operation(&namespace.database, doc! { "drop": &name }))?;
                self.flush()?;
            }
            // The view has gone already: this is what came after it.
            Some(_) if kind == "d" => return Ok(()),
            Some(_) => {
                let why = "the log has a view of this name, which is not made: there is a collection".to_owned();
                self.passed_over.insert(namespace, why);
                return Ok(());
            }
            None => {}
        }
        // Of a time series MongoDB logs this document's removal, and the drop of its buckets, which is not replayed.
        self.forget(&namespace);
        if kind == "d" {
            return Ok(());
        }
        // By itself, so that nothing else is lost where the server refuses it.
        let operations = vec![Bson::from(command_operation(&namespace.database, create))];
        match self.client.change("admin", &doc! { "applyOps": operations }) {
            Ok(_) => self.operations += 1,
            Err(error) if error.is_of_what_was_asked() && !self.stops => {
                let why = format!("the log has a view that the server refuses: {error}");
                self.passed_over.insert(namespace, why);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// An index as old versions of MongoDB logged it: a document of a collection of indexes.
    fn old_index(&mut self, operation: &Document) {
        let Ok(mut index) = operation.get_document("o").cloned() else {
            return;
        };
        index.remove("ns");
        if let (Some(of), Ok("i")) = (index_of(operation), operation.get_str("op")) {
            self.put_whole(&of, index);
        }
    }

    /// An index as logs tell it, who say all that there is of it.
    fn put_whole(&mut self, namespace: &Namespace, mut index: Document) {
        index
            .entry("collation".to_owned())
            .or_insert_with(|| binary_order().into());
        self.indexes.put(namespace, index);
    }

    fn is_wanted(&self, namespace: &Namespace) -> bool {
        let is_own = namespace.collection.starts_with("system.") && namespace.collection != "system.js";
        !is_own && self.filter.takes(namespace)
    }

    fn push(&mut self, operation: Document) -> Result<()> {
        let encoded = RawDocumentBuf::try_from(&operation).map_err(|error| malformed(&error.to_string()))?;
        let bytes = encoded.as_bytes().len();
        if self.batch.len() >= BATCH_OPERATIONS || self.batch_bytes + bytes > BATCH_BYTES {
            self.flush()?;
        }
        self.batch_bytes += bytes;
        self.batch.push(operation.into());
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        self.operations += self.batch.len() as u64;
        self.batch_bytes = 0;
        let operations = std::mem::take(&mut self.batch);
        let mut command = doc! { "applyOps": operations };
        if self.bypasses_validation {
            command.insert("bypassDocumentValidation", true);
            match self.client.change("admin", &command) {
                Err(error) if error.is_refusal(UNAUTHORIZED) => self.bypasses_validation = false,
                applied => return applied.map(drop),
            }
            command.remove("bypassDocumentValidation");
        }
        self.client.change("admin", &command).map(drop)
    }

    /// The end of the log: how many operations were applied, and what was not. A transaction without its end was none.
    pub(crate) fn finish(mut self) -> Result<(u64, Vec<String>)> {
        self.flush()?;
        let failures = self
            .passed_over
            .iter()
            .map(|(namespace, why)| format!("{namespace}: {why}"));
        let mut failures: Vec<_> = failures.collect();
        if self.gives_up {
            failures.push(format!(
                "the log is replayed in part only: more than {LEFT_OUT_MAX} documents were left out, whose changes no \
                 longer fit"
            ));
        }
        Ok((self.operations, failures))
    }
}

/// What is invalid in an operation, the document's part first.
fn what_is_invalid(operation: &RawDocument) -> Option<String> {
    let error = wire::validate_structure(operation.as_bytes()).ok().flatten()?;
    let part = ["o", "o2"].into_iter().find_map(|name| {
        let part = operation.get_document(name).ok()?.as_bytes();
        let error = wire::validate_structure(part).ok().flatten()?;
        Some(wire::describe_invalid(part, &error))
    });
    Some(part.unwrap_or_else(|| wire::describe_invalid(operation.as_bytes(), &error)))
}

/// What is invalid in compressed columns of a bucket, which hide it from who looks at the operation.
fn what_is_hidden(operation: &RawDocument) -> Option<String> {
    let Ok(Cow::Owned(plain)) = timeseries::with_plain_columns(operation.get_document("o").ok()?) else {
        return None;
    };
    let error = wire::validate_structure(&plain).ok().flatten()?;
    Some(wire::describe_invalid(&plain, &error))
}

fn is_of_buckets(operation: &Document) -> bool {
    let ns = operation.get_str("ns").unwrap_or_default();
    ns.split_once('.')
        .is_some_and(|(_, collection)| collection.starts_with(BUCKETS_PREFIX))
}

/// Whether an operation has the whole document.
fn is_whole(operation: &Document) -> bool {
    let o = operation.get_document("o");
    match operation.get_str("op") {
        Ok("i") => true,
        // Changes have `$v`, or operators.
        Ok("u") => o.is_ok_and(|o| !o.keys().next().is_some_and(|name| name.starts_with('$'))),
        _ => false,
    }
}

/// The `_id` of the document that an operation makes, changes or removes.
fn changed_id(operation: &Document) -> Option<Vec<u8>> {
    let part = match operation.get_str("op").ok()? {
        "i" | "d" => "o",
        "u" => "o2",
        _ => return None,
    };
    id_of(operation.get_document(part).ok()?)
}

/// The view that a document of [`VIEWS`] is.
fn view_named(operation: &Document) -> Option<Namespace> {
    let o = operation.get_document("o").ok()?;
    let named = match operation.get_str("op") {
        Ok("u") => operation.get_document("o2").unwrap_or(o),
        _ => o,
    };
    named.get_str("_id").ok().and_then(Namespace::parse)
}

/// The collection that an index of [`OLD_INDEXES`] is of.
fn index_of(operation: &Document) -> Option<Namespace> {
    let index = operation.get_document("o").ok()?;
    index.get_str("ns").ok().and_then(Namespace::parse)
}

/// A command as logs have it.
fn command_operation(database: &str, command: Document) -> Document {
    doc! { "op": "c", "ns": format!("{database}.$cmd"), "o": command }
}

fn transaction(entry: &RawDocument) -> Result<TransactionId> {
    let session = entry.get_document("lsid");
    match (session, entry.get_i64("txnNumber")) {
        (Ok(session), Ok(number)) => Ok((session.as_bytes().to_vec(), number)),
        _ => Err(malformed("an entry of a transaction without lsid and txnNumber")),
    }
}
