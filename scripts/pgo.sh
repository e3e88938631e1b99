#!/usr/bin/env bash
# Profile-guided optimisation: builds the programs twice, and what the first ones count at work tells the compiler what is hot.
# scripts/pgo.sh CARGO_ARGUMENT...: `cargo build --release -p server -p tenon CARGO_ARGUMENT...` into $CARGO_TARGET_DIR/pgo/release.
# A profile is made once for each state of the sources, version of the compiler and choice of features.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
host=$(rustc -vV | sed -n 's/^host: //p')
profdata="$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata"
if [ ! -x "$profdata" ]; then
    say "the compiler's tools for profiles (llvm-tools)"
    rustup component add llvm-tools
fi
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/pgo"
programs="$CARGO_TARGET_DIR/$host/release"

# Without git, as in an unpacked source package, the files' contents say which sources they are.
sources() { git ls-tree -r HEAD -- Cargo.lock Cargo.toml crates 2>/dev/null || find Cargo.lock Cargo.toml crates -type f -print0 | sort -z | xargs -0 sha256sum; }
state=$({ rustc -vV; sources; echo "$@"; } | sha256sum | cut -c1-16)
profile="$TENON_CACHE/profiles/$state.profdata"

# With --target neither build scripts nor macros are counted, which run while the compiler does.
build() { RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --release --target "$host" -p server -p tenon "${@:2}"; }

# The work that is counted: the benchmarks' loads on the engines that every build has, and the tests that ask for each operator,
# stage and kind of index. Those ask for everything a few times only, and count for more.
train() {
    local raw=$1 data
    data=$(mktemp -d)
    say "training: benchmarks"
    # Whether the figures are good does not matter here.
    LLVM_PROFILE_FILE="$raw/bench/%p-%m.profraw" "$programs/tenon" bench all --scale 0.01 --duration 2 --warm-up 0 --insert-seconds 4 \
        --loops 2 --engines btree,betree,inMemory,mmapv1 --directory "$data" --json "$data/bench.json" || say "the benchmarks failed: $?"
    rm -rf "$data"
    say "training: operators"
    TENOND="$programs/tenond" TENON_CLIENTS="$TENON_CLIENTS" LLVM_PROFILE_FILE="$raw/operators/%p-%m.profraw" \
        "$TENON_CLIENTS/python/bin/python" -m pytest -q -p no:cacheprovider --numprocesses "$(nproc)" --dist loadfile \
        tests/e2e/test_{corpus,crud,aggregate,indexes,geo,text,collation,timeseries,window_fields,wildcard,isolation,change_streams,cursors}.py
    "$profdata" merge --output "$profile.new" --weighted-input=1,"$raw/bench" --weighted-input=100,"$raw/operators"
    mv "$profile.new" "$profile"
}

if [ ! -s "$profile" ]; then
    scripts/setup-tests.sh python
    raw=$(mktemp -d)
    trap 'rm -rf "$raw"' EXIT
    mkdir -p "$TENON_CACHE/profiles"
    say "building programs that count what they do"
    # Where the counts go says LLVM_PROFILE_FILE.
    build -Cprofile-generate "$@"
    train "$raw"
fi
say "building with the profile"
build "-Cprofile-use=$profile" "$@"
mkdir -p "$CARGO_TARGET_DIR/release"
ln -f "$programs/tenond" "$programs/tenon" "$CARGO_TARGET_DIR/release/"
