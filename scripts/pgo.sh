#!/usr/bin/env bash
# Profile-guided optimisation: builds the programs twice, and what the first ones count at work tells the compiler what is hot.
# scripts/pgo.sh CARGO_ARGUMENT...: `cargo build --release -p server -p tenon CARGO_ARGUMENT...` into $CARGO_TARGET_DIR/pgo/release.
# A profile is made once for each state of the sources, version of the compiler and choice of flags and features; the last
# three are kept.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
host=$(rustc -vV | sed -n 's/^host: //p')
llvm=$(rustc -vV | sed -n 's/^LLVM version: \([0-9]*\).*/\1/p')
profdata="$(rustc --print sysroot)/lib/rustlib/$host/bin/llvm-profdata"
if [ ! -x "$profdata" ] && have rustup; then
    say "the compiler's tools for profiles (llvm-tools)"
    rustup component add llvm-tools || true
fi
# A compiler that is not rustup's comes with the system's LLVM. Another version need not read what this one counts.
is_fitting() { "$1" --version 2>/dev/null | grep "LLVM version $llvm\." >/dev/null; }
for program in "llvm-profdata-$llvm" llvm-profdata; do
    if [ ! -x "$profdata" ] && is_fitting "$program"; then profdata=$(command -v "$program"); fi
done
if [ ! -x "$profdata" ]; then
    echo "There is no llvm-profdata of LLVM $llvm, which $(rustc --version) has. Please install rustup's llvm-tools or the system's llvm-$llvm." >&2
    exit 1
fi
export CARGO_TARGET_DIR="$CARGO_TARGET_DIR/pgo"
programs="$CARGO_TARGET_DIR/$host/release"

# What is built, committed or not.
sources() { find Cargo.lock Cargo.toml crates -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum; }
state=$({ rustc -vV; sources; echo "${RUSTFLAGS:-}"; echo "$@"; } | sha256sum | cut -c1-16)
profiles="$TENON_CACHE/profiles"
profile="$profiles/$state.profdata"

# With --target neither build scripts nor macros are counted, which run while the compiler does.
build() { RUSTFLAGS="${RUSTFLAGS:-} $1" cargo build --release --target "$host" -p server -p tenon "${@:2}"; }

# The work that is counted: the benchmarks' loads on the engines that every build has, and the tests that ask for each operator,
# stage and kind of index. Those ask for everything a few times only, and count for more.
train() {
    local raw=$1 status=0
    say "training: benchmarks"
    # Whether the figures are good does not matter here. Of each program four files are added up, under a lock.
    LLVM_PROFILE_FILE="$raw/bench/%4m.profraw" "$programs/tenon" bench all --scale 0.01 --duration 2 --warm-up 0 --insert-seconds 4 \
        --loops 2 --engines btree,betree,inMemory,mmapv1 --directory "$raw/data" --json "$raw/bench.json" || status=$?
    ended "the benchmarks" "$status"
    rm -rf "$raw/data"
    status=0
    say "training: operators"
    TENOND="$programs/tenond" TENON_CLIENTS="$TENON_CLIENTS" LLVM_PROFILE_FILE="$raw/operators/%4m.profraw" \
        "$TENON_CLIENTS/python/bin/python" -m pytest -q -p no:cacheprovider --numprocesses "$(nproc)" --dist loadfile \
        tests/e2e/test_{corpus,crud,aggregate,indexes,geo,text,collation,timeseries,window_fields,wildcard,isolation,change_streams,cursors}.py || status=$?
    ended "the tests" "$status"
    counted bench
    counted operators
    "$profdata" merge --output "$raw/all.profdata" --weighted-input=1,"$raw/bench" --weighted-input=100,"$raw/operators"
    mv "$raw/all.profdata" "$profile"
}

# ended WORK STATUS: programs that count are slow, so that one of many tests may fail for want of time. Ctrl-C and the
# like end the build.
ended() {
    if [ "$2" = 0 ]; then return; fi
    say "$1 ended with $2"
    if [ "$2" != 1 ]; then exit "$2"; fi
}

# counted FOLDER: fails when an engine did nothing, as where the server did not start.
counted() {
    "$profdata" merge --output "$raw/$1.profdata" "$raw/$1"
    if ! "$profdata" show --all-functions --counts "$raw/$1.profdata" |
        awk '/^  [^ ].*:$/ { is_engine = /engine_btree/ } is_engine && /counts: .*[1-9]/ { found = 1 } END { exit !found }'; then
        echo "The training ($1) has counted nothing of the engine: no profile is made of it." >&2
        exit 1
    fi
}

if [ ! -s "$profile" ]; then
    scripts/setup-tests.sh python
    mkdir -p "$profiles"
    # Beside the profiles: the benchmarks' data may be more than a `/tmp` in memory has room for.
    raw=$(mktemp -d "$profiles/raw.XXXXXX")
    trap 'rm -rf "$raw"' EXIT
    mkdir "$raw/data"
    say "building programs that count what they do"
    # Where the counts go says LLVM_PROFILE_FILE.
    build -Cprofile-generate "$@"
    train "$raw"
fi
touch "$profile"
find "$profiles" -maxdepth 1 -name 'raw.*' -mtime +1 -exec rm -rf {} +
find "$profiles" -maxdepth 1 -name '*.profdata' -printf '%T@ %p\0' | sort -znr | tail -zn +4 | cut -zd ' ' -f 2- | xargs -0r rm -f --
say "building with the profile"
build "-Cprofile-use=$profile" "$@"
mkdir -p "$CARGO_TARGET_DIR/release"
ln -f "$programs/tenond" "$programs/tenon" "$CARGO_TARGET_DIR/release/"
