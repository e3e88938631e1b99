//! `tenon stress`: arguments, what the screen shows while it runs, and where results go.

use crate::connect;
use crate::output::{OutputArgs, command_line, say};
use ::stress::{Bench, CellOutcome, CellResult, Event, Phase, Settings};
use anyhow::{Context, Result};
use bench::interrupt::Interrupt;
use bench::procfs;
use indicatif::{ProgressBar, ProgressStyle};
use report::Session;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Exit code when the user stopped it.
const EXIT_INTERRUPTED: u8 = 130;

/// The MOST experiment: write concern x journal x capped, in memory and larger than memory, for each engine.
///
/// Starts a server for each cell on fresh data, prints each command line and each admin command it issues, writes
/// documents 1 to N in batches, at once reads them back from N down to 1 on other connections, and compares every byte.
#[derive(Debug, clap::Args)]
pub struct StressArguments {
    /// Settings: YAML (*.yaml, *.yml) or properties, such as stress/quick.yaml and stress/most.properties
    file: PathBuf,
    /// Storage engines, with commas between; default: those of the file, else all that the server has
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    engines: Vec<String>,
    /// Makes documents and memory this many times as large
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    scale: f64,
    /// Folder for data, instead of the file's; each cell's data are removed after it
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Server program when the file names none; default: tenond beside this program, else of PATH
    #[arg(long, value_name = "PROGRAM")]
    tenond: Option<PathBuf>,
    /// Prints the command lines and admin commands of every cell, and does none of them
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// Runs it.
pub fn run(arguments: &StressArguments) -> Result<ExitCode> {
    arguments.output.check()?;
    let mut settings = Settings::read(&arguments.file)?;
    settings.scale(arguments.scale)?;
    if !arguments.engines.is_empty() {
        settings.engines.clone_from(&arguments.engines);
        settings.check_engines().map_err(anyhow::Error::msg)?;
    }
    if let Some(directory) = &arguments.directory {
        settings.folders = vec![directory.clone()];
    }
    let program = arguments.tenond.clone().unwrap_or_else(connect::tenond);
    let bench = Bench::new(&settings, &program)?;
    let mut screen = Screen::new(arguments.output.quiet);
    if arguments.dry_run {
        ::stress::dry_run(&bench, &settings, &mut |event| screen.show(&event))?;
        return Ok(ExitCode::SUCCESS);
    }
    bench.make_folder()?;
    let interrupt = Interrupt::new();
    interrupt.install()?;
    let mut session = Session::new(
        concat!("tenon ", env!("CARGO_PKG_VERSION")),
        procfs::now_ms(),
        command_line(),
        procfs::machine(Some(&bench.folder)),
    );
    screen.line(&format!("# {}, {}", bench.build.version, bench.program.display()));
    let mut unwritten = None;
    let results = ::stress::run(&bench, &settings, &interrupt, &mut |event| {
        screen.show(&event);
        if let Event::Result(result) = event {
            session.runs.extend(::stress::runs(
                std::slice::from_ref(result),
                &settings,
                &bench.build.version,
            ));
            // What is measured is shown even when it cannot be kept.
            unwritten = arguments
                .output
                .json
                .as_deref()
                .and_then(|path| session.write(&vfs::RealFs::new(), path).err());
        }
    });
    screen.line(&format!("\n{}", ::stress::tables(&results, &settings).trim_end()));
    if let Some(error) = unwritten {
        return Err(error.into());
    }
    write_files(arguments, &session)?;
    Ok(exit_code(&results, &interrupt))
}

fn write_files(arguments: &StressArguments, session: &Session) -> Result<()> {
    let write = |path: &Path, text: String| {
        report::write_whole(&vfs::RealFs::new(), path, text.as_bytes())
            .with_context(|| format!("writing {}", path.display()))
    };
    if let Some(path) = &arguments.output.json {
        say(&format!("# results: {}\n", path.display()));
    }
    if let Some(path) = &arguments.output.csv {
        write(path, report::csv(session))?;
        say(&format!("# table: {}\n", path.display()));
    }
    if let Some(path) = &arguments.output.report {
        write(path, report::html::page(session))?;
        say(&format!("# page: {}\n", path.display()));
    }
    Ok(())
}

fn exit_code(results: &[CellResult], interrupt: &Interrupt) -> ExitCode {
    if interrupt.asked() {
        return ExitCode::from(EXIT_INTERRUPTED);
    }
    let failed = results
        .iter()
        .any(|result| matches!(result.outcome, CellOutcome::Failed(_)));
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// Lines on standard output, a bar on standard error while something lasts.
struct Screen {
    bar: ProgressBar,
    quiet: bool,
    cell: String,
    phase: Option<Phase>,
    document_bytes: u64,
}

impl Screen {
    fn new(quiet: bool) -> Self {
        Self {
            bar: ProgressBar::hidden(),
            quiet,
            cell: String::new(),
            phase: None,
            document_bytes: 0,
        }
    }

    fn line(&self, line: &str) {
        self.bar.suspend(|| say(&format!("{line}\n")));
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Cell { number, of, cell } => {
                self.cell = format!("{number}/{of}");
                self.line(&format!("\n# cell {number} of {of}: {cell}"));
            }
            Event::Line(line) => self.line(line),
            Event::Begin {
                phase,
                documents,
                document_bytes,
            } => self.begin(*phase, *documents, *document_bytes),
            Event::At { documents } => self.bar.set_position(documents * self.document_bytes),
            Event::End => {
                self.bar.finish_and_clear();
                self.bar = ProgressBar::hidden();
            }
            Event::Result(result) => self.result(result),
        }
    }

    fn result(&self, result: &CellResult) {
        match &result.outcome {
            // The cells of a table share the reason.
            CellOutcome::Impossible(_) if !result.cell.is_first() => {}
            CellOutcome::Impossible(reason) => self.line(&format!(
                "\n# {} {}: not possible: {reason}",
                result.cell.engine,
                result.cell.size.name()
            )),
            _ => self.line(&summary(result)),
        }
    }

    fn begin(&mut self, phase: Phase, documents: u64, document_bytes: u64) {
        self.phase = Some(phase);
        self.document_bytes = document_bytes;
        if self.quiet {
            return;
        }
        let style = ProgressStyle::with_template(
            "{prefix} [{wide_bar}] {percent:>3}%  {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}  {eta} left",
        )
        .expect("the template is well formed")
        .progress_chars("=> ");
        self.bar = ProgressBar::new(documents.saturating_mul(document_bytes)).with_style(style);
        self.bar.set_prefix(format!("cell {} {:<5}", self.cell, phase.name()));
    }
}

/// A cell in one line.
fn summary(result: &CellResult) -> String {
    let seconds = |phase: &Option<::stress::PhaseResult>| phase.as_ref().map(|phase| phase.seconds);
    let mut parts = Vec::new();
    if let Some(seconds) = seconds(&result.write) {
        parts.push(format!("wrote for {seconds:.2} s"));
    }
    if let Some(seconds) = seconds(&result.read) {
        let tally = &result.tally;
        parts.push(format!(
            "read for {seconds:.2} s, {} of {} documents consistent",
            tally.consistent,
            tally.asked()
        ));
    }
    match &result.outcome {
        CellOutcome::Complete | CellOutcome::Impossible(_) => {}
        CellOutcome::Refused(reason) => parts.push(format!("refused by the server: {reason}")),
        CellOutcome::Interrupted => parts.push("stopped".to_owned()),
        CellOutcome::Failed(reason) => parts.push(format!("FAILED: {reason}")),
    }
    format!("# {}", parts.join("; "))
}
