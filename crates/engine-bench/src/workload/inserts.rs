//! W1, W2, W14, W15, W21: inserts in the order of record ids.

use super::bench::{Background, Bench, Inserter, Stream};
use crate::data::record_key;
use crate::driver::{Limits, Pace, drive};
use crate::machine::drop_page_cache;
use crate::subject::{Durability, Session, Subject, Table, TableUse, transact};
use anyhow::{Result, ensure};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Threads of the concurrent part of W14.
const MANY_CLIENTS: usize = 64;

/// W1.
pub fn single(bench: &mut Bench) -> Result<()> {
    insert_in_batches(bench, 1)
}

/// W2.
pub fn batches(bench: &mut Bench) -> Result<()> {
    insert_in_batches(bench, 100)
}

fn insert_in_batches(bench: &mut Bench, batch: u64) -> Result<()> {
    let subject = open_empty(bench)?;
    let limits = Limits {
        seconds: f64::MAX.min(3600.0),
        calls: bench.spec.rows.div_ceil(batch),
        stop: None,
    };
    let before = subject.counters()?;
    // An open loop goes on where the closed one ended.
    let next = AtomicU64::new(0);
    let spec = bench.spec.clone();
    let measured = bench.measure(&*subject, limits, &|Stream { thread, .. }| {
        let (first, step) = (thread as u64 + next.load(Ordering::Relaxed), spec.threads as u64);
        let mut inserter = Inserter::new(&spec, 0, first, step);
        let next = &next;
        Box::new(move |session: &mut dyn Session| {
            let inserted = inserter.insert(session, batch, Durability::Buffered)?;
            next.fetch_max(inserter.next_row(), Ordering::Relaxed);
            Ok(inserted)
        })
    })?;
    let log_bytes = subject.counters()?.log_bytes - before.log_bytes;
    let inserted = measured.operations.max(1) as f64;
    if !bench.spec.open_loop {
        bench.outcome.set("log_b_per_op", log_bytes as f64 / inserted);
    }
    Ok(())
}

/// The table of W21's hot row, its number, and how much longer than other phases this one may take.
const COUNTS: Table = 1;
const HOT_ROW: u64 = 0;
const HOT_PATIENCE: f64 = 6.0;

/// W21: each transaction inserts a row and updates the one row that all update, as counts and queues are. The rows
/// loaded before take four times the cache, and a transaction that has begun before them stays open: what it sees must
/// be kept, and nothing else.
pub fn beside_a_hot_row(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.large_rows();
    bench.spec.cache_bytes = bench.spec.small_cache_bytes;
    let subject = bench.open(Background::Checkpoints)?;
    bench.create_tables(&*subject, 0)?;
    subject.create_table(COUNTS, TableUse::Records)?;
    let hot_key = record_key(HOT_ROW);
    transact(&mut *subject.session()?, Durability::Buffered, |session| {
        session.put(COUNTS, &hot_key, &0_u64.to_le_bytes())
    })?;
    let mut open = subject.session()?;
    let mut seen = Vec::new();
    open.begin()?;
    ensure!(open.get(COUNTS, &hot_key, &mut seen)?, "the hot row is there");
    bench.load(&*subject, rows, 0)?;
    drop_page_cache(&bench.spec.directory, true);
    let spec = bench.spec.clone();
    let limits = Limits {
        seconds: spec.seconds * HOT_PATIENCE,
        calls: rows,
        stop: None,
    };
    // An open loop goes on where the closed one ended.
    let next = AtomicU64::new(rows);
    bench.measure(&*subject, limits, &|Stream { thread, .. }| {
        let (first, step) = (thread as u64 + next.load(Ordering::Relaxed), spec.threads as u64);
        let mut inserter = Inserter::new(&spec, 0, first, step);
        let next = &next;
        Box::new(move |session: &mut dyn Session| {
            let row = inserter.next_row();
            inserter.insert_and(session, 1, Durability::Buffered, |session| {
                session.put(COUNTS, &hot_key, &row.to_le_bytes())
            })?;
            next.fetch_max(inserter.next_row(), Ordering::Relaxed);
            Ok(1)
        })
    })?;
    let before = std::mem::take(&mut seen);
    match open.get(COUNTS, &hot_key, &mut seen) {
        Ok(is_there) => ensure!(
            is_there && seen == before,
            "the open transaction sees what it saw: {before:?}, not {seen:?}"
        ),
        // What it must not see of so many inserts is history, too.
        Err(error) => bench
            .outcome
            .notes
            .push(format!("the open transaction was ended: {error}")),
    }
    open.abandon()?;
    Ok(())
}

fn open_empty(bench: &mut Bench) -> Result<Arc<dyn Subject>> {
    let subject = bench.open(Background::Checkpoints)?;
    bench.create_tables(&*subject, 0)?;
    Ok(subject)
}

/// W15: as W1, without checkpoints, which may write to the log, too.
pub fn log_bytes(bench: &mut Bench) -> Result<()> {
    let subject = bench.open(Background::Nothing)?;
    bench.create_tables(&*subject, 0)?;
    subject.flush_log()?;
    let before = subject.counters()?;
    let mut session = subject.session()?;
    let mut inserter = Inserter::new(&bench.spec, 0, 0, 1);
    while inserter.next_row() < bench.spec.rows {
        inserter.insert(&mut *session, 1, Durability::Buffered)?;
    }
    subject.flush_log()?;
    let bytes = subject.counters()?.log_bytes - before.log_bytes;
    bench
        .outcome
        .set("log_b_per_op", bytes as f64 / bench.spec.rows.max(1) as f64);
    Ok(())
}

/// W14: how many synced inserts one and many clients get through, next to what the disk alone does.
pub fn synced(bench: &mut Bench) -> Result<()> {
    let raw = raw_syncs_per_second(bench)?;
    bench.outcome.set("raw_syncs_per_s", raw);
    let subject = open_empty(bench)?;
    let mut first_row = 0;
    for (name, clients) in [("one", 1), ("many", MANY_CLIENTS)] {
        let spec = bench.spec.clone();
        let limits = Limits::seconds(spec.seconds);
        let next = AtomicU64::new(0);
        let phase = drive(&*subject, clients, limits, Pace::Closed, &|thread| {
            let mut inserter = Inserter::new(&spec, 0, first_row + thread as u64, clients as u64);
            let next = &next;
            Box::new(move |session: &mut dyn Session| {
                let inserted = inserter.insert(session, 1, Durability::Synced)?;
                next.fetch_max(inserter.next_row(), Ordering::Relaxed);
                Ok(inserted)
            })
        })?;
        first_row = next.into_inner();
        let outcome = &mut bench.outcome;
        outcome.set(format!("ops_per_s_{name}"), phase.rate());
        outcome.set(format!("over_raw_{name}"), phase.rate() / raw.max(1.0));
        outcome.set(format!("p50_us_{name}"), phase.latency_us(50.0));
        outcome.set(format!("p99_us_{name}"), phase.latency_us(99.0));
        outcome.set(format!("max_us_{name}"), phase.latency_max_us());
    }
    Ok(())
}

/// Syncs per second of a file that grows by 4 KiB each time, on the disk of the run.
fn raw_syncs_per_second(bench: &Bench) -> Result<f64> {
    let path = bench.spec.directory.join("raw-syncs");
    let mut file = File::create(&path)?;
    let start = Instant::now();
    let mut syncs = 0;
    while start.elapsed().as_secs_f64() < bench.spec.seconds.min(1.0) {
        file.write_all(&[0x5A; 4096])?;
        file.sync_data()?;
        syncs += 1;
    }
    let rate = f64::from(syncs) / start.elapsed().as_secs_f64();
    std::fs::remove_file(&path)?;
    Ok(rate)
}
