# `make` alone lists the targets. PYTHON=python3.13 picks the Python of .venv, LAB_ARGS goes to JupyterLab.
PYTHON :=
LAB_ARGS :=
# The first Python that the workbook runs on, where none is named.
FOUND = $(shell for name in python3 python3.13 python3.12 python3.14 python3.11; do \
  $$name -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))' 2>/dev/null && { echo $$name; break; }; done)
BASE := $(or $(PYTHON),$(FOUND),python3)
BIN := .venv/bin
# What a reader sees: JupyterLab shows about 95 characters of a line without scrolling.
READ_IN_LAB := notebooks/*.ipynb exercises/*/solution.py exercises/*/wrong_*.py
# JupyterLab refuses to run as root, which is what a container usually gives, unless it is told.
ROOT_ARGS := $(if $(filter 0,$(shell id -u)),--allow-root)

# Kernels, ranks and workers start by the hundred in the tests: they read compiled files, whatever the shell says.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help lab update test test-packages test-all nightly test-gpu-path versions colab-check quick check fix appendix frameworks extras programs book lite handout address bench bench-class soak record release gpu doctor setup find-python clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):[^#]*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 21

lab: setup ## set up, then open JupyterLab on the first notebook
	$(BIN)/jupyter lab $(ROOT_ARGS) --ServerApp.root_dir="$(CURDIR)" --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb $(LAB_ARGS)

# Two workers (on two cores, three take as long), file by file, in the order of the command line: the notebooks take longest.
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder
NBVAL := --nbval-lax --nbval-current-env --nbval-cell-timeout=200
# NB=04 narrows the tests to one notebook: its form, its exercises, and the notebook as it is and solved.
NAMES := $(notdir $(wildcard notebooks/$(NB)*.ipynb))
# The packages beside labkit, whose tests `make test-packages` runs.
PACKAGE_TESTS := $(wildcard packages/*/tests tests/test_packages)
ifdef NB
TESTS := tests/test_notebooks.py tests/test_exercises -k "$(NB)_ or $(NB)."
else
TESTS := $(PACKAGE_TESTS:%=--ignore=%) tests
endif
# TESTED=build/tested.txt leaves out what has passed: every run writes that file, and one that reads it adds to it.
LEAVE_OUT := $(if $(TESTED),--tested $(TESTED))

# A copy for a class has no tests but its notebooks.
test: setup ## set up, then run the tests, every notebook among them; NB=04 for one notebook and its exercises
ifeq ($(wildcard tests),)
	LABKIT_PROFILE=smoke LABKIT_HOME=$(CURDIR)/build/test-home $(BIN)/python $(PYTEST) $(NBVAL) $(NAMES:%=notebooks/%)
else
	$(BIN)/python scripts/notebooks.py solved
	$(BIN)/python $(PYTEST) $(NBVAL) $(NAMES:%=build/solved/%) $(if $(NB),--nightly $(NAMES:%=build/notebooks/%)) $(TESTS)
endif

update: find-python ## take the newest version; a notebook that it changes and you worked in is kept in notebooks/kept
	@$(BASE) scripts/update.py
	@$(MAKE) --no-print-directory setup

test-packages: setup ## the tests of kerneltrace, trainplan, steptime, ranks and gpufacts
	$(BIN)/python $(PYTEST) $(LEAVE_OUT) $(PACKAGE_TESTS)

# The 50-minute paths that leave out most. Of all, the tests show that no cell needs one that is left out.
SHORTENED := 06 08 13
build/paths: setup
	rm -rf build/paths
	$(BIN)/python -m teaching path $(SHORTENED) --solved -o build/paths >/dev/null

test-all: setup ## what `make test` and `make test-packages` run, and browser, graders, book and appendix
	$(BIN)/python scripts/notebooks.py solved
	$(BIN)/python $(PYTEST) $(NBVAL) --complete $(LEAVE_OUT) $(NAMES:%=build/solved/%) tests packages

nightly: setup build/paths ## all of every table, the notebooks as they are, all pretend GPUs, soak, other versions, frameworks
	-$(BIN)/python -m scripts.source_texts
	$(BIN)/python scripts/notebooks.py solved
	$(BIN)/python $(PYTEST) $(NBVAL) --nightly $(LEAVE_OUT) $(NAMES:%=build/solved/%) $(NAMES:%=build/notebooks/%) build/paths tests packages
	$(BIN)/python -m tests.rehearsal
	$(BIN)/python -m benchmarks.soak 20
	$(MAKE) versions
	$(MAKE) frameworks

# CONFIGS="T4 no-cupy" and NB="05 07" narrow it; python -m tests.rehearsal says which there are.
test-gpu-path: setup ## the notebooks on pretend GPUs, and which share of the lines that only a GPU reaches has run
	$(BIN)/python scripts/notebooks.py solved
	$(BIN)/python -m tests.rehearsal $(CONFIGS) $(NB)

# Each in an environment of its own: scripts/versions.py says how. ROW=oldest takes one of them, and
# ARGS="packages/ranks -m 'not slow'", for pytest, a part of the tests.
versions: setup ## notebooks and tests with the newest, Colab's and the oldest versions: 15 GB once, then 15 minutes each
	@failed=; for row in $(or $(ROW),newest colab oldest); do \
	  $(BIN)/python -m scripts.versions $$row $(if $(PYTHON),--python "$(PYTHON)") $(ARGS) || failed="$$failed $$row"; \
	  done; test -z "$$failed" || { echo "These versions failed:$$failed" >&2; exit 1; }

colab-check: setup ## every notebook with the versions that Google Colab has
	$(BIN)/python scripts/notebooks.py solved
	$(BIN)/python -m scripts.versions colab $(if $(PYTHON),--python "$(PYTHON)") $(NAMES:%=build/solved/%)

quick: setup ## the tests to run between two commits, under a minute
	$(BIN)/python $(PYTEST) -m "not slow" tests packages

check: setup ## linters, types, and whether the notebooks are canonical
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/ruff format --check --line-length 96 $(READ_IN_LAB)
	$(BIN)/mypy
	$(BIN)/python scripts/notebooks.py check

fix: setup ## repair what can be repaired of what `make check` finds
	$(BIN)/ruff check --fix
	$(BIN)/ruff format
	$(BIN)/ruff format --line-length 96 $(READ_IN_LAB)
	$(BIN)/python scripts/notebooks.py fix
	$(BIN)/python -m teaching docs

appendix: setup ## what some sections of notebooks 20 and later need: 2 GB
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[appendix]"

# Their newest versions, beside torch: nothing else of the workbook needs them.
FRAMEWORKS := $(CURDIR)/build/frameworks/bin/python
frameworks: setup ## steptime's callbacks with Hugging Face's Trainer, Lightning and Keras, in an environment of their own
	test -x "$(FRAMEWORKS)" || $(BIN)/python -m venv build/frameworks
	"$(FRAMEWORKS)" -m pip install -q torch -c constraints.txt
	"$(FRAMEWORKS)" -m pip install -q transformers accelerate lightning keras pytest -e packages/steptime
	"$(FRAMEWORKS)" -m pip install -q torchvision datasets peft "jsonargparse[signatures]" -c constraints.txt
	cd packages/steptime && "$(FRAMEWORKS)" -m pytest -q -p no:cacheprovider tests/test_steptime/test_frameworks.py tests/test_steptime/test_public_scripts.py

extras: setup ## what the book and teachers need: Sphinx, and the graders that classes use
	$(BIN)/python -m pip install -q -c constraints.txt -e ".[book,teaching]"

programs: ## on Debian and Ubuntu, what some tests need: Chromium, a C++ compiler, ip, Slurm, Pyodide
	$(BASE) scripts/programs.py install

# JOBS=2 takes half the time, but the notebooks disturb each other's measurements.
book: setup ## the notebooks, run on this machine, as a website in build/book/html; LABKIT_PROFILE=ci is quick
	@$(BIN)/python -c "import furo, myst_nb" 2>/dev/null || $(MAKE) extras
	$(BIN)/python -m book --jobs $(or $(JOBS),1)

lite: setup ## some of the notebooks for a browser alone, as a JupyterLite site in build/lite/site
	$(BIN)/python -m book.lite

FOLDER := build/handout
handout: setup ## a copy without solutions, for a class, in build/handout; FOLDER=... for another new folder
	$(BIN)/python -m teaching handout -o "$(FOLDER)"

address: setup ## set the public address, URL=https://github.com/owner/name: links and Colab cells appear
	$(BIN)/python scripts/notebooks.py address "$(URL)"

bench: setup ## speed and memory of labkit against their targets
	$(BIN)/python -m benchmarks

bench-class: setup ## 12 and then 30 kernels that measure at once: is each rate right or marked, and is anything lost?
	$(BIN)/python -m benchmarks.classroom

soak: setup ## plant every fault of a launch 20 times and look for what stays behind
	$(BIN)/python -m benchmarks.soak 20

record: setup ## run every notebook at full size and keep what it measures in data/recorded
	$(BIN)/python -m teaching record

release: setup ## sdists and wheels of the five packages in build/release, checked; nothing is uploaded
	$(BIN)/python -m scripts.release

# For a machine that has a GPU and a Python with everything in it, and perhaps no network: no setup. About 10 minutes.
# It ends with a file to send, also where a notebook could not be recorded: scripts/sent_run.py says what is in it.
gpu: export PYTHONPATH := $(CURDIR):$(PYTHONPATH)
gpu: ## without setup, with PYTHON: all tests but the browser's, the benchmarks, a recorded run and a file of it to send
	$(BASE) scripts/notebooks.py solved
	@failed=0; \
	$(BASE) -m pytest $(NBVAL) --ignore=tests/browser --ignore=tests/test_setup.py --nightly tests notebooks build/solved || failed=1; \
	$(BASE) -m benchmarks.run || failed=1; \
	$(BASE) -m benchmarks.gpu || failed=1; \
	$(BASE) -m benchmarks.counters; \
	$(BASE) -m benchmarks.estimates || failed=1; \
	$(BASE) -m teaching record || failed=1; \
	$(BASE) -m scripts.sent_run pack || failed=1; \
	exit $$failed

doctor: setup ## what this machine has, what is missing, and what to do
	$(BIN)/python scripts/doctor.py

setup: find-python ## make .venv, once
	@$(BASE) scripts/setup.py $(if $(PYTHON),--switch)
	@$(BASE) scripts/copies.py

# The scripts run on Python 3.8 or newer, and say themselves what the workbook needs.
find-python:
	@$(BASE) -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || \
	  { echo "Setup failed. $(BASE) is missing or too old: install Python 3.11, 3.12, 3.13 or 3.14, or add PYTHON=/where/python3.13 to the command." >&2; exit 1; }

clean: ## remove .venv and everything built; your results are kept
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .ipynb_checkpoints
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
