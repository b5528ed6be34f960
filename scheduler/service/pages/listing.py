"""The table of jobs that users of a Slurm site expect: ID first, with search, sorting and filters.

All choices are part of the page's address, so that a table can be sent to somebody, or fetched as
CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Any
from urllib.parse import urlencode

from scheduler.core.plural import count
from scheduler.explain.stories import counting, sentence_now
from scheduler.explain.words import duration, number, percent
from scheduler.service.log.store.short import HOLDING, WAITING, Key, Own, Short, Tally
from scheduler.service.log.store.tables import digits_of
from scheduler.service.pages.efficiency import efficiency
from scheduler.service.pages.queries import DAY_S, PageQueries
from scheduler.slurm import reason as slurm

ROWS = 100  # on a page
AT_ONCE = 500  # jobs read in one go, of all
PERIOD_S = 7 * DAY_S  # of the figures about a person or an account
COLUMNS = (
    ("job_id", "ID"), ("name", "name"), ("owner", "user"), ("account", "account"),
    ("qos", "QOS"), ("partition", "partition"), ("gpus", "GPUs"), ("phase", "state"),
    ("reason", "reason"), ("since", "since"), ("start_p50", "expected"),
)  # fmt: skip
_KEYS = {name for name, _ in COLUMNS}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The choices of a table of jobs.

    Attributes:
        find: part of an ID or a name.
        owner, account, partition, state: exact values; "": any.
        without: show jobs without GPUs instead of those with.
        sort: a column of `COLUMNS`; with "-" in front, the largest first.
    """

    find: str = ""
    owner: str = ""
    account: str = ""
    partition: str = ""
    state: str = ""
    without: bool = False
    sort: str = "job_id"

    @property
    def by(self) -> str:
        """Return the column by which the table is sorted."""
        name = self.sort.removeprefix("-")
        return name if name in _KEYS else "job_id"

    def address(self, **other: object) -> str:
        """Return the query string for these choices, with the choices in `other` in place of the
        present ones.
        """
        asked = {name: getattr(self, name) for name in Wanted.__slots__} | other
        kept = {name: value for name, value in asked.items() if value}
        if kept.get("sort") == "job_id":
            del kept["sort"]
        if "without" in kept:
            kept["without"] = 1
        return urlencode(kept)

    def turned(self, column: str) -> str:
        """Return the query string that sorts by a column; in the other direction where the table is
        sorted by that column already.
        """
        return self.address(sort=f"-{column}" if self.sort == column else column)


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the table: a job, and why it waits, in words with the present numbers."""

    job: Short
    reason: str


@dataclass(frozen=True)
class Listing:
    """One page of the table of jobs.

    Attributes:
        rows: rows of this page. all: how many jobs match on all pages.
        begins: whether this page is the first. next: what the address of the next page names, so
            that it begins there; None: this page is the last.
        others: number of jobs of the other kind (without GPUs, or with).
        owners, accounts, partitions: values that can be chosen.
        tiles: figures about the chosen person or account.
    """

    wanted: Wanted
    rows: Sequence[Listed]
    all: int
    begins: bool
    next: Mapping[str, str | int] | None
    others: int
    owners: Sequence[str]
    accounts: Sequence[str]
    partitions: Sequence[str]
    tiles: Sequence[tuple[str, str, str]]


def listing(view: PageQueries, wanted: Wanted, first: int = 0, after: str = "") -> Listing:
    """Return one page of the table of jobs.

    Args:
        wanted: what is searched for, and how the table is sorted.
        first: place of the page's first job among all matching jobs; `ROWS` are shown.
        after: id of the job before that one, where the table is sorted by ids: then the page costs
            the same wherever it is. Any other table leaves it aside.
    """
    tally = view.tally()
    asked = {name: getattr(wanted, name) for name in _CHOICES}
    only = asked | {"phase": wanted.state}
    seek: dict[str, str | int] = {}
    if wanted.by == "job_id" and not wanted.find:
        back = wanted.sort.startswith("-")
        count = sum(one.jobs for one in tally if one.gpus is not wanted.without and _is(one, only))
        first = 0 if after else min(max(first, 0), count)
        ids = view.in_order(
            ROWS + 1, gpus=not wanted.without, back=back, after=after, first=first, **only
        )
        if len(ids) > ROWS:
            seek = {"after": ids[ROWS - 1]}
    else:
        ids, after = chosen(view, wanted), ""
        count = len(ids)
        first = min(max(first, 0), count)
        if first + ROWS < count:
            seek = {"first": first + ROWS}
        ids = ids[first : first + ROWS]
    owners, accounts, partitions = (
        sorted({getattr(one, name) for one in tally} - {""}) for name in _CHOICES
    )
    return Listing(
        wanted=wanted,
        rows=with_reasons(view, view.named(ids[:ROWS])),
        all=count,
        begins=not (first or after),
        next=seek or None,
        others=sum(one.jobs for one in tally if one.gpus is wanted.without),
        owners=owners,
        accounts=accounts,
        partitions=partitions,
        tiles=_tiles(view, wanted) if wanted.owner or wanted.account else (),
    )


def _is(one: Tally, only: Mapping[str, str]) -> bool:
    return all(value in ("", getattr(one, name)) for name, value in only.items())


_CHOICES = "owner", "account", "partition"


def chosen(view: PageQueries, wanted: Wanted) -> list[str]:
    """Return the IDs of all jobs that match the choices, in order. A job that has ended is found
    only by its whole ID, whether it asks for GPUs or not.
    """
    word, asked = wanted.find.casefold(), {name: getattr(wanted, name) for name in _CHOICES}
    keys = view.keys(wanted.by, gpus=not wanted.without, phase=wanted.state, **asked)
    if word:
        keys = [one for one in keys if word in one.job_id.casefold() or word in one.name.casefold()]
        keys += _by_id(view, wanted, keys)
    of = _key(wanted.by)
    keys.sort(key=lambda one: of(one.value), reverse=wanted.sort.startswith("-"))
    if wanted.by != "job_id":  # nobody knows: at the end, whichever way it is sorted
        keys.sort(key=lambda one: one.value in (None, ""))
    return [one.job_id for one in keys]


def _by_id(view: PageQueries, wanted: Wanted, there: Sequence[Key]) -> list[Key]:
    """Return the job whose id is searched for, if it passes the other filters and is not in
    `there`. Otherwise return [].
    """
    if any(one.job_id == wanted.find for one in there):
        return []
    asked = {"phase": wanted.state} | {name: getattr(wanted, name) for name in _CHOICES}
    return [
        Key(job.job_id, job.name, getattr(job, wanted.by))
        for job in view.named([wanted.find])
        if all(value in ("", getattr(job, name)) for name, value in asked.items())
    ]


def _key(column: str) -> Callable[[Any], tuple[Any, ...]]:
    def of(value: Any) -> tuple[Any, ...]:
        if column == "job_id":  # as `tables.by_id`
            return (digits_of(value), value)
        if value is None:
            return (0.0,)
        return (value.casefold(),) if isinstance(value, str) else (float(value),)

    return of


def every_row(view: PageQueries, wanted: Wanted) -> Iterator[Listed]:
    """Yield all matching jobs, in order, read some hundreds at a time."""
    ids = chosen(view, wanted)
    for i in range(0, len(ids), AT_ONCE):
        yield from with_reasons(view, view.named(ids[i : i + AT_ONCE]))


def with_reasons(view: PageQueries, jobs: Sequence[Short]) -> list[Listed]:
    """Return jobs as rows of the table, each with why it waits, in words with the present numbers.
    Of an ended job that is how it ended, of one on GPUs "".
    """
    now = view.now()
    ids = [job.job_id for job in jobs if job.phase in WAITING and not job.slurm]
    lines, rows = view.latest_decisions(ids), {job.job_id: job for job in view.those(ids)}
    counts = counting(view.nodes_now)
    found = []
    for job in jobs:
        text = ""
        if job.hold:
            text = f"held by {'its owner' if job.hold == 'owner' else job.held_by}"
        elif job.phase not in WAITING:
            text = (job.state or "").replace("_", " ")
        elif job.slurm:
            text = slurm.headline(job.why(), job.job_id, now)
        elif (line := lines.get(job.job_id)) is not None and job.job_id in rows:
            text = sentence_now(counts, rows[job.job_id], line, None)
        found.append(Listed(job, text))
    return found


def _tiles(view: PageQueries, wanted: Wanted) -> list[tuple[str, str, str]]:
    """Return tiles about a user or an account, as (figure, label, note): the GPUs asked for and
    held, the jobs waiting, and the results of the last seven days.
    """
    own = view.own(owner=wanted.owner, account=wanted.account)
    asked = sum(job.gpus for job in own)
    had = sum(job.gpus for job in own if job.phase in HOLDING)
    waits = [job for job in own if job.phase in WAITING]
    tiles = [
        (f"{had} of {asked}", "GPUs had of those asked for", percent(had / asked) if asked else ""),
        (f"{len(waits)}", "jobs waiting", _waiting_since(view.now(), waits)),
    ]
    ended = view.outcomes(view.now() - PERIOD_S, accounts=bool(wanted.account))
    over = [
        job
        for job in ended
        if wanted.owner in ("", job.user) and wanted.account in ("", job.account)
    ]
    if over:
        waited = sorted(job.wait_s for job in over)
        hours = sum(job.gpus * job.ran_s for job in over) / 3600
        lost = sum(job.gpus * job.ran_s for job in over if job.state != "completed") / 3600
        tiles += [
            (f"{number(hours)} h", "GPU-hours in seven days", count(len(over), "job")),
            (percent(lost / hours) if hours else "–", "of them in jobs that did not complete", ""),
            (duration(median(waited)), "median wait in seven days",
             f"one in ten waited over {duration(waited[int(0.9 * (len(waited) - 1))])}"),
        ]  # fmt: skip
    used = efficiency(
        one
        for one in view.used(view.now() - PERIOD_S)
        if wanted.owner in ("", one.owner) and wanted.account in ("", one.account)
    )
    if used.util is not None:
        most = "" if used.mem_mib is None else f", {used.mem_mib / 1024:.3g} GiB at most"
        known = f"{percent(used.measured)} of GPU-hours measured{most}"
        tiles.append((percent(used.util), "GPU use (7 days)", known))
    if used.time is not None:
        tiles.append((percent(used.time), "of limits used", ""))
    return tiles


def _waiting_since(now: float, waits: Sequence[Own]) -> str:
    """Return in words how long ago the waiting jobs were submitted, or held; "" where none
    waits.
    """
    ago = sorted(now - job.since for job in waits if job.since is not None)
    if len(ago) < 2:
        return f"submitted or held {duration(ago[0])} ago" if ago else ""
    return f"submitted or held: half over {duration(median(ago))} ago, one {duration(ago[-1])} ago"


# --- as CSV --------------------------------------------------------------------------------------


def as_csv(rows: Iterable[Listed]) -> str:
    """Return a table as CSV for a spreadsheet; times are ISO 8601, UTC. A cell that a spreadsheet
    would read as a formula is made plain text.
    """
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow([heading for _, heading in COLUMNS])
    for row in rows:
        job = row.job
        writer.writerow(
            map(
                _plain,
                (
                    job.job_id,
                    job.name,
                    job.owner,
                    job.account,
                    job.qos,
                    job.partition,
                    str(job.gpus),
                    job.phase,
                    row.reason,
                    _iso(job.since),
                    _iso(job.start_p50),
                ),
            )
        )
    return out.getvalue()


def _plain(text: str) -> str:
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _iso(epoch_s: float | None) -> str:
    return "" if epoch_s is None else f"{datetime.fromtimestamp(epoch_s, UTC):%Y-%m-%dT%H:%M:%SZ}"
