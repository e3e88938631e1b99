//! `shutdown`: ends the process in an orderly way.

use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use auth::Action;
use wire::ErrorCode;

/// `shutdown`.
pub const SHUTDOWN: Command = Command::new(
    "shutdown",
    "Ends the server.",
    OperationKind::Command,
    Access::cluster(&[Action::Shutdown]),
    run,
)
.admin_only()
.secondary_ok();

fn run(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    call.for_each_field(|name, value| {
        match name {
            "force" => drop(arguments.boolean(name, value)?),
            "timeoutSecs" => drop(arguments.integer(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Without access control whoever may connect may end the server: so only from this machine.
    if matches!(call.rights, Rights::Unchecked) && !call.client.peer().is_local() {
        let reason = "shutdown must run from localhost when running db without auth";
        return Err(CommandError::new(ErrorCode::Unauthorized, reason));
    }
    call.server.fsync_lock.release();
    call.server.fail_points.release();
    call.report.shutdown = true;
    Ok(())
}
