//! W8, W16: index tables, grown entry by entry and built at once.

use super::bench::{Background, Bench, Inserter, Stream};
use crate::data::{INDEX_KEY_BYTES, index_key};
use crate::driver::Limits;
use crate::machine::Usage;
use crate::statistics::{rate_at_end, worst_over_median};
use crate::subject::{Durability, Session, TableUse};
use anyhow::{Result, ensure};
use std::time::Instant;

const INDEXES: u32 = 3;
/// The phase may take so many times the time of others before it is cut.
const PATIENCE: f64 = 20.0;
/// Share of the time that counts as the end.
const END: f64 = 0.2;

/// W8: until the three indexes' entries take four times the cache.
pub fn three_indexes(bench: &mut Bench) -> Result<()> {
    bench.spec.cache_bytes = bench.spec.small_cache_bytes;
    bench.spec.open_loop = false;
    let entry_bytes = INDEX_KEY_BYTES as u64 + 3;
    let rows = 4 * bench.spec.cache_bytes / (u64::from(INDEXES) * entry_bytes);
    let subject = bench.open(Background::Checkpoints)?;
    bench.create_tables(&*subject, INDEXES)?;
    let spec = bench.spec.clone();
    let limits = Limits {
        seconds: spec.seconds * PATIENCE,
        calls: rows,
        stop: None,
    };
    let phase = bench.measure(&*subject, limits, &|Stream { thread, .. }| {
        let mut inserter = Inserter::new(&spec, INDEXES, thread as u64, spec.threads as u64);
        Box::new(move |session: &mut dyn Session| inserter.insert(session, 1, Durability::Buffered))
    })?;
    // Ten seconds, or less when the whole is short.
    let window = (phase.slices.len() / 6).clamp(1, 100);
    let outcome = &mut bench.outcome;
    outcome.set("end_ops_per_s", rate_at_end(&phase.slices, END));
    outcome.set("worst_window_s", window as f64 / 10.0);
    outcome.set("worst_over_median", worst_over_median(&phase.slices, window));
    if phase.operations < rows {
        outcome.notes.push(format!("{} of {rows} rows", phase.operations));
    }
    Ok(())
}

/// W16: sorted keys, as a sorter would hand them over; sorting itself is not measured.
pub fn bulk_build(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let subject = bench.open(Background::Nothing)?;
    subject.create_table(1, TableUse::Index)?;
    let mut keys: Vec<[u8; INDEX_KEY_BYTES]> = (0..rows).map(|row| index_key(row, 1)).collect();
    keys.sort_unstable();
    let (before, start) = (Usage::now(), Instant::now());
    let loaded = subject.bulk_load(1, &mut keys.iter().map(|key| (key.to_vec(), Vec::new())))?;
    ensure!(loaded == rows, "{loaded} of {rows} keys loaded");
    subject.checkpoint()?;
    let seconds = start.elapsed().as_secs_f64();
    let usage = Usage::now().since(&before);
    let mut session = subject.session()?;
    session.begin()?;
    let found = session.scan(1)?.rows;
    ensure!(found == rows, "{found} of {rows} keys found");
    let outcome = &mut bench.outcome;
    outcome.set("build_s", seconds);
    outcome.set("ops_per_s", rows as f64 / seconds);
    outcome.set("cpu_us_per_op", usage.cpu.as_secs_f64() * 1e6 / rows.max(1) as f64);
    outcome.set(
        "stored_b_per_entry",
        subject.table_bytes(1)? as f64 / rows.max(1) as f64,
    );
    Ok(())
}
