"""Pages of groups of one person's jobs. Jobs with the same kind of name, size and state form a
group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scheduler.service.log.store.rows import JobRow
from scheduler.service.pages.queries import Group, PageQueries

GROUPS = 40  # on the board, the largest first
ROWS = 100  # jobs on a page of one group
ORDER = ("running", "starting", "profiling", "queued", "submitted", "held")


def in_order(groups: Iterable[Group]) -> list[Group]:
    """Return groups ordered by the state of their jobs, the largest first within each state."""
    return sorted(groups, key=lambda g: (ORDER.index(g.phase), -g.jobs, g.vc, g.like, g.gpus))


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Some jobs of one group. `first`: place of the first of them in the group; `next`: place at
    which the next page begins; None where there is none.
    """

    group: Group | None
    jobs: list[JobRow]
    first: int
    next: int | None


def group_page(queries: PageQueries, which: Mapping[str, str | int], first: int) -> GroupPage:
    """Return one page of a group of similar jobs. `which`: what its jobs have in common
    (`queries.groups`); `first`: place of the first job to show.
    """
    groups, same = queries.groups(**which), queries.members(**which)
    first = min(max(first, 0), len(same))
    ids = same[first : first + ROWS]
    rows = {job.job_id: job for job in queries.those(ids)}
    after = first + ROWS if first + ROWS < len(same) else None
    shown = [rows[job_id] for job_id in ids if job_id in rows]
    return GroupPage(groups[0] if groups else None, shown, first, after)
