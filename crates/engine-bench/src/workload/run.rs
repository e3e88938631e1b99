//! One run of a workload.

use super::bench::Bench;
use super::workload::Workload;
use super::{additions, inserts, larger, mixed, reads, recovery, space};
use crate::data::{Choice, Zipf};
use crate::outcome::Outcome;
use crate::spec::RunSpec;
use anyhow::Result;

/// Does one run, or one process of it. W19's first run leaves its subject open, as a crash would: the process has to
/// end after it.
pub fn run(spec: RunSpec) -> Result<Outcome> {
    let mut bench = Bench::new(spec)?;
    match bench.spec.workload {
        Workload::W1 => inserts::single(&mut bench),
        Workload::W2 => inserts::batches(&mut bench),
        Workload::W3 => reads::cached(&mut bench),
        Workload::W4 => reads::larger(&mut bench),
        Workload::W4z => reads::larger_zipfian(&mut bench),
        Workload::W5 if bench.spec.second => reads::scan_cold(&mut bench),
        Workload::W5 => reads::scan_cached(&mut bench),
        Workload::W6 => mixed::update_cached(&mut bench),
        Workload::W7 => mixed::update_larger(&mut bench, Choice::Even),
        Workload::W7z => mixed::update_larger(&mut bench, |rows| Choice::Zipf(Zipf::new(rows))),
        Workload::W8 => larger::three_indexes(&mut bench),
        Workload::W9 => space::rows(&mut bench),
        Workload::W10 => space::index_entries(&mut bench),
        Workload::W11 => space::after_updates(&mut bench),
        Workload::W12 => mixed::compressed_checkpoint(&mut bench),
        Workload::W13 => mixed::half_and_half(&mut bench),
        Workload::W14 => inserts::synced(&mut bench),
        Workload::W15 => inserts::log_bytes(&mut bench),
        Workload::W16 => larger::bulk_build(&mut bench),
        Workload::W18 => mixed::memory(&mut bench),
        Workload::W19 if bench.spec.second => recovery::recover(&mut bench),
        Workload::W19 => recovery::prepare(&mut bench),
        Workload::W21 => inserts::beside_a_hot_row(&mut bench),
        Workload::W22 => additions::to_cold_counters(&mut bench),
    }?;
    bench.finish()
}
