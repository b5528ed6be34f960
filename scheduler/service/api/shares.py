"""Shared links, which show one job to somebody who has no token, for a while.

A link names the job, until when it is valid, and the token with which it was made. It is signed
(HMAC-SHA256) with the digest of that token's secret, so it cannot be changed to name another job.
It ends at its time, when it is revoked, or as soon as that token expires or is revoked. The
database keeps nothing with which a link could be opened.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, func, select

from scheduler.service.api.problems import Problem
from scheduler.service.api.shapes import Link
from scheduler.service.api.tokens import Token, by_id, find
from scheduler.service.log.store import chain
from scheduler.service.log.store.tables import jobs, links, tokens
from scheduler.service.log.store.visibility import SOMEBODY, Role, Viewer

HOUR_S = 3600
LASTS_S = {"1 hour": HOUR_S, "1 day": 24 * HOUR_S, "7 days": 168 * HOUR_S}
LONGEST = 128  # characters of a mark
ID = 16  # of its signature, name a link
MOST = 100  # that hold, to the jobs of one owner
LISTED = 1000  # an operator is shown at most


@dataclass(frozen=True, slots=True)
class Share:
    """A shared link to a job. `until`: its end, seconds since the epoch; `mark`: the secret part of
    its address, after the job.
    """

    job_id: str
    until: int
    mark: str


def make(
    connection: Connection, secret: str, job_id: str, lasts_s: int, now: float
) -> Share | None:
    """Return a new link to a job, made with the token `secret`. It is valid for `lasts_s` seconds,
    but no longer than the token. Links that have ended are deleted. Return None where the token is
    not valid.

    Raise Problem (429) where the jobs of the job's owner have as many links as allowed.
    """
    token = find(connection, secret, now)
    if token is None:
        return None
    until = int(now) + lasts_s
    if token.expires_at is not None:
        until = min(until, int(token.expires_at))
    signature = _signature(token, job_id, until)
    chain.take_out(connection, links, links.c.until <= now)
    if not _kept(connection, signature):  # made twice within a second
        _room(connection, job_id, now)
        row = {"job_id": job_id, "token_id": token.id, "made_at": now, "until": until}
        chain.write(connection, links, [{"id": signature[:ID], **row}])
    return Share(job_id, until, f"{until:x}.{token.id}.{signature}")


def of(connection: Connection, viewer: Viewer, now: float) -> list[Link]:
    """Return the valid shared links to a viewer's jobs (for an operator to all jobs), the latest
    first, `LISTED` at most.
    """
    if viewer.only:
        return []
    what = (links, jobs.c.name.label("job_name"), jobs.c.owner, tokens.c.name.label("by"))
    query = _holding(select(*what), now)
    if not viewer.sees_all:
        query = query.where(jobs.c.owner == viewer.name)
    query = query.order_by(links.c.made_at.desc(), links.c.id).limit(LISTED)
    return [
        Link(
            id=row["id"],
            job_id=row["job_id"],
            job_name=row["job_name"],
            made_by=row["by"] if viewer.owns(row["by"]) else SOMEBODY,
            made_at=row["made_at"],
            until=row["until"],
        )
        for row in connection.execute(query).mappings()
    ]


def revoke(connection: Connection, viewer: Viewer, link_id: str, now: float) -> bool:
    """Revoke a shared link to a job that the viewer may see. Return whether there was such
    a link.
    """
    query = _holding(select(jobs.c.owner), now).where(links.c.id == link_id)
    owner = connection.execute(query).scalar()
    if owner is None or not viewer.owns(owner):
        return False
    chain.take_out(connection, links, links.c.id == link_id)
    return True


def _holding(query: Select[Any], now: float) -> Select[Any]:
    """Return `query` narrowed to shared links that are valid now, joined with their jobs and
    tokens.
    """
    joined = links.join(jobs, jobs.c.job_id == links.c.job_id)
    joined = joined.join(tokens, tokens.c.id == links.c.token_id)
    lasts = tokens.c.expires_at.is_(None) | (tokens.c.expires_at > now)
    query = query.select_from(joined).where(links.c.until > now)
    return query.where(tokens.c.revoked_at.is_(None), lasts)


def _room(connection: Connection, job_id: str, now: float) -> None:
    """Raise Problem (429) where the owner of a job may make no more links to their jobs."""
    owner = select(jobs.c.owner).where(jobs.c.job_id == job_id).scalar_subquery()
    query = _holding(select(func.count()), now).where(jobs.c.owner == owner)
    if connection.execute(query).scalar_one() >= MOST:
        sentence = f"{MOST} links to jobs of this owner hold, the most there may be: revoke one"
        raise Problem(429, "too-many-links", sentence)


def opened(connection: Connection, job_id: str, mark: str, now: float) -> tuple[Viewer, int] | None:
    """Return the viewer that a shared link admits, who sees that job only, and the end of the link
    (seconds since the epoch). Return None when the link is not valid. `mark`: the secret part of
    its address.
    """
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
    """Return the parts of a shared link's mark (the secret part of its address): its end (seconds
    since the epoch), its token's id and its signature; (0, "", "") where the mark cannot be read.
    """
    parts = mark.split(".")
    if len(mark) > LONGEST or not mark.isascii() or len(parts) != 3:
        return 0, "", ""
    try:
        until = int(parts[0], 16)
    except ValueError:
        return 0, "", ""
    return (until, parts[1], parts[2]) if f"{until:x}" == parts[0] else (0, "", "")


def _signature(token: Token, job_id: str, until: int) -> str:
    content = f"share\n{job_id}\n{token.id}\n{until}"
    return hmac.digest(token.digest.encode(), content.encode(), "sha256").hex()
