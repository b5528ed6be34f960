"""Which models decided about how many jobs, week by week, and how their predictions turned out.

The figures are counted from the log once an hour, into a file for each week in the state folder.
The pages show them, and `pellucid served` logs those of whole weeks in MLflow with the registered
versions. A service that may promote models (setting `params`) runs that command each week; the
service itself needs no MLflow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import exp, log, log1p
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import structlog
from sqlalchemy import Connection, select
from sqlalchemy.exc import DBAPIError

from features.codec import decode, encode
from features.files import write_whole
from features.given import read_text
from features.plain import first_line
from scheduler.backends.events import Kind
from scheduler.core.durations import LONG_S
from scheduler.service.log.beside import STATES
from scheduler.service.log.header import service_clock
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, events, jobs

FOLDER = "served"  # in the state folder
WEEK_S = 7 * 86_400.0
SETTLED_S = 86_400.0  # after its end a week is counted for good: ends come late in front of Slurm
POLL_S = 3600.0
KEPT = 9  # weeks that are counted: two months, and the one that runs
BATCH = 500  # jobs whose scores are read at once
WORD = re.compile(r"[0-9]{1,6}\.json")
TWICE = log(2.0)
OVER, OVER_S = LONG_S[1]  # six hours: such jobs hold most of the GPU time
WARNED = 0.2  # the chance to last so long from which on a job counts as announced


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """The figures of one bundle of models in one week.

    Attributes:
        digest: digest of the bundle.
        decided: number of jobs that it scored when they were submitted.
        ended: number of jobs that it scored and that ended by themselves in the week; the figures
            below are of these.
        users: number of their users.
        error: mean |ln(true / predicted)|. ratio: the median of true / predicted.
        twice: share of jobs that lasted between half and twice as long as predicted.
        long: number of those jobs that ran for more than `OVER_S`.
        warned: number of those to which a chance of `WARNED` or more to run so long was given.
        found: number of jobs that are both. Jobs without a recorded chance are in none of the
            three.
    """

    digest: str
    decided: int = 0
    ended: int = 0
    users: int = 0
    error: float | None = None
    ratio: float | None = None
    twice: float | None = None
    long: int = 0
    warned: int = 0
    found: int = 0

    @property
    def announced(self) -> str:
        """Return as text how many jobs of over six hours were announced, and how many others: "3 of
        9, 4 wrongly"; "" if there was neither.
        """
        if not self.long and not self.warned:
            return ""
        return f"{self.found} of {self.long}, {self.warned - self.found} wrongly"


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """The figures of all bundles of models of a service in one week.

    Attributes:
        number: number of the week since the epoch; it began at `number * WEEK_S`.
        over: whether the week had ended when it was counted.
        whole: whether its figures are final.
        bundles: figures of each bundle that scored jobs which came or ended in the week; the bundle
            with most jobs first.
    """

    number: int
    over: bool = False
    whole: bool = False
    bundles: tuple[Served, ...] = ()

    @property
    def since(self) -> float:
        """Return when the week began, seconds since the epoch."""
        return self.number * WEEK_S

    @property
    def words(self) -> str:
        """Return as text whether the week's figures may still change: "until now", "not settled
        yet", or "" if they are final.
        """
        return "" if self.whole else "not settled yet" if self.over else "until now"


def counted(connection: Connection, number: int, *, now: float) -> Week:
    """Return the figures of week `number`, as known at `now`: for each bundle of models, the jobs
    it scored and its errors on those that ended.
    """
    since = number * WEEK_S
    came = jobs.c.submitted_at >= since, jobs.c.submitted_at < since + WEEK_S
    over = jobs.c.ended_at >= since, jobs.c.ended_at < since + WEEK_S
    decided: dict[str, int] = {}
    ids = list(connection.execute(select(jobs.c.job_id).where(*came)).scalars())
    for i in range(0, len(ids), BATCH):
        for digest, *_ in _scores(connection, ids[i : i + BATCH]).values():
            decided[digest] = decided.get(digest, 0) + 1
    query = select(jobs.c.job_id, jobs.c.owner, jobs.c.started_at, jobs.c.ended_at).where(
        *over, jobs.c.started_at.is_not(None), jobs.c.state.in_(STATES)
    )
    misses: dict[str, list[_Ended]] = {digest: [] for digest in decided}
    rows = connection.execute(query).all()
    for i in range(0, len(rows), BATCH):
        scores = _scores(connection, [row.job_id for row in rows[i : i + BATCH]])
        for row in rows[i : i + BATCH]:
            digest, score, chance = scores.get(row.job_id, _UNSCORED)
            if digest:
                ran_s = max(0.0, row.ended_at - row.started_at)
                ended = _Ended(row.owner, log1p(ran_s) - score, ran_s > OVER_S, chance)
                misses.setdefault(digest, []).append(ended)
    found = [_served(digest, decided.get(digest, 0), of) for digest, of in misses.items()]
    found.sort(key=lambda one: (-one.decided, -one.ended, one.digest))
    end = since + WEEK_S
    return Week(number=number, over=now >= end, whole=now >= end + SETTLED_S, bundles=tuple(found))


class _Ended(NamedTuple):
    """A job that ended: its user, ln(true / predicted), whether it ran for over `OVER_S`, and the
    chance that was given to that; None: none was recorded."""

    user: str
    off: float
    long: bool
    chance: float | None


class _Scored(NamedTuple):
    """A job's first score: the digest of the bundle, ln(1 + predicted seconds), and the chance to
    run for over `OVER_S`; None: none was recorded."""

    digest: str
    value: float
    chance: float | None


_UNSCORED = _Scored("", 0.0, None)


def _served(digest: str, decided: int, ended: Sequence[_Ended]) -> Served:
    if not ended:
        return Served(digest=digest, decided=decided)
    off = [one.off for one in ended]
    known = [(one.long, one.chance >= WARNED) for one in ended if one.chance is not None]
    return Served(
        digest=digest,
        decided=decided,
        ended=len(ended),
        users=len({one.user for one in ended}),
        error=fmean(map(abs, off)),
        ratio=exp(median(off)),
        twice=sum(abs(miss) <= TWICE for miss in off) / len(off),
        long=sum(long for long, _ in known),
        warned=sum(warned for _, warned in known),
        found=sum(long and warned for long, warned in known),
    )


def _scores(connection: Connection, ids: Sequence[str]) -> dict[str, _Scored]:
    """Return each job's first score, by job ID. Jobs without a score are left out."""
    found: dict[str, _Scored] = {}
    for table in (decisions, events):
        scored = (
            table.c.action == "enqueue" if table is decisions else table.c.kind == Kind.SCORED.value
        )
        query = select(table.c.seq, table.c.job_id, table.c.body).where(
            table.c.job_id.in_(ids), scored
        )
        rows = connection.execute(query.order_by(table.c.seq)).all()
        for row, body in zip(rows, bodies(connection, table, rows), strict=True):
            given = json.loads(body)
            score = given if table is events else given.get("score") or {}
            if score.get("bundle"):
                chance = dict(given.get("evidence") or ()).get(OVER)
                known = None if chance is None else float(chance)
                one = _Scored(score["bundle"], float(score["value"]), known)
                found.setdefault(row.job_id, one)
    return found


def keep_counting(database: str, state_dir: Path, stopping: Callable[[float], bool]) -> None:
    """Write the weeks' figures (`count`) at the start and then once an hour, until stopped."""
    store, clock = Store(database), None
    try:
        while True:
            try:
                clock = clock or service_clock(store)
                count(store, state_dir, clock())
            except (DBAPIError, OSError, ValueError) as error:  # tried again the next time
                structlog.get_logger(FOLDER).warning("count_failed", why=first_line(error))
            if stopping(POLL_S):
                return
    finally:
        store.close()


def count(store: Store, state_dir: Path, now: float) -> None:
    """Write the figures of each of the last `KEPT` weeks to its file, the present week included,
    except those of weeks that are final already. Do nothing while the log is empty.
    """
    this = int(now // WEEK_S)
    known = {week.number for week in weeks(state_dir) if week.whole}
    with store.reading() as connection:
        first = connection.execute(select(events.c.at).order_by(events.c.seq).limit(1)).scalar()
    if first is None:
        return
    for number in range(max(int(first // WEEK_S), this - KEPT + 1), this + 1):
        if number not in known:
            with store.reading() as connection:
                found = counted(connection, number, now=now)
            write_whole(state_dir / FOLDER / f"{number}.json", json.dumps(encode(found)))


def weeks(state_dir: Path) -> list[Week]:
    """Return the weeks that were counted so far, the latest first."""
    return sorted(_read(state_dir / FOLDER), key=lambda week: -week.number)


def _read(folder: Path) -> Iterator[Week]:
    try:
        names = [one.name for one in folder.iterdir() if WORD.fullmatch(one.name)]
    except OSError:
        return
    for name in names:
        try:
            week: Week = decode(Week, json.loads(read_text(folder / name)))
            if type(week.number) is not int or f"{week.number}.json" != name:
                continue
            yield week
        except (OSError, ValueError, TypeError):
            continue  # counted again, where it is not too long ago
