"""Tracks: the worlds in which policies are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from pipeline.traces.synthetic.config import default_config, generate
from pipeline.worlds import TrackError, open_scenario, venus
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.plain import cluster_of, workload_of
from pipeline.worlds.venus import jitter
from scheduler.core.cluster import ClusterSpec
from scheduler.core.profiling import KNOWN_S
from scheduler.simulation.work import PairTable


def demo() -> tuple[object, ClusterSpec]:
    table = generate(default_config("small"))
    return table, cluster_of(table)


def test_seed_zero_keeps_exact_times_and_permutes_workloads() -> None:
    table, cluster = demo()
    workload = workload_of(table, cluster, "small")
    played = jitter(workload, 0)
    assert [j.submit_time for j in played.jobs] == [j.submit_time for j in workload.jobs]
    assert all(played.work[i].duration_s == w.duration_s for i, w in workload.work.items())
    before = [workload.work[j.job_id].profile for j in workload.jobs]
    after = [played.work[j.job_id].profile for j in workload.jobs]
    assert before != after
    assert sorted(map(str, before)) == sorted(map(str, after))


def test_other_seeds_move_submissions_by_less_than_a_minute_and_stay_sorted() -> None:
    table, cluster = demo()
    workload = workload_of(table, cluster, "small")
    played = jitter(workload, 3)
    exact = {j.job_id: j.submit_time for j in workload.jobs}
    moved = np.array([j.submit_time - exact[j.job_id] for j in played.jobs])
    assert (moved >= 0).all()
    assert (moved < 60).all()
    assert moved.std() > 10
    times = [j.submit_time for j in played.jobs]
    assert times == sorted(times)
    assert [j.job_id for j in jitter(workload, 3).jobs] == [j.job_id for j in played.jobs]


def test_compress_shortens_the_month() -> None:
    table, cluster = demo()
    workload = workload_of(table, cluster, "small")
    span = workload.jobs[-1].submit_time - workload.jobs[0].submit_time
    busy = jitter(workload, 0, compress=0.9)
    assert busy.jobs[-1].submit_time - busy.jobs[0].submit_time == pytest.approx(0.9 * span)


def test_the_recipe_of_a_seed_is_the_specified_one() -> None:
    """rng = default_rng(seed); permutation first, then U(0, 60) for every job in file order."""
    table, cluster = demo()
    workload = workload_of(table, cluster, "small")
    rng = np.random.default_rng(5)
    permutation = rng.permutation(len(workload.jobs))
    moves = rng.uniform(0, 60, len(workload.jobs))
    played = jitter(workload, 5)
    at = {j.job_id: j.submit_time for j in played.jobs}
    for job, move, source in zip(workload.jobs, moves, permutation, strict=True):
        assert at[job.job_id] == pytest.approx(job.submit_time + move, abs=1e-6)
        donor = workload.work[workload.jobs[source].job_id]
        assert played.work[job.job_id].profile == donor.profile


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("vcs: {a: 0}", "vcs.a"),
        ("vcs: {a: 2}\ngpus_per_node: eight", "gpus_per_node"),
        ("vcs: {a: 2}\ncolour: red", "colour"),
        ("name: x", "vcs"),
        ("[1, 2", "not YAML"),
        ("vcs: {a: 1}\nprofiling: {nodes: 1, lend_from: [a]}", "lend_from"),
        ("vcs: {a: 3}\nprofiling: {nodes: 1, lend_from: [b]}", "lend_from"),
    ],
)
def test_a_bad_cluster_file_is_one_line_that_names_the_field(
    tmp_path: Path, content: str, named: str
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    with pytest.raises(TrackError, match=named) as caught:
        read_cluster(path)
    assert "\n" not in str(caught.value)


def test_a_cluster_without_a_partition_still_carries_profiles_over(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("vcs: {a: 1}")
    _, profiling = read_cluster(path)
    assert (profiling.nodes, profiling.known_s) == ({}, KNOWN_S)


def test_shipped_clusters_can_be_read() -> None:
    for path in Path("pipeline/clusters").glob("*.yaml"):
        spec, _ = read_cluster(path)
        assert spec.gpus == sum(yaml.safe_load(path.read_text())["vcs"].values()) * 8


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for options, named in (
        ({"compress": 0.0}, "compress"),
        ({"compress": 0.9}, "honest"),
        ({"seed": -1}, "seed"),
        ({"track": "honset"}, "honest"),
    ):
        with pytest.raises(TrackError, match=named):
            open_scenario(tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(TrackError, match="no such file"):
        open_scenario(tmp_path / "nowhere")
    with pytest.raises(TrackError, match="is missing"):
        open_scenario(tmp_path, track="published")


@pytest.mark.shared_data
def test_honest_judges_never_saw_the_families_of_the_pair(shared_data: Path) -> None:
    from models.training.packing import fit_packing
    from models.training.pairs import read_artifact

    pairs = read_artifact(shared_data / "packing")
    fitted = fit_packing(pairs, exclude_families=frozenset({"DCGAN", "LSTM"}))
    assert fitted.metadata["excluded_families"] == ["DCGAN", "LSTM"]
    members = pairs.members.without({"DCGAN", "LSTM"})
    assert not {"DCGAN", "LSTM"} & (set(members.family) | set(members.partner_family))


@pytest.mark.shared_data
def test_pair_speeds_of_the_honest_track_are_capped_and_unmeasured_pairs_slow(
    shared_data: Path,
) -> None:
    folder = venus.load(shared_data / "venus")
    table = PairTable(folder.pair_speeds, unmeasured=0.8, cap=1.0)
    speeds = [table.speed(a, b) for a, b in folder.pair_speeds]
    assert max(speeds) == 1.0
    assert max(folder.pair_speeds.values()) > 1.0
    heavy = next(c for c in folder.labels if c.model == "BERT")
    assert table.speed(heavy, heavy) == 0.8


def test_the_harness_asks_for_models_that_saw_neither_family() -> None:
    """Which models judge a pair follows from the families of that pair, and of nothing else."""
    from features.job import Job, Profile
    from models.training.packing import fit_packing, fit_pair_speed
    from models.training.simulated import simulated_pairs
    from pipeline.worlds.honest import UnseenFamilies
    from scheduler.core.core import QueuedJob

    pairs = simulated_pairs(0)
    asked: list[frozenset[str]] = []

    def train(unseen: frozenset[str]):  # type: ignore[no-untyped-def]
        asked.append(unseen)
        return (
            fit_packing(pairs, exclude_families=unseen).model,
            fit_pair_speed(pairs, exclude_families=unseen).model,
        )

    judge = UnseenFamilies({"a": "rnn", "b": "cnn-small", "c": "rnn"}, train)
    queued = {}
    for i, name in enumerate("abc"):
        queued[name] = QueuedJob(Job(name, 0.0, 1), i)
        queued[name].profile = Profile(40.0 + i, 20.0, 3000.0, False)
    for one, other in ("ab", "ac", "ba"):
        assert judge.verdict(queued[one], queued[other]) is not None
    assert asked == [frozenset({"rnn", "cnn-small"}), frozenset({"rnn"})]
    queued["a"].profile = None
    assert judge.verdict(queued["a"], queued["b"]) is None
