"""What would have started a waiting job of a simulation. The core is run again up to that moment.

The run's own world is played once more to the moment asked about, and must have come to the same
decisions by then. From there on the analyst that answers for a live service answers here
(`scheduler.service.analyst`): it tries every change on copies of the core, and shows those alone
that were seen to help.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from os.path import normpath
from pathlib import Path

from features.codec import Json
from pipeline.explain.run import RunError, RunFolder
from pipeline.worlds import Scenario, TrackError, open_scenario
from scheduler.core.core import Core
from scheduler.explain.answer import Analysis
from scheduler.explain.findings import analysis
from scheduler.explain.life import Phase, Span
from scheduler.explain.render import Reader, says
from scheduler.explain.story import Story
from scheduler.explain.whatif.counterfactuals import Outcome, WhatIf
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.explain.words import duration, moment
from scheduler.simulation.engine import Engine

MOST = 5
SAMPLES = 32
BUDGET_S = 5.0  # processor seconds per question
RECORD_S = 0.001  # what the times of a record are rounded to


@dataclass(frozen=True, slots=True)
class Counterfactuals:
    """What was in a job's way at one moment, and what would have helped.

    Attributes:
        at: the moment, seconds since the epoch.
        wait: what was in its way, and its place, with every job named.
        helped: changes that start it at once, or earlier in most futures.
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
    """Ask about a job's wait in a recorded run, and return the answer. Raise RunError when it did
    not wait, or cannot be replayed.

    Args:
        since_submit_s: when to ask, seconds after its submission; None: as its longest wait
            begins.
        most: how many changes at most.
        samples: futures that each change is tried in. budget_s: processor seconds for all of them.
    """
    span = _wait(story, since_submit_s)
    job = story.job
    at = span.start if since_submit_s is None else job.submit_time + since_submit_s
    at += RECORD_S
    scenario = _world(run)
    core, memory = stand_at(scenario, str(run.summary["policy"]), at)
    queued = core.jobs.get(job.job_id)
    if queued is None or queued.reason is not span.reason:
        raise RunError(
            f"{run.folder}: played again, job {job.job_id} is not where the record says; was it "
            "recorded by another version?"
        )
    futures = Futures(core, memory, at)
    asking = WhatIf(
        futures, lambda job: memory.predicted(job, at), samples=samples, budget_s=budget_s
    )
    helped = asking.suggestions(job.job_id, list(core.queues), most=most)
    wait = analysis(futures, job.job_id, "", names=True)
    return Counterfactuals(at, wait, tuple(helped))


def stand_at(scenario: Scenario, policy: str, at: float) -> tuple[Core, Memory]:
    """Return the core of a simulation as it is after its decisions up to `at`, and its memory."""
    made = scenario.policy(policy)
    memory = Memory(scenario.estimators(made), asks=not made.capabilities.estimates)
    core = scenario.core(made, memory)
    engine = _Until(
        core,
        scenario.workload.jobs,
        scenario.workload.work,
        scenario.speed,
        after=scenario.workload.after,
        quirks=scenario.quirks,
    )
    engine.until = at
    with suppress(_Reached):
        engine.run()
    return core, memory


class _Reached(Exception):
    """The moment asked about."""


class _Until(Engine):
    """Stops before the first event after `until`."""

    until = 0.0

    def _decided(self, now: float) -> None:
        self._plan_wake(now)  # the policy's next moment may come before the next event
        if not self._heap or self._heap[0][0] > self.until:
            raise _Reached


def _wait(story: Story, since_submit_s: float | None) -> Span:
    """The wait that is asked about."""
    waits = [s for s in story.spans if s.phase is Phase.WAITING and (s.end is None or s.seconds)]
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
    """The world the run was made in, opened again."""
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
    """Return the answer for a person, in lines."""
    words = says(found.wait, Reader.RECORD)
    parts = [f"At {moment(found.at, zone=True)} it waited: {words['dominant']}."]
    parts += [words["in_the_way"], *filter(None, [words["otherwise"]])]
    parts += [_line(outcome) for outcome in found.helped]
    if not found.helped:
        parts.append("No change that was tried would have started it earlier.")
    parts += [f"Not examined: {text}." for text in found.wait.not_examined]
    return parts


def _line(outcome: Outcome) -> str:
    words = outcome.change.words()
    words = words[0].upper() + words[1:]
    assumed = f" Assumed: {'; '.join(outcome.assumed)}." if outcome.assumed else ""
    if outcome.starts_now:
        return f"{words} it would have started at once (decided again).{assumed}"
    assert outcome.gain_s is not None
    return (
        f"{words} it would have started {duration(outcome.gain_s)} earlier "
        f"(median; earlier in {outcome.earlier} of {outcome.futures} futures).{assumed}"
    )


def plain(found: Counterfactuals) -> Json:
    """Return the answer as plain values."""
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
