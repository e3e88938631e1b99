//! What a run is made of: defaults, the settings of a file, and `--scale`.
//!
//! A file is a list of names with dots and texts; properties and YAML differ in form only. The defaults are the
//! article's: 2^20 documents of 16 KiB in batches of 256, 100,000 of them where all must fit into memory.
//!
//! Invariant of [`Settings`] after [`Settings::read`]: every value is within its limits, and a batch fits a message.

mod properties;
mod quantity;
mod yaml;

use crate::error::{Result, SettingsFault, StressError};
use crate::limits;
use crate::matrix::{Capped, Journal, Size, Topology, WriteConcern};
use std::path::{Path, PathBuf};

/// How `FSYNC_SAFE` is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fsync {
    /// `j: true`, since MongoDB 2.0.
    Journal,
    /// `fsync: true`, as the drivers of 2011 did.
    Fsync,
}

impl Fsync {
    /// Both, by their names in settings.
    const ALL: [(&'static str, Self); 2] = [("j", Self::Journal), ("fsync", Self::Fsync)];

    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Journal => Self::ALL[0].0,
            Self::Fsync => Self::ALL[1].0,
        }
    }
}

/// The settings of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The server program; `None`: `tenond` as the caller finds it.
    pub program: Option<PathBuf>,
    /// Engines; empty: all that the program has.
    pub engines: Vec<String>,
    /// Folders for data, one for each server of the topology.
    pub folders: Vec<PathBuf>,
    /// Folders of the config servers; only sharded topologies have such.
    pub config_folders: Vec<PathBuf>,
    /// Port of the first server; 0: any that is free.
    pub port: u16,
    /// Further arguments of the server.
    pub arguments: Vec<String>,
    /// Servers of a cell.
    pub topology: Topology,
    /// Members of a set.
    pub members: u64,
    /// How long a set is without a sign of its primary before it elects another one.
    pub election_timeout_ms: u64,
    /// Whether the primary of a set is killed in the middle: tables.
    pub failover: Vec<bool>,
    /// Columns of the matrix.
    pub concerns: Vec<WriteConcern>,
    /// Columns of the matrix.
    pub journal: Vec<Journal>,
    /// Columns of the matrix.
    pub capped: Vec<Capped>,
    /// Tables.
    pub sizes: Vec<Size>,
    /// Documents where all fit into memory.
    pub in_ram_documents: u64,
    /// Documents where they do not.
    pub larger_documents: u64,
    /// What the server may use of memory where they do not, its share of the page cache included.
    pub memory_bytes: u64,
    /// Bytes of a document, exactly.
    pub document_bytes: u64,
    /// Documents in an insert, and in a read.
    pub batch: u64,
    /// Documents in a read.
    pub read_batch: u64,
    /// Writing threads, and as many reading ones.
    pub threads: u64,
    /// Part of each document that compresses to nothing, in percent.
    pub compressible: u8,
    /// Where the documents' bytes come from.
    pub seed: u64,
    /// How `FSYNC_SAFE` is asked for.
    pub fsync: Fsync,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            program: None,
            engines: Vec::new(),
            folders: Vec::new(),
            config_folders: Vec::new(),
            port: 0,
            arguments: Vec::new(),
            topology: Topology::Standalone,
            members: 3,
            election_timeout_ms: 10_000,
            failover: vec![false],
            concerns: WriteConcern::ALONE.to_vec(),
            journal: vec![Journal::Off, Journal::On],
            capped: vec![Capped::No, Capped::Yes],
            sizes: vec![Size::InRam, Size::LargerThanRam],
            in_ram_documents: 100_000,
            larger_documents: 1 << 20,
            memory_bytes: 11 << 30,
            document_bytes: 16 << 10,
            batch: 256,
            read_batch: 256,
            threads: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            compressible: 50,
            seed: 1,
            fsync: Fsync::Journal,
        }
    }
}

/// A value of a file: one text, or several in a YAML list.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    One(String),
    Many(Vec<String>),
}

impl Settings {
    /// Reads a file: YAML when its name ends in `.yaml` or `.yml`, else properties.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|source| StressError::ReadSettings {
            path: path.to_owned(),
            source,
        })?;
        let is_yaml = path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml");
        let settings = if is_yaml {
            Self::from_yaml(&text)
        } else {
            Self::from_properties(&text)
        };
        settings.map_err(|fault| StressError::Settings {
            path: path.to_owned(),
            fault,
        })
    }

    /// Reads `name = value` lines.
    pub fn from_properties(text: &str) -> std::result::Result<Self, SettingsFault> {
        Self::bounded(text)?;
        let mut builder = Builder::default();
        for line in properties::lines(text)? {
            let set = builder.set(&line.name, Value::One(line.value));
            set.map_err(|reason| SettingsFault::Line {
                line: line.number,
                reason,
            })?;
        }
        builder.finish()
    }

    /// Reads a YAML mapping; levels and dots are the same.
    pub fn from_yaml(text: &str) -> std::result::Result<Self, SettingsFault> {
        Self::bounded(text)?;
        let mut builder = Builder::default();
        yaml::read(text, &mut |name, value| builder.set(name, value))?;
        builder.finish()
    }

    fn bounded(text: &str) -> std::result::Result<(), SettingsFault> {
        if text.len() > limits::SETTINGS_BYTES_MAX {
            return Err(SettingsFault::Whole(format!(
                "a settings file has at most {} bytes, this one has {}",
                limits::SETTINGS_BYTES_MAX,
                text.len()
            )));
        }
        Ok(())
    }

    /// Makes everything larger or smaller: documents, and the memory that they are to exceed.
    pub fn scale(&mut self, factor: f64) -> Result<()> {
        if !(limits::SCALE_MIN..=limits::SCALE_MAX).contains(&factor) {
            return Err(StressError::Contradiction(format!(
                "the scale is a number from {} to {}, not {factor}",
                limits::SCALE_MIN,
                limits::SCALE_MAX
            )));
        }
        let batch = self.batch;
        let scaled = |documents: u64| {
            // Whole batches: a smaller last one would be another kind of write.
            let batches = (documents as f64 * factor / batch as f64).round().max(1.0) as u64;
            batches.saturating_mul(batch).min(limits::DOCUMENTS_MAX)
        };
        if factor != 1.0 {
            self.in_ram_documents = scaled(self.in_ram_documents);
            self.larger_documents = scaled(self.larger_documents);
            let memory = (self.memory_bytes as f64 * factor) as u64;
            self.memory_bytes = memory.clamp(limits::MEMORY_BYTES_MIN, limits::MEMORY_BYTES_MAX);
        }
        Ok(())
    }

    /// Servers of a cell.
    pub fn servers(&self) -> u64 {
        match self.topology {
            Topology::Standalone => 1,
            Topology::ReplicaSet => self.members,
        }
    }

    /// Whether engines with `+` between are those of all members.
    ///
    /// # Errors
    /// A sentence.
    pub fn check_engines(&self) -> std::result::Result<(), String> {
        for engines in self.engines.iter().filter(|engines| engines.contains('+')) {
            let count = engines.split('+').count() as u64;
            if self.topology != Topology::ReplicaSet || count != self.members || engines.split('+').any(str::is_empty) {
                return Err(format!(
                    "server.engines: {engines} names the engines of the {count} members of a set, and there is {} of {}",
                    self.topology.name(),
                    self.servers()
                ));
            }
        }
        Ok(())
    }

    /// Documents of a test.
    pub fn documents(&self, size: Size) -> u64 {
        match size {
            Size::InRam => self.in_ram_documents,
            Size::LargerThanRam => self.larger_documents,
        }
    }

    /// Bytes of a test's documents.
    pub fn data_bytes(&self, size: Size) -> u64 {
        self.documents(size).saturating_mul(self.document_bytes)
    }
}

/// Takes the settings of a file one by one.
#[derive(Default)]
struct Builder {
    settings: Settings,
    seen: std::collections::HashSet<&'static str>,
}

type Parsed = std::result::Result<(), String>;

impl Builder {
    /// Sets one value. The error says what would have been right.
    fn set(&mut self, name: &str, value: Value) -> Parsed {
        let Some(&known) = NAMES.iter().find(|known| **known == name) else {
            return Err(unknown(name));
        };
        if !self.seen.insert(known) {
            return Err(format!("{name} is given twice"));
        }
        self.assign(known, value).map_err(|reason| format!("{name}: {reason}"))
    }

    fn assign(&mut self, name: &'static str, value: Value) -> Parsed {
        let settings = &mut self.settings;
        match name {
            "mongodb.install" => settings.program = Some(PathBuf::from(text(value)?).join("bin/mongod")),
            "server.program" => settings.program = Some(text(value)?.into()),
            "server.engines" => settings.engines = engines(list(value, &[','])?)?,
            "server.folders" | "mongodb.databaseFolders" => settings.folders = paths(value)?,
            "mongodb.shard.configFolders" => settings.config_folders = paths(value)?,
            "server.port" => settings.port = number(value, 0, u64::from(u16::MAX))? as u16,
            "server.arguments" => settings.arguments = list(value, &[' ', '\t'])?,
            "topology" => settings.topology = topology(&text(value)?)?,
            "set.members" => settings.members = number(value, limits::MEMBERS_MIN, limits::MEMBERS_MAX)?,
            "set.electionTimeoutMillis" => {
                settings.election_timeout_ms = number(value, limits::ELECTION_MS_MIN, limits::ELECTION_MS_MAX)?
            }
            "matrix.failover" => settings.failover = columns(value, &no_yes(false, true))?,
            "matrix.writeConcerns" => settings.concerns = columns(value, &concern_names())?,
            "matrix.journal" => settings.journal = columns(value, &no_yes(Journal::Off, Journal::On))?,
            "matrix.capped" => settings.capped = columns(value, &no_yes(Capped::No, Capped::Yes))?,
            "matrix.sizes" => settings.sizes = columns(value, &size_names())?,
            "inRam.documents" => settings.in_ram_documents = number(value, 1, limits::DOCUMENTS_MAX)?,
            "largerThanRam.documents" => settings.larger_documents = number(value, 1, limits::DOCUMENTS_MAX)?,
            "largerThanRam.memory" => {
                settings.memory_bytes = bytes(value, limits::MEMORY_BYTES_MIN, limits::MEMORY_BYTES_MAX)?
            }
            "test.documentSize" => {
                settings.document_bytes = bytes(value, limits::DOCUMENT_BYTES_MIN, limits::DOCUMENT_BYTES_MAX)?
            }
            "test.batch" => settings.batch = number(value, 1, limits::BATCH_MAX)?,
            "test.readBatch" => settings.read_batch = number(value, 1, limits::BATCH_MAX)?,
            "test.threads" => settings.threads = number(value, 1, limits::THREADS_MAX)?,
            "test.compressible" => settings.compressible = number(value, 0, 100)? as u8,
            "test.seed" => settings.seed = number(value, 0, u64::MAX)?,
            "test.fsync" => settings.fsync = one_of(&text(value)?, &Fsync::ALL)?,
            other => return Err(unknown(other)),
        }
        Ok(())
    }

    fn finish(self) -> std::result::Result<Settings, SettingsFault> {
        let mut settings = self.settings;
        check_topology(&mut settings, &self.seen).map_err(SettingsFault::Whole)?;
        let aliases = [
            ["server.program", "mongodb.install"],
            ["server.folders", "mongodb.databaseFolders"],
        ];
        for [one, other] in aliases {
            if self.seen.contains(one) && self.seen.contains(other) {
                return Err(SettingsFault::Whole(format!(
                    "{one} and {other} mean the same: give one of them"
                )));
            }
        }
        let bounds = [
            ("test.batch", settings.batch, limits::BATCH_BYTES_MAX, "a message"),
            (
                "test.readBatch",
                settings.read_batch,
                limits::READ_BATCH_BYTES_MAX,
                "a reply",
            ),
        ];
        for (name, batch, bytes_max, of) in bounds {
            let bytes = batch.saturating_mul(settings.document_bytes);
            if batch > 1 && bytes > bytes_max {
                return Err(SettingsFault::Whole(format!(
                    "{name} times test.documentSize is {bytes} bytes, more than the {bytes_max} of {of}"
                )));
            }
        }
        Ok(settings)
    }
}

/// Every name a file may give.
const NAMES: &[&str] = &[
    "inRam.documents",
    "largerThanRam.documents",
    "largerThanRam.memory",
    "matrix.capped",
    "matrix.failover",
    "matrix.journal",
    "matrix.sizes",
    "matrix.writeConcerns",
    "mongodb.databaseFolders",
    "mongodb.install",
    "mongodb.shard.configFolders",
    "server.arguments",
    "server.engines",
    "server.folders",
    "server.port",
    "server.program",
    "set.electionTimeoutMillis",
    "set.members",
    "test.batch",
    "test.compressible",
    "test.documentSize",
    "test.fsync",
    "test.readBatch",
    "test.seed",
    "test.threads",
    "topology",
];

fn unknown(name: &str) -> String {
    format!("there is no setting {name}; there are: {}", NAMES.join(", "))
}

fn text(value: Value) -> std::result::Result<String, String> {
    match value {
        Value::One(text) if text.is_empty() => Err("it has no value".to_owned()),
        Value::One(text) => Ok(text),
        Value::Many(_) => Err("one value is wanted, not a list".to_owned()),
    }
}

fn list(value: Value, separators: &[char]) -> std::result::Result<Vec<String>, String> {
    let items = match value {
        Value::One(text) => text
            .split(separators)
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(str::to_owned)
            .collect(),
        Value::Many(items) => items,
    };
    if items.is_empty() {
        Err("it has no value".to_owned())
    } else {
        Ok(items)
    }
}

fn paths(value: Value) -> std::result::Result<Vec<PathBuf>, String> {
    Ok(list(value, &[';'])?.into_iter().map(PathBuf::from).collect())
}

fn number(value: Value, min: u64, max: u64) -> std::result::Result<u64, String> {
    within(value, min, max, |bound| bound.to_string())
}

fn bytes(value: Value, min: u64, max: u64) -> std::result::Result<u64, String> {
    within(value, min, max, quantity::bytes)
}

fn within(value: Value, min: u64, max: u64, shown: impl Fn(u64) -> String) -> std::result::Result<u64, String> {
    let text = text(value)?;
    let number =
        quantity::parse(&text).ok_or_else(|| format!("'{text}' is no whole number (such as 256, 2^20, 16 KiB)"))?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    Err(format!("'{text}' is not within {} to {}", shown(min), shown(max)))
}

fn engines(names: Vec<String>) -> std::result::Result<Vec<String>, String> {
    if names.len() > limits::ENGINES_MAX {
        return Err(format!("at most {} engines", limits::ENGINES_MAX));
    }
    // "all" is what an empty list means.
    Ok(if names == ["all"] { Vec::new() } else { distinct(names)? })
}

fn distinct<T: PartialEq>(items: Vec<T>) -> std::result::Result<Vec<T>, String> {
    let twice = items.iter().enumerate().any(|(at, item)| items[..at].contains(item));
    if twice {
        Err("a value is given twice".to_owned())
    } else {
        Ok(items)
    }
}

fn one_of<T: Copy>(text: &str, names: &[(&str, T)]) -> std::result::Result<T, String> {
    let found = names.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
    found.map(|(_, value)| *value).ok_or_else(|| {
        let names: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
        format!("'{text}' is none of {}", names.join(", "))
    })
}

fn columns<T: Copy + PartialEq>(value: Value, names: &[(&str, T)]) -> std::result::Result<Vec<T>, String> {
    let items = list(value, &[',', ';'])?;
    let values: std::result::Result<Vec<T>, String> = items.iter().map(|item| one_of(item, names)).collect();
    distinct(values?)
}

fn concern_names() -> [(&'static str, WriteConcern); 6] {
    WriteConcern::ALL.map(|concern| (concern.name(), concern))
}

fn size_names() -> [(&'static str, Size); 2] {
    [Size::InRam, Size::LargerThanRam].map(|size| (size.name(), size))
}

fn no_yes<T: Copy>(no: T, yes: T) -> [(&'static str, T); 6] {
    [
        ("no", no),
        ("yes", yes),
        ("off", no),
        ("on", yes),
        ("false", no),
        ("true", yes),
    ]
}

fn topology(text: &str) -> std::result::Result<Topology, String> {
    for name in ["sharded", "shardedReplicaSets"] {
        if name.eq_ignore_ascii_case(text) {
            return Err(StressError::TopologyNotBuilt(name).to_string());
        }
    }
    one_of(
        text,
        &[Topology::Standalone, Topology::ReplicaSet].map(|topology| (topology.name(), topology)),
    )
}

/// What only sets have is refused without one, and their defaults are others.
fn check_topology(settings: &mut Settings, seen: &std::collections::HashSet<&'static str>) -> Parsed {
    let is_set = settings.topology == Topology::ReplicaSet;
    if is_set && !seen.contains("matrix.writeConcerns") {
        settings.concerns = WriteConcern::OF_SETS.to_vec();
    }
    if !is_set {
        if let Some(name) = ["set.members", "set.electionTimeoutMillis", "matrix.failover"]
            .iter()
            .find(|name| seen.contains(*name))
        {
            return Err(format!("{name} is for topology: replicaSet"));
        }
        if let Some(concern) = settings
            .concerns
            .iter()
            .find(|concern| !WriteConcern::ALONE.contains(concern))
        {
            return Err(format!(
                "matrix.writeConcerns: {} is for topology: replicaSet",
                concern.name()
            ));
        }
    }
    if settings.failover.contains(&true) && settings.members < 3 {
        return Err(
            "matrix.failover: two members are no majority without one of them: set.members must be 3 or more"
                .to_owned(),
        );
    }
    settings.check_engines()?;
    if u64::from(settings.port) + settings.servers() > u64::from(u16::MAX) + 1 {
        return Err(format!(
            "server.port: there are no {} ports from {} on",
            settings.servers(),
            settings.port
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
