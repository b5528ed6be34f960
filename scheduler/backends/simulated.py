"""The simulated backend: real decisions, no processes, and a clock that runs as fast as wanted.

A `World` holds what is true (how long a job runs, how it ends, what its profile shows) and what has
begun, outside the service's memory. A new backend on the same world finds everything as after the
death of a service on a real cluster. Another process can open a world that is kept in a file.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

from features.codec import Json
from features.job import Job, Profile
from features.states import State
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.core.cluster import GPU_SHARING_CAPACITY, Run
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.work import SpeedModel, Work

EXIT_CODES = {State.COMPLETED: 0, State.FAILED: 1}
ROUNDING_S = 1e-5  # a double holds a time since the epoch to 2e-7 s
Key = tuple[str, int]  # job, attempt


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What is true of a job, known only to its simulated world.

    Attributes:
        work: how long it runs alone, how it then ends, and what its profile shows.
        exit_code: exit code; None: 0 when completed, 1 when failed, else none.
        memory_mib: host memory that it takes as it starts, MiB.
        refused: why it cannot start at all; "" = it can.
    """

    work: Work
    exit_code: int | None = None
    memory_mib: float = 0.0
    refused: str = ""


Truth = Callable[[Launch], JobOutcome]


def by_command(launch: Launch) -> JobOutcome:
    """Return the outcome that a launch's command states: ``sleep S``, ``true`` or ``false``; any
    other command runs for a minute.
    """
    name, seconds = os.path.basename(launch.command[0]), launch.command[1:]
    if name == "sleep":
        right = all(re.fullmatch(r"\d+(\.\d*)?|\.\d+", word) for word in seconds) and seconds
        return (
            JobOutcome(Work(sum(map(float, seconds))))
            if right
            else JobOutcome(Work(0.0, State.FAILED))
        )
    if name in ("true", "false"):
        return JobOutcome(Work(0.0, State.COMPLETED if name == "true" else State.FAILED))
    return JobOutcome(Work(60.0))


class _Due(Enum):
    """What is to happen to an attempt. All but OBSERVED are cancelled when the attempt's speed
    changes."""

    END = "end"
    OBSERVED = "observed"
    PAIR_OBSERVED = "pair_observed"


class _Attempt:
    """One running attempt. `left`: work that was left at `since`, in seconds at the speed of a job
    alone; `alone`: whether it never shared its GPUs.
    """

    __slots__ = (
        "alone",
        "deadline",
        "launch",
        "left",
        "outcome",
        "partner",
        "rate",
        "run",
        "since",
        "started",
        "version",
    )

    def __init__(self, launch: Launch, outcome: JobOutcome, now: float):
        self.launch = launch
        self.outcome = outcome
        self.left = outcome.work.duration_s
        self.rate = 1.0
        self.since = self.started = now
        self.version = 0
        self.partner: _Attempt | None = None
        self.alone = True
        limits = [launch.time_limit_s]
        if launch.purpose is Purpose.PROFILE:
            limits.append(launch.limit_s)
        self.deadline = now + min((s for s in limits if s is not None), default=float("inf"))
        gpus = sum(map(len, launch.gpus))
        masks = tuple(sum(1 << gpu for gpu in node) for node in launch.gpus)
        self.run = Run(
            job=Job(launch.job_id, now, gpus),
            vc="",
            start_time=now,
            order=0,
            nodes=launch.nodes,
            gpus=masks,
        )

    @property
    def key(self) -> Key:
        return self.launch.job_id, self.launch.attempt

    def settle(self, now: float, rate: float) -> None:
        self.left -= (now - self.since) * self.rate
        self.since, self.rate = now, rate
        self.version += 1


class World:
    """A simulated cluster: everything that exists outside the service, on one clock.

    Args:
        truth: returns the outcome of a launch; always the same for the same launch.
        speed: how fast jobs that share GPUs get their work done.
        start: first time on its clock, seconds since the epoch.
        pace: seconds that pass on its clock per real second. None: time passes only while somebody
            waits for reports, and then at once; only that is reproducible.
        path: file to which requests to this world are written, and from which they are read if it
            exists: a process that opens it knows all that happened. It survives kill -9, not a
            power cut.

    Attributes:
        begun: every attempt ever begun, in order.
        problems: what no right scheduler would do (a job twice at once, a GPU given three times).
    """

    def __init__(
        self,
        truth: Truth | Mapping[str, JobOutcome] = by_command,
        *,
        speed: SpeedModel | None = None,
        start: float = 0.0,
        pace: float | None = None,
        path: Path | None = None,
        wall: Callable[[], float] = time.time,
    ):
        self._truth = truth if callable(truth) else lambda launch: truth[launch.job_id]
        self._speed = speed or SimulatedContention()
        self._pace = pace
        self._start = self._clock = start
        self._time, self._wall = wall, wall()
        self.begun: dict[Key, None] = {}
        self.problems: list[str] = []
        self._barred: set[Key] = set()  # stopped before they began
        self._running: dict[str, _Attempt] = {}
        self._holders: dict[tuple[int, int], int] = {}  # (node, GPU) -> attempts on it
        self._unacked: dict[tuple[str, int, Happened], Report] = {}
        self._events: list[tuple[float, int, _Attempt, _Due, int]] = []
        self._pushed = 0
        self._journal = _Journal(path) if path is not None else None
        if self._journal is not None:
            self._replay(self._journal)

    # --- clock ------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the time on the simulated cluster's clock, in seconds since the epoch; it never
        goes back."""
        if self._pace is not None:
            self.advance(self._start + (self._time() - self._wall) * self._pace)
        return self._clock

    def advance(self, to: float) -> None:
        """Let everything happen that is due by the time `to`. Do nothing when that time has
        passed.
        """
        while self._events and self._events[0][0] <= to:
            at, _, attempt, due, version = heappop(self._events)
            if self._running.get(attempt.launch.job_id) is not attempt:
                continue
            self._clock = max(self._clock, at)
            if due is _Due.OBSERVED:
                self._observe(attempt)
            elif version == attempt.version:
                (self._finish if due is _Due.END else self._pair_observed)(attempt)
        self._clock = max(self._clock, to)

    def wait(self, timeout_s: float) -> None:
        """Wait until there is a report, at most `timeout_s` seconds on the clock of this simulated
        world. Return at once if `timeout_s` is inf and nothing will ever happen."""
        began = self.now()
        until = began + timeout_s
        while not self._unacked and self._clock < until:
            due = min(until, self._events[0][0] if self._events else until)
            if due == float("inf"):
                return  # nothing will ever happen
            if self._pace is None:
                self.advance(due)
            else:
                time.sleep(max(0.0, (due - self._clock) / self._pace))
                self.now()
        if self._pace is None and self._clock > began:
            self._write("time")

    def close(self) -> None:
        """Close the file of this world, if it has one."""
        if self._journal is not None:
            self._journal.close()

    # --- what a backend may ask of it -------------------------------------------------------

    def launch(self, launch: Launch) -> None:
        key, now = (launch.job_id, launch.attempt), self.now()
        if key in self.begun or key in self._barred:
            return
        self._write("launch", asdict(launch))
        outcome = self._truth(launch)
        if outcome.refused:
            self._barred.add(key)
            self._report(key, Happened.NOT_STARTED, detail=outcome.refused)
            return
        self._check(launch)
        self.begun[key] = None
        attempt = self._running[launch.job_id] = _Attempt(launch, outcome, now)
        self._hold(launch, 1)
        self._report(key, Happened.STARTED)
        if launch.partner is not None and (other := self._running.get(launch.partner)) is not None:
            attempt.partner, other.partner = other, attempt
            attempt.alone = other.alone = False
            self._pace_of(other)
        elif launch.watch_s is not None and outcome.work.profile is not None:
            self._push(now + launch.watch_s, attempt, _Due.OBSERVED)
        if launch.memory_mib is not None and outcome.memory_mib > launch.memory_mib:
            self._end(attempt, State.OUT_OF_MEMORY, None, "took more host memory than it asked for")
        else:
            self._pace_of(attempt)
            if attempt.partner is not None and launch.pair_watch_s is not None:
                self._push(now + launch.pair_watch_s, attempt, _Due.PAIR_OBSERVED)

    def stop(self, job_id: str, attempt: int) -> None:
        key = job_id, attempt
        self.now()
        running = self._running.get(job_id)
        if running is not None and running.key == key:
            self._write("stop", key)
            self._end(running, State.CANCELLED, None, "stopped on request")
        elif key not in self.begun and key not in self._barred:
            self._write("stop", key)
            self._barred.add(key)
            detail = "stopped before it began"
            self._report(key, Happened.NOT_STARTED, state=State.CANCELLED, detail=detail)

    def unacked(self) -> list[Report]:
        return list(self._unacked.values())

    def acknowledge(self, reports: Sequence[Report]) -> None:
        keys = [(r.job_id, r.attempt, r.what) for r in reports]
        if known := [key for key in keys if self._unacked.pop(key, None) is not None]:
            self._write("told", known)

    # --- nature -----------------------------------------------------------------------------

    def lose_node(self, node: int) -> None:
        """Let a node die, with all attempts on it, which are reported as lost."""
        self.now()
        self._write("node", node)
        for attempt in [a for a in self._running.values() if node in a.launch.nodes]:
            self._remove(attempt)
            self._report(attempt.key, Happened.LOST, detail=f"node {node} died")

    def _check(self, launch: Launch) -> None:
        """Add a line to `problems` for each thing in a launch that no right scheduler would ask
        for.
        """
        name = f"job {launch.job_id} attempt {launch.attempt}"
        if launch.job_id in self._running:
            self.problems.append(f"{name}: an earlier attempt still runs")
        for place in _places(launch):
            if self._holders.get(place, 0) >= GPU_SHARING_CAPACITY:
                self.problems.append(f"{name}: GPU {place[1]} of node {place[0]} is full")

    def _hold(self, launch: Launch, change: int) -> None:
        for place in _places(launch):
            self._holders[place] = self._holders.get(place, 0) + change

    def _pace_of(self, attempt: _Attempt) -> None:
        """Set the speed at which an attempt works from now on, and the time at which it will
        end.
        """
        work, other = attempt.outcome.work, attempt.partner
        rate = self._speed.rate(
            work, attempt.run, other.outcome.work if other is not None else None
        )
        attempt.settle(self._clock, rate)
        end = self._clock + max(0.0, attempt.left) / rate
        self._push(min(end, attempt.deadline), attempt, _Due.END)

    def _push(self, at: float, attempt: _Attempt, due: _Due) -> None:
        heappush(self._events, (at, self._pushed, attempt, due, attempt.version))
        self._pushed += 1

    def _observe(self, attempt: _Attempt) -> None:
        if attempt.alone:  # what two do cannot be separated
            self._report(attempt.key, Happened.OBSERVED, profile=attempt.outcome.work.profile)

    def _pair_observed(self, attempt: _Attempt) -> None:
        """Report the speed of both members of a pair, once they have shared GPUs for long
        enough.
        """
        for one in (attempt, attempt.partner):
            if one is not None:
                alone = self._speed.rate(one.outcome.work, one.run, None)
                self._report(one.key, Happened.PAIR_OBSERVED, speed=one.rate / alone)

    def _finish(self, attempt: _Attempt) -> None:
        """Report the end of an attempt that has done its work, or reached a limit."""
        launch, outcome, ran = attempt.launch, attempt.outcome, self._clock - attempt.started
        attempt.settle(self._clock, attempt.rate)
        if attempt.left <= ROUNDING_S:
            state = outcome.work.state
            code = EXIT_CODES.get(state) if outcome.exit_code is None else outcome.exit_code
            self._end(attempt, state, code, "" if code in (0, None) else f"exit code {code}")
        elif launch.time_limit_s is not None and ran >= launch.time_limit_s - ROUNDING_S:
            self._end(attempt, State.TIMEOUT, None, f"ran for its {launch.time_limit_s:g} s")
        else:
            self._remove(attempt)
            self._report(attempt.key, Happened.PROFILED, ran_s=ran, profile=outcome.work.profile)

    def _end(self, attempt: _Attempt, state: State, exit_code: int | None, detail: str) -> None:
        self._remove(attempt)
        profiling = attempt.launch.purpose is Purpose.PROFILE
        self._report(
            attempt.key,
            Happened.ENDED,
            state=state,
            exit_code=exit_code,
            ran_s=self._clock - attempt.started,
            detail=detail,
            profile=attempt.outcome.work.profile if profiling else None,
        )

    def _remove(self, attempt: _Attempt) -> None:
        del self._running[attempt.launch.job_id]
        self._hold(attempt.launch, -1)
        if (other := attempt.partner) is not None:
            other.partner = None
            self._pace_of(other)

    def _report(
        self,
        key: Key,
        what: Happened,
        *,
        state: State | None = None,
        exit_code: int | None = None,
        ran_s: float | None = None,
        detail: str = "",
        profile: Profile | None = None,
        speed: float | None = None,
    ) -> None:
        self._unacked[(*key, what)] = Report(
            *key, what, self._clock, state, exit_code, ran_s, detail, profile, speed=speed
        )

    # --- the file ---------------------------------------------------------------------------

    def _write(self, kind: str, value: Any = None) -> None:
        if self._journal is not None:
            self._journal.write([self._clock, kind, value])

    def _replay(self, journal: _Journal) -> None:
        """Repeat all requests in the journal of this simulated world. Write the journal's first
        line if it is empty.
        """
        lines = journal.read()
        if not lines:
            journal.write([self._start, "world", self._wall])
            return
        (self._start, _, self._wall), pace = lines[0], self._pace
        self._clock, self._pace, self._journal = self._start, None, None
        for at, kind, value in lines[1:]:
            self.advance(at)
            if kind == "launch":
                self.launch(_launch_of(value))
            elif kind == "stop":
                self.stop(*value)
            elif kind == "told":
                for job_id, attempt, what in value:
                    self._unacked.pop((job_id, attempt, Happened(what)), None)
            elif kind == "node":
                self.lose_node(value)
        self._pace, self._journal = pace, journal


class _Journal:
    """A file of JSON lines with the requests to a simulated world. A last line that was cut short
    is ignored.
    """

    def __init__(self, path: Path):
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def read(self) -> list[Any]:
        text = os.pread(self._file, os.fstat(self._file).st_size, 0)
        whole = text.rfind(b"\n") + 1
        os.ftruncate(self._file, whole)
        return [json.loads(line) for line in text[:whole].splitlines()]

    def write(self, line: Any) -> None:
        os.write(self._file, json.dumps(line, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


def _places(launch: Launch) -> list[tuple[int, int]]:
    pairs = zip(launch.nodes, launch.gpus, strict=True)
    return [(node, gpu) for node, gpus in pairs for gpu in gpus]


def _launch_of(value: Json) -> Launch:
    lists = {name: tuple(value[name]) for name in ("command", "nodes")}
    gpus = tuple(map(tuple, value["gpus"]))
    return Launch(**{**value, **lists, "gpus": gpus, "purpose": Purpose(value["purpose"])})


class SimulatedBackend:
    """A backend that starts jobs on a simulated cluster (`World`). It keeps nothing itself, so that
    another backend can be opened on the same cluster."""

    name = "simulated"

    def __init__(self, world: World):
        self.world = world

    def now(self) -> float:
        return self.world.now()

    def launch(self, launch: Launch) -> None:
        self.world.launch(launch)

    def stop(self, job_id: str, attempt: int) -> None:
        self.world.stop(job_id, attempt)

    def reports(self, timeout_s: float) -> Sequence[Report]:
        """Return the reports that were not acknowledged yet. While there are none, wait up to
        `timeout_s` seconds on the world's clock.
        """
        self.world.wait(timeout_s)
        return self.world.unacked()

    def acknowledge(self, reports: Sequence[Report]) -> None:
        self.world.acknowledge(reports)

    def begun(self) -> frozenset[Key]:
        return frozenset(self.world.begun)

    def close(self) -> None:
        """Do nothing: the world stays as it is."""
