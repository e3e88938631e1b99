//! `top`: time spent per collection.

use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::{OperationKind, TopEntry, Usage};
use crate::reply::Reply;
use auth::Action;
use storage::Namespace;

/// `top`.
pub const TOP: Command = Command::new(
    "top",
    "Time spent per collection.",
    OperationKind::Command,
    Access::cluster(&[Action::Top]),
    run,
)
.admin_only()
.secondary_ok();

fn run(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    // An operation that ended beside a drop may have come after it.
    let catalog = call.server.storage.catalog();
    call.server.metrics.top.retain(|name| {
        Namespace::parse(name).is_ok_and(|name| catalog.collection(&name).is_some() || catalog.view(&name).is_some())
    });
    reply.open_document("totals");
    reply.string("note", "all times in microseconds");
    for (namespace, entry) in call.server.metrics.top.all() {
        reply.open_document(&namespace);
        for (name, usage) in rows(&entry) {
            reply.open_document(name);
            reply.int64("time", usage.time_us);
            reply.int64("count", usage.count);
            reply.close();
        }
        reply.close();
    }
    reply.close();
    Ok(())
}

fn rows(entry: &TopEntry) -> [(&'static str, Usage); 9] {
    [
        ("total", entry.total),
        ("readLock", entry.read_lock),
        ("writeLock", entry.write_lock),
        ("queries", entry.queries),
        ("getmore", entry.getmore),
        ("insert", entry.insert),
        ("update", entry.update),
        ("remove", entry.remove),
        ("commands", entry.commands),
    ]
}
