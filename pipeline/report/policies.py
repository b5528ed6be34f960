"""The policies side by side: words, table and charts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.report.comparison import Comparison, PolicyRun, half_width
from pipeline.report.interactive import GPU_GROUPS, PolicyResult, colours, gpu_group
from pipeline.report.usage import usage
from pipeline.student import within
from pipeline.tables import Floats, floats, means, of_jobs, sizes
from pipeline.worlds import TRACKS
from scheduler.core.plural import count
from scheduler.explain.words import HOUR_S, duration, listed, number, percent
from scheduler.service.pages.charts import Chart, Layout, line

SHOWN_VCS = 18
OURS = "pellucid"


@dataclass(frozen=True)
class Cell:
    """A figure in the table.

    Attributes:
        text, value: as it is read, and as it is sorted by.
        spread: half of the 95 % interval over draws.
        change: beside the reference, "−39 %, better"; "" where that says nothing.
        verdict: "better", "worse", or "" where the draws do not show it.
    """

    text: str
    value: float | None = None
    spread: str = ""
    change: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class Figure:
    """A column of a table: its key, heading, what it means, and which end is better."""

    key: str
    heading: str
    meaning: str
    show: Callable[[float], str]
    better: int = -1  # -1 low, +1 high, 0 neither


@dataclass(frozen=True)
class Table:
    """Figures about one thing, a row per policy: its name, what it knows, its colour, its cells."""

    title: str
    heads: tuple[Figure, ...]
    rows: tuple[tuple[str, str, int, tuple[Cell, ...]], ...]


def _ratio(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _hours(value: float) -> str:
    return f"{value:,.0f} h" if value >= 100 else f"{value:.1f} h"


BUSY, WORST_VC = "busy_gpu_h", "worst_vc"
SURE = 5  # draws from which on a difference may be called one
TABLES: tuple[tuple[str, tuple[Figure, ...]], ...] = (
    (
        "How long people wait",
        (
            Figure("avg_jct_s", "average JCT", "less is better", duration),
            Figure("p99_queue_s", "p99 wait", "less is better", duration),
            Figure("max_queue_large_s", "longest wait, wide", "more than 8 GPUs", duration),
        ),
    ),
    (
        "Waits, and whom they cost",
        (
            Figure("avg_queue_s", "average wait", "less is better", duration),
            Figure("p50_jct_s", "median JCT", "half take longer", duration),
            Figure("ftf_user_p99", "fairness, p99 user", "JCT over alone; 1 is best", _ratio),
            Figure("ftf_user_p50", "fairness, median user", "JCT over alone; 1 is best", _ratio),
            Figure(WORST_VC, "worst virtual cluster", "average JCT over the reference's", _ratio),
        ),
    ),
    (
        "What it takes",
        (
            Figure("makespan_s", "makespan", "from first to last", duration),
            Figure(BUSY, "GPU-time held", "sharing does the same work in less", _hours),
            Figure("packed_jobs", "shared", "jobs started beside another", number, 0),
            Figure("mean_slowdown_packed", "sharing jobs ran", "times as long as alone", _ratio),
            Figure("preemptions", "preemptions", "jobs stopped and requeued", number),
        ),
    ),
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
    sentences = [_winner(c, best, jct)]
    if len(contenders) > 1:
        sentences.append(_confidence(c, best, contenders[1]))
        ours = c.run(OURS) or best
        sentences += _losses(ours, [r for r in contenders if r is not ours], len(c.seeds))
    oracles = [r for r in c.ranked(oracle=True) if r is not best]
    if oracles:
        sentences.append(_bound(oracles[0], jct))
    jobs = count(sum(len(draw) for draw in best.draws), "job")
    cluster = best.folder.summary.get("cluster", {})
    where = f" on {best.gpus:,} GPUs in {count(len(cluster), 'virtual cluster')}" if cluster else ""
    name = f", track {c.track}" if c.track in TRACKS else ""
    sentences.append(f"Simulated: {jobs} in {count(len(c.seeds), 'draw')}{where}{name}.")
    return sentences


def abstract(c: Comparison) -> list[str]:
    """What is compared and what the words mean, for somebody who meets them first."""
    base = reference(c)
    sentences = [
        "Each policy was given the same jobs on the same GPUs, in a simulator. A job waits from "
        "submission until it has GPUs, and is over after its job completion time (JCT): waiting "
        "and running together. p99 is what 99 of 100 stay below. A virtual cluster is the nodes "
        "of one organisation. Two jobs that share a GPU run somewhat longer each, and are both "
        "done in less GPU-time than one after the other. Fairness is a user's JCT over the time "
        "the same jobs take alone: 1 if nobody is in the way.",
    ]
    if base is not None:
        sentences.append(f"“Better” and “worse” are against {base.name}.")
    oracles = [r.name for r in c.runs if r.oracle]
    if oracles:
        sentences[-1] += (
            f" {listed(oracles)} {'know' if len(oracles) > 1 else 'knows'} how long each "
            "job will run, which nobody can: an oracle, an upper bound."
        )
    return sentences


def _winner(c: Comparison, best: PolicyRun, jct: float) -> str:
    if len(c.runs) == 1:
        return f"Under {best.name} a job takes {duration(jct)} from submission to end on average."
    if best.oracle:
        return f"{best.name} has the shortest average {JCT}: {duration(jct)}."
    text = (
        f"{best.name} has the shortest average {JCT} of the policies that do not know the "
        f"future: {duration(jct)}"
    )
    base = reference(c)
    other = base.mean("avg_jct_s") if base is not None else None
    if base is not None and base is not best and other:
        text += f", {percent(1 - jct / other)} less than {base.name} ({duration(other)})"
    return text + "."


def _confidence(c: Comparison, best: PolicyRun, second: PolicyRun) -> str:
    difference = c.difference(best.name, second.name)
    a, b = best.mean("avg_jct_s") or 0.0, second.mean("avg_jct_s") or 0.0
    gap = difference.mean_s if difference else a - b
    text = f"It is {duration(-gap)} ahead of the next, {second.name}"
    if difference is None or difference.se_s is None:
        return f"{text}; a single draw does not show how sure that is."
    if difference.se_s == 0:
        return f"{text}, the same on every draw."
    # Student's t knows how few the seeds are
    chance = 1 - within(abs(gap / difference.se_s), max(len(c.seeds) - 1, 1))
    sure = "clear" if chance < 0.01 else "likely" if chance < 0.05 else "within the noise"
    return (
        f"{text} (± {duration(difference.se_s)} standard error, paired over "
        f"{len(c.seeds)} draws): {sure}."
    )


def _losses(ours: PolicyRun, others: list[PolicyRun], draws: int) -> list[str]:
    """Where a policy is worse than another, each figure with its interval over the draws.

    Of fewer draws than `SURE` only what is over 5 % worse.
    """
    lost = []
    for figure in (f for _, figures in TABLES for f in figures if f.better):
        here = _cell(ours, figure, None)
        beaten = [(value, other) for other in others if (value := _ahead(other, ours, figure))]
        if beaten:
            _, other = min(beaten, key=lambda pair: pair[0])
            there = _cell(other, figure, None)
            lost.append(
                f"{figure.heading}, {here.text} {here.spread}".rstrip()
                + f" ({other.name}: {there.text} {there.spread}".rstrip()
                + ")"
            )
    how = f"beyond the 95 % interval over {draws} draws" if draws >= SURE else "by over 5 %"
    if lost:
        return [f"{ours.name} loses, {how}, in: {'; '.join(lost)}."]
    return [f"Nothing below is worse than another's {how}."] if draws >= SURE else []


def _ahead(other: PolicyRun, ours: PolicyRun, figure: Figure) -> float | None:
    """A figure of the other policy, where it is better."""
    theirs, value = value_of(other, figure.key, None), value_of(ours, figure.key, None)
    if theirs is None or value is None:
        return None
    enough = min(len(each_of(run, figure.key)) for run in (ours, other)) >= SURE
    worse = _verdict(ours, other, figure) == "worse" if enough else value > 1.05 * theirs
    return theirs if worse else None


def _bound(oracle: PolicyRun, jct: float) -> str:
    bound = oracle.mean("avg_jct_s") or 0.0
    how = "knows every duration beforehand" + (" and preempts" if oracle.preemptive else "")
    side = "which is no better" if bound >= jct else f"{percent(1 - bound / jct)} less"
    return f"An oracle, {oracle.name}, which {how}, reaches {duration(bound)}, {side}."


# --- tables --------------------------------------------------------------------------------------


def reference(c: Comparison) -> PolicyRun | None:
    """What the others are compared with: fifo, or the worst that does not know the future."""
    contenders = c.ranked(oracle=False)
    return (c.run("fifo") or contenders[-1]) if len(c.runs) > 1 and contenders else None


def tables(c: Comparison) -> list[Table]:
    """The figures that were recorded, a row per policy, compared with the reference."""
    base = reference(c)
    made = []
    for title, figures in TABLES:
        heads = tuple(
            f for f in figures if any(value_of(r, f.key, base) is not None for r in c.runs)
        )
        rows_ = tuple(
            (r.name, kind(r), colour, tuple(_cell(r, f, base) for f in heads))
            for r, colour in zip(c.runs, colours_of(c), strict=True)
        )
        made.append(Table(title, heads, rows_))
    return made


def value_of(run: PolicyRun, key: str, base: PolicyRun | None) -> float | None:
    """A figure of a run; None where it was not recorded or means nothing."""
    if key == BUSY:
        share, span = run.mean("gpu_utilisation"), run.mean("makespan_s")
        return share * span * run.gpus / HOUR_S if share and span and run.gpus else None
    if key == WORST_VC:
        worst = worst_vc_ratio(run, base) if base is not None and run is not base else None
        return worst[1] if worst else None
    if key == "mean_slowdown_packed" and not run.mean("packed_jobs"):
        return None
    return run.mean(key)


def each_of(run: PolicyRun, key: str) -> Floats:
    """A figure of every draw, as far as it was recorded, (draws,)."""
    if key == BUSY:
        return run.each("gpu_utilisation") * run.each("makespan_s") * run.gpus / HOUR_S
    return run.each(key)


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


def _cell(run: PolicyRun, figure: Figure, base: PolicyRun | None) -> Cell:
    value, spread = value_of(run, figure.key, base), half_width(each_of(run, figure.key))
    if value is None:
        return Cell("–")
    shown, spreads = figure.show(value), f"± {figure.show(spread)}" if spread else ""
    if figure.key == WORST_VC:
        named = worst_vc_ratio(run, base) if base is not None else None
        return Cell(shown, value, change=named[0] if named else "")
    other = value_of(base, figure.key, base) if base is not None and run is not base else None
    if other is None or not figure.better or other <= 0:
        return Cell(shown, value, spreads)
    change = value / other - 1
    if abs(change) < 0.005:
        return Cell(shown, value, spreads, "the same")
    verdict = _verdict(run, base, figure) if base is not None else ""
    text = f"{'+' if change > 0 else '−'}{percent(abs(change))}"
    return Cell(shown, value, spreads, f"{text}, {verdict}" if verdict else text, verdict)


def _verdict(run: PolicyRun, base: PolicyRun, figure: Figure) -> str:
    """Whether a policy is better or worse than the reference on the same draws; "" not shown."""
    ours, theirs = each_of(run, figure.key), each_of(base, figure.key)
    if len(ours) != len(theirs) or len(ours) < SURE:
        return ""
    less = ours - theirs
    sure = half_width(less)
    if abs(less.mean()) <= (sure or 0.0):
        return ""
    return "better" if (less.mean() > 0) == (figure.better > 0) else "worse"


def worst_vc_ratio(run: PolicyRun, base: PolicyRun) -> tuple[str, float] | None:
    """The virtual cluster whose mean JCT fares worst against the reference, and that ratio."""
    ended = (pa.concat_tables(one.ended_each()) for one in (run, base))
    own, other = (means(jobs["vc"], jobs["jct_s"]) for jobs in ended)
    ratios = ((vc, own[vc] / other[vc]) for vc in own if other.get(vc))
    return max(ratios, key=lambda ratio: ratio[1], default=None)


# --- figures -------------------------------------------------------------------------------------


def colours_of(c: Comparison) -> list[int]:
    """Colours of the runs, by role."""
    base = reference(c)
    own = c.run(OURS)
    return colours(
        [r.name for r in c.runs],
        (own or c.best).name,
        base.name if base is not None else "",
        [r.name for r in c.runs if r.oracle],
    )


def results(c: Comparison) -> tuple[pa.Table, list[PolicyResult]]:
    """The jobs of the first draw, and how they went under each policy: for the live figures."""
    jobs = c.runs[0].jobs
    found = []
    for r, colour in zip(c.runs, colours_of(c), strict=True):
        own = of_jobs(r.ended, jobs["job_id"])
        found.append(
            PolicyResult(r.name, colour, floats(own["queue_s"]), floats(own["jct_s"]), r.oracle)
        )
    return jobs, found


def pooled(c: Comparison) -> list[PolicyResult]:
    """How the jobs of all draws went under each policy: for the charts."""
    found = []
    for r, colour in zip(c.runs, colours_of(c), strict=True):
        jobs = pa.concat_tables(r.ended_each())
        wait, jct = floats(jobs["queue_s"]), floats(jobs["jct_s"])
        sure = half_width(r.each("avg_jct_s"))
        found.append(PolicyResult(r.name, colour, wait, jct, r.oracle, r.mean("avg_jct_s"), sure))
    return found


@dataclass(frozen=True)
class Grouped:
    """Mean waits (s) by group and policy, half of their 95 % intervals; jobs of each group."""

    table: dict[str, dict[str, float]]
    within: dict[str, dict[str, float]]
    jobs: dict[str, int]


def wait_by_vc(c: Comparison) -> Grouped:
    """Mean wait by virtual cluster, the busiest first."""
    jobs = sizes(pa.concat_tables(c.runs[0].draws)["vc"])
    return _by(c, lambda draw: draw["vc"], dict(islice(jobs.items(), SHOWN_VCS)))


def wait_by_gpus(c: Comparison) -> Grouped:
    """Mean wait by number of GPUs."""
    lows, labels = [lo for lo, _ in GPU_GROUPS], [gpu_group(lo, hi) for lo, hi in GPU_GROUPS]

    def group(draw: pa.Table) -> pa.ChunkedArray:
        at = np.searchsorted(lows, draw["gpus"].to_numpy(), side="right")
        return pa.chunked_array([np.array(["", *labels], object)[at]], pa.string())

    jobs = sizes(group(pa.concat_tables(c.runs[0].draws)))
    return _by(c, group, {label: jobs[label] for label in labels if label in jobs})


def _by(
    c: Comparison, column: Callable[[pa.Table], pa.ChunkedArray], jobs: dict[str, int]
) -> Grouped:
    cells: dict[str, dict[str, float]] = {group: {} for group in jobs}
    within: dict[str, dict[str, float]] = {group: {} for group in jobs}
    for r in c.runs:
        each = [means(column(ended), ended["queue_s"]) for ended in r.ended_each()]
        for group in jobs:
            found = np.array([one[group] for one in each if group in one])
            if len(found):
                cells[group][r.name] = float(found.mean())
            if sure := half_width(found):
                within[group][r.name] = sure
    return Grouped(cells, within, jobs)


def utilisation(c: Comparison, bins: int = 280) -> list[Chart]:
    """The share of GPUs in use over time, under each policy."""
    first = min(pc.min(r.jobs["submit_time"]).as_py() for r in c.runs)
    ends = [pc.max(r.jobs["end_time"]).as_py() or first for r in c.runs]
    last = max(ends) if max(ends) > first else first + 1.0
    edges = np.linspace(first, last, bins + 1)
    at = [f"{datetime.fromtimestamp(one, UTC):%Y-%m-%d %H:%M}" for one in edges.tolist()]
    found = []
    for i, (r, look, end) in enumerate(zip(c.runs, colours_of(c), ends, strict=True)):
        used_by = usage(r)
        used = used_by.average(edges)
        whole = float(r.gpus or used.max(initial=1.0))
        mean = float(used_by.average(np.array([first, end]))[0]) / whole if end > first else 0.0
        shares = (used / whole).round(3).tolist()
        step = line(at, [*shares, shares[-1]], r.name, look)
        step["line"]["shape"] = "hv"
        note = f"{r.name}: {percent(mean)} of {whole:,.0f} GPUs on average"
        layout: Layout = {
            "xaxis": {"type": "date"},
            "yaxis": {"tickformat": ".0%", "range": [0, max(1.0, *shares)]},
        }
        found.append(Chart(f"in-use-{i}", r.name, f"GPUs in use over time. {note}", [step], layout,
                           note=f"{note}."))  # fmt: skip
    return found
