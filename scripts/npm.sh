#!/usr/bin/env bash
# The npm package with a built server in it: scripts/npm.sh PROGRAMS DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$1 target=$2
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
cp packages/node/* LICENSE "$root/"
cp docs/test-servers.md "$root/README.md"
install -D -m 0755 "$programs/tenond" "$root/bin/tenond"
strip --strip-debug "$root/bin/tenond"
sed -i -e "s/\"version\": \"0.0.0\"/\"version\": \"$version\"/" \
    -e "s/\"os\": \[\"linux\"\],/\"os\": [\"linux\"], \"cpu\": [\"$(node -p process.arch)\"],/" "$root/package.json"
mkdir -p "$target"
target=$(cd "$target" && pwd)
(cd "$root" && npm pack --silent --pack-destination "$target" >/dev/null)
echo "$target/tenon-server-$version.tgz"
