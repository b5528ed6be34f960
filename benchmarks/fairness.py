"""What fairness, lending, head-room and requeueing cost and give: trade-offs of `pellucid`.

    python -m benchmarks.fairness knob --chart docs/images/fairness.svg
    python -m benchmarks.fairness lending --json
    python -m benchmarks.fairness headroom --json
    python -m benchmarks.fairness requeue --json [--seeds 2] [--first-seed 100] [--groups honest]

Every figure is a mean over seeds, on Venus, with durations learned online from nothing by the
cold-start predictor. `knob`: track honest, `fairness` from 0 to 1, against FIFO, strict and one
that skips what does not fit; the worst virtual cluster is set against each. `lending`: track
honest-open, the terms on which idle GPUs are lent, against walls; how long owners wait while
others' jobs hold their GPUs is read off the decisions. `headroom`: the share of its GPUs a virtual
cluster is filled up to. `requeue`: every job is declared resumable; one stop each is allowed, or
none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.online import OnlineEstimator
from pipeline.worlds import Scenario, open_scenario
from scheduler.core.cluster import Cluster
from scheduler.core.decisions import Action, Decision
from scheduler.core.estimates import Estimator
from scheduler.core.policy import Policy
from scheduler.policies import build
from scheduler.policies.pellucid.borrowing import Lending
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.simulation.loop import Outcome
from scheduler.simulation.results import fairness_by_user, jct_by_vc, summarise

HOUR, DAY = 3600.0, 86_400.0
FIGURES = ("avg_jct_s", "p999_queue_s", "max_queue_large_s", "ftf_user_p50", "ftf_user_p99")
Row = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """One row of a table: a policy in a world.

    Virtual clusters are set against the first setting of the same group, and against its peers.

    Attributes:
        settings: Pellucid's; None = the peer `name`.
    """

    group: str
    name: str
    settings: dict[str, Any] | None = field(default_factory=dict)
    track: str = "honest"
    compress: float = 1.0
    packs: bool = True

    def policy(self, world: Scenario) -> Policy:
        if self.settings is None:
            return build(self.name)
        judge = world.judge() if self.packs and world.judge else None
        return Pellucid(judge, borrows=not world.walls, **self.settings)


KNOB = [
    setting
    for group, compress in (("as it was", 1.0), ("arrivals x 0.9", 0.9))
    for setting in (
        *(Setting(group, name, None, compress=compress) for name in ("fifo-skip", "fifo")),
        *(
            Setting(group, f"{knob:g}", {"fairness": knob}, compress=compress)
            for knob in (0.0, 0.1, 0.3, 1.0)
        ),
    )
]
TERMS = {
    "no limit": Lending(),
    "gone in 10 min": Lending(600.0),
    "gone in 6 h": Lending(6 * HOUR),
    "gone in 1 d": Lending(DAY),
    "gone in 3 d": Lending(3 * DAY),
    "gone in 7 d": Lending(7 * DAY),
    "1 node kept": Lending(reserve_nodes=1),
}
LENDING = [
    Setting("lending", "walls up"),
    *(Setting("lending", name, {"lending": terms}, "honest-open") for name, terms in TERMS.items()),
]
HEADROOM = [Setting("honest", f"{to:g}", {"headroom": to}) for to in (1.0, 0.95, 0.9, 0.8, 0.7)]
WORLDS = {
    "honest": ("honest", 1.0, True),
    "honest, no packing": ("honest", 1.0, False),
    "honest x 0.9": ("honest", 0.9, True),
    "honest x 0.9, no packing": ("honest", 0.9, False),
    "honest-open": ("honest-open", 1.0, True),
}
REQUEUE = [
    Setting(group, name, settings, *world)
    for group, world in WORLDS.items()
    for name, settings in (
        ("never", {}),
        ("after 10 min", {"requeue_after_s": 600.0}),
        ("after 30 min", {"requeue_after_s": 1800.0}),
        ("after 60 min", {"requeue_after_s": 3600.0}),
    )
]
PARTS = {"knob": KNOB, "lending": LENDING, "headroom": HEADROOM, "requeue": REQUEUE}


def worlds(data: Path, seed: int) -> Callable[[Setting], Scenario]:
    """Makes the world of a setting; every job in it may be stopped, if the policy does that."""
    opened: dict[tuple[str, float], Scenario] = {}

    def world(setting: Setting) -> Scenario:
        key = setting.track, setting.compress
        if key not in opened:
            scenario = open_scenario(data / "venus", track=key[0], compress=key[1], seed=seed)
            jobs = [replace(job, resumable=True) for job in scenario.workload.jobs]
            opened[key] = replace(
                scenario,
                workload=replace(scenario.workload, jobs=jobs),
                estimators=_cold_start,
            )
        return opened[key]

    return world


def _cold_start(policy: Policy) -> Estimator:
    return OnlineEstimator(min_rows=sys.maxsize) if policy.estimates else Estimator()


def run(world: Scenario, policy: Policy) -> Row:
    """The figures of one run, with `vc`, average JCT by virtual cluster."""
    decisions: list[Decision] = []
    outcome, _ = world.play(policy, sink=decisions.extend)
    found = summarise(outcome, world.cluster_gpus())
    waits = waits_under_borrowers(decisions, outcome, Cluster(world.workload.cluster).node_vc)
    return {
        **{name: found[name] for name in FIGURES},
        "ftf_user_max": max(fairness_by_user(outcome.jobs).values()),
        "max_queue_s": max(r.queue_s for r in outcome.jobs if r.end_time is not None),
        "stops": found["preemptions"],
        "owners_waited": len(waits) / found["ended"],
        "owners_wait_p99_s": float(np.percentile(waits, 99)) if waits else 0.0,
        "owners_wait_max_s": max(waits, default=0.0),
        "vc": jct_by_vc(outcome.jobs),
    }


def waits_under_borrowers(
    decisions: Iterable[Decision], outcome: Outcome, node_vc: list[str]
) -> list[float]:
    """How long each job that did waited in its queue while others' jobs held its owners' GPUs.

    An upper bound of the wait that borrowers caused, seconds; zeros are left out.
    """
    home = {r.job.job_id: r.job.vc for r in outcome.jobs}
    end = {r.job.job_id: r.end_time for r in outcome.jobs}
    lent: dict[str, list[tuple[float, float]]] = defaultdict(list)  # vc -> when others were there
    waits: dict[str, list[tuple[float, float]]] = defaultdict(list)
    since: dict[str, float] = {}
    begun: dict[str, Decision] = {}

    def left(d: Decision, until: float) -> None:
        for vc in {node_vc[node] for node in d.nodes} - {home[d.job_id]}:
            lent[vc].append((d.time, until))

    for d in decisions:
        if d.action is Action.ENQUEUE:
            since[d.job_id] = d.time
        elif d.action is Action.PREEMPT:
            left(begun.pop(d.job_id), d.time)
            since[d.job_id] = d.time
        elif d.action in (Action.START, Action.PACK, Action.PROFILE):
            waited = since.pop(d.job_id, d.time)
            if waited < d.time:
                waits[d.job_id].append((waited, d.time))
            if d.action is not Action.PROFILE:
                begun[d.job_id] = d
    for job_id, d in begun.items():
        left(d, end[job_id] or d.time)
    merged = {vc: _merged(spans) for vc, spans in lent.items()}
    total = (
        sum(_overlap(spans, wait) for wait in mine)
        for job_id, mine in waits.items()
        if (spans := merged.get(home[job_id])) is not None
    )
    return [seconds for seconds in total if seconds > 0]


def _merged(spans: list[tuple[float, float]]) -> np.ndarray:
    """Disjoint spans with the same union, as rows (start, end), ascending."""
    out: list[list[float]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    return np.array(out)


def _overlap(spans: np.ndarray, wait: tuple[float, float]) -> float:
    part = np.minimum(spans[:, 1], wait[1]) - np.maximum(spans[:, 0], wait[0])
    return float(part[part > 0].sum())


def measure(part: str, data: Path, seeds: Iterable[int], groups: Sequence[str] = ()) -> list[Row]:
    """One row per setting of these groups (none named: of all), means over the seeds."""
    table = dict(enumerate(s for s in PARTS[part] if not groups or s.group in groups))
    rows: dict[int, list[Row]] = defaultdict(list)
    for seed in seeds:
        world = worlds(data, seed)
        base: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
        for number, setting in table.items():
            scenario = world(setting)
            row = run(scenario, setting.policy(scenario))
            against = base[setting.group]
            if setting.settings is None or not against:
                against[setting.name] = row["vc"]
            row["vc_ratio"] = {
                name: {vc: row["vc"][vc] / theirs[vc] for vc in theirs}
                for name, theirs in against.items()
            }
            rows[number].append(row)
            print(
                f"seed {seed}, {setting.group}, {setting.name}: {row['avg_jct_s']:,.0f} s",
                file=sys.stderr,
            )
    return [
        {"group": table[number].group, "setting": table[number].name, **_mean(mine)}
        for number, mine in rows.items()
    ]


def _mean(rows: list[Row]) -> Row:
    figures = [key for key in rows[0] if key not in ("vc", "vc_ratio")]
    return {
        **{key: float(np.mean([row[key] for row in rows])) for key in figures},
        "avg_jct_s_by_seed": [round(row["avg_jct_s"], 1) for row in rows],
        "worst_vc": {
            name: _worst([row["vc_ratio"][name] for row in rows]) for name in rows[0]["vc_ratio"]
        },
    }


def _worst(ratios: list[dict[str, float]]) -> Row:
    """The virtual cluster that lost most, by the mean over seeds, and the most one ever lost."""
    means = {vc: float(np.mean([seed[vc] for seed in ratios])) for vc in ratios[0]}
    worst = max(means, key=lambda vc: means[vc])
    most = max(max(seed.values()) for seed in ratios)
    return {"vc": worst, "ratio": means[worst], "ratio_any_seed": most}


def draw(rows: list[Row], path: Path) -> None:
    """The trade-off curves of the knob, as an SVG file; the same bytes for the same rows."""
    import matplotlib
    from matplotlib import pyplot as plt

    panels = (
        ("average JCT, s", "avg_jct_s", 1.0, False),
        ("finish-time fairness, p99 by user", "ftf_user_p99", 1.0, True),
        ("finish-time fairness, worst user", "ftf_user_max", 1.0, True),
        ("longest wait, h", "max_queue_s", HOUR, False),
    )
    style = {"svg.hashsalt": "pellucid", "svg.fonttype": "none", "font.size": 9}
    with matplotlib.rc_context(style):
        figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
        for axis, (title, name, unit, logarithmic) in zip(axes, panels, strict=True):
            for colour, group in enumerate(dict.fromkeys(row["group"] for row in rows)):
                fifo, _, *points = [row for row in rows if row["group"] == group]
                knob = [float(row["setting"]) for row in points]
                axis.plot(knob, [row[name] / unit for row in points], f"C{colour}o-", label=group)
                axis.axhline(
                    fifo[name] / unit,
                    color=f"C{colour}",
                    linestyle=":",
                    label=f"{group}: FIFO skipping",
                )
            axis.set(xlabel="fairness", title=title, yscale="log" if logarithmic else "linear")
            axis.grid(alpha=0.3)
        axes[0].legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--groups", nargs="+", default=[], help="only these of the part")
    parser.add_argument("--chart", type=Path, help="draw the curve of the knob there (SVG)")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    if arguments.chart and arguments.part != "knob":
        parser.error("--chart draws the curve of the knob only")
    first = arguments.first_seed
    seeds = range(first, first + arguments.seeds)
    rows = measure(arguments.part, arguments.data, seeds, arguments.groups)
    if arguments.chart:
        draw(rows, arguments.chart)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    for row in rows:
        shown = (f"{k} {v:,.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print(", ".join(shown))


if __name__ == "__main__":
    main()
