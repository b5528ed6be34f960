"""Metrics for Prometheus, computed from the tables when they are asked for.

Gauges give the present state. Counters and histograms are counted over the log and the decisions:
each process continues from where its last scrape stopped. So every process of the service shows the
same figures, and a restart changes none. No label names a job or a user.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ctypes import Structure, c_double, c_uint64
from dataclasses import dataclass, field
from multiprocessing.sharedctypes import RawValue
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from sqlalchemy import Connection, and_, case, exists, func, or_, select

from features.watch import DAY_S, KINDS, PAST_S, Alarm, Seen, Watch, usual_of
from scheduler.backends.events import Kind
from scheduler.core.decisions import Action
from scheduler.service.log.header import code_version
from scheduler.service.log.nodes import closed_gpus_of
from scheduler.service.log.record import ELIGIBLE, Phase
from scheduler.service.log.store.claims import outcomes
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import (
    decisions,
    events,
    forecasts,
    jobs,
    leases,
    live,
    nodes,
    on_gpus,
    settings,
)
from scheduler.service.log.unread import silent

WAIT_BUCKETS_S = (1, 10, 60, 300, 900, 3600, 10_800, 43_200, 86_400, 259_200, 604_800)
BATCH = 5000
WATCH_S, MOST_WATCHED = 600.0, 20_000
GRACE_S = 2.0  # that starting a process may take are not counted against a forecast
USUAL_S = 6 * 3600.0  # what is usual is worked out again
# after one of these a job may be over, as soon as a decision pass has covered it
_ENDS = (Kind.ENDED, Kind.NOT_STARTED, Kind.LOST, Kind.CANCEL_ASKED)
_OVER = [phase.value for phase in Phase if phase.over]


def _shared() -> Any:
    return RawValue("Q")


class Beat(Structure):
    """When a process last reported that it is alive (seconds on the monotonic clock), and how
    often; in shared memory.
    """

    _fields_ = (("at", c_double), ("count", c_uint64))


@dataclass(frozen=True)
class Counts:
    """Counts since the service was started, in memory that its processes share.

    Attributes:
        deaths: by name of the process, how often it ended or was killed while the service was to
            run.
        hangs: by name of the process, how often it was killed because it hung.
        beats: by name of the process, its `Beat`.
        connections_closed: number of connections that `api.connections` closed, for instance
            because they sent no whole request in time, or there were too many.
        full_since: when the disk was found full, seconds since the epoch; 0: it is not full.
        holder: name of this service's decider in its lease.
    """

    deaths: Mapping[str, Any] = field(default_factory=dict)
    hangs: Mapping[str, Any] = field(default_factory=dict)
    beats: Mapping[str, Any] = field(default_factory=dict)
    connections_closed: Any = field(default_factory=_shared)
    full_since: Any = field(default_factory=lambda: RawValue("d"))
    holder: str = ""

    @classmethod
    def of(cls, processes: Iterable[str], holder: str = "") -> Counts:
        names = list(processes)
        beats = {name: RawValue(Beat) for name in names}
        deaths, hangs = ({name: _shared() for name in names} for _ in range(2))
        return cls(deaths, hangs, beats, holder=holder)


class Metrics(Collector):
    """The content of `/metrics`, for one database and the processes of its service."""

    def __init__(self, store: Store, counts: Counts | None = None):
        self._store = store
        self._counts = counts or Counts()
        self._lock = Lock()
        self._seen = self._decided = 0  # seq up to which events and decisions are counted
        self._ending: set[str] = set()  # jobs that may be over, not counted yet
        self._events: Counter[str] = Counter()
        self._decisions: Counter[tuple[str, str]] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._gpu_time: Counter[str] = Counter()
        self._waits: dict[str, list[float]] = {}  # per VC: counts per bucket, then the sum
        self._watching = Lock()
        self._watched, self._odd = float("-inf"), list[Alarm]()
        self._scored, self._promised = float("-inf"), {"kept": 0, "late": 0}
        self._usual: Watch | None = None
        self._usual_until = float("-inf")
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def exposition(self) -> tuple[bytes, str]:
        """Return the metrics in text format, and its media type."""
        return generate_latest(self._registry), CONTENT_TYPE_PLAIN_0_0_4

    def describe(self) -> Iterable[Metric]:
        return ()  # nothing is computed just to be registered

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, as of one moment."""
        with self._lock, self._store.reading() as connection:
            self._fold(connection)
            found = [*self._now(connection), *self._counted()]
        yield from found

    # --- folds ------------------------------------------------------------------------------

    def _fold(self, connection: Connection) -> None:
        before = self._seen
        while rows := connection.execute(
            select(events.c.seq, events.c.kind, events.c.job_id)
            .where(events.c.seq > self._seen)
            .order_by(events.c.seq)
            .limit(BATCH)
        ).all():
            self._seen = rows[-1].seq
            self._events.update(row.kind for row in rows)
            self._ending.update(row.job_id for row in rows if row.kind in _ENDS)
        while taken := connection.execute(
            select(decisions.c.seq, decisions.c.action, decisions.c.reason, decisions.c.job_id)
            .where(decisions.c.seq >= self._decided)  # they are numbered from 0
            .order_by(decisions.c.seq)
            .limit(BATCH)
        ).all():
            self._decided = taken[-1].seq + 1
            self._decisions.update((row.action, row.reason) for row in taken)
            self._ending.update(row.job_id for row in taken if row.action == Action.REFUSE)
        for ids in batched(sorted(self._ending), BATCH):
            self._fold_ended(connection, ids, before)

    def _fold_ended(self, connection: Connection, ids: Sequence[str], before: int) -> None:
        """Add jobs that have ended by now to the counters. Skip rows last changed by event `before`
        or earlier, which were counted then.
        """
        query = select(
            jobs.c.job_id,
            jobs.c.vc,
            jobs.c.state,
            jobs.c.phase,
            jobs.c.gpus,
            jobs.c.submitted_at,
            jobs.c.started_at,
            jobs.c.ended_at,
            jobs.c.updated_seq,
        ).where(jobs.c.job_id.in_(ids), jobs.c.phase.in_(_OVER))
        for row in connection.execute(query):
            self._ending.discard(row.job_id)
            if row.updated_seq <= before:
                continue
            self._ended[row.vc, row.state or row.phase] += 1
            if row.started_at is None:
                continue
            self._gpu_time[row.vc] += row.gpus * (row.ended_at - row.started_at)
            wait = max(row.started_at - row.submitted_at, 0.0)
            slots = self._waits.setdefault(row.vc, [0.0] * (len(WAIT_BUCKETS_S) + 2))
            slots[bisect_left(WAIT_BUCKETS_S, wait)] += 1
            slots[-1] += wait

    def _counted(self) -> Iterator[Metric]:
        kinds = CounterMetricFamily("pellucid_events", "Events in the log.", labels=["kind"])
        for kind, n in sorted(self._events.items()):
            kinds.add_metric([kind], n)
        taken = CounterMetricFamily(
            "pellucid_decisions", "Decisions by action and reason.", labels=["action", "reason"]
        )
        for (action, reason), n in sorted(self._decisions.items()):
            taken.add_metric([action, reason], n)
        ended = CounterMetricFamily(
            "pellucid_jobs_ended", "Jobs that are over, by how they ended.", labels=["vc", "state"]
        )
        for (vc, state), n in sorted(self._ended.items()):
            ended.add_metric([vc, state], n)
        gpu_time = CounterMetricFamily(
            "pellucid_gpu_time_seconds", "GPU-seconds of jobs that are over.", labels=["vc"]
        )
        for vc, seconds in sorted(self._gpu_time.items()):
            gpu_time.add_metric([vc], seconds)
        waits = HistogramMetricFamily(
            "pellucid_queueing_delay_seconds",
            "Start minus submission of jobs that are over.",
            labels=["vc"],
        )
        for vc, slots in sorted(self._waits.items()):
            waits.add_metric([vc], list(_cumulated(slots[:-1])), slots[-1])
        yield from (kinds, taken, ended, gpu_time, waits)

    # --- now --------------------------------------------------------------------------------

    def _now(self, connection: Connection) -> Iterator[Metric]:
        yield from self._jobs(connection)
        yield from self._gpus(connection)
        yield self._claims(connection)
        yield from self._service(connection)
        yield self._unlike(connection)
        yield self._forecasts(connection)
        yield self._unread()

    def _jobs(self, connection: Connection) -> Iterator[Metric]:
        standing = GaugeMetricFamily(
            "pellucid_jobs", "Jobs that are not over, by where they stand.", labels=["vc", "phase"]
        )
        asked = GaugeMetricFamily(
            "pellucid_jobs_asked_gpus", "GPUs those jobs ask for or hold.", labels=["vc", "phase"]
        )
        oldest = GaugeMetricFamily(
            "pellucid_oldest_waiting_submit_timestamp_seconds",
            "When the longest waiting job, not held, was submitted, on the service's clock.",
            labels=["vc"],
        )
        query = select(
            jobs.c.vc,
            jobs.c.phase,
            func.count().label("n"),
            func.sum(jobs.c.gpus).label("gpus"),
            func.min(jobs.c.submitted_at).label("first"),
        )
        first: dict[str, float] = {}
        for row in connection.execute(query.where(live).group_by(jobs.c.phase, jobs.c.vc)):
            standing.add_metric([row.vc, row.phase], row.n)
            asked.add_metric([row.vc, row.phase], row.gpus)
            if Phase(row.phase) in ELIGIBLE:
                first[row.vc] = min(first.get(row.vc, row.first), row.first)
        for vc, at in sorted(first.items()):
            oldest.add_metric([vc], at)
        yield from (standing, asked, oldest)

    def _gpus(self, connection: Connection) -> Iterator[Metric]:
        on: Counter[tuple[int, int]] = Counter()
        for (placed,) in connection.execute(select(jobs.c.nodes).where(on_gpus)):
            on.update((node, gpu) for node, gpus in json.loads(placed) for gpu in gpus)
        use: Counter[tuple[str, str]] = Counter()
        count: Counter[tuple[str, str]] = Counter()
        for row in connection.execute(select(nodes)):
            count[row.vc, "open" if row.open else "drained"] += 1
            silent = {one.gpu for one in closed_gpus_of(row.closed_gpus)}
            for gpu in range(row.gpus):
                n = on[row.node, gpu]
                free = "drained" if not row.open else "silent" if gpu in silent else "free"
                use[row.vc, free if not n else "exclusive" if n == 1 else "shared"] += 1
        gpus = GaugeMetricFamily("pellucid_gpus", "GPUs by what they do.", labels=["vc", "use"])
        for (vc, what), n in sorted(use.items()):
            gpus.add_metric([vc, what], n)
        members = GaugeMetricFamily("pellucid_nodes", "Nodes by state.", labels=["vc", "state"])
        for (vc, state), n in sorted(count.items()):
            members.add_metric([vc, state], n)
        changes = CounterMetricFamily(
            "pellucid_settings_changes", "Changes of the policy's settings that were taken."
        )
        taken = connection.execute(select(func.count()).select_from(settings)).scalar_one()
        changes.add_metric([], taken)
        yield from (gpus, members, changes)

    @staticmethod
    def _claims(connection: Connection) -> Metric:
        """Return a gauge of how many stored claims (predictions shown to people) came true, came
        untrue or are open, by kind.
        """
        made = GaugeMetricFamily(
            "pellucid_claims",
            "What was claimed of jobs, by what came.",
            labels=["kind", "outcome"],
        )
        for one in outcomes(connection):
            for outcome, n in (
                ("held", one.held), ("refuted", one.judged - one.held), ("open", one.open)
            ):  # fmt: skip
                made.add_metric([one.kind, outcome], n)
        return made

    def _ended_since(self, connection: Connection, since: float) -> list[Seen]:
        """Return the started jobs that ended at or after `since` (seconds since the epoch), the
        latest first, at most `MOST_WATCHED`.
        """
        columns = (
            jobs.c.submitted_at, jobs.c.started_at, jobs.c.ended_at, jobs.c.gpus, jobs.c.vc,
            jobs.c.owner,
        )  # fmt: skip
        query = select(*columns).where(jobs.c.ended_at >= since, jobs.c.started_at.is_not(None))
        query = query.order_by(jobs.c.ended_at.desc()).limit(MOST_WATCHED)
        return [
            Seen(
                submitted=r.submitted_at,
                seconds=r.ended_at - r.started_at,
                gpus=r.gpus,
                vc=r.vc,
                user=r.owner,
            )
            for r in connection.execute(query)
        ]

    def unlike(self, connection: Connection) -> list[Alarm]:
        """Return alarms about jobs of the last day that are unlike those of the past weeks. The
        jobs are compared at most every ten minutes; in between, the last alarms are returned.

        What is usual is computed four times a day, from the past weeks up to a day ago. In between,
        only jobs submitted and ended since then are read.
        """
        with self._watching:
            now = self._store.clock.now()
            if now >= self._watched + WATCH_S:
                if now >= self._usual_until + DAY_S + USUAL_S:
                    past = self._ended_since(connection, now - PAST_S)
                    self._usual = usual_of(past, now - DAY_S)
                    self._usual_until = now - DAY_S  # once it was read
                odd: list[Alarm] = []
                if self._usual is not None:
                    recent = self._ended_since(connection, self._usual_until)
                    late = [job for job in recent if job.submitted >= self._usual_until]
                    odd = self._usual.alarms(late)
                self._odd, self._watched = odd, now
            return self._odd

    def _unlike(self, connection: Connection) -> Metric:
        """Return a gauge of the alarms about jobs of the last day that are unlike those of the
        past weeks, by kind."""
        kinds = Counter(alarm.kind for alarm in self.unlike(connection))
        odd = GaugeMetricFamily(
            "pellucid_unlike_past_weeks",
            "Groups whose jobs of the last day are unlike those of the past weeks.",
            labels=["of"],
        )
        for kind in KINDS:
            odd.add_metric([kind], kinds[kind])
        return odd

    def _forecasts(self, connection: Connection) -> Metric:
        """Return a gauge of how many forecasts of a start came true or were late in the last day,
        counted again every ten minutes.

        Only forecasts that left the start open at submission are counted. A job that still waits
        after its forecast start (p90) is late. Jobs that were held or changed meanwhile do not
        count.
        """
        now = self._store.clock.now()
        if now >= self._scored + WATCH_S:
            self._scored = now
            made, job = forecasts.c, jobs.c
            otherwise = exists().where(
                events.c.job_id == job.job_id, events.c.kind.in_((Kind.HELD, Kind.CHANGED))
            )
            waits = and_(job.started_at.is_(None), job.ended_at.is_(None))
            came = case((job.started_at.is_not(None), job.started_at), else_=now)
            late = came > made.start_p90 + GRACE_S
            query = (
                select(func.count(), func.sum(case((late, 1), else_=0)))
                .select_from(forecasts.join(jobs, job.job_id == made.job_id))
                .where(made.basis == "submission", made.start_p50 < made.start_p90, ~otherwise)
                .where(or_(job.started_at >= now - DAY_S, and_(waits, made.start_p90 < now)))
            )
            scored, late_ones = connection.execute(query).one()
            self._promised = {"kept": scored - (late_ones or 0), "late": late_ones or 0}
        found = GaugeMetricFamily(
            "pellucid_start_forecasts",
            "Forecasts (p90) of starts that came, or were to come, in the last day.",
            labels=["outcome"],
        )
        for outcome, n in self._promised.items():
            found.add_metric([outcome], n)
        return found

    def _unread(self) -> Metric:
        """Return a gauge of the time of the last successful reading of Slurm, and of its database,
        where they do not answer now. A part that answers is absent.
        """
        found = GaugeMetricFamily(
            "pellucid_unread_since_timestamp_seconds",
            "Of when is what is shown of a Slurm that does not answer; absent while it does.",
            labels=["of"],
        )
        who = silent(self._store)
        for name, since in (("slurm", who.slurm), ("slurmdbd", who.database)):
            if since is not None:
                found.add_metric([name], since)
        return found

    def _service(self, connection: Connection) -> Iterator[Metric]:
        build = GaugeMetricFamily("pellucid_build_info", "Code version.", labels=["version"])
        build.add_metric([code_version()], 1)
        length = GaugeMetricFamily("pellucid_log_seq", "Number of the last event in the log.")
        length.add_metric([], self._seen)
        terms = CounterMetricFamily(
            "pellucid_lease_terms", "Times a lease changed hands.", labels=["lease"]
        )
        expires = GaugeMetricFamily(
            "pellucid_lease_expires_timestamp_seconds",
            "When a lease runs out; in the past: it is free.",
            labels=["lease"],
        )
        for row in connection.execute(select(leases)):
            terms.add_metric([row.name], row.term)
            expires.add_metric([row.name], row.expires_at)
        decided = select(events.c.at).where(events.c.kind == Kind.DECIDED)
        passed = GaugeMetricFamily(
            "pellucid_last_pass_timestamp_seconds", "When the last decision pass was taken."
        )
        at = connection.execute(decided.order_by(events.c.seq.desc()).limit(1)).scalar()
        if at is not None:
            passed.add_metric([], at)
        deaths = CounterMetricFamily(
            "pellucid_process_deaths",
            "Times a process of the service ended by itself and was started again.",
            labels=["process"],
        )
        for name, count in self._counts.deaths.items():
            deaths.add_metric([name], count.value)
        closed = CounterMetricFamily(
            "pellucid_connections_closed",
            "Connections closed since they sent no whole request in time, or were too many.",
        )
        closed.add_metric([], self._counts.connections_closed.value)
        yield from (build, length, terms, expires, passed, deaths, closed)


def batched(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield slices of `items`, of at most `size` each."""
    return (items[i : i + size] for i in range(0, len(items), size))


def _cumulated(slots: list[float]) -> Iterator[tuple[str, float]]:
    total = 0.0
    for bound, n in zip((*map(str, map(float, WAIT_BUCKETS_S)), "+Inf"), slots, strict=True):
        total += n
        yield bound, total
