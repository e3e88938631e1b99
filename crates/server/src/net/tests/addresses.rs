//! Which sockets a server takes, and whose they are.

use super::*;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

fn endpoints(bind: &[&str], unix: Option<&Path>) -> Endpoints {
    Endpoints {
        bind: bind.iter().map(|&host| host.to_owned()).collect(),
        port: 0,
        ipv6: false,
        unix: unix.map(|directory| (directory.to_owned(), 0o700)),
    }
}

/// The socket that `Listeners::bind` made in a directory.
fn socket_in(directory: &Path) -> PathBuf {
    let mut entries = std::fs::read_dir(directory).unwrap();
    entries.next().unwrap().unwrap().path()
}

/// `localhost,127.0.0.1` was a port that another program had.
#[test]
fn names_may_have_addresses_in_common() {
    let count = |bind: &[&str]| Listeners::bind(&endpoints(bind, None)).unwrap().addresses().len();
    assert_eq!(count(&["localhost", "127.0.0.1", "localhost"]), 1);
    assert_eq!(count(&["127.0.0.1", "127.0.0.2"]), 2);
    assert_eq!(count(&["127.0.0.1", "*"]), 1);
    assert_eq!(count(&["0.0.0.0", "127.0.0.1"]), 1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("twice.sock");
    assert_eq!(count(&[path.to_str().unwrap(), path.to_str().unwrap()]), 1);
}

/// A second server with the same port number on another address took the first one's socket, and its clients.
#[test]
fn the_socket_of_a_server_that_runs_is_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let first = Listeners::bind(&endpoints(&["127.0.0.1"], Some(directory.path()))).unwrap();
    let path = socket_in(directory.path());
    let name = path.to_str().unwrap();
    let refused = Listeners::bind(&endpoints(&[name], None)).err().unwrap();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse, "{refused}");
    assert!(UnixStream::connect(&path).is_ok());
    drop(first);
    assert!(!path.exists());
}

#[test]
fn the_socket_of_a_server_that_is_gone_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("left.sock");
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listeners = Listeners::bind(&endpoints(&[path.to_str().unwrap()], None)).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop(listeners);
    assert!(!path.exists());
}

/// The end of a server removed whatever had its socket's name by then.
#[test]
fn a_socket_of_somebody_else_stays_at_the_end() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("own.sock");
    let listeners = Listeners::bind(&endpoints(&[path.to_str().unwrap()], None)).unwrap();
    // Beside it, so that the file system cannot give the number of the one that goes.
    let others = directory.path().join("others.sock");
    let _other = UnixListener::bind(&others).unwrap();
    std::fs::rename(&others, &path).unwrap();
    drop(listeners);
    assert!(UnixStream::connect(&path).is_ok());
}
