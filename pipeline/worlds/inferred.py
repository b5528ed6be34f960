"""The cluster a trace ran on, where nobody says what it was: the least that carries its jobs.

Nodes of each virtual cluster are the most GPUs in use at once, where the trace has starts and ends;
else as many as leave a tenth of the GPU time idle while jobs were submitted or the longest one ran,
and never more than all its jobs at once would fill. Nodes are of 8 GPUs, or as the trace tells.
Jobs of one virtual cluster that ask for different types of GPU are played in one each: the types
are not interchangeable, and no policy has to know more than one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from scheduler.core.cluster import ClusterSpec

LOAD = 0.9
SHOWN = 8  # virtual clusters named in a sentence

Floats = NDArray[np.float64]


def cluster_of(table: pa.Table) -> tuple[pa.Table, ClusterSpec, str]:
    """The jobs of a trace, each in its virtual cluster; the cluster; and a sentence on it.

    The table is in `TRACE_SCHEMA`; of its columns only `vc` may come back changed.
    """
    table, split = _by_type(table)
    gpus = table["gpus"].to_numpy().astype(float)
    submit, start, end = (_seconds(table, f"{name}_time") for name in ("submit", "start", "end"))
    ran = np.nan_to_num(_floats(table["duration_s"]))
    per_node = _per_node(gpus, _floats(table["nodes"]))
    vc = np.array([name or "" for name in _texts(table, "vc")], dtype=object)
    span = max(float(np.ptp(submit)), float(ran.max(initial=0.0)), 1.0)
    recorded = bool(np.isfinite(start + end).mean() > 0.5) if len(gpus) else False
    vcs: dict[str, int] = {}
    for name in sorted(set(vc.tolist())):
        mine = vc == name
        need = (
            _peak(start[mine], end[mine], gpus[mine])
            if recorded
            else min(float(gpus[mine] @ ran[mine]) / span / LOAD, float(gpus[mine].sum()))
        )
        vcs[name] = max(1, ceil(max(need, float(gpus[mine].max())) / per_node - 1e-9))
    spec = ClusterSpec(vcs, per_node, name="inferred")
    return table, spec, _sentence(spec, recorded, split)


def _by_type(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Virtual clusters separated by the GPU type that jobs ask for, where they ask for several.

    Jobs that ask for none go where most of their virtual cluster go.
    """
    names = [name or "" for name in _texts(table, "vc")]
    types = _texts(table, "gpu_type")
    asked: dict[str, Counter[str]] = {}
    for name, kind in zip(names, types, strict=True):
        if kind:
            asked.setdefault(name, Counter())[kind] += 1
    split = {name: of for name, of in asked.items() if len(of) > 1}
    if not split:
        return table, []
    usual = {name: of.most_common(1)[0][0] for name, of in split.items()}
    renamed = [
        f"{name}/{kind or usual[name]}".lstrip("/") if name in split else name
        for name, kind in zip(names, types, strict=True)
    ]
    place, kind = table.schema.get_field_index("vc"), table.schema.field("vc")
    column = pa.array(renamed, pa.string()).cast(kind.type)
    return table.set_column(place, kind, column), sorted(split)


def _per_node(gpus: Floats, nodes: Floats) -> int:
    """GPUs of a node: the most that a job had on each of its nodes, where the trace counts them."""
    known = np.isfinite(nodes) & (nodes > 0)
    return int(max(1.0, np.ceil(gpus[known] / nodes[known]).max())) if known.any() else 8


def _peak(start: Floats, end: Floats, gpus: Floats) -> float:
    """The most GPUs in use at once; of what ends as something begins, the end comes first."""
    known = np.isfinite(start + end)
    moments = np.concatenate([start[known], end[known]])
    change = np.concatenate([gpus[known], -gpus[known]])
    return float(np.cumsum(change[np.lexsort((change, moments))]).max(initial=0.0))


def _sentence(spec: ClusterSpec, recorded: bool, split: Sequence[str]) -> str:
    largest = sorted(spec.vcs.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name or '(no name)'} {nodes}" for name, nodes in largest[:SHOWN])
    more = f" and {len(largest) - SHOWN} more" if len(largest) > SHOWN else ""
    how = "the most GPUs in use at once" if recorded else f"a load of {LOAD:.0%}"
    said = (
        f"No --cluster: inferred from the trace, by {how}: {sum(spec.vcs.values()):,} nodes of "
        f"{spec.gpus_per_node} GPUs (nodes by virtual cluster: {shown}{more})."
    )
    if split:
        named = ", ".join(name or "(no name)" for name in split[:SHOWN])
        said += f" Jobs of {named} ask for several types of GPU: one virtual cluster for each type."
    return said


def _seconds(table: pa.Table, name: str) -> Floats:
    return _floats(pc.cast(table[name], pa.int64())) / 1000


def _floats(column: pa.ChunkedArray) -> Floats:
    """A column as numbers; null is NaN."""
    values: Floats = pc.cast(column, pa.float64()).to_numpy(zero_copy_only=False)
    return values


def _texts(table: pa.Table, name: str) -> list[str | None]:
    values: list[str | None] = pc.cast(table[name], pa.string()).to_pylist()
    return values
