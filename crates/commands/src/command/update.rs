//! `update`, and the loop that finds, locks, changes and stores one document at a time.

mod change;
mod supplied;

pub(super) use self::change::{expressions_of, parse_change};
use self::supplied::supplied;
use super::find::{empty_document, hint, optional};
use super::insert::{open_or_create, writes_allowed};
use super::multi;
use super::read_only::refuse_read_only;
use super::timeseries;
use super::upsert_race::collides_with_filter;
use super::write_result::{StatementIds, UpsertedRoom, WriteErrors, refuse_multi, write_retried};
use super::write_targets::{Looks, Target, WriteTargets};
use crate::arguments::{Arguments, check_batch, missing_field};
use crate::definition::{Access, Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::invocation::{Invocation, Writer};
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::statement_watch::{StatementWatch, ToldStatement};
use auth::Action;
use bson::oid::ObjectId;
use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, rawdoc};
use bytes::Bytes;
use query::expression::ExpressionContext;
use query::matcher::{MatchDetails, Matcher};
use query::plan::Hint;
use query::timeseries::{measurements_in, with_ordered_meta};
use query::update::{Update, UpdateContext};
use query::{EvaluationContext, QueryError, raw};
use storage::{Collection, Kept, Namespace, StatementKind, StatementResult, StorageError, UpdateForm};
use wire::ErrorCode;

/// `update`.
pub const UPDATE: Command = Command::new(
    "update",
    "Changes documents.",
    OperationKind::Update,
    Access::Fields(access),
    update,
)
.takes_write_concern()
.batches(&["updates"])
.in_transactions(InTransactions::AllowedAndRetryable)
.api_version_1();

/// What a change says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeForm {
    /// What clients send: operators, a replacement or a pipeline, which its first name or its type tells.
    Statement,
    /// The new document.
    Document,
    /// The difference of an entry of a log.
    Difference,
}

/// One statement of `update`, or a `findAndModify`.
pub struct Statement<'a> {
    /// Which documents.
    pub filter: &'a RawDocument,
    /// The change: operators, a replacement or a pipeline.
    pub change: RawBsonRef<'a>,
    /// How the change is to be read.
    pub form: ChangeForm,
    /// The change as it was read before, for many statements that are alike.
    pub parsed: Option<&'a Update>,
    /// `c` of a statement: constants for a pipeline.
    pub constants: Option<&'a RawDocument>,
    /// An upsert inserts the constant `new`, and not what the pipeline makes of the filter.
    pub inserts_supplied: bool,
    /// Filters of `$[name]`.
    pub array_filters: Option<&'a RawArray>,
    /// All matching documents.
    pub multi: bool,
    /// The command has others, and waits for what it has written when it ends.
    pub is_one_of_many: bool,
    /// Insert when nothing matches.
    pub upsert: bool,
    /// The index to use.
    pub hint: Option<Hint<'a>>,
    /// Which of the matching documents comes first.
    pub sort: Option<&'a RawDocument>,
    /// Must be simple.
    pub collation: Option<&'a RawDocument>,
    /// `let` of the command.
    pub variables: Option<&'a RawDocument>,
    /// `bypassEmptyTsReplacement`: empty timestamps are stored as they are.
    pub keep_empty_timestamps: bool,
    /// Its number in the session.
    pub id: i32,
    /// What of its result a retry needs.
    pub kept: Kept,
    /// The documents are buckets, of which the measurements count.
    pub counts_measurements: bool,
    /// The longest `_id` that an upsert may insert, as the reply has to name it.
    pub id_bytes_max: usize,
}

impl<'a> Statement<'a> {
    /// All documents, one of them, nothing changed: what parsing starts from.
    pub fn new(variables: Option<&'a RawDocument>) -> Self {
        Self {
            filter: empty_document(),
            change: RawBsonRef::Null,
            form: ChangeForm::Statement,
            parsed: None,
            constants: None,
            inserts_supplied: false,
            array_filters: None,
            multi: false,
            is_one_of_many: false,
            upsert: false,
            hint: None,
            sort: None,
            collation: None,
            variables,
            keep_empty_timestamps: false,
            id: 0,
            kept: Kept::Nothing,
            counts_measurements: false,
            id_bytes_max: usize::MAX,
        }
    }

    /// Which of the documents comes first says nothing where all are changed.
    pub fn check_sort(&self) -> Result<()> {
        match self.multi && self.sort.is_some() {
            true => Err(CommandError::new(
                ErrorCode::FailedToParse,
                "Cannot specify sort with multi=true",
            )),
            false => Ok(()),
        }
    }
}

/// What a statement did.
#[derive(Default)]
pub struct Updated {
    /// Documents that matched.
    pub matched: u64,
    /// Of those, the ones that changed.
    pub modified: u64,
    /// `_id` of the document inserted by an upsert.
    pub upserted: Option<Bson>,
    /// The last document before and after the change, when asked for.
    pub before: Option<Bytes>,
    /// See `before`.
    pub after: Option<Bytes>,
}

impl Updated {
    /// What a statement did that had been carried out when it came. A `findAndModify`, which asks for images, must be
    /// one that could have done it.
    fn before_retry(result: StatementResult, statement: &Statement<'_>, images: Images) -> Result<Self> {
        let refused = |code, text: &str| Err(CommandError::new(ErrorCode(code), text));
        let of_another_kind = "The statement was sent before as one of another kind";
        match (result.kind, images) {
            (StatementKind::Inserted, Images::Both) if !statement.upsert => return refused(40608, of_another_kind),
            (StatementKind::Updated, Images::Both) if result.image.is_none() => {
                let code = if statement.kept == Kept::After { 40611 } else { 40612 };
                return refused(
                    code,
                    "The statement was sent before as one that keeps no image of the document",
                );
            }
            (StatementKind::Deleted, Images::None) => return refused(40638, of_another_kind),
            _ => {}
        }
        let mut done = Self::default();
        match (result.kind, result.id()) {
            (StatementKind::Inserted, Some(id)) => done.upserted = Some(Bson::try_from(id)?),
            (StatementKind::Updated, _) => (done.matched, done.modified) = (1, 1),
            _ => return refused(40606, of_another_kind),
        }
        done.after = result.image.map(|image| Bytes::from(image.into_bytes()));
        done.before = done.after.clone();
        Ok(done)
    }
}

/// The fields of `update` beside the statements.
pub struct Options<'a> {
    ordered: bool,
    variables: Option<&'a RawDocument>,
    keep_empty_timestamps: bool,
    ids: StatementIds,
}

impl<'a> Options<'a> {
    /// Parses them.
    pub fn parse(call: &Invocation<'a>, namespace: &Namespace) -> Result<Self> {
        let arguments = call.arguments();
        let mut options = Self {
            ordered: true,
            variables: None,
            keep_empty_timestamps: false,
            ids: StatementIds::of_call(call),
        };
        call.for_each_field(|name, value| {
            match name {
                "ordered" => options.ordered = arguments.flag(name, value)?,
                "bypassDocumentValidation" => drop(arguments.boolean(name, value)?),
                "bypassEmptyTsReplacement" => options.keep_empty_timestamps = arguments.flag(name, value)?,
                "let" => options.variables = optional(arguments, name, value)?,
                "collectionUUID" => call.check_collection_uuid(namespace, value)?,
                name => return options.ids.take(arguments, name, value),
            }
            Ok(true)
        })?;
        Ok(options)
    }
}

/// What `update` needs: an upsert inserts.
fn access(call: &Invocation<'_>) -> Result<bool> {
    if writes_allowed(call, &[Action::Update, Action::Insert])? {
        return Ok(true);
    }
    let statements = call.documents("updates")?.unwrap_or_default();
    let inserts = statements.into_iter().any(asks_for_upsert);
    Ok(!inserts && writes_allowed(call, &[Action::Update])?)
}

/// Does a statement say `upsert`, in any of its fields of that name?
pub fn asks_for_upsert(statement: &RawDocument) -> bool {
    statement.into_iter().flatten().any(|(name, value)| {
        name.as_str() == "upsert" && !matches!(value, RawBsonRef::Boolean(false) | RawBsonRef::Null)
    })
}

/// Bytes of an array's element beside its value: the type and a number of up to five digits.
const ELEMENT_BYTES_MAX: usize = 7;

fn update(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let namespace = call.namespace()?;
    let options = Options::parse(call, &namespace)?;
    let documents = call
        .documents("updates")?
        .ok_or_else(|| missing_field("update", "updates"))?;
    check_batch(documents.len())?;
    // A statement that cannot be read fails the command before any of them runs.
    options.ids.check(documents.len())?;
    let mut statements = documents
        .iter()
        .map(|document| parse_statement(document, &options))
        .collect::<Result<Vec<_>>>()?;
    let are_many = statements.len() > 1;
    for (index, statement) in statements.iter_mut().enumerate() {
        statement.id = options.ids.of(index);
        statement.is_one_of_many = are_many;
    }
    check_writable(call, &namespace)?;
    let mut errors = WriteErrors::new();
    let (mut matched, mut modified) = (0, 0);
    let mut upserted = Vec::new();
    let mut room = UpsertedRoom::of(call, statements.len());
    for (index, statement) in statements.iter_mut().enumerate() {
        statement.id_bytes_max = room.id_bytes_max();
        match run_counted(call, &namespace, documents[index], statement) {
            Ok(done) => {
                matched += done.matched;
                modified += done.modified;
                if let Some(id) = done.upserted {
                    let entry = rawdoc! { "index": index as i32, "_id": RawBson::try_from(id)? };
                    room.take(entry.as_bytes().len() + ELEMENT_BYTES_MAX);
                    upserted.push(entry);
                }
            }
            Err(error) if call.is_fatal(&error) => return Err(error),
            Err(error) => {
                errors.push(index, error);
                if call.stops_after_error(options.ordered) {
                    break;
                }
            }
        }
    }
    call.report.n_matched = Some(matched);
    call.report.n_modified = Some(modified);
    call.report.n_upserted = Some(upserted.len() as u64);
    if call.write_concern.unacknowledged {
        reply.int32("n", 0);
        reply.int32("nModified", 0);
        return Ok(());
    }
    reply.count("n", (matched + upserted.len() as u64) as i64);
    if !upserted.is_empty() {
        reply.open_array("upserted");
        for (place, entry) in upserted.iter().enumerate() {
            reply.element(place, entry);
        }
        reply.close();
    }
    reply.count("nModified", modified as i64);
    errors.write(call, reply);
    write_retried(call, reply);
    Ok(())
}

/// Writes go to collections only, and to those that are not the server's own.
pub fn check_writable(call: &Invocation<'_>, namespace: &Namespace) -> Result<()> {
    refuse_system_in_transaction(call, namespace, ErrorCode(50791))?;
    refuse_read_only(call.server, namespace)?;
    match call.server.storage.catalog().view(namespace) {
        Some(_) if timeseries::buckets(call, namespace).is_none() => Err(super::views::refused(namespace)),
        _ => Ok(()),
    }
}

/// Transactions do not write to the server's collections. `code` is the command's own for that.
pub fn refuse_system_in_transaction(call: &Invocation<'_>, namespace: &Namespace, code: ErrorCode) -> Result<()> {
    match call.transaction.is_some() && namespace.collection().starts_with("system.") {
        true => Err(CommandError::new(
            code,
            format!("Cannot write to system collection {namespace} within a transaction"),
        )),
        false => Ok(()),
    }
}

/// Parses one element of `updates`.
pub fn parse_statement<'a>(document: &'a RawDocument, options: &Options<'a>) -> Result<Statement<'a>> {
    let arguments = Arguments::of("update.updates");
    let (mut filter, mut change) = (None, None);
    let mut statement = Statement::new(options.variables);
    statement.keep_empty_timestamps = options.keep_empty_timestamps;
    arguments.each(document, |name, value| {
        match name {
            "q" => filter = Some(arguments.document(name, value)?),
            "u" => change = Some(value),
            "c" if matches!(value, RawBsonRef::Null) => {}
            "c" => statement.constants = Some(arguments.document(name, value)?),
            "multi" => statement.multi = arguments.flag(name, value)?,
            "upsert" => statement.upsert = arguments.flag(name, value)?,
            "arrayFilters" => statement.array_filters = Some(arguments.array(name, value)?),
            "hint" => statement.hint = hint(value)?,
            "sort" => statement.sort = optional(arguments, name, value)?,
            "collation" => statement.collation = optional(arguments, name, value)?,
            "upsertSupplied" => statement.inserts_supplied = arguments.flag(name, value)?,
            "sampleId" | "allowShardKeyUpdatesWithoutFullShardKeyInQuery" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    statement.filter = filter.ok_or_else(|| missing_field("update.updates", "q"))?;
    statement.change = change.ok_or_else(|| missing_field("update.updates", "u"))?;
    query::update::check_types(statement.change, statement.array_filters)?;
    statement.check_sort()?;
    Ok(statement)
}

/// Which images of the changed document the caller wants back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Images {
    /// Neither.
    None,
    /// Before and after.
    Both,
}

/// A statement made ready: parsed once, used for every document.
struct Prepared<'a> {
    statement: &'a Statement<'a>,
    update: &'a Update,
    expressions: ExpressionContext,
}

/// How often an upsert that loses the race for a unique key tries again as an update.
const UPSERT_RETRIES: usize = 16;

/// Runs a statement of a command that may have many, and counts and tells it by itself.
pub fn run_counted(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    document: &RawDocument,
    statement: &Statement<'_>,
) -> Result<Updated> {
    call.server.metrics.operations.update.add(1);
    let told = ToldStatement::Whole(document);
    let watch = StatementWatch::begin(call, OperationKind::Update, namespace, told);
    let done = run(call, namespace, statement, Images::None);
    let figures = |done: &Updated| [done.matched, done.modified, u64::from(done.upserted.is_some())];
    let [matched, modified, upserted] = done.as_ref().map_or([0; 3], figures).map(Some);
    let documents = [("nMatched", matched), ("nModified", modified), ("nUpserted", upserted)];
    watch.end(call, &documents, done.as_ref().err());
    done
}

/// Runs one statement.
pub fn run(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
    images: Images,
) -> Result<Updated> {
    let done = run_ahead(call, namespace, statement, images);
    multi::end(call, statement, done)
}

/// As [`run`]; what it has changed may be still to take effect.
fn run_ahead(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
    images: Images,
) -> Result<Updated> {
    call.changes(namespace);
    if let Some(buckets) = timeseries::buckets(call, namespace) {
        call.settle()?;
        return timeseries::write::update(call, namespace, &buckets, statement);
    }
    if statement.upsert {
        query::update::check_upsert_filter(statement.filter)?;
    }
    if statement.multi {
        refuse_multi(call, "multi=true")?;
    }
    supplied(statement)?;
    if let Some(result) = call.retried(statement.id)? {
        return Updated::before_retry(result, statement, images);
    }
    let expressions = expressions_of(call, namespace, statement)?;
    let own;
    let update = match statement.parsed {
        Some(parsed) => parsed,
        None => {
            own = parse_change(namespace, statement, &expressions)?;
            &own
        }
    };
    let prepared = Prepared {
        statement,
        update,
        expressions,
    };
    multi::begin(call, namespace, statement)?;
    let mut tries = 0;
    loop {
        let mut done = Updated::default();
        let scan = update_matching(call, namespace, &prepared, images, &mut done)?;
        if done.matched > 0 {
            return Ok(done);
        }
        if matches!(scan, Scan::Conflicted) {
            call.wait_to_look_again()?;
            continue;
        }
        if !statement.upsert {
            return Ok(done);
        }
        let matcher = Matcher::parse_ordered(statement.filter, &prepared.expressions)?;
        match upsert(call, namespace, &prepared, &matcher) {
            Ok((id, after)) => {
                done.upserted = Some(id);
                done.after = Some(after);
                return Ok(done);
            }
            Err(error)
                if error.code == ErrorCode::DuplicateKey
                    && tries < UPSERT_RETRIES
                    && !statement.multi
                    && collides_with_filter(&matcher, &error) =>
            {
                tries += 1;
                call.wait_to_look_again()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a statement makes another document of one, which its filter matches, and whether scripts tell that: for
/// `explain`, which writes nothing.
pub fn would_change(
    call: &Invocation<'_>,
    namespace: &Namespace,
    statement: &Statement<'_>,
) -> Result<(
    impl Fn(&RawDocument) -> std::result::Result<bool, QueryError> + use<>,
    bool,
)> {
    let expressions = expressions_of(call, namespace, statement)?;
    let update = parse_change(namespace, statement, &expressions)?;
    let filter = Matcher::parse_ordered(statement.filter, &expressions)?;
    let operation = call.operation.clone();
    let context = update_context(call, statement, MatchDetails::default());
    let runs_scripts = update.runs_scripts();
    let changes = move |document: &RawDocument| {
        let evaluation = EvaluationContext::new(&operation);
        let mut details = MatchDetails::default();
        filter.matches_with_details(document, &evaluation, &mut details)?;
        let context = UpdateContext { details, ..context };
        Ok(update.apply(document, &context, &evaluation)?.is_some())
    };
    Ok((changes, runs_scripts))
}

enum Scan {
    /// Every candidate was seen.
    Complete,
    /// A candidate changed under way and matched no more: something else may match now.
    Conflicted,
}

fn update_matching(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    prepared: &Prepared<'_>,
    images: Images,
    done: &mut Updated,
) -> Result<Scan> {
    let mut scan = Scan::Complete;
    let Some(mut targets) = WriteTargets::find(call, namespace, prepared.statement)? else {
        return Ok(scan);
    };
    // One for all documents: what scripts run in is made once.
    let (operation, scripts) = (call.operation.clone(), call.scripts.clone());
    let evaluation = EvaluationContext::new(&operation).with_scripts(Some(&scripts));
    while let Some(target) = targets.next(call)? {
        match update_one(call, prepared, &targets, target, images, done, &evaluation)? {
            true if !prepared.statement.multi => break,
            true => {}
            false => scan = Scan::Conflicted,
        }
    }
    Ok(scan)
}

/// Changes one record; false when it is gone or matches no more.
fn update_one(
    call: &mut Invocation<'_>,
    prepared: &Prepared<'_>,
    targets: &WriteTargets,
    mut target: Target,
    images: Images,
    done: &mut Updated,
    evaluation: &EvaluationContext<'_>,
) -> Result<bool> {
    let operation = call.operation.clone();
    let filter = targets.filter();
    let runs_scripts = targets.runs_scripts() || prepared.update.runs_scripts();
    // What scripts have made of the document as it was.
    let mut made: Option<(Bytes, Applied)> = None;
    let mut looks = Looks::default();
    loop {
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let old = match unit.lock_record(&target.guard, &target.id) {
            Ok(Some(old)) => old,
            Ok(None) => return Ok(false),
            Err(StorageError::WouldWait) => continue,
            Err(StorageError::WriteConflict) => {
                drop(unit);
                drop(writer);
                // What changes nothing is in nobody's way.
                let Some(seen) = left_as_seen(call, prepared, filter, &target, evaluation)? else {
                    return Err(StorageError::WriteConflict.into());
                };
                done.matched += 1;
                if images == Images::Both {
                    done.before = Some(seen.clone());
                    done.after = Some(seen);
                }
                return Ok(true);
            }
            Err(other) => return Err(other.into()),
        };
        let old_document = RawDocument::from_bytes(&old)?;
        let applied = match made.take() {
            Some((document, applied)) if document == old => applied,
            _ if runs_scripts && looks.may_be_unlocked() => {
                // A transaction would keep the lock.
                unit.release();
                drop(writer);
                let locked_again = target.unlocked(call, &mut looks, |collection| {
                    applied(call, prepared, filter, collection, old_document, evaluation)
                })?;
                let Some((locked, applied)) = locked_again else {
                    return Ok(false);
                };
                target = locked;
                made = Some((old, applied));
                continue;
            }
            _ => looks.locked(call, || {
                applied(call, prepared, filter, &target.guard, old_document, evaluation)
            })?,
        };
        if let Applied::Unmatched = applied {
            unit.release();
            return Ok(false);
        }
        let weight = match target.guard.timeseries() {
            Some(options) if prepared.statement.counts_measurements => measurements_in(old_document, options)
                .map_err(|error| timeseries::of_bucket(error.into(), target.guard.namespace(), old_document))?,
            _ => 1,
        };
        let Applied::New(new) = applied else {
            unit.release();
            done.matched += weight;
            if images == Images::Both {
                done.before = Some(old.clone());
                done.after = Some(old);
            }
            return Ok(true);
        };
        let Statement { id, kept, .. } = *prepared.statement;
        Writer::begin_statement(call.retry.is_some(), &mut unit, id, kept);
        let new_document = RawDocument::from_bytes(&new)?;
        crate::validation::check(call, &target.guard, new_document, Some(old_document))?;
        let form = match prepared.update.targets() {
            Some(targets) => UpdateForm::Operators(targets),
            None if prepared.update.is_replacement() => UpdateForm::Replacement,
            None => UpdateForm::Pipeline,
        };
        match unit.update_as(&target.guard, &target.id, old_document, new_document, form) {
            Ok(()) => {}
            Err(StorageError::WouldWait) => {
                // Scripts do not run again for the same document.
                if runs_scripts {
                    made = Some((old, Applied::New(new)));
                }
                continue;
            }
            Err(other) => return Err(other.into()),
        }
        let is_remembered = multi::commit(call, prepared.statement, unit)?;
        call.server.metrics.documents.updated.add(1);
        done.matched += weight;
        done.modified += weight;
        if is_remembered {
            let namespace = target.guard.namespace();
            call.remember(namespace, Some(old), Some(Bytes::from(new)))?;
        } else if images == Images::Both {
            done.before = Some(old);
            done.after = Some(Bytes::from(new));
        }
        return Ok(true);
    }
}

/// What a statement makes of a document.
enum Applied {
    /// The filter does not match.
    Unmatched,
    Same,
    New(Vec<u8>),
}

fn applied(
    call: &Invocation<'_>,
    prepared: &Prepared<'_>,
    filter: Option<&Matcher>,
    collection: &Collection,
    old: &RawDocument,
    evaluation: &EvaluationContext<'_>,
) -> Result<Applied> {
    let mut details = MatchDetails::default();
    if let Some(filter) = filter
        && !filter.matches_with_details(old, evaluation, &mut details)?
    {
        return Ok(Applied::Unmatched);
    }
    let context = update_context(call, prepared.statement, details);
    let Some(new) = prepared.update.apply(old, &context, evaluation)? else {
        return Ok(Applied::Same);
    };
    if collection.timeseries().is_none() {
        return Ok(Applied::New(new));
    }
    let ordered = with_ordered_meta(RawDocument::from_bytes(&new)?)?.unwrap_or(new);
    Ok(match ordered == old.as_bytes() {
        true => Applied::Same,
        false => Applied::New(ordered),
    })
}

/// The document as a transaction sees it, where the statement leaves it as it is.
fn left_as_seen(
    call: &Invocation<'_>,
    prepared: &Prepared<'_>,
    filter: Option<&Matcher>,
    target: &Target,
    evaluation: &EvaluationContext<'_>,
) -> Result<Option<Bytes>> {
    let Some(transaction) = &call.transaction else {
        return Ok(None);
    };
    let view = transaction.borrow_mut().view();
    let Some(seen) = view.record(&target.guard, &target.id)? else {
        return Ok(None);
    };
    let seen_document = RawDocument::from_bytes(&seen)?;
    match applied(call, prepared, filter, &target.guard, seen_document, evaluation)? {
        Applied::Same => Ok(Some(seen)),
        Applied::Unmatched | Applied::New(_) => Ok(None),
    }
}

fn update_context(call: &Invocation<'_>, statement: &Statement<'_>, details: MatchDetails) -> UpdateContext {
    UpdateContext {
        now_ms: call.operation.started_ms(),
        timestamp: call.server.next_timestamp(),
        keep_empty_timestamps: statement.keep_empty_timestamps,
        details,
    }
}

/// Inserts the document an upsert stands for; answers its `_id` and the document.
fn upsert(
    call: &mut Invocation<'_>,
    namespace: &Namespace,
    prepared: &Prepared<'_>,
    matcher: &Matcher,
) -> Result<(Bson, Bytes)> {
    // What the filter says of `_id` holds for a document that is supplied, as for a replacement.
    let supplied = supplied(prepared.statement)?
        .map(|document| Update::parse(RawBsonRef::Document(document), None, &prepared.expressions))
        .transpose()?;
    let made = supplied.as_ref().unwrap_or(prepared.update).upsert(
        matcher,
        ObjectId::new(),
        &update_context(call, prepared.statement, MatchDetails::default()),
        &call.evaluation(),
    )?;
    let made = RawDocumentBuf::from_bytes(made)?;
    let document = super::insert::prepare(call, &made, true)?.into_owned();
    let document = RawDocumentBuf::from_bytes(document)?;
    let id = raw::find(&document, b"_id")?;
    if id.is_some_and(|id| id.value_bytes().len() > prepared.statement.id_bytes_max) {
        return Err(UpsertedRoom::refused());
    }
    let guard = open_or_create(call, namespace)?;
    crate::validation::check(call, &guard, &document, None)?;
    let operation = call.operation.clone();
    let is_remembered = loop {
        let mut writer = call.writer();
        let mut unit = writer.unit(&operation);
        let Statement { id, kept, .. } = *prepared.statement;
        let kept = if kept == Kept::Nothing { Kept::Key } else { kept };
        Writer::begin_statement(call.retry.is_some(), &mut unit, id, kept);
        match unit.insert(&guard, &document) {
            Ok(_) => break multi::commit(call, prepared.statement, unit)?,
            Err(StorageError::WouldWait) => {}
            Err(other) => return Err(other.into()),
        }
    };
    let id = document
        .get("_id")?
        .map(Bson::try_from)
        .transpose()?
        .unwrap_or(Bson::Null);
    let document = Bytes::from(document.into_bytes());
    if is_remembered {
        call.remember(namespace, None, Some(document.clone()))?;
    }
    Ok((id, document))
}
