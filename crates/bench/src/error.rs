//! What can go wrong while measuring, by what the caller does about it.

use std::io;
use std::path::PathBuf;

/// See the variants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused something.
    #[error("{action}")]
    Io {
        /// What was tried.
        action: String,
        /// Why it failed.
        source: io::Error,
    },
    /// A server does not start, or has ended although nobody asked it to.
    #[error("the server {label} {what}{}", words(.log))]
    ServerDied {
        /// Its configuration.
        label: String,
        /// What happened.
        what: String,
        /// The last lines of its log.
        log: String,
    },
    /// The server answered a command with an error.
    #[error("{command}: the server refused: {message} (code {code})")]
    Refused {
        /// The command.
        command: String,
        /// `code` of the reply.
        code: i32,
        /// `errmsg` of the reply.
        message: String,
    },
    /// The server does not have what it has acknowledged.
    #[error("lost: {0}")]
    Lost(String),
    /// The server answered something that no such server answers.
    #[error("unexpected reply: {0}")]
    Protocol(String),
    /// No reply within the time that every operation has.
    #[error("no reply for {seconds} s")]
    NoReply {
        /// The time that has passed.
        seconds: u64,
    },
    /// A replica set does not come to a primary.
    #[error("the set has no primary with all that follows it for {seconds} s: {roles:?}")]
    NoPrimary {
        /// The time that has passed.
        seconds: u64,
        /// What the members say they are.
        roles: Vec<crate::role::Role>,
    },
    /// The disk under the data is full, or nearly so.
    #[error("the disk of {} is full: {} MB are left", directory.display(), available_bytes / 1_000_000)]
    DiskFull {
        /// Where the data is.
        directory: PathBuf,
        /// What is left.
        available_bytes: u64,
        /// What went wrong because of it.
        source: Option<Box<Error>>,
    },
    /// The user's choice is not possible.
    #[error("{0}")]
    Choice(String),
    /// The user asked to stop.
    #[error("stopped")]
    Interrupted,
    /// A run failed, and says so itself.
    #[error("{0}")]
    Kept(String),
    /// The results cannot be written.
    #[error(transparent)]
    Report(#[from] report::Error),
}

fn words(log: &str) -> String {
    if log.is_empty() {
        String::new()
    } else {
        format!(":\n{log}")
    }
}

/// Either a value or an [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Says what was tried when the operating system refused it.
pub trait Doing<T> {
    /// `action` reads as "connecting to 127.0.0.1:27017".
    fn doing(self, action: impl Into<String>) -> Result<T>;
}

impl<T, E: Into<io::Error>> Doing<T> for std::result::Result<T, E> {
    fn doing(self, action: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io {
            action: action.into(),
            source: source.into(),
        })
    }
}

/// An error with its causes, in one sentence.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
