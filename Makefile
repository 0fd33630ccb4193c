# Stagewave: `make demo` shows everything, `make up` keeps it running, `make test` tests it.
# Needs Python 3.11 or newer and nothing else: no GPU, no Docker, no root. Works with GNU make 3.81 and later.

VENV ?= .venv
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11 python3.14 python,$(call new_enough,$(name))) python3)
new_enough = $(shell $(1) -c 'import sys; print("$(1)" if sys.version_info >= (3, 11) else "")' 2>/dev/null)

BIN := $(VENV)/bin
JOBS ?= 2
LINTED := stage_pipeline workers api stagewave tests scripts

.PHONY: help demo up test test-goldens lint chaos clean

help:
	@echo 'make demo   set everything up, speak, transcribe, translate, show the figures, and stop'
	@echo 'make up     set everything up and serve at http://127.0.0.1:8000 until Ctrl-C'
	@echo 'make test   install what the tests need, and run them'
	@echo 'make test-goldens  only what compares Step-Audio2 with its reference outputs'
	@echo 'make lint   ruff and mypy'
	@echo 'make chaos  break the running system in every way, then with random breaks; prints a table (20 min)'
	@echo 'make clean  remove $(VENV) and caches (jobs and audio stay in .stagewave)'
	@echo
	@echo 'PYTHON=/path/to/python3.12 picks the Python, VENV=folder where it installs, JOBS=2 tests at a time.'

demo: $(VENV)/.installed-base
	@$(BIN)/stagewave demo

up: $(VENV)/.installed-base
	@$(BIN)/stagewave up

test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile

test-goldens: $(VENV)/.installed-dev
	$(BIN)/python -m pytest tests/unit/engines/step_audio2/token2wav/goldens

lint: $(VENV)/.installed-dev
	$(BIN)/ruff format --check $(LINTED)
	$(BIN)/ruff check $(LINTED)
	$(BIN)/mypy

# One stamp for each set of packages; a changed pyproject.toml installs again.
$(VENV)/.installed-base $(VENV)/.installed-dev: pyproject.toml scripts/install.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo 'Stagewave needs Python 3.11 or newer, and "$(PYTHON)" is not.' >&2; \
	  echo 'Install one and name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(PYTHON) scripts/install.py $(VENV) $(patsubst .installed-%,%,$(@F))
	@touch $@

chaos: $(VENV)/.installed-dev
	$(BIN)/python -m tests.chaos

clean:
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
