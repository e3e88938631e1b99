//! The block store from outside, on the simulated disk.
#![allow(clippy::unwrap_used)]

mod basics;
mod churn;
mod crash;
mod damage;
mod owner;
mod pinned;
