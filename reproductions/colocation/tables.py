"""Turns a journal into the two tables of `schema.py`, written whole and renamed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

from features.files import write_table
from reproductions.colocation.journal import Item, Journal, Measurement
from reproductions.colocation.schema import COUNTERS, HOST, PAIR_SCHEMA, SOLO_SCHEMA
from reproductions.colocation.statistics import mean_of, ratio_of
from reproductions.colocation.workloads import Config

SOLO_NAME, PAIRS_NAME = "solo.parquet", "pairs.parquet"


def _mean(measurements: Iterable[Measurement], name: str) -> float | None:
    known = [m.usage[name] for m in measurements if name in m.usage]
    return sum(known) / len(known) if known else None


def _usage(good: list[Measurement], journal: Journal) -> dict[str, Any]:
    """Return the columns of GPU use that the tables of single jobs and of pairs share. Memory is
    that of the jobs alone where it is known, otherwise the memory in use on the whole GPU."""
    own = _mean(good, "tree_mem_mib")
    return {
        "gpu_util_pct": _mean(good, "util_pct"),
        "gpu_mem_util_pct": _mean(good, "mem_util_pct"),
        "gpu_mem_mib": own if own is not None else _mean(good, "mem_peak_mib"),
        **{name: _mean(good, name) for name in (*COUNTERS, *HOST)},
        "device": journal.header["device"],
        "device_name": journal.header["name"],
        "measured_at": max(datetime.fromisoformat(m.measured_at) for m in good),
    }


def _workload(config: Config, suffix: str = "") -> dict[str, Any]:
    return {
        f"model{suffix}": config.model,
        f"dataset{suffix}": config.dataset,
        f"batch_size{suffix}": config.batch,
        f"amp{suffix}": config.amp,
    }


def _good(journal: Journal) -> Mapping[Item, list[Measurement]]:
    found: dict[Item, list[Measurement]] = {}
    for each in journal.measurements:
        if each.outcome == "ok":
            found.setdefault(each.item, []).append(each)
    return found


def solo_table(journal: Journal, tolerance: float) -> pa.Table:
    """Return one row per configuration measured alone, sorted; "tight" is by `tolerance`."""
    rows = []
    for item, good in _good(journal).items():
        if len(item.configs) != 1:
            continue
        mean = mean_of([m.rates[0] for m in good])
        memory = [m.torch_mem_mib[0] for m in good if m.torch_mem_mib[0] is not None]
        # the estimate it was surest of stands for the configuration
        best = max(good, key=lambda m: m.step_confidence or 0.0)
        rows.append(
            {
                **_workload(item.configs[0]),
                "repeats": mean.repeats,
                "steps_per_s": mean.value,
                "steps_per_s_sd": _finite(mean.sd),
                "half_width_pct": _finite(100 * mean.half_width),
                "tight": mean.tight(tolerance),
                "torch_mem_mib": max(memory) if memory else None,
                "step_s_estimate": best.step_s,
                "step_confidence": best.step_confidence,
                **_usage(good, journal),
            }
        )
    return _table(rows, SOLO_SCHEMA, ("model", "batch_size", "amp"))


def pair_table(journal: Journal, tolerance: float) -> pa.Table:
    """Return one row per pair and sharing mode, sorted; speeds are relative to the same job alone.
    Pairs with a job that made no progress alone are left out."""
    rows = []
    for item, good in _good(journal).items():
        if len(item.configs) != 2:
            continue
        alone = [journal.rates(Item((config,))) for config in item.configs]
        if not all(any(rate > 0 for rate in rates) for rates in alone):
            continue
        speeds = [ratio_of([m.rates[k] for m in good], alone[k]) for k in (0, 1)]
        row: dict[str, Any] = {}
        for side, (config, speed) in enumerate(zip(item.configs, speeds, strict=True), start=1):
            row |= _workload(config, f"_{side}")
            row[f"speed_{side}"] = speed.value
            row[f"speed_{side}_sd"] = _finite(speed.sd)
            row[f"half_width_{side}_pct"] = _finite(100 * speed.half_width)
        row["sharing"], row["repeats"] = item.sharing, len(good)
        row["tight"] = all(speed.tight(tolerance) for speed in speeds)
        rows.append(row | _usage(good, journal))
    keys = [f"{name}_{side}" for side in (1, 2) for name in ("model", "batch_size", "amp")]
    return _table(rows, PAIR_SCHEMA, (*keys, "sharing"))


def _finite(value: float) -> float | None:
    return value if abs(value) < float("inf") and value == value else None


def _table(rows: list[dict[str, Any]], schema: pa.Schema, keys: tuple[str, ...]) -> pa.Table:
    rows.sort(key=lambda row: tuple(row[key] for key in keys))
    return pa.Table.from_pylist(rows, schema=schema)


def write_tables(journal: Journal, folder: Path, tolerance: float) -> tuple[pa.Table, pa.Table]:
    """Write solo.parquet and pairs.parquet. Return both tables."""
    solo, pairs = solo_table(journal, tolerance), pair_table(journal, tolerance)
    write_table(folder / SOLO_NAME, solo)
    write_table(folder / PAIRS_NAME, pairs)
    return solo, pairs
