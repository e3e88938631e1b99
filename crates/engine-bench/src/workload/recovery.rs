//! W19: recovery of a log, in two processes: one writes and ends as a crash would, the other opens what it left.
//!
//! Engines of Tenon start empty, so that the whole log is read, decompressed and applied whatever the engine had kept
//! by itself; WiredTiger has no checkpoint and replays its log from the start, too.

use super::bench::{Background, Bench, Inserter, scan_once};
use crate::machine::{Usage, disk_bytes, drop_page_cache};
use crate::subject::Durability;
use anyhow::{Result, ensure};
use std::time::Instant;

/// Rows whose values make up the volume.
fn rows(bench: &Bench) -> u64 {
    (bench.spec.volume_mib.max(1) << 20) / bench.spec.value_bytes as u64
}

/// The first process: one row per transaction.
pub fn prepare(bench: &mut Bench) -> Result<()> {
    let rows = rows(bench);
    bench.spec.cache_bytes = bench.spec.volume_mib.max(64) << 22;
    let subject = bench.open(Background::Nothing)?;
    bench.create_tables(&*subject, 0)?;
    {
        let mut session = subject.session()?;
        let mut inserter = Inserter::new(&bench.spec, 0, 0, 1);
        while inserter.next_row() < rows {
            inserter.insert(&mut *session, 1, Durability::Buffered)?;
        }
    }
    subject.flush_log()?;
    // Not closed: a crash would not either. The subject lives until the process ends.
    std::mem::forget(subject);
    Ok(())
}

/// The second process.
pub fn recover(bench: &mut Bench) -> Result<()> {
    let rows = rows(bench);
    bench.spec.cache_bytes = bench.spec.volume_mib.max(64) << 22;
    let layout = bench.layout();
    if bench.spec.subject.engine().is_some() && layout.data.exists() {
        std::fs::remove_dir_all(&layout.data)?;
    }
    drop_page_cache(&bench.spec.directory, true);
    let log_bytes = disk_bytes(&layout.log);
    let (before, start) = (Usage::now(), Instant::now());
    let subject = bench.open(Background::Nothing)?;
    let seconds = start.elapsed().as_secs_f64();
    let usage = Usage::now().since(&before);
    let found = scan_once(&mut *subject.session()?)?.rows;
    ensure!(found == rows, "{found} of {rows} rows after recovery");
    let outcome = &mut bench.outcome;
    outcome.set("recovery_s", seconds);
    outcome.set("ops_per_s", rows as f64 / seconds);
    outcome.set("cpu_us_per_op", usage.cpu.as_secs_f64() * 1e6 / rows as f64);
    outcome.set("log_read_mib", log_bytes as f64 / (1 << 20) as f64);
    outcome.set("replayed_entries", subject.replayed().entries as f64);
    Ok(())
}
