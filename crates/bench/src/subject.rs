//! What is measured: a server of our own, which can be restarted, a replica set of our own, or a server that was
//! running.
//!
//! Of a set, address, process and data are those of its primary.

use crate::configuration::{REPLICA_SET, Setup};
use crate::connection::Connection;
use crate::error::{Doing, Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::Wanted;
use crate::procfs;
use crate::server::{self, ServerCommand, ServerProcess};
use crate::set::{self, Member, Members};
use bson::{Bson, Document, rawdoc};
use report::Configuration;
use std::fs;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// See the module.
#[derive(Debug)]
pub struct Subject {
    /// For the report.
    pub configuration: Configuration,
    /// What was asked for and is not possible.
    pub notes: Vec<String>,
    address: SocketAddr,
    pid: Option<u32>,
    data: Option<PathBuf>,
    setup: Setup,
    limits: Wanted,
    interrupt: Interrupt,
    own: Option<(ServerCommand, Option<ServerProcess>)>,
    set: Option<OwnSet>,
}

/// A set of our own.
#[derive(Debug)]
struct OwnSet {
    members: Members,
    primary: usize,
    /// From the start of the first server until one leads and the others follow.
    start_time: Duration,
}

impl Subject {
    /// Starts a server of our own on fresh data. `directory` becomes its own.
    pub fn start(
        program: &Path,
        setup: &Setup,
        directory: &Path,
        limits: Wanted,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if setup.others.is_some() {
            return Self::start_set(program, setup, directory, limits, interrupt);
        }
        let command = fresh_command(program, setup, directory, limits)?;
        let process = ServerProcess::start(&command, interrupt)?;
        let mut subject = Self {
            configuration: Configuration {
                label: setup.label.clone(),
                engine: setup.engine.clone(),
                options: setup.options.clone(),
                server_version: String::new(),
                yaml: setup.yaml()?,
            },
            notes: setup.notes.iter().chain(&process.notes).cloned().collect(),
            address: process.address(),
            pid: Some(process.pid()),
            data: Some(command.data()),
            setup: setup.clone(),
            limits,
            interrupt: interrupt.clone(),
            own: Some((command, Some(process))),
            set: None,
        };
        subject.learn()?;
        Ok(subject)
    }

    /// Starts a set on fresh data, and waits until one leads and the others follow.
    fn start_set(
        program: &Path,
        setup: &Setup,
        directory: &Path,
        limits: Wanted,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        if limits.any() {
            let what = "limits on memory and disk are for one server, not for the members of a set";
            return Err(Error::Choice(what.to_owned()));
        }
        let began = Instant::now();
        let setups = || std::iter::once(setup).chain(setup.others.iter().flatten());
        let mut members = Vec::new();
        for (number, setup) in setups().enumerate() {
            let command = fresh_command(program, setup, &directory.join(format!("member{number}")), limits)?;
            let process = ServerProcess::start(&command, interrupt)?;
            members.push(Member::new(command, process));
        }
        let addresses = members.iter().map(|member| member.address);
        let command = set::initiate(REPLICA_SET, addresses, None);
        let members = Members::new(members, interrupt);
        members.open(0)?.run("admin", &set::raw(&command)?)?;
        let primary = members.wait_for_all()?;
        let mut options = setup.options.clone();
        options.insert("members".to_owned(), setup.members().to_string());
        let mut subject = Self {
            configuration: Configuration {
                label: setup.label.clone(),
                engine: String::new(),
                options,
                server_version: String::new(),
                yaml: setups().map(Setup::yaml).collect::<Result<Vec<_>>>()?.join("---\n"),
            },
            notes: setups().flat_map(|setup| setup.notes.iter().cloned()).collect(),
            address: members.all()[primary].address,
            pid: None,
            data: None,
            setup: setup.clone(),
            limits,
            interrupt: interrupt.clone(),
            own: None,
            set: Some(OwnSet {
                members,
                primary,
                start_time: began.elapsed(),
            }),
        };
        subject.lead_by(primary);
        subject.learn()?;
        let engines: Vec<&str> = setups().map(|setup| setup.engine.as_str()).collect();
        if engines.iter().any(|engine| *engine != engines[0]) {
            subject.configuration.engine = engines.join("+");
        }
        Ok(subject)
    }

    /// Takes another member for the primary.
    fn lead_by(&mut self, primary: usize) {
        let Some(set) = &mut self.set else { return };
        set.primary = primary;
        let member = &set.members.all()[primary];
        self.address = member.address;
        self.pid = member.pid();
        self.data = Some(member.command.data());
    }

    /// Finds out who leads now, once all members lead or follow. Nothing to be done where this is no set.
    pub fn find_primary(&mut self) -> Result<()> {
        if let Some(set) = &self.set {
            let primary = set.members.wait_for_all()?;
            self.lead_by(primary);
        }
        Ok(())
    }

    /// The members, when this is a set of our own, and the number of the one that leads.
    pub fn members(&self) -> Option<(&Members, usize)> {
        self.set.as_ref().map(|set| (&set.members, set.primary))
    }

    /// Members of a set that do not lead.
    pub fn followers(&self) -> Vec<usize> {
        let Some((members, primary)) = self.members() else {
            return Vec::new();
        };
        (0..members.all().len()).filter(|number| *number != primary).collect()
    }

    /// Takes a server that is running: `mongodb://host:port` or `host:port`.
    pub fn attach(uri: &str, interrupt: &Interrupt) -> Result<Self> {
        let address = parse_uri(uri)?;
        let mut subject = Self {
            configuration: Configuration {
                label: address.to_string(),
                ..Configuration::default()
            },
            notes: Vec::new(),
            address,
            pid: None,
            data: None,
            setup: Setup::engine(""),
            limits: Wanted::default(),
            interrupt: interrupt.clone(),
            own: None,
            set: None,
        };
        subject.learn()?;
        if address.ip().is_loopback() {
            subject.find_process();
        }
        if subject.pid.is_none() {
            subject.notes.push(
                "processor time, memory and bytes of the server are not known: it is no process of this machine that we may look at"
                    .to_owned(),
            );
        }
        Ok(subject)
    }

    /// Asks for version and engine.
    fn learn(&mut self) -> Result<()> {
        let mut connection = self.connect()?;
        connection.hello()?;
        let build = connection
            .ask("admin", &rawdoc! { "buildInfo": 1 })?
            .unwrap_or_default();
        let text = |name: &str| build.get_str(name).unwrap_or_default().to_owned();
        self.configuration.server_version = match build.get_str("tenonVersion") {
            Ok(version) => format!("tenond {version}"),
            Err(_) => format!("MongoDB-compatible {}", text("version")).trim_end().to_owned(),
        };
        let git = text("gitVersion");
        if !git.is_empty() && git.chars().all(|c| c.is_ascii_hexdigit()) {
            self.configuration.server_version += &format!(" (git {})", &git[..git.len().min(9)]);
        }
        let status = connection.ask("admin", &rawdoc! { "serverStatus": 1 })?;
        if let Ok(engine) = status
            .unwrap_or_default()
            .get_document("storageEngine")
            .and_then(|engine| engine.get_str("name"))
        {
            self.configuration.engine = engine.to_owned();
        }
        Ok(())
    }

    /// The process of a server on this machine, by the id that it tells.
    fn find_process(&mut self) {
        let Ok(mut connection) = self.connect() else { return };
        let Ok(status) = connection.run("admin", &rawdoc! { "serverStatus": 1 }) else {
            return;
        };
        let pid = match status.get("pid") {
            Some(Bson::Int32(pid)) => u32::try_from(*pid).ok(),
            Some(Bson::Int64(pid)) => u32::try_from(*pid).ok(),
            _ => None,
        };
        // Behind a forwarded port, such as a container's, the id may be that of any process here.
        let port = self.address.port();
        let is_it = |pid: &u32| procfs::usage(*pid).is_ok() && procfs::listens(*pid, port) != Some(false);
        self.pid = pid.filter(is_it);
        let Some(pid) = self.pid else { return };
        let path = connection
            .run("admin", &rawdoc! { "getCmdLineOpts": 1 })
            .ok()
            .and_then(|options| {
                let storage = options.get_document("parsed").ok()?.get_document("storage").ok()?;
                Some(PathBuf::from(storage.get_str("dbPath").ok()?))
            });
        // A relative one is below the directory that the server runs in.
        let working = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
        self.data = path
            .map(|path| working.join(path))
            .filter(|path| path.is_absolute() && path.is_dir());
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process, when that is on this machine.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }

    /// Its data directory, when that is on this machine.
    pub fn data(&self) -> Option<&Path> {
        self.data.as_deref()
    }

    /// The configuration that our own server runs with.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// The limits that the user wants for our own server, whenever it starts.
    pub fn limits(&self) -> Wanted {
        self.limits
    }

    /// The limits that our own server was started with last, and whether they are in force.
    pub fn limits_now(&self) -> (Wanted, bool) {
        match &self.own {
            Some((command, process)) => (command.limits, process.as_ref().is_none_or(ServerProcess::is_limited)),
            None => (self.limits, false),
        }
    }

    /// True when we have started it.
    pub fn is_own(&self) -> bool {
        self.own.is_some() || self.set.is_some()
    }

    /// From the start of our own process to its first answer.
    pub fn start_time(&self) -> Option<Duration> {
        if let Some(set) = &self.set {
            return Some(set.start_time);
        }
        let (_, process) = self.own.as_ref()?;
        Some(process.as_ref()?.start_time)
    }

    /// A connection for what is not measured.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open_until(self.address, &self.interrupt)
    }

    /// An error when our own process has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(set) = &self.set {
            return set.members.check();
        }
        match &mut self.own {
            Some((_, Some(process))) => process.check(),
            _ => Ok(()),
        }
    }

    /// Why our own process has ended, when something went wrong that may come of that: see
    /// [`ServerProcess::why_dead`].
    pub fn why_dead(&mut self) -> Option<Error> {
        if !self.is_own() {
            return None;
        }
        let (address, interrupt) = (self.address, self.interrupt.clone());
        server::why_dead(address, &interrupt, || self.check())
    }

    /// Ends our own process. Returns how long that took; `None` for a server that was running.
    pub fn stop(&mut self) -> Result<Option<Duration>> {
        if let Some(set) = &self.set {
            return set.members.stop().map(Some);
        }
        match self.own.as_mut().and_then(|(_, process)| process.take()) {
            Some(process) => process.stop().map(Some),
            None => Ok(None),
        }
    }

    /// Ends our own process at once, as if it had crashed; its data stays. A server that was running is left alone.
    pub fn abandon(&mut self) {
        if let Some(set) = &self.set {
            set.members.all().iter().for_each(Member::kill);
        }
        if let Some((_, process)) = &mut self.own {
            drop(process.take());
        }
    }

    /// Starts our own process again on its data, maybe with other options and limits.
    pub fn start_again(&mut self, setup: Option<&Setup>, limits: Wanted, interrupt: &Interrupt) -> Result<()> {
        let Some((command, process)) = &mut self.own else {
            return Err(Error::Choice(
                "a server that was running, or a set, cannot be restarted".to_owned(),
            ));
        };
        if let Some(setup) = setup {
            self.setup = setup.clone();
            self.configuration.yaml = setup.yaml()?;
            self.configuration.options = setup.options.clone();
            write_configuration(&command.directory, &self.configuration.yaml)?;
            self.notes.clone_from(&setup.notes);
        }
        command.limits = limits;
        let started = ServerProcess::start(command, interrupt)?;
        for note in &started.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        self.address = started.address();
        self.pid = Some(started.pid());
        *process = Some(started);
        Ok(())
    }

    /// Counters of the server.
    pub fn status(&self) -> Result<Document> {
        self.connect()?.run("admin", &rawdoc! { "serverStatus": 1 })
    }
}

/// How to start a server on fresh data in a directory of its own.
pub(crate) fn fresh_command(program: &Path, setup: &Setup, directory: &Path, limits: Wanted) -> Result<ServerCommand> {
    fs::create_dir_all(directory).doing(format!("making {}", directory.display()))?;
    let config = write_configuration(directory, &setup.yaml()?)?;
    let command = ServerCommand {
        program: program.to_path_buf(),
        label: setup.label.clone(),
        config: Some(config),
        arguments: setup.arguments.clone(),
        directory: directory.to_path_buf(),
        limits,
    };
    command.make_fresh()?;
    Ok(command)
}

/// Returns the file's path.
fn write_configuration(directory: &Path, yaml: &str) -> Result<PathBuf> {
    let path = directory.join("server.yaml");
    fs::write(&path, yaml).doing(format!("writing {}", path.display()))?;
    Ok(path)
}

/// Options of a connection string that say what this tool does anyway; of others it would do the contrary.
fn check_uri_option(option: &str) -> std::result::Result<(), String> {
    let (name, value) = option.split_once('=').unwrap_or((option, ""));
    match (name.to_ascii_lowercase().as_str(), value) {
        ("appname", _) | ("directconnection", "true" | "false") | ("w", "1") | ("tls" | "ssl", "false") => Ok(()),
        _ => Err(format!(
            "the option {name} is not supported, or not with that value: there are appName, directConnection, w=1 \
             and tls=false"
        )),
    }
}

/// How long each of several addresses of a host has to answer.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads `mongodb://host[:port][/…]` or `host[:port]`. Users, TLS and several hosts are not for this tool. Of several
/// addresses of the host it is the first that takes connections, or else the first.
pub fn parse_uri(uri: &str) -> Result<SocketAddr> {
    // Users come with passwords, which are not for screens. They may have any character, not encoded as it must be.
    if uri.contains('@') {
        return Err(Error::Choice(
            "the URI has an '@': authentication is not supported".to_owned(),
        ));
    }
    let refuse = |why: &str| Error::Choice(format!("the URI: {why}"));
    let rest = match uri.split_once("://") {
        Some(("mongodb", rest)) => rest,
        Some((scheme, _)) => return Err(refuse(&format!("the scheme {scheme} is not supported"))),
        None => uri,
    };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let options = rest.split_once('?').map_or("", |(_, options)| options);
    for option in options.split('&').filter(|option| !option.is_empty()) {
        check_uri_option(option).map_err(|why| refuse(&why))?;
    }
    if host.contains(',') {
        return Err(refuse("give one host"));
    }
    if host.is_empty() {
        return Err(refuse("it names no host"));
    }
    let has_port = host
        .rsplit_once(':')
        .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let host = if has_port {
        host.to_owned()
    } else {
        format!("{host}:27017")
    };
    let addresses: Vec<SocketAddr> = host.to_socket_addrs().doing(format!("finding {host}"))?.collect();
    let listens = |address: &&SocketAddr| TcpStream::connect_timeout(address, ADDRESS_TIMEOUT).is_ok();
    let found = match addresses.len() {
        0 | 1 => None,
        _ => addresses.iter().find(listens),
    };
    let found = found.or(addresses.first()).copied();
    found.ok_or_else(|| refuse("the host has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_or_refused_with_a_reason() {
        let read = |uri: &str| parse_uri(uri).map(|address| address.to_string());
        assert_eq!(
            read("mongodb://127.0.0.1:5000/test?w=1&directConnection=true&appName=x")
                .ok()
                .as_deref(),
            Some("127.0.0.1:5000")
        );
        assert_eq!(read("127.0.0.1").ok().as_deref(), Some("127.0.0.1:27017"));
        for (uri, why) in [
            ("mongodb+srv://x", "scheme"),
            ("mongodb://u:secret@h", "authentication"),
            ("mongodb://u:secret/x@h", "authentication"),
            ("mongodb://u:secret?x@h", "authentication"),
            ("mongodb://a,b", "one host"),
            ("mongodb:///x", "no host"),
            ("mongodb://127.0.0.1/?tls=true", "the option tls is not"),
            ("mongodb://127.0.0.1?w=majority", "the option w is not"),
            (
                "mongodb://127.0.0.1/x?w=1&replicaSet=secret",
                "the option replicaSet is not",
            ),
            (
                "mongodb://127.0.0.1/?directConnection=maybe",
                "the option directConnection is not",
            ),
        ] {
            let error = read(uri).expect_err("it is refused").to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{error}");
        }
    }
}
