//! Collections that the server alone writes to.

use crate::error::{CommandError, Result};
use crate::profiler;
use crate::server::Server;
use storage::Namespace;
use wire::ErrorCode;

/// The collection of `startup_log.rs`.
pub const STARTUP_LOG: &str = "local.startup_log";

/// Refuses to write to one of them.
///
/// # Errors
/// `InvalidNamespace`.
pub fn refuse_read_only(server: &Server, namespace: &Namespace) -> Result<()> {
    let is_read_only = namespace.collection() == profiler::COLLECTION
        || query::is_oplog(&server.storage, namespace)
        || is_startup_log(server, namespace)
        || is_members_configuration(server, namespace);
    match is_read_only {
        true => Err(cannot_write(namespace)),
        false => Ok(()),
    }
}

/// The error for a collection that nobody writes to.
pub fn cannot_write(namespace: &Namespace) -> CommandError {
    CommandError::new(ErrorCode::InvalidNamespace, format!("cannot write to '{namespace}'"))
}

/// What a member is configured by, which goes by `replSetReconfig` alone. Everybody's is in everybody's log.
pub fn is_members_configuration(server: &Server, namespace: &Namespace) -> bool {
    namespace.as_str() == "local.system.replset" && server.replica_set().is_some()
}

/// Not one of that name that was restored from elsewhere.
pub fn is_startup_log(server: &Server, namespace: &Namespace) -> bool {
    namespace.as_str() == STARTUP_LOG && server.storage.local_capped(namespace).is_some()
}
