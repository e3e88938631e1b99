#!/usr/bin/env bash
# A release as a tarball with its SHA-256 sum: scripts/tarball.sh PROGRAMS DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$1 target=$2
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
name="tenon-$version-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m)"
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
umask 022

install -d "$root/$name/bin" "$root/$name/share"
install -m 0755 "$programs/tenond" "$programs/tenon" "$root/$name/bin/"
strip --strip-debug "$root/$name/bin/tenond" "$root/$name/bin/tenon"
scripts/man.sh "$programs" "$root/$name/share/man"
cp -r docs "$root/$name/share/doc"
cp -r LICENSE README.md CHANGELOG.md packaging "$root/$name/"
mkdir -p "$target"
# The same programs make the same file.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$root" -cf - "$name" | gzip -n >"$target/$name.tar.gz"
(cd "$target" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
echo "$target/$name.tar.gz"
