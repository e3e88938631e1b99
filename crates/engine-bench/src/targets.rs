//! The goals of the default engine, as ratios of figures on the same workload and machine.
//!
//! A ratio is always ours over theirs; a goal says on which side of a number it has to lie.

use crate::workload::Workload::{self, *};

/// What ours is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The better of WiredTiger as mongod has it, and tuned.
    WiredTiger,
    /// WiredTiger as mongod has it.
    WiredTigerDefault,
    /// WiredTiger tuned.
    WiredTigerTuned,
    /// RocksDB behind the same API.
    Rocksdb,
    /// Nothing: the figure itself has to reach the goal.
    Absolute,
}

impl Baseline {
    /// For the table's column.
    pub fn name(self) -> &'static str {
        match self {
            Self::WiredTiger => "WiredTiger (better of two)",
            Self::WiredTigerDefault => "WiredTiger",
            Self::WiredTigerTuned => "WiredTiger tuned",
            Self::Rocksdb => "rocksdb",
            Self::Absolute => "-",
        }
    }
}

/// Which side of the number is good.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Goal {
    /// Whether a value reaches it.
    pub fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(bound) => value >= bound,
            Self::AtMost(bound) => value <= bound,
        }
    }

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Self::AtLeast(_))
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, ">= {bound}"),
            Self::AtMost(bound) => write!(f, "<= {bound}"),
        }
    }
}

/// One goal.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// On this workload.
    pub workload: Workload,
    /// This figure.
    pub figure: &'static str,
    /// Against this.
    pub baseline: Baseline,
    /// What a first version has to reach, where it is less than the goal.
    pub first: Option<Goal>,
    /// The goal.
    pub goal: Goal,
}

const fn at(workload: Workload, figure: &'static str, baseline: Baseline, first: Option<Goal>, goal: Goal) -> Target {
    Target {
        workload,
        figure,
        baseline,
        first,
        goal,
    }
}

use Baseline::{Absolute, Rocksdb, WiredTiger, WiredTigerDefault, WiredTigerTuned};
use Goal::{AtLeast, AtMost};

/// All goals, in the order of the workloads.
pub const TARGETS: &[Target] = &[
    at(W1, "ops_per_s", WiredTiger, Some(AtLeast(1.2)), AtLeast(1.8)),
    at(W1, "ops_per_s", Rocksdb, None, AtLeast(2.5)),
    at(W1, "cpu_us_per_op", WiredTiger, None, AtMost(1.0)),
    at(W2, "ops_per_s", WiredTiger, Some(AtLeast(1.5)), AtLeast(2.5)),
    at(W3, "ops_per_s", WiredTiger, Some(AtLeast(1.2)), AtLeast(2.0)),
    at(W3, "ops_per_s", Rocksdb, None, AtLeast(3.0)),
    at(W4, "ops_per_s", WiredTiger, Some(AtLeast(2.0)), AtLeast(4.0)),
    at(W4, "ops_per_s", Rocksdb, None, AtLeast(1.2)),
    at(W4, "cpu_us_per_op", WiredTiger, None, AtMost(0.25)),
    at(W4, "block_reads_per_op", Absolute, None, AtMost(0.6)),
    at(W4z, "ops_per_s", WiredTiger, Some(AtLeast(1.0)), AtLeast(2.0)),
    at(W4z, "cpu_us_per_op", WiredTiger, None, AtMost(0.5)),
    at(W5, "cached_rows_per_s", WiredTiger, Some(AtLeast(1.0)), AtLeast(1.5)),
    at(W5, "cached_rows_per_s", Rocksdb, None, AtLeast(5.0)),
    at(W5, "cold_rows_per_s", WiredTiger, Some(AtLeast(1.5)), AtLeast(3.0)),
    at(W5, "cold_cpu_us_per_row", WiredTiger, None, AtMost(0.8)),
    at(W6, "ops_per_s", WiredTigerDefault, Some(AtLeast(5.0)), AtLeast(5.0)),
    at(W6, "ops_per_s", WiredTigerTuned, Some(AtLeast(0.9)), AtLeast(1.5)),
    at(W6, "ops_per_s", Rocksdb, None, AtLeast(3.0)),
    at(W6, "written_b_per_op_closed", Absolute, None, AtMost(300.0)),
    at(W6, "p999_us", Absolute, None, AtMost(200.0)),
    at(W6, "max_us", Absolute, None, AtMost(20_000.0)),
    at(W7, "ops_per_s", WiredTiger, Some(AtLeast(2.0)), AtLeast(6.0)),
    at(W7, "ops_per_s", Rocksdb, None, AtLeast(1.0)),
    at(W7, "written_b_per_op_closed", Rocksdb, None, AtMost(1.0)),
    at(W7z, "ops_per_s", WiredTiger, Some(AtLeast(1.0)), AtLeast(2.0)),
    at(W8, "end_ops_per_s", WiredTiger, Some(AtLeast(1.0)), AtLeast(3.0)),
    at(W8, "end_ops_per_s", Rocksdb, None, AtLeast(1.0)),
    at(W8, "worst_over_median", Absolute, None, AtLeast(0.7)),
    at(W9, "b_per_row_none", WiredTiger, Some(AtMost(1.0)), AtMost(0.85)),
    at(W9, "b_per_row_snappy", WiredTiger, Some(AtMost(1.0)), AtMost(0.85)),
    at(W9, "b_per_row_zlib", WiredTiger, Some(AtMost(1.0)), AtMost(0.85)),
    at(W10, "b_per_entry", WiredTiger, Some(AtMost(0.9)), AtMost(0.65)),
    at(W11, "stored_over_loaded", Absolute, Some(AtMost(1.6)), AtMost(1.3)),
    at(W11, "settled_over_loaded", Absolute, Some(AtMost(1.6)), AtMost(1.3)),
    at(W12, "checkpoint_ms", WiredTiger, Some(AtMost(0.5)), AtMost(0.5)),
    at(W12, "p99_ratio", Absolute, None, AtMost(1.5)),
    at(W13, "p999_us", WiredTiger, Some(AtMost(0.5)), AtMost(0.2)),
    at(W13, "max_us", Absolute, None, AtMost(100_000.0)),
    at(W13, "slow_s", Absolute, None, AtMost(0.0)),
    at(W14, "over_raw_one", Absolute, Some(AtLeast(0.8)), AtLeast(0.8)),
    at(W14, "ops_per_s_one", WiredTiger, None, AtLeast(1.3)),
    at(W14, "over_raw_many", Absolute, Some(AtLeast(8.0)), AtLeast(8.0)),
    at(W14, "ops_per_s_many", WiredTiger, None, AtLeast(1.3)),
    at(W15, "log_b_per_op", Absolute, Some(AtMost(290.0)), AtMost(180.0)),
    at(W15, "log_b_per_op", WiredTiger, None, AtMost(0.8)),
    at(W16, "build_s", WiredTiger, Some(AtMost(0.67)), AtMost(0.34)),
    at(W18, "rss_over_cache", Absolute, Some(AtMost(1.15)), AtMost(1.08)),
    at(W19, "recovery_s", WiredTiger, Some(AtMost(1.0)), AtMost(1.0)),
    at(W21, "ops_per_s", WiredTiger, Some(AtLeast(1.0)), AtLeast(1.5)),
    at(W22, "ops_per_s", WiredTiger, Some(AtLeast(1.0)), AtLeast(2.0)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_on_the_side_they_say() {
        assert!(AtLeast(1.5).is_met_by(1.5) && !AtLeast(1.5).is_met_by(1.4));
        assert!(AtMost(1.5).is_met_by(1.5) && !AtMost(1.5).is_met_by(1.6));
    }

    #[test]
    fn every_workload_has_a_goal_and_first_steps_are_no_harder() {
        for workload in Workload::ALL {
            assert!(TARGETS.iter().any(|target| target.workload == workload), "{workload}");
        }
        for target in TARGETS {
            match (target.first, target.goal) {
                (Some(AtLeast(first)), AtLeast(goal)) => assert!(first <= goal, "{target:?}"),
                (Some(AtMost(first)), AtMost(goal)) => assert!(first >= goal, "{target:?}"),
                (None, _) => {}
                _ => panic!("{target:?}"),
            }
        }
    }
}
