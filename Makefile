# make trial: the main job, from nothing. make test: lint and the quick tests. make test-all: what CI runs. See README.md.
VENV := .venv
BIN := $(VENV)/bin
SOURCES := $(shell find crates iotrial.data -type f) Cargo.toml Cargo.lock pyproject.toml .cargo/config.toml

.PHONY: trial test test-all test-long lint fuzz bench truth method audits findings manual messages schemas notebooks build wheel deb release clean

trial: $(VENV)/.installed
	@$(BIN)/iotrial try -L conv=notrunc,fsync -- dd if=/dev/zero of={out}/copy bs=1M count=16 conv={conv}

build: $(VENV)/.installed

# The package is installed in place (editable), together with the probe.
$(VENV)/.installed: $(SOURCES) scripts/setup
	@scripts/setup $(VENV)
	@touch $@

# The same with the test tools, in one go.
$(VENV)/.developer: $(SOURCES) scripts/setup
	@scripts/setup $(VENV) developer
	@touch $(VENV)/.installed $@

# Lint, unit tests in Rust and the quick ones in Python: five to eight minutes on two processors, and no root.
test: $(VENV)/.developer
	@scripts/check

# What .ci/run runs: the same, and every contract, order, root and documentation test; a seventh of the long ones each day.
test-all: $(VENV)/.developer
	@scripts/check all

lint: $(VENV)/.developer
	@scripts/check lint

# What takes longer than a few minutes.
test-long: $(VENV)/.developer
	@$(BIN)/python -m pytest -m long

# Every fuzzer for so many seconds each, one at a time; needs a nightly compiler for the probe's parsers. See tests/fuzz.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.developer
	@PYTHON=$(BIN)/python scripts/fuzz $(FUZZ_SECONDS)

# What users install, into dist: see docs/install.md.
wheel: $(VENV)/.installed
	@scripts/wheel

deb: $(VENV)/.installed
	@scripts/deb

# What is uploaded to a package index, into dist/release: sdist, wheel, bills of materials.
release:
	@scripts/release

# docs/audits.md and docs/catalogue/audits, from the published tables in docs/audits.
audits: $(VENV)/.installed
	@$(BIN)/python scripts/audits

# docs/catalogue.md, docs/findings.md and a page a study, from the packed trials in docs/catalogue; `scripts/findings --run NAME...` makes those.
findings: $(VENV)/.installed
	@$(BIN)/python scripts/findings

# The manual page, from the commands.
manual: $(VENV)/.installed
	@$(BIN)/python scripts/manual

# docs/messages.txt: every sentence that iotrial can print.
messages: $(VENV)/.installed
	@$(BIN)/python scripts/messages

# The schemas of the JSON documents, from the Structs that are printed.
schemas: $(VENV)/.installed
	@$(BIN)/python scripts/schemas

# The notebooks of docs/notebooks, executed again from top to bottom.
notebooks: $(VENV)/.developer
	@$(BIN)/python scripts/notebooks

# The program's own costs, and the probe compared with its peers, into BENCHMARKS.md: as root, alone on the machine, some twenty minutes.
# BENCH=--quick tries all of it in a few and writes nothing down.
BENCH ?=
bench: $(VENV)/.developer
	@scripts/bench $(BENCH)

# Trials of known truth on this machine; go on where the record ends. Nothing else should run meanwhile.
TRUTH_BUDGET ?= 24h
truth: $(VENV)/.developer
	@$(BIN)/python benchmarks/truth/real.py --budget $(TRUTH_BUDGET)
	@$(BIN)/python benchmarks/truth/real.py --summary --write BENCHMARKS.md

# The simulations behind docs/method-details.md, printed into it and into docs/method-tables.md. METHOD_SCALE=.1 makes a tenth of the trials.
METHOD_SCALE ?= 1
method: $(VENV)/.developer
	@$(BIN)/python benchmarks/truth/simulate.py --scale $(METHOD_SCALE) --write docs/method-details.md --write docs/method-tables.md

clean:
	rm -rf $(VENV) target dist
