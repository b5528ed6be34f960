"""GPUs that do not answer, from the event on: who is told, who starts where, and what survives."""

from __future__ import annotations

from pathlib import Path

import pytest

from features.schema import State
from scheduler.backends.events import Event, Kind
from scheduler.core.cluster import ClusterSpec
from scheduler.service.log.audit import audit
from scheduler.service.log.nodes import well_formed
from scheduler.service.log.store.reads import Reads, VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.desk import Desk, lasting

WHY = "the GPU is lost"
TOLD = "GPU 3 of node node000, which it runs on, does not answer: the GPU is lost"


class Site(Desk):
    """Nodes of eight GPUs."""

    def says(self, *gpus: int) -> None:
        """Its backend tells which GPUs of the first node do not answer."""
        body = {"node": 0, "closed": {str(gpu): WHY for gpu in gpus}}
        self.store.append([Event(Kind.GPUS_CLOSED, self.world.now(), body=body)])
        self.turn(1.0)

    def view(self) -> VisibleQueries:
        return Reads(self.store.engine).seen_by(Viewer("op", Role.OPERATOR))

    def start(self, job_id: str, gpus: int) -> None:
        self.submit(job_id, gpus=gpus)
        self.turn(1.0)
        self.turn(1.0)

    def placed(self, job_id: str) -> dict[int, list[int]]:
        return self.view().job(job_id).placement


def a_site(store: Store, folder: Path, nodes: int = 1, **more: int) -> Site:
    lasts = {"on": lasting(500.0), "beside": lasting(700.0), "gang": lasting(300.0)}
    return Site(store, folder, lasts, cluster=ClusterSpec({"vc": nodes}, 8), **more)


def test_lost_while_idle_it_is_given_to_nobody_until_it_answers_again(
    store: Store, tmp_path: Path
) -> None:
    site = a_site(store, tmp_path)
    site.says(3)
    site.start("seven", 7)
    assert site.placed("seven") == {0: [0, 1, 2, 4, 5, 6, 7]}
    site.start("one", 1)
    waits = site.view().job("one")
    assert (waits.phase, waits.placement) == ("queued", {})
    [load] = site.view().load()
    assert (load.gpus, load.free, load.closed) == (8, 0, 1)
    [node] = site.view().cluster()
    assert [gpu.index for gpu in node.silent] == [3]
    site.says()
    assert site.placed("one") == {0: [3]}
    assert site.view().cluster()[0].silent == []
    site.until_idle()


def test_a_job_that_runs_on_it_is_told_and_those_beside_it_are_not(
    store: Store, tmp_path: Path
) -> None:
    site = a_site(store, tmp_path)
    site.start("beside", 2)
    site.start("on", 2)
    assert site.placed("on") == {0: [2, 3]}
    site.says(3)
    assert site.view().job("on").detail == TOLD
    assert site.view().job("beside").detail == ""
    assert site.view().job("on").phase == "running"
    site.start("next", 4)
    assert site.placed("next") == {0: [4, 5, 6, 7]}, "nobody waits for the node to be idle"
    site.says()
    assert site.view().job("on").detail == ""
    site.until_idle()
    assert audit(site.store, site.bundle_store.find, decide_again=True).clean


def test_one_that_fails_on_it_ends_with_that_reason(store: Store, tmp_path: Path) -> None:
    site = a_site(store, tmp_path)
    site.start("on", 8)
    site.says(3)
    body = {
        "attempt": 1,
        "state": State.FAILED.value,
        "exit_code": 1,
        "ran_s": 9.0,
        "detail": "it exits",
    }
    site.store.append([Event(Kind.ENDED, site.world.now(), "on", body=body)])
    site.turn(1.0)
    assert site.view().job("on").detail == f"{TOLD}; it exits"


def test_a_gang_over_it_is_told_and_the_next_one_waits_for_it(store: Store, tmp_path: Path) -> None:
    site = a_site(store, tmp_path, nodes=2)
    site.start("gang", 16)
    site.says(3)
    assert site.view().job("gang").detail == TOLD
    site.start("whole", 16)
    site.turn(400.0)
    site.turn(400.0)
    assert site.view().job("gang").phase == "ended"
    assert site.view().job("whole").reason == "NodeDrained"
    site.says()
    assert site.placed("whole") == {0: list(range(8)), 1: list(range(8))}
    site.until_idle()
    assert audit(site.store, site.bundle_store.find, decide_again=True).clean


@pytest.mark.parametrize("snapshot_every", [1, 10_000])
def test_it_stays_closed_over_a_restart(store: Store, tmp_path: Path, snapshot_every: int) -> None:
    """By way of a snapshot, and by the whole log."""
    site = a_site(store, tmp_path, snapshot_every=snapshot_every)
    site.start("on", 4)
    since = site.world.now()
    site.says(3, 7)
    site.restart()
    [record] = site.decider.state.ledger.nodes.records.values()
    assert [(one.gpu, one.since, one.why) for one in record.closed_gpus] == [
        (3, since, WHY),
        (7, since, WHY),
    ]
    assert site.decider.state.core.cluster.pools["vc"].closed_on(0) == 0b1000_1000
    site.start("next", 4)
    assert site.placed("next") == {}, "three of eight are free and answer"
    assert site.view().job("on").detail == TOLD
    site.says(3)
    site.restart()
    site.turn(1.0)
    assert site.placed("next") == {0: [4, 5, 6, 7]}
    site.says()
    site.until_idle()
    assert audit(site.store, site.bundle_store.find, decide_again=True).clean


def test_killed_between_the_event_and_its_pass_it_is_closed_all_the_same(
    store: Store, tmp_path: Path
) -> None:
    site = a_site(store, tmp_path)
    body = {"node": 0, "closed": {"3": WHY}}
    site.store.append([Event(Kind.GPUS_CLOSED, site.world.now(), body=body)])
    site.restart()
    site.start("eight", 8)
    assert site.placed("eight") == {}
    site.says()
    site.until_idle()


def test_a_drain_and_its_end_leave_it_closed(store: Store, tmp_path: Path) -> None:
    site = a_site(store, tmp_path)
    site.says(3)
    site.ask(Kind.NODE_SET, node=0, open=False, reason="the fan")
    site.turn(1.0)
    site.ask(Kind.NODE_SET, node=0, open=True, reason="")
    site.turn(1.0)
    site.start("eight", 8)
    assert site.placed("eight") == {}
    assert [gpu.closed for gpu in site.view().cluster()[0].silent] == [WHY]
    site.says()
    site.until_idle()


@pytest.mark.parametrize(
    ("body", "good"),
    [
        ({"node": 0, "closed": {"3": WHY}}, True),
        ({"node": 0, "closed": {}}, True),
        ({"node": 0, "closed": {"-3": WHY}}, False),
        ({"node": 0, "closed": {"99999999999": WHY}}, False),
        ({"node": 0, "closed": {"3": None}}, False),
        ({"node": 0, "closed": ["3"]}, False),
        ({"node": "0", "closed": {}}, False),
        ({"node": 0}, False),
    ],
)
def test_a_line_that_says_nothing_closes_nothing(body: dict[str, object], good: bool) -> None:
    assert well_formed(Event(Kind.GPUS_CLOSED, 0.0, body=body)) is good
