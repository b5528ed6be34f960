"""What is unlike the past weeks is on the page of the models, for operators."""

from __future__ import annotations

from random import Random

from scheduler.charts.drift import alarm_words
from scheduler.service.pages.models import models
from scheduler.service.pages.queries import Outcome
from tests.features.test_watch import MONDAY, day_of

NOW = MONDAY + 15 * 86_400.0


def outcomes(times: float) -> list[Outcome]:
    """Two weeks, and a day on which one virtual cluster's jobs last so many times as long."""
    random, found = Random(0), list[Outcome]()
    for number in range(15):
        for job in day_of(number, random):
            late = number == 14 and job.vc == "speech"
            lasts_s = job.seconds * (times if late else 1.0)
            at = job.submitted
            found.append(
                Outcome(job.vc, job.user, job.gpus, at, at, at + lasts_s, "completed", None)
            )
    return found


def test_a_unit_that_changed_in_one_virtual_cluster_is_named() -> None:
    page = models(None, (), outcomes(60.0), sees_names=True, now=NOW)
    groups = [alarm.group for alarm in page.unlike]
    assert "virtual cluster speech" in groups
    assert "virtual cluster vision" not in groups
    words = alarm_words(page.unlike[groups.index("virtual cluster speech")])
    assert words.startswith("virtual cluster speech: jobs last longer, ×")
    assert {alarm.kind for alarm in page.unlike} >= {"virtual cluster"}


def test_a_usual_day_has_no_words_and_only_operators_are_told() -> None:
    assert models(None, (), outcomes(1.0), sees_names=True, now=NOW).unlike == []
    assert models(None, (), outcomes(60.0), sees_names=False, now=NOW).unlike == []
    assert models(None, (), outcomes(60.0), sees_names=True).unlike == []
    week = [one for one in outcomes(60.0) if one.submitted_at > NOW - 5 * 86_400.0]
    assert models(None, (), week, sees_names=True, now=NOW).unlike == []
