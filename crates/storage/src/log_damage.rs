//! Damage in the log that is met while the server works, by who reads history for other members.
//!
//! Where the engine has on disk what stood there, nothing of it is needed here, and history begins behind the damage:
//! members that want more of it copy all data. What lies behind the engine's mark is not given up: this server itself
//! would replay it.

use crate::storage::Storage;
use engine::Seq;
use oplog::{Damage, LogError};

/// Damages on one way through the log that are stepped over.
const DAMAGES_MAX: usize = 16;

impl Storage {
    /// What `read` comes to, which needs the log's entry at `seq` for another member; once more behind damage that can
    /// be stepped over, [`LogError::Purged`] where the entry was in it.
    pub(crate) fn read_past_damage<T>(&self, seq: Seq, read: impl Fn() -> Result<T, LogError>) -> Result<T, LogError> {
        for _ in 0..DAMAGES_MAX {
            match read() {
                Err(error) if self.steps_over(seq, &error) => {}
                read => return read,
            }
        }
        read()
    }

    fn steps_over(&self, seq: Seq, error: &LogError) -> bool {
        let is_damage = match error {
            // What has no key is not damaged.
            LogError::Corrupt { damage, .. } => !matches!(damage, Damage::Sealing { .. } | Damage::Seal(_)),
            _ => false,
        };
        if !is_damage {
            return false;
        }
        let Ok(Some(first)) = self.log.step_over_damage(seq, self.engine.durable_seq()) else {
            return false;
        };
        if let Some(handler) = &self.options.on_log_damage {
            handler(error, first);
        }
        true
    }
}
