# `make` or `make help` lists the targets. Set-up happens by itself and once: the stamps
# .venv/.base and .venv/.dev say how far it got, and a newer pyproject.toml undoes them.
# Only `make setup-system` touches the machine outside this folder.

PYTHON ?= $(shell for name in python3.13 python3.12 python3.11 python3 python; do \
	command -v $$name >/dev/null && \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	{ echo $$name; break; }; done)
V := .venv/bin

# Debian packages some tests want; without them those tests skip and say so. Maven brings Java,
# binutils the `strip` that makes the image small.
SYSTEM_PACKAGES := kcat maven docker-compose prometheus binutils chromium iptables iproute2

# Every module in bench/ but these is a benchmark, and so is the package peers: bench/NAME.py is
# `make bench-NAME`.
BENCHES := peers $(filter-out table report scratch spark_jobs spark_history spark_verify,$(basename $(notdir $(wildcard bench/*.py))))

.DEFAULT_GOAL := help

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@for name in $(BENCHES); do printf '  make %-16s measure, print a table, write bench/results/%s.json\n' bench-$$name $$name; done

.PHONY: run
run: .venv/.base  ## set up, then start a local cluster of three nodes (ARGS="--nodes 1 …")
	@$(V)/tidelog up $(ARGS)

.PHONY: setup
setup: .venv/.base .venv/.dev  ## set up all that `run` and `test` need

.PHONY: setup-system
setup-system:  ## install the Debian packages some tests want (root)
	@if [ -z "$(SYSTEM_PACKAGES)" ]; then echo "no system packages are needed"; \
	elif dpkg -s $(SYSTEM_PACKAGES) >/dev/null 2>&1; then echo "already installed: $(SYSTEM_PACKAGES)"; \
	else apt-get update -q && apt-get install -y -q --no-install-recommends $(SYSTEM_PACKAGES); fi

.venv/.base: pyproject.toml
	@test -n "$(PYTHON)" || { echo "Tidelog needs Python 3.11 or newer and found none; say which with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Tidelog needs Python 3.11 or newer; $(PYTHON) is older" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) lacks the venv module; on Debian: apt install python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv .venv
	$(V)/pip install -q --disable-pip-version-check -e .
	@$(V)/python -m compileall -q $(wildcard */tidelog)  # an editable install leaves that to the first start
	@touch $@

.venv/.dev: .venv/.base
	$(V)/pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

# Three workers for two cores: many tests wait for clusters most of their time.
.PHONY: test
test: .venv/.dev  ## run the tests that need neither Docker nor Spark nor Java
	$(V)/python -m pytest -q -n 3 --dist loadgroup --durations=25 --durations-min=4 -m "not docker and not spark and not java and not slow"

.PHONY: test-slow
test-slow: .venv/.dev  ## run the larger share of seeds, clients and faults, for which `make test` is too short
	$(V)/python -m pytest -q -n 3 --dist loadgroup --durations=10 -m "slow and not docker and not spark and not java"

.PHONY: test-java
test-java: .venv/.dev build/kafka/.complete  ## run Apache Kafka's own tools against a cluster
	$(V)/python -m pytest -q -m java tests/java

SPARK_TESTS ?= spark

.PHONY: test-spark
test-spark: .venv/.spark  ## read and write a cluster with Spark (Java 17; installs pyspark, some 500 MB)
	$(V)/python -m pytest -q -n 2 --dist worksteal --durations=10 -m "$(SPARK_TESTS)" tests/spark

.PHONY: test-spark-soak
test-spark-soak: .venv/.spark  ## kill 40 Spark drivers, and fail their tasks, while they write exactly once
	TIDELOG_SPARK_KILLS=40 $(V)/python -m pytest -q -m spark tests/spark/test_sink_once.py

.PHONY: test-spark-packed
test-spark-packed: .venv/.spark  ## run a job whose executors have only the environment that was packed and sent to them
	$(V)/python -m pytest -q tests/spark/packed_environment.py

.PHONY: demo-pipeline
demo-pipeline: .venv/.spark  ## three nodes and Spark: orders aggregated, archived, audited and drawn
	$(V)/python docs/examples/orders_pipeline.py

.venv/.spark: .venv/.dev
	@command -v java >/dev/null || { \
		echo "make test-spark needs Java 17; to have it: apt install openjdk-17-jre-headless" >&2; exit 1; }
	$(V)/pip install -q --disable-pip-version-check -e '.[dev,spark]'
	@touch $@

build/kafka/.complete: tests/java/pom.xml
	@for tool in java mvn; do command -v $$tool >/dev/null || { \
		echo "make test-java needs $$tool; to have it: apt install maven" >&2; exit 1; }; done
	rm -rf build/kafka
	mvn -q -B -f $< dependency:copy-dependencies -DoutputDirectory="$(CURDIR)/build/kafka"
	@touch $@

# Each script removes guards from a copy of the code, one at a time, and fails if no test notices.
MUTANTS := $(wildcard tests/support/*_mutants.py)

.PHONY: mutants
mutants: .venv/.dev  ## remove guards on purpose and see the tests notice (minutes)
	@for script in $(MUTANTS); do echo "$$script"; $(V)/python $$script || exit 1; done

KILLS ?= 100
PAUSES ?= 0

.PHONY: soak-kills
soak-kills: .venv/.dev  ## kill leaders KILLS times (and stop them PAUSES times) under a producer
	$(V)/python tests/soak/kills.py --kills $(KILLS) --pauses $(PAUSES)

# Safety is asserted by the exit code; gaps are printed, and drawn in build/chaos/*/report.html.
CHAOS_FAULTS := kill-leader,kill-controller,pause-leader,cut

.PHONY: chaos
chaos: .venv/.dev  ## break a cluster for 90 s on processes and in network namespaces (root), and judge
	@for target in local netns; do echo "== chaos on $$target"; \
		$(V)/tidelog chaos run --target $$target --workload mixed --faults $(CHAOS_FAULTS) \
			--duration 90s --rate 1000 --seed $(SEED) --output build/chaos/$$target || exit 1; done

# 25 pieces of some two minutes, 600 faults in all; those that came to their end are not done again.
# The nodes' logs stay, their data only where something is amiss.
CAMPAIGN ?= build/chaos-campaign
CAMPAIGN_SEEDS ?= $(shell seq 1 25)
CAMPAIGN_COUNTS := kill-leader=12,pause-leader=4,cut=4,kill-controller=2,power-loss=2

.PHONY: chaos-campaign
chaos-campaign: .venv/.dev  ## 300 leader kills, 100 pauses, 100 cuts, … in pieces (CAMPAIGN_SEEDS=, CAMPAIGN=)
	@for seed in $(CAMPAIGN_SEEDS); do grep -qs '"is_whole": true' $(CAMPAIGN)/$$seed/summary.json || { \
		echo "== piece $$seed"; rm -rf $(CAMPAIGN)/$$seed; \
		$(V)/tidelog chaos run --counts $(CAMPAIGN_COUNTS) --rate 600 --seed $$seed \
			--output $(CAMPAIGN)/$$seed --data-dir $(CAMPAIGN)/$$seed/nodes || exit 1; \
		rm -rf $(CAMPAIGN)/$$seed/nodes/node-?; }; done
	@$(V)/tidelog chaos summary $(CAMPAIGN)/*/

.PHONY: soak-copier
soak-copier: .venv/.dev  ## kill brokers, coordinators and copiers KILLS times under exactly-once copiers
	$(V)/python tests/soak/copier.py --kills $(KILLS) --seed $(SEED)

COUNT ?= 1000000
SEED ?= 1

.PHONY: fuzz
fuzz: .venv/.dev  ## send COUNT malformed frames from SEED, print what another client notices
	$(V)/python tests/soak/fuzz.py --count $(COUNT) --seed $(SEED)

# One seed, many, or as many as fit into some minutes: make sim KIND=quorum SEED=100 MINUTES=10
KIND ?= cluster

.PHONY: sim
sim: COUNT = $(if $(MINUTES),1000000,1)
sim: .venv/.dev  ## run seeds of the simulation (KIND=cluster|quorum|groups|transactions|compaction|… SEED= COUNT= MINUTES=)
	$(V)/python -m tidelog.simulation run --kind $(KIND) --seed $(SEED) --count $(COUNT) \
		$(if $(MINUTES),--minutes $(MINUTES))

.PHONY: lint
lint: .venv/.dev  ## check style and formatting
	$(V)/ruff check .
	$(V)/ruff format --check .

.PHONY: format
format: .venv/.dev  ## mend style and formatting
	$(V)/ruff check --fix .
	$(V)/ruff format .

.PHONY: types
types: .venv/.dev  ## check types (mypy, strict)
	$(V)/mypy

.PHONY: proto
proto: .venv/.dev  ## generate the code of the contracts in proto/
	PATH="$(CURDIR)/$(V):$$PATH" $(V)/python -m grpc_tools.protoc -I proto --python_out=proto --pyi_out=proto \
		--grpc_python_out=proto --mypy_grpc_out=proto proto/tidelog/v1/*.proto

# An editable install finds files that a wheel may lack, so the wheel is tried in a venv of its own.
.PHONY: wheel-check
wheel-check: .venv/.dev  ## build the wheel, install it into an empty venv, run it there and check a user's types
	rm -rf build/wheel
	$(V)/python -m build -q --wheel --outdir build/wheel
	$(V)/python -m venv build/wheel/venv
	build/wheel/venv/bin/pip install -q --disable-pip-version-check build/wheel/tidelog-*.whl
	cd build/wheel && venv/bin/tidelog --help && venv/bin/tidelog log --help
	$(V)/mypy --strict --config-file= --python-executable build/wheel/venv/bin/python examples/orders/orders.py

bench-spark: .venv/.spark

.PHONY: bench-spark-verify
bench-spark-verify: .venv/.spark  ## judge a history of 100 million operations, with planted anomalies (25 GB, ARGS="--operations N")
	$(V)/python -m bench.spark_verify $(ARGS)

.PHONY: $(addprefix bench-,$(BENCHES))
$(addprefix bench-,$(BENCHES)): bench-%: .venv/.dev
	$(V)/python -m bench.$* $(ARGS)

NATS_SERVER := github.com/nats-io/nats-server/v2@v2.15.2
PEER_PACKAGES := redis-server rabbitmq-server

# What is missing afterwards is skipped by the benchmark, which says so.
.PHONY: setup-peers
setup-peers: .venv/.dev build/kafka/.complete  ## get what bench-peers compares with (root; Go for two of them)
	-apt-get install -y -q --no-install-recommends $(PEER_PACKAGES)
	-GOBIN="$(CURDIR)/build/peers/bin" go install $(NATS_SERVER)
	-cd bench/peers/kfake && go build -o "$(CURDIR)/build/peers/bin/kfake" .
	$(V)/pip install -q --disable-pip-version-check -e '.[dev,peers]'

.PHONY: bench-report
bench-report: .venv/.base  ## print the results of all benchmarks
	@$(V)/python -m bench.report

# --- containers ---

IMAGE ?= tidelog:latest
SMALL_BASE := tidelog-base:bookworm
# The small base if `make image-base` made it, else the public one for the Python of .venv.
BASE ?= $(shell docker image inspect $(SMALL_BASE) >/dev/null 2>&1 && echo $(SMALL_BASE) || \
	echo python:$$($(V)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')-slim)
COMPOSE ?= $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
FILE ?= deploy/docker-compose.yml
COMPOSE_TIDELOG = $(COMPOSE) -p tidelog -f $(FILE)

.PHONY: docker-engine
docker-engine:  ## start a Docker engine if none answers; installs Debian's docker.io (root)
	deploy/docker-engine start

.PHONY: image-base
image-base:  ## make a small base image from Debian packages, where no registry is in reach
	deploy/image-base

build/image/.wheelhouse: pyproject.toml deploy/strip_wheels.py | .venv/.base
	rm -rf build/image/wheelhouse
	$(V)/pip wheel -q --disable-pip-version-check -w build/image/wheelhouse .
	rm build/image/wheelhouse/tidelog-*.whl
	$(V)/python deploy/strip_wheels.py build/image/wheelhouse
	@touch $@

.PHONY: image
image: build/image/.wheelhouse  ## build the image (IMAGE=, BASE=)
	@docker info >/dev/null 2>&1 || { echo "no Docker engine answers; on Debian: make docker-engine" >&2; exit 1; }
	rm -rf build/image/wheel
	$(V)/pip wheel -q --disable-pip-version-check --no-deps -w build/image/wheel .
	cp deploy/Dockerfile deploy/slim.py deploy/entrypoint.py deploy/healthcheck.py build/image/
	docker build --build-arg BASE=$(BASE) -t $(IMAGE) build/image
	@docker image ls --format '{{.Repository}}:{{.Tag}} {{.Size}}' $(IMAGE)

.PHONY: compose-up
compose-up:  ## start three nodes in containers (FILE=, PROFILE=monitoring)
	$(COMPOSE_TIDELOG) $(if $(PROFILE),--profile $(PROFILE)) up -d
	@deploy/wait-healthy $$($(COMPOSE_TIDELOG) ps -q)
	@echo "serving at 127.0.0.1:19092,127.0.0.1:29092,127.0.0.1:39092"

.PHONY: compose-down
compose-down:  ## stop and remove them (DATA=remove: their volumes too)
	$(COMPOSE_TIDELOG) --profile monitoring down $(if $(filter remove,$(DATA)),-v)

.PHONY: compose-logs
compose-logs:  ## follow their logs
	$(COMPOSE_TIDELOG) logs -f --tail 100

.PHONY: test-docker
test-docker: .venv/.dev image  ## run the tests that need a Docker engine
	$(V)/python -m pytest -q -rs -m docker tests/docker

.PHONY: clean
clean:  ## remove what was built and cached, but not .venv
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
