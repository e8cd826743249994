# Each target sets up what it needs: an environment in .venv and, for the tests, Debian packages where we are root.
#
#   make demo     data, training on 1, 2 and 4 local ranks, and a report under demo/
#   make test     all tests; those on a real Slurm need root and Debian's packages, and are skipped without
#   make quick    the tests that take less than half a second: three minutes on two processors, without root or Slurm
#   make lint     ruff, mypy, import-linter, lines of each room, shellcheck
#   make words    every sentence that the program can print, and what is wrong with its words
#   make docs     writes the pages of docs/ that are made from the code
#   make pictures  draws docs/figures from the demo: the first screens of plan, analyze, status and the page
#   make bench    what start-up and measuring cost, what measuring finds on a slow wire; wants a quiet machine, half an hour
#   make soak     the tests that take long
#   make mutants  plants 60 faults, one after the other, and says which ones the tests find
#   make wheelhouse  what `pip install` needs where there is no internet, with checksums; see docs/clusters.md
#   make gpu      what touches CUDA, on the GPUs of this machine, in ten minutes; says so where there is none

VENV := .venv
BIN := $(VENV)/bin
HPCDDP := $(BIN)/hpcddp
APT := DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300
# Pythons that requirements/ lock for; `python3` is taken where it is one of them.
LOCKED := 3.13 3.12 3.11
IS_LOCKED := -c 'import sys; sys.exit("%d.%d" % sys.version_info[:2] not in "$(LOCKED)".split())'
PYTHON ?= $(shell for p in python3 $(LOCKED:%=python%); do $$p $(IS_LOCKED) 2>/dev/null && echo $$p && break; done)

.PHONY: demo test quick lint words docs pictures bench soak gpu wheelhouse newest lock packages mutants
.DELETE_ON_ERROR:

demo: $(VENV)/installed-demo
	@echo "== data: a small bigMNIST in demo/data"
	$(HPCDDP) data prepare bigmnist --root demo/data --copies 1
	@echo "== training: 1, 2 and 4 ranks on this machine"
	$(HPCDDP) submit jobs/local-mnist.yaml --runs demo/runs --set workload.data.root=$(CURDIR)/demo/data --wait --yes
	@echo "== analysis"
	$(HPCDDP) analyze demo/runs

test: $(VENV)/installed-test packages
	$(BIN)/python -m tests

quick: $(VENV)/installed-test
	$(BIN)/python -m tests --quick

soak: $(VENV)/installed-test packages
	$(BIN)/python -m pytest -m soak

mutants: $(VENV)/installed-test
	$(BIN)/python -m tests.mutants

BENCHES := analyze_50m cli_latency submit_rate step_overhead probe comm large_batch loader_jpeg loader_tensors generate_bigmnist \
	predict_published predict_speed predict_throttled

bench: $(VENV)/installed-test packages
	@failed=; for name in $(BENCHES); do $(BIN)/python -m tests.bench.$$name || failed="$$failed $$name"; done; \
	if [ -n "$$failed" ]; then echo "a bound does not hold in:$$failed" >&2; exit 1; fi

# A python that has what the tests need, and whose torch finds the GPUs, is used as it is: there may be nothing to install from.
GPU_READY = $(PYTHON) -c 'import pytest, torch, torchvision; assert torch.cuda.is_available()' 2>/dev/null
RESULTS ?= $(if $(OUT),$(OUT)/,)gpu-results.jsonl

gpu:
	@if ! nvidia-smi -L >/dev/null 2>&1 && ! ls /dev/nvidia[0-9]* >/dev/null 2>&1 && ! ls /dev/kfd >/dev/null 2>&1; then echo "skipped: no GPU"; exit 0; fi; \
	if $(GPU_READY); then $(PYTHON) -m tests.gpu --results $(RESULTS); \
	else $(MAKE) --no-print-directory $(VENV)/installed-test && $(BIN)/python -m tests.gpu --results $(RESULTS); fi

lint: $(VENV)/installed-test packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.test_source
	shellcheck .ci/run

# uv knows which packages another Python and platform need, which pip asks of its own; the wheels are then downloaded by pip.
FOR_PYTHON ?= 3.12
FOR_PLATFORM ?= x86_64-manylinux_2_28
FOR_EXTRAS ?=
WHEELS := wheelhouse
MACHINE = $(firstword $(subst -manylinux_2_, ,$(FOR_PLATFORM)))
GLIBC = $(lastword $(subst -manylinux_2_, ,$(FOR_PLATFORM)))
TAGS = $(foreach minor,$(shell seq $(GLIBC) -1 5),manylinux_2_$(minor)_$(MACHINE)) manylinux2014_$(MACHINE) linux_$(MACHINE)

wheelhouse: $(BIN)/uv
	rm -rf $(WHEELS)
	mkdir $(WHEELS)
	$(BIN)/uv pip compile --quiet --python $(BIN)/python setup.cfg $(addprefix --extra ,$(FOR_EXTRAS)) --generate-hashes \
		--python-version $(FOR_PYTHON) --python-platform $(FOR_PLATFORM) --output-file $(WHEELS)/requirements.txt
	$(BIN)/python -m pip download --quiet --dest $(WHEELS) --no-deps --require-hashes --requirement $(WHEELS)/requirements.txt \
		--only-binary=:all: --python-version $(FOR_PYTHON) $(addprefix --platform ,$(TAGS))
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(WHEELS) .
	cd $(WHEELS) && sha256sum *.whl > SHA256SUMS
	@echo "== $$(ls $(WHEELS)/*.whl | wc -l) wheels for Python $(FOR_PYTHON) on $(FOR_PLATFORM) in $(WHEELS)/"

words: $(VENV)/installed-test
	@$(BIN)/python -m tests.test_words

docs: $(VENV)/installed-test
	$(BIN)/python -m tests.docs

pictures: $(VENV)/installed-test packages
	test -d demo/runs/local-mnist || $(MAKE) demo
	$(BIN)/python -m tests.docs.test_pictures demo/runs/local-mnist

$(VENV)/installed-%: requirements/%.txt setup.cfg pyproject.toml | $(BIN)/python
	@echo "== installing hpcddp and what $< locks into $(VENV): the first time this fetches PyTorch, several GB"
	$(BIN)/python -m pip install --require-hashes --only-binary=:all: --requirement $<
	$(BIN)/python -m pip install --no-deps --no-build-isolation --editable .
	@touch $@

# What a new release breaks shows here in some five minutes: no Slurm, and not the tests that train most.
QUICK := $(addprefix tests/,analysis/export analysis/figures backends cluster commands core detect probe script share study submit sweep) \
	-m "not slurm and not controllers and not timed and not soak and not gpu"

newest: $(VENV)-newest/bin/python
	@echo "== installing the newest releases into $(VENV)-newest"
	$< -m pip install --upgrade --upgrade-strategy eager --editable '.[train,demo,test]'
	@code=0; $< -m pytest $(QUICK) || code=$$?; $< -m tests.test_locked; exit $$code

# What a constraint of this machine lets pip install at most caps the lock, too. setuptools, which builds hpcddp, is locked as well.
CAP = $(shell $(BIN)/python -m pip config list | sed -n "s/^[^=]*\.constraint='\(.*\)'/--constraint \1/p")
UV_COMPILE = $(BIN)/uv pip compile --quiet --generate-hashes --no-annotate --custom-compile-command 'make lock'
LOCK_EXTRAS = sed -n 's/^requires = \["\(.*\)"\]/\1/p' pyproject.toml | $(UV_COMPILE) setup.cfg - --universal --upgrade \
	--python-version $(lastword $(LOCKED)) $(CAP)

lock: $(BIN)/uv
	$(LOCK_EXTRAS) --extra train --extra demo --extra test --output-file requirements/test.txt
	$(LOCK_EXTRAS) --extra train --extra demo --constraint requirements/test.txt --output-file requirements/demo.txt
	@for python in $(LOCKED); do for machine in x86_64 aarch64; do \
		echo "== looking for wheels of requirements/test.txt for Python $$python on $$machine"; \
		$(UV_COMPILE) requirements/test.txt --no-deps --only-binary :all: --python-version $$python \
			--python-platform $$machine-manylinux_2_28 >/dev/null || exit 1; done; done

$(BIN)/uv: | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv

$(BIN)/python $(VENV)-newest/bin/python:
	@test -n "$(PYTHON)" && $(PYTHON) $(IS_LOCKED) || { echo "requirements/ locks packages for Python $(LOCKED), and" \
		"$(if $(PYTHON),$(PYTHON) is $$($(PYTHON) --version 2>&1),none is found). Run \`make PYTHON=/path/to/python3.12\`." >&2; exit 1; }
	@echo "== making $(@:/bin/python=) with $(PYTHON), $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(MAKE) --no-print-directory python3-venv
	$(PYTHON) -m venv $(@:/bin/python=)

.PHONY: python3-venv
python3-venv:
	@test "$$(id -u)" = 0 && command -v apt-get >/dev/null \
		|| { echo "$(PYTHON) cannot make an environment: install Debian's python3-venv, or name another: make PYTHON=..." >&2; exit 1; }
	$(APT) update && $(APT) install -y --no-install-recommends python3-venv

# Debian's packages of what the tests start: a Slurm, a slow network, a browser, shells, and shellcheck. Their services are not used, only their programs.
packages:
	@missing=$$(for p in $$(cat tests/twin/packages.txt); do \
		dpkg-query -W -f '$${Status}' "$$p" 2>/dev/null | grep -q 'ok installed' || echo "$$p"; done); \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then \
		echo "== not installed, and not root on Debian:" $$missing; exit 0; fi; \
	echo "== installing" $$missing; \
	$(APT) update && $(APT) install -y --no-install-recommends $$missing
