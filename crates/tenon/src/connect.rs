//! What the commands that talk to a server have in common: which server, and how they show what they are doing.

use crate::member;
use anyhow::{Context as _, Result, bail};
use bson::{Bson, Document, doc};
use clap::Args;
use dump::{Login, ReadPreference, Server, ServerUri, TlsChoice, mechanism_of};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::net::{Ipv6Addr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;

/// Bars of bytes.
pub const BYTES: &str = "{bar:30} {bytes} of {total_bytes} {bytes_per_sec} {eta}";
/// Bars of documents.
pub const DOCUMENTS: &str = "{bar:30} {human_pos} of {human_len} documents {per_sec} {eta}";

/// The server.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// The server: `mongodb://HOST[:PORT][/DATABASE]`; of a replica set some members, `replicaSet`, `readPreference`
    #[arg(
        long,
        value_name = "URI",
        default_value = "mongodb://127.0.0.1:27017",
        help_heading = "Server"
    )]
    uri: String,
    /// The server's host, and maybe its port: `HOST[:PORT]`
    #[arg(long, value_name = "HOST", conflicts_with = "uri", help_heading = "Server")]
    host: Option<String>,
    /// The server's port
    #[arg(long, value_name = "N", conflicts_with = "uri", help_heading = "Server")]
    port: Option<u16>,
    /// The user to log in as
    #[arg(long, short, value_name = "NAME", help_heading = "Server")]
    username: Option<String>,
    /// Its password; others can see it in the list of processes. Default: $TENON_PASSWORD, or asked for
    #[arg(long, short, value_name = "TEXT", requires = "username", help_heading = "Server")]
    password: Option<String>,
    /// The database that the user is defined on; default: that of --uri, or admin
    #[arg(long = "authenticationDatabase", value_name = "NAME", help_heading = "Server")]
    authentication_database: Option<String>,
    /// SCRAM-SHA-256 or SCRAM-SHA-1; default: the better one that the server offers
    #[arg(long = "authenticationMechanism", value_name = "NAME", help_heading = "Server")]
    authentication_mechanism: Option<String>,
    /// Encrypt the connection
    #[arg(long, help_heading = "Server")]
    tls: bool,
    /// Authorities that the server's certificate has to come from (PEM); default: those of the system
    #[arg(long = "tlsCAFile", value_name = "FILE", help_heading = "Server")]
    tls_ca_file: Option<PathBuf>,
    /// A certificate of one's own, with its key (PEM), for servers that ask for one
    #[arg(long = "tlsCertificateKeyFile", value_name = "FILE", help_heading = "Server")]
    tls_certificate_key_file: Option<PathBuf>,
}

/// Where a password is looked for that is not on the command line.
const PASSWORD_VARIABLE: &str = "TENON_PASSWORD";

/// That of the environment, or what the user says at the terminal.
pub fn password_of(user: &str) -> Result<String> {
    match std::env::var(PASSWORD_VARIABLE) {
        Ok(password) => Ok(password),
        Err(_) => rpassword::prompt_password(format!("password of {user}: ")).context("asking for the password"),
    }
}

/// What a tool does with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Read,
    Write,
}

impl ServerArgs {
    fn whole_uri(&self) -> Result<String> {
        let host = self.host.as_deref().unwrap_or("127.0.0.1");
        let host = &host.split(',').map(bracketed).collect::<Vec<_>>().join(",");
        match self.port {
            Some(port) if host.split(',').any(names_port) => bail!("--host {host} names a port, and --port {port}"),
            Some(port) => {
                let hosts: Vec<_> = host.split(',').map(|host| format!("{host}:{port}")).collect();
                Ok(format!("mongodb://{}", hosts.join(",")))
            }
            None if self.host.is_some() => Ok(format!("mongodb://{host}")),
            None => Ok(self.uri.clone()),
        }
    }

    /// It, and the database that `--uri` or `--db` names. Of a replica set the primary for who writes, and for who
    /// reads the member that `readPreference` asks for. A server that is named alone is that one, whatever it is.
    pub fn server(&self, db: Option<&str>, purpose: Purpose) -> Result<(Server, Option<String>)> {
        let named = Hosts::of(&self.whole_uri()?)?;
        let uri = named.parse()?;
        if let (Some(named), Some(option)) = (uri.database.as_deref(), db)
            && named != option
        {
            bail!("--uri names the database {named}, and --db {option}");
        }
        let login = self.login(&uri)?.map(Arc::new);
        let tls = self.tls_choice(&uri);
        let preference = match purpose {
            Purpose::Read => uri.read_preference,
            Purpose::Write => None,
        };
        let mut server = match named.are_of_a_set(&uri)? {
            true => {
                let (hosts, set) = (named.hosts, named.set);
                let access = SetAccess { hosts, set, login, tls };
                member::select(&access, preference.unwrap_or(ReadPreference::Primary))?
            }
            false => Server {
                address: uri.address,
                login,
                encryption: tls.ready(&uri.host)?,
                read_preference: None,
            },
        };
        if purpose == Purpose::Read {
            // Who names a secondary alone wants that one to answer.
            server.read_preference = Some(preference.unwrap_or(ReadPreference::PrimaryPreferred));
        }
        Ok((server, db.map(str::to_owned).or(uri.database)))
    }

    /// An error where a URI names a set, for what has to do with one server.
    pub fn check_one_server(&self, why: &str) -> Result<()> {
        let named = Hosts::of(&self.whole_uri()?)?;
        if named.are_of_a_set(&named.parse()?)? {
            bail!("--uri has to name one server: {why}");
        }
        Ok(())
    }

    /// The servers of a replica set, of which one or more are named.
    pub fn set(&self) -> Result<SetAccess> {
        let named = Hosts::of(&self.whole_uri()?)?;
        let uri = named.parse()?;
        Ok(SetAccess {
            hosts: named.hosts,
            set: named.set,
            login: self.login(&uri)?.map(Arc::new),
            tls: self.tls_choice(&uri),
        })
    }

    fn tls_choice(&self, uri: &ServerUri) -> TlsChoice {
        TlsChoice {
            on: self.tls || uri.tls.on,
            ca_file: self.tls_ca_file.clone().or(uri.tls.ca_file.clone()),
            key_file: self.tls_certificate_key_file.clone().or(uri.tls.key_file.clone()),
        }
    }

    fn login(&self, uri: &ServerUri) -> Result<Option<Login>> {
        let (user, password) = match (&self.username, &uri.user) {
            (Some(_), Some(_)) => bail!("--uri names a user, and --username"),
            (Some(user), None) => (user, self.password.clone()),
            (None, Some((user, password))) => (user, password.clone()),
            (None, None) if self.authentication_database.is_some() || self.authentication_mechanism.is_some() => {
                bail!("--username is missing")
            }
            (None, None) => return Ok(None),
        };
        let mechanism = self.authentication_mechanism.as_deref().map(mechanism_of).transpose()?;
        let source = self
            .authentication_database
            .as_ref()
            .or(uri.source.as_ref())
            .or(uri.database.as_ref());
        Ok(Some(Login {
            user: user.clone(),
            password: password.map_or_else(|| password_of(user), Ok)?,
            source: source.map_or_else(|| "admin".to_owned(), String::clone),
            mechanism: mechanism.or(uri.mechanism),
        }))
    }
}

/// The members of a replica set, by their hosts, with one login for all.
#[derive(Clone, Debug)]
pub struct SetAccess {
    /// Those that were named: `host:port`.
    pub hosts: Vec<String>,
    /// `replicaSet` of the URI.
    pub set: Option<String>,
    login: Option<Arc<Login>>,
    tls: TlsChoice,
}

impl SetAccess {
    /// A member at each of the addresses that its host has.
    pub fn servers(&self, host: &str) -> Result<Vec<Server>> {
        let addresses = host.to_socket_addrs().with_context(|| host.to_owned())?;
        let name = host
            .rsplit_once(':')
            .map_or(host, |(name, _)| name)
            .trim_matches(['[', ']']);
        let encryption = self.tls.ready(name)?;
        let server = |address| Server {
            address,
            login: self.login.clone(),
            encryption: encryption.clone(),
            read_preference: None,
        };
        Ok(addresses.map(server).collect())
    }
}

/// An address of IPv6 as it stands in front of a port.
fn bracketed(host: &str) -> String {
    match host.parse::<Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host.to_owned(),
    }
}

/// Whether a host comes with its port; colons in brackets are an address's.
fn names_port(host: &str) -> bool {
    host.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'))
}

/// The hosts of a URI, each with its port, and what else it says.
struct Hosts {
    hosts: Vec<String>,
    /// `replicaSet`.
    set: Option<String>,
    /// The URI in front of its hosts, and behind them.
    around: (String, String),
}

impl Hosts {
    fn of(uri: &str) -> Result<Self> {
        let rest = uri
            .strip_prefix("mongodb://")
            .context("the URI does not start with mongodb://")?;
        let (rest, options) = rest
            .split_once('?')
            .map_or((rest, None), |(rest, options)| (rest, Some(options)));
        let (user, rest) = rest
            .rsplit_once('@')
            .map_or((None, rest), |(user, rest)| (Some(user), rest));
        let (hosts, database) = rest.split_once('/').unwrap_or((rest, ""));
        let with_port = |host: &str| match names_port(host) {
            true => host.to_owned(),
            false => format!("{host}:27017"),
        };
        let user = user.map(|user| format!("{user}@")).unwrap_or_default();
        let behind = options.map(|options| format!("?{options}")).unwrap_or_default();
        let mut options = options.unwrap_or_default().split('&');
        let set = options.find_map(|option| option.strip_prefix("replicaSet="));
        Ok(Self {
            hosts: hosts.split(',').map(with_port).collect(),
            set: set.map(str::to_owned),
            around: (format!("mongodb://{user}"), format!("/{database}{behind}")),
        })
    }

    /// What the URI says with the first host that has an address.
    fn parse(&self) -> Result<ServerUri> {
        let (front, behind) = &self.around;
        let mut uris = self.hosts.iter().map(|host| format!("{front}{host}{behind}"));
        let first = uris
            .next()
            .map_or_else(|| ServerUri::parse(""), |uri| ServerUri::parse(&uri));
        Ok(first.or_else(|error| uris.find_map(|uri| ServerUri::parse(&uri).ok()).ok_or(error))?)
    }

    /// Whether a set is meant, and not one server alone.
    fn are_of_a_set(&self, uri: &ServerUri) -> Result<bool> {
        if uri.is_direct && self.hosts.len() > 1 {
            bail!(
                "directConnection is for one host, and the URI names {}",
                self.hosts.len()
            );
        }
        Ok(self.hosts.len() > 1 || self.set.is_some() && !uri.is_direct)
    }
}

/// One database and one collection of a server.
#[derive(Args, Debug)]
pub struct CollectionArgs {
    #[command(flatten)]
    server: ServerArgs,
    /// The database; default: that of --uri, or test
    #[arg(long, short, value_name = "NAME", help_heading = "Collection")]
    db: Option<String>,
}

impl CollectionArgs {
    /// The server, and the collection by its whole name.
    pub fn namespace(&self, collection: &str, purpose: Purpose) -> Result<(Server, dump::Namespace)> {
        let (server, database) = self.server.server(self.db.as_deref(), purpose)?;
        let database = database.unwrap_or_else(|| "test".to_owned());
        Ok((server, dump::Namespace::new(database, collection)))
    }
}

/// A bar on standard error, if that is a screen.
pub fn progress(is_quiet: bool, template: &str) -> ProgressBar {
    if is_quiet || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    ProgressStyle::with_template(template).map_or_else(|_| bar.clone(), |style| bar.clone().with_style(style))
}

/// The server program: `tenond` beside this program, else of PATH.
pub fn tenond() -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|program| Some(program.parent()?.join("tenond")));
    beside
        .filter(|program| program.is_file())
        .unwrap_or_else(|| PathBuf::from("tenond"))
}

/// What `--writeConcern` says.
pub fn write_concern(text: &str) -> Result<Document> {
    let document = if let Ok(servers) = text.parse::<i32>() {
        doc! { "w": servers }
    } else if text.starts_with('{') {
        let document = extjson::parse(text).context("--writeConcern")?;
        Document::try_from(&*document).context("--writeConcern")?
    } else {
        doc! { "w": text }
    };
    if document.get("w") == Some(&Bson::Int32(0)) {
        bail!("a write concern of 0 tells nothing of what was written");
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::{Hosts, Purpose, ServerArgs};
    use clap::{Args as _, Command, FromArgMatches as _};

    #[test]
    fn a_set_is_named_by_some_of_its_members() {
        let named = Hosts::of("mongodb://a:p%40@h1,h2:5,[::1]/db?tls=true&replicaSet=rs0").unwrap();
        assert_eq!(named.hosts, ["h1:27017", "h2:5", "[::1]:27017"]);
        assert_eq!(
            named.around,
            ("mongodb://a:p%40@".to_owned(), "/db?tls=true&replicaSet=rs0".to_owned())
        );
        assert_eq!(named.set.as_deref(), Some("rs0"));
        let named = Hosts::of("mongodb://h").unwrap();
        assert_eq!((named.hosts, named.set), (vec!["h:27017".to_owned()], None));
        assert!(Hosts::of("h1,h2").is_err());
        // One that has no address is not the only one.
        let uri = Hosts::of("mongodb://a:b@no.such.host.invalid,127.0.0.1:5/d")
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!((uri.address.port(), uri.database.as_deref()), (5, Some("d")));
    }

    #[test]
    fn a_server_is_named_by_uri_or_by_host_and_port() {
        let named = |words: &[&str]| {
            let command = ServerArgs::augment_args(Command::new("t").no_binary_name(true));
            let matches = command.try_get_matches_from(words).map_err(|error| error.to_string())?;
            let given = ServerArgs::from_arg_matches(&matches).unwrap();
            given.server(None, Purpose::Read).map_err(|error| error.to_string())
        };
        for (words, address) in [
            (&[][..], "127.0.0.1:27017"),
            (&["--port", "5"], "127.0.0.1:5"),
            (&["--host", "127.0.0.2"], "127.0.0.2:27017"),
            (&["--host", "127.0.0.2:7"], "127.0.0.2:7"),
            (&["--host", "[::1]", "--port", "7"], "[::1]:7"),
            (&["--host", "::1", "--port", "7"], "[::1]:7"),
            (&["--host", "::1"], "[::1]:27017"),
            (&["--uri", "mongodb://127.0.0.3:9/d"], "127.0.0.3:9"),
        ] {
            assert_eq!(named(words).unwrap().0.address.to_string(), address, "{words:?}");
        }
        for words in [
            &["--uri", "mongodb://127.0.0.1", "--port", "5"][..],
            &["--host", "127.0.0.1:5", "--port", "5"],
            &["--host", "127.0.0.1,b:5", "--port", "5"],
            &["--host", "127.0.0.1,b", "--port", "5"],
            &["--uri", "mongodb://127.0.0.1,b/?directConnection=true"],
            &["--uri", "mongodb://127.0.0.1/?readPreference=nonesuch"],
            &["--uri", "mongodb://127.0.0.1/?readPreferenceTags=dc:ny"],
            &["--authenticationDatabase", "admin"],
            &["--password", "x"],
            &["-u", "amy", "-p", "x", "--authenticationMechanism", "PLAIN"],
            &["-u", "amy", "-p", "x", "--uri", "mongodb://bob:y@127.0.0.1"],
        ] {
            assert!(named(words).is_err(), "{words:?}");
        }
        for (words, source) in [
            (&["-u", "amy", "-p", "x"][..], "admin"),
            (
                &["-u", "amy", "-p", "x", "--authenticationDatabase", "people"],
                "people",
            ),
            (&["--uri", "mongodb://amy:x@127.0.0.1"], "admin"),
            (&["--uri", "mongodb://amy:x@127.0.0.1/shop"], "shop"),
            (&["--uri", "mongodb://amy:x@127.0.0.1/shop?authSource=people"], "people"),
        ] {
            let login = named(words).unwrap().0.login.unwrap();
            let said = (&*login.user, &*login.password, &*login.source);
            assert_eq!(said, ("amy", "x", source), "{words:?}");
        }
    }
}
