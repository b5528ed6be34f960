"""What a pass carries over to the next saves work, and changes no decision."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from features.job import Profile
from scheduler.core.cluster import Cluster, ClusterSpec
from scheduler.core.core import Core, Turn
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.durations import Outlook
from scheduler.core.estimates import TableEstimator
from scheduler.policies.pellucid.policy import Pellucid
from tests.scheduler.builders import a_job
from tests.scheduler.explain.watched import Scores, replay
from tests.scheduler.worlds import World, worlds


class Forgetful(Pellucid):
    """Looks through every queue, and for every pair, as if for the first time."""

    def serve(self, turn: Turn) -> None:
        self._settled.clear()
        self.pairing._refusals.clear()
        super().serve(turn)


def decisions(kind: type[Pellucid], world: World, **options: Any) -> list[Decision]:
    policy = kind(Scores(world.scores), gpu_memory_mib=world.spec.gpu_memory_mib, **options)
    taken: list[Decision] = []
    replay(world, policy, lambda core, memory, new, now: taken.extend(new))
    return taken


options = st.fixed_dictionaries(
    {
        "patience_s": st.sampled_from([600.0, 172_800.0]),
        "partner_searches": st.sampled_from([0, 1, 16]),
        "busy_above": st.sampled_from([0.0, 0.85]),
        "borrows": st.booleans(),
        "headroom": st.sampled_from([1.0, 0.7]),
        "overtake_gpu_s": st.sampled_from([0.0, 20_000.0]),
    }
)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds(), chosen=options)
def test_decisions_are_those_of_one_who_forgets(world: World, chosen: dict[str, Any]) -> None:
    assert decisions(Pellucid, world, **chosen) == decisions(Forgetful, world, **chosen)


SMALL, LARGE = Profile(10.0, 10.0, 1_000.0), Profile(10.0, 10.0, 24_000.0)


def test_a_partner_whose_profile_is_replaced_is_judged_anew() -> None:
    """What was carried over from a job like it is not what is seen of the job itself."""
    core = Core(
        Cluster(ClusterSpec({"vc": 1}, 1, 24_576.0)),
        Pellucid(Scores({}), gpu_memory_mib=24_576.0),
        TableEstimator("given", {"runs": 50_000.0, "waits": 50_000.0}),
    )
    core.submitted(a_job("runs").job, 0.0)
    core.known("runs").profile = LARGE
    core.decide(0.0)
    core.submitted(a_job("waits", at=10.0).job, 10.0)
    core.known("waits").profile = SMALL
    core.decide(10.0)
    assert core.known("waits").reason is Reason.MEMORY_GUARD
    core.observed("runs", SMALL, 20.0)
    assert [d.action for d in core.decide(20.0)] == [Action.PACK]


@given(
    st.floats(0.0, 1e5),
    st.floats(0.0, 1e5),
    st.floats(0.0, 0.999),
    st.lists(st.floats(1.0, 1e6), max_size=30),
)
def test_what_is_left_only_falls_for_as_long_as_it_is_said_to(
    predicted_s: float, elapsed_s: float, share: float, ran: list[float]
) -> None:
    outlook = Outlook()
    for duration_s in ran:
        outlook.learn(predicted_s, duration_s)
    falls_for_s = outlook.falls_for_s(predicted_s, elapsed_s)
    later_s = elapsed_s + share * max(falls_for_s - 0.001, 0.0)
    left_s = outlook.expected_s(predicted_s, elapsed_s)
    assert outlook.expected_s(predicted_s, later_s) <= left_s
