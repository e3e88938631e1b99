# `make run` and `make test` do all the set-up they need; see README.md for how long each takes.
# Build products and client packages are kept in $XDG_CACHE_HOME/tenon (usually ~/.cache/tenon), not in the checkout.

SHELL := /bin/bash
CACHE ?= $(or $(TENON_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/tenon)
export CARGO_TARGET_DIR ?= $(CACHE)/target

# PGO=yes builds the programs twice, the second time with a profile of the first at work: scripts/pgo.sh.
PGO ?= no
ifeq ($(PGO),yes)
BUILT := pgo/release
BUILD_SERVER := scripts/pgo.sh
BUILD_TOOLS := @true # The server's build made them.
else ifeq ($(PGO),no)
BUILT := release
BUILD_SERVER := cargo build --release -p server
BUILD_TOOLS := cargo build --release -p tenon
else
$(error PGO is "$(PGO)": it takes "no" and "yes" (profile-guided optimisation: two builds, and minutes of training between them))
endif
PROGRAMS := $(CARGO_TARGET_DIR)/$(BUILT)
TENOND := $(PROGRAMS)/tenond

# These build programs of their own, always without a profile.
UNPROFILED := $(filter test test-all engine-bench soak-engine,$(MAKECMDGOALS))
ifeq ($(PGO),yes)
ifneq ($(UNPROFILED),)
$(error PGO is "yes": "make $(firstword $(UNPROFILED))" builds its own programs, without a profile; leave PGO out)
endif
endif

# ENGINES=all builds the rocksdb engine too, whose C++ takes a quarter of an hour, cold.
export ENGINES ?= default
ifeq ($(ENGINES),all)
FEATURES := --features rocksdb
# With the server: alone its build scripts have other features, and RocksDB's C++ would be compiled a second time.
ENGINE_BENCH_PACKAGES := -p server -p engine-bench --features server/rocksdb,engine-bench/rocksdb
else ifeq ($(ENGINES),default)
FEATURES :=
ENGINE_BENCH_PACKAGES := -p engine-bench
else
$(error ENGINES is "$(ENGINES)": it takes "default" (btree, betree, inMemory, mmapv1) and "all" (rocksdb too))
endif

DATA ?= ./data
PORT ?= 27017

# Size of the data and seconds of each phase of `make bench`.
BENCH_SCALE ?= 0.2
BENCH_SECONDS ?= 16

BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=

.PHONY: programs install deb tarball wheel npm help run build test test-all verify fix bench bench-example engine-bench stress book docs soak soak-engine miri clean-cache

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

run: build ## Build what is missing and serve on 127.0.0.1:27017 with ./data
	@mkdir -p "$(DATA)"
	@echo "==> serving on 127.0.0.1:$(PORT) with $(DATA) (Ctrl-C stops it)"
	exec "$(TENOND)" --dbpath "$(DATA)" --bind_ip 127.0.0.1 --port $(PORT)

build: ## Build the server, release profile; ENGINES=all with RocksDB, PGO=yes for a fifth to a third less CPU
	@scripts/setup-build.sh
	@echo "==> building tenond (cold: see README.md; warm: seconds)"
	$(BUILD_SERVER) $(FEATURES)

programs: build ## Build the server and the tools (tenond, tenon), release profile
	$(BUILD_TOOLS) $(FEATURES)

# Of a target folder what was built last, with PGO=yes or without, unless PGO says which: `sudo make install` is not told.
BUILDS := $(if $(filter file,$(origin PGO)),release pgo/release,$(BUILT))
last_built = $(shell cd "$(1)" 2>/dev/null && ls -t $(addsuffix /tenond,$(BUILDS)) 2>/dev/null | sed -n '1s,/tenond$$,,p')
# Root's cache usually has no programs: with sudo those are meant then that its user has built. Nothing is built here.
install: TARGETS := $(if $(and $(SUDO_USER),$(if $(call last_built,$(CARGO_TARGET_DIR)),,none)),$(shell getent passwd "$(SUDO_USER)" | cut -d: -f6)/.cache/tenon/target,$(CARGO_TARGET_DIR))
install: PROGRAMS := $(TARGETS)/$(or $(call last_built,$(TARGETS)),$(BUILT))
install: ## Programs, manual, unit, /etc/tenond.conf below DESTDIR/PREFIX (/usr/local), after `make programs`
	@test -x "$(PROGRAMS)/tenond" -a -x "$(PROGRAMS)/tenon" || { \
	    echo "There are no programs in $(PROGRAMS): make programs && sudo make install PROGRAMS=DIRECTORY" >&2; exit 1; }
	@echo "==> installing the programs of $(PROGRAMS)"
	DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" scripts/install.sh "$(PROGRAMS)"

deb: programs ## A Debian package in BUILD (./build)
	scripts/deb.sh "$(PROGRAMS)" "$(BUILD)"

tarball: programs ## A tarball of the programs and the manual in BUILD, with its SHA-256 sum
	scripts/tarball.sh "$(PROGRAMS)" "$(BUILD)"

wheel: build ## A Python wheel that carries the server, for tests of applications: docs/test-servers.md
	packages/python/build.py "$(PROGRAMS)/tenond" "$(BUILD)"

npm: build ## An npm package that carries the server
	scripts/npm.sh "$(PROGRAMS)" "$(BUILD)"

test: ## All tests: crates, conformance of the engines, crashes, real clients; ENGINES=all for rocksdb too; not with PGO=yes
	@scripts/setup-build.sh
	@scripts/setup-tests.sh
	@scripts/make-room.sh
	scripts/test.sh

test-all: ## What a release needs: rocksdb, more kills, schedules x 10, every client on every engine, a minute of each fuzz target
	@ENGINES=all scripts/setup-build.sh
	@scripts/setup-tests.sh
	@scripts/make-room.sh
	ENGINES=all scripts/test.sh all

verify: ## Formatting, lints, documentation (changes nothing)
	cargo run -q -p xtask -- verify

fix: ## Format and apply what clippy can
	cargo run -q -p xtask -- fix

bench: programs ## book, linkbench, iibench, ycsb, hot and transactions on every engine, small; a report; BENCH="--io-bound", BENCH_SCALE=2
	@mkdir -p "$(CACHE)/bench"
	"$(PROGRAMS)/tenon" bench all --scale $(BENCH_SCALE) --duration $(BENCH_SECONDS) --warm-up 1 --insert-seconds 40 \
	    --json "$(CACHE)/bench/bench.json" --csv "$(CACHE)/bench/bench.csv" --report "$(CACHE)/bench/report.html" $(BENCH)

bench-example: ## The manual's example of a report: `make bench` on every engine, then docs/bench-example.*
	$(MAKE) bench ENGINES=all
	"$(PROGRAMS)/tenon" bench show "$(CACHE)/bench/bench.json" --title "Example: a small run of every workload" \
	    --introduction "The tables of [a page with charts](bench-example.html). [Reading a report](bench-report.md) explains its words; \`make bench-example\` makes both." \
	    --report docs/bench-example.html --markdown docs/bench-example.md

stress: programs ## Write concern x journal x capped on every engine, with a report; STRESS="--scale 0.1 --engines inMemory"
	@mkdir -p "$(CACHE)/bench"
	"$(PROGRAMS)/tenon" stress stress/quick.yaml \
	    --json "$(CACHE)/bench/stress.json" --csv "$(CACHE)/bench/stress.csv" --report "$(CACHE)/bench/stress.html" $(STRESS)

engine-bench: ## Storage engines side by side, WiredTiger included; ENGINE_BENCH="--only W1,W3 --rows 1000000"
	@scripts/setup-build.sh
	@scripts/setup-engine-bench.sh
	cargo build --release $(ENGINE_BENCH_PACKAGES)
	"$(CARGO_TARGET_DIR)/release/engine-bench" --json "$(CACHE)/engine-bench.json" $(ENGINE_BENCH)

book: build ## The scripts of MongoDB in Action, chapter 10, for every engine: tables 10.3 to 10.5
	@scripts/setup-tests.sh
	TENOND="$(TENOND)" scripts/book.sh $(BOOK)

docs: ## The manual as HTML in the cache folder (needs mdbook: cargo install mdbook)
	mdbook build docs -d "$(CACHE)/manual"

soak: build ## kill -9 for as long as asked: make soak SOAK="--rounds 1000"
	@scripts/setup-tests.sh
	"$(CACHE)/clients/python/bin/python" tests/crash/kill_loop.py --tenond "$(TENOND)" $(SOAK)

soak-engine: ## Random runs and kills of the btree engine (SOAK="--betree": of betree): make soak-engine SOAK="--seconds 3600"
	cargo build -p engine-soak
	"$(CARGO_TARGET_DIR)/debug/engine-soak" run --directory "$(CACHE)/soak" $(SOAK)

miri: ## The cells that readers load without a latch, in an interpreter that finds undefined behaviour; see docs/testing.md
	CARGO_TARGET_DIR="$(CACHE)/target-miri" cargo +nightly miri test -p rcu --lib --test own_garbage

clean-cache: ## Remove build products and client packages
	@test -n "$(CACHE)"
	rm -rf -- "$(CACHE)"
