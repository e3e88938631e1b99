//! Commands of replica sets, which a standalone server answers with `NoReplicationEnabled`.

use crate::definition::Command;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use wire::ErrorCode;

/// `replSetGetStatus`.
pub const REPL_SET_GET_STATUS: Command = Command::new(
    "replSetGetStatus",
    "State of the replica set.",
    OperationKind::Command,
    refuse,
)
.admin_only()
.secondary_ok();
/// `replSetGetConfig`.
pub const REPL_SET_GET_CONFIG: Command = Command::new(
    "replSetGetConfig",
    "Configuration of the replica set.",
    OperationKind::Command,
    refuse,
)
.admin_only()
.secondary_ok();

fn refuse(_call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    Err(CommandError::new(
        ErrorCode::NoReplicationEnabled,
        "not running with --replSet",
    ))
}
