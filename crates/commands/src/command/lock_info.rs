//! `lockInfo`: which collections' locks are held and waited for.
//!
//! A lock knows how many hold it, and who waits for it: to remember who holds it would cost every operation. MongoDB's
//! locks of the server and of databases have no counterpart here.

use crate::Client;
use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::raw::RawBsonRef;
use bson::{Bson, Document, doc};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use storage::{LockMode, Namespace};

/// `lockInfo`.
pub const LOCK_INFO: Command = Command::new(
    "lockInfo",
    "Shows the locks that are held and waited for.",
    OperationKind::Command,
    Access::cluster(&[Action::ServerStatus]),
    run,
)
.admin_only()
.secondary_ok();

const MODES: [LockMode; 4] = [
    LockMode::IntentShared,
    LockMode::IntentExclusive,
    LockMode::Shared,
    LockMode::Exclusive,
];
/// MongoDB's number of the resources that are collections, in the three highest bits of a resource's.
const COLLECTION: u64 = 5 << 61;

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let locks = call.server.storage.collection_locks();
    let waiters = waiters(call);
    let resources = locks.iter().map(|(namespace, state)| {
        let holders = MODES.iter().zip(state.held);
        let granted = holders.flat_map(|(mode, count)| (0..count).map(|_| Bson::Document(request(*mode, None))));
        let pending = state.waiting.iter();
        let pending = pending.map(|(operation, mode)| request(*mode, waiters.get(operation)).into());
        Bson::Document(doc! {
            "resourceId": resource_id(namespace),
            "granted": granted.collect::<Vec<_>>(),
            "pending": pending.collect::<Vec<Bson>>(),
        })
    });
    reply.value("lockInfo", &Bson::Array(resources.collect()));
    Ok(())
}

/// What is told of an operation that waits.
struct Asking {
    client: Arc<Client>,
    operation: u32,
    command: String,
}

/// Those that wait, by the numbers of their operations.
fn waiters(call: &Invocation<'_>) -> HashMap<u32, Asking> {
    let mut waiters = HashMap::new();
    for client in call.server.connected() {
        let found = client.with_current(|current, operation| {
            operation.waiting_for_lock()?;
            let command = keys::describe::describe(RawBsonRef::Document(&current.shown.fields()));
            Some((operation.id, command))
        });
        if let Some((operation, command)) = found.flatten() {
            let asking = Asking {
                client,
                operation,
                command,
            };
            waiters.insert(operation, asking);
        }
    }
    waiters
}

fn request(mode: LockMode, by: Option<&Asking>) -> Document {
    let mut request = doc! {
        "mode": match mode {
            LockMode::IntentShared => "IS",
            LockMode::IntentExclusive => "IX",
            LockMode::Shared => "S",
            LockMode::Exclusive => "X",
        },
        // No lock is changed into one of another mode.
        "convertMode": "NONE",
        "enqueueAtFront": false,
        "compatibleFirst": false,
        "debugInfo": by.map_or("", |by| &*by.command),
    };
    if let Some(by) = by {
        let client = doc! {
            "desc": format!("conn{}", by.client.id()),
            "connectionId": by.client.id() as i32,
            "client": by.client.peer().as_str(),
            "opid": by.operation as i32,
        };
        request.insert("clientInfo", client);
    }
    request
}

fn resource_id(namespace: &Namespace) -> String {
    let mut hasher = DefaultHasher::new();
    namespace.as_str().hash(&mut hasher);
    let hash = hasher.finish() >> 3;
    format!("{{{}: Collection, {hash}, {namespace}}}", COLLECTION | hash)
}
