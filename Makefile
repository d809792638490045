# card-run. `make demo` and `make test` do all their own set-up on a fresh Debian or Ubuntu machine, as root.
PYTHON := .venv/bin/python
BENCH := infra/bench/run
PYTEST_IN_BENCH := python3 -m pytest -p no:cacheprovider -o testpaths= -o pythonpath=/src --rootdir=/src

.PHONY: help setup test test-unit test-kernel test-bench check format demo bench image man clean

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

test-bench: setup
	$(BENCH) $(PYTEST_IN_BENCH) /src/tests/bench
	$(BENCH) --world infra/bench/worlds/b0.toml $(PYTEST_IN_BENCH) /src/tests/bench/test_walls.py
	$(BENCH) --root $(PYTEST_IN_BENCH) /src/tests/bench/test_run.py

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

bench: setup ## the cost of a card, as a ratio to plain podman run
	$(BENCH) python3 /src/infra/bench/speed.py

image: setup ## build the card image
	infra/image/build

man: build/man/card-run.1 build/man/card.1 ## build the manual pages

build/man/%: launcher/%.md
	@mkdir -p $(@D)
	@command -v go-md2man >/dev/null || apt-get install -qq -y go-md2man
	go-md2man -in $< -out $@

clean: ## remove what was built here
	rm -rf .cache .venv build dist
