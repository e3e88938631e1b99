//! The file of a session: JSON, written whole or not at all, and checked when read.

use crate::{Error, FORMAT, Latency, Result, Run, Series, Session, limits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use vfs::{Access, FileSystem};

/// What every format of the file has.
#[derive(Deserialize)]
struct Head {
    format: u64,
}

/// Writes a file by a temporary one beside it, so that a reader sees the old bytes or the new ones.
pub fn write_whole(fs: &dyn FileSystem, path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |action: &'static str, path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::Io { action, path, source }
    };
    let mut name = OsString::from(path);
    name.push(".tmp");
    let temporary = PathBuf::from(name);
    if fs.exists(&temporary).map_err(failed("looking for", &temporary))? {
        fs.remove_file(&temporary).map_err(failed("removing", &temporary))?;
    }
    let write = || {
        let file = fs.open(&temporary, Access::CreateNew)?;
        file.write_all_at(bytes, 0)?;
        file.sync_data()
    };
    if let Err(source) = write() {
        // A full disk: what is left of the attempt would only take more of it.
        let _ = fs.remove_file(&temporary);
        return Err(failed("writing", &temporary)(source));
    }
    fs.rename(&temporary, path).map_err(failed("renaming to", path))?;
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs.sync_directory(directory)
        .map_err(failed("making durable", directory))
}

impl Session {
    /// Writes it to a file, which is replaced as a whole.
    pub fn write(&self, fs: &dyn FileSystem, path: &Path) -> Result<()> {
        self.validate()?;
        let json = |source| Error::Json {
            path: path.to_path_buf(),
            source,
        };
        let mut bytes = serde_json::to_vec(self).map_err(json)?;
        bytes.push(b'\n');
        let length = bytes.len() as u64;
        limit("the session", "bytes of JSON", length, limits::FILE_BYTES_MAX)?;
        write_whole(fs, path, &bytes)
    }

    /// Reads it from a file and checks it.
    pub fn read(fs: &dyn FileSystem, path: &Path) -> Result<Self> {
        let failed = |source| Error::Io {
            action: "reading",
            path: path.to_path_buf(),
            source,
        };
        let file = fs.open(path, Access::Read).map_err(failed)?;
        let length = file.len().map_err(failed)?;
        limit(&path.display().to_string(), "bytes", length, limits::FILE_BYTES_MAX)?;
        let mut bytes = vec![0; usize::try_from(length).expect("it is below the limit")];
        file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        Self::parse(&bytes, path)
    }

    /// Reads it from a file's bytes and checks it. The path is for messages.
    pub fn parse(bytes: &[u8], path: &Path) -> Result<Self> {
        let json = |source| Error::Json {
            path: path.to_path_buf(),
            source,
        };
        let head: Head = serde_json::from_slice(bytes).map_err(json)?;
        if head.format != FORMAT {
            return Err(Error::Format {
                path: path.to_path_buf(),
                found: head.format,
                expected: FORMAT,
            });
        }
        let session: Self = serde_json::from_slice(bytes).map_err(json)?;
        session.validate()?;
        Ok(session)
    }

    /// Checks all limits and that values do not contradict each other.
    pub fn validate(&self) -> Result<()> {
        text("tool", &self.tool)?;
        texts("commandLine", self.command_line.iter())?;
        let machine = &self.machine;
        texts(
            "machine",
            [&machine.cpu, &machine.kernel, &machine.file_system, &machine.disk].into_iter(),
        )?;
        limit("runs", "runs", self.runs.len() as u64, limits::RUNS_MAX as u64)?;
        for (index, run) in self.runs.iter().enumerate() {
            check_run(&format!("runs[{index}]"), run)?;
        }
        Ok(())
    }
}

fn check_run(place: &str, run: &Run) -> Result<()> {
    let at = |field: &str| format!("{place}.{field}");
    let configuration = &run.configuration;
    texts(&at("names"), [&run.workload, &run.phase].into_iter())?;
    let fixed = [
        &configuration.label,
        &configuration.engine,
        &configuration.server_version,
        &configuration.yaml,
    ];
    texts(&at("configuration"), fixed.into_iter())?;
    map(&at("configuration.options"), &configuration.options)?;
    map(&at("parameters"), &run.parameters)?;
    texts(&at("notes"), run.notes.iter())?;
    texts(&at("figures"), run.figures.keys())?;
    if let Some(message) = run.outcome.message() {
        text(&at("outcome"), message)?;
    }
    if let crate::Pacing::Open { rate } = run.pacing {
        positive(&at("pacing.rate"), rate)?;
    }
    let seconds = [Some(run.seconds), run.start_seconds, run.stop_seconds];
    let iterations = run.iterations.iter().map(|iteration| iteration.seconds);
    limit(
        &at("iterations"),
        "iterations",
        run.iterations.len() as u64,
        limits::ITERATIONS_MAX as u64,
    )?;
    for value in seconds.into_iter().flatten().chain(iterations) {
        not_negative(&at("seconds"), value)?;
    }
    for (name, value) in &run.figures {
        if !value.is_finite() {
            return invalid(&at("figures"), format!("{name} is {value}"));
        }
    }
    for spans in [Some(&run.stalls), run.checkpoints.as_ref()].into_iter().flatten() {
        limit(&at("spans"), "spans", spans.len() as u64, limits::SPANS_MAX as u64)?;
        for span in spans {
            not_negative(&at("spans"), span.at_seconds)?;
            not_negative(&at("spans"), span.seconds)?;
        }
    }
    limit(
        &at("operations"),
        "operations",
        run.operations.len() as u64,
        limits::OPERATIONS_MAX as u64,
    )?;
    for (name, operation) in &run.operations {
        text(&at("operations"), name)?;
        if let Some(latency) = &operation.latency {
            check_latency(&at(&format!("operations.{name}.latency")), latency)?;
        }
    }
    check_series(&at("series"), &run.series)
}

fn check_latency(place: &str, latency: &Latency) -> Result<()> {
    limit(
        place,
        "buckets",
        latency.buckets.len() as u64,
        limits::BUCKETS_MAX as u64,
    )?;
    if !latency.buckets.is_sorted_by(|a, b| a.0 < b.0) {
        return invalid(place, "the buckets are not ascending".to_owned());
    }
    let counted = latency
        .buckets
        .iter()
        .try_fold(0u64, |sum, bucket| sum.checked_add(bucket.1));
    if counted != Some(latency.count) {
        return invalid(place, format!("the buckets do not hold {} commands", latency.count));
    }
    not_negative(place, latency.mean_ns)?;
    let ascending = [
        latency.min_ns,
        latency.p50_ns,
        latency.p75_ns,
        latency.p90_ns,
        latency.p95_ns,
        latency.p99_ns,
        latency.p999_ns,
        latency.p9999_ns,
    ];
    if !ascending.is_sorted() {
        return invalid(place, "the percentiles are not ascending".to_owned());
    }
    Ok(())
}

fn check_series(place: &str, series: &Series) -> Result<()> {
    positive(&format!("{place}.intervalSeconds"), series.interval_seconds)?;
    for kinds in [&series.operations, &series.latency_p99_ns] {
        limit(place, "operations", kinds.len() as u64, limits::OPERATIONS_MAX as u64)?;
        for name in kinds.keys() {
            text(place, name)?;
        }
    }
    let others = [
        &series.server_cpu_us,
        &series.rss_bytes,
        &series.read_bytes,
        &series.written_bytes,
        &series.dirty_bytes,
        &series.cache_bytes,
    ];
    let mut points = None;
    for column in series
        .operations
        .values()
        .chain(series.latency_p99_ns.values())
        .chain(others.into_iter().filter(|column| !column.is_empty()))
    {
        limit(place, "points", column.len() as u64, limits::POINTS_MAX as u64)?;
        if *points.get_or_insert(column.len()) != column.len() {
            return invalid(place, "the columns are not equally long".to_owned());
        }
    }
    Ok(())
}

fn limit(place: &str, what: &'static str, found: u64, limit: u64) -> Result<()> {
    if found <= limit {
        return Ok(());
    }
    Err(Error::TooMany {
        place: place.to_owned(),
        what,
        found,
        limit,
    })
}

fn invalid(place: &str, problem: String) -> Result<()> {
    Err(Error::Invalid {
        place: place.to_owned(),
        problem,
    })
}

fn not_negative(place: &str, value: f64) -> Result<()> {
    if value.is_finite() && value >= 0.0 {
        Ok(())
    } else {
        invalid(place, format!("{value} is not possible"))
    }
}

fn positive(place: &str, value: f64) -> Result<()> {
    if value.is_finite() && value > 0.0 {
        Ok(())
    } else {
        invalid(place, format!("{value} is not possible"))
    }
}

fn text(place: &str, text: &str) -> Result<()> {
    limit(place, "bytes of text", text.len() as u64, limits::TEXT_BYTES_MAX as u64)
}

fn texts<'a>(place: &str, values: impl Iterator<Item = &'a String>) -> Result<()> {
    let mut entries = 0;
    for value in values {
        entries += 1;
        text(place, value)?;
    }
    limit(place, "entries", entries, limits::ENTRIES_MAX as u64)
}

fn map(place: &str, map: &BTreeMap<String, String>) -> Result<()> {
    texts(place, map.keys())?;
    texts(place, map.values())
}
