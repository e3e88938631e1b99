//! What one run shall do: handed as JSON to the process that does it.

use crate::subject::SubjectKind;
use crate::workload::Workload;
use codec::Codec;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// One run: a workload on a subject.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    /// What is done.
    pub workload: Workload,
    /// To whom.
    pub subject: SubjectKind,
    /// Rows of the workloads whose data fits the cache.
    pub rows: u64,
    /// Cache of those workloads, in bytes. Runs set it to what they open the subject with.
    pub cache_bytes: u64,
    /// Cache of the workloads whose data is larger, in bytes; their rows follow from it.
    pub small_cache_bytes: u64,
    /// Length of a value.
    pub value_bytes: usize,
    /// Compressor of record tables.
    #[serde(with = "codec_name")]
    pub codec: Codec,
    /// Longest time of a measured phase.
    pub seconds: f64,
    /// Time of W13.
    pub minutes: f64,
    /// Client threads, where the workload does not say.
    pub threads: usize,
    /// Time between checkpoints.
    pub checkpoint_seconds: f64,
    /// Raw bytes of W12's dirty data and W19's log, in MiB.
    pub volume_mib: u64,
    /// Tenon's engines read past the system's cache, where they can.
    pub direct_io: bool,
    /// Measure latency in an open loop, too.
    pub open_loop: bool,
    /// Where everything random comes from.
    pub seed: u64,
    /// Where the data goes; exists and is empty when the run begins.
    pub directory: PathBuf,
    /// A prepared cgroup, to limit memory.
    pub memory_group: Option<PathBuf>,
    /// The second process, of a workload that [opens again](Workload::opens_again) what the first left.
    pub second: bool,
}

impl RunSpec {
    /// Rows of 256-byte values, keys included, that take four times the small cache.
    pub fn large_rows(&self) -> u64 {
        4 * self.small_cache_bytes / (self.value_bytes as u64 + 8)
    }
}

/// Codecs by name.
mod codec_name {
    use codec::Codec;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(codec: &Codec, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(codec.name())
    }

    pub fn deserialize<'d, D: Deserializer<'d>>(deserializer: D) -> Result<Codec, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
