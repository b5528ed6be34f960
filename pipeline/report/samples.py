"""Chooses the jobs that the report explains. They are chosen by rule, so that the same runs give
the same jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from models.bundle import Bundle
from pipeline.explain.counterfactuals import PlayedAgain, asked_at, lines
from pipeline.explain.run import RunError, read_story
from pipeline.report.comparison import Comparison, PolicyRun
from pipeline.report.each_job import judged, leavers, started
from pipeline.report.schedule import Gantt, Schedule
from pipeline.tables import Floats, floats, of_jobs
from scheduler.charts.trees import Drawing, lit_by
from scheduler.core.decisions import Action
from scheduler.explain.drawing import StoryView, view
from scheduler.explain.life import Held, Phase
from scheduler.explain.remarks import expected_words
from scheduler.explain.story import Story
from scheduler.explain.terms import Step, drawn, thought_waterfall
from scheduler.explain.words import duration, listed, moment, number, percent, phrase

EVENTS = 8
BESIDE, MOST_BESIDE = (
    ("lucid", "fifo-skip", "fifo"),
    1,
)  # whom a job is shown under beside the policy explained
LEAST_S = 60.0  # of a wait that is worth a story
HOLDERS = 3  # as many as are named
TRIED = 3  # changes,
FUTURES, ENOUGH_S = 16, 120.0  # each in all of these: the same inputs give the same page
ROOM = 0.25  # of a wait, that is drawn before and after it
LABEL = 0.18  # of a picture's width, that the name of a moment takes
REASONS, LEAST_SHARE = 2, 0.1  # of a wait: the longest, if they make up as much of it


@dataclass(frozen=True)
class Lived:
    """A job under one policy.

    Attributes:
        wait_s, jct_s: wait and JCT in seconds.
        wait, whole: the same in percent of the job's longest JCT under any policy.
        because: what it waited for, in words; "" if it waited less than `LEAST_S`.
        profiled_s, ran_s: seconds on GPUs: in its profiling run, and afterwards.
        shared: with how many jobs it shared its GPUs, one after the other.
    """

    policy: str
    colour: int
    wait_s: float
    jct_s: float
    wait: float
    whole: float
    because: str
    profiled_s: float = 0.0
    ran_s: float | None = None
    shared: int = 0


@dataclass(frozen=True)
class Sample:
    """A job that the report explains.

    Attributes:
        view: the job's story.
        title: why the job was chosen.
        lives: the job's wait and JCT under each policy, that of the story first.
        closeup: picture of the GPUs of its virtual cluster during its wait; None if it did not
            wait.
        terms: terms of its first predicted duration, grouped by feature.
        tree: the decision tree for the first time that it shared GPUs, with the path marked;
            None if it never did, or if the tree is not known.
        tried: sentences about the changes tried, and which would have started the job; empty if
            none was tried.
        holders: some of the jobs that had GPUs while it waited.
        started: a sentence on what ended as the job started; "" if nothing did.
        spread: a sentence on the predictions of such jobs; "" where none is recorded.
    """

    view: StoryView
    title: str
    lives: Sequence[Lived]
    closeup: Gantt | None
    terms: Sequence[Step]
    tree: Drawing | None
    tried: Sequence[str] = ()
    holders: Sequence[Held] = ()
    started: str = ""
    spread: str = ""

    @property
    def sentence(self) -> str:
        """Return "job 7, picked for its gain, waited 5 min under pellucid and 3 d under lucid"."""
        own, *others = self.lives
        waited = [f"{duration(one.wait_s)} under {one.policy}" for one in (own, *others)]
        job = f"job {self.view.story.job.job_id}, picked for its gain,"
        return f"{job} waited {' and '.join(waited[:2])}"


def samples(
    c: Comparison,
    colours: Sequence[int],
    schedule: Schedule | None,
    bundle: Bundle | None,
    *,
    tried: int = 0,
) -> list[Sample]:
    """Return the jobs to explain, from the first draw under the report's own policy.

    The first is the job with the best story: among those that waited, shared GPUs and had a
    predicted duration, the one with the wait that is shortened most compared with the policies
    `BESIDE`. Then come the job with the wait that is lengthened most, that with the longest
    wait, and that with the worst prediction. No job occurs twice.

    Args:
        colours: number of the colour of each run.
        tried: number of these jobs for which changes that would have started them are tried. That
            simulates the run again.
    """
    run = c.own
    rivals = beside(c)
    look = dict(zip((r.name for r in c.runs), colours, strict=True))
    chosen: dict[str, tuple[str, Choice]] = {}
    for anchor, choice in _chosen(run, rivals):
        chosen.setdefault(choice[0], (anchor, choice))
    stories = {job_id: read_story(run.folder, job_id) for job_id in chosen}
    asked = _tried(run, list(stories.values())[:tried]) if tried else {}
    found: list[Sample] = []
    for job_id, (anchor, choice) in chosen.items():
        story = stories[job_id]
        lives = list(_lives(job_id, [run, *rivals], look))
        found.append(
            Sample(
                view=view(story, why=choice[1], anchor=f"job-{anchor}", events=EVENTS),
                title=choice[1],
                lives=lives,
                closeup=_closeup(story, schedule),
                terms=_terms(story),
                tree=_tree(run, story, bundle),
                tried=asked.get(job_id, ()),
                holders=_holders(story, schedule),
                started=started(story.job, story.sharing, schedule),
                spread=expected_words(story.events, story.job.time_limit_s),
            )
        )
    return found


def beside(c: Comparison) -> list[PolicyRun]:
    """Return the runs with which an explained job is compared, besides that of the report's own
    policy."""
    named = [r for name in BESIDE if (r := c.run(name)) is not None and r is not c.own]
    return named[:MOST_BESIDE] or [r for r in c.runs if r is not c.own][:1]


Choice = tuple[str, str]


def _chosen(run: PolicyRun, rivals: Sequence[PolicyRun]) -> Iterator[tuple[str, Choice]]:
    ended = run.ended
    if not len(ended):
        return
    ids, waits = ended["job_id"], floats(ended["queue_s"])
    packs = run.decisions(["seq", "time", "job_id"], [Action.PACK.value])
    packed = pc.is_in(ids, packs["job_id"].combine_chunks()).to_numpy()
    known = ended["estimate_s"].is_valid().to_numpy()
    if rivals:
        less = floats(of_jobs(rivals[0].jobs, ids)["queue_s"]) - waits
        less = np.where(np.isfinite(less), less, 0.0)
        name = rivals[0].name
        rich = (waits >= LEAST_S) & known
        telling = next(
            (mask for mask in (rich & packed, packed & known, rich, packed) if mask.any()), None
        )
        if telling is not None:
            i = int(np.argmax(np.where(telling, less, -np.inf)))
            group = "Of the jobs that shared, the one" if packed.any() else "The job"
            yield "best", (ids[i].as_py(), _differs(f"{group} that gained most", less[i], name))
        i = int(np.argmin(less))
        if less[i] < 0:
            yield "lost", (ids[i].as_py(), _differs("Who lost most", less[i], name))
    i = int(np.argmax(waits))
    longest = [f"The longest wait: {duration(float(waits[i]))}"]
    for other in rivals[:1]:
        theirs = floats(other.ended["queue_s"]).max(initial=0.0)
        longest.append(f"the longest under {other.name}: {duration(float(theirs))}")
    yield "longest", (ids[i].as_py(), "; ".join(longest))
    if (worst := _worst_estimate(run)) is not None:
        yield "wrong", worst


def _differs(what: str, less_s: float, rival: str) -> str:
    how = "less" if less_s > 0 else "more"
    if abs(less_s) < 1:
        return f"{what}: waited as long as under {rival}"
    return f"{what}: waited {duration(abs(less_s))} {how} than under {rival}"


def _worst_estimate(run: PolicyRun) -> Choice | None:
    if run.oracle:
        return None
    ended = run.ended
    queued = pc.invert(pc.fill_null(ended["ended_in_profiling"], False))
    known = ended.filter(pc.and_(ended["estimate_s"].is_valid(), queued))
    if not len(known):
        return None
    estimates = np.maximum(floats(known["estimate_s"]), 0.0)
    off: Floats = np.log1p(floats(known["duration_s"])) - np.log1p(estimates)
    i = int(np.argmax(np.abs(off)))
    how = "too short" if off[i] > 0 else "too long"
    times, typical = (number(float(np.exp(x))) for x in (abs(off[i]), np.median(abs(off))))
    title = f"The worst prediction: {times} times {how} (half are off by ×{typical} at most)"
    return known["job_id"][i].as_py(), title


def _lives(job_id: str, runs: Sequence[PolicyRun], look: dict[str, int]) -> Iterator[Lived]:
    rows = [of_jobs(r.jobs, pa.chunked_array([[job_id]])) for r in runs]
    spent = [(float(floats(row["queue_s"])[0]), float(floats(row["jct_s"])[0])) for row in rows]
    longest = max((jct for _, jct in spent if np.isfinite(jct)), default=1.0) or 1.0
    for r, (wait_s, jct_s) in zip(runs, spent, strict=True):
        if np.isfinite(jct_s):
            story = read_story(r.folder, job_id)
            yield Lived(
                policy=r.name,
                colour=look[r.name],
                wait_s=wait_s,
                jct_s=jct_s,
                wait=100 * wait_s / longest,
                whole=100 * jct_s / longest,
                because=_because(story) if wait_s >= LEAST_S else "",
                profiled_s=story.job.profile_s or 0.0,
                ran_s=story.job.ran_s,
                shared=len({pair.partner for pair in story.sharing}),
            )


def _because(story: Story) -> str:
    """Return the reasons for which a job waited longest, with their shares of its wait for
    GPUs, in words. The shares add up to the whole. If one reason makes up nearly all of the
    wait, return it alone."""
    longest = sorted(story.waits, key=lambda wait: -wait.seconds)[:REASONS]
    named = [wait for wait in longest if wait.share >= LEAST_SHARE]
    if named and named[0].share > 1 - LEAST_SHARE:
        return phrase(named[0].reason)
    reasons = [f"{percent(wait.share)} {phrase(wait.reason)}" for wait in named]
    rest = 1 - sum(wait.share for wait in named)
    return listed([*reasons, f"{percent(rest)} other reasons"] if rest > 0.005 else reasons)


def _holders(story: Story, schedule: Schedule | None) -> Sequence[Held]:
    """Return the jobs to name among those that had GPUs while a job waited: first those that left
    it theirs, then those with most GPU-time."""
    left = leavers(story.job, schedule)
    return sorted(story.held, key=lambda one: one.job_id not in left)[:HOLDERS]


def _closeup(story: Story, schedule: Schedule | None) -> Gantt | None:
    """Return a picture of the GPUs of a job's virtual cluster while the job waited. Return None
    without a schedule, if it waited less than a second, or if the nodes of its virtual cluster are
    unknown."""
    waits = [s for s in story.spans if s.phase is Phase.WAITING and s.end is not None]
    if schedule is None or not waits or story.job.vc is None:
        return None
    since = min(s.start for s in waits)
    until = max(s.end or s.start for s in waits)
    if until - since < 1 or story.job.vc not in schedule.vc_of.values():
        return None
    room = ROOM * (until - since)
    left, right = since - room, until + 2 * room
    marks = [(since, "it waits"), (until, "it starts")]
    profiled = [s.start for s in story.spans if s.phase is Phase.PROFILING and s.start < since]
    if profiled:
        left = min(left, max(profiled[0] - 0.1 * room, since - 4 * room))
        if since - max(profiled[0], left) > LABEL * (right - left):
            marks.insert(0, (max(profiled[0], left), "profiled"))
    return schedule.drawn(
        left,
        right,
        vc=story.job.vc,
        own=story.job.job_id,
        holds=[one.job_id for one in _holders(story, schedule)],
        marks=marks,
    )


def _tree(run: PolicyRun, story: Story, bundle: Bundle | None) -> Drawing | None:
    """Return the decision tree for the first time that a job shared GPUs, with the path marked;
    None if it never did, or if the tree is not known."""
    if not story.sharing or bundle is None:
        return None
    return lit_by(bundle, judged(story.sharing[0], *run.folder.decisions(story.job.job_id)))


def _terms(story: Story) -> Sequence[Step]:
    """Return a job's first predicted duration as steps of a waterfall chart; () if it has no
    terms."""
    found = drawn(story.scores)
    return thought_waterfall(found[0]).steps if found else ()


def _tried(run: PolicyRun, stories: Sequence[Story]) -> dict[str, Sequence[str]]:
    """Return, by job id, sentences about which changes would have started the job, tried in a
    repeated simulation of the run; or about why that cannot be tried."""
    found: dict[str, Sequence[str]] = {}
    moments: list[tuple[float, str, Story]] = []
    try:
        for story in stories:
            with suppress(RunError):  # it did not wait
                moments.append((asked_at(story), story.job.job_id, story))
        played = PlayedAgain(run.folder) if moments else None
        for at, job_id, story in sorted(moments, key=lambda one: one[:2]):
            assert played is not None
            asked = played.ask(story, at, most=TRIED, samples=FUTURES, budget_s=ENOUGH_S)
            _, in_the_way, *helped = lines(asked)
            in_the_way = f"At {moment(at)}: {in_the_way}"
            found[job_id] = (in_the_way, *helped[: len(helped) - len(asked.wait.not_examined)])
    except RunError as error:
        text = str(error).replace(str(run.folder.folder), "this run")
        for _, job_id, _ in moments:
            found.setdefault(job_id, (f"Not tried: {text}.",))
    return found
