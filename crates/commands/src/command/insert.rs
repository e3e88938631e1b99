//! `insert`.

use super::read_only::{cannot_write, is_members_configuration};
use super::timeseries;
use super::write_result::{StatementIds, WriteErrors, write_retried};
use crate::arguments::check_batch;
use crate::authorization::target;
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::{Invocation, Writer};
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::{Action, ActionSet};
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::ElementType;
use bytes::Bytes;
use query::raw::{self, Element, Elements, Frame, nesting_depth};
use std::borrow::Cow;
use storage::{CollectionGuard, Kept, LockMode, Namespace, StorageError, WriteUnit};
use wire::limits::DOCUMENT_BYTES_MAX;
use wire::{ErrorCode, InvalidDocument};

/// `insert`.
pub const INSERT: Command = Command::new(
    "insert",
    "Inserts documents.",
    OperationKind::Insert,
    Access::Fields(access),
    insert,
)
.takes_write_concern()
.batches(&["documents"])
.refuses_invalid_documents_each()
.in_transactions(InTransactions::AllowedAndRetryable)
.api_version_1();

/// Documents in one log entry of a batch: enough to spread its fixed cost, few enough to hold locks briefly.
const UNIT_DOCUMENTS_MAX: usize = 256;
/// Bytes in one log entry of a batch, except for a single larger document.
const UNIT_BYTES_MAX: usize = 1024 * 1024;
/// Levels of nesting a client may store (the outermost document is one).
const NESTING_MAX: usize = query::update::DEPTH_MAX;

/// What `insert` needs.
fn access(call: &Invocation<'_>) -> Result<bool> {
    writes_allowed(call, &[Action::Insert])
}

/// May the caller do `actions`, and what further fields ask for, to the collection that is written?
pub fn writes_allowed(call: &Invocation<'_>, actions: &[Action]) -> Result<bool> {
    let target = target(call)?;
    let may_bypass = || call.may(target, Action::BypassDocumentValidation);
    Ok(call.rights.allow(target, ActionSet::of(actions)) && (!asks_for_bypass(call.body)? || may_bypass()))
}

/// Does a command say `bypassDocumentValidation`, in any of its fields of that name?
pub fn asks_for_bypass(body: &RawDocument) -> Result<bool> {
    for element in body {
        let (name, value) = element?;
        if name.as_str() == "bypassDocumentValidation"
            && !matches!(value, RawBsonRef::Boolean(false) | RawBsonRef::Null)
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn insert(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let arguments = call.arguments();
    let mut ordered = true;
    let mut keep_empty_timestamps = false;
    let mut ids = StatementIds::of_call(call);
    call.for_each_field(|name, value| {
        match name {
            "ordered" => ordered = arguments.flag(name, value)?,
            "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
            "bypassEmptyTsReplacement" => keep_empty_timestamps = arguments.flag(name, value)?,
            "collectionUUID" => call.check_collection_uuid(&namespace, value)?,
            name => return ids.take(arguments, name, value),
        }
        Ok(true)
    })?;
    let documents = call
        .documents("documents")?
        .ok_or_else(|| crate::arguments::missing_field("insert", "documents"))?;
    check_batch(documents.len())?;
    ids.check(documents.len())?;
    let mut errors = WriteErrors::new();
    let batch = InsertBatch {
        documents: &documents,
        invalid: call.invalid,
        ids: &|index| ids.of(index),
        ordered,
        keep_empty_timestamps,
        refused_each: false,
        is_one_of_many: false,
    };
    let inserted = insert_documents(call, &namespace, &batch, &mut errors)?;
    if call.write_concern.unacknowledged {
        reply.int32("n", 0);
        return Ok(());
    }
    reply.count("n", inserted as i64);
    errors.write(call, reply);
    write_retried(call, reply);
    Ok(())
}

/// Documents to insert.
pub struct InsertBatch<'a> {
    /// They themselves.
    pub documents: &'a [&'a RawDocument],
    /// Those of them that are refused for what they had when they came, in the order of their places.
    pub invalid: &'a [InvalidDocument],
    /// The number of each one's statement, by its place.
    pub ids: &'a dyn Fn(usize) -> i32,
    /// The first error ends it.
    pub ordered: bool,
    /// `bypassEmptyTsReplacement`.
    pub keep_empty_timestamps: bool,
    /// A collection that takes no documents is an error of each of them, and not of the command.
    pub refused_each: bool,
    /// The command has others, and waits for what it has written when it ends: until then it remembers the documents,
    /// which its statements may look for.
    pub is_one_of_many: bool,
}

impl<'a> InsertBatch<'a> {
    /// Results of a pipeline: nobody sends them again, and they are stored as they are.
    pub fn of_results(documents: &'a [&'a RawDocument]) -> Self {
        Self {
            documents,
            invalid: &[],
            ids: &|_| 0,
            ordered: true,
            keep_empty_timestamps: true,
            refused_each: false,
            is_one_of_many: false,
        }
    }

    /// The document at a place as it is stored, see [`prepare`].
    pub fn prepare(&self, call: &Invocation<'_>, place: usize, keep_empty_timestamps: bool) -> Result<Cow<'a, [u8]>> {
        self.prepare_within(call, place, keep_empty_timestamps, NESTING_MAX)
    }

    fn prepare_within(
        &self,
        call: &Invocation<'_>,
        place: usize,
        keep_empty_timestamps: bool,
        nesting_max: usize,
    ) -> Result<Cow<'a, [u8]>> {
        if let Ok(found) = self.invalid.binary_search_by_key(&place, |invalid| invalid.index) {
            let error = self.invalid[found].to_string();
            return Err(CommandError::new(ErrorCode::InvalidBSON, error));
        }
        prepare_within(call, self.documents[place], keep_empty_timestamps, nesting_max)
    }
}

/// Inserts into a collection, which is made when it is not there; answers how many documents are in. Errors of single
/// documents are collected; an error that ends the command is returned.
pub fn insert_documents(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    batch: &InsertBatch<'_>,
    errors: &mut WriteErrors,
) -> Result<u64> {
    super::update::refuse_system_in_transaction(call, namespace, ErrorCode(50791))?;
    if is_members_configuration(call.server, namespace) {
        return Err(cannot_write(namespace));
    }
    call.changes(namespace);
    let InsertBatch { documents, ordered, .. } = *batch;
    call.server.metrics.operations.insert.add(documents.len() as u64);
    // A command of which nothing can be stored leaves no collection behind.
    if call.definition(namespace).is_none() {
        if let Some(buckets) = timeseries::buckets(call, namespace) {
            let known = known_statements(call, batch)?;
            let (inserted, failure) = timeseries::insert::insert(call, namespace, &buckets, batch, &known, errors);
            return counted(call, inserted, failure);
        }
        let stops = ordered || call.transaction.is_some();
        let looked_at = if stops { 1 } else { documents.len() };
        let refused: Vec<_> = (0..looked_at)
            .map_while(|place| batch.prepare(call, place, true).err())
            .collect();
        if refused.len() == looked_at {
            call.report.has_write_errors = true;
            refused
                .into_iter()
                .enumerate()
                .for_each(|(index, error)| errors.push(index, error));
            return Ok(0);
        }
    }
    let guard = match open_or_create(call, namespace) {
        Ok(guard) => guard,
        // A name that nothing may be written to is checked before all statements in MongoDB.
        Err(error) if batch.refused_each && error.code != ErrorCode::InvalidNamespace && !call.is_fatal(&error) => {
            let refused = if call.stops_after_error(ordered) {
                1
            } else {
                documents.len()
            };
            (0..refused).for_each(|index| errors.push(index, error.clone()));
            return Ok(0);
        }
        Err(error) => return Err(error),
    };
    let (inserted, mut failure) = insert_all(call, &guard, batch, errors);
    if failure.is_none() && !batch.is_one_of_many {
        failure = call.settle_at_last().err();
    }
    counted(call, inserted, failure)
}

fn counted(call: &mut Invocation<'_>, inserted: u64, failure: Option<CommandError>) -> Result<u64> {
    call.server.metrics.documents.inserted.add(inserted);
    call.report.n_inserted = Some(inserted);
    failure.map_or(Ok(inserted), Err)
}

/// The collection, made when it is not there yet. A view is refused.
pub fn open_or_create(call: &Invocation<'_>, namespace: &Namespace) -> Result<CollectionGuard> {
    let storage = &call.server.storage;
    loop {
        match call.collection(namespace, LockMode::IntentExclusive) {
            Ok(Some(guard)) => return Ok(guard),
            Ok(None) => {}
            Err(StorageError::IsView(_)) => return Err(super::views::refused(namespace)),
            Err(other) => return Err(other.into()),
        }
        super::collections::refuse_system(call.server, namespace)?;
        let options = super::find::empty_document();
        let made = match &call.transaction {
            Some(transaction) => transaction
                .borrow_mut()
                .create_collection(&call.operation, namespace, options),
            None => storage.create_collection(&call.operation, namespace, options),
        };
        match made {
            Ok(()) | Err(StorageError::NamespaceExists(_)) => {}
            Err(other) => return Err(other.into()),
        }
    }
}

/// Inserts in units; returns how many documents are in, and the error that ended the whole command, if one did.
fn insert_all(
    call: &mut Invocation<'_>,
    guard: &CollectionGuard,
    batch: &InsertBatch<'_>,
    errors: &mut WriteErrors,
) -> (u64, Option<CommandError>) {
    let documents = batch.documents;
    let operation = call.operation.clone();
    // What was inserted when the command came before is passed over.
    let known = match known_statements(call, batch) {
        Ok(known) => known,
        Err(error) => return (0, Some(error)),
    };
    let is_known = |place: usize| known.get(place).is_some_and(|known| *known);
    let mut inserted = 0;
    let mut next = 0;
    let mut stopped = false;
    while next < documents.len() && !stopped {
        if is_known(next) {
            inserted += 1;
            next += 1;
            continue;
        }
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let (mut in_unit, bytes_before) = (0, unit.bytes());
        let mut failed = false;
        let mut stored = Vec::new();
        while next < documents.len()
            && in_unit < UNIT_DOCUMENTS_MAX
            && (in_unit == 0 || unit.bytes() - bytes_before < UNIT_BYTES_MAX)
        {
            Writer::begin_statement(call.retry.is_some(), &mut unit, (batch.ids)(next), Kept::Nothing);
            match insert_one(call, guard, &mut unit, next, batch) {
                Ok(document) => {
                    in_unit += 1;
                    stored.extend(document);
                }
                Err(Failure::WouldWait) => break,
                Err(Failure::Error(error)) if call.is_fatal(&error) => return (inserted, Some(error)),
                Err(Failure::Error(error)) => {
                    errors.push(next, error);
                    failed = true;
                    // One that fails before the unit has it may have taken long, and nobody was asked.
                    if let Err(interrupted) = operation.check_now() {
                        return (inserted, Some(StorageError::from(interrupted).into()));
                    }
                    if batch.ordered || call.transaction.is_some() {
                        stopped = true;
                        break;
                    }
                }
            }
            next += 1;
            if is_known(next) {
                break;
            }
        }
        if in_unit > 0
            && let Err(error) = call.before_commit(in_unit)
        {
            return (inserted, Some(error));
        }
        let committed = if in_unit > 0 {
            unit.commit_ahead().map(|seq| {
                inserted += in_unit as u64;
                call.wrote(seq);
            })
        } else {
            drop(unit);
            Ok(())
        };
        drop(writer);
        call.report.has_write_errors |= failed;
        let is_ahead = call.operation.is_ahead();
        let remembered = committed.map_err(CommandError::from).and_then(|()| {
            let stored = stored.into_iter().filter(|_| is_ahead);
            stored
                .map(Some)
                .try_for_each(|document| call.remember(guard.namespace(), None, document))
        });
        if let Err(error) = remembered {
            return (inserted, Some(error));
        }
    }
    (inserted, None)
}

/// Which documents were inserted when the command came before; empty when none was.
fn known_statements(call: &mut Invocation<'_>, batch: &InsertBatch<'_>) -> Result<Vec<bool>> {
    if call.retry.as_ref().is_none_or(|retry| retry.record.is_none()) {
        return Ok(Vec::new());
    }
    let known = |place| Ok(call.retried((batch.ids)(place))?.is_some());
    (0..batch.documents.len()).map(known).collect()
}

enum Failure {
    WouldWait,
    Error(CommandError),
}

/// Answers the document as it is stored, where the call may remember it.
fn insert_one(
    call: &Invocation<'_>,
    guard: &CollectionGuard,
    unit: &mut WriteUnit<'_>,
    place: usize,
    batch: &InsertBatch<'_>,
) -> std::result::Result<Option<Bytes>, Failure> {
    let nesting_max = match guard.timeseries() {
        None => NESTING_MAX,
        Some(_) => query::timeseries::BUCKET_DEPTH_MAX,
    };
    let prepared = batch
        .prepare_within(call, place, batch.keep_empty_timestamps, nesting_max)
        .map_err(Failure::Error)?;
    let prepared = RawDocument::from_bytes(prepared.as_ref()).map_err(|error| Failure::Error(error.into()))?;
    let adopted;
    let prepared = match guard.timeseries() {
        None => prepared,
        Some(options) => {
            adopted = query::timeseries::adopted(prepared, options).map_err(|error| Failure::Error(error.into()))?;
            RawDocument::from_bytes(adopted.as_ref()).map_err(|error| Failure::Error(error.into()))?
        }
    };
    crate::validation::check(call, guard, prepared, None).map_err(Failure::Error)?;
    match unit.insert(guard, prepared) {
        Ok(_) => {
            let is_remembered =
                batch.is_one_of_many && call.transaction.is_none() && call.server.storage.waits_for_others();
            Ok(is_remembered.then(|| Bytes::copy_from_slice(prepared.as_bytes())))
        }
        Err(StorageError::WouldWait) => Err(Failure::WouldWait),
        Err(other) => Err(Failure::Error(other.into())),
    }
}

/// The document as it is stored: `_id` in first place and made when missing, empty timestamps filled in, limits
/// checked. Borrows when nothing has to change, which is the usual case.
pub fn prepare<'d>(
    call: &Invocation<'_>,
    document: &'d RawDocument,
    keep_empty_timestamps: bool,
) -> Result<Cow<'d, [u8]>> {
    prepare_within(call, document, keep_empty_timestamps, NESTING_MAX)
}

fn prepare_within<'d>(
    call: &Invocation<'_>,
    document: &'d RawDocument,
    keep_empty_timestamps: bool,
    nesting_max: usize,
) -> Result<Cow<'d, [u8]>> {
    let mut id = None;
    let mut id_first = false;
    let mut empty_timestamp = false;
    for (position, element) in Elements::new(document).enumerate() {
        let element = element?;
        if id.is_none() && element.name() == b"_id" {
            check_id(element.value()?)?;
            id_first = position == 0;
            id = Some(element);
        } else {
            empty_timestamp |= !keep_empty_timestamps && is_empty_timestamp(element);
        }
    }
    check_size(document.as_bytes().len())?;
    check_nesting(document, nesting_max)?;
    if id_first && !empty_timestamp {
        return Ok(Cow::Borrowed(document.as_bytes()));
    }
    let mut bytes = Vec::with_capacity(document.as_bytes().len() + 17);
    let frame = Frame::begin(&mut bytes);
    match id {
        Some(id) => bytes.extend_from_slice(id.whole()),
        None => raw::append(
            &mut bytes,
            ElementType::ObjectId as u8,
            b"_id",
            &ObjectId::new().bytes(),
        ),
    }
    let mut id_seen = false;
    for element in Elements::new(document) {
        let element = element?;
        if element.name() == b"_id" && !id_seen {
            id_seen = true;
        } else if !keep_empty_timestamps && is_empty_timestamp(element) {
            let now = call.server.next_timestamp();
            let value = (u64::from(now.time) << 32 | u64::from(now.increment)).to_le_bytes();
            raw::append(&mut bytes, element.kind(), element.name(), &value);
        } else {
            bytes.extend_from_slice(element.whole());
        }
    }
    frame.finish(&mut bytes);
    check_size(bytes.len())?;
    Ok(Cow::Owned(bytes))
}

fn is_empty_timestamp(element: Element<'_>) -> bool {
    element.kind() == ElementType::Timestamp as u8 && element.value_bytes() == [0; 8]
}

fn check_size(bytes: usize) -> Result<()> {
    if bytes > DOCUMENT_BYTES_MAX {
        return Err(CommandError::new(
            ErrorCode::BSONObjectTooLarge,
            format!("object to insert too large. size in bytes: {bytes}, max size: {DOCUMENT_BYTES_MAX}"),
        ));
    }
    Ok(())
}

/// The rules for values of `_id`.
pub fn check_id(id: RawBsonRef<'_>) -> Result<()> {
    match id {
        RawBsonRef::Array(_) | RawBsonRef::RegularExpression(_) | RawBsonRef::Undefined => Err(CommandError::new(
            ErrorCode::InvalidIdField,
            format!("The '_id' value cannot be of type {}", crate::arguments::type_name(id)),
        )),
        RawBsonRef::Document(document) => match dollar_field(document) {
            Some(name) => Err(CommandError::new(
                ErrorCode::DollarPrefixedFieldName,
                format!("_id fields may not contain '$'-prefixed fields: {name} is not valid for storage."),
            )),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

/// A field, at any depth, whose name begins with a dollar and is none of a DBRef's: those are `$ref`, a string, in
/// front, then `$id`, and perhaps `$db`, a string.
fn dollar_field(document: &RawDocument) -> Option<&str> {
    let mut fields = document.into_iter().flatten().peekable();
    let mut is_first = true;
    while let Some((name, value)) = fields.next() {
        let is_reference = std::mem::take(&mut is_first)
            && matches!((name.as_str(), value), ("$ref", RawBsonRef::String(_)))
            && fields.next_if(|(name, _)| name.as_str() == "$id").is_some();
        if is_reference {
            fields.next_if(|(name, value)| name.as_str() == "$db" && matches!(value, RawBsonRef::String(_)));
            continue;
        }
        if name.as_str().starts_with('$') {
            return Some(name.as_str());
        }
        let below = match value {
            RawBsonRef::Document(inner) => dollar_field(inner),
            RawBsonRef::Array(array) => RawDocument::from_bytes(array.as_bytes()).ok().and_then(dollar_field),
            _ => None,
        };
        if below.is_some() {
            return below;
        }
    }
    None
}

fn check_nesting(document: &RawDocument, nesting_max: usize) -> Result<()> {
    if nesting_depth(document)? > nesting_max {
        return Err(CommandError::new(
            ErrorCode::Overflow,
            format!("cannot insert document because it exceeds {nesting_max} levels of nesting"),
        ));
    }
    Ok(())
}
