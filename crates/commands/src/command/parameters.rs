//! `getParameter`, `setParameter`, `getCmdLineOpts`, `getLog`, `logApplicationMessage`,
//! `logRotate`.

use super::authenticate_x509::X509;
use super::feature_version;
use crate::arguments::Arguments;
use crate::audited::AuditEvent;
use crate::definition::{Access, Command};
use crate::error::{CommandError, Result};
use crate::invocation::Invocation;
use crate::logger::{Component, Logger, Ring};
use crate::metrics::OperationKind;
use crate::parameters::{Change, Parameters};
use crate::reply::Reply;
use crate::server::Server;
use auth::{Action, Mechanism};
use bson::raw::RawBsonRef;
use bson::{Bson, Document, doc};
use std::sync::Arc;
use wire::ErrorCode;

/// `getParameter`.
pub const GET_PARAMETER: Command = Command::new(
    "getParameter",
    "Shows server parameters.",
    OperationKind::Command,
    Access::cluster(&[Action::GetParameter]),
    get,
)
.admin_only()
.secondary_ok();
/// `setParameter`.
pub const SET_PARAMETER: Command = Command::new(
    "setParameter",
    "Changes server parameters.",
    OperationKind::Command,
    Access::cluster(&[Action::SetParameter]),
    set,
)
.admin_only()
.secondary_ok();
/// `getCmdLineOpts`.
pub const GET_CMD_LINE_OPTS: Command = Command::new(
    "getCmdLineOpts",
    "Shows how the server was started.",
    OperationKind::Command,
    Access::cluster(&[Action::GetCmdLineOpts]),
    command_line,
)
.admin_only()
.secondary_ok();
/// `getLog`.
pub const GET_LOG: Command = Command::new(
    "getLog",
    "Shows recent log lines.",
    OperationKind::Command,
    Access::cluster(&[Action::GetLog]),
    get_log,
)
.admin_only()
.secondary_ok();
/// `logRotate`.
pub const LOG_ROTATE: Command = Command::new(
    "logRotate",
    "Begins a new log file.",
    OperationKind::Command,
    Access::cluster(&[Action::LogRotate]),
    log_rotate,
)
.admin_only()
.secondary_ok();

/// `logApplicationMessage`.
pub const LOG_APPLICATION_MESSAGE: Command = Command::new(
    "logApplicationMessage",
    "Writes a message of a client to the audit log.",
    OperationKind::Command,
    Access::cluster(&[Action::ApplicationMessage]),
    |call, _| {
        call.for_each_field(|name, _| Ok(name == "comment"))?;
        let message = call.arguments().string(call.command.name, call.target()?)?;
        call.server
            .audit(|| AuditEvent::of(call.client, "applicationMessage", doc! { "msg": message }, 0));
        Ok(())
    },
)
.admin_only()
.secondary_ok();

/// Facts of this server, which cannot be set, and what the logger keeps.
fn fixed(server: &Server, name: &str) -> Option<Bson> {
    Some(match name {
        feature_version::NAME => Bson::Document(doc! { "version": feature_version::text(server) }),
        "authenticationMechanisms" => {
            let x509 = server
                .settings
                .tls
                .as_ref()
                .filter(|tls| tls.verifies_clients())
                .map(|_| X509);
            let names = x509.into_iter().chain(Mechanism::ALL.map(Mechanism::name));
            Bson::Array(names.map(Bson::from).collect())
        }
        "clusterAuthMode" => {
            let auth = server.settings.cluster_auth.as_ref();
            Bson::String(auth.map_or("undefined", |auth| auth.mode.name()).to_owned())
        }
        LOCALHOST_BYPASS => Bson::Boolean(server.access.lets_local_begin()),
        TEST_COMMANDS => Bson::Boolean(server.fail_points.is_enabled()),
        "maxBSONDepth" => Bson::Int32((wire::limits::NESTING_MAX - 1) as i32),
        "tlsMode" => {
            let tls = server.settings.tls.as_ref();
            Bson::String(tls.map_or("disabled", |tls| tls.mode()).to_owned())
        }
        "requireApiVersion" => Bson::Boolean(false),
        "authSchemaVersion" => Bson::Int32(5),
        "logComponentVerbosity" => Bson::Document(verbosity_document(&server.logger)),
        "logLevel" => Bson::Int32(i32::from(server.logger.verbosity(Component::Default).unwrap_or(0))),
        _ => return None,
    })
}

/// Whether somebody on the same machine may make the first user.
const LOCALHOST_BYPASS: &str = "enableLocalhostAuthBypass";
/// Whether there are the commands that are for tests.
const TEST_COMMANDS: &str = "enableTestCommands";
/// Switches that only the one who starts the server may turn.
const START_SWITCHES: [&str; 2] = [LOCALHOST_BYPASS, TEST_COMMANDS];

pub(crate) const FIXED: [&str; 11] = [
    "authSchemaVersion",
    "authenticationMechanisms",
    "clusterAuthMode",
    LOCALHOST_BYPASS,
    TEST_COMMANDS,
    feature_version::NAME,
    "logComponentVerbosity",
    "logLevel",
    "maxBSONDepth",
    "requireApiVersion",
    "tlsMode",
];

fn read(call: &Invocation<'_>, name: &str) -> Option<Bson> {
    call.server.parameters.get(name).or_else(|| fixed(call.server, name))
}

/// A parameter's value, and when it can be set.
fn described(name: &str, value: Bson) -> Document {
    let is_changeable = !FIXED.contains(&name) || matches!(name, "logComponentVerbosity" | "logLevel");
    let is_start_option = !FIXED.contains(&name) || START_SWITCHES.contains(&name) || name == "logLevel";
    doc! { "value": value, "settableAtRuntime": is_changeable, "settableAtStartup": is_start_option }
}

fn get(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let (mut all, mut details) = (false, false);
    match call.target()? {
        RawBsonRef::String("*") => all = true,
        RawBsonRef::Document(options) => {
            let arguments = Arguments::of("getParameter");
            arguments.each(options, |name, value| {
                match name {
                    "allParameters" => all = arguments.boolean(name, value)?,
                    "showDetails" => details = arguments.boolean(name, value)?,
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
        }
        _ => {}
    }
    let mut found = Document::new();
    let mut show = |name: &str| {
        if let Some(value) = read(call, name) {
            let shown = match details {
                true => described(name, value).into(),
                false => value,
            };
            found.insert(name, shown);
        }
    };
    if all {
        Parameters::NAMES.into_iter().chain(FIXED).for_each(&mut show);
    } else {
        call.for_each_field(|name, _| {
            show(name);
            Ok(true)
        })?;
    }
    if found.is_empty() {
        return Err(CommandError::new(ErrorCode::InvalidOptions, "no option found to get"));
    }
    reply.append_all(&found);
    Ok(())
}

fn set(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let mut changes = Vec::new();
    call.for_each_field(|name, value| {
        changes.push((name, Bson::try_from(value)?));
        Ok(true)
    })?;
    if changes.is_empty() {
        return Err(CommandError::new(
            ErrorCode::InvalidOptions,
            "no option found to set, use help:true to see options ",
        ));
    }
    // None is set unless all can be.
    let prepared: Vec<Prepared<'_>> = changes
        .iter()
        .map(|(name, value)| prepare(call.server, name, value))
        .collect::<Result<_>>()?;
    if let Some(was) = read(call, changes[0].0) {
        reply.value("was", &was);
    }
    for change in prepared {
        change.make(call.server);
    }
    call.server.apply_parameters();
    Ok(())
}

/// What setting a parameter is going to do.
enum Prepared<'p> {
    Parameter(Change<'p>),
    Verbosity(Vec<(Component, Option<i8>)>),
}

impl Prepared<'_> {
    fn make(self, server: &Server) {
        match self {
            Self::Parameter(change) => change.make(),
            Self::Verbosity(levels) => {
                for (component, level) in levels {
                    server.logger.set_verbosity(component, level);
                }
            }
        }
    }
}

fn prepare<'p>(server: &'p Server, name: &str, value: &Bson) -> Result<Prepared<'p>> {
    Ok(match name {
        "logComponentVerbosity" => {
            let wanted = value
                .as_document()
                .ok_or_else(|| CommandError::new(ErrorCode::TypeMismatch, "logComponentVerbosity is not a document"))?;
            Prepared::Verbosity(verbosity_levels(wanted)?)
        }
        "logLevel" if value.as_str().is_none() => {
            Prepared::Verbosity(vec![(Component::Default, Some(log_level(value)?))])
        }
        "logLevel" => return Err(CommandError::bad_value("logLevel must be a number")),
        name if FIXED.contains(&name) => {
            return Err(CommandError::new(
                ErrorCode::IllegalOperation,
                format!("not allowed to change [{name}] at runtime"),
            ));
        }
        name => Prepared::Parameter(server.parameters.change(name, value)?),
    })
}

/// Sets a parameter to what the command line says.
pub(crate) fn set_at_start(server: &Server, name: &str, value: &str) -> Result<()> {
    match name {
        TEST_COMMANDS => {
            if start_switch(name, value)? {
                server.fail_points.enable();
            }
            return Ok(());
        }
        LOCALHOST_BYPASS => {
            server.access.let_local_begin(start_switch(name, value)?);
            return Ok(());
        }
        _ => {}
    }
    let value = Bson::from(value);
    let prepared = match name {
        "logLevel" => Prepared::Verbosity(vec![(Component::Default, Some(log_level(&value)?))]),
        name => prepare(server, name, &value)?,
    };
    prepared.make(server);
    Ok(())
}

/// The value of one of [`START_SWITCHES`].
fn start_switch(name: &str, value: &str) -> Result<bool> {
    match value {
        "1" | "true" => Ok(true),
        "0" | "false" => Ok(false),
        _ => Err(CommandError::bad_value(format!("{name} is 0 or 1, not {value}"))),
    }
}

fn log_level(value: &Bson) -> Result<i8> {
    let level = match value {
        Bson::Boolean(on) => Some(i64::from(*on)),
        value => crate::parameters::as_integer(value),
    };
    level
        .and_then(|level| i8::try_from(level).ok())
        .filter(|level| (0..=LEVEL_MAX).contains(level))
        .ok_or_else(|| CommandError::bad_value(format!("logLevel must be a number from 0 to {LEVEL_MAX}, not {value}")))
}

/// Whether a server can be started with these parameters, before anything of it is there.
///
/// # Errors
/// A sentence that names the first one that does not exist or has a bad value.
pub fn check_parameters(parameters: &[(String, String)]) -> std::result::Result<(), String> {
    let scratch = Parameters::new(0, false);
    for (name, value) in parameters {
        let is_right = match (name.as_str(), Bson::String(value.clone())) {
            (name, _) if START_SWITCHES.contains(&name) => start_switch(name, value).map(drop),
            ("logLevel", value) => log_level(&value).map(drop),
            (fixed, _) if FIXED.contains(&fixed) => {
                Err(CommandError::bad_value(format!("not allowed to change [{name}]")))
            }
            (name, value) => scratch.change(name, &value).map(drop),
        };
        is_right.map_err(|error| format!("setParameter {name}: {}", error.message))?;
    }
    Ok(())
}

/// Highest verbosity.
const LEVEL_MAX: i8 = 5;

fn command_line(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|_, _| Ok(false))?;
    let settings = &call.server.settings;
    let argv: Vec<Bson> = settings
        .argv
        .iter()
        .map(|argument| Bson::String(argument.clone()))
        .collect();
    reply.append_all(&doc! { "argv": argv, "parsed": settings.parsed.clone() });
    Ok(())
}

fn get_log(call: &mut Invocation<'_>, reply: &mut Reply<'_>) -> Result<()> {
    let target = call.required_target()?;
    let RawBsonRef::String(which) = target else {
        return Err(crate::arguments::wrong_type(
            "getLog",
            "getLog",
            target,
            "type 'string'",
        ));
    };
    call.for_each_field(|_, _| Ok(false))?;
    let strings = |lines: Vec<Arc<str>>| {
        lines
            .iter()
            .map(|line| Bson::String(line.to_string()))
            .collect::<Vec<_>>()
    };
    let logger = &call.server.logger;
    match which {
        "*" => reply.append_all(&doc! { "names": ["global", "startupWarnings"] }),
        "global" => {
            let (total, lines) = logger.ring(Ring::Global);
            reply.append_all(&doc! { "totalLinesWritten": total as i32, "log": strings(lines) });
        }
        "startupWarnings" => {
            let (total, lines) = logger.ring(Ring::StartupWarnings);
            reply.append_all(&doc! { "totalLinesWritten": total as i32, "log": strings(lines) });
        }
        other => {
            return Err(CommandError::new(
                ErrorCode::OperationFailed,
                format!("No log named '{other}'"),
            ));
        }
    }
    Ok(())
}

fn log_rotate(call: &mut Invocation<'_>, _reply: &mut Reply<'_>) -> Result<()> {
    call.for_each_field(|name, _| Ok(name == "comment"))?;
    let (logger, server) = (&call.server.logger, call.server);
    let rotated = match call.target()? {
        RawBsonRef::String("server") => logger.rotate(),
        RawBsonRef::String("audit") if server.settings.audit.is_some() => server.rotate_audit(),
        RawBsonRef::String(other) => {
            return Err(CommandError::new(
                ErrorCode::NoSuchKey,
                format!("Unknown log type '{other}' for rotation"),
            ));
        }
        _ => {
            // One that fails does not keep the other.
            let rotated = logger.rotate();
            rotated.and(server.rotate_audit())
        }
    };
    rotated.map_err(|error| CommandError::new(ErrorCode::OperationFailed, format!("log rotation failed: {error}")))
}

/// `{ verbosity: n, command: { verbosity: n }, storage: { journal: { verbosity: n } } }`: -1 where a component follows
/// its parent.
fn verbosity_document(logger: &Logger) -> Document {
    let mut root = doc! { "verbosity": i32::from(logger.verbosity(Component::Default).unwrap_or(0)) };
    for component in Component::ALL
        .into_iter()
        .filter(|component| *component != Component::Default)
    {
        let level = i32::from(logger.verbosity(component).unwrap_or(-1));
        insert_level(&mut root, component.path(), level);
    }
    root
}

fn insert_level(document: &mut Document, path: &str, level: i32) {
    let (head, rest) = path.split_once('.').unwrap_or((path, ""));
    let inner = document
        .entry(head.to_owned())
        .or_insert_with(|| Bson::Document(Document::new()));
    match inner {
        Bson::Document(inner) if rest.is_empty() => drop(inner.insert("verbosity", level)),
        Bson::Document(inner) => insert_level(inner, rest, level),
        _ => {}
    }
}

fn verbosity_levels(wanted: &Document) -> Result<Vec<(Component, Option<i8>)>> {
    let mut levels = Vec::new();
    collect_verbosity("", wanted, &mut levels)?;
    for (component, level) in &levels {
        if level.is_some_and(|level| level > 0) && !component.has_debug_lines() {
            return Err(CommandError::not_implemented(format!(
                "verbosity of the log component {}",
                component.path()
            )));
        }
    }
    Ok(levels)
}

fn verbosity(path: &str, value: &Bson) -> Result<(Component, Option<i8>)> {
    let level = match value {
        Bson::Double(level) if level.is_nan() => None,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => crate::parameters::as_integer(value),
        _ => None,
    };
    let level = level.ok_or_else(|| CommandError::bad_value(format!("verbosity must be a number, not {value}")))?;
    if !(-1..=i64::from(LEVEL_MAX)).contains(&level) {
        return Err(CommandError::bad_value(format!(
            "verbosity {level} is not between -1 and {LEVEL_MAX}"
        )));
    }
    let component = match path {
        "" => Some(Component::Default),
        path => Component::by_path(path),
    };
    let component = component.ok_or_else(|| CommandError::bad_value(format!("no log component {path}")))?;
    Ok((component, i8::try_from(level).ok().filter(|level| *level >= 0)))
}

/// Names nest two deep at most, which the components' own paths bound.
fn collect_verbosity(path: &str, wanted: &Document, levels: &mut Vec<(Component, Option<i8>)>) -> Result<()> {
    for (name, value) in wanted {
        if name == "verbosity" {
            levels.push(verbosity(path, value)?);
            continue;
        }
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match value {
            Bson::Document(inner) if Component::by_path(&path).is_some() => collect_verbosity(&path, inner, levels)?,
            Bson::Document(_) => return Err(CommandError::bad_value(format!("no log component {path}"))),
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => {
                levels.push(verbosity(&path, value)?);
            }
            _ => {
                return Err(CommandError::bad_value(format!(
                    "Expected {path} to be an object or a number"
                )));
            }
        }
    }
    Ok(())
}
