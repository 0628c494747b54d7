# make run    trains MNIST with one ps and two workers on this machine
# make test   runs all tests; TESTS=tests/unit runs some
# make bench  runs the benchmarks
# Each makes the environment that it needs; PYTHON=... names the interpreter to make it with.

# The system's Python first: the test cluster's ordinary users must be able to read it.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
VENV := .venv
BIN := $(VENV)/bin
TESTS ?= tests
RUFF = $(BIN)/ruff
PACKAGES := csh shellcheck numactl python3-venv \
    puppet-agent puppet-lint puppet-strings ruby-rspec-puppet metadata-json-lint
SHELL_SCRIPTS = $(wildcard pe/*.sh) .ci/run .ci/install-packages

.PHONY: run test check bench packages clean

run: $(VENV)/run
	$(BIN)/python tf_submit.py --local 3 example.py

test: packages $(VENV)/test check
	$(BIN)/python -m pytest $(TESTS)

check: $(VENV)/test
	$(RUFF) check --config .ci/ruff.toml .
	$(RUFF) format --config .ci/ruff.toml --check .
	$(BIN)/mypy tf_submit.py example.py
	if command -v shellcheck >/dev/null; then shellcheck $(SHELL_SCRIPTS); fi

bench: packages $(VENV)/test
	for file in tests/bench/[a-z]*.py; do $(BIN)/python $$file || exit 1; done

# Debian's python3 comes without pip until python3-venv is there.
$(VENV)/python:
	$(PYTHON) -c 'import ensurepip' 2>/dev/null || .ci/install-packages python3-venv
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/run: $(VENV)/python setup.cfg
	$(BIN)/pip install --quiet '.[cpu]'
	touch $@

$(VENV)/test: $(VENV)/python setup.cfg
	$(BIN)/pip install --quiet '.[cpu,test]'
	touch $@

# Without these, and without root to install them, the tests that need them skip and say why.
packages:
	.ci/install-packages --optional $(PACKAGES)

clean:
	rm -rf $(VENV) build *.egg-info
