//! `profile`, and the documents of `system.profile`.

use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::Component;
use crate::metrics::OperationKind;
use crate::profiler::{BYTES, COLLECTION, Level, ProfileFilter, Setting};
use crate::reply::Reply;
use crate::server::Server;
use auth::Action;
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Document, doc, rawdoc};
use query::expression::ExpressionContext;
use query::matcher::Matcher;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use storage::{LockMode, Namespace, StorageError};

/// `profile`.
pub const PROFILE: Command = Command::new(
    "profile",
    "Has operations of a database written to system.profile.",
    OperationKind::Command,
    Access::database(&[Action::EnableProfiler]),
    run,
)
.secondary_ok();

/// So long an operation's document may wait to be written: somebody may hold all writes back.
const PATIENCE_MS: u64 = 1000;

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let number = arguments.integer("profile", call.target()?)?;
    let (mut slow_ms, mut sample_rate) = (None, None);
    let was = call.server.profiler.get(call.database);
    let mut filter = was.filter.clone();
    // The filter outlives the call.
    let parsing = ExpressionContext::new(call.operation.started_ms(), Arc::clone(&call.server.env.random));
    call.for_each_field(|name, value| {
        match (name, value) {
            ("slowms", value) => slow_ms = Some(arguments.integer(name, value)?),
            ("sampleRate", value) => sample_rate = Some(rate(value)?),
            ("filter", RawBsonRef::String("unset")) => filter = None,
            ("filter", value) => {
                let document = arguments.document(name, value)?;
                filter = Some(Arc::new(ProfileFilter {
                    document: Document::try_from(document)?,
                    matcher: Matcher::parse(document, &parsing)?,
                }));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let level = match number {
        -1 => was.level,
        number => Level::of_number(number).ok_or_else(|| {
            CommandError::bad_value(format!("profiling level must be one of -1, 0, 1 and 2, not {number}"))
        })?,
    };
    let parameters = &call.server.parameters;
    reply.int32("was", was.level as i32);
    reply.count("slowms", parameters.slow_ms.load(Ordering::Relaxed));
    reply.double("sampleRate", call.server.profiler.sample_rate());
    if let Some(filter) = &was.filter {
        reply.value("filter", &filter.document.clone().into());
        reply.string("note", "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines.");
    }
    if level != Level::Off {
        // Its operations are one server's; the log is all members'.
        if call.server.replica_set().is_some() {
            return Err(CommandError::not_implemented("profiling on a member of a replica set"));
        }
        if call.database == "local" {
            return Err(CommandError::bad_value("the database local is not profiled"));
        }
        make(call)?;
    }
    if let Some(slow_ms) = slow_ms {
        parameters.slow_ms.store(slow_ms, Ordering::Relaxed);
    }
    if let Some(rate) = sample_rate {
        call.server.profiler.set_sample_rate(rate);
    }
    call.server.profiler.set(call.database, Setting { level, filter });
    Ok(())
}

fn rate(value: RawBsonRef<'_>) -> Result<f64> {
    let rate = match value {
        RawBsonRef::Double(rate) => rate,
        RawBsonRef::Int32(rate) => f64::from(rate),
        RawBsonRef::Int64(rate) => rate as f64,
        other => {
            return Err(crate::arguments::wrong_type(
                "profile",
                "sampleRate",
                other,
                "types '[double, int, long]'",
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
fn make(call: &Invocation<'_>) -> Result<()> {
    let namespace = Namespace::new(call.database, COLLECTION)?;
    let options = rawdoc! { "capped": true, "size": BYTES };
    match call
        .server
        .storage
        .create_collection(&call.operation, &namespace, &options)
    {
        Ok(()) | Err(StorageError::NamespaceExists(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Is an operation one of those that are to be seen: does the filter find it, whose document `entry` makes, or is it
/// slow and one of those that `sampleRate` takes?
pub fn is_found(call: &Invocation<'_>, setting: &Setting, is_slow: bool, entry: &dyn Fn() -> Document) -> bool {
    match &setting.filter {
        None => is_slow && is_sampled(call.server),
        // What it cannot be asked about it does not find.
        Some(filter) => RawDocumentBuf::try_from(&entry())
            .is_ok_and(|entry| filter.matcher.matches(&entry, &call.evaluation()).unwrap_or(false)),
    }
}

fn is_sampled(server: &Server) -> bool {
    let rate = server.profiler.sample_rate();
    // 53 bits, as a number from 0 to 1 has.
    rate >= 1.0 || ((server.env.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64) < rate
}

impl Server {
    /// Writes the document of an operation. What cannot be written is missing: the operation itself is done.
    pub(crate) fn write_profile(self: &Arc<Self>, database: &str, entry: &Document) {
        let mut document = doc! { "_id": ObjectId::new() };
        document.extend(entry.clone());
        let written = self.own_call(|call| {
            call.operation.set_deadline_ms(PATIENCE_MS);
            let namespace = Namespace::new(database, COLLECTION)?;
            let storage = &call.server.storage;
            // Who drops the collection wants no more of it until it is asked for again.
            let Some(guard) = storage.collection(&call.operation, &namespace, LockMode::IntentExclusive)? else {
                return Ok(());
            };
            let mut unit = storage.begin_write(&call.operation);
            unit.insert(&guard, &RawDocumentBuf::try_from(&document)?)?;
            unit.commit()?;
            Ok(())
        });
        if let Err(error) = written {
            let attributes = doc! { "db": database, "error": &error.message };
            let message = "An operation could not be written to system.profile";
            self.logger
                .warning(Component::Command, 8_410_015, "profiler", message, attributes);
        }
    }
}
