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
    /// Folder for data, instead of the file's: a directory is made in it, and each cell's data are removed after it
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,
    /// Server program, instead of the file's; default: tenond beside this program, else of PATH
    #[arg(long, value_name = "PROGRAM")]
    tenond: Option<PathBuf>,
    /// Measures everything so often: without a second time `tenon bench compare` tells of no difference in speed
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
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
    if let Some(program) = &arguments.tenond {
        settings.program = Some(program.clone());
    }
    let bench = Bench::new(&settings, &connect::tenond())?;
    let mut screen = Screen::new(arguments.output.quiet);
    if arguments.dry_run {
        ::stress::dry_run(&bench, &settings, &mut |event| screen.show(&event))?;
        return Ok(ExitCode::SUCCESS);
    }
    let folders = bench.make_folders()?;
    let interrupt = Interrupt::new();
    interrupt.install()?;
    let mut session = Session::new(
        concat!("tenon ", env!("CARGO_PKG_VERSION")),
        procfs::now_ms(),
        command_line(),
        procfs::machine(folders.paths().first().map(PathBuf::as_path)),
    );
    screen.line(&format!("# {}, {}", bench.build.version, bench.program.display()));
    for path in folders.paths() {
        screen.line(&format!("# data: {}", path.display()));
    }
    let mut unwritten = None;
    let mut all = Vec::new();
    for repetition in 0..arguments.repeat {
        if repetition > 0 && interrupt.asked() {
            break;
        }
        if arguments.repeat > 1 {
            screen.line(&format!("\n# repetition {} of {}", repetition + 1, arguments.repeat));
        }
        let own = (arguments.repeat > 1).then(|| folders.within(&format!("repetition{}", repetition + 1)));
        let folders = own.as_ref().unwrap_or(&folders);
        let results = ::stress::run(&bench, &settings, folders, &interrupt, &mut |event| {
            screen.show(&event);
            if let Event::Result(result) = event {
                let mut runs = ::stress::runs(std::slice::from_ref(result), &settings, &bench.build.version);
                runs.iter_mut().for_each(|run| run.repetition = repetition);
                session.runs.append(&mut runs);
                // What is measured is shown even when it cannot be kept.
                unwritten = arguments
                    .output
                    .json
                    .as_deref()
                    .and_then(|path| session.write(&vfs::RealFs::new(), path).err());
            }
        });
        screen.line(&format!("\n{}", ::stress::tables(&results, &settings).trim_end()));
        all.extend(results);
    }
    if let Some(error) = unwritten {
        return Err(error.into());
    }
    write_files(arguments, &session)?;
    Ok(exit_code(&all, &interrupt))
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
    let is_failed = |result: &CellResult| matches!(result.outcome, CellOutcome::Failed(_));
    // Where a server refuses everything, nothing was measured.
    match results.iter().any(is_failed) || ::stress::is_any_table_refused(results) {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    }
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
