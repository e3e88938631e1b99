//! Encrypted connections of the tools: who the server must prove to be, and who the tool proves to be.

use crate::error::{DumpError, Result};
use bench::connection::{Duplex, LOOK, connect};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fmt;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The authorities that the system trusts, where nothing else is said: Debian's file.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// What the user asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsChoice {
    /// Encrypt.
    pub on: bool,
    /// Authorities that the server's certificate has to come from (PEM).
    pub ca_file: Option<PathBuf>,
    /// The tool's own certificate and key (PEM).
    pub key_file: Option<PathBuf>,
}

/// How to connect to one server.
pub struct Encryption {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Encryption({:?})", self.name)
    }
}

impl TlsChoice {
    /// Makes it ready for the server of a name; `None` when it is not asked for.
    ///
    /// # Errors
    /// A file that cannot be read, or files without TLS.
    pub fn ready(&self, host: &str) -> Result<Option<Arc<Encryption>>> {
        let choice = |text: String| DumpError::Choice(text);
        if !self.on {
            return match self.ca_file.is_some() || self.key_file.is_some() {
                true => Err(choice("certificates are for TLS: --tls is missing".to_owned())),
                false => Ok(None),
            };
        }
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|_| choice(format!("{host} is no name that a certificate could have")))?;
        let ca_file = self.ca_file.as_deref().unwrap_or(Path::new(SYSTEM_AUTHORITIES));
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca_file)? {
            // The system's file may have some that cannot be used.
            if let (Err(error), Some(path)) = (roots.add(certificate), &self.ca_file) {
                return Err(choice(format!("{}: {error}", path.display())));
            }
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder
            .map_err(|error| choice(error.to_string()))?
            .with_root_certificates(roots);
        let config = match &self.key_file {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let failed = |error: String| choice(format!("{}: {error}", path.display()));
                let key = PrivateKeyDer::from_pem_file(path).map_err(|error| failed(error.to_string()))?;
                let config = builder.with_client_auth_cert(certificates(path)?, key);
                config.map_err(|error| failed(error.to_string()))?
            }
        };
        Ok(Some(Arc::new(Encryption {
            config: Arc::new(config),
            name,
        })))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let failed = |error: rustls::pki_types::pem::Error| {
        DumpError::Choice(format!("{} cannot be read as certificates: {error}", path.display()))
    };
    let found = CertificateDer::pem_file_iter(path).map_err(failed)?;
    found.collect::<std::result::Result<_, _>>().map_err(failed)
}

impl Encryption {
    /// Connects, and has the server prove who it is. Each of its messages is waited for so long.
    pub(crate) fn connect(&self, address: SocketAddr, patience: Duration) -> Result<Box<dyn Duplex>> {
        let mut stream = connect(address, patience)?;
        let failed = |error: std::io::Error| DumpError::Choice(format!("TLS with {address}: {error}"));
        let session = ClientConnection::new(self.config.clone(), self.name.clone());
        let mut session = session.map_err(|error| DumpError::Choice(format!("TLS with {address}: {error}")))?;
        while session.is_handshaking() {
            session.complete_io(&mut stream).map_err(failed)?;
        }
        stream.set_read_timeout(Some(LOOK)).map_err(failed)?;
        Ok(Box::new(Encrypted(StreamOwned::new(session, stream))))
    }
}

/// An encrypted connection.
struct Encrypted(StreamOwned<ClientConnection, TcpStream>);

impl fmt::Debug for Encrypted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Encrypted")
    }
}

impl std::io::Read for Encrypted {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(buffer)
    }
}

impl std::io::Write for Encrypted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}
