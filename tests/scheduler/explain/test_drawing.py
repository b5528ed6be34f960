"""The timeline of a job's life: where each of its times is drawn."""

from __future__ import annotations

import pytest

from scheduler.core.decisions import Reason
from scheduler.explain.drawing import _timeline
from scheduler.explain.life import JobFacts, Phase, Sharing, Span

SPANS = [
    Span(Phase.WAITING, Reason.GPUS_BUSY, 100.0, 150.0),
    Span(Phase.RUNNING, Reason.RELEASED, 150.0, 300.0),
    Span(Phase.RUNNING, Reason.RELEASED, 300.0, None),
]


@pytest.mark.parametrize(("ended", "until"), [(500.0, None), (500.0, 900.0), (None, 500.0)])
def test_each_time_is_drawn_where_it_was_in_the_life(
    ended: float | None, until: float | None
) -> None:
    job = JobFacts("j", 1, 100.0, 0.0, end_time=ended)
    shared = [
        Sharing("p", True, 200.0, 300.0, None, ()),
        Sharing("q", False, 400.0, None, None, ()),
        Sharing("r", False, 500.0, 500.0, None, ()),
    ]
    found = _timeline(job, SPANS, shared, until)
    assert [(one.left, one.width) for one in found] == [
        (0.0, 12.5), (12.5, 37.5), (25.0, 25.0), (75.0, 25.0)
    ]  # fmt: skip
    assert [one.css for one in found[2:]] == ["shared", "shared"]
    assert [one.tip for one in found[2:]] == [
        "sharing with job p: 100 s",
        "sharing with job q: 100 s",
    ]


def test_a_life_without_a_length_is_not_drawn() -> None:
    assert _timeline(JobFacts("j", 1, 100.0, 0.0), SPANS, [], None) == []
    assert _timeline(JobFacts("j", 1, 100.0, 0.0, end_time=100.0), SPANS, [], 900.0) == []
