"""Links that show one job to somebody who has no token, for a while.

A link names the job, until when it holds and the token it was made with, and is signed
(HMAC-SHA256) with what is stored of that token's secret. Nothing is kept of it: it ends at its
time, or as soon as that token expires or is revoked, and no other job can be put in its place.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from sqlalchemy import Connection, select

from scheduler.service.api.tokens import Token, by_id, find
from scheduler.service.log.store.tables import jobs
from scheduler.service.log.store.visibility import Role, Viewer

HOUR_S = 3600
LASTS_S = {"1 hour": HOUR_S, "1 day": 24 * HOUR_S, "7 days": 168 * HOUR_S}
LONGEST = 128  # characters of a mark


@dataclass(frozen=True, slots=True)
class Share:
    """A link. `until`: seconds since the epoch; `mark`: what follows the job in its address."""

    job_id: str
    until: int
    mark: str


def make(
    connection: Connection, secret: str, job_id: str, lasts_s: int, now: float
) -> Share | None:
    """A link made with a token; None when that does not hold. The job is to be the maker's."""
    token = find(connection, secret, now)
    if token is None:
        return None
    until = int(now) + lasts_s
    if token.expires_at is not None:
        until = min(until, int(token.expires_at))
    return Share(job_id, until, f"{until:x}.{token.id}.{_signature(token, job_id, until)}")


def opened(connection: Connection, job_id: str, mark: str, now: float) -> tuple[Viewer, int] | None:
    """Who a link lets in, to see that job only, and until when; None when it does not hold."""
    until, token_id, signature = _parts(mark)
    if now >= until:
        return None
    token = by_id(connection, token_id)
    if token is None or not token.holds(now):
        return None
    # before the job is looked up, so that an answer's time tells nothing of a job
    if not hmac.compare_digest(signature.encode(), _signature(token, job_id, until).encode()):
        return None
    owner = connection.execute(select(jobs.c.owner).where(jobs.c.job_id == job_id)).scalar()
    if owner is None or not token.viewer.owns(owner):
        return None
    return Viewer(owner, Role.VIEWER, only=job_id), until


def _parts(mark: str) -> tuple[int, str, str]:
    """Moment, token and signature; a moment long past where they cannot be read."""
    parts = mark.split(".")
    if len(mark) > LONGEST or not mark.isascii() or len(parts) != 3:
        return 0, "", ""
    try:
        until = int(parts[0], 16)
    except ValueError:
        return 0, "", ""
    return (until, parts[1], parts[2]) if f"{until:x}" == parts[0] else (0, "", "")


def _signature(token: Token, job_id: str, until: int) -> str:
    said = f"share\n{job_id}\n{token.id}\n{until}"
    return hmac.digest(token.digest.encode(), said.encode(), "sha256").hex()
