"""The decider of a service, alone, as a process that is there to be killed.

    python -m benchmarks.decider SETTINGS   # the service's settings, as JSON

On Slurm it begins the log, as `pellucid serve` would; elsewhere whoever starts it has done so.
"""

from __future__ import annotations

import sys

from scheduler.assembly import CoreSpec
from scheduler.service.backends import read_shape
from scheduler.service.decide.supervisor import begin, run_decider
from scheduler.service.settings import Settings


def command(settings: Settings) -> list[str]:
    """What runs it."""
    return [sys.executable, "-m", "benchmarks.decider", settings.model_dump_json()]


def main() -> None:
    settings = Settings.model_validate_json(sys.argv[1])
    if settings.backend == "slurm":
        shape, profiling = read_shape(settings)
        policy = settings.policy or "pellucid"
        begin(settings, CoreSpec.of(shape.spec, policy, profiling=profiling), shape.names)
    run_decider(settings, lambda: False)


if __name__ == "__main__":
    main()
