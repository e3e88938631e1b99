//! A connection's bytes, encrypted or not, with a moment by which each wait ends.

use crate::net::Tls;
use rustls::{ServerConnection, StreamOwned};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vfs::Clock;

/// A moment of the monotonic clock, shared between the stream and who sets it.
#[derive(Clone, Default)]
struct Deadline(Arc<AtomicU64>);

/// A socket whose reads and writes together end by the deadline: a client that sends a byte now and then does not put
/// it off.
struct Timed {
    socket: Arc<TcpStream>,
    deadline: Deadline,
    clock: Arc<dyn Clock>,
}

impl Timed {
    fn left(&self) -> io::Result<Duration> {
        let deadline = Duration::from_micros(self.deadline.0.load(Ordering::Relaxed));
        let left = deadline.saturating_sub(self.clock.monotonic());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => Ok(left),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        (&*self.socket).read(buffer)
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        (&*self.socket).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

enum Transport {
    Plain(Timed),
    Tls(Box<StreamOwned<ServerConnection, Timed>>),
}

/// See the module.
pub struct Stream {
    transport: Transport,
    deadline: Deadline,
    clock: Arc<dyn Clock>,
}

impl Stream {
    /// Over a fresh connection; TLS from the first byte where there is any.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(socket: Arc<TcpStream>, tls: Option<&Tls>, clock: Arc<dyn Clock>) -> Result<Self, String> {
        let deadline = Deadline::default();
        let timed = Timed {
            socket,
            deadline: deadline.clone(),
            clock: clock.clone(),
        };
        let transport = match tls {
            None => Transport::Plain(timed),
            Some(tls) => Transport::Tls(Box::new(tls.over(timed)?)),
        };
        Ok(Self {
            transport,
            deadline,
            clock,
        })
    }

    /// All that follows has to be done in this time.
    pub fn allow(&self, time: Duration) {
        let until = self.clock.monotonic() + time;
        self.deadline.0.store(until.as_micros() as u64, Ordering::Relaxed);
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Plain(plain) => plain.read(buffer),
            Transport::Tls(encrypted) => encrypted.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.transport {
            Transport::Plain(plain) => plain.write(bytes),
            Transport::Tls(encrypted) => encrypted.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.transport {
            Transport::Plain(plain) => plain.flush(),
            Transport::Tls(encrypted) => encrypted.flush(),
        }
    }
}
