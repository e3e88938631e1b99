#!/usr/bin/env bash
# Installs what comparing the storage engines with WiredTiger needs: the library, and the allocator that mongod uses.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
if ! apt_install libwiredtiger-dev libtcmalloc-minimal4; then
    echo "WiredTiger is not installed: the engines are measured without it." >&2
fi
