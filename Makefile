# card-run. `make demo` and `make test` do all their own set-up on a fresh Debian or Ubuntu machine, as root.
PYTHON := .venv/bin/python
BENCH := infra/bench/run
PYTEST_IN_BENCH := python3 -m pytest -p no:cacheprovider -o testpaths= -o pythonpath=/src --rootdir=/src

# What is tried again on the bench's nft (1.1), beside this machine's own.
NFT_TESTS := $(addprefix /src/tests/kernel/,test_audit_listing.py test_ledger_packets.py test_nft.py test_poststop.py \
	test_prestart.py test_dnsname_packets.py test_ruleset_packets.py)

# What is tried again on Debian 12's podman 4.3 with slirp4netns: networks, proofs, files, and all of a run's life.
OLD_TESTS := $(addprefix /src/tests/bench/,test_bridge.py test_denials.py test_detached.py test_exec.py test_faults.py \
	test_files.py test_gc.py test_hook_failures.py test_hooks.py test_keeper.py test_lifeline.py test_many.py \
	test_networks.py test_prepared.py test_proof.py test_run.py test_signals.py test_status.py test_terminal.py)

ROOT_TESTS := $(addprefix /src/tests/worlds/,test_root.py test_install.py test_system_hooks.py test_ceiling.py test_full_disk.py \
	test_submounts.py)

# For packagers: where to, and which interpreter is to run it. The one that installs needs the dependencies too.
PREFIX ?= /usr/local
DESTDIR ?=
HOOKSDIR ?= /usr/share/containers/oci/hooks.d
INSTALL_PYTHON ?= /usr/bin/python3
INSTALLER = $(shell .venv/bin/python -c '' 2>/dev/null && echo .venv/bin/python || echo $(INSTALL_PYTHON))
PACKAGING = $(INSTALLER) -B -m infra.packaging --prefix='$(PREFIX)' --destdir='$(DESTDIR)' --hooks-dir='$(HOOKSDIR)' \
	--python='$(INSTALL_PYTHON)'

.PHONY: help setup test test-unit test-kernel test-bench check format demo bench bench-check bench-egress image man install uninstall clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/ready ## install what building and testing needs, from apt and pip

.venv/ready: pyproject.toml infra/setup
	infra/setup
	touch $@

test: setup test-unit test-kernel test-bench ## all tests: unit, kernel, and the bench as user and as root

test-unit: setup
	$(PYTHON) -m pytest tests/unit

test-kernel: setup
	$(PYTHON) -m pytest tests/kernel

test-bench: setup man
	$(BENCH) --fresh --images tools $(PYTEST_IN_BENCH) /src/tests/bench
	$(BENCH) --fresh $(PYTEST_IN_BENCH) /src/tests/api
	$(BENCH) --fresh --world b0 $(PYTEST_IN_BENCH) /src/tests/bench/test_walls.py
	$(BENCH) --fresh --world v6only $(PYTEST_IN_BENCH) /src/tests/worlds/test_v6only.py
	$(BENCH) --fresh --world v4only $(PYTEST_IN_BENCH) /src/tests/worlds/test_v4only.py
	$(BENCH) --fresh --world dead-resolver $(PYTEST_IN_BENCH) /src/tests/worlds/test_dead_resolver.py
	$(BENCH) --fresh --release bookworm $(PYTEST_IN_BENCH) $(OLD_TESTS)
	$(BENCH) --fresh --root $(PYTEST_IN_BENCH) $(ROOT_TESTS) $(NFT_TESTS)

check: setup ## format, lint and types
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/pyright

format: setup ## rewrite the source in the one format
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

demo: setup ## run a card that works and then tries to get out
	$(BENCH) python3 /src/infra/bench/demo.py

bench: setup | .cache ## the cost of a card, as a ratio to plain podman run (KEEP=--keep makes it the committed result)
	$(BENCH) --fresh python3 /src/infra/bench/speed.py > .cache/speed.json
	@status=0; bash -o pipefail -c '$(PYTHON) -m tests.kernel.throughput | tee .cache/throughput.txt' || status=$$?; \
	$(PYTHON) -m infra.bench.speed_report .cache/speed.json --throughput .cache/throughput.txt $(KEEP) && exit $$status

bench-check: setup | .cache ## whether a card costs more than in the committed result, by more than its tolerance
	$(BENCH) --fresh python3 /src/infra/bench/speed.py --only-pairs > .cache/speed-check.json
	$(PYTHON) -m infra.bench.speed_report .cache/speed-check.json --check

.cache:
	mkdir -p $@

bench-egress: setup ## what the egress table costs one allowed stream, against the same path without it
	$(PYTHON) -m tests.kernel.throughput

image: setup ## build the card image
	@if command -v podman >/dev/null; then infra/image/build; else \
		echo 'image: no podman on this machine, so it is built into the bench' >&2; \
		$(BENCH) --fresh podman image list localhost/card-run/card; fi

man: build/man/card-run.1 build/man/card.1 build/man/card-file.5 ## build the manual pages

build/man/%: launcher/%.md
	@mkdir -p $(@D)
	@command -v go-md2man >/dev/null || { echo 'man: go-md2man is missing (make setup, or apt-get install go-md2man)' >&2; exit 1; }
	go-md2man -in $< -out $@

install: man ## install for every user: PREFIX (/usr/local), DESTDIR, HOOKSDIR, INSTALL_PYTHON
	$(PACKAGING) install

uninstall: ## remove what make install installed, with the same PREFIX, DESTDIR and HOOKSDIR
	$(PACKAGING) uninstall

clean: ## remove what was built here
	rm -rf .cache .venv build dist
