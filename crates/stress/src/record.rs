//! A run in the form in which all measurements are kept: two runs for each cell, its writes and its reads.
//!
//! The phase names the size as well, because only cells of one size are comparable; the rest of a cell is its
//! configuration.

use crate::cell::{CellOutcome, CellResult};
use crate::document::Tally;
use crate::event::Phase;
use crate::load::PhaseResult;
use crate::matrix::{Capped, Journal, Size, Topology, WriteConcern};
use crate::settings::Settings;
use crate::tables::mebibytes_per_second;
use report::{Configuration, Latency, Operation, Outcome, Run, stalls};
use std::collections::BTreeMap;

/// The workload's name.
pub const WORKLOAD: &str = "stress";

/// The runs of all cells. `version`: the server's name and version.
pub fn runs(results: &[CellResult], settings: &Settings, version: &str) -> Vec<Run> {
    results
        .iter()
        .flat_map(|result| runs_of(result, settings, version))
        .collect()
}

fn runs_of(result: &CellResult, settings: &Settings, version: &str) -> Vec<Run> {
    if let CellOutcome::Impossible(_) = &result.outcome {
        // The cells of a table share the reason, which is the engine's.
        let mut run = blank(result, settings, version, Phase::Write);
        run.configuration.label.clone_from(&result.cell.engine);
        run.configuration.options.clear();
        run.outcome = outcome(&result.outcome);
        return if result.cell.is_first() { vec![run] } else { Vec::new() };
    }
    let mut write = blank(result, settings, version, Phase::Write);
    write.start_seconds = result.start_seconds;
    if let Some(phase) = &result.write {
        fill(&mut write, phase, Phase::Write, phase.documents, 0, settings);
        write.document_bytes = Some(phase.documents.saturating_mul(settings.document_bytes));
    }
    if let Some(seconds) = result.flush_seconds {
        write.figures.insert("flushSeconds".to_owned(), seconds);
    }
    if let Some(failover) = &result.failover {
        let figures = [
            ("secondsWithoutPrimary", Some(failover.seconds)),
            ("failedBatches", Some(failover.errors as f64)),
            ("rejoinSeconds", failover.rejoin_seconds),
        ];
        let known = figures
            .into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?)));
        write.figures.extend(known);
    }
    let Some(phase) = &result.read else {
        write.stop_seconds = result.stop_seconds;
        write.file_bytes = result.file_bytes;
        write.outcome = outcome(&result.outcome);
        write.notes.extend(result.notes.iter().cloned());
        return vec![write];
    };
    let mut read = reading(result, phase, &result.tally, Phase::Read, settings, version);
    read.stop_seconds = result.stop_seconds;
    read.file_bytes = result.file_bytes;
    read.outcome = outcome(&result.outcome);
    read.notes.extend(result.notes.iter().cloned());
    let figures = [
        ("late", result.missed.late as f64),
        (report::LOST, result.missed.lost as f64),
    ];
    read.figures
        .extend(figures.map(|(name, value)| (name.to_owned(), value)));
    let mut runs = vec![write, read];
    if let Some(phase) = &result.read_primary {
        let tally = &result.tally_primary;
        let mut read = reading(result, phase, tally, Phase::ReadPrimary, settings, version);
        read.outcome = outcome(&result.outcome);
        runs.push(read);
    }
    runs
}

/// The run of a phase of readers.
fn reading(
    result: &CellResult,
    phase: &PhaseResult,
    tally: &Tally,
    kind: Phase,
    settings: &Settings,
    version: &str,
) -> Run {
    let mut read = blank(result, settings, version, kind);
    fill(
        &mut read,
        phase,
        kind,
        tally.consistent,
        tally.asked() - tally.consistent,
        settings,
    );
    let figures = [(report::CONSISTENT, tally.share()), ("missing", tally.missing as f64)];
    let wrong = report::WRONG.into_iter().zip([tally.torn, tally.stale, tally.foreign]);
    let figures = figures
        .into_iter()
        .chain(wrong.map(|(name, count)| (name, count as f64)));
    read.figures
        .extend(figures.map(|(name, value)| (name.to_owned(), value)));
    read
}

fn blank(result: &CellResult, settings: &Settings, version: &str, phase: Phase) -> Run {
    let cell = &result.cell;
    let on_off = |on: bool| if on { "on" } else { "off" }.to_owned();
    let mut options = BTreeMap::from([
        ("writeConcern".to_owned(), cell.concern.name().to_owned()),
        ("journal".to_owned(), on_off(cell.journal == Journal::On)),
        ("capped".to_owned(), on_off(cell.capped == Capped::Yes)),
    ]);
    if cell.concern == WriteConcern::FsyncSafe {
        options.insert("fsync".to_owned(), settings.fsync.name().to_owned());
    }
    if settings.topology == Topology::ReplicaSet {
        options.insert("members".to_owned(), settings.members.to_string());
        options.insert("failover".to_owned(), on_off(cell.failover));
    }
    if !result.arguments.is_empty() {
        options.insert("arguments".to_owned(), result.arguments.clone());
    }
    let mut label = format!("{} {}", cell.engine, cell.concern.name());
    for (is_set, word) in [
        (cell.journal == Journal::On, " journal"),
        (cell.capped == Capped::Yes, " capped"),
        (cell.failover, " failover"),
    ] {
        label.push_str(if is_set { word } else { "" });
    }
    let configuration = Configuration {
        label,
        engine: cell.engine.clone(),
        options,
        server_version: version.to_owned(),
        yaml: String::new(),
    };
    let mut run = Run::new(
        WORKLOAD,
        format!("{}.{}", cell.size.name(), phase.name()),
        configuration,
    );
    let mut parameters = vec![
        ("documents", settings.documents(cell.size)),
        ("documentBytes", settings.document_bytes),
        ("batch", settings.batch),
        ("readBatch", settings.read_batch),
        ("compressible", u64::from(settings.compressible)),
    ];
    if cell.size == Size::LargerThanRam && !result.is_unlimited {
        parameters.push(("memoryBytes", settings.memory_bytes));
    }
    run.parameters = parameters
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .collect();
    if result.is_unlimited {
        run.parameters
            .insert("memoryBytes".to_owned(), "NOT limited".to_owned());
    }
    run.seed = settings.seed;
    run.clients = settings.threads as u32;
    run
}

fn fill(run: &mut Run, phase: &PhaseResult, kind: Phase, good: u64, bad: u64, settings: &Settings) {
    let operation = Operation {
        count: good,
        errors: bad,
        latency: Latency::from_histogram(&phase.latency),
    };
    run.operations.insert(kind.name().to_owned(), operation);
    run.started_ms = phase.started_ms;
    run.seconds = phase.seconds;
    run.series = phase.series.clone();
    run.stalls = stalls(&phase.series, phase.latency.len());
    run.server_cpu_us = phase.server_cpu_us;
    run.generator_cpu_us = phase.generator_cpu_us;
    run.read_bytes = phase.read_bytes;
    run.written_bytes = phase.written_bytes;
    run.rss_peak_bytes = phase.rss_peak_bytes;
    if let Some(speed) = mebibytes_per_second(phase, good, settings) {
        run.figures.insert("mebibytesPerSecond".to_owned(), speed);
    }
}

fn outcome(outcome: &CellOutcome) -> Outcome {
    match outcome {
        CellOutcome::Complete => Outcome::Complete,
        CellOutcome::Interrupted => Outcome::Interrupted,
        CellOutcome::Refused(reason) => Outcome::Refused {
            message: reason.clone(),
        },
        CellOutcome::Impossible(reason) => Outcome::Skipped {
            message: reason.clone(),
        },
        CellOutcome::Failed(reason) => Outcome::Failed {
            message: reason.clone(),
        },
    }
}
