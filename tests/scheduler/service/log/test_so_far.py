"""What the wait of a job of a service was made of, so far."""

from __future__ import annotations

from pathlib import Path

from scheduler.backends.events import Kind
from scheduler.service.api.explanation import explain
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from scheduler.service.pages.story import page_of
from tests.scheduler.service.desk import CLUSTER, Desk, lasting

OPERATOR, ANN = Viewer("op", Role.OPERATOR), Viewer("ann", Role.SUBMITTER)
HOUR_S = 3600.0


def test_who_had_the_gpus_is_summed_and_named_to_who_may_see_it(
    store: Store, tmp_path: Path
) -> None:
    desk = Desk(store, tmp_path, {"long": lasting(9 * HOUR_S), "short": lasting(HOUR_S)})
    assert CLUSTER.vcs == {"vc": 2}
    desk.submit("short", gpus=4, owner="bob")
    desk.submit("long", gpus=4, owner="bob")
    desk.turn()
    desk.submit("waits", gpus=8)
    desk.turn()
    for _ in range(8):
        desk.turn(HOUR_S / 4)
    desk.ask(Kind.HELD, "waits", operator=True)
    desk.turn()
    for _ in range(4):
        desk.turn(HOUR_S / 4)
    desk.ask(Kind.RELEASED, "waits", operator=True)
    desk.turn()

    def said(viewer: Viewer) -> str:
        view = PageQueries(store, viewer)
        told = explain(view, "waits", desk.world.now()).wait
        assert told == page_of(view, "waits").drawn.story.wait
        return told

    wait = (
        "Job waits (8 GPUs, vc) has waited 2 h, 16 GPU hours of its 8 GPUs (100 % GPUs busy). "
        "Meanwhile {}. Besides, 1 h held by operator: that is no waiting."
    )
    assert said(ANN) == wait.format("2 jobs had 12 GPU hours")
    assert said(OPERATOR) == wait.format(
        "job long had 8 GPU hours (has run 3 h) and job short had 4 GPU hours (ran 1 h)"
    )
    desk.until_idle()
    assert said(OPERATOR).startswith("Job waits (8 GPUs, vc) waited 8 h, 64 GPU hours of its 8")
