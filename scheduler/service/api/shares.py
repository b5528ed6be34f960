"""Links that show one job to somebody who has no token, for a while.

A link names the job, until when it holds and the token it was made with, and is signed
(HMAC-SHA256) with what is stored of that token's secret: no other job can be put in its place. It
ends at its time, when it is revoked, or as soon as that token expires or is revoked. What is kept
of it does not open it.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select

from scheduler.service.api.tokens import Token, by_id, find
from scheduler.service.log.store.tables import jobs, links, tokens
from scheduler.service.log.store.visibility import SOMEBODY, Role, Viewer

HOUR_S = 3600
LASTS_S = {"1 hour": HOUR_S, "1 day": 24 * HOUR_S, "7 days": 168 * HOUR_S}
LONGEST = 128  # characters of a mark
ID = 16  # of its signature, name a link


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
    signature = _signature(token, job_id, until)
    connection.execute(delete(links).where(links.c.until <= now))
    if not _kept(connection, signature):  # made twice within a second
        row = {"job_id": job_id, "token_id": token.id, "made_at": now, "until": until}
        connection.execute(insert(links).values(id=signature[:ID], **row))
    return Share(job_id, until, f"{until:x}.{token.id}.{signature}")


@dataclass(frozen=True, slots=True)
class Link:
    """A link that holds, without what opens it. Times in seconds since the epoch.

    `made_by`: an operator's name is told to operators only.
    """

    id: str
    job_id: str
    job_name: str
    made_by: str
    made_at: float
    until: float


def of(connection: Connection, viewer: Viewer, now: float) -> list[Link]:
    """The links to a viewer's jobs, an operator's: to all, the latest first."""
    joined = links.join(jobs, jobs.c.job_id == links.c.job_id)
    joined = joined.join(tokens, tokens.c.id == links.c.token_id)
    query = select(links, jobs.c.name.label("job_name"), jobs.c.owner, tokens.c.name.label("by"))
    query = query.select_from(joined).order_by(links.c.made_at.desc(), links.c.id)
    holds = tokens.c.revoked_at.is_(None) & (
        tokens.c.expires_at.is_(None) | (tokens.c.expires_at > now)
    )
    rows = connection.execute(query.where(links.c.until > now, holds)).mappings()
    return [
        Link(
            row["id"],
            row["job_id"],
            row["job_name"],
            row["by"] if viewer.owns(row["by"]) else SOMEBODY,
            row["made_at"],
            row["until"],
        )
        for row in rows
        if viewer.owns(row["owner"])
    ]


def revoke(connection: Connection, viewer: Viewer, link_id: str, now: float) -> bool:
    """End a link to a job of the viewer's; False when there is none."""
    if link_id not in {link.id for link in of(connection, viewer, now)}:
        return False
    connection.execute(delete(links).where(links.c.id == link_id))
    return True


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
    if not _kept(connection, signature):
        return None
    owner = connection.execute(select(jobs.c.owner).where(jobs.c.job_id == job_id)).scalar()
    if owner is None or not token.viewer.owns(owner):
        return None
    return Viewer(owner, Role.VIEWER, only=job_id), until


def _kept(connection: Connection, signature: str) -> bool:
    query = select(links.c.id).where(links.c.id == signature[:ID])
    return connection.execute(query).scalar() is not None


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
