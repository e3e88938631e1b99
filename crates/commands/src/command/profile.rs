//! `profile`, and the documents of `system.profile`.
//!
//! On a server that is no member of a replica set it is a capped collection like others. On a member it is one in
//! memory, of this member alone: the log is all members', and each of them has operations of its own, secondaries, too.

use crate::arguments::{is_generic, number_as_i64};
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::{Invocation, Report};
use crate::logger::id;
use crate::metrics::OperationKind;
use crate::profiler::{BYTES, COLLECTION, LOCAL_BYTES_MAX, ProfileFilter, ProfilingLevel};
use crate::reply::Reply;
use crate::server::Server;
use auth::{Action, Target};
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, doc, rawdoc};
use query::expression::ExpressionContext;
use query::matcher::Matcher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use storage::{CappedLimits, LockMode, Namespace, Operation, StorageError};
use wire::ErrorCode;

/// `profile`.
pub const PROFILE: Command = Command::new(
    "profile",
    "Has operations of a database written to system.profile.",
    OperationKind::Command,
    Access::Fields(access),
    run,
)
.secondary_ok();

/// So long an operation's document may wait to be written: somebody may hold all writes back.
const PATIENCE_MS: u64 = 1000;

/// What `profile` needs: who may read what is written may ask how much is.
fn access(call: &Invocation<'_>) -> Result<bool> {
    if call.may(Target::Database(call.database), Action::EnableProfiler) {
        return Ok(true);
    }
    let mut asks = number_as_i64(call.target()?) == Some(-1);
    for element in call.body.into_iter().skip(1) {
        asks &= is_generic(element?.0.as_str().as_bytes());
    }
    Ok(asks && call.may(Target::Collection(call.database, COLLECTION), Action::Find))
}

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let number = arguments.integer("profile", call.target()?)?;
    let (mut slow_ms, mut sample_rate) = (None, None);
    // Of those that are given: that there is none is one, too.
    let mut filter = None;
    let was = call.server.profiler.get(call.database);
    // The filter outlives the call.
    let parsing = ExpressionContext::new(call.operation.started_ms(), Arc::clone(&call.server.env.random));
    call.for_each_field(|name, value| {
        match (name, value) {
            ("slowms", value) => slow_ms = Some(arguments.integer(name, value)?),
            ("sampleRate", value) => sample_rate = Some(rate(value)?),
            ("filter", RawBsonRef::String("unset")) => filter = Some(None),
            ("filter", value) => {
                let document = arguments.document(name, value)?;
                filter = Some(Some(Arc::new(ProfileFilter {
                    document: Document::try_from(document)?,
                    matcher: Matcher::parse(document, &parsing)?,
                })));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let level = match number {
        -1 => None,
        number => Some(ProfilingLevel::of_number(number).ok_or_else(|| {
            CommandError::bad_value(format!("profiling level must be one of -1, 0, 1 and 2, not {number}"))
        })?),
    };
    let parameters = &call.server.parameters;
    reply.int32("was", was.level as i32);
    reply.count("slowms", parameters.slow_ms.load(Ordering::Relaxed));
    reply.double("sampleRate", call.server.profiler.sample_rate());
    if let Some(filter) = &was.filter {
        reply.value("filter", &filter.document.clone().into());
        reply.string("note", "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines.");
    }
    // Who only asks makes no collection.
    if level.is_some_and(|level| level != ProfilingLevel::Off) {
        if call.database == "local" {
            return Err(CommandError::bad_value("the database local is not profiled"));
        }
        make(
            call.server,
            &call.operation,
            &Namespace::new(call.database, COLLECTION)?,
        )?;
    }
    if let Some(slow_ms) = slow_ms {
        parameters.slow_ms.store(slow_ms, Ordering::Relaxed);
    }
    if let Some(rate) = sample_rate {
        call.server.profiler.set_sample_rate(rate);
    }
    if level.is_none() && filter.is_none() {
        return Ok(());
    }
    call.server.profiler.update(call.database, |setting| {
        // What is not given stays as it is now: somebody else may have changed it since it was read above.
        setting.level = level.unwrap_or(setting.level);
        if let Some(filter) = filter {
            setting.filter = filter;
        }
    });
    Ok(())
}

fn rate(value: RawBsonRef<'_>) -> Result<f64> {
    let rate = match value {
        RawBsonRef::Double(rate) => rate,
        RawBsonRef::Int32(rate) => f64::from(rate),
        RawBsonRef::Int64(rate) => rate as f64,
        RawBsonRef::Decimal128(rate) => rate.to_string().parse().unwrap_or(f64::NAN),
        other => {
            return Err(crate::arguments::wrong_type(
                "profile",
                "sampleRate",
                other,
                "types '[double, int, long, decimal]'",
            ));
        }
    };
    match (0.0..=1.0).contains(&rate) {
        true => Ok(rate),
        false => Err(CommandError::bad_value(format!(
            "'sampleRate' must be a number from 0 to 1, not {rate}"
        ))),
    }
}

/// Makes the collection, if there is none.
fn make(server: &Server, operation: &Operation, namespace: &Namespace) -> Result<()> {
    if server.replica_set().is_some() {
        let limits = CappedLimits {
            size_bytes: BYTES.unsigned_abs(),
            max_documents: None,
        };
        return make_local(server, namespace, limits);
    }
    let options = rawdoc! { "capped": true, "size": BYTES };
    match server.storage.create_collection(operation, namespace, &options) {
        Ok(()) | Err(StorageError::NamespaceExists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn make_local(server: &Server, namespace: &Namespace, limits: CappedLimits) -> Result<()> {
    match server.storage.create_local_capped(namespace, limits) {
        Err(StorageError::NamespaceExists(_)) if server.storage.local_capped(namespace).is_none() => {
            Err(CommandError::new(
                ErrorCode::IllegalOperation,
                format!(
                    "{namespace} is a collection of the whole replica set: drop it, and each member may have its own"
                ),
            ))
        }
        Ok(()) | Err(StorageError::NamespaceExists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Whether a name is that of a member's own collection.
pub fn is_members_own(server: &Server, namespace: &Namespace) -> bool {
    namespace.collection() == COLLECTION && server.replica_set().is_some()
}

/// `create` of a member's own collection, with the options that `create` has read.
pub fn create_local(server: &Server, namespace: &Namespace, options: &Document) -> Result<()> {
    let number = |name| {
        options.get(name).and_then(|value| match value {
            Bson::Int32(number) => u64::try_from(*number).ok(),
            Bson::Int64(number) => u64::try_from(*number).ok(),
            _ => None,
        })
    };
    let limits = CappedLimits {
        size_bytes: number("size").unwrap_or(0),
        max_documents: number("max"),
    };
    let others = options
        .keys()
        .find(|name| !matches!(name.as_str(), "capped" | "size" | "max"));
    if !options.contains_key("capped") || others.is_some() || limits.size_bytes > LOCAL_BYTES_MAX {
        return Err(CommandError::bad_value(format!(
            "on a member of a replica set {namespace} is in memory: it has to be capped, with {LOCAL_BYTES_MAX} bytes at most and no other options"
        )));
    }
    if server.storage.local_capped(namespace).is_some() {
        return Err(CommandError::new(
            ErrorCode::NamespaceExists,
            format!("Collection {namespace} already exists."),
        ));
    }
    make_local(server, namespace, limits)
}

/// Refuses to drop the collection while it is written to.
pub fn check_dropped(server: &Server, namespace: &Namespace) -> Result<()> {
    let is_on = server.profiler.get(namespace.db()).level != ProfilingLevel::Off;
    match namespace.collection() == COLLECTION && is_on {
        true => Err(CommandError::new(
            ErrorCode::IllegalOperation,
            format!("turn off profiling before dropping system.profile collection: {namespace}"),
        )),
        false => Ok(()),
    }
}

/// Does the filter find an operation of which `entry` is told?
pub(crate) fn finds(call: &Invocation<'_>, filter: &ProfileFilter, entry: &Document) -> bool {
    // What it cannot be asked about it does not find.
    RawDocumentBuf::try_from(entry)
        .is_ok_and(|entry| filter.matcher.matches(&entry, &call.evaluation()).unwrap_or(false))
}

/// Is a slow operation one of those that `sampleRate` takes? Drawn once a call: its statements are told together with
/// it.
pub(crate) fn is_sampled(call: &Invocation<'_>) -> bool {
    let drawn = &call.report.is_sampled;
    let is_sampled = drawn.get().unwrap_or_else(|| {
        let rate = call.server.profiler.sample_rate();
        // 53 bits, as a number from 0 to 1 has.
        rate >= 1.0 || ((call.server.env.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64) < rate
    });
    drawn.set(Some(is_sampled));
    is_sampled
}

impl Server {
    /// Writes the document of an operation. What cannot be written is missing: the operation itself is done. Of one
    /// call no more is written then: each of its statements would wait as long as this one has.
    pub(crate) fn write_profile(self: &Arc<Self>, report: &Report, database: &str, entry: Document) {
        if report.is_profile_lost.get() {
            return;
        }
        let mut document = doc! { "_id": ObjectId::new() };
        document.extend(entry);
        let written = RawDocumentBuf::try_from(&document)
            .map_err(CommandError::from)
            .and_then(|document| self.put_profile(&Namespace::new(database, COLLECTION)?, document));
        if let Err(error) = written {
            report.is_profile_lost.set(true);
            let attributes = doc! { "db": database, "error": &error.message };
            let message = "An operation could not be written to system.profile";
            self.logger
                .log(id::PROFILE_NOT_WRITTEN, "profiler", message, attributes);
        }
    }

    fn put_profile(self: &Arc<Self>, namespace: &Namespace, document: RawDocumentBuf) -> Result<()> {
        // Reading a database that is not there does not make it.
        let makes = |server: &Server| server.storage.catalog().database_exists(namespace.db());
        if self.replica_set().is_some() {
            let local = self.storage.local_capped(namespace);
            let local = match local {
                None if makes(self) => {
                    make(self, &self.new_operation(), namespace)?;
                    self.storage.local_capped(namespace)
                }
                local => local,
            };
            if let Some(local) = local {
                local.push(document.into_bytes().into());
            }
            return Ok(());
        }
        self.own_call(|call| {
            call.operation.set_deadline_ms(PATIENCE_MS);
            let storage = &call.server.storage;
            let open = || storage.collection(&call.operation, namespace, LockMode::IntentExclusive);
            let guard = match open()? {
                None if makes(call.server) => {
                    make(call.server, &call.operation, namespace)?;
                    open()?
                }
                guard => guard,
            };
            let Some(guard) = guard else { return Ok(()) };
            let mut unit = storage.begin_write(&call.operation);
            unit.insert(&guard, &document)?;
            unit.commit()?;
            Ok(())
        })
    }
}
