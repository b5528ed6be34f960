"""Totals of a dataset, and signs of a wrong unit, time zone or origin in it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from pipeline.traces.dataset import read_dataset

DAY_S = 86_400.0
FEW = 20  # jobs of which nothing is doubted


def lines_of(folder: Path, now: datetime | None = None) -> list[str]:
    """Return lines of text about a dataset: totals, waiting times, and doubtful times.

    Args:
        now: the present time; times after it are doubtful.
    """
    jobs = read_dataset(folder)
    gpus = _floats(jobs["gpus"])
    lasted = _floats(jobs["duration_s"])
    submit, start = (
        _floats(pc.cast(jobs[n], "int64")) / 1e3 for n in ("submit_time", "start_time")
    )
    waited = start - submit
    found = [f"{np.nansum(gpus * lasted) / 3600:,.0f} GPU-hours"]
    for name, values in (("duration", lasted), ("wait", waited)):
        known = values[~np.isnan(values)]
        if len(known):
            found.append(
                f"{name}: mean {known.mean():,.0f} s, median {np.median(known):,.0f} s, "
                f"longest {known.max():,.0f} s, of {len(known):,} jobs"
            )
    instant = (now or datetime.now(UTC)).timestamp()
    return found + [f"doubt: {one}" for one in _doubts(submit, lasted, waited, instant)]


def _doubts(
    submit: npt.NDArray[np.float64],
    lasted: npt.NDArray[np.float64],
    waited: npt.NDArray[np.float64],
    now: float,
) -> Iterator[str]:
    if (submit > now + timedelta(days=1).total_seconds()).any():
        yield "jobs are submitted in the future: are times counted from another origin?"
    if len(submit) < FEW:
        return
    for name, values in (("durations", lasted), ("waits", waited)):
        known = values[values > 0]
        if len(known) >= FEW and np.median(known) > 20 * DAY_S:
            yield f"half of the {name} are above 20 days: are they in milliseconds?"
    known = lasted[lasted > 0]
    if len(known) >= FEW and np.percentile(known, 95) < 5:
        yield "nearly all jobs last under 5 s: are durations in minutes or hours?"
    if np.ptp(submit) < 60:
        yield "all jobs are submitted within a minute: are submissions in minutes or hours?"
    if np.ptp(submit) / len(submit) > 10 * DAY_S:
        yield "jobs are submitted 10 days apart: are submissions in milliseconds?"


def _floats(column: object) -> npt.NDArray[np.float64]:
    filled = pc.fill_null(pc.cast(column, "float64"), np.nan)
    return np.asarray(filled.to_numpy(), np.float64)
