//! A server must not outlive this program, however that ends: one that is killed, or that the system ends for want of
//! memory, drops nothing.

use crate::error::{Doing, Result};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// A shell that kills a process once nobody holds the other end of its input any more. Dropping this ends the shell,
/// and leaves the process alone.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Of a process with this id.
    pub fn over(pid: u32) -> Result<Self> {
        // Of its own group, so that a Ctrl-C for this program does not reach it.
        let shell = Command::new("/bin/sh")
            .args(["-c", &format!("read -r line; kill -KILL {pid}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        shell.map(Self).doing("starting a guard over the server")
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Before its input is closed: the id may be another process's by then.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn sleeper() -> Child {
        Command::new("/bin/sleep").arg("600").spawn().expect("it starts")
    }

    #[test]
    fn a_process_ends_when_its_guard_is_alone_and_not_when_it_is_dropped() {
        let mut child = sleeper();
        let mut guard = Guard::over(child.id()).expect("it starts");
        drop(guard.0.stdin.take());
        assert_eq!(child.wait().expect("a child").signal(), Some(9));
        let mut child = sleeper();
        drop(Guard::over(child.id()).expect("it starts"));
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(child.try_wait().expect("a child").is_none());
        child.kill().expect("it lives");
        child.wait().expect("a child");
    }
}
