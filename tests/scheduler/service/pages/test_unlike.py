"""What is unlike the past weeks is on the page of the models, for operators."""

from __future__ import annotations

from random import Random

import pytest

from features.watch import Seen, unlike
from scheduler.charts.drift import alarm_words
from scheduler.service.metrics import Metrics
from scheduler.service.pages.models import models
from tests.features.test_watch import MONDAY, day_of
from tests.scheduler.service.pages.conftest import Lived

NOW = MONDAY + 15 * 86_400.0


def ended(times: float) -> list[Seen]:
    """Two weeks, and a day on which one virtual cluster's jobs last so many times as long."""
    random, found = Random(0), list[Seen]()
    for number in range(15):
        for job in day_of(number, random):
            late = number == 14 and job.vc == "speech"
            lasts_s = job.seconds * (times if late else 1.0)
            found.append(Seen(job.submitted, lasts_s, job.gpus, job.vc, job.user))
    return found


def test_a_unit_that_changed_in_one_virtual_cluster_is_named() -> None:
    page = models(None, (), (), sees_names=True, odd=unlike(ended(60.0), NOW))
    groups = [alarm.group for alarm in page.unlike]
    assert "virtual cluster speech" in groups
    assert "virtual cluster vision" not in groups
    words = alarm_words(page.unlike[groups.index("virtual cluster speech")])
    assert words.startswith("virtual cluster speech: jobs last longer, ×")
    assert {alarm.kind for alarm in page.unlike} >= {"virtual cluster"}


def test_a_usual_day_has_no_words_and_only_operators_are_told() -> None:
    assert unlike(ended(1.0), NOW) == []
    assert not models(None, (), (), sees_names=False, odd=unlike(ended(60.0), NOW)).unlike
    week = [one for one in ended(60.0) if one.submitted > NOW - 5 * 86_400.0]
    assert unlike(week, NOW) == []


def test_the_page_is_looked_at_often_and_the_jobs_are_not(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, now = [0], lived.store.clock.now()
    there = [one._replace(submitted=one.submitted - NOW + now) for one in ended(60.0)]

    def since(self: Metrics, connection: object, earliest: float) -> list[Seen]:
        read[0] += 1
        return [one for one in there if one.submitted + one.seconds >= earliest]

    monkeypatch.setattr(Metrics, "_ended_since", since)
    pages = [lived.browser("olga").get("/models").text for _ in range(3)]
    assert all("virtual cluster speech: jobs last longer" in page for page in pages)
    assert 'href="/history?period=day&amp;vc=speech"' in pages[0]
    front = lived.browser("olga").get("/").text
    assert "Unlike the past weeks: virtual cluster speech: jobs last longer" in front
    assert 'href="/models#unlike"' in front
    assert read == [2]  # the weeks, and the day
    assert "Unlike the past weeks" not in lived.browser("ada.byron").get("/").text
    assert "jobs last longer" not in lived.browser("ada.byron").get("/models").text


@pytest.mark.parametrize("broken", [1, 2], ids=["weeks", "day"])
def test_what_could_not_be_read_is_read_at_the_next_look(
    lived: Lived, monkeypatch: pytest.MonkeyPatch, broken: int
) -> None:
    read, now = [0], lived.store.clock.now()
    there = [one._replace(submitted=one.submitted - NOW + now) for one in ended(60.0)]

    def since(self: Metrics, connection: object, earliest: float) -> list[Seen]:
        read[0] += 1
        if read[0] == broken:
            raise OSError("the database is gone")
        return [one for one in there if one.submitted + one.seconds >= earliest]

    monkeypatch.setattr(Metrics, "_ended_since", since)
    metrics = Metrics(lived.store)
    with lived.store.reading() as connection:
        with pytest.raises(OSError, match="is gone"):
            metrics.unlike(connection)
        groups = {alarm.group for alarm in metrics.unlike(connection)}
    assert "virtual cluster speech" in groups
    assert read[0] == broken + (2 if broken == 1 else 1), "what was read is kept"
