//! A server's process: starting it on a data directory, restarting and stopping it, and noticing that it has died.
//!
//! It runs in a process group of its own, so that a Ctrl-C for the tool does not reach it. What is started may be a
//! wrapper, with the server behind it in the same group. Nothing of the group outlives the value that stands for it.

use crate::connection::Connection;
use crate::error::{Doing, Error, Result};
use crate::interrupt::Interrupt;
use crate::limits::{ControlGroup, Wanted};
use crate::procfs::{self, Listener};
use process::Guard;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A server that does not answer by then will not. Recovery of a large log counts.
const START_TIMEOUT: Duration = Duration::from_secs(600);
/// A server that has not ended by then is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);
/// The same, once the user wants to stop.
pub const STOP_TIMEOUT_INTERRUPTED: Duration = Duration::from_secs(10);
/// When another program has answered in the server's place for so long, or the server has refused to answer, it will
/// not.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(10);
/// What was killed is gone by then, unless the system keeps it: it gives a large server's memory back first.
const KILL_TIMEOUT: Duration = Duration::from_secs(60);
/// So many times as long where it cannot be seen whose port it is.
const STRANGER_TIMES_UNKNOWN: u32 = 6;
/// Before a server that refuses to answer is asked again.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// A process whose connections broke is gone by then, a busy machine's too.
const DEATH_TIMEOUT: Duration = Duration::from_secs(10);
/// One that answers after so long lives on.
const DEATH_TIMEOUT_ANSWERING: Duration = Duration::from_secs(1);
/// Between two looks at whether it is gone.
const DEATH_LOOK: Duration = Duration::from_millis(20);
/// Between two looks at whether something has happened: the resolution of start-up and shutdown times.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
/// Of a server's log, this much of its end is looked through for the reason of its own.
const TAIL_BYTES: u64 = 64 << 10;
/// Another program may take a free port before the server does.
const PORTS_TRIED: usize = 3;

/// How to start a server.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    /// The program: `tenond`, or any that takes mongod's options.
    pub program: PathBuf,
    /// Its name in messages and results.
    pub label: String,
    /// A configuration file; `--dbpath`, `--port`, `--bind_ip` and `--logpath` are given beside it.
    pub config: Option<PathBuf>,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// A directory of its own: data in `data`, its log in `server.log`.
    pub directory: PathBuf,
    /// Limits that the system shall put on it.
    pub limits: Wanted,
}

impl ServerCommand {
    /// The data directory.
    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    /// The command line for a port.
    pub fn line(&self, port: u16) -> Command {
        let mut command = Command::new(&self.program);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        command
            .arg("--dbpath")
            .arg(self.data())
            .args(["--bind_ip", "127.0.0.1", "--port", &port.to_string()])
            .arg("--logpath")
            .arg(self.log())
            .args(["--logappend", "--nounixsocket"])
            .args(&self.arguments);
        command
    }

    /// Removes and makes the data directory.
    pub fn make_fresh(&self) -> Result<()> {
        let data = self.data();
        if data.exists() {
            fs::remove_dir_all(&data).doing(format!("removing {}", data.display()))?;
        }
        fs::create_dir_all(&data).doing(format!("making {}", data.display()))
    }
}

/// A running server. Dropping it kills it; the data stays.
#[derive(Debug)]
pub struct ServerProcess {
    /// The leader of the group.
    child: Child,
    /// It has been waited for, or given up: its id may be another process's.
    is_over: bool,
    /// The server's process, as far as it is known.
    pid: u32,
    address: SocketAddr,
    label: String,
    words: Words,
    interrupt: Interrupt,
    /// From starting the program to its first answer.
    pub start_time: Duration,
    /// What could not be done, in sentences.
    pub notes: Vec<String>,
    guard: Option<Guard>,
    /// Removed when the child is gone: fields are dropped in this order.
    group: Option<ControlGroup>,
}

impl ServerProcess {
    /// Starts a server on the data that is there, on a port that must be free, and waits until it answers.
    pub fn start_on(command: &ServerCommand, port: u16, interrupt: &Interrupt) -> Result<Self> {
        Self::start_once(command, (Ipv4Addr::LOCALHOST, port).into(), interrupt)
    }

    /// Starts a server on the data that is there, on any free port, and waits until it answers.
    pub fn start(command: &ServerCommand, interrupt: &Interrupt) -> Result<Self> {
        let mut tries = 1;
        loop {
            match Self::start_once(command, free_address()?, interrupt) {
                Err(Error::ServerDied { log, .. }) if log.contains("ddress already in use") && tries < PORTS_TRIED => {
                    tries += 1;
                }
                Err(Error::Io { source, .. }) if source.kind() == ErrorKind::AddrInUse && tries < PORTS_TRIED => {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    fn start_once(command: &ServerCommand, address: SocketAddr, interrupt: &Interrupt) -> Result<Self> {
        // Whoever listens there would be taken for the server, and get its commands.
        TcpListener::bind(address).doing(format!("taking the port {} for {}", address.port(), command.label))?;
        let data = command.data();
        fs::create_dir_all(&data).doing(format!("making {}", data.display()))?;
        let words = Words {
            output: command.directory.join("output.txt"),
            log: command.log(),
        };
        let output = File::create(&words.output).doing(format!("making {}", words.output.display()))?;
        let mut notes = Vec::new();
        let group = if command.limits.any() {
            ControlGroup::new(command.limits, &data)
                .map_err(|reason| notes.push(format!("no limit on memory or disk: {reason}")))
                .ok()
        } else {
            None
        };
        let start = Instant::now();
        let child = command
            .line(address.port())
            .stdin(Stdio::null())
            .stdout(output.try_clone().doing("sharing a file")?)
            .stderr(output)
            .process_group(0)
            .spawn()
            .doing(format!("starting {}", command.program.display()))?;
        // From here on dropping it ends the child.
        let mut server = Self {
            pid: child.id(),
            is_over: false,
            child,
            address,
            label: command.label.clone(),
            words,
            interrupt: interrupt.clone(),
            start_time: Duration::ZERO,
            notes,
            guard: None,
            group: None,
        };
        // First: what a wrapper starts is limited only from then on.
        if let Some(group) = group {
            match group.add(server.pid()) {
                Ok(()) => server.group = Some(group),
                Err(reason) => server.notes.push(format!("no limit on memory or disk: {reason}")),
            }
        }
        match Guard::over(server.pid(), None) {
            Ok(guard) => server.guard = Some(guard),
            Err(error) => server
                .notes
                .push(format!("the server outlives this program when that is killed: {error}")),
        }
        server.wait_until_answering(start, STRANGER_TIMEOUT, interrupt, procfs::group_listener)?;
        Ok(server)
    }

    fn wait_until_answering(
        &mut self,
        start: Instant,
        patience: Duration,
        interrupt: &Interrupt,
        listener: impl Fn(u32, u16) -> Listener,
    ) -> Result<()> {
        let (mut stranger, mut refused): (Option<Instant>, Option<Instant>) = (None, None);
        while start.elapsed() < START_TIMEOUT {
            interrupt.check()?;
            if self.has_ended()? {
                let status = self.end()?;
                return Err(self.died(format!("did not start ({status})")));
            }
            let hello = Connection::open_until(self.address, interrupt).map(|mut connection| connection.hello());
            let answered = start.elapsed();
            // Another program may have taken the port since it was seen to be free.
            let listener = match hello {
                Ok(_) => listener(self.child.id(), self.address.port()),
                Err(_) => Listener::Unknown,
            };
            match hello {
                Ok(Ok(_)) if listener != Listener::Nobody => {
                    if self.has_ended()? {
                        continue;
                    }
                    if let Listener::Process(pid) = listener {
                        self.pid = pid;
                    }
                    self.start_time = answered;
                    return Ok(());
                }
                Ok(Ok(_)) if stranger.get_or_insert_with(Instant::now).elapsed() > patience => {
                    return Err(self.died(format!("did not start: another program answers at {}", self.address)));
                }
                // One that is busy with its start answers late or does not listen yet.
                Ok(Err(error)) if !matches!(error, Error::NoReply { .. }) => {
                    interrupt.check()?;
                    let patience = match listener {
                        Listener::Process(_) => patience,
                        Listener::Unknown => patience * STRANGER_TIMES_UNKNOWN,
                        Listener::Nobody => START_TIMEOUT,
                    };
                    if refused.get_or_insert_with(Instant::now).elapsed() > patience {
                        let reason = crate::chain(&error);
                        return Err(self.died(format!("does not answer to `hello` at {}: {reason}", self.address)));
                    }
                    std::thread::sleep(REFUSED_PAUSE);
                }
                _ => {}
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        Err(self.died(format!("does not answer {} s after its start", START_TIMEOUT.as_secs())))
    }

    fn died(&self, what: String) -> Error {
        Error::ServerDied {
            label: self.label.clone(),
            what,
            log: self.words.last(),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id: behind a wrapper, that of the process that listens.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// An error when it has ended.
    pub fn check(&mut self) -> Result<()> {
        let leader = self.child.id();
        if !self.has_ended()? && (self.pid == leader || procfs::lives_in_group(self.pid, leader)) {
            return Ok(());
        }
        let status = self.end()?;
        Err(self.died(match &self.group {
            Some(group) if group.has_killed() => {
                format!("needed more memory than it was allowed, and was killed ({status})")
            }
            _ => format!("has ended by itself ({status})"),
        }))
    }

    /// Why it has ended, after a connection to it broke: the process goes later than its connections do. `None` when it
    /// answers a new one, or is still there after a while.
    pub fn why_dead(&mut self) -> Option<Error> {
        let (address, interrupt) = (self.address, self.interrupt.clone());
        why_dead(address, &interrupt, || self.check())
    }

    /// Whether what was started has ended. It is not waited for: the group keeps its number.
    fn has_ended(&self) -> Result<bool> {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let leader = WaitId::Pid(Pid::from_child(&self.child));
        Ok(self.is_over || waitid(leader, look).doing("looking after the server")?.is_some())
    }

    /// Kills what is left of the group, and says how what was started has ended.
    fn end(&mut self) -> Result<ExitStatus> {
        self.end_within(KILL_TIMEOUT)
    }

    fn end_within(&mut self, patience: Duration) -> Result<ExitStatus> {
        // A guard that outlived the child could meet another process of its number.
        drop(self.guard.take());
        if !self.is_over {
            // Fails when nobody is left. Before the leader is waited for: from then on the number may be another's.
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let start = Instant::now();
            let is_left =
                |server: &Self| matches!(server.has_ended(), Ok(false)) || !procfs::group(server.child.id()).is_empty();
            while is_left(self) && start.elapsed() < patience {
                std::thread::sleep(LOOK_AGAIN);
            }
            self.is_over = true;
        }
        // Not waited for: the system keeps a process that is in the middle of a disk's answer, which may never come.
        let ended = self.child.try_wait().doing("waiting for the server to end")?;
        let pid = self.child.id();
        let kept = || format!("was killed, but the system does not let it end (process {pid})");
        ended.ok_or_else(|| self.died(kept()))
    }

    /// True when the system limits it as it was told to.
    pub fn is_limited(&self) -> bool {
        self.group.is_some()
    }

    /// Asks it to end (SIGTERM), waits, and returns how long it took. Once the user wants to stop, it is killed when it
    /// does not end soon, or the user asks again.
    pub fn stop(mut self) -> Result<Duration> {
        let start = Instant::now();
        let asked_before = self.interrupt.times();
        self.check()?;
        // A wrapper need not pass the signal on, and ends with the server.
        let server = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let server = server.unwrap_or(Pid::from_child(&self.child));
        kill_process(server, Signal::TERM).doing("asking the server to end")?;
        self.wait_for_end(start, asked_before)?;
        let took = start.elapsed();
        let status = self.end()?;
        // A program that does not handle the signal ends by it, which is an end as well.
        if status.success() || status.signal() == Some(Signal::TERM.as_raw()) {
            return Ok(took);
        }
        Err(self.died(format!("did not end in an orderly way ({status})")))
    }

    fn wait_for_end(&self, start: Instant, asked_before: usize) -> Result<()> {
        let mut patience = match asked_before {
            0 => STOP_TIMEOUT,
            _ => STOP_TIMEOUT_INTERRUPTED,
        };
        let mut is_asked = asked_before > 0;
        while start.elapsed() < patience {
            let times = self.interrupt.times();
            if times > asked_before.max(1) {
                return Err(Error::Interrupted);
            }
            if times > 0 && !is_asked {
                is_asked = true;
                patience = patience.min(start.elapsed() + STOP_TIMEOUT_INTERRUPTED);
            }
            // What else a wrapper has started is killed with the group, and has no time of its own.
            let leader = self.child.id();
            if self.has_ended()? && (self.pid == leader || !procfs::lives_in_group(self.pid, leader)) {
                return Ok(());
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        if is_asked && asked_before == 0 {
            return Err(Error::Interrupted);
        }
        Err(self.died(format!("does not end in {} s and was killed", patience.as_secs())))
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Nobody could do more.
        let _ = self.end();
    }
}

/// See [`ServerProcess::why_dead`]: what `check` finds, of the server or servers behind this address.
pub(crate) fn why_dead(
    address: SocketAddr,
    interrupt: &Interrupt,
    mut check: impl FnMut() -> Result<()>,
) -> Option<Error> {
    let answers = || {
        let connection = Connection::open_until(address, interrupt);
        connection.is_ok_and(|mut connection| {
            connection.wait_at_most(DEATH_TIMEOUT_ANSWERING);
            connection.hello().is_ok()
        })
    };
    let start = Instant::now();
    while start.elapsed() < DEATH_TIMEOUT && interrupt.check().is_ok() {
        if let Err(error) = check() {
            return Some(error);
        }
        if start.elapsed() >= DEATH_TIMEOUT_ANSWERING && answers() {
            return None;
        }
        std::thread::sleep(DEATH_LOOK);
    }
    None
}

/// An address of this machine that nobody listens on at the moment.
pub fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).doing("looking for a free port")?;
    listener.local_addr().doing("looking for a free port")
}

/// Where a server says something.
#[derive(Debug)]
struct Words {
    output: PathBuf,
    log: PathBuf,
}

impl Words {
    /// The last lines that may say why a server has ended: those about each connection that came and went do not.
    fn last(&self) -> String {
        let lines = [last_lines(&self.output), last_lines(&self.log)];
        lines.concat().join("\n")
    }
}

/// Reads the end of a file; lines of a log in JSON only from warnings on.
fn last_lines(path: &Path) -> Vec<String> {
    let tail = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let skipped = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(skipped))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        // A line that is cut off is none.
        let cut = bytes.iter().position(|byte| *byte == b'\n').filter(|_| skipped > 0);
        bytes.drain(..cut.unwrap_or(0));
        Ok(bytes)
    };
    let bytes = tail().unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    // Information, debugging, and what every start of a server warns of.
    let usual = [r#""s":"I""#, r#""s":"D"#, r#""tags":["startupWarnings"]"#];
    let is_telling = |line: &&str| !line.starts_with("{\"t\":") || !usual.iter().any(|usual| line.contains(usual));
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.is_empty())
        .filter(is_telling)
        .collect();
    lines[lines.len().saturating_sub(12)..]
        .iter()
        .map(|line| (*line).to_owned())
        .collect()
}

/// What the build of a server says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Build {
    /// Name and version.
    pub version: String,
    /// Its storage engines; the first is the default. Empty when it does not say.
    pub engines: Vec<String>,
}

/// Asks a server program for its version and engines.
pub fn build_of(program: &Path) -> Result<Build> {
    let output = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .doing(format!("starting {}", program.display()))?;
    Ok(parse_version(&String::from_utf8_lossy(&output.stdout)))
}

fn parse_version(text: &str) -> Build {
    let engines = text
        .lines()
        .find_map(|line| line.strip_prefix("Storage engines: "))
        .map(|list| list.split(',').map(|name| name.trim().to_owned()).collect());
    Build {
        version: text.lines().next().unwrap_or_default().replacen(" version v", " ", 1),
        engines: engines.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_ends_at_once_is_an_error_that_shows_its_words() {
        let directory = tempfile::tempdir().expect("a directory");
        let command = ServerCommand {
            arguments: vec!["no such engine".to_owned()],
            ..command_of("/bin/echo", directory.path())
        };
        let error = ServerProcess::start(&command, &Interrupt::new())
            .expect_err("echo serves nobody")
            .to_string();
        assert!(
            error.contains("did not start") && error.contains("no such engine"),
            "{error}"
        );
    }

    fn command_of(program: &str, directory: &Path) -> ServerCommand {
        ServerCommand {
            program: program.into(),
            label: "test".to_owned(),
            config: None,
            arguments: Vec::new(),
            directory: directory.to_path_buf(),
            limits: Wanted::default(),
        }
    }

    /// Its answers were taken for those of the server, which got no further than its port.
    #[test]
    fn a_port_that_somebody_has_is_refused_before_anything_starts() {
        let directory = tempfile::tempdir().expect("a directory");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = taken.local_addr().expect("bound");
        std::thread::spawn(move || crate::responder::serve(&taken));
        let command = command_of("/bin/false", directory.path());
        let error = ServerProcess::start_on(&command, address.port(), &Interrupt::new()).expect_err("it is taken");
        let words = crate::chain(&error);
        assert!(
            words.contains(&format!("taking the port {}", address.port())),
            "{words}"
        );
        assert!(!command.data().exists(), "nothing was made");
    }

    #[test]
    fn who_answers_in_the_place_of_the_server_is_not_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = taken.local_addr().expect("bound");
        std::thread::spawn(move || crate::responder::serve(&taken));
        let child = Command::new("/bin/sleep")
            .arg("600")
            .process_group(0)
            .spawn()
            .expect("it starts");
        let mut server = server_of(child.id(), child, directory.path());
        server.address = address;
        assert_eq!(procfs::group_listener(server.pid(), address.port()), Listener::Nobody);
        let interrupt = Interrupt::new();
        let error = server
            .wait_until_answering(
                Instant::now(),
                Duration::from_millis(100),
                &interrupt,
                procfs::group_listener,
            )
            .expect_err("somebody else answers");
        assert!(error.to_string().contains("another program answers at"), "{error}");
    }

    #[test]
    fn a_server_that_does_not_end_is_killed_when_the_user_insists() {
        let directory = tempfile::tempdir().expect("a directory");
        let child = Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; echo ready; exec sleep 600"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn();
        let mut child = child.expect("it starts");
        let mut ready = [0; 6];
        let mut out = child.stdout.take().expect("piped");
        out.read_exact(&mut ready).expect("it is deaf from now on");
        let interrupt = Interrupt::new();
        interrupt.ask();
        let mut server = server_of(child.id(), child, directory.path());
        server.interrupt = interrupt.clone();
        std::thread::scope(|scope| {
            let stopped = scope.spawn(|| server.stop());
            std::thread::sleep(Duration::from_millis(100));
            interrupt.ask();
            let ended = stopped.join().expect("no panic");
            assert!(matches!(ended, Err(Error::Interrupted)), "{ended:?}");
        });
    }

    /// It was waited for without a bound.
    #[test]
    fn a_server_that_the_system_keeps_is_given_up_and_told() {
        let directory = tempfile::tempdir().expect("a directory");
        // Of the test's own group, so that killing its group does not reach it.
        let child = Command::new("/bin/sleep").arg("60").spawn().expect("it starts");
        let mut server = server_of(child.id(), child, directory.path());
        for _ in 0..2 {
            let error = server.end_within(Duration::from_millis(20)).expect_err("it lives on");
            assert!(error.to_string().contains("does not let it end"), "{error}");
        }
        server.child.kill().expect("it is there");
        server.child.wait().expect("it has ended");
    }

    /// A shell that waits for another process, as the wrapper of a server does; its pipe is open for as long as one of
    /// them lives.
    fn wrapped(directory: &Path) -> (ServerProcess, impl Read) {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 600; exit 0"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let pipe = child.stdout.take().expect("piped");
        let behind = loop {
            if let Some(&behind) = procfs::group(child.id()).iter().find(|pid| **pid != child.id()) {
                break behind;
            }
        };
        (server_of(behind, child, directory), pipe)
    }

    fn server_of(pid: u32, child: Child, directory: &Path) -> ServerProcess {
        ServerProcess {
            pid,
            is_over: false,
            child,
            address: (Ipv4Addr::LOCALHOST, 1).into(),
            label: "test".to_owned(),
            words: Words {
                output: directory.join("output.txt"),
                log: directory.join("server.log"),
            },
            interrupt: Interrupt::new(),
            start_time: Duration::ZERO,
            notes: Vec::new(),
            guard: None,
            group: None,
        }
    }

    /// The wrapper was killed, or asked to end, and the server behind it ran on.
    #[test]
    fn a_server_behind_a_wrapper_ends_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let ends = |mut pipe: Box<dyn Read>| pipe.read_to_end(&mut Vec::new()).expect("all have ended");
        let (mut server, pipe) = wrapped(directory.path());
        server.check().expect("both live");
        drop(server);
        assert_eq!(ends(Box::new(pipe)), 0);
        let (server, pipe) = wrapped(directory.path());
        server
            .stop()
            .expect("the wrapper ends in an orderly way when the server has");
        assert_eq!(ends(Box::new(pipe)), 0);
        // What is left of a wrapper is no server.
        let (mut server, pipe) = wrapped(directory.path());
        server.pid = u32::MAX;
        let error = server.check().expect_err("it is not there").to_string();
        assert!(error.contains("has ended by itself"), "{error}");
        assert_eq!(ends(Box::new(pipe)), 0);
    }

    /// Helpers of a wrapper were waited for, for five minutes, and then the run failed.
    #[test]
    fn a_server_has_ended_though_a_helper_of_its_wrapper_has_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut child = Command::new("/bin/sh")
            .args(["-c", "sleep 600 & echo ready; exec sleep 600"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("it starts");
        let mut pipe = child.stdout.take().expect("piped");
        pipe.read_exact(&mut [0; 6]).expect("the helper runs");
        let server = server_of(child.id(), child, directory.path());
        server.stop().expect("what was asked to end has ended");
        assert_eq!(pipe.read_to_end(&mut Vec::new()).expect("all have ended"), 0);
    }

    /// Ten minutes of attempts, a thousand in a second.
    #[test]
    fn a_server_that_refuses_to_answer_is_given_up() {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut server, _pipe) = wrapped(directory.path());
        // This process is the server, as far as anybody sees; it closes each connection as one with TLS does.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        server.address = listener.local_addr().expect("bound");
        std::thread::spawn(move || listener.incoming().for_each(drop));
        for (listener, patience_ms) in [(Listener::Process(1), 300), (Listener::Unknown, 50)] {
            let patience = Duration::from_millis(patience_ms);
            let error = server
                .wait_until_answering(Instant::now(), patience, &Interrupt::new(), |_, _| listener)
                .expect_err("nobody says hello");
            assert!(error.to_string().contains("does not answer to `hello`"), "{error}");
        }
    }

    #[test]
    fn words_are_those_that_tell_something() {
        let directory = tempfile::tempdir().expect("a directory");
        let words = Words {
            output: directory.path().join("output.txt"),
            log: directory.path().join("server.log"),
        };
        assert_eq!(words.last(), "");
        fs::write(&words.output, "thread main panicked\n\nat the disco\n").expect("written");
        let line = |kind: &str, number: u32| format!("{{\"t\":{{}},\"s\":\"{kind}\",\"id\":{number}}}\n");
        let log: String = (0..40).map(|number| line("I", number)).collect();
        fs::write(&words.log, line("W", 40) + &log + &line("D2", 41) + "by hand\n").expect("written");
        let expected = format!("thread main panicked\nat the disco\n{}by hand", line("W", 40));
        assert_eq!(words.last(), expected);
        fs::write(
            &words.output,
            "{\"t\":".to_owned() + &"x".repeat(TAIL_BYTES as usize) + "\nits end",
        )
        .expect("written");
        assert_eq!(
            words.last(),
            expected.replacen("thread main panicked\nat the disco", "its end", 1)
        );
    }

    #[test]
    fn versions_name_engines() {
        let text =
            "tenond version v0.1.0\nAnnounces itself to clients as: 8.0.12\nStorage engines: rocksdb, inMemory\n";
        let build = parse_version(text);
        assert_eq!(build.version, "tenond 0.1.0");
        assert_eq!(build.engines, ["rocksdb", "inMemory"]);
        assert_eq!(parse_version("db version v4.0.28\n").engines, Vec::<String>::new());
    }
}
