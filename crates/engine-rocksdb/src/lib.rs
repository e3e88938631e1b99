//! The rocksdb engine: RocksDB behind the engine API.
