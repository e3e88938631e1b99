//! What a call passes before it runs: rights, limits, fail points, the member's role, times, and its turn.

use super::{Call, Injected, Running};
use crate::authorization::check;
use crate::client::PutOff;
use crate::command::grants;
use crate::concerns::ReadLevel;
use crate::default_time;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::fail_points::Failure;
use crate::generic::Generic;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::Role;
use crate::rights::Rights;
use crate::tickets::{Queue, Turn, Waiting};
use auth::{Action, Target};
use bson::raw::RawBsonRef;
use std::time::Duration;
use storage::{SessionKey, StorageError};
use wire::ErrorCode;

/// What comes next for a request that may be carried out.
pub(super) enum Next {
    Run,
    /// It is put off until it has a ticket.
    Wait(Waiting),
    /// A fail point closes the connection.
    Nothing,
}

impl Call<'_> {
    /// Takes the call, or goes on with it from where it was put off, as far as it may come.
    pub(super) fn enter(
        &mut self,
        generic: &Generic<'_>,
        running: &mut Running<'_>,
        resumed: Option<PutOff>,
    ) -> Result<Next> {
        let invocation = &mut running.invocation;
        let is_resumed = resumed.is_some();
        let is_first = !is_resumed && !self.request.is_repeated;
        let admitted = admit(invocation, is_first);
        invocation.operation.set_users(!may_write_always(invocation));
        if !generic.has_max_time {
            default_time::limit(invocation, is_resumed);
        }
        let (waiting, failure) = match resumed {
            Some(before) => {
                // With it whatever the call comes to: the cursor that waited goes back.
                invocation.parked = before.parked;
                (before.waiting, before.failure)
            }
            None => (None, None),
        };
        admitted?;
        if running.is_new_use {
            note_session(invocation)?;
        }
        running.failure = match is_resumed {
            true => failure,
            false => self.fail(invocation)?,
        };
        if let Some(failure) = &mut running.failure {
            if let Some((error, is_labelled)) = failure.error.take() {
                self.injected = Some(Injected { is_labelled });
                return Err(error);
            }
            if failure.closes {
                return Ok(Next::Nothing);
            }
        }
        self.check_role(generic)?;
        self.see_time(generic, invocation)?;
        self.wait_for_time(generic, invocation)?;
        self.take_turn(invocation, waiting)
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
