//! `tenon bench compare`: two sessions that were measured at different times.

use anyhow::Result;
use clap::Args;
use report::Session;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exits with 1 when something became worse and `--check` was given.
#[derive(Args, Debug)]
pub struct CompareCommand {
    /// Results from before, as JSON
    before: PathBuf,
    /// Results from after, as JSON
    after: PathBuf,
    /// A smaller difference than this share is none
    #[arg(long, default_value_t = report::TOLERANCE, value_name = "SHARE")]
    tolerance: f64,
    /// Fail when something became worse
    #[arg(long)]
    check: bool,
    /// Write the comparison as a page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl CompareCommand {
    /// Compares and prints.
    pub fn run(&self) -> Result<ExitCode> {
        let before = Session::read(&vfs::RealFs, &self.before)?;
        let after = Session::read(&vfs::RealFs, &self.after)?;
        let comparison = report::compare(&before, &after, self.tolerance);
        print!("{}", comparison.text());
        if let Some(path) = &self.report {
            let page = report::html::comparison_page(&comparison, &before, &after);
            report::write_whole(&vfs::RealFs, path, page.as_bytes())?;
        }
        let fails = self.check && comparison.is_worse();
        Ok(if fails { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}
