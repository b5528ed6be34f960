"""The histories that a prediction rests on, on a page."""

from __future__ import annotations

import math
from html import unescape

import pytest

from scheduler.charts.shapes import placed
from scheduler.core.decisions import Score
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import Lived


def test_the_histories_of_a_job_are_a_page_of_its_owner(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = lived.browser("ada.byron")
    job = lived.submit("ada.byron", gpus=1)
    assert "no analyst is running" in ada.get(f"/jobs/{job}/histories").text
    lived.settle(600.0)
    lived.analysed(monkeypatch)
    page = unescape(ada.get(f"/jobs/{job}/histories").text)
    assert page.count("data-chart") >= 4
    assert "Ada.byron's jobs" in page
    assert "Of the next, half last over" in page or "Of those that run over" in page
    assert f'href="/jobs/{job}/histories"' in ada.get(f"/jobs/{job}").text
    strange = lived.browser("grace.hopper").get(f"/jobs/{job}/histories").text
    assert "no such job of yours" in strange
    assert "data-chart" not in strange


def test_a_job_that_is_long_over_has_them_too(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = lived.submit("ada.byron", gpus=1)
    lived.settle(20_000.0)
    analyst = lived.analysed(monkeypatch)
    analyst.state.ledger.records.pop(job, None)
    page = unescape(lived.browser("ada.byron").get(f"/jobs/{job}/histories").text)
    assert "Ada.byron's jobs" in page
    assert page.count("data-chart") >= 4


def test_others_histories_are_for_operators(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    lived.analysed(monkeypatch)
    asked = "/histories?owner=ada.byron&vc=vision&gpus=1"
    assert "Ada.byron's jobs" in unescape(lived.browser("olga").get(asked).text)
    grace = unescape(lived.browser("grace.hopper").get(asked).text)
    assert "Grace.hopper's jobs" in grace
    assert "Ada" not in grace
    assert 'href="/histories"' in lived.browser("olga").get("/models").text


def test_each_term_is_drawn_with_the_job_s_own_place() -> None:
    bundle = small_bundle()
    model = bundle.duration
    row = [1.0 if axis.spec.kind == "continuous" else None for axis in model.axes]
    for falsified in (row, [None if v is None else 1e9 for v in row]):
        value, intercept, terms = model.explain(falsified)
        inputs = tuple("" if v is None else f"{v:.6g}" for v in falsified)
        charts = placed(model, Score(value, intercept, terms, bundle.digest, inputs))
        assert charts
        added = dict(zip(model.term_names, terms, strict=True))
        for chart in charts:
            (place,) = chart.spec["layer"][-1]["layer"][-1]["data"]["values"]
            assert place["name"] == "this job"
            assert place["factor"] == pytest.approx(math.exp(added[chart.code]))
            far = falsified is not row
            assert ("beyond the data" in chart.note) == far
            if not far:
                assert place["from"] == 1.0
    unknown = Score(value, intercept, terms, bundle.digest, ())
    assert all("not known of this job" in chart.note for chart in placed(model, unknown))
