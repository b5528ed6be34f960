"""Builds the report from those of its inputs that exist."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from features.codec import Json
from features.given import arrow_file, opened
from models.bundle import Bundle
from pipeline.explain.run import DECISIONS, JOBS, RunError, read_object
from pipeline.report import month, policies, trace
from pipeline.report.comparison import Comparison, PolicyRun, read_comparison
from pipeline.report.each_job import EachJob, each_job
from pipeline.report.interactive import columns
from pipeline.report.models import (
    LearningFacts,
    ModelFacts,
    drift_facts,
    error_table,
    in_view,
    learning_facts,
    read_models,
    slice_tables,
)
from pipeline.report.page import page, release
from pipeline.report.samples import HOLDERS, Sample, beside, samples
from pipeline.report.schedule import Schedule, read_schedule
from pipeline.worlds import TRACKS
from scheduler.core.plural import count
from scheduler.explain.terms import TOLERANCE
from scheduler.explain.words import duration

SHOWN_LIMITS = 2
SHOWN_SHAPES = 2
PAIR_MODELS = ("packing", "pair_speed")
LIBRARIES = ("numpy", "pandas", "pyarrow", "interpret-core", "scikit-learn", "lightgbm")


class ReportError(ValueError):
    """Raised if a report cannot be made from the given inputs. The message is one line for the
    user."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of the report. An input that is None leaves its section out.

    Attributes:
        compare: folder that `pellucid compare --out` (or `simulate --out`) wrote.
        bundle: folder of the exported models.
        trace: folder of the ingested dataset.
        metrics: JSON file with the errors of the duration model and its baselines.
        learning: JSON file with errors and average JCT by the number of jobs of history.
        coming: number of draws (runs of all policies with another seed) of the comparison that
            are still to come. Above 0, the report gives no verdict.
        tried: number of the explained jobs for which changes are tried that would have started
            them; each takes seconds.
        public: whether to show also the figures of a month of the public trace.
    """

    compare: Path | None = None
    bundle: Path | None = None
    trace: Path | None = None
    metrics: Path | None = None
    learning: Path | None = None
    coming: int = 0
    tried: int = 0
    public: bool = False


@dataclass
class Report:
    """The page, which sections it has, and its headline in sentences."""

    html: str
    sections: dict[str, bool]
    headline: list[str]
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Check:
    """The result of recomputing every recorded score of a run from its terms: number of scores,
    number of wrong ones, and the largest difference."""

    policy: str
    scored: int
    wrong: int
    worst: float


def build(inputs: Inputs) -> Report:
    """Make the report from the inputs, and return it.

    Raises ReportError if there is none of comparison, bundle, trace and metrics; and RunError,
    BundleError or TraceError if an input cannot be read."""
    if not any((inputs.compare, inputs.bundle, inputs.trace, inputs.metrics)):
        raise ReportError("nothing to report on; give --compare, --bundle, --trace or --metrics")
    comparison = read_comparison(inputs.compare, inputs.coming) if inputs.compare else None
    facts = _trace_facts(inputs, comparison)
    models = read_models(inputs.bundle) if inputs.bundle else None
    metrics = read_object(inputs.metrics) if inputs.metrics else {}
    schedule = read_schedule(comparison.own) if comparison else None
    stories = _stories(inputs, comparison, schedule)
    checks = [check_scores(run) for run in comparison.runs] if comparison else []
    problems = [
        f"{c.policy}: {count(c.wrong, 'recorded score')} of {c.scored:,} not the sum of their terms"
        for c in checks
        if c.wrong
    ]
    headline = _headline(comparison, facts)
    went = policies.results(comparison) if comparison else None
    shown = (
        columns(*went, {s.view.story.job.job_id: s.view.anchor for s in stories}) if went else None
    )
    html = page(
        "report.html",
        columns=shown,
        each_job=_each_job(inputs.bundle, comparison, schedule, stories=stories, shown=shown),
        charts=models is not None or facts is not None,
        title=_title(comparison, facts),
        lead=_lead(comparison, stories, schedule),
        schedule=_schedule_view(schedule, stories),
        month=month if inputs.public else None,
        headline=headline,
        release=release(),
        comparison=_comparison_view(comparison) if comparison else None,
        trace=_trace_view(facts) if facts else None,
        models=models,
        errors=in_view(metrics),
        all_errors=error_table(metrics),
        slices=slice_tables(metrics),
        drift=drift_facts(metrics, models),
        foils=_foils(metrics, comparison),
        learning=_learning(inputs.learning),
        stories=stories,
        explained=comparison.own.name if comparison else "",
        checks=checks,
        problems=problems,
        limits=_limits(comparison, facts, models),
        shown_limits=SHOWN_LIMITS,
        shown_shapes=SHOWN_SHAPES,
        provenance=_provenance(inputs, comparison, facts, models),
    )
    sections = {
        "policies": comparison is not None,
        "trace": facts is not None,
        "models": models is not None,
        "errors": error_table(metrics) is not None,
        "stories": bool(stories),
    }
    problems += [
        f"job {s.view.story.job.job_id}: {p}" for s in stories for p in s.view.story.problems
    ]
    return Report(html, sections, headline, problems)


def _foils(metrics: Mapping[str, Any], c: Comparison | None) -> list[Json]:
    """Return the jobs with instructive errors of the duration model, from the metrics. Each has the
    duration that the report's own policy predicted, if it did, otherwise the model's."""
    estimates: Mapping[Any, float] = {}
    if c is not None:
        known = c.own.jobs.select(["job_id", "estimate_s"]).drop_null().to_pydict()
        estimates = dict(zip(*known.values(), strict=True))
    return [
        {**foil, "predicted_s": estimates.get(foil["job_id"], foil["predicted_s"])}
        for foil in metrics.get("foils") or []
    ]


def _learning(path: Path | None) -> LearningFacts | None:
    points = read_object(path).get("points") if path is not None else None
    return learning_facts(points) if isinstance(points, list) else None


def _trace_facts(inputs: Inputs, comparison: Comparison | None) -> trace.TraceFacts | None:
    first = comparison.runs[0] if comparison else None
    if inputs.trace is not None:
        return trace.from_dataset(inputs.trace, first)
    return trace.from_run(first) if first else None


def check_scores(run: PolicyRun) -> Check:
    """Return how many recorded scores of a run differ from intercept plus terms, and the largest
    difference. Raises RunError if the decisions of the run cannot be read."""
    path = run.folder.folder / DECISIONS
    scored = wrong = 0
    worst = 0.0
    try:
        for gaps in _gaps_of(path):
            scored += len(gaps)
            wrong += int((gaps > TOLERANCE).sum())
            worst = max(worst, float(gaps.max()))
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RunError(f"{path} cannot be read: {error}") from None
    return Check(run.name, scored, wrong, worst)


def _gaps(table: pa.Table) -> np.ndarray[Any, np.dtype[np.float64]]:
    terms = table["terms"].chunk(0)
    sizes = terms.value_lengths().to_numpy()
    row = np.repeat(np.arange(len(sizes)), sizes)
    totals = np.bincount(row, weights=terms.flatten().to_numpy(), minlength=len(sizes))
    gaps = np.abs(table["intercept"].to_numpy() + totals - table["score"].to_numpy())
    return np.where(np.isfinite(gaps), gaps, np.inf)


def _gaps_of(path: Path) -> Iterator[NDArray[np.float64]]:
    with arrow_file(path) as file:
        columns = ["score", "intercept", "terms"]
        for batch in pq.ParquetFile(file).iter_batches(columns=columns, batch_size=1 << 15):
            kept = pa.table(batch).drop_null()
            if kept.num_rows:
                yield _gaps(kept.combine_chunks())


# --- views ---------------------------------------------------------------------------------------


def _stories(inputs: Inputs, c: Comparison | None, schedule: Schedule | None) -> list[Sample]:
    if c is None:
        return []
    bundle = Bundle.load(inputs.bundle) if inputs.bundle else None
    return samples(c, policies.colours_of(c), schedule, bundle, tried=inputs.tried)


def _each_job(
    models: Path | None,
    c: Comparison | None,
    schedule: Schedule | None,
    *,
    stories: Sequence[Sample],
    shown: Mapping[str, Any] | None,
) -> EachJob | None:
    """Return the data with which the page explains any job that a reader chooses. Its waits are not
    among them: they are in `shown`, the columns of the figures. Return None without a comparison or
    columns."""
    if c is None or shown is None:
        return None
    tried = {s.view.story.job.job_id: s.tried for s in stories if s.tried}
    names = [one["name"] for one in shown["results"]]
    places = [names.index(r.name) for r in (c.own, *beside(c))]
    return each_job(
        run=c.own,
        ids=shown["id"],
        schedule=schedule,
        bundle=Bundle.load(models) if models else None,
        tried=tried,
        beside=places,
    )


def _title(comparison: Comparison | None, facts: trace.TraceFacts | None) -> str:
    kind = facts.kind if facts else ""
    if comparison:
        track = f"track {comparison.track}" if comparison.track in TRACKS else "a trace"
        what = f"the {kind} trace" if kind else track
        return f"What {comparison.own.name} did on {what}, job by job"
    return f"The {kind or 'given'} trace" if facts else "The models"


def _lead(c: Comparison | None, stories: Sequence[Sample], schedule: Schedule | None) -> str:
    """Return a sentence about what the picture of the schedule shows; "" without a schedule."""
    if c is None or schedule is None:
        return ""
    span = duration(schedule.last - schedule.first)
    jobs = count(len(c.own.jobs), "job")
    text = f"Below, simulated: {span} of {c.own.name}, {jobs} "
    text += f"on {c.own.gpus:,} GPUs" if c.own.gpus else "on all GPUs"
    if stories and len(stories[0].lives) > 1:
        text += f"; why {stories[0].sentence}"
    if len(c.runs) > 1:
        text += "; who gains and who loses"
    return f"{text}."


def _schedule_view(s: Schedule | None, stories: Sequence[Sample]) -> SimpleNamespace | None:
    """Return a picture of the whole schedule in which the first explained job is marked; None
    without a schedule."""
    if s is None:
        return None
    until = s.end
    first = stories[0].view.story if stories else None
    holds = [one.job_id for one in first.held[:HOLDERS]] if first else []
    own = first.job.job_id if first else ""
    return SimpleNamespace(
        gantt=s.drawn(s.first, until, own=own, holds=holds),
        rows=s.shares(s.first, until),
    )


def _headline(comparison: Comparison | None, facts: trace.TraceFacts | None) -> list[str]:
    if comparison:
        return policies.headline(comparison)
    return [trace.summary(facts)] if facts else ["The models of a bundle, and how far they err."]


def _comparison_view(c: Comparison) -> SimpleNamespace:
    return SimpleNamespace(
        tables=policies.tables(c),
        own=c.own.name,
        seeds=len(c.seeds),
        coming=c.coming,
        abstract=policies.abstract(c),
        gains=policies.gains(c),
        dots=policies.dots(c),
    )


def _trace_view(t: trace.TraceFacts) -> SimpleNamespace:
    charts = [] if not len(t.jobs) else trace.charts(t)
    return SimpleNamespace(summary=trace.summary(t), charts=charts)


# --- limits and provenance -----------------------------------------------------------------------


def _limits(c: Comparison | None, t: trace.TraceFacts | None, m: ModelFacts | None) -> list[str]:
    text = []
    if t and t.kind == "synthetic":
        text.append(
            "The trace is synthetic, calibrated to published statistics; the public month is real."
        )
    if c:
        text.append("The schedules are simulated: nothing of them ran.")
        if len(c.seeds) == 1:
            text.append(
                "One draw: nothing shows how sure a difference is; small ones mean nothing."
            )
        else:
            text.append(
                f"Draws: {len(c.seeds)}. The schedule drawn and the jobs explained are of the "
                "first; drift, and what jobs are taken for, of the trace itself."
            )
        for run in c.runs:
            if open_ := run.jobs["end_time"].null_count:
                jobs = count(open_, "job")
                text.append(f"{run.name}: {jobs} refused or not ended are in no average.")
        text.append("The schedule is drawn from decisions and ends, free profiling apart.")
        text.append("A decision is recorded when its reason or its prediction changes.")
    if m:
        text.append(
            "Bands around shape functions are 95 % intervals, by training bags: how firm the shape "
            "is, not a prediction interval."
        )
        if any(m.described(p).get("origin") == "simulated" for p in PAIR_MODELS):
            text.append("Pair speeds behind the packing trees come from a formula, not from GPUs.")
        elif m.pair_speed:
            how = m.sharing or "in a way that is not known"
            text.append(f"Pair speeds were measured on GPUs shared by: {how}.")
    if t:
        text.append("Hours and days are UTC.")
    return text


def _provenance(
    inputs: Inputs, c: Comparison | None, t: trace.TraceFacts | None, m: ModelFacts | None
) -> list[tuple[str, str]]:
    rows = [("Pellucid", release()), ("Python", platform.python_version())]
    rows += [(name, found) for name in LIBRARIES if (found := _version(name))]
    if c:
        rows.append(("seeds", ", ".join(map(str, c.seeds))))
        for run in c.runs:
            folder = run.folder.folder
            digests = " ".join(_digest(folder / name)[:16] for name in (DECISIONS, JOBS))
            rows.append((f"run {run.name} (decisions, jobs)", f"sha256 {digests}"))
    if t and t.provenance:
        rows += _trace_rows(t.provenance)
    if m:
        rows.append(("bundle", f"sha256 {m.digest}, by {m.created_by}"))
        described = m.described("duration")
        for key in ("rows", "window_from", "window_to", "data_digest", "preset", "seed"):
            if key in described:
                rows.append((f"duration model, {key.replace('_', ' ')}", str(described[key])))
        for part in PAIR_MODELS:
            if source := m.described(part).get("source"):
                rows.append((f"{part.replace('_', ' ')} model, pairs", str(source)))
    if inputs.metrics:
        rows.append(("metrics", f"sha256 {_digest(inputs.metrics)[:16]}"))
    return rows


def _trace_rows(provenance: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [("trace source", str(provenance.get("source", "not recorded")))]
    for key in ("adapter", "format", "rows", "sha256", "timezone"):
        if isinstance(provenance.get(key), str | int):
            rows.append((f"trace {key}", str(provenance[key])))
    for file in provenance.get("files", ())[:20]:
        if isinstance(file, Mapping):
            rows.append((f"trace file {file.get('name', '')}", f"sha256 {file.get('sha256', '')}"))
    return rows


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _digest(path: Path) -> str:
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
