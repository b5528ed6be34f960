"""The story of a job, its present state and its last decision in words, made from its dossier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from scheduler.core.capacity import Capacity, NodeNow, counted
from scheduler.core.decisions import DEPENDS, Action, Decision, Reason
from scheduler.core.estimates import COLD_START, OF_HISTORIES, Description
from scheduler.core.obstacles import Obstacle
from scheduler.core.phase import Phase
from scheduler.explain.dossier import Dossier, decision_of
from scheduler.explain.job import JobRow, Line
from scheduler.explain.reasons import AT_ONCE, next_step, sentence
from scheduler.explain.story import Story, build_story
from scheduler.explain.terms import describe
from scheduler.explain.words import CANCELLED, LOST, duration, hold_words, how_it_ended

if TYPE_CHECKING:
    from models.bundle import Bundle

NodesNow = Callable[[], Sequence[NodeNow]]  # every node, as it stands
# what a job may count on now: by virtual cluster, GPUs, GPU type, whether it is to be profiled
Counting = Callable[[str, int, str | None, bool], Capacity]


def story_of(of: Dossier) -> Story:
    """Return the story of a job: its events in order, with their sentences. The last decision about
    a waiting job gets the present numbers of GPUs, and its present position.
    """
    now, own, remedy = of.stands, list(of.own), None
    if now is not None and own and Phase(now.row.phase).waits:
        # recorded when its reason changed: the line moves on, and so do others' jobs
        position = now.standing.position if now.standing else None
        counts = counting(lambda: now.nodes)
        own[-1], remedy = _with_counts(counts, now.row, own[-1], position)
    story = build_story(of.facts, own, of.joined, recorded=of.beside, until=of.until)
    if remedy is None:
        return story
    last = replace(story.events[-1], remedy=remedy, next_step=next_step(remedy))
    return replace(story, events=(*story.events[:-1], last))


def where_it_stands(job: JobRow, story: Story, now: float) -> str:
    """Return the present state of a job as a sentence without its subject: "has waited 3 h"."""
    ran = max((job.ended_at or now) - job.started_at, 0.0) if job.started_at is not None else 0.0
    waited = duration(waited_s(job, story))
    if job.phase == Phase.ENDED or (job.phase == Phase.CANCELLED and job.started_at is not None):
        return how_it_ended(
            phase=job.phase,
            state=job.state or "",
            ran_s=ran if job.started_at is not None else None,
            waited_s=waited_s(job, story),
            gpus=job.gpus,
            exit_code=job.exit_code,
        )
    if job.hold:
        held = duration(max(0.0, now - (job.held_at or now)))
        return f"is {hold_words(job.hold, job.held_by)}, for {held} now"
    if job.reason in DEPENDS and job.phase == Phase.SUBMITTED:
        return "is in no queue until other jobs have ended"
    return _STANDS[Phase(job.phase)].format(waited=waited, ran=duration(ran))


def waited_s(job: JobRow, story: Story) -> float:
    """Return the seconds that a job waited, or has so far: those of the reasons in its story. For
    a job that Slurm started, count from the time when it became eligible.
    """
    if job.started_at is None or job.slurm is None:
        return story.waited_s
    return job.waited(job.started_at) or 0.0


_STANDS = {
    Phase.SUBMITTED: "has waited {waited} and is in no queue yet",
    Phase.QUEUED: "has waited {waited}",
    Phase.PROFILING: "is being profiled on a GPU for a few minutes",
    Phase.STARTING: "has its GPUs and is being started",
    Phase.RUNNING: "has run for {ran} after waiting {waited}",
    Phase.CANCELLED: CANCELLED,
    Phase.REFUSED: "was refused: it can never run here",
    Phase.LOST: LOST,
}


def names_of_terms(body: Mapping[str, Any]) -> Mapping[str, Description]:
    """Return the descriptions of the terms of scores, by digest of the bundle. They cover the
    bundle in use and predictions from histories alone.

    Args:
        body: path and digest of the bundle in use; empty without a bundle.
    """
    bundle = bundle_in_use(body)
    models = {bundle.digest: describe(bundle)} if bundle and "duration" in bundle.parts else {}
    return {COLD_START: OF_HISTORIES, **models}


def bundle_in_use(body: Mapping[str, Any]) -> Bundle | None:
    """Return the bundle of models that the policy uses. Return None if there is none, or if it
    cannot be read.
    """
    return _read_bundle(str(body.get("path", "")), str(body.get("digest", "")))


@lru_cache(maxsize=2)
def _read_bundle(path: str, digest: str) -> Bundle | None:
    """Return the bundle of models in a folder. It is cached by path and digest. Return None if
    `path` is empty or the bundle cannot be read.
    """
    if not path:
        return None
    from models.bundle import Bundle, BundleError  # not where none is in use

    try:
        return Bundle.load(path)
    except (BundleError, OSError):
        return None


def counting(nodes_now: NodesNow) -> Counting:
    """Return a function that counts the free, closed and total GPUs that a request may use. It
    keeps each count, and reads the nodes only once."""

    @cache
    def nodes() -> Sequence[NodeNow]:
        return nodes_now()

    @cache
    def count_for(vc: str, gpus: int, gpu_type: str | None, profiling: bool) -> Capacity:
        return counted(nodes(), vc, gpus, gpu_type, profiling=profiling)

    return count_for


def sentence_now(counts: Counting, job: JobRow, line: Line, position: int | None) -> str:
    """Return the last decision about a waiting job as a sentence, with the present numbers of GPUs
    and the job's present position. Where these change nothing, return the recorded sentence.
    """
    last = decision_of(line)
    now, _ = _with_counts(counts, job, last, position)
    return line.text if now is last else sentence(now)


def _with_counts(
    counts: Counting, job: JobRow, last: Decision, position: int | None
) -> tuple[Decision, Reason | None]:
    """Return the last decision about a waiting job with the present numbers, and the reason whose
    remedy would help its owner. The reason is None unless closed GPUs block the job.
    """
    if last.reason is Reason.ARRAY_LIMIT and job.at_once is not None:
        return replace(last, evidence=(*last.evidence, (AT_ONCE, float(job.at_once)))), None
    if last.reason is Reason.BEHIND_HIGHER_PRIORITY:
        if position in (None, last.position):
            return last, None
        return replace(last, position=position, blocker=None, held_by=()), None
    if last.action is not Action.WAIT or last.free is None:
        return last, None
    profiling = last.reason is Reason.AWAITING_PROFILE
    there = counts(job.vc, job.gpus, job.gpu_type, profiling)
    evidence = tuple((k, v) for k, v in last.evidence if k != "closed_gpus")
    if there.closed:
        evidence += (("closed_gpus", there.closed),)
    remedy = Reason.NODE_DRAINED if there.obstacle is Obstacle.CLOSED else None
    now = replace(last, free=there.free, limit=there.limit, held_by=(), evidence=evidence)
    return now, remedy
