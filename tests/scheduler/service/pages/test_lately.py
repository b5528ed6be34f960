"""What takes long to count is counted now and then, and by whom it may be seen."""

from __future__ import annotations

import time

import pytest

from scheduler.service.pages import lately
from scheduler.service.pages.lately import Lately
from tests.scheduler.service.pages.conftest import Lived, submit_many


def test_what_took_long_is_kept_for_as_long_as_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    spent, now, made = [0.0], [100.0], list[float]()
    monkeypatch.setattr(time, "thread_time", lambda: spent[0])
    kept = Lately(clock=lambda: now[0])

    def costs(seconds: float) -> int:
        spent[0] += seconds
        made.append(seconds)
        return len(made)

    assert [kept.get("a", lambda: costs(0.1)) for _ in range(3)] == [1, 1, 1]
    now[0] += 1.9
    assert kept.get("a", lambda: costs(0.1)) == 1
    now[0] += 0.2
    assert kept.get("a", lambda: costs(0.1)) == 2
    assert [kept.get("b", lambda: costs(0.01)) for _ in range(2)] == [3, 4]
    for n in range(lately.MOST):
        kept.get(n, lambda: costs(0.1))
    assert kept.get("a", lambda: costs(0.1)) == len(made)


def test_nobody_sees_the_groups_that_were_counted_for_another(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lately, "BRIEF_S", 0.0)
    monkeypatch.setattr(lately, "SHARE", 1e-9)  # kept for good
    submit_many(lived, "ada.byron", [{"name": f"mine-{n}", "vc": "vision"} for n in range(40)])
    assert "mine-#" in lived.browser("ada.byron").get("/").text
    assert "mine-#" not in lived.browser("grace.hopper").get("/").text
