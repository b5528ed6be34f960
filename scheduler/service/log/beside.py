"""Compares the durations that another bundle of models predicts with those of the bundle in use.
The other bundle is a shadow (it decides nothing), or the one that was in use before.

With every score the log keeps the values of the features that the score was made from. So any
bundle that needs no further features can score the same jobs, now or after a restart. Both
predictions are compared with how long each job ran. Intervals come from a bootstrap over users: a
user is drawn with all their jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import inf, log1p, nan
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, RowMapping, select

from features.spec import Value
from models.bundle import Bundle, BundleError
from scheduler.backends.events import Kind
from scheduler.service.log.store.archive import bodies
from scheduler.service.log.store.tables import decisions, events, jobs

SHADOW, FORMER = "shadow", "former"
LEAST, LEAST_USERS = 50, 5  # jobs and users, before they are compared
MOST = 5000  # jobs that are compared, the latest
LEVEL = 0.99  # of the interval: it is looked at again and again
RESAMPLES = 1000
SHOWN = 1000  # jobs that a page and the command compare
STATES = ("completed", "failed")  # ended by themselves
_OF_JOB = "owner", "submitted_at", "started_at", "ended_at", "state"
WORDS = {
    "better": "better beyond chance",
    "worse": "worse beyond chance",
    "as good": "no difference beyond chance",
    "too few": f"fewer than {LEAST} jobs of {LEAST_USERS} users have ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A comparison of another bundle of models with the one in use.

    Attributes:
        role: "shadow", or "former": the bundle that was in use before.
        digest, in_use: digests of the other bundle and of the one in use.
        jobs, users: number of ended jobs that both scored, and of their users.
        running: number of running jobs that count too, with their time so far.
        error, error_in_use: mean |ln(true / predicted)| of the other bundle and of the one in use.
        gain, low, high: error of the bundle in use less that of the other, and its 99 % interval.
        verdict: "better", "worse", "as good" or "too few", about the other bundle.
        why_not: one sentence on why the other bundle cannot be scored; "": it can.
    """

    role: str
    digest: str
    in_use: str
    jobs: int = 0
    running: int = 0
    users: int = 0
    error: float | None = None
    error_in_use: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = "too few"
    why_not: str = ""

    @property
    def words(self) -> str:
        """Return the verdict of the comparison in words, or why the other bundle cannot be
        scored.
        """
        return self.why_not or WORDS[self.verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The bundle in use compared with others, and whether the service returned to it from a newer
    one that did worse (`watch_models`).

    Attributes:
        in_use: digest of the bundle in use; "": there is none.
        beside: comparisons with the shadow and with the former bundle, where these exist.
        left: digest of the newer bundle that was given up for the one in use; "": none was.
        left_at, why: when that bundle was given up (seconds since the epoch), and why, one
            sentence.
    """

    in_use: str = ""
    beside: tuple[Beside, ...] = ()
    left: str = ""
    left_at: float = 0.0
    why: str = ""


def standing(connection: Connection, copies: Path, shadow: Path | None) -> Standing:
    """Return how the shadow bundle and the former bundle of models compare with the one in use.

    Args:
        copies: folder with a copy of every bundle that has been in use.
        shadow: folder of a bundle that decides nothing; None or a missing folder: there is none.
    """
    used, last = uses(connection), returned(connection)
    if not used:
        return Standing()
    digest, since, _ = used[-1]
    others = [(SHADOW, shadow)] if shadow is not None and shadow.is_dir() else []
    others += [(FORMER, copies / used[-2][0])] if len(used) > 1 else []
    found = [
        one
        for role, folder in others
        if (one := _stands(connection, role, folder, used=copies / digest, since=since)) is not None
    ]
    if last.get("to") != digest:
        return Standing(in_use=digest, beside=tuple(found))
    return Standing(
        in_use=digest,
        beside=tuple(found),
        left=str(last["from"]),
        left_at=float(str(last["at"])),
        why=str(last["why"]),
    )


def _stands(
    connection: Connection, role: str, folder: Path, used: Path, since: float
) -> Beside | None:
    """Return how the bundle of models in folder `folder` compares with the bundle in use, in folder
    `used`. Return None where both are the same. Where one cannot be loaded, only `why_not` is set.
    `since`: when the bundle in use came into use, seconds since the epoch.
    """
    try:
        other, in_use = Bundle.load(folder), Bundle.load(used)
    except BundleError as error:
        return Beside(role=role, digest=folder.name, in_use=used.name, why_not=str(error))
    if other.digest == in_use.digest:
        return None
    after = max(since, learned_to(other)) if role == SHADOW else since
    known = began_with(connection, in_use.digest, after, SHOWN)
    return beside(role, other, in_use, as_of(known, len(in_order(known))))


def learned_to(bundle: Bundle) -> float:
    """Return when the newest job was submitted from which a bundle of models learned, in seconds
    since the epoch; 0 where the bundle does not state that.
    """
    made = bundle.metadata.get("duration") or {}
    try:
        return datetime.fromisoformat(made["window_to"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended, or still runs, for the comparison of two bundles of models.

    Attributes:
        inputs: values of the features that the job's score was made from.
        ran_s: seconds that it ran, or has run so far.
        running: whether it still runs.
    """

    user: str
    inputs: tuple[str, ...]
    ran_s: float
    job_id: str = ""
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A job that was started, for the comparison of two bundles of models.

    Attributes:
        inputs: values of the features that the job's score was made from.
        started, ended: seconds since the epoch; `ended` None: it still runs.
        counts: whether it ended by itself: completed or failed.
    """

    user: str
    inputs: tuple[str, ...]
    job_id: str
    started: float
    ended: float | None
    counts: bool


def ended_with(
    connection: Connection, digest: str, since: float, most: int = MOST, until: float = inf
) -> list[Ended]:
    """Return the jobs that a bundle of models scored and that have ended by themselves, in the
    order of their ends.

    Args:
        digest: digest of the bundle.
        since, until: scores from before and after these times (seconds since the epoch) do not
            count: when the bundle came into use, and when another one did.
        most: at most so many jobs, those that started last.
    """
    known = began_with(connection, digest, since, most, until=until, over=True)
    return [
        Ended(one.user, one.inputs, max(0.0, ended - one.started), one.job_id)
        for ended, one in in_order(known)
    ]


def began_with(
    connection: Connection,
    digest: str,
    since: float,
    most: int = MOST,
    *,
    until: float = inf,
    over: bool = False,
) -> list[Began]:
    """Return the jobs that were scored by a bundle of models and started, whether they have ended
    or not: at most the `most` that started last, in the order of their starts. `since` and `until`
    are as in `ended_with`.

    Args:
        over: return only jobs that ended by themselves.
    """
    found: dict[str, Began] = {}
    which = [jobs.c.started_at.is_not(None), *([jobs.c.state.in_(STATES)] if over else [])]
    for row, score in scores(connection, *which, most=2 * most, since=since, until=until):
        if score["bundle"] == digest:
            found[row["job_id"]] = Began(  # the first of its scores is last here
                user=row["owner"],
                inputs=tuple(score["inputs"]),
                job_id=row["job_id"],
                started=row["started_at"],
                ended=row["ended_at"],
                counts=row["state"] in STATES,
            )
    return sorted(found.values(), key=lambda one: one.started)[-most:]


def scores(
    connection: Connection,
    *of: ColumnElement[bool],
    most: int,
    since: float = -inf,
    until: float = inf,
) -> Iterator[tuple[RowMapping, Mapping[str, Any]]]:
    """Yield stored scores with the inputs from which they were made, each with its job's row.
    Scores in decisions come first, then scores in events; each kind latest first.

    Args:
        of: conditions on the jobs.
        most: number of scores of each kind, at most.
        since, until: range of the times of the scores, seconds since the epoch.
    """
    for table in (decisions, events):
        kind = (
            table.c.action == "enqueue" if table is decisions else table.c.kind == Kind.SCORED.value
        )
        shown = (getattr(jobs.c, name) for name in _OF_JOB)
        when = [table.c.at >= since] * (since > -inf) + [table.c.at <= until] * (until < inf)
        query = (
            select(table.c.seq, table.c.job_id, table.c.body, *shown)
            .join(jobs, jobs.c.job_id == table.c.job_id)
            .where(kind, *when, *of)
            .order_by(table.c.seq.desc())
            .limit(most)
        )
        rows = connection.execute(query).mappings().all()
        for row, body in zip(rows, bodies(connection, table, rows), strict=True):
            given = json.loads(body)
            score = given if table is events else given.get("score") or {}
            if score.get("bundle") and score.get("inputs"):
                yield row, score


def in_order(known: Iterable[Began]) -> list[tuple[float, Began]]:
    """Return the jobs that ended by themselves as (time of the end, job), in the order of their
    ends."""
    ended = [(one.ended, one) for one in known if one.counts and one.ended is not None]
    return sorted(ended, key=lambda pair: pair[0])


def as_of(known: Sequence[Began], count: int) -> list[Ended]:
    """Return the first `count` jobs that ended, and the jobs that were running when the last of
    these ended.

    Without the running jobs, only short ones would count, and a model that predicts too short would
    look good.
    """
    ended = in_order(known)[:count]
    now = ended[-1][0] if ended else 0.0
    found = [
        Ended(one.user, one.inputs, max(0.0, at - one.started), one.job_id) for at, one in ended
    ]
    found += [
        Ended(one.user, one.inputs, now - one.started, one.job_id, running=True)
        for one in known
        if one.started < now and (one.ended is None or one.ended > now)
    ]
    return found


def beside(
    role: str, other: Bundle, in_use: Bundle, ended: Sequence[Ended], *, level: float = LEVEL
) -> Beside:
    """Compare two bundles of models on ended and running jobs, and return the figures. A running
    job counts as an error if it has already run longer than predicted. Figures are None with too
    few jobs or users. Where `other` cannot be scored, `why_not` is set.
    """
    found = Beside(role=role, digest=other.digest, in_use=in_use.digest)
    try:
        picks = _picks(other, in_use)
    except BundleError as error:
        return replace(found, why_not=str(error))
    names = [spec.kind for spec in in_use.duration.features]
    _, who = np.unique([one.user for one in ended] or [""], return_inverse=True)
    users = int(who.max()) + 1 if ended else 0
    running = sum(one.running for one in ended)
    found = replace(found, jobs=len(ended) - running, running=running, users=users)
    if found.jobs < LEAST or users < LEAST_USERS:
        return found
    errors = np.empty((2, len(ended)))
    for i, one in enumerate(ended):
        texts = one.inputs[: len(names)]
        row = [_value(text, kind) for text, kind in zip(texts, names, strict=True)]
        truth = log1p(one.ran_s)
        scores = other.duration.score([row[at] for at in picks]), in_use.duration.score(row)
        errors[:, i] = [
            max(0.0, truth - score) if one.running else abs(score - truth) for score in scores
        ]
    gains = errors[1] - errors[0]
    count = np.bincount(who, minlength=users).astype(np.float64)
    total = np.bincount(who, gains, minlength=users)
    draw = np.random.default_rng(0).multinomial(users, np.full(users, 1 / users), RESAMPLES)
    spread = (draw @ total) / (draw @ count)
    low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return replace(
        found,
        error=float(errors[0].mean()),
        error_in_use=float(errors[1].mean()),
        gain=float(gains.mean()),
        low=low,
        high=high,
        verdict="better" if low > 0 else "worse" if high < 0 else "as good",
    )


def uses(connection: Connection) -> list[tuple[str, float, int]]:
    """Return the bundles of models in the order in which they came into use, as (digest, time,
    `seq` of the event).

    A bundle that is loaded again while it is in use counts once.
    """
    query = select(events.c.seq, events.c.at, events.c.body)
    rows = connection.execute(
        query.where(events.c.kind == Kind.BUNDLE.value).order_by(events.c.seq)
    ).all()
    found: list[tuple[str, float, int]] = []
    for row in rows:
        digest = str(json.loads(row.body)["digest"])
        if not found or found[-1][0] != digest:
            found.append((digest, float(row.at), int(row.seq)))
    return found


def doubts_of(connection: Connection, seq: int) -> list[str]:
    """Return the names of the figures in which a bundle of models was judged worse before it was
    promoted. `seq`: number of the event by which it came into use.
    """
    body = connection.execute(select(events.c.body).where(events.c.seq == seq)).scalar_one()
    return list(json.loads(body).get("doubts", []))


def returned(connection: Connection) -> Mapping[str, object]:
    """Return the body of the log's last event of a return to a former bundle of models, with the
    event's time as `at`. Return an empty mapping where there was none.
    """
    query = select(events.c.at, events.c.body).where(events.c.kind == Kind.BUNDLE_RETURNED.value)
    row = connection.execute(query.order_by(events.c.seq.desc()).limit(1)).one_or_none()
    return {} if row is None else {**json.loads(row.body), "at": row.at}


def _picks(other: Bundle, in_use: Bundle) -> list[int]:
    """Return the index of each feature of `other` among the features of `in_use`. Raise BundleError
    for a feature that `in_use` does not have.
    """
    places = {spec: i for i, spec in enumerate(in_use.duration.features)}
    for spec in other.duration.features:
        if spec not in places:
            raise BundleError(
                f"bundle {other.digest[:12]} wants a feature {spec.name!r} that the one in use "
                "does not: its predictions are not known"
            )
    return [places[spec] for spec in other.duration.features]


def _value(text: str, kind: str) -> Value:
    if kind == "continuous":
        return float(text) if text else nan
    return text or None
