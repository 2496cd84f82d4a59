# Everything a person needs: `make demo` to see it work, `make test` to prove it does.
SHELL := bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEMO_STAMP := $(VENV)/.installed-demo
EXTENSION_STAMP := $(VENV)/.installed-extension
EXTENSION_SOURCES := native/pyproject.toml native/Cargo.toml native/crates.lock native/build_backend.py $(wildcard native/src/*.rs)

.PHONY: setup demo test check bench bench-text bench-files bench-jobs bench-pending bench-pipelines bench-builds bench-browser bench-rendering bench-cases bench-view bench-dashboard bench-cluster bench-recrawl chaos scale politeness hostile soak links jobs schedules stores recrawls rebuilds versions analytics analytics-programs docs dist release chart images pythons first-commands proofs kafka lock clean

setup: $(STAMP)  ## Make .venv with everything in it; quick when nothing changed.
	@[[ "$(MAKECMDGOALS)" != *setup* ]] || echo "$(VENV) is ready. Next: source $(BIN)/activate, then gossamer demo"

$(STAMP): requirements.lock requirements-demo.lock pyproject.toml fakeweb/pyproject.toml $(EXTENSION_SOURCES)
	@PYTHON=$(PYTHON) tools/setup all

demo: $(DEMO_STAMP)  ## Start the fake web, crawl it, show where the pages are; then build the compiled extension.
	$(BIN)/gossamer demo
	@$(MAKE) --silent $(EXTENSION_STAMP)

# Only what a crawl needs, so that its first page comes soon.
$(DEMO_STAMP): requirements-demo.lock pyproject.toml
	@PYTHON=$(PYTHON) tools/setup demo

$(EXTENSION_STAMP): $(EXTENSION_SOURCES)
	@PYTHON=$(PYTHON) tools/setup extension

check: setup  ## Lint, types, arrows.
	$(BIN)/ruff check src fakeweb tests bench tools
	$(BIN)/ruff format --check src fakeweb tests bench tools
	$(BIN)/mypy
	$(BIN)/lint-imports

ifdef ROOM
test: setup  ## All tests, on real servers, in PROCESSES=4 at once. ROOM=fetch: those of one package.
	bash tests/room $(ROOM)
else
test: setup
	@setpriv --pdeathsig TERM bash tests/collect & collected=$$!; $(MAKE) --no-print-directory check && wait $$collected
	bash tests/servers/install
	PROCESSES=$(or $(PROCESSES),4) bash tests/all
	bash tests/servers/wheel
endif

printed: setup  ## Commands of the documentation, as printed, also those that take minutes (ARGS="render or analyse": these pages).
	$(BIN)/pytest -v -m "" $(if $(ARGS),-k "$(ARGS)") tests/integration/{,render/}test_printed_*.py

bench-text: setup  ## What --markdown costs, and what it does to another crawl beside it.
	$(BIN)/python -m bench.text $(ARGS)

bench-jobs: setup  ## From the request of a job to its process, on an idle node: 100 jobs.
	$(BIN)/python -m bench.job_start $(ARGS)

bench-pending: setup  ## Add, list and take jobs while 10,000 wait, on SQLite and PostgreSQL.
	$(BIN)/python -m bench.pending_jobs $(ARGS)

bench-dashboard: setup  ## The dashboard: ARGS=log follows 10,000 lines a second in Chromium; ARGS=load times every page of a full service (ten minutes).
	$(BIN)/python -m bench.dashboard $(ARGS)

bench-view: setup  ## What the performance view costs a Scrapy process and a worker.
	$(BIN)/python -m bench.view $(ARGS)

bench-browser: setup  ## Memory of a crawl of 2,000 rendered pages: about six minutes.
	$(BIN)/python -m bench.browser_memory $(ARGS)

bench-rendering: setup  ## CPU of a rendered page, beside scrapy-playwright and Crawlee: some minutes.
	$(BIN)/python -m bench.browser_comparison $(ARGS)

bench-cases: setup  ## Seven spiders, each diagnosed, and run again with the advice followed: six minutes.
	$(BIN)/python -m bench.cases $(ARGS)

bench-cluster: setup  ## The model of a large cluster: ARGS=measure, simulate, check (compares it with a real cluster, two minutes) or plot.
	$(BIN)/python -m bench.cluster $(or $(ARGS),check)

bench-builds: setup  ## How fast the platform's API answers while an environment is built with pip and with uv.
	$(BIN)/python -m bench.version_build $(ARGS)

bench-pipelines: setup  ## Items per CPU second into PostgreSQL, MariaDB, OpenSearch and Valkey, against pipelines that insert one by one.
	$(BIN)/python -m bench.pipelines $(ARGS)

bench-recrawl: setup  ## Bytes and CPU of a second round over unchanged pages, as a share of the first (ARGS="--pages 10000").
	$(BIN)/python -m bench.second_round $(ARGS)

bench: setup  ## The comparison table, from one run.
	bash bench/install
	$(BIN)/python -m bench $(ARGS)

bench-files: setup  ## A million items and a log of one gigabyte: pages, exports, and the API meanwhile.
	$(BIN)/python -m bench.platform_files $(ARGS)

chaos: setup  ## Whole clusters under fire: SEEDS=50 runs of seeded faults, nothing may be lost (ARGS="--topology cluster": on a Valkey Cluster; browser: with rendered pages).
	$(BIN)/python -m tests.chaos --seeds $(or $(SEEDS),50) $(ARGS)

jobs: setup  ## Jobs on four nodes under fire: SEEDS=50 runs of 500 jobs, none may be lost or run twice at a time (an hour).
	$(BIN)/python -m tests.jobs --seeds $(or $(SEEDS),50) $(ARGS)

schedules: setup  ## 60 schedules of one second on two managers, one of which is killed now and then: SEEDS=10 runs of a minute.
	$(BIN)/python -m tests.schedules --seeds $(or $(SEEDS),10) $(ARGS)

recrawls: setup  ## Services keep a site up to date while they and their servers are killed: SEEDS=20 runs of a minute.
	$(BIN)/python -m tests.recrawls --seeds $(or $(SEEDS),20) $(ARGS)

rebuilds: setup  ## A crawl of 100,000 pages loses its frontier half-way, is filled again from the records, and goes on: some minutes.
	$(BIN)/python -m tests.rebuilds $(ARGS)

versions: setup  ## An older installed version (OLD: a wheel or a revision; the last release) and this one share a frontier and a platform: a minute.
	$(BIN)/python -m tests.versions --old "$(OLD)" $(ARGS)

stores: setup  ## 100,000 items of a crawl into each store, whose server is killed twice, as is the crawl: none lost, none twice (ARGS=mysql: only this one).
	$(BIN)/python -m tests.stores $(ARGS)

scale: setup  ## An endless host among many, slow hosts, outages, a full disk: about 20 minutes.
	$(BIN)/python -m tests.scale $(ARGS)

politeness: setup  ## 200,000 requests under changing policies: no budget exceeded, and what is allowed is used.
	$(BIN)/python -m tests.politeness $(ARGS)

hostile: setup  ## The hostile web next to a healthy one: all bounded, nobody harmed, nothing private touched.
	$(BIN)/python -m tests.hostile $(ARGS)

soak: setup  ## Half a million pages by one worker: its memory, as a chart in .cache/soak.
	$(BIN)/python -m tests.soak $(ARGS)

links: setup  ## The compiled extension's links against the reference: a million generated pages, and real ones (ARGS="--folder DIR").
	$(BIN)/python -m tests.links $(ARGS)

analytics: analytics-programs setup  ## A crawl, Kafka, Spark and a live chart on this machine; Spark is compared with a batch (needs Java and Maven).
	$(BIN)/python -m examples.analytics $(ARGS)

analytics-programs:
	@$(PYTHON) -m examples.analytics.setup

docs: .cache/docs/.installed  ## The documentation as a site with search, in .cache/site.
	@echo "docs: Building the site (10 to 30 seconds)"
	@NO_MKDOCS_2_WARNING=1 .cache/docs/bin/mkdocs build --quiet && echo "docs: done in $$SECONDS s"
	@echo "Open .cache/site/index.html; with search: $(PYTHON) -m http.server -d .cache/site -b 127.0.0.1, then http://127.0.0.1:8000"

.cache/docs/.installed: requirements-docs.lock
	@PYTHON=$(PYTHON) tools/setup docs

dist: setup  ## What a release uploads, in dist/: the crawler, and the compiled extension for what can be built here (needs cargo).
	tools/dist $(ARGS)

release: setup  ## Check all that a release needs, run the tests, set VERSION=1.2.3, tag (ARGS=--dry-run: show what is missing).
	$(BIN)/python -m tools.release $(or $(VERSION),$(error Name the version, for example: make release VERSION=1.2.3)) $(ARGS)

chart:  ## Check the Helm chart with helm and the types of the Kubernetes API, and write deploy/kubernetes from it (needs Go).
	tools/chart/check

images: setup  ## Execute the steps of the Dockerfile in folders, and try the images (root on Linux with debootstrap; no daemon): TARGET=gossamer, platform or browser.
	nice $(BIN)/python -m tools.image $(or $(TARGET),gossamer)

first-commands: setup  ## The README's first commands in fresh folders with Python 3.11, 3.13 and 3.14 (root on Linux with debootstrap): a minute each.
	$(BIN)/python -m tests.first_commands $(ARGS)

pythons: setup  ## The unit suite and whole commands on Python 3.13 and 3.14, in Debians made by debootstrap (root): some minutes each (ARGS="3.13 -- tests/unit/policy").
	nice tools/pythons $(ARGS)

proofs: setup  ## Adopt the verdicts of the last chaos, politeness, hostile, soak, scale, jobs, schedules, stores, recrawls, rebuilds, images and first-commands runs into the documentation.
	$(BIN)/python -m tests.proof adopt

kafka: setup  ## A Kafka broker to try things with, until Ctrl-C (needs Java and Maven).
	$(BIN)/python -m tests.servers.kafka

LOCK := uv pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-annotate
# As constraints, so that a package has one version in all lock files.
PINS := sed -E 's/ *--hash=.*//; s/ *\\$$//' requirements.lock
# All that commands of crawls and of services can use, but IPython: a container has no use for its prompt.
IMAGE_EXTRAS := service kafka parquet fsspec s3 text xpath dates prices postgresql mysql opensearch redis session cron http2

lock:  ## Pin every dependency with hashes and no addresses (needs uv and cargo).
	@echo "lock: Resolving the packages of each lock file (some seconds each)"$(eval began := $(shell date +%s))
	$(LOCK) pyproject.toml --all-extras --group dev -o requirements.lock
	$(LOCK) pyproject.toml --group build --constraint <($(PINS)) -o requirements-demo.lock
	$(LOCK) pyproject.toml $(addprefix --extra ,$(IMAGE_EXTRAS)) --constraint <($(PINS)) -o requirements-image.lock
	$(LOCK) pyproject.toml --extra platform --extra scrapy --extra postgresql --extra s3 --constraint <($(PINS)) -o requirements-platform.lock
	$(LOCK) --group docs -o requirements-docs.lock
	$(LOCK) --group dist -o requirements-dist.lock
	$(LOCK) --group uv -o requirements-uv.lock
	$(LOCK) --group pipx -o requirements-pipx.lock
	$(LOCK) --python-version 3.11 bench/peers/browsers.in -o bench/peers/browsers.lock
	$(PYTHON) native/build_backend.py lock native
	$(BIN)/python -m tools.third_party
	@echo "lock: done in $$(($$(date +%s) - $(began))) s"

clean:
	rm -rf $(VENV) .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
