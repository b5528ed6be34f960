"""Questions to the follower."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import insert

from scheduler.service.follow.answers import ETA, answer_questions
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions


def test_who_asks_much_waits_for_themselves(store: Store) -> None:
    now = store.clock.now()
    with store.writing() as connection:
        for number, actor in enumerate(("ada", "ada", "ada", "ben")):
            row = {"id": str(number), "asked_at": now + number / 1000, "kind": ETA}
            body = f'{{"of": "{actor}{number}"}}'
            connection.execute(insert(questions).values(**row, body=body, actor=actor))
    order: list[str] = []

    def answer(_: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        order.append(asked["of"])
        return {}

    answer_questions(store, answer)
    assert order == ["ada0", "ben3", "ada1", "ada2"]
