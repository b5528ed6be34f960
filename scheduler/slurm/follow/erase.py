"""Deletes for good what a service in front of Slurm keeps about a user in its database."""

from __future__ import annotations

import json

from sqlalchemy import ColumnElement, Table, delete, select

from scheduler.service.log.header import FOLLOWED, followed_header
from scheduler.service.log.store import archive, chain, tables
from scheduler.service.log.store.store import Store

CHUNK = 500  # jobs named in one statement


class NotErasable(ValueError):
    """Raised for the database of a service that schedules by itself, since its state follows from
    its whole log."""


def erase(store: Store, user: str) -> dict[str, int]:
    """Delete a user's jobs, what was decided, predicted and claimed about them, links to them, and
    the user's own events (such as refused requests), questions and tokens.

    Return the number of deleted rows for each table. Jobs that Slurm still has are stored again at
    the next poll. Raise NotErasable for a service that schedules by itself.
    """
    if followed_header(store).backend != FOLLOWED:
        raise NotErasable("this database is of a service that decides itself: nobody is taken out")
    gone: dict[str, int] = {}
    with store.writing() as connection:

        def without(table: Table, where: ColumnElement[bool]) -> None:
            if table in (tables.questions, tables.claims):  # of which nothing is kept
                went = connection.execute(delete(table).where(where)).rowcount
            else:
                went = chain.take_out(connection, table, where)
            gone[table.name] = gone.get(table.name, 0) + went

        def without_text(table: Table, where: ColumnElement[bool]) -> None:
            seqs = list(connection.execute(select(table.c.seq).where(where)).scalars())
            archive.forget(connection, table, seqs)
            without(table, where)

        jobs, asked = tables.jobs.c, tables.questions.c
        query = select(jobs.job_id).where(jobs.owner == user)
        ids = list(connection.execute(query).scalars())
        for first in range(0, len(ids), CHUNK):
            some = ids[first : first + CHUNK]
            for table in (tables.decisions, tables.events):
                without_text(table, table.c.job_id.in_(some))
            for table in (tables.claims, tables.forecasts, tables.links, tables.jobs):
                without(table, table.c.job_id.in_(some))
        without_text(tables.events, tables.events.c.actor == user)
        about = [
            row.id
            for row in connection.execute(select(asked.id, asked.body, asked.actor))
            if row.actor == user or json.loads(row.body).get("user") == user
        ]
        for first in range(0, len(about), CHUNK):
            without(tables.questions, asked.id.in_(about[first : first + CHUNK]))
        without(tables.tokens, tables.tokens.c.name == user)
    return gone
