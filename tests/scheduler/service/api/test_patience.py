"""A question that nobody waits for any more is not answered."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from scheduler.service.api.questions import ANALYST, Questions
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions


@pytest.mark.parametrize(("kind", "seconds"), [("why", "0.1"), ("cluster", "0.4")])
def test_who_waits_no_longer_has_asked_nothing(store: Store, kind: str, seconds: str) -> None:
    assert store.take(ANALYST, "one", 60.0) is not None
    told = asyncio.run(Questions(store, 0.1).ask(kind, {"job_id": "j"}, "ann"))
    assert told == {"unavailable": f"the analyst did not answer within {seconds} s"}
    with store.reading() as connection:
        assert connection.execute(select(questions)).all() == []
