"""In front of Slurm, too, worse models are left for the former ones, and stay so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.bundle import AdditiveModel, Bundle
from scheduler.backends.events import Kind
from scheduler.core.estimates import LiveEstimator
from scheduler.service.log.beside import ended_with, standing, uses
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.store.store import Store
from scheduler.service.log.watch_models import FIRST, look
from scheduler.slurm.follow.models import Models
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.slurm.follow.test_follow import Scene

RIGHT, WRONG = 4.1, 8.7  # ln(1 + a minute), ln(1 + hours)


def believing(value: float) -> Bundle:
    """Durations of about exp(value) seconds."""
    small = small_bundle()
    return small.with_duration(AdditiveModel(small.duration.axes, small.duration.terms, value))


class Modelled(Scene):
    """A scene with a champion."""

    def __init__(self, store: Store, folder: Path, *, watches: bool = True) -> None:
        self.champion, self.bundles = folder / "champion", BundleStore(folder / "bundles")
        self.watches, self.number = watches, 1
        super().__init__(store, "slurm", order=False)

    def restart(self) -> None:
        super().restart()
        self.follower._models = Models(
            self.store, self.champion, self.bundles, watches=self.watches
        )

    def promote(self, bundle: Bundle) -> str:
        bundle.save(self.champion)
        self.look()
        return bundle.digest

    def work(self, jobs: int) -> None:
        """Jobs of a minute, of eight people, eight at once."""
        while jobs:
            some, jobs = min(jobs, 8), jobs - min(jobs, 8)
            own: list[dict[str, Any]] = [
                {"user": f"u{i}", "gpus": 1, "submit": self.now} for i in range(some)
            ]
            names = [f"{self.number + i}" for i in range(some)]
            self.number += some
            self.look(*(self.job(n, **of) for n, of in zip(names, own, strict=True)))
            for i, of in enumerate(own):
                of |= {"start": self.now, "nodes": (f"n{i // 4 + 1}",), "held_gpus": ((i % 4,),)}
            self.look(*(self.job(n, "RUNNING", **of) for n, of in zip(names, own, strict=True)))
            for of in own:
                of["end"] = self.now + 60.0
            over = [self.job(n, "COMPLETED", **of) for n, of in zip(names, own, strict=True)]
            self.look(*over, after_s=60.0)

    def used(self) -> str:
        inner = self.follower.memory.inner
        assert isinstance(inner, LiveEstimator)
        assert inner.bundle is not None
        return inner.bundle.digest

    def seen(self) -> int:
        assert self.store is not None
        with self.store.reading() as connection:
            digest, since, _ = uses(connection)[-1]
            return len(ended_with(connection, digest, since))


def test_a_follower_goes_back_and_stays_so(store: Store, tmp_path: Path) -> None:
    scene = Modelled(store, tmp_path)
    right = scene.promote(believing(RIGHT))
    scene.work(3)
    assert scene.seen() == 3
    wrong = scene.promote(believing(WRONG))
    scene.work(FIRST - 1)
    assert look(store, scene.bundles, scene.now) is None
    scene.work(1)
    found = look(store, scene.bundles, scene.now)
    assert found is not None
    assert (found.verdict, found.digest, found.in_use) == ("better", right, wrong)
    scene.look()
    assert scene.used() == right
    scene.restart()
    scene.look()
    assert scene.used() == right, "the champion's folder has wrong"
    with store.reading() as connection:
        assert [digest for digest, _, _ in uses(connection)] == [right, wrong, right]
        assert standing(connection, tmp_path / "bundles", None).left == wrong
    assert len(store.read(kinds=[Kind.BUNDLE_RETURNED])) == 1


def test_without_a_watch_the_champion_is_taken_again(store: Store, tmp_path: Path) -> None:
    scene = Modelled(store, tmp_path, watches=False)
    scene.promote(believing(RIGHT))
    wrong = scene.promote(believing(WRONG))
    scene.work(FIRST)
    look(store, scene.bundles, scene.now)
    scene.restart()
    scene.look()
    assert scene.used() == wrong


def test_each_job_is_scored_once_and_what_cannot_be_read_ends_no_look(
    store: Store, tmp_path: Path
) -> None:
    scene = Modelled(store, tmp_path)
    scene.promote(believing(RIGHT))
    waits = scene.job(1001, gpus=1)
    for _ in range(3):
        scene.look(waits)
    assert [event.job_id for event in store.read(kinds=[Kind.SCORED])] == ["1001"]
    (scene.champion / "bundle.json").write_text("{}")
    scene.look(waits)
    assert scene.used() == believing(RIGHT).digest
