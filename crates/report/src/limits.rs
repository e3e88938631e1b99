//! Bounds of a file of results. A file past one of them is refused, not shortened.

/// Bytes of a file. A day of one run with ten operations is about 8 MB.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Runs of a session.
pub const RUNS_MAX: usize = 10_000;
/// Kinds of operations of one run; the largest workload has ten.
pub const OPERATIONS_MAX: usize = 256;
/// Points of one series: twelve days of seconds.
pub const POINTS_MAX: usize = 1 << 20;
/// Distinct values of one latency distribution: two digits over the range of 64 bits need 64 * 128.
pub const BUCKETS_MAX: usize = 8_192;
/// Bytes of one text: a name, a note, a configuration file.
pub const TEXT_BYTES_MAX: usize = 64 << 10;
/// Entries of one list or map of texts: options, parameters, notes, figures.
pub const ENTRIES_MAX: usize = 1_024;
/// Iterations of one run.
pub const ITERATIONS_MAX: usize = 100_000;
/// Checkpoints or stalls of one run.
pub const SPANS_MAX: usize = 100_000;
