#!/usr/bin/env bash
# Runs the experiments of MongoDB in Action, chapter 10; arguments go to book/run.py.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
export TENOND="${TENOND:-$CARGO_TARGET_DIR/release/tenond}" TENON_CLIENTS
exec "$TENON_CLIENTS/python/bin/python" book/run.py "$@"
