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

install -d "$root/$name/bin" "$root/$name/share/man"
install -m 0755 "$programs/tenond" "$programs/tenon" "$root/$name/bin/"
strip --strip-debug "$root/$name/bin/tenond" "$root/$name/bin/tenon"
scripts/man.sh "$programs" "$root/$name/share/man"
cp -r docs "$root/$name/docs"
cp -r LICENSE README.md CHANGELOG.md "$root/$name/"
install -d "$root/$name/packaging"
install -m 0644 packaging/tenond.conf packaging/tenond.logrotate "$root/$name/packaging/"
sed "s|@BINDIR@|/usr/local/bin|" packaging/tenond.service >"$root/$name/packaging/tenond.service"
mkdir -p "$target"
# One that is cut short must not have the final name, nor an older one's sum.
made="$target/$name.tar.gz"
partial=$(mktemp -d "$target/.$name.XXXXXX")
trap 'rm -rf "$root" "$partial"' EXIT
trap 'exit 1' HUP INT TERM
# The same programs make the same file.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$root" -cf - "$name" | gzip -n >"$partial/$name.tar.gz"
(cd "$partial" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
rm -f "$made.sha256"
mv "$partial/$name.tar.gz" "$partial/$name.tar.gz.sha256" "$target/"
echo "$made"
