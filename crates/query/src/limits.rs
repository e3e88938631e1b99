//! What blocking stages may hold in memory, and where they go on beyond it.

use crate::error::QueryError;
use spill::{SpillError, SpillSpace};
use std::sync::Arc;
use storage::Spilling;
use wire::ErrorCode;

/// What a blocking stage holds when nothing is set.
pub const BLOCKING_BYTES_MAX: u64 = 100 << 20;

/// Limits of the blocking stages of one execution, in bytes of memory for each stage.
#[derive(Clone, Debug)]
pub struct BlockingLimits {
    /// SORT and `$sort`.
    pub sort_bytes: u64,
    /// `$group`
    pub group_bytes: u64,
    /// `$bucketAuto`
    pub bucket_auto_bytes: u64,
    /// `$setWindowFields`
    pub window_bytes: u64,
    /// `$densify`
    pub densify_bytes: u64,
    /// Where a stage that outgrows its limit goes on; without it, it fails (292).
    pub disk: Option<Arc<SpillSpace>>,
}

impl BlockingLimits {
    /// The limits when nothing is set, without a disk.
    pub const IN_MEMORY: BlockingLimits = BlockingLimits {
        sort_bytes: BLOCKING_BYTES_MAX,
        group_bytes: BLOCKING_BYTES_MAX,
        bucket_auto_bytes: BLOCKING_BYTES_MAX,
        window_bytes: BLOCKING_BYTES_MAX,
        densify_bytes: BLOCKING_BYTES_MAX,
        disk: None,
    };

    /// The limit of one kind of stages.
    pub(crate) fn bytes(&self, what: Spilling) -> usize {
        let bytes = match what {
            Spilling::Sort => self.sort_bytes,
            Spilling::Group => self.group_bytes,
            Spilling::BucketAuto => self.bucket_auto_bytes,
            Spilling::SetWindowFields => self.window_bytes,
            Spilling::Densify => self.densify_bytes,
        };
        usize::try_from(bytes).unwrap_or(usize::MAX)
    }

    /// Where stages spill to.
    ///
    /// Errors: 292 where they may not, 6007200 for `$densify`.
    pub(crate) fn disk(&self, what: Spilling) -> Result<&Arc<SpillSpace>, QueryError> {
        self.disk.as_ref().ok_or_else(|| {
            let bytes_max = self.bytes(what);
            let message = match what {
                Spilling::Sort => {
                    format!("Sort exceeded memory limit of {bytes_max} bytes, but did not opt in to external sorting.")
                }
                Spilling::Group => "Exceeded memory limit for $group, but didn't allow external sort. \
                                    Pass allowDiskUse:true to opt in."
                    .to_owned(),
                Spilling::BucketAuto => format!(
                    "$bucketAuto exceeded memory limit of {bytes_max} bytes, but did not opt in to external sorting. \
                     Pass allowDiskUse:true to opt in."
                ),
                Spilling::SetWindowFields => {
                    format!("Exceeded memory limit in $setWindowFields: {bytes_max} bytes, and it may not use the disk")
                }
                // MongoDB's never goes on on disk, and has a code of its own.
                Spilling::Densify => {
                    let message = format!("$densify exceeded memory limit of {bytes_max}");
                    return QueryError::new(ErrorCode(6_007_200), message);
                }
            };
            QueryError::new(ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed, message)
        })
    }
}

impl Default for BlockingLimits {
    fn default() -> Self {
        Self::IN_MEMORY
    }
}

impl From<SpillError> for QueryError {
    fn from(error: SpillError) -> Self {
        let code = match &error {
            SpillError::NoSpace { .. } => ErrorCode::OutOfDiskSpace,
            SpillError::Io { source, .. } if vfs::is_out_of_descriptors(source) => ErrorCode::TooManyFilesOpen,
            SpillError::Io { operation: "read", .. } => ErrorCode(16817),
            SpillError::Io { .. } => ErrorCode(16821),
            SpillError::Damaged { .. } => ErrorCode(31182),
            _ => ErrorCode::ExceededMemoryLimit,
        };
        QueryError::new(code, error.to_string())
    }
}
