"""Questions to the follower."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert, select

from scheduler.service.follow.answers import ETA, answer_questions
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions


def test_a_question_that_fails_is_answered_and_the_next_one_too(store: Store) -> None:
    for name in ("bad", "good"):
        row = {"id": name, "asked_at": store.clock.now(), "kind": ETA, "body": f'{{"a":"{name}"}}'}
        with store.writing() as connection:
            connection.execute(insert(questions).values(row))

    def answer(kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        if asked["a"] == "bad":
            raise OverflowError("cannot convert float infinity to integer")
        return {"now": 1.0}

    answer_questions(store, answer)
    with store.reading() as connection:
        rows = connection.execute(select(questions.c.id, questions.c.answer))
        found = {row.id: row.answer for row in rows}
    assert json.loads(found["bad"]) == {"unavailable": "it could not be tried"}
    assert json.loads(found["good"]) == {"now": 1.0}
