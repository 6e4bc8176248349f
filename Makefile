# Ferry at the desk and in CI. Every target sets itself up: Python 3.11 to 3.13, pip and make suffice.
#
# One environment, .venv: dev.txt locks the same versions as serve.txt, so `make test` extends the environment of
# `make serve`. CUDA's TensorFlow would overwrite the CPU one, so it has .venv-gpu. Both have the command `ferry` in
# bin/. A stamp in the environment that is newer than its lock file means that everything is installed. A C compiler is
# used if there is one: hatch_build.py.
# Development also installs the client (clients/python); serving does not.

PYTHON ?= python3
BIN    := .venv/bin
DEV    := .venv/.dev-installed
SERVE  := $(if $(GPU),.venv-gpu/.gpu-installed,$(if $(wildcard $(DEV)),$(DEV),.venv/.serve-installed))

.DEFAULT_GOAL := help
.PHONY: help setup serve test benchmarks lint schedules mutants clients ray oldest bench chart lock clean

help:  ## This list
	@sed -n 's/^\([a-z]*\):.*##/\1 -/p' Makefile

setup: $(DEV)  ## Make .venv with everything that development needs

serve: $(SERVE)  ## Serve the models folder; obeys FERRY_*; GPU=1 for CUDA
	@exec $(dir $(SERVE))bin/ferry serve

test: lint  ## Linters, then all tests; at least 95 % of app/ must be covered
	$(BIN)/pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder --ignore=tests/benchmark \
	  --cov=app --cov-report=term --cov-fail-under=95

benchmarks: $(DEV)  ## The tests of what measures (bench/): .ci/run has them, `make test` has not
	$(BIN)/pytest --numprocesses=2 --dist=loadfile --no-loadscope-reorder tests/benchmark

lint: $(DEV)  ## Style, types, and who may import whom
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Many short runs: hypothesis remembers what it tried, and memory grows with it.
schedules: $(DEV)  ## The laws of batching over 10^5 random schedules, half an hour on 2 cores
	seq 20 | xargs -P 2 -I SEED $(BIN)/pytest -q -p no:cacheprovider --hypothesis-profile=schedules \
	  --hypothesis-seed=SEED tests/laws/test_batching.py::test_laws

# ARGS='--sample 200 --seed 1' takes a sample, ARGS=app/batching/queue.py a file.
mutants: $(DEV)  ## Plant small faults, and list those that no test finds
	$(BIN)/python -m tests.mutants.run $(ARGS)

# TensorFlow 2.19 has no wheel for Python 3.13.
oldest: .venv/oldest/.installed  ## The tests of what uses private APIs, with the oldest TensorFlow and uvicorn allowed
	PYTHONPATH=$(CURDIR)/.venv/oldest $(BIN)/python -m pytest -q tests/runtimes tests/live/libraries/test_decision_forests.py
	[ -e .venv/oldest-uvicorn/uvicorn/__init__.py ] || $(BIN)/python -m pip install -q --disable-pip-version-check \
	  --no-deps --target .venv/oldest-uvicorn 'uvicorn==0.53.*'
	PYTHONPATH=.venv/oldest-uvicorn $(BIN)/python -m pytest -q tests/transports/http1

.venv/oldest/.installed: requirements/tensorflow-2.19.txt | $(DEV)
	@rm -rf $(@D)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes --target $(@D) -r $<
	@echo 'raise ImportError("that of .venv is for another TensorFlow, which imports it as it loads a model")' > $(@D)/tf_keras.py
	@touch $@

clients: .venv-clients/.clients-installed  ## Make .venv-clients: the clients that tests/official_clients try

ray: .venv-ray/.ray-installed  ## Make .venv-ray: Ferry and Ray Serve, for examples/ray_serve

bench: $(DEV)  ## Ferry beside its peers and its goals, 40 minutes: docs/benchmark.md
	@exec $(BIN)/python -m bench.run $(ARGS)

chart: $(DEV)  ## Write chart/ferry, a Helm chart, from k8s/ (needs kubectl or kustomize)
	$(BIN)/python -m k8s.chart chart/ferry

lock:  ## Rewrite requirements/*.txt from the .in files (needs uv)
	sh requirements/lock.sh

clean:  ## Remove environments, caches and build outputs
	rm -rf .venv .venv-clients .venv-gpu .venv-ray chart dist build .coverage .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

.venv/.dev-installed: requirements/dev.txt | .venv/.gitignore
.venv/.serve-installed: requirements/serve.txt | .venv/.gitignore
.venv-gpu/.gpu-installed: requirements/gpu.txt | .venv-gpu/.gitignore
.venv-ray/.ray-installed: requirements/ray.txt | .venv-ray/.gitignore

%-installed: pyproject.toml hatch_build.py app/codecs/json/numbers.c app/pipelines/fold/fold.c
	@echo 'Installing $(filter requirements/%,$^) into $(@D)'
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $(filter requirements/%,$^)
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e . $(if $(findstring dev,$@),-e clients/python)
	@touch $@

# perf_analyzer's wheel is an old tritonclient, hence a folder of its own.
NODE_CLIENTS = tests/official_clients/languages
.venv-clients/.clients-installed: requirements/clients.txt requirements/perf-analyzer.txt $(NODE_CLIENTS)/package-lock.json | .venv-clients/.gitignore
	@echo 'Installing $(filter requirements/%,$^) into $(@D)'
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes -r $<
	@rm -rf $(@D)/perf
	@$(@D)/bin/python -m pip install -q --disable-pip-version-check --no-deps --require-hashes \
	  --target $(@D)/perf -r requirements/perf-analyzer.txt
	@mkdir -p $(@D)/node && cp $(NODE_CLIENTS)/package*.json $(@D)/node
	@if command -v npm >/dev/null; then npm ci --prefix $(@D)/node --ignore-scripts --no-audit --no-fund --loglevel=error; \
	  else echo 'npm is missing: the clients of Node are NOT installed (Debian: npm)' >&2; fi
	@touch $@

# Debian keeps ensurepip in python3-venv; where that is missing, the machine's pip fills in.
%/.gitignore:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
	  echo "Ferry needs Python 3.11, 3.12 or 3.13; $(PYTHON) is `$(PYTHON) --version 2>&1`." \
	    "Name another: make $(MAKECMDGOALS) PYTHON=python3.11" >&2; exit 1; }
	@if $(PYTHON) -c 'import ensurepip' 2>/dev/null; then $(PYTHON) -m venv $(@D); else \
	    $(PYTHON) -m venv --without-pip $(@D) && \
	    $(PYTHON) -m pip --python $(@D)/bin/python install -q --disable-pip-version-check pip; \
	  fi || { echo "$(PYTHON) has neither ensurepip nor pip: install one (Debian: python3-venv)." >&2; exit 1; }
	@echo '*' > $@
