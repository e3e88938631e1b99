//! Listening sockets: TCP addresses and the Unix-domain socket, with one thread that accepts from all of them.

use super::{Pool, Service};
use bson::doc;
use commands::Peer;
use commands::logger::{Logger, id};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, acceptfrom_with, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Connections the system may queue before they are accepted.
const BACKLOG: i32 = 4096;
/// A connection that was quiet for so long is asked for a sign of life, as by MongoDB: what its user has logged in is
/// not to outlive a machine that is gone by hours.
const KEEPALIVE_IDLE_MAX: Duration = Duration::from_secs(300);
/// How often it is asked when there is none.
const KEEPALIVE_EVERY_MAX: Duration = Duration::from_secs(1);

/// How often the lock on a socket's directory is tried, and after how long again.
const LOCK_TRIES: u32 = 200;
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// Where to listen.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Host names and addresses; a path is a Unix-domain socket.
    pub bind: Vec<String>,
    /// Port; 0 lets the system choose one.
    pub port: u16,
    /// Listen on IPv6 addresses too.
    pub ipv6: bool,
    /// Directory of the socket `mongodb-PORT.sock`, and its permission bits; `None` for no Unix-domain socket.
    pub unix: Option<(PathBuf, u32)>,
}

/// Who gets the connections.
pub trait Acceptor: Send + Sync + 'static {
    /// Takes over an accepted connection. Must not wait for what its other end does.
    fn accept(&self, stream: OwnedFd, peer: Peer);

    /// One was closed because there was no descriptor for it.
    fn refused(&self, remote: &str);
}

impl<S: Service> Acceptor for Pool<S> {
    fn accept(&self, stream: OwnedFd, peer: Peer) {
        Pool::accept(self, stream, peer);
    }

    fn refused(&self, remote: &str) {
        Pool::refused(self, remote);
    }
}

enum Family {
    Tcp,
    Unix {
        path: PathBuf,
        /// Device and number of the socket's file; somebody may have put another one in its place.
        file: Option<(u64, u64)>,
    },
}

struct Listener {
    socket: OwnedFd,
    family: Family,
}

/// The open listening sockets.
pub struct Listeners {
    listeners: Vec<Listener>,
    port: u16,
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Listeners {
    /// Binds all endpoints. Nothing is accepted before [`Listeners::start`].
    pub fn bind(endpoints: &Endpoints) -> io::Result<Self> {
        let mut listeners = Vec::new();
        let mut port = endpoints.port;
        let (paths, hosts): (Vec<&String>, Vec<_>) = endpoints.bind.iter().partition(|host| host.starts_with('/'));
        let mut addresses = Vec::new();
        for host in hosts {
            addresses.extend(resolve(host, port, endpoints.ipv6)?);
        }
        for mut address in distinct(&addresses) {
            address.set_port(port);
            let socket = bind_tcp(address).map_err(|error| at(&address, error))?;
            if port == 0 {
                port = SocketAddr::try_from(rustix::net::getsockname(&socket)?).map_or(0, |bound| bound.port());
            }
            listeners.push(Listener {
                socket,
                family: Family::Tcp,
            });
        }
        let own = endpoints.unix.as_ref();
        let own = own.map(|(directory, permissions)| (directory.join(format!("mongodb-{port}.sock")), *permissions));
        let mut sockets: Vec<(PathBuf, u32)> = own.into_iter().collect();
        sockets.extend(paths.into_iter().map(|path| (PathBuf::from(path), 0o700)));
        for (number, (path, permissions)) in sockets.iter().enumerate() {
            if sockets.iter().take(number).all(|(earlier, _)| earlier != path) {
                listeners.push(bind_unix(path, *permissions)?);
            }
        }
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        Ok(Self {
            listeners,
            port,
            stop,
            thread: None,
        })
    }

    /// The TCP port, the one the system chose when 0 was asked for.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The addresses listened on, for the log.
    pub fn addresses(&self) -> Vec<String> {
        let address = |listener: &Listener| match &listener.family {
            Family::Unix { path, .. } => path.display().to_string(),
            Family::Tcp => rustix::net::getsockname(&listener.socket)
                .ok()
                .and_then(|bound| SocketAddr::try_from(bound).ok())
                .map_or_else(String::new, |bound| bound.to_string()),
        };
        self.listeners.iter().map(address).collect()
    }

    /// Starts the thread that accepts.
    pub fn start(&mut self, acceptor: Arc<impl Acceptor>, logger: Arc<Logger>) -> io::Result<()> {
        let listeners = std::mem::take(&mut self.listeners);
        let stop = self.stop.clone();
        let run = move || accept_all(&listeners, &stop, &*acceptor, &logger);
        self.thread = Some(std::thread::Builder::new().name("listener".to_owned()).spawn(run)?);
        Ok(())
    }

    /// Stops accepting and removes the Unix-domain sockets.
    pub fn stop(&mut self) {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.listeners.clear();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Family::Unix { path, file } = &self.family
            && file.is_some()
            && file_of(path) == *file
        {
            let _ = std::fs::remove_file(path);
        }
    }
}

fn at(what: &dyn std::fmt::Display, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("Failed to set up listener: {what}: {error}"))
}

/// The addresses of a host name or address; IPv6 ones only when wanted, or when the address itself says so.
fn resolve(host: &str, port: u16, ipv6: bool) -> io::Result<Vec<SocketAddr>> {
    if host == "*" {
        let mut all = vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)];
        if ipv6 {
            all.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port));
        }
        return Ok(all);
    }
    let found = (host, port).to_socket_addrs().map_err(|error| at(&host, error))?;
    let mut addresses: Vec<SocketAddr> = found.filter(|address| ipv6 || address.is_ipv4()).collect();
    addresses.sort();
    match addresses.is_empty() {
        true => Err(at(
            &host,
            io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "no address to listen on; IPv6 needs net.ipv6",
            ),
        )),
        false => Ok(addresses),
    }
}

/// Names may have addresses in common, and an address that stands for all of its family has each of the others in it:
/// the system lets nobody listen twice.
fn distinct(addresses: &[SocketAddr]) -> Vec<SocketAddr> {
    let mut distinct = Vec::new();
    for address in addresses {
        let has_it = |other: &SocketAddr| other.ip().is_unspecified() && other.is_ipv4() == address.is_ipv4();
        let is_covered = !address.ip().is_unspecified() && addresses.iter().any(has_it);
        if !is_covered && !distinct.contains(address) {
            distinct.push(*address);
        }
    }
    distinct
}

fn bind_tcp(address: SocketAddr) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Binds a Unix-domain socket; a socket left by a server that is gone is replaced. Anything else of that name is
/// somebody's, and stays.
fn bind_unix(path: &Path, permissions: u32) -> io::Result<Listener> {
    if std::fs::symlink_metadata(path).is_ok_and(|found| !found.file_type().is_socket()) {
        let reason = "there is a file of that name that is no socket";
        return Err(at(
            &path.display(),
            io::Error::new(io::ErrorKind::AlreadyExists, reason),
        ));
    }
    // Held until it listens: another server would take it for one that is gone, or have looked before.
    let _lock = lock_directory(path);
    check_unserved(path).map_err(|error| at(&path.display(), error))?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io::Error::new(
                error.kind(),
                format!("Failed to unlink socket file {}: {error}", path.display()),
            ));
        }
        _ => {}
    }
    let make = || -> rustix::io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
        rustix::fs::chmod(path, Mode::from_raw_mode(permissions))?;
        rustix::net::listen(&socket, BACKLOG)?;
        Ok(socket)
    };
    let socket = make().map_err(|error| at(&path.display(), error))?;
    Ok(Listener {
        socket,
        family: Family::Unix {
            path: path.to_owned(),
            file: file_of(path),
        },
    })
}

/// An error when somebody listens at a socket's file, or it cannot be told: neither the data directory's lock nor the
/// TCP port keeps servers of several addresses apart there, and whoever takes the name takes the other one's clients.
fn check_unserved(path: &Path) -> rustix::io::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&socket, &SocketAddrUnix::new(path)?) {
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(()),
        // Its queue is full.
        Ok(()) | Err(Errno::AGAIN) => Err(Errno::ADDRINUSE),
        Err(error) => Err(error),
    }
}

/// Keeps other servers from a socket's directory. Where the lock is not to be had, to look who listens must do.
fn lock_directory(path: &Path) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(path.parent()?, flags, Mode::empty()).ok()?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(LOCK_PAUSE),
            Err(_) => return None,
        }
    }
    None
}

/// Device and number of a file.
fn file_of(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

fn accept_all(listeners: &[Listener], stop: &OwnedFd, acceptor: &impl Acceptor, logger: &Logger) {
    let mut spare = Spare::new();
    loop {
        let mut fds: Vec<PollFd<'_>> = listeners
            .iter()
            .map(|listener| PollFd::new(&listener.socket, PollFlags::IN))
            .collect();
        fds.push(PollFd::new(stop, PollFlags::IN));
        if rustix::event::poll(&mut fds, None).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if ready.last() == Some(&true) {
            return;
        }
        for (listener, _) in listeners.iter().zip(&ready).filter(|(_, ready)| **ready) {
            accept_some(listener, acceptor, logger, &mut spare);
        }
    }
}

/// A descriptor kept for the moment when there is no other: a connection that cannot be accepted stays queued and its
/// client waits, so it is accepted with this one and closed.
struct Spare(Option<OwnedFd>);

impl Spare {
    fn new() -> Self {
        Self(eventfd(0, EventfdFlags::CLOEXEC).ok())
    }

    /// Accepts a connection and closes it; false when that failed, too.
    fn refuse_one(&mut self, listener: &Listener, acceptor: &impl Acceptor) -> bool {
        self.0 = None;
        let accepted = acceptfrom_with(&listener.socket, SocketFlags::CLOEXEC);
        let refused = accepted.is_ok();
        if let Ok((stream, address)) = accepted {
            acceptor.refused(peer_of(listener, &stream, address.as_ref()).as_str());
            drop(stream);
        }
        *self = Self::new();
        refused
    }
}

/// A client that takes nothing of its reply for so long is taken to be gone: a thread waits for it.
const REPLY_PATIENCE: Duration = Duration::from_secs(600);

/// Has the system end what waits for a client that does not read.
pub(super) fn limit_sending(stream: &OwnedFd) {
    let _ = sockopt::set_socket_timeout(stream, sockopt::Timeout::Send, Some(REPLY_PATIENCE));
}

/// Has the system find out when the other end's machine is gone. Where it is set up to be quicker it stays so.
pub(super) fn keep_alive(stream: &OwnedFd) {
    let _ = sockopt::set_socket_keepalive(stream, true);
    if sockopt::tcp_keepidle(stream).is_ok_and(|idle| idle > KEEPALIVE_IDLE_MAX) {
        let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE_IDLE_MAX);
    }
    if sockopt::tcp_keepintvl(stream).is_ok_and(|every| every > KEEPALIVE_EVERY_MAX) {
        let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE_EVERY_MAX);
    }
}

/// Accepts what is queued, a bounded number at a time so that every listener has its turn.
fn accept_some(listener: &Listener, acceptor: &impl Acceptor, logger: &Logger, spare: &mut Spare) {
    for _ in 0..64 {
        match acceptfrom_with(&listener.socket, SocketFlags::CLOEXEC) {
            Ok((stream, address)) => {
                let peer = peer_of(listener, &stream, address.as_ref());
                if matches!(peer, Peer::Tcp(..)) {
                    let _ = sockopt::set_tcp_nodelay(&stream, true);
                    keep_alive(&stream);
                }
                limit_sending(&stream);
                acceptor.accept(stream, peer);
            }
            Err(Errno::INTR | Errno::CONNABORTED) => {}
            Err(Errno::AGAIN) => return,
            Err(Errno::MFILE | Errno::NFILE) if spare.refuse_one(listener, acceptor) => {}
            Err(error) => {
                // Out of memory, most likely: the connection stays queued, so pause rather than spin.
                let attributes = doc! { "error": error.to_string() };
                logger.log(
                    id::ACCEPT_FAILED,
                    "listener",
                    "Error accepting new connection",
                    attributes,
                );
                std::thread::sleep(Duration::from_millis(50));
                return;
            }
        }
    }
}

/// Who is at the other end of `stream`.
fn peer_of(listener: &Listener, stream: &OwnedFd, address: Option<&SocketAddrAny>) -> Peer {
    match &listener.family {
        Family::Unix { path, .. } => Peer::Unix(path.display().to_string()),
        Family::Tcp => {
            let own = rustix::net::getsockname(stream).ok();
            let own = own.and_then(|own| SocketAddr::try_from(own).ok());
            let server = own.map(|own| own.ip().to_canonical());
            let remote = address.and_then(|address| SocketAddr::try_from(address.clone()).ok());
            Peer::Tcp(remote.map_or_else(String::new, |remote| remote.to_string()), server)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Each took the name from the one before, whose clients came to the other one then.
    #[test]
    fn one_of_many_takes_the_socket_of_a_server_that_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.sock");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let bound: Vec<io::Result<Listener>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| bind_unix(&path, 0o700))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(bound.iter().filter(|bound| bound.is_ok()).count(), 1);
        drop(bound);
        assert!(!path.exists());
    }
}
