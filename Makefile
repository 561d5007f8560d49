# make demo   set up .venv and analyse the bundled report      make test   run the tests
# make check  lint, types, contracts and tests                 make help   the rest
#
# Needs Python 3.11 or newer, git and make. Another Python: make demo PYTHON=python3.12

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check
# Of torch and the tools most modules are never imported: compiling all of them takes 25 s.
LAZY := --no-compile
LINKS := $(addprefix nsysflow/,analysis kernels workloads samples)

.DEFAULT_GOAL := help
.PHONY: help demo test long pages coverage lint lint-format lint-rules lint-types lint-arrows check links \
    bench docs hunt fuzz kills endure mutants oldest api release clean

help:
	@echo 'make demo   set up .venv and analyse the bundled report of an H200'
	@echo 'make test   install what the tests need and run them'
	@echo 'make lint   format, lint, types, import contracts'
	@echo 'make check  lint and test: what a change must pass'
	@echo 'make pages  test report.html in a browser; needs Chromium'
	@echo 'make long   test what takes long: torchrun, torch.compile, Dask, nsys, pip, action.yml, pages made anew, all reports'
	@echo 'make coverage  how many branches of the analysis its tests take; fails below 95 %'
	@echo 'make bench  time the analysis of a million kernels; adds rows to benchmarks/analyze.csv'
	@echo 'make hunt   search for random traces that break a test, for an hour (MINUTES=60)'
	@echo 'make fuzz   give nsysflow 50000 mutated reports and files (N=50000 SEED=1 JOBS=all cores); none may break it'
	@echo 'make kills  kill nsysflow 200 times while it writes (KILLS=200 SEED=1); nothing may be lost'
	@echo 'make endure  analyse 2000 times in one process (N=2000); it may not grow'
	@echo 'make mutants  change the analysis in 300 random places (N=300 SEED=1); do the tests notice?'
	@echo 'make docs   write docs/tables.md and docs/compatibility.md again from what they are made of'
	@echo 'make api    write the pages of the Python API to api/'
	@echo 'make oldest test with the oldest versions that pyproject.toml allows'
	@echo 'make release  make wheel, sdist, SBOM and licences in dist/, checked and tried; uploads nothing'
	@echo 'make links  restore the links in nsysflow/, should a copy have lost them'
	@echo 'make clean  remove .venv, caches and build outputs'

demo: $(VENV)/.core
	@$(BIN)/nsysflow demo

# A process per core, but no more than 8: each imports torch. Tests that share what they have
# analysed or built run in one process, long groups first: see tests/conftest.py. Bytecode is kept even
# where the user wants none: a test run starts Python hundreds of times.
PYTEST = env -u PYTHONDONTWRITEBYTECODE $(BIN)/python $(MEASURE) -m pytest \
    --numprocesses auto --maxprocesses 8 --dist loadgroup --no-loadscope-reorder

# CI runs all of them with it, where the long ones wait for other programs beside others: MARKS="not browser".
MARKS ?= not browser and not long and not slow

test: $(VENV)/.test
	@$(PYTEST) -m '$(MARKS)' $(addprefix --ignore=,$(WITHOUT))

# Apart, so that `make check` takes less than 6 minutes on two cores. tests/slow.txt lists what takes seconds.
long: $(VENV)/.test
	@$(PYTEST) -m '(long or slow) and not browser'

# Apart, as they need a Chromium, and take as long as a quarter of the others.
pages: $(VENV)/.test
	@$(PYTEST) -m browser tests/report/html

# Apart, as measured they take longer. CI leaves them out of its `make test`: WITHOUT="FOLDERS".
coverage: MEASURE = -m coverage run
coverage: MARKS = not browser and not long
coverage: $(VENV)/.dev
	@$(BIN)/coverage erase
	@$(PYTEST) -m '$(MARKS)' tests/analysis tests/oracle
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report
	@$(BIN)/coverage json --quiet -o - | $(BIN)/python -m tests.branches

# Apart, so that `make --keep-going lint` shows what each of them finds.
lint: lint-format lint-rules lint-types lint-arrows

lint-format: $(VENV)/.dev
	$(BIN)/ruff format --check --quiet .

lint-rules: $(VENV)/.dev
	$(BIN)/ruff check --quiet .

lint-types: $(VENV)/.dev
	$(BIN)/mypy
	$(BIN)/mypy tests benchmarks docs action release

lint-arrows: $(VENV)/.dev
	$(BIN)/lint-imports --no-logo

check: lint test

bench: $(VENV)/.core
	$(BIN)/python benchmarks/analyze.py

# The tests draw the same random traces in every run; this draws new ones.
hunt: $(VENV)/.test
	$(BIN)/python -m tests.hunt --minutes $(or $(MINUTES),60)

# `make test` does a few of these cases. A busy core takes a second for each; JOBS=8 keeps 8 cores busy.
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz --cases $(or $(N),50000) --seed $(or $(SEED),1) \
	    $(if $(JOBS),--jobs $(JOBS))

# `make long` does six of these kills.
kills: $(VENV)/.test
	$(BIN)/python -m tests.kills --kills $(or $(KILLS),200) $(if $(SEED),--seed $(SEED))

# `make long` does a few of these analyses.
endure: $(VENV)/.test
	$(BIN)/python -m tests.endurance --analyses $(or $(N),2000)

# Goes on from mutants.json, which it writes. Takes hours.
mutants: $(VENV)/.test
	$(BIN)/python -m tests.mutants --mutants $(or $(N),300) --seed $(or $(SEED),1)

docs: $(VENV)/.core
	$(BIN)/python docs/make_docs.py
	$(BIN)/python docs/make_compatibility.py

# From docstrings and types; the pages need no network.
api: $(VENV)/.release
	$(BIN)/python release/make_api.py

# In an environment of its own, without torch, Dask and mcp. Took 7 minutes on two busy cores, so CI leaves it out.
OLDEST := $(VENV)/oldest
oldest: $(VENV)/.release
	@rm -rf $(OLDEST)
	@$(BIN)/uv venv --quiet --python $(BIN)/python $(OLDEST)
	@$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct '.[figures,perfetto]'
	@$(BIN)/uv pip list --quiet --python $(OLDEST)/bin/python
	@$(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python hypothesis 'pytest<9.2' 'pytest-xdist>=3.8'
	@env -u PYTHONDONTWRITEBYTECODE $(OLDEST)/bin/python -m pytest \
	    -W ignore::DeprecationWarning --numprocesses auto --maxprocesses 8 \
	    --dist loadgroup -m 'not browser and not long and not slow' \
	    tests/base tests/compare tests/cli tests/analysis/tables

# Uploads nothing. Without a network for pip-audit: make release SKIP=audit
release: $(VENV)/.release
	@$(BIN)/python release/make_release.py $(addprefix --skip=,$(SKIP))

# A copy without links has nothing there, or a text file that holds the link's target (git without
# symlinks), or a second copy of the folder (tools that follow links): that one goes only if equal.
links:
	@for link in $(LINKS); do \
	    target=../$${link##*/}; \
	    if [ -L $$link ]; then continue; fi; \
	    if [ -d $$link ] && ! diff -rq -x __pycache__ $$link $${link##*/} >&2; then \
	        echo "$$link should be a link to $$target, but is a folder that differs from it:" \
	            "keep what you need of it and remove it" >&2; exit 1; \
	    fi; \
	    rm -rf $$link && ln -s $$target $$link && echo "restored $$link -> $$target" || exit 1; \
	done

clean:
	rm -rf $(VENV) api build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage* \
	    .import_linter_cache

# What is installed is stamped, so that a second run starts at once.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "nsysflow needs Python 3.11 or newer; $(PYTHON) is" \
	        "$$($(PYTHON) --version 2>&1 || true). Name another: make PYTHON=python3.12" >&2; \
	    exit 1; }
	@echo "Making $(VENV) with $$($(PYTHON) --version) ..."
	@$(PYTHON) -m venv $(VENV) || { \
	    rm -rf $(VENV); \
	    echo "could not make $(VENV); on Debian and Ubuntu: apt install python3-venv" >&2; \
	    exit 1; }
	@touch $@

$(VENV)/.core: pyproject.toml $(VENV)/.made | links
	@echo 'Installing nsysflow into $(VENV) ...'
	@$(PIP) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.core
	@echo 'Installing what the tests need (torch among it: some 200 MB as a CPU wheel) ...'
	@$(PIP) $(LAZY) --editable '.[test]'
	@touch $@

$(VENV)/.dev: pyproject.toml $(VENV)/.test
	@echo 'Installing ruff, mypy and import-linter ...'
	@$(PIP) $(LAZY) --editable '.[dev]'
	@touch $@

$(VENV)/.release: pyproject.toml $(VENV)/.core
	@echo 'Installing the tools that make a release ...'
	@$(PIP) --editable '.[release]'
	@touch $@
