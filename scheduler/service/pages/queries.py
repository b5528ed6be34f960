"""Queries that only pages need, beyond `store.reads`: many rows at once, and figures over
everybody's jobs.

As in `store.reads`, rows hold only what the viewer may see; figures name nobody.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, RowMapping, Select, case, exists, func, select

from features.codec import Json, decode
from scheduler.backends.events import Kind
from scheduler.core.decisions import ANOTHER
from scheduler.explain.explanation import StartForecastRow
from scheduler.service.log.record import Phase
from scheduler.service.log.store.alike import alike
from scheduler.service.log.store.paging import cursor, opened
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.rows import JobRow, Page
from scheduler.service.log.store.short import FIGURES, HOLDING, OVER, WAITING, Tally
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import (
    decisions,
    events,
    forecasts,
    jobs,
    leases,
    live,
    on_gpus,
    waited,
    waiting_from,
)
from scheduler.service.log.store.visibility import Viewer
from scheduler.service.log.unread import silent
from scheduler.service.pages.lately import Lately

DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Kept:
    """A forecast made at submission, and how it turned out. Times are seconds from the submission.

    Attributes:
        start_p50, start_p90, end_p50, end_p90: the forecast start and end.
        start, end: the real ones; `end` is None unless the job completed.
        batch: the same number for all jobs that one user sent within one hour of the clock, which
            tend to be late together.
    """

    start_p50: float
    start_p90: float
    end_p50: float | None
    end_p90: float | None
    start: float
    end: float | None
    batch: int


@dataclass(frozen=True, slots=True)
class Holding:
    """A job that holds GPUs. Times are seconds since the epoch; None where they were not forecast.

    Attributes:
        job_id, name: "" for a job that the viewer may not see.
        gpus: GPU indices by node.
        end_p50, end_p90: forecast end.
        past_s: how much longer it runs than predicted, seconds.
    """

    job_id: str
    name: str
    gpus: dict[int, list[int]]
    end_p50: float | None
    end_p90: float | None
    past_s: float

    @property
    def who(self) -> str:
        """Return the job's id and name in words, or words for a job that the viewer may not
        see."""
        if not self.job_id:
            return ANOTHER
        return f"job {self.job_id} ({self.name})" if self.name else f"job {self.job_id}"


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs of one owner and virtual cluster, with similar names and the same size and phase, that
    have not ended.

    Attributes:
        like: their name, with every number in it as "#" (`store.alike`).
        first: `seq` of the event that submitted the first of them.
        oldest: when that was, seconds since the epoch.
        next_start, last_start: the earliest and the latest median forecast start of those that
            wait; None: no start is forecast.
    """

    vc: str
    owner: str
    like: str
    gpus: int
    phase: str
    jobs: int
    first: int
    oldest: float
    next_start: float | None
    last_start: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """An ended job, without its name. Times are seconds. `user` and `account` are "" unless the
    viewer may see the owner. `account` is also "" where it was not asked for, or there is no Slurm.
    """

    vc: str
    user: str
    gpus: int
    submitted_at: float
    started_at: float
    ended_at: float
    state: str
    estimate_s: float | None
    wait_s: float
    account: str = ""

    @property
    def ran_s(self) -> float:
        return self.ended_at - self.started_at


@dataclass(frozen=True, slots=True)
class Used:
    """What an ended job used. A field is None where the job had no limit, or nothing was measured.

    Attributes:
        gpu_s: GPU-seconds. ran_s: seconds on GPUs. limit_s: time limit, seconds.
        util_pct: utilisation of its GPUs while measured, percent.
        mem_mib: memory use of its fullest GPU, MiB.
    """

    owner: str
    vc: str
    account: str
    gpu_s: float
    ran_s: float
    limit_s: float | None
    util_pct: float | None
    mem_mib: float | None


class PageQueries(VisibleQueries):
    """The queries of one viewer that only pages need, which read many rows at once."""

    def __init__(
        self,
        store: Store,
        viewer: Viewer,
        bundles: Path | None = None,
        lately: Lately | None = None,
    ):
        super().__init__(store.engine, viewer, bundles)
        self._store = store
        self._lately = Lately() if lately is None else lately

    def now(self) -> float:
        """Return the time on the service's clock, seconds since the epoch. With the simulated
        backend, that is the time of the last decision pass.
        """
        header = self._body(Kind.HEADER)
        if header.get("pace", 1.0) == 1.0 and header.get("backend") != "simulated":
            return self._store.clock.now()
        rows = self._all(
            select(events.c.body)
            .where(events.c.kind == Kind.DECIDED)
            .order_by(events.c.seq.desc())
            .limit(1)
        )
        return float(json.loads(rows[0]["body"])["now"]) if rows else header.get("start", 0.0)

    def undecided_since(self) -> float | None:
        """Return when the last decider's lease expired, seconds since the epoch. Return 0 where
        there never was a decider, and None while one is running.
        """
        if self._store.held("decider"):
            return None
        rows = self._all(select(leases.c.expires_at).where(leases.c.name == "decider"))
        return float(rows[0]["expires_at"]) if rows else 0.0

    def silent(self) -> list[str]:
        """Return which parts of a followed Slurm do not answer, a sentence each."""
        return silent(self._store).sentences(self._store.clock.now())

    def not_modelled(self) -> list[str]:
        """Return, a line each, what the policy `slurm` leaves out of its copy of this Slurm, what
        could not be read, and which kinds of claims (predictions shown to people) it no longer
        makes. Only operators see these lines.
        """
        if not self.viewer.sees_all:
            return []
        last = self._body(Kind.ADVISED)
        return [*last.get("not_modelled", []), *last.get("unread", []), *last.get("withdrawn", [])]

    def policy(self) -> str:
        return str(self._body(Kind.HEADER).get("policy", ""))

    def bundle_digest(self) -> str:
        return str(self._body(Kind.BUNDLE).get("digest", ""))

    def placed(self) -> list[JobRow]:
        """Return the jobs that hold GPUs and that the viewer may see, in the order they started."""
        query = select(jobs).where(jobs.c.phase.in_(HOLDING), self._mine())
        return self._job_rows(self._all(query.order_by(jobs.c.started_at, jobs.c.submitted_seq)))

    def holding(self, nodes: Collection[int]) -> list[Holding]:
        """Return the jobs that hold GPUs of the nodes with these numbers, in the order they
        started. Of a job that the viewer may not see the id and the name are "".
        """
        names = ("job_id", "owner", "name", "nodes", "phase", "started_at", "estimate_s")
        latest = (forecasts.c.job_id == jobs.c.job_id) & (forecasts.c.basis == "latest")
        query = (
            select(*(jobs.c[name] for name in names), forecasts.c.end_p50, forecasts.c.end_p90)
            .select_from(jobs.outerjoin(forecasts, latest))
            .where(on_gpus)
            .order_by(jobs.c.started_at, jobs.c.submitted_seq)
        )
        now, wanted = self.now(), set(nodes)
        found = []
        for row in self._all(query):
            gpus = {node: on for node, on in json.loads(row["nodes"]) if node in wanted}
            if not gpus:
                continue
            mine = self._sees(row)
            past = 0.0
            if row["started_at"] is not None and row["estimate_s"] is not None:
                past = max(0.0, now - row["started_at"] - row["estimate_s"])
            # of a profiling run the forecast is of the job itself
            looks = row["phase"] == Phase.PROFILING
            found.append(
                Holding(
                    job_id=row["job_id"] if mine else "",
                    name=row["name"] if mine else "",
                    gpus=gpus,
                    end_p50=None if looks else row["end_p50"],
                    end_p90=None if looks else row["end_p90"],
                    past_s=past,
                )
            )
        return found

    def groups(self, **only: str | int) -> list[Group]:
        """Return the jobs that the viewer may see and that have not ended, similar ones as one
        group, in no particular order. The groups may be some seconds old (`Lately`).

        Args:
            only: values that the jobs' columns must have. `like`: their name, with every number as
                "#".
        """
        asked = tuple(sorted(only.items()))
        return self._lately.get(("groups", self.viewer, asked), lambda: self._groups(only))

    def tally(self) -> list[Tally]:
        """Return what `ShortRows.tally` returns; it may be some seconds old (`Lately`)."""
        return self._lately.get(("tally", self.viewer), super().tally)

    def _groups(self, only: Mapping[str, str | int]) -> list[Group]:
        latest = (forecasts.c.job_id == jobs.c.job_id) & (forecasts.c.basis == "latest")
        start = case((jobs.c.phase.in_(WAITING), forecasts.c.start_p50))
        query = (
            select(
                *_KEY.values(),
                func.count(),
                func.min(jobs.c.submitted_seq),
                func.min(jobs.c.submitted_at),
                func.min(start),
                func.max(start),
            )
            .select_from(jobs.outerjoin(forecasts, latest))
            .where(live, self._mine(), *_having(only))
            .group_by(*_KEY.values())
        )
        return [Group(*row) for row in self._tuples(query)]

    def members(self, **only: str | int) -> list[str]:
        """Return the ids of the jobs that the viewer may see, that have not ended and that match
        (as in `groups`), in the order they were submitted, at most `FIGURES`.
        """
        query = select(jobs.c.job_id).where(live, self._mine(), *_having(only))
        return [row[0] for row in self._tuples(query.order_by(jobs.c.submitted_seq).limit(FIGURES))]

    def submitted_by(self, seqs: Collection[int]) -> dict[int, str]:
        """Return the ids of the jobs that these events submitted and that the viewer may see, by
        the event's `seq`.
        """
        query = select(jobs.c.submitted_seq, jobs.c.job_id).where(jobs.c.submitted_seq.in_(seqs))
        return dict(self._tuples(query.where(self._mine()))) if seqs else {}

    def _tuples(self, query: Select[Any]) -> list[Any]:
        """Return the rows of a query as tuples. For thousands of rows, making mappings takes longer
        than the query.
        """
        with self._engine.connect() as connection:
            return list(connection.execute(query).all())

    def unqueued(self) -> list[JobRow]:
        """Return the first 200 jobs that the viewer may see and that wait outside any queue: not
        evaluated yet, to be profiled first, or held.
        """
        query = select(jobs).where(jobs.c.phase.in_((Phase.SUBMITTED, Phase.HELD)), self._mine())
        return self._job_rows(self._all(query.order_by(jobs.c.submitted_seq).limit(200)))

    def over(
        self,
        *,
        since: float = 0.0,
        vc: str = "",
        owner: str = "",
        state: str = "",
        limit: int = 50,
        after: str = "",
    ) -> Page[JobRow]:
        """Return a page of the jobs that the viewer may see and that ended at or after `since`,
        latest end first.
        """
        query = select(jobs).where(jobs.c.phase.in_(OVER), jobs.c.ended_at >= since)
        query = query.where(self._mine())
        query = query.order_by(jobs.c.ended_at.desc(), jobs.c.submitted_seq.desc())
        for column, wanted in ((jobs.c.vc, vc), (jobs.c.owner, owner), (jobs.c.state, state)):
            if wanted:
                query = query.where(column == wanted)
        if after:
            at, seq = opened(after, float, int)
            query = query.where(
                (jobs.c.ended_at < at) | ((jobs.c.ended_at == at) & (jobs.c.submitted_seq < seq))
            )
        rows, more = self._some(query, limit)
        end = cursor(rows[-1]["ended_at"], rows[-1]["submitted_seq"]) if more else None
        return Page(self._job_rows(rows), end)

    def forecasts(self, ids: Collection[str]) -> dict[str, StartForecastRow]:
        """Return the latest forecast of each of the jobs `ids` that the viewer may see, by job
        ID.
        """
        if not ids:
            return {}
        query = select(forecasts).where(
            forecasts.c.job_id.in_(self._visible(ids)), forecasts.c.basis == "latest"
        )
        return {row["job_id"]: decode(StartForecastRow, row) for row in self._all(query)}

    # --- figures ----------------------------------------------------------------------------

    def outcomes(self, since: float = 0.0, *, accounts: bool = False) -> list[Outcome]:
        """Return the started jobs of all users that ended at or after `since`, latest first, at
        most `FIGURES`. `accounts`: also give the Slurm account that each was billed to.
        """
        names = [n for n in Outcome.__slots__ if n not in ("user", "account")]
        query = (
            select(*(waited.label(n) if n == "wait_s" else jobs.c[n] for n in names), jobs.c.owner)
            .add_columns(*([jobs.c.slurm] * accounts))
            .where(jobs.c.ended_at >= since, jobs.c.started_at.is_not(None))
            .where(jobs.c.state.is_not(None))
            .order_by(jobs.c.ended_at.desc())
            .limit(FIGURES)
        )
        found = []
        for row in self._all(query):
            mine = self.viewer.owns(row["owner"])
            slurm = json.loads(row["slurm"]) if accounts and mine and row["slurm"] else {}
            known = {"user": row["owner"] if mine else "", "account": slurm.get("account", "")}
            found.append(Outcome(**known, **{n: row[n] for n in names}))
        return found

    def used(self, since: float = 0.0) -> list[Used]:
        """Return what each started job used that ended at or after `since` and that the viewer may
        see, latest first, at most `FIGURES`. Only the latest `FIGURES` measurements are counted.
        """
        names = "job_id", "owner", "vc", "gpus", "started_at", "ended_at", "spec", "slurm"
        ended = jobs.c.ended_at >= since, jobs.c.started_at.is_not(None), self._mine()
        query = select(*(jobs.c[n] for n in names)).where(*ended)
        rows = self._all(query.order_by(jobs.c.ended_at.desc()).limit(FIGURES))
        measured = events.c.kind.in_((Kind.PROFILED, Kind.OBSERVED))
        watched = (
            select(events.c.seq, events.c.job_id, events.c.body)
            .join(jobs, jobs.c.job_id == events.c.job_id)
            .where(measured, *ended)
            .order_by(events.c.seq.desc())
            .limit(FIGURES)
        )
        seen = list(reversed(self._all(watched)))
        whole = self._bodies(events, seen)
        bodies = {row["job_id"]: json.loads(body) for row, body in zip(seen, whole, strict=True)}
        found = []
        for row in rows:
            ran_s = row["ended_at"] - row["started_at"]
            profile = bodies.get(row["job_id"], {}).get("profile") or {}
            found.append(
                Used(
                    owner=row["owner"],
                    vc=row["vc"],
                    account=(json.loads(row["slurm"]) if row["slurm"] else {}).get("account", ""),
                    gpu_s=row["gpus"] * ran_s,
                    ran_s=ran_s,
                    limit_s=json.loads(row["spec"]).get("time_limit_s"),
                    util_pct=profile.get("gpu_util_pct"),
                    mem_mib=profile.get("gpu_mem_mib"),
                )
            )
        return found

    def kept(self) -> list[Kept]:
        """Return the forecasts made at submission of all users' started jobs, with how they turned
        out, latest first, at most `FIGURES`. Jobs held or changed meanwhile are left out.
        """
        made, at = forecasts.c, jobs.c.submitted_at
        otherwise = exists().where(
            events.c.job_id == jobs.c.job_id, events.c.kind.in_((Kind.HELD, Kind.CHANGED))
        )
        query = (
            select(
                (made.start_p50 - at).label("start_p50"),
                (made.start_p90 - at).label("start_p90"),
                (made.end_p50 - at).label("end_p50"),
                (made.end_p90 - at).label("end_p90"),
                (jobs.c.started_at - at).label("start"),
                case((jobs.c.state == "completed", jobs.c.ended_at - at)).label("end"),
                jobs.c.owner,
                at,
            )
            .select_from(forecasts.join(jobs, jobs.c.job_id == made.job_id))
            .where(made.basis == "submission", made.start_p90.is_not(None))
            .where(jobs.c.started_at.is_not(None), ~otherwise)
            .where(made.made_at - at < DAY_S)  # else a wrong clock dated it, as the log says
            .order_by(jobs.c.submitted_seq.desc())
            .limit(FIGURES)
        )
        batches: dict[tuple[str, int], int] = {}
        return [
            Kept(
                **{n: row[n] for n in Kept.__slots__ if n != "batch"},
                batch=batches.setdefault(
                    (row["owner"], int(row["submitted_at"] // 3600)), len(batches)
                ),
            )
            for row in self._all(query)
        ]

    def unforeseen(self) -> int:
        """Return the number of jobs for which no start was forecast at submission."""
        return self._count(
            select(func.count())
            .select_from(forecasts)
            .where(forecasts.c.basis == "submission", forecasts.c.start_p50.is_(None))
        )

    def phases(self) -> dict[tuple[str, str], tuple[int, float | None]]:
        """Return, by (virtual cluster, phase), the number of all users' jobs that have not ended,
        and since when the longest waiting of them waits, in seconds since the epoch; None where
        none waits.
        """
        first = func.min(waiting_from)
        query = select(jobs.c.vc, jobs.c.phase, func.count(), first)
        query = query.where(live).group_by(jobs.c.phase, jobs.c.vc)
        rows = self._lately.get("phases", lambda: self._tuples(query))
        return {(vc, phase): (n, at) for vc, phase, n, at in rows}

    def inputs(self, digest: str, limit: int = 2000) -> list[tuple[str, ...]]:
        """Return the feature values behind the latest scores of a bundle of models, as a tuple of
        texts for each job. No job is named: the values are only counted.
        """
        scored = select(decisions.c.seq, decisions.c.job_id, decisions.c.body).where(
            decisions.c.action == "enqueue"
        )
        found: dict[str, tuple[str, ...]] = {}
        rows = self._all(scored.order_by(decisions.c.seq.desc()).limit(2 * limit))
        for row, body in zip(rows, self._bodies(decisions, rows), strict=True):
            score = json.loads(body).get("score") or {}
            if score.get("bundle") == digest and score.get("inputs"):
                found.setdefault(row["job_id"], tuple(score["inputs"]))
        return list(found.values())[:limit]

    def _body(self, kind: Kind) -> Json:
        """Return the body of the last event of a kind, or {} where there is none."""
        query = select(events.c.body).where(events.c.kind == kind).order_by(events.c.seq.desc())
        rows: Sequence[RowMapping] = self._all(query.limit(1))
        return dict(json.loads(rows[0]["body"])) if rows else {}


_KEY: dict[str, ColumnElement[Any]] = {
    "vc": jobs.c.vc, "owner": jobs.c.owner, "like": alike(jobs.c.name), "gpus": jobs.c.gpus,
    "phase": jobs.c.phase,
}  # fmt: skip


def _having(only: Mapping[str, str | int]) -> list[ColumnElement[bool]]:
    return [_KEY[name] == wanted for name, wanted in only.items()]
