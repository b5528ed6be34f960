"""A question that nobody waits for any more is not answered."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from scheduler.service.api.questions import ANALYST, Questions
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions


def test_who_waits_no_longer_has_asked_nothing(store: Store) -> None:
    assert store.take(ANALYST, "one", 60.0) is not None
    told = asyncio.run(Questions(store, 0.1).ask("why", {"job_id": "j"}, "ann"))
    assert told == {"unavailable": "the analyst did not answer within 0.1 s"}
    with store.reading() as connection:
        assert connection.execute(select(questions)).all() == []
