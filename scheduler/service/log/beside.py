"""Compares another bundle's durations with those of the bundle in use. The other one is a shadow,
or the former bundle.

The log keeps, with every score, the values of the features it was made from. So any bundle that
asks for no other features can be scored on the same jobs, now or after a restart, and decides
nothing by it. What ended is the judge: both predictions of a job are held against how long it ran.
Intervals are those of a bootstrap over users, who are drawn with all their jobs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from math import log1p, nan
from pathlib import Path

import numpy as np
from sqlalchemy import Connection, select

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
WORDS = {
    "better": "better beyond chance",
    "worse": "worse beyond chance",
    "as good": "no difference beyond chance",
    "too few": f"fewer than {LEAST} jobs of {LEAST_USERS} users have ended",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """A bundle that decides nothing, compared with the one that decides.

    Attributes:
        role: "shadow", or "former": the one that decided before.
        digest, in_use: of the two bundles.
        jobs, users: how many ended since, and were scored by both.
        error, error_in_use: mean |ln(true / predicted)| of each.
        gain, low, high: by how much the error of the one in use is larger, and its 99 % interval.
        verdict: "better", "worse", "as good" or "too few"; of the one beside.
        why_not: why it cannot be scored, one sentence; "": it can.
    """

    role: str
    digest: str
    in_use: str
    jobs: int = 0
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
        """Return the verdict in words."""
        return self.why_not or WORDS[self.verdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The bundles compared with the one that decides, and whether a watch has returned to a former
    one.

    Attributes:
        in_use: its digest; "": there is none.
        beside: shadow and former, where there are such.
        left: digest of the bundle that a watch left for the one in use; "": it left none.
        left_at, why: when (seconds since the epoch), and why, one sentence.
    """

    in_use: str = ""
    beside: tuple[Beside, ...] = ()
    left: str = ""
    left_at: float = 0.0
    why: str = ""


def standing(connection: Connection, copies: Path, shadow: Path | None) -> Standing:
    """Return how the bundles beside the one in use compare with it.

    Args:
        copies: folder of the bundles that were decided with.
        shadow: folder of one that decides nothing; None, or not there: there is none.
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
    """The bundle in a folder beside the one in use; None: it is that one."""
    try:
        other, in_use = Bundle.load(folder), Bundle.load(used)
    except BundleError as error:
        return Beside(role=role, digest=folder.name, in_use=used.name, why_not=str(error))
    if other.digest == in_use.digest:
        return None
    after = max(since, _learned_to(other)) if role == SHADOW else since
    return beside(role, other, in_use, ended_with(connection, in_use.digest, after, SHOWN))


def _learned_to(bundle: Bundle) -> float:
    """Return when the last job was submitted that a bundle learned from; long ago: it does not
    say.
    """
    made = bundle.metadata.get("duration") or {}
    try:
        return datetime.fromisoformat(made["window_to"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


@dataclass(frozen=True, slots=True)
class Ended:
    """A job that ended, and the inputs of the score that it was decided with."""

    user: str
    inputs: tuple[str, ...]
    ran_s: float
    job_id: str = ""


def ended_with(connection: Connection, digest: str, since: float, most: int = MOST) -> list[Ended]:
    """Return the jobs that were scored by a bundle and have ended, in the order of their ends.

    Args:
        since: when the bundle came into use: older decisions are not looked at.
    """
    found: dict[str, tuple[float, Ended]] = {}
    for table in (decisions, events):
        what = (
            table.c.action == "enqueue" if table is decisions else table.c.kind == Kind.SCORED.value
        )
        scored = (
            select(
                table.c.seq, table.c.job_id, table.c.body,
                jobs.c.owner, jobs.c.started_at, jobs.c.ended_at,
            )
            .join(jobs, jobs.c.job_id == table.c.job_id)
            .where(what, table.c.at >= since)
            .where(jobs.c.state.in_(STATES), jobs.c.started_at.is_not(None))
            .order_by(table.c.seq.desc())
            .limit(2 * most)
        )  # fmt: skip
        rows = connection.execute(scored).mappings().all()
        for row, body in zip(rows, bodies(connection, table, rows), strict=True):
            given = json.loads(body)
            score = given if table is events else given.get("score") or {}
            if score.get("bundle") == digest and score.get("inputs"):
                ran_s = max(0.0, row["ended_at"] - row["started_at"])
                one = Ended(row["owner"], tuple(score["inputs"]), ran_s, row["job_id"])
                found[row["job_id"]] = row["ended_at"], one  # the first of its scores is last here
    return [one for _, one in sorted(found.values(), key=lambda pair: pair[0])][-most:]


def beside(
    role: str, other: Bundle, in_use: Bundle, ended: Sequence[Ended], *, level: float = LEVEL
) -> Beside:
    """Compare two bundles on jobs that ended."""
    found = Beside(role=role, digest=other.digest, in_use=in_use.digest)
    try:
        picks = _picks(other, in_use)
    except BundleError as error:
        return replace(found, why_not=str(error))
    names = [spec.kind for spec in in_use.duration.features]
    _, who = np.unique([one.user for one in ended] or [""], return_inverse=True)
    users = int(who.max()) + 1 if ended else 0
    if len(ended) < LEAST or users < LEAST_USERS:
        return replace(found, jobs=len(ended), users=users)
    errors = np.empty((2, len(ended)))
    for i, one in enumerate(ended):
        texts = one.inputs[: len(names)]
        row = [_value(text, kind) for text, kind in zip(texts, names, strict=True)]
        truth = log1p(one.ran_s)
        errors[0, i] = abs(other.duration.score([row[at] for at in picks]) - truth)
        errors[1, i] = abs(in_use.duration.score(row) - truth)
    gains = errors[1] - errors[0]
    count = np.bincount(who, minlength=users).astype(np.float64)
    total = np.bincount(who, gains, minlength=users)
    draw = np.random.default_rng(0).multinomial(users, np.full(users, 1 / users), RESAMPLES)
    spread = (draw @ total) / (draw @ count)
    low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return replace(
        found,
        jobs=len(ended),
        users=users,
        error=float(errors[0].mean()),
        error_in_use=float(errors[1].mean()),
        gain=float(gains.mean()),
        low=low,
        high=high,
        verdict="better" if low > 0 else "worse" if high < 0 else "as good",
    )


def uses(connection: Connection) -> list[tuple[str, float, int]]:
    """Return the digests of the bundles in the order they came into use; when, and by which event.

    One that is taken again while it is in use counts once.
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


def returned(connection: Connection) -> Mapping[str, object]:
    """Return the last return to a former bundle, as the log has it; empty when there was none.

    Its `at` is when.
    """
    query = select(events.c.at, events.c.body).where(events.c.kind == Kind.BUNDLE_RETURNED.value)
    row = connection.execute(query.order_by(events.c.seq.desc()).limit(1)).one_or_none()
    return {} if row is None else {**json.loads(row.body), "at": row.at}


def _picks(other: Bundle, in_use: Bundle) -> list[int]:
    """Return where among the features of the bundle in use those of another are. BundleError: not
    all.
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
