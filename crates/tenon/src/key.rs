//! The master key of files that are encrypted.

use clap::Args;
use server::encryption::KeySource;
use std::path::PathBuf;

/// Where it comes from.
#[derive(Args, Debug)]
#[command(next_help_heading = "Encryption at rest")]
pub struct KeyArgs {
    /// File of the master key of a data directory that is encrypted
    #[arg(long = "encryptionKeyFile", value_name = "FILE", conflicts_with = "command")]
    file: Option<PathBuf>,
    /// Program that prints it, with its arguments
    #[arg(id = "command", long = "encryptionKeyCommand", value_name = "PROGRAM")]
    command: Option<String>,
}

impl KeyArgs {
    /// `None` for files that are not encrypted.
    pub fn source(&self) -> Option<KeySource> {
        let command = self.command.clone().map(KeySource::Command);
        self.file.clone().map(KeySource::File).or(command)
    }
}
