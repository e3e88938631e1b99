//! A server that is measured: one of our own, which can be restarted, or one that was running.

use crate::configuration::Setup;
use crate::connection::Connection;
use crate::error::{Doing, Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::Wanted;
use crate::procfs;
use crate::server::{ServerCommand, ServerProcess};
use bson::{Bson, Document, rawdoc};
use report::Configuration;
use std::fs;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

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
        fs::create_dir_all(directory).doing(format!("making {}", directory.display()))?;
        let yaml = setup.yaml()?;
        let config = match &setup.file {
            Some(path) => path.clone(),
            None => {
                let path = directory.join("server.yaml");
                fs::write(&path, &yaml).doing(format!("writing {}", path.display()))?;
                path
            }
        };
        let command = ServerCommand {
            program: program.to_path_buf(),
            label: setup.label.clone(),
            config: Some(config),
            arguments: setup.arguments.clone(),
            directory: directory.to_path_buf(),
            limits,
        };
        command.make_fresh()?;
        let process = ServerProcess::start(&command, interrupt)?;
        let mut subject = Self {
            configuration: Configuration {
                label: setup.label.clone(),
                engine: setup.engine.clone(),
                options: setup.options.clone(),
                server_version: String::new(),
                yaml,
            },
            notes: setup.notes.iter().chain(&process.notes).cloned().collect(),
            address: process.address(),
            pid: Some(process.pid()),
            data: Some(command.data()),
            setup: setup.clone(),
            limits,
            interrupt: interrupt.clone(),
            own: Some((command, Some(process))),
        };
        subject.learn()?;
        Ok(subject)
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

    /// True when it can be stopped and started.
    pub fn is_own(&self) -> bool {
        self.own.is_some()
    }

    /// From the start of our own process to its first answer.
    pub fn start_time(&self) -> Option<Duration> {
        let (_, process) = self.own.as_ref()?;
        Some(process.as_ref()?.start_time)
    }

    /// A connection for what is not measured.
    pub fn connect(&self) -> Result<Connection> {
        Connection::open_until(self.address, &self.interrupt)
    }

    /// An error when our own process has ended.
    pub fn check(&mut self) -> Result<()> {
        match &mut self.own {
            Some((_, Some(process))) => process.check(),
            _ => Ok(()),
        }
    }

    /// Ends our own process. Returns how long that took; `None` for a server that was running.
    pub fn stop(&mut self) -> Result<Option<Duration>> {
        match self.own.as_mut().and_then(|(_, process)| process.take()) {
            Some(process) => process.stop().map(Some),
            None => Ok(None),
        }
    }

    /// Ends our own process at once, as if it had crashed; its data stays. A server that was running is left alone.
    pub fn abandon(&mut self) {
        if let Some((_, process)) = &mut self.own {
            drop(process.take());
        }
    }

    /// Starts our own process again on its data, maybe with other options and limits.
    pub fn start_again(&mut self, setup: Option<&Setup>, limits: Wanted, interrupt: &Interrupt) -> Result<()> {
        let Some((command, process)) = &mut self.own else {
            return Err(Error::Choice(
                "a server that was running cannot be restarted".to_owned(),
            ));
        };
        if let Some(setup) = setup {
            self.setup = setup.clone();
            self.configuration.yaml = setup.yaml()?;
            self.configuration.options = setup.options.clone();
            if setup.file.is_none() {
                let path = command.directory.join("server.yaml");
                fs::write(&path, &self.configuration.yaml).doing(format!("writing {}", path.display()))?;
            }
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

/// Reads `mongodb://host[:port][/…]` or `host[:port]`. Users, TLS and several hosts are not for this tool.
pub fn parse_uri(uri: &str) -> Result<SocketAddr> {
    let refuse = |why: &str| Error::Choice(format!("{uri:?}: {why}"));
    let rest = match uri.split_once("://") {
        Some(("mongodb", rest)) => rest,
        Some((scheme, _)) => return Err(refuse(&format!("the scheme {scheme} is not supported"))),
        None => uri,
    };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    if host.contains('@') {
        return Err(refuse("authentication is not supported"));
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
    let mut addresses = host.to_socket_addrs().doing(format!("finding {host}"))?;
    addresses.next().ok_or_else(|| refuse("the host has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_read_or_refused_with_a_reason() {
        let read = |uri: &str| parse_uri(uri).map(|address| address.to_string());
        assert_eq!(
            read("mongodb://127.0.0.1:5000/test?w=1").ok().as_deref(),
            Some("127.0.0.1:5000")
        );
        assert_eq!(read("127.0.0.1").ok().as_deref(), Some("127.0.0.1:27017"));
        for (uri, why) in [
            ("mongodb+srv://x", "scheme"),
            ("mongodb://u:p@h", "authentication"),
            ("mongodb://a,b", "one host"),
            ("mongodb:///x", "no host"),
        ] {
            let error = read(uri).expect_err("it is refused").to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
