//! A file system in memory that crashes and fails on command.

/// A simulated file system.
pub struct SimulatedFs;

/// A fault to inject.
pub struct Fault;
