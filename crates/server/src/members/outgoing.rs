//! Which connections to other members are open, and how many there have been: for `connPoolStats` and
//! `dropConnections`.

use commands::MemberConnections;
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::{BTreeMap, HashMap};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Hosts that are remembered when no connection to them is left.
const HOSTS_MAX: usize = 1024;

/// The connections of one process.
#[derive(Default)]
pub struct Outgoing(Mutex<BTreeMap<String, Host>>);

#[derive(Default)]
struct Host {
    created: u64,
    open: HashMap<u64, Arc<Shared>>,
}

/// What the registry and the connection's owner know of each other.
struct Shared {
    socket: TcpStream,
    is_used: AtomicBool,
    is_dropped: AtomicBool,
}

/// An open connection, until this is dropped.
pub struct Entry {
    outgoing: Arc<Outgoing>,
    host: String,
    number: u64,
    shared: Arc<Shared>,
}

impl Outgoing {
    /// A connection to `host` is open. `socket` is another handle of it.
    pub fn enter(self: &Arc<Self>, host: &str, socket: TcpStream) -> Entry {
        let shared = Arc::new(Shared {
            socket,
            is_used: AtomicBool::new(false),
            is_dropped: AtomicBool::new(false),
        });
        let mut hosts = self.0.lock();
        if hosts.len() >= HOSTS_MAX {
            hosts.retain(|_, host| !host.open.is_empty());
        }
        let of = hosts.entry(host.to_owned()).or_default();
        of.created += 1;
        let number = of.created;
        of.open.insert(number, shared.clone());
        Entry {
            outgoing: self.clone(),
            host: host.to_owned(),
            number,
            shared,
        }
    }

    /// The figures now, by host.
    pub fn figures(&self) -> Vec<MemberConnections> {
        let hosts = self.0.lock();
        let figures = hosts.iter().map(|(host, of)| {
            let is_used = |shared: &&Arc<Shared>| shared.is_used.load(Ordering::Relaxed);
            let in_use = of.open.values().filter(is_used).count() as u64;
            MemberConnections {
                host: host.clone(),
                in_use,
                available: of.open.len() as u64 - in_use,
                created: of.created,
            }
        });
        figures.collect()
    }

    /// Cuts the connections to these hosts. Who needs one makes another.
    pub fn drop_all(&self, hosts: &[String]) {
        for (_, of) in self.0.lock().iter().filter(|(host, _)| hosts.contains(host)) {
            for shared in of.open.values() {
                shared.is_dropped.store(true, Ordering::Release);
                let _ = shared.socket.shutdown(Shutdown::Both);
            }
        }
    }
}

impl Entry {
    /// Somebody waits for what goes over it, or not any more.
    pub fn set_used(&self, is_used: bool) {
        self.shared.is_used.store(is_used, Ordering::Relaxed);
    }

    /// No read of it waits longer.
    pub fn set_read_timeout(&self, timeout: Duration) -> std::io::Result<()> {
        self.shared.socket.set_read_timeout(Some(timeout))
    }

    /// The other end has closed it. What is written then is lost without an error, the first time.
    pub fn is_hung_up(&self) -> bool {
        let mut asked = [PollFd::new(&self.shared.socket, PollFlags::RDHUP)];
        let answered = poll(&mut asked, Some(&Timespec::default()));
        answered.is_ok_and(|ready| ready > 0)
    }

    /// It was cut on purpose.
    pub fn is_dropped(&self) -> bool {
        self.shared.is_dropped.load(Ordering::Acquire)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(of) = self.outgoing.0.lock().get_mut(&self.host) {
            of.open.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn the_end_of_the_other_side_is_seen_behind_what_it_sent() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let socket = TcpStream::connect(listener.local_addr().expect("it is bound")).expect("it listens");
        let outgoing = Arc::new(Outgoing::default());
        let entry = outgoing.enter("a:1", socket.try_clone().expect("there are descriptors"));
        let (mut accepted, _) = listener.accept().expect("somebody has connected");
        accepted.write_all(b"never read").expect("there is room");
        assert!(!entry.is_hung_up());
        drop(accepted);
        // It has been sent; on this machine it has arrived with that.
        assert!(entry.is_hung_up());
    }

    #[test]
    fn connections_are_counted_and_cut_by_host() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
        let address = listener.local_addr().expect("it is bound");
        let outgoing = Arc::new(Outgoing::default());
        let open = |host: &str| {
            let socket = TcpStream::connect(address).expect("it listens");
            let entry = outgoing.enter(host, socket.try_clone().expect("there are descriptors"));
            (socket, entry)
        };
        let (mut first, a) = open("a:1");
        let (_second, b) = open("a:1");
        let (_third, c) = open("b:1");
        b.set_used(true);
        let figures = |host: &str| {
            let all = outgoing.figures();
            let of = all.iter().find(|of| of.host == host).expect("it is known");
            (of.in_use, of.available, of.created)
        };
        assert_eq!((figures("a:1"), figures("b:1")), ((1, 1, 2), (0, 1, 1)));
        outgoing.drop_all(&["a:1".to_owned(), "nobody:1".to_owned()]);
        assert_eq!(first.read(&mut [0]).expect("it ends in an orderly way"), 0);
        assert!(a.is_dropped() && b.is_dropped() && !c.is_dropped());
        drop((a, b));
        assert_eq!((figures("a:1"), figures("b:1")), ((0, 0, 2), (0, 1, 1)));
    }
}
