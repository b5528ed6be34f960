"""The supervisor: `pellucid serve` itself, which starts the service's processes and watches them.

The processes (`processes.py`) share nothing but the database and the listening socket. A process
that dies is started again, after a pause that grows. All end when the supervisor does, however that
happens.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from typing import Any

import structlog
from sqlalchemy import make_url

from features.plain import first_line
from profiler import procs
from scheduler.service.decide.processes import (
    STOP_S,
    follow,
    run_analyst,
    run_api,
    run_decider,
    run_maintenance,
    this_process,
)
from scheduler.service.decide.systemd import notify
from scheduler.service.log.store.line import Turn, line_of
from scheduler.service.log.store.soundness import WHAT_TO_DO, Damage, Soundness, is_damage
from scheduler.service.log.store.store import WRITES_MS
from scheduler.service.metrics import Counts
from scheduler.service.settings import Settings

# What the processes have in common, loaded once in the one they are forked from: they share the
# memory it takes.
COMMON = (
    "scheduler.service.api.connections",
    "uvloop",
    "scheduler.service.analyst.process",
    "scheduler.service.app",
    "scheduler.service.pages.operations",
    "scheduler.backends.simulated",
)
PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # before a process is started again
STEADY_S = 60.0  # one that lived so long was not dying at its start
KILLED_PAUSE_S = 0.5  # before one that somebody killed is: it was not dying by itself
# One that has not been heard of for so long hangs, and is killed. The decider: as soon as others
# could have its lease, but not while it waits for a database that is locked, or the backend's lock,
# and so much later as the backend may wait for one command. One that computes has so much of the
# processor instead, whatever share of it it gets, but no longer than STARVED times as long. One
# that is ready to run and gets no processor does not wait.
DECIDER_HANGS_S, HANGS_S = 15.0, 120.0
BEGINS_S = 60.0  # time to be heard of first
STARVED = 20
SILENT_S = 2.0  # whoever was heard of later is not looked at closely
COMPUTES_S = 0.1  # of the processor: whoever used so much did not just wait
# Whoever was killed for it has twice as long: what it meets again may just take that long.
DOUBLED, FORGOTTEN_S = 5, 3600.0  # times at most; after so long without


def _process(
    run: Callable[..., None],
    settings: Settings,
    supervisor: int,
    listening: socket.socket | None,
    beat: Any,
    *more: Any,
) -> None:  # in the child
    """Run a child process: `run` until stopped, or until its supervisor is gone. Exit with status
    1, after logging why, where `run` fails.

    `beat` is a `Beat` in shared memory, which is updated each time that `run` asks whether to stop.
    """
    signals = _stop_signals()
    _end_with_parent()
    if listening is not None and listening not in more:
        listening.close()  # or the port would be taken as long as we live

    def stopping() -> bool:
        beat.at = time.monotonic()
        beat.count += 1
        return bool(signals) or os.getppid() != supervisor

    try:
        run(settings, stopping, *more)
    except Exception as error:
        log = structlog.get_logger("process")
        if is_damage(error):
            found = Damage("a page that was read", first_line(error), time.time())
            soundness = Soundness(settings.database)
            soundness.note(soundness.damage() or found)
            log.error("database_damaged", what=found.what, do=WHAT_TO_DO)
            sys.exit(1)
        ours = isinstance(error, ValueError) and type(error) is not ValueError
        log.error("process_failed", why=str(error), exc_info=not ours)
        sys.exit(1)


def _end_with_parent() -> None:
    """Have the kernel kill this process when its supervisor is gone. A process that hangs could not
    end itself, and would keep locks and leases that others wait for.
    """
    procs.prctl(procs.PR_SET_PDEATHSIG, signal.SIGKILL)


def _stop_signals() -> list[int]:
    """Install handlers of SIGTERM and SIGINT. Return a list to which they append the number of each
    signal that arrives.

    A `threading.Event` would not do: a handler may run while the program holds the event's lock,
    and would then wait for itself.
    """
    signals: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.append(number))
    return signals


# --- minding them -------------------------------------------------------------------------------


@dataclass
class Silence:
    """What is known of a process that has not reported for a while. Times are monotonic seconds.

    Attributes:
        since: when the process reported last.
        moved: when it was last seen to use the processor; at first the same as `since`.
        cpu_s: processor seconds that it had used at `moved`.
        used_s: processor seconds that it used after `since`.
        looked: when it was looked at last.
        starved_s: seconds after `moved` in which it was ready to run and got no processor.
    """

    since: float
    moved: float
    cpu_s: float
    used_s: float = 0.0
    looked: float = 0.0
    starved_s: float = 0.0

    def look(self, now: float, cpu_s: float, ready: bool) -> None:
        """Note whether the process has used the processor since the last call.

        Args:
            now: monotonic seconds.
            cpu_s: processor seconds that it has used so far.
            ready: whether it is ready to run.
        """
        used_s, passed_s, self.looked = cpu_s - self.cpu_s, now - self.looked, now
        if used_s >= COMPUTES_S:
            self.moved, self.cpu_s, self.used_s = now, cpu_s, self.used_s + used_s
            self.starved_s = 0.0
        elif ready:
            self.starved_s += passed_s

    def hangs(self, now: float, most_s: float) -> str:
        """Return in a few words how the process hangs ("waits"), or "" where it does not seem to
        hang. `most_s`: seconds for which it may go without a report.
        """
        if now - self.since <= most_s:
            return ""
        if now - self.moved - self.starved_s > most_s:
            return "waits"
        if self.used_s > most_s:
            return "computes and does not go on"
        return "computes little" if now - self.since > STARVED * most_s else ""


@dataclass
class Writing:
    """How long one process has kept all others from writing to the database.

    Attributes:
        turn: which process, and since when.
        looked: when it was looked at last, monotonic seconds; at first: when it was first seen.
        cpu_s: processor seconds that it had used then.
        held_s: seconds since it was first seen, without those in which it was ready to run and got
            no processor.
    """

    turn: Turn
    looked: float
    cpu_s: float
    held_s: float = 0.0

    def look(self, now: float, cpu_s: float, ready: bool) -> None:
        """Count the time since the last call. The arguments are those of `Silence.look`."""
        passed_s, used_s = now - self.looked, cpu_s - self.cpu_s
        self.held_s += min(passed_s, used_s) if ready else passed_s
        self.looked, self.cpu_s = now, cpu_s

    def hangs(self, now: float, most_s: float) -> bool:
        """Return whether others have waited for too long. `most_s`: seconds that they may wait."""
        return self.held_s >= most_s or now - self.turn.since >= STARVED * most_s


@dataclass
class Child:
    """One process of the service, with all that is needed to start it again."""

    name: str
    run: Callable[..., None]
    more: tuple[Any, ...] = ()
    process: ForkProcess | None = None
    started: float = 0.0
    failures: int = 0
    again_at: float = 0.0
    silence: Silence | None = None
    kills: int = 0  # as it hung, lately
    killed_at: float = 0.0


class Supervisor:
    """Starts the processes, and starts again those that die.

    They are forked from the supervisor's process, which has no threads of its own, keeps no
    connection and does nothing else.

    Args:
        listening: listening socket of the API; None: there is no API.
        cpu_s: returns the processor seconds that a process, given by its id, has used.
        ready: returns whether a process, given by its id, is ready to run.

    Attributes:
        counts: what happened to the processes, in memory that the API's processes share.
    """

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket | None,
        cpu_s: Callable[[int], float] = procs.cpu_s,
        ready: Callable[[int], bool] = procs.ready,
    ):
        self.settings = settings
        self._cpu_s, self._ready = cpu_s, ready
        self.listening = listening
        self.log = structlog.get_logger("supervisor")
        self._line = line_of(make_url(settings.database))
        self._writing: Writing | None = None
        holder = this_process()
        workers = settings.api_workers if listening is not None else 0
        apis = [f"api-{i}" for i in range(1, workers + 1)]
        names = ["follower"] if settings.follows else ["decider", "analyst"]
        self.counts = Counts.of((*names, "maintenance", *apis), holder)
        decides = [
            Child("decider", run_decider, (holder, self.counts)),
            Child("analyst", run_analyst),
        ]
        self.children = [
            *([Child("follower", follow, (holder,))] if settings.follows else decides),
            Child("maintenance", run_maintenance),
            *(Child(name, run_api, (listening, self.counts)) for name in apis),
        ]

    def run(self) -> None:
        """Keep the processes running until SIGTERM or SIGINT arrives, then stop them."""
        signals = _stop_signals()
        for name in COMMON:
            import_module(name)
        gc.collect()
        gc.freeze()  # or the collectors of the children would write into the pages they share
        if self.listening is not None:
            host, port = self.listening.getsockname()[:2]
            self.log.info("listening", host=host, port=port)
        try:
            while not signals:
                self._kill_who_holds_up()
                for child in self.children:
                    self._mind(child)
                notify("READY=1\nWATCHDOG=1")
                time.sleep(0.2)
        finally:
            notify("STOPPING=1")
            self._stop()

    def _mind(self, child: Child) -> None:
        now = time.monotonic()
        self._kill_if_it_hangs(child, now)
        if child.process is not None and not child.process.is_alive():
            lived = now - child.started
            killed = (child.process.exitcode or 0) < 0
            child.failures = 0 if lived > STEADY_S or killed else child.failures + 1
            pause = PAUSES_S[min(child.failures, len(PAUSES_S)) - 1] if child.failures else 0.0
            pause = KILLED_PAUSE_S if killed else pause
            child.again_at = now + pause
            self.log.error(
                "process_died",
                process=child.name,
                exit_code=child.process.exitcode,
                again_in_s=pause,
            )
            self.counts.deaths[child.name].value += 1
            child.process = None
        if child.process is None and now >= child.again_at:
            self._start(child, now)

    def _kill_if_it_hangs(self, child: Child, now: float) -> None:
        if child.process is None:
            return
        since = self.counts.beats[child.name].at or child.started + BEGINS_S
        pid = child.process.pid or 0
        cpu_s = self._cpu_s(pid)
        if child.silence is None or child.silence.since != since:
            child.silence = Silence(since, since, cpu_s, looked=since)
        silent = now - since > SILENT_S  # to look at all threads of all processes takes time
        child.silence.look(now, cpu_s, silent and self._ready(pid))
        why = child.silence.hangs(now, self._most_s(child, now))
        if why:
            child.kills, child.killed_at = min(child.kills + 1, DOUBLED), now
            self._kill(child, now - since, why)

    def _most_s(self, child: Child, now: float) -> float:
        """Return how many seconds a process may go without a report before it counts as hanging.
        Each recent kill for such a silence doubles them; a kill in the middle of a write does not.
        """
        if now - child.killed_at > FORGOTTEN_S:
            child.kills = 0
        decides = child.run is run_decider
        most_s = max(DECIDER_HANGS_S, self.settings.lease_s * 4 / 3) if decides else HANGS_S
        return float(most_s * 2**child.kills)

    def _kill_who_holds_up(self) -> None:
        """Kill a process that hangs in the middle of a write to the database, because all others
        wait for that write. A process that is ready to run and gets no processor does not hang, nor
        does a decider that was heard of or computed lately.
        """
        turn = None if self._line is None else self._line.head()
        child = next((c for c in self.children if turn and _pid(c) == turn.pid), None)
        if turn is None or child is None:
            self._writing = None
            return
        now, cpu_s, most_s = time.monotonic(), self._cpu_s(turn.pid), WRITES_MS / 1000
        if self._writing is None or self._writing.turn != turn:
            self._writing = Writing(turn, now, cpu_s)
            return
        self._writing.look(now, cpu_s, self._ready(turn.pid))
        if not self._writing.hangs(now, most_s):
            return
        # a decider is one thread: what is heard, or computes, is what writes
        decides, silence = child.run is run_decider, child.silence
        if not decides or silence is None or now - silence.moved >= most_s:
            self._kill(child, now - turn.since, "writes, and others wait")

    def _kill(self, child: Child, silent_s: float, why: str) -> None:
        assert child.process is not None
        self.log.error(
            "process_hangs",
            process=child.name,
            silent_s=round(silent_s, 1),
            why=why,
            cpu_s=round(child.silence.used_s, 1) if child.silence else None,
            beats=self.counts.beats[child.name].count,
        )
        self.counts.hangs[child.name].value += 1
        child.process.kill()
        child.process.join()

    def _start(self, child: Child, now: float) -> None:
        self.counts.beats[child.name].at, child.silence = 0.0, None
        process = get_context("fork").Process(
            target=_process,
            args=(
                child.run,
                self.settings,
                os.getpid(),
                self.listening,
                self.counts.beats[child.name],
                *child.more,
            ),
            name=f"pellucid-{child.name}",
        )
        process.start()
        child.process, child.started = process, now
        self.log.info("process_started", process=child.name, pid=process.pid)

    def _stop(self) -> None:
        """Ask every process to end, and kill those that do not. The jobs run on."""
        alive = [c.process for c in self.children if c.process is not None]
        until = time.monotonic() + STOP_S
        while alive and time.monotonic() < until:
            for process in alive:
                process.terminate()  # again: one that was just begun may not have listened yet
            alive[0].join(1.0)
            self._kill_who_holds_up()
            for child in self.children:  # others wait for what one that hangs has
                if child.process is not None and child.process.is_alive():
                    self._kill_if_it_hangs(child, time.monotonic())
            alive = [process for process in alive if process.is_alive()]
        for process in alive:
            self.log.error("process_killed", process=process.name)
            process.kill()
            process.join()
        self._say_what_is_left()
        self.log.info("stopped")

    def _say_what_is_left(self) -> None:
        """Log that Slurm's jobs keep the priorities that the mode `order` gave them, where no
        follower ended by itself: one that does takes them back, or says why not."""
        if not (self.settings.follows and self.settings.slurm_mode == "order"):
            return
        follower = next(child for child in self.children if child.run is follow).process
        if not self.settings.dry_run and (follower is None or follower.exitcode):
            why = "the process that gave it did not end by itself"
            self.log.error("order_left", why=why, take_back="pellucid slurm release-all")


def _pid(child: Child) -> int | None:
    """Return the id of a child's process, or None where it has none."""
    return None if child.process is None else child.process.pid
