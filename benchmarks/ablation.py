"""Measures what each part of the policy `pellucid` is worth: with it alone taken away, and with it
alone on.

    python -m benchmarks.ablation --json [--track honest honest-open] [--seeds 100 101]
    python -m benchmarks.ablation --json --worlds synthetic wide [--seeds 0 1]

Prints a table of `docs/policy-figures.md`. Every cell (a row, a track, a seed) is a simulated
month, or a replicate of a world of `benchmarks/worlds.yaml` (seeds: which replicates, from 0), and
is kept in `--keep` as soon as it is done: the command can be stopped and given again, and goes on
where it was for as long as the code it measures is the same. Durations are predicted online from
nothing by the histories alone (`--durations ga2m` refits a GA2M daily, and takes twice as long).
`--without-failing` leaves out the jobs that fail, to see what profiling is worth beyond finding
them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.worlds.make import draw_of, read_worlds, scenario
from features.schema import State
from pipeline.cluster import Keep, question_of
from pipeline.worlds import Scenario, open_scenario
from pipeline.worlds.policy_options import over
from scheduler.core.policy import Policy
from scheduler.simulation.results import summarise

FIGURES = ("avg_jct_s", "p999_queue_s", "max_queue_large_s", "ftf_user_p99")
FAILING = frozenset({State.FAILED, State.NODE_FAIL})
MEASURED = ("features", "models", "scheduler")  # a cell is kept while these are the same
TRACKS = ("honest", "honest-open")  # which differ in borrowing alone
_digest = partial(blake2b, digest_size=8)
NEVER: dict[str, Any] = {"max_wait_s": 1e12}


@dataclass(frozen=True)
class Row:
    """A row of the ablation's table: the policy `pellucid` with one part of it changed.

    Attributes:
        settings: the settings of the policy that differ from its defaults.
        pair_predictor: False takes packing (two jobs on the same GPUs) away.
        stage: False takes the profiling partition away.
        isolated: True takes away that virtual clusters borrow nodes from each other.
        watches: whether running jobs are watched; None: as the policy has it.
        waiting: whether jobs are profiled while they wait; None: as the policy has it.
        durations: where predictions of durations come from; None: from what `--durations` names.
    """

    policy: str = "pellucid"
    settings: Mapping[str, Any] = field(default_factory=dict)
    pair_predictor: bool = True
    stage: bool = True
    isolated: bool = False
    watches: bool | None = None
    waiting: bool | None = None
    durations: str | None = None


_NOTHING = Row(
    settings={"ageing": 1e6, **NEVER},
    pair_predictor=False,
    stage=False,
    isolated=True,
    watches=False,
)  # so much ageing is first come, first served

OFF: dict[str, Row] = {
    "(everything on)": Row(),
    "packing of any kind": Row(pair_predictor=False),
    "packing before it must": Row(settings={"pack_first_above": None}),
    "asking whether GPUs are missed": Row(settings={"busy_above": 0.0}),
    "pair speeds learned from pairs that ran": Row(settings={"learns_speeds": False}),
    "profiling (and with it packing)": Row(pair_predictor=False, stage=False, watches=False),
    "profiling before the start": Row(settings={"profile_above": 1e12}),
    "choosing which jobs to profile (all are)": Row(settings={"profile_above": 0.0}),
    "watching running jobs": Row(watches=False),
    "predicting deep queues again": Row(settings={"predict_again_s": 0.0}),
    "the mean of the curve in the order": Row(settings={"order_by": "predicted"}),
    "ageing": Row(settings={"ageing": 0.0}),
    "the number of GPUs in the order": Row(settings={"gpu_exponent": 0.0}),
    "learned durations (all alike)": Row(durations="gpus"),
    "the bound on waiting": Row(settings=NEVER),
    "stretching the bound": Row(settings={"overload": 1e12}),
    "backfill of reserved GPUs": Row(settings={"backfill": 0.0}),
    "borrowing": Row(isolated=True),
    "errors of prediction (true durations)": Row(durations="oracle"),
}
ALONE: dict[str, Row] = {
    "(nothing: first come first served, skipping)": _NOTHING,
    "learned order, ageing": replace(_NOTHING, settings={**NEVER}),
    "the bound on waiting": replace(_NOTHING, settings={"ageing": 1e6}),
    "profiling": replace(_NOTHING, stage=True),
    "profiling and packing": replace(_NOTHING, stage=True, pair_predictor=True, watches=None),
    "borrowing": replace(_NOTHING, isolated=False),
}
PEERS: dict[str, Row] = {  # none of them borrows
    "fifo-skip": Row("fifo-skip", isolated=True),
    "tiresias (preempts)": Row("tiresias", isolated=True),
    "lucid": Row("lucid", isolated=True),
    "lucid, profiling only who waits, others watched": Row(
        "lucid", isolated=True, watches=True, waiting=True
    ),
}
GROUPS = {"without": OFF, "alone": ALONE, "peers": PEERS}


def measure(
    data: Path, track: str, seed: int, row: Row, *, durations: str, failing: bool = True
) -> dict[str, float]:
    """Simulate one cell of the table (a row, a track and a seed). Return its figures by name."""
    scenario = _opened(data, track, seed, row, row.durations or durations)
    if not failing:
        work = scenario.workload.work
        scenario.workload.jobs = [
            job for job in scenario.workload.jobs if work[job.job_id].state not in FAILING
        ]
    scenario.settings = over(scenario.settings, {row.policy: row.settings})
    if not row.pair_predictor:
        scenario.pair_predictor = None
    policy = scenario.policy(row.policy)
    can = policy.capabilities
    policy.capabilities = replace(
        can,
        profiles=can.profiles and row.stage,
        watches_runs=can.watches_runs if row.watches is None else row.watches,
        profiles_waiting=can.profiles_waiting if row.waiting is None else row.waiting,
    )
    return _figures(scenario, policy, scenario.estimators(policy))


def _opened(data: Path, track: str, seed: int, row: Row, durations: str) -> Scenario:
    """Return the scenario (a cluster with its jobs, ready to simulate) of a track, or of a world
    that `worlds.yaml` names."""
    worlds = {name: world for half in read_worlds().values() for name, world in half.items()}
    if track not in worlds:
        return open_scenario(
            data / "venus",
            track="honest" if row.isolated else track,
            seed=seed,
            durations=durations,
        )
    made = scenario(track, worlds[track], data, draw_of(track, seed), durations)
    if row.isolated:
        made.settings = {}
    return made


def _figures(scenario: Scenario, policy: Policy, estimator: Any) -> dict[str, float]:
    outcome, _ = scenario.play(scenario.core(policy, estimator))
    found: Mapping[str, Any] = summarise(outcome, scenario.cluster_gpus())
    return {
        **{name: round(float(found[name] or 0.0), 4) for name in FIGURES},
        "packed_jobs": int(found["packed_jobs"]),
        "ended_in_profiling": int(found["ended_in_profiling"]),
    }


def kept_in(folder: Path) -> Keep:
    """Return a store of finished cells, a file each. It belongs to the code as it is."""
    return Keep(folder, question_of(code_digest()), lambda cell: _digest(cell.encode()).hexdigest())


def code_digest() -> str:
    """Return a digest of the code that the figures depend on."""
    root, digest = Path(__file__).resolve().parents[1], _digest()
    for package in MEASURED:
        for path in sorted((root / package).rglob("*.py")):
            if "service" not in path.parts and "backends" not in path.parts:
                digest.update(path.read_bytes())
    return digest.hexdigest()


def ablate(
    data: Path,
    tracks: Sequence[str],
    seeds: Sequence[int],
    groups: Sequence[str],
    kept: Keep,
    *,
    durations: str = "own",
    failing: bool = True,
    only: Sequence[str] = (),
) -> dict[str, Any]:
    """Simulate every cell that `kept` does not hold yet, seed by seed, and store it there. Return
    the tables as JSON values. Where `only` is given, only the rows that it names are computed.
    """
    names = {g: [n for n in GROUPS[g] if not only or n in only] for g in groups}
    cells: dict[str, dict[str, float]] = {}
    wanted = [(s, t, g, n) for s in seeds for t in tracks for g in groups for n in names[g]]
    for seed, track, group, name in wanted:
        cell, row = _cell(track, seed, group, name, durations, failing), GROUPS[group][name]
        make = partial(measure, data, track, seed, row, durations=durations, failing=failing)
        cells[cell] = kept.once(cell, make)
        jct = cells[cell]["avg_jct_s"]
        print(f"{track} {seed} {group} {name}: {jct:,.0f}", file=sys.stderr, flush=True)
    rows = []
    for track in tracks:
        whole = [
            cells.get(_cell(track, s, "without", "(everything on)", durations, failing))
            for s in seeds
        ]
        for group in groups:
            for name in names[group]:
                mine = [cells[_cell(track, s, group, name, durations, failing)] for s in seeds]
                rows.append({"track": track, "group": group, "row": name, **_means(mine, whole)})
    return {"seeds": list(seeds), "durations": durations, "failing": failing, "rows": rows}


def _cell(track: str, seed: int, group: str, name: str, durations: str, failing: bool) -> str:
    """Return the key under which a cell is stored. Cells of different rows that play the same
    simulation have the same key.
    """
    row = GROUPS[group][name]
    isolated = row.isolated or track == "honest"
    where = "" if track in TRACKS else f"{track}|"
    played = replace(row, isolated=isolated)
    return f"{where}{seed}|{durations}|{'all' if failing else 'no failing'}|{played}"


def _means(
    cells: Sequence[dict[str, float]], whole: Sequence[dict[str, float] | None]
) -> dict[str, float | None]:
    """Return the means of a row's figures over the seeds. Among them is the difference of its
    average JCT (seconds) to `whole`, the row with every part on, paired by seed, with the standard
    error of that difference. Both are None if they cannot be computed.
    """
    means: dict[str, float | None] = {name: mean(c[name] for c in cells) for name in cells[0]}
    pairs = [c["avg_jct_s"] - w["avg_jct_s"] for c, w in zip(cells, whole, strict=True) if w]
    means["difference_s"] = mean(pairs) if pairs else None
    means["difference_se_s"] = stdev(pairs) / sqrt(len(pairs)) if len(pairs) > 1 else None
    return means


def table(found: Mapping[str, Any]) -> str:
    """Return the results of `ablate` as the Markdown tables of `docs/policy-figures.md`."""
    lines = []
    for track in dict.fromkeys(row["track"] for row in found["rows"]):
        lines += [
            f"\n`{track}`, seeds {', '.join(map(str, found['seeds']))}:\n",
            "| | row | avg JCT | difference | p99.9 queue, h | longest wait > 8 GPUs, h | "
            "ftf p99 | packed |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in found["rows"]:
            if row["track"] != track:
                continue
            by, error = row["difference_s"], row["difference_se_s"]
            moved = (
                "" if by is None else f"{by:+,.0f}" + ("" if error is None else f" ± {error:,.0f}")
            )
            lines.append(
                f"| {row['group']} | {row['row']} | {row['avg_jct_s']:,.0f} | {moved} | "
                f"{row['p999_queue_s'] / 3600:.0f} | {row['max_queue_large_s'] / 3600:.0f} | "
                f"{row['ftf_user_p99']:.1f} | {row['packed_jobs']:,.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--track", nargs="+", default=["honest", "honest-open"])
    parser.add_argument(
        "--worlds",
        nargs="+",
        default=[],
        help="worlds of benchmarks/worlds.yaml, in place of --track",
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101])
    parser.add_argument("--groups", nargs="+", choices=GROUPS, default=list(GROUPS))
    parser.add_argument(
        "--rows",
        nargs="+",
        default=[],
        help="measure only the rows of the ablation with these names",
    )
    parser.add_argument("--durations", choices=("own", "ga2m", "oracle", "gpus"), default="own")
    parser.add_argument(
        "--without-failing", action="store_true", help="leave the jobs that failed out of the trace"
    )
    parser.add_argument("--keep", type=Path, default=Path("runs/ablation"))
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    args = parser.parse_args()
    found = ablate(
        args.data,
        args.worlds or args.track,
        args.seeds,
        args.groups,
        kept_in(args.keep),
        durations=args.durations,
        failing=not args.without_failing,
        only=args.rows,
    )
    print(json.dumps(found, indent=2) if args.json else table(found))


if __name__ == "__main__":
    main()
