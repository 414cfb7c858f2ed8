# make profile   measure every backend on the GPU if there is one, else on the CPU; results go to a new folder in results/
# make test      run the first ring of the CPU test suite, some minutes: each check and each case, not all combinations
# make test-rest  run what that leaves out
# make test-all  run all of it
# make test-isa  run the test files that judge values as on a CPU without AVX-512: libraries compute others with it
# make test-range  run the suite on the oldest and the newest torch of the range; hours, and some 5 GB of downloads each
# make gpu-test  run the tests that need CUDA
# make latex-test  compile tables with pdflatex (Debian: texlive-latex-recommended); needs it
# make browser-test  run the tests that need a browser: a Chromium on the machine, which must be there
# make lint      ruff, mypy and import-linter
# make docs      build the site of docs/ in build/site; a broken link is an error
# make wheel     build both wheels, and unpack them to build/wheel for machines where nothing can be installed
# make clean     remove what the above have made, results/ excepted
#
# hub and liger are installed always, quack where torch is built for CUDA 13 and sees a GPU.
# PYTHON=...  use this interpreter as it is and install nothing; else .venv is made and filled on first use
# TORCH=...   arguments for pip in place of the torch, triton and Ray that CI runs (constraints.txt), for example
#             TORCH="--extra-index-url https://download.pytorch.org/whl/cpu"; empty, the newest that pyproject.toml allows
# ARGS=...    more arguments for the program that a target runs, for example ARGS="--mode training"

MAKEFLAGS += --no-print-directory
VENV := .venv
BASE_PYTHON ?= python3

ifeq ($(strip $(PYTHON)),)
PY := $(VENV)/bin/python
USER_READY := $(VENV)/installed
DEV_READY := $(VENV)/installed-dev
DOCS_READY := $(VENV)/installed-docs
BROWSER_READY := $(VENV)/installed-browser
else
PY := $(PYTHON)
USER_READY := found
DEV_READY := found-dev
DOCS_READY := found-docs
BROWSER_READY := found-dev
# The sources come first; the unpacked wheel is there for its entry points, by which backends are found.
export PYTHONPATH := src:kernels/torch-ext$(if $(wildcard build/wheel),:build/wheel)$(if $(PYTHONPATH),:$(PYTHONPATH))
endif

.PHONY: profile test test-rest test-all test-isa gpu-test browser-test test-range latex-test lint docs wheel clean found found-dev found-docs

# Each run has a folder of its own, named by the time in UTC: a second one keeps the first.
RESULTS := results/$(shell date -u +%Y-%m-%d-%H%M%S)

profile: $(USER_READY)
	$(PY) -m mlpfusion profile --out $(RESULTS) $(ARGS)

test: RING := -m "not full"
test-rest: RING := -m "full or sampled"
test test-rest test-all: $(DEV_READY)
	@$(PY) -c 'import sys; from importlib.util import find_spec as f; f("xdist") or sys.exit("make: $(PY) lacks pytest-xdist: install mlpfusion[dev] there")'
	@# Tests start many processes: each would compile all sources again if none of them kept what it compiled.
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -n auto --dist worksteal --ignore=tests/gpu --ignore=tests/browser $(RING) $(ARGS)

# By name: to collect the others would take longer than to run these.
test-isa: $(DEV_READY)
	PYTHONDONTWRITEBYTECODE= ONEDNN_MAX_CPU_ISA=AVX2 $(PY) -m pytest -n auto --dist loadfile -m values $$(grep -rlE '^(pytestmark = |@)pytest.mark.values' tests --include='test_*.py') $(ARGS)

test-range: $(DEV_READY)
	$(PY) bench/version_range.py $(ARGS)

gpu-test: $(DEV_READY)
	@$(PY) -c 'import sys, torch; torch.cuda.is_available() or sys.exit("make: gpu-test needs a GPU; torch sees none")'
	MLPFUSION_GPU_TESTS=1 $(PY) -m pytest tests/gpu $(ARGS)

latex-test: $(DEV_READY)
	@command -v pdflatex > /dev/null || { echo "make: latex-test needs pdflatex, in Debian's texlive-latex-recommended"; exit 1; }
	$(PY) -m pytest -n 0 -m latex tests/report/table/formats/test_latex.py $(ARGS)

browser-test: $(BROWSER_READY)
	MLPFUSION_BROWSER_TESTS=1 $(PY) -m pytest tests/browser $(ARGS)

lint: $(DEV_READY)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy src kernels/torch-ext/mlpfusion_kernels $(wildcard bench/*.py)
	$(PY) -m mypy --config-file tests/mypy.ini tests
	$(PY) -c 'from importlinter.cli import lint_imports_command as lint; lint()' --no-cache

docs: $(DOCS_READY)
	$(PY) -m zensical build --strict --clean $(ARGS)

wheel: $(DEV_READY)
	rm -rf build/wheel dist
	$(PY) -m pip wheel packages/read . --no-deps --wheel-dir dist --quiet
	for each in dist/*.whl; do $(PY) -m zipfile -e $$each build/wheel || exit 1; done

clean:
	rm -rf $(VENV) build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src kernels tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/made:
	$(BASE_PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("make: Python 3.10 or later is needed; BASE_PYTHON=... names one")'
	$(BASE_PYTHON) -m venv $(VENV)
	@touch $@

# Installed editable, so that only a change of the dependencies needs another go. All extras that can run here.
TORCH ?= --constraint constraints.txt
INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check $(TORCH) -e packages/read -e
WANTS_QUACK = $(PY) -c 'import sys, torch; sys.exit(not ((torch.version.cuda or "").startswith("13.") and torch.cuda.is_available()))'

$(VENV)/installed: pyproject.toml packages/read/pyproject.toml constraints.txt | $(VENV)/made
	$(INSTALL) '.[hub,liger]'
	if $(WANTS_QUACK); then $(INSTALL) '.[hub,liger,quack]'; fi
	@touch $@

$(VENV)/installed-dev: pyproject.toml packages/read/pyproject.toml constraints.txt | $(VENV)/made
	$(INSTALL) '.[dev,cluster]'
	if $(WANTS_QUACK); then $(INSTALL) '.[dev,cluster,quack]'; fi
	@touch $@ $(VENV)/installed

$(VENV)/installed-docs: pyproject.toml packages/read/pyproject.toml | $(DEV_READY)
	$(INSTALL) '.[docs]'
	@touch $@

$(VENV)/installed-browser: pyproject.toml packages/read/pyproject.toml | $(DEV_READY)
	$(INSTALL) '.[browser]'
	@touch $@

found:
	@$(PY) -c 'import sys; from importlib.metadata import entry_points as e; e(group="mlpfusion.backends") or sys.exit("make: $(PY) does not know the backends of mlpfusion: install the wheel there, or run `make wheel` where pip works and bring build/wheel along")'

found-dev: found
	@$(PY) -c 'import sys; from importlib.util import find_spec as f; m = [n for n in ("pytest", "pytest_timeout", "hypothesis") if not f(n)]; m and sys.exit("make: $(PY) lacks " + ", ".join(m) + ": install mlpfusion[dev] there")'

found-docs: found
	@$(PY) -c 'import sys; from importlib.util import find_spec as f; f("zensical") or sys.exit("make: $(PY) lacks zensical: install mlpfusion[docs] there")'
