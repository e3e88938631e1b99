//! The block store from outside, on the simulated disk.
#![allow(clippy::unwrap_used)]

/// Of `store_sealed`, which runs the same tests on a store that is encrypted.
fn keys() -> Option<std::sync::Arc<crypt::Keys>> {
    None
}

mod basics;
mod churn;
mod crash;
mod damage;
mod full_disk;
mod owner;
mod pinned;
