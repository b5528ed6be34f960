"""The questions that the follower (the process that follows Slurm) answers. The API puts them into
the database, as it does questions for the analyst."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import structlog
from sqlalchemy import select, update

from features.codec import Json
from scheduler.backends.events import canonical
from scheduler.service.log.questions import ETA, LOOK, NODES, PATIENCE_S, SHARES, TRIED
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions

AT_ONCE = ETA, NODES, SHARES, TRIED  # kinds that are answered from the last read of the queue
KINDS = (*AT_ONCE, LOOK)
log = structlog.get_logger()


def answer_questions(
    store: Store, answer: Callable[[str, Json], Json], kinds: Sequence[str] = KINDS
) -> None:
    """Answer the waiting questions of the given kinds with the function `answer`, and store the
    answers. Each user's first question comes before anybody's second. Questions older than
    `PATIENCE_S` seconds are left unanswered."""
    since = store.clock.now() - PATIENCE_S
    waits = (
        select(questions.c.id, questions.c.kind, questions.c.body, questions.c.actor)
        .where(questions.c.answer.is_(None), questions.c.kind.in_(kinds))
        .where(questions.c.asked_at >= since)
    )
    with store.engine.connect() as connection:
        asked = list(connection.execute(waits.order_by(questions.c.asked_at)))
    turns: dict[str, int] = {}
    in_turn = []
    for row in asked:  # the first of everybody, then the second: who asks much waits for themselves
        turns[row.actor] = turns.get(row.actor, 0) + 1
        in_turn.append((turns[row.actor], row))
    for _, (question, kind, body, _) in sorted(in_turn, key=lambda one: one[0]):
        reply = canonical(_answered(answer, kind, json.loads(body)))
        values = {"answer": reply, "answered_at": store.clock.now()}
        with store.writing() as connection:
            connection.execute(update(questions).where(questions.c.id == question).values(values))


def _answered(answer: Callable[[str, Json], Json], kind: str, asked: Json) -> Json:
    try:
        return answer(kind, asked)
    except Exception:  # a question must not end the follower
        log.exception("question_failed", kind=kind)
        return {"unavailable": "it could not be tried"}
