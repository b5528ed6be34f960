# Targets of the profiler, included by the Makefile (uses its VENV, BIN and STAMP).
#
# A GPU machine usually brings a torch built for its CUDA: CAMPAIGN_PYTHON is the interpreter that
# has it, beside numpy, scipy, pyarrow, psutil and nvidia-ml-py. The .venv holds torch's CPU build.
CAMPAIGN_PYTHON ?= python3
CAMPAIGN_OUT ?= data/profiles/h200
CAMPAIGN_ARGS ?=
MINUTES ?= 9
PAIRS ?= 105
PROFILER_STAMP := $(VENV)/.profiler-installed

.PHONY: install-profiler test-profiler bench-profiler h200-campaign campaign-dry-run

install-profiler: $(PROFILER_STAMP) ## Add torch (CPU) and nvidia-ml-py to .venv

$(PROFILER_STAMP): $(STAMP)
	@$(SETUP) -e '.[dev,profiler]'
	touch $@

test-profiler: install-profiler ## Run the profiler's tests that need torch
	PELLUCID_TORCH=1 $(BIN)/python -m pytest tests/profiler tests/reproductions/colocation

bench-profiler: install-profiler ## Measure what profiling costs the job
	$(BIN)/python -m benchmarks.profiler --json

h200-campaign: ## On a GPU machine: measure for MINUTES into CAMPAIGN_OUT; run again to go on
	PYTHONPATH=. $(CAMPAIGN_PYTHON) -m reproductions.colocation.campaign --device gpu --out $(CAMPAIGN_OUT) \
	  --minutes $(MINUTES) --pairs $(PAIRS) $(CAMPAIGN_ARGS)

campaign-dry-run: install-profiler ## The same campaign in small on a CPU, into runs/
	$(BIN)/python -m reproductions.colocation.campaign --device cpu --tiny --out runs/campaign-dry-run \
	  --minutes 3 --pairs 3 $(CAMPAIGN_ARGS)
