//! `tenon verify`: whether the files of a stopped server are whole.

use crate::key::KeyArgs;
use crate::live;
use crate::screen::printable_lines;
use anyhow::Result;
use bson::{Bson, Document, doc};
use clap::Args;
use server::inspect::{self, Finding, Report};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// Something is damaged.
const EXIT_DAMAGED: u8 = 1;
/// It could not be told.
const EXIT_UNKNOWN: u8 = 2;

/// Check the data directory of a stopped server, without changing it
#[derive(Args, Debug)]
#[command(after_help = "Exit codes: 0 everything is whole, 1 something is damaged, 2 it could not be checked")]
pub struct VerifyCommand {
    /// The data directory
    #[arg(value_name = "DBPATH")]
    path: PathBuf,
    /// One document for each damage, and one with the counts
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    key: KeyArgs,
}

impl VerifyCommand {
    /// Checks, and prints what is damaged.
    pub fn run(&self) -> ExitCode {
        let report = match inspect::verify(&self.path, self.key.source().as_ref()) {
            Ok(report) => report,
            Err(error) => {
                eprintln!("tenon: {}", printable_lines(&server::reasons(&error)));
                return ExitCode::from(EXIT_UNKNOWN);
            }
        };
        if let Err(error) = self.print(&report) {
            eprintln!("tenon: {}", printable_lines(&server::reasons(&error)));
        }
        match report.findings.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(EXIT_DAMAGED),
        }
    }

    fn print(&self, report: &Report) -> Result<()> {
        let mut out = std::io::stdout().lock();
        for finding in &report.findings {
            match self.json {
                true => writeln!(out, "{}", live::json(&document(finding)))?,
                false => writeln!(out, "{}", printable_lines(&text(finding)))?,
            }
        }
        let damages = report.findings.len() as u64 + report.more_findings;
        if self.json {
            let engine = report.engine.clone().map_or(Bson::Null, Bson::String);
            let summary = doc! {
                "engine": engine, "segments": report.segments as i64, "entries": report.entries as i64,
                "rows": report.rows as i64, "collections": report.collections as i64,
                "documents": report.documents as i64, "damages": damages as i64,
            };
            writeln!(out, "{}", live::json(&summary))?;
            return Ok(());
        }
        if report.more_findings > 0 {
            writeln!(out, "and {} more", report.more_findings)?;
        }
        writeln!(
            out,
            "engine {}: {} rows; log: {} entries in {} files; {} documents of {} collections",
            report.engine.as_deref().unwrap_or("unknown"),
            report.rows,
            report.entries,
            report.segments,
            report.documents,
            report.collections
        )?;
        match damages {
            0 => writeln!(out, "everything is whole")?,
            1 => writeln!(out, "1 damage")?,
            more => writeln!(out, "{more} damages")?,
        }
        Ok(out.flush()?)
    }
}

fn document(finding: &Finding) -> Document {
    let file = finding.file.as_ref().map(|file| file.display().to_string());
    doc! {
        "part": finding.part.name(),
        "file": file.map_or(Bson::Null, Bson::String),
        "offset": finding.offset.map_or(Bson::Null, |offset| Bson::Int64(offset as i64)),
        "damage": &finding.what,
    }
}

fn text(finding: &Finding) -> String {
    let part = finding.part.name();
    match (&finding.file, finding.offset) {
        // Errors name their file themselves.
        (Some(file), _) if finding.what.contains(&*file.to_string_lossy()) => format!("{part}: {}", finding.what),
        (Some(file), Some(offset)) => format!("{part}: {}: at offset {offset}: {}", file.display(), finding.what),
        (Some(file), None) => format!("{part}: {}: {}", file.display(), finding.what),
        (None, _) => format!("{part}: {}", finding.what),
    }
}
