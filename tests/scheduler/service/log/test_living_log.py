"""What the fold makes of events about nodes and settings that nobody checked, or that come late."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from scheduler.backends.events import Kind
from scheduler.core.cluster import ClusterSpec
from scheduler.core.decisions import Reason
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.audit import audit
from scheduler.service.log.followed import followed
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting

Make = Callable[..., Desk]
A_NODE = {"vc": "vc", "gpus": 4, "gpu_type": "V100", "gpu_memory_mib": 24_576.0}


@pytest.fixture
def make(store: Store, tmp_path: Path) -> Make:
    return partial(Desk, store, tmp_path)


MALFORMED: list[tuple[Kind, dict[str, Any]]] = [
    (Kind.SETTINGS_SET, {}),
    (Kind.SETTINGS_SET, {"settings": [1]}),
    (Kind.SETTINGS_SET, {"settings": "ageing"}),
    (Kind.SETTINGS_SET, {"settings": {"ageing": {}}}),
    (Kind.SETTINGS_SET, {"settings": {"ageing": 1.7e308}}),
    (Kind.SETTINGS_SET, {"settings": {"gpu_types": {"counted_on": "\ud800"}}}),
    (Kind.NODE_ADDED, A_NODE),
    (Kind.NODE_ADDED, {"name": "n", **A_NODE, "gpus": 0}),
    (Kind.NODE_ADDED, {"name": "n", **A_NODE, "gpus": True}),
    (Kind.NODE_ADDED, {"name": "n", **A_NODE, "gpus": 10**9}),
    (Kind.NODE_ADDED, {"name": "n", **A_NODE, "gpu_memory_mib": -1}),
    (Kind.NODE_ADDED, {"name": "n", **A_NODE, "vc": ["vc"]}),
    (Kind.NODE_CHANGED, {"node": 1}),
    (Kind.NODE_CHANGED, {"node": 1, **A_NODE, "gpu_type": None}),
    (Kind.NODE_REMOVED, {}),
    (Kind.NODE_REMOVED, {"node": [1]}),
    (Kind.NODE_SET, {"node": 1}),
    (Kind.NODE_SET, {"node": 1, "open": False, "reason": ["fan"]}),
]


def test_an_event_without_the_body_of_its_kind_changes_nothing(make: Make) -> None:
    desk = make(policy="pellucid")
    desk.turn()
    before = dict(desk.decider.state.core.cluster.nodes)
    for kind, body in MALFORMED:
        desk.ask(kind, **body)
        desk.turn()
        state = desk.decider.state
        assert (state.core.cluster.nodes, state.present.settings) == (before, None), (kind, body)
        assert state.ledger.nodes.closed == [], (kind, body)
    desk.submit("after")
    desk.until_idle()
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean


@pytest.mark.parametrize("again", [False, True])
def test_a_running_pellucid_places_by_type_once_another_type_comes(make: Make, again: bool) -> None:
    desk = make(policy="pellucid")
    desk.turn()
    desk.ask(Kind.NODE_ADDED, name="a1", **{**A_NODE, "gpu_type": "A100"})
    desk.turn()
    if again:
        follow_anew(desk)
    desk.submit("gang", gpus=12)
    for name in ("asks", "too", "waits"):
        desk.submit(name, gpus=4, gpu_type="V100")
    desk.turn()
    cluster = desk.decider.state.core.cluster
    on = {
        name: {cluster.nodes[n].gpu_type for n in run.nodes} for name, run in cluster.runs.items()
    }
    assert on == {"asks": {"V100"}, "too": {"V100"}}, "no gang across types, no other type"


def follow_anew(desk: Desk) -> None:
    with desk.store.reading() as connection:
        upto = desk.store.last_seq_in(connection)
        desk.decider.state = followed(connection, desk.store, desk.bundle_store.find, upto)


def test_settings_are_for_the_types_of_now_and_those_that_wait(make: Make) -> None:
    desk = make(outcomes={"x": lasting(1e4)}, policy="pellucid")
    desk.submit("x", gpus=8)
    desk.turn()
    desk.ask(Kind.NODE_CHANGED, node=0, **{**A_NODE, "gpu_type": "A100"})
    speeds = {"V100": 1.0, "A100": 2.0}
    for known in (["V100"], ["A100"], ["V100", "A100"]):
        table = {name: speeds[name] for name in known}
        desk.ask(Kind.SETTINGS_SET, settings={"gpu_types": {"speeds": table}})
        desk.turn()
        state = desk.decider.state
        assert (state.present.settings is not None) is (len(known) == 2), "one type has no speed"
    follow_anew(desk)
    desk.until_idle()
    desk.submit("y", gpus=1)
    desk.submit("z", gpus=4, gpu_type="A100")
    desk.until_idle()
    assert (desk.phase("y"), desk.phase("z")) == ("ended", "ended")
    assert desk.decider.state.core.policy.fits(desk.decider.state.core.cluster.spec)


def test_a_core_is_built_anew_while_a_job_waits_where_no_node_is_left(make: Make) -> None:
    desk = make()
    desk.ask(Kind.NODE_ADDED, name="n", **{**A_NODE, "vc": "new"})
    desk.turn()
    desk.submit("runs", gpus=4, vc="new")
    desk.submit("waits", gpus=4, vc="new")
    desk.turn()
    desk.ask(Kind.NODE_REMOVED, node=2)
    desk.turn(100.0)
    desk.turn(100.0)
    assert 2 not in desk.decider.state.core.cluster.nodes
    follow_anew(desk)
    desk.turn()
    assert desk.phase("waits") == "queued"
    desk.ask(Kind.NODE_ADDED, name="m", **{**A_NODE, "vc": "new"})
    desk.until_idle()
    assert desk.phase("waits") == "ended"


def test_a_core_built_anew_orders_by_what_jobs_were_predicted_last(make: Make) -> None:
    desk = make(outcomes={"bob0": lasting(20_000.0)}, policy="pellucid")
    desk.ask(Kind.SETTINGS_SET, settings={"predict_again_s": 60.0})
    for number in range(8):
        for owner in ("ann", "bob"):
            desk.submit(f"{owner}{number}", gpus=8, owner=owner, share=False)
    core = desk.decider.state.core
    first: dict[str, float | None] = {}
    for _ in range(300):
        desk.turn(100.0)
        core = desk.decider.state.core
        first = first or {job: core.jobs[job].predicted_s for job in core.jobs}
        waiting = [queued.job.job_id for queued in core.queues["vc"]]
        if len(waiting) == 4:
            break
    said = {job: core.jobs[job].predicted_s for job in waiting}
    assert all(said[job] != first[job] for job in waiting)
    follow_anew(desk)
    core = desk.decider.state.core
    assert {job: core.jobs[job].predicted_s for job in waiting} == pytest.approx(said, rel=0.03)


def test_a_node_that_goes_back_to_a_job_leaves_the_job_where_it_is(make: Make) -> None:
    """The decision names the job that lacked the node: the decider took it for one about it."""
    desk = make(
        {"long": lasting(900.0), "wide": lasting(60.0)},
        policy="pellucid",
        cluster=ClusterSpec({"vc": 5}, 4, gpu_type="V100"),
        partition=ProfilingPartition(nodes={"vc": 2}, limit_s=60.0, largest_share=1.0),
    )
    desk.turn()
    desk.submit("long", gpus=4)
    desk.turn()
    desk.submit("wide", gpus=12)
    decided = desk.turn()
    assert Reason.NODE_MISSED in {d.reason for d in decided}
    assert desk.decider.state.ledger.records["wide"].phase.holds_gpus
    desk.restart()
    desk.until_idle()
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean
