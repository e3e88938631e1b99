#!/usr/bin/env bash
# Installs built programs: scripts/install.sh PROGRAMS, below $DESTDIR$PREFIX. Nothing is started, no user is made.
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$1
prefix=${PREFIX:-/usr/local}
root=${DESTDIR:-}

install -d "$root$prefix/bin" "$root$prefix/share/doc/tenon" "$root$prefix/share/man/man1" "$root$prefix/share/man/man8"
install -m 0755 "$programs/tenond" "$programs/tenon" "$root$prefix/bin/"
install -m 0644 LICENSE README.md CHANGELOG.md "$root$prefix/share/doc/tenon/"
find docs -type f -printf '%P\0' | while read -r -d '' page; do
    install -D -m 0644 "docs/$page" "$root$prefix/share/doc/tenon/docs/$page"
done

pages=$(mktemp -d)
trap 'rm -rf "$pages"' EXIT
scripts/man.sh "$programs" "$pages"
gzip -9n "$pages"/*
install -m 0644 "$pages"/*.1.gz "$root$prefix/share/man/man1/"
install -m 0644 "$pages"/*.8.gz "$root$prefix/share/man/man8/"

# The unit and the configuration are left alone where there are some.
units=${UNITDIR:-$prefix/lib/systemd/system}
install -d "$root$units" "$root/etc/logrotate.d"
sed "s|@BINDIR@|$prefix/bin|" packaging/tenond.service >"$pages/tenond.service"
install -m 0644 "$pages/tenond.service" "$root$units/"
[ -e "$root/etc/tenond.conf" ] || install -m 0644 packaging/tenond.conf "$root/etc/tenond.conf"
[ -e "$root/etc/logrotate.d/tenond" ] || install -m 0644 packaging/tenond.logrotate "$root/etc/logrotate.d/tenond"
