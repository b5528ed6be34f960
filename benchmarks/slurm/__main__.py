"""`python -m benchmarks.slurm`: the Slurm backend on real daemons; prints JSON."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path


def main() -> None:
    """Run one scenario."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__)
    parser.add_argument("scenario", choices=["place", "advise"], nargs="?", default="place")
    parser.add_argument("--jobs", type=int, help="200 in place, 10,000 in advise")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()

    def tell(text: str) -> None:
        sys.stderr.write(text + "\n")

    with tempfile.TemporaryDirectory(prefix="pellucid-scenario-") as folder:
        from benchmarks.slurm import scenarios

        outcome = scenarios.place(
            Path(folder),
            count=asked.jobs or 200,
            kills=asked.kills,
            restarts=asked.restarts,
            seed=asked.seed,
            tell=tell,
        )
        sys.stdout.write(json.dumps(asdict(outcome), indent=1) + "\n")


if __name__ == "__main__":
    main()
