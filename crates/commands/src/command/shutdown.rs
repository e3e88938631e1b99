//! `shutdown`: ends the process in an orderly way.

use super::step_down::hand_over_to_end;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::rights::Rights;
use auth::Action;
use std::time::Duration;
use wire::ErrorCode;

/// How long a primary waits for a member that can lead in its place, if nobody says so.
const TIMEOUT_DEFAULT_S: u64 = 15;

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
    let (mut force, mut timeout_s) = (false, TIMEOUT_DEFAULT_S);
    call.for_each_field(|name, value| {
        match name {
            "force" => force = arguments.boolean(name, value)?,
            "timeoutSecs" => timeout_s = arguments.non_negative(name, value)? as u64,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // Without access control whoever may connect may end the server: so only from this machine.
    if matches!(call.rights, Rights::Unchecked) && !call.client.peer().is_local() {
        let reason = "shutdown must run from localhost when running db without auth";
        return Err(CommandError::new(ErrorCode::Unauthorized, reason));
    }
    if !force {
        hand_over_to_end(call, Duration::from_secs(timeout_s))?;
    }
    call.server.release_held();
    call.report.shutdown = true;
    Ok(())
}
