"""The card of a measured data set: what was measured, where and how, how well it repeats, and what
it is not.
"""

from __future__ import annotations

import math
import statistics
from pathlib import Path
from typing import Any

import pyarrow as pa

from features.files import write_whole
from profiler.period import CONFIDENT
from reproductions.colocation.bench import Settings

CARD_NAME = "README.md"
TEMPLATE = """\
# Measured training workloads: {DEVICE}

Throughput, utilisation and memory of deep-learning training jobs alone and in pairs on one device,
measured by `python -m reproductions.colocation.campaign`. Ours; Apache-2.0 like the rest.

| file | what |
|---|---|
| `solo.parquet` | one row per model, batch size and precision, measured alone |
| `pairs.parquet` | one row per pair and way of sharing; `speed_1`, `speed_2`: steps per second |
| | while sharing, relative to the same job alone |
| `measurements.jsonl` | every measurement in the order it was made; the source of the tables |
| `machine.json` | what it was measured on and with |

Columns, types and units: `reproductions/colocation/schema.py`. A null is "not measured", not 0.

## Coverage
{COVERAGE}

## Machine
{MACHINE}

## Protocol
{PROTOCOL}

Workloads are `reproductions/colocation/workloads` (synthetic data on the device, float16 with loss
scaling for AMP, TF32 as torch has it by default, cuDNN's autotuner off). Steps are counted by the
workload itself with the device synchronised at irregular moments. Two workers stay alive, so the
device's memory in use includes an idle CUDA context when one job is alone; `gpu_mem_mib` is
the measured job's own where the driver has it. No clock, power limit or compute mode was changed.

## Spread
(highest - lowest) / mean of the steps per second over repeats of the same item:

{SPREAD}

## Step time from outside
{STEPS}

## Alone
{SOLO}

## In pairs
{PAIRS}

## Not measured
{MISSING}

## What it is not
One device and one software stack. Synthetic data: no input pipeline, no disk. Short windows: no
thermal throttling of hours. Pairs start together and run throughout the window: no phases.
"""


def write_card(
    folder: Path,
    machine: dict[str, Any],
    settings: Settings,
    summary: dict[str, Any],
    solo: pa.Table,
    pairs: pa.Table,
    spread: dict[str, list[float]],
) -> Path:
    """Fill TEMPLATE with figures from the measurements, and write it into `folder`. Return the path
    of the card."""
    text = TEMPLATE
    values = {
        "DEVICE": summary["device"],
        "MACHINE": _machine(machine),
        "COVERAGE": _coverage(summary),
        "PROTOCOL": _protocol(settings),
        "SPREAD": _spread(spread),
        "STEPS": _steps(solo),
        "SOLO": _solo(solo),
        "PAIRS": _pairs(pairs),
        "MISSING": _missing(summary),
    }
    for key, value in values.items():
        text = text.replace(f"{{{key}}}", str(value))
    path = folder / CARD_NAME
    write_whole(path, text)
    return path


def _machine(machine: dict[str, Any]) -> str:
    lines = []
    for device in machine["devices"]:
        facts = ", ".join(
            f"{key} {value}"
            for key, value in device.items()
            if key not in ("channel", "name", "uuid", "device") and value is not None
        )
        lines.append(f"- {device['name']} ({facts})")
    lines.append(f"- {machine['cores']} CPU cores")
    lines.append("- " + ", ".join(f"{k} {v}" for k, v in machine["versions"].items()))
    return "\n".join(lines)


def _coverage(summary: dict[str, Any]) -> str:
    state = "complete" if summary["complete"] else "unfinished: running the campaign again goes on"
    text = (
        f"{summary['solo']} of {summary['solo_wanted']} configurations alone, "
        f"{summary['pairs']} rows of pairs ({summary['pairs_wanted']} pairs wanted), "
        f"{summary['measurements']} measurements in all; {state}."
    )
    if summary["not_fitting"]:
        text += f" Did not fit in memory: {', '.join(summary['not_fitting'])}."
    if summary["failed"]:
        text += f" {summary['failed']} measurements failed."
    return text


def _protocol(s: Settings) -> str:
    return (
        f"Windows of {s.solo_s:g} s alone and {s.pair_s:g} s in pairs, after {s.settle_s:g} s of "
        f"settling; {s.min_repeats} to {s.max_repeats} repeats in shuffled order (seed {s.seed}) "
        f"until the 95 % confidence interval is within {100 * s.tolerance:g} %; {s.size} workloads."
    )


def _spread(spread: dict[str, list[float]]) -> str:
    lines = ["| | repeated | median | p90 | worst | within 5 % |", "|---|---|---|---|---|---|"]
    for sharing, values in spread.items():
        if not values:
            continue
        ordered = sorted(values)
        p90 = ordered[min(len(ordered) - 1, math.ceil(0.9 * len(ordered)) - 1)]
        close = sum(value <= 0.05 for value in values) / len(values)
        lines.append(
            f"| {sharing} | {len(values)} | {statistics.median(values):.2%} | {p90:.2%} | "
            f"{ordered[-1]:.2%} | {close:.0%} |"
        )
    return "\n".join(lines) if len(lines) > 2 else "Nothing was measured twice yet."


def _steps(solo: pa.Table) -> str:
    """Return how the step time estimated from outside compares with the truth, by family."""
    right: dict[str, bool] = {}
    sure = sure_right = count = seen = 0
    for row in solo.to_pylist():
        count += 1
        family = row["model"]
        right.setdefault(family, False)
        if row["step_s_estimate"] is None or not row["steps_per_s"]:
            continue
        seen += 1
        good = abs(row["step_s_estimate"] * row["steps_per_s"] - 1) <= 0.10
        right[family] = right[family] or good
        if (row["step_confidence"] or 0.0) >= CONFIDENT:
            sure += 1
            sure_right += good
    if not count:
        return "No configuration was measured alone yet."
    return (
        f"Of {count} configurations an estimate was made for {seen}; of the {sure} that were "
        f"confident (>= {CONFIDENT:g}), {sure_right} are within 10 % of the truth. At least one "
        f"estimate within 10 % exists for {sum(right.values())} of {len(right)} families."
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _solo(solo: pa.Table) -> str:
    names = ("steps_per_s", "half_width_pct", "gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib",
             "power_w")  # fmt: skip
    lines = [
        "| workload | steps/s | +- % | GPU % | memory % | memory MiB | W |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in solo.to_pylist():
        title = f"{row['model']}/{row['batch_size']}{' amp' if row['amp'] else ''}"
        lines.append(f"| {title} | " + " | ".join(_number(row[name]) for name in names) + " |")
    return "\n".join(lines)


def _pairs(pairs: pa.Table) -> str:
    by_mode: dict[str, list[float]] = {}
    for row in pairs.to_pylist():
        by_mode.setdefault(row["sharing"], []).append(row["speed_1"] + row["speed_2"])
    lines = [
        f"- {mode}: {len(sums)} pairs, sum of the two speeds {min(sums):.2f} to {max(sums):.2f}, "
        f"mean {statistics.fmean(sums):.3f}"
        for mode, sums in by_mode.items()
    ]
    return "\n".join(lines) or "No pair was measured yet."


def _missing(summary: dict[str, Any]) -> str:
    lines = [f"- {key}: {why}" for key, why in {**summary["missing"], **summary["without"]}.items()]
    return "\n".join(lines) or "Nothing that was asked for."
