//! What the process was started with, as commands need it.

use crate::ReplicaSet;
use crate::audit::Audit;
use crate::profiler::ProfilingLevel;
use auth::{ClusterAuth, SubjectName};
use bson::Document;
use spill::SpillSpace;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::Arc;
use wire::Compressor;

/// What encrypts connections.
pub trait TransportSecurity: Send + Sync {
    /// `allowTLS`, `preferTLS` or `requireTLS`.
    fn mode(&self) -> &'static str;

    /// Reads the certificates anew, for connections to come.
    ///
    /// # Errors
    /// A sentence; the former ones stay in use.
    fn reload(&self) -> Result<(), String>;

    /// Handshakes begun, and connections that failed by what they sent.
    fn counts(&self) -> (u64, u64);

    /// Are clients' certificates verified, so that the names in them can be believed?
    fn verifies_clients(&self) -> bool;

    /// The name in this server's own certificate, by which it knows other members.
    fn own_name(&self) -> Option<SubjectName>;

    /// Does this server speak TLS to other members?
    fn is_for_members(&self) -> bool;

    /// Speaks TLS over a fresh connection to the member `host` (without a port), and shows it the certificate for
    /// members. Waits as long as the stream's time-outs let it.
    ///
    /// # Errors
    /// A sentence: the other end does not prove to be `host`, or does not take this server's certificate.
    fn connect(&self, stream: TcpStream, host: &str) -> Result<Box<dyn MemberStream>, String>;
}

/// An encrypted connection to another member.
pub trait MemberStream: Read + Write + Send {}

impl<S: Read + Write + Send> MemberStream for S {}

/// Facts of the start-up, fixed while the server runs.
#[derive(Clone)]
pub struct Settings {
    /// The command line, program name first.
    pub argv: Vec<String>,
    /// The settings in force as nested YAML names (`getCmdLineOpts.parsed`).
    pub parsed: Document,
    /// The commit that the program was built of.
    pub git_version: String,
    /// Host name for replies.
    pub host: String,
    /// The TCP port (the real one when 0 was asked for).
    pub port: u16,
    /// `storage.dbPath`, absolute.
    pub db_path: String,
    /// The directory of the engine's files, absolute.
    pub engine_path: PathBuf,
    /// `storage.directoryPerDB`.
    pub directory_per_db: bool,
    /// Where operations spill to that outgrow their memory; without it they fail.
    pub spill_space: Option<Arc<SpillSpace>>,
    /// The file that tells which engine the data directory belongs to, absolute.
    pub metadata_path: PathBuf,
    /// Encryption at rest, where it is on.
    pub encryption: Option<EncryptionStatus>,
    /// `storage.journal.enabled`.
    pub journal: bool,
    /// The version announced to clients, `[8, 0, x]`.
    pub emulated_version: [i32; 3],
    /// The newest wire version announced (25 for 8.0, 21 for 7.0).
    pub wire_version_max: i32,
    /// Storage engines in this build, by the names users write.
    pub engines: Vec<String>,
    /// Initial values of `setParameter` (`--setParameter name=value`), checked by [`crate::Server::new`].
    pub parameters: Vec<(String, String)>,
    /// `operationProfiling.slowOpThresholdMs`.
    pub slow_ms: i64,
    /// `operationProfiling.slowOpSampleRate`, 0 to 1.
    pub slow_sample_rate: f64,
    /// `operationProfiling.mode`: what of all databases is written to `system.profile`.
    pub profiling: ProfilingLevel,
    /// `security.authorization`: clients may do what their user may.
    pub access_control: bool,
    /// How members of a cluster prove themselves to each other (`security.keyFile`, `security.clusterAuthMode`).
    pub cluster_auth: Option<ClusterAuth>,
    /// `security.javascriptEnabled`: clients may have scripts run.
    pub scripting: bool,
    /// `systemLog.quiet`.
    pub quiet: bool,
    /// The replica set that it is a member of (`replication`).
    pub replica_set: Option<Arc<ReplicaSet>>,
    /// `net.maxIncomingConnections`.
    pub connections_max: u32,
    /// `net.compression.compressors`.
    pub compressors: Vec<Compressor>,
    /// `auditLog`.
    pub audit: Option<Arc<Audit>>,
    /// `net.tls`.
    pub tls: Option<Arc<dyn TransportSecurity>>,
}

/// How the data is encrypted.
#[derive(Clone, Debug)]
pub struct EncryptionStatus {
    /// `security.encryptionCipherMode`.
    pub cipher_mode: String,
    /// The data key that seals what is written now.
    pub key_generation: u32,
    /// The file of the data keys, without which a copy of the data cannot be read; absolute.
    pub key_store: PathBuf,
}

impl Settings {
    /// `8.0.4` of `[8, 0, 4]`.
    pub fn version_string(&self) -> String {
        let [major, minor, patch] = self.emulated_version;
        format!("{major}.{minor}.{patch}")
    }
}
