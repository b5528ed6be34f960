"""The decider of a service, alone, as a process that is there to be killed.

    python -m benchmarks.decider SETTINGS   # the service's settings, as JSON

Whoever starts it has begun the log.
"""

from __future__ import annotations

import sys

from scheduler.service.decide.supervisor import run_decider
from scheduler.service.settings import Settings


def command(settings: Settings) -> list[str]:
    """What runs it."""
    return [sys.executable, "-m", "benchmarks.decider", settings.model_dump_json()]


def main() -> None:
    settings = Settings.model_validate_json(sys.argv[1])
    run_decider(settings, lambda: False)


if __name__ == "__main__":
    main()
