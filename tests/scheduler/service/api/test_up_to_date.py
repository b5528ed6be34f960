"""A followed queue is read again for whoever asks about a job."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from scheduler.service.api import followed
from scheduler.service.api.problems import Problem
from scheduler.service.log.unread import Silent


@pytest.mark.parametrize(
    "error",
    [
        Problem(429, "too-many-questions", "32 questions of yours wait for an answer already"),
        OperationalError("insert", {}, OSError("disk is full")),
    ],
)
def test_what_is_known_is_told_where_no_question_can_be_put(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked about many jobs at once was refused what the database knew of them."""
    asked = list[Any]()

    async def ask(*one: Any, **_: Any) -> Any:
        asked.append(one)
        raise error

    monkeypatch.setattr(followed, "_is_old", lambda *_: True)
    state = SimpleNamespace(
        settings=SimpleNamespace(follows=True),
        unread=SimpleNamespace(silent=Silent),
        questions=SimpleNamespace(ask=ask),
        store=None,
    )
    request: Any = SimpleNamespace(app=SimpleNamespace(state=state))
    view: Any = SimpleNamespace(viewer=SimpleNamespace(name="ada"))
    asyncio.run(followed.up_to_date(request, view, "5"))
    assert asked
