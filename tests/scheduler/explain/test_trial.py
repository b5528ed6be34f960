"""A trial alters a copy, decides when it is told to, and says who begins; the core stays."""

from __future__ import annotations

from scheduler.core.core import Core
from scheduler.core.decisions import GIVES_GPUS, Action
from scheduler.core.estimates import TableEstimator
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.whatif.trial import Trial, without
from scheduler.policies.fifo import FifoSkip
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import Desk, a_job, a_stage, cluster_of


def a_line() -> Futures:
    """`runs` has both GPUs of the node, `next` and `last` wait for them."""
    memory = Memory(TableEstimator("given", {}, default=600.0))
    desk = Desk(FifoSkip(), cluster_of(gpus=2), memory)
    desk.submit(*(a_job(name, gpus=2) for name in ("runs", "next", "last")))
    return Futures(desk.core, memory, 10.0)


def a_new_job(futures: Futures, gpus: int) -> Trial:
    def comes(core: Core, now: float) -> None:
        core.submitted(a_job("new", gpus=gpus).job, now)

    return Trial(futures.copy({"new": None}), futures.now, comes).decide()


def test_nothing_is_decided_before_it_is_asked_for_and_the_core_stays() -> None:
    futures = a_line()
    trial = futures.trial(without(["runs"]))
    assert [*trial.core.cluster.runs] == []
    assert trial.begins("next") is None
    begun = trial.decide().begins("next")
    assert begun is not None
    assert (begun.action, begun.time) == (Action.START, 10.0)
    assert trial.begins("last") is None
    assert [*futures.core.cluster.runs] == ["runs"]


def test_to_be_profiled_is_no_start() -> None:
    memory = Memory(TableEstimator("given", {}, default=600.0))
    desk = Desk(Pellucid(), cluster_of(nodes=2, gpus=2, profiling=1), memory, a_stage())
    trial = a_new_job(Futures(desk.core, memory, 10.0), gpus=1)
    given = trial.begins("new", GIVES_GPUS)
    assert given is not None
    assert given.action is Action.PROFILE
    assert trial.begins("new") is None


def test_what_was_decided_last_about_a_job_is_told() -> None:
    futures = a_line()
    last = a_new_job(futures, gpus=64).last("new")
    assert last is not None
    assert last.action is Action.REFUSE
    assert Trial(futures.copy(), futures.now).decide().last("next") is None
