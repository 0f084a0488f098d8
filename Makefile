PYTHON ?= python3
BIN = .venv/bin

.PHONY: test lint benchmarks clean

test: lint
	$(BIN)/pytest -n 2

lint: .venv/ready
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

# torch comes first and by version: a plain torch would bring gigabytes of CUDA libraries.
.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet torch==2.13.0
	$(BIN)/pip install --quiet --editable ".[all]" --group test
	touch $@

benchmarks: .venv/ready
	$(BIN)/python benchmarks/core.py | tee results/core.md
	$(BIN)/python benchmarks/evaluation.py | tee results/evaluation.md

clean:
	rm -rf .venv
