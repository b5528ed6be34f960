"""Measured pairs: two training configurations on one GPU, with the speed of each relative to
running alone.

All sources give the same table. Measured and simulated pairs are never mixed: every set knows its
origin, and a bundle trained on it states the origin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from features.given import arrow_file, opened
from models.training.errors import TrainingError

Floats = NDArray[np.float64]
Origin = Literal["measured", "simulated"]

# Fields of one member; a pair has each with "_a" and with "_b".
MEMBER_FIELDS: tuple[pa.Field, ...] = (
    pa.field("model", pa.string(), nullable=False),  # the model family
    pa.field("dataset", pa.string()),
    pa.field("batch", pa.int32(), nullable=False),
    pa.field("amp", pa.bool_()),
    # the profile of the configuration running alone
    pa.field("gpu_util_pct", pa.float64(), nullable=False),
    pa.field("gpu_mem_util_pct", pa.float64(), nullable=False),
    pa.field("gpu_mem_mib", pa.float64(), nullable=False),
    # throughput beside the other member, relative to running alone
    pa.field("speed", pa.float64(), nullable=False),
)
PAIR_SCHEMA = pa.schema(
    [field.with_name(f"{field.name}_{side}") for side in "ab" for field in MEMBER_FIELDS]
)
_CONFIGURATION = ("model", "dataset", "batch", "amp")
_PROFILE = ("gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib")
ACTIVE = "sm_active_pct"  # of a member, where its GPU counted it: a column that pairs may have
_ORIGIN_KEY = b"pellucid_pairs"
# How two processes share a GPU: their kernels run at once under NVIDIA MPS, else in turns.
SHARING = ("mps", "time-slicing")


@dataclass(frozen=True)
class PairMeasurements:
    """Measured pairs of one origin.

    Attributes:
        frame: columns of `PAIR_SCHEMA`, one row per pair.
        origin: "measured" on hardware, or "simulated" by a formula.
        source: where the pairs come from, one line.
        sharing: how the pairs shared the GPU, one of `SHARING`; "" where that is not known.

    Raises TrainingError when a column is missing or a figure impossible.
    """

    frame: pd.DataFrame
    origin: Origin
    source: str
    sharing: str = ""

    def __post_init__(self) -> None:
        if self.origin not in ("measured", "simulated"):
            raise TrainingError(f"origin is {self.origin!r}, must be measured or simulated")
        if self.sharing not in ("", *SHARING):
            raise TrainingError(f"sharing is {self.sharing!r}, must be {' or '.join(SHARING)}")
        missing = [name for name in PAIR_SCHEMA.names if name not in self.frame.columns]
        if missing:
            raise TrainingError(f"pairs: column {missing[0]!r} is missing")
        for side in "ab":
            for name, low, high in (
                ("gpu_util_pct", 0.0, 100.0),
                ("gpu_mem_util_pct", 0.0, 100.0),
                ("gpu_mem_mib", 0.0, np.inf),
                ("speed", 0.0, np.inf),
            ):
                column = f"{name}_{side}"
                values = _numbers(self.frame, column)
                wrong = ~np.isfinite(values) | (values < low) | (values > high)
                if name == "speed":
                    wrong |= values == 0.0
                if wrong.any():
                    accepted = "above 0" if name == "speed" else f"from {low:g} to {high:g}"
                    value = values[int(wrong.argmax())]
                    raise TrainingError(f"pairs: {column} is {value:g}, must be {accepted}")

    def __len__(self) -> int:
        return len(self.frame)

    @cached_property
    def digest(self) -> str:
        """Return the sha256 (hex) of origin and pairs, with numbers rounded to float32, on which
        all processors agree."""
        digest = hashlib.sha256(self.origin.encode())
        frame = self.frame[self._schema.names]
        agreed = frame.astype(dict.fromkeys(frame.select_dtypes("float64"), np.float32))
        rows = agreed.astype(str)
        digest.update(pd.util.hash_pandas_object(rows, index=False).to_numpy().tobytes())
        return digest.hexdigest()

    @property
    def _schema(self) -> pa.Schema:
        """Return `PAIR_SCHEMA` together with those columns of GPU counters that `frame` has."""
        counted = [name for name in (f"{ACTIVE}_a", f"{ACTIVE}_b") if name in self.frame.columns]
        return pa.schema([*PAIR_SCHEMA, *(pa.field(name, pa.float64()) for name in counted)])

    @cached_property
    def members(self) -> Members:
        """Return a `Members` with both members of every pair."""
        return _members(self.frame)

    @property
    def families(self) -> tuple[str, ...]:
        """Return the names of the model families in the pairs, sorted."""
        return tuple(sorted(set(self.members.family)))

    def provenance(self, exclude_families: Collection[str] = ()) -> dict[str, Any]:
        """Return where the pairs come from, as a model fitted on them without `exclude_families`
        records it; plain JSON."""
        return {
            "origin": self.origin,
            "source": self.source,
            "sharing": self.sharing,
            "pairs_digest": self.digest,
            "excluded_families": sorted(exclude_families),
        }

    def table(self) -> pa.Table:
        """Return the pairs as an Arrow table, with origin, source and way of sharing in the
        schema's metadata."""
        described = {
            _ORIGIN_KEY: self.origin.encode(),
            b"source": self.source.encode(),
            b"sharing": self.sharing.encode(),
        }
        table = pa.Table.from_pandas(self.frame, schema=self._schema, preserve_index=False)
        return table.replace_schema_metadata(described)


@dataclass(frozen=True, slots=True)
class Members:
    """The members of n pairs as arrays of 2n rows: the first member of every pair, then the second
    of every pair.

    Attributes:
        family, partner_family: model families of the member and of the other member, (2n,) of str.
        configuration: number of the configuration, (2n,); equal for equal (model, dataset, batch,
            amp).
        profile: gpu_util_pct, gpu_mem_util_pct, gpu_mem_mib, amp (NaN unknown), (2n, 4).
        partner: the profile of the other member, (2n, 4).
        speed: speed relative to running alone, capped at 1, (2n,): sharing cannot make a job
            faster, so values above 1 are noise of the measurement.
        active: SM activity of both members of the pair together, percent, (2n,); NaN where it was
            not measured for both.
    """

    family: NDArray[np.object_]
    partner_family: NDArray[np.object_]
    configuration: NDArray[np.int64]
    profile: Floats
    partner: Floats
    speed: Floats
    active: Floats

    def without(self, families: Collection[str]) -> Members:
        """Return the members of pairs in which none of `families` takes part."""
        if not families:
            return self
        out = list(families)
        keep = ~(np.isin(self.family, out) | np.isin(self.partner_family, out))
        return self.where(keep)

    @property
    def partner_speed(self) -> Floats:
        """Return, for each member of a pair, the speed of the other member relative to running
        alone, an array (2n,)."""
        a, b = np.split(self.speed, 2)
        return np.concatenate([b, a])

    def where(self, mask: NDArray[np.bool_]) -> Members:
        """Return the members for which `mask`, (2n,), is true."""
        return Members(*(getattr(self, name)[mask] for name in self.__slots__))


def read_artifact(folder: str | Path) -> PairMeasurements:
    """Return the pairs in the files `single_data.csv` and `colocate_info.csv` of a folder, in the
    format of Lucid's published artifact.

    A pair's members are looked up among the single configurations by model, dataset, batch size and
    amp. Raises TrainingError when a file, column or configuration is missing.
    """
    folder = Path(folder)
    key = ["model", "dataset", "batchsize", "amp"]
    singles = _read_csv(folder / "single_data.csv", [*key, "gpu_util", "gmem_util", "gmem"])
    names = [f"{name}{i}" for i in (1, 2) for name in (*key, "speed")]
    pairs = _read_csv(folder / "colocate_info.csv", names)
    singles = singles.drop_duplicates(key).set_index(key)
    columns: dict[str, Any] = {}
    for i, side in ((1, "a"), (2, "b")):
        wanted = pd.MultiIndex.from_frame(pairs[[f"{name}{i}" for name in key]], names=key)
        absent = ~wanted.isin(singles.index)
        if absent.any():
            configuration = " ".join(map(str, wanted[absent][0]))
            raise TrainingError(f"colocate_info.csv: {configuration} has no row in single_data.csv")
        profile = singles.loc[wanted]
        columns[f"model_{side}"] = pairs[f"model{i}"].astype(str)
        columns[f"dataset_{side}"] = pairs[f"dataset{i}"].astype(str)
        columns[f"batch_{side}"] = pairs[f"batchsize{i}"].astype("int32")
        columns[f"amp_{side}"] = pairs[f"amp{i}"].astype(bool)
        columns[f"gpu_util_pct_{side}"] = profile["gpu_util"].to_numpy(dtype=np.float64)
        columns[f"gpu_mem_util_pct_{side}"] = profile["gmem_util"].to_numpy(dtype=np.float64)
        columns[f"gpu_mem_mib_{side}"] = profile["gmem"].to_numpy(dtype=np.float64)
        columns[f"speed_{side}"] = pairs[f"speed{i}"].to_numpy(dtype=np.float64)
    return PairMeasurements(pd.DataFrame(columns), "measured", "colocate_info.csv")


def read_bench(folder: str | Path, *, sharing: str = "time-slicing") -> PairMeasurements:
    """Return the pairs in the files `solo.parquet` and `pairs.parquet` that the colocation bench
    writes.

    Args:
        folder: folder that `pellucid colocate` or a campaign wrote.
        sharing: how the pairs shared the GPU: "time-slicing" or "mps".

    Pairs with a member that was not profiled alone are left out. Raises TrainingError when a file
    is missing or malformed, when no GPU was measured, or when no pair is left.
    """
    folder = Path(folder)
    key = ["model", "dataset", "batch_size", "amp"]
    profile = ["gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib"]
    singles = _read_parquet(
        folder / "solo.parquet", [*key, *profile, "device", "device_name"], more=ACTIVE
    )
    members = [f"{name}_{i}" for i in (1, 2) for name in (*key, "speed")]
    pairs = _read_parquet(folder / "pairs.parquet", [*members, "sharing"])
    if len(singles) and (singles["device"] != "gpu").all():
        raise TrainingError(f"pairs {folder}: measured on a CPU; GPU utilisation is not known")
    pairs = pairs[pairs["sharing"] == sharing]
    singles = singles.dropna(subset=profile).drop_duplicates(key).set_index(key)
    wanted = [
        pd.MultiIndex.from_frame(pairs[[f"{name}_{i}" for name in key]], names=key) for i in (1, 2)
    ]
    known = wanted[0].isin(singles.index) & wanted[1].isin(singles.index)
    known &= pairs[["speed_1", "speed_2"]].notna().all(axis=1).to_numpy()
    if not known.any():
        raise TrainingError(f"pairs {folder}: no {sharing} pair of profiled configurations")
    columns: dict[str, Any] = {}
    for i, side in ((1, "a"), (2, "b")):
        found = singles.loc[wanted[i - 1][known]]
        for name, column in (("model", str), ("dataset", str), ("amp", bool)):
            columns[f"{name}_{side}"] = pairs.loc[known, f"{name}_{i}"].astype(column).to_numpy()
        columns[f"batch_{side}"] = pairs.loc[known, f"batch_size_{i}"].astype("int32").to_numpy()
        for name in profile:
            columns[f"{name}_{side}"] = found[name].to_numpy(dtype=np.float64)
        if ACTIVE in found.columns:
            columns[f"{ACTIVE}_{side}"] = found[ACTIVE].to_numpy(dtype=np.float64)
        columns[f"speed_{side}"] = pairs.loc[known, f"speed_{i}"].to_numpy(dtype=np.float64)
    device = ", ".join(sorted(set(singles["device_name"].astype(str))))
    return PairMeasurements(pd.DataFrame(columns), "measured", f"{device}, {sharing}", sharing)


def modes_of(folder: str | Path) -> tuple[str, ...]:
    """Return the ways of sharing a GPU that the colocation bench measured in a folder, in the order
    of `SHARING`.

    Raises TrainingError when the file is missing or malformed.
    """
    pairs = _read_parquet(Path(folder) / "pairs.parquet", ["sharing"])
    return tuple(mode for mode in SHARING if (pairs["sharing"] == mode).any())


def read_pairs(path: str | Path, *, sharing: str | None = None) -> PairMeasurements:
    """Return the pairs in a Parquet file of `PAIR_SCHEMA`, or in a folder.

    A folder with `solo.parquet` is in the colocation bench's format, any other in that of Lucid's
    artifact. A file that does not state the origin of its pairs is assumed to be measured.

    Args:
        sharing: way of sharing, one of `SHARING`, or None. From a bench's folder, the pairs
            measured in this way are returned (None: time-slicing). Pairs from elsewhere that do not
            state their way are assumed to be measured in this one. Raises TrainingError if they
            state another.
    """
    if sharing not in (None, *SHARING):
        raise TrainingError(f"sharing is {sharing!r}, must be {' or '.join(SHARING)}")
    found = _read_pairs(path, sharing)
    if sharing is None or found.sharing == sharing:
        return found
    if found.sharing:
        raise TrainingError(f"pairs {path}: measured under {found.sharing}, not under {sharing}")
    return replace(found, sharing=sharing)


def _read_pairs(path: str | Path, sharing: str | None) -> PairMeasurements:
    path = Path(path)
    if not path.exists():
        raise TrainingError(f"pairs {path}: no such file or folder")
    if path.is_dir():
        bench = (path / "solo.parquet").exists()
        return read_bench(path, sharing=sharing or "time-slicing") if bench else read_artifact(path)
    try:
        with arrow_file(path) as file:
            table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise TrainingError(f"pairs {path}: {_first_line(error)}") from None
    described = table.schema.metadata or {}
    origin = described.get(_ORIGIN_KEY, b"measured").decode()
    source = described.get(b"source", path.name.encode()).decode()
    return PairMeasurements(
        table.to_pandas(),
        "simulated" if origin == "simulated" else "measured",
        source,
        described.get(b"sharing", b"").decode(),
    )


def _read_csv(path: Path, columns: list[str]) -> pd.DataFrame:
    try:
        with opened(path) as file:
            frame = pd.read_csv(file)
    except (OSError, ValueError) as error:
        raise TrainingError(f"pairs {path}: {_first_line(error)}") from None
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise TrainingError(f"pairs {path}: column {missing[0]!r} is missing")
    bad = frame[columns].isna().any(axis=1)
    if bad.any():
        raise TrainingError(f"pairs {path}: line {int(bad.argmax()) + 2} has an empty cell")
    return frame[columns]


def _first_line(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):  # pyarrow's says nothing but the path
        return "no such file"
    reason = error.strerror if isinstance(error, OSError) else None
    return reason or str(error).splitlines()[0]


def _read_parquet(path: Path, columns: list[str], more: str = "") -> pd.DataFrame:
    """Return the columns `columns` of a file, and the column `more` if the file has it. Raises
    TrainingError if the file cannot be read or a column is missing."""
    try:
        with arrow_file(path) as file:
            frame: pd.DataFrame = pq.read_table(file).to_pandas()
    except (OSError, pa.ArrowException) as error:
        raise TrainingError(f"pairs {path}: {_first_line(error)}") from None
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise TrainingError(f"pairs {path}: column {missing[0]!r} is missing")
    return frame[[*columns, *([more] if more in frame.columns else [])]]


def _numbers(frame: pd.DataFrame, column: str) -> Floats:
    try:
        return frame[column].to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise TrainingError(f"pairs: {column} must hold numbers") from None


def _members(frame: pd.DataFrame) -> Members:
    sides = {}
    for side in "ab":
        amp = frame[f"amp_{side}"].astype("boolean").to_numpy(dtype=np.float64, na_value=np.nan)
        numbers = [_numbers(frame, f"{name}_{side}") for name in _PROFILE]
        sides[side] = np.column_stack([*numbers, amp])
    keys = pd.concat(
        [
            frame[[f"{name}_{side}" for name in _CONFIGURATION]].set_axis(_CONFIGURATION, axis=1)
            for side in "ab"
        ]
    )
    active = np.full(len(frame), np.nan)
    if {f"{ACTIVE}_a", f"{ACTIVE}_b"} <= set(frame.columns):
        active = _numbers(frame, f"{ACTIVE}_a") + _numbers(frame, f"{ACTIVE}_b")
    family = {side: frame[f"model_{side}"].to_numpy(dtype=object) for side in "ab"}
    speed = np.concatenate([_numbers(frame, f"speed_{side}") for side in "ab"])
    number = keys.groupby(list(_CONFIGURATION), dropna=False).ngroup().to_numpy()
    return Members(
        family=np.concatenate([family["a"], family["b"]]),
        partner_family=np.concatenate([family["b"], family["a"]]),
        configuration=number.astype(np.int64),
        profile=np.concatenate([sides["a"], sides["b"]]),
        partner=np.concatenate([sides["b"], sides["a"]]),
        speed=np.minimum(speed, 1.0),
        active=np.concatenate([active, active]),
    )
