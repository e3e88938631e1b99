//! W3, W4, W4z, W5: point reads and scans.

use super::bench::{AFTER, Background, Bench, Picker, RECORDS, Stream, WARM_UP, blocks_between, scan_once};
use crate::data::{Choice, Zipf};
use crate::driver::{Limits, Operation, Pace, drive};
use crate::machine::{Usage, drop_page_cache};
use crate::spec::RunSpec;
use crate::subject::{Session, Subject};
use anyhow::{Result, ensure};
use std::sync::Arc;
use std::time::Instant;

/// The phase after W4z's scan takes this part of the time of others: in all of it the cache would be as before.
const AFTER_SCAN: f64 = 0.1;

/// W3.
pub fn cached(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let subject = bench.open_loaded(Background::Nothing, rows, 0)?;
    bench.warm(&*subject, rows)?;
    read_at_random(bench, &*subject, Choice::Even(rows))
}

/// W4.
pub fn larger(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.large_rows();
    let subject = open_larger(bench, rows, Choice::Even(rows))?;
    read_at_random(bench, &*subject, Choice::Even(rows))
}

/// W4z: with a scan behind the measured phase, and a last short one, which finds what that left of the cache.
pub fn larger_zipfian(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.large_rows();
    let choice = Choice::Zipf(Zipf::new(rows));
    let subject = open_larger(bench, rows, choice)?;
    read_at_random(bench, &*subject, choice)?;
    bench.warm(&*subject, rows)?;
    let spec = bench.spec.clone();
    let before = subject.counters()?;
    let limits = Limits::seconds(spec.seconds * AFTER_SCAN);
    let phase = drive(&*subject, spec.threads, limits, Pace::Closed, &|thread| {
        reads(&spec, choice, Stream { phase: AFTER, thread })
    })?;
    bench.outcome.set("after_scan_ops_per_s", phase.rate());
    if let Some(blocks) = blocks_between(&before, &subject.counters()?) {
        let operations = phase.operations.max(1) as f64;
        bench.outcome.set("after_scan_block_reads_per_op", blocks / operations);
    }
    Ok(())
}

/// Opens and loads a subject with four times as much data as its cache, and reads for a while: the cache then holds
/// what reads leave in it and not what the load did.
fn open_larger(bench: &mut Bench, rows: u64, choice: Choice) -> Result<Arc<dyn Subject>> {
    bench.spec.cache_bytes = bench.spec.small_cache_bytes;
    let subject = bench.open_loaded(Background::Nothing, rows, 0)?;
    drop_page_cache(&bench.spec.directory, true);
    let spec = bench.spec.clone();
    let limits = Limits::seconds(spec.seconds);
    drive(&*subject, 1, limits, Pace::Closed, &|thread| {
        reads(&spec, choice, Stream { phase: WARM_UP, thread })
    })?;
    Ok(subject)
}

fn read_at_random(bench: &mut Bench, subject: &dyn Subject, choice: Choice) -> Result<()> {
    let spec = bench.spec.clone();
    bench.measure(subject, Limits::seconds(spec.seconds), &|stream| {
        reads(&spec, choice, stream)
    })?;
    Ok(())
}

fn reads<'a>(spec: &RunSpec, choice: Choice, stream: Stream) -> Operation<'a> {
    let mut picker = Picker::new(spec, choice, stream);
    Box::new(move |session: &mut dyn Session| picker.read(session))
}

/// W5, the first process: from the cache, again and again.
pub fn scan_cached(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    {
        let subject = bench.open_loaded(Background::Nothing, rows, 0)?;
        bench.warm(&*subject, rows)?;
        let limits = Limits::seconds(bench.spec.seconds);
        let phase = drive(&*subject, 1, limits, Pace::Closed, &|_| {
            Box::new(|session: &mut dyn Session| Ok(scan_once(session)?.rows))
        })?;
        bench.outcome.set_closed(&phase);
        bench.outcome.set("cached_rows_per_s", phase.rate());
        let bytes_per_row = bench.spec.value_bytes as f64;
        bench.outcome.set("cached_mb_per_s", phase.rate() * bytes_per_row / 1e6);
    }
    bench.close()
}

/// W5, the second process: once, with nothing in memory. In the first one, memory that closing gave up would be given
/// back to the system, or used again, while the scan runs.
pub fn scan_cold(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let kept = drop_page_cache(&bench.spec.directory, true);
    if kept > 0 {
        bench
            .outcome
            .notes
            .push(format!("{kept} files stayed in the page cache"));
    }
    let subject = bench.open(Background::Nothing)?;
    let mut session = subject.session()?;
    let (before, start) = (Usage::now(), Instant::now());
    let scanned = scan_once(&mut *session)?;
    let seconds = start.elapsed().as_secs_f64();
    let usage = Usage::now().since(&before);
    ensure!(
        scanned.rows == rows,
        "{} rows of table {RECORDS}, {rows} expected",
        scanned.rows
    );
    bench.outcome.set("cold_rows_per_s", rows as f64 / seconds);
    bench
        .outcome
        .set("cold_mb_per_s", scanned.value_bytes as f64 / seconds / 1e6);
    bench
        .outcome
        .set("cold_cpu_us_per_row", usage.cpu.as_secs_f64() * 1e6 / rows as f64);
    bench
        .outcome
        .set("cold_read_b_per_row", usage.read_bytes as f64 / rows as f64);
    Ok(())
}
