#!/usr/bin/env bash
# Every test, in the order in which a failure is cheapest to find. Called by `make test`.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh

say "formatting, lints, documentation"
cargo run -q -p xtask -- verify --no-tests
say "crates (no C++)"
cargo test --quiet
say "schedules: the cells, the register of snapshots, the btree engine and group commit, in thousands of orders of their threads"
cargo test --quiet -p rcu --features shuttle --test schedules
cargo test --quiet -p pins --features shuttle --test schedules
cargo test --quiet -p engine-btree --features shuttle --test schedules
cargo test --quiet -p oplog --features shuttle --test schedules
if [ "${ENGINES:-default}" = all ]; then
    say "rocksdb engine: conformance kit"
    cargo test --quiet --release -p engine-rocksdb
    say "fuzz targets: they build"
    cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
fi
say "the measuring tool"
cargo build --quiet --release -p tenon
say "real clients: pymongo, mongosh, Node and Java drivers, crash loops"
export TENOND="$CARGO_TARGET_DIR/release/tenond"
export TENON_CLIENTS
"$TENON_CLIENTS/python/bin/python" -m pytest tests -q -p no:cacheprovider --timeout 900
