//! What is done to set a cell up: a folder, a server, admin commands. The same values are told and executed, so what
//! the user reads is what happens.
//!
//! [`Topology`] is the seam: another one makes another plan.

use crate::matrix::{Capped, Cell, Journal, Size, Topology};
use crate::request::{COLLECTION, DATABASE, write_concern};
use crate::settings::Settings;
use bench::configuration::cache_option;
use bench::limits::Wanted;
use bench::server::{Build, ServerCommand};
use bson::{Document, doc};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What the article adds to a capped collection's size: 2 %, in whole units of 256 bytes.
const CAPPED_MORE: f64 = 1.02;
/// Of the memory that a server is limited to, the engine's cache gets this part; the rest is for everything else.
const CACHE_PART: u64 = 2;
/// An admin command.
#[derive(Clone, Debug, PartialEq)]
pub struct Admin {
    /// Where it is executed.
    pub database: String,
    /// The command.
    pub command: Document,
}

/// A server of a cell.
#[derive(Clone, Debug)]
pub struct Place {
    /// How it is started.
    pub command: ServerCommand,
    /// Where it listens.
    pub port: u16,
}

/// The set of every cell that is one.
pub const SET: &str = "mostSet";

/// How a cell is set up.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its servers, one at least.
    pub servers: Vec<Place>,
    /// What the first one is told once all of them answer: that they are a set.
    pub initiate: Option<Admin>,
    /// What the server, or the primary, is told then.
    pub admin: Vec<Admin>,
    /// What the threads do then, in words.
    load: Vec<String>,
    /// What makes durable what they wrote, before the servers are stopped; not where the primary is killed.
    pub flush: Option<Admin>,
}

impl Plan {
    /// The plan of a cell whose servers run `program`, one on each of `ports`, with its data somewhere below a folder,
    /// the first one's below the first folder and so on.
    pub fn new(
        settings: &Settings,
        cell: &Cell,
        (program, build): (&Path, &Build),
        folders: &[PathBuf],
        ports: &[u16],
    ) -> Self {
        let place = |(number, &port): (usize, &u16)| {
            let folder = folders
                .get(number % folders.len().max(1))
                .map_or(Path::new(""), PathBuf::as_path);
            let mut command = server(settings, cell, engine_of(cell, number), (program, build), folder);
            if settings.topology == Topology::ReplicaSet {
                command.directory.push(format!("member{number}"));
                command.arguments.extend(["--replSet".to_owned(), SET.to_owned()]);
            }
            Place { command, port }
        };
        Self {
            servers: ports.iter().enumerate().map(place).collect(),
            initiate: (settings.topology == Topology::ReplicaSet).then(|| initiate(settings, ports)),
            admin: vec![create(settings, cell)],
            load: load(settings, cell),
            flush: (!cell.failover).then(flush),
        }
    }

    /// What the servers are told beside where they are, which is the same in every run; of members, what each is told.
    pub fn arguments(&self) -> String {
        let arguments = self.servers.iter().map(|place| place.command.arguments.join(" "));
        arguments.collect::<Vec<_>>().join("; ")
    }

    /// The first server's directory.
    pub fn directory(&self) -> &Path {
        &self.servers[0].command.directory
    }

    /// Command lines up to the servers' start.
    pub fn start_lines(&self) -> Vec<String> {
        self.servers.iter().flat_map(Place::start_lines).collect()
    }

    /// The admin commands as one types them, and what the threads do.
    pub fn admin_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(admin) = &self.initiate {
            lines.push(format!("CMD> mongosh --port {}", self.servers[0].port));
            lines.extend(admin.lines());
            lines.push("# waits until one member is the primary and the others are its secondaries".to_owned());
            let hosts: Vec<String> = self
                .servers
                .iter()
                .map(|place| format!("127.0.0.1:{}", place.port))
                .collect();
            let uri = format!("mongodb://{}/?replicaSet={SET}", hosts.join(","));
            lines.push(format!("CMD> mongosh {}", quote(&uri)));
        } else {
            lines.push(format!("CMD> mongosh --port {}", self.servers[0].port));
        }
        lines.extend(self.admin.iter().flat_map(Admin::lines));
        lines.extend(self.load.iter().cloned());
        lines
    }

    /// The command behind the threads as one types it.
    pub fn flush_lines(&self) -> Vec<String> {
        self.flush.iter().flat_map(Admin::lines).collect()
    }

    /// What a run without servers says of their ends.
    pub fn stop_lines(&self) -> Vec<String> {
        self.servers.iter().map(|_| self.stop_line(None)).collect()
    }

    /// The command that ends the server.
    pub fn stop_line(&self, pid: Option<u32>) -> String {
        let pid = pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
        format!("CMD> kill -TERM {pid}")
    }
}

impl Place {
    /// Command lines up to this server's start.
    pub fn start_lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "CMD> mkdir -p {}",
            quote(&self.command.data().to_string_lossy())
        )];
        if let Some(bytes) = self.command.limits.memory_bytes {
            lines.push(format!(
                "# a control group limits the server's memory, page cache included, to {bytes} bytes, where the system allows it"
            ));
        }
        lines.push(self.start_line());
        lines
    }

    /// The command line that starts it.
    pub fn start_line(&self) -> String {
        let line = self.command.line(self.port);
        let words = std::iter::once(line.get_program()).chain(line.get_args());
        let words: Vec<String> = words.map(|word| quote(&word.to_string_lossy())).collect();
        format!("CMD> {}", words.join(" "))
    }
}

impl Admin {
    fn lines(&self) -> [String; 2] {
        [
            format!("mongosh> use {}", self.database),
            format!("mongosh> db.runCommand({})", shell(&self.command)),
        ]
    }
}

/// The engine of a member: the only one, or the one at its place.
fn engine_of(cell: &Cell, number: usize) -> &str {
    cell.engine
        .split('+')
        .nth(number)
        .unwrap_or(cell.engine.split('+').next().unwrap_or_default())
}

fn initiate(settings: &Settings, ports: &[u16]) -> Admin {
    let addresses = ports.iter().map(|&port| (Ipv4Addr::LOCALHOST, port).into());
    let timeout = Duration::from_millis(settings.election_timeout_ms);
    Admin {
        database: "admin".to_owned(),
        command: bench::set::initiate(SET, addresses, Some(timeout)),
    }
}

fn server(
    settings: &Settings,
    cell: &Cell,
    engine: &str,
    (program, build): (&Path, &Build),
    folder: &Path,
) -> ServerCommand {
    let mut arguments = vec!["--storageEngine".to_owned(), engine.to_owned()];
    // With a journal is the default of every server since 2.0, and newer ones have no option for it.
    if cell.journal == Journal::Off {
        arguments.push("--nojournal".to_owned());
    }
    let memory_bytes = (cell.size == Size::LargerThanRam).then_some(settings.memory_bytes);
    // mongod's own mmapv1 leaves its cache to the system, and has no such option.
    let has_option = engine != "mmapv1" || build.engines.iter().any(|known| known == engine);
    if let (Some(bytes), Some(option)) = (memory_bytes, cache_option(engine).filter(|_| has_option)) {
        arguments.extend([option.flag.to_owned(), option.value(bytes / CACHE_PART)]);
    }
    arguments.extend(settings.arguments.iter().cloned());
    ServerCommand {
        program: program.to_owned(),
        label: cell.to_string(),
        config: None,
        arguments,
        directory: folder.join(cell.slug()),
        limits: Wanted {
            memory_bytes,
            ..Wanted::default()
        },
    }
}

fn create(settings: &Settings, cell: &Cell) -> Admin {
    let mut command = doc! { "create": COLLECTION };
    if cell.capped == Capped::Yes {
        command.insert("capped", true);
        command.insert("size", capped_bytes(settings.data_bytes(cell.size)));
    }
    Admin {
        database: DATABASE.to_owned(),
        command,
    }
}

fn flush() -> Admin {
    Admin {
        database: "admin".to_owned(),
        command: doc! { "fsync": 1 },
    }
}

/// The size of a collection that loses none of the documents.
fn capped_bytes(data: u64) -> i64 {
    let with_more = (data as f64 * CAPPED_MORE) as u64;
    (with_more - with_more % 256) as i64
}

fn load(settings: &Settings, cell: &Cell) -> Vec<String> {
    let concern = write_concern(cell.concern, settings.fsync, settings.servers());
    let concern = Document::try_from(concern.as_ref()).unwrap_or_default();
    let (documents, threads) = (settings.documents(cell.size), settings.threads);
    let mut lines = vec![
        format!(
            "# {threads} threads insert documents 1 to {documents} of {} bytes, {} at a time, writeConcern {}",
            settings.document_bytes,
            settings.batch,
            shell(&concern)
        ),
        format!(
            "# at once {threads} other threads read them{}, {documents} down to 1, {} at a time: \
             find({{ _id: {{ $gte: low, $lte: high }} }}).sort({{ _id: -1 }})",
            if settings.topology == Topology::ReplicaSet {
                " from the secondaries"
            } else {
                ""
            },
            settings.read_batch
        ),
    ];
    if cell.failover {
        lines.insert(
            1,
            "# when half of them are written the primary is killed; when there is another one, it is started again"
                .to_owned(),
        );
    }
    if settings.topology == Topology::ReplicaSet {
        lines.push("# then the same is read from the primary".to_owned());
    }
    lines
}

/// A document as the shell takes it: it has only texts, booleans and numbers.
fn shell(document: &Document) -> String {
    document.to_string()
}

/// A word as the command line's shell takes it.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{WriteConcern, cells};

    fn plan(settings: &Settings, engine: &str, pick: impl Fn(&Cell) -> bool) -> Plan {
        let build = Build {
            engines: vec!["btree".to_owned(), "mmapv1".to_owned()],
            ..Build::default()
        };
        plan_for(&build, settings, engine, pick)
    }

    fn plan_for(build: &Build, settings: &Settings, engine: &str, pick: impl Fn(&Cell) -> bool) -> Plan {
        let cells = cells(settings, &[engine.to_owned()]);
        let cell = cells.iter().find(|cell| pick(cell)).expect("the matrix has it");
        let folders = [PathBuf::from("/my data"), PathBuf::from("/other")];
        let ports = [27117, 27118, 27119];
        let ports = &ports[..settings.servers() as usize];
        Plan::new(settings, cell, (Path::new("/opt/tenond"), build), &folders, ports)
    }

    #[test]
    fn the_lines_can_be_repeated_by_hand() {
        let settings = Settings::default();
        let plan = plan(&settings, "rocksdb", |cell| {
            cell.journal == Journal::Off && cell.capped == Capped::Yes && cell.size == Size::LargerThanRam
        });
        let start = plan.start_lines();
        assert_eq!(
            start[0],
            "CMD> mkdir -p '/my data/rocksdb-largerThanRam-G-NORMAL-nojournal-capped/data'"
        );
        assert!(start[1].contains(&(11_u64 << 30).to_string()), "{start:?}");
        assert!(
            start[2].starts_with("CMD> /opt/tenond --dbpath '/my data/"),
            "{start:?}"
        );
        for part in [
            "--port 27117",
            "--storageEngine rocksdb",
            "--nojournal",
            "--rocksdbCacheSizeGB 5.5",
        ] {
            assert!(start[2].contains(part), "{part}: {start:?}");
        }
        let admin = plan.admin_lines();
        assert_eq!(admin[..2], ["CMD> mongosh --port 27117", "mongosh> use MOSTDB"]);
        // The article had 17523466240, rounded by the batch.
        assert_eq!(
            admin[2],
            r#"mongosh> db.runCommand({ "create": "stress.test", "capped": true, "size": 17523466496 })"#
        );
        assert!(admin[3].contains(r#"writeConcern { "w": 0 }"#), "{admin:?}");
        let flush = ["mongosh> use admin", r#"mongosh> db.runCommand({ "fsync": 1 })"#];
        assert_eq!(plan.flush_lines(), flush);
        assert_eq!(plan.stop_line(Some(7)), "CMD> kill -TERM 7");
    }

    #[test]
    fn each_engine_with_a_cache_gets_half_of_the_memory_for_it() {
        let settings = Settings {
            memory_bytes: 1 << 30,
            ..Settings::default()
        };
        for (engine, option) in [
            ("btree", "--wiredTigerCacheSizeGB 0.5"),
            ("wiredTiger", "--wiredTigerCacheSizeGB 0.5"),
            ("betree", "--PerconaFTEngineCacheSize 536870912"),
            ("mmapv1", "--mmapv1CacheSizeGB 0.5"),
            ("rocksdb", "--rocksdbCacheSizeGB 0.5"),
        ] {
            let plan = plan(&settings, engine, |cell| cell.size == Size::LargerThanRam);
            let line = plan.start_lines().pop().expect("it has lines");
            assert!(line.contains(option), "{line}");
        }
        let of_mongod = plan_for(&Build::default(), &settings, "mmapv1", |cell| {
            cell.size == Size::LargerThanRam
        });
        let line = of_mongod.start_lines().pop().expect("it has lines");
        assert!(!line.contains("CacheSize"), "{line}");
    }

    #[test]
    fn an_ordinary_cell_in_memory_has_no_limits() {
        let settings = Settings {
            arguments: vec!["--syncdelay".to_owned(), "30".to_owned()],
            ..Settings::default()
        };
        let plan = plan(&settings, "inMemory", |cell| {
            cell.journal == Journal::On && cell.concern == WriteConcern::FsyncSafe && cell.size == Size::InRam
        });
        let line = plan.start_lines().pop().expect("it has lines");
        assert!(!line.contains("CacheSize") && !line.contains("journal "), "{line}");
        assert!(line.ends_with("--storageEngine inMemory --syncdelay 30"), "{line}");
        assert_eq!(plan.admin[0].command, doc! { "create": "stress.test" });
        assert_eq!(plan.servers[0].command.limits.memory_bytes, None);
        let admin = plan.admin_lines();
        assert!(
            admin.iter().any(|line| line.contains(r#"{ "w": 1, "j": true }"#)),
            "{admin:?}"
        );
    }

    #[test]
    fn a_set_is_three_servers_and_a_command() {
        let settings = Settings {
            topology: Topology::ReplicaSet,
            members: 3,
            concerns: WriteConcern::OF_SETS.to_vec(),
            failover: vec![true],
            ..Settings::default()
        };
        let plan = plan(&settings, "rocksdb+btree+rocksdb", |cell| {
            cell.concern == WriteConcern::ReplicaAll && cell.size == Size::InRam && cell.journal == Journal::On
        });
        let start = plan.start_lines().join("\n");
        for (folder, number, engine, port) in [
            ("/my data", 0, "rocksdb", 27117),
            ("/other", 1, "btree", 27118),
            ("/my data", 2, "rocksdb", 27119),
        ] {
            let data = format!(
                "{folder}/rocksdb+btree+rocksdb-inRam-J-REPLICA_ALL-journal-plain-failover/member{number}/data"
            );
            assert!(start.contains(&data), "{data}\n{start}");
            assert!(start.contains(&format!("--port {port}")), "{start}");
            assert!(
                start.contains(&format!("--storageEngine {engine} --replSet mostSet")),
                "{start}"
            );
        }
        let admin = plan.admin_lines().join("\n");
        for part in [
            r#"db.runCommand({ "replSetInitiate": { "_id": "mostSet", "members": [{ "_id": 0, "host": "127.0.0.1:27117" }"#,
            "replicaSet=mostSet",
            r#"writeConcern { "w": 3 }"#,
            "the primary is killed",
            "read from the primary",
        ] {
            assert!(admin.contains(part), "{part}\n{admin}");
        }
    }

    #[test]
    fn words_with_blanks_and_quotes_stay_words() {
        assert_eq!(quote("a-b/c.d=1"), "a-b/c.d=1");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
        assert_eq!(quote("$HOME"), "'$HOME'");
    }
}
