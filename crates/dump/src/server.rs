//! Which server, and who logs in there.

use crate::error::{DumpError, Result};
use crate::tls::{Encryption, TlsChoice};
use auth::{ClientConversation, INTERNAL_DATABASE, INTERNAL_USER, Mechanism, ScramError};
use bench::connection::Connection;
use bson::spec::BinarySubtype;
use bson::{Binary, Document, RawDocumentBuf, doc};
use std::fmt;
use std::io::Read as _;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

/// See the module.
#[derive(Clone, Debug)]
pub struct Server {
    /// Where it is.
    pub address: SocketAddr,
    /// Nobody, if there is none.
    pub login: Option<Arc<Login>>,
    /// Not encrypted, if there is none.
    pub encryption: Option<Arc<Encryption>>,
    /// Sent with every command; nothing where only primaries are talked to.
    pub read_preference: Option<ReadPreference>,
}

/// Which members of a replica set answer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "drivers' names")]
pub enum ReadPreference {
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

impl ReadPreference {
    const ALL: [Self; 5] = [
        Self::Primary,
        Self::PrimaryPreferred,
        Self::Secondary,
        Self::SecondaryPreferred,
        Self::Nearest,
    ];

    /// As URIs and commands have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|each| each.name() == name)
    }
}

/// A user, and how it proves who it is.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The name.
    pub user: String,
    /// The password.
    pub password: String,
    /// The database that the user is defined on.
    pub source: String,
    /// What the server offers for the user, if it is not said.
    pub mechanism: Option<Mechanism>,
}

/// Passwords are not for log lines.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Login({}@{})", self.user, self.source)
    }
}

/// What `mongodb://…` says.
#[derive(Clone, Debug)]
pub struct ServerUri {
    /// Where the server is.
    pub address: SocketAddr,
    /// Its name, as certificates have it.
    pub host: String,
    /// `tls`, `tlsCAFile`, `tlsCertificateKeyFile`.
    pub tls: TlsChoice,
    /// The database it names.
    pub database: Option<String>,
    /// The user it names, and the password.
    pub user: Option<(String, Option<String>)>,
    /// `authSource`.
    pub source: Option<String>,
    /// `authMechanism`.
    pub mechanism: Option<Mechanism>,
    /// `readPreference`.
    pub read_preference: Option<ReadPreference>,
    /// `directConnection`.
    pub is_direct: bool,
}

impl From<SocketAddr> for Server {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            login: None,
            encryption: None,
            read_preference: None,
        }
    }
}

impl ServerUri {
    /// Reads `mongodb://[USER[:PASSWORD]@]HOST[:PORT][/DATABASE][?OPTIONS]`. Options that are neither of the
    /// login nor of TLS change nothing for one server.
    ///
    /// # Errors
    /// A sentence that names the fault, and never the password.
    pub fn parse(uri: &str) -> Result<Self> {
        let rest = uri
            .strip_prefix("mongodb://")
            .ok_or_else(|| DumpError::Choice("the URI does not start with mongodb://".to_owned()))?;
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        // What stands before a question mark or a slash that is not encoded would be taken for the host, and shown.
        if options
            .split('&')
            .any(|option| option.contains('@') && !has_name(option))
        {
            return Err(DumpError::Choice(NOT_ENCODED.to_owned()));
        }
        // It may be a password also where the option is one by its looks.
        let is_hidden = options.contains('@');
        // A slash or an @ in a name or a password is written as %2F or %40.
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user), rest),
            None => (None, rest),
        };
        let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
        let choice = |what: &str| {
            DumpError::Choice(match is_hidden {
                true => format!("{what}; {NOT_ENCODED}"),
                false => format!("mongodb://{host}: {what}"),
            })
        };
        if host.contains(',') {
            return Err(choice("one host is supported, not several"));
        }
        let decoded =
            |text: &str| decoded(text).ok_or_else(|| choice("a part of the URI is not percent-encoded as it must be"));
        let user = match user.map(|user| {
            user.split_once(':')
                .map_or((user, None), |(user, word)| (user, Some(word)))
        }) {
            Some((user, password)) => Some((decoded(user)?, password.map(decoded).transpose()?)),
            None => None,
        };
        let (mut source, mut mechanism, mut tls) = (None, None, TlsChoice::default());
        let (mut read_preference, mut is_direct) = (None, false);
        for option in options.split('&') {
            match option.split_once('=').unwrap_or((option, "")) {
                ("tls" | "ssl", value) => tls.on = value == "true",
                ("tlsCAFile", file) => tls.ca_file = Some(decoded(file)?.into()),
                ("tlsCertificateKeyFile", file) => tls.key_file = Some(decoded(file)?.into()),
                (name, "true") if name.starts_with("tlsInsecure") || name.starts_with("tlsAllowInvalid") => {
                    return Err(choice(&format!(
                        "{name} is not supported: a certificate that is not checked proves nothing"
                    )));
                }
                ("authSource", name) => source = Some(decoded(name)?),
                ("authMechanism", name) => {
                    let found = mechanism_of(name);
                    mechanism = Some(found.map_err(|error| match is_hidden {
                        true => choice("the authMechanism is not supported"),
                        false => error,
                    })?);
                }
                ("directConnection", value) => is_direct = value == "true",
                ("readPreference", name) => {
                    let found = ReadPreference::parse(name);
                    let found = found.ok_or_else(|| match is_hidden {
                        true => choice("there is no such readPreference"),
                        false => choice(&format!("there is no readPreference {name}")),
                    })?;
                    read_preference = Some(found);
                }
                (name @ ("readPreferenceTags" | "maxStalenessSeconds"), _) => {
                    return Err(choice(&format!("{name} is not supported")));
                }
                _ => {}
            }
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let with_port = if has_port {
            host.to_owned()
        } else {
            format!("{host}:27017")
        };
        let address = with_port
            .to_socket_addrs()
            .ok()
            .and_then(|mut addresses| addresses.next())
            .ok_or_else(|| choice("there is no such host"))?;
        let name = with_port.rsplit_once(':').map_or(host, |(name, _)| name);
        Ok(Self {
            address,
            host: name.trim_matches(['[', ']']).to_owned(),
            tls,
            database: (!database.is_empty()).then(|| database.to_owned()),
            user,
            source,
            mechanism,
            read_preference,
            is_direct,
        })
    }
}

const NOT_ENCODED: &str = "in the URI's user or password a '?', a '/' or an '@' has to be written as %3F, %2F or %40";

/// Whether an option of a URI is a name with a value, and not the end of a password.
fn has_name(option: &str) -> bool {
    let name = option.split_once('=').map(|(name, _)| name);
    name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// The mechanism of a name.
///
/// # Errors
/// It is not one that can be used.
pub fn mechanism_of(name: &str) -> Result<Mechanism> {
    name.parse().map_err(|()| {
        DumpError::Choice(format!(
            "authentication by {name} is not supported: SCRAM-SHA-1 and SCRAM-SHA-256 are"
        ))
    })
}

/// `%41` stands for `A`; `None` for what is not so, or not UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (hex, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(hex, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

impl Login {
    /// The user that members of a cluster are to each other: whoever has their key, which may do everything.
    pub fn of_cluster(key: String) -> Self {
        Self {
            user: INTERNAL_USER.to_owned(),
            password: key,
            source: INTERNAL_DATABASE.to_owned(),
            mechanism: Some(Mechanism::ScramSha256),
        }
    }

    /// Proves to the server who this is, and makes sure that the server knows it.
    pub(crate) fn log_in(&self, connection: &mut Connection) -> Result<()> {
        let mechanism = match self.mechanism {
            Some(mechanism) => mechanism,
            None => self.offered(connection)?,
        };
        let failed =
            |error: ScramError| DumpError::Choice(format!("logging in as {}@{}: {error}", self.user, self.source));
        let (first, conversation) =
            ClientConversation::begin(mechanism, &self.user, &self.password, &random()?).map_err(failed)?;
        let start = doc! {
            "saslStart": 1, "mechanism": mechanism.name(), "payload": binary(first),
            "options": { "skipEmptyExchange": true },
        };
        let reply = self.run(connection, &start)?;
        let (last, proof) = conversation.prove(payload(&reply)).map_err(failed)?;
        let id = reply.get("conversationId").cloned().unwrap_or(bson::Bson::Int32(1));
        let go_on =
            |payload: String| doc! { "saslContinue": 1, "conversationId": id.clone(), "payload": binary(payload) };
        let reply = self.run(connection, &go_on(last))?;
        proof.verify(payload(&reply)).map_err(failed)?;
        if !reply.get_bool("done").unwrap_or(false) {
            self.run(connection, &go_on(String::new()))?;
        }
        Ok(())
    }

    /// The better one of those that the user can be known by.
    fn offered(&self, connection: &mut Connection) -> Result<Mechanism> {
        let hello = doc! { "hello": 1, "saslSupportedMechs": format!("{}.{}", self.source, self.user) };
        let reply = connection.run("admin", &raw(&hello)?)?;
        let offers = reply.get_array("saslSupportedMechs").map_or(&[][..], Vec::as_slice);
        let is_offered = |mechanism: Mechanism| offers.iter().any(|name| name.as_str() == Some(mechanism.name()));
        Ok(
            match is_offered(Mechanism::ScramSha1) && !is_offered(Mechanism::ScramSha256) {
                true => Mechanism::ScramSha1,
                false => Mechanism::ScramSha256,
            },
        )
    }

    fn run(&self, connection: &mut Connection, command: &Document) -> Result<Document> {
        Ok(connection.run(&self.source, &raw(command)?)?)
    }
}

fn raw(document: &Document) -> Result<RawDocumentBuf> {
    let raw = RawDocumentBuf::try_from(document);
    raw.map_err(|error| bench::Error::Protocol(error.to_string()).into())
}

fn binary(text: String) -> Binary {
    Binary {
        subtype: BinarySubtype::Generic,
        bytes: text.into_bytes(),
    }
}

fn payload(reply: &Document) -> &[u8] {
    reply.get_binary_generic("payload").map_or(&[], Vec::as_slice)
}

/// Bytes from the system that nobody can guess.
///
/// # Errors
/// The system has none.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| DumpError::Choice(format!("/dev/urandom cannot be read: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Login, ServerUri};

    #[test]
    fn addresses() {
        for (uri, address, database) in [
            ("mongodb://127.0.0.1", "127.0.0.1:27017", None),
            ("mongodb://127.0.0.1:5/", "127.0.0.1:5", None),
            ("mongodb://[::1]:5/shop?directConnection=true", "[::1]:5", Some("shop")),
            ("mongodb://[::1]/?appName=a@b", "[::1]:27017", None),
            ("mongodb://127.0.0.1:5/?appName=a@b", "127.0.0.1:5", None),
            ("mongodb://127.0.0.1?appName=a@b", "127.0.0.1:27017", None),
        ] {
            let found = ServerUri::parse(uri).unwrap();
            assert_eq!(
                (found.address.to_string().as_str(), found.database.as_deref()),
                (address, database)
            );
            assert!(found.user.is_none());
        }
        for uri in [
            "127.0.0.1",
            "mongodb://127.0.0.1,127.0.0.2",
            "mongodb://127.0.0.1/?tls=true&tlsInsecure=true",
            "mongodb://a:secret%4@127.0.0.1",
            "mongodb://a:secret%zz@127.0.0.1",
            "mongodb://a:secret%ff@127.0.0.1",
            "mongodb://a:secret@127.0.0.1/?authMechanism=PLAIN",
            "mongodb://a:secret@127.0.0.1,b",
            "mongodb://a:secret?x@127.0.0.1",
            "mongodb://a:secret?x@127.0.0.1,b/d?tls=true",
            "mongodb://a:secret/y?x@127.0.0.1",
            "mongodb://a:b@secret?x@127.0.0.1",
            "mongodb://a:secret?x=y@127.0.0.1",
            "mongodb://a:secret/y?x=y@127.0.0.1",
            "mongodb://127.0.0.1?readPreference=secret&x=y@127.0.0.1",
        ] {
            let error = ServerUri::parse(uri).unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn users() {
        let uri = "mongodb://a%40b:p%3A%2F%25@127.0.0.1/shop?authSource=people&authMechanism=SCRAM-SHA-1";
        let found = ServerUri::parse(uri).unwrap();
        assert_eq!(found.user, Some(("a@b".to_owned(), Some("p:/%".to_owned()))));
        assert_eq!(
            (found.source.as_deref(), found.database.as_deref()),
            (Some("people"), Some("shop"))
        );
        assert_eq!(found.mechanism, Some(auth::Mechanism::ScramSha1));
        let without_password = ServerUri::parse("mongodb://amy@127.0.0.1").unwrap();
        assert_eq!(without_password.user, Some(("amy".to_owned(), None)));
        let login = Login {
            user: "amy".to_owned(),
            password: "secret".to_owned(),
            source: "admin".to_owned(),
            mechanism: None,
        };
        assert_eq!(format!("{login:?}"), "Login(amy@admin)");
    }
}
