//! RocksDB's errors as the engine's.

use engine::{EngineError, ErrorKind};

/// For `map_err`.
pub(crate) fn rocks_error(operation: &'static str) -> impl Fn(rocksdb::Error) -> EngineError {
    move |error| EngineError::Backend {
        operation,
        kind: kind_of(&error),
        message: error.into_string(),
    }
}

/// The library's status codes, by what the caller will do. A full disk is an I/O error there, told by its words only.
fn kind_of(error: &rocksdb::Error) -> ErrorKind {
    let text: &str = error.as_ref();
    match error.kind() {
        rocksdb::ErrorKind::IOError if text.contains("No space left on device") => ErrorKind::OutOfSpace,
        rocksdb::ErrorKind::Corruption => ErrorKind::Corrupt,
        rocksdb::ErrorKind::NotSupported => ErrorKind::Unsupported,
        rocksdb::ErrorKind::InvalidArgument | rocksdb::ErrorKind::NotFound => ErrorKind::Invalid,
        rocksdb::ErrorKind::ShutdownInProgress => ErrorKind::Closed,
        _ => ErrorKind::Io,
    }
}
