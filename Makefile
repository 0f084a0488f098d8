PYTHON ?= python3
BIN = .venv/bin

# Tests start hundreds of processes that import torch, JAX or Ray, which takes twice as long where no bytecode is kept.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test tests seconds smoke lint packages chromium wheel docs benchmarks clean

# The type checker, which takes one core for half a minute, runs beside the tests.
test: .venv/ready
	$(MAKE) --jobs 2 lint tests

# Three processes on two cores, because some tests wait. Tests that share a costly fixture stay together, see tests/conftest.py.
tests: .venv/ready
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 20 --listed-skips

# What each slow file takes, by which tests are ordered.
seconds: .venv/ready
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder --keep-seconds

# A first answer in less than a minute: the core needs no extras, so these tests run without torch, JAX, Ray or MuJoCo.
SMOKE = $(addprefix tests/core/test_,allocation.py schedule.py trajectories.py moments.py estimate.py guarantee.py) \
	$(addprefix tests/strategies/test_,contract.py rido.py adaptive.py)

smoke: .venv-smoke/ready
	.venv-smoke/bin/pytest $(SMOKE)

.venv-smoke/ready: pyproject.toml src/rido/__init__.py
	$(PYTHON) -m venv .venv-smoke
	.venv-smoke/bin/pip install --quiet --upgrade pip
	.venv-smoke/bin/pip install --quiet --editable . --group smoke
	touch $@

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

# torch comes first and by version: a plain torch would bring gigabytes of CUDA libraries. gymnax asks for an older
# gymnasium, without which it works. Only what is imported will be compiled.
INSTALL = $(BIN)/pip install --quiet --no-compile

.venv/ready: pyproject.toml src/rido/__init__.py
	$(PYTHON) -m venv .venv
	$(MAKE) --jobs 2 packages chromium
	touch $@

packages:
	$(INSTALL) --upgrade pip
	$(INSTALL) torch==2.13.0
	$(INSTALL) --editable ".[all]" --group test --group docs
	$(INSTALL) --no-deps gymnax

# The report is looked at in a real browser. Without one those tests are skipped, and say so.
chromium:
	@command -v chromedriver >/dev/null || ! command -v apt-get >/dev/null || [ "$$(id -u)" != 0 ] || \
	(apt-get update -qq; apt-get install -y -qq --no-install-recommends chromium chromium-driver) >/dev/null 2>&1 || \
	echo "chromium could not be installed: tests of the report's looks are skipped"

# Builds the wheel and tries it in an empty virtual environment, which is removed afterwards.
wheel:
	rm -f dist/rido-*.whl
	folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT && \
	$(PYTHON) -m venv "$$folder" && \
	"$$folder/bin/pip" wheel --quiet --no-deps --wheel-dir dist . && \
	"$$folder/bin/pip" install --quiet dist/rido-*.whl && \
	"$$folder/bin/rido" --version && \
	"$$folder/bin/rido" evaluate rido/LQG-v0 --budget 5000 --gamma 0.9 --horizon 50

docs: .venv/ready
	$(BIN)/sphinx-build -W --keep-going -q docs docs/_build

# The long ones, benchmarks/adaptive.py, critic.py, races.py and trust/, and benchmarks/gpu/, which needs one, are run by
# hand: see their pages in results/.
benchmarks: .venv/ready
	$(BIN)/python benchmarks/core.py | tee results/core.md
	$(BIN)/python benchmarks/evaluation.py | tee results/evaluation.md
	$(BIN)/python benchmarks/scale.py | tee results/scale.md

clean:
	rm -rf .venv .venv-smoke
