"""The trace: when jobs come, how long and how large they are, whose, and how they end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from features.plain import Json
from pipeline.report.charts import Axis, Shading, columns, heatmap, lines, log_histogram, rows
from pipeline.report.comparison import PolicyRun
from pipeline.report.svg import DURATION_TICKS, Frame, Scale, legend, ticks
from pipeline.traces import read_dataset
from scheduler.core.plural import count
from scheduler.explain.words import DAY_S, duration, percent

Floats = NDArray[np.float64]

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
SHOWN = 12


@dataclass
class TraceFacts:
    """A trace as the report needs it.

    Attributes:
        jobs: submit_time (seconds since the epoch), gpus, duration_s (NaN unknown), user, vc,
            state ("" when not recorded).
        source: one line: where it comes from.
        provenance: what the dataset says of itself; empty when drawn from a run.
        capacity: GPUs by virtual cluster, where known.
    """

    jobs: pd.DataFrame
    source: str
    provenance: Json
    capacity: dict[str, int]

    @property
    def span_s(self) -> float:
        """Seconds between the first and the last submission."""
        times = self.jobs["submit_time"]
        return float(times.max() - times.min()) if len(times) else 0.0

    @property
    def kind(self) -> str:
        """What to call it: "synthetic", or the first file it was read from; "" when not known."""
        if self.source.startswith("synthetic"):
            return "synthetic"
        files = self.provenance.get("files")
        if isinstance(files, list) and files and isinstance(files[0], dict):
            return str(files[0].get("name", ""))
        return ""

    @property
    def has_states(self) -> bool:
        """Whether it says how jobs ended."""
        return bool((self.jobs["state"] != "").any())


def from_dataset(folder: Path, run: PolicyRun | None = None) -> TraceFacts:
    """A dataset of `pellucid ingest`. TraceError when the folder is none."""
    table = read_dataset(folder).select(
        ["submit_time", "gpus", "duration_s", "user", "vc", "state"]
    )
    frame = table.to_pandas()
    frame["submit_time"] = frame["submit_time"].astype("datetime64[ms, UTC]").astype("int64") / 1000
    for name, absent in (("user", "(none)"), ("vc", "(none)"), ("state", "")):
        frame[name] = frame[name].astype(object).where(frame[name].notna(), absent)
    provenance = _object(folder / "provenance.json")
    source = str(provenance.get("source", folder.name))
    return TraceFacts(frame, source, provenance, _capacity(run))


def from_run(run: PolicyRun) -> TraceFacts:
    """The jobs of a run, where no dataset is given; they carry no states."""
    kept = run.jobs[["submit_time", "gpus", "duration_s", "user", "vc"]].assign(state="")
    return TraceFacts(kept, "the jobs of the runs compared", {}, _capacity(run))


def _capacity(run: PolicyRun | None) -> dict[str, int]:
    if run is None:
        return {}
    return run.gpus_by_vc


def _object(path: Path) -> Json:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


# --- words ---------------------------------------------------------------------------------------


def summary(t: TraceFacts) -> str:
    """The trace in three sentences."""
    jobs = t.jobs
    if jobs.empty:
        return "The trace holds no job."
    known = jobs["duration_s"].dropna()
    text = (
        f"{count(len(jobs), 'job')} from {count(jobs['user'].nunique(), 'user')} in "
        f"{count(jobs['vc'].nunique(), 'virtual cluster')} over {duration(t.span_s)}."
    )
    if len(known):
        share = _top_share(known.to_numpy(), 0.05)
        text += (
            f" Half of them run for less than {duration(float(known.median()))}, the mean is "
            f"{duration(float(known.mean()))}: the longest 5 % hold {percent(share)} of the "
            "running time."
        )
    single = float((jobs["gpus"] == 1).mean())
    time = jobs["duration_s"].fillna(0) * jobs["gpus"]
    if time.sum() > 0:
        wide = float(time[jobs["gpus"] >= 8].sum() / time.sum())
        text += (
            f" {percent(single)} ask for one GPU; those of 8 or more take {percent(wide)} of the "
            "GPU-time."
        )
    return text


def _top_share(values: Floats, part: float) -> float:
    ordered = np.sort(values)[::-1]
    return float(ordered[: max(1, round(part * len(ordered)))].sum() / max(ordered.sum(), 1e-12))


# --- charts --------------------------------------------------------------------------------------


def per_day(t: TraceFacts) -> Markup:
    """Jobs submitted per day (or per week, on a trace longer than half a year)."""
    when = pd.to_datetime(t.jobs["submit_time"], unit="s", utc=True)
    weekly = t.span_s > 180 * DAY_S
    bins = when.dt.tz_localize(None).dt.to_period("W" if weekly else "D")
    counts = bins.value_counts().sort_index()
    counts = counts.reindex(pd.period_range(counts.index[0], counts.index[-1]), fill_value=0)
    starts = [p.start_time for p in counts.index]
    tips = [f"{s:%a %d %b %Y}: {count(int(v), 'job')}" for s, v in zip(starts, counts, strict=True)]
    every = max(1, -(-len(starts) // 6))
    at = [(i + 0.5, f"{starts[i]:%d %b}") for i in range(0, len(starts), every)]
    what = "week" if weekly else "day"
    label = f"Jobs per {what}: from {counts.min():,} to {counts.max():,}, mean {counts.mean():,.0f}"
    return columns(label, [float(v) for v in counts], tips, x_ticks=at, y_title=f"jobs per {what}")


def by_hour(t: TraceFacts) -> Markup:
    """Jobs by weekday and hour (UTC)."""
    when = pd.to_datetime(t.jobs["submit_time"], unit="s", utc=True)
    cells = np.zeros((7, 24))
    np.add.at(cells, (when.dt.day_of_week.to_numpy(), when.dt.hour.to_numpy()), 1)
    busiest = np.unravel_index(int(cells.argmax()), cells.shape)
    label = (
        f"Jobs by weekday and hour of submission; busiest {WEEKDAYS[busiest[0]]} "
        f"{busiest[1]:02d}:00 UTC"
    )
    return heatmap(
        label,
        cells.tolist(),
        row_names=WEEKDAYS,
        column_ticks=[(h + 0.5, f"{h:02d}") for h in range(0, 24, 3)],
        tip=lambda i, j, v: f"{WEEKDAYS[i]} {j:02d}:00-{j + 1:02d}:00: {count(int(v), 'job')}",
        shading=Shading("counts", power=0.5),
        x_title="hour of submission (UTC)",
        frame=Frame(label, height=240, left=44),
    )


def durations(t: TraceFacts) -> Markup:
    """How long jobs run, on a logarithmic axis."""
    known = t.jobs["duration_s"].dropna().to_numpy(dtype=np.float64)
    edges, counts = log_histogram(known)
    middle = float(np.median(known)) if len(known) else 0.0
    label = f"Durations: median {duration(middle)}"
    if len(known):
        label += f", 90th percentile {duration(float(np.percentile(known, 90)))}"
    scale = Scale(edges[0], edges[-1], 0.0, float(len(counts)), log=True)
    tips = [
        f"{duration(a)} to {duration(b)}: {count(int(n), 'job')}"
        for a, b, n in zip(edges, edges[1:], counts, strict=False)
    ]
    at = [(scale(v), text) for v, text in scale.within(DURATION_TICKS)]
    return columns(
        label,
        counts.astype(float).tolist(),
        tips,
        x_ticks=at,
        x_title="duration on exclusive GPUs (1 s or less in the first bar)",
        y_title="jobs",
    )


def gpu_counts(t: TraceFacts) -> Markup:
    """Jobs and GPU-time by number of GPUs asked for."""
    sizes = t.jobs["gpus"].to_numpy()
    time = (t.jobs["duration_s"].fillna(0) * t.jobs["gpus"]).to_numpy()
    total = max(float(time.sum()), 1e-12)
    common = pd.Series(sizes).value_counts()
    chosen = sorted(common.index[:SHOWN].tolist())
    items = []
    for g in chosen:
        share = float((sizes == g).mean())
        taken = float(time[sizes == g].sum() / total)
        items.append((count(int(g), "GPU"), share, f"{percent(share)} · {percent(taken)}"))
    label = "Share of jobs, then of GPU-time, by GPUs asked for: " + _listing(items)
    return rows(label, items, left=74, limit=max((v for _, v, _ in items), default=1.0))


def states(t: TraceFacts) -> Markup:
    """How jobs ended."""
    shares = t.jobs["state"].replace("", "not stated").value_counts(normalize=True)
    items = [(str(s).replace("_", " "), float(v), percent(float(v))) for s, v in shares.items()]
    return rows("How jobs ended: " + _listing(items), items, left=100)


def users(t: TraceFacts) -> Markup:
    """How unequal users are: cumulative shares of jobs and of GPU-time, heaviest user first."""
    frame = t.jobs.assign(time=t.jobs["duration_s"].fillna(0) * t.jobs["gpus"])
    grouped = frame.groupby("user")["time"].agg(["size", "sum"])
    series = {}
    said = []
    for column, name in (("size", "jobs"), ("sum", "GPU-time")):
        ordered = np.sort(grouped[column].to_numpy(dtype=np.float64))[::-1]
        shares = np.cumsum(ordered) / max(float(ordered.sum()), 1e-12)
        at = np.arange(1, len(ordered) + 1) / len(ordered)
        series[name] = [(0.0, 0.0), *zip(at.tolist(), shares.tolist(), strict=True)]
        said.append(
            f"the top tenth of users hold {percent(float(np.interp(0.1, at, shares)))} of {name}"
        )
    quarters = [(v, percent(v)) for v, _ in ticks(0, 1, 4)]
    return lines(
        f"Users by weight, {len(grouped)} in all: {'; '.join(said)}",
        series,
        x=Axis(0, 1, quarters, "share of users, the heaviest first"),
        y=Axis(0, 1, quarters, "share held"),
    )


def users_legend() -> Markup:
    """Legend of `users`."""
    return legend(["jobs", "GPU-time"])


def vc_loads(t: TraceFacts) -> Markup:
    """Offered load by virtual cluster: GPU-time asked for over GPU-time there is.

    Without capacities, the share of all GPU-time asked for.
    """
    time = (t.jobs["duration_s"].fillna(0) * t.jobs["gpus"]).groupby(t.jobs["vc"]).sum()
    if t.capacity and t.span_s > 0:
        loads = {
            vc: time.get(vc, 0.0) / (gpus * t.span_s) for vc, gpus in t.capacity.items() if gpus
        }
        items = [(vc, float(v), percent(float(v))) for vc, v in loads.items()]
        label, mark = "Offered load by virtual cluster (100 % = all its GPUs, always): ", 1.0
    else:
        total = max(float(time.sum()), 1e-12)
        items = [(str(vc), float(v) / total, percent(float(v) / total)) for vc, v in time.items()]
        label, mark = "Share of GPU-time asked for by virtual cluster: ", None
    items = sorted(items, key=lambda item: -item[1])[:18]
    limit = max([v for _, v, _ in items] + [mark or 0.0]) * 1.05 or 1.0
    return rows(label + _listing(items), items, left=86, limit=limit, mark=mark)


def _listing(items: list[tuple[str, float, str]]) -> str:
    return ", ".join(f"{name} {text}" for name, _, text in items)
