//! `buildInfo`, `ping`, `whatsmyuri`, `listCommands`, `connectionStatus`: small facts that every client asks for.

use super::role_documents::{privilege_array, role_array};
use super::role_store::Held;
use crate::definition::{Access, Command};
use crate::error::Result;
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use crate::settings::Settings;
use auth::Privileges;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use wire::limits::DOCUMENT_BYTES_MAX;

/// `buildInfo`.
pub const BUILD_INFO: Command = Command::new(
    "buildInfo",
    "Describes this build.",
    OperationKind::Command,
    Access::Open,
    build_info,
)
.aliases(&["buildinfo"])
.secondary_ok();
/// `ping`.
pub const PING: Command = Command::new("ping", "Answers.", OperationKind::Command, Access::Open, |call, _| {
    call.for_each_field(|_, _| Ok(false))
})
.secondary_ok()
.api_version_1();
/// `whatsmyuri`.
pub const WHATSMYURI: Command = Command::new(
    "whatsmyuri",
    "The client's address as seen from here.",
    OperationKind::Command,
    Access::Open,
    |call, reply| {
        call.for_each_field(|_, _| Ok(false))?;
        reply.string("you", call.client.peer().as_str());
        Ok(())
    },
)
.secondary_ok();
/// `listCommands`.
pub const LIST_COMMANDS: Command = Command::new(
    "listCommands",
    "Lists the commands.",
    OperationKind::Command,
    Access::Open,
    list_commands,
)
.secondary_ok();
/// `connectionStatus`.
pub const CONNECTION_STATUS: Command = Command::new(
    "connectionStatus",
    "Who is authenticated on this connection.",
    OperationKind::Command,
    Access::Open,
    connection_status,
)
.secondary_ok()
.api_version_1();

/// The version of Tenon itself.
pub const TENON_VERSION: &str = env!("CARGO_PKG_VERSION");

fn build_info(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    reply.append_all(&build_document(&call.server.settings));
    Ok(())
}

/// What `buildInfo` tells.
pub fn build_document(settings: &Settings) -> Document {
    let [major, minor, patch] = settings.emulated_version;
    let engines: Vec<Bson> = settings.engines.iter().map(|name| Bson::String(name.clone())).collect();
    doc! {
        "version": settings.version_string(),
        "tenonVersion": TENON_VERSION,
        "gitVersion": &settings.git_version,
        "modules": [],
        "allocator": "jemalloc",
        "javascriptEngine": if settings.scripting { "quickjs" } else { "none" },
        "sysInfo": "deprecated",
        "versionArray": [major, minor, patch, 0],
        "openssl": { "running": "disabled", "compiled": "disabled" },
        "buildEnvironment": {
            "distmod": "",
            "distarch": std::env::consts::ARCH,
            "target_arch": std::env::consts::ARCH,
            "target_os": std::env::consts::OS,
        },
        "bits": 64,
        "debug": cfg!(debug_assertions),
        "maxBsonObjectSize": DOCUMENT_BYTES_MAX as i32,
        "storageEngines": engines,
    }
}

fn list_commands(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    reply.open_document("commands");
    let server = call.server;
    for command in server.commands.iter().filter(|command| server.has(command)) {
        let versions = if command.api_version_1 {
            vec![Bson::String("1".into())]
        } else {
            vec![]
        };
        let entry = doc! {
            "help": command.help,
            "requiresAuth": !matches!(command.access, Access::Open),
            "secondaryOk": command.secondary_ok,
            "adminOnly": command.admin_only,
            "apiVersions": versions,
            "deprecatedApiVersions": [],
        };
        reply.value(command.name, &Bson::Document(entry));
    }
    reply.close();
    Ok(())
}

fn connection_status(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let arguments = call.arguments();
    let mut show_privileges = false;
    call.for_each_field(|name, value| {
        if name == "showPrivileges" {
            show_privileges = arguments.boolean(name, value)?;
        }
        Ok(name == "showPrivileges")
    })?;
    let mut users = Vec::new();
    let mut held = Held::default();
    if let Some((user, document)) = super::authenticate::current_user(call)? {
        users.push(Bson::Document(doc! { "user": user.user, "db": user.database }));
        held = Held::of(call, &document)?;
    }
    let mut info: Document = doc! { "authenticatedUsers": users, "authenticatedUserRoles": role_array(&held.roles) };
    if show_privileges {
        let mut all = Privileges::default();
        all.extend(&held.privileges);
        info.insert("authenticatedUserPrivileges", privilege_array(&all.list()));
    }
    reply.value("authInfo", &Bson::Document(info));
    let uuid = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: call.client.uuid(|| call.server.storage.new_uuid()).to_vec(),
    };
    reply.value("uuid", &uuid.into());
    Ok(())
}
