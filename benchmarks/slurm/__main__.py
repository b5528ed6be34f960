"""Measures the Slurm backend on real daemons: `python -m benchmarks.slurm
advise|twin|dumps|sites|looks|claims`.

- advise: how much a service that reads a queue of 10,000 jobs slows Slurm's own commands (about
  25 minutes).
- twin: how near the policy `slurm` comes to the passes (scheduling rounds) of slurmctld (about six
  minutes a seed).
- dumps: replays of two sacct dumps of real daemons and of four made-up ones (about fifteen
  minutes).
- sites: `--count` sites made up from seed `--seed` on; every answer is judged (five minutes a
  site).
- looks: the polls that `sites --keep` recorded, repeated with this code and without daemons; also
  with the length of every job known beforehand (a minute a site).
- claims: `--count` sites, each run twice, the second time with another setting of Slurm: whether
  the waiting time that was saved lies in the interval that a replay states (15 minutes a site).

Needs root and the packages that `make slurm-test` installs. Ends with 1 when a budget is missed.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.calibration import Calibration, program
from benchmarks.slurm import claimed
from benchmarks.slurm.advise import advise
from benchmarks.slurm.dumps import dumps
from benchmarks.slurm.looks import looked_again
from benchmarks.slurm.recording import kept, record
from benchmarks.slurm.sites import Found, shrink, site, use
from benchmarks.slurm.twin import figures

BUDGET = Path(__file__).with_name("advise_budget.json")
SLOWER = 1.05  # Slurm's commands with advise mode to without
Told = tuple[dict[str, Any], list[str]]  # figures, and what is missed


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Run the measurement that the command line names. Return its figures, and which of its aims
    are missed. Progress goes to standard error.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that all is taken down
    releases = [one for one in (asked.slurm or "").split(",") if one]
    if len(releases) > 1 and asked.scenario != "sites":
        sys.exit("--slurm: several releases only for sites")
    if len(releases) == 1:
        use(releases[0])
    told, missed = SCENARIOS[asked.scenario](asked, releases)
    return {**told, "missed": missed, "holds": not missed}


def _advise(asked: argparse.Namespace, _: Sequence[str]) -> Told:
    unit = Calibration()
    advised = advise(count=asked.jobs or 10_000, pairs=asked.pairs, seed=asked.seed, tell=_tell)
    told: dict[str, Any] = {"advise": asdict(advised)}
    missed = [
        f"{name} takes {command.ratio} times as long with advise mode "
        f"({command.low} to {command.high}): not shown to be at most {SLOWER}"
        for name, command in advised.commands.items()
        if command.high > SLOWER
    ]
    if asked.jobs is None:  # the budget is of so many
        told["budget"] = budget = unit.judge(told["advise"], BUDGET)
        missed += [f"{name} is {told['advise'][name]}: too much" for name in budget["exceeded"]]
    return told, missed


def _twin(asked: argparse.Namespace, _: Sequence[str]) -> Told:
    made = [
        kept(asked.keep, seed, partial(record, seed, asked.jobs or 200, 0.8, _tell))
        for seed in range(asked.seed, asked.seed + asked.seeds)
    ]
    return {"twin": figures(made, _tell)}, []


def _dumps(asked: argparse.Namespace, _: Sequence[str]) -> Told:
    found = dumps(asked.seed, asked.keep, _tell)
    return {"dumps": [asdict(one) for one in found]}, [one.missed for one in found if one.missed]


def _looks(asked: argparse.Namespace, _: Sequence[str]) -> Told:
    return {"looks": looked_again(asked.keep or Path.cwd(), _tell)}, []


def _claims(asked: argparse.Namespace, _: Sequence[str]) -> Told:
    seeds = range(asked.seed, asked.seed + asked.count)
    rows = [claimed.held(seed, asked.keep, _tell) for seed in seeds]
    return {"claims": claimed.told(rows)}, claimed.missed(rows)


def _generated(asked: argparse.Namespace, releases: Sequence[str]) -> Told:
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


def _tell(text: str) -> None:
    sys.stderr.write(text + "\n")


SCENARIOS = {
    "advise": _advise,
    "twin": _twin,
    "dumps": _dumps,
    "sites": _generated,
    "looks": _looks,
    "claims": _claims,
}

if __name__ == "__main__":
    program(
        __doc__,
        None,
        measure,
        positional=["scenario"],
        scenario={"choices": SCENARIOS},
        jobs={"type": int, "help": "10,000 in advise, 200 a seed in twin"},
        pairs={"type": int, "default": 20, "help": "advise: windows with and without"},
        seed={"type": int, "default": 0},
        seeds={"type": int, "default": 3, "help": "twin: workloads, from --seed on"},
        keep={
            "type": Path,
            "help": "twin, dumps, claims: recordings of daemons; those there are not made again. "
            "sites: what they printed goes there. looks: it is there, or here",
        },
        again={"type": Path, "help": "sites: to compare with a first run that was kept there"},
        count={"type": int, "default": 1, "help": "sites, claims: how many"},
        shrink={
            "metavar": "KIND",
            "help": "sites: the fewest submissions of --seed with such a fault",
        },
        slurm={
            "help": "22.05, 24.11, 26.05: that release; else this host's. sites: several with "
            "commas, a column each",
        },
    )
