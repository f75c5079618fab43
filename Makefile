# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv on the first run.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

# A process per core, each with one thread (tests/bounded_threads.py). A file's tests stay together, for its trained models.
JOBS ?= auto
# Each of the many processes would compile the whole package again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/pytest -n $(JOBS) --dist loadfile

.PHONY: demo test test-slow test-hosts attack mutants docs figures benchmarks

# The marker is newer than the files that decide what is installed, so a second run installs nothing.
$(INSTALLED): pyproject.toml constraints.txt src/kmcl/version.py
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/python examples/demo.py

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PYTEST)

test-slow: $(INSTALLED)
	$(PYTEST) -m slow

# Several hosts as network namespaces of this machine; needs root and iproute2, and is skipped without them.
test-hosts: $(INSTALLED)
	$(BIN)/pytest -m hosts tests/hosts

# Kills, damaged inputs of every kind, the service under load and abuse; not part of `make test`.
MINUTES ?= 60
attack: $(INSTALLED)
	$(BIN)/python tests/attack --minutes $(MINUTES)

# Faults planted in kernels, losses and evaluation, and how many of them the tests find; not part of `make test`.
SAMPLE ?= 150
SEED ?= 1
mutants: $(INSTALLED)
	$(BIN)/python tests/mutants --sample $(SAMPLE) --seed $(SEED)

docs: $(INSTALLED)
	$(BIN)/python -m sphinx -q -W -n --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The figures of the pages, the graph of imports among them.
figures: $(INSTALLED)
	$(BIN)/python docs/building/draw_figures.py

benchmarks: $(INSTALLED)
	$(BIN)/python benchmarks/loss.py
