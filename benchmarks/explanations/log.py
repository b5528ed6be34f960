"""Reads a service's log for the judge: by SQL and JSON, without any code that explains.

What was known at a moment is rebuilt from the rows: which job holds which GPUs, which jobs wait and
in what order, which nodes are closed, what was predicted of each job and what was decided.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIVES = ("start", "pack", "profile")
LEAVES = ("ended", "lost", "not_started", "profiled")
Row = Mapping[
    str, Any
]  # an event (seq, at, kind, job_id, body) or a decision (seq, event, at, body)


@dataclass
class Run:
    """A job on GPUs: since when, and on how many GPUs of each node."""

    job_id: str
    vc: str
    since: float
    gpus: dict[int, int]
    profiling: bool


@dataclass
class Moment:
    """The state of a service as its log describes it up to one event.

    Attributes:
        asked: maps a job id to its request as last changed, in the order of submission.
        genesis: body of the log's first event: cluster, policy and settings.
        runs: maps a job id to the job's run, for jobs on GPUs.
        left: maps a job id to when, and how, the job ended for good.
        by_job: maps a job id to the decisions about the job, in order.
        closed: nodes that take no new jobs.
        moved: maps a node to whether it was lent for profiling (True) or given back (False) since
            the log began.
        forecasts: maps a job id to the forecast made at its submission.
        stated: maps a job id to when the job itself stated its duration, and the 5th to 95th
            percentile that it stated, in seconds.
    """

    genesis: Mapping[str, Any]
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[str, Run] = field(default_factory=dict)
    left: dict[str, tuple[float, str]] = field(default_factory=dict)
    by_job: dict[str, list[Row]] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    moved: dict[int, bool] = field(default_factory=dict)
    forecasts: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    stated: dict[str, tuple[float, float, float]] = field(default_factory=dict)

    @property
    def settings(self) -> Mapping[str, Any]:
        return dict(self.genesis["settings"])

    def pool(self, vc: str) -> list[int]:
        """Return the nodes of a virtual cluster, without those that it lends for profiling."""
        partition, first = self.genesis.get("partition") or {"nodes": (), "largest_share": 1.0}, 0
        lent, every = dict(partition["nodes"]), dict(self.genesis["cluster"]["vcs"])
        if sum(lent.values()) > partition["largest_share"] * sum(every.values()):
            lent = {}
        for name, count in self.genesis["cluster"]["vcs"]:
            if name == vc:
                kept = first + count - lent.get(vc, 0)
                return [n for n in range(first, first + count) if not self.moved.get(n, n >= kept)]
            first += count
        return []

    @property
    def per_node(self) -> int:
        return int(self.genesis["cluster"]["gpus_per_node"])

    def free(self, vc: str) -> int:
        """Return how many GPUs of a virtual cluster's open nodes no job is on. Nodes lent for
        profiling are left out; a GPU that two jobs share is one GPU in use.
        """
        taken = dict.fromkeys(self.pool(vc), 0)
        for run in self.runs.values():
            for node, mask in run.gpus.items():
                if node in taken:
                    taken[node] |= mask
        return sum(
            self.per_node - mask.bit_count()
            for node, mask in taken.items()
            if node not in self.closed
        )

    def begun(self) -> list[str]:
        """Return the jobs that run to do their work, not only to be profiled."""
        return [job_id for job_id, run in self.runs.items() if not run.profiling]

    def queued(self, job_id: str) -> bool:
        return job_id in self.asked and job_id not in self.runs and job_id not in self.left

    def last(self, job_id: str, name: str) -> Any:
        """Return the value recorded under `name` by the latest decision about a job that has it."""
        rows = reversed(self.by_job.get(job_id, ()))
        return next((r["body"][name] for r in rows if r["body"].get(name) is not None), None)

    def predicted(self, job_id: str) -> tuple[float, float] | None:
        """Return the lower and upper end, in seconds, of a job's predicted duration: the number
        recorded last, twice, or the ends that the job itself has stated since. Return None without
        either."""
        rows = [r for r in self.by_job.get(job_id, ()) if r["body"].get("estimate_s") is not None]
        at, low_s, high_s = self.stated.get(job_id, (-1.0, 0.0, 0.0))
        if at > (rows[-1]["at"] if rows else -1.0):
            return low_s, high_s
        return (rows[-1]["body"]["estimate_s"],) * 2 if rows else None

    def evidence(self, job_id: str) -> dict[str, float]:
        """Return the evidence recorded last with the predicted duration of a job, by name, such as
        its percentiles in seconds; {} if there is none."""
        for row in reversed(self.by_job.get(job_id, ())):
            found = dict(row["body"].get("evidence", ()))
            if "p90_s" in found:
                return found
        return {}

    def line(self, vc: str) -> list[str]:
        """Return the jobs in the queue of a virtual cluster, in the order that was recorded
        last.
        """
        seq = {job_id: i for i, job_id in enumerate(self.asked)}
        found = [
            (self.last(job_id, "priority"), seq[job_id], job_id)
            for job_id, asked in self.asked.items()
            if asked["vc"] == vc and self.queued(job_id)
        ]
        return [job_id for key, _, job_id in sorted(f for f in found if f[0] is not None)]


class Log:
    """The rows of a service's events and decisions, in order of their sequence numbers."""

    def __init__(self, events: Sequence[Row], decisions: Sequence[Row]):
        self.events, self.decisions = events, decisions

    @classmethod
    def read(cls, database: Path) -> Log:
        """Return the contents of the log in a database file as they are now."""
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            return cls(
                _rows(connection, "seq, at, kind, job_id, body", "events"),
                _rows(connection, "seq, event, at, job_id, body", "decisions"),
            )
        finally:
            connection.close()

    @property
    def head(self) -> int:
        return int(self.events[-1]["seq"])

    def until(self, seq: int) -> Moment:
        """Return the state of the service after the event with sequence number `seq`."""
        moment = Moment(self.events[0]["body"])
        taken: dict[int, list[Row]] = {}
        for decision in self.decisions:
            taken.setdefault(decision["event"], []).append(decision)
        for event in self.events:
            if event["seq"] > seq:
                break
            _take(moment, event)
            for decision in taken.get(event["seq"], ()):
                _decided(moment, decision)
        return moment

    def gone(self, job_id: str, after: float) -> float | None:
        """Return the time, in seconds since 1970, of the first event later than `after` by which a
        job left its GPUs; None if there is none.
        """
        return next(
            (
                e["at"]
                for e in self.events
                if e["job_id"] == job_id and e["kind"] in LEAVES and e["at"] > after
            ),
            None,
        )


def _rows(connection: sqlite3.Connection, columns: str, table: str) -> list[Row]:
    names = columns.split(", ")
    found = connection.execute(f"SELECT {columns} FROM {table} ORDER BY seq")
    return [dict(zip(names, row, strict=True)) | {"body": json.loads(row[-1])} for row in found]


def _take(moment: Moment, event: Row) -> None:
    kind, job_id, body = event["kind"], event["job_id"], event["body"]
    if kind == "submitted":
        moment.asked[job_id] = dict(body)
    elif kind == "changed":
        moment.asked[job_id] |= body
    elif kind == "node_set":
        (moment.closed.discard if body["open"] else moment.closed.add)(body["node"])
    elif kind == "forecast":
        moment.forecasts[job_id] = {"made_at": event["at"], **body}
    elif kind == "progress":
        own = body["progress"]
        moment.stated[job_id] = event["at"], own["low_s"], own["high_s"]
    elif kind in LEAVES:
        moment.runs.pop(job_id, None)
        if kind != "profiled":
            moment.left[job_id] = event["at"], body.get("state", kind)


def _decided(moment: Moment, row: Row) -> None:
    body, job_id = row["body"], row["job_id"]
    moment.by_job.setdefault(job_id, []).append(row)
    if body["action"] in GIVES:
        gpus = dict(zip(body["nodes"], body["gpus"], strict=True))
        profiling = body["action"] == "profile"
        moment.runs[job_id] = Run(job_id, body["vc"], row["at"], gpus, profiling)
    elif body["action"] in ("lend", "return"):
        moment.moved |= dict.fromkeys(body["nodes"], body["action"] == "lend")
    elif body["action"] == "preempt":
        moment.runs.pop(job_id, None)
    elif body["action"] in ("cancel", "refuse"):
        moment.runs.pop(job_id, None)
        moment.left[job_id] = row["at"], body["action"]


def later(moment: Moment, job_id: str) -> Iterable[str]:
    """Return the ids of the jobs submitted after job `job_id` to the same virtual cluster."""
    names = list(moment.asked)
    vc = moment.asked[job_id]["vc"]
    return (other for other in names[names.index(job_id) + 1 :] if moment.asked[other]["vc"] == vc)
