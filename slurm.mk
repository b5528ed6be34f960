# Targets that need real Slurm daemons, included by the Makefile (uses its BIN and STAMP).
#
# The daemons run on this host, in a temporary folder, with GPUs that are plain files; they need
# root, since they run jobs as other users. Packages are installed by apt where they are missing.

.PHONY: slurm-test slurm-reasons slurm-up slurm-demo

# SLURM=24.11 (or 22.05, 26.05): that release, in a folder of its own; none: this host's packages
ifdef SLURM
SLURM_FOLDER = $(if $(XDG_CACHE_HOME),$(XDG_CACHE_HOME),/var/cache)/pellucid/slurm-$(SLURM)
slurm-test slurm-reasons slurm-up slurm-demo: export PATH := $(SLURM_FOLDER)/pellucid-bin:$(PATH)
endif

slurm-test: install ## Bring up Slurm (SLURM=24.11: that release), run its tests, leave nothing
	benchmarks/slurm/install.sh $(SLURM)
	@# one process, which a signal to make reaches; what failed on a busy machine is tried again
	exec env PELLUCID_SLURM=1 $(BIN)/python -m benchmarks.slurm.alone --limit 1500 \
	  --again '-n 0 --last-failed --last-failed-no-failures none' \
	  $(BIN)/python -m pytest -n 6 --dist loadfile tests/slurm

slurm-reasons: install ## Bring about each reason code that one host can, and judge the answers
	benchmarks/slurm/install.sh $(SLURM)
	$(BIN)/python -m benchmarks.slurm.reasons

slurm-up: install ## A private Slurm with fake GPUs to try things on, until Ctrl-C
	benchmarks/slurm/install.sh $(SLURM)
	$(BIN)/python -m benchmarks.slurm.up

slurm-demo: install ## A private Slurm, advise in front of it, 100 jobs, and what to ask
	benchmarks/slurm/install.sh $(SLURM)
	$(BIN)/python -m benchmarks.slurm.demo
