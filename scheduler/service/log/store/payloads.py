"""Payloads of jobs: commands and environments, which may hold users' secrets.

The log is kept for ever, and decisions do not depend on payloads. So they are in a table of their
own, written in the transaction that submits the job and deleted in the one that ends it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, select

from scheduler.backends.events import canonical
from scheduler.service.log.store import chain
from scheduler.service.log.store.tables import Columns, payloads


@dataclass(frozen=True, slots=True)
class Payload:
    """What a job runs: its command, and what is added to its environment.

    Attributes:
        workdir: working folder. It is kept in the log, and only counts here for the job's size.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    workdir: str = ""

    def row(self, job_id: str, owner: str) -> Columns:
        """Return the payload (command and environment) as a row of the table `payloads`."""
        command, environment = self._texts
        return {
            "job_id": job_id,
            "owner": owner,
            "bytes": self.bytes,
            "command": command,
            "environment": environment,
            "salt": secrets.token_hex(16),
        }

    @property
    def bytes(self) -> int:
        """Return the size of the payload (command, environment and name of the working folder) in
        bytes.
        """
        return sum(len(text.encode()) for text in (*self._texts, self.workdir))

    @property
    def _texts(self) -> tuple[str, str]:
        return canonical(list(self.command)), canonical(dict(self.environment))


GONE = Payload(("",), {})  # of a job that is over: no backend begins it


def payload_of(connection: Connection, job_id: str) -> Payload:
    """Return the payload (command and environment) of a job, or `GONE` when the job has ended."""
    query = select(payloads.c.command, payloads.c.environment).where(payloads.c.job_id == job_id)
    row = connection.execute(query).one_or_none()
    if row is None:
        return GONE
    return Payload(tuple(json.loads(row.command)), json.loads(row.environment))


def command_of(connection: Connection, job_id: str) -> tuple[str, ...] | None:
    """Return the command of a job that has not ended, from the table of payloads. Return None where
    the job has ended, or an older version wrote its command to the log.
    """
    query = select(payloads.c.command).where(payloads.c.job_id == job_id)
    found = connection.execute(query).scalar()
    return None if found is None else tuple(json.loads(found))


def drop(connection: Connection, job_ids: Iterable[str]) -> None:
    """Delete the payloads (commands and environments) of jobs."""
    over: Sequence[dict[str, str]] = [{"over": job_id} for job_id in job_ids]
    if over:
        connection.execute(delete(payloads).where(payloads.c.job_id == bindparam("over")), over)
        chain.gone(connection, payloads, [one["over"] for one in over])


def bytes_of(connection: Connection, owner: str) -> int:
    """Return the size of the payloads (commands and environments) of all jobs of an owner, in
    bytes.
    """
    query = select(func.coalesce(func.sum(payloads.c.bytes), 0)).where(payloads.c.owner == owner)
    return int(connection.execute(query).scalar_one())
