//! `bulkWrite`: inserts, updates and deletes on several collections in one command (since MongoDB 8.0).

use super::find::{hint, optional};
use super::insert::{InsertBatch, asks_for_bypass, insert_documents};
use super::listing::{self, Listing};
use super::multi;
use super::update::asks_for_upsert;
use super::update::{Statement, check_writable};
use super::write_result::{StatementIds, WriteErrors, write_retried};
use super::{delete, update};
use crate::arguments::{Arguments, check_batch, missing_field, unknown_field};
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::generic::check_database_in_transaction;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::statement_watch::{StatementWatch, ToldStatement};
use auth::{Action, ActionSet, Target};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use storage::Namespace;
use wire::ErrorCode;

/// `bulkWrite`.
pub const BULK_WRITE: Command = Command::new(
    "bulkWrite",
    "Writes to several collections.",
    OperationKind::Update,
    Access::Fields(access),
    run,
)
.takes_write_concern()
.batches(&["ops", "nsInfo"])
.in_transactions(InTransactions::AllowedAndRetryable)
.admin_only()
.api_version_1();

/// One element of `ops`.
enum Operation<'a> {
    Insert {
        namespace: usize,
        document: &'a RawDocument,
    },
    Update {
        namespace: usize,
        statement: Statement<'a>,
    },
    Delete {
        namespace: usize,
        statement: Statement<'a>,
    },
}

/// One element of `nsInfo`.
struct Place {
    namespace: Namespace,
    /// The collection has to be the one with this UUID.
    uuid: Option<[u8; 16]>,
}

impl Place {
    fn check(&self, call: &Invocation<'_>) -> Result<()> {
        self.uuid
            .map_or(Ok(()), |uuid| call.check_collection_has(&self.namespace, &uuid))
    }
}

/// Inserts that go in together at most: their errors are not counted as results before all of them have been tried.
const RUN_DOCUMENTS_MAX: usize = 4096;
/// Bytes of results behind which the command ends, as MongoDB's does by its `bulkWriteMaxRepliesSize`: as many as a
/// message has, so that there is room for an error of each of the 100,000 operations that one may bring.
const RESULTS_BYTES_MAX: u64 = wire::limits::MESSAGE_BYTES_MAX as u64;

/// What the whole command did.
struct Totals {
    inserted: u64,
    matched: u64,
    modified: u64,
    upserted: u64,
    deleted: u64,
    errors: u64,
    /// One document for each operation, in the order of `ops`.
    results: Listing,
    /// There is no room for more of them.
    is_full: bool,
}

impl Totals {
    fn new(results: Listing) -> Self {
        Self {
            inserted: 0,
            matched: 0,
            modified: 0,
            upserted: 0,
            deleted: 0,
            errors: 0,
            results,
            is_full: false,
        }
    }

    /// What was done must be told, whether there is memory for it or not.
    fn push(&mut self, result: &Document) -> Result<()> {
        let has_room = self.results.push(RawDocumentBuf::try_from(result)?).is_ok();
        self.is_full |= !has_room || self.results.bytes() > RESULTS_BYTES_MAX;
        Ok(())
    }

    fn succeeded(&mut self, index: usize, n: u64, rest: Document, errors_only: bool) -> Result<()> {
        if errors_only {
            return Ok(());
        }
        let mut result = doc! { "ok": 1.0, "idx": index as i32, "n": n as i32 };
        result.extend(rest);
        self.push(&result)
    }

    fn failed(&mut self, index: usize, error: CommandError, rest: Document) -> Result<()> {
        self.errors += 1;
        let mut result = doc! { "ok": 0.0, "idx": index as i32, "code": error.code.0, "errmsg": error.message, "n": 0 };
        if let Some(extra) = error.extra {
            result.extend(*extra);
        }
        result.extend(rest);
        self.push(&result)
    }
}

/// The fields of `bulkWrite` beside `ops` and `nsInfo`.
struct Options<'a> {
    ordered: bool,
    errors_only: bool,
    variables: Option<&'a RawDocument>,
    keep_empty_timestamps: bool,
    batch: Option<usize>,
    ids: StatementIds,
}

impl<'a> Options<'a> {
    fn parse(call: &Invocation<'a>) -> Result<Self> {
        let arguments = call.arguments();
        let mut options = Self {
            ordered: true,
            errors_only: false,
            variables: None,
            keep_empty_timestamps: false,
            batch: None,
            ids: StatementIds::of_call(call),
        };
        call.for_each_field(|name, value| {
            match name {
                "ordered" => options.ordered = arguments.flag(name, value)?,
                "errorsOnly" => options.errors_only = arguments.flag(name, value)?,
                "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
                "bypassEmptyTsReplacement" => options.keep_empty_timestamps = arguments.flag(name, value)?,
                "let" => options.variables = optional(arguments, name, value)?,
                "cursor" => options.batch = listing::batch_size(arguments, arguments.document(name, value)?)?,
                name => return options.ids.take(arguments, name, value),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let options = Options::parse(call)?;
    let places = places(call)?;
    if call.transaction.is_some() {
        places
            .iter()
            .try_for_each(|place| check_database_in_transaction(place.namespace.db()))?;
    }
    let documents = call
        .documents("ops")?
        .ok_or_else(|| missing_field("bulkWrite", "ops"))?;
    check_batch(documents.len())?;
    options.ids.check(documents.len())?;
    let are_many = documents.len() > 1;
    let operations: Vec<Operation<'_>> = documents
        .iter()
        .enumerate()
        .map(|(index, document)| {
            let mut operation = parse(document, &options, places.len(), options.ids.of(index))?;
            if let Operation::Update { statement, .. } | Operation::Delete { statement, .. } = &mut operation {
                statement.is_one_of_many = are_many;
            }
            Ok(operation)
        })
        .collect::<Result<_>>()?;
    let mut totals = carry_out(call, &places, (&documents, &operations), &options)?;
    call.report.n_inserted = Some(totals.inserted);
    call.report.n_matched = Some(totals.matched);
    call.report.n_modified = Some(totals.modified);
    call.report.n_deleted = Some(totals.deleted);
    call.report.n_upserted = Some(totals.upserted);
    if call.write_concern.unacknowledged {
        totals = Totals::new(Listing::new(call.operation.memory()));
    }
    let counts = [
        ("nErrors", totals.errors),
        ("nInserted", totals.inserted),
        ("nMatched", totals.matched),
        ("nModified", totals.modified),
        ("nUpserted", totals.upserted),
        ("nDeleted", totals.deleted),
    ];
    // A cursor of results that are not sure would be left behind: as one is where patience has ended, and leadership
    // is lost before the reply. That goes when it has not been used for long.
    call.settle_at_last()?;
    let namespace = "admin.$cmd.bulkWrite".to_owned();
    listing::reply_with_cursor(call, reply, namespace, totals.results, options.batch)?;
    for (name, count) in counts {
        reply.int32(name, count as i32);
    }
    write_retried(call, reply);
    Ok(())
}

/// What `bulkWrite` needs, on each of its collections.
fn access(call: &Invocation<'_>) -> Result<bool> {
    let places = places(call)?;
    for document in call.documents("ops")?.unwrap_or_default() {
        let Some((kind, namespace)) = document.into_iter().next().transpose()? else {
            continue;
        };
        let place = Arguments::of("bulkWrite.ops").non_negative(kind.as_str(), namespace)?;
        let Some(Place { namespace, .. }) = usize::try_from(place).ok().and_then(|place| places.get(place)) else {
            continue;
        };
        let needed: &[Action] = match kind.as_str() {
            "insert" => &[Action::Insert],
            "update" if asks_for_upsert(document) => &[Action::Update, Action::Insert],
            "update" => &[Action::Update],
            "delete" => &[Action::Remove],
            _ => &[],
        };
        let target = Target::Collection(namespace.db(), namespace.collection());
        if !call.rights.allow(target, ActionSet::of(needed)) {
            return Ok(false);
        }
    }
    let bypasses = asks_for_bypass(call.body)?;
    // Whoever names a collection may write to it in some way, even when no operation is about it.
    Ok(places.iter().all(|Place { namespace, .. }| {
        let target = Target::Collection(namespace.db(), namespace.collection());
        let writes = [Action::Insert, Action::Update, Action::Remove];
        writes.into_iter().any(|action| call.may(target, action))
            && (!bypasses || call.may(target, Action::BypassDocumentValidation))
    }))
}

fn places(call: &Invocation<'_>) -> Result<Vec<Place>> {
    let infos = call
        .documents("nsInfo")?
        .ok_or_else(|| missing_field("bulkWrite", "nsInfo"))?;
    infos
        .into_iter()
        .map(|info| {
            let (mut namespace, mut uuid) = (None, None);
            let arguments = Arguments::of("bulkWrite.nsInfo");
            arguments.each(info, |name, value| {
                match name {
                    "ns" => namespace = Some(Namespace::parse(arguments.string(name, value)?)?),
                    "collectionUUID" => uuid = Some(arguments.uuid(name, value)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            let namespace = namespace.ok_or_else(|| missing_field("bulkWrite.nsInfo", "ns"))?;
            Ok(Place { namespace, uuid })
        })
        .collect()
}

fn parse<'a>(document: &'a RawDocument, options: &Options<'a>, namespaces: usize, id: i32) -> Result<Operation<'a>> {
    let arguments = Arguments::of("bulkWrite.ops");
    let Some((kind, namespace)) = document.into_iter().next().transpose()? else {
        return Err(CommandError::bad_value("an element of bulkWrite.ops is empty"));
    };
    let kind = kind.as_str();
    if !matches!(kind, "insert" | "update" | "delete") {
        return Err(unknown_field("bulkWrite.ops", kind));
    }
    let namespace = arguments.non_negative(kind, namespace)? as usize;
    if namespace >= namespaces {
        return Err(CommandError::bad_value(format!(
            "BulkWrite ops entry with invalid nsInfo index {namespace}"
        )));
    }
    let (mut inserted, mut filter, mut change) = (None, None, None);
    let mut statement = Statement::new(options.variables);
    statement.keep_empty_timestamps = options.keep_empty_timestamps;
    statement.id = id;
    arguments.each(document, |name, value| {
        match (kind, name) {
            (kind, name) if kind == name => {}
            ("insert", "document") => inserted = Some(arguments.document(name, value)?),
            ("update" | "delete", "filter") => filter = Some(arguments.document(name, value)?),
            ("update" | "delete", "multi") => statement.multi = arguments.flag(name, value)?,
            ("update" | "delete", "hint") => statement.hint = hint(value)?,
            ("update" | "delete", "collation") => statement.collation = optional(arguments, name, value)?,
            ("update", "updateMods") => change = Some(value),
            ("update", "upsert") => statement.upsert = arguments.flag(name, value)?,
            ("update", "arrayFilters") => statement.array_filters = Some(arguments.array(name, value)?),
            ("update", "constants") if matches!(value, RawBsonRef::Null) => {}
            ("update", "constants") => statement.constants = Some(arguments.document(name, value)?),
            ("update", "sort") => statement.sort = optional(arguments, name, value)?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let missing = |field| missing_field("bulkWrite.ops", field);
    if kind == "insert" {
        let document = inserted.ok_or_else(|| missing("document"))?;
        return Ok(Operation::Insert { namespace, document });
    }
    // Without this a statement that lost its filter would write to every document.
    statement.filter = filter.ok_or_else(|| missing("filter"))?;
    if kind == "delete" {
        return Ok(Operation::Delete { namespace, statement });
    }
    statement.change = change.ok_or_else(|| missing("updateMods"))?;
    query::update::check_types(statement.change, statement.array_filters)?;
    statement.check_sort()?;
    Ok(Operation::Update { namespace, statement })
}

fn carry_out(
    call: &mut Invocation<'_>,
    places: &[Place],
    (documents, operations): (&[&RawDocument], &[Operation<'_>]),
    options: &Options<'_>,
) -> Result<Totals> {
    let errors_only = options.errors_only;
    let mut totals = Totals::new(Listing::new(call.operation.memory()));
    let mut next = 0;
    let stops = options.ordered || call.transaction.is_some();
    while next < operations.len() && !(stops && totals.errors > 0) {
        if totals.is_full {
            call.report.has_write_errors = true;
            let error = CommandError::new(
                ErrorCode::ExceededMemoryLimit,
                format!("BulkWrite response size exceeded limit ({RESULTS_BYTES_MAX} bytes)"),
            );
            totals.failed(next, error, Document::new())?;
            break;
        }
        let first = next;
        next += 1;
        match &operations[first] {
            Operation::Insert { namespace, .. } => {
                let mut documents = Vec::new();
                while let Some(Operation::Insert {
                    namespace: same,
                    document,
                }) = operations.get(first + documents.len())
                {
                    if same != namespace || documents.len() == RUN_DOCUMENTS_MAX {
                        break;
                    }
                    documents.push(*document);
                }
                next = first + documents.len();
                let is_one_of_many = documents.len() < operations.len() && documents.len() <= multi::MATCHED_MAX;
                let batch = InsertBatch {
                    documents: &documents,
                    invalid: &[],
                    ids: &|index| options.ids.of(first + index),
                    ordered: stops,
                    keep_empty_timestamps: options.keep_empty_timestamps,
                    refused_each: true,
                    is_one_of_many,
                };
                insert_run(call, &places[*namespace], &batch, first, errors_only, &mut totals)?;
            }
            Operation::Update { namespace, statement } => {
                let place = &places[*namespace];
                let namespace = &place.namespace;
                let done = place
                    .check(call)
                    .and_then(|()| check_writable(call, namespace))
                    .and_then(|()| update::run_counted(call, namespace, documents[first], statement));
                match done {
                    Ok(done) => {
                        totals.matched += done.matched;
                        totals.modified += done.modified;
                        let mut rest = doc! { "nModified": done.modified as i32 };
                        let mut n = done.matched;
                        if let Some(id) = done.upserted {
                            totals.upserted += 1;
                            n += 1;
                            rest.insert("upserted", doc! { "_id": id });
                        }
                        totals.succeeded(first, n, rest, errors_only)?;
                    }
                    Err(error) if call.is_fatal(&error) => return Err(error),
                    Err(error) => {
                        call.report.has_write_errors = true;
                        totals.failed(first, error, doc! { "nModified": 0 })?;
                    }
                }
            }
            Operation::Delete { namespace, statement } => {
                let place = &places[*namespace];
                let namespace = &place.namespace;
                let mut deleted = 0;
                let done = place
                    .check(call)
                    .and_then(|()| check_writable(call, namespace))
                    .and_then(|()| delete::run_counted(call, namespace, documents[first], statement, &mut deleted));
                totals.deleted += deleted;
                match done {
                    Ok(_) => totals.succeeded(first, deleted, Document::new(), errors_only)?,
                    Err(error) if call.is_fatal(&error) => return Err(error),
                    Err(error) => {
                        call.report.has_write_errors = true;
                        totals.failed(first, error, Document::new())?;
                    }
                }
            }
        }
    }
    Ok(totals)
}

/// Inserts into one collection that follow each other go in together, and are counted and told together.
fn insert_run(
    call: &mut Invocation<'_>,
    place: &Place,
    batch: &InsertBatch<'_>,
    first: usize,
    errors_only: bool,
    totals: &mut Totals,
) -> Result<()> {
    let namespace = &place.namespace;
    if let Err(error) = place.check(call) {
        call.report.has_write_errors = true;
        let failed = if batch.ordered { 1 } else { batch.documents.len() };
        return (first..first + failed).try_for_each(|index| totals.failed(index, error.clone(), Document::new()));
    }
    let mut errors = WriteErrors::new();
    // What a run before this one has inserted is not of this one.
    call.report.n_inserted = None;
    let watch = StatementWatch::begin(call, OperationKind::Insert, namespace, ToldStatement::Inserts);
    let inserted = insert_documents(call, namespace, batch, &mut errors);
    let mut failures = errors.each().peekable();
    let first_failure = failures.peek().map(|(_, error)| error);
    // An error that ends the command may come when some are in.
    let n_inserted = inserted.as_ref().ok().copied().or(call.report.n_inserted);
    let documents = [("ninserted", n_inserted)];
    watch.end(call, &documents, inserted.as_ref().err().or(first_failure));
    totals.inserted += inserted?;
    for index in 0..batch.documents.len() {
        match failures.next_if(|(failed, _)| *failed == index) {
            Some((_, error)) => {
                totals.failed(first + index, error, Document::new())?;
                if batch.ordered {
                    break;
                }
            }
            None => totals.succeeded(first + index, 1, Document::new(), errors_only)?,
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use storage::{MemoryAccount, MemoryBudget};

    fn totals(bytes_max: u64) -> Totals {
        let budget = MemoryBudget::new(u64::MAX, bytes_max);
        Totals::new(Listing::new(&MemoryAccount::new(&budget)))
    }

    #[test]
    fn results_carry_their_place() {
        let mut totals = totals(u64::MAX);
        totals.succeeded(0, 1, doc! { "nModified": 1 }, true).unwrap();
        let error = CommandError::new(ErrorCode::DuplicateKey, "twice");
        totals.failed(1, error, Document::new()).unwrap();
        let results = totals.results.documents();
        assert_eq!(results.len(), 1, "errorsOnly leaves successes out");
        let result = (results[0].get_i32("idx").ok(), results[0].get_i32("code").ok());
        assert_eq!(result, (Some(1), Some(11000)));
    }

    /// A command whose operations all failed, with keys of some hundred bytes, had a hundred megabytes of results.
    #[test]
    fn results_have_a_bound_and_are_told_behind_it() {
        for (bytes_max, in_all) in [(u64::MAX, RESULTS_BYTES_MAX), (1 << 20, 1 << 20)] {
            let mut totals = totals(bytes_max);
            let mut count = 0;
            while !totals.is_full {
                let error = CommandError::new(ErrorCode::DuplicateKey, "x".repeat(100_000));
                totals.failed(count, error, Document::new()).unwrap();
                count += 1;
            }
            let bytes = totals
                .results
                .documents()
                .iter()
                .map(|result| result.as_bytes().len() as u64);
            let bytes = bytes.sum::<u64>();
            assert!(
                (in_all - 300_000..in_all + 300_000).contains(&bytes),
                "{bytes} of {in_all}"
            );
            assert_eq!(totals.errors, count as u64);
        }
    }
}
