//! W22: additions to counters that nobody reads.

use super::bench::{Background, Bench, Picker, RECORDS, scan_once};
use crate::data::{Choice, record_key};
use crate::driver::Limits;
use crate::machine::drop_page_cache;
use crate::subject::Session;
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a row: its key and a number.
const ROW_BYTES: u64 = 16;
/// The phase may take so many times the time of others before it is cut.
const PATIENCE: f64 = 6.0;

/// W22: half as many additions as there are counters, which take four times the cache. An engine that lets additions
/// wait has to bring most of them to their rows on the way; the checkpoint that counts with them and the scan behind it
/// see to the rest.
pub fn to_cold_counters(bench: &mut Bench) -> Result<()> {
    bench.spec.cache_bytes = bench.spec.small_cache_bytes;
    let rows = 4 * bench.spec.small_cache_bytes / ROW_BYTES;
    let subject = bench.open(Background::Checkpoints)?;
    bench.create_tables(&*subject, 0)?;
    let zero = 0_i64.to_le_bytes();
    let loaded = subject.bulk_load(
        RECORDS,
        &mut (0..rows).map(|row| (record_key(row).to_vec(), zero.to_vec())),
    )?;
    ensure!(loaded == rows, "{loaded} of {rows} counters loaded");
    subject.checkpoint()?;
    drop_page_cache(&bench.spec.directory, true);
    let spec = bench.spec.clone();
    let limits = Limits {
        seconds: spec.seconds * PATIENCE,
        calls: rows / 2,
        stop: None,
    };
    let added = AtomicU64::new(0);
    let phase = bench.measure(&*subject, limits, &|stream| {
        let mut picker = Picker::new(&spec, Choice::Even(rows), stream);
        let added = &added;
        Box::new(move |session: &mut dyn Session| {
            added.fetch_add(1, Ordering::Relaxed);
            picker.count(session)
        })
    })?;
    if phase.calls < rows / 2 {
        let note = format!("{} of {} additions in {:.0} s", phase.calls, rows / 2, phase.seconds);
        bench.outcome.notes.push(note);
    }
    // No counter comes to 256: the first bytes of all say how often something was added.
    let scanned = scan_once(&mut *subject.session()?)?;
    let added = added.into_inner();
    ensure!(
        scanned.rows == rows && scanned.sum == added,
        "{} counters come to {}, not {rows} to {added}",
        scanned.rows,
        scanned.sum
    );
    Ok(())
}
