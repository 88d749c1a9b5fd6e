# Two commands do everything in a fresh clone:  make demo   make test
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin

.PHONY: demo test test-compile test-browser test-sampling test-newest fuzz format clean

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

# Samplers at their defaults: every posterior with known moments, and simulation-based calibration. An hour of core time.
test-sampling: $(VENV)/installed-test
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sampler_zoo.py --samplers atmc sgnht sghmc sgld psgld --jobs $$(nproc)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/sbc.py

# Spoiled files of every format that is read: N of them, each with its own number, so that one can be had again.
N ?= 10000
fuzz: $(VENV)/installed-test
	$(BIN)/python tests/fuzz/fuzz.py -n $(N)

# The newest of every package, whatever the constraints say, in an environment of its own: import and what stands
# outside torch's promises, every method, moments, compiled and distributed code, the engine.
NEWEST := .venv-newest
test-newest:
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
		--upgrade --upgrade-strategy eager -e ".[test]"
	$(NEWEST)/bin/python -m pip list --disable-pip-version-check | grep -iE "^(torch|numpy|lightning|transformers)"
	OMP_NUM_THREADS=1 $(NEWEST)/bin/python -m pytest -n auto -m "not inductor" tests/test_package.py \
		tests/test_torch_internals.py tests/methods tests/moments tests/compat tests/engine

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
	rm -rf $(VENV) $(NEWEST) .pytest_cache .mypy_cache .ruff_cache
