"""What a command and earlier runs say at submission, seen from outside.

Scripts of `benchmarks.progress.trainings` are submitted to a `pellucid serve` with made-up GPUs,
one run after the other: with other epochs, another batch size, more GPUs. What `pellucid why` says
of a run when it is submitted is held against how long it then ran, and beside it the simple rule:
as many seconds an epoch as the run before.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.pages import ROOT
from benchmarks.serving import serving
from features.amounts import Work
from features.throughput import Ran, last_pace
from scheduler.service.client import Client

CLUSTER = "name: runs\ngpus_per_node: 4\nvcs: {runs: 8}\n"
# seconds a step beside those a row, a row, each GPU more, and the end of an epoch
SCRIPTS = {
    "compute": {"step_s": 0.005, "row_s": 0.0007, "sync_s": 0.002, "validate_s": 0.1},
    "overhead": {"step_s": 0.04, "row_s": 0.0001, "sync_s": 0.005, "validate_s": 0.1},
    "input": {"step_s": 0.005, "row_s": 0.0007, "sync_s": 0.03, "validate_s": 0.1},
    "validation": {"step_s": 0.01, "row_s": 0.0004, "sync_s": 0.002, "validate_s": 0.7},
}
BY_EPOCHS, BY_STEPS = ("tqdm_nested", "keras3", "timm"), ("step_of", "megatron")


class Asks(NamedTuple):
    epochs: int
    batch: int = 64
    gpus: int = 1


FIRST = Asks(6)
SECOND = {"epochs": Asks(16), "batch": Asks(10, 128), "GPUs": Asks(12, 64, 2)}
LATER = (Asks(10), Asks(14, 128), Asks(14, 64, 2), Asks(16, 128, 2), Asks(20))


def follow(
    client: Client, folder: Path, script: str, training: str, second: str, seed: int
) -> list[dict[str, Any]]:
    """The runs of one script, one after the other: what was said of each, and what came of it."""
    sizes = {"epochs": 0, "steps": 0, "rows": 2048, "seed": seed, **SCRIPTS[script]}
    file = folder / f"train{seed}.py"
    file.write_text(
        f"import sys\nsys.argv.insert(1, {training!r})\n"
        "from benchmarks.progress.trainings import main\nmain()\n"
    )
    found, ran = list[dict[str, Any]](), tuple[Ran, ...]()
    for n, asks in enumerate((FIRST, SECOND[second], *LATER)):
        amount = ("--epochs", asks.epochs)
        if training in BY_STEPS:
            amount = ("--max-steps", asks.epochs * 2048 // (asks.batch * asks.gpus))
        command = [sys.executable, str(file), *map(str, amount), "--batch-size", str(asks.batch)]
        work = Work.of(command)
        assert work is not None
        job = client.submit(
            command, gpus=asks.gpus, workdir=str(folder), share=False, profile=False,
            environment={"SIZES": json.dumps(sizes), "PYTHONPATH": str(ROOT)},
        )["job_id"]  # fmt: skip
        said = _believed(client, job)
        while (row := client.job(job))["ended_at"] is None:
            time.sleep(1.0)
        if row["exit_code"] != 0:
            raise RuntimeError(f"{training}: {row['phase']} {row['detail']}")
        took_s, rule_s = row["ended_at"] - row["started_at"], last_pace(work, ran)
        ran = (*ran, Ran(work, asks.gpus, took_s))
        if rule_s is not None and said is not None:
            found.append(
                {
                    "script": script, "training": training, "asks": asks._asdict(),
                    "kind": f"second run, other {second}" if n == 1 else "later runs",
                    "took_s": round(took_s, 2), "off": round(said["p50_s"] / took_s - 1, 3),
                    "p90_s": said["p90_s"], "rule_off": round(rule_s / took_s - 1, 3),
                    "said": said["text"],
                }
            )  # fmt: skip
    return found


def _believed(client: Client, job: str) -> dict[str, Any] | None:
    """How long it should run, as soon as something is known of it."""
    for _ in range(100):
        found: dict[str, Any] | None = client.explain(job)["belief"]
        if found is not None:
            return found
        time.sleep(0.1)
    return None


def submitted(jobs: int) -> dict[str, Any]:
    """All scripts in all ways; shares within 15 % and medians, by kind."""
    seconds = list(SECOND)
    ways = [
        (script, training, seconds[(i + k) % 3])
        for i, script in enumerate(SCRIPTS)
        for k, training in enumerate((*BY_EPOCHS, *BY_STEPS))
    ]
    with (
        TemporaryDirectory() as folder,
        serving(CLUSTER) as address,
        Client(address) as client,
        ThreadPoolExecutor(jobs) as pool,
    ):
        tasks = [pool.submit(follow, client, Path(folder), *way, n) for n, way in enumerate(ways)]
        each = [one for task in tasks for one in task.result()]
    kinds = {one["kind"]: [o for o in each if o["kind"] == one["kind"]] for one in each}
    return {
        "runs": len(each),
        "within_15_pct": _within(each, "off"),
        "rule_within_15_pct": _within(each, "rule_off"),
        "below_p90": round(sum(o["took_s"] <= (o["p90_s"] or 0) for o in each) / len(each), 3),
        "by_kind": {
            kind: {
                "runs": len(some),
                "within_15_pct": _within(some, "off"),
                "rule_within_15_pct": _within(some, "rule_off"),
                "median_off": round(statistics.median(abs(o["off"]) for o in some), 3),
            }
            for kind, some in sorted(kinds.items())
        },
        "each": each,
    }


def _within(some: list[dict[str, Any]], name: str) -> float:
    near = [one for one in some if abs(one[name]) <= 0.15]
    return round(len(near) / len(some), 3)
