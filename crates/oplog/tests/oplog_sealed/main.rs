//! The log from outside, encrypted.
#![allow(clippy::unwrap_used)]

use crypt::Keys;
use std::sync::{Arc, LazyLock};

static KEYS: LazyLock<Arc<Keys>> = LazyLock::new(|| Arc::new(Keys::ephemeral()));

fn keys() -> Option<Arc<Keys>> {
    Some(KEYS.clone())
}

#[path = "../oplog/crash.rs"]
mod crash;
#[path = "../oplog/failure.rs"]
mod failure;
#[path = "../oplog/pin.rs"]
mod pin;
#[path = "../oplog/position.rs"]
mod position;
mod sealed;
#[path = "../oplog/support.rs"]
mod support;
#[path = "../oplog/tail.rs"]
mod tail;
