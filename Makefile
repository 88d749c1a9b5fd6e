# Two commands do everything in a fresh clone:  make demo   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-compile test-browser format clean

demo: $(VENV)/installed-all
	$(BIN)/bayesify demo

test: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto -m "not inductor"

# Inductor compiles real kernels: minutes, so it has a target of its own.
test-compile: $(VENV)/installed-test
	$(BIN)/python -m pytest -m inductor

# The HTML report in a real browser; Debian: apt-get install chromium
test-browser: $(VENV)/installed-test
	$(BIN)/python -m pytest -m browser -rs tests/report

format: $(VENV)/installed-test
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed-all: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[all]"
	touch $@

$(VENV)/installed-test: $(VENV)/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[test]"
	touch $@ $(VENV)/installed-all

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
