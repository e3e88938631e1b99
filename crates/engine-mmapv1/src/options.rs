//! What can be set when the engine is opened.

/// How much room a record is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// The next power of two: records can grow where they lie, and what one leaves fits others.
    PowersOfTwo,
    /// As much as it needs: for data that does not grow.
    Exact,
}

/// Options of the engine.
#[derive(Clone, Debug)]
pub struct Mmapv1Options {
    /// Memory for pages and for what open snapshots see of changed rows, in bytes.
    pub cache_bytes: u64,
    /// Length of a database's first data file; each further one is twice as long.
    pub first_file_bytes: u64,
    /// Length of the longest data file.
    pub file_bytes_max: u64,
    /// Length of a database's namespace file: how many tables it has room for.
    pub namespace_bytes: u64,
    /// Reserve the whole of a file when it is made.
    pub preallocate: bool,
    /// A directory for each database made from now on.
    pub directory_per_database: bool,
    /// A database may have so many data files; none beyond are made for tables that come to be.
    pub files_per_database_max: Option<u32>,
    /// How records are given room.
    pub allocation: Allocation,
}

impl Mmapv1Options {
    /// With the file sizes MongoDB had by default: 64 MB to 2 GB.
    pub fn with_cache(cache_bytes: u64) -> Self {
        Self {
            cache_bytes,
            first_file_bytes: 64 << 20,
            file_bytes_max: 0x7ff0_0000,
            namespace_bytes: 16 << 20,
            preallocate: true,
            directory_per_database: false,
            files_per_database_max: None,
            allocation: Allocation::PowersOfTwo,
        }
    }

    /// `smallFiles`: a quarter of each.
    pub fn with_small_files(mut self) -> Self {
        self.first_file_bytes = 16 << 20;
        self.file_bytes_max = 512 << 20;
        self
    }
}
