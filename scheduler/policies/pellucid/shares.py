"""GPU-time used by each virtual cluster and user, where older use counts less.

What was used one half-life ago counts half: usage at time t is the integral over s of the GPUs held
at s times 2^-((t - s) / half-life). A user is entitled to a part of what all users of the virtual
cluster have used, and a virtual cluster to a part of the whole, both by weight. The excess is the
part used less the part due. It lies between -1 and 1, sums to zero and, unlike the factor 2^-(used
/ due) of classic fair-share schedulers, still grows for those who use most of a cluster.

Each of two jobs that share a GPU is charged half of it. Time in the profiling partition is not
charged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import log

from scheduler.core.cluster import Run
from scheduler.core.policy import Parts
from scheduler.core.queue import QueuedJob
from scheduler.core.turn import Turn
from scheduler.policies.pellucid.settings import FairShare

UsageMemory = tuple[float, float, float]  # GPU-seconds until a time, GPUs held since, that time
HeldMemory = tuple[str, str, int, str | None]  # virtual cluster, user, GPUs, whom with


@dataclass(slots=True, kw_only=True)
class GroupMemory:
    """A plain record of what each member of a group used, and all of them together."""

    members: dict[str, UsageMemory]
    whole: UsageMemory


@dataclass(slots=True, kw_only=True)
class SharesMemory:
    """A plain record of usage, and of the GPUs that jobs hold now.

    Attributes:
        half_life_s: seconds after which use counts half.
        vcs: usage of each virtual cluster.
        users: maps a virtual cluster to the usage of its users.
        held: maps a job to the GPUs for which it is charged now.
        due_at: maps a virtual cluster to the time when the fairness terms of its waiting jobs are
            computed again.
        terms: maps a waiting job to the fairness term in its key.
    """

    half_life_s: float
    vcs: GroupMemory
    users: dict[str, GroupMemory]
    held: dict[str, HeldMemory]
    due_at: dict[str, float]
    terms: dict[str, float]


class _Usage:
    """The decayed usage of one member: `amount` GPU-seconds at the time `since`, and `rate` GPUs
    held from then on."""

    __slots__ = ("amount", "rate", "since")

    def __init__(self, now: float) -> None:
        self.amount = self.rate = 0.0
        self.since = now

    def remember(self) -> UsageMemory:
        return self.amount, self.rate, self.since

    def restore(self, memory: UsageMemory) -> None:
        self.amount, self.rate, self.since = memory

    def at(self, now: float, half_life_s: float) -> float:
        kept: float = 2.0 ** ((self.since - now) / half_life_s)
        return self.amount * kept + self.rate * (1.0 - kept) * half_life_s / log(2.0)

    def change(self, gpus: float, now: float, half_life_s: float) -> None:
        self.amount, self.since = self.at(now, half_life_s), now
        self.rate += gpus


class _Group:
    """Members (users, or virtual clusters) that share something by weight, with the usage of
    each."""

    def __init__(self, weights: Mapping[str, float]):
        self.weights = weights
        self.members: dict[str, _Usage] = {}
        self.whole = _Usage(0.0)
        self.due = 0.0  # sum of weights

    def join(self, member: str, now: float) -> None:
        if member not in self.members:
            self.members[member] = _Usage(now)
            self.due += self.weights.get(member, 1.0)

    def change(self, member: str, gpus: float, now: float, half_life_s: float) -> None:
        self.join(member, now)
        self.members[member].change(gpus, now, half_life_s)
        self.whole.change(gpus, now, half_life_s)

    def remember(self) -> GroupMemory:
        members = {name: usage.remember() for name, usage in self.members.items()}
        return GroupMemory(members=members, whole=self.whole.remember())

    def restore(self, memory: GroupMemory) -> None:
        for name, known in memory.members.items():
            self.join(name, 0.0)
            self.members[name].restore(known)
        self.whole.restore(memory.whole)

    def take_over(self, other: _Group, now: float, was_s: float, half_life_s: float) -> None:
        """Take over the usage of another group, which decayed with half-life `was_s`. From `now` on
        it decays with `half_life_s`."""
        self.members, self.whole = other.members, other.whole
        self.due = 0.0
        for member in self.members:
            self.due += self.weights.get(member, 1.0)
        if half_life_s != was_s:
            for usage in (self.whole, *self.members.values()):
                usage.amount, usage.since = usage.at(now, was_s), now

    def part(self, member: str, now: float, half_life_s: float) -> tuple[float, float]:
        """Return the share of past GPU-time that a member used, and the share that is due to it,
        each 0 to 1. If no member has used any, return the share due twice."""
        due = self.weights.get(member, 1.0) / self.due
        whole = self.whole.at(now, half_life_s)
        if whole < 1.0:  # a GPU-second: nobody has had anything
            return due, due
        return self.members[member].at(now, half_life_s) / whole, due

    def excess(self, member: str, now: float, half_life_s: float) -> float:
        if member not in self.members:
            return 0.0
        had, due = self.part(member, now, half_life_s)
        return had - due


class Shares:
    """The decayed usage of each user and virtual cluster, and how far each is above its due.

    Args:
        dues: settings with the half-life, and the weights of users and virtual clusters.
    """

    def __init__(self, dues: FairShare):
        self.half_life_s = dues.half_life_s
        self._weights = dues.users
        self._vcs = _Group(dues.vcs)
        self._users: dict[str, _Group] = {}  # by virtual cluster
        # job -> virtual cluster, user, GPUs, whom it shares them with
        self._held: dict[str, tuple[str, str, int, str | None]] = {}

    def restore(self, memory: SharesMemory) -> None:
        """Restore the usage that `remember` returned."""
        self._held = dict(memory.held)
        self._vcs.restore(memory.vcs)
        for vc, known in memory.users.items():
            group = self._users[vc] = _Group(self._weights)
            group.restore(known)

    def remember(self, due_at: dict[str, float], terms: dict[str, float]) -> SharesMemory:
        """Return a plain record of the usage of each user and virtual cluster. `due_at` and `terms`
        are stored with it."""
        return SharesMemory(
            half_life_s=self.half_life_s,
            vcs=self._vcs.remember(),
            users={vc: group.remember() for vc, group in self._users.items()},
            held=dict(self._held),
            due_at=dict(due_at),
            terms=dict(terms),
        )

    def take_over(self, other: Shares, now: float) -> None:
        """Take over the usage that `other` has counted. The weights and the half-life of this
        object apply from now on."""
        was_s, half_life_s = other.half_life_s, self.half_life_s
        self._held = other._held
        self._vcs.take_over(other._vcs, now, was_s, half_life_s)
        for vc, users in other._users.items():
            group = self._users[vc] = _Group(self._weights)
            group.take_over(users, now, was_s, half_life_s)

    def join(self, vc: str, user: str, now: float) -> None:
        """Record that a user has work in a virtual cluster, so that both are entitled to a share
        from now on."""
        self._vcs.join(vc, now)
        self._users.setdefault(vc, _Group(self._weights)).join(user, now)

    def began(self, run: Run, now: float) -> None:
        """Charge a run for its GPUs from `now` on."""
        job, other = run.job, run.partner
        self.join(run.vc, job.user, now)
        self._hold(job.job_id, (run.vc, job.user, job.gpus, None), None, now)
        if other is not None and other.job.job_id in self._held:
            self._hold(job.job_id, self._held[job.job_id], other.job.job_id, now)
            self._hold(other.job.job_id, self._held[other.job.job_id], job.job_id, now)

    def over(self, job_id: str, now: float) -> None:
        """Stop charging a job that has ended or lost its GPUs. Its partner, if any, is charged for
        all of its GPUs from now on."""
        held = self._held.get(job_id)
        if held is None:
            return
        self._charge(held, -1, now)
        partner = held[3]
        if partner is not None:
            self._hold(partner, self._held[partner], None, now)
        del self._held[job_id]

    def user(self, vc: str, user: str, now: float) -> float:
        """Return the excess of a user in a virtual cluster, -1 to 1: the part of past GPU-time that
        the user had, less the part due."""
        group = self._users.get(vc)
        return 0.0 if group is None else group.excess(user, now, self.half_life_s)

    def users(self, vc: str) -> list[str]:
        """Return the users who have had work in a virtual cluster."""
        group = self._users.get(vc)
        return [] if group is None else list(group.members)

    def part(self, vc: str, user: str, now: float) -> tuple[float, float]:
        """Return the part of a virtual cluster's past GPU-time that a user had, and the part due to
        the user, each 0 to 1."""
        return self._users[vc].part(user, now, self.half_life_s)

    def vc(self, vc: str, now: float) -> float:
        """Return the excess of a virtual cluster, -1 to 1: the part of all past GPU-time that it
        had, less the part due."""
        return self._vcs.excess(vc, now, self.half_life_s)

    def _hold(
        self, job_id: str, held: tuple[str, str, int, str | None], partner: str | None, now: float
    ) -> None:
        """Charge a job for its GPUs from `now` on, as shared with the job `partner` (None: not
        shared)."""
        before = self._held.get(job_id)
        if before is not None:
            self._charge(before, -1, now)
        self._held[job_id] = after = (*held[:3], partner)
        self._charge(after, 1, now)

    def _charge(self, held: tuple[str, str, int, str | None], sign: int, now: float) -> None:
        vc, user, gpus, partner = held
        shared = 0 if partner is None else min(gpus, self._held[partner][2])
        amount = sign * (gpus - 0.5 * shared)
        self._users[vc].change(user, amount, now, self.half_life_s)
        self._vcs.change(vc, amount, now, self.half_life_s)


NAMES = ("fairness_s", "share_excess")  # the term, and what it charges for
REKEY_S = 600.0  # terms of waiting jobs are worked out again when they are older


class Fairness:
    """The fairness term of the order: by how much a job is delayed for what its user has used.

    Args:
        settings: the term's weight (0: off; the term is `weight * SPAN_S * excess`), the half-life,
            and the weights of users.
    """

    SPAN_S = 86_400.0  # of predicted duration

    def __init__(self, settings: FairShare):
        self.settings = settings
        self.weight = settings.weight
        self.shares = Shares(settings)
        self._next: dict[str, float] = {}  # virtual cluster -> when terms are due again
        self._terms: dict[str, float] = {}  # job -> the term in its key

    def remember(self) -> SharesMemory:
        """Return a plain record of the state of this object."""
        return self.shares.remember(self._next, self._terms)

    def restore(self, memory: SharesMemory) -> None:
        """Restore what `remember` returned for an object with the same settings."""
        self.shares.restore(memory)
        self._next, self._terms = dict(memory.due_at), dict(memory.terms)

    def take_over(self, other: Fairness, now: float) -> None:
        """Take over the usage that `other` has counted, which is counted even while the term is
        off.

        With equal settings, also take over the terms, and the times when they are computed again.
        """
        self.shares.take_over(other.shares, now)
        if self.settings == other.settings:
            self._terms, self._next = other._terms, other._next

    def parts(self, vc: str, now: float) -> Parts:
        """Return how much each user of a virtual cluster had lately, and how much is due to
        each."""
        members = {who: self.shares.part(vc, who, now) for who in self.shares.users(vc)}
        return Parts(members, self.shares.half_life_s, self.weight * self.SPAN_S)

    def withdraw(self, queued: QueuedJob) -> None:
        """Remove the fairness term from a job's evidence."""
        queued.evidence = tuple(one for one in queued.evidence if one[0] not in NAMES)

    def on(self, queued: QueuedJob, now: float) -> float:
        """Return the fairness term of a job, in seconds of predicted duration. Store it in the
        job's evidence."""
        if not self.weight:
            return 0.0
        job = queued.job
        self.shares.join(job.vc, job.user, now)
        excess = self.shares.user(job.vc, job.user, now)
        term_s = self.weight * self.SPAN_S * excess
        self._terms[job.job_id] = term_s
        self.withdraw(queued)
        queued.evidence = (*queued.evidence, *zip(NAMES, (term_s, excess), strict=True))
        return term_s

    def refresh(self, turn: Turn, exempt: Callable[[QueuedJob], bool]) -> None:
        """Compute the fairness terms of a queue's jobs again if they are old, and sort the queue by
        the new keys. Jobs for which `exempt` returns True keep theirs."""
        if not self.weight or turn.now < self._next.get(turn.vc, 0.0):
            return
        self._next[turn.vc] = turn.now + REKEY_S
        for queued in turn.queue:
            if exempt(queued):
                continue
            before = self._terms.get(queued.job.job_id, 0.0)
            queued.key += self.on(queued, turn.now) - before
        turn.queue.replace(list(turn.queue))

    def first(self, vcs: Iterable[str], now: float) -> str:
        """Return the virtual cluster to serve next: the one whose part of past GPU-time is furthest
        below the part due to it. With a `weight` of 0, return the first of `vcs`."""
        return min(vcs, key=lambda vc: self.shares.vc(vc, now)) if self.weight else next(iter(vcs))

    def began(self, run: Run, now: float) -> None:
        """Start charging a run for its GPUs."""
        self.shares.began(run, now)

    def over(self, job_id: str, now: float) -> None:
        """Stop charging a job for its GPUs, and drop its term."""
        self.shares.over(job_id, now)
        self._terms.pop(job_id, None)
