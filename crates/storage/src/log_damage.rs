//! Damage in the log that is met while the server works, by who reads history for other members.
//!
//! Where the engine has on disk what stood there, nothing of it is needed here, and history begins behind the damage:
//! members that want more of it copy all data. What lies behind the engine's mark is not given up: this server itself
//! would replay it.

use engine::{Engine, Seq};
use oplog::{Damage, Log, LogError};
use std::sync::Arc;

/// Damages on one way through the log that are stepped over.
const DAMAGES_MAX: usize = 16;

/// Told of damage in the log that was to be read for another member, and of the first entry behind it: history begins
/// there from now on. On the consensus thread: it must not call the storage.
pub type LogDamageHandler = Arc<dyn Fn(&LogError, Seq) + Send + Sync>;

/// The log for who reads it on behalf of other members.
#[derive(Clone)]
pub(crate) struct LogHistory {
    pub(crate) log: Arc<Log>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) on_damage: Option<LogDamageHandler>,
}

impl LogHistory {
    /// What `read` comes to, which needs the log's entry at `seq`; once more behind damage that can be stepped over,
    /// [`LogError::Purged`] where the entry was in it.
    pub(crate) fn read<T>(&self, seq: Seq, read: impl Fn(&Log) -> Result<T, LogError>) -> Result<T, LogError> {
        for _ in 0..DAMAGES_MAX {
            match read(&self.log) {
                Err(error) if is_damage(&error) => self.step_over(seq, error)?,
                read => return read,
            }
        }
        read(&self.log)
    }

    /// History begins behind the damage. The error where it cannot.
    fn step_over(&self, seq: Seq, damage: LogError) -> Result<(), LogError> {
        match self.log.step_over_damage(seq, self.engine.durable_seq()) {
            Ok(Some(first)) => {
                if let Some(handler) = &self.on_damage {
                    handler(&damage, first);
                }
                Ok(())
            }
            // Nobody has looked yet whether it can: whoever reads comes again, and the server need not end.
            Err(error) if error.passes() => Err(error),
            Ok(None) | Err(_) => Err(damage),
        }
    }
}

/// What has no key is not damaged.
fn is_damage(error: &LogError) -> bool {
    match error {
        LogError::Corrupt { damage, .. } => !matches!(damage, Damage::Sealing { .. } | Damage::Seal(_)),
        _ => false,
    }
}
