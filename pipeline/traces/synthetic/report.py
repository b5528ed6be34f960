"""Compares the synthetic trace with published statistics, and searches it for leaks (names or
profiles that reveal durations).

Published figures are quoted with their source; no row of a public trace is used.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from features.schema import State
from pipeline.traces.synthetic.config import DAY_S, SyntheticConfig
from pipeline.traces.synthetic.labels import tabulate
from pipeline.traces.synthetic.process import Drawn, Floats, Ints, draw

PROFILE_COLUMNS = ("gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib", "batch_size", "amp")
HASH_BUCKETS = 128


@dataclass(frozen=True, slots=True)
class Published:
    """One published statistic: its values, as text, for Helios (all four clusters), for its cluster
    Venus, and for Philly."""

    key: str
    text: str
    helios: str
    venus: str
    philly: str
    source: str


# R: the releases' own summary tables, HeliosArtifact `helios_cluster_summary.csv` (commit 6345d9f)
# and AcmeTrace `cluster_summary.csv` (commit 6d6ac9c). T: the text of Hu et al., SC'21.
PUBLISHED = (
    Published(
        key="median_s",
        text="median duration, s",
        helios="206",
        venus="204",
        philly="874",
        source="R",
    ),
    Published(
        key="mean_s",
        text="mean duration, s",
        helios="6,652",
        venus="13,041",
        philly="18,006",
        source="R",
    ),
    Published(
        key="gpus_mean", text="mean GPUs", helios="3.72", venus="6.74", philly="1.93", source="R"
    ),
    Published(key="gpus_median", text="median GPUs", helios="1", venus="1", philly="1", source="R"),
    Published(
        key="gpu_s_per_job",
        text="GPU-seconds per job",
        helios="49,351",
        venus="98,526",
        philly="61,038",
        source="R",
    ),
    Published(
        key="completed_pct",
        text="completed, % of jobs",
        helios="62.4",
        venus="52.6",
        philly="60.4",
        source="R",
    ),
    Published(
        key="cancelled_pct",
        text="cancelled, % of jobs",
        helios="22.1",
        venus="27.2",
        philly="9.0",
        source="R",
    ),
    Published(
        key="failed_pct",
        text="failed, % of jobs",
        helios="15.5",
        venus="20.2",
        philly="30.5",
        source="R",
    ),
    Published(
        key="completed_gpu_pct",
        text="completed, % of GPU-time",
        helios="51.3",
        venus="51.6",
        philly="32.1",
        source="R",
    ),
    Published(
        key="cancelled_gpu_pct",
        text="cancelled, % of GPU-time",
        helios="39.4",
        venus="39.9",
        philly="29.4",
        source="R",
    ),
    Published(
        key="failed_gpu_pct",
        text="failed, % of GPU-time",
        helios="9.3",
        venus="8.5",
        philly="38.6",
        source="R",
    ),
    Published(
        key="one_gpu_pct",
        text="one-GPU jobs, % of jobs",
        helios="> 50",
        venus="",
        philly="",
        source="T",
    ),
    Published(
        key="one_gpu_gpu_pct",
        text="one-GPU jobs, % of GPU-time",
        helios="3-12",
        venus="",
        philly="",
        source="T",
    ),
    Published(
        key="large_gpu_pct",
        text="jobs of 8 or more GPUs, % of GPU-time",
        helios="about 60",
        venus="",
        philly="",
        source="T",
    ),
    Published(
        key="top_users_pct",
        text="top 5 % of users, % of GPU-time",
        helios="45-60",
        venus="",
        philly="",
        source="T",
    ),
)


def statistics(table: pa.Table) -> dict[str, float]:
    """Return, for a trace in TRACE_SCHEMA, the statistics that are published for GPU clusters:
    {key: value}.

    Keys end in the unit of the value; `*_gpu_pct` are shares of GPU-time, other `*_pct` shares of
    jobs.
    """
    duration, gpus = _numbers(table, "duration_s"), _numbers(table, "gpus")
    gpu_s = duration * gpus
    state = np.asarray(table["state"].cast(pa.string()).to_pylist())
    by_user = np.sort(_sum_by(table["user"], gpu_s))[::-1]
    submit = table["submit_time"].cast(pa.int64()).to_numpy() // 1000
    per_hour = np.bincount((submit - submit.min() // 3600 * 3600) // 3600)
    found: dict[str, float] = {
        "jobs": float(table.num_rows),
        "users": float(len(by_user)),
        "median_s": float(np.median(duration)),
        "mean_s": float(duration.mean()),
        "p90_s": float(np.quantile(duration, 0.9)),
        "p99_s": float(np.quantile(duration, 0.99)),
        "max_s": float(duration.max()),
        "gpus_mean": float(gpus.mean()),
        "gpus_median": float(np.median(gpus)),
        "gpu_s_per_job": float(gpu_s.mean()),
        "one_gpu_pct": 100 * float((gpus == 1).mean()),
        "one_gpu_gpu_pct": 100 * float(gpu_s[gpus == 1].sum() / gpu_s.sum()),
        "large_gpu_pct": 100 * float(gpu_s[gpus >= 8].sum() / gpu_s.sum()),
        "top_users_pct": 100
        * float(by_user[: max(1, round(0.05 * len(by_user)))].sum() / gpu_s.sum()),
        "busiest_hour_jobs": float(per_hour.max()),
    }
    for name in (State.COMPLETED, State.CANCELLED, State.FAILED):
        found[f"{name}_pct"] = 100 * float((state == name).mean())
        found[f"{name}_gpu_pct"] = 100 * float(gpu_s[state == name].sum() / gpu_s.sum())
    return found


def offered_load(config: SyntheticConfig, table: pa.Table) -> dict[str, float]:
    """Return the offered load of each VC: submitted GPU-seconds / (its GPUs x seconds of the
    trace)."""
    gpu_s = _numbers(table, "duration_s") * _numbers(table, "gpus")
    vcs = np.asarray(table["vc"].cast(pa.string()).to_pylist())
    return {
        vc.name: float(gpu_s[vcs == vc.name].sum())
        / (vc.nodes * config.gpus_per_node * config.days * DAY_S)
        for vc in config.vcs
    }


# --- leaks ------------------------------------------------------------------------------------


def profile_leak(jobs: Drawn, table: pa.Table) -> dict[str, tuple[float, float]]:
    """Return, for each profile column, (Spearman correlation with the duration, p value) across
    templates (recurring scripts), by the means of each template.

    Templates are drawn independently of each other, jobs are not: two jobs of one template have
    similar profiles and durations.
    """
    runs = np.bincount(jobs.template, minlength=jobs.templates)
    used = runs > 0

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(jobs.template, values, jobs.templates)[used] / runs[used])

    duration = mean(np.log(jobs.duration_s))
    found = {}
    for column in PROFILE_COLUMNS:
        result = _spearman(mean(_numbers(table, column)), duration)
        found[column] = (float(result.statistic), float(result.pvalue))
    return found


def name_leak(jobs: Drawn, table: pa.Table) -> tuple[float, int]:
    """Return (Spearman correlation of predicted and true durations, number of jobs tested) of a
    model that knows of a job only the part of its name that differs within its template.

    Hashed tokens of the name, without those that all runs of the template share, are fitted by
    ridge regression to the log duration relative to the template's mean. The model is fitted on
    half of the templates and tested on the other half.
    """
    names = table["name"].to_pylist()
    log_duration = np.log(jobs.duration_s)
    runs = np.bincount(jobs.template, minlength=jobs.templates)
    mean = np.bincount(jobs.template, log_duration, jobs.templates) / np.maximum(runs, 1)
    target = log_duration - mean[jobs.template]

    tokens = [re.findall(r"[a-z]+|[0-9.]+(?:e-[0-9]+)?", name) for name in names]
    shared: dict[int, set[str]] = {}
    for template, found in zip(jobs.template.tolist(), tokens, strict=True):
        shared[template] = shared.get(template, set(found)) & set(found)
    hashed = np.zeros((len(names), HASH_BUCKETS))
    for row, (template, found) in enumerate(zip(jobs.template.tolist(), tokens, strict=True)):
        for token in found:
            if token not in shared[template]:
                hashed[row, zlib.crc32(token.encode()) % HASH_BUCKETS] += 1

    several = runs[jobs.template] > 1
    train, test = several & (jobs.template % 2 == 0), several & (jobs.template % 2 == 1)
    x, y = hashed[train], target[train]
    weights = np.linalg.solve(x.T @ x + 10.0 * np.eye(HASH_BUCKETS), x.T @ y)
    return float(_spearman(hashed[test] @ weights, target[test]).statistic), int(test.sum())


def history_signal(jobs: Drawn) -> float:
    """Return the Spearman correlation of a job's duration with that of the previous run of its
    template."""
    order = np.argsort(jobs.template, kind="stable")  # stable: by submission within a template
    again = jobs.template[order][1:] == jobs.template[order][:-1]
    duration = jobs.duration_s[order]
    return float(_spearman(duration[1:][again], duration[:-1][again]).statistic)


# --- page -------------------------------------------------------------------------------------


def comparison(table: pa.Table) -> str:
    """Return a Markdown table of published statistics beside those of this trace."""
    ours = statistics(table)
    lines = [
        "| statistic | Helios | Helios Venus | Philly | this trace | source |",
        "|---|---|---|---|---|---|",
    ]
    for p in PUBLISHED:
        value = ours[p.key]
        text = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        lines.append(f"| {p.text} | {p.helios} | {p.venus} | {p.philly} | {text} | {p.source} |")
    return "\n".join(lines)


def leak_table(config: SyntheticConfig, seeds: int) -> str:
    """Return a Markdown table of the leak checks for the seeds 0 to `seeds` - 1 of the
    trace."""
    rows: dict[str, list[float]] = {column: [] for column in PROFILE_COLUMNS}
    small: dict[str, int] = dict.fromkeys(PROFILE_COLUMNS, 0)
    names, history = [], []
    for seed in range(seeds):
        jobs = draw(replace(config, seed=seed))
        table = tabulate(replace(config, seed=seed), jobs)
        for column, (rho, p) in profile_leak(jobs, table).items():
            rows[column].append(rho)
            small[column] += p < 0.05
        names.append(name_leak(jobs, table)[0])
        history.append(history_signal(jobs))
    lines = [
        f"| what is known | Spearman with duration, {seeds} seeds: mean (min, max) | p < 0.05 |",
        "|---|---|---|",
    ]

    def line(what: str, values: list[float], count: str) -> str:
        mean, low, high = float(np.mean(values)), min(values), max(values)
        return f"| {what} | {mean:+.3f} ({low:+.3f}, {high:+.3f}) | {count} |"

    for column, values in rows.items():
        lines.append(line(f"`{column}`, across templates", values, f"{small[column]} of {seeds}"))
    lines.append(line("name tokens, within templates", names, ""))
    lines.append(line("the template's last duration", history, ""))
    return "\n".join(lines)


def _spearman(x: Floats, y: Floats) -> Any:
    from scipy.stats import spearmanr  # of an extra: the trace itself is made without

    return spearmanr(x, y)


def _numbers(table: pa.Table, column: str) -> Floats:
    return np.asarray(table[column].cast(pa.float64()).to_numpy())


def _sum_by(column: pa.ChunkedArray, values: Floats) -> Floats:
    codes: Ints = column.combine_chunks().indices.to_numpy()
    return np.asarray(np.bincount(codes, values)[np.bincount(codes) > 0], dtype=np.float64)
