#!/usr/bin/env bash
# Every test, in the order in which a failure is cheapest to find: `make test`. With the argument `all` what a release needs besides:
# `make test-all`; see docs/testing.md.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
extent=${1:-usual}

# phase NAME COMMAND...: runs a command and prints how long it took, and how much of the processors' time
phase() {
    say "$1"
    TIMEFORMAT="    $1: %0R s; processors %0U + %0S s"
    time "${@:2}"
}

xtask() { cargo run --quiet -p xtask -- "$@"; }

# Crates that the schedule checker runs: their feature `shuttle` puts its locks and threads in the place of the real ones.
schedules() {
    local crate arguments=()
    for crate in rcu pins crew locks oplog engine-btree; do arguments+=(-p "$crate" --features "$crate/shuttle"); done
    xtask test "${arguments[@]}" --test schedules
}

# The programs the end-to-end tests start: optimised as in a release, but not across crates, which takes most of a release's build.
programs() {
    local features=""
    if [ "${ENGINES:-default}" = all ]; then features="--features rocksdb"; fi
    # Not in one call: the features of one program's packages would become the other's, and RocksDB's C++ be compiled again.
    cargo build --quiet --profile fast -p server $features
    cargo build --quiet --profile fast -p tenon $features
    # The server with an engine from outside.
    cargo build --quiet --profile fast -p engine-deltas
}

clients() {
    export TENOND="$CARGO_TARGET_DIR/fast/tenond" TENON_CLIENTS
    # More processes than processors: those that wait for elections and kills need none.
    "$TENON_CLIENTS/python/bin/python" -m pytest tests -q -p no:cacheprovider --timeout 1800 --numprocesses $(($(nproc) * 2)) \
        --dist loadfile --no-loadscope-reorder --durations 15
}

# Every target for a minute; the corpora stay outside the checkout.
fuzz() {
    local target
    for target in $(cargo +nightly fuzz list); do
        mkdir -p "$TENON_CACHE/fuzz/$target"
        cargo +nightly fuzz run --target-dir "$TENON_CACHE/target-fuzz" "$target" "$TENON_CACHE/fuzz/$target" -- \
            -max_total_time=60 -max_len=3000 -verbosity=0 -artifact_prefix="$TENON_CACHE/fuzz/$target-"
    done
}

if [ "$extent" = all ]; then
    export TENON_SHUTTLE_FACTOR=${TENON_SHUTTLE_FACTOR:-10} TENON_KILL_ROUNDS=${TENON_KILL_ROUNDS:-100} TENON_EXTENT=all
    export TENON_RANDOM_FACTOR=${TENON_RANDOM_FACTOR:-10}
fi
phase "formatting, lints, documentation" xtask verify --no-tests
phase "crates (no C++)" xtask test
phase "schedules of threads" schedules
if [ "${ENGINES:-default}" = all ]; then
    # With repl, whose build scripts have features of crates that RocksDB's have, too: without them the C++ would be compiled for this,
    # and once more for the server.
    phase "rocksdb engine: conformance kit; consensus, optimised" xtask test --profile fast -p engine-rocksdb -p repl
    phase "fuzz targets: they build" cargo check --quiet --locked --manifest-path fuzz/Cargo.toml
fi
phase "tenond and tenon, optimised" programs
phase "real clients: pymongo, mongosh, Node and Java drivers, crash loops" clients
if [ "$extent" = all ]; then
    if cargo +nightly fuzz --version >/dev/null 2>&1; then
        phase "fuzzing, a minute each" fuzz
    else
        say "NOT DONE: fuzzing needs a nightly compiler and cargo-fuzz, see docs/testing.md"
    fi
fi
