//! What is done to a subject: workloads W1 to W19, each in a process of its own.
//!
//! `bench` opens subjects, loads rows and takes the measurements that all workloads share; the other modules are the
//! workloads. Numbers that are missing (W17, W20) are measured at the server.

mod bench;
mod inserts;
mod larger;
mod mixed;
mod reads;
mod recovery;
mod space;

use crate::Outcome;
use crate::spec::RunSpec;
use anyhow::Result;
use bench::Bench;
use serde::{Deserialize, Serialize};

/// A workload, by the number it has in the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[value(rename_all = "UPPER")]
pub enum Workload {
    /// Sequential insert, one transaction each.
    W1,
    /// Sequential insert, batches of 100.
    W2,
    /// Random point read, cached.
    W3,
    /// Random point read, data four times the cache.
    W4,
    /// Full scan, cached and cold.
    W5,
    /// Random update, cached, data a quarter of the cache.
    W6,
    /// Random update, data four times the cache.
    W7,
    /// Inserts with three random indexes that grow to four times the cache.
    W8,
    /// Stored bytes per row after a load, by compressor.
    W9,
    /// Stored bytes per index entry.
    W10,
    /// Size after updating every row three times on average.
    W11,
    /// A zlib checkpoint of much dirty data beside updates.
    W12,
    /// Half reads, half updates, for minutes.
    W13,
    /// Synced inserts, 1 and 64 threads.
    W14,
    /// Log bytes per insert.
    W15,
    /// Bulk build of an index.
    W16,
    /// Memory over the configured cache.
    W18,
    /// Recovery of a log.
    W19,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Workload; 18] = {
        use Workload::*;
        [
            W1, W2, W3, W4, W5, W6, W7, W8, W9, W10, W11, W12, W13, W14, W15, W16, W18, W19,
        ]
    };

    /// Those of the short set.
    pub const SHORT: [Workload; 10] = {
        use Workload::*;
        [W1, W2, W3, W4, W5, W6, W7, W9, W10, W15]
    };

    /// What is done, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::W1 => "sequential insert",
            Self::W2 => "insert in batches of 100",
            Self::W3 => "random read, cached",
            Self::W4 => "random read, 4x cache",
            Self::W5 => "full scan",
            Self::W6 => "random update, cached",
            Self::W7 => "random update, 4x cache",
            Self::W8 => "insert with 3 indexes, 4x cache",
            Self::W9 => "stored bytes per row",
            Self::W10 => "stored bytes per index entry",
            Self::W11 => "size after 3 updates per row",
            Self::W12 => "zlib checkpoint",
            Self::W13 => "half reads, half updates",
            Self::W14 => "synced insert",
            Self::W15 => "log bytes per insert",
            Self::W16 => "bulk index build",
            Self::W18 => "memory over cache",
            Self::W19 => "recovery",
        }
    }

    /// Whether it takes two processes: the second opens what the first left, with nothing in memory.
    pub fn opens_again(self) -> bool {
        matches!(self, Self::W5 | Self::W19)
    }

    /// Whether its data is larger than its cache, so that the page cache must be kept from holding the rest.
    pub fn exceeds_cache(self) -> bool {
        matches!(self, Self::W4 | Self::W7 | Self::W8 | Self::W18)
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Does one run, or one process of it. W19's first run leaves its subject open, as a crash would: the process has to end after it.
pub fn run(spec: RunSpec) -> Result<Outcome> {
    let mut bench = Bench::new(spec)?;
    match bench.spec.workload {
        Workload::W1 => inserts::single(&mut bench),
        Workload::W2 => inserts::batches(&mut bench),
        Workload::W3 => reads::cached(&mut bench),
        Workload::W4 => reads::larger(&mut bench),
        Workload::W5 if bench.spec.second => reads::scan_cold(&mut bench),
        Workload::W5 => reads::scan_cached(&mut bench),
        Workload::W6 => mixed::update_cached(&mut bench),
        Workload::W7 => mixed::update_larger(&mut bench),
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
    }?;
    bench.finish()
}
