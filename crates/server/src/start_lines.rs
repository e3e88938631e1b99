//! Lines of the log about the start: what is started with what, how recovery goes, and what is unwise.

use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::run::engine_missing;
use anyhow::anyhow;
use bson::doc;
use commands::logger::{LogId, Logger, id};
use crypt::Keys;
use engine::Seq;
use oplog::LogError;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use storage::{LogDamageHandler, LogShortageHandler, RecoveryProgress, StorageOptions};

/// Fewer descriptors than this deserve a warning.
const DESCRIPTORS_ADVISED: u64 = 64_000;

/// What is wrong with the log, and what can be done.
pub(crate) fn with_advice(error: LogError, (engine, path): (&str, PathBuf)) -> anyhow::Error {
    match error {
        // What is missing before the log went with a checkpoint, and the engine has none.
        LogError::Gap { durable: Seq::ZERO, .. } => anyhow!("{error}: {}", engine_missing(engine, path)),
        LogError::Behind { .. } | LogError::Older { .. } => anyhow!(
            "{error}. Put the missing files back; or start once with --repair, which goes on with what the data files hold"
        ),
        error if error.can_be_cut() => anyhow!(
            "{error}. Restore a backup, or have a member of a replica set copy the data anew; or start once with --repair, which keeps what the log has before that"
        ),
        other => other.into(),
    }
}

/// What containers of `mongo` do at their first start, and this server does not, as the environment asks for it.
/// Nobody could log in, and nothing would say why.
pub(crate) fn container_warning() -> Option<String> {
    let names = std::env::vars_os().map(|(name, _)| name);
    passed_over(names, Path::new("/docker-entrypoint-initdb.d"))
}

fn passed_over(names: impl Iterator<Item = OsString>, scripts: &Path) -> Option<String> {
    let mut asked: Vec<String> = names
        .filter_map(|name| name.into_string().ok())
        .filter(|name| name.starts_with("MONGO_INITDB_"))
        .collect();
    asked.sort_unstable();
    let has_scripts = std::fs::read_dir(scripts).is_ok_and(|mut entries| entries.next().is_some());
    asked.extend(has_scripts.then(|| scripts.display().to_string()));
    (!asked.is_empty()).then(|| {
        format!(
            "{}: no effect. This server makes no users and runs no scripts at its first start: docs/quick-start.md has how the first user of a container is made",
            asked.join(", ")
        )
    })
}

/// What becomes of the log while the server works is told by lines of the server's log.
pub(crate) fn tell_of_log(options: &mut StorageOptions, logger: &Arc<Logger>) {
    options.on_log_shortage = Some(log_shortage(logger.clone()));
    options.on_log_damage = Some(log_damage(logger.clone()));
}

/// Tells of a log without room on its disk.
fn log_shortage(logger: Arc<Logger>) -> LogShortageHandler {
    Arc::new(move |shortage| {
        let message = match shortage.is_short {
            true => {
                "The disk has no room for the log's next file; writes are refused, or not taken from other members, when the one in use is full"
            }
            false => "The disk had no room for files that the log needs; history that was to be kept has made way",
        };
        let attributes = doc! { "historyGivenUpBytes": shortage.history_given_up_bytes as i64 };
        logger.log(id::LOG_LACKS_ROOM, "checkpointer", message, attributes);
    })
}

/// Tells of damage in the log that was met while the server works.
fn log_damage(logger: Arc<Logger>) -> LogDamageHandler {
    Arc::new(move |damage, first| {
        let message = "The log is damaged where this server does not need it; what history and other members can read begins behind that place";
        let attributes = doc! { "damage": damage.to_string(), "first": first.0 as i64 };
        logger.log(id::HISTORY_DAMAGED, "consensus", message, attributes);
    })
}

pub(crate) fn log_recovery(logger: &Logger, step: RecoveryProgress, elapsed: Duration) {
    let millis = elapsed.as_millis() as i64;
    let (message, attributes) = match step {
        RecoveryProgress::Started { durable, last } => (
            "Recovery from the log begins",
            doc! { "durable": durable.0 as i64, "last": last.0 as i64, "entries": last.0.saturating_sub(durable.0) as i64 },
        ),
        RecoveryProgress::Replayed { durable, seq, last } => {
            let (done, all) = (seq.0.saturating_sub(durable.0), last.0.saturating_sub(durable.0));
            (
                "Recovery from the log goes on",
                doc! {
                    "replayed": done as i64, "entries": all as i64, "percent": (done * 100 / all.max(1)) as i64,
                    "durationMillis": millis,
                },
            )
        }
        RecoveryProgress::Finished { entries } => (
            "Recovery from the log is over",
            doc! { "entries": entries as i64, "durationMillis": millis },
        ),
        RecoveryProgress::ResumingIndexBuilds { indexes } => {
            ("Interrupted index builds go on", doc! { "indexes": indexes as i64 })
        }
    };
    logger.log(id::RECOVERY, "initandlisten", message, attributes);
}

/// Tells of connections that were asked for and cannot be had.
pub(crate) fn log_connections_max(config: &Config, descriptors: Descriptors, logger: &Logger) {
    let allowed = descriptors.connections_max(config.net.connections_max);
    if allowed < config.net.connections_max {
        let attributes = doc! {
            "maxIncomingConnections": i64::from(config.net.connections_max), "allowed": i64::from(allowed),
            "openFilesLimit": descriptors.limit as i64,
        };
        let message = "Fewer connections are allowed than configured: four fifths of the limit of open files";
        logger.log(id::FEWER_CONNECTIONS, "initandlisten", message, attributes);
    }
}

pub(crate) fn log_start(config: &Config, engine: &str, logger: &Logger) {
    let attributes = doc! {
        "pid": i64::from(std::process::id()), "port": i32::from(config.net.endpoints.port),
        "dbPath": config.storage.db_path.display().to_string(), "storageEngine": engine,
        "version": env!("CARGO_PKG_VERSION"), "gitVersion": env!("TENON_GIT_VERSION"), "host": crate::settings::host_name(),
    };
    logger.log(id::STARTING, "initandlisten", "tenond starting", attributes);
    let attributes = doc! { "options": config.parsed.clone() };
    logger.log(id::OPTIONS, "initandlisten", "Options set by command line", attributes);
}

pub(crate) fn log_encryption(keys: Option<&Keys>, logger: &Logger) {
    let Some(keys) = keys else { return };
    let attributes = doc! { "cipherMode": crate::encryption::CIPHER_MODE, "dataKey": i64::from(keys.generation()) };
    let message = "Encryption at rest is on";
    logger.log(id::ENCRYPTED, "initandlisten", message, attributes);
}

pub(crate) fn start_warnings(
    config: &Config,
    engine: &str,
    of_engine: &[String],
    descriptors: u64,
    unclean: bool,
    logger: &Logger,
) {
    if unclean {
        let attributes = doc! { "lockFile": crate::data_directory::LOCK_FILE };
        let message = "Detected unclean shutdown - Lock file is not empty";
        logger.log(id::UNCLEAN_SHUTDOWN, "initandlisten", message, attributes);
    }
    let warn = |id: LogId, message: &str| logger.startup_warning(id, message, bson::Document::new());
    // What shells show of a server when they connect: whom they are talking to.
    warn(
        id::POWERED_BY,
        &format!(
            "Powered by Tenon {} with the storage engine {engine}",
            env!("CARGO_PKG_VERSION")
        ),
    );
    if !config.access_control {
        warn(
            id::NO_ACCESS_CONTROL,
            "Access control is not enabled for the database. Read and write access to data and configuration is unrestricted",
        );
    }
    if rustix::process::geteuid().is_root() {
        warn(
            id::RUN_AS_ROOT,
            "You are running this process as the root user, which is not recommended",
        );
    }
    if descriptors < DESCRIPTORS_ADVISED {
        let attributes = doc! { "currentValue": descriptors as i64, "recommendedMinimum": DESCRIPTORS_ADVISED as i64 };
        logger.startup_warning(
            id::FEW_DESCRIPTORS,
            "Soft rlimits for open file descriptors too low",
            attributes,
        );
    }
    if !config.storage.journal {
        warn(
            id::NO_JOURNAL,
            "Journaling is off: a crash loses every write since the last checkpoint",
        );
    }
    for warning in config.warnings.iter().chain(of_engine) {
        warn(id::START_WARNING, warning);
    }
}

#[cfg(test)]
mod tests {
    use super::passed_over;
    use std::path::Path;

    #[test]
    fn what_a_container_was_asked_for_in_vain_is_told() {
        let of = |names: &[&str], scripts: &str| {
            let names = names.iter().map(|name| (*name).into());
            passed_over(names, Path::new(scripts))
        };
        assert_eq!(of(&["PATH", "MONGO_HOST"], "/nonesuch"), None);
        let told = of(
            &["MONGO_INITDB_ROOT_USERNAME", "PATH", "MONGO_INITDB_DATABASE"],
            "/nonesuch",
        );
        let names = "MONGO_INITDB_DATABASE, MONGO_INITDB_ROOT_USERNAME: ";
        assert!(told.is_some_and(|told| told.starts_with(names)));
        assert!(of(&[], "/").is_some_and(|told| told.starts_with("/: ")));
    }
}
