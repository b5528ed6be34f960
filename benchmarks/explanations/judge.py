"""The judge of answers: it tries out what an answer says, and keeps its own account of the cluster.

It reads an answer as a reader does (plain values and sentences), and follows decisions and ends as
they come. What an answer says is tried on a copy of the deciding core, in a forked process: a run
is ended, a waiting job cancelled, or a closed node opened, and the core decides. No code of
`scheduler.explain` takes part in the judgement.
"""

from __future__ import annotations

import os
import pickle
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar, cast

from features.schema import State
from scheduler.core.core import Core
from scheduler.core.decisions import Action, Decision, Reason

BEGINS = (Action.START, Action.PACK, Action.PROFILE)
LEFT = 2  # of several that are named, so many are left one by one
T = TypeVar("T")
Holder = Mapping[str, Any]  # of an answer: kind, job, node, ran_s, ...


class TrialFailed(RuntimeError):
    """Raised when a trial in a forked copy of this process ended in an error."""


def aside(act: Callable[[], T]) -> T:
    """Call `act` in a forked copy of this process. Return its result; nothing else of it remains.
    Raise TrialFailed if it failed.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = pickle.dumps((None, act()))
        except BaseException as error:
            told = pickle.dumps((repr(error), None))
        with os.fdopen(write, "wb") as out:
            out.write(told)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as into:
        answer = into.read()
    os.waitpid(pid, 0)
    failed, found = pickle.loads(answer) if answer else ("the copy died", None)
    if failed is not None:
        raise TrialFailed(failed)
    return cast("T", found)


@dataclass
class Account:
    """A record of which job is on which GPUs, kept from decisions and ends alone.

    Attributes:
        held: maps a job id to its GPUs: for each node a bit mask.
        since: maps a job id to the time in seconds at which it got them.
    """

    held: dict[str, dict[int, int]] = field(default_factory=dict)
    since: dict[str, float] = field(default_factory=dict)

    def decided(self, decisions: Iterable[Decision], now: float) -> None:
        """Update the account by decisions that take effect at time `now`."""
        for d in decisions:
            if d.action in BEGINS:
                self.held[d.job_id] = dict(zip(d.nodes, d.gpus, strict=True))
                self.since[d.job_id] = now
            elif d.action is Action.PREEMPT:
                self.left(d.job_id)

    def left(self, job_id: str) -> None:
        """Remove a job that ended, or lost its GPUs, from this record of which job is on which
        GPUs."""
        self.held.pop(job_id, None)
        self.since.pop(job_id, None)

    def taken(self, node: int) -> int:
        """Return the GPUs of a node that any job is on, as a bit mask."""
        mask = 0
        for gpus in self.held.values():
            mask |= gpus.get(node, 0)
        return mask

    def free(self, core: Core, nodes: Iterable[int]) -> int:
        """Return how many GPUs of the open nodes among `nodes` no job is on."""
        return sum(
            core.cluster.nodes[node].gpus - self.taken(node).bit_count()
            for node in nodes
            if core.cluster.pool_of(node).is_open(node)
        )


def remove(core: Core, holders: Iterable[Holder], now: float) -> None:
    """Remove from the core what an answer says is in the way: end runs, cancel waiting jobs, open
    closed nodes. Changes `core`.
    """
    for holder in holders:
        if holder["node"] is not None:
            core.nodes.open_wholly(holder["node"])
        elif (run := core.cluster.runs.get(holder["job"])) is not None:
            core.ended(holder["job"], State.COMPLETED, now - run.start_time, now)
        else:
            core.withdrawn(holder["job"], now)


def begins(core: Core, job_id: str, now: float) -> bool:
    """Let the core decide at time `now`. Return whether it gives the job GPUs."""
    return any(d.job_id == job_id and d.action in BEGINS for d in core.decide(now))


def starts_when(core: Core, changes: Mapping[str, Any], job_id: str, now: float) -> bool:
    """Change a waiting job in the core, and let the core decide. Return whether the job starts.

    Args:
        changes: what to change: a field of the request and its new value ("" removes it),
            `priority`, `first` (the job goes before all others) or `held`.
    """

    def act() -> bool:
        change(core, changes, job_id, now)
        return begins(core, job_id, now)

    return aside(act)


def change(core: Core, changes: Mapping[str, Any], job_id: str, now: float) -> None:
    """Change a waiting job in the core as its owner or an operator would. `changes` is as in
    `starts_when`.
    """
    queued = core.jobs[job_id]
    to: dict[str, Any] = {n: None if value == "" else value for n, value in changes.items()}
    first, held, priority = (to.pop(name, None) for name in ("first", "held", "priority"))
    if to:
        core.waiting.change(replace(queued.job, **to), now)
    if held is not None:
        (core.waiting.hold if held else core.waiting.release)(job_id, now)
    if first:
        priority = 1 + max((q.priority for q in core.queues[queued.job.vc]), default=0)
    if priority is not None:
        core.waiting.set_priority(job_id, priority)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judge's verdict on one answer. A field is None if the answer names nothing that could be
    tried.

    Attributes:
        named: the answer names jobs or nodes in the way, or a reason why the job waits even without
            any.
        necessary: the job starts if everything named is gone. If nothing is named, it still waits.
        minimal: the job still waits if only one of several named obstacles stays.
        specific: the job still waits if as many other jobs and nodes of the same kinds are gone
            instead.
        fresh: the numbers are those of the cluster at the time of the question.
        wrong: the errors found, in words.
    """

    named: bool
    necessary: bool | None
    minimal: bool | None
    specific: bool | None
    fresh: bool
    wrong: tuple[str, ...] = ()


class Judge:
    """Checks explanations of jobs that wait in a core (the part of the service that decides).

    Args:
        core: the deciding core; trials run on copies of it.
        account: the judge's account of that core's decisions and ends.
        seed: seed of the choice of other obstacles that are removed for comparison.
        start: for a service, where ids and times differ from run to run, the time at which it
            began; None: the jobs are those of a trace.
    """

    def __init__(self, core: Core, account: Account, seed: int = 0, *, start: float | None = None):
        self.core, self.account, self.seed, self.start = core, account, seed, start

    def verdict(self, told: Mapping[str, Any], job_id: str, now: float) -> Verdict:
        """Judge an answer that contains job names, as operators get it
        (`explain.findings.analysis`). Return the verdict.
        """
        holders: Sequence[Holder] = told["holders"]
        wrong = self._stale(told, job_id, now)
        fresh = not wrong
        named = bool(holders) or told["still"] != ""
        necessary = minimal = specific = None
        if told["in_all"] > len(holders):
            wrong.append(f"only {len(holders)} of {told['in_all']} in the way are listed")
        if holders:
            necessary = self.starts_without(holders, job_id, now)
            minimal, specific = self._only_these(told, job_id, now)
        elif named:
            necessary = minimal = specific = not self.starts_without(
                self.everything(job_id), job_id, now
            )
        if necessary is False:
            wrong.append("what is named is not what it waits for")
        if minimal is False:
            wrong.append("it starts with one of those left")
        if specific is False:
            wrong.append("it starts without others as well")
        return Verdict(named, necessary, minimal, specific, fresh, tuple(wrong))

    def starts_without(self, holders: Iterable[Holder], job_id: str, now: float) -> bool:
        """Return whether the job starts when the given obstacles are removed; tried in a copy of
        the core.
        """

        def act() -> bool:
            remove(self.core, holders, now)
            return begins(self.core, job_id, now)

        return aside(act)

    def _only_these(self, told: Mapping[str, Any], job_id: str, now: float) -> tuple[bool, bool]:
        """Return two findings: whether every named obstacle is needed, and whether the job still
        waits without other obstacles of the same kinds.
        """
        holders, random = told["holders"], self._random(job_id, now)
        left = random.sample(range(len(holders)), min(LEFT, len(holders)))
        minimal = len(holders) == 1 or not any(
            self.starts_without([h for i, h in enumerate(holders) if i != one], job_id, now)
            for one in left
        )
        told_too = [*told["either"], *(one for runs in told["instead"] for one in runs)]
        others = self._others(holders, told_too, job_id, random)
        return minimal, not others or not self.starts_without(others, job_id, now)

    def _random(self, job_id: str, now: float) -> Random:
        """Return a source of chance that is the same whenever the same job is asked about again, in
        a second service with other ids, too.
        """
        if self.start is None:
            return Random(f"{self.seed}/{job_id}/{now}")
        return Random(f"{self.seed}/{self.core.jobs[job_id].seq}/{now - self.start:.0f}")

    def _others(
        self, holders: Sequence[Holder], told_too: Sequence[Holder], job_id: str, random: Random
    ) -> list[Holder]:
        """Draw obstacles at random that the answer does not name: of each kind as many as in
        `holders`, or all if there are fewer. Return them.
        """
        said = {(h["job"], h["node"]) for h in (*holders, *told_too)}
        by_kind: dict[str, list[Holder]] = {"run": [], "wait": [], "node": []}
        for one in self.everything(job_id):
            if (one["job"], one["node"]) not in said:
                by_kind[self._kind(one)].append(one)
        wanted = {kind: sum(self._kind(h) == kind for h in holders) for kind in by_kind}
        return [
            one
            for kind, those in by_kind.items()
            for one in random.sample(those, min(wanted[kind], len(those)))
        ]

    def _kind(self, one: Holder) -> str:
        if one["node"] is not None:
            return "node"
        return "run" if one["job"] in self.core.cluster.runs else "wait"

    def everything(self, job_id: str) -> list[Holder]:
        """Return everything that might be in a job's way: runs, waiting jobs and closed nodes that
        concern it.
        """
        core = self.core
        queued = core.jobs[job_id]
        profiling = queued.reason is Reason.AWAITING_PROFILE
        vc = None if core.policy.capabilities.borrows or profiling else queued.job.vc
        runs = [
            r.job.job_id
            for r in core.cluster.runs.values()
            if r.profiling == profiling and vc in (None, r.vc)
        ]
        waiting = [
            other
            for other in core.jobs
            if other != job_id
            and other not in core.cluster.runs
            and vc in (None, core.jobs[other].job.vc)
        ]
        pools = list(core.cluster.pools.values()) if vc is None else [core.cluster.pools[vc]]
        pools = [core.cluster.profiling] if profiling else pools
        nodes = [node for pool in pools for node in pool.nodes() if pool.closed_on(node)]
        found: list[Holder] = [{"job": one, "node": None} for one in sorted(runs + waiting)]
        return found + [{"job": "", "node": node} for node in nodes]

    # --- the numbers ------------------------------------------------------------------------

    def _stale(self, told: Mapping[str, Any], job_id: str, now: float) -> list[str]:
        """Return one sentence for each number in the answer, in values or words, that is not true
        at time `now`.
        """
        core, queued = self.core, self.core.jobs[job_id]
        profiling = queued.reason is Reason.AWAITING_PROFILE
        pool = core.cluster.profiling if profiling else core.cluster.pools[queued.job.vc]
        nodes = list(pool.nodes())
        line = [q.job.job_id for q in core.queues[queued.job.vc]]
        place = line.index(job_id) + 1 if job_id in line else None
        true = {
            "at": now,
            "need": queued.job.gpus,
            "free": self.account.free(core, nodes),
            "limit": sum(core.cluster.nodes[node].gpus for node in nodes),
            "position": place,
            "waiting": len(line),
        }
        wrong = [f"{n} is {told[n]}, truly {t}" for n, t in true.items() if told[n] != t]
        for holder in told["holders"]:
            since = self.account.since.get(holder["job"])
            ran = None if since is None else now - since
            if holder["ran_s"] != ran:
                wrong.append(f"a run of {ran} s is said to have run {holder['ran_s']} s")
        return wrong + _words_against(told, true)


_NEED = re.compile(r"needs ([\d,]+) GPUs?; ([\d,]+) of ([\d,]+) (?:is|are) free now")
_PLACE = re.compile(r"Number ([\d,]+) of ([\d,]+) in ")


def _words_against(told: Mapping[str, Any], true: Mapping[str, Any]) -> list[str]:
    """Return one sentence for each text of the answer with numbers that differ from the true
    ones.
    """
    wrong = []
    for text, shape, names in (
        (told["in_the_way"], _NEED, ("need", "free", "limit")),
        (told["place"], _PLACE, ("position", "waiting")),
    ):
        found = shape.search(text)
        if found is None:
            if names[0] != "position" or true["position"] is not None:
                wrong.append(f"no numbers in {text!r}")
            continue
        said = [int(number.replace(",", "")) for number in found.groups()]
        if said != [true[name] for name in names]:
            wrong.append(f"{text!r} is not so")
    return wrong
