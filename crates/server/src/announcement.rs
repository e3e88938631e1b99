//! How others learn of a server that serves: the files with its process id and its port, and the line to connect with.

use crate::config::Config;
use anyhow::Context as _;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// How clients of this machine reach the server: by a loopback address if it has one.
pub fn address_for_clients(config: &Config, port: u16) -> String {
    let listens = |names: &[&str]| {
        config
            .net
            .endpoints
            .bind
            .iter()
            .any(|host| names.contains(&host.as_str()))
    };
    let host = match config.net.endpoints.bind.iter().find(|host| !host.starts_with('/')) {
        _ if listens(&["localhost", "127.0.0.1", "0.0.0.0", "*", "::"]) => format!("localhost:{port}"),
        Some(address) if address.contains(':') => format!("[{address}]:{port}"),
        Some(host) => format!("{host}:{port}"),
        // Sockets alone.
        None => config
            .net
            .endpoints
            .bind
            .first()
            .map_or_else(String::new, |path| path.replace('/', "%2F")),
    };
    let set = config
        .replica_set
        .as_ref()
        .map(|set| format!("replicaSet={}", set.name));
    let requires_tls = config
        .net
        .tls
        .as_ref()
        .is_some_and(|tls| tls.mode == crate::net::TlsMode::Require);
    let tls = requires_tls.then(|| "tls=true".to_owned());
    let options: Vec<String> = set.into_iter().chain(tls).collect();
    let options = match options.is_empty() {
        true => String::new(),
        false => format!("/?{}", options.join("&")),
    };
    format!("'mongodb://{host}{options}'")
}

/// The files that tell of a server. They go with the value, so that none tells of a server that did not start or has
/// failed.
#[derive(Default)]
pub struct Announcement {
    files: Vec<PathBuf>,
}

impl Announcement {
    /// Writes the files that are wanted.
    pub fn make(config: &Config, port: u16) -> anyhow::Result<Self> {
        let mut made = Self::default();
        if let Some(path) = &config.pid_file {
            write_pid_file(path).with_context(|| format!("cannot write pid file {}", path.display()))?;
            made.files.push(path.clone());
        }
        if let Some(path) = &config.port_file {
            write_port_file(path, port).with_context(|| format!("cannot write port file {}", path.display()))?;
            // A pipe's name is not the server's to remove.
            made.files.extend(path.is_file().then(|| path.clone()));
        }
        Ok(made)
    }

    /// Removes them.
    pub fn withdraw(&mut self) {
        for path in self.files.drain(..) {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Drop for Announcement {
    fn drop(&mut self) {
        self.withdraw();
    }
}

/// Writes the port for those who wait for it: whole or not at all where the path is a file's, and at once into what is
/// no file, such as a pipe (`/dev/fd/3`).
fn write_port_file(path: &Path, port: u16) -> std::io::Result<()> {
    let text = format!("{port}\n");
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return std::fs::OpenOptions::new()
            .write(true)
            .open(path)?
            .write_all(text.as_bytes());
    }
    let mut made = path.as_os_str().to_owned();
    made.push(".new");
    std::fs::write(&made, text)?;
    std::fs::rename(&made, path)
}

/// Writes the process id, for its owner as the server's other files are, and not through a symbolic link.
fn write_pid_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = options
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{self, Task};

    #[test]
    fn clients_are_told_an_address_that_is_served() {
        for (line, expected) in [
            ("", "'mongodb://localhost:27017'"),
            ("--bind_ip_all --allowUnprotected", "'mongodb://localhost:27017'"),
            (
                "--bind_ip 10.0.0.5 --auth --replSet rs0",
                "'mongodb://10.0.0.5:27017/?replicaSet=rs0'",
            ),
            ("--bind_ip fe80::1,localhost --auth", "'mongodb://localhost:27017'"),
            ("--bind_ip fe80::1 --auth", "'mongodb://[fe80::1]:27017'"),
            ("--bind_ip /run/tenon.sock", "'mongodb://%2Frun%2Ftenon.sock'"),
            (
                "--replSet rs0 --tlsMode requireTLS --tlsCertificateKeyFile x.pem",
                "'mongodb://localhost:27017/?replicaSet=rs0&tls=true'",
            ),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let task = config::task(&words, Path::new("/srv"));
            let Ok(Task::Serve(config)) = task else {
                panic!("{line}: {task:?}");
            };
            assert_eq!(address_for_clients(&config, 27017), expected, "{line}");
        }
    }
}
