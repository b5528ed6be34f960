"""A simulated machine: processes, their threads, a clock, and the choice of which thread runs next.

Threads of simulated processes are greenlets, of which one runs at a time. A thread runs to its next
pause, where the seed draws which thread goes on. A pause is where time passes or where a real
process may be interrupted: a sleep, the begin and the end of a transaction, a write to disk, a
signal. So the service's own code runs as it is, and a run is a function of its seed.

A process that is killed raises `Crash` at its pause and at every further one: what its `finally`
blocks do reaches nothing outside its memory.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from greenlet import getcurrent, greenlet

STEP_S = 0.002  # a thread runs so long on average from one pause to the next
REUSED = 0.5  # of new processes get the id of one that is gone, where there is one
EPOCH = 1.7e9  # wall clock of every host as a run begins


class Crash(BaseException):
    """Raised in the threads of a simulated process that is killed, to end them."""


class Stuck(RuntimeError):
    """Raised if no thread can ever go on, or if a run takes too many steps."""


@dataclass
class Host:
    """A simulated machine with its own clocks. Times are seconds of the simulation.

    Attributes:
        wall_s: seconds by which its wall clock is ahead of the true time.
        boot: number of its start; a power cut adds one.
        booted_at: time from which its monotonic clock counts.
        off_until: time until which it has no power.
    """

    name: str
    wall_s: float = 0.0
    boot: int = 1
    booted_at: float = 0.0
    off_until: float = 0.0
    disk_full: bool = False

    def loses_power(self, now: float, seconds: float) -> None:
        """Take the power away for so many seconds. Then the host starts again."""
        self.boot, self.booted_at, self.off_until = self.boot + 1, now, now + seconds


@dataclass(eq=False)
class Process:
    """A simulated process. Its threads die with it.

    Attributes:
        on_death: functions called when it dies, to release what a real kernel would release.
        cut_off: the database closed its connection while it was frozen. When it goes on, it fails.
        ends_with_parent: it is killed when its parent has ended.
        heard_at: when it last reported to its service manager that it is alive.
        ticks: a start time that tells it from other processes that have had its `pid`.
    """

    pid: int
    name: str
    host: Host
    parent: Process | None = None
    role: str = ""
    dead: bool = False
    exit_code: int | None = None
    why: str = ""
    ends_with_parent: bool = False
    stopped_at: float = 0.0
    heard_at: float = 0.0
    ticks: int = 0
    frozen_until: float = 0.0
    cut_off: bool = False
    cpu_s: float = 0.0  # of the processor, that its work has cost
    threads: list[Fiber] = field(default_factory=list)
    told: list[int] = field(default_factory=list)  # signals
    on_death: list[Callable[[], None]] = field(default_factory=list)


class Fiber:
    """A thread of a simulated process."""

    def __init__(self, kernel: Kernel, process: Process, run: Callable[[], Any], name: str):
        self.kernel, self.process, self.name = kernel, process, name
        self.wake_at = kernel.clock
        self.until: Callable[[], bool] | None = None
        self.done = False
        self.result: Any = None
        self.error: BaseException | None = None
        self._run = run
        self.greenlet = greenlet(self._live, kernel.hub)

    def _live(self) -> None:
        try:
            if not self.process.dead:
                self.result = self._run()
        except BaseException as error:
            self.error = error
        self.done = True
        self.kernel.ended(self)


class Kernel:
    """Runs the threads of all simulated processes, one at a time, in an order drawn by the seed.

    A crash point is a named place in the code where a process may be killed; they are numbered in
    the order in which a run passes them.

    Args:
        seed: seed of the choice of the next thread and of lengths of time.
        crash_at: numbers of the crash points at which the process that passes them dies.
        freeze_s: if not 0, that process is stopped there for so many seconds instead.

    Attributes:
        clock: true time: seconds since the run began.
        steps: number of times that one thread handed over to another.
        points: number of crash points passed.
        trace: each of them, as `ROLE: NAME`, in the order in which the run passed them.
        crashes: maps the name of a crash point to how many processes died at it.
        ambushes: maps the name of a crash point to a function that is called once, with the next
            process that passes it; it may kill or stop the process.
    """

    def __init__(
        self,
        seed: int,
        crash_at: tuple[int, ...] = (),
        freeze_s: float = 0.0,
        most_steps: int = 40_000,
    ):
        self.draw = random.Random(f"schedule {seed}")
        self.clock = 0.0
        self.steps = self.points = 0
        self.ambushes: dict[str, Callable[[Process, str], None]] = {}
        self.most_steps = most_steps
        self.crash_at = frozenset(crash_at)
        self.crashes: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        self.trace: list[str] = []
        self.current: Fiber | None = None
        self.processes: dict[int, Process] = {}
        self.fatal: BaseException | None = None
        self.on_kill: Callable[[Process, str], None] = lambda process, where: None
        self.on_freeze: Callable[[Process, float], None] = lambda process, seconds: None
        self.on_start: Callable[[Process], None] = lambda process: None
        self.on_point: Callable[[Process, str], None] = partial(self.strike, freeze_s=freeze_s)
        self._fibers: list[Fiber] = []
        self._pids, self._begun = count(100), count(1)
        self._names = random.Random(f"process ids {seed}")
        self.hub = getcurrent()

    # --- processes --------------------------------------------------------------------------

    def process(self, name: str, host: Host, parent: Process | None = None) -> Process:
        free = [p.pid for p in self.processes.values() if p.dead and not p.threads]
        again = free and self._names.random() < REUSED
        pid = self._names.choice(free) if again else next(self._pids)
        made = Process(pid, name, host, parent, heard_at=self.clock, ticks=next(self._begun))
        self.processes[made.pid] = made
        return made

    def spawn(self, process: Process, run: Callable[[], Any], name: str = "") -> Fiber:
        """Add a thread that calls `run` to a process. Return the thread; it begins when it is
        chosen.
        """
        fiber = Fiber(self, process, run, name or process.name)
        process.threads.append(fiber)
        self._fibers.append(fiber)
        return fiber

    def kill(self, process: Process, where: str = "") -> None:
        """Kill a process. Return when no thread of it runs any more; if the caller belongs to that
        process, raise Crash instead.
        """
        if process.dead:
            return
        self._die(process, -9, where)
        if self.current is not None and self.current.process is process:
            raise Crash(where)
        self._pause()  # those that die go first

    def cut_power(self, host: Host) -> None:
        """Kill every process of a host. The caller has to be a process of another host."""
        self._die_together(lambda one: one.host is host, "power cut")

    def stop(self) -> None:
        """End the run: kill every process but the calling one, so fast that none can start
        another.
        """
        self._die_together(lambda one: one is not self.me)

    def _die_together(self, which: Callable[[Process], bool], why: str = "") -> None:
        for process in list(self.processes.values()):
            if which(process) and not process.dead:
                self._die(process, -9, why and f"{process.role}: {why}")
        self._pause()  # those that die go first

    def freeze(self, process: Process, seconds: float) -> None:
        """Stop a process for a number of seconds, as SIGSTOP and SIGCONT do. The process first runs
        on to its next pause.
        """
        process.stopped_at, process.frozen_until = self.clock, self.clock + seconds
        self.on_freeze(process, seconds)

    def _die(self, process: Process, code: int, where: str) -> None:
        process.dead, process.exit_code = True, code
        if where:
            self.crashes[where] += 1
        self.on_kill(process, where)
        for child in list(self.processes.values()):
            if child.parent is process and child.ends_with_parent and not child.dead:
                self._die(child, -9, "")

    def exits(self, process: Process, code: int) -> None:
        """End a process that exits with status `code` by itself, together with its other
        threads.
        """
        if not process.dead:
            self._die(process, code, "")

    def ended(self, fiber: Fiber) -> None:
        """Remove a thread. Called by that thread as its last action."""
        process = fiber.process
        process.threads.remove(fiber)
        self._fibers.remove(fiber)
        if process.dead and not process.threads:
            for clear in process.on_death:
                clear()
            process.on_death.clear()

    # --- pauses -----------------------------------------------------------------------------

    @property
    def me(self) -> Process:
        assert self.current is not None
        return self.current.process

    def sleep(self, seconds: float) -> None:
        self._fiber().wake_at = self.clock + max(0.0, seconds)
        self._pause()

    def compute(self, seconds: float) -> None:
        """Let the current process use the processor for so many seconds of the simulation.
        Meanwhile, the process itself sends no heartbeats.
        """
        while seconds > 0.0:
            part = min(seconds, 0.25)
            self.sleep(part)
            self.me.cpu_s += part
            seconds -= part

    def cpu_s(self, pid: int) -> float:
        """Return the processor seconds that a process has used, as its supervisor sees them."""
        return self.processes[pid].cpu_s if pid in self.processes else 0.0

    def wait(self, until: Callable[[], bool], seconds: float = 1e9) -> bool:
        """Wait until a condition holds, at most `seconds`. Return whether the condition holds at
        the end.
        """
        fiber = self._fiber()
        if until():
            return True
        fiber.until, fiber.wake_at = until, self.clock + seconds
        self._pause()
        fiber.until, fiber.wake_at = None, self.clock
        return until()

    def point(self, where: str) -> None:
        """Pass the crash point named `where`: another thread may run first, or the current process
        dies or is stopped here, as the run's plan says.
        """
        process = self._fiber().process
        self._alive(process)
        self.points += 1
        self.seen[where] += 1
        self.trace.append(f"{process.role}: {where}")
        if self.points in self.crash_at:
            self.on_point(process, where)
        if process.role != "shim" and (ambush := self.ambushes.pop(where, None)) is not None:
            ambush(process, where)
        self._pause()

    def strike(self, process: Process, where: str, freeze_s: float = 0.0) -> None:
        """Kill a process at the crash point that it passes now. If `freeze_s` is not 0, stop it for
        so many seconds instead.
        """
        if freeze_s:
            self.freeze(process, freeze_s)
        else:
            self.kill(process, f"{process.role}: {where}")

    def _fiber(self) -> Fiber:
        assert self.current is not None, "not in a simulated process"
        return self.current

    @staticmethod
    def _alive(process: Process) -> None:
        if process.dead:
            raise Crash

    def _pause(self) -> None:
        me = self._fiber()
        self._alive(me.process)
        self._hand_over(me)
        self._alive(me.process)

    def _hand_over(self, me: Fiber) -> None:
        after = self._drawn()
        if after is not me:
            self.current = after
            (self.hub if after is None else after.greenlet).switch()

    def _drawn(self) -> Fiber | None:
        try:
            return self._next()
        except Stuck as stuck:
            self.fatal = stuck
            return None

    def _next(self) -> Fiber | None:
        """Return the thread that runs next; None when the run is over. If all threads wait, move
        the clock on to the first that may continue. Raise Stuck if none ever can.
        """
        self.steps += 1
        if self.fatal is not None or not self._fibers:
            return None
        for fiber in self._fibers:
            if fiber.process.dead:
                return fiber
        if self.steps > self.most_steps:
            raise Stuck(f"{self.steps} steps, {self.clock:.0f} s: {self._standing()}")
        self.clock += self.draw.random() * 2 * STEP_S
        while True:
            now = self.clock
            ready = [
                f
                for f in self._fibers
                if f.process.frozen_until <= now
                and (f.wake_at <= now or (f.until is not None and f.until()))
            ]
            if ready:
                return ready[int(self.draw.random() * len(ready))]
            self.clock = min(max(f.wake_at, f.process.frozen_until) for f in self._fibers)
            if self.clock >= 1e8:
                raise Stuck(f"nobody can go on: {self._standing()}")

    def _standing(self) -> str:
        return ", ".join(f"{f.process.name}/{f.name}" for f in self._fibers)

    # --- a run ------------------------------------------------------------------------------

    def run(self) -> None:
        """Run until no thread is left. Raise Stuck if the threads wait for something that never
        happens.
        """
        self._go_on()
        if self.fatal is not None:
            fatal, self.fatal = self.fatal, None
            for process in self.processes.values():
                process.dead = True
            self._go_on()
            raise fatal

    def _go_on(self) -> None:
        """Run the threads one after another until the run is over. A thread returns here when it
        ends, or when it finds no thread to run next.
        """
        while (after := self._drawn()) is not None:
            self.current = after
            after.greenlet.switch()
        self.current = None


ACTIVE: list[Kernel] = []  # the one that runs now


def active() -> Kernel | None:
    """Return the simulation that the calling thread is part of, or None."""
    return ACTIVE[-1] if ACTIVE and ACTIVE[-1].current is not None else None
