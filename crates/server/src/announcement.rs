//! How others learn of a server that serves: the files with its process id and its port, and the line to connect with.

use crate::config::Config;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How clients of this machine reach the server.
pub fn address_for_clients(config: &Config, port: u16) -> String {
    let set = config
        .replica_set
        .as_ref()
        .map_or_else(String::new, |set| format!("/?replicaSet={}", set.name));
    format!("'mongodb://localhost:{port}{set}'")
}

/// Writes the port once clients are served: whole or not at all where the path is a file's, and at once into what is no
/// file, such as a pipe (`/dev/fd/3`).
pub fn write_port_file(path: &Path, port: u16) -> std::io::Result<()> {
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
pub fn write_pid_file(path: &Path) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = options
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits() as i32)
        .open(path)?;
    rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(0o600))?;
    file.write_all(format!("{}\n", std::process::id()).as_bytes())
}
