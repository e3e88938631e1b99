//! Tests of the log through its public face, most of them on the simulated file system.
#![allow(clippy::unwrap_used)]

/// Of `oplog_sealed`, which runs tests of these on a log that is encrypted.
fn keys() -> Option<std::sync::Arc<crypt::Keys>> {
    None
}

mod concurrency;
mod crash;
mod damage;
mod failure;
mod layout;
mod lifecycle;
mod older;
mod pin;
mod position;
mod room;
mod short;
mod support;
mod tail;
