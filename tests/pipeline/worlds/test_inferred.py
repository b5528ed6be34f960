"""The cluster of a trace that nobody described."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from features.schema import TRACE_SCHEMA
from pipeline.worlds import TrackError, open_scenario, plain
from pipeline.worlds.playing import Playing
from pipeline.worlds.shape import cluster_of
from scheduler.core.cluster import ClusterSpec
from scheduler.policies import POLICIES


def a_table(*rows: dict[str, Any]) -> pa.Table:
    """A trace; times in seconds."""
    columns: dict[str, Sequence[Any]] = {}
    for field in TRACE_SCHEMA:
        values = [row.get(field.name) for row in rows]
        if field.name == "job_id":
            values = [f"job{i}" for i in range(len(rows))]
        if field.name == "state":
            values = ["completed"] * len(rows)
        if field.name.endswith("_time"):
            values = [None if value is None else int(value * 1000) for value in values]
        columns[field.name] = values
    arrays = [pa.array(columns[f.name]).cast(f.type) for f in TRACE_SCHEMA]
    return pa.Table.from_arrays(arrays, schema=TRACE_SCHEMA)


def row(gpus: int = 8, **more: Any) -> dict[str, Any]:
    return {"gpus": gpus, "duration_s": 3_600.0, "submit_time": 0, "vc": "a", **more}


def test_jobs_submitted_at_one_instant_need_no_more_than_all_of_them_at_once() -> None:
    _, spec, _ = cluster_of(a_table(*[row() for _ in range(50)]))
    assert 1 <= spec.vcs["a"] <= 50
    _, spec, _ = cluster_of(a_table(*[row(duration_s=0.0) for _ in range(50)]))
    assert spec.vcs == {"a": 1}


def test_nodes_are_as_many_as_the_load_asks_for() -> None:
    """8 GPUs, an hour each, one an hour: a node, and a tenth of it to spare."""
    rows = [row(submit_time=3_600 * i) for i in range(100)]
    assert cluster_of(a_table(*rows))[1].vcs == {"a": 2}
    assert cluster_of(a_table(*rows, *rows, *rows))[1].vcs == {"a": 4}


def test_recorded_starts_tell_how_many_gpus_were_in_use() -> None:
    """Two at once at most: the third begins as the first ends."""
    rows = [row(submit_time=0, start_time=t, end_time=t + 3_600) for t in (0, 1_800, 3_600)]
    _, spec, said = cluster_of(a_table(*rows))
    assert spec.vcs == {"a": 2}
    assert "in use at once" in said[0]


def test_the_largest_job_fits_and_nodes_are_as_large_as_the_trace_tells() -> None:
    """All at once fill 66 GPUs."""
    _, spec, _ = cluster_of(a_table(row(64, nodes=16), row(2, nodes=1)))
    assert (spec.gpus_per_node, spec.vcs) == (4, {"a": 17})


def test_what_is_inferred_is_said() -> None:
    _, _, said = cluster_of(a_table(*[row(vc=f"vc{i}") for i in range(10)]))
    assert said[0].startswith(
        "No --cluster: inferred from the dump: 10 nodes (10 of 8 GPUs), by a load of 90% (nodes"
    )
    assert said[0].endswith(" and 2 more).")
    assert "dump: 1 node (1 of 8 GPUs)" in cluster_of(a_table(row()))[2][0]
    _, _, said = cluster_of(a_table(row(9, nodes=1), row(10, nodes=1)))
    assert "in use at once on some nodes, which may have more: 2 of 10 GPUs." in said[-1]
    assert "wrong" not in said[-1]  # slices of GPUs, or nodes that were never full


def test_jobs_that_ask_for_several_types_of_gpu_are_told_apart() -> None:
    table, spec, _ = cluster_of(
        a_table(
            row(gpu_type="T4"),
            row(gpu_type="T4"),
            row(gpu_type="V100"),
            row(gpu_type=None),
            row(vc="b", gpu_type="V100"),
            row(vc=None, gpu_type=None),
        )
    )
    assert table["vc"].to_pylist() == ["a/T4", "a/T4", "a/V100", "a/T4", "b", ""]
    assert set(spec.vcs) == {"a/T4", "a/V100", "b", ""}


@pytest.mark.parametrize("policy", POLICIES)
def test_any_trace_can_be_simulated_on_its_inferred_cluster(policy: str) -> None:
    """Without names, users, virtual clusters and limits, at one instant, with types."""
    rows = [row(1 + i % 8, vc=None, gpu_type=("T4", "A10", None)[i % 3]) for i in range(40)]
    table, spec, _ = cluster_of(a_table(*rows))
    world = plain.scenario(table, "bare", spec, None, Playing(durations="constant:600"))
    outcome, _ = world.simulate(policy)
    assert all(r.end_time is not None for r in outcome.jobs)


def test_virtual_clusters_that_are_not_there_are_named() -> None:
    table = a_table(row(), row(), row(vc="b"))
    world = plain.scenario(table, "t", ClusterSpec({"b": 1}), None, Playing(durations="last"))
    (note,) = world.notes
    assert "no virtual cluster a (2 jobs); it has b" in note
    with pytest.raises(TrackError, match=r"cluster a \(2 jobs\), b \(1 jobs\); it has c"):
        plain.scenario(table, "t", ClusterSpec({"c": 1}), None)


def test_easy_says_that_there_are_no_limits() -> None:
    table, spec, _ = cluster_of(a_table(row(), row(time_limit_s=60.0)))
    world = plain.scenario(table, "t", spec, None)
    (note,) = world.notes_on("easy")
    assert note.startswith("1 of 2 jobs have no time limit")
    assert world.notes_on("fifo") == []


def test_without_a_partition_jobs_like_those_that_ran_are_packed_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody named a cluster, so no node profiles: what runs is watched."""
    seen = {"user": "ann", "name": "train", "gpu_util_pct": 20.0, "gpu_mem_util_pct": 10.0}
    known = {"gpu_mem_mib": 2_000.0, "amp": False}
    rows = [row(submit_time=600 * i, **seen, **known) for i in range(40)]
    monkeypatch.setattr("pipeline.traces.read_dataset", lambda _: a_table(*rows))
    world = open_scenario(tmp_path, durations="last")
    outcome, _ = world.simulate("pellucid")
    assert outcome.packings > 0
    (note,) = world.notes_on("pellucid")[-1:]
    assert "packs only jobs like others that were watched" in note
    assert "lucid packs nobody" in world.notes_on("lucid")[-1]


def test_a_trace_without_profiles_says_that_nobody_is_packed() -> None:
    table, spec, _ = cluster_of(a_table(row(), row()))
    world = plain.scenario(table, "t", spec, None, Playing(durations="last"))
    for policy in ("pellucid", "lucid", "horus"):
        (note,) = world.notes_on(policy)
        assert note == f"The trace has no job's GPU utilisation and memory: {policy} packs nobody."
    assert world.notes_on("qssf") == []
