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
# One that is cut short must not have the final name.
made="tenon-server-$version.tgz"
partial=$(mktemp -d "$target/.$made.XXXXXX")
trap 'rm -rf "$root" "$partial"' EXIT
trap 'exit 1' HUP INT TERM
(cd "$root" && npm pack --silent --pack-destination "$partial" >/dev/null)
mv -f "$partial/$made" "$target/"
echo "$target/$made"
