"""Snapshots of the state: a start from one goes on as a start from the whole log does."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from features.files import write_whole
from scheduler.backends.events import Event, Kind
from scheduler.backends.local.backend import LocalBackend
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide.decider import Decider
from scheduler.service.log.audit import audit
from scheduler.service.log.fold import State
from scheduler.service.log.snapshots import KEPT, StateCheckpoints
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import CLUSTER, Desk, lasting
from tests.scheduler.service.pages.bundle import small_bundle


class Kept(Desk):
    """A desk whose deciders keep their state every few events."""

    folder: Path
    every = 7
    version = "now"

    def another(self, holder: str = "one", kind: type[Decider] = Decider) -> Decider:
        decider = super().another(holder, kind)
        decider.snapshots = self.snapshots()
        return decider

    def snapshots(self) -> StateCheckpoints:
        return StateCheckpoints(
            self.folder, self.bundle_store.find, lambda: self.version, self.every
        )

    def newest(self) -> State | None:
        with self.store.reading() as connection:
            return self.snapshots().newest(connection, self.store, self.store.last_seq())


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Kept:
    Kept.folder = tmp_path / "snapshots"
    outcomes = {f"j{i}": lasting(40.0 + 13 * i % 90) for i in range(40)}
    return Kept(
        store,
        tmp_path,
        outcomes,
        policy="pellucid",
        partition=ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=30.0),
        champion=small_bundle().save(tmp_path / "champion"),
    )


def live(desk: Kept, draw: Random, jobs: range) -> None:
    """Some life: jobs of all sorts come, one is cancelled, time passes."""
    for i in jobs:
        desk.submit(f"j{i}", gpus=draw.choice((1, 1, 2, 4)), owner=draw.choice("abc"))
        if i % 7 == 3:
            desk.cancel(f"j{i - 1}")
        desk.turn(draw.choice((0.0, 5.0, 20.0)))


def test_a_start_from_a_snapshot_decides_as_one_from_the_whole_log(desk: Kept) -> None:
    draw = Random(1)
    live(desk, draw, range(20))
    found = desk.newest()
    assert found is not None
    before = found.seen
    desk.restart()
    live(desk, draw, range(20, 40))  # decided by a core out of a snapshot
    desk.until_idle()
    assert before > 20
    again = audit(desk.store, desk.bundle_store.find)  # decides the whole log anew
    assert again.clean, again.divergences[:2]
    assert len(list(desk.folder.iterdir())) <= KEPT


def test_little_is_folded_after_a_snapshot(desk: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    live(desk, Random(2), range(20))
    passes = 0
    taken = State.take

    def counted(state: State, upto: int, now: float) -> object:
        nonlocal passes
        passes += 1
        return taken(state, upto, now)

    monkeypatch.setattr(State, "take", counted)
    desk.restart()
    assert 0 < len(desk.store.read(kinds=[Kind.DECIDED])) > 3 * passes


@pytest.mark.parametrize("harm", ["torn", "other code", "another log", "no pickle"])
def test_one_that_is_no_good_is_not_used(desk: Kept, harm: str) -> None:
    live(desk, Random(3), range(12))
    desk.decider.let_go()
    assert desk.newest() is not None
    for path in desk.folder.iterdir():
        if harm == "torn":
            path.write_bytes(path.read_bytes()[:-9])
        elif harm == "no pickle":
            path.write_bytes(b"x" * 100)
    if harm == "other code":
        desk.version = "later"
    if harm == "another log":
        for path in desk.folder.iterdir():
            path.unlink()
        state = desk.decider.state
        desk.snapshots().save(state, Event(Kind.DECIDED, 0.0, seq=state.seen))
    assert desk.newest() is None
    desk.restart()
    desk.until_idle()
    assert audit(desk.store, desk.bundle_store.find).clean


def test_the_models_are_not_in_it(desk: Kept) -> None:
    desk.submit("j0")
    desk.turn()
    desk.decider.let_go()
    state = desk.newest()
    assert state is not None
    assert state.bundle
    assert state.core.policy.pair_predictor is not None or state.bundle in desk.bundle_store._loaded
    assert CLUSTER.gpus == state.core.cluster.spec.gpus


class Planted:
    """What somebody else would like the service to run."""

    def __init__(self, *called: Any):
        self.called = called

    def __reduce__(self) -> Any:
        return self.called[0], self.called[1:]


@pytest.mark.parametrize(
    "called",
    [
        lambda path: (os.mkdir, path),
        lambda path: (exec, f"open({path!r}, 'w')"),
        lambda path: (partial(os.mkdir, path),),
        lambda path: (write_whole, path, "x"),
        lambda path: (subprocess.Popen, ["touch", path]),
        lambda path: (LocalBackend, Path(path), None),
        lambda path: (Store, f"sqlite:///{path}"),
    ],
)
def test_a_planted_snapshot_runs_nothing(
    desk: Kept, tmp_path: Path, called: Callable[[str], tuple[Any, ...]]
) -> None:
    """Found as root, an earlier version ran what it held."""
    live(desk, Random(2), range(12))
    found = desk.newest()
    assert found is not None
    ran = tmp_path / "ran"
    body = pickle.dumps(Planted(*called(str(ran))))
    content = hashlib.sha256(body).digest() + body
    for path in desk.folder.iterdir():
        path.write_bytes(content)
    desk.restart()
    desk.until_idle()
    assert not ran.exists()
    assert audit(desk.store, desk.bundle_store.find).clean
