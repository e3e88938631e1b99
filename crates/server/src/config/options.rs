//! The table of options: names in YAML and on the command line, values, meaning.
//!
//! One entry per option, sorted by YAML name; `docs/configuration.md` lists the same (a test compares). Options of
//! MongoDB that are not built are in the table too, so that they are refused by name instead of being unknown.

pub use super::spec::{Kind, Spec};

const fn spec(yaml: &'static str, flag: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Spec {
    Spec {
        yaml,
        flag,
        short: 0,
        kind,
        default,
        help,
    }
}

const fn short(letter: u8, spec: Spec) -> Spec {
    Spec { short: letter, ..spec }
}

const fn not_built(yaml: &'static str, flag: &'static str, what: &'static str) -> Spec {
    spec(yaml, flag, Kind::NotBuilt(what, &[]), "", "not built")
}

const COMPRESSORS: &[&str] = &["none", "snappy", "zlib", "zstd", "lz4"];
const WT_CONFIG: &str = "a text of WiredTiger options";
const TLS: &str = "this part of TLS";
const TRANSITION: &str = "passing over to access control while clients work";
const ENTERPRISE: &str = "authentication by directory services and Kerberos";
const KEY_SERVERS: &str =
    "keeping the master key on a KMIP or Vault server (security.encryptionKeyCommand runs a program that fetches it)";
const REPLICATION: &str = "replication";
const SHARDING: &str = "sharding";

/// Flags that set another option to a fixed value: flag, YAML name, value.
pub const ALIASES: [(&str, &str, &str); 7] = [
    ("auth", "security.authorization", "enabled"),
    ("nojournal", "storage.journal.enabled", "false"),
    ("nounixsocket", "net.unixDomainSocket.enabled", "false"),
    ("noscripting", "security.javascriptEnabled", "false"),
    ("noobjcheck", "net.wireObjectCheck", "false"),
    ("noprealloc", "storage.mmapv1.preallocDataFiles", "false"),
    ("noauth", "security.authorization", "disabled"),
];

/// All options.
pub const OPTIONS: &[Spec] = &[
    short(
        b'f',
        spec(
            "",
            "config",
            Kind::Text,
            "none",
            "YAML file with options; the command line wins over it",
        ),
    ),
    spec(
        "",
        "cpu",
        Kind::NoEffect("--cpu has no effect: use serverStatus or the system's tools"),
        "",
        "none",
    ),
    spec(
        "",
        "encryptionNewKeyCommand",
        Kind::Text,
        "none",
        "program that prints the new master key, for --encryptionRotateMasterKey",
    ),
    spec(
        "",
        "encryptionNewKeyFile",
        Kind::Text,
        "none",
        "file of the new master key, for --encryptionRotateMasterKey",
    ),
    spec(
        "",
        "encryptionRotateDataKey",
        Kind::Action,
        "",
        "add a data key, with which all is encrypted that is written from the next start on, and exit",
    ),
    spec(
        "",
        "encryptionRotateMasterKey",
        Kind::Action,
        "",
        "wrap the data keys with a new master key, and exit",
    ),
    short(b'h', spec("", "help", Kind::Action, "", "print the options and exit")),
    spec(
        "",
        "repair",
        Kind::Action,
        "",
        "repair damaged files of the btree engine and exit",
    ),
    spec(
        "",
        "shutdown",
        Kind::Action,
        "",
        "stop the server that uses the dbPath, and exit",
    ),
    spec("", "version", Kind::Action, "", "print the version and exit"),
    spec(
        "auditLog.destination",
        "auditDestination",
        Kind::OneOf(&["file", "console"]),
        "none",
        "write who did what to an audit log",
    ),
    spec(
        "auditLog.filter",
        "auditFilter",
        Kind::Text,
        "none",
        "a query, as Extended JSON, that finds the events to write",
    ),
    spec(
        "auditLog.format",
        "auditFormat",
        Kind::OneOf(&["JSON", "BSON"]),
        "JSON",
        "how events are written to a file",
    ),
    spec("auditLog.path", "auditPath", Kind::Text, "none", "the audit log's file"),
    spec(
        "auditLog.schema",
        "auditSchema",
        Kind::OneOf(&["mongo"]),
        "mongo",
        "fields of events; there is this one",
    ),
    spec(
        "net.bindIp",
        "bind_ip",
        Kind::Text,
        "127.0.0.1",
        "host names, addresses and socket paths to listen on, with commas between",
    ),
    spec(
        "net.bindIpAll",
        "bind_ip_all",
        Kind::Boolean,
        "false",
        "listen on all addresses",
    ),
    spec(
        "net.compression.compressors",
        "networkMessageCompressors",
        Kind::NoEffect("net.compression.compressors has no effect: snappy, zstd and zlib are always offered"),
        "snappy,zstd,zlib",
        "compressors offered to clients",
    ),
    spec(
        "net.http.bindIp",
        "httpBindIp",
        Kind::Text,
        "127.0.0.1",
        "host names and addresses to serve the monitoring page on, with commas between",
    ),
    spec(
        "net.http.port",
        "httpPort",
        Kind::Integer(0, 65535),
        "none",
        "port of the monitoring page and of Prometheus' metrics; 0 lets the system choose one",
    ),
    spec(
        "net.ipv6",
        "ipv6",
        Kind::Boolean,
        "false",
        "listen on IPv6 addresses too",
    ),
    spec(
        "net.maxIncomingConnections",
        "maxConns",
        Kind::Integer(1, 1_000_000),
        "65536",
        "connections open at a time; more are refused",
    ),
    spec(
        "net.port",
        "port",
        Kind::Integer(0, 65535),
        "27017",
        "TCP port; 0 lets the system choose one",
    ),
    not_built("net.ssl.mode", "sslMode", TLS),
    spec(
        "net.tls.CAFile",
        "tlsCAFile",
        Kind::Text,
        "none",
        "file of the authorities that clients' certificates have to come from (PEM)",
    ),
    spec(
        "net.tls.allowConnectionsWithoutCertificates",
        "tlsAllowConnectionsWithoutCertificates",
        Kind::Boolean,
        "false",
        "with tlsCAFile: clients may show no certificate",
    ),
    spec(
        "net.tls.certificateKeyFile",
        "tlsCertificateKeyFile",
        Kind::Text,
        "none",
        "file of the server's certificate, those it comes from, and its private key (PEM)",
    ),
    spec(
        "net.tls.clusterFile",
        "tlsClusterFile",
        Kind::Text,
        "that of certificateKeyFile",
        "file of the certificate that this server shows to other members, and its private key (PEM)",
    ),
    spec(
        "net.tls.mode",
        "tlsMode",
        Kind::OneOf(&["disabled", "allowTLS", "preferTLS", "requireTLS"]),
        "disabled",
        "which connections are encrypted",
    ),
    spec(
        "net.unixDomainSocket.enabled",
        "",
        Kind::Boolean,
        "true",
        "listen on a Unix-domain socket too (--nounixsocket: do not)",
    ),
    spec(
        "net.unixDomainSocket.filePermissions",
        "filePermissions",
        Kind::Integer(0, 0o777),
        "0700",
        "permission bits of the socket file",
    ),
    spec(
        "net.unixDomainSocket.pathPrefix",
        "unixSocketPrefix",
        Kind::Text,
        "/tmp",
        "directory of the socket file mongodb-PORT.sock",
    ),
    spec(
        "net.wireObjectCheck",
        "",
        Kind::Boolean,
        "true",
        "validate documents from clients; cannot be switched off",
    ),
    spec(
        "operationProfiling.mode",
        "profile",
        Kind::OneOf(&["off", "slowOp", "all", "0", "1", "2"]),
        "off",
        "operations of all databases that system.profile gets",
    ),
    spec(
        "operationProfiling.slowOpThresholdMs",
        "slowms",
        Kind::Integer(-1, i32::MAX as i64),
        "100",
        "operations at least this slow are logged",
    ),
    spec(
        "processManagement.fork",
        "fork",
        Kind::Boolean,
        "false",
        "run in the background; needs a log file",
    ),
    spec(
        "processManagement.pidFilePath",
        "pidfilepath",
        Kind::Text,
        "none",
        "file to write the process id to",
    ),
    spec(
        "processManagement.timeZoneInfo",
        "timeZoneInfo",
        Kind::NoEffect("processManagement.timeZoneInfo has no effect: the system's time zones are used"),
        "",
        "none",
    ),
    spec(
        "replication.initiate",
        "replSetInitiate",
        Kind::Boolean,
        "false",
        "initiate the set, with this server as its only member, when it has no configuration",
    ),
    spec(
        "replication.oplogSizeMB",
        "oplogSize",
        Kind::Integer(1, 1 << 20),
        "5 % of the disk's free space, at least 990, at most 51200",
        "megabytes of history that the log of a replica set's member keeps",
    ),
    spec(
        "replication.replSetName",
        "replSet",
        Kind::Text,
        "none",
        "be a member of this replica set",
    ),
    spec(
        "security.authorization",
        "",
        Kind::OneOf(&["enabled", "disabled"]),
        "disabled",
        "clients prove who they are and may do what their user may (--auth, --noauth)",
    ),
    spec(
        "security.clusterAuthMode",
        "clusterAuthMode",
        Kind::OneOf(&["keyFile", "sendKeyFile", "sendX509", "x509"]),
        "keyFile with a keyFile",
        "how members of a cluster prove themselves to each other; implies --auth",
    ),
    spec(
        "security.enableEncryption",
        "enableEncryption",
        Kind::Boolean,
        "false",
        "encrypt the data; for a dbPath that is empty or was encrypted from the start",
    ),
    spec(
        "security.encryptionCipherMode",
        "encryptionCipherMode",
        Kind::Text,
        "AES256-GCM",
        "cipher of the data; there is this one",
    ),
    spec(
        "security.encryptionKeyCommand",
        "encryptionKeyCommand",
        Kind::Text,
        "none",
        "program that prints the master key, with its arguments",
    ),
    spec(
        "security.encryptionKeyFile",
        "encryptionKeyFile",
        Kind::Text,
        "none",
        "file of the master key: 32 bytes in base64, for its owner only",
    ),
    spec(
        "security.javascriptEnabled",
        "javascriptEnabled",
        Kind::Boolean,
        "false",
        "run scripts of clients, which have to be trusted: $where, $function, $accumulator, mapReduce",
    ),
    spec(
        "security.keyFile",
        "keyFile",
        Kind::Text,
        "none",
        "file of the key, or keys, that the members of a cluster share; implies --auth",
    ),
    not_built(
        "security.kmip.clientCertificateFile",
        "kmipClientCertificateFile",
        KEY_SERVERS,
    ),
    not_built("security.kmip.keyIdentifier", "kmipKeyIdentifier", KEY_SERVERS),
    not_built("security.kmip.rotateMasterKey", "kmipRotateMasterKey", KEY_SERVERS),
    not_built("security.kmip.serverName", "kmipServerName", KEY_SERVERS),
    not_built("security.vault.rotateMasterKey", "vaultRotateMasterKey", KEY_SERVERS),
    not_built("security.vault.serverName", "vaultServerName", KEY_SERVERS),
    not_built("security.vault.tokenFile", "vaultTokenFile", KEY_SERVERS),
    spec(
        "setParameter",
        "setParameter",
        Kind::Pairs,
        "none",
        "server parameters, name=value",
    ),
    not_built("sharding.clusterRole", "", SHARDING),
    spec(
        "storage.PerconaFT.collectionOptions.compression",
        "PerconaFTCollectionCompression",
        Kind::OneOf(COMPRESSORS),
        "zstd",
        "compressor of collections of the betree engine",
    ),
    spec(
        "storage.PerconaFT.collectionOptions.fanout",
        "PerconaFTCollectionFanout",
        Kind::Integer(4, 64),
        "16",
        "children of a node of the betree engine, at most",
    ),
    spec(
        "storage.PerconaFT.collectionOptions.pageSize",
        "PerconaFTCollectionPageSize",
        Kind::Integer(64 << 10, 64 << 20),
        "1048576",
        "bytes of a leaf of the betree engine before compression, of indexes too",
    ),
    spec(
        "storage.PerconaFT.collectionOptions.readPageSize",
        "PerconaFTCollectionReadPageSize",
        Kind::Integer(4 << 10, 1 << 20),
        "16384",
        "bytes of the parts of a leaf that are read by themselves, of indexes too",
    ),
    spec(
        "storage.PerconaFT.engineOptions.cacheSize",
        "PerconaFTEngineCacheSize",
        Kind::Integer(0, 1 << 50),
        "half of memory less 1 GB, at least 0.25 GB",
        "bytes of the betree engine's cache",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.cleanerIterations",
        "PerconaFTEngineCleanerIterations",
        "cleaner threads with numbers of their own",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.cleanerPeriod",
        "PerconaFTEngineCleanerPeriod",
        "cleaner threads with numbers of their own",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.compressBuffersBeforeEviction",
        "PerconaFTEngineCompressBuffersBeforeEviction",
        "compression of what is in memory",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.directio",
        "PerconaFTEngineDirectio",
        "reading and writing past the system's file cache",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.fsRedzone",
        "PerconaFTEngineFsRedzone",
        "a reserve of free disk space",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.journalCommitInterval",
        "PerconaFTEngineJournalCommitInterval",
        "a journal of the engine's own, beside storage.journal,",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.lockTimeout",
        "PerconaFTEngineLockTimeout",
        "locks of the engine's own",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.locktreeMaxMemory",
        "PerconaFTEngineLocktreeMaxMemory",
        "locks of the engine's own",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.numCachetableBucketMutexes",
        "PerconaFTEngineNumCachetableBucketMutexes",
        "a number of cache latches",
    ),
    spec(
        "storage.PerconaFT.indexOptions.compression",
        "PerconaFTIndexCompression",
        Kind::OneOf(COMPRESSORS),
        "zstd",
        "compressor of indexes of the betree engine",
    ),
    not_built(
        "storage.PerconaFT.indexOptions.fanout",
        "PerconaFTIndexFanout",
        "sizes for indexes alone",
    ),
    not_built(
        "storage.PerconaFT.indexOptions.pageSize",
        "PerconaFTIndexPageSize",
        "sizes for indexes alone",
    ),
    not_built(
        "storage.PerconaFT.indexOptions.readPageSize",
        "PerconaFTIndexReadPageSize",
        "sizes for indexes alone",
    ),
    spec(
        "storage.dbPath",
        "dbpath",
        Kind::Text,
        "/data/db",
        "directory of the data",
    ),
    spec(
        "storage.directoryPerDB",
        "directoryperdb",
        Kind::Boolean,
        "false",
        "a directory for each database, where the engine can",
    ),
    spec(
        "storage.engine",
        "storageEngine",
        Kind::Text,
        "that of the data, else btree",
        "storage engine; wiredTiger means btree",
    ),
    spec(
        "storage.inMemory.engineConfig.inMemorySizeGB",
        "inMemorySizeGB",
        Kind::Number(0.0, 1e6),
        "none",
        "memory bound of the inMemory engine; not enforced yet",
    ),
    spec(
        "storage.journal.commitIntervalMs",
        "journalCommitInterval",
        Kind::Integer(1, 500),
        "100",
        "milliseconds between flushes of the log",
    ),
    spec(
        "storage.journal.enabled",
        "journal",
        Kind::Boolean,
        "true",
        "keep a log, so that a crash loses nothing that was acknowledged with j: true (--nojournal: do not)",
    ),
    spec(
        "storage.mmapv1.cacheSizeGB",
        "mmapv1CacheSizeGB",
        Kind::Number(0.0, 1e6),
        "half of memory less 1 GB, at least 0.25",
        "page cache of the mmapv1 engine",
    ),
    spec(
        "storage.mmapv1.journal.commitIntervalMs",
        "",
        Kind::Integer(1, 500),
        "100",
        "milliseconds between flushes of the log; storage.journal.commitIntervalMs wins over it",
    ),
    not_built(
        "storage.mmapv1.journal.debugFlags",
        "",
        "debugging of mmapv1's own journal",
    ),
    spec(
        "storage.mmapv1.noPadding",
        "mmapv1NoPadding",
        Kind::Boolean,
        "false",
        "give records of the mmapv1 engine the room they need, and not the next power of two",
    ),
    spec(
        "storage.mmapv1.nsSize",
        "nssize",
        Kind::Integer(1, 2047),
        "16",
        "MB of a database's namespace file: how many collections and indexes it may have",
    ),
    spec(
        "storage.mmapv1.preallocDataFiles",
        "preallocDataFiles",
        Kind::Boolean,
        "true",
        "reserve each data file whole when it is made (--noprealloc: do not)",
    ),
    spec(
        "storage.mmapv1.quota.enforced",
        "quota",
        Kind::Boolean,
        "false",
        "bound the number of data files of each database",
    ),
    spec(
        "storage.mmapv1.quota.maxFilesPerDB",
        "quotaFiles",
        Kind::Integer(1, 16_000),
        "8",
        "that bound",
    ),
    spec(
        "storage.mmapv1.smallFiles",
        "smallfiles",
        Kind::Boolean,
        "false",
        "data files of 16 MB to 512 MB in place of 64 MB to 2 GB",
    ),
    spec(
        "storage.oplogMinRetentionHours",
        "oplogMinRetentionHours",
        Kind::Number(0.0, 1e5),
        "0",
        "the log of a replica set's member keeps what is younger, beyond oplogSizeMB too",
    ),
    spec(
        "storage.rocksdb.cacheSizeGB",
        "rocksdbCacheSizeGB",
        Kind::Number(0.0, 1e6),
        "half of memory less 1 GB, at least 0.25",
        "cache of the rocksdb engine",
    ),
    spec(
        "storage.rocksdb.compression",
        "rocksdbCompression",
        Kind::OneOf(COMPRESSORS),
        "snappy",
        "compressor of the rocksdb engine",
    ),
    spec(
        "storage.rocksdb.configString",
        "rocksdbConfigString",
        Kind::Text,
        "none",
        "RocksDB column-family options, name=value; …",
    ),
    spec(
        "storage.syncPeriodSecs",
        "syncdelay",
        Kind::Integer(0, 9_000_000),
        "60",
        "seconds between checkpoints; 0 makes none by the clock",
    ),
    spec(
        "storage.wiredTiger.collectionConfig.blockCompressor",
        "wiredTigerCollectionBlockCompressor",
        Kind::OneOf(COMPRESSORS),
        "snappy",
        "compressor of collections",
    ),
    not_built(
        "storage.wiredTiger.collectionConfig.configString",
        "wiredTigerCollectionConfigString",
        WT_CONFIG,
    ),
    spec(
        "storage.wiredTiger.engineConfig.cacheSizeGB",
        "wiredTigerCacheSizeGB",
        Kind::Number(0.0, 1e6),
        "half of memory less 1 GB, at least 0.25",
        "cache of the btree engine",
    ),
    spec(
        "storage.wiredTiger.engineConfig.cacheSizePct",
        "wiredTigerCacheSizePct",
        Kind::Number(0.0, 80.0),
        "none",
        "cache of the btree engine in percent of memory; cacheSizeGB wins over it",
    ),
    not_built(
        "storage.wiredTiger.engineConfig.configString",
        "wiredTigerEngineConfigString",
        WT_CONFIG,
    ),
    spec(
        "storage.wiredTiger.engineConfig.directoryForIndexes",
        "wiredTigerDirectoryForIndexes",
        Kind::Boolean,
        "false",
        "indexes in a directory of their own, where the engine can",
    ),
    spec(
        "storage.wiredTiger.engineConfig.journalCompressor",
        "wiredTigerJournalCompressor",
        Kind::OneOf(COMPRESSORS),
        "snappy",
        "compressor of the log, on every engine",
    ),
    spec(
        "storage.wiredTiger.engineConfig.maxCacheOverflowFileSizeGB",
        "wiredTigerMaxCacheOverflowFileSizeGB",
        Kind::NoEffect(
            "storage.wiredTiger.engineConfig.maxCacheOverflowFileSizeGB has no effect: there is no overflow file",
        ),
        "",
        "none",
    ),
    spec(
        "storage.wiredTiger.engineConfig.statisticsLogDelaySecs",
        "wiredTigerStatisticsLogDelaySecs",
        Kind::NoEffect("storage.wiredTiger.engineConfig.statisticsLogDelaySecs has no effect: use serverStatus"),
        "",
        "none",
    ),
    spec(
        "storage.wiredTiger.engineConfig.zstdCompressionLevel",
        "zstdDefaultCompressionLevel",
        Kind::Integer(1, 22),
        "3",
        "level of zstd in the btree engine",
    ),
    not_built(
        "storage.wiredTiger.indexConfig.configString",
        "wiredTigerIndexConfigString",
        WT_CONFIG,
    ),
    spec(
        "storage.wiredTiger.indexConfig.prefixCompression",
        "wiredTigerIndexPrefixCompression",
        Kind::Boolean,
        "true",
        "store common beginnings of index keys once",
    ),
    spec(
        "systemLog.destination",
        "",
        Kind::OneOf(&["file"]),
        "standard output",
        "file; syslog is not built",
    ),
    spec(
        "systemLog.logAppend",
        "logappend",
        Kind::Boolean,
        "false",
        "go on in an existing log file instead of renaming it",
    ),
    spec(
        "systemLog.logRotate",
        "logRotate",
        Kind::OneOf(&["rename", "reopen"]),
        "rename",
        "what rotation does",
    ),
    spec("systemLog.path", "logpath", Kind::Text, "standard output", "log file"),
    spec(
        "systemLog.quiet",
        "quiet",
        Kind::Boolean,
        "false",
        "do not log each connection",
    ),
    spec(
        "systemLog.timeStampFormat",
        "timeStampFormat",
        Kind::OneOf(&["iso8601-utc", "iso8601-local"]),
        "iso8601-utc",
        "times in the log",
    ),
    short(
        b'v',
        spec(
            "systemLog.verbosity",
            "verbose",
            Kind::Level,
            "0",
            "verbosity of the log, 0 to 5; -v to -vvvvv",
        ),
    ),
    spec(
        "tenon.allowUnprotected",
        "allowUnprotected",
        Kind::Boolean,
        "false",
        "listen beyond this machine without access control: whoever reaches the port can do anything",
    ),
    spec(
        "tenon.emulateVersion",
        "emulate-version",
        Kind::OneOf(&["7.0", "8.0"]),
        "8.0",
        "MongoDB version announced to clients",
    ),
    spec(
        "tenon.portFile",
        "portFile",
        Kind::Text,
        "none",
        "file, or pipe, to write the port to when clients are served",
    ),
    spec(
        "tenon.stopWithParent",
        "stopWithParent",
        Kind::Boolean,
        "false",
        "end when the process that started this one has ended, however it did",
    ),
];

/// Flags of options that are not built and have no YAML entry of their own above: flag and what it would switch on.
pub const FLAGS_NOT_BUILT: [(&str, &str); 9] = [
    ("transitionToAuth", TRANSITION),
    ("shardsvr", SHARDING),
    ("configsvr", SHARDING),
    ("syslog", "logging to syslog"),
    ("restore", "restore"),
    ("queryableBackupMode", "queryable backup"),
    ("traceExceptions", "exception tracing"),
    ("sslPEMKeyFile", TLS),
    ("sslOnNormalPorts", TLS),
];

/// Sections of MongoDB's file whose every option is not built: prefix of YAML names and what they are for.
pub const SECTIONS_NOT_BUILT: [(&str, &str); 13] = [
    ("auditLog.", "this part of auditing"),
    ("net.ssl.", TLS),
    ("net.tls.", TLS),
    ("net.http.", "this part of the HTTP interface"),
    ("replication.", REPLICATION),
    ("security.kmip.", KEY_SERVERS),
    ("security.ldap.", ENTERPRISE),
    ("security.sasl.", ENTERPRISE),
    ("security.transitionToAuth", TRANSITION),
    ("security.vault.", KEY_SERVERS),
    ("security.", "this part of access control"),
    ("sharding.", SHARDING),
    ("snmp.", "SNMP"),
];

/// The option of a YAML name.
pub fn by_yaml(name: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|spec| !spec.yaml.is_empty() && spec.yaml == name)
}

/// The option of a command-line name without dashes.
pub fn by_flag(name: &str) -> Option<&'static Spec> {
    OPTIONS.iter().find(|spec| !spec.flag.is_empty() && spec.flag == name)
}
