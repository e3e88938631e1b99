//! The way in: a request becomes a call of one command, and exactly one reply.

mod accounting;
mod admission;
mod cluster_time;

use self::admission::Next;
use crate::audited::AuditEvent;
use crate::authorization::users_exist;
use crate::client::{Begun, Client, PutOff, WithoutClient};
use crate::command::default_concerns;
use crate::command::parameters::set_at_start;
use crate::concern_waits::{not_in_time, wait_for_concerns};
use crate::definition::{Command, InTransactions};
use crate::error::{CommandError, Result};
use crate::fail_points::Failure;
use crate::generic::Generic;
use crate::in_session;
use crate::invocation::{Invocation, Report};
use crate::logger::{Logger, id};
use crate::metrics::OperationKind;
use crate::not_built;
use crate::profiler::Setting;
use crate::reply::Reply;
use crate::request::Request;
use crate::rights::Rights;
use crate::server::Server;
use crate::settings::Settings;
use crate::table::COMMANDS;
use crate::tickets::Waiting;
use crate::transactions::TransactionFields;
use bson::doc;
use query::raw::Elements;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;
use storage::{Operation, Storage};
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
        // Whoever drops the last of them later must not open the way in for the first. An error keeps it shut: who
        // asks for that way has it checked again.
        if server.access.is_enabled()
            && let Err(error) = users_exist(&server)
        {
            let message = "It cannot be read whether there are users";
            let attributes = doc! { "error": error.message };
            server
                .logger
                .log(id::USERS_NOT_READ, "initandlisten", message, attributes);
        }
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
            injected: None,
            is_help: false,
        };
        let (mut result, outcome) = call.run(&mut reply);
        if outcome.put_off {
            reply.restart();
            reply.finish();
            return outcome;
        }
        let is_injected = call.injected.is_some();
        if result.is_ok() && reply.len() > REPLY_BYTES_MAX {
            result = Err(CommandError::too_large(reply.len()));
        }
        if !call.is_help {
            self.command_counters[place].total.add(1);
        }
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

/// One request on its way through.
struct Call<'c> {
    server: &'c Arc<Server>,
    client: &'c Arc<Client>,
    command: &'static Command,
    request: &'c Request<'c>,
    /// The error is a fail point's.
    injected: Option<Injected>,
    /// It asked what the command is, which is no call of it.
    is_help: bool,
}

/// An error that a fail point gives.
#[derive(Clone, Copy)]
struct Injected {
    /// With its own labels, instead of those that belong to its code.
    is_labelled: bool,
}

/// A call whose operation has begun.
struct Running<'i> {
    invocation: Invocation<'i>,
    started: Duration,
    /// The use of its session is to be noted.
    is_new_use: bool,
    /// As it was before: what turns profiling on is not profiled, what turns it off is.
    profiling: Setting,
    /// What a fail point is still going to do.
    failure: Option<Failure>,
}

impl<'c> Call<'c> {
    fn run(&mut self, reply: &mut Reply<'_>) -> (Result<()>, Outcome) {
        let generic = match self.read_generic() {
            Ok(generic) => generic,
            Err(error) => return (Err(error), Outcome::default()),
        };
        if self.server.is_shutting_down() {
            let mut error = CommandError::new(ErrorCode::InterruptedAtShutdown, "interrupted at shutdown");
            // Cursors are gone by now, and what they followed: of the others nobody asks for that label.
            let follows_changes = self.command.name == "getMore";
            in_session::label_as(self.command, generic.transaction, follows_changes, &mut error, true);
            let outcome = Outcome {
                close: true,
                ..Outcome::default()
            };
            return (Err(error), outcome);
        }
        if generic.help {
            self.is_help = true;
            // Before anything that is done, checked, waited for or counted for the sake of the command.
            reply.string(
                "help",
                &format!("help for: {} {}", self.command.name, self.command.help),
            );
            reply.double("ok", 1.0);
            return (Ok(()), Outcome::default());
        }
        let resumed = match self.request.is_resumed {
            true => self.client.take_put_off(),
            false => None,
        };
        let mut running = self.begin(&generic, resumed.as_ref());
        let next = self.enter(&generic, &mut running, resumed);
        let is_refused = next.is_err() && self.injected.is_none();
        let result = match next {
            Ok(Next::Wait(waiting)) => return self.put_off(running, Some(waiting)),
            Ok(Next::Run) => {
                let result = in_session::run(&mut running.invocation, reply);
                running.invocation.audit_refusal(&result);
                result
            }
            Ok(Next::Nothing) => Ok(()),
            Err(error) => Err(error),
        };
        // The waits for concerns, which come next, are not work.
        running.invocation.ticket.set(None);
        if running.invocation.report.parks {
            return self.put_off(running, None);
        }
        let mut result = self.conclude(&generic, &mut running, result, reply);
        if let Err(error) = &mut result
            && !self.injected.is_some_and(|injected| injected.is_labelled)
        {
            in_session::label(&running.invocation, error, is_refused);
        }
        if result.is_ok() {
            reply.double("ok", 1.0);
        }
        let invocation = &running.invocation;
        self.server.tell_catalog_changes(self.client, &invocation.operation);
        invocation.audit_call(&result);
        self.client.end();
        let closes = invocation.report.closes.get() || running.failure.as_ref().is_some_and(|failure| failure.closes);
        let outcome = Outcome {
            more_to_come: invocation.report.more_to_come && result.is_ok(),
            close: closes,
            no_reply: closes,
            shutdown: invocation.report.shutdown && result.is_ok(),
            put_off: false,
        };
        self.account(&running, &result, reply.len());
        let client = self.client;
        let name = || client.told_application();
        let api_versions = &self.server.metrics.api_versions;
        api_versions.note(&client.told_versions, generic.api.has_version, running.started, name);
        (result, outcome)
    }

    /// The fields that every command may carry, of a request that the command can be asked.
    fn read_generic(&self) -> Result<Generic<'c>> {
        let generic = Generic::read(self.request, self.command, &self.server.deployment())?;
        let is_told_each = |invalid: &InvalidDocument| {
            self.command.refuses_invalid_documents_each && self.command.batches.contains(&&*invalid.field)
        };
        if let Some(invalid) = self.request.invalid.iter().find(|invalid| !is_told_each(invalid)) {
            return Err(CommandError::new(ErrorCode::InvalidBSON, invalid.to_string()));
        }
        if self.command.admin_only && generic.database != "admin" {
            return Err(CommandError::new(
                ErrorCode::Unauthorized,
                format!("{} may only be run against the admin database.", self.command.name),
            ));
        }
        Ok(generic)
    }

    /// The operation begins, or goes on where it was put off.
    fn begin(&self, generic: &Generic<'c>, resumed: Option<&PutOff>) -> Running<'c> {
        let (operation, started, is_new_use) = match resumed {
            Some(put_off) => (Arc::clone(&put_off.operation), put_off.started, false),
            None => self.begin_operation(generic),
        };
        let (waited, idle) = resumed
            .map(|before| before.waits(self.server.env.clock.monotonic()))
            .unwrap_or_default();
        let invocation = Invocation {
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
        Running {
            invocation,
            started,
            is_new_use,
            profiling: self.server.profiler.get(generic.database),
            failure: None,
        }
    }

    /// The last one tells whether the use of its session is to be noted.
    fn begin_operation(&self, generic: &Generic<'_>) -> (Arc<Operation>, Duration, bool) {
        let started = self.server.env.clock.monotonic();
        let operation = self.server.new_operation();
        if generic.max_time_ms > 0 && self.command.name != "getMore" {
            operation.set_deadline_ms(generic.max_time_ms);
        }
        operation.set_commit_patience(self.commit_patience(generic));
        let begun = Begun {
            command: self.command.name,
            database: generic.database,
            body: &self.command.shown(self.request.body),
            sequences: self.request.sequences,
            started,
            session: generic.session,
            transaction: generic.transaction.and_then(TransactionFields::transaction_number),
            without_client: self.without_client(),
        };
        let is_new_use = self.server.begin(self.client, &operation, &begun);
        (operation, started, is_new_use)
    }

    /// How long a write of documents waits for others to have it: `wtimeout`, of which the client is told then. What
    /// defines collections, users and the like goes on from what it has written, and waits for that as long as it may.
    /// So does who asks for no more than the primary: `wtimeout` says nothing of that, and what is acknowledged stays.
    fn commit_patience(&self, generic: &Generic<'_>) -> Option<Duration> {
        let writes = matches!(
            self.command.kind,
            OperationKind::Insert | OperationKind::Update | OperationKind::Remove
        );
        let commits = match generic.transaction.and_then(TransactionFields::transaction_number) {
            Some(_) => self.command.in_transactions == InTransactions::Ends,
            None => writes,
        };
        let concern = &generic.write_concern;
        concern.timeout.filter(|_| commits && self.server.asks_others(concern))
    }

    /// What only reads is of no use once the client is gone. Without a reply that is of even less use, and must not
    /// wait for longer than its connection lasts. What changes one definition does not wait for a collection either:
    /// it would keep others out of that. All else may have written already.
    fn without_client(&self) -> WithoutClient {
        const ONE_DEFINITION: [&str; 6] = [
            "collMod",
            "createIndexes",
            "drop",
            "dropDatabase",
            "dropIndexes",
            "renameCollection",
        ];
        let is_one_definition = || self.request.has_reply && ONE_DEFINITION.contains(&self.command.name);
        match (self.command.ends_with_client)(self.request.body) {
            true => WithoutClient::Ends,
            false if is_one_definition() => WithoutClient::EndsUnlessBegun,
            false => WithoutClient::GoesOn,
        }
    }

    /// What follows the command, whatever it came to: other parts of the server take up what it changed, and the
    /// client hears of it once what it was told has the durability it asked for.
    fn conclude(
        &self,
        generic: &Generic<'_>,
        running: &mut Running<'_>,
        mut result: Result<()>,
        reply: &mut Reply<'_>,
    ) -> Result<()> {
        let invocation = &mut running.invocation;
        // A `getMore` that waited, and was refused when it went on, has fetched nothing.
        if let Some(cursor) = invocation.parked.take().and_then(|parked| parked.cursor) {
            self.server.cursors.check_in(cursor);
        }
        if invocation.report.cluster_parameters_changed {
            result = result.and(self.server.load_cluster_parameters());
        }
        if invocation.report.default_concerns_changed && self.server.replica_set().is_some() {
            result = result.and(self.server.own_call(default_concerns::load));
        }
        if self.command.has_write_concern {
            self.client.only_waits();
        }
        // Of what it saw before that took effect the client is told afterwards, of an error that follows from it, too;
        // and that it may not stay, where the time for that is over.
        let waited = match self.server.storage.wait_observed_patiently(&invocation.operation) {
            Ok(false) => Ok(not_in_time(invocation, &result)),
            observed => {
                if let Err(error) = observed {
                    result = result.and(Err(error.into()));
                }
                wait_for_concerns(invocation, &result, generic.has_write_concern)
            }
        };
        // What a fail point injects is told of a call that came so far, and had none of its own.
        let injected = running
            .failure
            .as_mut()
            .and_then(|failure| failure.write_concern_error.take());
        let cannot = match waited {
            Ok(cannot) => cannot.or(injected.filter(|_| result.is_ok())),
            Err(error) => {
                result = result.and(Err(error));
                None
            }
        };
        if let Some(cannot) = cannot {
            in_session::tell_write_concern_error(invocation, cannot, &mut result, reply);
        }
        result
    }

    /// The request waits without a thread, for its turn or for an event, and will be handled anew.
    fn put_off(&self, running: Running<'_>, waiting: Option<Waiting>) -> (Result<()>, Outcome) {
        let Running {
            invocation,
            started,
            failure,
            ..
        } = running;
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
}
