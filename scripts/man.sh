#!/usr/bin/env bash
# Manual pages of the programs, from what their --help says: scripts/man.sh PROGRAMS DIRECTORY
set -euo pipefail
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

page tenond 8 "document database server" "$programs/tenond" --help >"$directory/tenond.8"
page tenon 1 "tools of the document database server tenond" "$programs/tenon" --help >"$directory/tenon.1"
"$programs/tenon" --help | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on && /^  [a-z]/ && $1 != "help" { print $1 }' | while read -r command; do
    page "tenon-$command" 1 "tenon $command" "$programs/tenon" "$command" --help >"$directory/tenon-$command.1"
done
