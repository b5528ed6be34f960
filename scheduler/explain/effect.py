"""What a change would do to a waiting job and to other jobs, as plain values."""

# ruff: noqa: RUF009 - `_about` makes a field

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from features.codec import Json, decode
from scheduler.core.request import CHANGEABLE
from scheduler.explain.words import MOSTLY, clock_time, roughly
from scheduler.slurm.reason import SlurmReason

MINUTE_S = 60.0


def _about(description: str, default: Any = None) -> Any:
    """Return a dataclass field with the description that the API's document shows. With `list`
    or `dict` as its default, each object gets a new one."""
    made = {"default_factory" if default in (list, dict) else "default": default}
    return field(metadata={"description": description}, **made)


@dataclass(frozen=True, slots=True)
class ExpectedTimes:
    """Start and end (seconds since the epoch), and the reason to wait, with or without a change."""

    start_p10: float | None = _about("In one of ten.")
    start_p50: float | None = _about("It starts by then in half.")
    start_p90: float | None = _about("In nine of ten.")
    end_p50: float | None = _about("It ends by then in half.")
    end_p90: float | None = _about("In nine of ten.")
    position: int | None = _about("Place in line, from 1.")
    reason: str = _about("Reason code of its waiting; empty: none.", "")
    why_not: str = _about("Why there is no estimate.", "")
    estimate: str | None = _about("crude; impossible: it cannot start.")


@dataclass(frozen=True, slots=True)
class Moved:
    """A job of the asking user that would start later or earlier."""

    job_id: str
    by_s: float = field(metadata={"description": "Seconds later; earlier: below 0."})


@dataclass(frozen=True, slots=True)
class OthersMoved:
    """Other users' jobs that would start later or earlier."""

    later: int = _about("Jobs that would start later.", 0)
    earlier: int = _about("Jobs that would start earlier.", 0)
    later_s: float = _about("Seconds later, in all.", 0.0)
    earlier_s: float = _about("Seconds earlier, in all.", 0.0)


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The forecast of a job as it is, and with a change, from the same simulated futures. A start
    at once (`starts_now`) is a decision on a copy of the core instead."""

    job_id: str
    changes: Json = field(metadata={"description": "What was to be different."})
    now: ExpectedTimes | None = _about("As it is.")
    then: ExpectedTimes | None = _about("As it would be.")
    words: str = _about("The change, as the beginning of a sentence.", "")
    starts_now: bool = _about("The core, tried, starts it at once.", False)
    gain_s: float | None = _about("Seconds by which its median start comes sooner; below 0: later.")
    earlier: int | None = _about("Futures in which it starts earlier.")
    futures: int = _about("Futures the figures rest on.", 0)
    moved: list[Moved] = _about("Other jobs of the asker's that would move.", list)
    others_moved: OthersMoved | None = _about("Jobs of others that would move, counted.")
    not_examined: int | None = _about("Jobs whose start was not forecast.")
    assumed: list[str] = _about("What was taken for granted, in words.", list)
    unavailable: str = _about("Why there is no answer; empty: there is.", "")
    command: str = _about("What does it, and keeps the place; empty: nothing does.", "")
    beside: bool = _about("It shares the GPUs of another job: decided, or in most futures.", False)
    speed: float | None = _about("Its speed there; 1: its GPUs are its own.")
    costs_s: float | None = _about("Seconds by which it ends later; earlier: below 0.")
    stopped: bool = _about("Its time limit would end it before its work is done.", False)
    guessed: bool = _about("That speed is of jobs as usual: one of the two was not watched.", False)
    held: int = _about("Offers of this kind that were taken, and held.", 0)
    judged: int = _about("Offers of this kind that were taken.", 0)
    by_slurm: bool = _about("By sbatch --test-only, too; else on a copy alone.", False)

    def contract(self, now: float) -> str:
        """Return as text the start, speed and end of the changed job, with the assumptions: "at
        once beside another job, at 58% of its speed alone; ends about 16:40, 2 h later than without
        the change"."""
        text = "at once" if self.starts_now else self._start(now)
        if self.beside:
            text += f" beside another job, at {self._pace}"
        elif self.speed is not None:
            text += " on GPUs of its own"
        return text + self._end(now) + (f" (if {'; '.join(self.assumed)})" if self.assumed else "")

    @property
    def _pace(self) -> str:
        """The speed of a job that shares GPUs as text, with the assumption behind it, if any."""
        if self.speed is None:
            return "an unknown speed"
        pace = f"{self.speed:.0%} of its speed alone"
        return f"{pace} if both run as such jobs usually do" if self.guessed else pace

    def _start(self, now: float) -> str:
        """Return as text how much earlier the changed job starts, and when."""
        text, then = f"{roughly(self.gain_s or 0.0)} earlier", self.then
        if then is None or then.start_p50 is None:
            return text
        text += f", about {clock_time(then.start_p50, now)}"
        if then.start_p90 is not None:
            text += f" (by {clock_time(then.start_p90, now)} {MOSTLY}),"
        return text

    def _end(self, now: float) -> str:
        """Return as text when the changed job ends, and how much later or sooner that is than
        without the change."""
        end = self.then.end_p50 if self.then is not None else None
        if end is None:
            return "; when it ends is not known"
        if self.stopped:
            return f"; its time limit would stop it about {clock_time(end, now)}, unfinished"
        text = f"; ends about {clock_time(end, now)}"
        late = self.then.end_p90 if self.then is not None else None
        if late is not None and late >= end + MINUTE_S:
            text += f" (by {clock_time(late, now)} {MOSTLY})"
        if self.costs_s is not None and abs(self.costs_s) >= MINUTE_S:
            way = "later" if self.costs_s > 0 else "sooner"
            text += f", {roughly(abs(self.costs_s))} {way} than without the change"
        elif self.costs_s is None and (self.beside or "gpus" in self.changes):
            text += "; its end without the change is not known yet"
        return text

    @classmethod
    def of(cls, job_id: str, changes: Json, answer: Mapping[str, Any]) -> WhatIfAnswer:
        """Return the analyst's answer, given as plain values, with the command that makes the
        change. Values that this class has no field for are left out."""
        known = {"job_id": job_id, "changes": changes, "command": command_of(job_id, changes)}
        return decode(cls, {**answer, **known})


def command_of(job_id: str, changes: Mapping[str, Any]) -> str:
    """Return the shell command that makes a change to a waiting job, or "" when there is none."""
    if not changes or changes.keys() - CHANGEABLE.keys():
        return ""
    words = []
    for name, value in changes.items():
        option = CHANGEABLE[name].option
        if isinstance(value, bool):
            words.append(option if value else f"--no-{option[2:]}")
        else:
            words.append(
                f"{option} {value:g}"
                if isinstance(value, float)
                else f"{option} {quote(str(value))}"
            )
    return f"pellucid change {job_id} {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class Effect:
    """What a change of the cluster or the settings would do to waiting jobs. `why_not` says why
    that could not be computed.

    Attributes:
        moved: maps job ids to the seconds by which they would start later (below 0: earlier), as
            the median over the futures; only those of a minute or more.
        stuck: jobs that would start without the change, but not with it, as far as the futures were
            simulated.
        examined, waiting: number of jobs that were examined, and that wait.
    """

    moved: dict[str, float]
    examined: int
    waiting: int
    futures: int
    stuck: list[str] = field(default_factory=list)
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a job would do in one partition, or after one change, as tried on a copy of the queue.

    Attributes:
        words: the change in words.
        command: the shell command that makes the change.
    """

    start_p50: float | None = None
    start_p90: float | None = None
    futures: int = _about("Futures the times rest on.", 0)
    reason: str = _about("Slurm's word for its wait; empty: it starts, or why says more.", "")
    why: str = ""
    slurm: SlurmReason | None = _about("The same as data.")
    partition: str = ""
    words: str = ""
    command: str = ""
    amount: float | None = _about("Of what was otherwise: seconds, MiB, CPUs, GPUs or nodes.")
    costs: str = _about("What it costs, in words; empty: nothing that is known.", "")
    assumed: str = _about("What is taken for granted, in words.", "")
    times: float | None = _about("How many times as long it takes.")
    costs_s: float | None = _about("Seconds that it ends later.")
    lasts_s: float | None = _about("Seconds that it should run, where its limit would stop it.")
    held: int = _about("Offers of this kind that were taken, and held.", 0)
    judged: int = _about("Offers of this kind that were taken.", 0)
    by_slurm: bool = _about("By sbatch --test-only, too; else on a copy alone.", False)


@dataclass(frozen=True, slots=True)
class ClosedPartition:
    """A Slurm partition that does not take the job, and why."""

    partition: str
    why: str


@dataclass(frozen=True, slots=True)
class Eta:
    """When a job would start in each partition that takes it. The partitions that the job names
    come first."""

    now: float = 0.0
    tried: list[Tried] = field(default_factory=list)
    closed: list[ClosedPartition] = field(default_factory=list)
    asked: list[str] = _about("Partitions it names, or the default.", list)
    not_tried: list[str] = _about("Partitions that there was no time for.", list)
    own: str = _about("What Pellucid's own policy would do with it.", "")
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class NewJob:
    """When a job would start, and how long it would run, before it is submitted. Times are seconds
    since the epoch.
    """

    now: float = 0.0
    vc: str = ""
    gpus: int = 0
    starts_now: bool = _about("Decided on a copy, not foreseen.", False)
    start_p50: float | None = None
    start_p90: float | None = None
    estimate: str | None = _about("crude, or impossible: it cannot start.")
    why_not: str = _about("Why no start is given.", "")
    lasts_p50_s: float | None = _about("Seconds it should run, even odds.")
    lasts_p90_s: float | None = None
    odds: dict[str, float] = _about("Chances to run over an hour, six and a day, by name.", dict)
    asks: bool = _about("Whether its owner should state how long it runs (expect).", False)
    ended_here: int | None = _about("Jobs that ended here, where none is its owner's.")
    latest: float | None = _about("By when it starts, by limits alone; as of a job's.")
    no_latest: str = ""
    reason: str = _about("Code of what would be decided; why: in words.", "")
    why: str = ""
    futures: int = 0
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class OnNode:
    """A node of a partition that could run a waiting job, or the job's part on one node."""

    partition: str
    node: str
    lacks: list[str] = _about("What is short there, in words.", list)
    shut: str = _about("What keeps it from the job whatever is free.", "")
    gpus_free: int = 0
    gpus: int = _about("That suit it, in all.", 0)
    until: float | None = _about("By when it could, by time limits.")


@dataclass(frozen=True, slots=True)
class ByNode:
    """What keeps a waiting job from each node of its partitions."""

    job_id: str = ""
    nodes: list[OnNode] = field(default_factory=list)
    unsuited: int = _about("Nodes that could never do it.", 0)
    unavailable: str = ""


@dataclass(frozen=True, slots=True)
class Sooner:
    """A waiting job as it is, and the changes with which it would start sooner: first those that
    cost nothing, the soonest start first."""

    now: float = 0.0
    as_it_is: Tried | None = None
    tried: list[Tried] = field(default_factory=list)
    not_tried: list[str] = _about("Changes that there was no time for.", list)
    refused: list[str] = _about("Changes that sbatch --test-only contradicts.", list)
    unavailable: str = ""
