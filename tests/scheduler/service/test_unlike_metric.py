"""What is unlike the past weeks, as a metric: a look costs what is new, not what there was."""

from __future__ import annotations

from random import Random

import pytest

from features.clock import Clock
from features.watch import Seen, unlike
from scheduler.service.log.store.store import Store
from scheduler.service.metrics import USUAL_S, WATCH_S, Counts, Metrics

NOW = 1.75e9


def jobs(days: int, of: float, upto: float = NOW) -> list[Seen]:
    """Jobs of eight people, one each in every hour; those of the last day last `of` times as
    long."""
    random, found = Random(1), list[Seen]()
    for hour in range(days * 24):
        at = upto - hour * 3600.0 - 1800.0
        times = of if hour < 24 else 1.0
        for user in range(8):
            lasts = times * random.lognormvariate(6.0, 0.5)
            found.append(Seen(at, lasts, 1, "vision", f"u{user}"))
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many jobs each look read."""
    return []


def watched(store: Store, there: list[Seen], read: list[int], patch: pytest.MonkeyPatch) -> Metrics:
    def ended(self: Metrics, connection: object, since: float) -> list[Seen]:
        found = [job for job in there if job.submitted + job.seconds >= since]
        read.append(len(found))
        return found

    patch.setattr(Metrics, "_ended_since", ended)
    return Metrics(store, Counts())


def looked(made: Metrics, store: Store, now: float) -> float:
    store.clock = Clock.by(lambda: now)
    with store.reading() as connection:
        found = made._unlike(connection)
    return sum(sample.value for sample in found.samples)


def test_a_look_reads_what_is_new(
    store: Store, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    there = jobs(27, 60.0)
    made = watched(store, there, read, monkeypatch)
    assert looked(made, store, NOW) == len(unlike(there, NOW)) > 0
    whole, day = read
    assert whole > 20 * day
    read.clear()
    assert looked(made, store, NOW + 60.0) > 0
    assert read == [], "not before ten minutes"
    assert looked(made, store, NOW + WATCH_S) > 0
    assert read == [day]
    read.clear()
    looked(made, store, NOW + USUAL_S)
    assert len(read) == 2, "what is usual is worked out again"


def test_weeks_that_are_as_ever_and_a_site_that_is_new_have_none(
    store: Store, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert looked(watched(store, jobs(27, 1.0), read, monkeypatch), store, NOW) == 0
    assert looked(watched(store, jobs(3, 60.0), read, monkeypatch), store, NOW) == 0
