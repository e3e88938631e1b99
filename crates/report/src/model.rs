//! What a session of measurements found: plain data, as it stands in the file.
//!
//! Totals are kept, rates are derived: a run has bytes and microseconds, and methods divide. `None` and empty columns
//! mean "not known on this machine or for this server", never zero. Times are seconds from the run's start unless a
//! name says otherwise; latencies are nanoseconds; sizes are bytes.
//!
//! Names that the page knows, so that it can draw the sources' tables:
//!
//! | workload | phases | operations |
//! |---|---|---|
//! | `book` | `insert`, `read` (one [`Iteration`] per full read); `clients`, `search`, `filter` | `insert`, `read`, ... |
//! | `linkbench` | `load`, `query` | as published: `addNode`, `updateNode`, `getNode`, `updateLink`, `getLinkList`, ... |
//! | `iibench` | `insert` | `insert`, `query` |
//! | `ycsb` | `load`, `a` ... `f` | `read`, `update`, `insert`, `scan`, `readModifyWrite` |
//! | `transactions` | `load`, `disjoint`, `hot` | `transaction` |
//! | `scan` | `cold`, `cached` (one [`Iteration`] per scan) | `scan` |
//! | `replicaSet` | `insert`, `failover`, `stepDown`, `load`, `initialSync` | `insert`, `copy` |
//! | `stress` | `inRam.write`, `inRam.read`, `largerThanRam.write`, `largerThanRam.read` | `write`, `read` |
//!
//! Other names are shown in the general tables and charts.

use crate::Latency;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The version of the file's format that this crate writes and reads.
pub const FORMAT: u64 = 1;

/// Systems count processor time in ticks of 10 ms, and a difference of two counts may be one of them wrong: less than
/// this is not known within 5 %, and nothing is said of it per operation.
pub const CPU_US_MIN: u64 = 200_000;

/// Other programs that take more of the processors than this decide what is measured, too.
pub const OTHERS_CPU_SHARE_MAX: f64 = 0.10;

/// How this build counts. 2: processor time and bytes of writers up to when all is durable, and shut-downs from then
/// on.
pub const COUNTING: u32 = 2;

/// Everything that one call of the tool measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Session {
    /// [`FORMAT`].
    pub format: u64,
    /// Name and version of the tool, such as `tenon 0.1.0`.
    pub tool: String,
    /// When it began, in milliseconds since 1970 UTC.
    pub started_ms: i64,
    /// How it was called.
    pub command_line: Vec<String>,
    /// Where it ran.
    pub machine: Machine,
    /// What was measured, in the order in which it was.
    pub runs: Vec<Run>,
}

/// Where a session ran. An empty text or zero means "not known".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors that the tool may use.
    pub cores: u32,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Name and version of the kernel.
    pub kernel: String,
    /// Kind of the file system under the data.
    pub file_system: String,
    /// The device under it, such as `/dev/nvme0n1 (ssd)`.
    pub disk: String,
}

/// One phase of one workload against one configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// Name of the workload.
    pub workload: String,
    /// Name of its phase.
    pub phase: String,
    /// [`COUNTING`] of the build that measured it. Files of builds that did not tell are of the first one.
    #[serde(default = "first_counting")]
    pub counting: u32,
    /// What was measured.
    pub configuration: Configuration,
    /// What decides the amount and kind of work, such as `scale` or `indexes`. Runs are comparable only when these are
    /// equal.
    pub parameters: BTreeMap<String, String>,
    /// Seed of all random choices.
    pub seed: u64,
    /// Number of the repetition, from 0.
    #[serde(default)]
    pub repetition: u32,
    /// Connections that worked at once.
    pub clients: u32,
    /// Who decides when an operation starts.
    pub pacing: Pacing,
    /// When it began, in milliseconds since 1970 UTC.
    pub started_ms: i64,
    /// How long was measured, without warming.
    pub seconds: f64,
    /// What the clients did, by name.
    pub operations: BTreeMap<String, Operation>,
    /// What happened in each second.
    #[serde(default)]
    pub series: Series,
    /// Parts of the run that were timed each, such as full reads.
    #[serde(default)]
    pub iterations: Vec<Iteration>,
    /// Processor time of the server, user and system, in microseconds.
    pub server_cpu_us: Option<u64>,
    /// Processor time of the load generator in microseconds.
    pub generator_cpu_us: Option<u64>,
    /// Share of the machine's processor time that neither of the two took, nor the system for itself.
    #[serde(default)]
    pub others_cpu_share: Option<f64>,
    /// Bytes that the server fetched from storage.
    pub read_bytes: Option<u64>,
    /// Reads of the storage device.
    pub read_requests: Option<u64>,
    /// Bytes that the server sent to storage, until all of the run was durable when the measurement waited for that.
    pub written_bytes: Option<u64>,
    /// Bytes of the documents that the clients wrote, for write amplification.
    pub document_bytes: Option<u64>,
    /// Bytes of the data directory at the end; after the server's stop when this run stopped it.
    pub file_bytes: Option<u64>,
    /// The most memory that the server held.
    pub rss_peak_bytes: Option<u64>,
    /// The server's checkpoints, as far as their times are known; [`CHECKPOINTS`] is how many there were. `None`: the
    /// server does not tell.
    pub checkpoints: Option<Vec<Span>>,
    /// Times of little throughput, see [`crate::stalls()`].
    #[serde(default)]
    pub stalls: Vec<Span>,
    /// From the server's start to its first answer, when this run began with it.
    pub start_seconds: Option<f64>,
    /// From asking the server to stop to its end, when this run ended with it.
    pub stop_seconds: Option<f64>,
    /// Further figures by name, such as `consistentReadShare`; [`COLLAPSED`] where the run fails by it.
    #[serde(default)]
    pub figures: BTreeMap<String, f64>,
    /// What was not possible, in sentences.
    #[serde(default)]
    pub notes: Vec<String>,
    /// How it ended.
    pub outcome: Outcome,
}

/// What was measured: a server and how it was set up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Configuration {
    /// Its name in tables and charts, unique in a session.
    pub label: String,
    /// The storage engine.
    pub engine: String,
    /// Options that tell it from others, by name.
    pub options: BTreeMap<String, String>,
    /// Name and version of the server, such as `tenond 0.1.0 (git 0123abc)`.
    pub server_version: String,
    /// The configuration file that the server was started with; empty for a server that was running.
    #[serde(default)]
    pub yaml: String,
}

/// Who decides when an operation starts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "loop", rename_all = "camelCase")]
pub enum Pacing {
    /// Each client starts the next operation when the last one was answered.
    Closed,
    /// Operations start by the clock; latency counts from when they should have started.
    #[serde(rename_all = "camelCase")]
    Open {
        /// Operations per second of all clients.
        rate: f64,
    },
}

/// Operations of one kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Operation {
    /// Operations that were answered without an error. A command with many documents counts each of them.
    pub count: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Time of one command, which may carry many operations. `None` when it was not measured.
    pub latency: Option<Latency>,
}

/// What happened in each interval: columns of equal length, or empty ones when that is not known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Series {
    /// Length of an interval in seconds. The last one may have been shorter; it is then left out of the columns.
    pub interval_seconds: f64,
    /// Operations of each kind.
    pub operations: BTreeMap<String, Vec<u64>>,
    /// The latency in nanoseconds that 99 % of the interval's commands of each kind did not exceed; 0 without commands.
    /// It tells how sure the whole run's percentiles are.
    pub latency_p99_ns: BTreeMap<String, Vec<u64>>,
    /// Processor time of the server in microseconds.
    pub server_cpu_us: Vec<u64>,
    /// Memory of the server at the interval's end.
    pub rss_bytes: Vec<u64>,
    /// Bytes that the server fetched from storage.
    pub read_bytes: Vec<u64>,
    /// Bytes that the server sent to storage.
    pub written_bytes: Vec<u64>,
    /// Bytes in the engine's cache that are not on disk yet, at the interval's end.
    pub dirty_bytes: Vec<u64>,
    /// Bytes in the engine's cache at the interval's end.
    pub cache_bytes: Vec<u64>,
}

/// A stretch of time in a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Span {
    /// When it began.
    pub at_seconds: f64,
    /// How long it lasted.
    pub seconds: f64,
}

/// A part of a run that was timed by itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Iteration {
    /// How long it took.
    pub seconds: f64,
    /// The system's page cache had been dropped, and the server's cache was empty, before it.
    pub cold: bool,
    /// Documents or operations in it.
    pub operations: u64,
}

/// Figure of a run that collapsed: the slowest second's part of a good one's operations, see [`crate::collapse`].
pub const COLLAPSED: &str = "slowestSecondShare";

/// Figure: checkpoints that ended in a run, those included whose times are not known.
pub const CHECKPOINTS: &str = "checkpointCount";

/// Figure of a contended run: how often an operation began again, for each that was done.
pub const RESTARTS: &str = "restartsPerOperation";

/// Figure of a contended run: the operations of the client that did the fewest, as a share of those of the client that
/// did the most.
pub const SLOWEST_CLIENT: &str = "slowestClientShare";

/// Figure of a contended run: the longest time of one operation, including those that were not done at the end.
pub const LONGEST_OPERATION: &str = "longestOperationSeconds";

/// Figure of `stress`: the share of the documents that readers found as they were written.
pub const CONSISTENT: &str = "consistentReadShare";

/// Figures of `stress`: documents that were found otherwise than they were written.
pub const WRONG: [&str; 3] = ["torn", "stale", "foreign"];

/// Figure of `stress`: documents that are not there.
pub const LOST: &str = "lost";

/// Figure of a replica set: processor time of all members for each operation.
pub const ALL_CPU: &str = "allMembersCpuPerOperationSeconds";

/// Figure of a replica set: bytes that a follower sent to storage for each operation, the mean of the followers.
pub const FOLLOWER_WRITTEN: &str = "writtenPerOperationAndFollowerBytes";

/// Figure of a replica set: bytes that the disk wrote for each operation and member, whoever asked for that.
pub const DEVICE_WRITTEN: &str = "devicePerOperationAndMemberBytes";

/// Figure of a replica set: bytes that a follower received for each operation, the mean of the followers.
pub const FOLLOWER_WIRE: &str = "wirePerOperationAndFollowerBytes";

/// Figure of a replica set: bytes that the primary received from all followers for each operation.
pub const PRIMARY_WIRE: &str = "wirePerOperationToPrimaryBytes";

/// Figure of a replica set: the median of the time that followers were behind.
pub const LAG_MEDIAN: &str = "lagMedianSeconds";

/// Figure of a replica set: the longest time that a follower was behind.
pub const LAG_MAX: &str = "lagMaxSeconds";

/// Figure of a replica set: the median of the operations that followers were behind.
pub const LAG_MEDIAN_OPERATIONS: &str = "lagMedianOperations";

/// Figure of a replica set: the most operations that a follower was behind.
pub const LAG_MAX_OPERATIONS: &str = "lagMaxOperations";

/// Figure of a replica set: the rate at which the slowest follower applied, as a share of the primary's.
pub const FOLLOWER_RATE: &str = "followerRateShare";

/// Figure of a replica set: from the end of the load until all followers showed everything.
pub const CATCH_UP: &str = "catchUpSeconds";

/// Figure of failovers: how often the primary went.
pub const FAILOVERS: &str = "failoverCount";

/// Figures of failovers: median and maximum of the time without a primary.
pub const WITHOUT_PRIMARY: [&str; 2] = ["withoutPrimaryMedianSeconds", "withoutPrimaryMaxSeconds"];

/// Figures of failovers: median and maximum of the time to the first write that another primary acknowledged.
pub const FIRST_WRITE: [&str; 2] = ["firstWriteMedianSeconds", "firstWriteMaxSeconds"];

/// Figures of failovers: median and maximum of the time from a killed member's start until it followed.
pub const REJOIN: [&str; 2] = ["rejoinMedianSeconds", "rejoinMaxSeconds"];

/// Figure of failovers: acknowledged writes that are not there any more.
pub const LOST_WRITES: &str = "lostWriteCount";

/// Figures of failovers begin with this, and end with an error's code: how often clients saw it.
pub const ERRORS: &str = "errors.";

/// Figure of an initial sync: megabytes of documents in a second.
pub const COPIED: &str = "megabytesPerSecond";

/// Figure of an initial sync: processor time of the new member.
pub const NEW_MEMBER_CPU: &str = "newMemberCpuSeconds";

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum Outcome {
    /// As it was meant to.
    Complete,
    /// The user stopped it; what is there was measured until then.
    Interrupted,
    /// Something broke; what is there was measured until then.
    Failed {
        /// What broke, in a sentence.
        message: String,
    },
    /// The server does not allow what was to be measured. That is a finding, not a failure.
    Refused {
        /// The server's own words.
        message: String,
    },
    /// It was not tried, because it makes no sense with this configuration.
    Skipped {
        /// Why, in a sentence.
        message: String,
    },
}

impl Outcome {
    /// One word for tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Failed { .. } => "failed",
            Self::Refused { .. } => "refused",
            Self::Skipped { .. } => "skipped",
        }
    }

    /// Why it did not end as it was meant to, where there is more to say than the word.
    pub fn message(&self) -> Option<&str> {
        match self {
            Self::Complete | Self::Interrupted => None,
            Self::Failed { message } | Self::Refused { message } | Self::Skipped { message } => Some(message),
        }
    }

    /// True when results are missing that were to be had.
    pub fn is_partial(&self) -> bool {
        matches!(self, Self::Interrupted | Self::Failed { .. })
    }
}

fn first_counting() -> u32 {
    1
}

impl Default for Series {
    fn default() -> Self {
        Self {
            interval_seconds: 1.0,
            operations: BTreeMap::new(),
            latency_p99_ns: BTreeMap::new(),
            server_cpu_us: Vec::new(),
            rss_bytes: Vec::new(),
            read_bytes: Vec::new(),
            written_bytes: Vec::new(),
            dirty_bytes: Vec::new(),
            cache_bytes: Vec::new(),
        }
    }
}

impl Series {
    /// Operations of all kinds per interval.
    pub fn total(&self) -> Vec<u64> {
        let points = self.operations.values().map(Vec::len).max().unwrap_or(0);
        let mut total = vec![0u64; points];
        for column in self.operations.values() {
            for (sum, count) in total.iter_mut().zip(column) {
                *sum = sum.saturating_add(*count);
            }
        }
        total
    }
}

impl Session {
    /// A session without runs.
    pub fn new(tool: impl Into<String>, started_ms: i64, command_line: Vec<String>, machine: Machine) -> Self {
        Self {
            format: FORMAT,
            tool: tool.into(),
            started_ms,
            command_line,
            machine,
            runs: Vec::new(),
        }
    }
}

impl Run {
    /// A run of which nothing has been measured yet.
    pub fn new(workload: impl Into<String>, phase: impl Into<String>, configuration: Configuration) -> Self {
        Self {
            workload: workload.into(),
            phase: phase.into(),
            counting: COUNTING,
            configuration,
            parameters: BTreeMap::new(),
            seed: 0,
            repetition: 0,
            clients: 1,
            pacing: Pacing::Closed,
            started_ms: 0,
            seconds: 0.0,
            operations: BTreeMap::new(),
            series: Series::default(),
            iterations: Vec::new(),
            server_cpu_us: None,
            generator_cpu_us: None,
            others_cpu_share: None,
            read_bytes: None,
            read_requests: None,
            written_bytes: None,
            document_bytes: None,
            file_bytes: None,
            rss_peak_bytes: None,
            checkpoints: None,
            stalls: Vec::new(),
            start_seconds: None,
            stop_seconds: None,
            figures: BTreeMap::new(),
            notes: Vec::new(),
            outcome: Outcome::Complete,
        }
    }

    /// Operations of all kinds that succeeded.
    pub fn count(&self) -> u64 {
        self.operations
            .values()
            .map(|operation| operation.count)
            .fold(0, u64::saturating_add)
    }

    /// Operations of all kinds that failed.
    pub fn errors(&self) -> u64 {
        self.operations
            .values()
            .map(|operation| operation.errors)
            .fold(0, u64::saturating_add)
    }

    /// Operations that failed and should not have: where the primary is killed, some do, and documents that readers did
    /// not find as they were written have figures of their own.
    pub fn faults(&self) -> u64 {
        match [FAILOVERS, CONSISTENT]
            .iter()
            .any(|name| self.figures.contains_key(*name))
        {
            true => 0,
            false => self.errors(),
        }
    }

    /// Operations per second.
    pub fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0 && self.count() > 0).then(|| self.count() as f64 / self.seconds)
    }

    /// A total divided by the operations.
    pub fn per_operation(&self, total: Option<u64>) -> Option<f64> {
        let count = self.count();
        total.filter(|_| count > 0).map(|total| total as f64 / count as f64)
    }

    /// Processor time of the server per operation in microseconds, unless it is less than [`CPU_US_MIN`] in all.
    pub fn server_cpu_us_per_operation(&self) -> Option<f64> {
        self.per_operation(self.server_cpu_us.filter(|us| *us >= CPU_US_MIN))
    }

    /// Processor time of the load generator per operation in microseconds, unless it is less than [`CPU_US_MIN`] in
    /// all.
    pub fn generator_cpu_us_per_operation(&self) -> Option<f64> {
        self.per_operation(self.generator_cpu_us.filter(|us| *us >= CPU_US_MIN))
    }

    /// Bytes sent to storage per byte of documents that clients wrote.
    pub fn write_amplification(&self) -> Option<f64> {
        let documents = self.document_bytes.filter(|&bytes| bytes > 0)?;
        Some(self.written_bytes? as f64 / documents as f64)
    }

    /// What other programs took of the processors, where that is too much to say anything of the run.
    pub fn disturbed(&self) -> Option<f64> {
        self.others_cpu_share.filter(|share| *share > OTHERS_CPU_SHARE_MAX)
    }

    /// The figure [`COLLAPSED`].
    pub fn collapsed(&self) -> Option<f64> {
        self.figures.get(COLLAPSED).copied()
    }

    /// How many checkpoints ended in it.
    pub fn checkpoint_count(&self) -> Option<usize> {
        let counted = self.figures.get(CHECKPOINTS).map(|count| *count as usize);
        counted.or(self.checkpoints.as_ref().map(Vec::len))
    }

    /// True when it ended as it was meant to.
    pub fn is_complete(&self) -> bool {
        self.outcome == Outcome::Complete
    }
}
