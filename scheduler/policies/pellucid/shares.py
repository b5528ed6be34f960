"""GPU-time used by each virtual cluster and user, fading with a half-life.

What was used a half-life ago counts half: usage at t is the integral over s of the GPUs held at s
times 2^-((t - s) / half-life). A user is entitled to a part of what the users of its virtual
cluster have had, a virtual cluster to a part of the whole, both by weight. The excess is the part
had less the part due. It lies between -1 and 1, sums to zero, and, unlike the factor 2^-(had / due)
of classic fair-share schedulers, does not saturate for the few who use most of a cluster.

A shared GPU is half of each member's. Time in the profiling partition is nobody's.
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

UsageMemory = tuple[float, float, float]  # GPU-seconds, GPUs held since then, since when
HeldMemory = tuple[str, str, int, str | None]  # virtual cluster, user, GPUs, whom with


@dataclass(slots=True, kw_only=True)
class GroupMemory:
    """What each member of a group used, and all of them together."""

    members: dict[str, UsageMemory]
    whole: UsageMemory


@dataclass(slots=True, kw_only=True)
class SharesMemory:
    """Usage, and the GPUs held now, as a plain record.

    Attributes:
        half_life_s: by which it fades.
        vcs: virtual clusters. users: by virtual cluster. held: by job.
        due_at: by virtual cluster, when terms of its waiting jobs are worked out again.
        terms: by waiting job, the term in its key.
    """

    half_life_s: float
    vcs: GroupMemory
    users: dict[str, GroupMemory]
    held: dict[str, HeldMemory]
    due_at: dict[str, float]
    terms: dict[str, float]


class _Usage:
    """A decayed integral: `amount` GPU-seconds as of `since`, `rate` GPUs held from then on."""

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
    """Members that share something by weight."""

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
        """Take over the usage of another group, which fades by `half_life_s` from now on."""
        self.members, self.whole = other.members, other.whole
        self.due = 0.0
        for member in self.members:
            self.due += self.weights.get(member, 1.0)
        if half_life_s != was_s:
            for usage in (self.whole, *self.members.values()):
                usage.amount, usage.since = usage.at(now, was_s), now

    def part(self, member: str, now: float, half_life_s: float) -> tuple[float, float]:
        """Return two shares of a member, 0 to 1: the share of past GPU-time that it used, and the
        share due to it. If no member used any, return the share due twice.
        """
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
    """Decayed usage, and how far each user and virtual cluster is above its due.

    Args:
        dues: the half-life, and the weights of users and virtual clusters.
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
        """Return the usage of each user and virtual cluster, as a plain record."""
        return SharesMemory(
            half_life_s=self.half_life_s,
            vcs=self._vcs.remember(),
            users={vc: group.remember() for vc, group in self._users.items()},
            held=dict(self._held),
            due_at=dict(due_at),
            terms=dict(terms),
        )

    def take_over(self, other: Shares, now: float) -> None:
        """Take over another's usage, and go on with other weights and another half-life."""
        was_s, half_life_s = other.half_life_s, self.half_life_s
        self._held = other._held
        self._vcs.take_over(other._vcs, now, was_s, half_life_s)
        for vc, users in other._users.items():
            group = self._users[vc] = _Group(self._weights)
            group.take_over(users, now, was_s, half_life_s)

    def join(self, vc: str, user: str, now: float) -> None:
        """Note that a user has work in a virtual cluster: both have a due from now on."""
        self._vcs.join(vc, now)
        self._users.setdefault(vc, _Group(self._weights)).join(user, now)

    def began(self, run: Run, now: float) -> None:
        """Count a run's GPUs as held from `now` on."""
        job, other = run.job, run.partner
        self.join(run.vc, job.user, now)
        self._hold(job.job_id, (run.vc, job.user, job.gpus, None), None, now)
        if other is not None and other.job.job_id in self._held:
            self._hold(job.job_id, self._held[job.job_id], other.job.job_id, now)
            self._hold(other.job.job_id, self._held[other.job.job_id], job.job_id, now)

    def over(self, job_id: str, now: float) -> None:
        """Stop counting the GPUs of a job that has ended or lost them. Its partner, if any, holds
        them alone from now on.
        """
        held = self._held.get(job_id)
        if held is None:
            return
        self._charge(held, -1, now)
        partner = held[3]
        if partner is not None:
            self._hold(partner, self._held[partner], None, now)
        del self._held[job_id]

    def user(self, vc: str, user: str, now: float) -> float:
        """Return the excess of a user among those of a virtual cluster, in [-1, 1]."""
        group = self._users.get(vc)
        return 0.0 if group is None else group.excess(user, now, self.half_life_s)

    def users(self, vc: str) -> list[str]:
        """Return the users who have had work in a virtual cluster."""
        group = self._users.get(vc)
        return [] if group is None else list(group.members)

    def part(self, vc: str, user: str, now: float) -> tuple[float, float]:
        """Return a user's part of what all users of a virtual cluster had, and the part due."""
        return self._users[vc].part(user, now, self.half_life_s)

    def vc(self, vc: str, now: float) -> float:
        """Return the excess of a virtual cluster, in [-1, 1]."""
        return self._vcs.excess(vc, now, self.half_life_s)

    def _hold(
        self, job_id: str, held: tuple[str, str, int, str | None], partner: str | None, now: float
    ) -> None:
        """Charge a job for its GPUs from `now` on as shared with `partner` (None: as its own)."""
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
    """The fairness term of an order: how far a job is put back for what its user has used.

    Args:
        settings: its weight (0 = off; the term is `weight * SPAN_S * excess`), and the dues.
    """

    SPAN_S = 86_400.0  # of predicted duration

    def __init__(self, settings: FairShare):
        self.settings = settings
        self.weight = settings.weight
        self.shares = Shares(settings)
        self._next: dict[str, float] = {}  # virtual cluster -> when terms are due again
        self._terms: dict[str, float] = {}  # job -> the term in its key

    def remember(self) -> SharesMemory:
        """Return the state of this object as a plain record."""
        return self.shares.remember(self._next, self._terms)

    def restore(self, memory: SharesMemory) -> None:
        """Restore what another with the same settings returned from `remember`."""
        self.shares.restore(memory)
        self._next, self._terms = dict(memory.due_at), dict(memory.terms)

    def take_over(self, other: Fairness, now: float) -> None:
        """Take over another's usage, also where either is off: usage is counted all the same.

        Where the settings are the same, so are the terms and when they are worked out again.
        """
        self.shares.take_over(other.shares, now)
        if self.settings == other.settings:
            self._terms, self._next = other._terms, other._next

    def parts(self, vc: str, now: float) -> Parts:
        """Return what each user of a virtual cluster had, and is due."""
        members = {who: self.shares.part(vc, who, now) for who in self.shares.users(vc)}
        return Parts(members, self.shares.half_life_s, self.weight * self.SPAN_S)

    def withdraw(self, queued: QueuedJob) -> None:
        """Remove the term from the evidence of a job's decisions."""
        queued.evidence = tuple(one for one in queued.evidence if one[0] not in NAMES)

    def on(self, queued: QueuedJob, now: float) -> float:
        """Return the fairness term of a job, seconds of predicted duration, and add it to the
        evidence of its decisions.
        """
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
        """Work out the terms of a queue again when they are old. The order of the queue changes
        with them.
        """
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
        """Return the virtual cluster to serve next: the one whose usage exceeds its due least. With
        a `weight` of 0, return the first of `vcs`.
        """
        return min(vcs, key=lambda vc: self.shares.vc(vc, now)) if self.weight else next(iter(vcs))

    def began(self, run: Run, now: float) -> None:
        """Count a run's GPUs as held."""
        self.shares.began(run, now)

    def over(self, job_id: str, now: float) -> None:
        """Count a job's GPUs as no longer held."""
        self.shares.over(job_id, now)
        self._terms.pop(job_id, None)
