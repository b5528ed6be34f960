"""What commands print of a service's answers."""

from __future__ import annotations

import pytest

from pipeline.remote import effect_lines
from scheduler.explain.effect import WhatIfAnswer


@pytest.mark.parametrize(
    ("gain_s", "earlier", "line"),
    [
        (240.0, 60, "At even odds 4 min earlier (earlier in 60 of 64 futures)."),
        (240.0, 23, "No clear change (earlier in 23 of 64 futures)."),
        (-240.0, 0, "At even odds 4 min later (earlier in 0 of 64 futures)."),
    ],
)
def test_a_start_is_earlier_only_where_most_futures_have_it_so(
    gain_s: float, earlier: int, line: str
) -> None:
    answer = WhatIfAnswer("a", {}, gain_s=gain_s, earlier=earlier, futures=64)
    assert line in effect_lines(answer, now=0.0)
