//! The server's process: starting it on fresh data, stopping it, and what it has used so far.
//!
//! Figures come from `/proc`: CPU time of all threads, those that ended included, from `stat`; bytes handed to the disk
//! from `io`; memory from `statm`.

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A server that has not begun to listen by then will not.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// A server that has not ended by then will not.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
/// Between two looks at whether something has happened: the resolution of start-up and shutdown times.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// What a process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// User and system time of all threads.
    pub cpu: Duration,
    /// Bytes of pages made dirty in the page cache, or written past it.
    pub written_bytes: u64,
    /// Resident memory.
    pub resident_bytes: u64,
}

/// What a process has used. `io` needs the right to look; without it the figure is 0.
pub fn usage(pid: u32) -> Result<Usage> {
    let read = |name: &str| {
        let path = format!("/proc/{pid}/{name}");
        fs::read_to_string(&path).with_context(|| format!("reading {path}"))
    };
    let ticks = rustix::param::clock_ticks_per_second();
    let cpu = parse_cpu_ticks(&read("stat")?).context("the fields of stat")?;
    let pages = parse_resident_pages(&read("statm")?).context("the fields of statm")?;
    Ok(Usage {
        cpu: Duration::from_nanos(cpu * (1_000_000_000 / ticks.max(1))),
        written_bytes: read("io").ok().and_then(|text| parse_written_bytes(&text)).unwrap_or(0),
        resident_bytes: pages * rustix::param::page_size() as u64,
    })
}

/// `utime` and `stime`, fields 14 and 15. The name in parentheses may hold anything, so count from its end.
fn parse_cpu_ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some(ticks()? + ticks()?)
}

fn parse_resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn parse_written_bytes(io: &str) -> Option<u64> {
    io.lines()
        .find_map(|line| line.strip_prefix("write_bytes:"))?
        .trim()
        .parse()
        .ok()
}

/// How to start a server.
#[derive(Clone, Debug)]
pub struct ServerCommand {
    /// The program.
    pub program: PathBuf,
    /// `--storageEngine`.
    pub engine: String,
    /// Further arguments.
    pub arguments: Vec<String>,
    /// Where to make the data directory; `None`: the system's place for temporary files.
    pub data_parent: Option<PathBuf>,
}

/// A running server on data of its own. Dropping it kills it and removes the data.
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    /// From starting the program to the first connection it took.
    pub start_time: Duration,
    /// Held so that it is removed after the child is gone.
    _directory: tempfile::TempDir,
}

impl ServerProcess {
    /// Starts a server and waits until it listens.
    pub fn start(command: &ServerCommand) -> Result<Self> {
        let parent = command.data_parent.clone().unwrap_or_else(std::env::temp_dir);
        let directory = tempfile::Builder::new()
            .prefix("tenon-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("making a data directory in {}", parent.display()))?;
        let data = directory.path().join("data");
        fs::create_dir(&data).with_context(|| format!("making {}", data.display()))?;
        let log_path = directory.path().join("server.log");
        let log = File::create(&log_path).with_context(|| format!("making {}", log_path.display()))?;
        let address = free_address()?;
        let start = Instant::now();
        let child = Command::new(&command.program)
            .arg("--dbpath")
            .arg(&data)
            .args(["--bind_ip", "127.0.0.1", "--port", &address.port().to_string()])
            .args(["--storageEngine", &command.engine])
            .args(&command.arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("sharing the log file")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {}", command.program.display()))?;
        // From here on dropping it ends the child.
        let mut server = Self {
            child,
            address,
            start_time: Duration::ZERO,
            _directory: directory,
        };
        server.wait_until_listening(start, &log_path)?;
        Ok(server)
    }

    fn wait_until_listening(&mut self, start: Instant, log: &Path) -> Result<()> {
        while start.elapsed() < START_TIMEOUT {
            if TcpStream::connect(self.address).is_ok() {
                self.start_time = start.elapsed();
                return Ok(());
            }
            if let Some(status) = self.child.try_wait().context("looking after the server")? {
                bail!("the server ended at once ({status}):\n{}", last_lines(log));
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        bail!(
            "the server does not listen after {START_TIMEOUT:?}:\n{}",
            last_lines(log)
        )
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to end (SIGTERM), waits, and returns how long it took.
    pub fn stop(mut self) -> Result<Duration> {
        let start = Instant::now();
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM).context("asking the server to end")?;
        let status = self.wait_for_end(start)?;
        // A program that does not handle the signal ends by it, which is an end as well.
        ensure!(
            status.success() || status.signal() == Some(Signal::TERM.as_raw()),
            "the server ended with {status}"
        );
        Ok(start.elapsed())
    }

    fn wait_for_end(&mut self, start: Instant) -> Result<ExitStatus> {
        while start.elapsed() < STOP_TIMEOUT {
            if let Some(status) = self.child.try_wait().context("waiting for the server to end")? {
                return Ok(status);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        bail!("the server does not end after {STOP_TIMEOUT:?}")
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address of this machine that nobody listens on at the moment.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("looking for a free port")?;
    listener.local_addr().context("looking for a free port")
}

fn last_lines(path: &Path) -> String {
    let text = fs::read(path)
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}

/// Lets this process open as many files as the system allows, for idle connections. Returns how many.
pub fn raise_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
    .unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc() {
        let stat = "7 (a) b (c) R 1 7 7 0 -1 0 98 0 0 0 250 17 0 0 20 0 1 0 3 4 5";
        assert_eq!(parse_cpu_ticks(stat), Some(267));
        assert_eq!(parse_cpu_ticks("7 (a) R 1"), None);
        assert_eq!(parse_resident_pages("100 42 3 4 0 6 0"), Some(42));
        assert_eq!(
            parse_written_bytes("rchar: 1\nwrite_bytes: 8192\ncancelled_write_bytes: 4\n"),
            Some(8192)
        );
    }

    #[test]
    fn this_process_has_memory() {
        let usage = usage(std::process::id()).expect("it is there");
        assert!(usage.resident_bytes > 0);
    }

    #[test]
    fn a_program_that_ends_at_once_is_an_error_that_shows_its_words() {
        let command = ServerCommand {
            program: "/bin/echo".into(),
            engine: "inMemory".to_owned(),
            arguments: vec!["no such engine".to_owned()],
            data_parent: None,
        };
        let error = ServerProcess::start(&command)
            .err()
            .expect("echo serves nobody")
            .to_string();
        assert!(
            error.contains("ended at once") && error.contains("no such engine"),
            "{error}"
        );
    }
}
