//! Opens the mmapv1 engine with the options users gave.

use crate::config::StorageConfig;
use crate::memory;
use engine::{Engine, EngineError};
use engine_mmapv1::{Allocation, Mmapv1Engine, Mmapv1Options};
use std::path::Path;
use std::sync::Arc;
use vfs::Env;

/// Files of a database when the quota is on and names no number, as in MongoDB.
const QUOTA_FILES: u32 = 8;

/// Opens the engine on its directory.
pub fn open(env: &Env, directory: &Path, storage: &StorageConfig) -> Result<Arc<dyn Engine>, EngineError> {
    let options = options(storage, memory::bytes(&*env.fs));
    Ok(Arc::new(Mmapv1Engine::open(env, directory, options)?))
}

/// The cache's size; 0 stands for the default.
pub fn cache_bytes(storage: &StorageConfig, memory_bytes: u64) -> u64 {
    let given = storage.mmapv1.cache_bytes.filter(|bytes| *bytes > 0);
    given.unwrap_or_else(|| memory::default_cache_bytes(memory_bytes))
}

fn options(storage: &StorageConfig, memory_bytes: u64) -> Mmapv1Options {
    let given = &storage.mmapv1;
    let mut options = Mmapv1Options::with_cache(cache_bytes(storage, memory_bytes));
    if given.small_files == Some(true) {
        options = options.with_small_files();
    }
    if let Some(mb) = given.namespace_mb {
        options.namespace_bytes = mb << 20;
    }
    options.preallocate = given.preallocate.unwrap_or(true);
    options.directory_per_database = storage.directory_per_db;
    options.files_per_database_max =
        (given.quota == Some(true)).then(|| given.files_per_database_max.unwrap_or(QUOTA_FILES));
    if given.no_padding == Some(true) {
        options.allocation = Allocation::Exact;
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options_of(text: &str) -> Mmapv1Options {
        let config = crate::config::from_file_text(text, Path::new("/")).expect("it parses");
        options(&config.storage, 64 << 30)
    }

    #[test]
    fn options_of_the_file_reach_the_engine() {
        let usual = options_of("storage:\n  engine: mmapv1\n");
        assert_eq!((usual.first_file_bytes, usual.namespace_bytes), (64 << 20, 16 << 20));
        assert_eq!((usual.preallocate, usual.files_per_database_max), (true, None));
        assert_eq!(usual.allocation, Allocation::PowersOfTwo);
        let given = options_of(
            "storage:\n  directoryPerDB: true\n  mmapv1:\n    cacheSizeGB: 2\n    noPadding: true\n    nsSize: 32\n    \
             preallocDataFiles: false\n    smallFiles: true\n    quota:\n      enforced: true\n      maxFilesPerDB: 3\n",
        );
        assert_eq!((given.first_file_bytes, given.file_bytes_max), (16 << 20, 512 << 20));
        assert_eq!((given.namespace_bytes, given.cache_bytes), (32 << 20, 2 << 30));
        assert!(given.directory_per_database && !given.preallocate);
        assert_eq!(
            (given.files_per_database_max, given.allocation),
            (Some(3), Allocation::Exact)
        );
        let quota = options_of("storage:\n  mmapv1:\n    quota:\n      enforced: true\n");
        assert_eq!(quota.files_per_database_max, Some(8));
    }
}
