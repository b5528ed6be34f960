"""The story of a job: its life (`scheduler.explain.life`) and its end, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from scheduler.core.decisions import Action, Decision, Reason
from scheduler.core.plural import count
from scheduler.explain.dossier import NOTHING_ELSE, Recorded
from scheduler.explain.explanation import Waited
from scheduler.explain.life import (
    Event,
    Held,
    JobFacts,
    Phase,
    Sharing,
    Span,
    Wait,
    event_of,
    life,
    life_in_free_pass,
    sharing_of,
    split_free_pass,
    waits_of,
)
from scheduler.explain.terms import Breakdown, breakdowns
from scheduler.explain.waited import as_predicted, wait_words, waited
from scheduler.explain.words import (
    duration,
    gain_words,
    listed,
    moment,
    number,
    percent,
)

PRINCIPAL_REASONS = 4
HOLDERS = 4  # that are named


@dataclass(frozen=True, slots=True)
class Story:
    """Everything that is shown of one job; see the classes of the fields.

    Attributes:
        policy: name of the policy that took the decisions; "" when not recorded.
        wait: in words, what its wait consisted of, or has so far.
        waited: the same as values.
        headline: the story in a sentence or two.
        waits: reasons for which it waited, the longest first. Their seconds sum to the waiting
            time.
        held: jobs that had GPUs while it waited for some, those with most GPU-time first.
        overtaken: maps each reason to the number of later jobs that got GPUs first for it.
        foil: sentences on why the jobs ahead went first.
        checked, worst_gap: number of decisions whose score was summed again, and the largest
            difference found.
        problems: contradictions in the record. An explanation with problems is an error.
        limits: what was not examined.
    """

    job: JobFacts
    policy: str
    wait: str
    waited: Waited
    headline: str
    events: tuple[Event, ...]
    spans: tuple[Span, ...]
    waits: tuple[Wait, ...]
    sharing: tuple[Sharing, ...]
    scores: tuple[Breakdown, ...]
    held: tuple[Held, ...]
    overtaken: Mapping[str, int]
    foil: tuple[str, ...]
    ending: tuple[str, ...]
    estimate: str
    checked: int
    worst_gap: float
    problems: tuple[str, ...]
    limits: tuple[str, ...]

    @property
    def waited_s(self) -> float:
        """Total seconds of the spans in which the job waited."""
        return sum(w.seconds for w in self.waits)


def build_story(
    job: JobFacts,
    own: Sequence[Decision],
    joined: Sequence[Decision] = (),
    recorded: Recorded = NOTHING_ELSE,
    *,
    until: float | None = None,
) -> Story:
    """Return a job's story, built from what was recorded.

    Args:
        job: the job's recorded times.
        own: decisions about it, in the order in which they were taken.
        joined: decisions that put another job on its GPUs, likewise.
        recorded: what else was recorded.
        until: the present time, where the job has not ended; None: the record is complete.
    """
    free_pass, main = split_free_pass(own) if until is None else ([], list(own))
    spans = life(job, main, until)
    lived = spans if recorded.last is None else life(job, main, recorded.last) or spans
    waits = waits_of(lived, main)
    sharing = sharing_of(job, main, joined, recorded.ends)
    scores = breakdowns(main, recorded.bundles)
    problems = _problems(job=job, spans=spans, free_pass=free_pass, scores=scores, decisions=main)
    events = tuple(event_of(job, d, i < len(free_pass)) for i, d in enumerate(own))
    made_of = waited(
        job=job, own=main, spans=lived, waits=waits, recorded=recorded, live=until is not None
    )
    began = waits[0].sentence if waits else ""
    wait = wait_words(job.job_id, made_of, waits, overtaken=recorded.overtaken, began=began)
    return Story(
        job=job,
        policy=recorded.policy,
        wait=wait,
        waited=made_of,
        headline=_headline(wait, job, sharing),
        events=events,
        spans=tuple(spans),
        waits=tuple(waits),
        sharing=tuple(sharing),
        scores=tuple(scores),
        held=tuple(recorded.held),
        overtaken=recorded.overtaken,
        foil=tuple(_foil(job, main, lived, recorded.order_values)),
        ending=tuple(_ending(job)),
        estimate=_estimate(job, main),
        checked=sum(len(s.seqs) for s in scores),
        worst_gap=max((s.gap for s in scores), default=0.0),
        problems=tuple(problems),
        limits=tuple(_limits(job, main, free_pass, scores)),
    )


def sharing_words(sharing: Sharing) -> Iterator[str]:
    """Yield sentences on a time of sharing: which job joined which, until when, the speeds, and the
    gain."""
    until = f"until {moment(sharing.end)}" if sharing.end is not None else "until the record ends"
    if sharing.newcomer:
        yield f"It started on the GPUs of job {sharing.partner} at {moment(sharing.start)}."
    else:
        yield f"Job {sharing.partner} started on the GPUs of this job at {moment(sharing.start)}."
    yield f"The two shared them {until}."
    if sharing.speeds is not None:
        own, other = sharing.speeds
        yield (
            f"Predicted speeds while they share: this job {percent(own)} of its speed alone, the "
            f"other job {percent(other)}."
        )
    else:
        yield "No speeds were predicted for the pair."
    if sharing.gain_s is not None:
        yield gain_words(sharing)


def started_words(left: list[str], at: float, beside: str = "") -> str:
    """Return a sentence on which jobs left a job's GPUs as it started.

    Args:
        at: when it started, seconds since the epoch.
        beside: id of the job that it then shared these GPUs with; "" for none.
    """
    jobs = listed([f"job {one}" for one in left])
    place = "their" if len(left) > 1 else "its"
    shared = f" beside job {beside}, which went on" if beside else ""
    return f"As {jobs} ended, at {moment(at)}, it took {place} place{shared}."


STEPS = "why, as comparisons that were made one after the other:"


def checked_words(story: Story) -> str:
    """Return a sentence that says how many predictions were summed again from their terms, and how
    far the sums were off."""
    return (
        f"In {count(story.checked, 'decision')} the terms of the prediction add up to it (largest "
        f"difference {story.worst_gap:.1g})."
    )


def held_words(held: Sequence[Held], vc: str | None) -> Iterator[str]:
    """Yield sentences on which jobs had GPUs of a virtual cluster while a job waited. Those with
    most GPU-time are named."""
    for one in held[:HOLDERS]:
        whose = "" if one.vc == vc else f" of virtual cluster {one.vc}"
        most = "" if math.isclose(one.gpu_s, one.gpus * one.seconds) else "up to "
        gpus = f"{most}{count(one.gpus, 'GPU')}"
        had = f"had {gpus} for {duration(one.seconds)} of this wait{as_predicted(one)}"
        yield f"Meanwhile job {one.job_id}{whose} {had}."
    if len(held) > HOLDERS:
        more = count(len(held) - HOLDERS, "more job")
        yield f"{more} had GPUs of the virtual cluster during a part of this wait."


def _headline(wait: str, job: JobFacts, sharing: Sequence[Sharing]) -> str:
    """Return the sentence on the wait (`wait`), followed by how the job ran and ended, if it
    did."""
    if job.refused:
        return wait
    if job.end_time is None:
        return f"{wait} It had not ended when the run did."
    profiled = f"It was profiled (measured in a short run) for {duration(job.profile_s)}"
    if job.ended_in_profiling:
        return f"{wait} {profiled} and ended in that run."
    company = ""
    if sharing:
        partners = {s.partner for s in sharing}
        company = f", during which it shared its GPUs with {count(len(partners), 'other job')}"
    began = f"{profiled}. It ran" if job.profile_s else "It ran"
    ended = f"It ended {duration(job.jct_s)} after its submission."
    return f"{wait} {began} for {duration(job.ran_s)}{company}. {ended}"


def _ending(job: JobFacts) -> list[str]:
    if job.refused:
        return ["Refused: it never entered a queue."]
    if job.end_time is None or job.jct_s is None:
        return ["It had not ended when the run did."]
    parts = [
        f"{duration(seconds)} {where}"
        for seconds, where in (
            (job.queue_s, "in the queue"),
            (job.profile_s, "being profiled"),
            (job.ran_s, "running"),
        )
        if seconds is None or seconds > 0
    ]
    made_of = f": {listed(parts)}" if parts else ""
    facts = [f"From submission to end {duration(job.jct_s)} passed{made_of}."]
    if job.duration_s > 0:
        facts.append(
            f"On GPUs that it shares with nobody its run takes {duration(job.duration_s)}: from "
            f"submission to end it took {number(job.jct_s / job.duration_s)} times that."
        )
        if job.pairings and job.ran_s and not job.ended_in_profiling:
            slow = job.ran_s / job.duration_s
            facts.append(
                f"As it shared GPUs, its run took {number(slow)} times as long as it takes alone."
            )
    if job.preemptions:
        facts.append(f"It was stopped in favour of other jobs {count(job.preemptions, 'time')}.")
    return facts


def _estimate(job: JobFacts, decisions: Sequence[Decision]) -> str:
    predicted_s = job.estimate_s
    if predicted_s is None:  # of a job that ended while profiled, the decisions alone have it
        recorded = (d.estimate_s for d in reversed(decisions) if d.estimate_s is not None)
        predicted_s = next(recorded, None)
    if predicted_s is None:
        return (
            "No duration was predicted for it: the policy asks for none, or the job left before it "
            "would have asked."
        )
    if job.duration_s == 0:
        return f"Predicted {duration(predicted_s)}."
    if predicted_s < 0 or job.duration_s < 0:
        return f"Predicted {duration(predicted_s)}, took {duration(job.duration_s)}."
    ratio = (1 + job.duration_s) / (1 + predicted_s)
    if 0.995 < ratio < 1.005:
        return f"Predicted {duration(predicted_s)}, and that is what it took."
    how = f"{number(ratio)} times as long as" if ratio > 1 else f"{percent(ratio)} of what was"
    return (
        f"It was predicted to run {duration(predicted_s)}; alone on its GPUs it takes "
        f"{duration(job.duration_s)}, {how} predicted."
    )


def _foil(
    job: JobFacts,
    decisions: Sequence[Decision],
    spans: Sequence[Span],
    order: Mapping[str, float],
) -> list[str]:
    """Return sentences on why other jobs went first, for the two jobs that stood ahead for the
    longest time. A job whose order value is unknown, or larger than this job's, is left out."""
    behind: dict[str, float] = {}
    for d in decisions:
        if d.action is Action.WAIT and d.blocker and d.blocker != job.job_id:
            span = next((s for s in spans if s.start == d.time and s.reason is d.reason), None)
            behind[d.blocker] = behind.get(d.blocker, 0.0) + (span.seconds if span else 0.0)
    own = order.get(job.job_id)
    sentences = []
    for blocker, _ in sorted(behind.items(), key=lambda item: -item[1])[:2]:
        other = order.get(blocker)
        if own is None or other is None:
            continue
        if other == own:
            sentences.append(
                f"Job {blocker} goes before it: both have the order value {number(own)}, "
                f"and job {blocker} was submitted earlier."
            )
        elif other < own:
            sentences.append(
                f"Job {blocker} goes before it: its order value is {number(other)}, this job's is "
                f"{number(own)}, and the smallest goes first."
            )
    return sentences


def _problems(
    job: JobFacts,
    spans: Sequence[Span],
    free_pass: Sequence[Decision],
    scores: Sequence[Breakdown],
    decisions: Sequence[Decision],
) -> list[str]:
    problems = [
        f"The recorded terms do not add up to the score {s.score:.6g} (off by {s.gap:.3g}), "
        "so they are not shown: they explain nothing."
        for s in scores
        if not s.adds_up
    ]
    if job.queue_s is not None and not job.refused:
        waited = sum(
            s.seconds
            for s in [*spans, *life_in_free_pass(job, free_pass)]
            if s.phase is Phase.WAITING
        )
        if abs(waited - job.queue_s) > 0.005 * (len(decisions) + len(free_pass) + 2):
            problems.append(
                f"The decisions add up to {duration(waited)} of waiting, the result of "
                f"{duration(job.queue_s)}: part of its waiting is not explained."
            )
    return problems


def _limits(
    job: JobFacts,
    decisions: Sequence[Decision],
    free_pass: Sequence[Decision],
    scores: Sequence[Breakdown],
) -> list[str]:
    sentences = [
        "A decision is recorded only when the reason or the predicted duration changes, not each "
        "time the job is considered."
    ]
    if free_pass:
        sentences.append(
            "In this simulation profiling takes no time: all jobs were profiled beforehand. The "
            "decisions of that are marked (free profiling), and only the wait for it counts."
        )
    if any(d.reason is Reason.BEHIND_HIGHER_PRIORITY for d in decisions):
        sentences.append(
            "While other jobs went first, it was not examined on which GPUs this one would fit."
        )
    if job.estimate_s is not None and not scores:
        sentences.append(
            "The predicted duration was given or known beforehand, so there are no terms to show."
        )
    if any(not s.terms_known for s in scores):
        sentences.append("The names of the prediction's terms were not kept with the run.")
    return sentences
