//! Tests of the log through its public face, most of them on the simulated file system.
#![allow(clippy::unwrap_used)]

mod concurrency;
mod crash;
mod damage;
mod failure;
mod layout;
mod lifecycle;
mod older;
mod pin;
mod position;
mod support;
mod tail;
