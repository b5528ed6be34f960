"""The Horus-like policy: what it believes, and who shares."""

from __future__ import annotations

import pytest

from features.job import Job, Profile
from reproductions.baselines.horus import Horus, UtilisationBelief
from scheduler.core.decisions import Action, Reason
from scheduler.simulation.work import Work
from scheduler.testing.builders import VC, Sample, cluster_of, play


def a_job(
    job_id: str, *, at: float, util: float, user: str = "u", mem: float = 1000.0, gpus: int = 1,
    for_: float = 5000.0, share: bool = True,
) -> Sample:  # fmt: skip
    job = Job(job_id, at, gpus, user, VC, name=f"train-{user}", share=share)
    return Sample(job, Work(for_, profile=Profile(util, 10.0, mem)))


def test_jobs_of_the_same_name_speak_first_then_the_user() -> None:
    belief = UtilisationBelief()
    assert belief.predict(Job("x", 0.0, 1, "u")) is None
    belief.learn(Job("a", 0.0, 1, "u", name="train-1"), Profile(80.0, 10.0, 1000.0))
    belief.learn(Job("b", 0.0, 1, "u", name="train-2"), Profile(60.0, 10.0, 3000.0))
    belief.learn(Job("c", 0.0, 1, "u", name="eval"), Profile(10.0, 10.0, 500.0))
    same = belief.predict(Job("d", 0.0, 1, "u", name="train-3"))
    assert same is not None
    assert (same.util_pct, same.mem_mib, same.seen) == (70.0, 3000.0, 2)
    user = belief.predict(Job("e", 0.0, 1, "u", name="other"))
    assert user is not None
    assert (user.util_pct, user.seen) == (50.0, 3)


def test_a_job_shares_with_the_least_used_gpu() -> None:
    played = play(
        Horus(), cluster_of(gpus=3),
        a_job("busy", at=0.0, util=70.0, user="a"),
        a_job("idle", at=0.0, util=20.0, user="b"),
        a_job("known", at=0.0, util=25.0, user="c"),
        a_job("new", at=1000.0, util=25.0, user="c"),
    )  # fmt: skip
    (pack,) = [d for d in played.decisions if d.action is Action.PACK]
    assert (pack.job_id, pack.partner, pack.time) == ("new", "idle", 1000.0)
    assert pack.tree_path[0] == "predicted utilisation 25 % (from 1 jobs like it)"


@pytest.mark.parametrize(
    ("newcomer", "reason"),
    [
        (a_job("new", at=1000.0, util=60.0), Reason.INTERFERENCE_GUARD),
        (a_job("new", at=1000.0, util=60.0, user="stranger"), Reason.GPUS_BUSY),
        (a_job("new", at=1000.0, util=60.0, share=False), Reason.SHARING_OPTED_OUT),
    ],
)
def test_who_does_not_share_is_told_why(newcomer: Sample, reason: Reason) -> None:
    played = play(Horus(), cluster_of(gpus=1), a_job("first", at=0.0, util=60.0), newcomer)
    assert not [d for d in played.decisions if d.action is Action.PACK]
    assert played.reasons("new")[0] is reason


def test_memory_has_to_suffice() -> None:
    first = a_job("first", at=0.0, util=20.0, mem=15_000.0)
    played = play(Horus(), cluster_of(gpus=1), first, a_job("new", at=1000.0, util=20.0))
    assert played.reasons("new")[0] is Reason.MEMORY_GUARD


def test_nobody_is_disturbed_before_it_was_watched() -> None:
    jobs = a_job("first", at=0.0, util=20.0), a_job("new", at=100.0, util=20.0)
    played = play(Horus(), cluster_of(gpus=1), *jobs)
    (pack,) = [d for d in played.decisions if d.action is Action.PACK]
    assert pack.time == 200.0


def test_who_got_company_is_not_watched_and_memory_that_does_not_suffice_is_counted() -> None:
    """What two do on one GPU is one reading: the belief is of those that ran alone."""
    policy = Horus()
    played = play(
        policy, cluster_of(gpus=2),
        a_job("first", at=0.0, util=20.0, for_=400.0),
        a_job("second", at=300.0, util=20.0, mem=20_000.0),
        a_job("stranger", at=405.0, util=90.0, user="v"),
        a_job("beside", at=410.0, util=20.0, mem=20_000.0),
    )  # fmt: skip
    (pack,) = [d for d in played.decisions if d.action is Action.PACK]
    assert (pack.job_id, pack.partner) == ("beside", "second")
    believed = policy.belief.predict(Job("next", 0.0, 1, "u", VC, name="train-u"))
    assert believed is not None
    assert (believed.seen, believed.mem_mib) == (1, 1000.0)
    assert (played.outcome.packings, played.outcome.over_memory) == (1, 1)
