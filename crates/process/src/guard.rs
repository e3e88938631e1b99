//! What a program has started must not outlive it, however it ends: one that is killed, or that the system ends for
//! want of memory, drops nothing.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A dying process may go on making files for a moment, so the folder is removed again until it is gone.
const SCRIPT: &str = r#"read -r line
kill -s KILL -- "-$1"
[ -n "$2" ] || exit
for time in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$2" && break; sleep 1; done"#;

/// A shell that kills a process group, and then removes a folder, once nobody holds the other end of its input any
/// more. Dropping this ends the shell, and leaves both alone.
#[derive(Debug)]
pub struct Guard(Child);

impl Guard {
    /// Of the group whose leader has this id, and of the folder that goes with it.
    pub fn over(leader: u32, folder: Option<&Path>) -> io::Result<Self> {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", SCRIPT, "guard", &leader.to_string()]);
        shell.args(folder);
        // Of its own group, so that a Ctrl-C for this program does not reach it.
        let shell = shell
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        shell.map(Self)
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
    use std::io::Read;
    use std::os::unix::process::ExitStatusExt;

    /// One that waits for another, which holds the pipe open for as long as it lives.
    fn family() -> Child {
        Command::new("/bin/sh")
            .args(["-c", "sleep 600; true"])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .expect("it starts")
    }

    /// Of a server behind a wrapper, the wrapper alone was ended.
    #[test]
    fn a_group_and_its_folder_end_when_their_guard_is_alone_and_not_when_it_is_dropped() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = directory.path();
        let _kept = tempfile::tempdir_in(folder).expect("a folder in it").keep();
        let mut child = family();
        drop(Guard::over(child.id(), Some(folder)).expect("it starts"));
        #[expect(clippy::disallowed_methods, reason = "a guard that lived on would need a moment")]
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert!(child.try_wait().expect("a child").is_none() && folder.exists());
        let mut guard = Guard::over(child.id(), Some(folder)).expect("it starts");
        drop(guard.0.stdin.take());
        assert_eq!(child.wait().expect("a child").signal(), Some(9));
        let mut out = Vec::new();
        let mut pipe = child.stdout.take().expect("piped");
        assert_eq!(pipe.read_to_end(&mut out).expect("all of them have ended"), 0);
        assert!(guard.0.wait().expect("a child").success() && !folder.exists());
    }
}
