# Targets of the service, included by the Makefile (uses its VENV, BIN and STAMP).
#
# The tests of the service run on SQLite with all the others. `test-service` runs them again on a
# PostgreSQL of its own, in a temporary folder: PG_BIN is where initdb and pg_ctl are. PostgreSQL
# refuses to run as root, so PG_USER runs it then.
PG_BIN ?= $(firstword $(patsubst %/initdb,%,$(wildcard /usr/lib/postgresql/*/bin/initdb /usr/local/bin/initdb /usr/bin/initdb)))
PG_USER ?= nobody

.PHONY: test-service chaos champion serve-demo test-browser screenshots

test-service: install ## Run the service's tests that reach a database on a private PostgreSQL
	$(BIN)/python -m benchmarks.postgres --bin "$(PG_BIN)" --user "$(PG_USER)" -- \
	  $(BIN)/python -m pytest -n 2 --dist loadfile tests/scheduler/service tests/scheduler/slurm/follow tests/benchmarks/test_chaos.py \
	  tests/benchmarks/test_moves.py

CHAOS_SEEDS ?= 0:2000
CHAOS_PG_SEEDS ?= 0:200

chaos: install ## Everything goes wrong that can, on SQLite and PostgreSQL, then real kills; for a night
	$(BIN)/python -m benchmarks.chaos --seeds $(CHAOS_SEEDS)
	$(BIN)/python -m benchmarks.chaos --seeds $(CHAOS_PG_SEEDS) --slurm
	$(BIN)/python -m benchmarks.postgres --bin "$(PG_BIN)" --user "$(PG_USER)" -- \
	  $(BIN)/python -m benchmarks.chaos --seeds $(CHAOS_PG_SEEDS) --database postgresql
	$(BIN)/python -m benchmarks.moves --only kill

DEMO_ARGS ?=

# The models of the embedded trace, trained if they are not yet. serve-demo does with the prebuilt.
champion: install
	dvc repro --quiet export

serve-demo: $(BASE) ## A service with fake GPUs, and people who send it jobs: watch in a browser
	$(BIN)/pellucid serve-demo $(DEMO_ARGS)

# The system's Chromium, installed where apt and the right to use it are; screenshots are kept.
test-browser: champion docs ## Walk the pages in Chromium; screenshots in data/browser/
	command -v chromium >/dev/null || command -v chromium-browser >/dev/null || \
	  (apt-get update -q && apt-get install -q -y --no-install-recommends chromium)
	rm -rf data/browser
	PELLUCID_BROWSER=1 $(BIN)/python -m pytest tests/browser

screenshots: champion ## Take the screenshots of docs/pages.md anew, from a demo
	$(BIN)/python -m tests.browser.screenshots
