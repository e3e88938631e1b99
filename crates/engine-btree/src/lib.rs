//! The `btree` engine: ordered trees of immutable pages, kept in memory and written to checksummed blocks.

// Until the tree above the pages calls them.
#![allow(dead_code, unused_imports)]

mod budget;
mod page;
mod workers;
