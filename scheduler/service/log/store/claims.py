"""Claims: predictions that were shown to people, kept, compared with what happened, and counted.

An offer is a claim about a change ("with 2 GPUs it would start at once"). It waits until the job's
owner makes the change: by `change`, or by cancelling the job and submitting another that differs
only in that. Then it is judged like other claims, from the tables of jobs, decisions and events, so
that a restart loses nothing. A claim that is contradicted is judged at once. A claim is deleted
where its job is held or changed otherwise, or ends in such a way that the claim cannot be judged.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any
from zlib import crc32

from sqlalchemy import (
    Connection,
    Row,
    and_,
    delete,
    exists,
    false,
    func,
    insert,
    not_,
    or_,
    select,
    update,
)

from features.states import State
from scheduler.backends.events import Kind as Happened
from scheduler.backends.events import canonical
from scheduler.core.decisions import STARTS, Action
from scheduler.explain.claims import (
    GRACE_S,
    JUDGED,
    SOON_S,
    SPEED,
    VALID_S,
    Claim,
    Kind,
    Record,
    same_change,
)
from scheduler.service.log.record import Phase
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.tables import claims, decisions, events, forecasts, jobs

MOST = 20_000  # claims that are kept, and first forecasts that are counted: the latest
OPEN = 2_000  # claims that are judged in one go
AT_ONCE = 500  # claims that are kept in one go
OFFERS = tuple(kind.value for kind in Kind if kind.is_offer)
# of another job of its owner's that only differs in that, these do not say whether it is the same
_ITS_OWN = frozenset({"job_id", "submitted_at", "sealed"})
# what makes a claim say nothing any more
_CHANGES = (Happened.CHANGED, Happened.HELD, Happened.PRIORITY_SET)
_CLUSTER = (
    Happened.NODE_SET, Happened.GPUS_CLOSED, Happened.NODE_ADDED, Happened.NODE_CHANGED,
    Happened.NODE_REMOVED, Happened.SETTINGS_SET,
)  # fmt: skip


# --- keeping ------------------------------------------------------------------------------------


def keep(connection: Connection, made: Iterable[Claim], seq: int) -> None:
    """Store claims (predictions shown to people) that were made after event `seq`. An offer
    replaces the same offer made before, unless that was taken up or judged. Of other claims that
    are alike (job, kind and change) the first stays.
    """
    made = list(made)
    for i in range(0, len(made), AT_ONCE):
        _keep_some(connection, made[i : i + AT_ONCE], seq)


def _keep_some(connection: Connection, made: Sequence[Claim], seq: int) -> None:
    stand = _stand(connection, {one.job_id for one in made if not one.kind.is_offer})
    rows: dict[tuple[str, str, str], Mapping[str, Any]] = {}
    for one in made:
        change = canonical(one.change)
        known = one.job_id, one.kind.value, change
        if one.kind.is_offer:
            of = claims.c
            same = and_(of.job_id == one.job_id, of.kind == one.kind.value, of.change == change)
            left = and_(of.judged_at.is_(None), of.taken_at.is_(None))
            connection.execute(delete(claims).where(same, left))
        elif known in stand or known in rows:
            continue
        rows[known] = {
            "kind": one.kind.value,
            "job_id": one.job_id,
            "made_at": one.made_at,
            "seq": seq,
            "change": change,
            "due": one.due,
            "figure": one.figure,
        }
    if rows:
        connection.execute(insert(claims), list(rows.values()))


def _stand(connection: Connection, job_ids: Collection[str]) -> set[tuple[str, str, str]]:
    """Return which claims (predictions shown to people) are stored about some jobs, as (job ID,
    kind, change). One query serves all jobs.
    """
    if not job_ids:
        return set()
    of = claims.c
    query = select(of.job_id, of.kind, of.change).where(of.job_id.in_(job_ids))
    return {(row.job_id, row.kind, row.change) for row in connection.execute(query)}


def prune(connection: Connection, before: float) -> int:
    """Delete claims (predictions shown to people) that were made before the time `before`, and all
    but the latest `MOST`. Return the number of deleted claims.
    """
    last = connection.execute(select(func.max(claims.c.id))).scalar() or 0
    old = or_(claims.c.made_at < before, claims.c.id <= last - MOST)
    return connection.execute(delete(claims).where(old)).rowcount


def void(connection: Connection, job_ids: Collection[str]) -> None:
    """Delete the claims (predictions shown to people) about jobs that have been changed since.
    Claims with a verdict stay, and so do offers that the owner has taken up.
    """
    left = and_(claims.c.judged_at.is_(None), claims.c.taken_at.is_(None))
    for job_id in job_ids:
        connection.execute(delete(claims).where(claims.c.job_id == job_id, left))


def refute(connection: Connection, kind: Kind, job_ids: Collection[str], now: float) -> None:
    """Mark the claims (predictions shown to people) of a kind about some jobs as untrue, where they
    have no verdict yet. Called when something contradicts them before they are due.
    """
    for job_id in job_ids:
        this = and_(claims.c.job_id == job_id, claims.c.kind == kind.value)
        query = update(claims).where(this, claims.c.judged_at.is_(None))
        connection.execute(query.values(judged_at=now, held=False))


def forget_open(connection: Connection) -> None:
    """Delete all claims (predictions shown to people) that have no verdict yet. Called when the
    times of the log were corrected.
    """
    connection.execute(delete(claims).where(claims.c.judged_at.is_(None)))


# --- judging ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a claim (prediction shown to people). `claim`: number of its row; `values`:
    columns to be set; None: the row is to be deleted, because the claim cannot be judged any more.
    """

    claim: int
    values: Mapping[str, Any] | None


def judged(connection: Connection, now: float) -> list[Verdict]:
    """Return what is known at `now` of open claims (predictions shown to people): a verdict, that
    an offer was taken up, or that the claim is to be deleted. All other claims stay open. Of
    many open claims, only a part chosen by chance is examined in one call.

    A claim about an unknown job stays open for `VALID_S` seconds; then its verdict is to delete it.
    """
    lies_open = and_(  # of a job that waits on, as was claimed, there may be many for long
        claims.c.kind == Kind.NEVER.value,
        jobs.c.started_at.is_(None),
        jobs.c.ended_at.is_(None),
        claims.c.due > now,
    )
    query = (
        select(claims)
        .select_from(claims.outerjoin(jobs, jobs.c.job_id == claims.c.job_id))
        .where(claims.c.judged_at.is_(None), not_(func.coalesce(lies_open, false())))
    )
    there = connection.execute(select(func.count()).select_from(query.subquery())).scalar_one()
    parts = ceil(there / OPEN)
    if not parts:
        return []
    # one part of them, by lot: what stays open keeps nothing that comes after it from its turn
    part = crc32(f"{now:.0f}".encode()) % parts
    rows = connection.execute(query.order_by(claims.c.id).offset(part * OPEN).limit(OPEN)).all()
    ids = {row.taken_by or row.job_id for row in rows}
    found = {
        row.job_id: row for row in connection.execute(select(jobs).where(jobs.c.job_id.in_(ids)))
    }
    verdicts = []
    for row in rows:
        job = found.get(row.taken_by or row.job_id)
        if job is None:
            verdict: Mapping[str, Any] | None = None if now - row.made_at > VALID_S else {}
        elif row.kind in OFFERS and row.taken_at is None:
            verdict = _taken(connection, row, job, now)
        else:
            verdict = _verdict(connection, row, job, now)
        if verdict != {}:
            verdicts.append(Verdict(row.id, verdict))
    return verdicts


def apply(connection: Connection, verdicts: Sequence[Verdict]) -> None:
    """Write verdicts to the table of claims (predictions shown to people)."""
    for one in verdicts:
        this = claims.c.id == one.claim
        if one.values is None:
            connection.execute(delete(claims).where(this))
        else:
            connection.execute(update(claims).where(this).values(**one.values))


def taken(connection: Connection, job_id: str, change: str, at: float) -> None:
    """Note that the owner of a followed job (one in Slurm) has made a change. Open offers of that
    change count as taken up from then on; without one, nothing happens. `change`: canonical JSON of
    the change; `at`: when, seconds since the epoch.
    """
    of = and_(
        claims.c.job_id == job_id,
        claims.c.change == change,
        claims.c.judged_at.is_(None),
        claims.c.taken_at.is_(None),
    )
    for row in connection.execute(select(claims).where(of)).all():
        values = _taken_at(row, job_id, at)
        connection.execute(update(claims).where(claims.c.id == row.id).values(**values))


Values = Mapping[str, Any]  # columns to be set; none: nothing is known yet


def _taken(connection: Connection, row: Row[Any], job: Row[Any], now: float) -> Values | None:
    """Return the columns that mark an offer as taken up, if the job's owner has made the change.
    Return {} if that may still happen. Return None if another change was made, the job started, or
    time is up.
    """
    offered = json.loads(row.change)
    for at, kind, body in _since(connection, row.job_id, row.seq, _CHANGES):
        made = kind == Happened.CHANGED and same_change(body, offered)
        return _taken_at(row, row.job_id, at) if made and at - row.made_at <= VALID_S else None
    if job.cancel_asked or job.phase == Phase.CANCELLED.value:
        again = _submitted_again(connection, row, job, offered)
        if again is not None:
            return _taken_at(row, *again)
    late = now - row.made_at > VALID_S
    return None if late or job.started_at is not None else {}


def _taken_at(row: Row[Any], job_id: str, at: float) -> Values:
    due = None if row.due is None else row.due + max(0.0, at - row.made_at)
    return {"taken_at": at, "taken_by": job_id, "due": due}


def _submitted_again(
    connection: Connection, row: Row[Any], job: Row[Any], offered: Mapping[str, Any]
) -> tuple[str, float] | None:
    """Return the job that an owner submitted with the offered change in place of a cancelled
    one, as (job ID, submit time); None where there is none."""
    was = json.loads(job.spec) | {k: None if v == "" else v for k, v in offered.items()}
    same = [  # of thousands that they have sent since, few are read
        jobs.c[name] == offered.get(name, getattr(job, name)) for name in ("gpus", "vc", "name")
    ]
    query = (
        select(jobs.c.job_id, jobs.c.spec, jobs.c.submitted_at)
        .where(jobs.c.owner == job.owner, jobs.c.submitted_seq > row.seq, *same)
        .where(jobs.c.submitted_at <= row.made_at + VALID_S)
    )
    for other in connection.execute(query.order_by(jobs.c.submitted_seq)):
        if _as_asked(json.loads(other.spec)) == _as_asked(was):
            return other.job_id, other.submitted_at
    return None


def _as_asked(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return {k: v for k, v in spec.items() if k not in _ITS_OWN and v is not None}


def _verdict(connection: Connection, row: Row[Any], job: Row[Any], now: float) -> Values | None:
    """Return the columns with the verdict on a claim (prediction shown to people): whether it came
    true, and when it was judged. Return {} if the claim is still open, and None if it can never be
    judged.
    """
    kind, over = Kind(row.kind), Phase(job.phase).over
    if kind is Kind.NEVER:
        return _never(connection, row, job, now)
    since = row.seq if row.taken_at is None else _seq_of(connection, row)
    for at, _, _ in _since(connection, job.job_id, since, _CHANGES):
        if job.started_at is None or at < job.started_at:
            return None  # it is another job now
    if kind in (Kind.OFFER_BESIDE, Kind.OFFER_SPEED):
        return _company(connection=connection, kind=kind, row=row, job=job, now=now)
    if kind is Kind.OFFER_END:
        if job.ended_at is not None and job.state != State.COMPLETED.value:
            return None
        return _by(row.due + GRACE_S, job.ended_at, now, over=over)
    grace_s = SOON_S if kind is Kind.OFFER_AT_ONCE else GRACE_S
    return _by(row.due + grace_s, job.started_at, now, over=over)


def _by(due: float, came: float | None, now: float, *, over: bool) -> Values | None:
    """Return the columns with the verdict on a claim that something happens by `due`, given the
    time `came` at which it happened (None: not yet). Return {} where that is still open, and None
    where the job has ended (`over`) without it.
    """
    if came is not None:
        return {"judged_at": now, "held": came <= due, "came": came}
    if over:
        return None
    return {"judged_at": now, "held": False} if now > due else {}


def _never(connection: Connection, row: Row[Any], job: Row[Any], now: float) -> Values | None:
    """Return the columns with the verdict on a claim that a job will not start. The claim is true
    if the job has not started by the time the job ends or the claim is due. Return {} where it is
    open, and None where the job or the cluster was changed since.
    """
    late = row.due is not None and now > row.due
    if job.started_at is None and not Phase(job.phase).over and not late:
        return {}
    if any(_since(connection, job.job_id, row.seq, _CHANGES)):
        return None
    if any(_since(connection, None, row.seq, _CLUSTER)):
        return None
    return {"judged_at": now, "held": job.started_at is None, "came": job.started_at}


def _company(
    connection: Connection, kind: Kind, row: Row[Any], job: Row[Any], now: float
) -> Values | None:
    """Return the columns with the verdict on an offer to share GPUs: whether the job started beside
    another, or the pair speed measured there. Return {} where that is open, and None where the job
    has ended and the offer cannot be judged.
    """
    of = decisions.c
    query = (
        select(of.action, of.event, of.at)
        .where(of.job_id == job.job_id, of.at >= row.taken_at)
        .where(of.action.in_([action.value for action in STARTS]))
    )
    begun = connection.execute(query.order_by(of.seq).limit(1)).one_or_none()
    over = Phase(job.phase).over
    if begun is None:
        return None if over else {}
    beside = begun.action == Action.PACK.value
    if kind is Kind.OFFER_BESIDE:
        came = float(beside)
        return {"judged_at": now, "held": came == row.figure, "came": came}
    speed = None if beside else 1.0
    if beside:
        for _, _, body in _since(connection, job.job_id, begun.event, (Happened.PAIR_OBSERVED,)):
            speed = float(body["speed"])
    if speed is None:
        return None if over else {}
    held = abs(speed - row.figure) <= SPEED
    return {"judged_at": now, "held": held, "came": speed}


def _seq_of(connection: Connection, row: Row[Any]) -> int:
    """Return the `seq` of the event by which the owner took an offer up, or where there is none, of
    the last event before the offer.
    """
    at = (Happened.CHANGED.value, Happened.SUBMITTED.value)
    query = select(events.c.seq).where(
        events.c.job_id == row.taken_by, events.c.seq > row.seq, events.c.kind.in_(at)
    )
    return int(connection.execute(query.order_by(events.c.seq).limit(1)).scalar() or row.seq)


def _since(
    connection: Connection, job_id: str | None, seq: int, kinds: Collection[Happened]
) -> Iterable[tuple[float, str, Mapping[str, Any]]]:
    """Yield events of some kinds after event `seq`, as (time, kind, body), in order. `job_id`:
    only events about this job; None: all."""
    wanted = events.c.kind.in_([kind.value for kind in kinds])
    query = select(events).where(events.c.seq > seq, wanted)
    if job_id is not None:
        query = query.where(events.c.job_id == job_id)
    rows = connection.execute(query.order_by(events.c.seq)).all()
    for row, text in zip(rows, bodies(connection, events, rows), strict=True):
        yield row.at, row.kind, json.loads(text)


# --- counting -----------------------------------------------------------------------------------


def records(connection: Connection, now: float) -> list[Record]:
    """Return how often claims (predictions shown to people) of each kind came true.

    Forecasts made at submission are counted from the table of forecasts, other claims from their
    verdicts.
    """
    made = [*outcomes(connection), *_first_forecasts(connection, now)]
    return sorted(made, key=lambda one: _ORDER[one.kind])


def outcomes(connection: Connection) -> list[Record]:
    """Return one record for each kind of stored claim (prediction shown to people): how many came
    true, how many were judged, and how many are open.
    """
    of = claims.c
    counted = select(
        of.kind,
        func.count().filter(of.held.is_(True)).label("held"),
        func.count().filter(of.held.is_not(None)).label("judged"),
        func.count().filter(of.judged_at.is_(None)).label("left"),
    ).group_by(of.kind)
    found = {row.kind: row for row in connection.execute(counted)}
    return [
        Record.of(kind, row.held, row.judged, row.left)
        for kind in Kind
        if (row := found.get(kind.value)) is not None
    ]


_ORDER = {kind.value: place for place, kind in enumerate(Kind)}


def _first_forecasts(connection: Connection, now: float) -> list[Record]:
    """Return how many starts forecast at submission came true, over the `MOST` jobs submitted last:
    one record for jobs that were to start at once, and one for those others whose start was
    uncertain (p50 before p90). A record without jobs is left out. An overdue start counts as
    untrue. Jobs that were held or changed do not count.
    """
    made, started = forecasts.c, jobs.c.started_at
    latest = select(jobs.c.job_id).order_by(jobs.c.submitted_seq.desc()).limit(MOST)
    otherwise = exists().where(
        events.c.job_id == jobs.c.job_id, events.c.kind.in_((Happened.HELD, Happened.CHANGED))
    )
    waited = or_(started.is_(None), started > made.made_at)
    once = and_(made.start_p90 <= made.made_at + SOON_S, waited)
    left_open = and_(made.start_p50 < made.start_p90, not_(once))
    found = []
    for kind, among, due in (
        (Kind.AT_ONCE, once, made.made_at + SOON_S),
        (Kind.BY_P90, left_open, made.start_p90 + GRACE_S),
    ):
        overdue = and_(started.is_(None), jobs.c.ended_at.is_(None), due < now)
        query = (
            select(
                func.count().filter(started <= due).label("held"),
                func.count().filter(or_(started.is_not(None), overdue)).label("judged"),
                func.count().filter(started.is_(None), jobs.c.ended_at.is_(None), due >= now),
            )
            .select_from(forecasts.join(jobs, jobs.c.job_id == made.job_id))
            .where(made.basis == "submission", made.start_p90.is_not(None), among, ~otherwise)
            .where(jobs.c.job_id.in_(latest))
        )
        held, judged, left = connection.execute(query).one()
        if judged or left:
            found.append(Record.of(kind, held, judged, left))
    return found


def record_of(connection: Connection, kind: Kind) -> tuple[int, int]:
    """Return how many claims (predictions shown to people) of a kind came true, and how many were
    judged.
    """
    of = claims.c
    query = select(func.count().filter(of.held.is_(True)), func.count(of.held))
    held, judged = connection.execute(query.where(of.kind == kind.value)).one()
    return held, judged


def unfulfilled(connection: Connection, kind: Kind) -> dict[str, float]:
    """Return the jobs with a claim (prediction shown to people) of a kind for which nothing has
    come so far, neither in time nor late. Return them by job ID, each with the time of its claim,
    in seconds since the epoch.
    """
    of = claims.c
    query = select(of.job_id, of.made_at).where(of.kind == kind.value, of.came.is_(None))
    return {row.job_id: row.made_at for row in connection.execute(query.order_by(of.id))}


def lately(connection: Connection, kind: Kind) -> list[bool]:
    """Return whether each of the claims (predictions shown to people) of a kind came true, for the
    `JUDGED` that were judged last, the oldest first.
    """
    of = claims.c
    query = select(of.held).where(of.kind == kind.value, of.held.is_not(None))
    found = connection.execute(query.order_by(of.judged_at.desc(), of.id.desc()).limit(JUDGED))
    return list(found.scalars())[::-1]
