//! `admin.system.version`: the document by which tools learn which version's features there are; and
//! `setFeatureCompatibilityVersion`.

use super::user_store;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::id;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::server::Server;
use auth::Action;
use bson::doc;
use std::sync::Arc;
use storage::Namespace;
use wire::ErrorCode;

/// `setFeatureCompatibilityVersion`.
pub const SET_FEATURE_COMPATIBILITY_VERSION: Command = Command::new(
    "setFeatureCompatibilityVersion",
    "Keeps the version whose features there are: the one that is announced.",
    OperationKind::Command,
    Access::cluster(&[Action::SetFeatureCompatibilityVersion]),
    set,
)
.takes_write_concern()
.admin_only();

/// The `_id` of the document, and the name of the parameter that tells the same.
pub(crate) const NAME: &str = "featureCompatibilityVersion";

/// The version as tools compare it: `8.0`.
pub(crate) fn text(server: &Server) -> String {
    let [major, minor, _] = server.settings.emulated_version;
    format!("{major}.{minor}")
}

impl Server {
    /// What is written first by a server that may write: it takes up what one before it has left, and keeps the
    /// version.
    ///
    /// # Errors
    /// A sentence: of the version. What was left and cannot be taken up is logged.
    pub fn begin_to_write(self: &Arc<Self>) -> std::result::Result<(), String> {
        match self.storage.drop_abandoned(&self.new_operation()) {
            Ok(dropped) => {
                for namespace in dropped {
                    self.metrics.top.forget(namespace.as_str());
                    let attributes = doc! { "namespace": namespace.as_str() };
                    let message = "Dropped a temporary collection that was left when its operation was cut short";
                    self.logger
                        .log(id::TEMPORARY_COLLECTION_DROPPED, "initandlisten", message, attributes);
                }
            }
            Err(error) => {
                let attributes = doc! { "error": error.to_string() };
                let message = "Temporary collections that were left could not be dropped";
                self.logger
                    .log(id::TEMPORARY_COLLECTIONS_STAY, "initandlisten", message, attributes);
            }
        }
        self.keep_version()
    }

    /// Keeps the version announced in `admin.system.version`, and the secret of the pretence. To be called once,
    /// before there are clients.
    pub fn keep_version(self: &Arc<Self>) -> std::result::Result<(), String> {
        self.write_version()
            .and_then(|()| self.keep_pretence())
            .map_err(|error| error.message)
    }

    fn write_version(self: &Arc<Self>) -> Result<()> {
        let change = doc! { "$set": { "version": text(self) } };
        let namespace = Namespace::new("admin", "system.version")?;
        self.own_call(|call| user_store::upsert_in(call, &namespace, &doc! { "_id": NAME }, &change))
    }
}

/// What tools run at the end of an upgrade: the document says what is announced afterwards, whatever it said before.
/// There are no other versions to change to while the server runs.
fn set(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let asked = arguments.string(call.command.name, call.required_target()?)?;
    let mut confirmed = false;
    call.for_each_field(|name, value| {
        match name {
            "confirm" => confirmed = arguments.boolean(name, value)?,
            "downgradeOnDiskChanges" | "fromConfigServer" | "phase" => {
                return Err(CommandError::not_implemented(format!(
                    "setFeatureCompatibilityVersion.{name}"
                )));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let announced = text(call.server);
    if asked != announced && !matches!(asked, "7.0" | "8.0") {
        return Err(CommandError::new(
            ErrorCode(4_926_900),
            format!("Invalid feature compatibility version value '{asked}'; expected '{announced}'"),
        ));
    }
    if !confirmed {
        return Err(CommandError::new(
            ErrorCode(7_369_100),
            "Once you have upgraded to a version, you will not be able to downgrade without support assistance. Please re-run this command with 'confirm: true' to acknowledge this and continue with the FCV upgrade.",
        ));
    }
    if asked != announced {
        return Err(CommandError::not_implemented(format!(
            "the features of version {asked} on a server that announces {announced} (--emulate-version)"
        )));
    }
    call.server.write_version()?;
    call.wrote(call.server.storage.last_seq());
    Ok(())
}
