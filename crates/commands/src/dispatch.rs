//! The way in: a request becomes a call of one command, and exactly one reply.

mod cluster_time;

use crate::audited::AuditEvent;
use crate::authorization::check;
use crate::client::{Begun, Client, PutOff};
use crate::command::default_concerns;
use crate::command::grants;
use crate::command::parameters::set_at_start;
use crate::command::profile;
use crate::concern_waits::wait_for_concerns;
use crate::concerns::ReadLevel;
use crate::default_time;
use crate::definition::Access;
use crate::definition::Command;
use crate::error::{CommandError, Result};
use crate::fail_points::Failure;
use crate::generic::Generic;
use crate::in_session;
use crate::invocation::{Invocation, Report};
use crate::lock_report::locks_document;
use crate::logger::{Component, Logger, id};
use crate::metrics::OperationKind;
use crate::not_built;
use crate::profiler::{self, ProfilingLevel, Setting};
use crate::replica_set::Role;
use crate::reply::Reply;
use crate::request::Request;
use crate::rights::Rights;
use crate::server::Server;
use crate::settings::Settings;
use crate::spill_report::add_spills;
use crate::table::COMMANDS;
use crate::tickets::{Queue, Turn, Waiting};
use crate::transactions::TransactionFields;
use auth::{Action, Target};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};
use query::raw::Elements;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use storage::{Operation, OperationCounters, SessionKey, Storage, StorageError};
use vfs::Env;
use wire::limits::DOCUMENT_INTERNAL_BYTES_MAX;
use wire::{ErrorCode, InvalidDocument};

/// What the server does after sending the reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Set `moreToCome` on the reply and call [`Server::handle`] again with the same request.
    pub more_to_come: bool,
    /// Close the connection after the reply.
    pub close: bool,
    /// Close the connection instead of replying.
    pub no_reply: bool,
    /// The command was `shutdown`: end the process in an orderly way.
    pub shutdown: bool,
    /// There is no reply yet: what [`Request::resume`] gave will be called, and then the request is to be handled anew,
    /// with [`Request::is_resumed`].
    pub put_off: bool,
}

impl Server {
    /// A server with all commands. Errors name a `--setParameter` that does not exist or has a bad value.
    pub fn new(
        env: Env,
        storage: Arc<Storage>,
        logger: Arc<Logger>,
        settings: Settings,
    ) -> std::result::Result<Arc<Self>, String> {
        let server = Self::with_commands(&COMMANDS, env, storage, logger, settings);
        for (name, value) in &server.settings.parameters {
            set_at_start(&server, name, value).map_err(|error| error.message)?;
        }
        server.apply_parameters();
        server.load_cluster_parameters().map_err(|error| error.message)?;
        server.note_start().map_err(|error| error.to_string())?;
        server.audit(|| AuditEvent::own("startup", doc! { "options": server.settings.parsed.clone() }));
        Ok(server)
    }

    /// Whether the command is there on this server.
    pub(crate) fn has(&self, command: &Command) -> bool {
        !command.for_tests || self.fail_points.is_enabled()
    }

    /// Runs one request and appends exactly one BSON document to `reply`. Never panics on the request's content.
    pub fn handle(self: &Arc<Self>, client: &Arc<Client>, request: &Request<'_>, reply: &mut Vec<u8>) -> Outcome {
        let mut reply = Reply::begin(reply);
        let name = match Elements::new(request.body).next() {
            Some(Ok(first)) => first.name_str().unwrap_or(""),
            _ => "",
        };
        let found = self.commands.find(name);
        let Some((command, place)) = found.filter(|(command, _)| self.has(command)) else {
            self.metrics.asserts.user.add(1);
            let allows_tests = self.fail_points.is_enabled();
            write_error(&mut reply, &not_built::refusal(name, found.is_some(), allows_tests));
            self.write_times(&mut reply);
            reply.finish();
            return Outcome::default();
        };
        let mut call = Call {
            server: self,
            client,
            command,
            request,
            is_injected: false,
        };
        let (mut result, outcome) = call.run(&mut reply);
        if outcome.put_off {
            reply.restart();
            reply.finish();
            return outcome;
        }
        let is_injected = call.is_injected;
        if result.is_ok() && reply.len() > REPLY_BYTES_MAX {
            result = Err(CommandError::too_large(reply.len()));
        }
        self.command_counters[place].total.add(1);
        if let Err(error) = result {
            let counters = &self.command_counters[place];
            match error.code {
                ErrorCode::QueryRejectedBySettings => counters.rejected.add(1),
                _ => counters.failed.add(1),
            }
            self.metrics.asserts.user.add(1);
            reply.restart();
            write_error(&mut reply, &error);
            // What drivers compare to find out whether they know of the change already.
            if let Some(set) = self.replica_set().filter(|_| error.is_retryable() && !is_injected) {
                set.write_topology_version(&mut reply);
            }
        }
        self.write_times(&mut reply);
        reply.finish();
        outcome
    }
}

/// Bytes of a reply: a document of the largest size and what stands around it.
const REPLY_BYTES_MAX: usize = DOCUMENT_INTERNAL_BYTES_MAX + 64 * 1024;

fn write_error(reply: &mut Reply<'_>, error: &CommandError) {
    reply.double("ok", 0.0);
    reply.string("errmsg", &error.message);
    reply.int32("code", error.code.0);
    reply.string("codeName", &error.code.name());
    if let Some(extra) = &error.extra {
        reply.append_all(extra);
    }
}

/// Whether a command reads documents, or what is known of collections: where it must be told that it may.
fn is_read(command: &Command) -> bool {
    command.kind == OperationKind::Query
        || matches!(
            command.name,
            "listCollections" | "listDatabases" | "listIndexes" | "collStats" | "dbStats" | "explain"
        )
}

/// Whether a command reads from any member that has data to show.
fn is_read_anywhere(command: &Command) -> bool {
    matches!(command.name, "getMore" | "dbHash" | "validate")
}

/// What comes next for a request that may be carried out.
enum Next {
    Run,
    /// It is put off until it has a ticket.
    Wait(Waiting),
    /// A fail point closes the connection.
    Nothing,
}

/// One request on its way through.
struct Call<'c> {
    server: &'c Arc<Server>,
    client: &'c Arc<Client>,
    command: &'static Command,
    request: &'c Request<'c>,
    /// The error is a fail point's.
    is_injected: bool,
}

impl Call<'_> {
    fn run(&mut self, reply: &mut Reply<'_>) -> (Result<()>, Outcome) {
        let generic = match Generic::read(self.request, self.command, &self.server.deployment()) {
            Ok(generic) => generic,
            Err(error) => return (Err(error), Outcome::default()),
        };
        let is_told_each = |invalid: &InvalidDocument| {
            self.command.refuses_invalid_documents_each && self.command.batches.contains(&&*invalid.field)
        };
        if let Some(invalid) = self.request.invalid.iter().find(|invalid| !is_told_each(invalid)) {
            let error = CommandError::new(ErrorCode::InvalidBSON, invalid.to_string());
            return (Err(error), Outcome::default());
        }
        if self.command.admin_only && generic.database != "admin" {
            let error = CommandError::new(
                ErrorCode::Unauthorized,
                format!("{} may only be run against the admin database.", self.command.name),
            );
            return (Err(error), Outcome::default());
        }
        if self.server.is_shutting_down() {
            let error = CommandError::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown");
            return (
                Err(error),
                Outcome {
                    close: true,
                    ..Outcome::default()
                },
            );
        }
        let resumed = match self.request.is_resumed {
            true => self.client.take_put_off(),
            false => None,
        };
        let (operation, started, is_new_use) = match &resumed {
            Some(put_off) => (Arc::clone(&put_off.operation), put_off.started, false),
            None => self.begin(&generic),
        };
        let now = || self.server.env.clock.monotonic();
        let (waited, idle) = resumed.as_ref().map(|before| before.waits(now())).unwrap_or_default();
        // What turns profiling on is not profiled, what turns it off is.
        let profiling = self.server.profiler.get(generic.database);
        let mut invocation = Invocation {
            server: self.server,
            client: self.client,
            operation,
            command: self.command,
            body: self.request.body,
            sequences: self.request.sequences,
            invalid: self.request.invalid,
            database: generic.database,
            session: generic.session,
            write_concern: generic.write_concern.clone(),
            read_concern: generic.read_concern,
            leadership: None,
            transaction_fields: generic.transaction,
            in_session: None,
            transaction: None,
            pinned: None,
            retry: None,
            changed_ahead: Default::default(),
            max_time_ms: generic.max_time_ms,
            api_strict: generic.api.is_strict(),
            exhaust_allowed: self.request.exhaust_allowed,
            is_repeated: self.request.is_repeated,
            rights: Rights::Unchecked,
            ticket: Cell::default(),
            resume: self.request.resume,
            parked: None,
            settings: None,
            scripts: Default::default(),
            report: Report {
                waited,
                idle: Cell::new(idle),
                ..Report::default()
            },
        };
        let is_first = resumed.is_none() && !self.request.is_repeated;
        let admitted = admit(&mut invocation, is_first);
        invocation.operation.set_users(!may_write_always(&invocation));
        if !generic.has_max_time {
            default_time::limit(&mut invocation, resumed.is_some());
        }
        let admitted = admitted.and_then(|()| match is_new_use {
            true => note_session(&invocation),
            false => Ok(()),
        });
        let (waiting, failure) = match resumed {
            Some(PutOff {
                waiting,
                parked,
                failure,
                ..
            }) => {
                invocation.parked = parked;
                (waiting, Ok(failure))
            }
            None if admitted.is_ok() => (None, self.fail(&invocation)),
            None => (None, Ok(None)),
        };
        let (admitted, mut failure) = match (admitted, failure) {
            (Ok(()), Ok(failure)) => (Ok(()), failure),
            (Err(error), _) | (_, Err(error)) => (Err(error), None),
        };
        let mut closes = failure.as_ref().is_some_and(|failure| failure.closes);
        let injected = failure.as_mut().and_then(|failure| failure.error.take());
        self.is_injected = injected.is_some();
        let is_labelled = injected.as_ref().is_some_and(|(_, is_labelled)| *is_labelled);
        let turn = match injected {
            Some((error, _)) => Err(error),
            None if closes => Ok(Next::Nothing),
            None => admitted
                .and_then(|()| self.check_role(&generic))
                .and_then(|()| self.see_time(&generic, &invocation))
                .and_then(|()| self.wait_for_time(&generic, &invocation))
                .and_then(|()| self.take_turn(&invocation, waiting)),
        };
        let is_refused = turn.is_err() && !self.is_injected;
        let mut result = match turn {
            Ok(Next::Wait(waiting)) => return self.put_off(invocation, started, failure, Some(waiting)),
            Ok(Next::Run) => in_session::run(&mut invocation, reply),
            Ok(Next::Nothing) => Ok(()),
            Err(error) => Err(error),
        };
        // The waits for concerns, which come next, are not work.
        invocation.ticket.set(None);
        if invocation.report.parks {
            return self.put_off(invocation, started, failure, None);
        }
        // A `getMore` that waited, and was refused when it went on, has fetched nothing.
        if let Some(cursor) = invocation.parked.take().and_then(|parked| parked.cursor) {
            self.server.cursors.check_in(cursor);
        }
        closes |= invocation.report.closes.get();
        if invocation.report.cluster_parameters_changed {
            result = result.and(self.server.load_cluster_parameters());
        }
        if invocation.report.default_concerns_changed && self.server.replica_set().is_some() {
            result = result.and(self.server.own_call(default_concerns::load));
        }
        if self.command.has_write_concern {
            self.client.only_waits();
        }
        // Of what it saw before that took effect the client is told afterwards, of an error that follows from it, too.
        if let Err(error) = self.server.storage.wait_observed(&invocation.operation) {
            result = result.and(Err(error.into()));
        }
        let waited = wait_for_concerns(&invocation, &result, generic.has_write_concern);
        // What a fail point injects is told of a call that came so far, and had none of its own.
        let injected = failure.and_then(|failure| failure.write_concern_error);
        let cannot = match waited {
            Ok(cannot) => cannot.or(injected.filter(|_| result.is_ok())),
            Err(error) => {
                result = result.and(Err(error));
                None
            }
        };
        if let Some(cannot) = cannot {
            in_session::tell_write_concern_error(&invocation, cannot, &mut result, reply);
        }
        if let Err(error) = &mut result
            && !is_labelled
        {
            in_session::label(&invocation, error, is_refused);
        }
        if result.is_ok() {
            reply.double("ok", 1.0);
        }
        self.server.tell_catalog_changes(self.client, &invocation.operation);
        invocation.audit_call(&result);
        self.client.end();
        let outcome = Outcome {
            more_to_come: invocation.report.more_to_come && result.is_ok(),
            close: closes,
            no_reply: closes,
            shutdown: invocation.report.shutdown && result.is_ok(),
            put_off: false,
        };
        self.account(&invocation, started, &profiling, &result, reply.len());
        (result, outcome)
    }

    /// The request waits without a thread, for its turn or for an event, and will be handled anew.
    fn put_off(
        &self,
        invocation: Invocation<'_>,
        started: Duration,
        failure: Option<Failure>,
        waiting: Option<Waiting>,
    ) -> (Result<()>, Outcome) {
        let request = PutOff {
            operation: invocation.operation,
            started,
            waited: invocation.report.waited,
            idle: invocation.report.idle.get(),
            since: self.server.env.clock.monotonic(),
            failure,
            waiting,
            parked: invocation.parked,
        };
        self.client.put_off(request);
        let outcome = Outcome {
            put_off: true,
            ..Outcome::default()
        };
        (Ok(()), outcome)
    }

    /// The operation begins. The last one tells whether the use of its session is to be noted.
    fn begin(&self, generic: &Generic<'_>) -> (Arc<Operation>, Duration, bool) {
        let started = self.server.env.clock.monotonic();
        let operation = self.server.new_operation();
        if generic.max_time_ms > 0 && self.command.name != "getMore" {
            operation.set_deadline_ms(generic.max_time_ms);
        }
        let begun = Begun {
            command: self.command.name,
            database: generic.database,
            body: &self.command.shown(self.request.body),
            started,
            session: generic.session,
            transaction: generic.transaction.and_then(TransactionFields::transaction_number),
            // Without a reply it is of even less use, and must not wait for longer than its connection lasts.
            ends_with_client: (self.command.ends_with_client)(self.request.body),
        };
        let is_new_use = self.server.begin(self.client, &operation, &begun);
        (operation, started, is_new_use)
    }

    /// Takes the ticket that the command needs (see [`crate::tickets`]), or a place in the queue.
    fn take_turn(&self, invocation: &Invocation<'_>, waiting: Option<Waiting>) -> Result<Next> {
        let is_statement = invocation
            .transaction_fields
            .is_some_and(|fields| fields.is_transaction);
        let Some(pool) = self.server.tickets.of(self.command.kind).filter(|_| !is_statement) else {
            return Ok(Next::Run);
        };
        // Whoever hears of no refusal waits, however many do: its connection reads no further meanwhile.
        let queue = match self.request.has_reply {
            true => Queue::Bounded,
            false => Queue::Unbounded,
        };
        if self.request.is_too_many && queue == Queue::Bounded {
            return Err(pool.refuse());
        }
        let ticket = match (waiting, self.request.resume) {
            (Some(waiting), _) => waiting.finish()?,
            (None, None) => pool.take(&invocation.operation, queue)?,
            (None, Some(resume)) => match pool.take_or_queue(&invocation.operation, queue, resume)? {
                Turn::Now(ticket) => ticket,
                Turn::Later(waiting) => return Ok(Next::Wait(waiting)),
            },
        };
        invocation.ticket.set(Some(ticket));
        Ok(Next::Run)
    }

    /// What a fail point does to the call. Waits if that is what it does.
    fn fail(&self, invocation: &Invocation<'_>) -> Result<Option<Failure>> {
        let namespace = || match invocation.target() {
            Ok(RawBsonRef::String(collection)) => format!("{}.{collection}", invocation.database),
            _ => invocation.database.to_owned(),
        };
        // A client's first hello is the one that names its application.
        let named_now = || {
            let client = invocation.body.get_document("client").ok()?;
            let application = client.get_document("application").ok()?;
            application.get_str("name").ok().map(str::to_owned)
        };
        let application = || self.client.application_name().or_else(named_now);
        let random = &*self.server.env.random;
        let points = &self.server.fail_points;
        if invocation.max_time_ms > 0 {
            points.enter_limit(random)?;
        }
        let failure = points.enter(self.command, application, namespace, random);
        if let Some(time) = failure.as_ref().and_then(|failure| failure.blocks) {
            let _asleep = vfs::asleep();
            let until = self.server.env.clock.monotonic() + time;
            while self.server.env.clock.monotonic() < until {
                invocation.operation.check_now().map_err(StorageError::from)?;
                #[expect(clippy::disallowed_methods, reason = "it was asked for")]
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        Ok(failure)
    }

    /// Whether a member in its role may carry the command out.
    fn check_role(&self, generic: &Generic<'_>) -> Result<()> {
        let Some(set) = self.server.replica_set() else {
            // Data of a member that has others: what it wrote by itself would not be theirs.
            return match self.command.secondary_ok || self.server.storage.leads() || is_read(self.command) {
                true => Ok(()),
                false => Err(CommandError::new(
                    ErrorCode::IllegalOperation,
                    "the data are those of a member of a replica set with others: start with --replSet to write",
                )),
            };
        };
        if set.is_writable() || matches!(self.command.access, Access::Open) {
            return Ok(());
        }
        if !self.command.secondary_ok {
            return Err(CommandError::new(ErrorCode::NotWritablePrimary, "not primary"));
        }
        if generic.read_concern.level == ReadLevel::Linearizable {
            return Err(CommandError::new(
                ErrorCode::NotWritablePrimary,
                "cannot satisfy linearizable read concern on non-primary node",
            ));
        }
        let reads = is_read(self.command);
        // Its own documents are there in every role.
        if !(reads || is_read_anywhere(self.command)) || generic.database == "local" {
            return Ok(());
        }
        // Where it takes writes no more, and did when the client chose it, too.
        if reads && !generic.secondary_ok && self.request.legacy_database.is_none() {
            return Err(CommandError::new(
                ErrorCode::NotPrimaryNoSecondaryOk,
                "not primary and secondaryOk=false",
            ));
        }
        match set.role() {
            Role::Primary | Role::Secondary => Ok(()),
            _ => Err(CommandError::new(
                ErrorCode::NotPrimaryOrSecondary,
                "node is not in primary or recovering state",
            )),
        }
    }

    /// Counts the finished call, and logs it when it was slow.
    fn account(
        &self,
        invocation: &Invocation<'_>,
        started: Duration,
        profiling: &Setting,
        result: &Result<()>,
        reply_bytes: usize,
    ) {
        let server = self.server;
        let time = server.env.clock.monotonic().saturating_sub(started);
        let kind = self.command.kind;
        let metrics = &server.metrics;
        match kind {
            OperationKind::Query if matches!(self.command.name, "find" | "count" | "distinct" | "aggregate") => {
                metrics.operations.query.add(u64::from(self.command.name == "find"))
            }
            OperationKind::GetMore => metrics.operations.getmore.add(1),
            _ => {}
        }
        if !matches!(self.command.name, "find" | "getMore" | "insert" | "update" | "delete") {
            metrics.operations.command.add(1);
        }
        // A client that has the server wait for news gets no slow answer.
        let latency = time.saturating_sub(invocation.report.idle.get());
        metrics.latencies.record(kind, latency);
        if let Some(namespace) = &invocation.report.namespace {
            let catalog = server.storage.catalog();
            let exists = || catalog.collection(namespace).is_some() || catalog.view(namespace).is_some();
            metrics.top.record(namespace.as_str(), kind, latency, exists);
        }
        let counters = invocation.operation.counters();
        metrics.queries.scanned.add(counters.keys_examined.get());
        metrics.queries.scanned_objects.add(counters.docs_examined.get());
        metrics.queries.write_conflicts.add(counters.write_conflicts.get());
        metrics.queries.document_wait_us.add(counters.document_wait_us.get());
        metrics.queries.scan_and_order.add(counters.has_sort_stage.get());
        metrics.blocking.add(counters);
        if invocation.report.plan_summary.starts_with("COLLSCAN") {
            metrics.queries.collection_scans.add(1);
        }
        if let Some(n) = invocation.report.n_returned {
            metrics.documents.returned.add(n);
        }
        let slow_ms = server.parameters.slow_ms.load(Ordering::Relaxed);
        if self.command.name == "hello" {
            return;
        }
        let working = latency.saturating_sub(invocation.report.waited);
        // What waits for its turn is no reason to look at its plan.
        let is_slow = working.as_millis() as i64 >= slow_ms.max(0);
        let attributes = || self.attributes(invocation, (time, working), result, reply_bytes);
        let entry = || self.profile_entry(invocation, attributes());
        // A cursor that follows the profile would find its own last step for ever.
        let namespace = invocation.report.namespace.as_ref();
        let is_following =
            kind == OperationKind::GetMore && namespace.is_some_and(|ns| ns.collection() == profiler::COLLECTION);
        let is_logged = profile::is_found(invocation, profiling, is_slow, &entry);
        let is_profiled = match profiling.level {
            _ if is_following => false,
            ProfilingLevel::Off => false,
            ProfilingLevel::Slow => is_logged,
            ProfilingLevel::All => true,
        };
        if is_logged || server.logger.enabled(Component::Command, 1) {
            self.log_slow(attributes());
        }
        if is_profiled {
            server.write_profile(invocation.database, &entry());
        }
    }

    /// The document of `system.profile`.
    #[cold]
    fn profile_entry(&self, invocation: &Invocation<'_>, attributes: Document) -> Document {
        let mut entry = doc! { "op": self.command.kind.op(self.command.name) };
        for (name, value) in attributes {
            match name.as_str() {
                "type" => {}
                // MongoDB has other names for these here.
                "numYields" => drop(entry.insert("numYield", value)),
                "reslen" => drop(entry.insert("responseLength", value)),
                "durationMillis" => drop(entry.insert("millis", value)),
                "remote" => drop(entry.insert("client", value)),
                _ => drop(entry.insert(name, value)),
            }
        }
        entry.insert("ts", bson::DateTime::from_millis(self.server.env.clock.now_ms()));
        let user = invocation.rights.user();
        let all = user.map(|user| Bson::from(doc! { "user": &user.user, "db": &user.database }));
        entry.insert("allUsers", all.into_iter().collect::<Vec<_>>());
        entry.insert(
            "user",
            user.map_or_else(String::new, |user| format!("{}@{}", user.user, user.database)),
        );
        entry
    }

    #[cold]
    fn log_slow(&self, attributes: Document) {
        let context = format!("conn{}", self.client.id());
        self.server
            .logger
            .log(id::SLOW_QUERY, &context, "Slow query", attributes);
    }

    /// What log lines and `system.profile` tell of a call that took so long, and worked so long.
    #[cold]
    fn attributes(
        &self,
        invocation: &Invocation<'_>,
        (time, working): (Duration, Duration),
        result: &Result<()>,
        reply_bytes: usize,
    ) -> Document {
        let report = &invocation.report;
        let namespace = report.namespace.as_ref().map_or(invocation.database, |ns| ns.as_str());
        let mut attributes = doc! { "type": "command", "ns": namespace };
        if let Some(name) = self.client.application_name() {
            attributes.insert("appName", name);
        }
        attributes.insert("command", command_for_log(&self.command.shown(invocation.body)));
        if !report.plan_summary.is_empty() {
            attributes.insert("planSummary", &*report.plan_summary);
        }
        if let Some(hash) = invocation.shape_hash() {
            attributes.insert("queryShapeHash", hash.to_string());
        }
        if let Some(id) = report.cursor_id {
            attributes.insert("cursorid", id);
        }
        let counters = invocation.operation.counters();
        // All of them, so that a new one has its place here or a reason to have none.
        let OperationCounters {
            docs_examined,
            keys_examined,
            yields,
            write_conflicts,
            keys_inserted,
            keys_deleted,
            document_wait_us,
            has_sort_stage,
            // `serverStatus` sums these up.
            keys_sorted: _,
            sorted_bytes: _,
            // Added as documents.
            locks: _,
            spilled: _,
        } = counters;
        attributes.insert("keysExamined", keys_examined.get() as i64);
        attributes.insert("docsExamined", docs_examined.get() as i64);
        if has_sort_stage.get() > 0 {
            attributes.insert("hasSortStage", true);
        }
        add_spills(counters, &mut attributes);
        if report.cursor_exhausted {
            attributes.insert("cursorExhausted", true);
        }
        let written = [
            ("nreturned", report.n_returned),
            ("ninserted", report.n_inserted),
            ("nMatched", report.n_matched),
            ("nModified", report.n_modified),
            ("nUpserted", report.n_upserted),
            ("ndeleted", report.n_deleted),
        ];
        for (name, value) in written {
            if let Some(value) = value {
                attributes.insert(name, value as i64);
            }
        }
        for (name, keys) in [("keysInserted", keys_inserted), ("keysDeleted", keys_deleted)] {
            if keys.get() > 0 {
                attributes.insert(name, keys.get() as i64);
            }
        }
        attributes.insert("writeConflicts", write_conflicts.get() as i64);
        if document_wait_us.get() > 0 {
            attributes.insert("documentLockWaitMicros", document_wait_us.get() as i64);
        }
        attributes.insert("numYields", yields.get() as i64);
        attributes.insert("reslen", reply_bytes as i64);
        if let Err(error) = result {
            attributes.insert("ok", 0);
            attributes.insert("errMsg", &error.message);
            attributes.insert("errName", error.code.name());
            attributes.insert("errCode", error.code.0);
        }
        attributes.insert("locks", locks_document(counters));
        attributes.insert("remote", self.client.peer().as_str());
        attributes.insert(
            "protocol",
            if self.request.legacy_database.is_some() {
                "op_query"
            } else {
                "op_msg"
            },
        );
        attributes.insert("workingMillis", working.as_millis() as i64);
        attributes.insert("durationMillis", time.as_millis() as i64);
        attributes
    }
}

/// With access control: whether the caller may run the command.
fn admit(call: &mut Invocation<'_>, is_first: bool) -> Result<()> {
    if call.server.access.is_enabled() {
        call.rights = grants::current(call)?;
        let checked = check(call);
        // A request that was put off was checked before it waited, and told of then.
        if is_first && !matches!(call.command.access, Access::Open) {
            call.audit_check(&checked);
        }
        checked?;
    }
    Ok(())
}

/// Whether the caller writes while users' writes are held off. Without access control nobody does.
fn may_write_always(call: &Invocation<'_>) -> bool {
    call.server.storage.are_user_writes_blocked()
        && matches!(call.rights, Rights::Of(_))
        && call.may(Target::Cluster, Action::BypassWriteBlockingMode)
}

/// The caller's session is used.
fn note_session(call: &Invocation<'_>) -> Result<()> {
    // Whoever has not proven to be anybody has no sessions.
    let (Some(id), false) = (call.session, matches!(call.rights, Rights::Nobody | Rights::First)) else {
        return Ok(());
    };
    let user = call.rights.session_user();
    let clock = &call.server.env.clock;
    let now = (clock.monotonic(), clock.now_ms());
    call.server
        .session_cache
        .touch(SessionKey { id, user }, &call.rights, now)
}

/// The command as log lines show it: long ones are cut.
fn command_for_log(body: &RawDocument) -> Bson {
    if body.as_bytes().len() > LOGGED_COMMAND_BYTES_MAX {
        let names: Vec<String> = body
            .into_iter()
            .flatten()
            .map(|(name, _)| name.as_str().to_owned())
            .collect();
        return Bson::Document(
            doc! { "$truncated": format!("a command of {} bytes with the fields {names:?}", body.as_bytes().len()) },
        );
    }
    Document::try_from(body).map_or(Bson::Null, Bson::Document)
}

/// Longer commands are not written to the log whole.
const LOGGED_COMMAND_BYTES_MAX: usize = 8 * 1024;
