"""Slow passes (rounds of decisions), and late or repeated reports of how a job's attempt ended.

A pass takes its time, so that the log already has what others wrote meanwhile. A backend reports
again how an attempt ended, truly or falsely, when the job may already run its next attempt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from benchmarks.chaos import system
from benchmarks.chaos.kernel import Kernel, active
from features.states import State as EndState
from scheduler.backends.base import Happened, Report
from scheduler.backends.events import Event, Kind
from scheduler.backends.local.backend import LocalBackend
from scheduler.service.decide.decider import OVER as ENDS
from scheduler.service.decide.decider import Decider
from scheduler.service.log.fold import State
from scheduler.service.log.record import OVER
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs

# what a pass is about to be the first to cover
BEGUN = "before a pass over an attempt's first report"
OVER_NOW = "before a pass over an end"
REPORTED = "before a pass over reports"
UNCOVERED = BEGUN, OVER_NOW
SLOW, SLOW_S = 0.3, (0.05, 1.0)  # of the passes; for so long
AGAIN = 0.1  # of the looks at a backend
LATEST = 8  # reports, of which one is told again


class Between:
    """Decides which passes are slow, and which ends of attempts are reported again, in one run.

    Args:
        note: writes an event into the run's history.
        calm: no end is reported again, and no pass is slow.
    """

    def __init__(self, kernel: Kernel, seed: int, note: Callable[..., Any], *, calm: bool):
        self.kernel, self.note, self.calm = kernel, note, calm
        self._slow = random.Random(f"slow passes {seed}")
        self._again = random.Random(f"told again {seed}")
        self._told: list[Report] = []  # final ones, which the service has acknowledged

    def passes(self, state: State) -> None:
        """Called between a decider's read of the log and its pass (one round of decisions) over
        what was read. Counts as a crash point, and may make the pass wait. `state` is the state
        read from the log.
        """
        self.kernel.point(_moment(state))
        if not self.calm and self._slow.random() < SLOW:
            self.kernel.sleep(self._slow.uniform(*SLOW_S))

    def acknowledged(self, reports: Iterable[Report]) -> None:
        """Remember the reports of ended attempts that the service has acknowledged: these may be
        reported again.
        """
        self._told += [one for one in reports if one.what.final and one not in self._told]

    def told_again(self) -> list[Report]:
        """Return a list with one recently acknowledged report of an end, or an empty list. Attempts
        that only profiled a job are preferred. The report is often changed: it says that the
        attempt was lost, or completed.
        """
        if self.calm or not self._told or self._again.random() >= AGAIN:
            return []
        looks = [one for one in self._told if one.what is Happened.PROFILED]
        among = looks if looks and self._again.random() < 0.7 else self._told
        was = self._again.choice(among[-LATEST:])
        lost = replace(was, what=Happened.LOST, detail="told late", profile=None)
        ended = replace(lost, what=Happened.ENDED, state=EndState.COMPLETED, exit_code=0, ran_s=1.0)
        found = self._again.choice([was, lost, ended])
        self.note("again", job=found.job_id, attempt=found.attempt, said=found.what.value)
        return [found]


def _moment(state: State) -> str:
    """Return the name of the crash point before a pass, by the kind of reports that this pass will
    be the first to use.
    """
    reported = state.reported()
    holding = (state.ledger.holding.get(job_id) for job_id, _ in reported)
    if any(record is not None and record.waits_to_begin for record in holding):
        return BEGUN
    if any(kind in ENDS for kind in reported.values()):
        return OVER_NOW
    return REPORTED if reported else "before a pass"


def over_at(connection: Connection, seq: int) -> list[dict[str, str]]:
    """Return the jobs that ended in the pass which the log records as event `seq`, each with its
    last phase. They are sorted by job id, so that a run is the same each time."""
    query = select(jobs.c.job_id, jobs.c.phase).where(jobs.c.updated_seq == seq)
    over = query.where(jobs.c.phase.in_(sorted(OVER))).order_by(jobs.c.job_id)
    rows = connection.execute(over).all()
    return [{"job": job_id, "phase": str(phase)} for job_id, phase in rows]


def install(patches: system.Patches, of_run: Callable[[], Between]) -> None:
    """Patch the service: passes may be slow, ends may be reported again, and each job that a pass
    takes to be over is noted in the run's history.
    """
    decide, append = Decider._decide, Store.append
    reports, acknowledge = LocalBackend.reports, LocalBackend.acknowledge

    def decided(self: Decider, now: float) -> Any:
        if active() is not None:
            of_run().passes(self.state)
        return decide(self, now)

    def reported(self: LocalBackend, timeout_s: float) -> Sequence[Report]:
        found = reports(self, timeout_s)
        return found if active() is None else [*found, *of_run().told_again()]

    def acknowledged(self: LocalBackend, told: Sequence[Report]) -> None:
        acknowledge(self, told)
        if active() is not None:
            of_run().acknowledged(told)

    def appended(self: Store, new: Any, also: Any = None, **more: Any) -> list[Event]:
        over: list[dict[str, str]] = []

        def looks_too(connection: Connection, numbered: list[Event]) -> None:
            if also is not None:
                also(connection, numbered)
            over[:] = [
                one
                for event in numbered
                if event.kind is Kind.DECIDED
                for one in over_at(connection, event.seq)
            ]

        done = append(self, new, also if active() is None else looks_too, **more)
        for one in over if done else ():
            of_run().note("over", **one)
        return done

    patches.put(Store, "append", appended)
    patches.put(Decider, "_decide", decided)
    patches.put(LocalBackend, "reports", reported)
    patches.put(LocalBackend, "acknowledge", acknowledged)
