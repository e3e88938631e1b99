//! Arbitrary operations on the btree engine, with crashes and full disks, compared with the model of `engine-soak`.
#![no_main]

#[path = "../../crates/engine-btree/tests/btree/driver.rs"]
mod driver;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| driver::run(data));
