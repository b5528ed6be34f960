"""Converts the output of later releases of Slurm to that of 22.05, the first known release.

`parse` reads what 22.05 prints. Each `Adapter` undoes what its release changed. An output passes
through the adapters of its own release and of the older ones, newest first, so that each needs to
know only one step. A release newer than all adapters is read like the newest.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from features.codec import Json

Release = tuple[int, int]

OLDEST: Release = (22, 5)
NEWEST: Release = (26, 5)  # whose changes were read
RUN: tuple[Release, ...] = (OLDEST,)  # whole `make slurm-test`, on real daemons
UNLIMITED = 0xFFFFFFFF
# what came with data_parser v0.0.39, v0.0.40, and so on
_PARSERS: tuple[Release, ...] = (
    (23, 2), (23, 11), (24, 5), (24, 11), (25, 5), (25, 11), (26, 5),
)  # fmt: skip

_COUNTS = (
    "array_job_id", "array_max_tasks", "array_task_id", "cpus", "max_nodes", "memory_per_cpu",
    "memory_per_node", "minimum_cpus_per_node", "node_count", "priority", "required_switches",
    "tasks", "time_limit",
)  # fmt: skip
_MOMENTS = ("accrue_time", "deadline", "eligible_time", "end_time", "start_time", "submit_time")
# as 22.05 has them in one word: the first of these, else the state they are beside
_FLAGS = (
    "COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED",
    "REQUEUE_HOLD", "SPECIAL_EXIT", "STOPPED", "REVOKED", "SIGNALING",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Adapter:
    """The adapter for one change that a release made to jobs in JSON. `undo` is a function that
    converts a job to the form of the release before."""

    since: Release
    undo: Callable[[Json], Json]


def _counts(job: Json) -> Json:
    """Return a job in JSON with plain numbers, as before data_parser v0.0.39. Since then, 4 is
    written ``{"set": true, "infinite": false, "number": 4}``, and ``shared`` is a list of words."""
    plain = {name: _plain(job[name]) for name in _COUNTS if name in job}
    return job | plain | {"shared": next(iter(job.get("shared") or ()), None)}


def _moments(job: Json) -> Json:
    """Return a job in JSON with times as numbers and a single state, as before v0.0.40. Since then
    times are objects and the state is a list. Raise TypeError if the state is not a list.
    """
    plain = {name: _plain(job[name]) for name in _MOMENTS if name in job}
    states = job["job_state"]
    if not isinstance(states, list):
        raise TypeError(f"state {states!r} where a release since 23.11 has a list")
    return job | plain | {"job_state": next((f for f in _FLAGS if f in states), str(states[0]))}


# 24.05 to 26.05 (v0.0.41 to v0.0.45) took away and added fields that nothing here reads.
ADAPTERS = (Adapter((23, 11), _moments), Adapter((23, 2), _counts))


def job_as_first(job: Json, release: Release) -> Json:
    """Return a job in the JSON form of release 22.05. Raise KeyError, IndexError or TypeError if
    the job is not in the form of the given release.
    """
    for adapter in ADAPTERS:
        if release >= adapter.since:
            job = adapter.undo(job)
    return job


@dataclass(frozen=True, slots=True)
class TableAdapter:
    """The adapter for one change that a release made to `squeue -O`: `columns` are those it added,
    and `undo` is a function that returns a row with the other columns as they were before."""

    since: Release
    columns: tuple[str, ...]
    undo: Callable[[dict[str, str]], dict[str, str]]


def _exclusive(row: dict[str, str]) -> dict[str, str]:
    """Change a row of `squeue -O` to the form before 26.05, and return it. Since 26.05,
    OverSubscribe is NO for ordinary jobs, too, and Exclusive is NO, NODE, USER, MCS or TOPO."""
    if row["OverSubscribe"] == "NO" and row["Exclusive"] != "NODE":
        row["OverSubscribe"] = "OK"
    return row


def partition_as_first(row: Mapping[str, str]) -> Mapping[str, str]:
    """Return a partition from `scontrol` of any release as 22.05 would print it. Exclusive=NODE of
    26.05 becomes OverSubscribe=EXCLUSIVE."""
    return {**row, "OverSubscribe": "EXCLUSIVE"} if row.get("Exclusive") == "NODE" else row


TABLE_ADAPTERS = (
    TableAdapter((26, 5), ("Exclusive",), _exclusive),
    TableAdapter((24, 11), ("ExcNodes",), lambda row: row),  # which nothing of 22.05 has
)


def more_columns(release: Release) -> tuple[str, ...]:
    """Return the columns of a release's `squeue -O` that 22.05 does not have."""
    adapters = (one for one in reversed(TABLE_ADAPTERS) if release >= one.since)
    return tuple(column for one in adapters for column in one.columns)


def row_as_first(row: dict[str, str], release: Release) -> dict[str, str]:
    """Return a row of a release's `squeue -O` with the columns of 22.05 as 22.05 would print them.
    Columns that came later stay."""
    for adapter in TABLE_ADAPTERS:
        if release >= adapter.since:
            row = adapter.undo(row)
    return row


def _plain(value: Any) -> Any:
    """Return the number that a value in JSON stands for; None where it holds none, and UNLIMITED
    for an infinite one. With ``+complex`` in DataParserParameters, the value is a plain number
    already."""
    if not isinstance(value, Mapping):
        return UNLIMITED if value in ("Infinity", inf) else None if value is False else value
    if value.get("infinite"):
        return UNLIMITED
    return int(value["number"]) if value.get("set") else None


def release_of(answer: Mapping[str, Any]) -> Release:
    """Return the release in whose form an answer in JSON is written, by its ``meta``.
    DataParserParameters may name the parser of an older release."""
    meta = answer["meta"]
    parser = re.search(r"v0\.0\.(\d+)", str((meta.get("plugin") or {}).get("data_parser") or ""))
    if parser is not None:
        number = int(parser[1]) - 39
        return _PARSERS[min(number, len(_PARSERS) - 1)] if number >= 0 else OLDEST
    version = (meta.get("slurm") or meta["Slurm"])["version"]
    return int(version["major"]), int(version["minor"])


def release_in(text: str) -> Release | None:
    """Return the release from a version as Slurm prints it (``24.11.5``), or None where the text
    has none."""
    match = re.search(r"\b(\d\d)\.(\d\d)\b", text)
    return (int(match[1]), int(match[2])) if match else None


def gpus_word(release: Release | None, kind: str, count: int) -> str:
    """Return `count` GPUs of a type ("" for any) in the form that `scontrol update` takes."""
    before = release is not None and release < (23, 11)  # it takes the later form, and ignores it
    start = "gres:gpu" if before else "gres/gpu"
    return ":".join(filter(None, (start, kind, str(count))))


def caution(release: Release | None) -> str:
    """Return what an administrator should know about a release, as text; "" for a release that was
    tested with real daemons."""
    if release in RUN:
        return ""
    run = ", ".join(map(_name, RUN))
    if release is None:
        return f"does not say which release it is; it is read as {_name(NEWEST)}"
    if release > NEWEST:
        return f"{_name(release)} is newer than any that is known; it is read as {_name(NEWEST)}"
    if release < OLDEST:
        return f"{_name(release)} is older than any that is known; it is read as {_name(OLDEST)}"
    return f"{_name(release)} was not run whole on real daemons, but {run} was"


def _name(release: Release) -> str:
    return f"{release[0]}.{release[1]:02d}"
