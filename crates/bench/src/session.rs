//! All measurements of one server: load, workloads at each number of connections, idle connections.
//!
//! Invariant: a workload finds the collections as the first one did: [`DOCUMENTS`] loaded, [`INSERTS`] empty.

use crate::connection::Connection;
use crate::messages::{BATCH, DATABASE, DOCUMENTS, INSERTS, Templates};
use crate::options::Options;
use crate::process::{ServerCommand, ServerProcess, raise_open_files, usage};
use crate::run::{Durations, Measurement, Target, Workload, run};
use anyhow::{Context, Result, ensure};
use bson::rawdoc;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::thread;
use std::time::{Duration, Instant};

/// Inserted documents count from here, loaded ones from 0.
const FIRST_INSERT: u64 = 1 << 40;
/// Open files that are not idle connections.
const OTHER_FILES: u64 = 100;

/// What one server showed.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The engine, or the address of a server that was there.
    pub name: String,
    /// From starting the program to its first connection.
    pub start_time: Option<Duration>,
    /// From SIGTERM to the end.
    pub stop_time: Option<Duration>,
    /// Memory right after the start.
    pub resident_at_start: Option<u64>,
    /// Documents loaded, and how long that took.
    pub load: Option<(u64, Duration)>,
    /// Memory after the load.
    pub resident_loaded: Option<u64>,
    /// The workloads.
    pub measurements: Vec<Measurement>,
    /// Idle connections.
    pub idle: Option<Idle>,
}

/// What idle connections cost.
#[derive(Clone, Debug)]
pub struct Idle {
    /// How many.
    pub connections: usize,
    /// Memory before and with them.
    pub resident: Option<(u64, u64)>,
    /// CPU that the server spent on doing nothing for a second.
    pub idle_cpu: Option<Duration>,
    /// Point reads beside them.
    pub read: Measurement,
}

/// Starts a server with an engine, measures, stops it.
pub fn measure_engine(options: &Options, engine: &str, progress: &mut dyn FnMut(&str)) -> Result<Findings> {
    let command = ServerCommand {
        program: options.tenond.clone(),
        engine: engine.to_owned(),
        arguments: options.server_arguments.clone(),
        data_parent: options.data_parent.clone(),
    };
    progress(&format!("{engine}: starting {}", options.tenond.display()));
    let server = ServerProcess::start(&command)?;
    let mut findings = Findings {
        name: engine.to_owned(),
        start_time: Some(server.start_time),
        resident_at_start: Some(usage(server.pid())?.resident_bytes),
        ..Findings::default()
    };
    measure(options, server.address(), Some(server.pid()), &mut findings, progress)?;
    progress(&format!("{engine}: stopping"));
    findings.stop_time = Some(server.stop()?);
    Ok(findings)
}

/// Measures a server that is there. Its database [`DATABASE`] is dropped, before and after.
pub fn measure_address(
    options: &Options,
    address: SocketAddr,
    pid: Option<u32>,
    progress: &mut dyn FnMut(&str),
) -> Result<Findings> {
    let mut findings = Findings {
        name: address.to_string(),
        ..Findings::default()
    };
    drop_collections(address)?;
    measure(options, address, pid, &mut findings, progress)?;
    drop_collections(address)?;
    Ok(findings)
}

fn measure(
    options: &Options,
    address: SocketAddr,
    pid: Option<u32>,
    findings: &mut Findings,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let name = findings.name.clone();
    let resident = || pid.map(|pid| usage(pid).map(|usage| usage.resident_bytes)).transpose();
    hello(&mut Connection::open(address)?)?;
    progress(&format!("{name}: loading {} documents", options.documents));
    findings.load = Some((options.documents, load(address, options.documents)?));
    findings.resident_loaded = resident()?;
    let target = Target {
        address,
        documents: options.documents,
        next_insert: AtomicU64::new(FIRST_INSERT),
    };
    let durations = Durations {
        warm_up: options.warm_up,
        record: options.duration,
    };
    for workload in &options.workloads {
        for connections in &options.connections {
            progress(&format!("{name}: {} on {connections} connections", workload.name()));
            let measured = run(&target, *workload, *connections, durations, pid)
                .with_context(|| format!("{} on {connections} connections", workload.name()))?;
            findings.measurements.push(measured);
            if workload.inserts() {
                drop_collection(address, INSERTS)?;
            }
        }
    }
    if options.idle_connections > 0 {
        progress(&format!("{name}: {} idle connections", options.idle_connections));
        findings.idle = Some(measure_idle(&target, options.idle_connections, durations, pid)?);
    }
    Ok(())
}

fn hello(connection: &mut Connection) -> Result<()> {
    let request = Templates::new(0).command(rawdoc! { "hello": 1 }, "admin");
    connection.call_ok(&request).context("hello")?;
    Ok(())
}

/// Loads in order, in batches, by one connection. Returns how long it took.
fn load(address: SocketAddr, documents: u64) -> Result<Duration> {
    let mut connection = Connection::open(address)?;
    let mut request = Templates::new(0).batch_insert(DOCUMENTS);
    ensure!(
        documents.is_multiple_of(BATCH as u64),
        "the number of documents is a multiple of {BATCH}"
    );
    let start = Instant::now();
    for first in (0..documents).step_by(BATCH) {
        (0..BATCH).for_each(|index| request.set_id(index, first + index as u64));
        connection.write(&request, BATCH).context("loading")?;
    }
    Ok(start.elapsed())
}

fn drop_collection(address: SocketAddr, collection: &str) -> Result<()> {
    let request = Templates::new(0).command(rawdoc! { "drop": collection }, DATABASE);
    // One that is not there cannot be dropped, which is as good.
    Connection::open(address)?.call(&request)?;
    Ok(())
}

fn drop_collections(address: SocketAddr) -> Result<()> {
    drop_collection(address, DOCUMENTS)?;
    drop_collection(address, INSERTS)
}

/// Opens connections that said hello once, then looks at memory, at CPU, and at what point reads cost beside them.
fn measure_idle(target: &Target, wanted: usize, durations: Durations, pid: Option<u32>) -> Result<Idle> {
    let look = || pid.map(usage).transpose();
    let files = raise_open_files();
    ensure!(
        wanted as u64 + OTHER_FILES <= files,
        "{wanted} idle connections need more than {files} open files"
    );
    let before = look()?;
    let mut open = Vec::with_capacity(wanted);
    for _ in 0..wanted {
        let mut connection = Connection::open(target.address).with_context(|| format!("with {} open", open.len()))?;
        hello(&mut connection)?;
        open.push(connection.into_idle());
    }
    let with = look()?;
    thread::sleep(Duration::from_secs(1));
    let later = look()?;
    let read = run(target, Workload::Read, 1, durations, pid)?;
    Ok(Idle {
        connections: open.len(),
        resident: before
            .zip(with)
            .map(|(before, with)| (before.resident_bytes, with.resident_bytes)),
        idle_cpu: with.zip(later).map(|(with, later)| later.cpu - with.cpu),
        read,
    })
}
