//! MongoDB's options that are not built. They are refused by name, and with what they would switch on, instead of being
//! unknown; those of their values that switch it off are taken.

use super::spec::{Spec, not_built};

const CERTIFICATES: &str = "certificates from the system's store";
const CHECKS_OF_CERTIFICATES: &str = "this choice of what certificates have to show";
const CLEANERS: &str = "cleaner threads with numbers of their own";
const CONCERNS: &str = "replication without majority reads";
const DIRECTORIES: &str = "authentication by directory services and Kerberos";
const INDEX_BUILDS: &str = "leaving indexes unbuilt behind a restart";
const INDEX_SIZES: &str = "sizes for indexes alone";
const KEY_SERVERS: &str =
    "keeping the master key on a KMIP or Vault server (security.encryptionKeyCommand runs a program that fetches it)";
const LOCKS: &str = "locks of the engine's own";
const PASSWORDS: &str = "a private key with a password";
const PROTOCOLS: &str = "a choice of TLS versions";
const SHARDING: &str = "sharding";
const SSL: &str = "the older name of net.tls";
const TRANSITION: &str = "passing over to access control while clients work";
const WT_CONFIG: &str = "a text of WiredTiger options";

const OFF: &[&str] = &["false"];
const NO_VALUE: &[&str] = &[];

/// The options, sorted by YAML name.
pub const REFUSED: &[Spec] = &[
    not_built("", "configdb", NO_VALUE, SHARDING),
    not_built("", "configExpand", &["none"], "values from programs and from the net"),
    not_built("", "configsvr", OFF, SHARDING),
    not_built("", "noIndexBuildRetry", OFF, INDEX_BUILDS),
    not_built("", "queryableBackupMode", OFF, "queryable backup"),
    not_built(
        "",
        "restore",
        OFF,
        "restoring by the server itself (tenon restore does)",
    ),
    not_built("", "shardsvr", OFF, SHARDING),
    not_built("", "sslOnNormalPorts", OFF, SSL),
    not_built("", "syslog", OFF, "logging to syslog"),
    not_built(
        "",
        "upgrade",
        OFF,
        "upgrading files of MongoDB's (tenon rescue reads MMAPv1's)",
    ),
    not_built(
        "auditLog.auditEncryptionKeyIdentifier",
        "auditEncryptionKeyIdentifier",
        NO_VALUE,
        "encryption of the audit log",
    ),
    not_built(
        "auditLog.compressionMode",
        "auditCompressionMode",
        &["none"],
        "compression of the audit log",
    ),
    not_built(
        "auditLog.runtimeConfiguration",
        "auditRuntimeConfiguration",
        OFF,
        "changing the audit log's filter at run time",
    ),
    not_built("net.http.JSONPEnabled", "jsonp", OFF, "MongoDB's old HTTP interface"),
    not_built(
        "net.http.RESTInterfaceEnabled",
        "rest",
        OFF,
        "MongoDB's old HTTP interface",
    ),
    not_built(
        "net.http.enabled",
        "httpinterface",
        OFF,
        "MongoDB's old HTTP interface (net.http.port is Tenon's)",
    ),
    not_built(
        "net.listenBacklog",
        "listenBacklog",
        NO_VALUE,
        "a length of the queue of new connections",
    ),
    not_built(
        "net.serviceExecutor",
        "serviceExecutor",
        NO_VALUE,
        "a choice of how threads serve connections",
    ),
    not_built("net.ssl.CAFile", "sslCAFile", NO_VALUE, SSL),
    not_built("net.ssl.CRLFile", "sslCRLFile", NO_VALUE, SSL),
    not_built("net.ssl.FIPSMode", "sslFIPSMode", OFF, SSL),
    not_built("net.ssl.PEMKeyFile", "sslPEMKeyFile", NO_VALUE, SSL),
    not_built("net.ssl.PEMKeyPassword", "sslPEMKeyPassword", NO_VALUE, SSL),
    not_built(
        "net.ssl.allowConnectionsWithoutCertificates",
        "sslAllowConnectionsWithoutCertificates",
        OFF,
        SSL,
    ),
    not_built(
        "net.ssl.allowInvalidCertificates",
        "sslAllowInvalidCertificates",
        OFF,
        SSL,
    ),
    not_built("net.ssl.allowInvalidHostnames", "sslAllowInvalidHostnames", OFF, SSL),
    not_built("net.ssl.clusterFile", "sslClusterFile", NO_VALUE, SSL),
    not_built("net.ssl.clusterPassword", "sslClusterPassword", NO_VALUE, SSL),
    not_built("net.ssl.disabledProtocols", "sslDisabledProtocols", NO_VALUE, SSL),
    not_built("net.ssl.mode", "sslMode", &["disabled"], SSL),
    not_built(
        "net.tls.CRLFile",
        "tlsCRLFile",
        NO_VALUE,
        "lists of revoked certificates",
    ),
    not_built("net.tls.FIPSMode", "tlsFIPSMode", OFF, "FIPS mode"),
    not_built(
        "net.tls.allowInvalidCertificates",
        "tlsAllowInvalidCertificates",
        OFF,
        CHECKS_OF_CERTIFICATES,
    ),
    not_built(
        "net.tls.allowInvalidHostnames",
        "tlsAllowInvalidHostnames",
        OFF,
        CHECKS_OF_CERTIFICATES,
    ),
    not_built(
        "net.tls.certificateKeyFilePassword",
        "tlsCertificateKeyFilePassword",
        NO_VALUE,
        PASSWORDS,
    ),
    not_built(
        "net.tls.certificateSelector",
        "tlsCertificateSelector",
        NO_VALUE,
        CERTIFICATES,
    ),
    not_built(
        "net.tls.clusterCAFile",
        "tlsClusterCAFile",
        NO_VALUE,
        "other authorities for members than for clients",
    ),
    not_built(
        "net.tls.clusterCertificateSelector",
        "tlsClusterCertificateSelector",
        NO_VALUE,
        CERTIFICATES,
    ),
    not_built("net.tls.clusterPassword", "tlsClusterPassword", NO_VALUE, PASSWORDS),
    not_built("net.tls.disabledProtocols", "tlsDisabledProtocols", NO_VALUE, PROTOCOLS),
    not_built("net.tls.logVersions", "tlsLogVersions", NO_VALUE, PROTOCOLS),
    not_built("notablescan", "notablescan", OFF, "refusing scans of collections"),
    not_built(
        "operationProfiling.filter",
        "",
        NO_VALUE,
        "a filter from the start on (the profile command sets one)",
    ),
    not_built(
        "replication.enableMajorityReadConcern",
        "enableMajorityReadConcern",
        &["true"],
        CONCERNS,
    ),
    not_built(
        "security.clusterIpSourceAllowlist",
        "clusterIpSourceAllowlist",
        NO_VALUE,
        "a list of the members' addresses",
    ),
    not_built(
        "security.clusterIpSourceWhitelist",
        "clusterIpSourceWhitelist",
        NO_VALUE,
        "a list of the members' addresses",
    ),
    not_built(
        "security.kmip.clientCertificateFile",
        "kmipClientCertificateFile",
        NO_VALUE,
        KEY_SERVERS,
    ),
    not_built(
        "security.kmip.clientCertificatePassword",
        "kmipClientCertificatePassword",
        NO_VALUE,
        KEY_SERVERS,
    ),
    not_built(
        "security.kmip.keyIdentifier",
        "kmipKeyIdentifier",
        NO_VALUE,
        KEY_SERVERS,
    ),
    not_built("security.kmip.port", "kmipPort", NO_VALUE, KEY_SERVERS),
    not_built("security.kmip.rotateMasterKey", "kmipRotateMasterKey", OFF, KEY_SERVERS),
    not_built("security.kmip.serverCAFile", "kmipServerCAFile", NO_VALUE, KEY_SERVERS),
    not_built("security.kmip.serverName", "kmipServerName", NO_VALUE, KEY_SERVERS),
    not_built(
        "security.ldap.authz.queryTemplate",
        "ldapAuthzQueryTemplate",
        NO_VALUE,
        DIRECTORIES,
    ),
    not_built("security.ldap.bind.method", "ldapBindMethod", NO_VALUE, DIRECTORIES),
    not_built(
        "security.ldap.bind.queryPassword",
        "ldapQueryPassword",
        NO_VALUE,
        DIRECTORIES,
    ),
    not_built("security.ldap.bind.queryUser", "ldapQueryUser", NO_VALUE, DIRECTORIES),
    not_built("security.ldap.servers", "ldapServers", NO_VALUE, DIRECTORIES),
    not_built(
        "security.ldap.transportSecurity",
        "ldapTransportSecurity",
        NO_VALUE,
        DIRECTORIES,
    ),
    not_built(
        "security.ldap.userToDNMapping",
        "ldapUserToDNMapping",
        NO_VALUE,
        DIRECTORIES,
    ),
    not_built(
        "security.redactClientLogData",
        "redactClientLogData",
        OFF,
        "a log without users' data",
    ),
    not_built("security.sasl.hostName", "", NO_VALUE, DIRECTORIES),
    not_built("security.sasl.saslauthdSocketPath", "", NO_VALUE, DIRECTORIES),
    not_built("security.sasl.serviceName", "", NO_VALUE, DIRECTORIES),
    not_built("security.transitionToAuth", "transitionToAuth", OFF, TRANSITION),
    not_built(
        "security.vault.rotateMasterKey",
        "vaultRotateMasterKey",
        OFF,
        KEY_SERVERS,
    ),
    not_built("security.vault.secret", "vaultSecret", NO_VALUE, KEY_SERVERS),
    not_built(
        "security.vault.serverCAFile",
        "vaultServerCAFile",
        NO_VALUE,
        KEY_SERVERS,
    ),
    not_built("security.vault.serverName", "vaultServerName", NO_VALUE, KEY_SERVERS),
    not_built("security.vault.tokenFile", "vaultTokenFile", NO_VALUE, KEY_SERVERS),
    not_built("sharding.archiveMovedChunks", "moveParanoia", OFF, SHARDING),
    not_built("sharding.clusterRole", "", NO_VALUE, SHARDING),
    not_built("sharding.configDB", "", NO_VALUE, SHARDING),
    not_built("snmp.disabled", "", &["true"], "SNMP"),
    not_built("snmp.master", "snmp-master", OFF, "SNMP"),
    not_built("snmp.subagent", "snmp-subagent", OFF, "SNMP"),
    not_built(
        "storage.PerconaFT.engineOptions.cleanerIterations",
        "PerconaFTEngineCleanerIterations",
        NO_VALUE,
        CLEANERS,
    ),
    not_built(
        "storage.PerconaFT.engineOptions.cleanerPeriod",
        "PerconaFTEngineCleanerPeriod",
        NO_VALUE,
        CLEANERS,
    ),
    not_built(
        "storage.PerconaFT.engineOptions.compressBuffersBeforeEviction",
        "PerconaFTEngineCompressBuffersBeforeEviction",
        OFF,
        "compression of what is in memory",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.fsRedzone",
        "PerconaFTEngineFsRedzone",
        NO_VALUE,
        "a reserve of free disk space",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.journalCommitInterval",
        "PerconaFTEngineJournalCommitInterval",
        NO_VALUE,
        "a journal of the engine's own, beside storage.journal,",
    ),
    not_built(
        "storage.PerconaFT.engineOptions.lockTimeout",
        "PerconaFTEngineLockTimeout",
        NO_VALUE,
        LOCKS,
    ),
    not_built(
        "storage.PerconaFT.engineOptions.locktreeMaxMemory",
        "PerconaFTEngineLocktreeMaxMemory",
        NO_VALUE,
        LOCKS,
    ),
    not_built(
        "storage.PerconaFT.engineOptions.numCachetableBucketMutexes",
        "PerconaFTEngineNumCachetableBucketMutexes",
        NO_VALUE,
        "a number of cache latches",
    ),
    not_built(
        "storage.PerconaFT.indexOptions.fanout",
        "PerconaFTIndexFanout",
        NO_VALUE,
        INDEX_SIZES,
    ),
    not_built(
        "storage.PerconaFT.indexOptions.pageSize",
        "PerconaFTIndexPageSize",
        NO_VALUE,
        INDEX_SIZES,
    ),
    not_built(
        "storage.PerconaFT.indexOptions.readPageSize",
        "PerconaFTIndexReadPageSize",
        NO_VALUE,
        INDEX_SIZES,
    ),
    not_built("storage.indexBuildRetry", "", &["true"], INDEX_BUILDS),
    not_built(
        "storage.mmapv1.journal.debugFlags",
        "",
        NO_VALUE,
        "debugging of mmapv1's own journal",
    ),
    not_built(
        "storage.wiredTiger.collectionConfig.configString",
        "wiredTigerCollectionConfigString",
        NO_VALUE,
        WT_CONFIG,
    ),
    not_built(
        "storage.wiredTiger.engineConfig.configString",
        "wiredTigerEngineConfigString",
        NO_VALUE,
        WT_CONFIG,
    ),
    not_built(
        "storage.wiredTiger.indexConfig.configString",
        "wiredTigerIndexConfigString",
        NO_VALUE,
        WT_CONFIG,
    ),
    not_built(
        "systemLog.syslogFacility",
        "syslogFacility",
        NO_VALUE,
        "logging to syslog",
    ),
    not_built(
        "systemLog.traceAllExceptions",
        "traceExceptions",
        OFF,
        "exception tracing",
    ),
];
