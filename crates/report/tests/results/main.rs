//! The crate from outside: files, CSV, comparison, standings and pages of made-up sessions.

#[path = "../fixture/mod.rs"]
mod fixture;

mod choices;
mod comparison;
mod files;
mod pages;
mod standings;
mod tables;
