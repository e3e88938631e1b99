//! What the commands that talk to a server have in common: which server, and how they show what they are doing.

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal as _;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Bars of bytes.
pub const BYTES: &str = "{bar:30} {bytes} of {total_bytes} {bytes_per_sec} {eta}";
/// Bars of documents.
pub const DOCUMENTS: &str = "{bar:30} {human_pos} of {human_len} documents {per_sec} {eta}";

/// The server.
#[derive(Args, Debug)]
pub struct ServerArgs {
    /// The server: `mongodb://HOST[:PORT][/DATABASE]`
    #[arg(
        long,
        value_name = "URI",
        default_value = "mongodb://127.0.0.1:27017",
        help_heading = "Server"
    )]
    uri: String,
}

impl ServerArgs {
    /// Its address, and the database that `--uri` or `--db` names.
    pub fn server(&self, db: Option<&str>) -> Result<(SocketAddr, Option<String>)> {
        let (address, database) = dump::parse_uri(&self.uri)?;
        if let (Some(named), Some(option)) = (database.as_deref(), db)
            && named != option
        {
            bail!("--uri names the database {named}, and --db {option}");
        }
        Ok((address, db.map(str::to_owned).or(database)))
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
    /// The server's address, and the collection by its whole name.
    pub fn namespace(&self, collection: &str) -> Result<(SocketAddr, dump::Namespace)> {
        let (address, database) = self.server.server(self.db.as_deref())?;
        let database = database.unwrap_or_else(|| "test".to_owned());
        Ok((address, dump::Namespace::new(database, collection)))
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
