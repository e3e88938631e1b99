//! What can go wrong, by what the user has to do about it.

use std::path::PathBuf;

/// An error of the tool; each says what was tried, and why it failed or, by its source, what caused it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StressError {
    /// A settings file that cannot be read.
    #[error("reading {path}")]
    ReadSettings {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A setting that is refused.
    #[error("{path}: {fault}")]
    Settings {
        /// The file.
        path: PathBuf,
        /// The place in it and the reason.
        fault: SettingsFault,
    },
    /// Settings that contradict each other or the machine.
    #[error("{0}")]
    Contradiction(String),
    /// A topology this build does not have.
    #[error("topology {0} is not built yet; this build has: standalone, replicaSet")]
    TopologyNotBuilt(&'static str),
    /// A file or directory of the run.
    #[error("{verb} {path}")]
    File {
        /// What was tried.
        verb: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// The server program cannot be run or asked.
    #[error("{program}: {reason}")]
    Program {
        /// The program.
        program: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A place in a settings file and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsFault {
    /// At a line, counted from 1.
    #[error("line {line}: {reason}")]
    Line {
        /// The line.
        line: usize,
        /// Why.
        reason: String,
    },
    /// Anywhere.
    #[error("{0}")]
    Whole(String),
}

/// The crate's result.
pub type Result<T> = std::result::Result<T, StressError>;
