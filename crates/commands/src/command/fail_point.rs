//! `configureFailPoint` and `testVersion2`, for tests of drivers and applications.

use crate::arguments::missing_field;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::replica_set::Role;
use crate::reply::Reply;
use auth::Action;
use bson::raw::RawBsonRef;

/// `configureFailPoint`.
pub const CONFIGURE_FAIL_POINT: Command = Command::new(
    "configureFailPoint",
    "Has commands fail on purpose: with enableTestCommands only.",
    OperationKind::Command,
    Access::cluster(&[Action::SetParameter]),
    configure,
)
.admin_only()
.secondary_ok()
.for_tests();

/// `testVersion2`.
pub const TEST_VERSION_2: Command = Command::new(
    "testVersion2",
    "Does nothing, and is not in version 1 of the Stable API: with enableTestCommands only.",
    OperationKind::Command,
    Access::User,
    |call, _| call.for_each_field(|_, _| Ok(false)),
)
.secondary_ok()
.for_tests();

fn configure(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let (mut mode, mut data) = (None, None);
    call.for_each_field(|name, value| {
        match name {
            "mode" => mode = Some(value),
            "data" => data = Some(arguments.document(name, value)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let mode = mode.ok_or_else(|| missing_field("configureFailPoint", "mode"))?;
    match call.target()? {
        RawBsonRef::String("failCommand") => {}
        RawBsonRef::String("onPrimaryTransactionalWrite") => {
            reply.int32("count", 0);
            return call.server.fail_points.set_on_write(mode, data);
        }
        RawBsonRef::String("failGetMoreAfterCursorCheckout") => {
            reply.int32("count", 0);
            return call.server.fail_points.set_on_get_more(mode, data);
        }
        RawBsonRef::String("maxTimeAlwaysTimeOut") => {
            reply.int32("count", 0);
            return call.server.fail_points.set_on_limits(mode);
        }
        RawBsonRef::String("stopReplProducer") => {
            reply.int32("count", 0);
            let (server, operation) = (call.server, &call.operation);
            let is_primary = server.replica_set().is_none_or(|set| set.role() == Role::Primary);
            return server.fail_points.set_replication(mode, || match is_primary {
                true => Ok(None),
                false => Ok(server.storage.stop_applying(operation)?),
            });
        }
        RawBsonRef::String(other) => return Err(CommandError::not_implemented(format!("the fail point {other}"))),
        other => {
            return Err(crate::arguments::wrong_type(
                "configureFailPoint",
                "configureFailPoint",
                other,
                "type 'string'",
            ));
        }
    }
    let entered = call.server.fail_points.set(mode, data)?;
    reply.count("count", entered);
    Ok(())
}
