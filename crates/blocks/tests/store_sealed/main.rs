//! The block store from outside, encrypted: what a crash and damage leave, and what is to be seen in its files.
#![allow(clippy::unwrap_used)]

use crypt::Keys;
use std::sync::{Arc, LazyLock};

static KEYS: LazyLock<Arc<Keys>> = LazyLock::new(|| Arc::new(Keys::ephemeral()));

fn keys() -> Option<Arc<Keys>> {
    Some(KEYS.clone())
}

#[path = "../store/churn.rs"]
mod churn;
#[path = "../store/crash.rs"]
mod crash;
#[path = "../store/owner.rs"]
mod owner;
#[path = "../store/pinned.rs"]
mod pinned;
mod sealed;
