//! `getMore`, `killCursors`, and what all commands that answer with a cursor share.

use super::listing;
use crate::arguments::wrong_type;
use crate::authorization::{permitted, refused};
use crate::cursors::{CursorSource, Killed, OpenCursor};
use crate::definition::{Access, Command, InTransactions, ReadLevels};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use crate::stable_api::ApiParameters;
use auth::{Action, Target};
use bson::raw::{RawBsonRef, RawDocument};
use query::exec::{DocumentSink, ExecState, PlanExecutor, SinkState};
use std::sync::Arc;
use std::time::Duration;
use storage::{Namespace, StorageError};
use vfs::{Await, Registration, Waker};
use wire::ErrorCode;
use wire::limits::{DOCUMENT_BYTES_MAX, DOCUMENT_INTERNAL_BYTES_MAX};

/// `getMore`.
pub const GET_MORE: Command = Command::new(
    "getMore",
    "Fetches more results of a cursor.",
    OperationKind::GetMore,
    Access::User,
    get_more,
)
.ends_with_client()
.read_levels(ReadLevels::All)
.in_transactions(InTransactions::Allowed)
.secondary_ok()
.api_version_1();
/// `killCursors`.
pub const KILL_CURSORS: Command = Command::new(
    "killCursors",
    "Ends cursors.",
    OperationKind::Command,
    Access::User,
    kill_cursors,
)
.read_levels(ReadLevels::All)
.in_transactions(InTransactions::NotFirst)
.secondary_ok()
.api_version_1();

/// Documents of a first batch when the client names no size.
pub const FIRST_BATCH_DEFAULT: u64 = 101;
/// How long a tailable cursor waits for data when `getMore` names no time.
const AWAIT_DEFAULT: Duration = Duration::from_secs(1);

/// Copies results into the array that is open in a reply, up to a number of documents and the size of a reply.
pub struct BatchSink<'r, 'b> {
    reply: &'r mut Reply<'b>,
    /// Documents taken.
    pub count: u64,
    most: u64,
    /// The size of a document that no reply may hold; nothing was taken after it.
    too_large: Option<usize>,
}

impl<'r, 'b> BatchSink<'r, 'b> {
    /// Takes up to `most` documents.
    pub fn new(reply: &'r mut Reply<'b>, most: u64) -> Self {
        Self {
            reply,
            count: 0,
            most,
            too_large: None,
        }
    }

    /// How many documents were taken; fails (10334) when one is larger than a document may be.
    pub fn finish(self) -> Result<u64> {
        match self.too_large {
            Some(bytes) => Err(CommandError::too_large(bytes)),
            None => Ok(self.count),
        }
    }
}

impl DocumentSink for BatchSink<'_, '_> {
    fn wanted(&self) -> u64 {
        self.most.saturating_sub(self.count)
    }

    fn push(&mut self, document: &RawDocument) -> SinkState {
        if document.as_bytes().len() > DOCUMENT_INTERNAL_BYTES_MAX {
            self.too_large = Some(document.as_bytes().len());
            return SinkState::Refused;
        }
        if self.count > 0 && self.reply.len() + document.as_bytes().len() + 16 > DOCUMENT_BYTES_MAX {
            return SinkState::Refused;
        }
        self.reply.element(self.count as usize, document);
        self.count += 1;
        if self.count >= self.most {
            SinkState::Full
        } else {
            SinkState::Continue
        }
    }
}

/// How a command wants its cursor.
pub struct CursorRequest {
    /// What the cursor belongs to: `db.collection` or `db.$cmd.aggregate`.
    pub namespace: Namespace,
    /// Documents of the first batch.
    pub batch: u64,
    /// No cursor is kept.
    pub single_batch: bool,
    /// Never times out.
    pub no_timeout: bool,
    /// As in `find`.
    pub tailable: bool,
    /// As in `find`.
    pub await_data: bool,
}

/// Answers with the first batch of a plan and keeps a cursor when more is left.
pub fn reply_with_plan(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    mut executor: PlanExecutor,
    request: CursorRequest,
) -> Result<()> {
    reply.open_document("cursor");
    reply.open_array("firstBatch");
    let mut returned = 0;
    let mut state = ExecState::More;
    if request.batch > 0 {
        let mut sink = BatchSink::new(reply, request.batch);
        state = executor.next_documents(&call.context(), &mut sink)?;
        returned = sink.finish()?;
    } else if request.tailable && executor.is_dead() {
        state = ExecState::Exhausted;
    }
    reply.close();
    write_resume_token(reply, &executor);
    let keep = !request.single_batch && state != ExecState::Exhausted;
    let mut id = 0;
    call.report.n_returned = Some(returned);
    if keep {
        executor.release();
        id = call.server.cursors.new_id();
        let plan_summary = call.report.plan_summary.clone();
        call.server.cursors.add(OpenCursor {
            id,
            namespace: request.namespace.as_str().into(),
            source: CursorSource::Plan(Box::new(executor)),
            session: call.session,
            pinned: call.pinned.clone(),
            transaction: call.transaction_number(),
            grant: call.rights.grant(),
            no_timeout: request.no_timeout,
            tailable: request.tailable,
            await_data: request.await_data,
            max_time_ms: if request.tailable {
                0
            } else {
                call.operation
                    .time_left()
                    .map_or(0, |left| left.as_millis().max(1) as u64)
            },
            originating: call.body.to_owned().into(),
            plan_summary,
            created_ms: call.server.env.clock.now_ms(),
            returned,
            last_used: Duration::ZERO,
        });
        call.report.cursor_id = Some(id);
    } else {
        call.report.cursor_exhausted = true;
    }
    reply.int64("id", id);
    reply.string("ns", request.namespace.as_str());
    write_moment(call, reply);
    reply.close();
    Ok(())
}

/// May the caller still do what made the cursor? Only asked when its rights have been worked out anew since.
fn may_go_on(call: &Invocation<'_>, cursor: &OpenCursor) -> Result<bool> {
    let (Rights::Of(now), Some(then)) = (&call.rights, &cursor.grant) else {
        return Ok(true);
    };
    if Arc::ptr_eq(now, then) {
        return Ok(true);
    }
    let database = cursor.namespace.split_once('.').map_or("", |(database, _)| database);
    let name = cursor.originating.iter().next().transpose()?.map(|(name, _)| name);
    let command = name.and_then(|name| call.server.commands.find(name.as_str()));
    let Some((command, _)) = command else {
        return Ok(false);
    };
    // `bulkWrite` is run on `admin` and its cursor holds nothing but what it did.
    Ok(command.name == "bulkWrite" || permitted(&call.within(command, &cursor.originating, database))?)
}

fn check_goes_on(call: &Invocation<'_>, cursor: &OpenCursor) -> Result<()> {
    if !may_go_on(call, cursor)? {
        return Err(CommandError::new(
            ErrorCode::Unauthorized,
            format!("not authorized for getMore with cursor id {}", cursor.id),
        ));
    }
    let made_by = ApiParameters::of(&cursor.originating)?;
    ApiParameters::of(call.body)?.check_cursor(made_by)
}

/// Only who waits for data says for how long.
fn check_time(call: &Invocation<'_>, cursor: &OpenCursor) -> Result<()> {
    let is_given = || {
        let limit = call.body.get("maxTimeMS");
        limit.map(|limit| limit.is_some_and(|limit| limit != RawBsonRef::Null))
    };
    match !cursor.awaits() && is_given()? {
        true => Err(CommandError::bad_value(
            "cannot set maxTimeMS on getMore command for a non-awaitData cursor",
        )),
        false => Ok(()),
    }
}

/// Where a change stream goes on with what this reply has.
fn write_resume_token(reply: &mut Reply<'_>, executor: &PlanExecutor) {
    if let Some(token) = executor.resume_token() {
        reply.document("postBatchResumeToken", &token.to_document());
    }
}

/// The time that was read, for those who want to read it again.
pub fn write_moment(call: &Invocation<'_>, reply: &mut Reply<'_>) {
    if let Some(pinned) = &call.pinned {
        reply.value("atClusterTime", &pinned.time.to_timestamp().into());
    }
}

fn get_more(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let target = call.target()?;
    let RawBsonRef::Int64(id) = target else {
        return Err(wrong_type("getMore", "getMore", target, "type 'long'"));
    };
    let arguments = call.arguments();
    let mut collection = None;
    let mut batch = None;
    call.for_each_field(|name, value| {
        match name {
            "collection" => collection = Some(arguments.string(name, value)?),
            "batchSize" if matches!(value, RawBsonRef::Null) => {}
            "batchSize" => batch = Some(arguments.non_negative(name, value)? as u64).filter(|size| *size > 0),
            "lastKnownCommittedOpTime" | "term" => {}
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let collection = collection.ok_or_else(|| crate::arguments::missing_field("getMore", "collection"))?;
    let namespace = format!("{}.{collection}", call.database);
    if !collection.starts_with("$cmd.") {
        call.report.namespace = Namespace::new(call.database, collection).ok();
    }
    let waited_with = call.parked.as_mut().and_then(|parked| parked.cursor.take());
    let is_first = waited_with.is_none();
    let mut cursor = match waited_with {
        Some(cursor) => cursor,
        None => call.server.cursors.check_out(
            id,
            &namespace,
            (call.session, call.transaction_number()),
            &call.rights,
            &call.operation,
        )?,
    };
    call.report.originating = Some(Arc::clone(&cursor.originating));
    // What a request may not ask ends it, and not its cursor.
    if let Err(error) = check_goes_on(call, &cursor).and_then(|()| check_time(call, &cursor)) {
        call.server.cursors.check_in(cursor);
        return Err(error);
    }
    call.pinned.clone_from(&cursor.pinned);
    call.report.is_change_stream = cursor.follows_changes();
    let entered = match is_first {
        true => call.server.fail_points.enter_get_more(&*call.server.env.random),
        // Who is killed while it waits hears of that, though what it waits for has come since.
        false => call
            .operation
            .check_now()
            .map_err(|killed| StorageError::from(killed).into()),
    };
    match entered.and_then(|()| fetch(call, reply, &mut cursor, batch)) {
        Ok(Fetched::Later { waker, place, until }) => {
            call.park(waker, place, until, Some(cursor));
            return Ok(());
        }
        Ok(Fetched::More) => {
            reply.int64("id", id);
            call.report.cursor_id = Some(id);
            call.report.more_to_come = call.exhaust_allowed;
            if call.exhaust_allowed {
                call.client.streams(id);
            }
            call.server.cursors.check_in(cursor);
        }
        Ok(Fetched::All) => {
            reply.int64("id", 0);
            call.report.cursor_exhausted = true;
            call.server.cursors.finish(id);
        }
        Err(error) => {
            call.server.cursors.finish(id);
            return Err(error);
        }
    }
    reply.string("ns", &namespace);
    write_moment(call, reply);
    reply.close();
    Ok(())
}

/// What a `getMore` comes to.
enum Fetched {
    /// There may be more.
    More,
    /// That was all.
    All,
    /// There is nothing yet, and it waits.
    Later {
        waker: Arc<Waker>,
        place: Registration,
        until: Duration,
    },
}

impl Fetched {
    fn of(is_open: bool) -> Self {
        match is_open {
            true => Self::More,
            false => Self::All,
        }
    }
}

/// Writes `cursor: { nextBatch: […]`, unless it waits.
fn fetch(
    call: &mut Invocation<'_>,
    reply: &mut Reply<'_>,
    cursor: &mut OpenCursor,
    batch: Option<u64>,
) -> Result<Fetched> {
    let awaits = cursor.awaits();
    if cursor.max_time_ms > 0 {
        call.operation.set_deadline_ms(cursor.max_time_ms);
        call.server.fail_points.enter_limit(&*call.server.env.random)?;
    }
    reply.open_document("cursor");
    reply.open_array("nextBatch");
    let most = batch.unwrap_or(u64::MAX);
    let (returned, fetched) = match &mut cursor.source {
        CursorSource::Documents(rest, _) => {
            let returned = listing::fill(reply, rest, batch.map(|most| most as usize)) as u64;
            (returned, Fetched::of(rest.len() > 0))
        }
        CursorSource::Backup(rest, _) => {
            let returned = listing::fill(reply, rest, batch.map(|most| most as usize)) as u64;
            (returned, Fetched::More)
        }
        CursorSource::Plan(executor) => {
            let plan_summary = cursor.plan_summary.clone();
            call.set_plan_summary(plan_summary);
            let until = awaits.then(|| {
                call.patient_until(match call.max_time_ms {
                    0 => AWAIT_DEFAULT,
                    limit => Duration::from_millis(limit),
                })
            });
            let (returned, fetched) = fetch_plan(call, reply, executor, most, until)?;
            if let Fetched::Later { .. } = fetched {
                return Ok(fetched);
            }
            (returned, fetched)
        }
    };
    reply.close();
    if let CursorSource::Plan(executor) = &cursor.source {
        write_resume_token(reply, executor);
    }
    cursor.returned += returned;
    if let Some(left) = call.operation.time_left().filter(|_| !awaits) {
        cursor.max_time_ms = left.as_millis().max(1) as u64;
    }
    call.report.n_returned = Some(returned);
    Ok(fetched)
}

fn fetch_plan(
    call: &Invocation<'_>,
    reply: &mut Reply<'_>,
    executor: &mut PlanExecutor,
    most: u64,
    until: Option<Duration>,
) -> Result<(u64, Fetched)> {
    let context = call.context();
    loop {
        let mut sink = BatchSink::new(reply, most);
        let state = executor.next_documents(&context, &mut sink)?;
        let returned = sink.finish()?;
        let until = until.filter(|until| call.server.env.clock.monotonic() < *until);
        match (state, until) {
            (ExecState::Exhausted, _) => return Ok((returned, Fetched::All)),
            (ExecState::CaughtUp, Some(until)) if returned == 0 => {
                // Who writes what it waits for needs one.
                call.ticket.set(None);
                call.operation.check_now().map_err(StorageError::from)?;
                let may_be_there = match call.waker() {
                    Some(waker) => match executor.call_at_data(&context, &waker)? {
                        Await::Later(place) => return Ok((0, Fetched::Later { waker, place, until })),
                        Await::Now => true,
                        Await::Never => false,
                    },
                    None => {
                        let left = until.saturating_sub(call.server.env.clock.monotonic());
                        call.idle(|| executor.wait_for_data(&context, left))?
                    }
                };
                if !may_be_there {
                    return Ok((returned, Fetched::More));
                }
            }
            _ => return Ok((returned, Fetched::More)),
        }
    }
}

/// Whoever made the cursor may kill it, and who may kill all of what it belongs to. A cursor that is not there is
/// nobody's.
fn may_kill(call: &Invocation<'_>, id: i64) -> bool {
    let Some(namespace) = call.server.cursors.namespace_of_others(id, &call.rights) else {
        return true;
    };
    let target = match namespace.split_once('.') {
        Some((database, name)) if !name.starts_with("$cmd.") => Target::Collection(database, name),
        Some((database, _)) => Target::Database(database),
        None => Target::Database(&namespace),
    };
    call.may(target, Action::KillAnyCursor)
}

fn kill_cursors(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    // Cursors of listings and of `aggregate: 1` belong to no collection.
    if !matches!(call.target()?, RawBsonRef::String(name) if name.starts_with("$cmd.")) {
        call.namespace()?;
    }
    let mut ids = None;
    call.for_each_field(|name, value| {
        if name == "cursors" {
            let mut listed = Vec::new();
            for (index, id) in arguments.array(name, value)?.into_iter().enumerate() {
                match id? {
                    RawBsonRef::Int64(id) => listed.push(id),
                    other => {
                        let place = format!("cursors.{index}");
                        return Err(wrong_type(arguments.command, &place, other, "type 'long'"));
                    }
                }
            }
            ids = Some(listed);
        }
        Ok(name == "cursors")
    })?;
    let ids = ids.ok_or_else(|| crate::arguments::missing_field("killCursors", "cursors"))?;
    if ids.is_empty() {
        return Err(CommandError::new(
            ErrorCode::BadValue,
            "Must specify at least one cursor id in: cursors",
        ));
    }
    let any = call.may(Target::Cluster, Action::KillAnyCursor);
    if !any && !ids.iter().all(|id| may_kill(call, *id)) {
        return Err(refused(call));
    }
    let (killed, missing): (Vec<i64>, Vec<i64>) = ids
        .into_iter()
        .partition(|id| call.server.cursors.kill(*id) == Killed::Gone);
    for (name, ids) in [
        ("cursorsKilled", killed),
        ("cursorsNotFound", missing),
        ("cursorsAlive", vec![]),
        ("cursorsUnknown", vec![]),
    ] {
        reply.open_array(name);
        for (index, id) in ids.into_iter().enumerate() {
            reply.int64(&index.to_string(), id);
        }
        reply.close();
    }
    Ok(())
}
