# canary: `make` lists the targets. Needs Python 3.11 or newer and make, nothing else.

PYTHON ?= python3
UV ?= uv
ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := src tests benchmarks examples

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: help setup train test test-attacks test-slow test-adapters test-wheel lint format bench results docs lock clean

help: ## this list
	@echo "Targets (options go in ARGS, for example: make train ARGS='--seeds 4'):"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
	  printf '  %-12s %s\n' "$$name" "$$text"; done

setup: $(STAMP) ## create .venv with everything needed; done once, and again when the dependencies change

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "canary needs Python 3.11 or newer, and '$(PYTHON)' is not; name another one: make setup PYTHON=python3.12" >&2; \
	  exit 2; }
	@echo "Installing into $(VENV), once; this downloads a few hundred megabytes ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --no-deps --no-compile -r requirements.lock # the lock names them all
	@$(BIN)/python -m pip install --quiet --no-deps --no-compile simglucose==0.2.11 arch==8.0.0 # data of two examples
	@$(BIN)/python -m compileall -q -j 0 -x '/tests/' $(VENV)/lib >/dev/null 2>&1 || true # on all cores
	@$(BIN)/python -m pip install --quiet --no-deps --editable .
	@touch $@

train: setup ## train Canary on IcyLake (or whatever ARGS say)
	@$(BIN)/canary train $(ARGS)

test: setup lint ## linting, formatting, types and all quick tests
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-attacks: setup ## attack runs, files and environments; real kills too
	$(BIN)/pytest tests/attacks -m "slow or not slow" $(ARGS)

test-slow: setup ## the learning tests, several minutes each
	$(BIN)/python -m pytest -m slow $(ARGS)

test-adapters: ## the adapters against the real packages, which exclude each other: an environment for each
	@for package in "gymnax" "gymnax<1" "crax-bench" "playground brax"; do \
	  place=.cache/adapters/$$(echo "$$package" | tr -c 'a-z0-9\n' '-'); \
	  test -d $$place || $(PYTHON) -m venv $$place; \
	  echo "== $$package"; \
	  $$place/bin/python -m pip install --quiet pytest beartype six $$package \
	    equinox jaxtyping jinja2 matplotlib mujoco-mjx optax pillow polars rich scipy tyro && \
	  PYTHONPATH=src:tests:. $$place/bin/python -m pytest -p no:cacheprovider -o filterwarnings=ignore \
	    tests/environments/test_jax_adapters.py \
	    || exit 1; \
	done

test-wheel: ## build the wheel and use it in a clean environment, without extras and with them
	@PYTHON=$(PYTHON) bash tests/wheel.sh

lint: setup ## linting, formatting and types
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/pyrefly check

format: setup ## format the code and repair what can be repaired
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

bench: setup ## measure the speed on this machine
	@$(BIN)/python -m benchmarks.training_speed $(ARGS)

results: setup ## make all tables and figures of results/ again from what is stored, and the pages that quote them
	@$(BIN)/canary reproduce --rebuild --quiet
	@$(BIN)/python docs/figures/tables.py

docs: setup ## build the site of the docs into site/, strictly and without a network
	@rm -rf build/pages && mkdir -p build/pages && cp -r *.md LICENSE CITATION.cff docs examples results build/pages
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lock: ## pin all dependencies anew (needs uv; ARGS=--upgrade takes the newest versions)
	$(UV) pip compile --quiet --universal --python-version 3.11 pyproject.toml --group dev --group docs --no-annotate \
	  --no-emit-index-url --no-emit-find-links --custom-compile-command 'make lock' -o requirements.lock $(ARGS)

clean: ## remove the environment and caches; runs stay
	rm -rf $(VENV) .cache .pytest_cache .ruff_cache .hypothesis build dist site
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
