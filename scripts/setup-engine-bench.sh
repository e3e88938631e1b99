#!/usr/bin/env bash
# Installs what comparing the storage engines with WiredTiger needs: the library, and the allocator that mongod uses.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
header=/usr/include/wiredtiger.h
if [ -e "$header" ]; then had_header=yes; else had_header=no; fi
if ! apt_install libwiredtiger-dev libtcmalloc-minimal4; then
    echo "WiredTiger is not installed: the engines are measured without it." >&2
elif [ "$had_header" = no ]; then
    # The package's header is older than a build without it, which cargo would take for up to date.
    touch crates/engine-bench/build.rs
fi
