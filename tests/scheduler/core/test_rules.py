"""Which two jobs may share GPUs: asked by policies, and enforced on those that do not ask."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Job, Profile
from scheduler.core.capabilities import Capabilities
from scheduler.core.cluster import Cluster, ClusterSpec, NodeGroup, Placement
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Reason
from scheduler.core.policy import Policy
from scheduler.core.queue import QueuedJob
from scheduler.core.rules import PolicyViolation
from scheduler.core.turn import Turn
from scheduler.testing.builders import Desk, a_job, cluster_of, truth

GIB = 1024.0


class FirstTry(Policy):
    """Packs whoever does not fit beside the oldest run, and asks nobody."""

    name = "first-try"
    capabilities = Capabilities(packs=True)

    def serve(self, turn: Turn) -> None:
        for queued in list(turn.queue):
            placement = turn.pool.place(queued.job.gpus)
            if placement is not None:
                turn.start(queued, placement)
            elif turn.alone(queued.job.gpus):
                turn.pack(queued, turn.alone(queued.job.gpus)[0])
            else:
                turn.wait(queued, turn.capacity_reason(queued))


class Roomy(FirstTry):
    capabilities = Capabilities(packs=True, memory_margin_mib=4 * GIB)


def a_pair(own_mib: float, other_mib: float, policy: Policy | None = None) -> Core:
    """A job that fills a GPU of 24 GiB, and one about to be packed beside it."""
    desk = Desk(policy or FirstTry(), cluster_of(gpus=1))
    desk.submit(a_job("runs"))
    desk.core.jobs["runs"].profile = Profile(50.0, 30.0, other_mib)
    desk.core.submitted(a_job("waits", at=1.0).job, 1.0)
    desk.core.jobs["waits"].profile = Profile(50.0, 30.0, own_mib)
    return desk.core


def test_a_policy_that_packs_20_beside_20_gib_on_24_is_stopped() -> None:
    core = a_pair(20 * GIB, 20 * GIB)
    with pytest.raises(PolicyViolation, match=r"job waits .* job runs: `may_share` says MEMORY"):
        core.decide(1.0)
    assert core.cluster.runs["runs"].partner is None
    assert "waits" not in core.cluster.runs


def test_what_fits_is_packed_and_a_margin_is_kept() -> None:
    (packed,) = [d for d in a_pair(13 * GIB, 10 * GIB).decide(1.0) if d.action is Action.PACK]
    assert packed.partner == "runs"
    with pytest.raises(PolicyViolation, match="says MEMORY"):
        a_pair(13 * GIB, 10 * GIB, Roomy()).decide(1.0)


@pytest.mark.parametrize("mib", [float("nan"), 24 * GIB])
def test_memory_that_was_not_read_does_not_fit(mib: float) -> None:
    with pytest.raises(PolicyViolation, match="says MEMORY"):
        a_pair(mib, 1.0).decide(1.0)


def test_who_was_never_profiled_shares_with_nobody_unless_the_policy_predicts_it() -> None:
    core = a_pair(1.0, 1.0)
    core.jobs["waits"].profile = None
    with pytest.raises(PolicyViolation, match="says PROFILE"):
        core.decide(1.0)
    core.jobs["waits"].predicted_mib = 23 * GIB
    assert Turn(core, "vc", 1.0).may_share(core.jobs["waits"], core.cluster.runs["runs"]) is None


def newcomer_opted_out(core: Core) -> None:
    known = core.jobs["waits"]
    known.job = replace(known.job, share=False)


def partner_opted_out(core: Core) -> None:
    run = core.cluster.runs["runs"]
    run.job = replace(run.job, share=False)


def being_profiled(core: Core) -> None:
    core.cluster.runs["runs"].profiling = True


def partnered(core: Core) -> None:
    core.submitted(a_job("third").job, 1.0)
    core.jobs["third"].profile = Profile(50.0, 30.0, 1.0)
    Turn(core, "vc", 1.0).pack(core.jobs["third"], core.cluster.runs["runs"])


def typed(core: Core) -> None:
    known = core.jobs["waits"]
    known.job = replace(known.job, gpu_type="other")


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda core: None, None),
        (newcomer_opted_out, Reason.SHARING_OPTED_OUT),
        (partner_opted_out, Reason.SHARING_OPTED_OUT),
        (lambda core: core.nodes.set_open(0, False), Reason.NODE_DRAINED),
        (lambda core: core.cluster.pools["vc"].reserve([(0, 1)]), Reason.RESERVED_FOR_STARVING_JOB),
        (being_profiled, Reason.AWAITING_PROFILE),
        (partnered, Reason.GPUS_BUSY),
        (typed, Reason.NO_MATCHING_GPU_TYPE),
    ],
    ids=["none", "newcomer", "partner", "drained", "held", "profiling", "partnered", "type"],
)
def test_each_rule_stops_a_pair_on_its_own(
    change: Callable[[Core], None], rule: Reason | None
) -> None:
    spec = ClusterSpec.mixed({"vc": [NodeGroup("this", 1, 1)]})
    core = Core(Cluster(spec), Typeless(), truth([]))
    core.submitted(a_job("runs").job, 0.0)
    core.decide(0.0)
    core.submitted(a_job("waits", at=1.0).job, 1.0)
    for job_id in ("runs", "waits"):
        core.jobs[job_id].profile = Profile(50.0, 30.0, 1.0)
    change(core)
    turn, run = Turn(core, "vc", 1.0), core.cluster.runs["runs"]
    assert turn.may_share(core.jobs["waits"], run) is rule
    if rule is not None:
        with pytest.raises(PolicyViolation):
            turn.pack(core.jobs["waits"], run)


class Typeless(FirstTry):
    capabilities = Capabilities(packs=True, mixes_types=True)


def test_a_run_of_another_size_or_owner_takes_no_partner() -> None:
    desk = Desk(FirstTry(), cluster_of(nodes={"vc": 1, "two": 1}, gpus=2))
    desk.submit(a_job("runs", gpus=2), a_job("elsewhere", gpus=1, vc="two"))
    desk.core.submitted(a_job("waits", gpus=1, at=1.0).job, 1.0)
    for job_id in ("runs", "elsewhere", "waits"):
        desk.core.jobs[job_id].profile = Profile(50.0, 30.0, 1.0)
    turn = Turn(desk.core, "vc", 1.0)
    for job_id in ("runs", "elsewhere"):
        rule = turn.may_share(desk.core.jobs["waits"], desk.run(job_id))
        assert rule is Reason.GPUS_BUSY


def test_the_memory_that_a_pair_has_is_that_of_the_node_it_is_on() -> None:
    """Not the cluster's: nodes differ."""
    small, large = NodeGroup("", 1, 1, 16 * GIB), NodeGroup("", 1, 1, 80 * GIB)
    spec = ClusterSpec.mixed({"small": [small], "large": [large]}, gpu_memory_mib=40 * GIB)
    desk = Desk(FirstTry(), Cluster(spec))
    desk.submit(a_job("small runs", vc="small"), a_job("large runs", vc="large"))
    core = desk.core
    for vc in ("small", "large"):
        core.submitted(a_job(f"{vc} waits", vc=vc).job, 0.0)
        for job_id in (f"{vc} runs", f"{vc} waits"):
            core.jobs[job_id].profile = Profile(50.0, 30.0, 12 * GIB)
    for vc, rule in (("small", Reason.MEMORY_GUARD), ("large", None)):
        turn = Turn(core, vc, 0.0)
        assert turn.may_share(core.jobs[f"{vc} waits"], core.cluster.runs[f"{vc} runs"]) is rule


# --- placements -----------------------------------------------------------------------------------


class Drawn(Policy):
    """Does nothing by itself: the test acts."""

    name = "drawn"

    def __init__(self, *, borrows: bool):
        super().__init__()
        self.capabilities = Capabilities(mixes_types=True, borrows=borrows)

    def serve(self, turn: Turn) -> None:
        for queued in list(turn.queue):
            turn.wait(queued, turn.capacity_reason(queued))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Cluster, set[int], Placement]:
    """Nodes of two virtual clusters, of several sizes and types, some profiled on.

    Also which are drained, and the GPUs that are kept.
    """
    groups = st.builds(
        NodeGroup,
        st.sampled_from(["A", "A", "a", "B", ""]),
        st.integers(1, 2),
        st.sampled_from([1, 2, 4]),
    )
    spec = ClusterSpec.mixed(
        {vc: draw(st.lists(groups, min_size=1, max_size=3)) for vc in ("own", "other")}
    )
    cluster = Cluster(spec, {"own": draw(st.integers(0, 1))})
    shut = {node for node in cluster.nodes if draw(st.integers(0, 5)) == 0}
    for node in shut:
        cluster.set_open(node, False)
    kept: Placement = []
    for node, has in cluster.nodes.items():
        if node not in cluster.profiling and draw(st.integers(0, 3)) == 0:
            kept.append((node, draw(st.integers(1, (1 << has.gpus) - 1))))
    for part in kept:
        cluster.pool_of(part[0]).reserve([part])
    return cluster, shut, kept


def is_legal(
    cluster: Cluster, shut: set[int], kept: Placement, job: Job, given: Placement, borrows: bool
) -> bool:
    """The rules, GPU by GPU."""
    nodes = [node for node, _ in given]
    gpus = {(node, i) for node, mask in given for i in range(9) if mask >> i & 1}
    held = {
        (node, i)
        for run in cluster.runs.values()
        for node, mask in [*zip(run.nodes, run.gpus, strict=True)]
        for i in range(9)
        if mask >> i & 1
    }
    there = {(node, i) for node, has in cluster.nodes.items() for i in range(has.gpus)}
    reserved = {(node, i) for node, mask in kept for i in range(9) if mask >> i & 1}
    if not gpus <= there - held - reserved or len(set(nodes)) < len(nodes):
        return False
    if any(mask == 0 for _, mask in given) or len(gpus) != job.gpus or shut & set(nodes):
        return False
    if any(node in cluster.profiling for node in nodes):
        return False
    types = {cluster.nodes[node].gpu_type.casefold() for node in nodes}
    asked = (job.gpu_type or "").casefold()
    if len(types) > 1 or (asked and types - {asked, ""}):
        return False
    return borrows or all(cluster.node_vc[node] == job.vc for node in nodes)


@settings(max_examples=150)
@given(data=st.data(), world=clusters(), borrows=st.booleans())
def test_random_placements_are_carried_out_where_legal_and_refused_where_not(
    data: st.DataObject, world: tuple[Cluster, set[int], Placement], borrows: bool
) -> None:
    cluster, shut, kept = world
    core = Core(cluster, Drawn(borrows=borrows), truth([]))
    turn = Turn(core, "own", 0.0)
    for i in range(data.draw(st.integers(1, 5), label="jobs")):
        nodes = st.integers(-(i % 2), len(cluster.nodes) - 1 + i % 2)  # at times none such
        given = [
            (node, data.draw(st.sampled_from([1, 1, 3, 15, 2, 0, -1, 16]), label="gpus"))
            for node in data.draw(st.lists(nodes, max_size=3), label="nodes")
        ]
        total = sum(max(mask, 0).bit_count() for _, mask in given)
        wanted = data.draw(st.sampled_from([total, total, total, total + 1]), label="asked")
        gpu_type = data.draw(st.sampled_from([None, None, "A", "B"]), label="type")
        sample = a_job(f"j{i}", gpus=wanted, vc="own")
        queued = QueuedJob(replace(sample.job, gpu_type=gpu_type), i)
        turn.queue.insert(queued)
        before = {pool.name: dict(pool._free_gpus) for pool in cluster.pools.values()}
        if is_legal(cluster, shut, kept, queued.job, given, borrows):
            turn.start(queued, given)
            assert cluster.runs[f"j{i}"].gpus == tuple(mask for _, mask in given)
            assert queued not in turn.queue
        else:
            with pytest.raises(PolicyViolation, match=rf"drawn may not start job j{i} \("):
                turn.start(queued, given)
            assert {pool.name: pool._free_gpus for pool in cluster.pools.values()} == before
            assert queued in turn.queue
        cluster.validate()


@pytest.mark.parametrize(
    ("given", "story"),
    [
        ([(0, 0b11)], "they are 2 GPUs, and it asked for 1"),
        ([(9, 0b1)], "there is no node 9"),
        ([(0, 0b100)], "node 0 has 2 GPUs, and no such ones"),
        ([(1, 0b1)], "GPUs of node 1 are held by job runs"),
        ([(2, 0b1)], "node 2 is drained"),
        ([(3, 0b1)], "GPUs of node 3 are kept for another waiting job"),
        ([(4, 0b1)], "node 4 has GPUs of type B, and it asked for A"),
        ([(5, 0b1)], "node 5 is of virtual cluster two, and the policy does not borrow"),
    ],
)
def test_the_story_of_a_refusal(given: Placement, story: str) -> None:
    nodes = {"one": [NodeGroup("A", 4, 2), NodeGroup("B", 1, 2)], "two": [NodeGroup("A", 1, 2)]}
    cluster = Cluster(ClusterSpec.mixed(nodes))
    core = Core(cluster, Drawn(borrows=False), truth([]))
    cluster.start(a_job("runs", vc="one").job, "one", [(1, 0b1)], 0.0)
    core.nodes.set_open(2, False)
    cluster.pools["one"].reserve([(3, 0b1)])
    core.submitted(replace(a_job("mine", vc="one").job, gpu_type="A"), 0.0)
    with pytest.raises(PolicyViolation) as raised:
        Turn(core, "one", 0.0).start(core.jobs["mine"], given)
    assert str(raised.value).startswith("drawn may not start job mine (1 GPUs of type A) on GPU")
    assert str(raised.value).endswith(story)


def test_a_job_that_does_not_wait_cannot_be_started_and_who_does_not_pack_must_not() -> None:
    desk = Desk(Drawn(borrows=False), cluster_of(gpus=2))
    desk.submit(a_job("a"), a_job("b"))
    turn, queued = Turn(desk.core, "vc", 0.0), desk.core.jobs["a"]
    turn.start(queued, [(0, 0b1)])
    with pytest.raises(PolicyViolation, match="it does not wait in this queue"):
        turn.start(queued, [(0, 0b10)])
    for job_id in ("a", "b"):
        desk.core.jobs[job_id].profile = Profile(50.0, 30.0, 1.0)
    with pytest.raises(PolicyViolation, match=r"drawn may not pack .* not declared that it packs"):
        turn.pack(desk.core.jobs["b"], desk.run("a"))
    with pytest.raises(PolicyViolation, match="of another virtual cluster"):
        turn.reserve(desk.core.jobs["b"], [(1, 0b1)], [])


def test_gpus_that_are_not_free_cannot_be_taken() -> None:
    pool = cluster_of().pools["vc"]
    pool.take([(0, 0b11)])
    with pytest.raises(ValueError, match="not free"):
        pool.take([(0, 0b110)])
    assert pool.free == 6
