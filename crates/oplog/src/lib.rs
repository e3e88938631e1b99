//! The one log: segmented, checksummed, group-committed.
