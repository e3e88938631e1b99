//! How the process's file descriptors are shared out.
//!
//! Clients must not be able to use them up: without one the log cannot make its next segment, and writing ends.
//! Connections get four fifths of them, and only numbers below nine tenths (the system gives the lowest free number, so
//! that a number tells how many are taken); the files of databases are made only while a fifth is free (`vfs`); what is
//! left is for the log and for checkpoints.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// RocksDB takes no lower bound.
#[cfg(any(test, feature = "rocksdb"))]
const TABLE_FILES_MIN: u32 = 20;

/// The limit of open files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    pub limit: u64,
}

impl Descriptors {
    /// Raises the limit to what is allowed.
    pub fn raise() -> Self {
        let limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            let all = Rlimit {
                current: limit.maximum,
                maximum: limit.maximum,
            };
            // The lower one holds then.
            let _ = setrlimit(Resource::Nofile, all);
        }
        Self {
            limit: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX),
        }
    }

    /// Connections at a time, of those that were configured.
    pub fn connections_max(self, configured: u32) -> u32 {
        let most = self.limit - self.limit / 5;
        u32::try_from(most).map_or(configured, |most| most.min(configured))
    }

    /// Table files that RocksDB may keep open: half of what connections leave. It opens what it needs again.
    #[cfg(any(test, feature = "rocksdb"))]
    pub fn table_files_max(self) -> u32 {
        u32::try_from(self.limit / 10).unwrap_or(u32::MAX).max(TABLE_FILES_MIN)
    }

    /// A connection whose descriptor has this number or a higher one is refused.
    pub fn connection_number_max(self) -> i32 {
        let most = self.limit - self.limit / 10;
        i32::try_from(most).unwrap_or(i32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::Descriptors;

    #[test]
    fn connections_leave_some_to_storage() {
        let few = Descriptors { limit: 200 };
        assert_eq!((few.connections_max(65_536), few.connection_number_max()), (160, 180));
        assert_eq!(few.connections_max(100), 100);
        assert_eq!(few.table_files_max(), 20);
        let many = Descriptors { limit: u64::MAX };
        assert_eq!(
            (many.connections_max(65_536), many.connection_number_max()),
            (65_536, i32::MAX)
        );
        assert_eq!(many.table_files_max(), u32::MAX);
        assert_eq!(Descriptors { limit: 4000 }.table_files_max(), 400);
    }
}
