"""Estimators: what a policy believes about durations of jobs.

An estimator is notified of every event, in order. A policy decides with the answer that `enqueued`
gave when the job joined its queue; the other question, `estimate`, changes nothing. Oracles are
estimators that were given the true durations: they exist for comparison only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log1p, sqrt
from typing import TYPE_CHECKING, Any, TypedDict

from features import portable
from features.job import Job, Profile
from features.progress import Progress, tempered
from features.repeats import Claim
from features.spec import Value
from features.state import FAMILIES, FeatureState
from features.states import State
from features.survival import ERROR, OUTLOOK_TERMS, SUM
from features.throughput import Asked, asked, shares
from scheduler.core.curves import LONGEST_S, Predicted, moved
from scheduler.core.decisions import Evidence, Fact, Score
from scheduler.core.durations import Duration, Stated, seconds_of, unstated

if TYPE_CHECKING:
    from models.bundle import Bundle

DOUBTFUL = 0.25  # error of a job's own progress above which its command may know better
SPREAD = 1.5  # deviation of ln(true / predicted), of predictions made without a job's own progress
ENDED_HERE = "ended_here"  # how many jobs have ended, noted where none of the owner's has
COLD_START = "coldstart"  # stands for a digest in scores that come from histories alone


class Description(TypedDict, total=False):
    """How to read the terms of a score: names of the terms and inputs, meaning and unit of each
    input, and metadata of the model."""

    terms: list[str]
    inputs: list[str]
    texts: dict[str, str]
    units: dict[str, str]
    metadata: Mapping[str, Any]


OF_HISTORIES: Description = {
    "terms": list(OUTLOOK_TERMS),
    "inputs": [ERROR.name],
    "texts": {spec.name: spec.text for spec in (*SUM, ERROR)},
    "units": {spec.name: spec.unit for spec in (*SUM, ERROR)},
}


@dataclass(slots=True)
class Estimate:
    """A predicted duration (seconds, on GPUs of the job's own), with the additive score that it
    came from.

    Attributes:
        outlived_s: the longest run so far after which the job had not ended, seconds; 0 without
            one.
    """

    seconds: Duration
    score: Score | None = None
    outlived_s: float = 0.0

    @property
    def value(self) -> float:
        """ln(1 + seconds): the value to which the score's terms sum."""
        return log1p(seconds_of(self.seconds)) if self.score is None else self.score.value

    @property
    def plain(self) -> Estimate:
        """The same estimate without its score."""
        return Estimate(self.seconds)


class Estimator:
    """Predicts durations. Events arrive in time order. `estimate` may be called between any two
    events, as often as needed, also for a time before which further events are still to come.

    An estimator sees a true duration only in `ended`. Subclasses override what they need.

    Attributes:
        of_requests: whether two jobs get equal answers if their requests, their profiles and the
            histories behind them are equal.
    """

    name = "none"
    of_requests = False

    def __init__(self) -> None:
        # every bundle a score may name, by digest: what it takes to read the terms
        self.bundles: dict[str, Bundle] = {}
        # the same for scores that come from no bundle, by digest
        self.descriptions: dict[str, Description] = {}

    def submitted(self, job: Job, now: float) -> None:
        """Called when a job was submitted. Subclasses override it to keep track of jobs."""

    def changed(self, job: Job, now: float) -> None:
        """Called when the request of a waiting job was changed. Subclasses override it to keep
        track of jobs."""

    def started(self, job_id: str, now: float) -> None:
        """Called when a job was given GPUs. Subclasses override it to keep track of jobs."""

    def stopped(self, job_id: str, now: float) -> None:
        """Called when a job lost its GPUs and waits again. Subclasses override it to keep track of
        jobs."""

    def profiled(self, job_id: str, profile: Profile, now: float) -> None:
        """Called when a job was profiled. Subclasses override it to use the profile in
        estimates."""

    def profiling(self, job_id: str, now: float) -> None:
        """Called when a waiting job begins to be profiled. Subclasses override it to keep track of
        jobs."""

    def outlived(self, job_id: str, now: float) -> None:
        """Called when a job was profiled for the full profiling time, and had not ended by then.
        Subclasses override it to use that in estimates."""

    def tempered(self, job: Job, progress: Progress) -> Progress:
        """Return a job's reported progress, with its total corrected: earlier runs of the same
        script may have ended before the maximum that they stated."""
        return progress

    def progressed(self, job_id: str, progress: Progress, now: float) -> None:
        """Called when a job reports its progress with its predicted total duration. Subclasses
        override it to learn for similar jobs."""

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        """Called when a job ended after `duration_s` seconds of wall-clock time on GPUs, which
        include the time lost by sharing and by preemptions. Subclasses learn from it."""

    def withdrawn(self, job_id: str, now: float) -> None:
        """Called when a job was removed before its end, or when its end is unknown. The estimator
        learns no duration from it."""

    def use(self, bundle: Bundle) -> None:
        """Predict with the models of another bundle from now on. Estimators without models do
        nothing."""

    def enqueued(self, job: Job, now: float) -> Estimate:
        """Return the estimate with which decisions on a job are made. Called when the job joins its
        queue. An estimator may record its answer, or learn from the call."""
        return self.estimate(job, now)

    def enqueued_again(self, job: Job, now: float, answer: Estimate) -> Estimate:
        """Return the estimate with which decisions on a waiting job are made from now on. As in
        `enqueued`, an estimator may record its answer.

        Args:
            answer: what `estimate` has just returned. It is returned as it is by estimators that do
                not override `enqueued`.
        """
        notes_it = type(self).enqueued is not Estimator.enqueued
        return self.enqueued(job, now) if notes_it else answer

    def decided_with(self, job_id: str, estimate: Estimate) -> None:
        """Called when a job is decided with another estimate than `enqueued` returned for it, or
        with one for which `enqueued` was not called."""

    def as_changed(self, job: Job, to: Job, now: float) -> tuple[Estimate, Estimate]:
        """Return two estimates for a waiting job: one for its present request, one for the changed
        request `to`. Change nothing."""
        return self.estimate(job, now), self.estimate(to, now)

    def rests_on(self, job: Job) -> Evidence:
        """Return as evidence how many earlier jobs the estimate of a job rests on, if these are
        few; otherwise ()."""
        return ()

    def estimate(self, job: Job, now: float) -> Estimate:
        """Return the predicted duration of a job as of `now`. The call changes no later answer.
        Raise LookupError where there is none."""
        raise LookupError(f"the {self.name} estimator has no estimate for job {job.job_id}")


class TableEstimator(Estimator):
    """An estimator that looks durations up in a table of predictions, or of true durations.

    Args:
        name: shown in reports.
        seconds: maps job ids to durations.
        default: duration of jobs that are not in the table; None makes such a job an error.
        floor: replaces negative predictions, as the compared systems do.
    """

    def __init__(
        self,
        name: str,
        seconds: Mapping[str, Duration],
        *,
        default: float | None = None,
        floor: float = 1000.0,
    ):
        super().__init__()
        self.name = name
        self._seconds = seconds
        self._default = default
        self._floor = floor

    def estimate(self, job: Job, now: float) -> Estimate:
        seconds = self._seconds.get(job.job_id, self._default)
        if seconds is None:
            return super().estimate(job, now)
        return Estimate(seconds if seconds_of(seconds) >= 0 else self._floor)


class ConstantEstimator(Estimator):
    """An estimator that predicts the same duration for every job, so that only the number of GPUs
    orders jobs."""

    def __init__(self, seconds: float = 600.0):
        super().__init__()
        self.name = f"constant:{seconds:g}"
        self._estimate = Estimate(seconds)

    def estimate(self, job: Job, now: float) -> Estimate:
        return self._estimate


class Known(Estimator):
    """An estimator that answers with a given estimate. `inner`, another estimator, gets to
    know which estimate was used, and is not asked for a duration."""

    def __init__(self, inner: Estimator, estimate: Estimate):
        super().__init__()
        self.of_requests = inner.of_requests
        self.inner, self._estimate = inner, estimate

    def decided_with(self, job_id: str, estimate: Estimate) -> None:
        self.inner.decided_with(job_id, estimate)

    def estimate(self, job: Job, now: float) -> Estimate:
        return self._estimate

    def enqueued(self, job: Job, now: float) -> Estimate:
        self.decided_with(job.job_id, self._estimate)
        return self._estimate

    def rests_on(self, job: Job) -> Evidence:
        return self.inner.rests_on(job)


class FeatureEstimator(Estimator):
    """Base of estimators that learn. It keeps the features of `features.state` up to date with the
    events."""

    of_requests = True

    def __init__(self, state: FeatureState | None = None):
        super().__init__()
        self.state = state or FeatureState()

    def submitted(self, job: Job, now: float) -> None:
        self.state.submit(job, now)

    def changed(self, job: Job, now: float) -> None:
        self.state.change(job, now)

    def started(self, job_id: str, now: float) -> None:
        self.state.start(job_id, now)

    def stopped(self, job_id: str, now: float) -> None:
        self.state.requeue(job_id, now)

    def profiled(self, job_id: str, profile: Profile, now: float) -> None:
        self.state.profiled(job_id, profile, now)

    def profiling(self, job_id: str, now: float) -> None:
        self.state.try_out(job_id, now)

    def outlived(self, job_id: str, now: float) -> None:
        self.state.tried_out(job_id, now)

    def tempered(self, job: Job, progress: Progress) -> Progress:
        return tempered(progress, shares(self.state.ran(job), job, progress))

    def progressed(self, job_id: str, progress: Progress, now: float) -> None:
        self.state.stated(job_id, progress.total_s, progress.error, now)

    def ended(self, job_id: str, state: State, duration_s: float, now: float) -> None:
        self.state.end(job_id, now, state, duration_s)

    def withdrawn(self, job_id: str, now: float) -> None:
        self.state.end(job_id, now, State.UNKNOWN, None)

    def rests_on(self, job: Job) -> Evidence:
        ended = self.state.ended_here(job)
        return () if ended is None else ((ENDED_HERE, float(ended)),)

    def as_changed(self, job: Job, to: Job, now: float) -> tuple[Estimate, Estimate]:
        # differs in nothing that is looked at, and so is looked up as of now, as the other is
        again = replace(job, after_any=f"{job.after_any}?")
        return self.estimate(again, now), self.estimate(to, now)

    def from_histories(self, job: Job, now: float) -> Estimate:
        """Return a prediction computed from the histories of ended jobs alone. Called while there
        is no model."""
        (intercept, *terms), error = self.state.outlook(job, now)
        value = intercept
        for term in terms:
            value += term
        inputs = (_text(error),)
        score = Score(
            value=value, intercept=intercept, terms=tuple(terms), bundle=COLD_START, inputs=inputs
        )
        return self.refined(Estimate(portable.expm1(value), score), job, now)

    def refined(
        self, estimate: Estimate, job: Job, now: float, *, limited: bool = True
    ) -> Estimate:
        """Return a model's estimate, corrected by the job's earlier runs, its hazards (chances to
        end, by time) and its command.

        Args:
            limited: whether the model's terms already cover the job's time limit.
        """
        if not limited:
            estimate = with_limit(estimate, job, now, self.state)
        before = estimate.value
        hazards, shift = self.state.curve(job, now, before)
        found = with_outlived(estimate, job, now, self.state)
        if hazards:
            limit_s = LONGEST_S if job.time_limit_s is None else job.time_limit_s
            curve = Predicted.of(seconds_of(found.seconds), hazards, shift, limit_s)
            claims = self.state.claims(job, now)
            found = with_claims(replace(found, seconds=curve), curve, claims)
        return with_command(found, job, self.state)


class HistoriesEstimator(FeatureEstimator):
    """An estimator that predicts from the histories of ended jobs alone, from the first job on; no
    model is fitted."""

    name = "own"

    def __init__(self) -> None:
        super().__init__(FeatureState({"survival"}))
        self.descriptions[COLD_START] = OF_HISTORIES

    def estimate(self, job: Job, now: float) -> Estimate:
        return self.from_histories(job, now)


class BundleEstimator(FeatureEstimator):
    """An estimator that scores a job with an exported bundle of models. Every estimate carries its
    exact terms."""

    name = "bundle"

    def __init__(self, bundle: Bundle):
        wanted = bundle.duration.features
        super().__init__(FeatureState({s.family for s in wanted}, names=[s.name for s in wanted]))
        self.use(bundle)

    def use(self, bundle: Bundle) -> None:
        """Score with another bundle from now on. Raise BundleError when it needs other features
        than the present one."""
        from models.bundle.errors import BundleError  # who scores without a bundle needs none

        wanted = [spec.name for spec in bundle.duration.features]
        kept = [spec.name for spec in self.state.features]
        if wanted != kept:
            odd = sorted(set(wanted) ^ set(kept)) or ["their order"]
            raise BundleError(
                f"bundle {bundle.digest[:12]} was trained on other features: {odd[0]} differs"
            )
        self.bundle = bundle
        self.bundles[bundle.digest] = bundle

    def estimate(self, job: Job, now: float) -> Estimate:
        found = self.scored(self.state.row(job, now))
        return self.refined(found, job, now, limited=knows_limits(self.bundle))

    def scored(self, row: Sequence[Value]) -> Estimate:
        """Return the estimate for a row of feature values, with its terms."""
        return scored(self.bundle, row)


class LiveEstimator(FeatureEstimator):
    """The estimator of a live service. It scores with the bundle in use; until there is one, it
    predicts from the histories of ended jobs alone.

    It keeps every feature up to date, so that a new bundle may need any of them.
    """

    name = "live"

    def __init__(self) -> None:
        super().__init__(FeatureState(FAMILIES))
        self.bundle: Bundle | None = None
        self._picks: list[int] = []
        self.descriptions[COLD_START] = OF_HISTORIES

    def use(self, bundle: Bundle) -> None:
        """Score with another bundle from now on. Raise BundleError when the bundle needs a feature
        that this program does not compute."""
        from models.bundle.acceptance import positions

        self._picks = positions(bundle, self.state.features)
        self.bundle = bundle
        self.bundles[bundle.digest] = bundle

    def estimate(self, job: Job, now: float) -> Estimate:
        if self.bundle is None:
            return self.from_histories(job, now)
        row = self.state.row(job, now)
        found = scored(self.bundle, [row[i] for i in self._picks])
        return self.refined(found, job, now, limited=knows_limits(self.bundle))


def knows_limits(bundle: Bundle) -> bool:
    """Return whether a bundle's duration model has a term for the time that limits cut off.

    A model has none if no job on which it was trained had a limit.
    """
    return SUM[-1].name in bundle.duration.term_names


def with_limit(estimate: Estimate, job: Job, now: float, state: FeatureState) -> Estimate:
    """Return the estimate with one more term: how much the job's time limit reduces the predicted
    duration. Return it unchanged where the limit reduces nothing."""
    moves = state.cut_off(job, now) if job.time_limit_s else 0.0
    if not moves:
        return estimate
    score = estimate.score
    before = estimate.value
    if score is not None:
        text = f"stopped after {job.time_limit_s:.0f} s"
        score = score.with_term(moves, Fact.LIMIT, text)
    return Estimate(portable.expm1(before + moves), score, estimate.outlived_s)


def with_outlived(estimate: Estimate, job: Job, now: float, state: FeatureState) -> Estimate:
    """Return the estimate with one more term for the job's longest earlier run in which it did not
    end. Return it unchanged without such a run."""
    score = estimate.score
    before = estimate.value
    outlived_s, moves = state.beyond(job, now, before)
    if not outlived_s:
        return estimate
    seconds = portable.expm1(before + moves)
    if score is not None:
        text = f"ran for {outlived_s:.0f} s and did not end"
        score = score.with_term(moves, Fact.OUTLIVED, text)
    return Estimate(seconds, score, outlived_s)


def with_claims(estimate: Estimate, own: Predicted, claims: Sequence[Claim]) -> Estimate:
    """Return an estimate with one more term for each claim (a statement by its owner, or its last
    runs, of how long the job lasts). Claims that the job has outlived are left out.

    Args:
        own: the predicted distribution without claims.
    """
    claims = [claim for claim in claims if claim.high_s > estimate.outlived_s]
    if not claims:
        return estimate
    score = estimate.score
    value = estimate.value
    for claim, moves in zip(claims, moved(own, claims, value, estimate.outlived_s), strict=True):
        value += moves
        if score is not None:
            fact = Fact.EXPECTED if claim.by_owner else Fact.LAST_RUNS
            score = score.with_term(moves, fact, claim.text)
    plain = tuple(claim._replace(text="", by_owner=False) for claim in claims)
    seconds = portable.expm1(value)
    curve = Predicted(
        seconds=seconds, ended=own.ended, shift=own.shift, most_s=own.most_s, claims=plain
    )
    return Estimate(curve, score, estimate.outlived_s)


def _by_command(score: Score) -> bool:
    return score.facts[-1:] == (Fact.COMMAND,)


def with_command(estimate: Estimate, job: Job, state: FeatureState) -> Estimate:
    """Return an estimate combined with the prediction from the job's command and its earlier runs,
    each weighed by its error. Return it unchanged where there is no such prediction."""
    if job.work is None:
        return estimate
    found = asked(job.work, job.gpus, state.ran(job))
    if found is None:
        return estimate
    most_s = job.time_limit_s or inf
    found = replace(found, total_s=min(found.total_s, most_s))
    return _with(estimate, found, Fact.COMMAND, most_s)


def with_progress(estimate: Estimate, progress: Progress | None) -> Estimate:
    """Return an estimate combined with the progress that the job reports, each weighed by its
    error. The report adds one term to the score.

    The report replaces the prediction from the job's command, unless the report's error is above
    `DOUBTFUL` and that one has no larger error. An estimate that rests on a report already, or on a
    command without a score, is returned unchanged.
    """
    seconds, score = estimate.seconds, estimate.score
    if progress is None:
        return estimate
    if isinstance(seconds, Stated):
        known_better = seconds.error <= progress.error and progress.error > DOUBTFUL
        if score is None or not _by_command(score) or known_better:
            return estimate
        estimate = Estimate(seconds.without_s, score.without_last_term(), estimate.outlived_s)
    return _with(estimate, progress, Fact.PROGRESS)


def _with(estimate: Estimate, own: Progress | Asked, fact: Fact, most_s: float = inf) -> Estimate:
    weight = SPREAD**2 / (SPREAD**2 + own.error**2)
    before = estimate.value
    moves = weight * (log1p(own.total_s) - before)
    moves = min(moves, log1p(most_s) - before)
    mean = Stated(
        portable.expm1(before + moves), sqrt(weight) * own.error, unstated(estimate.seconds)
    )
    score = estimate.score
    if score is not None:
        score = score.with_term(moves, fact, own.text())
    return Estimate(mean, score, estimate.outlived_s)


def moved_by(before: Estimate, was: Estimate, new: Estimate) -> Estimate:
    """Return the new estimate of a job that was changed, where decisions used the estimate `before`
    until now.

    Each term of `before` moves by the difference between `was` and `new`. What has happened since
    `before` was made is in both, so it moves nothing. Where the scores cannot be compared term by
    term (another model, or a command that shows more), return `new`.

    Args:
        was, new: estimates made at one moment, for the former request and for the changed one.
    """
    if new == was:
        return before
    if was == before:
        return new
    scores = before.score, was.score, new.score
    before_s, was_s, new_s = (seconds_of(one.seconds) for one in (before, was, new))
    value = log1p(before_s) + log1p(new_s) - log1p(was_s)
    score = None
    if any(one is not None for one in scores):
        if any(one is None for one in scores):
            return new
        shapes = {(s.bundle, s.facts, len(s.terms), len(s.inputs)) for s in scores if s}
        if len(shapes) > 1:
            return new
        score = _moved(*(one for one in scores if one))
        value = score.value
    seconds = portable.expm1(value)
    found: Duration = seconds
    if isinstance(new.seconds, Predicted):
        found = new.seconds.moved(seconds)
    if isinstance(new.seconds, Stated):
        without_s = seconds * (1.0 + seconds_of(new.seconds.without_s)) / (1.0 + new_s)
        found = Stated(seconds, new.seconds.error, without_s)
    return Estimate(found, score, new.outlived_s)


def _moved(before: Score, was: Score, new: Score) -> Score:
    def of(known: float, one: float, other: float) -> float:
        return known if one == other else known + (other - one)

    intercept = of(before.intercept, was.intercept, new.intercept)
    terms = tuple(map(of, before.terms, was.terms, new.terms))
    inputs = tuple(
        known if one == other else other
        for known, one, other in zip(before.inputs, was.inputs, new.inputs, strict=True)
    )
    return Score(
        value=sum(terms, intercept),
        intercept=intercept,
        terms=terms,
        bundle=new.bundle,
        inputs=inputs,
        facts=new.facts,
    )


def scored(bundle: Bundle, row: Sequence[Value]) -> Estimate:
    """Return the prediction of a bundle's duration model for a row of feature values, with its
    terms."""
    value, intercept, terms = bundle.duration.explain(row)
    score = Score(
        value=value,
        intercept=intercept,
        terms=terms,
        bundle=bundle.digest,
        inputs=tuple(map(_text, row)),
    )
    return Estimate(max(bundle.duration.seconds(value), 0.0), score)


def _text(value: Value) -> str:
    """Return a feature value as the text that is kept with a decision; "" where it is
    missing."""
    if value is None or value != value:
        return ""
    return value if isinstance(value, str) else f"{value:.6g}"
