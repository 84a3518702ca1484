# Each target does its own set-up: python3, pip and make are all a fresh machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# The real archives the tests use, where they are at hand; without them those tests say so and skip.
export ANNEAL_DATA ?= $(wildcard ../shared/data)

.PHONY: demo test torture browser check bench results docs clean

demo: $(READY)
	$(BIN)/anneal demo --out demo

test: $(READY) browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadgroup

# Attacks with counts: kills, copies, requests, people, worker, disk, power. One of them: .venv/bin/python tests/torture/run.py kills=100
torture: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python tests/torture/run.py

# The page is tested in Debian's Chromium, installed where that can be done.
browser:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
	  echo "There is no Chromium and it could not be installed: the tests of the page in a browser are skipped." \
	       "Install it (Debian: apt-get install chromium) and run make test again."

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# On an idle machine; about an hour and 25 GB of disk. One script: .venv/bin/python bench/run.py mining
bench: $(READY)
	$(BIN)/python bench/run.py

results: $(READY)
	$(BIN)/python docs/write.py

# The pages as a site with search, in build/site; .venv/bin/mkdocs serve shows it.
docs: $(READY)
	$(BIN)/mkdocs build --strict

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test,torture,docs,bench]'
	touch $@

clean:
	rm -rf $(VENV) demo runs build
