"""What a follower keeps from look to look says what it would say if it were made anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any
from unittest import mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from features.amounts import Work
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Evidence
from scheduler.core.durations import DurationDistribution
from scheduler.explain.whatif import forecasts
from scheduler.explain.whatif.forecasts import WhyNot, crude, why_stuck
from scheduler.slurm.follow import planner as planning
from scheduler.slurm.follow.audit import Audit
from scheduler.slurm.follow.planner import Planner, nearby
from scheduler.slurm.follow.promises import changed
from scheduler.slurm.follow.rows import JobRows, Rows
from scheduler.slurm.follow.standing import SeenRows
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.site import Asks
from scheduler.slurm.read.snapshot import Before, ClusterSnapshot, Jobs, build_snapshot, job_of
from scheduler.slurm.twin import policy as twin_policy
from scheduler.slurm.twin.passes import Ranked
from scheduler.slurm.twin.twin import twin_in
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Scene, twin

# of each field of a job what it may be, the first as in `Scene.job`
MAY_BE: Mapping[str, Sequence[Any]] = {
    "state": ("PENDING", "RUNNING", "COMPLETED"),
    "user": ("u1", "u2"),
    "name": ("a", "b"),
    "partition": ("main", "other"),
    "submit": (NOW - 100, NOW - 50),
    "eligible": (NOW - 100, NOW + 900, None),
    "start": (None, NOW - 20, NOW + 600),
    "end": (None, NOW + 60),
    "priority": (1000, 0, 2000, 3_000_000_000),
    "reason": ("Priority", "Resources", "Dependency", "JobHeldUser", "PartitionNodeLimit"),
    "gpus": (8, 4),
    "gpu_type": ("", "a100"),
    "nodes": ((), ("n1", "n2"), ("n1",)),
    "held_gpus": ((), ((0, 1, 2, 3), (0, 1, 2, 3)), ((0, 1, 2, 3),)),
    "num_nodes": (1, 2),
    "max_nodes": (0, 2),
    "cpus": (1, 3),
    "memory_mib": (None, 512.0),
    "time_limit_s": (None, 3600.0),
    "comment": ("", "pellucid:alone"),
    "admin_comment": ("", "mine"),
    "reservation": ("", "kept"),
    "dependency": ("", "afterok:2"),
    "account": ("", "physics"),
    "qos": ("", "high"),
    "features": ("", "big"),
    "licences": ("", "matlab:2"),
    "nice": (0, 5),
    "req_nodes": ((), ("n2",)),
    "planned": ((), ("n1",)),
    "min_cpus": (1, 2),
    "least_mib": (0.0, 100.0),
    "per": ("node", "gpu"),
    "exclusive": (False, True),
    "gpu_types": ((), (("", 8),)),
    "gpus_per_node": (False, True),
    "accrue": (None, NOW - 90),
    "array_limit": (0, 2),
    "tres": ((), (("cpu", 3.0),)),
    "cpus_per_gpu": (0, 1),
    "exc_nodes": ((), ("n1",)),
    "deadline": (None, NOW + 9000),
    "odd": ((), ("--switches",)),
    "fault": ("", "GRES"),
    "gres": ((), (("shard", 1),)),
    "work": (None, Work("epoch", 90.0, 128.0, "program", "words", "rest")),
}
# sent together, as Slurm shows them
RUNS: dict[str, Any] = {"state": "RUNNING", "start": NOW - 10, **EVERYTHING}
AGAIN = {"state": "PENDING", "start": None, "nodes": (), "held_gpus": ()}
CHANGES = st.one_of(
    st.sampled_from(sorted(MAY_BE)).flatmap(
        lambda name: st.sampled_from(MAY_BE[name]).map(lambda to: {name: to})
    ),
    st.sampled_from((RUNS, AGAIN, {"priority": 0, "reason": "JobHeldUser"})),
)


def _anew(scene: Scene, before: Rows) -> Rows:
    follower = scene.follower
    assert follower._last is not None
    rows = JobRows(follower._rows._vc_of)
    rows.rows = before
    return rows.of(follower._last[0], follower.reasons, by_slurm=follower._planner.by_slurm)


def _first(queue: Sequence[SlurmJob]) -> list[SlurmJob]:
    """The jobs as `Scene.job` makes them, with all that `MAY_BE` names set to its first."""
    return [replace(job, **{name: values[0] for name, values in MAY_BE.items()}) for job in queue]


def test_every_field_of_a_job_is_among_those_that_change() -> None:
    assert MAY_BE.keys() == {one.name for one in fields(SlurmJob)} - {"id"}


def _follow(scene: Scene, queue: Sequence[SlurmJob]) -> None:
    """Take one look, of which the rows are as if they had been made anew, and keep them."""
    rows = scene.follower._rows
    scene.look(*queue)
    assert scene.follower._last is not None
    snapshot, by_slurm = scene.follower._last[0], scene.follower._planner.by_slurm
    found = rows.of(snapshot, scene.follower.reasons, by_slurm=by_slurm)
    assert found == _anew(scene, rows.rows)
    assert rows.changed(found) == [
        row for job_id, row in found.items() if rows.rows.get(job_id) != row
    ]
    rows.rows = found  # there is no database from which the next look takes them


@pytest.mark.parametrize("name", sorted(MAY_BE))
@pytest.mark.parametrize("as_it_was", [{}, RUNS, {"priority": 0, "reason": "JobHeldUser"}])
def test_kept_rows_follow_each_change(name: str, as_it_was: dict[str, Any]) -> None:
    """Of jobs that are explained and of those too far behind."""
    scene = twin(None)
    queue = _first([scene.job(n) for n in (2, 3, 4, 5)])
    queue = [replace(queue[0], **as_it_was), *queue[1:-1], replace(queue[-1], **as_it_was)]
    with mock.patch.object(planning, "LINE", 2):
        _follow(scene, queue)
        for to in (*MAY_BE[name][1:], getattr(queue[0], name)):
            _follow(scene, [replace(job, **{name: to}) for job in queue])


def test_kept_rows_follow_a_partition_that_becomes_one_with_another() -> None:
    """The jobs are as they were, their virtual cluster is not."""
    scene = twin(None)
    scene.slurm.has += [replace(scene.slurm.has[0], name="n3", partitions=("other",))]
    runs = scene.job(7, **RUNS)
    held = scene.job(4, priority=0, reason="JobHeldUser")
    queue = [runs, scene.job(2), scene.job(3, gpus=1, partition="other"), held]
    _follow(scene, queue)
    rows = scene.follower._rows
    assert {row["job_id"]: row["vc"] for row in rows.rows.values()} == {
        "7": "main", "2": "main", "3": "other", "4": "main",
    }  # fmt: skip
    _follow(scene, [*queue, scene.job(8, gpus=1, partition="main,other")])
    assert {row["vc"] for row in rows.rows.values()} == {"main+other"}


@settings(max_examples=60, deadline=None)
@given(looks=st.lists(st.lists(st.tuples(st.integers(0, 3), CHANGES), max_size=3), max_size=5))
def test_kept_rows_follow_changes_in_any_order(
    looks: list[list[tuple[int, dict[str, Any]]]],
) -> None:
    scene = twin(None)
    queue = _first([scene.job(n) for n in (2, 3, 4, 5)])
    with mock.patch.object(planning, "LINE", 2):
        for changes in [[], [], *looks, []]:
            for at, change in changes:
                queue[at] = replace(queue[at], **change)
            _follow(scene, queue)


def test_a_row_that_says_the_same_is_the_same_object_and_not_written() -> None:
    scene = twin(None)
    rows = scene.follower._rows
    queue = [scene.job(n, reason="Priority") for n in (2, 3)]
    found: list[Rows] = []
    for _ in range(2):
        scene.look(*queue)
        assert scene.follower._last is not None
        snapshot = scene.follower._last[0]
        found.append(rows.of(snapshot, scene.follower.reasons, by_slurm=True))
        wrote = rows.changed(found[-1])
        rows.rows = found[-1]
    assert found[0]["2"] is found[1]["2"]
    assert wrote == []


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(CHANGES, max_size=8), typed=st.booleans(), vc=st.sampled_from("ab"))
def test_a_kept_job_of_the_core_is_that_of_slurms_job(
    changes: list[dict[str, Any]], typed: bool, vc: str
) -> None:
    jobs, [job] = Jobs(), _first([Scene(None).job(2)])
    for change in ({}, *changes):
        job = replace(job, **change)
        for name, kind in ((vc, typed), ("a", typed), (vc, not typed)):
            assert jobs.of(job, name, typed=kind) == job_of(job, name, typed=kind)
    assert jobs.of(job, vc, typed=typed) is jobs.of(job, vc, typed=typed)


@pytest.mark.parametrize("name", sorted(MAY_BE))
def test_a_kept_request_is_that_of_slurms_job_at_the_site(name: str) -> None:
    scene = twin(None)
    [job] = _first([scene.job(2)])
    scene.look(job)
    site, asks = scene.follower._planner.site, Asks()
    assert site is not None
    part = replace(site.partitions["main"], tier=7)
    for at in (site, replace(site, partitions={"main": part})):
        again = [{name: to} for to in (*MAY_BE[name], MAY_BE[name][0])]
        for change in ({}, *again):  # the first: the same object, at another site
            job, anew = replace(job, **change) if change else job, Asks()
            assert asks.of([job], at) == anew.of([job], at)
            assert asks.shown == anew.shown
        assert asks.shown["2"] == [Ranked(asks.of([job], at)["2"], at.partitions["main"], 1000)]
        kept = asks.shown["2"]
        asks.of([job], at)
        assert asks.shown["2"] is kept
        asks.of([], at)
        assert asks.shown == {}


@settings(max_examples=30, deadline=None)
@given(looks=st.lists(st.lists(st.tuples(st.integers(0, 3), CHANGES), max_size=3), max_size=5))
def test_the_line_is_that_of_a_queue_seen_for_the_first_time(
    looks: list[list[tuple[int, dict[str, Any]]]],
) -> None:
    scene = twin(None)
    queue = _first([scene.job(n) for n in (2, 3, 4, 5)])
    with mock.patch.object(twin_policy, "MOST_RISES", 0):  # as for those far behind
        for changes in [[], *looks, []]:
            for at, change in changes:
                queue[at] = replace(queue[at], **change)
            scene.look(*queue)
            assert scene.follower._last is not None
            snapshot, planner = scene.follower._last[0], scene.follower._planner
            anew = Planner(planner._cores, planner.shape)
            anew.nodes, anew.site = planner.nodes, planner.site
            drawn = anew.draw(queue, scene.now, {})
            seen, kept = twin_in(drawn.core.policy), twin_in(snapshot.core.policy)
            assert seen is not None
            assert kept is not None
            assert kept.line() == seen.line()
            assert snapshot.order == drawn.order


def test_jobs_that_are_over_are_not_kept_for_ever() -> None:
    scene, most = twin(None), 0
    follower = scene.follower
    for n in range(2, 200):
        scene.look(scene.job(n, gpus=8))
        most = max(most, len(follower._planner._jobs._kept), len(follower._audit._seen))
    assert most < 100


def _decided(snapshot: ClusterSnapshot) -> list[tuple[object, ...]]:
    gives: list[tuple[object, ...]] = [
        (d.job_id, d.action, d.reason, d.nodes, d.gpus)
        for d in snapshot.decisions
        if d.action is not Action.WAIT
    ]
    return gives + [
        (queued.job.job_id, queued.reason, queued.obstacle)
        for queue in snapshot.core.queues.values()
        for queued in queue
    ]


def test_the_own_policy_decides_the_same_where_nobody_reads_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It described how long each of 512 jobs lasts, at each look."""
    described: list[object] = []
    once = DurationDistribution.described

    def heard(self: DurationDistribution, *of: Any) -> Evidence:
        described.append(of)
        return once(self, *of)

    monkeypatch.setattr(DurationDistribution, "described", heard)
    scene = twin(None)
    runs = scene.job(7, "RUNNING", start=NOW, gpus=4, nodes=("n1",), held_gpus=((0, 1, 2, 3),))
    waiting = [
        scene.job(n, gpus=g, submit=NOW - 9 * n) for n, g in ((2, 8), (3, 2), (4, 1), (5, 4))
    ]
    scene.look(runs, *waiting)
    assert described == []
    planner: Planner = scene.follower._planner
    assert scene.follower._last is not None
    jobs, now = nearby(*scene.follower._last), scene.now
    own = planner.own(jobs, now)
    read = build_snapshot(
        planner._cores.own(planner.shape.spec, planner.asking),
        planner.shape,
        jobs,
        planner.nodes,
        now=now,
        before=Before(),
    )
    assert described
    assert _decided(own) == _decided(read)
    assert Action.WAIT not in {d.action for d in own.decisions}
    assert Action.WAIT in {d.action for d in read.decisions}
    assert own.core.cluster.runs.keys() == read.core.cluster.runs.keys() > {"7"}
    assert all(d.evidence for d in read.decisions)


@settings(max_examples=100, deadline=None)
@given(looks=st.lists(st.lists(st.tuples(st.integers(0, 2), CHANGES), max_size=2), max_size=6))
@example(looks=[[], [(0, {"qos": "high"})], [(0, {"qos": ""})]])
def test_a_claim_is_dropped_when_the_job_has_changed_since_however_many_looks_ago(
    looks: list[list[tuple[int, dict[str, Any]]]],
) -> None:
    queue = _first([Scene(None).job(n) for n in (2, 3, 4)])
    audit, asked = Audit(), dict[str, SlurmJob]()
    made = {job: job for job in queue}  # one that is again as it was is the same object
    for changes in looks:
        for at, change in changes:
            job = replace(queue[at], **change)
            queue[at] = made.setdefault(job, job)
        waiting = {job.id: job for job in queue if job.state == "PENDING"}
        audit.look(mock.Mock(waiting=waiting, running={}, now=NOW))
        kept = {j: was for j, was in asked.items() if j in waiting and not changed(was, waiting[j])}
        asked = waiting | kept
        assert audit._asked == asked


def test_a_start_is_estimated_from_the_jobs_ahead_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """For one new job, each of 10,000 was asked whether it can ever start."""
    scene = twin(None)
    runs = scene.job(7, "RUNNING", start=NOW, gpus=4, nodes=("n1",), held_gpus=((0, 1, 2, 3),))
    never: dict[str, Any] = {"num_nodes": 3, "reason": "PartitionNodeLimit"}
    queue = [
        scene.job(n, gpus=1 + n % 8, priority=2000 - n, **(never if n % 5 == 0 else {}))
        for n in range(10, 30)
    ]
    scene.look(runs, *queue)
    assert scene.follower._last is not None
    core, memory = scene.follower._last[0].core, scene.follower.memory
    whole = crude(core, memory, scene.now)
    assert WhyNot.REFUSED in {one.why_not for one in whole.values()}
    line = [queued.job.job_id for queued in core.queues["main"]]
    others = [job_id for job_id in core.jobs if job_id not in line]
    assert len(line) > 15
    for job_id in line:
        asked: list[str] = []

        def heard(of: Core, one: str, asked: list[str] = asked) -> WhyNot | None:
            asked.append(one)
            return why_stuck(of, one)

        monkeypatch.setattr(forecasts, "why_stuck", heard)
        assert crude(core, memory, scene.now, {job_id})[job_id] == whole[job_id]
        monkeypatch.undo()
        assert asked == [*others, *line[: line.index(job_id) + 1]]


def test_a_row_is_made_when_it_is_asked_for_and_once() -> None:
    scene = twin(None)
    held = scene.job(4, priority=0, reason="JobHeldUser")
    scene.look(scene.job(2), scene.job(3), held)
    assert scene.follower._last is not None
    rows = SeenRows(scene.follower._last[0], {})
    assert (list(rows), len(rows), "4" in rows, "5" in rows) == (["2", "3", "4"], 3, True, False)
    assert list(rows._made) == []
    assert rows["4"] is rows["4"]
    assert list(rows._made) == ["4"]
    assert rows["4"].slurm is not None
    assert rows["4"].slurm.left_out.startswith("held in Slurm")
    assert rows.get("5") is None
