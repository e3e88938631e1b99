#!/usr/bin/env bash
# Installs what building the server needs. Quick when everything is there.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
# A C compiler for the compressors and the allocator; a C++ compiler and libclang for RocksDB and its bindings.
apt_install build-essential pkg-config libclang-dev clang
if ! have cargo; then
    echo "Rust is missing: install it with rustup (https://rustup.rs), then run make again." >&2
    exit 1
fi
