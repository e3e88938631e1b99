//! TLS for TCP connections: certificates, and what a connection keeps of it.
//!
//! A client that speaks TLS begins with a ClientHello (RFC 8446, 4.1.2) in a handshake record, which is told from a
//! request by its first bytes; both come in on one port where the mode says so. Without TLS nothing of this is asked.

use commands::TransportSecurity;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{RootCertStore, ServerConfig, ServerConnection};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use wire::HEADER_BYTES;

/// Which connections speak TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Those that want to (`allowTLS`, `preferTLS`: they differ in what a server does as a client).
    Allow(&'static str),
    /// All of them (`requireTLS`).
    Require,
}

/// `net.tls`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsOptions {
    /// Who speaks it.
    pub mode: Mode,
    /// Certificates, the server's own first, and its private key (PEM).
    pub key_file: PathBuf,
    /// Certificates of authorities that clients' certificates come from (PEM); without it clients show none.
    pub ca_file: Option<PathBuf>,
    /// With `ca_file`: clients may show no certificate.
    pub may_be_anonymous: bool,
}

/// The server's side of TLS, shared by all connections.
pub struct Tls {
    options: TlsOptions,
    config: Mutex<Arc<ServerConfig>>,
    handshakes: AtomicU64,
    failures: AtomicU64,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A sentence: a file cannot be read, has no certificate or key, or they do not belong together.
    pub fn load(options: TlsOptions) -> Result<Arc<Self>, String> {
        let config = Mutex::new(read(&options)?);
        Ok(Arc::new(Self {
            options,
            config,
            handshakes: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        }))
    }

    /// Whether a connection may go on without.
    pub(super) fn is_required(&self) -> bool {
        self.options.mode == Mode::Require
    }

    /// A connection's side of a handshake.
    pub(super) fn begin(&self) -> Result<Session, String> {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let config = self.config.lock().clone();
        let connection = ServerConnection::new(config).map_err(|error| error.to_string())?;
        Ok(Session(Box::new(connection)))
    }

    /// A handshake, or a message, went wrong.
    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

impl TransportSecurity for Tls {
    fn mode(&self) -> &'static str {
        match self.options.mode {
            Mode::Allow(name) => name,
            Mode::Require => "requireTLS",
        }
    }

    fn reload(&self) -> Result<(), String> {
        *self.config.lock() = read(&self.options)?;
        Ok(())
    }

    fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.handshakes), count(&self.failures))
    }
}

fn read(options: &TlsOptions) -> Result<Arc<ServerConfig>, String> {
    let certificates = certificates(&options.key_file)?;
    let key = PrivateKeyDer::from_pem_file(&options.key_file).map_err(|error| {
        let path = options.key_file.display();
        format!("{path} has no private key that can be read (an encrypted one cannot): {error}")
    })?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match &options.ca_file {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in self::certificates(path)? {
                let added = roots.add(certificate);
                added.map_err(|error| format!("{}: {error}", path.display()))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match options.may_be_anonymous {
                true => verifier.allow_unauthenticated(),
                false => verifier,
            };
            let verifier: Arc<dyn ClientCertVerifier> = verifier.build().map_err(|error| error.to_string())?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(certificates, key);
    let config = config.map_err(|error| format!("{}: {error}", options.key_file.display()))?;
    Ok(Arc::new(config))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: rustls::pki_types::pem::Error| format!("{} cannot be read: {error}", path.display());
    let found: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).map_err(failed)?.collect();
    match found.map_err(failed)? {
        none if none.is_empty() => Err(format!("{} has no certificate", path.display())),
        certificates => Ok(certificates),
    }
}

/// Whether these bytes begin a ClientHello, and no request: a handshake record of TLS 1.x, and an op code that no
/// request has.
pub(super) fn is_client_hello(head: &[u8; HEADER_BYTES]) -> bool {
    const HANDSHAKE: u8 = 22;
    const CLIENT_HELLO: u8 = 1;
    let op_code = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    let is_request = matches!(op_code, 1 | 2001..=2013);
    head[0] == HANDSHAKE && head[1] == 3 && head[5] == CLIENT_HELLO && !is_request
}

/// Plain bytes that go into one record at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// What a connection keeps.
pub(super) struct Session(Box<ServerConnection>);

/// Why a session is over.
pub(super) enum Over {
    /// The other end closed it.
    Closed,
    /// What came is no TLS that can be spoken.
    Failed(String),
}

/// A socket, written to.
struct Sender<'s>(&'s OwnedFd);

impl Write for Sender<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        loop {
            match rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                sent => return Ok(sent?),
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Takes bytes from the socket; plain ones are appended to `plain`.
    pub(super) fn take(&mut self, mut bytes: &[u8], stream: &OwnedFd, plain: &mut Vec<u8>) -> Result<(), Over> {
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes).map_err(|_| Over::Closed)?;
            if let Err(error) = self.0.process_new_packets() {
                // The alert that says why.
                let _ = self.flush(stream);
                return Err(Over::Failed(error.to_string()));
            }
            match self.0.reader().read_to_end(plain) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Closed, as it should be; what came before has been read.
                Ok(_) | Err(_) => return Err(Over::Closed),
            }
        }
        self.flush(stream).map_err(|_| Over::Closed)
    }

    /// Sends plain bytes.
    pub(super) fn send(&mut self, bytes: &[u8], stream: &OwnedFd) -> std::io::Result<()> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.0.writer().write_all(chunk)?;
            self.flush(stream)?;
        }
        Ok(())
    }

    fn flush(&mut self, stream: &OwnedFd) -> std::io::Result<()> {
        while self.0.wants_write() {
            self.0.write_tls(&mut Sender(stream))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_no_handshakes() {
        let head = |length: u32, op_code: u32| {
            let mut head = [0; HEADER_BYTES];
            head[..4].copy_from_slice(&length.to_le_bytes());
            head[12..].copy_from_slice(&op_code.to_le_bytes());
            head
        };
        for op_code in [2013, 2012, 2004] {
            // Of a length that looks like a record's beginning.
            let mut request = head(u32::from_le_bytes([22, 3, 1, 0]), op_code);
            request[5] = 1;
            assert!(!is_client_hello(&request));
        }
        let mut hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3, 9, 9, 9, 9, 9];
        assert!(is_client_hello(&hello));
        hello[0] = 21;
        assert!(!is_client_hello(&hello));
    }
}
