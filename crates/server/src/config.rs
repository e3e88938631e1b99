//! Configuration: the command line and the YAML file, checked and turned into what the server is built from.
//!
//! `options` is the table of everything that can be given; `values` keeps what was given; this file says what it means
//! together. It reads no data and changes nothing: a configuration that is refused leaves no trace.

mod command_line;
mod file;
mod logs;
pub mod options;
mod refused;
mod spec;
pub(crate) mod suggestion;
mod values;

use crate::data_directory::AskedOplog;
use crate::encryption::{CIPHER_MODE, KeySource, RotationTask};
use crate::engines::Registry;
use crate::key_file::ClusterAuthConfig;
use auth::ClusterAuthMode;
use commands::ProfilingLevel;
use commands::audit::AuditOptions;
use commands::logger::{Component, Destination, LoggerOptions};
use logs::{audit_options, log_options};
use options::{Kind, OPTIONS, Spec};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use values::Values;

/// Why a configuration is refused, in the user's terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(pub String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// What the program shall do.
#[derive(Clone, Debug)]
pub enum Task {
    /// Serve.
    Serve(Box<Config>),
    /// Repair a data directory's files and exit.
    Repair(Box<Config>),
    /// Rotate keys of encryption at rest and exit.
    Rotate(Box<Config>, RotationTask),
    /// Stop the server of a data directory.
    Shutdown(PathBuf),
    /// Print text and exit.
    Print(String),
    /// Print [`version`] and exit.
    PrintVersion,
}

/// Everything the server is built from.
#[derive(Clone, Debug)]
pub struct Config {
    /// The log.
    pub log: LoggerOptions,
    /// `auditLog`.
    pub audit: Option<AuditOptions>,
    /// Verbosity of components.
    pub log_components: Vec<(Component, i8)>,
    /// `security.authorization`.
    pub access_control: bool,
    /// How members of a cluster prove themselves to each other.
    pub cluster_auth: Option<ClusterAuthConfig>,
    /// Run scripts of clients.
    pub scripting: bool,
    /// Log less.
    pub quiet: bool,
    /// Run in the background.
    pub fork: bool,
    /// File for the process id.
    pub pid_file: Option<PathBuf>,
    /// End when the process that started this one has ended.
    pub stops_with_parent: bool,
    /// File for the port, once clients are served.
    pub port_file: Option<PathBuf>,
    /// Listening sockets and connections.
    pub net: NetConfig,
    /// Data.
    pub storage: StorageConfig,
    /// `security.enableEncryption`: where the master key comes from.
    pub encryption: Option<KeySource>,
    /// `operationProfiling.mode`.
    pub profiling: ProfilingLevel,
    /// `operationProfiling.slowOpThresholdMs`.
    pub slow_ms: i64,
    /// `operationProfiling.slowOpSampleRate`, 0 to 1.
    pub slow_sample_rate: f64,
    /// The replica set to be a member of.
    pub replica_set: Option<SetConfig>,
    /// Server parameters, those that have options of their own included.
    pub parameters: Vec<(String, String)>,
    /// `[8, 0, x]`.
    pub emulated_version: [i32; 3],
    /// Goes with it.
    pub wire_version_max: i32,
    /// For `getCmdLineOpts`.
    pub parsed: bson::Document,
    /// Warnings for the start-up, in the order found.
    pub warnings: Vec<String>,
}

/// See [`Config::net`].
#[derive(Clone, Debug)]
pub struct NetConfig {
    /// What to listen on.
    pub endpoints: crate::net::Endpoints,
    /// More are refused.
    pub connections_max: u32,
    /// Compressors that clients may use.
    pub compressors: Vec<wire::Compressor>,
    /// Encryption of TCP connections.
    pub tls: Option<crate::net::TlsOptions>,
    /// Where the monitoring page is served.
    pub http: Option<HttpConfig>,
}

/// `net.http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Host names and addresses to listen on.
    pub bind: Vec<String>,
    /// Port; 0 lets the system choose one.
    pub port: u16,
    /// Others than this machine reach it.
    pub reaches_out: bool,
}

/// See [`Config::storage`].
#[derive(Clone, Debug)]
pub struct StorageConfig {
    /// Directory of the data, absolute.
    pub db_path: PathBuf,
    /// The engine's name as given; `None` for the default.
    pub engine: Option<String>,
    /// A directory for each database.
    pub directory_per_db: bool,
    /// Indexes in a directory of their own.
    pub directory_for_indexes: bool,
    /// Keep a log.
    pub journal: bool,
    /// Compressor of the log.
    pub journal_compressor: String,
    /// Milliseconds between flushes of the log.
    pub commit_interval_ms: u64,
    /// Seconds between checkpoints, 0 for none.
    pub sync_period_s: u64,
    /// Compressor of collections, by `storage.wiredTiger`.
    pub block_compressor: Option<String>,
    /// Common beginnings of index keys are stored once.
    pub prefix_compression: Option<bool>,
    /// Cache in bytes, by `storage.wiredTiger`.
    pub cache_bytes: Option<u64>,
    /// Cache in percent of memory, by `storage.wiredTiger`.
    pub cache_percent: Option<f64>,
    /// Level of zstd, by `storage.wiredTiger`.
    pub zstd_level: Option<i32>,
    /// The btree engine reads pages past the system's cache.
    pub direct_io: Option<bool>,
    /// Memory of the inMemory engine in bytes, where it is bounded.
    pub in_memory_bytes: Option<u64>,
    /// Cache of rocksdb in bytes.
    pub rocksdb_cache_bytes: Option<u64>,
    /// Compressor of rocksdb.
    pub rocksdb_compression: Option<String>,
    /// RocksDB's own options.
    pub rocksdb_config: Option<String>,
    /// The options of mmapv1.
    pub mmapv1: Mmapv1Config,
    /// What `storage.PerconaFT` has, for betree.
    pub betree: BetreeConfig,
}

/// `storage.mmapv1`: only what was given.
#[derive(Clone, Debug, Default)]
pub struct Mmapv1Config {
    /// Page cache in bytes.
    pub cache_bytes: Option<u64>,
    /// Records get the room they need and no more.
    pub no_padding: Option<bool>,
    /// Length of namespace files in MB.
    pub namespace_mb: Option<u64>,
    /// Reserve files whole.
    pub preallocate: Option<bool>,
    /// Bound the files of each database.
    pub quota: Option<bool>,
    /// By so many.
    pub files_per_database_max: Option<u32>,
    /// A quarter of the usual file sizes.
    pub small_files: Option<bool>,
}

/// Options of the betree engine that were given.
#[derive(Clone, Debug, Default)]
pub struct BetreeConfig {
    /// Cache in bytes.
    pub cache_bytes: Option<u64>,
    /// Compressor of collections.
    pub collection_compressor: Option<String>,
    /// Compressor of indexes.
    pub index_compressor: Option<String>,
    /// Bytes of a leaf.
    pub page_bytes: Option<u32>,
    /// Bytes of a basement.
    pub read_page_bytes: Option<u32>,
    /// Children of a node.
    pub fanout: Option<u32>,
    /// Read pieces of nodes past the system's cache.
    pub direct_io: Option<bool>,
}

/// The MongoDB versions that can be announced: name, version, wire version.
const EMULATED: [(&str, [i32; 3], i32); 2] = [("8.0", [8, 0, 12], 25), ("7.0", [7, 0, 24], 21)];

/// Reads the arguments behind the program's name, and the file they name.
pub fn task(arguments: &[String], current_directory: &Path) -> Result<Task, ConfigError> {
    let line = command_line::parse(arguments)?;
    if line.boolean("help") == Some(true) {
        return Ok(Task::Print(help()));
    }
    if line.boolean("version") == Some(true) {
        return Ok(Task::PrintVersion);
    }
    let mut values = match line.text("config") {
        Some(path) => file::read(&current_directory.join(path))?,
        None => Values::default(),
    };
    values.override_with(line);
    if values.boolean("shutdown") == Some(true) {
        return Ok(Task::Shutdown(
            current_directory.join(values.text("storage.dbPath").unwrap_or("/data/db")),
        ));
    }
    let config = Box::new(build(&values, current_directory)?);
    if let Some(task) = rotation(&values, current_directory)? {
        return Ok(Task::Rotate(config, task));
    }
    Ok(match values.boolean("repair") {
        Some(true) => Task::Repair(config),
        _ => Task::Serve(config),
    })
}

/// Reads a configuration from the text of a file alone.
pub fn from_file_text(text: &str, current_directory: &Path) -> Result<Config, ConfigError> {
    build(&file::parse(text)?, current_directory)
}

fn build(values: &Values, current_directory: &Path) -> Result<Config, ConfigError> {
    let log = log_options(values, current_directory)?;
    let audit = audit_options(values, &log, current_directory)?;
    let fork = values.boolean("processManagement.fork").unwrap_or(false);
    if fork && values.boolean("tenon.stopWithParent") == Some(true) {
        return Err(ConfigError(
            "--stopWithParent cannot be used with --fork, which leaves the parent".to_owned(),
        ));
    }
    if fork && log.destination == Destination::Stdout {
        return Err(ConfigError("--fork has to be used with --logpath".to_owned()));
    }
    let mut warnings = values.warnings.clone();
    for (component, _) in values
        .components
        .iter()
        .filter(|(component, level)| *level > 0 && !component.has_debug_lines())
    {
        let path = component.path();
        warnings.push(format!(
            "systemLog.component.{path}.verbosity has no effect: it has no lines of higher verbosity"
        ));
    }
    if values.boolean("net.wireObjectCheck") == Some(false) {
        warnings.push("net.wireObjectCheck: false has no effect: documents from clients are always checked".to_owned());
    }
    for name in ["replication.oplogSizeMB", "storage.oplogMinRetentionHours"] {
        if values.has(name) && !values.has("replication.replSetName") {
            warnings.push(format!(
                "{name} has no effect: only a replica set's member keeps history"
            ));
        }
    }
    let net = net(values, current_directory)?;
    let cluster_auth = cluster_auth(values, net.tls.as_ref(), current_directory)?;
    // Members that prove themselves have no use where nobody needs to.
    let access_control = values.text("security.authorization") == Some("enabled") || cluster_auth.is_some();
    let may_be_unprotected = values.boolean("tenon.allowUnprotected").unwrap_or(false);
    if !access_control {
        check_reach(&net.endpoints.bind, may_be_unprotected)?;
    }
    if net.http.as_ref().is_some_and(|http| http.reaches_out) && !may_be_unprotected {
        check_http(access_control, net.tls.is_some())?;
    }
    let name = values.text("tenon.emulateVersion").unwrap_or("8.0");
    let (_, emulated_version, wire_version_max) = EMULATED
        .into_iter()
        .find(|(known, _, _)| *known == name)
        .unwrap_or(EMULATED[0]);
    Ok(Config {
        log,
        audit,
        log_components: values.components.clone(),
        access_control,
        cluster_auth,
        scripting: values.boolean("security.javascriptEnabled").unwrap_or(false),
        quiet: values.boolean("systemLog.quiet").unwrap_or(false),
        fork,
        pid_file: values
            .text("processManagement.pidFilePath")
            .map(|path| current_directory.join(path)),
        stops_with_parent: values.boolean("tenon.stopWithParent").unwrap_or(false),
        port_file: values.text("tenon.portFile").map(|path| current_directory.join(path)),
        net,
        storage: storage(values, current_directory),
        encryption: encryption(values, current_directory)?,
        replica_set: replica_set(values)?,
        profiling: match values.text("operationProfiling.mode") {
            Some("slowOp" | "1") => ProfilingLevel::Slow,
            Some("all" | "2") => ProfilingLevel::All,
            _ => ProfilingLevel::Off,
        },
        slow_ms: values.integer("operationProfiling.slowOpThresholdMs").unwrap_or(100),
        slow_sample_rate: values.number("operationProfiling.slowOpSampleRate").unwrap_or(1.0),
        parameters: parameters(values),
        emulated_version,
        wire_version_max,
        parsed: values.to_document(),
        warnings,
    })
}

/// A master key's place by two options of which one may be given.
fn key_source(values: &Values, names: [&str; 2], current_directory: &Path) -> Result<Option<KeySource>, ConfigError> {
    let [file, command] = names.map(|name| values.text(name));
    match (file, command) {
        (Some(_), Some(_)) => Err(ConfigError(format!(
            "{} and {} cannot both be given",
            names[0], names[1]
        ))),
        (Some(path), None) => Ok(Some(KeySource::File(current_directory.join(path)))),
        (None, Some(command)) => Ok(Some(KeySource::Command(command.to_owned()))),
        (None, None) => Ok(None),
    }
}

fn encryption(values: &Values, current_directory: &Path) -> Result<Option<KeySource>, ConfigError> {
    let names = ["security.encryptionKeyFile", "security.encryptionKeyCommand"];
    let source = key_source(values, names, current_directory)?;
    let mode = values.text("security.encryptionCipherMode");
    let is_on = values.boolean("security.enableEncryption").unwrap_or(false);
    match mode {
        None | Some(CIPHER_MODE) => {}
        Some("AES256-CBC") => {
            return Err(ConfigError(format!(
                "security.encryptionCipherMode (--encryptionCipherMode): AES256-CBC is not built, since it does not notice what was \
                 changed on the disk; {CIPHER_MODE} is the default"
            )));
        }
        Some(mode) => {
            return Err(ConfigError(format!(
                "security.encryptionCipherMode (--encryptionCipherMode): {mode} is not known; {CIPHER_MODE} is"
            )));
        }
    }
    match (is_on, source) {
        (true, None) => Err(ConfigError(
            "security.enableEncryption (--enableEncryption) has to be used with security.encryptionKeyFile or \
             security.encryptionKeyCommand"
                .to_owned(),
        )),
        (true, source) => Ok(source),
        // Somebody who gives a key believes that it is used.
        (false, None) if mode.is_none() => Ok(None),
        (false, _) => Err(ConfigError(
            "security.encryption* options have to be used with security.enableEncryption (--enableEncryption)"
                .to_owned(),
        )),
    }
}

/// What is asked for with `--encryptionRotate...`.
fn rotation(values: &Values, current_directory: &Path) -> Result<Option<RotationTask>, ConfigError> {
    let asked = |name| values.boolean(name) == Some(true);
    let new = key_source(
        values,
        ["encryptionNewKeyFile", "encryptionNewKeyCommand"],
        current_directory,
    )?;
    let refused = |reason: &str| Err(ConfigError(reason.to_owned()));
    match (
        asked("encryptionRotateMasterKey"),
        asked("encryptionRotateDataKey"),
        new,
    ) {
        (false, false, None) => Ok(None),
        (false, true, None) => Ok(Some(RotationTask::Data)),
        (true, false, Some(new)) => Ok(Some(RotationTask::Master(new))),
        (true, true, _) => refused("--encryptionRotateMasterKey and --encryptionRotateDataKey are two runs"),
        (true, false, None) => refused(
            "--encryptionRotateMasterKey has to be used with --encryptionNewKeyFile or --encryptionNewKeyCommand",
        ),
        (false, _, Some(_)) => refused("a new master key is for --encryptionRotateMasterKey"),
    }
}

/// `replication.*`: how this server is a member of a replica set.
#[derive(Clone, Debug, PartialEq)]
pub struct SetConfig {
    /// The set's name.
    pub name: String,
    /// Whether to initiate it.
    pub initiates: bool,
    /// How much history the log keeps.
    pub oplog: AskedOplog,
}

fn replica_set(values: &Values) -> Result<Option<SetConfig>, ConfigError> {
    let initiates = values.boolean("replication.initiate").unwrap_or(false);
    let hours = values.number("storage.oplogMinRetentionHours").unwrap_or(0.0);
    let refused = |reason: &str| Err(ConfigError(reason.to_owned()));
    match values.text("replication.replSetName") {
        None if initiates => refused("--replSetInitiate has to be used with --replSet"),
        None => Ok(None),
        Some(name) if name.is_empty() || name.contains(['/', ',']) => {
            refused("replication.replSetName (--replSet): a name without '/' and ',' is expected")
        }
        Some(_) if values.boolean("storage.journal.enabled") == Some(false) => {
            refused("a member of a replica set needs the log: leave --nojournal out, or --replSet")
        }
        Some(name) => Ok(Some(SetConfig {
            name: name.to_owned(),
            initiates,
            oplog: AskedOplog {
                bytes: values.integer("replication.oplogSizeMB").map(|mb| (mb as u64) << 20),
                time: Duration::from_millis((hours * 3_600_000.0).round() as u64),
            },
        })),
    }
}

fn tls(values: &Values, current_directory: &Path) -> Result<Option<crate::net::TlsOptions>, ConfigError> {
    use crate::net::{TlsMode, TlsOptions};
    let refused = |reason: &str| Err(ConfigError(reason.to_owned()));
    let path = |name| values.text(name).map(|path| current_directory.join(path));
    let (key_file, ca_file) = (path("net.tls.certificateKeyFile"), path("net.tls.CAFile"));
    let cluster_file = path("net.tls.clusterFile");
    let mode = match values.text("net.tls.mode") {
        Some("allowTLS") => TlsMode::Allow("allowTLS"),
        Some("preferTLS") => TlsMode::Allow("preferTLS"),
        Some("requireTLS") => TlsMode::Require,
        _ if key_file.is_some() || ca_file.is_some() || cluster_file.is_some() => {
            return refused(
                "need to enable TLS via the tlsMode flag (net.tls.mode) when using TLS configuration parameters",
            );
        }
        _ => return Ok(None),
    };
    match key_file {
        None => refused("need tlsCertificateKeyFile (net.tls.certificateKeyFile) when TLS is enabled"),
        Some(key_file) => Ok(Some(TlsOptions {
            mode,
            key_file,
            ca_file,
            cluster_file,
            may_be_anonymous: values
                .boolean("net.tls.allowConnectionsWithoutCertificates")
                .unwrap_or(false),
        })),
    }
}

/// `security.keyFile` and `security.clusterAuthMode`.
fn cluster_auth(
    values: &Values,
    tls: Option<&crate::net::TlsOptions>,
    current_directory: &Path,
) -> Result<Option<ClusterAuthConfig>, ConfigError> {
    let refused = |reason: &str| Err(ConfigError(reason.to_owned()));
    let key_file = values.text("security.keyFile").map(|path| current_directory.join(path));
    let named = |name: &str| ClusterAuthMode::ALL.into_iter().find(|mode| mode.name() == name);
    let mode = match values.text("security.clusterAuthMode").and_then(named) {
        Some(mode) => mode,
        None if key_file.is_some() => ClusterAuthMode::KeyFile,
        None => return Ok(None),
    };
    if values.text("security.authorization") == Some("disabled") {
        return refused("security.keyFile and security.clusterAuthMode switch access control on: leave --noauth out");
    }
    if mode != ClusterAuthMode::X509 && key_file.is_none() {
        return refused("security.clusterAuthMode: a keyFile (security.keyFile) is needed in every mode but x509");
    }
    if mode.takes_certificates() {
        match tls {
            None => return refused("security.clusterAuthMode: certificates need TLS (net.tls.mode)"),
            Some(tls) if tls.mode == crate::net::TlsMode::Allow("allowTLS") => {
                return refused(
                    "security.clusterAuthMode: members without TLS (net.tls.mode: allowTLS) show no certificates",
                );
            }
            Some(tls) if tls.ca_file.is_none() => {
                return refused("security.clusterAuthMode: certificates need an authority (net.tls.CAFile)");
            }
            Some(_) => {}
        }
    }
    Ok(Some(ClusterAuthConfig { mode, key_file }))
}

fn net(values: &Values, current_directory: &Path) -> Result<NetConfig, ConfigError> {
    let all = values.boolean("net.bindIpAll").unwrap_or(false);
    let bind: Vec<String> = match values.text("net.bindIp") {
        Some(_) if all => {
            return Err(ConfigError(
                "cannot specify both net.bindIp and net.bindIpAll".to_owned(),
            ));
        }
        _ if all => vec!["*".to_owned()],
        Some(list) => hosts(list),
        None => vec!["127.0.0.1".to_owned()],
    };
    if bind.is_empty() {
        return Err(ConfigError("bind_ip has no address".to_owned()));
    }
    let permissions = values.integer("net.unixDomainSocket.filePermissions").unwrap_or(0o700);
    let prefix = values.text("net.unixDomainSocket.pathPrefix").unwrap_or("/tmp");
    let unix = values.boolean("net.unixDomainSocket.enabled").unwrap_or(true);
    let port = values
        .integer("net.port")
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(27017);
    let most = values
        .integer("net.maxIncomingConnections")
        .and_then(|most| u32::try_from(most).ok());
    Ok(NetConfig {
        endpoints: crate::net::Endpoints {
            bind,
            port,
            ipv6: values.boolean("net.ipv6").unwrap_or(false),
            unix: unix.then(|| (PathBuf::from(prefix), u32::try_from(permissions).unwrap_or(0o700))),
        },
        connections_max: most.unwrap_or(65536),
        compressors: values.compressors("net.compression.compressors")?,
        tls: tls(values, current_directory)?,
        http: http(values)?,
    })
}

fn http(values: &Values) -> Result<Option<HttpConfig>, ConfigError> {
    let refused = |reason: &str| Err(ConfigError(reason.to_owned()));
    let port = values
        .integer("net.http.port")
        .and_then(|port| u16::try_from(port).ok());
    let Some(port) = port else {
        return match values.has("net.http.bindIp") {
            true => refused("net.http.bindIp (--httpBindIp) has to be used with net.http.port (--httpPort)"),
            false => Ok(None),
        };
    };
    let bind = hosts(values.text("net.http.bindIp").unwrap_or("127.0.0.1"));
    if bind.is_empty() || bind.iter().any(|host| host.starts_with('/')) {
        return refused("net.http.bindIp (--httpBindIp): host names and addresses are expected");
    }
    let reaches_out = !bind.iter().all(|host| is_of_this_machine(host));
    Ok(Some(HttpConfig {
        bind,
        port,
        reaches_out,
    }))
}

/// What stands between commas. An address may stand in brackets, as in connection strings.
fn hosts(list: &str) -> Vec<String> {
    let hosts = list.split(',').map(str::trim).filter(|host| !host.is_empty());
    let bare = |host| -> Option<&str> { str::strip_suffix(str::strip_prefix(host, '[')?, ']') };
    hosts.map(|host| bare(host).unwrap_or(host).to_owned()).collect()
}

/// The page tells what collections there are and how they are used, and passwords are sent to it as they are.
fn check_http(access_control: bool, has_tls: bool) -> Result<(), ConfigError> {
    let missing = match (access_control, has_tls) {
        (true, true) => return Ok(()),
        (false, _) => "access control (--auth)",
        (true, false) => "TLS (--tlsMode), because passwords are sent to it",
    };
    Err(ConfigError(format!(
        "net.http.bindIp: beyond this machine the monitoring page needs {missing}. Or say --allowUnprotected \
         (tenon.allowUnprotected: true)"
    )))
}

/// Refuses to serve everybody on the network without access control, unless that is said to be wanted: servers that
/// were opened by mistake are found within hours.
fn check_reach(bind: &[String], allowed: bool) -> Result<(), ConfigError> {
    match bind.iter().find(|host| !is_of_this_machine(host)) {
        Some(host) if !allowed => Err(ConfigError(format!(
            "net.bindIp: {} would let everybody who reaches it read and change everything. Switch access control on with \
             --auth (security.authorization: enabled), or say --allowUnprotected (tenon.allowUnprotected: true)",
            if host == "*" { "all addresses" } else { host }
        ))),
        _ => Ok(()),
    }
}

/// Is it a loopback address or the path of a socket? Other names are not looked up: they may mean another address
/// tomorrow.
fn is_of_this_machine(host: &str) -> bool {
    let loopback = host
        .parse::<std::net::IpAddr>()
        .is_ok_and(|address| address.to_canonical().is_loopback());
    host == "localhost" || host.starts_with('/') || loopback
}

fn storage(values: &Values, current_directory: &Path) -> StorageConfig {
    let bytes = |key| {
        values
            .number(key)
            .filter(|size| *size > 0.0)
            .map(|size| (size * (1u64 << 30) as f64) as u64)
    };
    let text = |key| values.text(key).map(str::to_owned);
    let number = |key, default: u64| {
        values
            .integer(key)
            .and_then(|value| u64::try_from(value).ok())
            .unwrap_or(default)
    };
    StorageConfig {
        db_path: normal(&current_directory.join(values.text("storage.dbPath").unwrap_or("/data/db"))),
        engine: text("storage.engine"),
        directory_per_db: values.boolean("storage.directoryPerDB").unwrap_or(false),
        directory_for_indexes: values
            .boolean("storage.wiredTiger.engineConfig.directoryForIndexes")
            .unwrap_or(false),
        journal: values.boolean("storage.journal.enabled").unwrap_or(true),
        journal_compressor: text("storage.wiredTiger.engineConfig.journalCompressor")
            .unwrap_or_else(|| "snappy".to_owned()),
        // mmapv1 had a name of its own for it; the log is one for all engines.
        commit_interval_ms: number(
            "storage.journal.commitIntervalMs",
            number("storage.mmapv1.journal.commitIntervalMs", 100),
        ),
        sync_period_s: number("storage.syncPeriodSecs", 60),
        block_compressor: text("storage.wiredTiger.collectionConfig.blockCompressor"),
        prefix_compression: values.boolean("storage.wiredTiger.indexConfig.prefixCompression"),
        cache_bytes: bytes("storage.wiredTiger.engineConfig.cacheSizeGB"),
        cache_percent: values
            .number("storage.wiredTiger.engineConfig.cacheSizePct")
            .filter(|share| *share > 0.0),
        zstd_level: values
            .integer("storage.wiredTiger.engineConfig.zstdCompressionLevel")
            .and_then(|level| i32::try_from(level).ok()),
        direct_io: values.boolean("storage.btree.directIO"),
        in_memory_bytes: bytes("storage.inMemory.engineConfig.inMemorySizeGB"),
        rocksdb_cache_bytes: bytes("storage.rocksdb.cacheSizeGB"),
        rocksdb_compression: text("storage.rocksdb.compression"),
        rocksdb_config: text("storage.rocksdb.configString"),
        mmapv1: Mmapv1Config {
            cache_bytes: bytes("storage.mmapv1.cacheSizeGB"),
            no_padding: values.boolean("storage.mmapv1.noPadding"),
            namespace_mb: values
                .integer("storage.mmapv1.nsSize")
                .and_then(|mb| u64::try_from(mb).ok()),
            preallocate: values.boolean("storage.mmapv1.preallocDataFiles"),
            quota: values.boolean("storage.mmapv1.quota.enforced"),
            files_per_database_max: values
                .integer("storage.mmapv1.quota.maxFilesPerDB")
                .and_then(|files| u32::try_from(files).ok()),
            small_files: values.boolean("storage.mmapv1.smallFiles"),
        },
        betree: betree(values),
    }
}

fn betree(values: &Values) -> BetreeConfig {
    let text = |name: &str| values.text(&format!("storage.PerconaFT.{name}")).map(str::to_owned);
    let integer = |name: &str| values.integer(&format!("storage.PerconaFT.{name}"));
    let small = |name: &str| integer(name).and_then(|number| u32::try_from(number).ok());
    BetreeConfig {
        cache_bytes: integer("engineOptions.cacheSize").and_then(|bytes| u64::try_from(bytes).ok()),
        collection_compressor: text("collectionOptions.compression"),
        index_compressor: text("indexOptions.compression"),
        page_bytes: small("collectionOptions.pageSize"),
        read_page_bytes: small("collectionOptions.readPageSize"),
        fanout: small("collectionOptions.fanout"),
        direct_io: values.boolean("storage.PerconaFT.engineOptions.directio"),
    }
}

/// The path without `.` components: `./data` below the current directory reads as users expect it in messages.
fn normal(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Options that are parameters at the same time come first, so that `setParameter` wins.
fn parameters(values: &Values) -> Vec<(String, String)> {
    let both = [
        ("storage.syncPeriodSecs", "syncdelay"),
        ("storage.journal.commitIntervalMs", "journalCommitInterval"),
    ];
    let mut parameters: Vec<_> = both
        .into_iter()
        .filter_map(|(key, name)| Some((name.to_owned(), values.integer(key)?.to_string())))
        .collect();
    parameters.extend(values.parameters.iter().cloned());
    parameters
}

/// The options' groups: beginning of their YAML names, and what they are about.
const GROUPS: [(&str, &str); 9] = [
    ("", "General"),
    ("net.", "Network"),
    ("security.", "Access control"),
    ("replication.", "Replica set"),
    ("storage.", "Storage"),
    ("systemLog.", "Log"),
    ("operationProfiling.", "Slow operations"),
    ("processManagement.", "Process"),
    ("tenon.", "Tenon's own"),
];

fn help() -> String {
    let mut text =
        String::from("Options, with their names in YAML files in brackets; docs/configuration.md says more.\n");
    let is_shown = |spec: &&Spec| !spec.flag.is_empty() && !matches!(spec.kind, Kind::NotBuilt(..));
    let group_of = |spec: &Spec| {
        let is_its = |(prefix, _): &&(&str, &str)| !prefix.is_empty() && spec.yaml.starts_with(prefix);
        GROUPS.iter().find(is_its).map_or("", |(prefix, _)| *prefix)
    };
    for (prefix, title) in GROUPS {
        let _ = write!(text, "\n{title}:\n");
        for spec in OPTIONS.iter().filter(is_shown).filter(|spec| group_of(spec) == prefix) {
            write_option(&mut text, spec);
        }
        let aliases = options::ALIASES
            .iter()
            .filter(|(_, yaml, _)| !prefix.is_empty() && yaml.starts_with(prefix));
        for (flag, yaml, value) in aliases {
            let flag = format!("  --{flag}");
            let _ = writeln!(text, "{flag:<44} the same as {yaml}: {value}");
        }
    }
    text
}

fn write_option(text: &mut String, spec: &Spec) {
    let mut left = match spec.short {
        0 => format!("  --{}", spec.flag),
        letter => format!("  -{} [ --{} ]", char::from(letter), spec.flag),
    };
    if !spec.takes_no_argument() {
        left.push_str(" arg");
    }
    let _ = write!(text, "{left:<44} {}", spec.help);
    if let Kind::OneOf(words) = spec.kind {
        let _ = write!(text, ": {}", words.join(", "));
    }
    if !matches!(spec.default, "" | "none") {
        let _ = write!(text, " (default: {})", spec.default);
    }
    if !spec.yaml.is_empty() {
        let _ = write!(text, " [{}]", spec.yaml);
    }
    text.push('\n');
}

/// What `--version` prints.
pub fn version(engines: &Registry) -> String {
    let engines = engines.names().join(", ");
    let [major, minor, patch] = EMULATED[0].1;
    format!(
        "tenond version v{}\nGit version: {}\nAnnounces itself to clients as: {major}.{minor}.{patch}\nStorage engines: {engines}\n",
        env!("CARGO_PKG_VERSION"),
        env!("TENON_GIT_VERSION")
    )
}

#[cfg(test)]
mod tests;
