"""Pages of figures: fairness, history, and how forecasts turned out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf

import numpy as np

from features.states import State
from scheduler.charts.chart import (
    DOT,
    TIP,
    Chart,
    Spec,
    against,
    coloured,
    drawn,
    duration_axis,
    hovered,
    lying,
    mark,
    moments,
    numbers,
    paint,
)
from scheduler.explain.claims import GRACE_S, Record
from scheduler.explain.words import DAY_S, HOUR_S, MINUTE_S, duration, percent
from scheduler.service.log.store.rows import JobRow, Page
from scheduler.service.log.store.short import FIGURES
from scheduler.service.pages.efficiency import Efficiency, efficiency
from scheduler.service.pages.queries import Kept, Outcome, PageQueries, Used

PERIODS = (
    ("day", "24 hours", DAY_S),
    ("week", "7 days", 7 * DAY_S),
    ("month", "30 days", 30 * DAY_S),
    ("all", "everything", 0.0),
)
ENDS = tuple(one.value for one in State if one not in (State.RUNNING, State.PENDING))
_WAITED = ("half at most", "9 of 10 at most")
_STATES = (("completed", 0), ("failed", 1), ("cancelled", 7))
BUCKETS = (MINUTE_S, 5 * MINUTE_S, 15 * MINUTE_S, HOUR_S, 6 * HOUR_S, DAY_S, 7 * DAY_S)
MOST_BUCKETS = 60


def since(period: str, now: float) -> float:
    """Return the first moment of a period that ends now (such as "week"), in seconds since the
    epoch. An unknown period counts as a week.
    """
    length = {name: s for name, _, s in PERIODS}.get(period, 7 * DAY_S)
    return now - length if length else 0.0


# --- fairness ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Portion:
    """What a virtual cluster, or one user of it, used: figures of jobs that ended in the period.

    `share`: part of all GPU-time of the period. `stretch`: median of JCT over time on GPUs: 1 =
    never waited. `used`: how much a user's jobs in the virtual cluster used of what they asked
    for; None in a row of a virtual cluster.
    """

    vc: str
    user: str
    jobs: int
    gpu_time_s: float
    share: float
    wait_p50_s: float | None
    wait_p90_s: float | None
    wait_max_s: float
    stretch: float | None
    used: Efficiency | None = None


@dataclass(frozen=True, slots=True)
class Fairness:
    """The content of the page on fairness."""

    vcs: list[Portion]
    users: list[Portion]
    charts: list[Chart]
    cut: bool  # quantiles are of the latest jobs only


def fairness(view: PageQueries, start: float, least: str = "") -> Fairness:
    """Return GPU-time and waits of jobs that ended since `start`, for every virtual cluster and for
    the users that the viewer may see.

    Args:
        least: the order of the users. "util" or "time": by the share that they used of their GPUs
            or of their time limits, the smallest first, unknown ones last. Else by GPU-time, the
            largest first.
    """
    ended = view.outcomes(start)
    rows = view.fairness(start)
    whole = sum(r.gpu_time_s for r in rows if not r.user) or 1.0
    by: dict[tuple[str, str], list[Used]] = {}
    for one in view.used(start):
        by.setdefault((one.owner, one.vc), []).append(one)
    used_by = {whose: efficiency(theirs) for whose, theirs in by.items()}
    portions = []
    for r in rows:
        own = [o for o in ended if o.vc == r.vc and (not r.user or o.user == r.user)]
        p50, p90 = _quantiles([o.wait_s for o in own], 0.5, 0.9)
        (stretch,) = _quantiles(
            [(o.ended_at - o.submitted_at) / max(o.ran_s, 1.0) for o in own], 0.5
        )
        portions.append(
            Portion(
                vc=r.vc,
                user=r.user,
                jobs=r.jobs,
                gpu_time_s=r.gpu_time_s,
                share=r.gpu_time_s / whole,
                wait_p50_s=p50,
                wait_p90_s=p90,
                wait_max_s=r.max_wait_s,
                stretch=stretch,
                used=used_by.get((r.user, r.vc)),
            )
        )
    vcs = sorted((p for p in portions if not p.user), key=lambda p: -p.gpu_time_s)
    users = sorted((p for p in portions if p.user), key=lambda p: -p.gpu_time_s)
    charts = [_waits_chart(vcs, ended)] if vcs else []
    if len(users) > 1:
        charts.append(_users_chart(users[:25]))
    if least in LEAST:
        users.sort(key=lambda p: _used(p, least))
    return Fairness(vcs, users, charts, len(ended) == FIGURES)


LEAST = ("util", "time")  # what the users who used the least of come first by


def _used(portion: Portion, of: str) -> float:
    """Return the share that a user's jobs used of what they asked for; inf where it is unknown.
    `of`: "util" or "time".
    """
    share = None if portion.used is None else getattr(portion.used, of)
    return inf if share is None else float(share)


def _quantiles(values: Sequence[float], *levels: float) -> list[float | None]:
    if not values:
        return [None] * len(levels)
    return [float(q) for q in np.quantile(values, levels)]


def _waits_chart(vcs: Sequence[Portion], ended: Sequence[Outcome]) -> Chart:
    """Return a chart of how long jobs waited, as one distribution per virtual cluster."""
    levels, rows = np.linspace(0.0, 1.0, 101), list[Spec]()
    shown = [p.vc for p in vcs[:7] if any(o.vc == p.vc for o in ended)]
    for vc in shown:
        for level, wait in zip(
            levels, np.quantile([o.wait_s for o in ended if o.vc == vc], levels), strict=True
        ):
            tip = f"{vc}: {level:.0%} waited at most {duration(float(wait))}"
            rows.append(
                {"name": vc, "wait": max(float(wait), 1.0), "share": float(level), "tip": tip}
            )
    dashes = [("", "dash", "dot", "longdash")[k % 4] for k in range(len(shown))]
    looks = coloured(shown, [paint(k) for k in range(len(shown))], *dashes)
    table = [[p.vc, _time(p.wait_p50_s), _time(p.wait_p90_s), duration(p.wait_max_s)] for p in vcs]
    return Chart(
        name="waits",
        title="Waiting",
        label=f"Share of jobs that waited at most so long, for {', '.join(shown)}",
        spec=drawn(
            rows,
            duration_axis("wait", "waited at most"),
            numbers("share", "of jobs", ends=(0, 1.01), format=".0%"),
            mark("line", looks, {"order": {"field": "share"}}),
            hovered(),
        ),
        head=("virtual cluster", "half at most", "9 of 10 at most", "longest"),
        rows=table,
        note="Share of jobs that waited at most so long.",
    )


def _users_chart(users: Sequence[Portion]) -> Chart:
    hours = [(f"{p.user} ({p.vc})", p.gpu_time_s / HOUR_S) for p in users]
    items = [(name, value, f"{value:,.3g} GPU hours") for name, value in hours]
    chart = lying("users", "GPU-time by user", f"GPU-time of {len(users)} users", items)
    return replace(chart, tall=len(users) > 8)


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


# --- history -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """The content of the page of ended jobs: charts over everybody's jobs, and rows of those that
    the viewer may see.
    """

    charts: list[Chart]
    page: Page[JobRow]
    jobs: int
    cut: bool


def history(
    view: PageQueries, start: float, *, vc: str, owner: str, state: str, after: str
) -> History:
    """Return the content of the page of jobs that ended since `start`. Raise BadCursor when `after`
    is no cursor.

    Args:
        vc, owner, state: only jobs of this virtual cluster, owner and end state; "": all.
        after: cursor of the page before; "": the first page.
    """
    chosen = {"vc": vc, "user": owner, "state": state}
    ended = [
        one
        for one in view.outcomes(start)
        if all(getattr(one, name) == value for name, value in chosen.items() if value)
    ]
    page = view.over(since=start, vc=vc, owner=owner, state=state, after=after)
    return History(_over_time(ended), page, len(ended), len(ended) == FIGURES)


def _over_time(ended: Sequence[Outcome]) -> list[Chart]:
    if len(ended) < 2:
        return []
    first, last = min(o.ended_at for o in ended), max(o.ended_at for o in ended)
    width = next((b for b in BUCKETS if (last - first) / b <= MOST_BUCKETS), BUCKETS[-1])
    slots: dict[float, list[Outcome]] = {}
    for o in ended:
        slots.setdefault(o.ended_at // width * width, []).append(o)
    times = sorted(slots)
    x = [datetime.fromtimestamp(m, UTC).strftime("%Y-%m-%d %H:%M") for m in times]
    known = {name for name, _ in _STATES}
    states, totals = dict[str, int](), list[list[int]]()
    counts, waits, under = list[Spec](), list[Spec](), [0] * len(times)
    for name, number in (*_STATES, ("other", 3)):
        y = [
            sum(o.state == name or (name == "other" and o.state not in known) for o in slots[m])
            for m in times
        ]
        totals.append(y)
        if any(y):
            states[name] = number
            counts += [
                {
                    "name": name,
                    "from": 1000 * m,
                    "to": 1000 * (m + 0.9 * width),
                    "over": below,
                    "up_to": below + n,
                    "tip": f"{at} UTC\n{name}: {n}",
                }
                for m, at, below, n in zip(times, x, under, y, strict=True)
            ]
            under = [below + n for below, n in zip(under, y, strict=True)]
    quantiles = [_quantiles([o.wait_s for o in slots[m]], 0.5, 0.9) for m in times]
    for m, at, found in zip(times, x, quantiles, strict=True):
        for name, wait in zip(_WAITED, found, strict=True):
            tip = f"{at} UTC\n{name} {_time(wait)}"
            waits.append({"name": name, "at": 1000 * m, "wait": max(wait or 0.0, 1.0), "tip": tip})
    every = duration(width)
    whole = {"x2": {"field": "to"}, "y2": {"field": "up_to"}}
    looks = coloured(_WAITED, [paint(0), paint(1)], "", "dash")
    dots = [
        mark("point", TIP, rows=[w for w in waits if w["name"] == name], color=paint(k), **DOT)
        for k, name in enumerate(_WAITED)
    ]
    return [
        Chart(
            name="ended",
            title="Jobs ended",
            label=f"Jobs ended every {every}, by how they ended",
            spec=drawn(
                counts,
                moments("from"),
                numbers("over", f"jobs per {every}", zero=True),
                mark("rect", whole, coloured([*states], [*map(paint, states.values())]), TIP),
            ),
            head=("from", "completed", "failed", "cancelled", "other"),
            rows=[[at, *(str(y[i]) for y in totals)] for i, at in enumerate(x)],
        ),
        Chart(
            name="waited",
            title="How long they had waited",
            label=f"Median and 90 % wait of jobs ended every {every}",
            spec=drawn(
                waits,
                moments("at"),
                duration_axis("wait"),
                mark("line", looks),
                *dots,
            ),
            head=("from", "half at most", "9 of 10 at most"),
            rows=[[at, *map(_time, found)] for at, found in zip(x, quantiles, strict=True)],
        ),
    ]


# --- forecasts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the calibration table: which share of some jobs (`kept`) started or ended at
    most `GRACE_S` seconds (the time to start a process) later than forecast.

    Attributes:
        among: which jobs. aim: the share that should be, such as 0.9.
        batches: effective number of batches (jobs that a user sent together): n^2 / sum n_i^2.
        kept_each: the mean over batches of that share.
    """

    text: str
    among: str
    aim: float
    kept: float | None
    jobs: int
    batches: float
    kept_each: float | None

    @property
    def margin(self) -> float:
        """Return two standard errors of the share, assuming that the aim is met exactly and that
        the jobs of one batch are late together; 1 without jobs.
        """
        return 2 * (self.aim * (1 - self.aim) / self.batches) ** 0.5 if self.jobs else 1.0

    @property
    def verdict(self) -> str:
        if self.kept is None:
            return "no forecast to score yet"
        if self.batches < FEWEST:
            return "too few to tell"
        if abs(self.kept - self.aim) <= max(self.margin, 0.05):
            return "as promised"
        return "too cautious" if self.kept > self.aim else "too hopeful"


@dataclass(frozen=True, slots=True)
class Promises:
    """The content of the page on how forecasts turned out."""

    lines: list[Promise]
    claims: list[Record]
    unavailable: int
    charts: list[Chart]


FEWEST = 20  # batches before a share is judged


def promises(view: PageQueries) -> Promises:
    """Return the content of the page on forecasts: how often starts and ends forecast at submission
    came true, in groups by the forecast, and how other claims turned out.

    The groups are formed by the forecast: to choose jobs by how long they waited would choose those
    that were late.
    """
    kept = view.kept()
    left_open = [k for k in kept if k.start_p50 < k.start_p90]
    near = [k for k in left_open if k.start_p90 < HOUR_S]
    far = [k for k in left_open if k.start_p90 >= HOUR_S]
    lines = [
        promise
        for among, some, ends in (
            ("start open at submission", left_open, True),
            ("start open, p90 within an hour", near, False),
            ("start open, p90 later", far, False),
            ("all jobs, most of them certain to start at once", kept, True),
        )
        for promise in _lines(among, some, ends=ends)
    ]
    errors = [(k.start_p50, k.start_p90, k.start) for k in kept[:500]]
    return Promises(lines, view.claims(view.now()), view.unforeseen(), _promised(errors))


def _lines(among: str, some: Sequence[Kept], *, ends: bool) -> Iterator[Promise]:
    rows: list[tuple[str, list[tuple[float | None, float | None, float | None, int]]]]
    rows = [("started", [(k.start_p50, k.start_p90, k.start, k.batch) for k in some])]
    if ends:
        rows.append(("ended", [(k.end_p50, k.end_p90, k.end, k.batch) for k in some]))
    for what, forecasts in rows:
        for i, (name, aim) in enumerate((("p50", 0.5), ("p90", 0.9))):
            held: dict[int, list[bool]] = {}
            for row in forecasts:
                promised, true, batch = row[i], row[2], row[3]
                if promised is not None and true is not None:
                    held.setdefault(batch, []).append(true <= promised + GRACE_S)
            yield _promise(f"{what} by the {name} forecast", among, aim, list(held.values()))


def _promise(text: str, among: str, aim: float, held: Sequence[Sequence[bool]]) -> Promise:
    """Return a line of the calibration table. `held`: for each batch, whether each of its jobs was
    no later than forecast.
    """
    jobs = sum(map(len, held))
    if not jobs:
        return Promise(
            text=text, among=among, aim=aim, kept=None, jobs=0, batches=0.0, kept_each=None
        )
    kept = sum(map(sum, held)) / jobs
    each = sum(sum(one) / len(one) for one in held) / len(held)
    batches = jobs**2 / sum(len(one) ** 2 for one in held)
    return Promise(
        text=text, among=among, aim=aim, kept=kept, jobs=jobs, batches=batches, kept_each=each
    )


def _promised(errors: Sequence[tuple[float, float, float]]) -> list[Chart]:
    if len(errors) < 3:
        return []
    rows = [
        {
            "x": max(p90, 1.0),
            "y": max(true, 1.0),
            "tip": f"promised at most {duration(p90)}, waited {duration(true)}",
        }
        for _, p90, true in errors
    ]
    early = sum(t <= p + GRACE_S for _, p, t in errors)
    return [
        Chart(
            name="promised",
            title="Promised and true waits",
            label=f"Of {len(errors)} jobs {early} started by their p90 forecast",
            spec=against(
                rows,
                duration_axis("x", "p90 forecast at submission"),
                duration_axis("y", "true wait"),
            ),
            head=("jobs", "started by p90"),
            rows=[[str(len(errors)), percent(early / len(errors))]],
            note="Below the line: started earlier than the p90 forecast. The latest jobs.",
            tall=True,
        )
    ]
