//! The inMemory engine: the readable reference, multi-versioned, concurrent.
