"""Several types of GPU in one cluster: who gets which, and what knowing their speeds is worth.

    python -m benchmarks.heterogeneity --json [--seeds 4] [--first-seed 100]

Nature is Gavel's table of measured rates (V100, P100, K80; isolated, consolidated). Jobs arrive
when those of one virtual cluster of Venus did, ask for as many GPUs and run as long on V100s, and
train one of Gavel's configurations of that gang size, drawn seeded; configurations that do not fit
on every type are left out. The cluster has as many GPUs of each type. The policy is `pellucid`
everywhere, with durations learned from the histories alone and nobody packed; only what it
believes of the types differs:

    blind           all GPUs are alike: the type with most free GPUs
    unseen family   speeds predicted by a model that never saw the job's model family
    unseen batch    by a model that saw the family, but not with that batch size
    true            Gavel's own table
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from features.job import Job
from models.bundle.gputypes import GpuTypeSpeed
from models.training.gputypes import Measured, fit_gpu_types
from pipeline.evaluate.heterogeneity import read_rates
from pipeline.worlds import venus
from scheduler.assembly import CoreSpec, assemble
from scheduler.core.cluster import ClusterSpec, NodeGroup, Run
from scheduler.core.estimates import LiveEstimator
from scheduler.core.policy import Predictors, TypeSpeeds
from scheduler.policies.pellucid.gputypes import PredictedTypes
from scheduler.simulation.engine import Engine
from scheduler.simulation.results import summarise
from scheduler.simulation.work import Work

REFERENCE = "v100"
TYPES = ("v100", "p100", "k80")
PER_NODE = 8
SHOWN = ("avg_jct_s", "avg_queue_s", "p999_queue_s", "max_queue_large_s", "gpu_utilisation")


class Truth:
    """Gavel's table: nature, and the belief of whoever is told it. Jobs are named by its rows."""

    def __init__(self, measured: Iterable[Measured]):
        self.rows = {_name(m): m for m in measured if all(m.rates[t] > 0 for t in TYPES)}

    def speed(self, job: Job, gpu_type: str) -> float:
        rates = self.rows[job.name].rates
        return rates[gpu_type] / rates[REFERENCE]

    def of_size(self, gpus: int) -> list[str]:
        return [name for name, m in self.rows.items() if m.gpus == gpus]


class GroundTruth:
    """Rates by the true table; nobody shares."""

    def __init__(self, truth: Truth, spec: ClusterSpec):
        self._truth = truth
        self._types = [
            group.gpu_type
            for vc in spec.vcs
            for group in spec.groups_of(vc)
            for _ in range(group.nodes)
        ]

    def rate(self, work: Work, run: Run, neighbour: Work | None) -> float:
        return self._truth.speed(run.job, self._types[run.nodes[0]])


def _name(m: Measured) -> str:
    return f"{m.family}|{m.batch or ''}|{m.gpus}"


def beliefs(truth: Truth) -> dict[str, Callable[[], TypeSpeeds | None]]:
    """What each row of the table believes."""
    rows = list(truth.rows.values())

    @cache
    def without(family: str, batch: int | None, whole: bool) -> GpuTypeSpeed:
        left = [m for m in rows if m.family != family or (not whole and m.batch != batch)]
        return fit_gpu_types(left, intervals=False)

    def describe(job: Job) -> tuple[str, int | None]:
        m = truth.rows[job.name]
        return m.family, m.batch

    def predicted(whole: bool) -> PredictedTypes:
        return PredictedTypes(lambda job: without(*describe(job), whole), describe, REFERENCE)

    return {
        "blind": lambda: None,
        "unseen family": lambda: predicted(True),
        "unseen batch": lambda: predicted(False),
        "true": lambda: truth,
    }


def world(
    data: Path, truth: Truth, vc: str, nodes: int, compress: float, seed: int
) -> tuple[list[Job], dict[str, Work], ClusterSpec]:
    """Jobs of a virtual cluster of Venus as Gavel's, on `nodes` nodes of each type."""
    rng = np.random.default_rng(seed)
    folder = venus.load(data / "venus")
    chosen = [job for job in folder.workload.jobs if job.vc == vc and job.gpus in (1, 2, 4, 8)]
    first = chosen[0].submit_time
    jobs, work = [], {}
    for job in chosen:
        moment = first + (job.submit_time - first) * compress + float(rng.uniform(0, 60))
        name = str(rng.choice(truth.of_size(job.gpus)))
        jobs.append(Job(job.job_id, moment, job.gpus, job.user, "mixed", name))
        known = folder.workload.work[job.job_id]
        work[job.job_id] = Work(known.duration_s, known.state)
    groups = tuple(NodeGroup(gpu_type, nodes, PER_NODE) for gpu_type in TYPES)
    spec = ClusterSpec.mixed({"mixed": groups}, name="mixed")
    return sorted(jobs, key=lambda job: job.submit_time), work, spec


def simulate(
    truth: Truth,
    made: tuple[list[Job], dict[str, Work], ClusterSpec],
    belief: TypeSpeeds | None,
    *,
    patient: bool = True,
) -> dict[str, Any]:
    """One run of the policy; its figures."""
    jobs, work, spec = made
    values = {"gpu_types": {"wait_for_faster": patient}}
    predictors = Predictors(type_speeds=belief)
    core = assemble(CoreSpec.of(spec, "pellucid", values), LiveEstimator(), predictors)
    outcome = Engine(core, jobs, work, GroundTruth(truth, spec)).run()
    figures = summarise(outcome, spec.gpus)
    return {"ended": figures["ended"], **{name: figures[name] for name in SHOWN}}


def measure(
    data: Path, *, seeds: Sequence[int], vc: str, nodes: int, compress: float
) -> dict[str, Any]:
    """Every belief on the same seeds: means, and differences to `blind` with standard errors."""
    truth = Truth(read_rates(data / "gavel" / "simulation_throughputs.json"))
    rows: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        made = world(data, truth, vc, nodes, compress, seed)
        for name, belief in beliefs(truth).items():
            rows.setdefault(name, []).append(simulate(truth, made, belief()))
            if name == "true":
                hasty = simulate(truth, made, belief(), patient=False)
                rows.setdefault("true, never waits", []).append(hasty)
    blind = np.array([row["avg_jct_s"] for row in rows["blind"]])
    table = []
    for name, found in rows.items():
        jct = np.array([row["avg_jct_s"] for row in found])
        lost = jct - blind
        error = float(lost.std(ddof=1) / np.sqrt(len(seeds))) if len(seeds) > 1 else None
        table.append(
            {
                "belief": name,
                **{key: float(np.mean([row[key] for row in found])) for key in found[0]},
                "against_blind_s": float(lost.mean()),
                "against_blind_se": error,
            }
        )
    return {
        "vc": vc,
        "nodes_per_type": nodes,
        "compress": compress,
        "seeds": list(seeds),
        "rows": table,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--vc", default="vcYVn", help="virtual cluster of Venus that arrives")
    parser.add_argument("--nodes", type=int, default=4, help="nodes of each type")
    parser.add_argument("--compress", type=float, default=1.0, help="multiplies submit times")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    arguments = parser.parse_args()
    figures = measure(
        arguments.data,
        seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
        vc=arguments.vc,
        nodes=arguments.nodes,
        compress=arguments.compress,
    )
    if arguments.json:
        print(json.dumps(figures, indent=2))
        return
    for row in figures["rows"]:
        print(
            f"{row['belief']:18} {row['avg_jct_s']:9,.0f} s  queue {row['avg_queue_s']:9,.0f} s  "
            f"{row['against_blind_s']:+9,.0f} +- {row['against_blind_se'] or 0:,.0f}"
        )


if __name__ == "__main__":
    main()
