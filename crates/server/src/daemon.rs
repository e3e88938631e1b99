//! `--fork` and `--shutdown`: starting in the background, and stopping what runs there.
//!
//! The parent starts the program again with a mark in its environment and waits until the child says on its standard
//! output that it serves. The child leads a session of its own from the start.

use crate::data_directory::{in_use, process_id};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;
use vfs::FileSystem;

/// Set in the child's environment.
const MARK: &str = "TENOND_FORKED";
/// What the child says when it serves.
const READY: &str = "ready";

/// True in the child.
pub fn is_child() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the program in the background and waits until it serves.
pub fn launch(arguments: &[String]) -> ExitCode {
    println!("about to fork child process, waiting until server is ready for connections.");
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
            eprintln!("ERROR: cannot start the child process: {error}");
            return ExitCode::from(1);
        }
    };
    println!("forked process: {}", child.id());
    let ready = child.stdout.take().is_some_and(|output| {
        BufReader::new(output)
            .lines()
            .map_while(Result::ok)
            .any(|line| line == READY)
    });
    if ready {
        println!("child process started successfully, parent exiting");
        return ExitCode::SUCCESS;
    }
    let code = child
        .wait()
        .ok()
        .and_then(|status| status.code())
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1);
    println!("ERROR: child process failed, exited with {code}");
    println!("To see additional information in this output, start without the \"--fork\" option.");
    ExitCode::from(code)
}

/// In the child, first thing: leaves the parent's session.
pub fn detach() {
    // Fails only for a process that leads a session already.
    let _ = rustix::process::setsid();
}

/// In the child, when it serves: tells the parent and lets go of its terminal.
pub fn ready() -> std::io::Result<()> {
    println!("{READY}");
    std::io::stdout().flush()?;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

/// Stops the server that uses a data directory, and waits until it has let go of it.
pub fn shutdown(fs: &dyn FileSystem, db_path: &Path) -> ExitCode {
    let Some(pid) = process_id(db_path)
        .and_then(Pid::from_raw)
        .filter(|_| in_use(fs, db_path))
    else {
        eprintln!(
            "There doesn't seem to be a server running with dbpath: {}",
            db_path.display()
        );
        return ExitCode::from(1);
    };
    println!("killing process with pid: {}", pid.as_raw_nonzero());
    if let Err(error) = kill_process(pid, Signal::TERM) {
        eprintln!("failed to kill process: {error}");
        return ExitCode::from(1);
    }
    while in_use(fs, db_path) {
        std::thread::sleep(Duration::from_millis(20));
    }
    ExitCode::SUCCESS
}
