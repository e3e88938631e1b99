//! One call of a command: what it is given, what it works with, and what it reports about itself.

use crate::Client;
use crate::arguments::{Arguments, check_batch, is_generic, missing_field, take, unknown_field, wrong_type};
use crate::changed_ahead::ChangedAhead;
use crate::cluster_parameters::is_about_cluster_parameters;
use crate::concerns::{ReadConcern, WriteConcern, is_about_defaults};
use crate::cursors::SessionId;
use crate::definition::Command;
use crate::error::{CommandError, Result};
use crate::parked::Parked;
use crate::pinned::PinnedState;
use crate::request::Resume;
use crate::rights::Rights;
use crate::server::Server;
use crate::stable_api;
use crate::tickets::Ticket;
use crate::transactions::{CheckedOut, TransactionFields};
use auth::{Action, ActionSet, Target};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use engine::Seq;
use query::plan::{QuerySettings, ShapeHash};
use query::raw::{self, Elements, kind};
use query::{
    EvaluationContext, OperationScripts,
    exec::{ExecContext, PlanSummary},
    expression::ExpressionContext,
};
use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use storage::{
    Collection, CollectionGuard, Kept, LockMode, Namespace, Operation, SessionKey, SessionRecord, StatementResult,
    Storage, StorageError, Transaction, WriteUnit,
};
use wire::limits::WRITE_BATCH_MAX;
use wire::{ErrorCode, InvalidDocument};

/// What a call did, for the slow-operation log line, `top` and the counters.
#[derive(Default)]
pub struct Report {
    /// The collection it worked on.
    pub namespace: Option<Namespace>,
    /// What is told of the plan.
    pub plan_summary: PlanSummary,
    /// How long it waited for its turn, without a thread.
    pub waited: Duration,
    /// How long for an event: neither work nor latency.
    pub idle: Cell<Duration>,
    /// Documents returned.
    pub n_returned: Option<u64>,
    /// Documents written, by sort: inserted, matched, modified, deleted, upserted.
    pub n_inserted: Option<u64>,
    pub n_matched: Option<u64>,
    pub n_modified: Option<u64>,
    pub n_deleted: Option<u64>,
    pub n_upserted: Option<u64>,
    /// Its statements are counted and told one by one.
    pub is_told_by_statement: bool,
    /// Whether it is one of those that `sampleRate` takes, once that was drawn.
    pub is_sampled: Cell<Option<bool>>,
    /// A document of it could not be written to `system.profile`.
    pub is_profile_lost: Cell<bool>,
    /// The cursor that stays open.
    pub cursor_id: Option<i64>,
    /// The command that made the cursor that it fetches from.
    pub originating: Option<Arc<RawDocumentBuf>>,
    /// The transaction that it ends has left no cursor open.
    pub had_no_cursors: bool,
    /// The cursor was exhausted by this call.
    pub cursor_exhausted: bool,
    /// The hash of its query's shape, where it was asked for.
    pub shape: Option<ShapeHash>,
    /// It opens a change stream, or goes on with one.
    pub is_change_stream: bool,
    /// The primary did what is written, and waited: with the `writeConcernError` that it told of.
    pub primary_waited: Option<Option<bson::Document>>,
    /// The newest write of the call.
    pub last_write: Cell<Option<Seq>>,
    /// Bytes of what it tells of documents that are not valid.
    pub explained_bytes: Cell<usize>,
    /// A statement of it failed, and the reply says so in `writeErrors`.
    pub has_write_errors: bool,
    /// Collections about access, those of users and roles, whose documents may have been changed.
    pub access_changed: Vec<Namespace>,
    /// Cluster parameters may have been.
    pub cluster_parameters_changed: bool,
    /// Something of `config.settings` may have changed: the defaults are taken up anew after the call.
    pub default_concerns_changed: bool,
    /// It waits for an event, and is called anew: see [`Invocation::park`].
    pub parks: bool,
    /// A fail point closes the connection.
    pub closes: Cell<bool>,
    /// Set by `shutdown`.
    pub shutdown: bool,
    /// Reply again without being asked (exhaust).
    pub more_to_come: bool,
}

/// A call of a command.
pub struct Invocation<'i> {
    /// The server.
    pub server: &'i Arc<Server>,
    /// Who calls.
    pub client: &'i Arc<Client>,
    /// The running operation: deadline, kill flag, counters.
    pub operation: Arc<Operation>,
    /// The command's entry in the table.
    pub command: &'static Command,
    /// The command document.
    pub body: &'i RawDocument,
    /// Document sequences by name.
    pub sequences: &'i [(&'i str, &'i [u8])],
    /// Documents of its batches that may not be stored as they came; what stands in their places is not them.
    pub invalid: &'i [InvalidDocument],
    /// The database addressed.
    pub database: &'i str,
    /// `lsid`.
    pub session: Option<SessionId>,
    /// `writeConcern`.
    pub write_concern: WriteConcern,
    /// `readConcern`.
    pub read_concern: ReadConcern,
    /// For a linearizable read: for which time this server leads, as it was before the read.
    pub leadership: Option<u64>,
    /// `txnNumber` and what belongs to it.
    pub transaction_fields: Option<TransactionFields>,
    /// The session, for a call with a transaction number.
    pub in_session: Option<CheckedOut>,
    /// The transaction that the call is a statement of.
    pub transaction: Option<RefCell<Transaction>>,
    /// The state that is read, where it is not the newest one.
    pub pinned: Option<PinnedState>,
    /// For a write that may be sent again: what is known of its session's number.
    pub retry: Option<Retry>,
    /// What its statements have changed ahead.
    pub(crate) changed_ahead: RefCell<ChangedAhead>,
    /// `maxTimeMS`, 0 when none.
    pub max_time_ms: u64,
    /// Only what Stable API version 1 has is wanted.
    pub api_strict: bool,
    /// A chain of replies is welcome.
    pub exhaust_allowed: bool,
    /// See [`crate::Request::is_repeated`].
    pub is_repeated: bool,
    /// What the caller may do.
    pub rights: Rights,
    /// Its permission to run, where it needs one.
    pub(crate) ticket: Cell<Option<Ticket>>,
    /// Where the request may be put off instead of waiting with this thread.
    pub(crate) resume: Option<&'i dyn Fn() -> Resume>,
    /// What it has waited for; what it is going to wait for, once its function has put that here.
    pub(crate) parked: Option<Parked>,
    /// What is set for queries of the call's shape.
    pub(crate) settings: Option<Arc<QuerySettings>>,
    /// What scripts of this call run in.
    pub(crate) scripts: Rc<OperationScripts>,
    /// What it did.
    pub report: Report,
}

/// A write that may be sent again.
pub struct Retry {
    /// Its session.
    pub key: SessionKey,
    /// Its number in it.
    pub number: i64,
    /// What was written under that before, as a server knows that leads since then.
    pub record: Option<SessionRecord>,
    /// For which time it led when it looked. What it writes is refused when it has ceased to since: the write may have
    /// been sent again to another one.
    pub leadership: u64,
    /// Statements of it that had been carried out.
    pub retried: Vec<i32>,
}

/// Makes units of changes: the call's own, or its transaction's.
pub enum Writer<'c> {
    /// Each is committed by itself, perhaps under a number.
    Alone(&'c Arc<Storage>, Option<&'c Retry>),
    /// They are the transaction's.
    Transaction(RefMut<'c, Transaction>),
}

impl Writer<'_> {
    /// The next unit.
    pub fn unit<'w>(&'w mut self, operation: &'w Operation) -> WriteUnit<'w> {
        match self {
            Self::Transaction(transaction) => transaction.resume(operation),
            Self::Alone(storage, retry) => {
                let mut unit = storage.begin_write(operation);
                if let Some(retry) = retry {
                    unit.in_session(retry.key, retry.number);
                    unit.under_leadership(retry.leadership);
                }
                unit
            }
        }
    }

    /// The unit's next changes are those of a statement of the command, of which a retry needs `kept`.
    pub fn begin_statement(is_retryable: bool, unit: &mut WriteUnit<'_>, statement: i32, kept: Kept) {
        if is_retryable {
            unit.statement(statement, kept);
        }
    }
}

impl<'i> Invocation<'i> {
    /// A call of the server itself.
    pub fn of_server(
        server: &'i Arc<Server>,
        client: &'i Arc<Client>,
        command: &'static Command,
        body: &'i RawDocument,
        database: &'i str,
    ) -> Self {
        Self {
            server,
            client,
            operation: server.new_operation(),
            command,
            body,
            sequences: &[],
            invalid: &[],
            database,
            session: None,
            write_concern: WriteConcern::default(),
            read_concern: ReadConcern::default(),
            leadership: None,
            transaction_fields: None,
            in_session: None,
            transaction: None,
            pinned: None,
            retry: None,
            changed_ahead: RefCell::default(),
            max_time_ms: 0,
            api_strict: false,
            exhaust_allowed: false,
            is_repeated: false,
            rights: Rights::Unchecked,
            ticket: Cell::default(),
            resume: None,
            parked: None,
            settings: None,
            scripts: Rc::default(),
            report: Report::default(),
        }
    }

    /// A call of another command by the same caller: one that is explained, or that is looked at again.
    pub fn within<'n>(&self, command: &'static Command, body: &'n RawDocument, database: &'n str) -> Invocation<'n>
    where
        'i: 'n,
    {
        Invocation {
            server: self.server,
            client: self.client,
            operation: Arc::clone(&self.operation),
            command,
            body,
            sequences: &[],
            invalid: &[],
            database,
            session: self.session,
            write_concern: self.write_concern.clone(),
            read_concern: self.read_concern,
            leadership: None,
            transaction_fields: None,
            in_session: None,
            transaction: None,
            pinned: None,
            retry: None,
            changed_ahead: RefCell::default(),
            max_time_ms: self.max_time_ms,
            api_strict: self.api_strict,
            exhaust_allowed: false,
            is_repeated: false,
            rights: self.rights.clone(),
            ticket: Cell::default(),
            resume: None,
            parked: None,
            settings: None,
            scripts: Rc::default(),
            report: Report::default(),
        }
    }

    /// May the caller do `action` to `target`?
    pub fn may(&self, target: Target<'_>, action: Action) -> bool {
        self.rights.allow(target, ActionSet::of(&[action]))
    }

    /// Is the client at the other end of a connection the caller's user? Everybody is without access control.
    pub fn is_own_client(&self, client: &Client) -> bool {
        match &self.rights {
            Rights::Unchecked => true,
            rights => rights.is_own(client.authentication.lock().user.as_ref()),
        }
    }

    /// Documents of the collection are about to be changed, or the collection itself.
    pub fn changes(&mut self, namespace: &Namespace) {
        if namespace.is_about_access() && !self.report.access_changed.contains(namespace) {
            self.report.access_changed.push(namespace.clone());
        }
        self.report.cluster_parameters_changed |= is_about_cluster_parameters(namespace);
        self.report.default_concerns_changed |= is_about_defaults(namespace);
        if self.report.cluster_parameters_changed || self.report.default_concerns_changed {
            // What this server takes up itself when the call ends has taken effect by then.
            self.operation.set_commit_patience(None);
        }
    }

    /// A reader of this command's own fields.
    pub fn arguments(&self) -> Arguments<'static> {
        Arguments::of(self.command.name)
    }

    /// The value of the command's first field.
    pub fn target(&self) -> Result<RawBsonRef<'i>> {
        match Elements::new(self.body).next() {
            Some(element) => Ok(element?.value()?),
            None => Err(CommandError::bad_value("empty command")),
        }
    }

    /// The same, where null is no value: it is as if the command had none.
    pub fn required_target(&self) -> Result<RawBsonRef<'i>> {
        match self.target()? {
            RawBsonRef::Null | RawBsonRef::Undefined => Err(missing_field(self.command.name, self.command.name)),
            value => Ok(value),
        }
    }

    /// The command's own fields, after the first and beside its batches: `handle` answers false for a name it does not
    /// know.
    pub fn for_each_field(&self, mut handle: impl FnMut(&'i str, RawBsonRef<'i>) -> Result<bool>) -> Result<()> {
        for element in Elements::new(self.body).skip(1) {
            let element = element?;
            if is_generic(element.name()) {
                continue;
            }
            let name = element.name_str()?;
            if self.command.batches.contains(&name) {
                continue;
            }
            if self.api_strict && self.command.unstable_fields.contains(&name) {
                return Err(stable_api::unstable_field(self.command.name, name));
            }
            if !take(name, element.value()?, &mut handle)? {
                return Err(unknown_field(self.command.name, name));
            }
        }
        Ok(())
    }

    /// The documents of a sequence, or of the array field of that name. Fails where they are more than a command may
    /// have, without having kept them.
    pub fn documents(&self, field: &str) -> Result<Option<Vec<&'i RawDocument>>> {
        let mut documents = Vec::new();
        let mut count = 0;
        let mut take = |document| {
            count += 1;
            if count <= WRITE_BATCH_MAX {
                documents.push(document);
            }
        };
        if let Some((_, bytes)) = self.sequences.iter().find(|(name, _)| *name == field) {
            let mut rest = *bytes;
            while rest.len() >= 5 {
                let length = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
                let cut_off = || CommandError::new(ErrorCode::InvalidBSON, "document sequence is cut off");
                take(RawDocument::from_bytes(rest.get(..length).ok_or_else(cut_off)?)?);
                rest = &rest[length..];
            }
        } else {
            let Some(array) = raw::find(self.body, field.as_bytes())? else {
                return Ok(None);
            };
            match array.kind() {
                kind::NULL | kind::UNDEFINED => return Ok(None),
                kind::ARRAY => {}
                _ => return Err(wrong_type(self.command.name, field, array.value()?, "type 'array'")),
            }
            for (index, element) in Elements::new(array.frame()?).enumerate() {
                let element = element?;
                if element.kind() != kind::DOCUMENT {
                    let place = format!("{field}.{index}");
                    return Err(wrong_type(self.command.name, &place, element.value()?, "type 'object'"));
                }
                take(element.frame()?);
            }
        }
        match count > WRITE_BATCH_MAX {
            true => check_batch(count).map(|()| None),
            false => Ok(Some(documents)),
        }
    }

    /// What expressions of this call see.
    pub fn expressions(&self) -> ExpressionContext {
        let random = Arc::clone(&self.server.env.random);
        ExpressionContext::of_operation(&self.operation, random)
    }

    /// The same for a statement on a collection: with the variables of `let`, and with the collection's order of
    /// strings unless another one is asked for.
    pub fn expressions_on(
        &self,
        namespace: &Namespace,
        variables: Option<&RawDocument>,
        collation: Option<&RawDocument>,
    ) -> Result<ExpressionContext> {
        let collection = self.definition(namespace);
        let of_collection = collection.as_ref().and_then(|collection| collection.collation());
        let collation = query::plan::collation_of(collation, of_collection)?;
        let context = self.expressions().with_collation(collation);
        Ok(match variables {
            Some(variables) => context.with_let(variables)?,
            None => context,
        })
    }

    /// What evaluations of this call are bounded by.
    pub fn evaluation(&self) -> EvaluationContext<'_> {
        EvaluationContext::new(&self.operation).with_scripts(Some(&self.scripts))
    }

    /// Where plans of this call run.
    pub fn context(&self) -> ExecContext<'_> {
        ExecContext {
            storage: &self.server.storage,
            op: &self.operation,
            transaction: self.transaction.as_ref(),
            pinned: self.pinned.as_ref().map(|pinned| &pinned.view),
            sources: Some(self),
            settings: self.settings.as_ref(),
            scripts: Some(&self.scripts),
        }
    }

    /// Shows the plan in `currentOp` and the log.
    pub fn set_plan_summary(&mut self, summary: PlanSummary) {
        self.tell_plan(&summary.text);
        self.report.plan_summary = summary;
    }

    /// Shows a plan in `currentOp`.
    pub fn tell_plan(&self, summary: &str) {
        let namespace = self.report.namespace.as_ref().map_or(self.database, Namespace::as_str);
        self.client.describe(namespace, summary);
    }

    /// Remembers the newest write, for `j: true`. What a transaction's statement writes is not there yet.
    pub fn wrote(&self, seq: Seq) {
        if self.transaction.is_none() {
            self.report.last_write.set(Some(seq));
        }
    }

    /// Remembers a document that was changed ahead; `before` or `after` is `None` where it is not there.
    pub fn remember(&self, namespace: &Namespace, before: Option<Bytes>, after: Option<Bytes>) -> Result<()> {
        let is_full = self.changed_ahead.borrow_mut().add(namespace, before, after);
        match is_full {
            true => self.settle(),
            false => Ok(()),
        }
    }

    /// Waits until what the call has committed ahead has taken effect.
    pub fn settle(&self) -> Result<()> {
        self.changed_ahead.borrow_mut().clear();
        Ok(self.server.storage.wait_ahead(&self.operation)?)
    }

    /// As [`Invocation::settle`], for who does not look for documents any more: where the call has no patience left,
    /// what it has committed stays ahead.
    pub fn settle_at_last(&self) -> Result<()> {
        self.server.storage.wait_ahead_patiently(&self.operation)?;
        let mut changed = self.changed_ahead.borrow_mut();
        match self.operation.is_ahead() {
            true => changed.lose_track(),
            false => changed.clear(),
        }
        Ok(())
    }

    /// After something that others have written was in the way, before documents are looked for again: readers see what
    /// has taken effect, and among members that may be long after it was met.
    pub fn wait_to_look_again(&self) -> Result<()> {
        self.settle()?;
        self.server.storage.wait_observed(&self.operation)?;
        self.operation.check()?;
        self.operation.counters().write_conflicts.add(1);
        Ok(())
    }

    /// See [`TransactionFields::transaction_number`].
    pub fn transaction_number(&self) -> Option<i64> {
        self.transaction_fields?.transaction_number()
    }

    /// Whether the call is a write that may be sent again.
    pub fn may_be_sent_again(&self) -> bool {
        self.transaction_fields.is_some_and(|fields| !fields.is_transaction)
    }

    /// Access to a collection, in the call's transaction if it has one.
    pub fn collection(
        &self,
        namespace: &Namespace,
        mode: LockMode,
    ) -> std::result::Result<Option<CollectionGuard>, StorageError> {
        self.context().data().collection(namespace, mode)
    }

    /// A collection as it is defined now, for the call's transaction if it has one.
    pub fn definition(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let transaction = self.transaction.as_ref().map(RefCell::borrow);
        let own = transaction.and_then(|transaction| transaction.created(namespace).cloned());
        own.or_else(|| self.server.storage.catalog().collection(namespace))
    }

    /// Where the call's units come from.
    pub fn writer(&self) -> Writer<'_> {
        match &self.transaction {
            Some(transaction) => Writer::Transaction(transaction.borrow_mut()),
            None => Writer::Alone(&self.server.storage, self.retry.as_ref()),
        }
    }

    /// What a statement came to when the command was sent before; it is counted as retried then.
    pub fn retried(&mut self, statement: i32) -> Result<Option<StatementResult>> {
        let Some(Retry {
            key,
            record: Some(record),
            retried,
            ..
        }) = &mut self.retry
        else {
            return Ok(None);
        };
        let result = self.server.storage.statement(record, key, statement)?;
        if result.is_some() {
            retried.push(statement);
            self.server.sessions.counters.retried.add(1);
        }
        Ok(result)
    }

    /// To be called before a unit of so many documents is committed: a fail point may be in the way of a write that
    /// can be sent again.
    pub fn before_commit(&self, documents: usize) -> Result<()> {
        if self.retry.is_none() {
            return Ok(());
        }
        let random = &*self.server.env.random;
        let Some(failure) = self.server.fail_points.enter_write(documents, random) else {
            return Ok(());
        };
        self.report.closes.set(self.report.closes.get() || failure.closes);
        match failure.error_code {
            Some(code) => Err(CommandError::new(
                ErrorCode(code),
                "onPrimaryTransactionalWrite fail point enabled",
            )),
            None => Ok(()),
        }
    }

    /// Whether an error ends the command, not only a statement: the operation cannot go on, or the transaction has to
    /// be begun again.
    pub fn is_fatal(&self, error: &CommandError) -> bool {
        error.is_fatal() || (self.transaction.is_some() && error.is_transient())
    }

    /// Whether a failed statement ends the command: in a transaction it ends that, too.
    pub fn stops_after_error(&mut self, ordered: bool) -> bool {
        self.report.has_write_errors = true;
        ordered || self.transaction.is_some()
    }
}
