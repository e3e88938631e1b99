//! Where the server's log and the audit log go.

use super::ConfigError;
use super::values::Values;
use commands::audit::{AuditDestination, AuditFormat, AuditOptions};
use commands::logger::{Destination, LoggerOptions, Rotate, TimeFormat};
use std::path::Path;

/// The audit log is rotated as the server's log is.
pub(super) fn audit_options(
    values: &Values,
    log: &LoggerOptions,
    current_directory: &Path,
) -> Result<Option<AuditOptions>, ConfigError> {
    let refused = |reason: &str| Err(ConfigError(reason.to_owned()));
    let (path, format) = (values.text("auditLog.path"), values.text("auditLog.format"));
    let filter = values.text("auditLog.filter").map(str::to_owned);
    let destination = match (values.text("auditLog.destination"), path) {
        (None, None) if format.is_none() && filter.is_none() => return Ok(None),
        (None, _) => return refused("options of auditLog need auditLog.destination"),
        (Some("console"), Some(_)) => return refused("auditLog.path is for auditLog.destination file"),
        (Some("console"), None) if format == Some("BSON") => {
            return refused("auditLog.format BSON is for auditLog.destination file");
        }
        (Some("console"), None) => AuditDestination::Console,
        (Some(_), None) => return refused("auditLog.destination file needs auditLog.path"),
        (Some(_), Some(path)) => AuditDestination::File {
            path: current_directory.join(path),
            rotate: match log.destination {
                Destination::File { rotate, .. } => rotate,
                _ => Rotate::Rename,
            },
            format: match format {
                Some("BSON") => AuditFormat::Bson,
                _ => AuditFormat::Json,
            },
        },
    };
    Ok(Some(AuditOptions { destination, filter }))
}

pub(super) fn log_options(values: &Values, current_directory: &Path) -> Result<LoggerOptions, ConfigError> {
    let append = values.boolean("systemLog.logAppend").unwrap_or(false);
    let rotate = match values.text("systemLog.logRotate") {
        Some("reopen") if !append => {
            return Err(ConfigError(
                "logAppend must equal true if logRotate is set to reopen".to_owned(),
            ));
        }
        Some("reopen") => Rotate::Reopen,
        _ => Rotate::Rename,
    };
    let destination = match values.text("systemLog.path") {
        Some(path) => Destination::File {
            path: current_directory.join(path),
            append,
            rotate,
        },
        None if values.has("systemLog.destination") => {
            return Err(ConfigError(
                "systemLog.path is required when systemLog.destination is \"file\"".to_owned(),
            ));
        }
        None => Destination::Stdout,
    };
    let time_format = match values.text("systemLog.timeStampFormat") {
        Some("iso8601-local") => TimeFormat::Iso8601Local,
        _ => TimeFormat::Iso8601Utc,
    };
    let verbosity = values
        .integer("systemLog.verbosity")
        .and_then(|level| i8::try_from(level).ok())
        .unwrap_or(0);
    Ok(LoggerOptions {
        destination,
        time_format,
        verbosity,
    })
}
