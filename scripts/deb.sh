#!/usr/bin/env bash
# A Debian package of built programs: scripts/deb.sh PROGRAMS DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$1 target=$2
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
architecture=$(dpkg --print-architecture)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
# Whoever builds it, files have the modes that they are to have.
umask 022
chmod 0755 "$root"

DESTDIR=$root PREFIX=/usr scripts/install.sh "$programs"
strip --strip-debug "$root/usr/bin/tenond" "$root/usr/bin/tenon"
# The C library that the programs were linked with, or a newer one.
libc=$(objdump -T "$root/usr/bin/tenond" "$root/usr/bin/tenon" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1)
install -d "$root/DEBIAN"
for script in postinst prerm postrm; do install -m 0755 "packaging/debian/$script" "$root/DEBIAN/$script"; done
printf '/etc/tenond.conf\n/etc/logrotate.d/tenond\n' >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<CONTROL
Package: tenon
Version: $version
Architecture: $architecture
Maintainer: The Tenon developers <tenon@localhost>
Section: database
Priority: optional
Installed-Size: $(du -sk --exclude=DEBIAN "$root" | cut -f1)
Depends: libc6 (>= ${libc#GLIBC_}), libgcc-s1, adduser
Suggests: logrotate
Description: document database server with pluggable storage engines
 tenond speaks the MongoDB wire protocol, so that existing drivers and shells
 work unchanged; tenon dumps, restores, measures and checks.
CONTROL
(cd "$root" && find . -type f ! -path './DEBIAN/*' -printf '%P\0' | sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
mkdir -p "$target"
# One that is cut short must not have the final name.
made="tenon_${version}_$architecture.deb"
partial=$(mktemp -d "$target/.$made.XXXXXX")
trap 'rm -rf "$root" "$partial"' EXIT
trap 'exit 1' HUP INT TERM
dpkg-deb -Zzstd --root-owner-group --build "$root" "$partial/$made" >/dev/null
mv -f "$partial/$made" "$target/"
echo "$target/$made"
