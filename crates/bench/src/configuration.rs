//! What is measured: engines of the server's build with a few options, or configuration files of the user.
//!
//! Which engines there are is the server's answer. What is known here is only under which name an engine takes its
//! cache size and its compressor; an engine without such an option is measured without it, and the report says so.

use crate::error::{Doing, Error, Result};
use crate::server::Build;
use serde_yaml_ng::{Mapping, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A configuration file longer than this is none.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Options of a user's file that the run gives itself.
const REPLACED: [&str; 9] = [
    "storage.dbPath",
    "net.port",
    "net.bindIp",
    "net.bindIpAll",
    "net.unixDomainSocket",
    "systemLog.destination",
    "systemLog.path",
    "systemLog.logAppend",
    "systemLog.logRotate",
];

/// Options of a user's file by which the server of a run would get at what belongs to the one that the file is for,
/// would get away from the run, or would not serve clients that are alone with it, unknown and not encrypted.
const LEFT_OUT: [&str; 16] = [
    "processManagement.fork",
    "processManagement.pidFilePath",
    "auditLog",
    "systemLog.syslogFacility",
    "net.http",
    "tenon.portFile",
    "setParameter.diagnosticDataCollectionDirectoryPath",
    "replication.replSetName",
    "replication.initiate",
    "sharding",
    "net.tls",
    "net.ssl",
    "security.authorization",
    "security.keyFile",
    "security.clusterAuthMode",
    "security.transitionToAuth",
];

/// Servers of our own that are to be members are so of this set.
pub const REPLICA_SET: &str = "bench";

/// Most members of a set that the tool makes: those that can have a vote.
pub const MEMBERS_MAX: usize = 7;

/// One configuration, not started yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Its name in tables and charts.
    pub label: String,
    /// The engine as given; empty for the server's default.
    pub engine: String,
    /// Options by their dotted names.
    pub options: BTreeMap<String, String>,
    /// Arguments of the server's command line, whatever the file says.
    pub arguments: Vec<String>,
    /// The other members, when this is the first one of a set that the tool makes; a set may have no others.
    pub others: Option<Vec<Setup>>,
    /// The text of the user's file without what the run gives itself, instead of one that is made from the options.
    pub file: Option<String>,
    /// What was asked for and is not possible, in sentences.
    pub notes: Vec<String>,
}

impl Setup {
    /// An engine with its defaults.
    pub fn engine(name: &str) -> Self {
        Self {
            label: name.to_owned(),
            engine: name.to_owned(),
            options: BTreeMap::new(),
            arguments: Vec::new(),
            others: None,
            file: None,
            notes: Vec::new(),
        }
    }

    /// Reads `engine` or `engine:compressor`.
    pub fn parse(text: &str) -> Result<Self> {
        let (engine, compressor) = match text.split_once(':') {
            None => (text, None),
            Some((engine, compressor)) => (engine, Some(compressor)),
        };
        if engine.is_empty() || compressor.is_some_and(str::is_empty) {
            return Err(Error::Choice(format!(
                "{text:?} is no engine, and no engine:compressor"
            )));
        }
        let setup = Self::engine(engine);
        Ok(match compressor {
            None => setup,
            Some(compressor) => setup.with_compressor(compressor),
        })
    }

    /// A configuration file. The label is its name.
    pub fn file(path: &Path) -> Result<Self> {
        let size = fs::metadata(path).doing(format!("reading {}", path.display()))?.len();
        if size > FILE_BYTES_MAX {
            return Err(Error::Choice(format!("{} has {size} bytes", path.display())));
        }
        let text = fs::read_to_string(path).doing(format!("reading {}", path.display()))?;
        let unclear = |error: &dyn std::fmt::Display| Error::Choice(format!("{}: {error}", path.display()));
        let mut parsed = match serde_yaml_ng::from_str(&text).map_err(|error| unclear(&error))? {
            Value::Mapping(parsed) => parsed,
            Value::Null => Mapping::new(),
            _ => return Err(unclear(&"it is no mapping of options")),
        };
        let mut left_out = Vec::new();
        take_out("", &mut parsed, &mut left_out);
        let file = serde_yaml_ng::to_string(&parsed).map_err(|error| unclear(&error))?;
        let mut options = BTreeMap::new();
        flatten("", &Value::Mapping(parsed), &mut options);
        let label = path
            .file_stem()
            .map_or("configuration".into(), |stem| stem.to_string_lossy());
        Ok(Self {
            label: label.into_owned(),
            engine: options.get("storage.engine").cloned().unwrap_or_default(),
            options: options
                .into_iter()
                .filter(|(name, _)| name.starts_with("storage."))
                .collect(),
            arguments: Vec::new(),
            others: None,
            file: Some(file),
            notes: match left_out.is_empty() {
                true => Vec::new(),
                false => vec![format!("left out of the configuration file: {}", left_out.join(", "))],
            },
        })
    }

    /// With a compressor for documents.
    pub fn with_compressor(mut self, compressor: &str) -> Self {
        match compressor_option(&self.engine) {
            Some(option) => {
                self.options.insert(option.to_owned(), compressor.to_owned());
                self.label = format!("{}-{compressor}", self.label);
            }
            None => self.notes.push(format!(
                "the compressor {compressor} has no effect: {} has no such option",
                self.engine
            )),
        }
        self
    }

    /// A set of these members, one at least.
    pub fn set_of(members: Vec<Setup>) -> Result<Self> {
        if members.len() > MEMBERS_MAX {
            return Err(Error::Choice(format!(
                "{} members: a set has {MEMBERS_MAX} at most here",
                members.len()
            )));
        }
        let labels: Vec<&str> = members.iter().map(|member| member.label.as_str()).collect();
        let label = match labels.iter().all(|label| *label == labels[0]) {
            true => format!("{} x{}", labels.first().copied().unwrap_or_default(), labels.len()),
            false => labels.join("+"),
        };
        let mut members = members.into_iter().map(|mut member| {
            let arguments = ["--replSet", REPLICA_SET];
            member.arguments.extend(arguments.map(str::to_owned));
            member
        });
        let Some(mut first) = members.next() else {
            return Err(Error::Choice("a set has one member at least".to_owned()));
        };
        first.label = label;
        first.others = Some(members.collect());
        Ok(first)
    }

    /// Members of the set that this is; 0 for a server.
    pub fn members(&self) -> usize {
        self.others.as_ref().map_or(0, |others| 1 + others.len())
    }

    /// With a cache of so many bytes, unless the configuration is a file.
    pub fn with_cache(mut self, bytes: u64) -> Self {
        if let Some(others) = self.others.take() {
            self.others = Some(others.into_iter().map(|other| other.with_cache(bytes)).collect());
        }
        match cache_option(&self.engine) {
            _ if self.file.is_some() => self
                .notes
                .push("the cache size is that of the configuration file".to_owned()),
            Some(option) => drop(self.options.insert(option.name.to_owned(), option.value(bytes))),
            None => self
                .notes
                .push(format!("no limit on the cache: {} has no such option", self.engine)),
        }
        self
    }

    /// As the only member of a replica set, which the server initiates by itself. A set stays what it is.
    pub fn as_member(mut self) -> Self {
        if self.others.is_some() {
            return self;
        }
        let arguments = ["--replSet", REPLICA_SET, "--replSetInitiate"];
        self.arguments.extend(arguments.map(str::to_owned));
        self
    }

    /// True when documents of this engine lie in files compressed by choice.
    pub fn takes_compressor(&self) -> bool {
        self.file.is_none() && compressor_option(&self.engine).is_some()
    }

    /// True when this is known to be an engine whose cache cannot be small.
    pub fn has_no_cache(&self) -> bool {
        self.file.is_none() && !self.engine.is_empty() && cache_option(&self.engine).is_none()
    }

    /// The configuration file's text.
    pub fn yaml(&self) -> Result<String> {
        if let Some(text) = &self.file {
            return Ok(text.clone());
        }
        let mut root = Mapping::new();
        if !self.engine.is_empty() {
            insert(&mut root, "storage.engine", Value::from(self.engine.as_str()));
        }
        for (name, value) in &self.options {
            let value = serde_yaml_ng::from_str(value).unwrap_or_else(|_| Value::from(value.as_str()));
            insert(&mut root, name, value);
        }
        serde_yaml_ng::to_string(&root).map_err(|error| Error::Choice(error.to_string()))
    }
}

fn insert(mapping: &mut Mapping, name: &str, value: Value) {
    match name.split_once('.') {
        None => drop(mapping.insert(Value::from(name), value)),
        Some((head, rest)) => {
            let inner = mapping
                .entry(Value::from(head))
                .or_insert_with(|| Value::Mapping(Mapping::new()));
            if let Value::Mapping(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}

/// Removes [`REPLACED`] and [`LEFT_OUT`], and tells of the latter. Names may have levels or dots.
fn take_out(prefix: &str, mapping: &mut Mapping, left_out: &mut Vec<String>) {
    mapping.retain(|name, value| {
        let full = full_name(prefix, name);
        let is_below = |option: &&str| {
            let rest = full.strip_prefix(*option);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if REPLACED.iter().any(&is_below) {
            return false;
        }
        if LEFT_OUT.iter().any(is_below) {
            left_out.push(full);
            return false;
        }
        match value {
            Value::Mapping(inner) if !inner.is_empty() => {
                take_out(&full, inner, left_out);
                !inner.is_empty()
            }
            _ => true,
        }
    });
}

fn full_name(prefix: &str, name: &Value) -> String {
    let name = name.as_str().unwrap_or_default();
    match prefix {
        "" => name.to_owned(),
        prefix => format!("{prefix}.{name}"),
    }
}

fn flatten(prefix: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Mapping(mapping) => {
            for (name, value) in mapping {
                flatten(&full_name(prefix, name), value, out);
            }
        }
        Value::String(text) => drop(out.insert(prefix.to_owned(), text.clone())),
        other => {
            let text = serde_yaml_ng::to_string(other).unwrap_or_default();
            out.insert(prefix.to_owned(), text.trim().to_owned());
        }
    }
}

/// How an engine is told the size of its cache.
#[derive(Clone, Copy, Debug)]
pub struct CacheOption {
    /// In a configuration file.
    pub name: &'static str,
    /// On the command line.
    pub flag: &'static str,
    unit: Unit,
}

/// What a cache size is given in.
#[derive(Clone, Copy, Debug)]
enum Unit {
    Bytes,
    Gigabytes,
}

impl CacheOption {
    /// A size as the option takes it.
    pub fn value(&self, bytes: u64) -> String {
        match self.unit {
            Unit::Bytes => bytes.to_string(),
            Unit::Gigabytes => format!("{:.4}", bytes as f64 / f64::from(1u32 << 30)),
        }
    }
}

/// The option of an engine's cache; `None` for one that has none, or is not known.
pub fn cache_option(engine: &str) -> Option<CacheOption> {
    let (name, flag, unit) = match engine {
        "betree" | "PerconaFT" | "tokuft" | "tokumx" => (
            "storage.PerconaFT.engineOptions.cacheSize",
            "--PerconaFTEngineCacheSize",
            Unit::Bytes,
        ),
        "btree" | "wiredTiger" => (
            "storage.wiredTiger.engineConfig.cacheSizeGB",
            "--wiredTigerCacheSizeGB",
            Unit::Gigabytes,
        ),
        "mmapv1" => ("storage.mmapv1.cacheSizeGB", "--mmapv1CacheSizeGB", Unit::Gigabytes),
        "rocksdb" => ("storage.rocksdb.cacheSizeGB", "--rocksdbCacheSizeGB", Unit::Gigabytes),
        _ => return None,
    };
    Some(CacheOption { name, flag, unit })
}

fn compressor_option(engine: &str) -> Option<&'static str> {
    match engine {
        "betree" | "PerconaFT" | "tokuft" | "tokumx" => Some("storage.PerconaFT.collectionOptions.compression"),
        "btree" | "wiredTiger" => Some("storage.wiredTiger.collectionConfig.blockCompressor"),
        "rocksdb" => Some("storage.rocksdb.compression"),
        _ => None,
    }
}

/// The configurations of a choice: engines and files; all engines of the build when nothing was chosen.
pub fn choose(engines: &[String], files: &[PathBuf], build: &Build) -> Result<Vec<Setup>> {
    let mut setups = Vec::new();
    for name in engines {
        setups.push(Setup::parse(name)?);
    }
    for path in files {
        setups.push(Setup::file(path)?);
    }
    if setups.is_empty() {
        setups.extend(build.engines.iter().map(|name| Setup::engine(name)));
    }
    if setups.is_empty() {
        return Err(Error::Choice(
            "the server does not name its engines: choose with --engines or --configs".to_owned(),
        ));
    }
    make_labels_unique(&mut setups);
    Ok(setups)
}

/// Results are told apart by their labels.
fn make_labels_unique(setups: &mut [Setup]) {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for setup in setups {
        let times = seen.entry(setup.label.clone()).or_default();
        *times += 1;
        if *times > 1 {
            setup.label = format!("{} ({times})", setup.label);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_and_compressors_become_files() {
        let setup = Setup::parse("rocksdb:zlib")
            .expect("it is well formed")
            .with_cache(512 << 20);
        assert_eq!(setup.label, "rocksdb-zlib");
        let yaml = setup.yaml().expect("it can be written");
        let read: Value = serde_yaml_ng::from_str(&yaml).expect("it is YAML");
        assert_eq!(read["storage"]["engine"], "rocksdb");
        assert_eq!(read["storage"]["rocksdb"]["compression"], "zlib");
        assert_eq!(read["storage"]["rocksdb"]["cacheSizeGB"], 0.5);
        assert!(Setup::parse("rocksdb:").is_err() && Setup::parse("").is_err());
    }

    /// Each engine has its own name for its cache, and its own unit.
    #[test]
    fn caches_of_all_engines_are_limited() {
        for (engine, path, expected) in [
            ("betree", "PerconaFT/engineOptions/cacheSize", Value::from(256 << 20)),
            ("tokumx", "PerconaFT/engineOptions/cacheSize", Value::from(256 << 20)),
            ("btree", "wiredTiger/engineConfig/cacheSizeGB", Value::from(0.25)),
            ("mmapv1", "mmapv1/cacheSizeGB", Value::from(0.25)),
            ("rocksdb", "rocksdb/cacheSizeGB", Value::from(0.25)),
        ] {
            let setup = Setup::engine(engine).with_cache(256 << 20);
            assert!(setup.notes.is_empty() && !setup.has_no_cache(), "{engine}");
            let yaml = setup.yaml().expect("it can be written");
            let read: Value = serde_yaml_ng::from_str(&yaml).expect("it is YAML");
            let found = path.split('/').fold(&read["storage"], |value, name| &value[name]);
            assert_eq!(*found, expected, "{engine}: {yaml}");
        }
        assert!(Setup::engine("inMemory").has_no_cache());
    }

    #[test]
    fn compressors_of_all_engines_are_known() {
        for (engine, expected) in [
            ("betree", Some("storage.PerconaFT.collectionOptions.compression")),
            ("btree", Some("storage.wiredTiger.collectionConfig.blockCompressor")),
            ("inMemory", None),
            ("mmapv1", None),
            ("rocksdb", Some("storage.rocksdb.compression")),
        ] {
            let setup = Setup::engine(engine);
            assert_eq!(setup.takes_compressor(), expected.is_some(), "{engine}");
            let setup = setup.with_compressor("zlib");
            assert_eq!(setup.options.keys().next().map(String::as_str), expected, "{engine}");
            assert_eq!(setup.notes.is_empty(), expected.is_some(), "{engine}");
        }
    }

    #[test]
    fn sets_are_made_of_members() {
        let set = |engines: &[&str]| Setup::set_of(engines.iter().map(|engine| Setup::engine(engine)).collect());
        let three = set(&["btree", "betree", "inMemory"])
            .expect("three are allowed")
            .with_cache(1 << 30);
        assert_eq!((three.label.as_str(), three.members()), ("btree+betree+inMemory", 3));
        assert_eq!(three.options.len(), 1, "the first one has a cache");
        let others = three.others.as_deref().expect("it is a set");
        assert!(others.iter().all(|other| other.arguments == ["--replSet", "bench"]));
        let noted: Vec<_> = others
            .iter()
            .map(|other| (other.options.len(), other.notes.len()))
            .collect();
        assert_eq!(noted, [(1, 0), (0, 1)], "betree has a cache of a size, inMemory none");
        assert_eq!(three.clone().as_member(), three);
        let alone = set(&["btree"]).expect("one is allowed");
        assert_eq!((alone.label.as_str(), alone.members()), ("btree x1", 1));
        assert!(set(&[]).is_err() && set(&["btree"; 8]).is_err());
        assert_eq!(Setup::engine("btree").members(), 0);
    }

    #[test]
    fn what_an_engine_cannot_do_is_said() {
        let setup = Setup::parse("inMemory:zlib")
            .expect("it is well formed")
            .with_cache(1 << 30);
        assert_eq!(setup.label, "inMemory");
        assert_eq!(setup.notes.len(), 2, "{:?}", setup.notes);
        assert!(setup.options.is_empty());
    }

    #[test]
    fn the_build_decides_when_nothing_is_chosen() {
        let build = Build {
            version: String::new(),
            engines: vec!["a".to_owned(), "b".to_owned()],
        };
        let labels = |engines: &[String]| -> Vec<String> {
            let setups = choose(engines, &[], &build).expect("there are some");
            setups.into_iter().map(|setup| setup.label).collect()
        };
        assert_eq!(labels(&[]), ["a", "b"]);
        assert_eq!(labels(&["b".to_owned(), "b".to_owned()]), ["b", "b (2)"]);
        assert!(choose(&[], &[], &Build::default()).is_err());
    }

    #[test]
    fn files_are_read_for_their_storage_options() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("mine.conf");
        fs::write(
            &path,
            "storage:\n  dbPath: ./x\n  engine: wiredTiger\n  journal: {enabled: true}\n",
        )
        .expect("written");
        let setup = Setup::file(&path).expect("it is YAML");
        assert_eq!((setup.label.as_str(), setup.engine.as_str()), ("mine", "wiredTiger"));
        assert_eq!(
            setup.options.get("storage.journal.enabled").map(String::as_str),
            Some("true")
        );
        assert!(!setup.options.contains_key("storage.dbPath"));
        for text in ["storage: [", "dbpath = /data\nport = 1\n"] {
            fs::write(&path, text).expect("written");
            assert!(Setup::file(&path).is_err());
        }
    }

    /// The benchmark's server overwrote and removed the other one's pid file, wrote to its audit log, or went away as
    /// its daemon.
    #[test]
    fn the_servers_of_a_file_leave_alone_what_belongs_to_its_own() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("mongod.conf");
        let text = "storage: {dbPath: /srv/db, engine: btree}\n\
                    processManagement: {fork: true, pidFilePath: /run/mongod.pid, timeZoneInfo: /usr/share/zoneinfo}\n\
                    auditLog: {destination: file, path: /var/log/audit.json}\n\
                    systemLog: {destination: syslog, verbosity: 1}\n\
                    net.bindIpAll: true\n\
                    net: {port: 27017, maxIncomingConnections: 100}\n";
        fs::write(&path, text).expect("written");
        let setup = Setup::file(&path).expect("it is YAML");
        let given: Value = serde_yaml_ng::from_str(&setup.yaml().expect("it is kept")).expect("it is YAML");
        let expected: Value = serde_yaml_ng::from_str(
            "{storage: {engine: btree}, processManagement: {timeZoneInfo: /usr/share/zoneinfo}, \
             systemLog: {verbosity: 1}, net: {maxIncomingConnections: 100}}",
        )
        .expect("it is YAML");
        assert_eq!(given, expected);
        let told =
            "left out of the configuration file: processManagement.fork, processManagement.pidFilePath, auditLog";
        assert_eq!(setup.notes, [told]);
        let text = "storage: {engine: btree}\nnet: {tls: {mode: requireTLS, certificateKeyFile: /etc/x.pem}}\n\
                    replication: {replSetName: rs0, oplogSizeMB: 100}\n\
                    security: {authorization: enabled, keyFile: /etc/key, javascriptEnabled: false}\n";
        fs::write(&path, text).expect("written");
        let setup = Setup::file(&path).expect("it is YAML");
        let given: Value = serde_yaml_ng::from_str(&setup.yaml().expect("it is kept")).expect("it is YAML");
        let expected: Value = serde_yaml_ng::from_str(
            "{storage: {engine: btree}, replication: {oplogSizeMB: 100}, security: {javascriptEnabled: false}}",
        )
        .expect("it is YAML");
        assert_eq!(given, expected);
        fs::write(&path, "").expect("written");
        assert_eq!(Setup::file(&path).expect("it says nothing").notes, Vec::<String>::new());
    }
}
