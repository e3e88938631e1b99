//! TLS for TCP connections: certificates, and what a connection keeps of it.
//!
//! A client that speaks TLS begins with a ClientHello (RFC 8446, 4.1.2) in a handshake record, which is told from a
//! request by its first bytes; both come in on one port where the mode says so. Without TLS nothing of this is asked.

use super::connection::send_some;
use auth::SubjectName;
use commands::{MemberStream, TransportSecurity};
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use rustix::net::SendFlags;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{WebPkiClientVerifier, danger::ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
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
    /// Certificates and key that this server shows to other members; without it those of `key_file`.
    pub cluster_file: Option<PathBuf>,
}

/// The server's side of TLS, shared by all connections.
pub struct Tls {
    options: TlsOptions,
    loaded: Mutex<Loaded>,
    handshakes: AtomicU64,
    failures: AtomicU64,
}

/// What the files say.
#[derive(Clone)]
struct Loaded {
    as_server: Arc<ServerConfig>,
    /// Towards other members; where there is an authority to know them by.
    as_client: Option<Arc<ClientConfig>>,
    /// In the server's certificate.
    own_name: Option<SubjectName>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// A sentence: a file cannot be read, has no certificate or key, or they do not belong together.
    pub fn load(options: TlsOptions) -> Result<Arc<Self>, String> {
        let loaded = Mutex::new(read(&options)?);
        Ok(Arc::new(Self {
            options,
            loaded,
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
        Ok(Session {
            connection: Box::new(self.server_connection()?),
            is_named: false,
            over: None,
        })
    }

    fn server_connection(&self) -> Result<ServerConnection, String> {
        self.handshakes.fetch_add(1, Ordering::Relaxed);
        let config = self.loaded.lock().as_server.clone();
        ServerConnection::new(config).map_err(|error| error.to_string())
    }

    /// The server's side of a connection that speaks TLS from its first byte. The handshake takes place with the first
    /// read.
    ///
    /// # Errors
    /// A sentence.
    pub(crate) fn over<S: Read + Write>(&self, stream: S) -> Result<StreamOwned<ServerConnection, S>, String> {
        Ok(StreamOwned::new(self.server_connection()?, stream))
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
        *self.loaded.lock() = read(&self.options)?;
        Ok(())
    }

    fn counts(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.handshakes), count(&self.failures))
    }

    fn verifies_clients(&self) -> bool {
        self.options.ca_file.is_some()
    }

    fn own_name(&self) -> Option<SubjectName> {
        self.loaded.lock().own_name.clone()
    }

    fn is_for_members(&self) -> bool {
        self.options.mode != Mode::Allow("allowTLS")
    }

    fn connect(&self, stream: TcpStream, host: &str) -> Result<Box<dyn MemberStream>, String> {
        let config = self.loaded.lock().as_client.clone();
        let config = config.ok_or("members know each other by net.tls.CAFile only, which is not given")?;
        let failed = |reason: &dyn std::fmt::Display| format!("TLS with {host}: {reason}");
        let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
        let connection = ClientConnection::new(config, name).map_err(|error| failed(&error))?;
        let mut encrypted = StreamOwned::new(connection, stream);
        while encrypted.conn.is_handshaking() {
            let done = encrypted.conn.complete_io(&mut encrypted.sock);
            done.map_err(|error| failed(&error))?;
        }
        Ok(Box::new(encrypted))
    }
}

/// Certificates and private key of a file.
fn identity(path: &Path) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let certificates = certificates(path)?;
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| {
        let path = path.display();
        format!("{path} has no private key that can be read (an encrypted one cannot): {error}")
    })?;
    Ok((certificates, key))
}

fn authorities(path: &Path) -> Result<Arc<RootCertStore>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = roots.add(certificate);
        added.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(Arc::new(roots))
}

fn read(options: &TlsOptions) -> Result<Loaded, String> {
    let roots = options.ca_file.as_deref().map(authorities).transpose()?;
    let (certificates, _) = identity(&options.key_file)?;
    Ok(Loaded {
        as_server: as_server(options, roots.clone())?,
        as_client: roots.map(|roots| as_client(options, roots)).transpose()?,
        own_name: certificates
            .first()
            .and_then(|own| SubjectName::of_certificate(own).ok()),
    })
}

/// Towards other members.
fn as_client(options: &TlsOptions, roots: Arc<RootCertStore>) -> Result<Arc<ClientConfig>, String> {
    let path = options.cluster_file.as_ref().unwrap_or(&options.key_file);
    let (certificates, key) = identity(path)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let config = builder
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates, key);
    Ok(Arc::new(config.map_err(|error| {
        format!("{}: {}", path.display(), in_words(&error))
    })?))
}

fn as_server(options: &TlsOptions, roots: Option<Arc<RootCertStore>>) -> Result<Arc<ServerConfig>, String> {
    let (certificates, key) = identity(&options.key_file)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let builder = match roots {
        None => builder.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = match options.may_be_anonymous {
                true => verifier.allow_unauthenticated(),
                false => verifier,
            };
            let verifier: Arc<dyn ClientCertVerifier> = verifier.build().map_err(|error| error.to_string())?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let config = builder.with_single_cert(certificates, key);
    let config = config.map_err(|error| format!("{}: {}", options.key_file.display(), in_words(&error)))?;
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

/// The error, told in words where the library has none.
fn in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(why))
            if why.to_string().contains("UnsupportedCertVersion") =>
        {
            "certificates of X.509 version 1 are not supported; make one of version 3".to_owned()
        }
        error => error.to_string(),
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
pub(super) struct Session {
    connection: Box<ServerConnection>,
    /// The name in the client's certificate was asked for.
    is_named: bool,
    /// No more comes. What came before is served all the same.
    over: Option<Over>,
}

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
        Ok(send_some(self.0, bytes)?)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// The name in the client's certificate, the first time that this is asked after the handshake.
    pub(super) fn new_name(&mut self) -> Option<SubjectName> {
        if std::mem::replace(&mut self.is_named, true) {
            return None;
        }
        let certificate = self.connection.peer_certificates()?.first()?;
        // One whose name cannot be read lets its holder in, but is nobody's.
        SubjectName::of_certificate(certificate).ok()
    }

    /// Takes bytes from the socket; plain ones are appended to `plain`, those before the session's end, too.
    pub(super) fn take(&mut self, mut bytes: &[u8], stream: &OwnedFd, plain: &mut Vec<u8>) {
        while !bytes.is_empty() && self.over.is_none() {
            if self.connection.read_tls(&mut bytes).is_err() {
                self.over = Some(Over::Closed);
                break;
            }
            let processed = self.connection.process_new_packets();
            match self.connection.reader().read_to_end(plain) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Closed, as it should be.
                Ok(_) | Err(_) => self.over = Some(Over::Closed),
            }
            if let Err(error) = processed {
                self.over = Some(Over::Failed(in_words(&error)));
            }
        }
        // After a failure this sends the alert that says why.
        if self.flush(stream).is_err() {
            self.over.get_or_insert(Over::Closed);
        }
    }

    /// Whether the session is over. To be asked when all that was taken is served.
    pub(super) fn take_over(&mut self) -> Option<Over> {
        self.over.take()
    }

    /// Sends plain bytes.
    pub(super) fn send(&mut self, bytes: &[u8], stream: &OwnedFd) -> std::io::Result<()> {
        for chunk in bytes.chunks(CHUNK_BYTES) {
            self.connection.writer().write_all(chunk)?;
            self.flush(stream)?;
        }
        Ok(())
    }

    /// Tells the other end that no more comes, so that it knows that nothing was cut off. Waits for nobody.
    pub(super) fn close(&mut self, stream: &OwnedFd) {
        self.connection.send_close_notify();
        let mut rest = Vec::new();
        // Into memory: it cannot fail.
        while self.connection.wants_write() && self.connection.write_tls(&mut rest).is_ok() {}
        // Who takes it no more is gone.
        let _ = rustix::net::send(stream, &rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }

    fn flush(&mut self, stream: &OwnedFd) -> std::io::Result<()> {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut Sender(stream))?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

    fn openssl(directory: &Path, line: &str) {
        let arguments = line.split_whitespace();
        let done = Command::new("openssl").current_dir(directory).args(arguments).output();
        let done = done.expect("openssl is installed");
        assert!(
            done.status.success(),
            "{line}: {}",
            String::from_utf8_lossy(&done.stderr)
        );
    }

    /// A certificate of `ca` for `localhost`, with its key.
    fn make(directory: &Path, name: &str) -> PathBuf {
        let write = |file: String, text: &str| std::fs::write(directory.join(file), text).unwrap();
        write(
            format!("{name}.ext"),
            "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n",
        );
        openssl(
            directory,
            &format!("req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /O=Shop/CN={name}"),
        );
        openssl(
            directory,
            &format!(
                "x509 -req -in {name}.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out {name}.crt -days 3 -extfile {name}.ext"
            ),
        );
        let read = |ending: &str| std::fs::read_to_string(directory.join(format!("{name}.{ending}"))).unwrap();
        write(format!("{name}.pem"), &(read("crt") + &read("key")));
        directory.join(format!("{name}.pem"))
    }

    #[test]
    fn certificates_of_version_1_are_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        openssl(
            directory,
            "req -newkey rsa:2048 -nodes -keyout own.key -out own.csr -subj /CN=own",
        );
        // Without extensions OpenSSL 3.0 makes version 1.
        openssl(directory, "x509 -req -in own.csr -signkey own.key -out own.crt -days 3");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        let key_file = directory.join("own.pem");
        std::fs::write(&key_file, read("own.crt") + &read("own.key")).unwrap();
        let refused = Tls::load(TlsOptions {
            mode: Mode::Require,
            key_file: key_file.clone(),
            ca_file: None,
            may_be_anonymous: false,
            cluster_file: None,
        });
        let wanted = format!(
            "{}: certificates of X.509 version 1 are not supported; make one of version 3",
            key_file.display()
        );
        assert_eq!(refused.err(), Some(wanted));
    }

    /// What a client sends right before it closes the session, as it does with writes that have no reply, is taken.
    #[test]
    fn what_came_before_the_end_counts() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        openssl(
            directory,
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 3 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE",
        );
        let options = TlsOptions {
            mode: Mode::Require,
            key_file: make(directory, "server"),
            ca_file: Some(directory.join("ca.crt")),
            may_be_anonymous: false,
            cluster_file: None,
        };
        let tls = Tls::load(options).unwrap();
        let config = tls.loaded.lock().as_client.clone().unwrap();
        let sent = |client: &mut ClientConnection| {
            let mut bytes = Vec::new();
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            bytes
        };
        let broken: &[u8] = &[23, 3, 3, 0, 4, 1, 2, 3, 4];
        for end in [None, Some(broken)] {
            let mut session = tls.begin().unwrap();
            let mut client = ClientConnection::new(config.clone(), "localhost".try_into().unwrap()).unwrap();
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.set_nonblocking(true).unwrap();
            let (ours, mut plain) = (OwnedFd::from(ours), Vec::new());
            while client.is_handshaking() {
                session.take(&sent(&mut client), &ours, &mut plain);
                if client.read_tls(&mut theirs).is_ok() {
                    client.process_new_packets().unwrap();
                }
            }
            client.writer().write_all(b"request").unwrap();
            if end.is_none() {
                client.send_close_notify();
            }
            let mut bytes = sent(&mut client);
            bytes.extend_from_slice(end.unwrap_or_default());
            session.take(&bytes, &ours, &mut plain);
            assert_eq!(plain, b"request");
            match (end, session.take_over()) {
                (None, Some(Over::Closed)) | (Some(_), Some(Over::Failed(_))) => {}
                _ => panic!("it is over"),
            }
            // And it is told that no more comes.
            session.close(&ours);
            while client.read_tls(&mut theirs).is_ok_and(|read| read > 0) {}
            let state = client.process_new_packets();
            assert!(end.is_some() || state.is_ok_and(|state| state.peer_has_closed()));
        }
    }

    /// A member shows another one its certificate for members, and takes nobody for it who has not the name it was
    /// told.
    #[test]
    fn members_know_each_other() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        openssl(
            directory,
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 3 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE",
        );
        let options = TlsOptions {
            mode: Mode::Require,
            key_file: make(directory, "server"),
            ca_file: Some(directory.join("ca.crt")),
            may_be_anonymous: false,
            cluster_file: Some(make(directory, "member")),
        };
        let tls = Tls::load(options.clone()).unwrap();
        assert_eq!(tls.own_name().unwrap().to_string(), "CN=server,O=Shop");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = tls.loaded.lock().as_server.clone();
        let other_end = std::thread::spawn(move || {
            let mut heard = Vec::new();
            for _ in 0..2 {
                let (stream, _) = listener.accept().unwrap();
                let mut encrypted = StreamOwned::new(ServerConnection::new(config.clone()).unwrap(), stream);
                let mut text = [0; 5];
                let read = encrypted.read_exact(&mut text).map(|()| text.to_vec()).ok();
                let name = encrypted
                    .conn
                    .peer_certificates()
                    .map(|shown| SubjectName::of_certificate(&shown[0]).unwrap());
                heard.push((read, name.map(|name| name.to_string())));
            }
            heard
        });
        let mut stream = tls.connect(TcpStream::connect(address).unwrap(), "localhost").unwrap();
        stream.write_all(b"hello").unwrap();
        stream.flush().unwrap();
        let refused = tls.connect(TcpStream::connect(address).unwrap(), "another.example");
        assert!(refused.is_err());
        let heard = other_end.join().unwrap();
        assert_eq!(heard[0], (Some(b"hello".to_vec()), Some("CN=member,O=Shop".to_owned())));
        assert_eq!(heard[1].0, None);
        let alone = Tls::load(TlsOptions {
            ca_file: None,
            ..options
        })
        .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert!(alone.connect(stream, "localhost").err().unwrap().contains("CAFile"));
    }

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
