"""The Slurm backend on real daemons: `python -m benchmarks.slurm advise|twin|dumps|sites|looks`.

advise: what reading a queue of 10,000 costs Slurm's own commands (about 25 minutes).
twin: how near the policy `slurm` comes to the passes of slurmctld (about six minutes a seed).
dumps: two sacct dumps of real daemons and four made-up ones, replayed (about fifteen minutes).
sites: `--count` sites made up from `--seed` on, every answer judged (five minutes a site).
looks: what `sites --keep` kept, looked at again by this code, without daemons; and as if it were
known how long every job runs (a minute a site).
Needs root and the packages that `make slurm-test` installs. Ends with 1 when a budget is missed.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration
from benchmarks.slurm.advise import advise
from benchmarks.slurm.dumps import dumps
from benchmarks.slurm.looks import looked_again
from benchmarks.slurm.recording import kept, record
from benchmarks.slurm.sites import Found, shrink, site, use
from benchmarks.slurm.twin import figures

BUDGET = Path(__file__).with_name("advise_budget.json")
SLOWER = 1.05  # Slurm's commands with advise mode to without


def main() -> None:
    """Run the scenarios; JSON on standard output, progress on standard error."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slurm", description=__doc__)
    parser.add_argument("scenario", choices=["advise", "twin", "dumps", "sites", "looks"])
    parser.add_argument("--jobs", type=int, help="10,000 in advise, 200 a seed in twin")
    parser.add_argument("--pairs", type=int, default=20, help="advise: windows with and without")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="twin: workloads, from --seed on")
    parser.add_argument(
        "--keep",
        type=Path,
        help="twin, dumps: recordings of daemons; those there are not made again. sites: what "
        "they printed goes there. looks: it is there, or here",
    )
    parser.add_argument(
        "--again",
        type=Path,
        help="sites: a second run of a seed, to compare two real ones; the first was kept there",
    )
    parser.add_argument("--count", type=int, default=1, help="sites: how many")
    parser.add_argument(
        "--shrink", metavar="KIND", help="sites: the fewest submissions of --seed with such a fault"
    )
    parser.add_argument(
        "--slurm",
        help="22.05, 24.11, 26.05: that release; else this host's. sites: several with commas, "
        "a column each",
    )
    parser.add_argument("--json", action="store_true", help="accepted: it always prints JSON")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is taken down
    if asked.slurm and "," in asked.slurm and asked.scenario != "sites":
        parser.error("--slurm: several releases only for sites")
    releases = [one for one in (asked.slurm or "").split(",") if one]
    if len(releases) == 1:
        use(releases[0])
    told: dict[str, Any] = {}
    missed: list[str] = []
    if asked.scenario == "advise":
        unit = Calibration()
        advised = advise(count=asked.jobs or 10_000, pairs=asked.pairs, seed=asked.seed, tell=_tell)
        told["advise"] = asdict(advised)
        if asked.jobs is None:  # the budget is of so many
            told["budget"] = budget = unit.judge(told["advise"], BUDGET)
            missed += [f"{name} is {told['advise'][name]}: too much" for name in budget["exceeded"]]
        for name, command in advised.commands.items():
            if command.high > SLOWER:
                missed.append(
                    f"{name} takes {command.ratio} times as long with advise mode "
                    f"({command.low} to {command.high}): not shown to be at most {SLOWER}"
                )
    if asked.scenario == "twin":
        told |= _twin(asked)
    if asked.scenario == "dumps":
        found = dumps(asked.seed, asked.keep, _tell)
        told["dumps"] = [asdict(one) for one in found]
        missed += [one.missed for one in found if one.missed]
    if asked.scenario in ("sites", "looks"):
        more, missed = _generated(asked, releases)
        told |= more
    sys.stdout.write(json.dumps({**told, "missed": missed}, indent=1) + "\n")
    sys.exit(1 if missed else 0)


def _generated(
    asked: argparse.Namespace, releases: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    if asked.scenario == "looks":
        return {"looks": looked_again(asked.keep or Path.cwd(), _tell)}, []
    if asked.shrink:
        return {"shrunk": shrink(asked.seed, asked.shrink, _tell)}, []
    if len(releases) < 2:
        found = _sites(asked, asked.keep, asked.again)
        return {"sites": found.told()}, found.missed()
    columns, missed = {}, []
    for release in releases:
        use(release)
        found = _sites(asked, *(one and one / release for one in (asked.keep, asked.again)))
        columns[release] = found.told()
        missed += [f"{release}: {one}" for one in found.missed()]
    return {"sites": columns}, missed


def _sites(asked: argparse.Namespace, keep: Path | None, again: Path | None) -> Found:
    every = Found()
    for seed in range(asked.seed, asked.seed + asked.count):
        site(seed, every, _tell, keep, again=again)
    return every


def _twin(asked: argparse.Namespace) -> dict[str, Any]:
    made = [
        kept(asked.keep, seed, partial(record, seed, asked.jobs or 200, 0.8, _tell))
        for seed in range(asked.seed, asked.seed + asked.seeds)
    ]
    return {"twin": figures(made, _tell)}


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    main()
