//! `buildInfo`, `ping`, `whatsmyuri`, `listCommands`, `connectionStatus`: small facts that every client asks for.

use crate::definition::Command;
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::metrics::OperationKind;
use crate::reply::Reply;
use bson::{Bson, Document, doc};
use wire::limits::DOCUMENT_BYTES_MAX;

/// `buildInfo`.
pub const BUILD_INFO: Command = Command::new("buildInfo", "Describes this build.", OperationKind::Command, build_info)
    .aliases(&["buildinfo"])
    .without_auth()
    .secondary_ok();
/// `ping`.
pub const PING: Command = Command::new("ping", "Answers.", OperationKind::Command, |call, _| {
    call.for_each_field(|_, _| Ok(false))
})
.without_auth()
.secondary_ok()
.api_version_1();
/// `whatsmyuri`.
pub const WHATSMYURI: Command = Command::new(
    "whatsmyuri",
    "The client's address as seen from here.",
    OperationKind::Command,
    |call, reply| {
        call.for_each_field(|_, _| Ok(false))?;
        reply.string("you", call.client.peer().as_str());
        Ok(())
    },
)
.without_auth()
.secondary_ok();
/// `listCommands`.
pub const LIST_COMMANDS: Command = Command::new(
    "listCommands",
    "Lists the commands.",
    OperationKind::Command,
    list_commands,
)
.without_auth()
.secondary_ok();
/// `connectionStatus`.
pub const CONNECTION_STATUS: Command = Command::new(
    "connectionStatus",
    "Who is authenticated on this connection.",
    OperationKind::Command,
    connection_status,
)
.without_auth()
.secondary_ok()
.api_version_1();

/// The version of Tenon itself.
pub const TENON_VERSION: &str = env!("CARGO_PKG_VERSION");

fn build_info(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let settings = &call.server.settings;
    let [major, minor, patch] = settings.emulated_version;
    reply.string("version", &settings.version_string());
    reply.string("tenonVersion", TENON_VERSION);
    reply.string("gitVersion", option_env!("TENON_GIT_VERSION").unwrap_or("unknown"));
    let engines: Vec<Bson> = settings.engines.iter().map(|name| Bson::String(name.clone())).collect();
    reply.append_all(&doc! {
        "modules": [],
        "allocator": "jemalloc",
        "javascriptEngine": "none",
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
    });
    Ok(())
}

fn list_commands(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    reply.open_document("commands");
    for command in call.server.commands.iter() {
        let versions = if command.api_version_1 {
            vec![Bson::String("1".into())]
        } else {
            vec![]
        };
        let entry = doc! {
            "help": command.help,
            "requiresAuth": !command.without_auth,
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
    let (mut users, mut roles) = (Vec::new(), Vec::new());
    if let Some((user, mut document)) = super::authenticate::current_user(call)? {
        users.push(Bson::Document(doc! { "user": user.user, "db": user.database }));
        if let Some(Bson::Array(held)) = document.remove("roles") {
            roles = held;
        }
    }
    if show_privileges && !users.is_empty() {
        return Err(CommandError::not_implemented("connectionStatus.showPrivileges"));
    }
    let mut info: Document = doc! { "authenticatedUsers": users, "authenticatedUserRoles": roles };
    if show_privileges {
        info.insert("authenticatedUserPrivileges", Bson::Array(Vec::new()));
    }
    reply.value("authInfo", &Bson::Document(info));
    Ok(())
}
