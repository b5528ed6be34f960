"""On every decision with a score, intercept plus terms is the score, from engine to table."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Job
from scheduler.core.decisions import Action, Decision, Score
from scheduler.core.estimates import Estimate, Estimator
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Predictors
from scheduler.policies import build
from scheduler.simulation.engine import Engine
from scheduler.simulation.recorder import decision_table
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import WatchedCore, World, a_cluster, worlds


class Additive(Estimator):
    """Random additive scores; the estimate is what the score says."""

    name = "additive"

    def __init__(self, seed: int):
        super().__init__()
        self._rng = random.Random(seed)
        self.given: dict[str, Score] = {}

    def estimate(self, job: Job, now: float) -> Estimate:
        terms = tuple(self._rng.gauss(0, 3) for _ in range(self._rng.randrange(12)))
        intercept = self._rng.gauss(6, 2)
        score = Score(intercept + sum(terms), intercept, terms, "d1gest", ("x",) * len(terms))
        self.given[job.job_id] = score
        return Estimate(abs(score.value), score)


@settings(max_examples=25)
@given(world=worlds(), seed=st.integers(0, 2**32))
def test_terms_add_up_on_every_recorded_decision(world: World, seed: int) -> None:
    estimator = Additive(seed)
    policy = build("lucid", predictors=Predictors(TablePairPredictor(world.scores)))
    stage = PolicyContract().stage(world, policy)
    core = WatchedCore(
        a_cluster(world, profiles=policy.capabilities.profiles), policy, estimator, profiling=stage
    )
    jobs, taken = [s.job for s in world.samples], list[Decision]()
    outcome = Engine(core, jobs, world.work, world.speed, sink=taken.extend).run()
    rows = decision_table(taken).to_pylist()
    assert len(rows) == outcome.decisions
    seen = set[str]()
    for row in rows:
        given_ = estimator.given.get(row["job_id"])
        if row["action"] in (Action.ENQUEUE, Action.START, Action.PACK):
            assert row["score"] is not None, "an ordered job carries its score"
        if row["score"] is None:
            assert row["terms"] is None
            assert row["bundle"] is None
            continue
        assert given_ is not None
        assert abs(row["intercept"] + sum(row["terms"]) - row["score"]) <= 1e-9
        assert (row["score"], row["intercept"]) == (given_.value, given_.intercept)
        assert tuple(row["terms"]) == given_.terms
        assert row["bundle"] == given_.bundle
        assert row["estimate_s"] == abs(given_.value)
        fresh = row["action"] == Action.ENQUEUE or row["job_id"] not in seen
        assert row["inputs"] == (list(given_.inputs) if fresh else None)
        seen.add(row["job_id"])
