# Each target does its own set-up: python3, pip and make are all a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The real archives the tests use, where they are at hand; without them those tests say so and skip.
export ANNEAL_DATA ?= $(wildcard ../shared/data)

.PHONY: demo test check bench results clean

demo: $(READY)
	$(BIN)/anneal demo --out demo

test: $(READY)
	$(BIN)/python -m pytest

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python bench/mining.py
	$(BIN)/python bench/training.py

results: $(READY)
	$(BIN)/python docs/write.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]'
	touch $@

clean:
	rm -rf $(VENV) demo runs
