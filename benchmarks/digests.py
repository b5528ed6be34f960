"""Checks whether the decisions are still the same, by digests of whole runs recorded earlier.

    python -m benchmarks.digests [--only NAME ...] [--update] [--json] [--data ../shared/data]

Plays each run below and hashes the record of its decisions in three ways:

- `record`: every decision with all that is kept of it, in order: reason, priority, estimate, terms,
  evidence, ... as `decisions.parquet` holds them; but for what `holders` tells, and for the inputs
  of a score that changed after the job was queued and the names of its terms (the terms count).
- `effects`: only what was done, without the waits: time, action, job, nodes, GPUs, partner.
- `holders`: whom each wait names as in its way, and in how many seconds they are expected to be
  gone. Compared where it is expected.

A change of reasons or evidence alters only `record`, a change of whom waits name only `holders`. A
change of the schedule alters all three, and one of structure alone alters none. Names of columns
and values count, names in Python code do not. Expected values are in `digests.json`, which
`--update` writes. Exits with 1 and names the run, the digest, and the block of decisions in which
they first differ.

Durations are predicted from sums and counts alone, which no version of a library changes. Runs of
the track `honest` fit models of pairs, so their digests hold for the versions in `constraints.txt`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import sha256
from math import fsum
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from features.files import write_json
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import Scenario, open_scenario, plain
from pipeline.worlds.cluster_file import read_cluster
from scheduler.core.decisions import Decision
from scheduler.core.estimates import Estimator, LiveEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.simulation.recorder import decision_table

EXPECTED = Path(__file__).with_name("digests.json")
DEMO_CLUSTER = Path(__file__).parents[1] / "pipeline" / "worlds" / "clusters" / "demo.yaml"
BLOCK = 2_000  # lines between two checkpoints
EFFECT = ("time", "action", "job_id", "nodes", "gpus", "partner")

Found = dict[str, Any]  # of one run, as it stands in `digests.json`
World = Callable[[Path], Scenario]


def track(name: str, **options: Any) -> World:
    """Return a function that takes the folder of the shared data and makes a scenario: the Venus
    month with the options of the track `name`.
    """
    return lambda data: open_scenario(data / "venus", track=name, **options)


def demo(_: Path) -> Scenario:
    """Return the embedded synthetic trace on its cluster. Durations are predicted from the
    histories of similar jobs, pairs by a fixed rule.

    No model is trained and none is read, so that no version of a library matters.
    """
    table = generate(default_config())
    spec = read_cluster(DEMO_CLUSTER)
    scenario = plain.scenario(table, "demo", spec.cluster, spec.profiling)
    given = scenario.estimators
    busy = {i: w.profile.gpu_util_pct for i, w in scenario.workload.work.items() if w.profile}

    def estimators(policy: Policy) -> Estimator:
        return (
            LiveEstimator()
            if policy.capabilities.estimates and not policy.capabilities.oracle
            else given(policy)
        )

    def speeds(a: str, b: str) -> tuple[float, float]:
        return 1.05 - busy[b] / 250, 1.05 - busy[a] / 250

    scenario.estimators = estimators
    scenario.pair_predictor = lambda: TablePairPredictor(
        {i: int(pct // 34) for i, pct in busy.items()}, speeds
    )
    return scenario


# by name: the world and the policy played in it; the longest first
RUNS: dict[str, tuple[World, str]] = {
    "honest-busy-pellucid": (track("honest", seed=100, compress=0.9), "pellucid"),
    "honest-open-pellucid": (track("honest-open"), "pellucid"),
    "honest-0-pellucid": (track("honest"), "pellucid"),
    "honest-7-pellucid": (track("honest", seed=7), "pellucid"),
    "honest-0-lucid": (track("honest"), "lucid"),
    "honest-7-lucid": (track("honest", seed=7), "lucid"),
    **{
        f"published-{policy}": (track("published"), policy)
        for policy in ("pellucid", "lucid", "srtf", "qssf", "sjf", "fifo")
    },
    **{
        f"demo-{policy}": (demo, policy)
        for policy in (
            "pellucid", "lucid", "horus", "tiresias", "qssf", "srtf", "sjf", "easy", "fifo-skip",
            "fifo",
        )
    },
}  # fmt: skip


class Digest:
    """A running hash of lines of text, which is noted after every `BLOCK` lines."""

    def __init__(self) -> None:
        self._hash = sha256()
        self._blocks: list[str] = []
        self._lines = 0

    def add(self, line: str) -> None:
        self._hash.update(line.encode() + b"\n")
        self._lines += 1
        if self._lines % BLOCK == 0:
            self._blocks.append(self._hash.hexdigest()[:6])

    def found(self) -> Found:
        return {
            "lines": self._lines,
            "digest": self._hash.hexdigest()[:32],
            "blocks": " ".join(self._blocks),
        }


class Digests:
    """The sink of a simulation's decisions: it takes them in and hashes their record in three
    ways.
    """

    def __init__(self) -> None:
        self.record, self.effects, self.holders = Digest(), Digest(), Digest()
        self._buffer: list[Decision] = []
        self._models: dict[str, int] = {}  # by digest, numbered as they come

    def __call__(self, decisions: list[Decision]) -> None:
        self._buffer += decisions
        if len(self._buffer) >= BLOCK:
            self.flush()

    def flush(self) -> None:
        for row in _rows(self._buffer):
            if "bundle" in row:  # how a model is stored is not what it decided
                row["bundle"] = self._models.setdefault(row["bundle"], len(self._models))
            row.pop("facts", None)  # names of terms, which count themselves
            if row["action"] != "enqueue":  # a later change of inputs shows in the terms
                row.pop("inputs", None)
            if holders := _holders(row):
                self.holders.add(_line({"job_id": row["job_id"], **holders}))
            self.record.add(_line(row))
            if row["action"] != "wait":
                self.effects.add(_line({key: row[key] for key in EFFECT if key in row}))
        self._buffer = []


def _rows(decisions: list[Decision]) -> Iterator[Found]:
    """Yield each decision as a dictionary without its empty fields, as `decisions.parquet` holds
    it. Times are milliseconds.
    """
    table = decision_table(decisions).drop_columns(["seq"])  # the order says it
    for i, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(i, field.name, table.column(i).cast(pa.int64()))
    for row in table.to_pylist():
        yield {key: value for key, value in row.items() if value is not None}


def _holders(row: Found) -> Found:
    """Remove from a row, in place, the fields that name the jobs which its job waits for and how
    long that takes. Return the removed fields by name.
    """
    evidence = row.pop("evidence", ())
    if others := [part for part in evidence if part[0] != "gone_in_s"]:
        row["evidence"] = others
    found = dict(part for part in evidence if part[0] == "gone_in_s")
    return {**found, "held_by": row.pop("held_by")} if "held_by" in row else found


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps({key: _plain(value) for key, value in row.items()}, sort_keys=True)


def _plain(value: Any) -> Any:
    """Return `value` with each float in it written as text of ten digits, so that two results that
    differ in the last bit of a sum are equal."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return f"{value:.10g}" if isinstance(value, float) else value


def play(name: str, data: Path) -> Found:
    """Play one run. Return its description and its digests."""
    world, policy = RUNS[name]
    sink = Digests()
    outcome, _ = world(data).simulate(policy, sink=sink)
    sink.flush()
    spans = [job.jct_s for job in outcome.jobs if job.end_time is not None]
    return {
        "jobs": len(outcome.jobs),
        "avg_jct_s": round(fsum(spans) / len(spans), 1),
        "record": sink.record.found(),
        "effects": sink.effects.found(),
        "holders": sink.holders.found(),
    }


def differences(expected: Found | None, found: Found) -> list[str]:
    """Return one line of text for each digest that differs, with the range of lines where the
    records first differ. If nothing is expected yet (None), return one line that says so.
    """
    if expected is None:
        return ["nothing is expected yet (--update)"]
    lines = []
    for kind in ("record", "effects", "holders"):
        now: Found = found[kind]
        was: Found = expected.get(kind, now)
        if was["digest"] != now["digest"]:
            pairs = zip(was["blocks"].split(), now["blocks"].split(), strict=False)
            same = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
            block = min(was["lines"], now["lines"]) // BLOCK if same is None else same
            lines.append(
                f"{kind} differs, first in lines {block * BLOCK:,} to {(block + 1) * BLOCK - 1:,} "
                f"(of {was['lines']:,}, now {now['lines']:,})"
            )
    return lines


def check(names: list[str], data: Path, workers: int) -> Iterator[tuple[str, Found]]:
    """Simulate the named runs in `workers` processes. Yield each run's name with what was found: a
    description of its decisions, and their digests."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from zip(names, pool.map(partial(play, data=data), names), strict=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--only", nargs="+", default=list(RUNS), choices=RUNS, metavar="NAME")
    parser.add_argument(
        "--update",
        action="store_true",
        help="store the computed digests as the expected ones",
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    arguments = parser.parse_args()
    expected: dict[str, Found] = json.loads(EXPECTED.read_text()) if EXPECTED.exists() else {}
    began, results = time.perf_counter(), {}
    for name, found in check(arguments.only, arguments.data, arguments.workers):
        wrong = differences(expected.get(name), found)
        results[name] = {"found": found, "differences": wrong}
        if not arguments.json:
            size = f"{found['jobs']:,} jobs, {found['record']['lines']:,} decisions"
            print(f"{name}: {size}, JCT {found['avg_jct_s']:,.1f} s: ", end="")
            print("; ".join(wrong).upper() if wrong else "equal", flush=True)
        expected[name] = found
    differing = [name for name, result in results.items() if result["differences"]]
    wall_s = round(time.perf_counter() - began, 1)
    if arguments.update:
        write_json(EXPECTED, {name: expected[name] for name in RUNS if name in expected})
    if arguments.json:
        print(json.dumps({"runs": results, "differing": differing, "wall_s": wall_s}, indent=2))
    else:
        print(f"{len(results) - len(differing)} of {len(results)} equal, {wall_s} s")
    sys.exit(1 if differing and not arguments.update else 0)


if __name__ == "__main__":
    main()
