#!/usr/bin/env bash
# Installs what building the server needs. Quick when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
# A C compiler for the compressors, the regular expressions and the allocator.
apt_install build-essential pkg-config
# RocksDB's bindings are made with libclang.
if [ "${ENGINES:-default}" = all ]; then apt_install libclang-dev clang; fi
if ! have cargo; then
    echo "Rust is missing: install it with rustup (https://rustup.rs), then run make again." >&2
    exit 1
fi
