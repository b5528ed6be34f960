"""Puts questions to the analyst (the process that answers what-if questions), and waits for
answers. Both are kept in the database.
"""

from __future__ import annotations

import asyncio
import json
import uuid

from sqlalchemy import delete, func, insert, select
from starlette.concurrency import run_in_threadpool

from features.codec import Json
from scheduler.backends.events import canonical
from scheduler.explain.words import busy_words
from scheduler.service.api.problems import Problem
from scheduler.service.api.turns import rest
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions

ANALYST = "analyst"  # name of the lease
OF_ONE = 32  # questions of one who asks that may be open
SILENT_S = 60.0  # on a busy machine who answers is late to renew its lease, and lives
LONGER = {"cluster": 4.0, "whatif": 4.0}  # times as long: what a change moves is foreseen twice
POLL_S = 0.02, 0.25  # between two looks for the answer: at first, at last


class Questions:
    """Asks the analyst.

    Args:
        answer_s: how long to wait for an answer, seconds. Questions about the effect of a change
            have four times as long.
    """

    def __init__(self, store: Store, answer_s: float):
        self._store, self._answer_s = store, answer_s

    async def ask(
        self,
        kind: str,
        body: Json,
        actor: str,
        *,
        whom: str = ANALYST,
        answer_s: float | None = None,
    ) -> Json:
        """Return the answer of the analyst, or of the process that holds the lease `whom`. Return
        `{"unavailable": why}` when there is none in time, or nobody holds that lease. Each actor
        (person who asks) gets their turn, however many questions the others ask. Raise Problem
        (429) where an actor asks too many.
        """
        rest()
        patience_s = self._answer_s * LONGER.get(kind, 1.0) if answer_s is None else answer_s
        if not await run_in_threadpool(self._store.held, whom, SILENT_S):
            return {"unavailable": f"no {whom} is running"}
        question = await run_in_threadpool(self._put, kind, body, actor)
        pause, longest = POLL_S
        end = asyncio.get_running_loop().time() + patience_s
        while asyncio.get_running_loop().time() < end:
            await asyncio.sleep(pause)
            pause = min(longest, pause * 1.5)
            answer = await run_in_threadpool(self._answer, question)
            if answer is not None:
                return answer
        await run_in_threadpool(self._withdraw, question)
        return {"unavailable": busy_words("" if whom == ANALYST else whom, patience_s)}

    def _put(self, kind: str, body: Json, actor: str) -> str:
        question, now = str(uuid.uuid4()), self._store.clock.now()
        longest = self._answer_s * max(LONGER.values())
        open_ = questions.c.answered_at.is_(None), questions.c.asked_at > now - longest
        with self._store.writing() as connection:
            mine = select(func.count()).select_from(questions).where(questions.c.actor == actor)
            if connection.execute(mine.where(*open_)).scalar_one() >= OF_ONE:
                raise Problem(
                    429,
                    "too-many-questions",
                    f"{OF_ONE} questions of yours wait for an answer already",
                    retry_after_s=self._answer_s,
                )
            connection.execute(
                insert(questions).values(
                    id=question, asked_at=now, kind=kind, body=canonical(body), actor=actor
                )
            )
        return question

    def _withdraw(self, question: str) -> None:
        """Delete a question that nobody waits for any more, so that no time is spent on it."""
        with self._store.writing() as connection:
            connection.execute(delete(questions).where(questions.c.id == question))

    def _answer(self, question: str) -> Json | None:
        query = select(questions.c.answer).where(questions.c.id == question)
        with self._store.engine.connect() as connection:
            answer = connection.execute(query).scalar()
        return None if answer is None else dict(json.loads(answer))
