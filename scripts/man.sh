#!/usr/bin/env bash
# Manual pages of the programs, from what their --help says: scripts/man.sh PROGRAMS DIRECTORY
set -euo pipefail
cd "$(dirname "$0")/.."
programs=$1 directory=$2
mkdir -p "$directory"

# page NAME SECTION WHAT PROGRAM ARGUMENTS...: the page's text to standard output
page() {
    local name=$1 section=$2 what=$3
    printf '.TH %s %s "" "Tenon" "Tenon"\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n' "${name^^}" "$section" "$name" "$what"
    # Dots and apostrophes at the beginning of a line, and backslashes, are commands to roff.
    "${@:4}" | sed -e 's/\\/\\e/g' -e "s/^\([.']\)/\\\\\&\1/" -e 's/-/\\-/g'
    printf '.fi\n'
}

# tenond's --help, and what it has in the manual besides
server() {
    "$programs/tenond" --help
    printf '\nSignals and exit codes:\n'
    # Tables become columns.
    sed -e 's/`//g' -e 's/\[\([^]]*\)\]([^)]*)/\1/g' docs/configuration.md | awk '/^## / { on = $0 == "## Signals and exit codes" } on && /^\|/ && !/^\|-/ { split($0, cell, " *[|] *"); printf "  %-24s %s\n", cell[2], cell[3] }
        on && /^[^#|]/ { print "  " $0 }'
    printf '\nFiles:\n'
    printf '  %-24s %s\n' /etc/tenond.conf 'configuration of the service' \
        /var/lib/tenond 'data of the service' /var/log/tenond/tenond.log 'its log' \
        share/doc/tenon/docs 'the manual, below the directory that has bin/tenond'
}

page tenond 8 "document database server" server >"$directory/tenond.8"
page tenon 1 "tools of the document database server tenond" "$programs/tenon" --help >"$directory/tenon.1"
"$programs/tenon" --help | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ && $1 != "help" { print $1 }' | while read -r command; do
    page "tenon-$command" 1 "tenon $command" "$programs/tenon" "$command" --help >"$directory/tenon-$command.1"
done
