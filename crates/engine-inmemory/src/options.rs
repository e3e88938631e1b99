//! What a user can choose.

/// Options of [`crate::InMemoryEngine::open`].
#[derive(Clone, Debug, Default)]
pub struct InMemoryOptions {
    /// Never write a file: data ends with the process. `checkpoint` then answers `Seq::ZERO`.
    pub ephemeral: bool,
}
