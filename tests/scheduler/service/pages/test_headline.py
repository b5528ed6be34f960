"""The first line of a job's page says when it starts, until when it runs, or how it ended."""

from __future__ import annotations

from dataclasses import replace
from html import unescape

import pytest

from scheduler.explain.explanation import StartForecastRow
from scheduler.explain.headline import Headline, headline
from scheduler.explain.words import CRUDE, NEVER, ForecastKind
from scheduler.service.log.store.reads import Chosen
from scheduler.service.log.store.rows import JobRow
from tests.scheduler.service.pages.conftest import Lived

NOW = 1000.0


@pytest.fixture(scope="module")
def waiting(busy: Lived) -> JobRow:
    return next(
        j for j in busy.see("olga").jobs(Chosen(phase="queued")).items if j.owner == "ada.byron"
    )


def test_of_a_waiting_job(waiting: JobRow) -> None:
    def line(*starts: float | None, why: str = "", estimate: str | None = None) -> Headline:
        return headline(
            waiting,
            StartForecastRow(900.0, *starts, None, None, why, estimate=estimate),
            "has waited 4 min",
            NOW,
        )

    assert line(1100.0, 1200.0) == Headline("Starts about", "Starts", 1100.0, 1200.0)
    assert line(1100.0, None).note == ", or much later"
    assert line(950.0, 1200.0).text == "May start at any moment"
    assert line(950.0, 1200.0).by == 1200.0
    assert line(950.0, 980.0).by is None
    crude = line(1100.0, None, why="in other words", estimate=ForecastKind.CRUDE)
    assert (crude.at, crude.by, crude.note) == (1100.0, None, f" ({CRUDE})")
    assert line(None, None, why=NEVER, estimate=ForecastKind.IMPOSSIBLE).state == "Cannot start"
    assert line(None, None, why="no time").note == ": no time"
    assert headline(waiting, None, "has waited", NOW).at is None
    held = replace(waiting, hold="owner")
    assert headline(held, StartForecastRow(900.0, 1100.0, 1200.0, None, None), "", NOW).at is None


def test_of_a_job_that_runs_or_is_over(waiting: JobRow) -> None:
    runs = replace(waiting, phase="running")
    made = StartForecastRow(900.0, 800.0, 800.0, 1500.0, 1900.0)
    assert headline(runs, made, "has run for 3 min", NOW) == Headline(
        "Runs until about", "Runs until", 1500.0, 1900.0
    )
    assert headline(runs, replace(made, end_p50=NOW), "", NOW).at is None
    assert headline(runs, None, "has run for 3 min", NOW).text == "It has run for 3 min"
    over = replace(waiting, phase="ended", state="node_fail")
    assert headline(over, made, "ended so", NOW) == Headline("It ended so", "Node fail")


def test_the_title_says_it_too(busy: Lived, waiting: JobRow) -> None:
    page = unescape(busy.browser("ada.byron").get(f"/jobs/{waiting.job_id}").text)
    assert f"<title>Waits - {waiting.name} – Pellucid</title>" in page
    assert f'data-name="{waiting.name}" data-phase="queued" data-state="Waits"' in page
