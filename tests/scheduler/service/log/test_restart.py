"""A restart with another cluster file: what differs is said, and applied or ignored as chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scheduler.assembly import CoreSpec, Stated
from scheduler.backends.events import Kind
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.core.settings import ProfilingPartition
from scheduler.service.log.audit import audit
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.present import Present
from scheduler.service.log.restart import Choice, FileDiffers, settle
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import START, Desk, lasting

V100 = NodeGroup("V100", 2, 4)


def file(vc: int = 2, *more: NodeGroup, policy: str = "pellucid", **values: Any) -> CoreSpec:
    """A cluster file: nodes of 4 V100 in `vc` without names, and others."""
    groups = [NodeGroup("V100", vc, 4)] if vc else []
    return CoreSpec.of(ClusterSpec.mixed({"vc": [*groups, *more]}), policy, values)


def named(*names: str, gpus: int = 4) -> NodeGroup:
    return NodeGroup("V100", len(names), gpus, names=names)


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    """Two nodes of 4 V100, `node000` and `node001`."""
    return Desk(store, tmp_path, {"long": lasting(5000.0)}, policy="pellucid")


def settled(desk: Desk, spec: CoreSpec, choice: Choice | None = None) -> Present:
    return settle(desk.store, spec, choice=choice, actor="root", at=lambda _: START)


def lines(desk: Desk, spec: CoreSpec, choice: Choice | None = None) -> list[str]:
    """What is said of a file; nothing may have changed."""
    before = desk.store.last_seq()
    with pytest.raises(FileDiffers) as raised:
        settled(desk, spec, choice)
    assert desk.store.last_seq() == before
    assert "\n" not in str(raised.value)
    return raised.value.differences


def test_the_same_file_just_starts(desk: Desk) -> None:
    settled(desk, file())
    settled(desk, file(), "apply")
    settled(desk, CoreSpec.of(ClusterSpec({"vc": 2}, 4, gpu_type="V100"), "pellucid"))


def test_a_file_edited_after_the_operator_s_changes_just_starts(desk: Desk) -> None:
    has = {"vc": "vc", "gpus": 4, "gpu_type": "V100", "gpu_memory_mib": 24_576.0}
    desk.ask(Kind.NODE_ADDED, name="gpu9", **has)
    settings = {**file().settings.plain(), "ageing": 0.5}
    desk.ask(Kind.SETTINGS_SET, settings=settings, reason="")
    for spec in (file(3, ageing=0.5), file(2, named("gpu9"), ageing=0.5)):
        settled(desk, spec)  # before any pass
        desk.turn()
        settled(desk, spec)
    assert lines(desk, file(ageing=0.3)) == [
        "policy.ageing: file 0.3, log 0.5",
        "node gpu9: in the log, not in the file",
    ]
    assert lines(desk, file()) == ["node gpu9: in the log, not in the file"], "no ageing stated"
    desk.ask(Kind.NODE_REMOVED, node=2, reason="sold")
    settled(desk, file(ageing=0.5))  # whether it has left yet or not
    desk.turn()
    settled(desk, file(ageing=0.5))


def test_what_a_file_does_not_state_stays_when_it_is_applied(desk: Desk) -> None:
    settings = {**file().settings.plain(), "ageing": 0.5, "borrowing": {"lend_s": 60.0}}
    desk.ask(Kind.SETTINGS_SET, settings=settings, reason="")
    desk.turn()
    settled(desk, file(borrowing={}))
    assert "policy.borrowing.lend_s: file off, log 60.0" in lines(desk, file(borrowing=None))
    settled(desk, file(max_wait_s=3600.0, fairness={"weight": 0.7}), "apply")
    desk.turn()
    now = desk.decider.state.present.spec.settings.plain()
    assert (now["ageing"], now["max_wait_s"], now["borrowing"]["lend_s"]) == (0.5, 3600.0, 60.0)
    assert now["fairness"]["weight"] == 0.7
    settled(desk, file(fairness={}))


def test_where_nothing_is_stated_the_log_holds(desk: Desk) -> None:
    desk.ask(Kind.SETTINGS_SET, settings={**file().settings.plain(), "ageing": 0.5}, reason="")
    desk.ask(Kind.NODE_REMOVED, node=1, reason="sold")
    desk.turn()
    nothing = Stated(nodes=False, name=False, policy=False)

    def found(spec: CoreSpec, stated: Stated = nothing) -> list[str]:
        try:
            settle(desk.store, spec, stated=stated, at=lambda _: START)
        except FileDiffers as differs:
            return differs.differences
        return []

    other = CoreSpec.of(ClusterSpec({"vc": 7, "other": 1}, 8, name="demo"), "fifo")
    lent = replace(other, profiling=ProfilingPartition(nodes={"vc": 2}))
    assert found(other) == found(lent) == found(file(5)) == []
    assert found(file(5, ageing=0.1)) == ["policy.ageing: file 0.1, log 0.5"]
    assert "policy: file fifo, log pellucid" in found(other, replace(nothing, policy=True))
    assert "cluster name: file demo, log cluster" in found(other, replace(nothing, name=True))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (file(3), ["node node002: 4 x V100 of 24576 MiB in vc in the file, not in the log"]),
        (file(1), ["node node001: in the log, not in the file"]),
        (
            file(2, named("n4", gpus=8)),
            ["node n4: 8 x V100 of 24576 MiB in vc in the file, not in the log"],
        ),
        (
            file(1, NodeGroup("V100", 1, 8)),
            ["node node001: file 8 x V100 of 24576 MiB in vc, log 4 x V100 of 24576 MiB in vc"],
        ),
        (
            file(0, named("node001", "x")),
            [
                "node x: 4 x V100 of 24576 MiB in vc in the file, not in the log",
                "node node000: in the log, not in the file",
            ],
        ),
        (
            file(max_wait_s=3600.0),
            [f"policy.max_wait_s: file 3600.0, log {file().settings.plain()['max_wait_s']}"],
        ),
        (
            CoreSpec.of(
                ClusterSpec.mixed({"vc": [NodeGroup("V100", 1, 4)], "b": [NodeGroup("v100", 1, 4)]})
            ),
            ["node node001: file 4 x v100 of 24576 MiB in b, log 4 x V100 of 24576 MiB in vc"],
        ),
    ],
)
def test_every_difference_is_a_line(desk: Desk, spec: CoreSpec, expected: list[str]) -> None:
    assert lines(desk, spec) == expected
    kept = settled(desk, spec, "keep")
    assert len(kept.nodes.records) == 2
    assert lines(desk, spec) == expected, "keeping the log is chosen once"
    settled(desk, spec, "apply")
    settled(desk, spec)
    desk.turn()
    settled(desk, spec)
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean


def test_what_is_applied_is_logged_as_its_author_s(desk: Desk) -> None:
    settled(desk, file(1, named("big", gpus=8), ageing=0.5), "apply")
    made = [e for e in desk.store.read() if e.actor == "root"]
    assert [event.kind for event in made] == [Kind.SETTINGS_SET, Kind.NODE_ADDED, Kind.NODE_REMOVED]
    assert made[-1].body["reason"] == "not in the cluster file"
    desk.turn()
    desk.turn()
    has = {r.name: r.has.gpus for r in desk.decider.state.ledger.nodes.records.values()}
    assert has == {"node000": 4, "big": 8}
    assert desk.decider.state.present.settings_in_force()[0].name
    shown = {one.name: one for one in desk.decider.state.present.settings_in_force()}
    assert (shown["ageing"].value, shown["ageing"].actor) == (0.5, "root")


def test_a_removal_that_has_not_happened_is_called_off(desk: Desk) -> None:
    desk.submit("long", gpus=4)
    desk.turn()
    (node,) = desk.decider.state.ledger.records["long"].grant.nodes  # type: ignore[union-attr]
    desk.ask(Kind.NODE_REMOVED, node=node, reason="sold")
    desk.turn()
    name = f"node{node:03d}"
    assert lines(desk, file()) == [f"node {name}: in the file; in the log it is to leave"]
    settled(desk, file(), "apply")
    desk.turn()
    assert desk.node(node).open
    assert desk.node(node).change == ""


def test_what_cannot_be_applied_is_said(desk: Desk) -> None:
    desk.submit("long", gpus=4)
    desk.turn()
    other = CoreSpec.of(ClusterSpec.mixed({"other": [V100]}), "pellucid")
    told = lines(desk, other)
    assert "virtual cluster vc: in the log with 1 job, not in the file" in told
    assert "cannot be applied: virtual cluster vc: 1 job there not over" in told
    with pytest.raises(FileDiffers, match=r"--apply-file: .*nothing was changed: --keep-log"):
        settled(desk, other, "apply")
    assert lines(desk, file(policy="fifo"))[-1] == "cannot be applied: a log keeps its policy"
    profiling = ProfilingPartition(nodes={"vc": 1})
    spec = CoreSpec.of(file().cluster, "pellucid", profiling=profiling)
    assert any(line.startswith("profiling.nodes: file {'vc': 1}") for line in lines(desk, spec))
    assert len(settled(desk, spec, "keep").nodes.records) == 2


def test_jobs_that_would_be_too_large_are_named(desk: Desk) -> None:
    desk.submit("long", gpus=8)
    desk.submit("large", gpus=8)
    desk.turn()
    assert lines(desk, file(1))[-1] == (
        "if the file is applied, too large for their virtual cluster: jobs large"
    )


def test_nodes_of_a_real_host_do_not_come(store: Store) -> None:
    establish(store, LogHeader(file(), START, backend="local"))
    with pytest.raises(FileDiffers, match="are the GPUs of its host; nothing was changed"):
        settle(store, file(3), choice="apply", at=lambda _: START)
    settle(store, file(3), choice="apply", fake_gpus=True, at=lambda _: START)


def test_applied_while_jobs_wait_and_run(desk: Desk) -> None:
    for name, gpus in (("long", 4), ("runs", 4), ("waits", 4), ("large", 8)):
        desk.submit(name, gpus=gpus)
    desk.turn()
    desk.restart()
    settled(desk, file(1, named("big", gpus=8), ageing=0.0), "apply")
    desk.restart()
    desk.until_idle()
    names = {record.name for record in desk.decider.state.ledger.nodes.records.values()}
    assert names == {"node000", "big"}
    assert {desk.row(name).state for name in ("long", "runs", "waits", "large")} == {"completed"}
    assert audit(desk.store, desk.bundle_store.find, decide_again=True).clean
