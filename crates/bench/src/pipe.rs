//! Files that may be pipes whose other end does nothing: who reads or writes one stops when the user wants to.

use crate::interrupt::Interrupt;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, Read, Result, Write};
use std::os::fd::AsFd;

/// Between two looks at whether the user wants to stop.
const LOOK: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// So much a pipe takes at once when it takes something (`PIPE_BUF`); more would wait where nobody looks.
const PIPE_BYTES: usize = 4096;

/// See the module.
#[derive(Debug)]
pub struct InterruptibleFile {
    file: File,
    interrupt: Interrupt,
    piece_bytes: usize,
}

impl InterruptibleFile {
    /// A file that is open.
    pub fn new(file: File, interrupt: &Interrupt) -> Self {
        // What lies on a disk is always ready.
        let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
        Self {
            file,
            interrupt: interrupt.clone(),
            piece_bytes: if is_file { usize::MAX } else { PIPE_BYTES },
        }
    }

    /// Standard input or output.
    ///
    /// # Errors
    /// It is closed, or there are too many files.
    pub fn standard(stream: &impl AsFd, interrupt: &Interrupt) -> Result<Self> {
        let file = File::from(stream.as_fd().try_clone_to_owned()?);
        Ok(Self::new(file, interrupt))
    }

    /// The file itself.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn wait(&self, flags: PollFlags) -> Result<()> {
        loop {
            if self.interrupt.asked() {
                // Not as the error of a call that was interrupted, which is tried again.
                return Err(Error::other("stopped"));
            }
            let mut files = [PollFd::new(&self.file, flags)];
            match poll(&mut files, Some(&LOOK)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Read for InterruptibleFile {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.wait(PollFlags::IN)?;
        self.file.read(buffer)
    }
}

impl Write for InterruptibleFile {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.wait(PollFlags::OUT)?;
        self.file.write(&bytes[..bytes.len().min(self.piece_bytes)])
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever waited for the other end of a pipe could be ended by SIGKILL alone.
    #[test]
    fn waiting_for_the_other_end_stops_when_the_user_wants_to() {
        let (read, write) = std::io::pipe().expect("a pipe");
        let (reads, writes) = (Interrupt::new(), Interrupt::new());
        let standard = |stream: &dyn AsFd, interrupt: &Interrupt| {
            let file = File::from(stream.as_fd().try_clone_to_owned().expect("open"));
            InterruptibleFile::new(file, interrupt)
        };
        let (mut input, mut output) = (standard(&read, &reads), standard(&write, &writes));
        output.write_all(b"words").expect("there is room");
        let mut words = [0; 5];
        input.read_exact(&mut words).expect("they are there");
        assert_eq!(&words, b"words");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || input.read(&mut [0; 8]));
            reads.ask();
            assert_eq!(
                waiting.join().expect("no panic").expect_err("stopped").to_string(),
                "stopped"
            );
            // More than a pipe holds, and nobody reads.
            let waiting = scope.spawn(move || output.write_all(&vec![0; 16 << 20]));
            writes.ask();
            assert_eq!(
                waiting.join().expect("no panic").expect_err("stopped").to_string(),
                "stopped"
            );
        });
        drop(read);
    }
}
