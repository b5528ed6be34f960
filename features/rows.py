"""Feature rows of a trace for training. Its events are replayed through the same state that makes
the rows of live jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, tzinfo
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from features.lifetimes import Schedule, lifetimes
from features.replay import Lifetime, Moment, Taken, replay, replay_parts
from features.spec import FeatureSpec
from features.state import DEFAULT_FAMILIES, FeatureError, FeatureState, schema_digest

DAY_S = 86_400.0
LOST_S = 90 * DAY_S

_META = ("y", "job_id", "moment", "time", "submit_time", "start_time", "end_time", "gpus", "block")
_META_PREFIX = "_"
_METADATA = b"pellucid_rows"


@dataclass(frozen=True)
class Rows:
    """Feature rows and the durations that a model is to predict from them. Every array has one
    entry per row.

    Attributes:
        features: specs of the columns of X, in order.
        X: continuous columns float64 (NaN missing), nominal columns object (None missing).
        y: exclusive duration of the job, seconds; NaN where it has not ended, or is not known.
        job_id: id of the job; a job has one row per moment (`Moment`) that was asked for, but none
            for "profiled" if its profile never became known.
        moment: "submit" or "profiled".
        time: time as of which the row was computed, seconds since the epoch.
        submit_time, start_time, end_time: seconds since the epoch; NaN for what has not happened.
        gpus: number of GPUs of the job.
        block: number of the period of `block_s` seconds in which the job was submitted. Jobs come
            in bursts of near-copies, so hold out and bag whole blocks, never random rows.
        adjusted: number of jobs of the trace whose times were out of order and were moved to submit
            <= start <= end.
    """

    features: tuple[FeatureSpec, ...]
    X: pd.DataFrame
    y: NDArray[np.float64]
    job_id: NDArray[np.object_]
    moment: NDArray[np.object_]
    time: NDArray[np.float64]
    submit_time: NDArray[np.float64]
    start_time: NDArray[np.float64]
    end_time: NDArray[np.float64]
    gpus: NDArray[np.int64]
    block: NDArray[np.int64]
    adjusted: int = 0

    def __len__(self) -> int:
        return len(self.y)

    @property
    def digest(self) -> str:
        """Return the digest of the features' specs, see `schema_digest`."""
        return schema_digest(self.features)

    def where(self, mask: NDArray[np.bool_]) -> Rows:
        """Return the rows where `mask` (one entry per row) holds, in the same order."""
        parts = {name: getattr(self, name)[mask] for name in _META}
        return replace(self, X=self.X.loc[mask].reset_index(drop=True), **parts)

    def ended_before(self, cut: float) -> Rows:
        """Return the rows from which a model fitted at the time `cut` may learn: those of jobs that
        had ended before that time, and whose duration is known."""
        return self.where((self.end_time < cut) & np.isfinite(self.y))

    def known_by(self, cut: float) -> Rows:
        """Return the rows of jobs that had started before `cut`, as they were known then: for jobs
        that still ran, y and end_time are NaN.

        Jobs that would have run for more than `LOST_S` seconds by `cut` are left out: their end was
        probably never recorded. So are jobs that ended, but whose duration is not known.
        """
        ended = (self.end_time < cut) & np.isfinite(self.y)
        running = ~(self.end_time < cut) & (cut - self.start_time <= LOST_S)
        running &= (self.start_time < cut) & (np.isfinite(self.y) | np.isnan(self.end_time))
        y, end_time = (np.where(ended, of, np.nan) for of in (self.y, self.end_time))
        return replace(self, y=y, end_time=end_time).where(ended | running)

    def agreed(self) -> Rows:
        """Return the same rows with numbers rounded to 24 bits (float32). Processors may differ in
        the last of the 53 bits of a float64."""
        numbers = [spec.name for spec in self.features if spec.kind == "continuous"]
        agreed = self.X.astype(dict.fromkeys(numbers, np.float32))
        return replace(self, X=agreed.astype(dict.fromkeys(numbers, np.float64)))

    def table(self) -> pa.Table:
        """Return the rows as one Arrow table: feature columns under their names, other columns with
        a leading underscore."""
        columns: dict[str, Any] = {}
        for spec in self.features:
            values = self.X[spec.name].to_numpy()
            kind = pa.float64() if spec.kind == "continuous" else pa.string()
            columns[spec.name] = pa.array(values, kind)
        for name in _META:
            kind = pa.string() if name in ("job_id", "moment") else None  # also when empty
            columns[_META_PREFIX + name] = pa.array(getattr(self, name), kind)
        described = {
            "features": [asdict(spec) for spec in self.features],
            "adjusted": self.adjusted,
        }
        return pa.table(columns).replace_schema_metadata({_METADATA: json.dumps(described)})

    @classmethod
    def from_table(cls, table: pa.Table) -> Rows:
        """Return the rows in a table that `table()` returned. Raises FeatureError if the table
        is something else.
        """
        try:
            described = json.loads(table.schema.metadata[_METADATA])
        except (KeyError, TypeError, ValueError):
            raise FeatureError("feature table: its schema does not describe features") from None
        features = tuple(FeatureSpec(**spec) for spec in described["features"])
        columns = {spec.name: _column(table[spec.name], spec) for spec in features}
        meta = {name: table[_META_PREFIX + name].to_numpy() for name in _META}
        X = pd.DataFrame(columns, index=pd.RangeIndex(table.num_rows))
        return cls(features=features, X=X, adjusted=described["adjusted"], **meta)


def training_rows(
    trace: pa.Table,
    *,
    schedule: Schedule | pa.Table | None = None,
    families: Iterable[str] = DEFAULT_FAMILIES,
    names: Iterable[str] | None = None,
    moments: Collection[Moment] = (Moment.SUBMIT,),
    profile_after_s: float | None = None,
    timezone: tzinfo = UTC,
    block_s: float = DAY_S,
) -> Rows:
    """Return the feature rows of every job of a trace in time order, one per moment, each as a live
    service would have computed it.

    Args:
        trace: rows of `features.schema.TRACE_SCHEMA`, in any order.
        schedule, profile_after_s: see `lifetimes.lifetimes`.
        families, names: features to compute, see `features.state.features_of`.
        moments: when to take rows. A model that scores profiled jobs must be fitted on "profiled"
            rows: at submission no profile is known, and jobs that end during profiling never have
            one.
        timezone: clock of the calendar features.
        block_s: length of the periods that `Rows.block` numbers, seconds.

    Raises FeatureError on a trace or schedule that cannot be replayed.
    """
    lives, adjusted = lifetimes(trace, schedule, profile_after_s=profile_after_s)
    state = FeatureState(families, names=names, timezone=timezone)
    rows = rows_of(lives, state, moments, block_s=block_s)
    return replace(rows, adjusted=adjusted)


def rows_of(
    lives: Sequence[Lifetime],
    state: FeatureState,
    moments: Collection[Moment] = (Moment.SUBMIT,),
    *,
    block_s: float = DAY_S,
) -> Rows:
    """Return the feature rows of `lives`, replayed through `state`, in time order. `block_s` is the
    length in seconds of the periods that `Rows.block` numbers. Raises FeatureError unless it is
    above 0."""
    if not block_s > 0:
        raise FeatureError(f"block_s is {block_s}, must be > 0")
    taken = [(row, lives[row.position]) for row in replay(lives, state, moments)]
    first = min((life.job.submit_time for life in lives), default=0.0)
    return _collected(taken, state.features, first, block_s)


def streamed_rows(
    months: Iterable[pa.Table],
    *,
    families: Iterable[str] = DEFAULT_FAMILIES,
) -> Iterator[Rows]:
    """Yield the rows that `training_rows` returns, for a trace that comes in parts, in order of
    submission.

    Memory holds one part, the jobs that end after the part in which they were submitted, and the
    feature state.
    """
    state = FeatureState(families)
    first: list[float] = []
    moved = 0

    def parts() -> Iterator[list[Lifetime]]:
        nonlocal moved
        for month in months:
            lives, adjusted = lifetimes(month)
            moved += adjusted
            if lives and not first:
                first.append(min(life.job.submit_time for life in lives))
            yield lives

    for taken in replay_parts(parts(), state):
        adjusted, moved = moved, 0
        yield replace(_collected(taken, state.features, first[0], DAY_S), adjusted=adjusted)


def _collected(
    taken: Sequence[tuple[Taken, Lifetime]],
    specs: tuple[FeatureSpec, ...],
    first: float,
    block_s: float,
) -> Rows:
    """Return `taken` as `Rows`, in columns. `Rows.block` numbers periods of `block_s` seconds from
    the time `first`."""
    continuous = [i for i, spec in enumerate(specs) if spec.kind == "continuous"]
    numbers = np.full((len(taken), len(continuous)), np.nan)
    if continuous:
        pick = itemgetter(*continuous)
        for i, (row, _) in enumerate(taken):
            numbers[i] = pick(row.values)
    columns: dict[str, Any] = {}
    for position, spec in enumerate(specs):
        if spec.kind == "continuous":
            columns[spec.name] = numbers[:, continuous.index(position)]
        else:
            columns[spec.name] = _pandas([row.values[position] for row, _ in taken], spec)
    lives = [life for _, life in taken]
    submit = _seconds([life.job.submit_time for life in lives])
    return Rows(
        features=specs,
        X=pd.DataFrame(columns, index=pd.RangeIndex(len(taken))),
        y=_seconds([life.duration_s if life.ended else None for life in lives]),
        job_id=np.array([life.job.job_id for life in lives], dtype=object),
        moment=np.array([row.moment.value for row, _ in taken], dtype=object),
        time=_seconds([row.now for row, _ in taken]),
        submit_time=submit,
        start_time=_seconds([life.start_time for life in lives]),
        end_time=_seconds([life.end_time for life in lives]),
        gpus=np.array([life.job.gpus for life in lives], dtype=np.int64),
        block=np.floor_divide(submit - first, block_s).astype(np.int64),
    )


def _seconds(values: list[float] | list[float | None]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


def _column(column: pa.ChunkedArray, spec: FeatureSpec) -> pd.Series:
    if spec.kind == "continuous":
        return pd.Series(column.to_numpy(), dtype=np.float64)
    return _pandas(column.to_pylist(), spec)


def _pandas(values: list[Any], spec: FeatureSpec) -> pd.Series:
    # Explicit: pandas would make a string column of the labels, and its missing value NaN.
    return pd.Series(values, dtype=np.float64 if spec.kind == "continuous" else object)
