"""Data with which the report explains any job that a reader chooses, small enough for a page. A
script of the page draws them.

The explanations are the same as those of `pellucid explain`, by the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.compute as pc

from models.bundle import Bundle
from pipeline.report.comparison import PolicyRun
from pipeline.report.schedule import Schedule
from pipeline.tables import Floats
from scheduler.charts.trees import Drawing, lit_by
from scheduler.core.decisions import Action, Decision
from scheduler.core.tree_steps import TreeStep
from scheduler.explain.life import (
    JobFacts,
    Phase,
    Sharing,
    life,
    sharing_of,
    split_free_pass,
    waits_for_gpus,
    waits_of,
)
from scheduler.explain.story import sharing_words, started_words
from scheduler.explain.terms import breakdowns, drawn, thought_waterfall
from scheduler.explain.words import duration, factor, listed, percent, phrase

MOST_JOBS = 2_500  # that can be chosen
MOST_SPELLS = 8_000  # that a page holds
NAMED = 3  # jobs that had GPUs while another waited
RECORD_S = 0.002  # times of a record are to milliseconds
LEAST_S = 1.0  # of a time with GPUs that counts
LEAST_SHARE = 0.01  # of a wait, that its reason is named
Ref = int | str  # a job: its place in the page's columns, or its id where it is not in them


@dataclass
class EachJob:
    """The data with which a page explains its jobs.

    Attributes:
        data: data of each job, in the order of the page's columns of jobs (`figures.js` reads
            them).
        paths: drawings of decision trees with a marked path, one for each leaf that a pair of jobs
            reached.
    """

    data: Mapping[str, Any]
    paths: list[Drawing] = field(default_factory=list)


def each_job(
    run: PolicyRun,
    ids: Sequence[str],
    schedule: Schedule | None,
    bundle: Bundle | None,
    tried: Mapping[str, Sequence[str]],
    *,
    beside: Sequence[int] = (),
) -> EachJob:
    """Return the data with which a page explains the jobs of a run.

    Args:
        ids: ids of the jobs in the page's columns, in their order. If there are more than
            `MOST_JOBS`, only those that waited longest are explained.
        tried: job id -> lines that say what would have started the job, for the jobs for which that
            was tried.
        beside: indices, among the policies of the columns, of those for which a job is shown.
    """
    asked = _most_waiting(run, ids)
    places = {job: i for i, job in enumerate(ids)}
    first = float(pc.min(run.jobs["submit_time"]).as_py() or 0.0)
    ends = dict(zip(*run.jobs.select(["job_id", "end_time"]).to_pydict().values(), strict=True))
    holders = _Holders(run, schedule, places) if schedule is not None else None
    trees = _Trees(bundle)
    texts: dict[str, int] = {}
    jobs: list[Any] = [None] * len(ids)
    for job, decisions, joined in run.folder.each(asked):
        own = split_free_pass(decisions)[1]
        spans = life(job, own)
        waited = waits_for_gpus(spans)
        waits = [s for s in spans if s.phase is Phase.WAITING and s.end is not None]
        shares = sharing_of(job, own, joined, ends)
        jobs[places[job.job_id]] = [
            [[_s(at - first) for at in spell] for spell in waited],
            _why(spans, own) if waits else "",
            holders.of(job, waited) if holders else [[], 0],
            list(_terms(own, run, texts)),
            _pair(shares[0], (own, joined), places, trees) if shares else None,
            _s(job.estimate_s),
            _s(job.ran_s),
            started(job, shares, schedule) if waits else "",
        ]
    data = {
        "jobs": jobs,
        "texts": list(texts),
        "tried": {str(places[job]): list(lines) for job, lines in tried.items() if job in places},
        "beside": list(beside),
        "schedule": _drawn(schedule, places, first) if schedule is not None else None,
    }
    return EachJob(data, trees.drawings)


def _most_waiting(run: PolicyRun, ids: Sequence[str]) -> list[str]:
    if len(ids) <= MOST_JOBS:
        return list(ids)
    waited = dict(zip(*run.jobs.select(["job_id", "queue_s"]).to_pydict().values(), strict=True))
    return sorted(ids, key=lambda job: -(waited.get(job) or 0.0))[:MOST_JOBS]


def _s(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def _why(spans: Sequence[Any], own: Sequence[Decision]) -> str:
    """Return the reasons of a job's wait in words, with their shares; "" if all are too small to
    name."""
    parts = [w for w in waits_of(spans, own) if w.share >= LEAST_SHARE and w.seconds >= LEAST_S]
    return listed([f"{percent(w.share)} {phrase(w.reason)}" for w in parts])


def _terms(own: Sequence[Decision], run: PolicyRun, texts: dict[str, int]) -> Iterator[list[Any]]:
    """Yield the steps of a job's first predicted duration: [number of the step's text in `texts`,
    what it adds to ln(1 + seconds), the same in words]. New texts are added to `texts`."""
    scored = [d for d in own if d.score is not None][:1]
    for breakdown in drawn(breakdowns(scored, run.folder.bundles)):
        for step in thought_waterfall(breakdown).steps:
            at = texts.setdefault(step.text, len(texts))
            words = duration(step.seconds) if step.factor is None else factor(step.factor)
            yield [at, round(step.contribution, 4), words]


def _pair(
    pair: Sharing,
    decided: tuple[Sequence[Decision], Sequence[Decision]],
    places: Mapping[str, int],
    trees: _Trees,
) -> list[Any]:
    """Return [partner, why, tree] of a job that shared GPUs: the partner's index in the columns
    (its id if it is not there), the reasons in words, and the index of the drawn tree that decided
    it (None if none)."""
    words = " ".join([*sharing_words(pair)][1:])
    return [places.get(pair.partner, pair.partner), words, trees.of(pair, *decided)]


def judged(pair: Sharing, own: Sequence[Decision], joined: Sequence[Decision]) -> list[TreeStep]:
    """Return the steps through the decision tree that gave a job its score for sharing with a
    partner; [] if they are not recorded.

    Args:
        own, joined: decisions about the job, and decisions that put another job on its GPUs.
    """
    found = next(
        (
            d
            for d in (own if pair.newcomer else joined)
            if d.action is Action.PACK
            and d.time == pair.start
            and pair.partner == (d.partner if pair.newcomer else d.job_id)
        ),
        None,
    )
    if found is None:
        return []
    steps = map(TreeStep.of, found.tree_path)
    return [step for step in steps if step.of_partner is not pair.newcomer]


def started(job: JobFacts, sharing: Sequence[Sharing], schedule: Schedule | None) -> str:
    """Return a sentence on which jobs ended as this one started, and had its GPUs until then, alone
    or beside another; "" if none did, or without a schedule."""
    gone, began = leavers(job, schedule), job.start_time
    if not gone or began is None:
        return ""
    beside = [pair.partner for pair in sharing if pair.newcomer and pair.start == began]
    return started_words(gone, began, "".join(beside))


def leavers(job: JobFacts, schedule: Schedule | None) -> list[str]:
    """Return the ids of the jobs that ended as a job started, and had its GPUs until then, alone or
    beside another; [] without a schedule."""
    began = job.start_time
    if schedule is None or began is None:
        return []
    found = schedule.spells
    now, then = (
        np.flatnonzero(np.abs(at - began) < RECORD_S).tolist() for at in (found.start, found.end)
    )
    mine = next((i for i in now if found.job[i] == job.job_id), None)
    if mine is None:
        return []
    its = dict(zip(found.nodes[mine], found.masks[mine], strict=True))
    return [
        str(found.job[i])
        for i in then
        if found.job[i] != job.job_id
        and any(
            its.get(node, 0) & mask
            for node, mask in zip(found.nodes[i], found.masks[i], strict=True)
        )
    ]


class _Trees:
    """Draws the decision trees of a bundle, once for each path that decided about a pair."""

    def __init__(self, bundle: Bundle | None):
        self._bundle = bundle
        self._places: dict[tuple[Any, ...], int | None] = {}
        self.drawings: list[Drawing] = []

    def of(self, pair: Sharing, own: Sequence[Decision], joined: Sequence[Decision]) -> int | None:
        """Return the index of the drawing of the tree that decided about a pair; None if there is
        none."""
        steps = judged(pair, own, joined)
        compared = [step.compared for step in steps if step.compared is not None]
        key = tuple((name, at_most, cut) for name, _, at_most, cut in compared)
        if self._bundle is None or not key:
            return None
        if key not in self._places:
            drawing = lit_by(self._bundle, steps)
            if drawing is None:
                self._places[key] = None
            elif drawing in self.drawings:
                self._places[key] = self.drawings.index(drawing)
            else:
                self._places[key] = len(self.drawings)
                self.drawings.append(drawing)
        return self._places[key]


class _Holders:
    """Finds which jobs had GPUs of a virtual cluster, and when."""

    def __init__(self, run: PolicyRun, schedule: Schedule, places: Mapping[str, int]):
        self._schedule, self._places = schedule, places
        self._there: dict[str, tuple[Floats, Floats, Floats, Any]] = {}
        self._order = {job: i for i, job in enumerate(run.jobs["job_id"].to_pylist())}

    def of(self, job: JobFacts, spells: Sequence[tuple[float, float]]) -> list[Any]:
        """Return [jobs, more] for some periods of a job's wait, `spells`: the jobs with the
        most GPU-time in these periods, each as [job, GPUs], and the number of further jobs.
        `RunFolder.held` finds the same jobs, without the schedule."""
        if not spells or job.vc is None:
            return [[], 0]
        starts, ends, gpus, jobs = self._on(job.vc)
        spent = np.zeros(len(starts))
        for since, until in spells:
            spent += np.clip(np.minimum(ends, until) - np.maximum(starts, since), 0.0, None)
        seconds = dict[str, float]()
        gpu_s = dict[str, float]()
        most = dict[str, float]()
        for i in np.flatnonzero(spent > 0):
            other = jobs[i]
            if other != job.job_id:
                seconds[other] = seconds.get(other, 0.0) + spent[i]
                gpu_s[other] = gpu_s.get(other, 0.0) + spent[i] * gpus[i]
                most[other] = max(most.get(other, 0.0), gpus[i])
        found = [other for other, of in seconds.items() if of >= LEAST_S]
        found.sort(key=lambda other: (-round(gpu_s[other], 3), self._order[other]))
        shown = [[self._places.get(other, other), int(most[other])] for other in found[:NAMED]]
        return [shown, len(found) - len(shown)]

    def _on(self, vc: str) -> tuple[Floats, Floats, Floats, Any]:
        """Return (starts, ends, GPUs, job ids) of the periods in which jobs held GPUs of a virtual
        cluster. Periods of profiling are left out. The result is remembered."""
        if vc not in self._there:
            spells, vc_of = self._schedule.spells, self._schedule.vc_of
            gpus = np.array(
                [
                    sum(
                        mask.bit_count()
                        for node, mask in zip(nodes, masks, strict=False)
                        if vc_of.get(node) == vc
                    )
                    for nodes, masks in zip(spells.nodes, spells.masks, strict=True)
                ],
                dtype=np.float64,
            )
            on = (gpus > 0) & (spells.action != Action.PROFILE.value)
            self._there[vc] = spells.start[on], spells.end[on], gpus[on], spells.job[on]
        return self._there[vc]


def _drawn(schedule: Schedule, places: Mapping[str, int], first: float) -> Mapping[str, Any] | None:
    """Return the data of the schedule for the page, or None if it has more spells (periods of a job
    on GPUs) than a page can hold. A spell is [job, start, end, until when GPUs are shared (0:
    never), whether it is a profiling run, rows of the chart]. Times are seconds since `first`."""
    found = schedule.spells
    if len(found.start) > MOST_SPELLS:
        return None
    nodes = list(schedule.row)
    row = {node: i * schedule.gpus_per_node for i, node in enumerate(nodes)}
    spells = []
    for i, job in enumerate(found.job):
        since, until = (_s(float(at) - first) for at in (found.start[i], found.end[i]))
        shared = _s(schedule.until[i] - first) if i in schedule.until else 0
        kind = int(found.action[i] == Action.PROFILE.value)
        boxes = [edge for box in schedule.boxes(i, row) for edge in box]
        spells.append([places.get(job, job), since, until, shared, kind, *boxes])
    return {
        "spells": spells,
        "rows": max(len(nodes) * schedule.gpus_per_node, 1),
        "until": schedule.end - first,
        "bands": [
            [band.name, band.top / 100, (band.top + band.height) / 100]
            for band in schedule.bands(nodes)
        ],
    }
