"""The policies side by side: words, table and charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
from markupsafe import Markup

from pipeline.report.charts import cumulative, dots, lines, rows
from pipeline.report.comparison import Comparison, PolicyRun
from pipeline.report.svg import DURATION_TICKS, SERIES, Frame, legend, log_ticks, ticks
from pipeline.report.usage import usage
from pipeline.student import within
from pipeline.worlds import TRACKS
from scheduler.core.plural import count
from scheduler.explain.words import duration, factor, number, percent

SHOWN_VCS = 18
GPU_GROUPS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (17, 32), (33, 10**9))


@dataclass(frozen=True)
class Cell:
    """A figure in the table, with its spread over seeds; `best` among the contenders."""

    text: str
    spread: str = ""
    best: bool = False


@dataclass(frozen=True)
class Figure:
    """A row of the table: its key, heading, what it means, and which end is better."""

    key: str
    heading: str
    meaning: str
    show: Callable[[float], str]
    better: int = -1  # -1 low, +1 high, 0 neither


@dataclass(frozen=True)
class Row:
    """A figure, with a cell per policy."""

    heading: str
    meaning: str
    cells: tuple[Cell, ...]


def _ratio(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


FIGURES = (
    Figure("avg_jct_s", "average JCT", "submission to end", duration),
    Figure("p50_jct_s", "median JCT", "half the jobs take longer", duration),
    Figure("avg_queue_s", "average wait", "time without GPUs", duration),
    Figure("p99_queue_s", "p99 wait", "one job in 100 waits longer", duration),
    Figure("p999_queue_s", "p99.9 wait", "one job in 1,000 waits longer", duration),
    Figure("max_queue_large_s", "longest wait, wide", "jobs of more than 8 GPUs", duration),
    Figure("makespan_s", "makespan", "first submission to last end", duration),
    Figure(
        "gpu_utilisation",
        "GPUs busy",
        "share of GPU-time; lower where jobs share GPUs: the same work in less",
        percent,
        0,
    ),
    Figure("ftf_user_p50", "fairness, median user", "user's total JCT over alone", _ratio),
    Figure("ftf_user_p99", "fairness, p99 user", "the same, for the worst off", _ratio),
    Figure("packed_jobs", "packed", "jobs started beside another", number, 0),
    Figure("mean_slowdown_packed", "packed jobs ran", "times as long as alone", _ratio, 0),
    Figure("preemptions", "preemptions", "jobs stopped and requeued", number, 0),
)


# --- words ---------------------------------------------------------------------------------------


JCT = "job completion time (JCT, from submission to end)"


def headline(c: Comparison) -> list[str]:
    """Which policy wins, by how much, how surely, and on what; one sentence each."""
    best = c.best
    jct = best.mean("avg_jct_s")
    if jct is None:
        return ["No job ended in any of these runs."]
    contenders = c.ranked(oracle=False)
    said = [_winner(c, best, contenders, jct)]
    if len(contenders) > 1:
        said.append(_confidence(c, best, contenders[1]))
    yardsticks = [r for r in c.ranked(oracle=True) if r is not best]
    if yardsticks:
        said.append(_bound(best, yardsticks[0], jct))
    jobs = f"{count(len(best.jobs), 'job')}"
    cluster = best.folder.summary.get("cluster", {})
    where = f" on {best.gpus:,} GPUs in {count(len(cluster), 'virtual cluster')}" if cluster else ""
    name = f", track {c.track}" if c.track in TRACKS else ""
    seeds = f"seed {c.seeds[0]}" if len(c.seeds) == 1 else f"{len(c.seeds)} seeds"
    said.append(f"Measured by simulation: {jobs}{where}{name}, {seeds}.")
    return said


def _winner(c: Comparison, best: PolicyRun, contenders: list[PolicyRun], jct: float) -> str:
    if len(c.runs) == 1:
        return f"Under {best.name} a job takes {duration(jct)} from submission to end on average."
    if best.oracle:
        return f"{best.name} has the shortest average {JCT}: {duration(jct)}."
    text = (
        f"{best.name} has the shortest average {JCT} of the policies that do not know the "
        f"future: {duration(jct)}"
    )
    reference = c.run("fifo") or contenders[-1]
    other = reference.mean("avg_jct_s")
    if reference is not best and other:
        text += f", {percent(1 - jct / other)} less than {reference.name} ({duration(other)})"
    return text + "."


def _confidence(c: Comparison, best: PolicyRun, second: PolicyRun) -> str:
    difference = c.difference(best.name, second.name)
    a, b = best.mean("avg_jct_s") or 0.0, second.mean("avg_jct_s") or 0.0
    gap = difference.mean_s if difference else a - b
    text = f"It is {duration(-gap)} ahead of the next, {second.name}"
    if difference is None or difference.se_s is None:
        return f"{text}; a single seed does not show how sure that is."
    if difference.se_s == 0:
        return f"{text}, the same on every seed."
    sure = certainty(gap / difference.se_s, len(c.seeds))
    return (
        f"{text} (± {duration(difference.se_s)} standard error, paired over "
        f"{len(c.seeds)} seeds): {sure}."
    )


def certainty(errors: float, seeds: int) -> str:
    """How sure a paired difference is, by Student's t: it knows how few the seeds are.

    Args:
        errors: the difference in standard errors.
        seeds: how many seeds it was paired over.
    """
    chance = 1 - within(abs(errors), max(seeds - 1, 1))
    return "clear" if chance < 0.01 else "likely" if chance < 0.05 else "within the noise"


def _bound(best: PolicyRun, yardstick: PolicyRun, jct: float) -> str:
    bound = yardstick.mean("avg_jct_s") or 0.0
    how = "knows every duration beforehand" + (" and preempts" if yardstick.preemptive else "")
    side = "which is no better" if bound >= jct else f"{percent(1 - bound / jct)} less"
    return f"As a yardstick, {yardstick.name}, which {how}, reaches {duration(bound)}, {side}."


# --- table ---------------------------------------------------------------------------------------


def table(c: Comparison) -> list[Row]:
    """A row per figure that was recorded, a cell per policy."""
    contenders = [r for r in c.runs if not r.oracle]
    rows_ = [
        Row(f.heading, f.meaning, tuple(_cell(r, f, contenders) for r in c.runs))
        for f in FIGURES
        if any(r.mean(f.key) is not None for r in c.runs)
    ]
    fifo = c.run("fifo")
    if fifo is not None and len(c.runs) > 1:
        cells = []
        for r in c.runs:
            worst = None if r is fifo else worst_vc_ratio(r, fifo)
            cells.append(Cell(_ratio(worst[1]), worst[0]) if worst else Cell("–"))
        meaning = f"mean JCT over fifo's, seed {c.seeds[0]}"
        rows_.append(Row("worst virtual cluster", meaning, tuple(cells)))
    return rows_


def kind(run: PolicyRun) -> str:
    """What a policy knows and may do, in a few words."""
    if run.oracle:
        return "knows durations" + (", preempts" if run.preemptive else "")
    if not run.estimates:
        return "no estimates"
    durations = str(run.figures.get("durations", run.folder.summary.get("durations", "")))
    known = {"none": "no estimates", "own": "learns as it goes", "bundle": "trained models",
             "ga2m": "learns as it goes, refitted daily",
             "constant:600": "GPU count only", "truth": "given true durations"}  # fmt: skip
    return known.get(durations, f"estimates: {durations}" if durations else "")


def _cell(run: PolicyRun, figure: Figure, contenders: list[PolicyRun]) -> Cell:
    value, spread = run.mean(figure.key), run.sd(figure.key)
    if value is None:
        return Cell("–")
    others = [v for r in contenders if (v := r.mean(figure.key)) is not None]
    best = (
        figure.better != 0
        and not run.oracle
        and len(others) > 1
        and value == (max(others) if figure.better > 0 else min(others))
    )
    return Cell(figure.show(value), f"± {figure.show(spread)}" if spread else "", best)


def worst_vc_ratio(run: PolicyRun, fifo: PolicyRun) -> tuple[str, float] | None:
    """The virtual cluster whose mean JCT fares worst against FIFO, and that ratio."""
    own = run.ended.groupby("vc")["jct_s"].mean()
    base = fifo.ended.groupby("vc")["jct_s"].mean()
    ratio = (own / base).replace([np.inf, -np.inf], np.nan).dropna()
    return (str(ratio.idxmax()), float(ratio.max())) if len(ratio) else None


# --- charts --------------------------------------------------------------------------------------


def names(c: Comparison) -> list[str]:
    """Policies in the order of their colours and markers."""
    return [r.name for r in c.runs]


def averages(c: Comparison) -> Markup:
    """Average JCT as bars, yardsticks hatched."""
    ranked = sorted(c.runs, key=lambda r: r.mean("avg_jct_s") or 0.0)
    items = []
    for r in ranked:
        value, spread = r.mean("avg_jct_s"), r.sd("avg_jct_s")
        text = duration(value) + (f" ± {duration(spread)}" if spread else "")
        items.append((r.name, value or 0.0, text))
    label = "Average JCT by policy: " + ", ".join(f"{n} {t}" for n, _, t in items)
    css = ["bar yardstick" if r.oracle else "bar" for r in ranked]
    if c.best in ranked:
        css[ranked.index(c.best)] += " best"
    return rows(label, items, css=lambda i: css[i], left=86)


def jct_curves(c: Comparison) -> Markup:
    """Share of jobs ended within a time of their submission."""
    series = {r.name: cumulative(r.ended["jct_s"].to_numpy()) for r in c.runs}
    return _curves(
        series,
        "Distribution of JCT by policy",
        "time from submission to end",
        "share of jobs",
    )


def wait_curves(c: Comparison) -> Markup:
    """Share of jobs that wait longer than a time, on a logarithmic axis: the tail."""
    series = {}
    for r in c.runs:
        curve = cumulative(r.ended["queue_s"].to_numpy(), 400)
        series[r.name] = [(v, 1 - s) for v, s in curve]
    highest = max((p[0] for curve in series.values() for p in curve), default=10.0)
    smallest = max(min(1 / max(len(r.ended), 2) for r in c.runs), 1e-4)
    return lines(
        f"Share of jobs that wait longer than a time. {_medians(series)}",
        series,
        x=(1.0, max(highest * 1.2, 100)),
        y=(smallest, 1.0),
        x_ticks=DURATION_TICKS,
        y_ticks=[(v, f"{100 * v:g} %") for v, _ in log_ticks(smallest, 1.0)],
        x_title="waits longer than",
        y_title="share of jobs",
        log_x=True,
        log_y=True,
    )


def fairness_curves(c: Comparison) -> Markup:
    """Users by how much longer their jobs take than alone."""
    series = {}
    for r in c.runs:
        sums = r.ended.groupby("user")[["jct_s", "duration_s"]].sum()
        sums = sums[sums["duration_s"] > 0]
        series[r.name] = cumulative((sums["jct_s"] / sums["duration_s"]).to_numpy())
    highest = max((p[0] for curve in series.values() for p in curve), default=10.0)
    top = max(highest * 1.1, 10.0)
    return lines(
        f"Finish-time fairness of users by policy. {_medians(series, number)}",
        series,
        x=(1.0, top),
        y=(0, 1),
        x_ticks=[(v, f"×{label}") for v, label in log_ticks(1.0, top)],
        y_ticks=[(v, percent(v)) for v, _ in ticks(0, 1, 4)],
        x_title="user's total JCT over the same jobs alone",
        y_title="share of users",
        log_x=True,
    )


def estimate_curves(c: Comparison) -> tuple[Markup, Markup] | None:
    """How far predictions were from durations, with a legend; None where nothing was predicted."""
    series, looks = {}, []
    for i, r in enumerate(c.runs):
        known = r.ended[r.ended["estimate_s"].notna() & (r.ended["duration_s"] > 0)]
        if r.oracle or known.empty:
            continue
        off = np.log1p(known["duration_s"]) - np.log1p(known["estimate_s"].clip(lower=0))
        series[r.name] = cumulative(np.exp(off.abs()).to_numpy())
        looks.append(i)
    if not series:
        return None
    top = max(max(p[0] for p in curve) for curve in series.values()) * 1.1
    top = max(top, 10.0)
    chart = lines(
        f"How far estimates were off, as a factor. {_medians(series, factor)}",
        series,
        x=(1.0, top),
        y=(0, 1),
        x_ticks=[(v, f"×{label}") for v, label in log_ticks(1.0, top)],
        y_ticks=[(v, percent(v)) for v, _ in ticks(0, 1, 4)],
        x_title="factor between prediction and truth",
        y_title="share of jobs",
        log_x=True,
        looks=looks,
    )
    return chart, legend(list(series), looks=looks)


def _curves(
    series: dict[str, list[tuple[float, float]]], label: str, x_title: str, y_title: str
) -> Markup:
    highest = max((p[0] for curve in series.values() for p in curve), default=10.0)
    return lines(
        f"{label}. {_medians(series)}",
        series,
        x=(1.0, max(highest * 1.2, 100)),
        y=(0, 1),
        x_ticks=DURATION_TICKS,
        y_ticks=[(v, percent(v)) for v, _ in ticks(0, 1, 4)],
        x_title=x_title,
        y_title=y_title,
        log_x=True,
    )


def _medians(
    series: dict[str, list[tuple[float, float]]], show: Callable[[float], str] = duration
) -> str:
    """The middle of each curve, for those who cannot see it."""
    middle = {
        name: min(curve, key=lambda p: abs(p[1] - 0.5))[0]
        for name, curve in series.items()
        if curve
    }
    return "Half-way points: " + ", ".join(f"{n} {show(v)}" for n, v in middle.items())


@dataclass(frozen=True)
class Grouped:
    """A dot chart and the numbers in it."""

    chart: Markup
    table: dict[str, dict[str, float]]
    jobs: dict[str, int]


def wait_by_vc(c: Comparison) -> Grouped:
    """Mean wait by virtual cluster, the busiest first."""
    sizes = c.runs[0].jobs["vc"].value_counts()
    chosen = [str(vc) for vc in sizes.index[:SHOWN_VCS]]
    return _by(c, "vc", chosen, {vc: int(sizes[vc]) for vc in chosen}, "virtual cluster")


def wait_by_gpus(c: Comparison) -> Grouped:
    """Mean wait by number of GPUs."""
    labels = [_gpu_group(lo, hi) for lo, hi in GPU_GROUPS]
    edges = [lo - 0.5 for lo, _ in GPU_GROUPS] + [np.inf]
    for r in c.runs:
        r.jobs["gpu_group"] = pd.cut(r.jobs["gpus"], edges, labels=labels).astype(object)
    sizes = c.runs[0].jobs["gpu_group"].value_counts()
    chosen = [label for label in labels if label in sizes.index]
    return _by(c, "gpu_group", chosen, {g: int(sizes[g]) for g in chosen}, "GPUs")


def _gpu_group(low: int, high: int) -> str:
    if low == high:
        return count(low, "GPU")
    return f"> {low - 1} GPUs" if high >= 10**9 else f"{low}–{high} GPUs"


def _by(c: Comparison, column: str, groups: list[str], sizes: dict[str, int], what: str) -> Grouped:
    cells: dict[str, dict[str, float]] = {group: {} for group in groups}
    for r in c.runs:
        means = r.ended.groupby(column)["queue_s"].mean()
        for group in groups:
            if group in means.index:
                cells[group][r.name] = float(means[group])
    chart = dots(
        f"Mean wait by {what} and policy; the numbers are in the table below",
        cells,
        names(c),
        at=DURATION_TICKS,
        title="mean wait (shorter than 1 s is drawn at 1 s)",
    )
    return Grouped(chart, cells, sizes)


def utilisation(c: Comparison, bins: int = 280) -> Markup:
    """GPUs in use over time, one strip per policy."""
    first = min(float(r.jobs["submit_time"].min()) for r in c.runs)
    last_submit = max(float(r.jobs["submit_time"].max()) for r in c.runs)
    last = max(float(r.jobs["end_time"].max()) for r in c.runs)
    last = last if np.isfinite(last) and last > first else first + 1.0
    edges = np.linspace(first, last, bins + 1)
    strip, gap = 54, 14
    f = Frame(
        "GPUs in use over time, one strip per policy",
        760, 54 + (strip + gap) * len(c.runs), left=70, right=56, top=24, bottom=30, wide=True,
    )  # fmt: skip
    sx = f.x(first, last)
    for day, text in _days(first, last):
        f.line(sx(day), f.top, sx(day), f.bottom, "grid")
        f.text(sx(day), f.bottom + 14, text, anchor="middle")
    said = []
    for i, r in enumerate(c.runs):
        used_by = usage(r)
        used = used_by.average(edges)
        whole = float(r.gpus or used.max(initial=1.0))
        base = f.top + (strip + gap) * i + strip
        points = [(sx(first), base)]
        for j, value in enumerate(used):
            y = base - strip * min(value / whole, 1.0)
            points += [(sx(edges[j]), y), (sx(edges[j + 1]), y)]
        points.append((sx(last), base))
        f.path(points, f"area s{i % SERIES}", close=True, tip=f"{r.name}, of {whole:,.0f} GPUs")
        f.line(f.left, base, f.right, base, "base")
        f.line(f.left, base - strip, f.right, base - strip, "grid")
        f.text(f.left - 8, base - strip / 2 + 4, r.name, "name", anchor="end")
        span = np.array([first, float(np.nanmax(r.jobs["end_time"]))])
        mean = float(used_by.average(span)[0]) / whole if span[1] > first else 0.0
        f.text(f.right + 6, base - strip / 2 + 4, percent(mean), "value")
        said.append(f"{r.name} {percent(mean)}")
    f.line(sx(last_submit), f.top, sx(last_submit), f.bottom, "limit")
    f.text(sx(last_submit) - 4, f.top - 8, "last submission", "tick", anchor="end")
    f.label += ". Mean share in use: " + ", ".join(said)
    return f.svg()


def _days(first: float, last: float) -> list[tuple[float, str]]:
    """Midnights (UTC) between two times, at most about eight."""
    days = pd.date_range(
        pd.Timestamp(first, unit="s").ceil("D"), pd.Timestamp(last, unit="s"), freq="D"
    )
    every = max(1, -(-len(days) // 8))
    return [(d.timestamp(), d.strftime("%d %b")) for d in days[::every]]


def policy_legend(c: Comparison, *, markers: bool = False) -> Markup:
    """The legend of these charts."""
    return legend(names(c), markers=markers)
