# Targets that need real Slurm daemons, included by the Makefile (uses its BIN and STAMP).
#
# The daemons run on this host, in a temporary folder, with GPUs that are plain files; they need
# root, since they run jobs as other users. Packages are installed by apt where they are missing.

.PHONY: slurm-test slurm-up slurm-demo

# A daemon on a busy machine may miss a moment: what failed is tried once more, alone.
SLURM_PYTEST = PELLUCID_SLURM=1 $(BIN)/python -m benchmarks.slurm.alone --limit 1500 \
	$(BIN)/python -m pytest

slurm-test: install ## Bring up Slurm (again with slurmdbd, slurmrestd), run its tests, leave nothing
	benchmarks/slurm/install.sh
	$(SLURM_PYTEST) -n 6 --dist loadfile tests/slurm || \
	  $(SLURM_PYTEST) --last-failed --last-failed-no-failures none tests/slurm

slurm-up: install ## A private Slurm with fake GPUs to try things on, until Ctrl-C
	benchmarks/slurm/install.sh
	$(BIN)/python -m benchmarks.slurm.up

slurm-demo: install ## A private Slurm, advise in front of it, 100 jobs, and what to ask
	benchmarks/slurm/install.sh
	$(BIN)/python -m benchmarks.slurm.demo
