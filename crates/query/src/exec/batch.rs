//! How much is read at once.

use engine::FillLimits;

/// Rows of the first batch; each later one is four times larger.
const FIRST_BATCH_ROWS: usize = 16;
pub(crate) const BATCH_ROWS_MAX: usize = 256;
pub(crate) const BATCH_BYTES_MAX: usize = 256 * 1024;

/// The limits of a scan's next batch: small first, because most queries stop early.
pub(crate) struct GrowingBatch(usize);

impl GrowingBatch {
    pub(crate) fn new() -> Self {
        Self(FIRST_BATCH_ROWS)
    }

    /// Has the next batch hold all of so many rows, if it can.
    pub(crate) fn grow_to(&mut self, rows: u64) {
        self.0 = (rows.min(BATCH_ROWS_MAX as u64) as usize).max(self.0);
    }

    pub(crate) fn next(&mut self) -> FillLimits {
        let rows_max = self.0;
        self.0 = (rows_max * 4).min(BATCH_ROWS_MAX);
        FillLimits {
            rows_max,
            bytes_max: BATCH_BYTES_MAX,
        }
    }
}
