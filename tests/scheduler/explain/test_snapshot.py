"""A copy decides as the original would, and leaves no trace in it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from features.schema import State
from scheduler.core.core import Core
from scheduler.core.decisions import Decision
from scheduler.core.estimates import TableEstimator
from scheduler.explain.whatif.copies import CoreCopy
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.futures import Believed
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.pellucid.policy import Pellucid
from scheduler.testing.builders import Desk, a_job, cluster_of
from scheduler.testing.worlds import World, worlds
from tests.scheduler.explain.watched import a_policy, replay


def shape(core: Core) -> str:
    runs = [(r.job.job_id, r.nodes, r.gpus, r.vc) for r in core.cluster.runs.values()]
    lines = {vc: [(q.job.job_id, q.key) for q in line] for vc, line in core.queues.items()}
    return repr((runs, lines))


@settings(max_examples=20)
@given(
    world=worlds(),
    name=st.sampled_from(["fifo", "fifo-skip", "sjf", "qssf", "lucid", "pellucid"]),
)
def test_a_copy_decides_what_the_original_would_and_changes_nothing(
    world: World, name: str
) -> None:
    """After a pass there is nothing left for a copy to decide, as for the original."""

    def decided(ahead: bool) -> list[str]:
        taken: list[str] = []

        def look(core: Core, memory: Memory, decisions: list[Decision], now: float) -> None:
            taken.extend(repr(d) for d in decisions)
            if not ahead:
                return
            predicted = {i: q.predicted_s for i in core.jobs if (q := memory.of(i)) is not None}
            copy = CoreCopy(core, now).restore(Believed(predicted))
            assert shape(copy) == shape(core)
            assert copy.decide(now) == []
            waiting = [q.job.job_id for queue in core.queues.values() for q in queue]
            Futures(core, memory, now, seed=1).forecast(waiting, samples=2)

        replay(world, a_policy(name, world), look)
        return taken

    assert decided(False) == decided(True)


def test_copies_are_independent_and_small() -> None:
    desk = Desk(Pellucid(), cluster_of(nodes=4), TableEstimator("given", {}, default=600.0))
    desk.submit(*(a_job(f"j{i}", gpus=8) for i in range(20)))
    snapshot = CoreCopy(desk.core, 0.0)
    one, two = (snapshot.restore(Believed({})) for _ in range(2))
    one.ended("j0", State.COMPLETED, 60.0, 60.0)
    started = [d.job_id for d in one.decide(60.0)]
    assert started == ["j4"]
    assert "j0" in two.cluster.runs
    assert "j0" in desk.core.cluster.runs
    assert len(desk.core.queues["vc"]) == len(two.queues["vc"]) == 16
    one.cluster.validate()
    assert len(snapshot) < 20_000
