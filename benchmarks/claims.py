"""Checks whether what a replay predicts of another setting of Slurm comes true.

A made-up batch system, which shares no code with the policy `slurm`, runs the same submissions
twice. The first run, with the settings as they are, is written as a dump and replayed. The second,
with another setting, is the truth. Chance moves submissions by up to a second and run times by up
to two seconds.

    python -m benchmarks.claims --seeds 20-24 --json
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.sites import SITES, BatchSystem, MadeUp, Task, settings, tasks, written
from pipeline.replay.runs import VARIANTS, Variant
from pipeline.replay.runs import replay as play
from pipeline.replay.site import DumpOptions, read_site

RUNS = 6  # of the truth
SLURM = next(variant for variant in VARIANTS if variant.key == "slurm")


@dataclass(frozen=True)
class Setting:
    """A changed setting: its name, its lines of slurm.conf, and the arguments of the made-up batch
    system that mean the same.
    """

    name: str
    changed: Mapping[str, str]
    system: Mapping[str, Any]

    @property
    def variant(self) -> Variant:
        """Return Slurm with this setting, as a variant that `pellucid replay` can simulate."""
        return replace(SLURM, key="changed", title=self.name, changed=self.changed)


SETTINGS = (
    Setting("no backfill", {"SchedulerType": "sched/builtin"}, {"interval_s": None}),
    Setting(
        "rare backfill",
        {"bf_interval": "600", "bf_max_job_test": "10"},
        {"interval_s": 600, "depth": 10},
    ),
)


def mean_wait(site: MadeUp, seed: int, run: int, system: Mapping[str, Any]) -> float:
    """Run the jobs of a made-up site. Return their mean wait in seconds.

    Run 0 has the submissions and run times as they are; in any other run, chance moves them a
    little.
    """
    todo = tasks(site, seed)
    if run:
        rng = random.Random(1_000 * seed + run)
        for task in todo:
            task.submit += rng.choice((0, 0, 1))
            task.runs = max(1, task.runs + rng.randint(-2, 2))
        todo.sort(key=lambda task: task.submit)
    BatchSystem(site, **system).play(todo)
    return float(np.mean([task.start - task.submit for task in todo]))


def asked(name: str, seed: int, replays: int) -> Iterator[Mapping[str, Any]]:
    """Replay a made-up site under each changed setting. Yield, for each, what the replay states of
    the saved waiting time, and the true value.
    """
    site = SITES[name]
    was: Sequence[Task] = tasks(site, seed)
    BatchSystem(site).play(list(was))
    with TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "dump.txt").write_text(written(site, list(was)))
        (folder / "site.txt").write_text(settings(site))
        options = DumpOptions(printed=[folder / "site.txt"])
        read = read_site(folder / "dump.txt", folder / "scratch", options)
    recorded = [mean_wait(site, seed, run, {}) for run in range(RUNS)]
    for setting in SETTINGS:
        found = play(read, replays, variants=[SLURM, setting.variant])
        after = [mean_wait(site, seed, run, setting.system) for run in range(RUNS)]
        saved = [a - b for a, b in zip(recorded, after, strict=True)]
        whole = next((claim for claim in found["changed"] if not claim["by"]), None)
        saving = None if whole is None else whole["savings"].get("changed")
        yield {
            "site": name,
            "seed": seed,
            "setting": setting.name,
            "recorded_s": recorded[0],
            "saved_s": saved,
            "stated": saving,
            "doubts": len(found["misfit"]),
        }


def scored(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, float | int]:
    """Return how well the replays' statements held: the share of rows that have an interval of the
    saved seconds, the share whose true value lies within it, and the share with the right sign.
    """
    answered = [row for row in rows if row["stated"] is not None]
    held = [
        row["stated"]["low_s"] <= saved <= row["stated"]["high_s"]
        for row in answered
        for saved in row["saved_s"]
    ]
    signed = [row for row in answered if row["stated"]["which"] != "unclear"]
    right = [
        (saved > 0) == (row["stated"]["which"] == "less")
        for row in signed
        for saved in row["saved_s"]
    ]
    return {
        "asked": len(rows),
        "answered": len(answered) / max(1, len(rows)),
        "held": float(np.mean(held)) if held else 0.0,
        "signed": len(signed) / max(1, len(rows)),
        "sign_right": float(np.mean(right)) if right else 0.0,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--sites", default=",".join(SITES), help="Names of made-up sites, separated by commas."
    )
    parser.add_argument(
        "--seeds", default="20-24", help="Range of seeds, FIRST-END. Seed END is not used."
    )
    parser.add_argument("--replays", type=int, default=6)
    parser.add_argument("--json", action="store_true")
    wanted = parser.parse_args()
    first, last = map(int, wanted.seeds.split("-"))
    rows = []
    for name in wanted.sites.split(","):
        for seed in range(first, last):
            for row in asked(name, seed, wanted.replays):
                rows.append(row)
                if wanted.json:
                    print(json.dumps(row), flush=True)
    print(json.dumps(scored(rows)))


if __name__ == "__main__":
    main()
