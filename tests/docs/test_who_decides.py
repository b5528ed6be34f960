"""The table "which model decides where" of docs/models.md is what happens: a model decides where
other answers of it make other decisions, and nowhere else."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.digests import DEMO_CLUSTER
from features.job import Job
from models.bundle import Bundle
from models.bundle.additive import Explanation
from models.bundle.arrivals import ArrivalForecast, ArrivalModel
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import Scenario, plain
from pipeline.worlds.cluster_file import read_cluster
from scheduler.core.decisions import Decision, PairPrediction
from scheduler.core.durations import seconds_of
from scheduler.core.estimates import Estimate, HistoriesEstimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.queue import QueuedJob
from scheduler.simulation.stating import stating

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
JOBS = 700
MANY, NOBODY = "many come", "nobody comes"


class Otherwise(HistoriesEstimator):
    """Says that the short ones are long."""

    def estimate(self, job: Job, now: float) -> Estimate:
        return Estimate(1e7 / (1.0 + seconds_of(super().estimate(job, now).seconds)))


class Pairs(TablePairPredictor):
    """The demo's rule, its answers changed."""

    def __init__(self, busy: dict[str, float], change: Callable[[PairPrediction], PairPrediction]):
        super().__init__(
            {job_id: int(pct // 34) for job_id, pct in busy.items()},
            lambda a, b: (1.05 - busy[b] / 250, 1.05 - busy[a] / 250),
        )
        self._change = change

    def predict_pair(self, newcomer: QueuedJob, partner: QueuedJob) -> PairPrediction | None:
        found = super().predict_pair(newcomer, partner)
        return None if found is None else self._change(found)


class Coming(ArrivalModel):
    """Forecasts the same of every bin."""

    def __init__(self, mean: float):
        super().__init__({}, {})
        self.models = dict.fromkeys(("jobs@soon", "gpus@soon"))  # type: ignore[arg-type]
        self._mean = mean

    def forecast(self, *_: object) -> ArrivalForecast:
        return ArrivalForecast(self._mean, self._mean, {}, Explanation(0.0, 0.0, ()))


class Shelf(Bundle):
    """A bundle that holds a model of arrivals and nothing else."""

    def __init__(self, mean: float):
        super().__init__()
        self._coming = Coming(mean)

    @property
    def parts(self) -> tuple[str, ...]:
        return ("arrivals",)

    @property
    def arrivals(self) -> ArrivalModel:
        return self._coming


def world(changed: str) -> Scenario:
    """The demo's, where one model says otherwise. One node is lent while many wait."""
    spec = read_cluster(DEMO_CLUSTER)
    assert spec.profiling is not None
    lent = spec.profiling.model_copy(update={"nodes": {}, "scale_from": "campus", "known_s": 0.0})
    found = plain.scenario(generate(default_config()).slice(0, JOBS), "demo", spec.cluster, lent)
    busy = {i: w.profile.gpu_util_pct for i, w in found.workload.work.items() if w.profile}
    changes: dict[str, Callable[[PairPrediction], PairPrediction]] = {
        "packing": lambda pair: replace(pair, scores=(2, 2), path=("scores 2",)),
        "pair_speed": lambda pair: replace(pair, speeds=(0.5, 0.5)),
    }
    change = changes.get(changed, lambda pair: pair)
    found.pair_predictor = lambda: Pairs(busy, change)
    found.settings = {"lucid": {"quiet_jobs": 2.0}}  # as its artifact has it
    found.estimators = lambda _: Otherwise() if changed == "duration" else HistoriesEstimator()
    if changed == "own progress":
        found.states = stating(found.workload.jobs, found.workload.work, 1.0, 0.1, 0)
    return found


@cache
def done(policy: str, changed: str) -> tuple[str, str]:
    """Digests of what was done in a world, and of all that is kept of why."""
    effects, record = hashlib.sha256(), hashlib.sha256()

    def sink(decisions: list[Decision]) -> None:
        for d in decisions:
            if d.action.value not in ("wait", "enqueue"):
                effects.update(
                    repr((d.time, d.action, d.job_id, d.nodes, d.gpus, d.partner)).encode()
                )
            record.update(repr(d).encode())

    made = world(changed)
    core = made.core(policy)
    if changed in (MANY, NOBODY):
        core.use(Shelf(1000.0 if changed == MANY else 0.0))
    made.play(core, sink=sink)
    return effects.hexdigest(), record.hexdigest()


def table() -> list[tuple[str, str, str]]:
    """(model, policy, what the page says of it)."""
    text = PAGE.read_text()
    rows = re.findall(
        r"^\| `(.+?)` \| (\w+) \| (\w+) \| .+ \|$", text.split("## Which model decides")[1], re.M
    )
    return [
        (row[0], policy, says)
        for row in rows
        for policy, says in zip(("pellucid", "lucid"), row[1:], strict=False)
    ]


def test_every_model_of_a_bundle_is_in_the_table() -> None:
    assert {model for model, _, _ in table()} == {
        "duration",
        "packing",
        "pair_speed",
        "arrivals",
        "own progress",
    }


@pytest.mark.parametrize(("model", "policy", "says"), table())
def test_a_model_decides_where_the_page_says_so(model: str, policy: str, says: str) -> None:
    of_arrivals = model == "arrivals"
    plain_effects, plain_record = done(policy, MANY if of_arrivals else "nothing")
    effects, record = done(policy, NOBODY if of_arrivals else model)
    found = (
        "decides" if effects != plain_effects else "recorded" if record != plain_record else "no"
    )
    assert found == says
