//! `tenon bench show`: results that were kept, shown again: the table of the terminal, the page, CSV, or Markdown for a
//! manual.

use crate::output::{check_files, say, table};
use anyhow::{Context as _, Result};
use clap::Args;
use report::Session;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Prints the table unless a file is asked for.
#[derive(Args, Debug)]
pub struct ShowCommand {
    /// Results, as JSON
    results: PathBuf,
    /// Write one line per run and operation as CSV
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write a page with verdict, tables and charts
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the tables as a page in Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// The heading of the page in Markdown
    #[arg(long, default_value = "Results")]
    title: String,
    /// What stands below the heading, in Markdown
    #[arg(long, value_name = "TEXT", default_value = "")]
    introduction: String,
}

impl ShowCommand {
    /// Reads, and writes what was asked for.
    pub fn run(&self) -> Result<ExitCode> {
        check_files([&self.csv, &self.report, &self.markdown])?;
        let session = Session::read(&vfs::RealFs, &self.results)?;
        let mut written = false;
        for (path, make) in [
            (&self.csv, report::csv as fn(&Session) -> String),
            (&self.report, report::html::page),
        ] {
            if let Some(path) = path {
                write(path, &make(&session))?;
                written = true;
            }
        }
        if let Some(path) = &self.markdown {
            write(path, &report::markdown(&session, &self.title, &self.introduction))?;
            written = true;
        }
        if !written {
            say(&table(&session));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    report::write_whole(&vfs::RealFs, path, text.as_bytes()).with_context(|| format!("writing {}", path.display()))
}
