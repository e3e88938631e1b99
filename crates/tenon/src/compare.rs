//! `tenon bench compare`: two sessions that were measured at different times.

use crate::output::{check_files, say};
use anyhow::Result;
use clap::Args;
use report::Session;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code of a check that could tell nothing.
const EXIT_MUTE: u8 = 3;

/// Exits with 1 when `--check` was given and something became worse, or nothing could be compared; with 3 when nothing
/// could be told of throughput.
#[derive(Args, Debug)]
pub struct CompareCommand {
    /// Results from before, as JSON
    before: PathBuf,
    /// Results from after, as JSON
    after: PathBuf,
    /// A smaller difference than this share is none
    #[arg(long, default_value_t = report::TOLERANCE, value_name = "SHARE", value_parser = share)]
    tolerance: f64,
    /// Fail when something became worse, or nothing could be compared, or (exit code 3) the noise allows no verdict on
    /// any throughput
    #[arg(long)]
    check: bool,
    /// Write the comparison as a page
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl CompareCommand {
    /// Compares and prints.
    pub fn run(&self) -> Result<ExitCode> {
        check_files([&self.report])?;
        let before = Session::read(&vfs::RealFs, &self.before)?;
        let after = Session::read(&vfs::RealFs, &self.after)?;
        let comparison = report::compare(&before, &after, self.tolerance);
        say(&comparison.text());
        if let Some(path) = &self.report {
            let page = report::html::comparison_page(&comparison, &before, &after);
            report::write_whole(&vfs::RealFs, path, page.as_bytes())?;
        }
        // A check that looked at nothing has not passed.
        Ok(match self.check {
            true if comparison.is_worse() || comparison.lines.is_empty() => ExitCode::FAILURE,
            true if comparison.is_mute() => {
                say(
                    "FAILED: of no throughput could be told whether it became worse: each session needs repetitions and a quiet machine\n",
                );
                ExitCode::from(EXIT_MUTE)
            }
            _ => ExitCode::SUCCESS,
        })
    }
}

fn share(text: &str) -> std::result::Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("a share is at least 0 and less than 1, such as 0.05".to_owned()),
    }
}
