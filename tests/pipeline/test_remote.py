"""Talking to a service: the file that holds a token, and what is printed of answers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from pipeline.app import app
from pipeline.errors import UserError
from pipeline.remote import Service, connect
from scheduler.explain.effect import ExpectedTimes, WhatIfAnswer
from scheduler.explain.effect_words import effect_lines


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
        (240.0, 60, "Its median start is 4 min earlier (earlier in 60 of 64 simulated futures)."),
        (240.0, 23, "No clear change (earlier in 23 of 64 simulated futures)."),
        (-240.0, 0, "Its median start is 4 min later (earlier in 0 of 64 simulated futures)."),
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


class Known:
    """A service that knows one job, and lists none."""

    def job(self, job_id: str) -> dict[str, object]:
        asked = {"gpus": 4, "vc": "vision", "share": True, "name": "train", "priority": 3}
        return asked | {"workdir": "/data", "after": "b", "comment": "", "command": ["python"]}

    def jobs(self, **filters: object) -> Iterator[dict[str, object]]:
        return iter(())

    def now(self) -> float:
        return 0.0


def said(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    @contextmanager
    def client(self: Service) -> Iterator[Known]:
        yield Known()

    monkeypatch.setattr(Service, "client", client)
    found = CliRunner().invoke(app, words)
    return f"{found.output}{found.exception or ''}"


def test_a_job_is_submitted_again_but_for_what_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command is kept in part, and its priority and what it waited for are of the past."""
    again = ["submit", "--again", "a", "--no-share", "--env", "SEED=1", "--print"]
    made = yaml.safe_load(said(monkeypatch, *again, "--", "python", "train.py"))
    assert made["command"] == ["python", "train.py"]
    known = {"gpus": 4, "vc": "vision", "name": "train", "workdir": "/data", "share": False}
    assert known.items() <= made.items()
    assert not made.keys() & {"after", "priority", "comment"}
    assert "a's command is not kept in full" in said(monkeypatch, *again)
    kept = "a's --env, if it had any, is not kept: give it again."
    assert kept not in said(monkeypatch, *again, "--", "python")
    bare = [word for word in again if word not in ("--env", "SEED=1")]
    assert kept in said(monkeypatch, *bare, "--", "python")


@pytest.mark.parametrize("gpus", ["0", "-5"])
def test_what_would_be_refused_is_not_printed_either(
    monkeypatch: pytest.MonkeyPatch, gpus: str
) -> None:
    told = said(monkeypatch, "submit", "--gpus", gpus, "--print", "--", "python")
    assert f"gpus is {gpus}; give 1 or more" in told
    assert "command:" not in told


def test_a_list_without_a_job_says_how_those_that_ended_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "pellucid ps --all" in said(monkeypatch, "ps")
    assert "pellucid ps --all" not in said(monkeypatch, "ps", "--all")


def test_a_list_that_nothing_fits_does_not_say_that_nothing_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = [{"job_id": "a", "name": "train", "submitted_at": 0.0}]
    monkeypatch.setattr(Known, "jobs", lambda self, **_: iter(live))
    told = said(monkeypatch, "ps", "--name", "zzz")
    assert "No job is like that. Of all you may see, 1 wait or run: pellucid ps." in told
    assert "No job is known to wait or run" not in told
