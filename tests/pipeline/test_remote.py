"""Talking to a service: the file that holds a token, and what is printed of answers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import UserError
from pipeline.remote import connect, effect_lines
from scheduler.explain.effect import ExpectedTimes, WhatIfAnswer


def test_only_a_small_regular_file_of_ones_own_holds_a_token(tmp_path: Path) -> None:
    fifo, large, open_to_all = tmp_path / "fifo", tmp_path / "large", tmp_path / "open"
    os.mkfifo(fifo, 0o600)
    large.write_text("x" * 4097)
    large.chmod(0o600)
    open_to_all.write_text("secret")
    open_to_all.chmod(0o644)
    for file, why in (
        (fifo, "not a regular file"),
        (Path("/dev/null"), "not a regular file"),
        (large, "more than a token"),
        (open_to_all, "others can read it"),
    ):
        with pytest.raises(UserError, match=why):
            connect(None, file)


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


def test_what_the_time_limit_would_stop_is_said() -> None:
    answer = WhatIfAnswer("a", {}, then=ExpectedTimes(0.0, 0.0, 0.0, 300.0, 300.0), starts_now=True)
    stop = "Its time limit would stop it 5 min from now, unfinished."
    assert stop not in effect_lines(answer, now=0.0)
    assert stop in effect_lines(replace(answer, stopped=True), now=0.0)
