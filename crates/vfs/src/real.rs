//! The machine's own file system.

/// Files of the operating system.
pub struct RealFs;
