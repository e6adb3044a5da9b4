# GEMM Ladder's menu. Without PYTHON=..., every target first makes an environment of its own in .venv, once.

TORCH ?= torch==2.13.0
STAGE ?=
PRESET ?= default
VENV := .venv
# Where no bytecode is written, each process compiles all modules again, and pytest all tests: five seconds each time.
unexport PYTHONDONTWRITEBYTECODE
# One process per core; a library that starts threads of its own would compete with the others.
PYTEST = OMP_NUM_THREADS=1 $(PY) -m pytest -n auto --dist worksteal

ifeq ($(origin PYTHON),command line)
  PY := $(PYTHON)
  CLANG_FORMAT := clang-format
  READY :=
else
  PY := $(VENV)/bin/python
  CLANG_FORMAT := $(VENV)/bin/clang-format
  READY := $(VENV)/ready
endif

.PHONY: help setup demo test test-all lint size experiments submit plots report readme doctor build ptx sanitize clean clean-cache
.DEFAULT_GOAL := help

help: ## this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  make PYTHON=python3 TARGET   use an existing environment; nothing is installed"

setup: $(READY) ## make the environment (the other targets do it by themselves)

demo: $(READY) ## start here: one rung run, checked and broken on purpose, and the answer (STAGE=s05 for another)
	$(PY) -m experiments demo $(STAGE)

experiments: $(READY) ## the main job: run what this machine can, and draw the plots (PRESET=full for all sizes)
	$(PY) -m experiments run --preset $(PRESET)
	$(PY) -m experiments report

test: $(READY) ## pass the tests
	$(PYTEST)

test-all: $(READY) ## pass the tests with every kernel, and report every mutant of every rung (CI runs this weekly)
	$(PYTEST) --thorough
	OMP_NUM_THREADS=1 $(PY) -m tests.mutation.mutants --jobs $$($(PY) -c "import os; print(os.cpu_count())")

lint: $(READY) ## check style, types, format and names: ruff, mypy, clang-format, tests/words.py
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	git ls-files 'cuda_kernels/*.cu' 'cuda_kernels/*.cuh' | xargs $(CLANG_FORMAT) --dry-run --Werror
	$(PY) -m tests.words

size: ## print the lines of each room, and fail where one exceeds its ceiling
	@python3 -m tests.size

submit: $(READY) ## check this card's results, and make the folder that is committed to publish them
	$(PY) -m experiments submit

plots: $(READY) ## draw the plots again from the CSV
	$(PY) -m experiments plot

report: $(READY) ## one HTML page of everything: plots, tables, and the rungs' sources side by side
	$(PY) -m experiments report

readme: $(READY) ## write the tables of README and docs/ from the published CSV
	$(PY) -m experiments readme

doctor: $(READY) ## what this machine has, and what to do about what is missing
	$(PY) -m experiments doctor

build: $(READY) ## compile every CUDA rung for this machine's GPU
	$(PY) -m cuda_kernels build

ptx: $(READY) ## print a CUDA rung's PTX: make ptx STAGE=s04
	@test -n "$(STAGE)" || { echo "which rung? make ptx STAGE=s04" >&2; exit 2; }
	@$(PY) -m cuda_kernels ptx $(STAGE)

sanitize: $(READY) ## run CUDA rungs under compute-sanitizer on this machine's GPU: make sanitize STAGE=s04 (or all)
	$(PY) -m cuda_kernels sanitize $(STAGE)

clean: ## remove what tools have left here (results and compiled kernels stay)
	rm -rf build .pytest_cache .ruff_cache .hypothesis

clean-cache: ## remove compiled kernels and all that is computed once, for every checkout
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/gemm-ladder"

# torch first and pinned: what follows is content with it, and a looser wish would fetch another build. setuptools, which
# pyproject.toml builds with, comes along, so that it is not fetched again to build in. pip is today's where the
# machine's own can fetch it, since old ones look twice as long for the versions there are. It writes no bytecode of ten
# thousand files: the imports of the two thousand that are used do, torch's while pip is busy with the rest. The nvcc
# wheels only where the machine has no CUDA toolkit. `ready` is written last, so a set-up that broke off is taken up
# again.
INSTALL := $(VENV)/bin/python -W ignore -m pip install --no-compile --quiet --disable-pip-version-check
IMPORT := 2>/dev/null $(VENV)/bin/python -c
$(VENV)/ready: pyproject.toml
	@echo "setting up $(VENV): once, a minute or two"
	python3 -m venv --without-pip $(VENV)
	@python3 -m pip --python $(VENV)/bin/python install --quiet pip 2>/dev/null || $(VENV)/bin/python -m ensurepip --upgrade
	$(INSTALL) "$(TORCH)" "setuptools>=77"
	@$(IMPORT) "import torch.utils.cpp_extension" & $(INSTALL) --no-build-isolation --editable ".[test]"
	@$(IMPORT) "import seaborn" & $(IMPORT) "import hypothesis, jinja2, pygments, pytest, triton.language, typer"; wait
	@if ! $(VENV)/bin/python -c "from gemm_ref.toolchain import find_toolkit; find_toolkit()" 2>/dev/null; \
	then $(INSTALL) --no-build-isolation --editable ".[nvcc]"; fi
	@touch $@
