"""Reads a run's folder: the result of each job, and the decisions about it.

    DIR/jobs.parquet       one row per job, `scheduler.simulation.results.JOB_SCHEMA`
    DIR/decisions.parquet  one row per decision, `scheduler.simulation.recorder.DECISION_SCHEMA`
    DIR/summary.json       policy, track and the figures of the run
    DIR/bundles.json       names of terms and inputs by bundle digest

Only the rows asked for are read: filters go down to the Parquet row groups.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rapidfuzz import process
from rapidfuzz.distance import JaroWinkler

from features.codec import Json
from features.given import LARGE, arrow_file, read_given
from scheduler.core.decisions import (
    CHANGES_GPUS,
    GIVES_GPUS,
    STARTS,
    Action,
    Decision,
    Reason,
    Score,
)
from scheduler.core.estimates import Description
from scheduler.explain.dossier import Dossier, Recorded
from scheduler.explain.life import (
    Held,
    JobFacts,
    had,
    life,
    runs_of,
    seconds_before,
    split_free_pass,
    waits_for_gpus,
)
from scheduler.explain.stories import story_of
from scheduler.explain.story import Story
from scheduler.explain.words import overtaking

DECISIONS, JOBS, SUMMARY, BUNDLES = (
    "decisions.parquet",
    "jobs.parquet",
    "summary.json",
    "bundles.json",
)


class RunError(ValueError):
    """Raised for a run's folder that lacks a file or cannot be read. The message is one line for
    the user."""


LISTED = "jobs.parquet there lists all, and a report those worth a look"


class UnknownJob(RunError):
    """Raised if the run has no job with the given id.

    Attributes:
        close: similar ids that exist, the most similar first.
    """

    def __init__(self, job_id: str, folder: Path, close: list[str]):
        self.close = close
        hint = f"; close to it: {', '.join(close)}" if close else f"; {LISTED}"
        super().__init__(f"no job {job_id!r} in {folder}{hint}")


class RunFolder:
    """The folder of a recorded run. Raises RunError if the folder holds none."""

    def __init__(self, folder: Path):
        self.folder = folder
        if not folder.is_dir():
            raise RunError(f"{folder} is not a folder; give the --out folder of a simulation")
        for name in (DECISIONS, JOBS, SUMMARY):
            if not (folder / name).is_file():
                raise RunError(
                    f"{folder / name} is missing; {folder} is no run, or one that did not finish"
                )

    @cached_property
    def summary(self) -> Json:
        """Return the run's summary: policy, track and figures."""
        return read_object(self.folder / SUMMARY)

    @cached_property
    def bundles(self) -> dict[str, Description]:
        """Return the names of terms and inputs, by digest of the bundle; {} if the folder has
        no such file."""
        path = self.folder / BUNDLES
        return read_object(path) if path.is_file() else {}

    def table(self, name: str, columns: list[str], where: pc.Expression | None = None) -> pa.Table:
        """Return some columns of jobs.parquet or decisions.parquet, for the rows where the
        condition `where` holds, in file order."""
        return read_parquet(self.folder / name, columns, where)

    def job(self, job_id: str) -> JobFacts:
        """Return the result of a job. Raise UnknownJob if there is no job with this id."""
        names = [f.name for f in fields(JobFacts)]
        rows = self.table(JOBS, names, pc.field("job_id") == job_id)
        if rows.num_rows == 0:
            raise UnknownJob(job_id, self.folder, self._close(job_id))
        return JobFacts(**seconds(rows).slice(0, 1).to_pylist()[0])

    def decisions(self, job_id: str) -> tuple[list[Decision], list[Decision]]:
        """Return (decisions about a job, decisions that put another job on its GPUs), each in the
        order in which they were made."""
        mine = pc.field("job_id") == job_id
        rows = self.table(DECISIONS, _DECISION_COLUMNS, mine | (pc.field("partner") == job_id))
        found = sorted(self._decisions(rows), key=lambda d: d.seq)
        own = [d for d in found if d.job_id == job_id]
        return own, [d for d in found if d.job_id != job_id]

    def each(
        self, job_ids: Sequence[str]
    ) -> Iterator[tuple[JobFacts, list[Decision], list[Decision]]]:
        """Yield (result, decisions about it, decisions that put another job on its GPUs) for each
        job, in one pass over the tables. Unknown jobs are left out."""
        mine, beside = (pc.field(name).isin(job_ids) for name in ("job_id", "partner"))
        own, joined = defaultdict[str, list[Decision]](list), defaultdict[str, list[Decision]](list)
        rows = self.table(DECISIONS, _DECISION_COLUMNS, mine | beside)
        for d in sorted(self._decisions(rows), key=lambda d: d.seq):
            own[d.job_id].append(d)
            if d.partner is not None and d.partner != d.job_id:
                joined[d.partner].append(d)
        names = [f.name for f in fields(JobFacts)]
        for row in seconds(self.table(JOBS, names, pc.field("job_id").isin(job_ids))).to_pylist():
            job = JobFacts(**row)
            yield job, own[job.job_id], joined[job.job_id]

    def ends(self, job_ids: Iterable[str]) -> dict[str, float | None]:
        """Return the end time of each job, seconds since the epoch; None if it did not end.
        Unknown jobs are left out."""
        wanted = list(job_ids)
        if not wanted:
            return {}
        rows = self.table(JOBS, ["job_id", "end_time"], pc.field("job_id").isin(wanted))
        table = seconds(rows)
        return dict(zip(table["job_id"].to_pylist(), table["end_time"].to_pylist(), strict=True))

    def order_values(self, job_ids: Iterable[str]) -> dict[str, float]:
        """Return the key by which the queue ordered each job, when it last entered the queue. A
        job without a recorded key is left out."""
        wanted = list(job_ids)
        if not wanted:
            return {}
        rows = self.table(
            DECISIONS,
            ["seq", "job_id", "priority", "action"],
            pc.field("job_id").isin(wanted) & (pc.field("action") == Action.ENQUEUE.value),
        ).sort_by("seq")
        pairs = zip(rows["job_id"].to_pylist(), rows["priority"].to_pylist(), strict=True)
        return {job_id: value for job_id, value in pairs if value is not None}

    def overtaken(self, job: JobFacts) -> dict[str, int]:
        """Return how many jobs of a job's virtual cluster that were submitted later got GPUs
        between its submission and its start, by the reason of that decision; {} if the job was
        refused. Profiling runs count if the job ended in them."""
        if job.refused:
            return {}
        until = job.start_time if job.start_time is not None else job.end_time
        later = pc.field("submit_time") > pa.scalar(_ms(job.submit_time), _TIME)
        columns = ["job_id", "gpus", "ended_in_profiling"]
        rows = self.table(JOBS, columns, (pc.field("vc") == job.vc) & later).to_pylist()
        gpus = {row["job_id"]: row["gpus"] for row in rows}
        whole = {row["job_id"] for row in rows if row["ended_in_profiling"]}
        moves = [move.value for move in (GIVES_GPUS if whole else STARTS)]
        given = pc.field("action").isin(moves)
        if until is not None:
            given &= pc.field("time") < pa.scalar(_ms(until), _TIME)
        wanted = given & (pc.field("time") > pa.scalar(_ms(job.submit_time), _TIME))
        by: dict[str, int] = {}
        columns = ["seq", "job_id", "action", "reason", "priority", "estimate_s"]
        rows = self.table(DECISIONS, columns, wanted | (pc.field("job_id") == job.job_id))
        own: float | None = None  # what it was ordered by at that time
        own_s: float | None = None  # how long it was predicted to run, then
        for row in rows.sort_by("seq").to_pylist():
            if row["job_id"] == job.job_id:
                own = own if row["priority"] is None else row["priority"]
                own_s = own_s if row["estimate_s"] is None else row["estimate_s"]
            elif row["action"] == Action.PROFILE.value and row["job_id"] not in whole:
                continue
            elif row["job_id"] in gpus:
                fewer = gpus.pop(row["job_id"]) < job.gpus  # once, by its first start
                ahead = None not in (own, row["priority"]) and row["priority"] < own
                how = Action(row["action"]), Reason(row["reason"])
                theirs_s = row["estimate_s"]
                shorter = None if own_s is None or theirs_s is None else theirs_s < own_s
                why = overtaking(*how, ahead=ahead, fewer=fewer, shorter=shorter)
                by[why] = by.get(why, 0) + 1
        return by

    def held(self, job: JobFacts, spells: Sequence[tuple[float, float]]) -> list[Held]:
        """Return the jobs that had GPUs of a job's virtual cluster, alone or shared, during the
        periods of its wait, `spells`. Those with the most GPU-time come first. Less than a second
        does not count."""
        if not spells or job.vc is None:
            return []
        began, over = (pa.scalar(_ms(at), _TIME) for at in (spells[0][0], spells[-1][1]))
        mine, before = pc.field("vc") == job.vc, pc.field("time") < over
        lent = pc.field("reason") == Reason.BORROWED.value
        borrows = self.table(DECISIONS, ["seq"], lent & before).num_rows > 0
        whose = pc.scalar(True) if borrows else mine  # by whose nodes, or by whose jobs they are
        moves = pc.field("action").isin([move.value for move in CHANGES_GPUS])
        moved = self.table(DECISIONS, _MOVED, moves & before & whose)
        own = None
        if borrows:  # its nodes: those that its jobs ever had without borrowing
            rows = self.table(DECISIONS, ["nodes"], moves & mine & ~lent)
            own = set(pc.unique(pc.list_flatten(rows["nodes"])).to_pylist())
        there = pc.field("end_time").is_null() | (pc.field("end_time") > began)
        columns = ["job_id", "vc", "end_time", "estimate_s", "ran_s"]
        jobs = self.table(JOBS, columns, there & whose & (pc.field("job_id") != job.job_id))
        moved = moved.filter(pc.is_in(moved["job_id"], jobs["job_id"].combine_chunks()))
        runs = runs_of(
            (
                row["job_id"],
                row["time"],
                0
                if row["action"] == Action.PREEMPT.value
                else _gpus_on(own, row["nodes"], row["gpus"]),
            )
            for row in seconds(moved).sort_by("seq").to_pylist()
        )
        waited = seconds_before(spells)
        found = []
        for row in seconds(jobs).to_pylist():
            end = row.pop("end_time")
            row["ran_s"] = None if end is None else row["ran_s"]
            if part := had(waited, runs.get(row["job_id"], ()), end):
                gpus, total_s, gpu_s = part
                found.append(Held(gpus=gpus, seconds=total_s, gpu_s=gpu_s, **row))
        return sorted(found, key=lambda one: -one.gpu_s)

    def last(self) -> float | None:
        """Return the time of the last recorded event, seconds since the epoch; None if there is
        none."""
        held = [self.table(DECISIONS, ["time"]), self.table(JOBS, ["submit_time", "end_time"])]
        times = [pc.max(column).as_py() for table in held for column in seconds(table).columns]
        return max((time for time in times if time is not None), default=None)

    def _decisions(self, rows: pa.Table) -> list[Decision]:
        try:
            return [_decision(row) for row in seconds(rows).to_pylist()]
        except ValueError as error:
            raise RunError(f"{self.folder / DECISIONS}: {error}") from None

    def _close(self, job_id: str) -> list[str]:
        ids = self.table(JOBS, ["job_id"])["job_id"].to_pylist()
        matches = process.extract(
            job_id, ids, scorer=JaroWinkler.similarity, limit=3, score_cutoff=0.7
        )
        return [match for match, _, _ in matches]


def read_story(run: RunFolder, job_id: str) -> Story:
    """Return the story (what happened, and why) of a job of a run. Raises RunError if the run or
    the job does not exist."""
    return story_of(dossier_of(run, job_id))


def dossier_of(run: RunFolder, job_id: str) -> Dossier:
    """Return everything that a run recorded about a job. Raises RunError if the run or the job does
    not exist."""
    job = run.job(job_id)
    own, joined = run.decisions(job_id)
    beside = {d.partner for d in own if d.partner} | {d.job_id for d in joined}
    blockers = {d.blocker for d in own if d.blocker}
    last = run.last() if job.end_time is None else None
    spells = waits_for_gpus(life(job, split_free_pass(own)[1], last))
    recorded = Recorded(
        bundles=run.bundles,
        ends=run.ends(beside),
        order_values=run.order_values(blockers | {job_id}) if blockers else {},
        policy=str(run.summary.get("policy", "")),
        held=run.held(job, spells),
        overtaken=run.overtaken(job),
        last=last,
    )
    return Dossier(facts=job, own=own, joined=joined, beside=recorded)


def read_object(path: Path) -> Json:
    """Return a JSON object from a file. Raises RunError, which names the fault, if it cannot be
    read."""
    try:
        value = json.loads(read_given(path, LARGE))
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise RunError(f"{path} is not JSON (truncated?)") from None
    if not isinstance(value, dict):
        raise RunError(f"{path} does not hold a JSON object")
    return value


def read_parquet(path: Path, columns: list[str], where: pc.Expression | None = None) -> pa.Table:
    """Return columns of a Parquet file, for the rows where the condition `where` holds, without
    columns of `ADDED_LATER` that it lacks. Raises RunError, which names the fault, if it cannot be
    read."""
    try:
        with arrow_file(path) as file:
            there = pq.read_schema(file).names
            known = [name for name in columns if name in there or name not in ADDED_LATER]
            return pq.read_table(file, columns=known, filters=where, partitioning=None)
    except FileNotFoundError:
        raise RunError(f"{path} is missing") from None
    except (pa.ArrowException, OSError, KeyError) as error:
        first = str(error).strip().splitlines()[0][:160] if str(error).strip() else "unreadable"
        raise RunError(f"{path} cannot be read: {first}") from None


_MOVED = ["seq", "time", "action", "reason", "job_id", "vc", "nodes", "gpus"]
_TIME = pa.timestamp("ms", tz="UTC")


def _ms(epoch_s: float) -> int:
    return round(epoch_s * 1000)


_TIMES = ("time", "submit_time", "start_time", "end_time")
ADDED_LATER = {"facts"}  # columns that a run recorded by an earlier release has not
_DECISION_COLUMNS = [
    "seq", "time", "action", "reason", "job_id", "vc", "nodes", "gpus", "partner", "priority",
    "estimate_s", "score", "intercept", "terms", "inputs", "facts", "bundle", "tree_path",
    "speed", "partner_speed", "blocker", "need", "free", "limit", "position",
    "batch_per_gpu", "accumulation", "evidence", "held_by",
]  # fmt: skip


def seconds(table: pa.Table) -> pa.Table:
    """Return a table with its timestamps in milliseconds as seconds since the epoch."""
    for name in _TIMES:
        if name in table.column_names and pa.types.is_timestamp(table[name].type):
            ms = table[name].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())
            index = table.column_names.index(name)
            table = table.set_column(index, name, pc.divide(ms.cast(pa.float64()), 1000.0))
    return table


def _gpus_on(nodes: set[int] | None, given: Sequence[int], masks: Sequence[int]) -> int:
    """Return the number of GPUs that a decision gave on the nodes `nodes`; None: on all nodes.

    Args:
        given: nodes of the decision.
        masks: for each of these, a number with a bit for each GPU.
    """
    placed = zip(given or (), masks or (), strict=False)
    return sum(mask.bit_count() for node, mask in placed if nodes is None or node in nodes)


def _decision(row: Json) -> Decision:
    """Return the `Decision` in a row of decisions.parquet (`DECISION_SCHEMA`)."""
    score = None
    if row["score"] is not None:
        score = Score.from_body(
            {
                "value": row["score"],
                "intercept": row["intercept"] if row["intercept"] is not None else 0.0,
                "terms": tuple(row["terms"] or ()),
                "bundle": row["bundle"] or "",
                "inputs": tuple(text or "" for text in row["inputs"] or ()),
                "facts": row.get("facts"),
            }
        )
    speeds = None
    if row["speed"] is not None and row["partner_speed"] is not None:
        speeds = row["speed"], row["partner_speed"]
    return Decision(
        seq=row["seq"],
        time=row["time"],
        action=Action(row["action"]),
        reason=Reason(row["reason"]),
        job_id=row["job_id"],
        vc=row["vc"],
        nodes=tuple(row["nodes"] or ()),
        gpus=tuple(row["gpus"] or ()),
        partner=row["partner"],
        priority=row["priority"],
        estimate_s=row["estimate_s"],
        score=score,
        tree_path=tuple(row["tree_path"] or ()),
        speeds=speeds,
        blocker=row["blocker"],
        need=row["need"],
        free=row["free"],
        limit=row["limit"],
        position=row["position"],
        batch=_batch(row.get("batch_per_gpu"), row.get("accumulation")),
        evidence=tuple(row.get("evidence") or ()),
        held_by=tuple(row.get("held_by") or ()),
    )


def _batch(per_gpu: int | None, accumulation: int | None) -> tuple[int, int] | None:
    return None if per_gpu is None or accumulation is None else (per_gpu, accumulation)
