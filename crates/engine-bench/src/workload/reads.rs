//! W3, W4, W5: point reads and scans.

use super::bench::{Background, Bench, Picker, RECORDS, scan_once};
use crate::driver::{Limits, Pace, drive};
use crate::machine::{Usage, drop_page_cache};
use crate::subject::{Session, Subject};
use anyhow::{Result, ensure};
use std::time::Instant;

/// W3.
pub fn cached(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let subject = bench.open_loaded(Background::Nothing, rows, 0)?;
    bench.warm(&*subject, rows)?;
    read_at_random(bench, &*subject, rows)
}

/// W4: read for a while first, so that the cache holds what reads leave in it and not what the load did.
pub fn larger(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.large_rows();
    bench.spec.cache_bytes = bench.spec.small_cache_bytes;
    let subject = bench.open_loaded(Background::Nothing, rows, 0)?;
    drop_page_cache(&bench.spec.directory, true);
    let spec = bench.spec.clone();
    drive(&*subject, 1, Limits::seconds(spec.seconds), Pace::Closed, &|_| {
        let mut picker = Picker::new(&spec, rows, usize::MAX);
        Box::new(move |session: &mut dyn Session| picker.read(session))
    })?;
    read_at_random(bench, &*subject, rows)
}

fn read_at_random(bench: &mut Bench, subject: &dyn Subject, rows: u64) -> Result<()> {
    let spec = bench.spec.clone();
    bench.measure(subject, Limits::seconds(spec.seconds), &|thread| {
        let mut picker = Picker::new(&spec, rows, thread);
        Box::new(move |session: &mut dyn Session| picker.read(session))
    })?;
    Ok(())
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
