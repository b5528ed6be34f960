"""The usual profile of a user's jobs, which is assumed for a job that has no profile of its own.

In a cluster without a profiling partition, a job has a profile only after it has run alone for a
few minutes, so a waiting job has none. Without an assumed profile, no waiting job could be packed
there. Mean utilisations are good enough to choose a partner. The assumed memory has to be safe: it
is the most that any of these jobs was seen to take, and a margin.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field, replace

from features.job import Job, Profile

LEAST = 5  # watched jobs, from which on anything is believed
MARGIN = 1.1  # of memory
MOST = 10_000  # users and sizes that are remembered

_Key = tuple[str, str, int]  # virtual cluster, user, GPUs (0: of any size)


@dataclass(slots=True)
class _Seen:
    """Sums over the measured profiles of a user's jobs, and the usual profile computed from the
    first `at` of them."""

    count: int = 0
    util_pct: float = 0.0
    mem_util_pct: float = 0.0
    mem_mib: float = 0.0  # the most
    amp: int = 0
    counted: int = 0  # of them on GPUs with counters
    active_pct: float = 0.0
    at: int = 0
    believed: Profile | None = field(default=None)

    def add(self, profile: Profile) -> bool:
        """Count one more measured profile of this user's jobs. Return whether the usual profile was
        computed again, because the number of profiles has doubled, or the largest memory use has
        grown."""
        self.count += 1
        self.util_pct += profile.gpu_util_pct
        self.mem_util_pct += profile.gpu_mem_util_pct
        more = profile.gpu_mem_mib > self.mem_mib
        self.mem_mib = max(self.mem_mib, profile.gpu_mem_mib)
        self.amp += bool(profile.amp)
        if profile.sm_active_pct is not None:
            self.counted += 1
            self.active_pct += profile.sm_active_pct
        if self.count < LEAST or not (more or self.count >= 2 * self.at):
            return False
        self.at = self.count
        self.believed = Profile(
            float(round(self.util_pct / self.count)),
            float(round(self.mem_util_pct / self.count)),
            self.mem_mib * MARGIN,
            2 * self.amp > self.count,
            sm_active_pct=(
                float(round(self.active_pct / self.counted)) if self.counted >= LEAST else None
            ),
        )
        return True


@dataclass(slots=True, kw_only=True)
class UsualMemory:
    """A plain record of the measured profiles by user, those seen longest ago first, and of
    `UsualProfiles.changes`."""

    seen: list[_Usual]
    changes: dict[str, int]


@dataclass(slots=True, kw_only=True)
class _Usual:
    vc: str
    user: str
    gpus: int
    seen: _Seen


class UsualProfiles:
    """Measured profiles by user and number of GPUs, and by user alone.

    Attributes:
        changes: maps a virtual cluster to the number of times that a usual profile of its users has
            changed.
    """

    def __init__(self) -> None:
        self.changes: Counter[str] = Counter()
        self._seen: OrderedDict[_Key, _Seen] = OrderedDict()

    def remember(self) -> UsualMemory:
        """Return a plain record of what was learned."""
        seen = [
            _Usual(vc=vc, user=user, gpus=gpus, seen=replace(one))
            for (vc, user, gpus), one in self._seen.items()
        ]
        return UsualMemory(seen=seen, changes=dict(self.changes))

    def restore(self, memory: UsualMemory) -> None:
        """Restore the profiles that `remember` returned."""
        self.changes = Counter(memory.changes)
        self._seen = OrderedDict(
            ((one.vc, one.user, one.gpus), replace(one.seen)) for one in memory.seen
        )

    def learn(self, job: Job, profile: Profile) -> None:
        """Learn from the measured profile of a job."""
        for key in _keys(job):
            seen = self._seen.setdefault(key, _Seen())
            self._seen.move_to_end(key)
            self.changes[job.vc] += seen.add(profile)
        while len(self._seen) > MOST:
            self._seen.popitem(last=False)

    def find(self, job: Job) -> Profile | None:
        """Return the usual profile that is assumed for a job: that of its user's jobs of the same
        size, otherwise of all the user's jobs. Return None where too few were measured."""
        found = (self._seen.get(key) for key in _keys(job))
        return next((seen.believed for seen in found if seen and seen.believed), None)


def _keys(job: Job) -> tuple[_Key, _Key]:
    return (job.vc, job.user, job.gpus), (job.vc, job.user, 0)
