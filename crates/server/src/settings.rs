//! What commands are told of how the server was started.

use crate::config::Config;
use crate::data_directory;
use crate::engines::Registry;
use commands::Settings;

/// The machine's name.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What all operations together may gather in memory at least, however little the machine has.
const GATHERED_BYTES_MIN: u64 = 256 << 20;

/// The settings of commands, as far as the configuration tells them.
pub(crate) fn settings(
    (config, registry): (&Config, &Registry),
    argv: Vec<String>,
    port: u16,
    engine: &str,
    memory_bytes: u64,
) -> Settings {
    let db_path = &config.storage.db_path;
    // A quarter of the machine's memory for what operations gather, beside the cache's half.
    let gathered = (memory_bytes / 4).max(GATHERED_BYTES_MIN).to_string();
    let mut parameters = vec![("totalOperationMemoryBytesMax".to_owned(), gathered)];
    parameters.extend(config.parameters.iter().cloned());
    Settings {
        argv,
        parsed: config.parsed.clone(),
        git_version: env!("TENON_GIT_VERSION").to_owned(),
        host: host_name(),
        port,
        db_path: db_path.display().to_string(),
        engine_path: data_directory::engine_path(db_path, engine),
        directory_per_db: config.storage.directory_per_db,
        spill_space: None,
        metadata_path: db_path.join(data_directory::METADATA_FILE),
        encryption: None,
        journal: config.storage.journal,
        emulated_version: config.emulated_version,
        wire_version_max: config.wire_version_max,
        engines: registry.names().into_iter().map(str::to_owned).collect(),
        parameters,
        replica_set: None,
        slow_ms: config.slow_ms,
        slow_sample_rate: config.slow_sample_rate,
        profiling: config.profiling,
        access_control: config.access_control,
        cluster_auth: None,
        scripting: config.scripting,
        quiet: config.quiet,
        connections_max: config.net.connections_max,
        compressors: config.net.compressors.clone(),
        tls: None,
        audit: None,
    }
}

/// How others reach this server: by the machine's name, unless it listens to this machine only.
pub(crate) fn own_host(bind: &[String]) -> String {
    let is_local = |host: &String| {
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || host.starts_with('/') || address.is_ok_and(|address| address.is_loopback())
    };
    match bind.iter().all(is_local) {
        true => "localhost".to_owned(),
        false => host_name(),
    }
}
