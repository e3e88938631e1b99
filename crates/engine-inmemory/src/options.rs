//! What a user can choose.

/// Options of [`crate::InMemoryEngine::open`].
#[derive(Clone, Debug)]
pub struct InMemoryOptions {
    /// Never write a file: data ends with the process. `checkpoint` then answers `Seq::ZERO`.
    pub ephemeral: bool,
    /// The memory that the engine is meant to have: what [`engine::Engine::set_history_percent`] counts from. Rows may
    /// take more.
    pub memory_bytes: u64,
    /// Where all of it takes more, no row may be inserted: [`engine::Engine::check_growth`]. `None`: as much as there
    /// is.
    pub memory_bytes_max: Option<u64>,
}

impl Default for InMemoryOptions {
    fn default() -> Self {
        Self {
            ephemeral: false,
            memory_bytes: 256 << 20,
            memory_bytes_max: None,
        }
    }
}
