"""Of a line too long to follow the front is followed, and what is behind it goes by work ahead."""

from __future__ import annotations

import pytest

from scheduler.explain.claims import Kind, of_offer
from scheduler.explain.whatif import near
from scheduler.explain.whatif.changes import Change
from scheduler.explain.whatif.counterfactuals import WhatIf, answer_of
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import DAY_S
from scheduler.explain.words import ForecastKind
from scheduler.testing.builders import a_job
from tests.scheduler.explain.test_forecast import a_desk

WAIT = 5


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Futures:
    """One job of 600 s runs on six of eight GPUs; five wait for all eight, of 600 s each."""
    monkeypatch.setattr(near, "LONG", WAIT - 1)
    monkeypatch.setattr(near, "FRONT", 2)
    desk, memory = a_desk()
    desk.submit(
        a_job("runs", gpus=6), *(a_job(f"w{n}", gpus=8, at=n) for n in range(1, 6)), now=9.0
    )
    return Futures(desk.core, memory, 9.0)


def test_the_front_of_a_line_is_followed_and_for_a_day(whole: Futures) -> None:
    followed = near.near(whole, ["w4"])
    assert set(followed.core.jobs) == {"runs", "w1", "w2", "w4"}
    assert (followed.whole, followed.horizon_s) == (whole.core, DAY_S)
    found = WhatIf(followed, samples=9).ask("w2", Change(first=True), others=True)
    assert (found.futures, found.gain_s, found.position) == (9, 600.0, 1)
    assert (found.waiting, found.examined) == (4, 2)
    assert found.assumed == (
        "5 jobs wait, of which the first 2 in each line were followed, and for a day",
    )


def test_a_short_line_is_followed_whole(whole: Futures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "LONG", WAIT)
    assert near.near(whole) is whole
    assert WhatIf(whole, samples=9).ask("w5", Change(first=True)).assumed == ()


def test_behind_the_front_a_start_goes_by_the_work_before_it_in_the_whole_line(
    whole: Futures,
) -> None:
    asking = WhatIf(near.near(whole, ["w5"]), samples=9)
    found = asking.ask("w5", Change(first=True))
    assert (found.futures, found.position, found.waiting) == (0, 1, 4)
    assert found.now.estimate == found.then.estimate == ForecastKind.CRUDE
    assert found.now.start_p50 is not None
    assert found.now.start_p50 > 9.0 + 4 * 600.0
    assert found.gain_s == pytest.approx(4 * 600.0, abs=2 * 600.0 / 8)  # two GPUs are free
    assert found.assumed[-1].startswith("5 jobs wait, too many to follow")
    assert not found.helps
    answer = answer_of(found, "w5", "user")
    assert Kind.OFFER_SOONER not in [one.kind for one in of_offer(answer, 9.0)]
    same = asking.ask("w5", Change({"gpus": 7}))
    assert (same.position, same.gain_s) == (5, 0.0)


def test_behind_the_front_a_start_at_once_is_decided_as_ever(whole: Futures) -> None:
    asking = WhatIf(near.near(whole, ["w5"]), samples=9)
    assert asking.ask("w5", Change({"gpus": 2})).starts_now
    assert [one.starts_now for one in asking.suggestions("w5")] == [True]
