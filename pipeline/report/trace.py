"""Charts of a trace: when jobs come, how long and large they are, who submits them, and how they
end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from features.codec import Json
from features.given import LARGE, read_given
from pipeline.explain.run import seconds
from pipeline.report.comparison import PolicyRun
from pipeline.tables import Floats, filled, floats, groups, sizes
from pipeline.traces import read_dataset
from scheduler.charts.chart import (
    TIP,
    Chart,
    Spec,
    coloured,
    drawn,
    duration_axis,
    hovered,
    lying,
    mark,
    names,
    numbers,
    paint,
    rows_of,
    shaded,
)
from scheduler.core.plural import count
from scheduler.explain.words import DAY_S, duration, percent

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHOWN = 12


@dataclass
class TraceFacts:
    """The parts of a trace that the report shows.

    Attributes:
        jobs: table with submit_time (seconds since the epoch), gpus, duration_s (null: unknown),
            user, vc, and state ("" if not recorded).
        source: where the trace comes from, in one line.
        provenance: content of the dataset's `provenance.json`; {} if the jobs come from a run.
        capacity: number of GPUs by virtual cluster; {} if unknown.
    """

    jobs: pa.Table
    source: str
    provenance: Json
    capacity: dict[str, int]

    @property
    def span_s(self) -> float:
        """Return the seconds between the first and the last submission."""
        times = floats(self.jobs["submit_time"])
        return float(times.max() - times.min()) if len(times) else 0.0

    @property
    def known_s(self) -> Floats:
        """Return the durations of jobs, seconds, without unknown ones."""
        return floats(self.jobs["duration_s"].drop_null())

    @property
    def gpu_s(self) -> Floats:
        """Return the GPU-time of each job, seconds; 0 if its duration is not known."""
        return np.nan_to_num(floats(self.jobs["duration_s"])) * floats(self.jobs["gpus"])

    @property
    def kind(self) -> str:
        """Return the name of the trace: "synthetic", or the name of the first file that it was read
        from; "" if unknown."""
        if self.source.startswith("synthetic"):
            return "synthetic"
        files = self.provenance.get("files")
        if isinstance(files, list) and files and isinstance(files[0], dict):
            return str(files[0].get("name", ""))
        return ""

    @property
    def has_states(self) -> bool:
        """Return whether the trace says how jobs ended."""
        return any(sizes(self.jobs["state"]))


def from_dataset(folder: Path, run: PolicyRun | None = None) -> TraceFacts:
    """Return the facts about the dataset in `folder`, with the number of GPUs from `run`. Raise
    TraceError if the folder holds no dataset."""
    table = read_dataset(folder).select(
        ["submit_time", "gpus", "duration_s", "user", "vc", "state"]
    )
    jobs = filled(seconds(table), user="(none)", vc="(none)", state="")
    provenance = _object(folder / "provenance.json")
    source = str(provenance.get("source", folder.name))
    return TraceFacts(jobs, source, provenance, _capacity(run))


def from_run(run: PolicyRun) -> TraceFacts:
    """Return the facts about the jobs of a run, for when no dataset is given. The jobs have no
    states."""
    kept = run.jobs.select(["submit_time", "gpus", "duration_s", "user", "vc"])
    kept = kept.append_column("state", pa.repeat("", len(kept)))
    return TraceFacts(kept, "the jobs of the runs compared", {}, _capacity(run))


def _capacity(run: PolicyRun | None) -> dict[str, int]:
    if run is None:
        return {}
    return run.gpus_by_vc


def _object(path: Path) -> Json:
    try:
        value = json.loads(read_given(path, LARGE))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


# --- words ---------------------------------------------------------------------------------------


def summary(t: TraceFacts) -> str:
    """Return a description of the trace in up to three sentences."""
    jobs = t.jobs
    if not len(jobs):
        return "The trace holds no job."
    known, users, vcs = t.known_s, sizes(jobs["user"]), sizes(jobs["vc"])
    text = (
        f"{count(len(jobs), 'job')} from {count(len(users), 'user')} in "
        f"{count(len(vcs), 'virtual cluster')} over {duration(t.span_s)}."
    )
    if len(known):
        share = _top_share(known, 0.05)
        text += (
            f" Half of them run for less than {duration(float(np.median(known)))}, the mean is "
            f"{duration(float(known.mean()))}: the longest 5 % hold {percent(share)} of the "
            "running time."
        )
    gpus, time = floats(jobs["gpus"]), t.gpu_s
    single = float((gpus == 1).mean())
    if time.sum() > 0:
        wide = float(time[gpus >= 8].sum() / time.sum())
        text += (
            f" {percent(single)} ask for one GPU; those of 8 or more take {percent(wide)} of the "
            "GPU-time."
        )
    return text


def _top_share(values: Floats, part: float) -> float:
    ordered = np.sort(values)[::-1]
    return float(ordered[: max(1, round(part * len(ordered)))].sum() / max(ordered.sum(), 1e-12))


# --- charts --------------------------------------------------------------------------------------


def charts(t: TraceFacts) -> list[Chart]:
    """Return all charts of the trace; that of states only if the trace has them."""
    found = [per_day(t), by_hour(t), durations(t), users(t), gpu_counts(t), vc_loads(t)]
    return found + ([states(t)] if t.has_states else [])


def per_day(t: TraceFacts) -> Chart:
    """Return a chart of jobs submitted per day; per week if the trace is longer than half a
    year."""
    what, days = ("week", 7) if t.span_s > 180 * DAY_S else ("day", 1)
    at = (_day(t) + 3) // days  # weeks begin on Monday, and 1 January 1970 was a Thursday
    values = np.bincount(at - at.min()).tolist()
    first = np.datetime64(int(at.min()) * days - 3, "D")
    starts = (first + days * np.arange(len(values))).astype(str).tolist()
    return Chart(
        name="per-day",
        title=f"Jobs per {what}",
        label=f"Jobs per {what}: from {min(values):,} to {max(values):,}, "
        f"mean {np.mean(values):,.0f}",
        spec=drawn(
            rows_of(day=starts, jobs=values, tip=map("{}: {:,} jobs".format, starts, values)),
            names("day", among=starts, most=6),
            numbers("jobs", "jobs", zero=True),
            mark("bar", TIP, color=paint(0)),
        ),
        head=(what, "jobs"),
        rows=[[start, f"{value:,}"] for start, value in zip(starts, values, strict=True)],
    )


def _day(t: TraceFacts) -> NDArray[np.int64]:
    """Return the day on which each job was submitted, in days since the epoch (UTC)."""
    return (floats(t.jobs["submit_time"]) // DAY_S).astype(np.int64)


def by_hour(t: TraceFacts) -> Chart:
    """Return a chart of the number of jobs submitted by weekday and hour (UTC)."""
    hour = floats(t.jobs["submit_time"]) % DAY_S // 3600
    cells = np.zeros((7, 24), dtype=int)
    np.add.at(cells, ((_day(t) + 3) % 7, hour.astype(int)), 1)
    busiest = np.unravel_index(int(cells.argmax()), cells.shape)
    hours, most = [f"{hour:02d}" for hour in range(24)], max(int(cells.max()), 1)
    return Chart(
        name="by-hour",
        title="Hour of the week",
        label="Jobs by weekday and hour of submission; busiest "
        f"{WEEKDAYS[busiest[0]]} {busiest[1]:02d}:00 UTC",
        spec=shaded(
            [
                (
                    hour,
                    day,
                    (n / most) ** 0.5,
                    f"{day} {hour}:00: {count(n, 'job')}",
                )
                for day, row in zip(WEEKDAYS, cells.tolist(), strict=True)
                for hour, n in zip(hours, row, strict=True)
            ],
            names("x", "hour (UTC)", among=hours, most=8),
            names("y", among=WEEKDAYS),
            [((n / most) ** 0.5, count(n, "job")) for n in sorted({1, most // 4, most} - {0})],
        ),
        head=("day", *hours),
        rows=[[day, *map(str, row)] for day, row in zip(WEEKDAYS, cells.tolist(), strict=True)],
        note="The shade grows with the square root of the submissions.",
    )


def durations(t: TraceFacts) -> Chart:
    """Return a histogram of the jobs' durations, on a logarithmic axis."""
    known = t.known_s
    edges, counts = log_histogram(known)
    label = f"Durations: median {duration(float(np.median(known)) if len(known) else 0.0)}"
    if len(known):
        label += f", 90th percentile {duration(float(np.percentile(known, 90)))}"
    texts = [f"{duration(a)} to {duration(b)}" for a, b in pairwise(edges.tolist())]
    jobs = counts.tolist()
    tips = [f"{text}: {count(n, 'job')}" for text, n in zip(texts, jobs, strict=True)]
    x = duration_axis("low", "duration on exclusive GPUs")
    return Chart(
        name="durations",
        title="How long jobs run",
        label=label,
        spec=drawn(
            rows_of(low=edges[:-1].tolist(), high=edges[1:].tolist(), jobs=jobs, tip=tips),
            x,
            numbers("jobs", "jobs", zero=True),
            mark("rect", {"x2": {"field": "high"}, "y2": {"datum": 0}}, TIP, color=paint(0)),
        ),
        head=("duration", "jobs"),
        rows=[[text, f"{n:,}"] for text, n in zip(texts, jobs, strict=True)],
        note="The first bar holds 1 s or less.",
    )


def gpu_counts(t: TraceFacts) -> Chart:
    """Return a chart of the shares of jobs and of GPU-time, by number of GPUs asked for: of the
    `SHOWN` most frequent numbers."""
    gpus, time = floats(t.jobs["gpus"]), t.gpu_s
    total = max(float(time.sum()), 1e-12)
    items = []
    for g in sorted([*sizes(t.jobs["gpus"])][:SHOWN]):
        share, taken = float((gpus == g).mean()), float(time[gpus == g].sum() / total)
        items.append((count(g, "GPU"), share, f"{percent(share)} · {percent(taken)}"))
    label = "Share of jobs, then of GPU-time, by GPUs asked for"
    note = "Share of jobs, then share of GPU-time."
    return lying("gpu-counts", "GPUs asked for", label, items, note=note)


def states(t: TraceFacts) -> Chart:
    """Return a chart of the shares of jobs by the state in which they ended."""
    shares = {s: n / len(t.jobs) for s, n in sizes(t.jobs["state"]).items()}
    items = [(s.replace("_", " ") or "not stated", v, percent(v)) for s, v in shares.items()]
    return lying("states", "How jobs end", "How jobs ended", items)


def users(t: TraceFacts) -> Chart:
    """Return a chart of how unequal users are: cumulative shares of jobs and of GPU-time, the
    heaviest user first."""
    time, of_user = t.gpu_s, groups(t.jobs["user"]).values()
    rows, shares_held = list[Spec](), list[str]()
    held = {"jobs": [*map(len, of_user)], "GPU-time": [time[own].sum() for own in of_user]}
    for name, values in held.items():
        ordered = np.sort(np.array(values, np.float64))[::-1]
        shares = np.cumsum(ordered) / max(float(ordered.sum()), 1e-12)
        at = np.arange(1, len(ordered) + 1) / len(ordered)
        shown = np.unique(np.linspace(0, len(at) - 1, 200).astype(int))
        rows.append({"name": name, "users": 0.0, "held": 0.0, "tip": ""})
        rows += [
            {"name": name, "users": a, "held": b, "tip": f"{a:.0%} of users: {b:.0%} of {name}"}
            for a, b in zip(
                at[shown].round(4).tolist(), shares[shown].round(4).tolist(), strict=True
            )
        ]
        tenth = percent(float(np.interp(0.1, at, shares)))
        shares_held.append(f"the top tenth of users hold {tenth} of {name}")
    return Chart(
        name="users",
        title="How unequal users are",
        label=f"Users by weight, {len(of_user)} in all: {'; '.join(shares_held)}",
        spec=drawn(
            rows,
            numbers("users", "share of users, the heaviest first", ends=(0, 1), format=".0%"),
            numbers("held", "share held", ends=(0, 1), format=".0%"),
            mark("line", coloured([*held], [paint(0), paint(1)], "", "dash")),
            hovered(),
        ),
        note=f"T{'; '.join(shares_held)[1:]}.",
    )


def vc_loads(t: TraceFacts) -> Chart:
    """Return a chart of the offered load by virtual cluster: GPU-time of its jobs / GPU-time of its
    GPUs over the trace.

    If the numbers of GPUs are unknown, show each virtual cluster's share of the jobs' GPU-time.
    Only the 18 with the largest figures are shown."""
    each = t.gpu_s
    time = {vc: float(each[rows].sum()) for vc, rows in groups(t.jobs["vc"]).items()}
    if t.capacity and t.span_s > 0:
        loads = {
            vc: time.get(vc, 0.0) / (gpus * t.span_s) for vc, gpus in t.capacity.items() if gpus
        }
        items = [(vc, v, percent(v)) for vc, v in loads.items()]
        label, limit = "Offered load by virtual cluster (100 % = all its GPUs, always)", 1.0
        note = "GPU-time asked for over GPU-time there is; at 100 % no GPU ever rests."
    else:
        total = max(float(each.sum()), 1e-12)
        items = [(vc, v / total, percent(v / total)) for vc, v in time.items()]
        label, limit, note = "Share of GPU-time asked for by virtual cluster", 0.0, ""
    items = sorted(items, key=lambda item: -item[1])[:18]
    note = note or "Share of all GPU-time asked for."
    return lying("vc-loads", "Load by virtual cluster", label, items, limit=limit, note=note)


def log_histogram(values: Floats, bins_per_decade: int = 5) -> tuple[Floats, NDArray[np.int64]]:
    """Return (edges, counts) of a histogram in equal steps of the logarithm. Values below 1 count
    as 1."""
    kept = np.clip(values, 1.0, None)
    top = max(np.log10(kept.max(initial=10.0)), 1.0)
    edges = 10 ** np.arange(0, top + 1.0 / bins_per_decade, 1.0 / bins_per_decade)
    edges[-1] = max(edges[-1], kept.max(initial=10.0) * 1.0001)
    counts, _ = np.histogram(kept, edges)
    return edges, counts.astype(np.int64)
