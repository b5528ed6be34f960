"""Counterfactuals: which changes would have started a waiting job of a simulation. The core is
simulated again up to the time asked about.

The world of the run is simulated again up to that time, and must come to the same decisions. Then
the analyst of a live service (`scheduler.service.analyst`) tries every change on copies of the
core, and returns only those that helped.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from os.path import normpath
from pathlib import Path

from features.codec import Json
from pipeline.explain.run import RunError, RunFolder
from pipeline.worlds import Scenario, TrackError, open_scenario
from scheduler.core.core import Core
from scheduler.core.decisions import Reason
from scheduler.explain.answer import Analysis
from scheduler.explain.findings import analysis
from scheduler.explain.life import Phase, Span
from scheduler.explain.render import Reader, says
from scheduler.explain.story import Story
from scheduler.explain.whatif.counterfactuals import MINUTE_S, Outcome, WhatIf
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.words import duration, moment, percent
from scheduler.simulation.engine import Engine

MOST = 5
SAMPLES = 32
BUDGET_S = 5.0  # processor seconds per question
RECORD_S = 0.001  # what the times of a record are rounded to


@dataclass(frozen=True, slots=True)
class Counterfactuals:
    """Why a job waited at one time, and which changes would have started it sooner.

    Attributes:
        at: the time, seconds since the epoch.
        wait: the analysis of its wait; other jobs are named in it.
        helped: changes that start the job at once, or earlier in every simulated future and, by
            the forecast, before its recorded start.
    """

    at: float
    wait: Analysis
    helped: tuple[Outcome, ...]


def counterfactuals(
    run: RunFolder,
    story: Story,
    *,
    since_submit_s: float | None = None,
    most: int = MOST,
    samples: int = SAMPLES,
    budget_s: float = BUDGET_S,
) -> Counterfactuals:
    """Return why a job waited in a recorded run, and which changes would have started it sooner.
    Raise RunError if it did not wait, or if the run cannot be simulated again.

    Args:
        since_submit_s: time to explain, seconds after its submission; None: the start of its
            longest wait.
        most: largest number of changes to return.
        samples: number of simulated futures in which each change is tried.
        budget_s: CPU seconds for trying all changes; the search for the jobs in its way may use as
            many again.
    """
    at = asked_at(story, since_submit_s)
    return PlayedAgain(run).ask(story, at, most=most, samples=samples, budget_s=budget_s)


def asked_at(story: Story, since_submit_s: float | None = None) -> float:
    """Return the time to explain, seconds since the epoch: `since_submit_s` seconds after
    submission, or if that is None the start of the job's longest wait; in both cases `RECORD_S`
    later, because recorded times are rounded. Raise RunError if the job did not wait then."""
    start = _wait(story, since_submit_s).start
    at = start if since_submit_s is None else story.job.submit_time + since_submit_s
    return at + RECORD_S


class PlayedAgain:
    """A recorded run that is simulated again, only as far as is needed. Raises RunError if the
    run's cluster and jobs cannot be opened again."""

    def __init__(self, run: RunFolder):
        self._run = run
        scenario = _world(run)
        policy = scenario.policy(str(run.summary["policy"]))
        self._memory = Memory(scenario.estimators(policy), asks=not policy.capabilities.estimates)
        self._core = scenario.core(policy, self._memory)
        self._engine = _Until(
            self._core,
            scenario.workload.jobs,
            scenario.workload.work,
            scenario.speed,
            after=scenario.workload.after,
            quirks=scenario.quirks,
        )
        self._engine.states = scenario.states

    def stand_at(self, at: float) -> tuple[Core, Memory]:
        """Simulate the run up to the time `at`, and return the core and its memory after all
        decisions until then. Calls must be in order of time."""
        self._engine.until = at
        if self._engine.comes_by(at):
            with suppress(_Reached):
                self._engine.run()
        return self._core, self._memory

    def ask(
        self,
        story: Story,
        at: float,
        *,
        most: int = MOST,
        samples: int = SAMPLES,
        budget_s: float = BUDGET_S,
    ) -> Counterfactuals:
        """Return why a job waited at the time `at`, and which changes would have started it
        sooner; see `counterfactuals`. Raise RunError if the job does not wait at that time in
        the repeated simulation."""
        job_id = story.job.job_id
        core, memory = self.stand_at(at)
        queued = core.jobs.get(job_id)
        if queued is None or queued.reason is not _reason_at(story, at):
            raise RunError(
                f"{self._run.folder}: played again, job {job_id} is not where the record says; was "
                "it recorded by another version?"
            )
        futures = Futures(core, memory, at)
        asking = WhatIf(
            futures, lambda job: memory.predicted(job, at), samples=samples, budget_s=budget_s
        )
        offered = asking.suggestions(job_id, list(core.queues), most=most)
        began = min(
            (s.start for s in story.spans if s.phase is Phase.RUNNING and s.start >= at),
            default=inf,
        )
        helped = [one for one in offered if one.starts_now or (one.then.start_p50 or 0.0) < began]
        wait = analysis(futures, job_id, "", names=True, budget_s=budget_s)
        return Counterfactuals(at, wait, tuple(helped))


def _reason_at(story: Story, at: float) -> Reason | None:
    return next((s.reason for s in reversed(_waits(story)) if s.start < at), None)


def _waits(story: Story) -> list[Span]:
    return [s for s in story.spans if s.phase is Phase.WAITING and (s.end is None or s.seconds)]


class _Reached(Exception):
    """Raised to stop the simulation at the time asked about."""


class _Until(Engine):
    """A simulation engine that stops before the first event after the time `until`."""

    until = 0.0

    def comes_by(self, at: float) -> bool:
        """Return whether an event happens at or before the time `at`."""
        return bool(self._heap) and self._heap[0][0] <= at

    def _decided(self, now: float) -> None:
        self._plan_wake(now)  # the policy's next moment may come before the next event
        if not self._heap or self._heap[0][0] > self.until:
            raise _Reached


def _wait(story: Story, since_submit_s: float | None) -> Span:
    """Return the period of waiting to explain: the one that contains the time `since_submit_s`
    seconds after submission, or if that is None the longest. Raise RunError if the job did not wait
    then."""
    waits = _waits(story)
    if not waits:
        raise RunError(f"job {story.job.job_id} did not wait")
    if since_submit_s is None:
        return max(waits, key=lambda s: s.seconds)
    at = story.job.submit_time + since_submit_s
    for span in waits:
        if span.start <= at and (span.end is None or at < span.end):
            return span
    raise RunError(
        f"job {story.job.job_id} did not wait {duration(since_submit_s)} after its submission; "
        "leave --at out to ask about its longest wait"
    )


def _world(run: RunFolder) -> Scenario:
    """Open the scenario (cluster and jobs) of a recorded run again, and return it. Raises RunError
    if that is impossible."""
    asked = run.summary.get("world")
    if not isinstance(asked, Mapping):
        raise RunError(
            f"{run.folder} does not say what world it was made in; simulate it again with "
            "`pellucid simulate --out`"
        )
    for name, how in (
        ("site", "on a site of Slurm's own files (--site)"),
        ("tune_every", "with a policy that was tuned meanwhile (--tune-every)"),
    ):
        if asked.get(name):
            raise RunError(
                f"{run.folder} was made {how}, which is not played again for questions: ask "
                "without --counterfactuals and --at"
            )
    options: Json = dict(asked)
    for name in ("trace", "cluster", "bundle"):
        if options.get(name) is not None:
            options[name] = Path(normpath(run.folder / options[name]))
    try:
        return open_scenario(options.pop("trace"), **options)
    except (TrackError, TypeError) as error:
        raise RunError(f"{run.folder}: its world cannot be opened again: {error}") from None


def lines(found: Counterfactuals) -> list[str]:
    """Return the answer as lines of text."""
    words = says(found.wait, Reader.RECORD)
    parts = [f"At {moment(found.at, zone=True)} it waited: {words['dominant']}."]
    parts += [words["in_the_way"], *filter(None, [words["otherwise"]])]
    parts += [_line(outcome, found.at) for outcome in found.helped]
    if not found.helped:
        parts.append("No change that was tried would have started it earlier.")
    parts += [f"Not examined: {text}." for text in found.wait.not_examined]
    return parts


def _line(outcome: Outcome, at: float) -> str:
    """Return a sentence about one change: when the job would have started, how fast it would run,
    its predicted end, and what that assumes. `at` is the time asked about, seconds since the
    epoch."""
    words = outcome.change.words()
    text = f"{words[0].upper()}{words[1:]} "
    if outcome.starts_now:
        text += "it would have started at once"
    else:
        assert outcome.gain_s is not None
        text += (
            f"the forecast of that moment starts it {_after(outcome, at)} "
            f"({outcome.earlier} of {outcome.futures} simulated futures start it earlier)"
        )
    if outcome.beside:
        speed = "an unknown speed"
        if outcome.speed is not None:
            speed = f"{percent(outcome.speed)} of its speed alone"
        text += f", beside another job at {speed}"
    elif outcome.speed is not None:
        text += ", on GPUs of its own"
    end = outcome.then.end_p50
    if end is None:
        text += "; the forecast knows no end of it"
    elif outcome.stopped:
        text += f"; its time limit would have stopped it, unfinished, after {duration(end - at)}"
    else:
        text += f"; the forecast ends it after {duration(end - at)}"
    if end is not None and outcome.costs_s is not None and abs(outcome.costs_s) >= MINUTE_S:
        text += f" instead of {duration(end - outcome.costs_s - at)}"
    assumed = f" Assumed: {'; '.join(outcome.assumed)}." if outcome.assumed else ""
    return f"{text}.{assumed}"


def _after(outcome: Outcome, at: float) -> str:
    """Return when a job would start with a change, instead of when without, in words. `at` is the
    time asked about, seconds since the epoch."""
    now, then = outcome.now.start_p50, outcome.then.start_p50
    if then is None or now is None:
        return f"{duration(outcome.gain_s)} earlier"
    return f"after {duration(then - at)} instead of {duration(now - at)}"


def plain(found: Counterfactuals) -> Json:
    """Return the answer as plain JSON."""
    words, wait = says(found.wait, Reader.RECORD), asdict(found.wait)
    return {
        "at": found.at,
        "reason": found.wait.reason,
        **{name: words[name] for name in ("in_the_way", "place")},
        **{name: wait[name] for name in ("holders", "order")},
        "helped": [_plain(outcome) for outcome in found.helped],
        "not_examined": found.wait.not_examined,
    }


def _plain(outcome: Outcome) -> Json:
    return {
        "change": outcome.change.body(),
        "words": outcome.change.words(),
        "starts_now": outcome.starts_now,
        "gain_s": outcome.gain_s,
        "earlier": outcome.earlier,
        "futures": outcome.futures,
        "assumed": list(outcome.assumed),
    }
