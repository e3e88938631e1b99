//! Clients that do not read.

use super::*;

/// Whoever reads none of what it has asked for is not waited for.
#[test]
fn the_end_waits_for_no_client_that_reads_nothing() {
    let mut site = Site::new();
    let mut silent = site.connect();
    silent.send(&request(MsgFlags::EXHAUST_ALLOWED, &command("flood")));
    wait_until(|| site.bench.handled.load(Ordering::SeqCst) > 0);
    site.listeners.stop();
    assert_eq!(site.pool.end(Duration::from_secs(600)), 0);
}

/// A thread that waits for the other end to read is not one that works.
#[test]
fn who_waits_for_a_reader_sleeps() {
    #[derive(Default)]
    struct Counts {
        asleep: AtomicU32,
        awake: AtomicU32,
    }
    impl vfs::Lender for Counts {
        fn sleeps(&self) {
            self.asleep.fetch_add(1, Ordering::SeqCst);
        }
        fn wakes(&self) {
            self.awake.fetch_add(1, Ordering::SeqCst);
        }
    }
    let counts = Arc::new(Counts::default());
    let _lent = vfs::lend(counts.clone());
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let ours = rustix::fd::OwnedFd::from(ours);
    assert_eq!(connection::send_some(&ours, b"x").unwrap(), 1);
    assert_eq!(counts.asleep.load(Ordering::SeqCst), 0);
    let reader = {
        let counts = counts.clone();
        std::thread::spawn(move || {
            wait_until(|| counts.asleep.load(Ordering::SeqCst) > 0);
            let mut read = Vec::new();
            theirs.read_to_end(&mut read).unwrap();
            read.len()
        })
    };
    let bytes = vec![7; 4 << 20];
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        rest = &rest[connection::send_some(&ours, rest).unwrap()..];
    }
    drop(ours);
    assert_eq!(reader.join().unwrap(), bytes.len() + 1);
    let count = |of: &AtomicU32| of.load(Ordering::SeqCst);
    assert_eq!(count(&counts.asleep), count(&counts.awake));
}

/// Each had a thread for as long as it liked, without a login, too.
#[test]
fn a_client_that_does_not_read_is_not_waited_for_without_an_end() {
    use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let ours = rustix::fd::OwnedFd::from(ours);
    listener::limit_sending(&ours);
    let patience = socket_timeout(&ours, Timeout::Send).unwrap().unwrap();
    assert!(patience <= Duration::from_secs(3600), "{patience:?}");
    set_socket_timeout(&ours, Timeout::Send, Some(Duration::from_millis(1))).unwrap();
    while connection::send_some(&ours, &[7; 1 << 20]).is_ok() {}
}
