"""Many jobs of one person as groups: those of the same kind of name, size and state are one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.service.log.store.reads import JobRow
from scheduler.service.pages.queries import Brief, PageQueries

SHOWN = 5  # jobs of a group on the board
GROUPS = 40  # on the board, the largest first
ROWS = 100  # jobs on a page of one group
_NUMBER = re.compile(r"\d+")
ORDER = ("running", "starting", "profiling", "queued", "submitted", "held")


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that are alike and not over.

    Attributes:
        like: their name, every number in it as "#".
        oldest: when the first was submitted, seconds since the epoch.
        next_start, last_start: of those that wait, even odds; None: nobody foresaw one.
        ids: of its first jobs, in the order they were submitted.
    """

    vc: str
    owner: str
    like: str
    gpus: int
    phase: str
    jobs: int
    oldest: float
    next_start: float | None
    last_start: float | None
    ids: list[str] = field(default_factory=list)


def alike(name: str) -> str:
    """What names of jobs of one sweep have in common: "sweep-lr#"."""
    return _NUMBER.sub("#", name)


def grouped(briefs: Iterable[Brief]) -> list[Group]:
    """Groups in the order of states, the largest first in each."""
    found: dict[tuple[str, str, str, int, str], list[Brief]] = {}
    for one in briefs:
        key = (one.vc, one.owner, alike(one.name), one.gpus, one.phase)
        found.setdefault(key, []).append(one)
    groups = []
    for key, members in found.items():
        starts = [one.start_p50 for one in members if one.start_p50 is not None]
        groups.append(
            Group(
                *key,
                len(members),
                min(one.submitted_at for one in members),
                min(starts, default=None),
                max(starts, default=None),
                [one.job_id for one in members[:SHOWN]],
            )
        )
    return sorted(groups, key=lambda g: (_place(g.phase), -g.jobs, g.vc, g.like, g.gpus))


def _place(phase: str) -> int:
    return ORDER.index(phase) if phase in ORDER else len(ORDER)


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some jobs of one group. `next`: where the next page begins; None: there is none."""

    group: Group | None
    jobs: list[JobRow]
    first: int
    next: int | None


Wanted = tuple[str, str, str, int, str]  # vc, owner, like, gpus and phase of a group


def of_group(queries: PageQueries, wanted: Wanted) -> list[Brief]:
    """All jobs of a group, in the order they were submitted."""
    return [
        one
        for one in queries.briefs()
        if (one.vc, one.owner, alike(one.name), one.gpus, one.phase) == wanted
    ]


def members(queries: PageQueries, wanted: Wanted, first: int) -> GroupPage:
    """One page of a group."""
    same = of_group(queries, wanted)
    first = min(max(first, 0), len(same))
    ids = [one.job_id for one in same[first : first + ROWS]]
    rows = {job.job_id: job for job in queries.those(ids)}
    after = first + ROWS if first + ROWS < len(same) else None
    groups = grouped(same)
    shown: Sequence[JobRow] = [rows[job_id] for job_id in ids if job_id in rows]
    return GroupPage(groups[0] if groups else None, list(shown), first, after)
