//! The figures by which configurations are compared, each with its noise.

use crate::experiment::Pool;
use crate::noise::{Basis, Columns, Estimate, Ratio};
use crate::{Run, number};
use std::cmp::Ordering;

/// Standard errors that are usual for figures of which one run shows no noise.
mod usual {
    pub const RATE: f64 = 0.05;
    pub const LATENCY: f64 = 0.10;
    pub const PER_OPERATION: f64 = 0.05;
    pub const SIZE: f64 = 0.01;
    pub const MEMORY: f64 = 0.02;
    pub const DURATION: f64 = 0.05;
    pub const START: f64 = 0.10;
}

/// Starts and stops that differ by less are the same to a user.
const START_SECONDS_SAME: f64 = 0.05;
/// Sizes are comparable when the documents written differ by no more than this share of the smaller size.
const SIZE_GROWTH_SAME: f64 = 0.05;
/// Fewer bytes per operation than this, on both sides, are none.
const BYTES_SAME: f64 = 16.0;
/// Fewer reads of the disk per operation than this, on both sides, are none.
const READS_SAME: f64 = 0.01;
/// Commands below which a p99 says nothing.
const P99_COMMANDS_MIN: u64 = 1_000;
/// Two figures are the same when they differ by less than the tolerance and a difference of so many tolerances is ruled
/// out. One run of each rarely rules out less.
const RULED_OUT: f64 = 3.0;
/// The figure of writers of `tenon stress` that were flushed.
const FLUSH_SECONDS: &str = "flushSeconds";
/// A difference that nobody would choose by.
pub const TOLERANCE: f64 = 0.05;

/// One figure of a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Operations per second.
    Throughput,
    /// Seconds of the first, cold iteration.
    Cold,
    /// Mean seconds of the other iterations.
    Cached,
    /// The latency of an operation that 99 % did not exceed.
    P99(String),
    /// Processor time of the server per operation.
    ServerCpu,
    /// Bytes fetched from storage per operation.
    Read,
    /// Reads of the storage device per operation.
    DiskReads,
    /// Bytes sent to storage per operation.
    Written,
    /// Bytes of the data directory.
    Size,
    /// The most memory that the server held.
    Memory,
    /// Seconds from the server's start to its first answer.
    Start,
    /// Seconds from asking the server to stop to its end.
    Stop,
}

/// What a comparison of two figures says about the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is better, beyond noise and tolerance.
    Better,
    /// It is worse, beyond noise and tolerance.
    Worse,
    /// They differ by less than the tolerance, and surely not by three times as much.
    Same,
    /// The noise is too large to tell.
    Unclear,
}

impl Verdict {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Same => "same",
            Self::Unclear => "unclear",
        }
    }
}

impl Measure {
    /// The figures that a pool may have, the most interesting first.
    pub fn of(pool: &Pool) -> Vec<Self> {
        let mut measures = vec![Self::Throughput, Self::Cold, Self::Cached];
        measures.extend(pool.operations().into_iter().map(|name| Self::P99(name.to_owned())));
        measures.extend([
            Self::ServerCpu,
            Self::Read,
            Self::DiskReads,
            Self::Written,
            Self::Size,
            Self::Memory,
            Self::Start,
            Self::Stop,
        ]);
        measures.retain(|measure| measure.estimate(pool).is_some());
        measures
    }

    /// Its name.
    pub fn name(&self) -> String {
        match self {
            Self::Throughput => "throughput".to_owned(),
            Self::Cold => "cold pass".to_owned(),
            Self::Cached => "cached pass".to_owned(),
            Self::P99(operation) => format!("p99 of {operation}"),
            Self::ServerCpu => "server CPU per operation".to_owned(),
            Self::Read => "bytes read per operation".to_owned(),
            Self::DiskReads => "reads of the disk per operation".to_owned(),
            Self::Written => "bytes written per operation".to_owned(),
            Self::Size => "size on disk".to_owned(),
            Self::Memory => "peak memory".to_owned(),
            Self::Start => "start-up".to_owned(),
            Self::Stop => "shutdown".to_owned(),
        }
    }

    /// A value of it with its unit.
    pub fn show(&self, value: f64) -> String {
        match self {
            Self::Throughput => format!("{}/s", number::short(value)),
            Self::DiskReads => number::short(value),
            Self::Cold | Self::Cached | Self::P99(_) | Self::ServerCpu | Self::Start | Self::Stop => {
                number::seconds(value)
            }
            Self::Read | Self::Written | Self::Size | Self::Memory => number::bytes(value),
        }
    }

    /// True when more is better.
    pub fn more_is_better(&self) -> bool {
        *self == Self::Throughput
    }

    /// The figure of a pool's repetitions: their mean.
    pub fn estimate(&self, pool: &Pool) -> Option<Estimate> {
        let values: Vec<f64> = pool.runs.iter().filter_map(|run| self.value(run)).collect();
        if values.is_empty() {
            return None;
        }
        let value = values.iter().sum::<f64>() / values.len() as f64;
        let series: Vec<Columns> = pool.runs.iter().filter_map(|run| self.columns(run)).collect();
        let spread = pool.spreads.of(self);
        Some(Estimate::new(value, values.len(), &series, spread, self.usual_error()))
    }

    /// Measures of one kind differ from run to run alike: those of all operations are one.
    pub(crate) fn kind(&self) -> Self {
        match self {
            Self::P99(_) => Self::P99(String::new()),
            other => other.clone(),
        }
    }

    /// The figure of one run in seconds, bytes or operations per second.
    pub fn value(&self, run: &Run) -> Option<f64> {
        match self {
            Self::Throughput => run.rate(),
            Self::Cold => run
                .iterations
                .iter()
                .find(|iteration| iteration.cold)
                .map(|iteration| iteration.seconds),
            Self::Cached => {
                let warm = || run.iterations.iter().filter(|iteration| !iteration.cold);
                let count = warm().count();
                (count > 0).then(|| warm().map(|iteration| iteration.seconds).sum::<f64>() / count as f64)
            }
            Self::P99(name) => {
                let latency = run.operations.get(name)?.latency.as_ref()?;
                (latency.count >= P99_COMMANDS_MIN).then_some(latency.p99_ns as f64 / 1e9)
            }
            Self::ServerCpu => Some(run.server_cpu_us_per_operation()? / 1e6),
            Self::Read => run.per_operation(run.read_bytes),
            Self::DiskReads => run.per_operation(run.read_requests),
            Self::Written => run.per_operation(run.written_bytes),
            Self::Size => Some(run.file_bytes? as f64),
            Self::Memory => Some(run.rss_peak_bytes? as f64),
            Self::Start => run.start_seconds,
            Self::Stop => run.stop_seconds,
        }
    }

    /// The columns of a run's series that show the figure's noise.
    fn columns(&self, run: &Run) -> Option<Columns> {
        let series = &run.series;
        let float = |column: &[u64]| column.iter().map(|&value| value as f64).collect::<Vec<_>>();
        let per_operation = |column: &[u64]| {
            (!column.is_empty()).then(|| Columns {
                numerator: float(column),
                denominator: float(&series.total()),
            })
        };
        match self {
            Self::Throughput => {
                let numerator = float(&series.total());
                let denominator = vec![series.interval_seconds; numerator.len()];
                Some(Columns { numerator, denominator })
            }
            Self::P99(name) => {
                let latency = series.latency_p99_ns.get(name)?;
                let weight = float(series.operations.get(name)?);
                let numerator = latency
                    .iter()
                    .zip(&weight)
                    .map(|(&p99, weight)| p99 as f64 * weight)
                    .collect();
                Some(Columns {
                    numerator,
                    denominator: weight,
                })
            }
            Self::ServerCpu => per_operation(&series.server_cpu_us),
            Self::Read => per_operation(&series.read_bytes),
            Self::Written => per_operation(&series.written_bytes),
            Self::Cold | Self::DiskReads | Self::Size | Self::Memory | Self::Start | Self::Stop => None,
            Self::Cached => {
                let numerator: Vec<_> = run
                    .iterations
                    .iter()
                    .filter(|it| !it.cold)
                    .map(|it| it.seconds)
                    .collect();
                let denominator = vec![1.0; numerator.len()];
                Some(Columns { numerator, denominator })
            }
        }
    }

    /// Less than this is as good as nothing.
    pub fn none_below(&self) -> f64 {
        match self {
            Self::Read | Self::Written => BYTES_SAME,
            Self::DiskReads => READS_SAME,
            _ => 0.0,
        }
    }

    fn usual_error(&self) -> f64 {
        match self {
            Self::Throughput => usual::RATE,
            Self::P99(_) => usual::LATENCY,
            Self::ServerCpu | Self::Read | Self::DiskReads | Self::Written => usual::PER_OPERATION,
            Self::Size => usual::SIZE,
            Self::Memory => usual::MEMORY,
            Self::Cold | Self::Cached => usual::DURATION,
            Self::Start | Self::Stop => usual::START,
        }
    }

    /// True when the figure of two pools is counted alike: [`crate::COUNTING`] says what builds count otherwise.
    pub fn is_counted_alike(&self, a: &Pool, b: &Pool) -> bool {
        let runs = || a.runs.iter().chain(&b.runs);
        let is_alike = || {
            let mut countings = runs().map(|run| run.counting);
            let first = countings.next();
            a.runs.is_empty() || b.runs.is_empty() || countings.all(|counting| Some(counting) == first)
        };
        // What only reads is not flushed.
        let is_flushed = |run: &Run| run.document_bytes.is_some() || run.figures.contains_key(FLUSH_SECONDS);
        match self {
            Self::ServerCpu | Self::Written => is_alike() || !runs().any(|run| is_flushed(run)),
            Self::Stop => is_alike(),
            _ => true,
        }
    }

    /// True when the figure of two pools is of the same work. Sizes after unequal amounts of writing are not.
    pub fn comparable(&self, a: &Pool, b: &Pool) -> bool {
        if *self != Self::Size {
            return true;
        }
        let documents = |pool: &Pool| pool.runs.last().and_then(|run| run.document_bytes);
        let size = |pool: &Pool| pool.runs.last().and_then(|run| run.file_bytes).unwrap_or(0);
        match (documents(a), documents(b)) {
            (Some(of_a), Some(of_b)) => of_a.abs_diff(of_b) as f64 <= size(a).min(size(b)) as f64 * SIZE_GROWTH_SAME,
            _ => true,
        }
    }

    /// What `a` is, compared with `b`, as one of so many comparisons. With a tolerance of 0.05, a difference below 5 %
    /// is none.
    pub fn judge(&self, a: &Estimate, b: &Estimate, tolerance: f64, comparisons: usize) -> (Option<Ratio>, Verdict) {
        // What is as good as nothing is not a thousand times less than something.
        let least = self.none_below();
        let raised = |of: &Estimate| Estimate {
            value: of.value.max(least),
            ..*of
        };
        let (a, b) = (&raised(a), &raised(b));
        let ratio = Ratio::of(a, b);
        if least > 0.0 && a.value.max(b.value) <= least {
            return (ratio, Verdict::Same);
        }
        if [a.basis, b.basis].contains(&Basis::Once) {
            return (ratio, Verdict::Unclear);
        }
        let (Some(ratio), Some(among)) = (ratio, Ratio::among(a, b, comparisons)) else {
            let verdict = match a.value.total_cmp(&b.value) {
                Ordering::Equal => Verdict::Same,
                order if (order == Ordering::Greater) == self.more_is_better() => Verdict::Better,
                _ => Verdict::Worse,
            };
            return (None, verdict);
        };
        let near = matches!(self, Self::Start | Self::Stop) && (a.value - b.value).abs() < START_SECONDS_SAME;
        let within = |value: f64, share: f64| value <= 1.0 + share && value >= 1.0 / (1.0 + share);
        let apart = among.low > 1.0 || among.high < 1.0;
        let wide = tolerance * RULED_OUT;
        let verdict = if near {
            Verdict::Same
        } else if within(ratio.value, tolerance) {
            let known = apart || (within(ratio.low, wide) && within(ratio.high, wide));
            if known { Verdict::Same } else { Verdict::Unclear }
        } else if !apart {
            Verdict::Unclear
        } else if (ratio.value > 1.0) == self.more_is_better() {
            Verdict::Better
        } else {
            Verdict::Worse
        };
        (Some(ratio), verdict)
    }
}
