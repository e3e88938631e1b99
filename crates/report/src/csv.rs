//! A session as CSV (RFC 4180): one line per run and operation, for spreadsheets and scripts.

use crate::{Latency, Pacing, Run, Session};

const HEADER: [&str; 42] = [
    "workload",
    "phase",
    "configuration",
    "engine",
    "server_version",
    "options",
    "parameters",
    "seed",
    "repetition",
    "clients",
    "loop",
    "rate",
    "started_ms",
    "outcome",
    "seconds",
    "run_operations",
    "run_operations_per_second",
    "server_cpu_us_per_operation",
    "generator_cpu_us_per_operation",
    "read_bytes",
    "read_requests",
    "written_bytes",
    "document_bytes",
    "file_bytes",
    "rss_peak_bytes",
    "checkpoints",
    "stall_seconds",
    "start_seconds",
    "stop_seconds",
    "operation",
    "count",
    "errors",
    "operations_per_second",
    "mean_us",
    "p50_us",
    "p75_us",
    "p90_us",
    "p95_us",
    "p99_us",
    "p99.9_us",
    "p99.99_us",
    "max_us",
];

/// The session as CSV. A run without operations has one line with an empty operation.
pub fn csv(session: &Session) -> String {
    let mut text = String::new();
    line(&mut text, HEADER.iter().map(|name| (*name).to_owned()));
    for run in &session.runs {
        let of_run = run_fields(run);
        for (name, operation) in &run.operations {
            let mut fields = of_run.clone();
            fields.push(name.clone());
            fields.push(operation.count.to_string());
            fields.push(operation.errors.to_string());
            fields.push(known((run.seconds > 0.0).then(|| operation.count as f64 / run.seconds)));
            fields.extend(latency_fields(operation.latency.as_ref()));
            line(&mut text, fields);
        }
        if run.operations.is_empty() {
            let empty = HEADER.len() - of_run.len();
            line(&mut text, of_run.into_iter().chain((0..empty).map(|_| String::new())));
        }
    }
    text
}

fn run_fields(run: &Run) -> Vec<String> {
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        map.iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(";")
    };
    let (pacing, rate) = match run.pacing {
        Pacing::Closed => ("closed", String::new()),
        Pacing::Open { rate } => ("open", rate.to_string()),
    };
    let word = run.outcome.word();
    let outcome = match run.outcome.message() {
        None => word.to_owned(),
        Some(message) => format!("{word}: {message}"),
    };
    vec![
        run.workload.clone(),
        run.phase.clone(),
        run.configuration.label.clone(),
        run.configuration.engine.clone(),
        run.configuration.server_version.clone(),
        pairs(&run.configuration.options),
        pairs(&run.parameters),
        run.seed.to_string(),
        run.repetition.to_string(),
        run.clients.to_string(),
        pacing.to_owned(),
        rate,
        run.started_ms.to_string(),
        outcome,
        run.seconds.to_string(),
        run.count().to_string(),
        known(run.rate()),
        known(run.server_cpu_us_per_operation()),
        known(run.generator_cpu_us_per_operation()),
        known(run.read_bytes),
        known(run.read_requests),
        known(run.written_bytes),
        known(run.document_bytes),
        known(run.file_bytes),
        known(run.rss_peak_bytes),
        known(run.checkpoint_count()),
        // The sum of none is -0.
        (run.stalls.iter().map(|span| span.seconds).sum::<f64>() + 0.0).to_string(),
        known(run.start_seconds),
        known(run.stop_seconds),
    ]
}

fn latency_fields(latency: Option<&Latency>) -> Vec<String> {
    let us = |ns: u64| (ns as f64 / 1e3).to_string();
    match latency {
        None => vec![String::new(); 9],
        Some(latency) => vec![
            (latency.mean_ns / 1e3).to_string(),
            us(latency.p50_ns),
            us(latency.p75_ns),
            us(latency.p90_ns),
            us(latency.p95_ns),
            us(latency.p99_ns),
            us(latency.p999_ns),
            us(latency.p9999_ns),
            us(latency.max_ns),
        ],
    }
}

/// The number, or nothing when it is not known.
fn known<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn line(text: &mut String, fields: impl IntoIterator<Item = String>) {
    for (index, field) in fields.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        if field.contains(['"', ',', '\n', '\r']) {
            text.push('"');
            text.push_str(&field.replace('"', "\"\""));
            text.push('"');
        } else {
            text.push_str(&field);
        }
    }
    text.push_str("\r\n");
}
