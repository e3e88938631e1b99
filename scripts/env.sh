# Sourced by the other scripts: where builds and downloaded client packages are kept, outside the checkout.
TENON_CACHE="${TENON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$TENON_CACHE/target}"
TENON_CLIENTS="$TENON_CACHE/clients"
mkdir -p "$TENON_CACHE" "$TENON_CLIENTS"

say() { printf '\033[1m==> %s\033[0m\n' "$*"; }

# have PROGRAM...: true when all are there
have() { for program in "$@"; do command -v "$program" >/dev/null 2>&1 || return 1; done; }

# installed PACKAGE...: true when all Debian packages are there
installed() { dpkg-query -W -f='${Status}\n' "$@" 2>/dev/null | grep -cq "^install ok installed" && [ "$(dpkg-query -W -f='${Status}\n' "$@" 2>/dev/null | grep -c '^install ok installed')" = "$#" ]; }

# apt PACKAGE...: installs what is missing, with sudo when needed
apt_install() {
    if installed "$@"; then return 0; fi
    if ! have apt-get; then
        echo "This machine has no apt-get. Please install by hand: $*" >&2
        return 1
    fi
    local sudo=""
    if [ "$(id -u)" != 0 ]; then sudo="sudo"; fi
    say "installing system packages: $*"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
