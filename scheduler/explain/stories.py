"""The story of a job of the log, as its viewer may read it (`scheduler.explain.story`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.core.capacity import Capacity, NodeNow, counted
from scheduler.core.decisions import ANOTHER, Action, Decision, Reason
from scheduler.core.estimates import COLD_START, OF_HISTORIES, Description
from scheduler.core.obstacles import Obstacle
from scheduler.core.phase import Phase
from scheduler.core.receipts import Receipt
from scheduler.explain.bound import Bound
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.explain.job import JobRow, Line
from scheduler.explain.life import Held, JobFacts, life, waits_for_gpus
from scheduler.explain.story import Story, build_story
from scheduler.explain.terms import describe
from scheduler.explain.waited import Recorded
from scheduler.explain.words import duration, ended, hold_words

if TYPE_CHECKING:
    from models.bundle import Bundle

NodesNow = Callable[[], Sequence[NodeNow]]  # every node, as it stands
# what a job may count on now: by virtual cluster, GPUs, GPU type, whether it is to be profiled
Counting = Callable[[str, int, str | None, bool], Capacity]


class JobView(Protocol):
    """What one viewer may see of jobs: a database's, or one look at Slurm."""

    def job(self, job_id: str) -> JobRow: ...
    def decisions(self, job_id: str) -> list[Line]: ...
    def joined_by(self, job_id: str) -> Line | None: ...
    def overtaken(self, job_id: str) -> Mapping[str, int]: ...
    def held(
        self, job: JobRow, spells: Sequence[tuple[float, float]], now: float
    ) -> Sequence[Held]: ...
    def bundle(self) -> Mapping[str, Any]: ...
    def standing(self, job_id: str) -> Standing | None: ...
    def forecast(self, job_id: str, basis: str = "latest") -> StartForecastRow | None: ...
    def receipt(self, job_id: str) -> Receipt | None: ...
    def bound(self, job_id: str, now: float) -> Bound: ...
    def keeps_decider(self) -> str: ...
    def alike(self, job: JobRow) -> list[float]: ...
    def nodes_now(self) -> Sequence[NodeNow]: ...


def story_of(view: JobView, job_id: str, now: float) -> tuple[JobRow, Story]:
    """A job of the viewer's and its story until `now`. Raises UnknownJob.

    What was decided about jobs of a followed Slurm took no effect: of one that Slurm started, none
    of it is the story.
    """
    job = view.job(job_id)
    slurms = job.slurm is not None and job.slurm.started
    own = [] if slurms else [_decision(line) for line in view.decisions(job_id)]
    joined = view.joined_by(job_id)
    step = ""
    if own and Phase(job.phase).waits:
        # recorded when its reason changed: the line moves on, and so do others' jobs
        standing = view.standing(job_id)
        position = standing.position if standing else None
        own[-1], step = _with_counts(counting(view.nodes_now), job, own[-1], position)
    facts, until = _facts(job), max(now, job.submitted_at)
    spells = waits_for_gpus(life(facts, own, until))
    story = build_story(
        facts,
        own,
        [_decision(joined, job.partner or ANOTHER, job.job_id)] if joined else [],
        recorded=Recorded(
            bundles=names_of_terms(view),
            held=() if job.slurm is not None else view.held(job, spells, now),
            overtaken={} if job.slurm is not None else view.overtaken(job_id),
        ),
        until=until,
    )
    if step:
        story = replace(
            story, events=(*story.events[:-1], replace(story.events[-1], next_step=step))
        )
    return job, story


def where_it_stands(job: JobRow, story: Story, now: float) -> str:
    """Where a job stands, in a sentence without its subject."""
    ran = max((job.ended_at or now) - job.started_at, 0.0) if job.started_at is not None else 0.0
    waited, state = duration(_waited_s(job, story)), ended(job.state or "")
    if job.phase == Phase.ENDED:
        if job.started_at is None:
            return f"{state} after {waited}, before it ran"
        status = f"; exit status {job.exit_code}" if job.exit_code else ""
        where = " on GPUs" if job.gpus else ""
        return f"{state} after {duration(ran)}{where}; it had waited {waited}{status}"
    if job.phase == Phase.CANCELLED and job.started_at is not None:
        return f"was cancelled after running {duration(ran)}; it had waited {waited}"
    if job.hold:
        held = duration(max(0.0, now - (job.held_at or now)))
        return f"is {hold_words(job.hold, job.held_by)}, for {held} now"
    return _STANDS[Phase(job.phase)].format(waited=waited, ran=duration(ran))


def _waited_s(job: JobRow, story: Story) -> float:
    """Return how long a job waited; one that Slurm started counts from when it was eligible."""
    if job.started_at is None or job.slurm is None:
        return story.waited_s
    return max(0.0, job.started_at - (job.queued_at or job.submitted_at))


_STANDS = {
    Phase.SUBMITTED: "has waited {waited} and is in no queue yet",
    Phase.QUEUED: "has waited {waited}",
    Phase.PROFILING: "is being profiled on a GPU for a few minutes",
    Phase.STARTING: "has its GPUs and is being started",
    Phase.RUNNING: "has run for {ran} after waiting {waited}",
    Phase.CANCELLED: "was cancelled after waiting {waited}",
    Phase.REFUSED: "was refused: it can never run here",
    Phase.LOST: "was lost: how it ended is unknown, and it is not run again",
}


def names_of_terms(view: JobView) -> Mapping[str, Description]:
    """How to read the scores of the bundle in use (`explain.terms.describe`), by its digest, and
    those of the histories alone."""
    bundle = bundle_in_use(view)
    models = {bundle.digest: describe(bundle)} if bundle and "duration" in bundle.parts else {}
    return {COLD_START: OF_HISTORIES, **models}


def bundle_in_use(view: JobView) -> Bundle | None:
    """The bundle that is decided with; None when there is none, or it cannot be read."""
    body = view.bundle()
    return _read_bundle(str(body.get("path", "")), str(body.get("digest", "")))


@lru_cache(maxsize=2)
def _read_bundle(path: str, digest: str) -> Bundle | None:
    """The bundle in a folder, read once per digest; None when it cannot be read."""
    if not path:
        return None
    from models.bundle import Bundle, BundleError  # not where none is in use

    try:
        return Bundle.load(path)
    except (BundleError, OSError):
        return None


def _decision(line: Line, job_id: str = "", partner: str = "") -> Decision:
    """A decision from its redacted body; of one about another's job little is there."""
    body = {"seq": line.seq, "vc": "", "job_id": job_id, **line.body}
    body.pop("event", None)
    if partner:
        body["partner"] = partner
    return Decision.from_body(body)


def counting(nodes_now: NodesNow) -> Counting:
    """Return what counts for many jobs at one moment: once for all that ask for the same."""

    @cache
    def nodes() -> Sequence[NodeNow]:
        return nodes_now()

    @cache
    def count_for(vc: str, gpus: int, gpu_type: str | None, profiling: bool) -> Capacity:
        return counted(nodes(), vc, gpus, gpu_type, profiling=profiling)

    return count_for


def sentence_now(counts: Counting, job: JobRow, line: Line, position: int | None) -> str:
    """What was decided last about a waiting job, with the numbers of now, as `why` has them."""
    last = _decision(line)
    now, _ = _with_counts(counts, job, last, position)
    return line.text if now is last else now.sentence()


def _with_counts(
    counts: Counting, job: JobRow, last: Decision, position: int | None
) -> tuple[Decision, str]:
    """The last decision about a waiting job with the numbers of now, and what would help where its
    reason does not say so."""
    if last.reason is Reason.BEHIND_HIGHER_PRIORITY:
        if position in (None, last.position):
            return last, ""
        return replace(last, position=position, blocker=None, held_by=()), ""
    if last.action is not Action.WAIT or last.free is None:
        return last, ""
    profiling = last.reason is Reason.AWAITING_PROFILE
    there = counts(job.vc, job.gpus, job.gpu_type, profiling)
    evidence = tuple((k, v) for k, v in last.evidence if k != "closed_gpus")
    if there.closed:
        evidence += (("closed_gpus", there.closed),)
    step = Reason.NODE_DRAINED.next_step() if there.obstacle is Obstacle.CLOSED else ""
    now = replace(last, free=there.free, limit=there.limit, held_by=(), evidence=evidence)
    return now, step


def _facts(job: JobRow) -> JobFacts:
    ran = jct = None
    if job.ended_at is not None:
        jct = job.ended_at - job.submitted_at
        ran = None if job.started_at is None else job.ended_at - job.started_at
    return JobFacts(
        job.job_id, job.gpus, job.submitted_at, 0.0, user=job.owner, vc=job.vc, name=job.name,
        start_time=job.started_at, end_time=job.ended_at, jct_s=jct, ran_s=ran,
        estimate_s=job.estimate_s, refused=job.phase == Phase.REFUSED,
        time_limit_s=job.time_limit_s,
    )  # fmt: skip
