# Two commands for a newcomer: `make demo` and `make test`. Both set up .venv on the first run.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-slow docs benchmarks

# The marker is newer than the files that decide what is installed, so a second run installs nothing.
$(INSTALLED): pyproject.toml constraints.txt
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
	$(BIN)/pytest

test-slow: $(INSTALLED)
	$(BIN)/pytest -m slow

docs: $(INSTALLED)
	$(BIN)/python -m sphinx -q -W -n --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

benchmarks: $(INSTALLED)
	$(BIN)/python benchmarks/loss.py
