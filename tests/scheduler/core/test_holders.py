"""Who a recorded wait names: the soonest runs that hold enough GPUs, the job ahead, the reserve."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.core.cluster import Run
from scheduler.core.decisions import Action, Reason
from scheduler.core.holders import LEVEL, MOST, HolderCache, soonest
from scheduler.policies.fifo import Fifo, FifoSkip
from scheduler.testing.builders import Desk, a_job, cluster_of, pellucid


@given(
    sizes=st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=12),
    gpus=st.sampled_from([1, 2, 4, 8, 16]),
    left=st.lists(st.integers(0, 100), min_size=12, max_size=12),
)
def test_when_those_named_have_ended_it_fits(sizes: list[int], gpus: int, left: list[int]) -> None:
    cluster = cluster_of(nodes=2, gpus=8)
    (pool,) = cluster.pools.values()
    runs: list[Run] = []
    for i, size in enumerate(sizes):
        placement = pool.place(size)
        if placement is not None:
            runs.append(cluster.start(a_job(f"r{i}", gpus=size).job, pool.name, placement, 0.0))
    expected = {run.job.job_id: float(left[i]) for i, run in enumerate(runs)}
    jobs, seconds, _ = soonest(
        pool,
        gpus,
        runs,
        lambda run, level: expected[run.job.job_id] / (level or 1.0),
    )
    if pool.place(gpus) is not None or len(jobs) == MOST:
        return  # nobody holds it up, or more hold it up than are named
    assert jobs
    assert seconds == max(expected[job] for job in jobs) / LEVEL ** (1 / len(jobs))
    held = {run.job.job_id: run for run in runs}
    for left_out in (None, *jobs):  # all of them are needed, and no other
        free = {node: pool.free_on(node).bit_count() for node in pool.nodes()}
        for job in jobs:
            if job != left_out:
                for node, gpus_there in zip(held[job].nodes, held[job].gpus, strict=True):
                    free[node] += gpus_there.bit_count()
        whole = sum(there == 8 for there in free.values())
        fits = whole >= 2 if gpus > 8 else max(free.values()) >= gpus
        assert fits == (left_out is None), (left_out, jobs)


def test_the_one_that_should_end_first_is_named() -> None:
    cluster = cluster_of(nodes=2, gpus=8)
    (pool,) = cluster.pools.values()
    runs = [
        cluster.start(a_job(name, gpus=8).job, pool.name, pool.place(8) or [], 0.0)
        for name in ("late", "soon")
    ]
    assert soonest(pool, 4, runs, lambda run, _: float(run.order == 0))[:2] == (("soon",), 0.0)
    both, seconds, _ = soonest(pool, 16, runs, lambda run, _: float(run.order == 0))
    assert (set(both), seconds) == ({"late", "soon"}, 1.0)


def test_waits_name_runs_and_those_ahead() -> None:
    for policy in (Fifo(), FifoSkip(), pellucid()):
        desk = Desk(policy, cluster_of(nodes=1, gpus=8))
        desk.submit(a_job("running", gpus=8))
        taken = desk.submit(a_job("head", gpus=4), a_job("next", gpus=4), now=1.0)
        waits = {d.job_id: d for d in taken if d.action is Action.WAIT}
        assert waits["head"].held_by == ("running",)
        behind = waits["next"].reason is Reason.BEHIND_HIGHER_PRIORITY
        assert waits["next"].held_by == (("head",) if behind else ("running",))


def test_a_reckoning_holds_while_the_gpus_it_is_about_are_as_they_were() -> None:
    cluster = cluster_of(nodes=1, gpus=8)
    ((vc, pool),) = cluster.pools.items()
    run = cluster.start(a_job("r", gpus=6).job, vc, pool.place(6) or [], 0.0)
    kept = HolderCache()
    found = kept.put(
        vc, 4, 0.0, soonest(pool, 4, [run], lambda _, level: 50.0 if level is None else 100.0)
    )
    assert kept.get(vc, 4, cluster, 10.0) == found._replace(gone_in_s=90.0)
    assert kept.get(vc, 8, cluster, 10.0) is None
    assert kept.get(vc, 4, cluster, 61.0) is None
    cluster.start(a_job("s", gpus=1).job, vc, pool.place(1) or [], 1.0)
    assert kept.get(vc, 4, cluster, 10.0) is None


def test_in_a_pool_without_gpus_nobody_is_waited_for() -> None:
    """A look at a Slurm with a job that waits in a partition without GPUs ended in a division by
    zero: nothing was said of any job."""
    desk = Desk(Fifo(), cluster_of(nodes=1, gpus=8))
    pool = desk.core.cluster.pools["vc"]
    pool.per_node = 0
    for gpus in (0, 1):
        assert soonest(pool, gpus, [], lambda *_: 60.0).jobs == ()
