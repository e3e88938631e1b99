#!/usr/bin/env bash
# Installs the client programs and packages that the end-to-end tests drive. Quick when everything is there.
# With the argument `python` only what most tests in Python need: no browser, no other clients.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/env.sh
apt_install python3 python3-venv procps openssl

# same STAMP FILE...: true when the stamp holds the checksums of the files
same() { local stamp=$1; shift; [ -f "$stamp" ] && [ "$(cat "$@" | sha256sum)" = "$(cat "$stamp")" ]; }
stamp() { local stamp=$1; shift; cat "$@" | sha256sum >"$stamp"; }

if ! same "$TENON_CLIENTS/python.stamp" tests/requirements.txt; then
    say "Python client packages (pymongo, MongoEngine, Django, pytest, playwright)"
    python3 -m venv "$TENON_CLIENTS/python"
    "$TENON_CLIENTS/python/bin/pip" install --quiet --disable-pip-version-check -r tests/requirements.txt
    stamp "$TENON_CLIENTS/python.stamp" tests/requirements.txt
fi
if [ "${1:-all}" = python ]; then exit; fi

if ! have node npm; then apt_install nodejs npm; fi
if ! have java; then apt_install openjdk-17-jdk-headless; fi
if ! have mvn; then apt_install maven; fi

# The browser that opens the benchmark report. Some systems' package only points to another packager.
browser() { for program in chromium chromium-browser google-chrome; do if "$program" --version >/dev/null 2>&1; then return 0; fi; done; return 1; }
if ! browser && ! same "$TENON_CLIENTS/browser.stamp" tests/requirements.txt; then
    apt_install chromium fonts-dejavu-core || true
    if ! browser; then
        "$TENON_CLIENTS/python/bin/playwright" install --with-deps chromium
        stamp "$TENON_CLIENTS/browser.stamp" tests/requirements.txt
    fi
fi

if ! same "$TENON_CLIENTS/node.stamp" tests/clients/node/package.json tests/clients/node/package-lock.json; then
    say "Node client packages (mongosh, the Node driver, mongoose, MikroORM)"
    mkdir -p "$TENON_CLIENTS/node"
    cp tests/clients/node/package.json tests/clients/node/package-lock.json "$TENON_CLIENTS/node/"
    (cd "$TENON_CLIENTS/node" && npm ci --silent --no-fund --no-audit --ignore-scripts)
    stamp "$TENON_CLIENTS/node.stamp" tests/clients/node/package.json tests/clients/node/package-lock.json
fi
if ! same "$TENON_CLIENTS/java.stamp" tests/clients/java/pom.xml scripts/setup-tests.sh; then
    say "Java client packages (the Java driver, JUnit)"
    # A run without a server fetches everything that a run with one needs, the test runner's own parts included.
    TENON_URI="" mvn --batch-mode --quiet -f tests/clients/java/pom.xml -Dtenon.build="$TENON_CLIENTS/java" \
        -Dmaven.test.failure.ignore=true test >"$TENON_CLIENTS/java.log" 2>&1 || { cat "$TENON_CLIENTS/java.log"; exit 1; }
    stamp "$TENON_CLIENTS/java.stamp" tests/clients/java/pom.xml scripts/setup-tests.sh
fi
