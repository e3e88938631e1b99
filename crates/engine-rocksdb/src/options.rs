//! What a user can choose, and what RocksDB is told.

use crate::error::rocks_error;
use crate::layout::add_values;
use engine::{EngineError, Result};
use rocksdb::{BlockBasedOptions, Cache, DBCompressionType, Env, LogLevel, MergeOperands, Options, WriteOptions};

const MIB: u64 = 1024 * 1024;
/// Largest memtable that can be asked for.
const MEMTABLE_BYTES_MAX: u64 = 4096 * MIB;

/// Options of [`crate::RocksEngine::open`].
#[derive(Clone, Debug)]
pub struct RocksOptions {
    /// Block cache in bytes. Write buffers come on top: an eighth of it each, 4 to 64 MiB, up to four of them.
    pub cache_size_bytes: u64,
    /// Compressor of all levels but the first two: `none`, `snappy`, `lz4`, `zlib`, `zstd`.
    pub compression: String,
    /// Compressor of the last level, where most data lies, when it shall differ.
    pub bottommost_compression: Option<String>,
    /// Background threads for flushes and compactions.
    pub background_jobs_max: u32,
    /// Table files that are kept open; `None`: all there are.
    pub open_files_max: Option<u32>,
    /// RocksDB's own options, `name=value;name=value`, applied last. Those that the engine depends on are refused.
    pub config_string: String,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self {
            cache_size_bytes: 256 * MIB,
            compression: "snappy".into(),
            bottommost_compression: None,
            background_jobs_max: 2,
            open_files_max: None,
            config_string: String::new(),
        }
    }
}

/// RocksDB's options, and what they point to and do not own.
pub(crate) struct Built {
    pub(crate) options: Options,
    /// For files that are loaded in bulk: `options` as they are, and the merge operator is not needed.
    pub(crate) cache: Cache,
    /// A memtable of so many bytes is ended.
    pub(crate) memtable_bytes: usize,
    /// One that cannot be ended, since the log's disk is full, is written to up to here.
    pub(crate) memtable_bytes_kept: usize,
    pub(crate) _base: Options,
    pub(crate) _env: Env,
}

/// Options a user must not set, because exactness rests on them.
const REFUSED: &[&str] = &[
    "allow_ingest_behind",
    "arena_block_size",
    "atomic_flush",
    "avoid_flush_during_shutdown",
    "compaction_filter",
    "compaction_filter_factory",
    "comparator",
    "create_if_missing",
    "db_write_buffer_size",
    "error_if_exists",
    "experimental_mempurge_threshold",
    "inplace_update_support",
    "memtable_max_range_deletions",
    "merge_operator",
    "paranoid_checks",
    "prefix_extractor",
    "two_write_queues",
    "unordered_write",
    "write_buffer_manager",
];

/// RocksDB ends a memtable by itself at so many times the size at which the engine does: never, as long as the engine
/// counts bytes only roughly as RocksDB does. The engine may end one only with the log durable, see `engine_impl.rs`.
const OWN_BOUND: usize = 8;
/// Of that, what may be used when the engine cannot end a memtable: the rest is for errors of the count and for one
/// batch.
const KEPT_BOUND: usize = 4;
/// Memory is taken by so many bytes; RocksDB would make it an eighth of its own bound.
const ARENA_BLOCK_BYTES: usize = MIB as usize;

/// Options the binding has no setter for. A flush at shutdown would only delay it: the log brings back what is missing.
const OWN_CONFIG: &str = "avoid_flush_during_shutdown=true";

pub(crate) fn build(choice: &RocksOptions) -> Result<Built> {
    check_config_string(&choice.config_string)?;
    let memtable_bytes = memtable_bytes(choice)?;
    let mut env = Env::new().map_err(rocks_error("open"))?;
    env.lower_thread_pool_cpu_priority();
    env.lower_thread_pool_io_priority();
    let cache = Cache::new_hyper_clock_cache(choice.cache_size_bytes as usize, 0);
    let mut base = Options::default();
    base.create_if_missing(true);
    base.set_env(&env);
    base.set_merge_operator_associative("tenon.add", merge);
    base.set_block_based_table_factory(&table_options(&cache));
    set_compression(&mut base, choice)?;
    set_shape(&mut base, choice, memtable_bytes);
    // RocksDB takes no empty setting. The last of two counts: what the config string says of the memtables is in
    // `memtable_bytes`.
    let own_bound = format!("write_buffer_size={}", OWN_BOUND * memtable_bytes);
    let given = choice.config_string.trim().trim_end_matches(';').trim_end();
    let settings = [OWN_CONFIG, given, own_bound.as_str()];
    let config = settings.into_iter().filter(|setting| !setting.is_empty());
    let config = config.collect::<Vec<_>>().join(";");
    let options = base
        .get_options_from_string(config)
        .map_err(rocks_error("read the config string"))?;
    Ok(Built {
        options,
        cache,
        memtable_bytes,
        memtable_bytes_kept: KEPT_BOUND * memtable_bytes,
        _base: base,
        _env: env,
    })
}

fn table_options(cache: &Cache) -> BlockBasedOptions {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(cache);
    table.set_block_size(16 * 1024);
    table.set_bloom_filter(10.0, false);
    table.set_cache_index_and_filter_blocks(true);
    table.set_cache_index_and_filter_blocks_with_high_priority(true);
    table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    table.set_optimize_filters_for_memory(true);
    table
}

fn set_compression(options: &mut Options, choice: &RocksOptions) -> Result<()> {
    let usual = compression(&choice.compression)?;
    let none = DBCompressionType::None;
    options.set_compression_type(usual);
    options.set_compression_per_level(&[none, usual, usual, usual, usual, usual, usual]);
    if let Some(name) = &choice.bottommost_compression {
        options.set_bottommost_compression_type(compression(name)?);
    }
    Ok(())
}

/// Memtables, levels, threads, and quiet logs.
fn set_shape(options: &mut Options, choice: &RocksOptions, memtable_bytes: usize) {
    options.set_arena_block_size(ARENA_BLOCK_BYTES);
    options.set_max_write_buffer_number(4);
    options.set_target_file_size_base(64 * MIB);
    options.set_max_bytes_for_level_base(4 * memtable_bytes as u64);
    options.set_level_compaction_dynamic_level_bytes(true);
    options.set_level_zero_slowdown_writes_trigger(32);
    options.set_level_zero_stop_writes_trigger(64);
    let open_files_max = choice.open_files_max.and_then(|files| i32::try_from(files).ok());
    options.set_max_open_files(open_files_max.unwrap_or(-1));
    options.set_max_background_jobs(choice.background_jobs_max.max(2) as i32);
    options.set_bytes_per_sync(MIB);
    // A part of RocksDB's own bound, of which an eighth is used.
    options.set_memtable_prefix_bloom_ratio(0.02 / OWN_BOUND as f64);
    options.set_memtable_whole_key_filtering(true);
    options.set_allow_concurrent_memtable_write(false);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(16 * MIB as usize);
    options.set_keep_log_file_num(2);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
}

/// The size of a memtable: an eighth of the cache within bounds, or what the config string says.
fn memtable_bytes(choice: &RocksOptions) -> Result<usize> {
    let given = choice.config_string.split(';').rev().find_map(|part| {
        let (name, value) = part.split_once('=')?;
        (name.trim() == "write_buffer_size").then_some(value.trim())
    });
    let Some(text) = given else {
        return Ok((choice.cache_size_bytes / 8).clamp(4 * MIB, 64 * MIB) as usize);
    };
    let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => MIB,
        "g" => 1 << 30,
        _ => 0,
    };
    match digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(bytes @ 65_536..=MEMTABLE_BYTES_MAX) => Ok(bytes as usize),
        _ => Err(invalid(format!(
            "write_buffer_size is {text:?}: 65536 to {MEMTABLE_BYTES_MAX} bytes can be had"
        ))),
    }
}

fn compression(name: &str) -> Result<DBCompressionType> {
    Ok(match name {
        "none" => DBCompressionType::None,
        "snappy" => DBCompressionType::Snappy,
        "lz4" => DBCompressionType::Lz4,
        "zlib" => DBCompressionType::Zlib,
        "zstd" => DBCompressionType::Zstd,
        _ => {
            return Err(invalid(format!(
                "{name:?} is no compressor (none, snappy, lz4, zlib, zstd)"
            )));
        }
    })
}

fn check_config_string(text: &str) -> Result<()> {
    for part in text.split([';', '{', '}']) {
        let name = part.split('=').next().unwrap_or_default().trim();
        if REFUSED.contains(&name) {
            return Err(invalid(format!("the config string must not set {name}")));
        }
    }
    Ok(())
}

fn invalid(reason: String) -> EngineError {
    EngineError::Invalid {
        operation: "open",
        reason,
    }
}

/// Writes past RocksDB's own log.
pub(crate) fn write_options() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.disable_wal(true);
    options
}

fn merge(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    Some(add_values(existing.into_iter().chain(operands)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::ErrorKind;

    fn kind_of(choice: RocksOptions) -> Option<ErrorKind> {
        build(&choice).err().map(|error| error.kind())
    }

    #[test]
    fn bad_options_are_refused() {
        let with = |config: &str| RocksOptions {
            config_string: config.into(),
            ..RocksOptions::default()
        };
        assert_eq!(kind_of(with("")), None);
        assert_eq!(
            kind_of(with("max_open_files=100;block_based_table_factory={block_size=8192}")),
            None
        );
        assert_eq!(kind_of(with("no_such_option=1")), Some(ErrorKind::Invalid));
        assert_eq!(
            kind_of(with("max_open_files=100; merge_operator = x")),
            Some(ErrorKind::Invalid)
        );
        let memtable = |config: &str| build(&with(config)).map(|built| built.memtable_bytes).ok();
        assert_eq!(memtable(""), Some(32 << 20));
        assert_eq!(memtable("write_buffer_size=100000"), Some(100_000));
        assert_eq!(memtable("max_open_files=9; write_buffer_size = 8M"), Some(8 << 20));
        assert_eq!(memtable("write_buffer_size=12"), None);
        assert_eq!(memtable("write_buffer_size=1P"), None);
        let compressor = RocksOptions {
            compression: "brotli".into(),
            ..RocksOptions::default()
        };
        assert_eq!(kind_of(compressor), Some(ErrorKind::Invalid));
    }
}
