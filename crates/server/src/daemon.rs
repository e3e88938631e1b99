//! `--fork` and `--shutdown`: starting in the background, and stopping what runs there.
//!
//! The parent starts the program again with a mark in its environment and waits until the child says on its standard
//! output that it serves. The child leads a session of its own from the start.

use crate::data_directory::{LOCK_FILE, METADATA_FILE, in_use, process_id};
use rustix::process::{Pid, Signal, kill_process};
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use vfs::FileSystem;

/// Set in the child's environment.
const MARK: &str = "TENOND_FORKED";
/// What the child says when it serves.
const READY: &str = "ready";

/// How long a server that was told to stop is waited for: as long as the service's unit gives it.
const STOP_PATIENCE: Duration = Duration::from_secs(600);

/// True in the child.
pub fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the program in the background and waits until it serves.
pub fn launch(arguments: &[String]) -> ExitCode {
    say(&"about to fork child process, waiting until server is ready for connections.");
    let started = std::env::current_exe().and_then(|program| {
        Command::new(program)
            .args(arguments)
            .env(MARK, "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
    });
    let mut child = match started {
        Ok(child) => child,
        Err(error) => {
            return fail(&format_args!("ERROR: cannot start the child process: {error}"));
        }
    };
    say(&format_args!("forked process: {}", child.id()));
    let ready = child.stdout.take().is_some_and(|output| {
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .any(|line| line == READY)
    });
    if ready {
        say(&"child process started successfully, parent exiting");
        return ExitCode::SUCCESS;
    }
    let code = child
        .wait()
        .ok()
        .and_then(|status| status.code())
        .and_then(|code| u8::try_from(code).ok())
        // One that was told to stop before it served has not failed, but there is no server.
        .filter(|code| *code != 0)
        .unwrap_or(1);
    say(&format_args!("ERROR: child process failed, exited with {code}"));
    say(&"To see additional information in this output, start without the \"--fork\" option.");
    ExitCode::from(code)
}

/// Prints a line for whoever is there to read it.
fn say(line: &dyn Display) {
    let _ = writeln!(io::stdout(), "{line}");
}

fn fail(line: &dyn Display) -> ExitCode {
    let _ = writeln!(io::stderr(), "{line}");
    ExitCode::FAILURE
}

/// In the child, first thing: leaves the parent's session.
pub fn detach() {
    // Fails only for a process that leads a session already.
    let _ = rustix::process::setsid();
}

/// In the child, when it serves: tells the parent and lets go of its terminal. The parent may be gone, and the server
/// serves all the same.
pub fn ready() {
    say(&READY);
    let _ = io::stdout().flush();
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null");
    if let Ok(null) = null {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Who uses a data directory.
#[derive(Debug, PartialEq, Eq)]
enum User {
    Nobody,
    /// A process that holds the directory's lock.
    Process(Pid),
    /// The lock is held, but not by the process that the lock file names: it belongs to another container, or has not
    /// written its own number yet.
    Unknown,
}

/// Finds out who uses a data directory; an error when this user may not.
fn user_of(fs: &dyn FileSystem, db_path: &Path) -> io::Result<User> {
    for name in [LOCK_FILE, METADATA_FILE] {
        match std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(db_path.join(name))
        {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    if !in_use(fs, db_path) {
        return Ok(User::Nobody);
    }
    let pid = process_id(db_path).and_then(Pid::from_raw);
    Ok(match pid.filter(|pid| has_locked(*pid, &db_path.join(LOCK_FILE))) {
        Some(pid) => User::Process(pid),
        None => User::Unknown,
    })
}

/// Whether a process holds a file's lock: the system lists it, or else the process has the file open.
fn has_locked(pid: Pid, file: &Path) -> bool {
    let Ok(wanted) = std::fs::metadata(file) else {
        return false;
    };
    let pid = pid.as_raw_nonzero().to_string();
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let is_listed = locks.lines().any(|lock| is_lock_of(lock, &pid, wanted.ino()));
    is_listed || {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        open.flatten()
            .filter_map(|descriptor| std::fs::metadata(descriptor.path()).ok())
            .any(|open| (open.dev(), open.ino()) == (wanted.dev(), wanted.ino()))
    }
}

/// Whether a line of `/proc/locks`, such as `1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF`, is that of a process on
/// the file of this number. Its device is another one than `stat` tells on some file systems.
fn is_lock_of(line: &str, pid: &str, inode: u64) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        [_, "FLOCK", _, _, owner, file, ..] => {
            *owner == pid && file.rsplit(':').next() == Some(inode.to_string().as_str())
        }
        _ => false,
    }
}

/// Stops the server that uses a data directory, and waits until it has let go of it.
pub fn shutdown(fs: &dyn FileSystem, db_path: &Path) -> ExitCode {
    let path = db_path.display();
    let pid = match user_of(fs, db_path) {
        Ok(User::Process(pid)) => pid,
        Ok(User::Nobody) => {
            return fail(&format_args!(
                "There doesn't seem to be a server running with dbpath: {path}"
            ));
        }
        Ok(User::Unknown) => {
            return fail(&format_args!(
                "A server is running with dbpath {path}, but its process is not known here: it runs in another \
                 container, or is just starting. Stop it where it was started, or with db.shutdownServer()"
            ));
        }
        Err(error) => {
            return fail(&format_args!(
                "Whether a server is running with dbpath {path} is for its user, or root, to find out: {error}"
            ));
        }
    };
    say(&format_args!("killing process with pid: {}", pid.as_raw_nonzero()));
    if let Err(error) = kill_process(pid, Signal::TERM) {
        return fail(&format_args!("failed to kill process: {error}"));
    }
    let until = Instant::now() + STOP_PATIENCE;
    while in_use(fs, db_path) && has_locked(pid, &db_path.join(LOCK_FILE)) {
        if Instant::now() > until {
            return fail(&format_args!(
                "process {} was told to stop, and has not ended within {} minutes; it may still do so",
                pid.as_raw_nonzero(),
                STOP_PATIENCE.as_secs() / 60
            ));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vfs::RealFs;

    /// A signal went to whatever process the file named: in another container that was another one.
    #[test]
    fn only_a_process_that_holds_the_lock_is_the_servers() {
        let directory = tempfile::tempdir().unwrap();
        let (fs, path) = (RealFs::new(), directory.path());
        assert_eq!(user_of(&fs, path).unwrap(), User::Nobody);
        let own = std::process::id();
        let lock = fs.lock(&path.join(LOCK_FILE)).unwrap();
        assert_eq!(user_of(&fs, path).unwrap(), User::Unknown);
        lock.write_content(b"1\n").unwrap();
        assert_eq!(user_of(&fs, path).unwrap(), User::Unknown);
        lock.write_content(format!("{own}\n").as_bytes()).unwrap();
        let itself = User::Process(Pid::from_raw(own as i32).unwrap());
        assert_eq!(user_of(&fs, path).unwrap(), itself);
        drop(lock);
        assert_eq!(user_of(&fs, path).unwrap(), User::Nobody);
    }

    #[test]
    fn the_systems_list_of_locks_is_read() {
        let line = "3: FLOCK  ADVISORY  WRITE 812 08:01:5678 0 EOF";
        assert!(is_lock_of(line, "812", 5678));
        assert!(!is_lock_of(line, "81", 5678) && !is_lock_of(line, "812", 678));
        assert!(!is_lock_of(
            "3: POSIX  ADVISORY  WRITE 812 08:01:5678 0 EOF",
            "812",
            5678
        ));
        assert!(
            !is_lock_of("3: -> FLOCK  ADVISORY  WRITE 812 08:01:5678 0 EOF", "812", 5678),
            "one that waits"
        );
        assert!(!is_lock_of("", "", 0));
    }
}
