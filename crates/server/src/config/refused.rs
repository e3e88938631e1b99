//! What of MongoDB's options is not built and has no entry in the table: refused by name instead of being unknown.

use super::options::{KEY_SERVERS, SHARDING, TLS};

const TRANSITION: &str = "passing over to access control while clients work";
const ENTERPRISE: &str = "authentication by directory services and Kerberos";
const REPLICATION: &str = "replication";

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
