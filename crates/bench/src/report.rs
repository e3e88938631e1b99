//! The figures as a table and as JSON, beside what MongoDB needs and what the project aims at.

use crate::run::{Measurement, Workload};
use crate::session::Findings;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::time::Duration;

/// Connections at which the reference was measured.
const REFERENCE_CONNECTIONS: usize = 8;

/// mongod 4.0 on the reference machine: server CPU in microseconds and bytes written to disk, per operation.
struct Reference {
    cpu_us: f64,
    written_bytes: Option<f64>,
}

/// Only these three were measured. `mix` is one operation, read or update.
fn reference(workload: Workload) -> Option<Reference> {
    match workload {
        Workload::Read => Some(Reference {
            cpu_us: 35.0,
            written_bytes: None,
        }),
        Workload::Insert => Some(Reference {
            cpu_us: 45.0,
            written_bytes: Some(2300.0),
        }),
        Workload::Mix => Some(Reference {
            cpu_us: 65.0,
            written_bytes: None,
        }),
        Workload::InsertBatch | Workload::Update => None,
    }
}

/// The share of mongod's CPU that an engine may use. Engines without an aim of their own are held to RocksDB's.
fn aimed_share(engine: &str) -> f64 {
    if engine == "inMemory" { 0.5 } else { 2.0 / 3.0 }
}

/// The CPU aimed at for a run, in microseconds per operation.
fn aim_cpu_us(engine: &str, measurement: &Measurement) -> Option<f64> {
    let at_reference = measurement.connections == REFERENCE_CONNECTIONS;
    let reference = reference(measurement.workload).filter(|_| at_reference)?;
    Some(reference.cpu_us * aimed_share(engine))
}

/// The findings of one server as text.
pub fn table(findings: &Findings) -> String {
    let mut text = format!("\n{}\n", findings.name);
    let seconds = |time: Option<Duration>| time.map_or("-".to_owned(), |time| format!("{:.3} s", time.as_secs_f64()));
    let mebibytes = |bytes: Option<u64>| bytes.map_or("-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
    line(
        &mut text,
        "start-up, shutdown",
        &[seconds(findings.start_time), seconds(findings.stop_time)].join(", "),
    );
    let resident = [
        mebibytes(findings.resident_at_start),
        mebibytes(findings.resident_loaded),
    ]
    .join(", ");
    line(&mut text, "memory at start, loaded", &resident);
    if let Some((documents, time)) = findings.load {
        let rate = documents as f64 / time.as_secs_f64();
        line(&mut text, "load", &format!("{documents} documents, {rate:.0}/s"));
    }
    if let Some(idle) = &findings.idle {
        line(&mut text, "idle connections", &idle.connections.to_string());
        if let Some((before, with)) = idle.resident {
            let each = with.saturating_sub(before) as f64 / idle.connections as f64 / 1024.0;
            let memory = format!("{} MiB, {each:.1} KiB each", with >> 20);
            line(&mut text, "  memory with them", &memory);
        }
        if let Some(cpu) = idle.idle_cpu {
            line(
                &mut text,
                "  CPU while idle",
                &format!("{:.1} %", cpu.as_secs_f64() * 100.0),
            );
        }
        let read = &idle.read;
        let figures = format!(
            "{:.0}/s, p99 {}",
            read.rate(),
            microseconds(read.latency.value_at_quantile(0.99))
        );
        line(&mut text, "  point reads beside", &figures);
    }
    let _ = writeln!(
        text,
        "\n{:<12} {:>5} {:>9} {:>8} {:>9} {:>9} {:>9} {:>10}  {:>7} {:>6}",
        "workload", "conns", "ops/s", "CPU us", "disk B", "p50 us", "p99 us", "max us", "mongod", "aim"
    );
    for measurement in &findings.measurements {
        row(&mut text, &findings.name, measurement);
    }
    text
}

fn line(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "  {name:<26} {value}");
}

fn row(text: &mut String, engine: &str, measurement: &Measurement) {
    let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1}"));
    let at_reference = measurement.connections == REFERENCE_CONNECTIONS;
    let mongod = reference(measurement.workload).filter(|_| at_reference);
    let aim = aim_cpu_us(engine, measurement);
    let verdict = match (measurement.cpu_us(), aim) {
        (Some(cpu), Some(aim)) if cpu <= aim => " met",
        (Some(_), Some(_)) => " MISSED",
        _ => "",
    };
    let _ = write!(
        text,
        "{:<12} {:>5} {:>9.0} {:>8} {:>9} {:>9} {:>9} {:>10}  {:>7} {:>6}{verdict}",
        measurement.workload.name(),
        measurement.connections,
        measurement.rate(),
        number(measurement.cpu_us()),
        number(measurement.written_per_operation()),
        microseconds(measurement.latency.value_at_quantile(0.5)),
        microseconds(measurement.latency.value_at_quantile(0.99)),
        microseconds(measurement.latency.max()),
        number(mongod.as_ref().map(|mongod| mongod.cpu_us)),
        number(aim),
    );
    if let Some(written) = mongod.and_then(|mongod| mongod.written_bytes) {
        let _ = write!(text, "  (mongod {written:.0} B to disk)");
    }
    text.push('\n');
}

fn microseconds(nanoseconds: u64) -> String {
    format!("{:.1}", nanoseconds as f64 / 1000.0)
}

/// What the table's columns mean.
pub const LEGEND: &str = "\
ops/s: the generator shares the machine with the server. CPU us: server CPU per operation, all threads, kernel included.
disk B: bytes written per operation until all is durable. Batches: per document, but latency per batch.
mongod, aim: CPU us of mongod 4.0 at 8 connections, and what the engine is to stay below.";

/// The findings of all servers as JSON: times in seconds, latencies in microseconds, sizes in bytes.
pub fn json(findings: &[Findings]) -> Value {
    json!({ "servers": findings.iter().map(server_json).collect::<Vec<_>>() })
}

fn server_json(findings: &Findings) -> Value {
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    let idle = findings.idle.as_ref().map(|idle| {
        json!({
            "connections": idle.connections,
            "residentBytesBefore": idle.resident.map(|resident| resident.0),
            "residentBytesWith": idle.resident.map(|resident| resident.1),
            "idleCpuShare": seconds(idle.idle_cpu),
            "read": measurement_json(&findings.name, &idle.read),
        })
    });
    json!({
        "name": findings.name,
        "startSeconds": seconds(findings.start_time),
        "stopSeconds": seconds(findings.stop_time),
        "residentBytesAtStart": findings.resident_at_start,
        "residentBytesLoaded": findings.resident_loaded,
        "load": findings.load.map(|(documents, time)| json!({ "documents": documents, "seconds": time.as_secs_f64() })),
        "idle": idle,
        "runs": findings.measurements.iter().map(|run| measurement_json(&findings.name, run)).collect::<Vec<_>>(),
    })
}

fn measurement_json(engine: &str, measurement: &Measurement) -> Value {
    let quantile = |quantile| measurement.latency.value_at_quantile(quantile) as f64 / 1000.0;
    json!({
        "workload": measurement.workload.name(),
        "connections": measurement.connections,
        "operations": measurement.operations,
        "seconds": measurement.elapsed.as_secs_f64(),
        "operationsPerSecond": measurement.rate(),
        "serverCpuMicrosPerOperation": measurement.cpu_us(),
        "aimCpuMicrosPerOperation": aim_cpu_us(engine, measurement),
        "diskBytesPerOperation": measurement.written_per_operation(),
        "latencyMicros": {
            "p50": quantile(0.5),
            "p99": quantile(0.99),
            "max": measurement.latency.max() as f64 / 1000.0,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Idle;
    use hdrhistogram::Histogram;

    fn measurement(workload: Workload, connections: usize, cpu_ms: u64) -> Measurement {
        let mut latency = Histogram::new(3).expect("it is a precision");
        latency.record_n(50_000, 1000).expect("it grows");
        Measurement {
            workload,
            connections,
            operations: 1000,
            elapsed: Duration::from_secs(2),
            server_cpu: Some(Duration::from_millis(cpu_ms)),
            written_bytes: Some(4_000_000),
            latency,
        }
    }

    fn findings() -> Findings {
        Findings {
            name: "inMemory".to_owned(),
            start_time: Some(Duration::from_millis(50)),
            measurements: vec![
                measurement(Workload::Read, 8, 17),
                measurement(Workload::Insert, 8, 23),
                measurement(Workload::Insert, 1, 23),
            ],
            idle: Some(Idle {
                connections: 1024,
                resident: Some((1 << 20, 3 << 20)),
                idle_cpu: None,
                read: measurement(Workload::Read, 1, 10),
            }),
            ..Findings::default()
        }
    }

    #[test]
    fn the_table_shows_figures_beside_aims() {
        let text = table(&findings());
        let row = |name: &str, connections: &str| {
            let found = text.lines().find(|line| {
                let mut words = line.split_whitespace();
                words.next() == Some(name) && words.next() == Some(connections)
            });
            found
                .unwrap_or_else(|| panic!("{name} {connections} in {text}"))
                .split_whitespace()
                .collect::<Vec<_>>()
        };
        assert_eq!(row("read", "8")[2..6], ["500", "17.0", "4000.0", "50.0"]);
        assert_eq!(row("read", "8")[8..], ["35.0", "17.5", "met"]);
        assert_eq!(row("insert", "8")[8..11], ["45.0", "22.5", "MISSED"]);
        assert_eq!(row("insert", "1")[8..], ["-", "-"]);
        assert!(text.contains("3 MiB, 2.0 KiB each"), "{text}");
    }

    #[test]
    fn json_has_the_same_figures() {
        let value = json(&[findings()]);
        let run = &value["servers"][0]["runs"][0];
        assert_eq!(run["operationsPerSecond"], 500.0);
        assert_eq!(run["serverCpuMicrosPerOperation"], 17.0);
        assert_eq!(run["aimCpuMicrosPerOperation"], 17.5);
        assert_eq!(value["servers"][0]["startSeconds"], 0.05);
        assert_eq!(value["servers"][0]["stopSeconds"], Value::Null);
    }

    #[test]
    fn other_engines_have_two_thirds() {
        let aim = aim_cpu_us("rocksdb", &measurement(Workload::Mix, 8, 1)).expect("there is one");
        assert!((aim - 65.0 * 2.0 / 3.0).abs() < 1e-9);
    }
}
