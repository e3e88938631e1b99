#!/usr/bin/env bash
# The tests' builds and data need room on the disk. Where there is little, what older builds left in the cache goes: cargo never deletes
# any of it. Where that does not help it is said before half an hour is spent.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
needed=10 # GB: the data of the tests, and what a change builds anew; a build from nothing takes 20

# Both hold the tests' data and builds, and are often one file system.
free() { df --output=avail --block-size=1G "$CARGO_TARGET_DIR" "${TMPDIR:-/tmp}" | tail -n +2 | sort -n | head -1 | tr -d ' '; }

mkdir -p "$CARGO_TARGET_DIR"
if [ "$(free)" -ge $needed ]; then exit 0; fi
# A folder that somebody chose may hold other projects' builds.
if [ "$CARGO_TARGET_DIR" = "$TENON_CACHE/target" ]; then
    say "less than $needed GB free: removing what older builds left in $CARGO_TARGET_DIR"
    rm -rf "$CARGO_TARGET_DIR"/*/incremental
    # Programs of tests and examples are built again in seconds to minutes; two days spare those of the work at hand.
    find "$CARGO_TARGET_DIR" -path '*/deps/*' -type f -perm -100 ! -name '*.so' -mtime +1 -delete
    if [ "$(free)" -ge $needed ]; then exit 0; fi
    find "$CARGO_TARGET_DIR" -mindepth 1 -maxdepth 1 -type d -exec rm -rf {} +
    if [ "$(free)" -ge $needed ]; then exit 0; fi
fi
echo "$(free) GB are free in $CARGO_TARGET_DIR or ${TMPDIR:-/tmp}; the tests need $needed, and 20 where nothing is built." >&2
exit 1
