# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# A thin layer over Meson; `make help` lists what there is.

BUILD ?= build
prefix ?= /usr/local
DESTDIR ?=

MESON_OPTIONS ?=
export MESON_SETUP = --prefix=$(prefix) $(MESON_OPTIONS)
mandir = $(prefix)/share/man

.PHONY: all demo check attack check-siw coverage man sim install clean help
.NOTPARALLEL:

all: ## build the library, the command, the tests and the examples, optimised, under build/
	scripts/build.sh $(BUILD)

demo: ## install what is missing, build, and show connections being set up and torn down, and rping over uwarp
	scripts/deps.sh build demo
	TARGETS='uwarp libuwarp-shim.so' NINJAFLAGS=--quiet scripts/build.sh $(BUILD)
	scripts/demo.sh $(BUILD)

check: ## install what is missing, build three ways, run all tests and checks
	scripts/deps.sh build man check
	scripts/check.sh $(BUILD)

ifneq ($(wildcard tests/siw/run.sh),)
.PHONY: check-siw-data
check-siw: ## the kernel's siw driver in a guest as the peer: every form of connection, and a choice of programs that move data
check-siw-data: ## the same with every program in every form
check-siw-data: export SIW_DATA = all
check-siw check-siw-data:
	scripts/deps.sh build siw
	scripts/build.sh $(BUILD)
	UWARP=$(abspath $(BUILD))/uwarp SIW_DIR=$(abspath $(BUILD))/siw tests/siw/run.sh
endif

ifneq ($(wildcard tests/siw/bench.sh),)
.PHONY: bench-siw
bench-siw: ## the same programs over siw and over uwarp, both in the guest
	scripts/deps.sh build siw
	scripts/build.sh $(BUILD)
	UWARP=$(abspath $(BUILD))/uwarp SIW_DIR=$(abspath $(BUILD))/siw tests/siw/bench.sh
endif

attack: ## floods, strangers' segments and peers that exhaust, in their long form: some minutes
	scripts/deps.sh build check
	scripts/build.sh $(BUILD)
	scripts/attack.sh $(BUILD)

coverage: ## line and branch coverage of every source file
	scripts/deps.sh build check
	scripts/coverage.sh $(BUILD)

man: ## the man pages, under build/man/
	scripts/deps.sh man
	scripts/make_man.sh $(BUILD)/man

ifneq ($(wildcard bench/*.c),)
.PHONY: bench
bench: ## how fast and how large, against bare TCP
	scripts/deps.sh build bench
	scripts/build.sh $(BUILD)
	scripts/bench.sh $(BUILD)
endif

sim: ## 12 million simulated connections under faults, troubles and attacks (SEEDS, FIRST_SEED, CONNECTIONS, DATA, NODES, FAULTS)
	scripts/build.sh $(BUILD)
	scripts/sim.sh $(BUILD)

.PHONY: stress
stress: ## threads: all verbs and CM calls on shared objects, interleavings shaken, with TSan and ASan (SEEDS, SEED, STRESS_SECONDS, TESTS)
	scripts/deps.sh build check
	scripts/stress.sh $(BUILD)

.PHONY: fuzz
fuzz: ## fuzz targets, one minute each (FUZZ_SECONDS, FUZZ_JOBS, FUZZ_TARGETS; FUZZ_MERGE=1: minimise the corpora)
	scripts/deps.sh build fuzz
	scripts/fuzz.sh $(BUILD)

.PHONY: starve
starve: ## each allocation and each system call of programs over uwarp fails once: half an hour (ARGS)
	scripts/deps.sh build check
	scripts/starve.sh $(BUILD)/asan

install: all man ## install under $(DESTDIR)$(prefix)
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild
	for page in $(BUILD)/man/*.[1-9]; do \
		install -D -m 644 "$$page" "$(DESTDIR)$(mandir)/man$${page##*.}/$${page##*/}" || exit; \
	done

clean: ## remove build/
	rm -rf $(BUILD)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.* ## \(.*\)/make \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 20
