//! `rotateCertificates`: reads the files of TLS anew.

use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use auth::Action;
use bson::doc;
use wire::ErrorCode;

/// `rotateCertificates`.
pub const ROTATE_CERTIFICATES: Command = Command::new(
    "rotateCertificates",
    "Reads the certificates of TLS anew, for connections to come.",
    OperationKind::Command,
    Access::cluster(&[Action::RotateCertificates]),
    rotate,
)
.admin_only()
.secondary_ok();

fn rotate(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let mut message = None;
    let arguments = call.arguments();
    call.for_each_field(|name, value| {
        if name == "message" {
            message = Some(arguments.string(name, value)?.to_owned());
        }
        Ok(name == "message")
    })?;
    let refused = |reason: String| CommandError::new(ErrorCode::InvalidSSLConfiguration, reason);
    let tls = call.server.settings.tls.as_ref();
    let tls = tls.ok_or_else(|| refused("the server was started without TLS".to_owned()))?;
    tls.reload()
        .map_err(|reason| refused(format!("the former certificates stay in use: {reason}")))?;
    call.server.logger.log(
        id::CERTIFICATES_ROTATED,
        "conn",
        "Successfully rotated X509 certificates",
        doc! { "message": message },
    );
    Ok(())
}
