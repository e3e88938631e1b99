//! Where results go: a table on the screen, and the files that were asked for.

mod sets;

use anyhow::{Context as _, Result};
use bench::context::Context;
use clap::Args;
use report::{Outcome, Run, Session};
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Files of results.
#[derive(Args, Clone, Debug)]
pub struct OutputArgs {
    /// Write all results as JSON; kept up to date while measuring
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub json: Option<PathBuf>,
    /// Write one line per run and operation as CSV
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub csv: Option<PathBuf>,
    /// Write a page with verdict, tables and charts
    #[arg(long, value_name = "FILE", help_heading = "Results")]
    pub report: Option<PathBuf>,
    /// Show no progress
    #[arg(long, short, help_heading = "Results")]
    pub quiet: bool,
}

impl OutputArgs {
    /// Checks that the files can be written, before hours of measuring.
    pub fn check(&self) -> Result<()> {
        check_files([&self.json, &self.csv, &self.report])
    }

    /// Writes everything.
    pub fn write(&self, context: &Context) -> Result<()> {
        context.write()?;
        if let Some(path) = &self.csv {
            report::write_whole(&vfs::RealFs, path, report::csv(&context.session).as_bytes())
                .context("writing the table")?;
        }
        if let Some(path) = &self.report {
            let page = report::html::page(&context.session);
            report::write_whole(&vfs::RealFs, path, page.as_bytes()).context("writing the report")?;
        }
        for path in [&self.json, &self.csv, &self.report]
            .into_iter()
            .flatten()
            .filter(|_| !self.quiet)
        {
            eprintln!("==> {}", path.display());
        }
        Ok(())
    }
}

/// Writes to the screen. A reader that has gone away must not end a measurement, nor keep its files from being written.
pub fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Checks that files can be made, or replaced: a file is written beside its place and then put there, which would put
/// it in the place of a device, too.
pub fn check_files<const N: usize>(paths: [&Option<PathBuf>; N]) -> Result<()> {
    for path in paths.into_iter().flatten() {
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        anyhow::ensure!(
            parent.is_dir(),
            "{} is no directory to write {} into",
            parent.display(),
            path.display()
        );
        anyhow::ensure!(!path.is_dir(), "{} is a directory", path.display());
        anyhow::ensure!(
            !path.exists() || path.is_file(),
            "{} is no file that could be replaced",
            path.display()
        );
    }
    Ok(())
}

/// The command line without the program's folder and without the files of results, which do not decide what is
/// measured.
fn called_as(arguments: impl Iterator<Item = String>) -> Vec<String> {
    const FILES: [&str; 3] = ["--json", "--csv", "--report"];
    let mut line = Vec::new();
    let mut arguments = arguments;
    if let Some(program) = arguments.next() {
        let name = Path::new(&program)
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        line.push(name.unwrap_or(program));
    }
    while let Some(argument) = arguments.next() {
        if FILES.contains(&argument.as_str()) {
            arguments.next();
        } else if !FILES.iter().any(|file| argument.starts_with(&format!("{file}="))) {
            line.push(argument);
        }
    }
    line
}

/// What this process was called as, for results. Arguments need not be Unicode; those that are not are shown as well as
/// can be.
pub fn command_line() -> Vec<String> {
    called_as(std::env::args_os().map(|word| word.to_string_lossy().into_owned()))
}

/// The most telling figures of each run.
pub fn table(session: &Session) -> String {
    let head = [
        "configuration",
        "workload",
        "phase",
        "ops/s",
        "errors",
        "p50 ms",
        "p99 ms",
        "max ms",
        "CPU us",
        "read B",
        "written B",
        "files MB",
        "RSS MB",
        "own CPU",
    ];
    layout(&head, session.runs.iter().map(row)) + &contention(session) + &sets::tables(session) + &remarks(session)
}

/// What conflicts cost in runs that may have had some; nothing when there are none.
fn contention(session: &Session) -> String {
    let head = [
        "configuration",
        "workload",
        "phase",
        "restarts/op",
        "slowest client",
        "longest op",
    ];
    let row = |run: &Run| {
        let figure = |name| {
            let value = run.figures.get(name);
            value.map_or("-".to_owned(), |value| report::number::named(name, *value))
        };
        run.figures.contains_key(report::LONGEST_OPERATION).then(|| {
            vec![
                run.configuration.label.clone(),
                run.workload.clone(),
                phase(run),
                figure(report::RESTARTS),
                figure(report::SLOWEST_CLIENT),
                figure(report::LONGEST_OPERATION),
            ]
        })
    };
    let rows: Vec<_> = session.runs.iter().filter_map(row).collect();
    match rows.is_empty() {
        true => String::new(),
        false => format!("\n{}", layout(&head, rows.into_iter())),
    }
}

/// Lines of equal columns; the first three are names.
fn layout(head: &[&str], lines: impl Iterator<Item = Vec<String>>) -> String {
    let mut rows: Vec<Vec<String>> = vec![head.iter().map(|cell| (*cell).to_owned()).collect()];
    rows.extend(lines);
    let widths: Vec<usize> = (0..head.len())
        .map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if column < 3 {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            };
            text.push_str(if column == 0 { "" } else { "  " });
            text.push_str(&cell);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

/// The phase with what tells it from its namesakes, and its repetition.
fn phase(run: &Run) -> String {
    let mut phase = run.phase.clone();
    let telling: &[&str] = match run.workload.as_str() {
        "linkbench" => &["indexes", "bound"],
        "transactions" => &["backoff"],
        "replicaSet" => &["writeConcern", "electionTimeoutMillis", "to"],
        _ => &[],
    };
    if matches!(run.workload.as_str(), "transactions" | "replicaSet") {
        phase += &format!(" {}", run.clients);
    }
    for value in telling.iter().filter_map(|name| run.parameters.get(*name)) {
        phase += &format!(" {value}");
    }
    if run.repetition > 0 {
        phase += &format!(" #{}", run.repetition + 1);
    }
    phase
}

fn row(run: &Run) -> Vec<String> {
    let figure = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let megabytes = |bytes: Option<u64>| figure(bytes.map(|bytes| bytes as f64 / 1e6), 1);
    // The operation that was done most stands for the run.
    let main = run.operations.values().max_by_key(|operation| operation.count);
    let latency = main.and_then(|operation| operation.latency.as_ref());
    let milliseconds = |ns: Option<u64>| figure(ns.map(|ns| ns as f64 / 1e6), 3);
    let outcome = match &run.outcome {
        Outcome::Complete if run.collapsed().is_some() => " COLLAPSED".to_owned(),
        Outcome::Complete => String::new(),
        Outcome::Failed { .. } => " FAILED".to_owned(),
        other => format!(" ({})", other.word()),
    };
    vec![
        run.configuration.label.clone(),
        run.workload.clone(),
        phase(run) + &outcome,
        figure(run.rate(), 0),
        run.errors().to_string(),
        milliseconds(latency.map(|latency| latency.p50_ns)),
        milliseconds(latency.map(|latency| latency.p99_ns)),
        milliseconds(latency.map(|latency| latency.max_ns)),
        figure(run.server_cpu_us_per_operation(), 1),
        figure(run.per_operation(run.read_bytes), 0),
        figure(run.per_operation(run.written_bytes), 0),
        megabytes(run.file_bytes),
        megabytes(run.rss_peak_bytes),
        run.figures
            .get("generatorCpuShare")
            .map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0)),
    ]
}

fn remarks(session: &Session) -> String {
    let mut text = String::from(
        "\nCPU us, read B, written B: of the server, per operation. Latencies: of the operation that was done most.\n\
         own CPU: the load generator's share of the processor time of generator and server.\n",
    );
    // Each sentence once, with all that it is about.
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for run in &session.runs {
        let label = run.configuration.label.as_str();
        for note in &run.notes {
            match notes.iter_mut().find(|(known, _)| known == note) {
                None => notes.push((note, vec![label])),
                Some((_, labels)) if !labels.contains(&label) => labels.push(label),
                Some(_) => {}
            }
        }
    }
    for (note, labels) in notes {
        text += &format!("{}: {note}\n", labels.join(", "));
    }
    let disturbed = session.runs.iter().filter_map(|run| Some((run, run.disturbed()?)));
    if let Some((run, share)) = disturbed.clone().max_by(|a, b| a.1.total_cmp(&b.1)) {
        text += &format!(
            "other programs took more than {} of the processors in {} of {} runs, {} in {} {} {}: rates and latencies are theirs as well\n",
            report::number::percent(report::OTHERS_CPU_SHARE_MAX),
            disturbed.count(),
            session.runs.len(),
            report::number::percent(share),
            run.configuration.label,
            run.workload,
            phase(run)
        );
    }
    for run in &session.runs {
        if let Some(part) = run.collapsed() {
            let beside = match run.disturbed() {
                Some(_) => ", beside other programs",
                None => "",
            };
            text += &format!(
                "{} {} {} COLLAPSED: its slowest second had {:.1} % of a good second's operations, less than a tenth{beside}\n",
                run.configuration.label,
                run.workload,
                phase(run),
                part * 100.0
            );
        }
        let word = match run.outcome {
            Outcome::Failed { .. } => "FAILED",
            _ => run.outcome.word(),
        };
        if let Some(message) = run.outcome.message() {
            text += &format!(
                "{} {} {} {word}: {message}\n",
                run.configuration.label,
                run.workload,
                phase(run)
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::{Configuration, Machine, Operation};

    #[test]
    fn runs_have_a_line_and_failures_a_reason() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        let configuration = Configuration {
            label: "engine".to_owned(),
            ..Configuration::default()
        };
        let mut run = Run::new("ycsb", "a", configuration);
        run.seconds = 2.0;
        run.server_cpu_us = Some(250_000);
        let operation = Operation {
            count: 1000,
            errors: 0,
            latency: None,
        };
        run.operations.insert("read".to_owned(), operation);
        run.outcome = Outcome::Failed {
            message: "the disk is full".to_owned(),
        };
        session.runs.push(run);
        let text = table(&session);
        let line = text.lines().nth(1).expect("a line");
        assert!(
            line.contains("engine") && line.contains("500") && line.contains("250.0"),
            "{line}"
        );
        assert!(text.contains("FAILED: the disk is full"), "{text}");
        session.runs[0].server_cpu_us = Some(10_000);
        assert!(!table(&session).contains("10.0"), "one tick may be none");
        assert!(line.ends_with("-"), "nothing is known of the generator: {line}");
    }

    #[test]
    fn a_run_that_collapsed_fails() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        let mut run = Run::new("ycsb", "a", Configuration::default());
        run.figures.insert(report::COLLAPSED.to_owned(), 0.042);
        session.runs.push(run);
        let text = table(&session);
        assert!(text.lines().nth(1).expect("a line").contains("a COLLAPSED"), "{text}");
        assert!(
            text.contains("COLLAPSED: its slowest second had 4.2 %") && !text.contains("other programs"),
            "{text}"
        );
        session.runs[0].others_cpu_share = Some(0.5);
        let text = table(&session);
        assert!(text.contains("less than a tenth, beside other programs\n"), "{text}");
        let told = "other programs took more than 10 % of the processors in 1 of 1 runs, 50 % in  ycsb a:";
        assert!(text.contains(told), "{text}");
    }

    #[test]
    fn conflicts_have_a_table_of_their_own() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        session
            .runs
            .push(Run::new("transactions", "load", Configuration::default()));
        assert!(!table(&session).contains("restarts/op"), "there were none to see");
        let mut run = Run::new("transactions", "hot", Configuration::default());
        run.clients = 64;
        run.parameters.insert("backoff".to_owned(), "none".to_owned());
        let figures = [
            (report::RESTARTS, 42.1),
            (report::SLOWEST_CLIENT, 0.095),
            (report::LONGEST_OPERATION, 2.8),
        ];
        run.figures = figures.map(|(name, value)| (name.to_owned(), value)).into();
        session.runs.push(run);
        let text = table(&session);
        let of_run: Vec<&str> = text.lines().filter(|line| line.contains("hot 64 none")).collect();
        assert_eq!(of_run.len(), 2, "{text}");
        assert!(of_run[1].ends_with(" 42.1           9.5 %      2.80 s"), "{text}");
    }

    #[test]
    fn a_sentence_about_several_stands_once_with_all_of_them() {
        let mut session = Session::new("test", 0, Vec::new(), Machine::default());
        for (label, note) in [("one", "cold"), ("two", "cold"), ("two", "cold"), ("two", "small")] {
            let configuration = Configuration {
                label: label.to_owned(),
                ..Configuration::default()
            };
            let mut run = Run::new("scan", "cold", configuration);
            run.notes.push(note.to_owned());
            session.runs.push(run);
        }
        let text = table(&session);
        assert!(text.ends_with("\none, two: cold\ntwo: small\n"), "{text}");
    }

    #[test]
    fn the_command_line_is_kept_without_places_of_results() {
        let line = "/opt/bin/tenon bench ycsb --json /home/me/a.json --scale 2 --report=x.html --quiet";
        let kept = called_as(line.split(' ').map(str::to_owned));
        assert_eq!(kept.join(" "), "tenon bench ycsb --scale 2 --quiet");
    }

    #[test]
    fn what_is_no_file_is_not_replaced() {
        let directory = tempfile::tempdir().expect("a directory");
        let check = |path: &Path| check_files([&Some(path.to_path_buf())]).map_err(|error| error.to_string());
        assert_eq!(check(&directory.path().join("new.json")), Ok(()));
        for (path, words) in [
            (directory.path().to_path_buf(), "is a directory"),
            (directory.path().join("none/x.json"), "is no directory"),
            (PathBuf::from("/dev/null"), "is no file that could be replaced"),
        ] {
            let error = check(&path).expect_err("it is refused");
            assert!(error.contains(words), "{error}");
        }
    }
}
