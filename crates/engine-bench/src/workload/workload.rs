//! The workloads by name.

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
    /// Random point read, data four times the cache, few rows often; a scan in between.
    W4z,
    /// Full scan, cached and cold.
    W5,
    /// Random update, cached, data a quarter of the cache.
    W6,
    /// Random update, data four times the cache.
    W7,
    /// Random update, data four times the cache, few rows often.
    W7z,
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
    /// Inserts that each update one hot row, beside a snapshot that stays open, data four times the cache.
    W21,
    /// Additions to counters at random, data four times the cache.
    W22,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Workload; 22] = {
        use Workload::*;
        [
            W1, W2, W3, W4, W4z, W5, W6, W7, W7z, W8, W9, W10, W11, W12, W13, W14, W15, W16, W18, W19, W21, W22,
        ]
    };

    /// Those of the short set.
    pub const SHORT: [Workload; 11] = {
        use Workload::*;
        [W1, W2, W3, W4, W5, W6, W7, W9, W10, W15, W21]
    };

    /// What is done, in a few words.
    pub fn title(self) -> &'static str {
        match self {
            Self::W1 => "sequential insert",
            Self::W2 => "insert in batches of 100",
            Self::W3 => "random read, cached",
            Self::W4 => "random read, 4x cache",
            Self::W4z => "zipfian read, 4x cache",
            Self::W5 => "full scan",
            Self::W6 => "random update, cached",
            Self::W7 => "random update, 4x cache",
            Self::W7z => "zipfian update, 4x cache",
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
            Self::W21 => "insert and one hot row, 4x cache",
            Self::W22 => "add to counters, 4x cache",
        }
    }

    /// Whether it takes two processes: the second opens what the first left, with nothing in memory.
    pub fn opens_again(self) -> bool {
        matches!(self, Self::W5 | Self::W19)
    }

    /// Whether its data is larger than its cache, so that the page cache must be kept from holding the rest.
    pub fn exceeds_cache(self) -> bool {
        use Workload::*;
        matches!(self, W4 | W4z | W7 | W7z | W8 | W18 | W21 | W22)
    }
}

impl std::fmt::Display for Workload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}
