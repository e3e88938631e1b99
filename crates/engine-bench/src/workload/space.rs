//! W9, W10, W11: what data takes on disk.

use super::bench::{Background, Bench, CLOSED, Picker, RECORDS, Stream, data_bytes};
use crate::data::Choice;
use anyhow::Result;
use codec::Codec;
use std::time::Duration;

/// W9: a load and a checkpoint, for each compressor that the subject has.
pub fn rows(bench: &mut Bench) -> Result<()> {
    let home = bench.spec.directory.clone();
    let rows = bench.spec.rows;
    for codec in Codec::ALL {
        if !bench.spec.subject.has_codec(codec) {
            continue;
        }
        bench.spec.codec = codec;
        bench.spec.directory = home.join(codec.name());
        std::fs::create_dir_all(&bench.spec.directory)?;
        {
            let subject = bench.open_loaded(Background::Nothing, rows, 0)?;
            bench.checkpoint(&*subject)?;
            let checkpointed = data_bytes(&bench.layout());
            bench
                .outcome
                .set(format!("b_per_row_{}", codec.name()), checkpointed as f64 / rows as f64);
            subject.settle()?;
            let settled = data_bytes(&bench.layout());
            bench.outcome.set(
                format!("settled_b_per_row_{}", codec.name()),
                settled as f64 / rows as f64,
            );
        }
        bench.close()?;
    }
    Ok(())
}

/// W10: a load with one index.
pub fn index_entries(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let subject = bench.open_loaded(Background::Nothing, rows, 1)?;
    bench
        .outcome
        .set("b_per_entry", subject.table_bytes(1)? as f64 / rows as f64);
    subject.settle()?;
    bench
        .outcome
        .set("settled_b_per_entry", subject.table_bytes(1)? as f64 / rows as f64);
    let records = subject.table_bytes(RECORDS)?;
    bench.outcome.set("b_per_row", records as f64 / rows as f64);
    Ok(())
}

/// Checkpoints that a server takes by itself in a few minutes after the last write, and the time between them here, in
/// which an engine may put its files in order.
const CHECKPOINTS_AFTER: usize = 3;
const BETWEEN_CHECKPOINTS: Duration = Duration::from_secs(2);

/// W11: against the size right after the load. A checkpoint that writes every page again has two copies on disk; what
/// stays is what there is some checkpoints later.
pub fn after_updates(bench: &mut Bench) -> Result<()> {
    let rows = bench.spec.rows;
    let subject = bench.open_loaded(Background::Checkpoints, rows, 0)?;
    subject.settle()?;
    let loaded = data_bytes(&bench.layout()).max(1) as f64;
    let mut session = subject.session()?;
    let mut picker = Picker::new(
        &bench.spec,
        Choice::Even(rows),
        Stream {
            phase: CLOSED,
            thread: 0,
        },
    );
    let mut peak = 0;
    for update in 0..rows * 3 {
        picker.update(&mut *session)?;
        if update % 65_536 == 0 {
            peak = peak.max(data_bytes(&bench.layout()));
        }
    }
    bench.checkpoint(&*subject)?;
    let updated = data_bytes(&bench.layout());
    for _ in 0..CHECKPOINTS_AFTER {
        std::thread::sleep(BETWEEN_CHECKPOINTS);
        subject.checkpoint()?;
    }
    let settled = data_bytes(&bench.layout());
    let outcome = &mut bench.outcome;
    outcome.set("stored_over_loaded", updated as f64 / loaded);
    outcome.set("settled_over_loaded", settled as f64 / loaded);
    outcome.set("peak_over_loaded", peak.max(updated) as f64 / loaded);
    Ok(())
}
