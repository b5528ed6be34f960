"""Samples jobs that wait in a simulated world: the product explains why they wait, and the judge
judges the explanations.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.explanations.foretold import Foretold
from benchmarks.explanations.judge import Account, Judge, Verdict, aside, change, starts_when
from benchmarks.explanations.predictions import Promises
from benchmarks.explanations.reading import rendered, worded
from benchmarks.explanations.worlds import AuditWorld, Drains
from scheduler.core.decisions import Action, Decision
from scheduler.explain import findings
from scheduler.explain.whatif import counterfactuals
from scheduler.explain.whatif.counterfactuals import Outcome, WhatIf
from scheduler.explain.whatif.forecasts import Futures
from scheduler.explain.whatif.memory import Memory
from scheduler.simulation.engine import Engine, Progress

AT_ONCE = 6  # waits looked at in one moment
MOMENTS = 3  # as many moments are tried as would be needed, since in some nobody waits
FUTURES = 12  # of a forecast, a suggestion, and of its judgement
FORECAST_S, SUGGEST_S = 0.5, 1.5  # processor seconds for either


@dataclass
class Found:
    """What was found in one world (a simulated cluster with its jobs, or a live service).

    Attributes:
        waits: verdicts on the explained waits, each with the job and the time.
        shown: number of suggestions of a start at once.
        true: number of those that came true.
        other: number of waits with a suggestion that is not to ask for fewer GPUs.
        asked: number of waits for which suggestions were asked for.
        untrue: those that did not come true, in words; of a running service, what was wrong in its
            answers.
        earlier: for each suggestion of an earlier start, the seconds until the start with the
            change and without it, played in this same world; inf: never.
        texts: the answers as text.
        cpu_s: processor seconds of each answer to "why".
        spent_s: processor seconds of the whole audit.
        foretold: forecasts of starts, and the true starts.
        agreed: how far the first reasons of predictions agree from one fit of the model to the
            next.
        said: for each answer of a service, maps a kind of sentence to the error found, or ""
            (`sentences`).
        ends: for each run that an answer named, the odds that were stated for its end, within how
            many seconds, and after how many it ended; None: it had not.
        questions: number of questions to a running service.
        ages: ages of their answers in seconds.
        skipped: why this world was not audited; "": it was.
    """

    world: str
    waits: list[tuple[str, float, Verdict]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    asked: int = 0
    shown: int = 0
    true: int = 0
    other: int = 0
    untrue: list[str] = field(default_factory=list)
    earlier: list[tuple[float, float]] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    foretold: list[Foretold] = field(default_factory=list)
    agreed: list[float] = field(default_factory=list)
    said: list[dict[str, str]] = field(default_factory=list)
    ends: list[tuple[float, float, float | None]] = field(default_factory=list)
    questions: int = 0
    ages: list[float] = field(default_factory=list)
    spent_s: float = 0.0
    skipped: str = ""


class Audited(Engine):
    """A simulation engine that stops at sampled times, and has jobs that wait then explained and
    judged.

    Args:
        wanted: number of waits to judge.
        ask_every: suggestions are asked for at every so many-th stop.
        judged: explain and judge; if false, only forecasts are made.
    """

    def __init__(
        self,
        world: AuditWorld,
        data: Path,
        seed: int,
        wanted: int,
        *,
        ask_every: int = 6,
        judged: bool = True,
    ):
        scenario = world.made(data, seed)
        work = scenario.workload
        policy = scenario.policy(world.policy)
        self.memory = Memory(scenario.estimators(policy), asks=not policy.capabilities.estimates)
        core = scenario.core(policy, self.memory)
        super().__init__(core, work.jobs, work.work, scenario.speed, after=work.after)
        self.found = Found(world.name)
        self.wanted, self.ask_every, self.seed = wanted, ask_every, seed
        self.account = Account()
        self.judge = Judge(core, self.account, seed)
        self.drains = Drains(core, world.drains, seed)
        self.promises = Promises(self.memory)
        first, last = work.jobs[0].submit_time, work.jobs[-1].submit_time
        self._every = (last - first) * AT_ONCE / (MOMENTS * wanted)
        self._next = first + 0.05 * (last - first)  # before, nothing has been learned
        self._moments = 0
        self._judged = judged
        self._looked_at = 0
        self._began: dict[str, list[float]] = {}
        self._ends_at: dict[str, float] = {}
        # of those who have the GPUs of a job: odds, ids, when that was written, seconds
        self._ends: dict[tuple[float, tuple[str, ...]], tuple[tuple[str, ...], float, float]] = {}
        self._tried = ""  # the job that a copy of this world waits for
        self._played: list[tuple[str, float, float]] = []  # jobs, when tried, and their starts then

    # --- what happens -----------------------------------------------------------------------

    def _carry_out(self, decisions: list[Decision], now: float) -> None:
        self.account.decided(decisions, now)
        super()._carry_out(decisions, now)
        self.promises.decided(decisions, self.core, now)
        for d in decisions:
            if d.action in (Action.START, Action.PACK):
                self._starts(d.job_id, now)
            within_s = dict(d.evidence).get("gone_in_s")
            if within_s and d.held_by:
                self._ends.setdefault((0.9, d.held_by), (d.held_by, now, float(within_s)))

    def _end(self, run: Progress, now: float) -> None:
        self.account.left(run.job_id)
        super()._end(run, now)
        self._ends_at[run.job_id] = now
        self._starts(run.job_id, now)  # if it ended while it was profiled

    def _starts(self, job_id: str, now: float) -> None:
        self._began.setdefault(job_id, []).append(now)
        if job_id == self._tried:
            raise _Started

    def _decided(self, now: float) -> None:
        self.drains.passed(now)  # the next pass is told
        if now < self._next or self._looked_at >= self.wanted:
            return
        self._carry_out(self.core.decide(now), now)
        waiting = [j for j in self.core.jobs if j not in self.core.cluster.runs]
        if waiting:
            self._next = now + self._every
            chosen = Random(f"{self.seed}/{now}").sample(waiting, min(AT_ONCE, len(waiting)))
            self._look(chosen, now)

    # --- what is asked ----------------------------------------------------------------------

    def _look(self, chosen: Sequence[str], now: float) -> None:
        futures = Futures(self.core, self.memory, now)
        made = self.promises.made(futures, self.core, chosen, FUTURES, FORECAST_S)
        self._looked_at += len(chosen)
        if not self._judged:
            return
        asking = self._moments % self.ask_every == 0
        self._moments += 1
        for number, job_id in enumerate(chosen):
            began = time.process_time()
            found = findings.analysis(futures, job_id, "", names=True, most=None)
            answer = worded(asdict(found))
            self.found.cpu_s.append(time.process_time() - began)
            suggested = self._suggested(futures, job_id) if asking and number == 0 else []
            for one in answer["holders"]:
                if one["ends_in_s"] is not None:
                    said = ((one["job"],), now, one["ends_in_s"])
                    self._ends.setdefault((0.5, said[0]), said)
            queued = self.core.jobs[job_id]
            told = {
                "job_id": job_id,
                "submitted_at": queued.job.submit_time,
                "eligible_at": queued.job.submit_time if answer["position"] else None,
                "estimate_s": queued.estimate_s,
                "forecast": made[job_id],
                "suggestions": [
                    asdict(counterfactuals.answer_of(one, job_id, queued.job.user))
                    for one in suggested
                ],
            }
            self.found.texts.append(rendered(answer, told, now))
            self.found.waits.append((job_id, now, self.judge.verdict(answer, job_id, now)))

    def _suggested(self, futures: Futures, job_id: str) -> list[Outcome]:
        core, found = self.core, self.found
        vcs = [vc for vc in core.queues if vc != core.jobs[job_id].job.vc]
        asking = WhatIf(
            futures, lambda job: self.memory.predicted(job, futures.now), FUTURES, SUGGEST_S
        )
        outcomes = asking.suggestions(job_id, vcs[:2])
        found.asked += 1
        found.other += any("gpus" not in one.change.to for one in outcomes)
        for one in outcomes:
            if not one.starts_now:
                started = self.starts_with(one.change.body(), job_id, futures.now)
                self._played.append((job_id, futures.now, started))
                continue
            found.shown += 1
            came = starts_when(core, one.change.body(), job_id, futures.now)
            found.true += came
            found.untrue += [f"{job_id} {one.change.words()}: it does not start"] * (not came)
        return outcomes

    def starts_with(self, changes: Mapping[str, Any], job_id: str, now: float) -> float:
        """Change a job, and simulate this world in a forked process until the job starts. Return
        the time of that start in seconds since the epoch; inf means never.

        Args:
            changes: see `judge.starts_when`.
        """

        def act() -> float:
            self.wanted, self._tried = 0, job_id
            with suppress(_Started):
                change(self.core, changes, job_id, now)
                self._carry_out(self.core.decide(now), now)
                self._plan_wake(now)
                self.run()
            return self._next_start(job_id, now)

        return aside(act)

    def _next_start(self, job_id: str, at: float) -> float:
        return next((start for start in self._began.get(job_id, ()) if start >= at), inf)

    def ends(self) -> list[tuple[float, float, float | None]]:
        """Return the predicted and true ends of the runs that answers named; see `Found.ends`. To
        be called once this world has been played to its end.
        """
        return [
            (odds, within_s, max(self._ends_at.get(job, inf) for job in jobs) - at)
            for (odds, _), (jobs, at, within_s) in self._ends.items()
        ]

    def played(self) -> list[tuple[float, float]]:
        """Return, for each suggestion of an earlier start, the seconds until the start with the
        change and without it. Call this once the simulation of this world has ended."""
        return [(to - at, self._next_start(job, at) - at) for job, at, to in self._played]


class _Started(Exception):
    """Raised to end a simulation when the watched job has started."""


def audit(world: AuditWorld, data: Path, seed: int, wanted: int, *, judged: bool = True) -> Found:
    """Simulate a world (a cluster with its jobs) and compare the explanations of about `wanted` of
    its waits with what is true there. With `judged` false, only make forecasts for these waits.
    Return what was found; without the shared data, only that the world was skipped."""
    if not (data / "packing").is_dir():
        return Found(world.name, skipped="without the shared data")
    began = time.process_time()
    engine = Audited(world, data, seed, wanted, judged=judged)
    engine.run()
    engine.found.foretold, engine.found.earlier = engine.promises.scored(), engine.played()
    engine.found.ends = engine.ends()
    engine.found.agreed = list(getattr(engine.memory, "agreed", ()))
    engine.found.spent_s = time.process_time() - began
    return engine.found


def shares(found: Sequence[Found]) -> dict[str, Any]:
    """Return, over all waits, the shares that the benchmark prints, by name."""
    verdicts = [verdict for one in found for _, _, verdict in one.waits]

    def share(name: str) -> float | None:
        """Return the share of all waits whose verdict `name` is true; None without waits. A verdict
        of None (there was nothing to try) counts as false.
        """
        values = [getattr(one, name) or False for one in verdicts]
        return round(sum(values) / len(values), 4) if values else None

    shown, true = sum(one.shown for one in found), sum(one.true for one in found)
    asked, earlier = (
        sum(one.asked for one in found),
        [pair for one in found for pair in one.earlier],
    )
    return {
        "waits": len(verdicts),
        **{name: share(name) for name in ("named", "necessary", "minimal", "specific", "fresh")},
        "counterfactuals": {
            "asked": asked,
            "shown": shown,
            "true": round(true / shown, 4) if shown else None,
            "earlier": len(earlier),
            "earlier_true": round(fmean(w < o for w, o in earlier), 4) if earlier else None,
            "other_than_fewer_gpus": round(sum(o.other for o in found) / max(1, asked), 4),
        },
    }
