"""The histories that a prediction rests on, on a page."""

from __future__ import annotations

from html import unescape

import pytest

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
    assert page.count("data-chart") == 4
    assert "Ada.byron's jobs" in page
    assert "Of the next, half last over" in page or "Of those that outlive" in page
    assert f'href="/jobs/{job}/histories"' in ada.get(f"/jobs/{job}").text
    strange = lived.browser("grace.hopper").get(f"/jobs/{job}/histories").text
    assert "no such job of yours" in strange
    assert "data-chart" not in strange


def test_others_histories_are_for_operators(lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    lived.analysed(monkeypatch)
    asked = "/histories?owner=ada.byron&vc=vision&gpus=1"
    assert "Ada.byron's jobs" in unescape(lived.browser("olga").get(asked).text)
    grace = unescape(lived.browser("grace.hopper").get(asked).text)
    assert "Grace.hopper's jobs" in grace
    assert "Ada" not in grace
    assert 'href="/histories"' in lived.browser("olga").get("/models").text
