"""The report's comparison of policies: sentences, tables, and a chart with a dot for every draw
(runs of all policies with another seed)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import log

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pipeline.report.comparison import Comparison, PolicyRun
from pipeline.report.interactive import GPU_GROUPS, PolicyResult, colours, gpu_group
from pipeline.report.month import ROWS
from pipeline.report.paired import AHEAD, BEHIND, LEVEL, SURE, Paired, change, paired
from pipeline.tables import Floats, floats, means, of_jobs, sizes
from pipeline.worlds import TRACKS
from scheduler.charts.chart import TIP, Chart, Spec, drawn, mark, names, numbers, paint, painted
from scheduler.core.plural import count
from scheduler.explain.words import (
    HOUR_S,
    beyond_chance_words,
    duration,
    listed,
    number,
    percent,
    shares_words,
)

SHOWN_VCS = 12
SHOWN_GROUPS = 2  # that gain or lose, in words
RIVALS = ("lucid", "fifo-skip", "fifo")  # whom the sentences are about, where they are there
GAINS = 2  # of them, for which the jobs that gain and lose are shown
JCT, SPENT = "avg_jct_s", "mean time from submission to end"
WHAT = {row.policy: f" ({row.what})" for row in ROWS}  # a rival is
LEAST_SHARE = 0.01  # of all jobs: a smaller group is not named
MOVED_S = 1.0  # of a job's end, from which on it is sooner or later
RATIOS = (
    (0.02, "−98 %"), (0.05, "−95 %"), (0.1, "−90 %"), (0.2, "−80 %"), (0.5, "−50 %"),
    (1.0, "same"), (2.0, "×2"), (5.0, "×5"), (10.0, "×10"),
)  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """A figure in the table.

    Attributes:
        text, value: the figure as it is shown, and the number that the table sorts by.
        change: change of the report's own policy compared with this one: "pellucid −39 %"; ""
            if they are not compared.
        verdict: ahead, behind or level; "" if there are too few draws.
    """

    text: str
    value: float | None = None
    change: str = ""
    verdict: str = ""


@dataclass(frozen=True)
class Figure:
    """A column of a table: its key, heading and meaning, and whether less (-1), more (+1) or
    neither (0) is better."""

    key: str
    heading: str
    meaning: str
    show: Callable[[float], str]
    better: int = -1  # -1 low, +1 high, 0 neither
    middle: bool = False  # the median over draws: one draw in which nobody waits alone moves a mean


@dataclass(frozen=True)
class Table:
    """A table of figures with one row per policy: the policy's name, its knowledge of durations,
    its colour number, and its cells.
    """

    title: str
    heads: tuple[Figure, ...]
    rows: tuple[tuple[str, str, int, tuple[Cell, ...]], ...]


def _ratio(value: float) -> str:
    return f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def _hours(value: float) -> str:
    return f"{value:,.0f} h" if value >= 100 else f"{value:.1f} h"


BUSY, SLOWED = "busy_gpu_h", "mean_slowdown_packed"
TABLES: tuple[tuple[str, tuple[Figure, ...]], ...] = (
    (
        "How long people wait",
        (
            Figure(JCT, "average JCT", "submission to end", duration),
            Figure("p99_queue_s", "p99 wait", "one job in 100 waits longer", duration),
            Figure("max_queue_large_s", "longest wait, wide", "more than 8 GPUs", duration),
        ),
    ),
    (
        "Waits, and whom they cost",
        (
            Figure("avg_queue_s", "average wait", "less is better", duration),
            Figure("p50_jct_s", "median JCT", "half take longer", duration),
            Figure("ftf_user_p99", "fairness, p99 user", "JCT over alone; median of draws", _ratio,
                   middle=True),
            Figure("ftf_user_p50", "fairness, median user", "JCT over alone; median of draws",
                   _ratio, middle=True),
        ),
    ),
    (
        "What it takes",
        (
            Figure("makespan_s", "makespan", "from first to last", duration),
            Figure(BUSY, "GPU-time held", "sharing does the same work in less", _hours),
            Figure(
                key="packed_jobs", heading="shared", meaning="jobs started beside another",
                show=number, better=0,
            ),
            Figure(SLOWED, "slowdown by sharing", "run time over time alone", _ratio),
            Figure(
                key="preemptions", heading="preemptions", meaning="jobs stopped and requeued",
                show=number, better=0,
            ),
        ),
    ),
)  # fmt: skip


# --- words ---------------------------------------------------------------------------------------


def rivals(c: Comparison) -> list[PolicyRun]:
    """Return the runs that the report's own policy is compared with in sentences: those of
    `RIVALS`, or, if none of them was run, the best two policies that do not know true durations."""
    named = [r for name in RIVALS if (r := c.run(name)) is not None and r is not c.own]
    return named or [r for r in c.ranked(oracle=False) if r is not c.own][:2]


def headline(c: Comparison) -> list[str]:
    """Return sentences that compare the report's own policy with each rival, then sentences
    about the figures in which it is behind, and one about what was simulated. If no job ended,
    return a sentence that says so."""
    own = c.own
    jct = own.mean(JCT)
    if jct is None:
        return ["No job ended in any of these runs."]
    against = rivals(c)
    if not against:
        took = f"Under {own.name} a job takes {duration(jct)} from submission to end on average."
        return [took, *_where(c)]
    sentences = [compared(c, rival, first=not i) for i, rival in enumerate(against)]
    sentences += _behind(c)
    return [*sentences, *_where(c)]


def compared(c: Comparison, rival: PolicyRun, *, first: bool = True) -> str:
    """Return a sentence about one rival: in how many draws the report's own policy is ahead, and by
    how much in the mean.

    Args:
        first: whether this is the first such sentence, which also says what is compared, and how.
    """
    found = c.paired(rival, JCT)
    a, b = c.own.mean(JCT), rival.mean(JCT)
    who = f"Against {rival.name}{WHAT.get(rival.name, '')}, {c.own.name} is"
    if found is None or a is None or b is None:
        return f"{who} not compared: no job ended, or not on the same draws."
    if len(found.ratios) == 1:
        how = f"jobs take {change_words(found.ratio)}"
        return f"{who} so far {found.tally}: {how}. One draw shows no verdict{_coming(c)}."
    by = f"{found.change} ({found.interval})"
    if first:
        by = f"{SPENT} {found.change}, 95 % interval {found.interval}, paired by draw"
    if not found.verdict:
        why = _coming(c) or f": a verdict needs {SURE} draws"
        return f"{who} so far {found.tally}: {by}. No verdict yet{why}."
    mean = "level on the mean" if found.verdict == LEVEL else f"{found.verdict} on the mean"
    return f"{who} {found.tally}; {mean}: {by}."


def change_words(ratio: float) -> str:
    """Return a ratio of durations in words: "39 % less", "×4.2 as long", "as long"."""
    text = change(ratio)
    if text.startswith(("−", "+")):
        return f"{text[1:]} {'less' if ratio < 1 else 'longer'}"
    return "as long" if text == "the same" else f"{text} as long"


def _coming(c: Comparison) -> str:
    return f"; {count(len(c.seeds) + c.coming, 'draw')} are coming" if c.coming else ""


def _behind(c: Comparison) -> list[str]:
    """Return a sentence that names the figures in which another policy is ahead beyond chance, or
    says that there are none. Return [] if there are too few draws to tell."""
    lost = []
    for figure in (f for _, figures in TABLES for f in figures if f.better):
        worse = [
            (found.ratio, other.name)
            for other in c.ranked(oracle=False)
            if other is not c.own
            and (found := compare(c, other, figure)) is not None
            and found.verdict == BEHIND
        ]
        if worse:
            ratio, name = max(worse)
            lost.append(f"{figure.heading} ({figure.meaning}: {change(ratio)} against {name})")
    if lost:
        return [f"It is behind beyond chance (the 95 % interval) in {listed(lost)}."]
    if c.coming or len(c.seeds) < SURE:
        return []
    return ["In no figure below is it behind another policy beyond the 95 % interval."]


def _bound(c: Comparison, oracle: PolicyRun) -> str:
    how = "knows every duration" + (" and preempts" if oracle.preemptive else "")
    found = c.paired(oracle, JCT)
    took = duration(oracle.mean(JCT) or 0.0)
    if found is None:
        return f"{oracle.name}, an oracle that {how}, takes {took}."
    own = duration(c.own.mean(JCT) or 0.0)
    return (
        f"On average a job takes {own} under {c.own.name}, waiting included; under "
        f"{oracle.name}, an oracle that {how}, {took}."
    )


def _where(c: Comparison) -> list[str]:
    own = c.own
    jobs = count(sum(len(draw) for draw in own.draws), "job")
    cluster = own.folder.summary.get("cluster", {})
    where = f" on {own.gpus:,} GPUs in {count(len(cluster), 'virtual cluster')}" if cluster else ""
    name = f", track {c.track}" if c.track in TRACKS else ""
    return [f"Simulated: {jobs} in {count(len(c.seeds), 'draw')}{where}{name}."]


def abstract(c: Comparison) -> list[str]:
    """Return sentences for first-time readers about what is compared and what the terms mean."""
    text = (
        "Each policy was given the same jobs on the same GPUs, in a simulator. A draw is another "
        "week of other people's jobs on the same cluster. A job waits from submission until it has "
        "GPUs, and is over after its job completion time (JCT): waiting and running together. A "
        "virtual cluster is the nodes of one organisation. Two jobs that share a GPU run somewhat "
        "longer each, and are both done in less GPU-time than one after the other. Fairness is a "
        "user's JCT over the time the same jobs take alone: 1 if nobody is in the way. Every "
        "interval is of the ratio of two policies on the same draws, 95 %, by Student's t; "
        "“ahead” and “behind” are beyond it, “level” is within."
    )
    oracles = [r.name for r in c.runs if r.oracle]
    best = [r for r in c.ranked(oracle=True) if r is not c.own]
    if best and c.own.mean(JCT) is not None:
        text += f" {_bound(c, best[0])}"
    if oracles:
        text += (
            f" {listed(oracles)} {'know' if len(oracles) > 1 else 'knows'} how long each job will "
            "run, which nobody can: an oracle, an upper bound."
        )
    return [text]


# --- tables --------------------------------------------------------------------------------------


def tables(c: Comparison) -> list[Table]:
    """Return tables of the recorded figures, one row per policy, each compared with the report's
    own policy."""
    made = []
    for title, figures in TABLES:
        heads = tuple(f for f in figures if any(value_of(r, f) is not None for r in c.runs))
        rows = tuple(
            (r.name, kind(r), colour, tuple(_cell(c, r, f) for f in heads))
            for r, colour in zip(c.runs, colours_of(c), strict=True)
        )
        made.append(Table(title, heads, rows))
    return made


def value_of(run: PolicyRun, figure: Figure) -> float | None:
    """Return a figure of a run over its draws: the mean, or the median for figures with `middle`.
    Return None if it was not recorded or is not defined."""
    each = each_of(run, figure.key)
    if not len(each):
        return None
    return float(np.median(each) if figure.middle else np.mean(each))


def each_of(run: PolicyRun, key: str) -> Floats:
    """Return the values of a figure in all draws for which it was recorded and is defined,
    (draws,)."""
    if key == SLOWED and not run.mean("packed_jobs"):
        return run.each("")  # nobody shared
    if key == BUSY:
        return run.each("gpu_utilisation") * run.each("makespan_s") * run.gpus / HOUR_S
    return run.each(key)


def compare(c: Comparison, other: PolicyRun, figure: Figure) -> Paired | None:
    """Return a figure of the report's own policy compared with another's on the same draws; None if
    it cannot be compared."""
    ours, theirs = (each_of(run, figure.key) for run in (c.own, other))
    return paired(ours, theirs, figure.better, coming=c.coming)


def kind(run: PolicyRun) -> str:
    """Return in a few words what a policy knows of durations; of one that knows them truly, also
    whether it preempts."""
    if run.oracle:
        return "knows durations" + (", preempts" if run.preemptive else "")
    if not run.estimates:
        return "no estimates"
    durations = str(run.figures.get("durations", run.folder.summary.get("durations", "")))
    known = {"none": "no estimates", "own": "learns as it goes", "bundle": "trained models",
             "ga2m": "learns as it goes, refitted daily",
             "constant:600": "GPU count only", "truth": "given true durations"}  # fmt: skip
    return known.get(durations, f"estimates: {durations}" if durations else "")


def _cell(c: Comparison, run: PolicyRun, figure: Figure) -> Cell:
    value = value_of(run, figure)
    if value is None:
        return Cell("–")
    found = None if run is c.own else compare(c, run, figure)
    if found is None:
        return Cell(figure.show(value), value)
    text = f"{c.own.name} {found.change}"
    return Cell(figure.show(value), value, text, found.verdict)


# --- who gains and who loses ---------------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """A group of jobs under the report's own policy and under a rival: the mean JCT (seconds) of
    each, and the comparison."""

    name: str
    jobs: int
    ours_s: float
    theirs_s: float
    found: Paired | None

    @property
    def far(self) -> float:
        """Return how far apart the two policies are: abs(ln(ratio of mean JCTs)); 0 if they cannot
        be compared."""
        return 0.0 if self.found is None else abs(log(self.found.ratio))


@dataclass(frozen=True)
class Gains:
    """Which jobs end sooner, and which later, under the report's own policy than under a rival.

    Attributes:
        sooner, later: shares of the jobs that end sooner, and later, among the jobs of all
            draws that ended under both policies.
        later_s: median of the seconds by which the later ones end later.
        most_later: the number of GPUs, and the virtual cluster, with the largest share of jobs that
            end later, in words.
        by_size, by_vc: groups of jobs by number of GPUs, and by virtual cluster.
    """

    rival: str
    sooner: float
    later: float
    later_s: float
    most_later: Sequence[str]
    by_size: Sequence[Group]
    by_vc: Sequence[Group]

    @property
    def sentences(self) -> list[str]:
        """Return sentences: which shares of the jobs end sooner and later, then which groups gain
        or lose beyond chance."""
        text = [shares_words(self.rival, self.sooner, self.later, self.later_s)]
        groups = [*self.by_size, *self.by_vc]
        if not any(g.found is not None and g.found.verdict for g in groups):
            return text
        both = []
        for verdict in (AHEAD, BEHIND):
            names = [
                f"{g.name} ({g.found.change})"
                for g in sorted(groups, key=lambda one: -one.far)
                if g.found is not None and g.found.verdict == verdict
            ]
            if len(names) > SHOWN_GROUPS:
                more = count(len(names) - SHOWN_GROUPS, "other group")
                names = [*names[:SHOWN_GROUPS], more]
            both.append(listed(names) if names else "no group")
        return [*text, beyond_chance_words(*both)]

    @property
    def most(self) -> str:
        """Return a sentence on which jobs end later most often; "" if none does."""
        return f"Most often later: {listed([*self.most_later])}." if self.most_later else ""


def gains(c: Comparison) -> list[Gains]:
    """Return which jobs gain and which lose, compared with each of the first `GAINS` rivals of
    which as many draws are recorded."""
    found = (_gains(c, rival) for rival in rivals(c) if len(rival.draws) == len(c.own.draws))
    return list(islice(found, GAINS))


def _gains(c: Comparison, rival: PolicyRun) -> Gains:
    each = [
        floats(of_jobs(theirs, ours["job_id"])["jct_s"]) - floats(ours["jct_s"])
        for ours, theirs in zip(c.own.draws, rival.draws, strict=True)
    ]
    ended = np.isfinite(np.concatenate(each))
    gap = np.concatenate(each)[ended]
    late = gap < -MOVED_S
    moved = (float((gap > MOVED_S).mean()), float(late.mean())) if len(gap) else (0, 0)
    vcs = sizes(pa.concat_tables(c.own.draws)["vc"])
    shown = dict(islice(vcs.items(), SHOWN_VCS))
    labels = [
        np.concatenate([np.asarray(of(draw).to_pylist(), object) for draw in c.own.draws])[ended]
        for of in (_size, _vc)
    ]
    return Gains(
        rival=rival.name,
        sooner=moved[0],
        later=moved[1],
        later_s=float(np.median(-gap[late])) if late.any() else 0.0,
        most_later=[
            _most(of, late, where) for of, where in zip(labels, ("with", "in"), strict=True)
        ]
        if late.any()
        else [],
        by_size=list(_groups(c, rival, _size, [gpu_group(low, high) for low, high in GPU_GROUPS])),
        by_vc=list(_groups(c, rival, _vc, list(shown))),
    )


def _most(labels: NDArray[np.object_], late: NDArray[np.bool_], where: str) -> str:
    """Return the group with the largest share of late jobs, with that share, in words. Groups of
    few jobs are left out.

    Args:
        labels: name of each job's group.
        late: whether each job is late.
        where: the word between "those" and a name.
    """
    jobs = Counter(labels.tolist())
    least = min(LEAST_SHARE * len(labels), max(jobs.values()))
    shares = {
        str(name): float(late[labels == name].mean()) for name, n in jobs.items() if n >= least
    }
    name = max(shares, key=lambda one: shares[one])
    return f"those {where} {name} ({percent(shares[name])} of them)"


def _vc(draw: pa.Table) -> pa.ChunkedArray:
    return draw["vc"]


def _size(draw: pa.Table) -> pa.ChunkedArray:
    lows = [low for low, _ in GPU_GROUPS]
    labels = [gpu_group(low, high) for low, high in GPU_GROUPS]
    at = np.searchsorted(lows, draw["gpus"].to_numpy(), side="right")
    return pa.chunked_array([np.array(["", *labels], object)[at]], pa.string())


def _groups(
    c: Comparison,
    rival: PolicyRun,
    column: Callable[[pa.Table], pa.ChunkedArray],
    names: Sequence[str],
) -> Iterator[Group]:
    jobs = sizes(column(pa.concat_tables(c.own.draws)))
    each = [
        [means(column(ended), ended["jct_s"]) for ended in run.ended_each()]
        for run in (c.own, rival)
    ]
    for name in names:
        on = [i for i in range(len(c.own.draws)) if all(name in of[i] for of in each)]
        if not on:
            continue
        ours, theirs = (np.array([of[i][name] for i in on]) for of in each)
        yield Group(
            name=name,
            jobs=jobs[name],
            ours_s=float(ours.mean()),
            theirs_s=float(theirs.mean()),
            found=paired(ours, theirs, coming=c.coming),
        )


# --- figures -------------------------------------------------------------------------------------


def colours_of(c: Comparison) -> list[int]:
    """Return the colour number (s0 to s7 of the style sheet) of each run of a comparison. A policy
    of the project has the same colour on all pages.
    """
    return colours([r.name for r in c.runs])


def results(c: Comparison) -> tuple[pa.Table, list[PolicyResult]]:
    """Return the jobs of the first draw, and their results under each policy, for the interactive
    figures."""
    jobs = c.runs[0].jobs
    found = []
    for r, colour in zip(c.runs, colours_of(c), strict=True):
        own = of_jobs(r.ended, jobs["job_id"])
        found.append(
            PolicyResult(
                name=r.name,
                colour=colour,
                wait_s=floats(own["queue_s"]),
                jct_s=floats(own["jct_s"]),
                oracle=r.oracle,
            )
        )
    return jobs, found


def dots(c: Comparison) -> Chart | None:
    """Return a chart with a dot for every draw: the mean JCT of the report's own policy / that of
    each other policy."""
    dots, bars, rows = list[Spec](), list[Spec](), list[list[str]]()
    for r, k in zip(c.runs, colours_of(c), strict=True):
        found = None if r is c.own else c.paired(r, JCT)
        if found is None:
            continue
        verdict = found.verdict or "no verdict yet"
        name = f"{r.name} (oracle)" if r.oracle else r.name
        if found.low is not None and found.high is not None:
            bars.append({"name": name, "ratio": found.low, "to": found.high})
        dots += [
            {"name": name, "ratio": x, "colour": paint(k), "tip": f"draw {s}: {change(x)}"}
            for s, x in zip(c.seeds, found.ratios.round(4).tolist(), strict=False)
        ]
        rows.append([name, found.tally, found.change, found.interval, verdict])
    if not rows:
        return None
    inside = [v for row in dots + bars for v in (row["ratio"], row.get("to", 1.0))]
    low, high = min(inside), max(inside)
    marks = [(v, text) for v, text in RATIOS if low / 1.3 <= v <= high * 1.3]
    title = f"{c.own.name} against each other policy"
    return Chart(
        name="draws",
        title=title,
        label=f"{title}: " + "; ".join(f"{name} {', '.join(more)}" for name, *more in rows),
        spec=drawn(
            dots,
            numbers("ratio", at=marks, log=True),
            names("name", among=[name for name, *_ in rows]),
            mark(
                "rule",
                {"x2": {"field": "to"}},
                rows=bars,
                color="var(--muted)",
                strokeWidth=14,
                opacity=0.4,
            ),
            mark("point", painted("colour"), TIP, filled=True, opacity=0.75, size=80),
        ),
        head=("against", "draws", "mean JCT", "95 % interval", "verdict"),
        rows=rows,
        note=f"A dot is a draw: {c.own.name}'s mean JCT against the "
        f"other's, same jobs. Left of “same” {c.own.name} is faster. Bar: 95 % interval.",
    )
