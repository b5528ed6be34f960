"""`python -m pipeline.stages NAME`: runs one stage of `dvc.yaml`."""

from __future__ import annotations

import logging
import sys
from importlib import import_module

from pipeline.console import alive, user_errors
from pipeline.errors import UserError

STAGES = (
    "code", "ingest", "features", "train", "evaluate", "export", "simulate", "learn", "report"
)  # fmt: skip


def main(name: str) -> int:
    """Run one stage and print its results in a line. Errors are printed as one line, too. Return
    the exit status."""
    logging.basicConfig(level=logging.WARNING)
    at = STAGES.index(name)
    left = ", ".join(STAGES[at + 1 :])
    print(f"Stage {at + 1} of {len(STAGES)}{f'; then {left}' if left else ''}", flush=True)
    try:
        with user_errors(), alive(name) as shown:  # the libraries alone take seconds to import
            read_params = import_module("pipeline.stages.common").read_params
            summary = import_module(f"pipeline.stages.{name}").run(read_params(), shown)
    except UserError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except ImportError as error:  # a library, or a Python that is too old
        lacks = f"{sys.executable}: {error}"
        print(f"{name}: {lacks}; first: source .venv/bin/activate", file=sys.stderr)
        return 2
    print(f"{name}: {summary}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
