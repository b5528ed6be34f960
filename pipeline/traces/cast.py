"""Conversion of text to values, whole columns at a time. Only wrong values are converted one by
one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from features.schema import LABEL, TIME, State

Mask = npt.NDArray[np.bool_]

NAIVE = pa.timestamp("ms")
_HOUR_MS = 3_600_000

# How the sources write "not known". Anything else in a number or time column is an error.
NULLS = ("", "NaN", "nan", "NA", "N/A", "None", "none", "NULL", "null", "Unknown")

# Beyond this an offset is no time in any trace; clipping keeps it representable and implausible.
MAX_OFFSET_S = 4e9


def cast_or_null(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return texts cast to the Arrow type ``kind``; texts that cannot be cast become null.

    The whole array is cast first. If that fails, each half is cast in the same way, so a wrong
    value costs only a few casts more.
    """
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
    middle = len(texts) // 2
    parts = [cast_or_null(texts[:middle], kind), cast_or_null(texts[middle:], kind)]
    return pa.concat_arrays(parts)


def blank_to_null(texts: pa.Array, trim: bool = True) -> pa.Array:
    """Return texts in which the spellings of "not known" (`NULLS`) are null. With `trim`,
    surrounding white space is removed first."""
    texts = pc.utf8_trim_whitespace(texts) if trim else texts
    return pc.if_else(pc.is_in(texts, pa.array(NULLS)), None, texts)


def mask(condition: Any) -> Mask:
    """Return a boolean Arrow array as a NumPy mask; null is False."""
    if isinstance(condition, np.ndarray):
        return condition
    if isinstance(condition, pa.ChunkedArray):
        condition = condition.combine_chunks()
    filled: Mask = pc.fill_null(condition, False).to_numpy(zero_copy_only=False)
    return filled


def floats(values: Any) -> npt.NDArray[np.float64]:
    """Return a numeric Arrow array as float64; null is NaN."""
    array: npt.NDArray[np.float64] = pc.fill_null(pc.cast(values, pa.float64()), np.nan).to_numpy(
        zero_copy_only=False
    )
    return array


def from_floats(values: npt.NDArray[np.float64]) -> pa.Array:
    """Return float64 as an Arrow array; NaN is null."""
    return pa.array(values, pa.float64(), from_pandas=True)


def offset_times(seconds: Any, origin: datetime) -> pa.Array:
    """Return seconds since ``origin`` (float, null allowed) as UTC times, rounded to
    milliseconds.
    """
    values = np.clip(floats(seconds), -MAX_OFFSET_S, MAX_OFFSET_S)
    known = ~np.isnan(values)
    start = round(origin.timestamp() * 1000)
    millis = np.where(known, np.rint(np.nan_to_num(values) * 1000), 0).astype(np.int64) + start
    return pc.cast(pa.array(millis, mask=~known), TIME)


def localise(times: pa.Array, zone: str, not_before: pa.Array | None = None) -> tuple[Any, int]:
    """Return (clock times of ``zone`` as UTC, number of times that fall into a change of the
    clock).

    A time in the hour that a clock shows twice is taken as in the first of the two, unless it would
    then be before ``not_before`` (for example the submission of the same job). A time that the
    clock skips is moved to the end of the gap.
    """
    offset = _constant_offset(times, zone)
    if offset is not None:
        return pc.cast(pc.subtract(times, pa.scalar(offset, pa.duration("ms"))), TIME), 0
    try:
        return pc.cast(pc.assume_timezone(times, zone), TIME), 0
    except pa.ArrowInvalid:
        pass
    early = pc.cast(_assume(times, zone, "earliest"), TIME)
    late = pc.cast(_assume(times, zone, "latest"), TIME)
    moved = int(pc.sum(pc.not_equal(early, late)).as_py() or 0)
    # A skipped time has "earliest" just before the gap, which is no time it can have been.
    skipped = pc.equal(pc.subtract(late, early), pa.scalar(1, pa.duration("ms")))
    use_late = pc.fill_null(skipped, False)
    if not_before is not None:
        use_late = pc.or_(use_late, pc.fill_null(pc.less(early, not_before), False))
    return pc.if_else(use_late, late, early), moved


def _constant_offset(times: pa.Array, zone: str) -> int | None:
    """Return by how many milliseconds the clock of ``zone`` is ahead of UTC, if that is the same
    from the first to the last of these times; otherwise None.

    The offset is looked up once for every hour between them. Also return None if these are more
    look-ups than there are times, or if no time is known.
    """
    span = pc.min_max(pc.cast(times, pa.int64())).as_py()
    if span["min"] is None:
        return None
    first, last = (span[end] // _HOUR_MS for end in ("min", "max"))
    if last - first >= len(times):
        return None
    hours = np.arange(first, last + 2) * _HOUR_MS
    try:
        known = pc.assume_timezone(pa.array(hours.astype("datetime64[ms]")), zone)
    except pa.ArrowInvalid:
        return None
    offsets = hours - pc.cast(known, pa.int64()).to_numpy()
    return int(offsets[0]) if (offsets == offsets[0]).all() else None


def _assume(times: pa.Array, zone: str, which: str) -> pa.Array:
    return pc.assume_timezone(times, zone, ambiguous=which, nonexistent=which)


def map_unique(values: pa.Array, convert: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """Return an array with ``convert`` applied to each text, once per distinct text. Nulls stay
    null.

    Args:
        values: texts, plain or dictionary-encoded.
        convert: returns the value of Arrow type ``kind`` for a text, or None.
        kind: Arrow type of the result.
    """
    if not pa.types.is_dictionary(values.type):
        values = pc.dictionary_encode(values)
    converted = pa.array([convert(text) for text in values.dictionary.to_pylist()], kind)
    return converted.take(values.indices)


def states(values: pa.Array, known: Mapping[str, State]) -> tuple[pa.Array, dict[str, int]]:
    """Return the source's states of jobs as those of the trace schema, by the mapping
    ``known``. A state that is missing, or not in ``known``, becomes ``unknown`` and gives a
    warning.

    Returns:
        the states as a label column, and the number of rows by warning.
    """
    odd: dict[str, int] = {}
    values = values if pa.types.is_dictionary(values.type) else pc.dictionary_encode(values)
    names = values.dictionary.to_pylist()
    counts = np.bincount(pc.drop_null(values.indices).to_numpy(), minlength=len(names))
    for name, count in zip(names, counts, strict=True):
        if name not in known and count:
            odd[f"unknown_state:{name[:40]}"] = int(count)
    if values.null_count:
        odd["missing_state"] = values.null_count
    order = list(State)
    codes = [order.index(known.get(name, State.UNKNOWN)) for name in names]
    unknown = order.index(State.UNKNOWN)
    indices = pc.fill_null(pa.array(codes, pa.int32()).take(values.indices), unknown)
    return pa.DictionaryArray.from_arrays(indices, pa.array([str(s) for s in order])), odd


def constant_label(value: str | None, length: int) -> pa.Array:
    """Return a label column (dictionary-encoded text) of `length` rows, all with this value;
    None: null."""
    if value is None:
        return pa.nulls(length, LABEL)
    zeros = pa.array(np.zeros(length, np.int32))
    return pa.DictionaryArray.from_arrays(zeros, pa.array([value]))


def labels(values: Iterable[str | None]) -> pa.Array:
    """Return Python strings as a label column (dictionary-encoded text)."""
    return pc.cast(pc.dictionary_encode(pa.array(values, pa.string())), LABEL)
