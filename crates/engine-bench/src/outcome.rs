//! What one run measured: named figures, so that runs can be compared without knowing what they mean.

use crate::driver::Phase;
use crate::statistics::{slow_seconds, worst_rate};
use crate::subject::SubjectKind;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Figure of a run whose subject kept in memory what should not have fitted: it says nothing about data larger than
/// memory.
pub const OVER_MEMORY: &str = "over_memory";

/// Figure of a closed loop: operations of a call.
pub const OPERATIONS_PER_CALL: &str = "ops_per_call";

/// The figures of one run. Names end in their unit; `docs/engine-bench.md` lists them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// What was done.
    pub workload: Workload,
    /// To whom.
    pub subject: SubjectKind,
    /// Position among the runs of the same kind.
    pub pair: usize,
    /// Seed of the run.
    pub seed: u64,
    /// Figures by name.
    pub figures: BTreeMap<String, f64>,
    /// Operations per 100 ms of the closed loop.
    pub slices: Vec<u64>,
    /// What was not as it should be.
    pub notes: Vec<String>,
}

impl Outcome {
    /// Sets a figure.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        self.figures.insert(name.into(), value);
    }

    /// This outcome of a run's first process and that of its second, whose figures count where both have one.
    pub fn and_then(mut self, second: Outcome) -> Outcome {
        self.figures.extend(second.figures);
        self.notes.extend(second.notes);
        self
    }

    /// Sets the figures of a closed loop.
    pub fn set_closed(&mut self, phase: &Phase) {
        let operations = phase.operations.max(1) as f64;
        self.set("ops", phase.operations as f64);
        self.set(OPERATIONS_PER_CALL, operations / phase.calls.max(1) as f64);
        self.set("seconds", phase.seconds);
        self.set("ops_per_s", phase.rate());
        self.set("cpu_us_per_op", phase.usage.cpu.as_secs_f64() * 1e6 / operations);
        self.set("written_b_per_op", phase.usage.written_bytes as f64 / operations);
        self.set("read_b_per_op", phase.usage.read_bytes as f64 / operations);
        self.set("read_calls_per_op", phase.usage.read_calls as f64 / operations);
        self.set("slow_s", slow_seconds(&phase.slices));
        self.set("worst_second_ops", worst_rate(&phase.slices, 10));
        self.set_latency("", phase);
        self.slices = phase.slices.clone();
    }

    /// Sets the figures of an open loop.
    pub fn set_open(&mut self, phase: &Phase) {
        self.set("open_ops_per_s", phase.rate());
        self.set("open_slow_s", slow_seconds(&phase.slices));
        self.set_latency("open_", phase);
    }

    fn set_latency(&mut self, prefix: &str, phase: &Phase) {
        for (name, percentile) in [("p50_us", 50.0), ("p95_us", 95.0), ("p99_us", 99.0), ("p999_us", 99.9)] {
            self.set(format!("{prefix}{name}"), phase.latency_us(percentile));
        }
        self.set(format!("{prefix}max_us"), phase.latency_max_us());
    }
}
