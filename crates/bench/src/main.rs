//! `tenon-bench`: see `--help`.

use anyhow::{Context, Result};
use bench::options::{HELP, Options};
use bench::session::{Findings, measure_address, measure_engine};
use bench::{process, report};
use std::process::ExitCode;

fn main() -> Result<ExitCode> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        print!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    };
    process::raise_open_files();
    let mut progress = |what: &str| eprintln!("==> {what}");
    let mut all: Vec<Findings> = Vec::new();
    let mut failed = false;
    match options.uri {
        Some(address) => all.push(measure_address(&options, address, options.pid, &mut progress)?),
        None => {
            for engine in &options.engines {
                match measure_engine(&options, engine, &mut progress) {
                    Ok(findings) => all.push(findings),
                    // The other engines' figures are worth having all the same.
                    Err(error) => {
                        eprintln!("{engine}: {error:#}");
                        failed = true;
                    }
                }
            }
        }
    }
    for findings in &all {
        print!("{}", report::table(findings));
    }
    println!("\n{}", report::LEGEND);
    if let Some(path) = &options.json {
        let text = format!("{:#}\n", report::json(&all));
        write_file(path, &text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[allow(clippy::disallowed_methods, reason = "a client program: files are the machine's own")]
fn write_file(path: &std::path::Path, text: &str) -> std::io::Result<()> {
    std::fs::write(path, text)
}
