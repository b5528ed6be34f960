"""Pages of figures: fairness, history, and how forecasts turned out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf

import numpy as np

from features.states import State
from scheduler.charts.chart import Chart, Layout, Trace, bars, duration_axis, line
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
    data, head = list[Trace](), list[str]()
    for k, p in enumerate(vcs[:7]):
        own = sorted(o.wait_s for o in ended if o.vc == p.vc)
        if not own:
            continue
        levels = np.linspace(0.0, 1.0, 101)
        x = [max(float(q), 1.0) for q in np.quantile(own, levels)]
        y = [round(100 * float(v)) for v in levels]
        dash = ("solid", "dash", "dot", "dashdot")[k % 4]
        data.append(
            {
                **line(x, y, p.vc, k, dash=dash),
                "hovertemplate": "%{name}: %{y} % waited at most %{x:.0f} s",
            }
        )
        head.append(p.vc)
    rows = [[p.vc, _time(p.wait_p50_s), _time(p.wait_p90_s), duration(p.wait_max_s)] for p in vcs]
    return Chart(
        name="waits",
        title="Waiting",
        label=f"Share of jobs that waited at most so long, for {', '.join(head)}",
        data=data,
        layout={
            "xaxis": duration_axis("waited at most"),
            "yaxis": {"title": {"text": "% of jobs"}, "range": [0, 101]},
        },
        head=("virtual cluster", "half at most", "9 of 10 at most", "longest"),
        rows=rows,
        note="Share of jobs that waited at most so long.",
    )


def _users_chart(users: Sequence[Portion]) -> Chart:
    names = [f"{p.user} ({p.vc})" for p in users]
    return Chart(
        name="users",
        title="GPU-time by user",
        label=f"GPU-time of {len(users)} users",
        data=[
            {
                **bars([p.gpu_time_s / HOUR_S for p in users], names, "GPU hours"),
                "orientation": "h",
                "hovertemplate": "%{y}: %{x:.3g} GPU hours",
            }
        ],
        layout={
            "yaxis": {"type": "category", "autorange": "reversed"},
            "xaxis": {"title": {"text": "GPU hours"}},
        },
        tall=len(users) > 8,
    )


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else duration(seconds)


# --- history -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class History:
    """The content of the page of ended jobs: charts over everybody's jobs, and rows of the
    viewer's.
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
    moments = sorted(slots)
    x = [datetime.fromtimestamp(m, UTC).strftime("%Y-%m-%d %H:%M") for m in moments]
    known = {name for name, _ in _STATES}
    data, totals = [], []
    for name, colour in (*_STATES, ("other", 3)):
        y = [
            sum(o.state == name or (name == "other" and o.state not in known) for o in slots[m])
            for m in moments
        ]
        totals.append(y)
        if any(y):
            data.append(bars(x, y, name, colour))
    p50, p90 = zip(
        *(_quantiles([o.wait_s for o in slots[m]], 0.5, 0.9) for m in moments), strict=True
    )
    every = duration(width)
    axis: Layout = {"xaxis": {"type": "date"}}
    floor = [[max(v or 0.0, 1.0) for v in q] for q in (p50, p90)]
    return [
        Chart(
            name="ended",
            title="Jobs ended",
            label=f"Jobs ended every {every}, by how they ended",
            data=data,
            layout={**axis, "barmode": "stack", "yaxis": {"title": {"text": f"jobs per {every}"}}},
            head=("from", "completed", "failed", "cancelled", "other"),
            rows=[[at, *(str(y[i]) for y in totals)] for i, at in enumerate(x)],
        ),
        Chart(
            name="waited",
            title="How long they had waited",
            label=f"Median and 90 % wait of jobs ended every {every}",
            data=[
                line(x, floor[0], "half at most", 0, mode="lines+markers"),
                line(x, floor[1], "9 of 10 at most", 1, mode="lines+markers", dash="dash"),
            ],
            layout={**axis, "yaxis": duration_axis("")},
            head=("from", "half at most", "9 of 10 at most"),
            rows=[[at, _time(a), _time(b)] for at, a, b in zip(x, p50, p90, strict=True)],
        ),
    ]


# --- forecasts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Promise:
    """One line of the calibration table: which share of some jobs (`kept`) started or ended no
    later than forecast.

    Attributes:
        among: which jobs. aim: the share that should be, such as 0.9.
        batches: effective number of batches (jobs that a user sent together): n^2 / sum n_i^2.
        kept_each: the mean over batches of the share that was no later than forecast.
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
        the jobs of one batch are late together.
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
    """Return how often starts forecast at submission came true, in groups by the forecast.

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
    p90s = [max(p90, 1.0) for _, p90, _ in errors]
    true = [max(t, 1.0) for *_, t in errors]
    ends = [1.0, max(*p90s, *true)]
    points: Trace = {
        "type": "scatter", "mode": "markers", "x": p90s, "y": true, "name": "job",
        "marker": {"color": "--s0", "size": 5, "opacity": 0.55},
        "hovertemplate": "promised at most %{x:.0f} s, waited %{y:.0f} s",
        "showlegend": False,
    }  # fmt: skip
    diagonal = line(ends, ends, "as promised", 7, dash="dot", width=1, hoverinfo="skip")
    early = sum(t <= p + GRACE_S for _, p, t in errors)
    return [
        Chart(
            name="promised",
            title="Promised and true waits",
            label=f"Of {len(errors)} jobs {early} started by their p90 forecast",
            data=[diagonal, points],
            layout={
                "xaxis": duration_axis("p90 forecast at submission"),
                "yaxis": duration_axis("true wait"),
            },
            head=("jobs", "started by p90"),
            rows=[[str(len(errors)), percent(early / len(errors))]],
            note="Below the line: started earlier than the p90 forecast. The latest jobs.",
            tall=True,
        )
    ]
