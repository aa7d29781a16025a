# `make run` to try it, `make check` while you change it, `make test` before it goes out.
.DEFAULT_GOAL := help
.PHONY: help run check test soak bench requirements upgrade audit numbering clean
BIN := .venv/bin

# Installed scripts contain the path of the folder they were installed in
MADE_IN := $(shell cat .venv/python 2>/dev/null)
ifneq ($(filter-out clean help,$(MAKECMDGOALS)),)
ifneq "$(MADE_IN)" "$(if $(MADE_IN),$(CURDIR))"
$(error this folder was moved, and its packages were not: `make clean`, then try again)
endif
endif

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-14s%s\n", $$1, $$2}' Makefile

run: .venv/run ## install everything and start web and scheduler, with a curl line to try
	@$(BIN)/python bin/run.py

# In memory, it takes five sixths of the time
check: export TMPDIR := $(firstword $(wildcard /dev/shm) $(TMPDIR) /tmp)
check: .venv/test ## before each commit: lint, and the tests that need no process and no PostgreSQL
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pytest -n 4 --dist worksteal -m "not (process or postgres or slow or timed or soak)"
	@echo "left out: tests of processes, on PostgreSQL, slow and timed ones; make test runs them"

# Without bytecode, every process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
test: .venv/test ## install everything, lint, run the whole suite on SQLite and on PostgreSQL
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pytest -n 6 --dist worksteal -m "not (timed or soak)"  # they wait more than they work
	$(BIN)/pytest -m "timed and not soak"

requirements: .venv/test ## pin what requirements.in and requirements-dev.in name anew; no other pin moves
	for name in requirements requirements-dev; do $(BIN)/uv pip compile --quiet $(UPGRADE) --generate-hashes \
	  --universal --python-version 3.11 --custom-compile-command "make requirements" \
	  $$name.in --output-file $$name.txt || exit 1; done

upgrade: ## upgrade all pins of requirements.txt and requirements-dev.txt
	$(MAKE) requirements UPGRADE=--upgrade

audit: .venv/test ## check the pinned packages for known vulnerabilities (needs the network)
	$(BIN)/uv tool run pip-audit --disable-pip --require-hashes -r requirements-dev.txt

numbering: .venv/test ## rebuild the tables of texting/recipients/numbering/
	$(BIN)/python -m texting.recipients.numbering.make_zones
	$(BIN)/python -m texting.recipients.numbering.make_places
	$(BIN)/python -m texting.recipients.numbering.make_states

soak: .venv/test ## the long tests: load, crashes, a database that goes away
	$(BIN)/pytest -m soak

bench: .venv/test ## the figures of benchmarks/README.md (needs wrk)
	$(BIN)/python -W ignore benchmarks $(ONLY)

clean: ## remove the virtual environment
	rm -rf .venv

.venv/python:
	@bin/venv

.venv/run: .venv/python requirements.txt
	@$(BIN)/python bin/install.py requirements.txt
	@touch $@

.venv/test: .venv/run requirements-dev.txt
	@$(BIN)/python bin/install.py requirements-dev.txt
	@touch $@
