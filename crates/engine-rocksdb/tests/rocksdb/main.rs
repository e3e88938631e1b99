//! The engine as its users see it: the conformance kit, and what takes a process of its own.

mod conformance;
mod copies;
mod process;
mod ranges;
mod views;
