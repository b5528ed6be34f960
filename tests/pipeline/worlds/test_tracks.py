"""Tracks: the worlds in which policies are compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.pages import ROOT, blocks
from pipeline.commands.serve import must_know
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import TrackError, open_scenario, plain
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.plain import workload_of
from pipeline.worlds.playing import Playing
from pipeline.worlds.shape import cluster_of
from pipeline.worlds.venus import jitter, load
from scheduler.core.cluster import ClusterSpec, Node
from scheduler.service.settings import Settings


def demo() -> tuple[object, ClusterSpec]:
    table = generate(default_config("small"))
    return cluster_of(table)[:2]


def test_a_value_that_is_no_number_is_named_with_its_folder(tmp_path: Path) -> None:
    (tmp_path / "vc_config.csv").write_text(",num\nvcA,many\n")
    with pytest.raises(TrackError, match=rf"{tmp_path}: .*many"):
        load(tmp_path)
    (tmp_path / "vc_config.csv").write_text(",num\nvcA\n")
    with pytest.raises(TrackError, match=str(tmp_path)):
        load(tmp_path)


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
        ("", "it is empty; write at least vcs"),
        ("- a", "it is no list of names and values; write at least vcs"),
        ("vcs: {a: 1}\nprofiling: {nodes: 1, lend_from: [a]}", "lend_from"),
        ("vcs: {a: 3}\nprofiling: {nodes: 1, lend_from: [b]}", "lend_from"),
        ("vcs: {a: [{nodes: 1}, {nodes: 0}]}", "vcs.a.1.nodes"),
        ("vcs: {a: [{nodes: 1, gpus: 8}]}", "vcs.a.0.gpus"),
        ("vcs: {a: [{nodes: 1, gpus_per_node: 65}]}", "gpus_per_node"),
        ("vcs: {a: [{nodes: 2, names: [x]}]}", "1 names for 2 nodes"),
        ("vcs: {a: [{nodes: 1, names: [x]}], b: [{nodes: 1, names: [x]}]}", "two nodes are .*'x'"),
        ("vcs: {a: 3}\nprofiling: {nodes: {b: 1}}", "vc 'b' cannot lend 1 of 0"),
        ("vcs: {a: 3}\nprofiling: {limit_s: 0}", "profiling.limit_s is 0: "),
        ("vcs: {a: 3}\nprofiling: {colour: red}", "profiling.colour: no such setting"),
        ("vcs: {a: 3}\npolicy: fcfs", "no policy 'fcfs'"),
        ("vcs: {a: 3}\npolicy: {ageing: -1}", "policy pellucid: ageing is -1: "),
        ("vcs: {a: 3}\npolicy: {name: fifo, ageing: 1}", "policy fifo: ageing: no such setting"),
        ("vcs: {a: 3}\npolicy: [pellucid]", "policy"),
        ("vcs: {a: 3}\ngpu_memory_mib: 2.0e+9", "gpu_memory_mib: .* equal to 1000000000"),
        ("vcs: {a: 3}\ngpu_memory_mib: .inf", "gpu_memory_mib: .* finite"),
        ("vcs: {a: " + "9" * 5000 + "}", "not YAML .*digits"),
        ("vcs: {a: 3}\npolicy: {ageing: 0x" + "f" * 5000 + "}", "digits"),
        ("vcs: {a: 3}\nprofiling: {nodes: {a: 0x" + "f" * 5000 + "}}", "digits"),
        ("[" * 3000, "not YAML .*brackets"),
        ("name: 2020-13-45\nvcs: {a: 3}", "not YAML .*month"),
        ("vcs: !!timestamp hi", "not YAML"),
        ("vcs: {a: 3}\nprofiling: {nodes: 1000000000}", "profiling.nodes: more than the 3 nodes"),
        ('vcs: {a: 3}\nname: "\\e[2J"', "name: .*cannot be printed"),
        ('vcs: {"\\e[2J": 3}', "vcs.*cannot be printed"),
        ('vcs: {a: 3}\ngpu_type: "\\x9b2J"', "gpu_type: .*cannot be printed"),
        ('vcs: {a: [{nodes: 1, gpu_type: "\\a"}]}', "vcs.a.0.gpu_type: .*cannot be printed"),
        *(
            (
                f'vcs: {{a: [{{nodes: 1, names: ["{name}"]}}]}}',
                "vcs.a.0.names.0: .*no name of a node",
            )
            for name in ("\\u202e", "a/b", "..", "0", "-x", "a..b", "x ")
        ),
        ('vcs: {a: 3}\npolicy: {"\\e[2J": 3}', "no such setting"),
    ],
)
def test_a_bad_cluster_file_is_one_line_that_names_the_field(
    tmp_path: Path, content: str, named: str
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(content)
    with pytest.raises(TrackError, match=named) as caught:
        read_cluster(path)
    assert str(caught.value).isprintable(), "one line, and nothing that a terminal obeys"


def test_the_cluster_file_of_the_docs_is_read_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "site.yaml"
    path.write_text(blocks(ROOT / "docs" / "cluster-file.md", "yaml")[0])
    found = read_cluster(path)
    assert (found.cluster.name, found.cluster.gpus) == ("site", 9 * 8 + 2 * 4)
    assert {(node.gpu_type, node.gpu_memory_mib) for node in found.cluster.nodes()} == {
        ("V100", 32_768.0),
        ("A100", 81_920.0),
    }
    assert found.profiling is not None
    assert found.profiling.nodes == {"research": 1}
    assert found.policy == "pellucid"


def test_profiles_are_carried_over_where_nobody_is_profiled(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("vcs: {a: 1}")
    profiling = read_cluster(path).profiling
    assert profiling is not None
    assert (profiling.nodes, profiling.carries_over_s) == ({}, 7 * 86_400.0)
    assert profiling.model_copy(update={"nodes": {"a": 1}}).carries_over_s == 0.0


def test_a_cluster_of_nodes_of_several_sizes_and_types(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        """
gpu_type: V100
gpu_memory_mib: 32768
vcs:
  a:
    - {nodes: 2, gpu_type: A100, gpu_memory_mib: 81920, names: [x, y]}
    - {nodes: 1, gpus_per_node: 4}
  b: 3
profiling: {nodes: 1}
"""
    )
    found = read_cluster(path)
    spec, profiling = found.cluster, found.profiling
    assert profiling is not None
    assert spec.nodes() == [
        *[Node("a", 8, "A100", 81920.0)] * 2,
        Node("a", 4, "V100", 32768.0),
        *[Node("b", 8, "V100", 32768.0)] * 3,
    ]
    assert (spec.gpus, spec.mixes_types, profiling.nodes) == (44, True, {"a": 1})
    assert spec.groups["a"][0].names == ("x", "y")


def test_a_policy_for_one_type_of_gpu_runs_on_nodes_of_several_sizes(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("vcs: {campus: [{nodes: 2}, {nodes: 3, gpus_per_node: 4}], research: 4}")
    table, _ = demo()
    found = read_cluster(path)
    world = plain.scenario(table, "sizes", found.cluster, found.profiling)
    for policy in ("fifo", "easy", "tiresias", "horus", "lucid", "pellucid"):
        outcome, _ = world.simulate(policy)
        assert sum(job.end_time is not None for job in outcome.jobs) > 0.9 * len(outcome.jobs)
    path.write_text("vcs: {campus: [{nodes: 2, gpu_type: T4}], research: 4}")
    found = read_cluster(path)
    with pytest.raises(ValueError, match="needs GPUs of one type; this cluster has several"):
        plain.scenario(table, "types", found.cluster, found.profiling).simulate("fifo")


def test_any_trace_is_jittered_and_compressed() -> None:
    """Seed 0 keeps exact times; every job keeps its own profile, unlike on a track."""
    table, cluster = demo()
    exact = workload_of(table, cluster, "small")
    first = exact.jobs[0].submit_time
    at = {job.job_id: job.submit_time for job in exact.jobs}
    for seed, compress, most in ((0, 1.0, 0.0), (0, 0.5, 0.0), (3, 0.5, 60.0)):
        played = plain.scenario(
            table, "small", cluster, None, Playing(seed=seed, compress=compress)
        )
        moved = [
            job.submit_time - (first + compress * (at[job.job_id] - first))
            for job in played.workload.jobs
        ]
        assert all(0 <= move <= most + 1e-6 for move in moved)
        assert played.workload.work == exact.work


def test_a_trace_can_be_played_in_a_closed_loop() -> None:
    table, cluster = demo()
    open_ = plain.scenario(table, "small", cluster, None)
    closed = plain.scenario(table, "small", cluster, None, Playing(loop="closed:300"))
    assert not open_.workload.after
    assert closed.workload.after
    assert closed.loop == "closed:300"


def test_options_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for options, named in (
        ({"compress": 0.0}, "compress"),
        ({"loop": "round"}, "closed:SECONDS"),
        ({"loop": "closed:-1"}, "closed:SECONDS"),
        ({"loop": "open", "track": "honest-closed"}, "honest-closed"),
        ({"seed": -1}, "seed"),
        ({"track": "honset"}, "honest"),
    ):
        with pytest.raises(TrackError, match=named):
            open_scenario(tmp_path, **options)  # type: ignore[arg-type]
    with pytest.raises(TrackError, match="no such file"):
        open_scenario(tmp_path / "nowhere")
    with pytest.raises(TrackError, match="is missing"):
        open_scenario(tmp_path, track="published")


def test_the_harness_asks_for_models_that_saw_neither_family() -> None:
    """Which models judge a pair follows from the families of that pair, and of nothing else."""
    from features.job import Job, Profile
    from models.training.simulated import simulated_pairs
    from pipeline.worlds.pairs import UnseenFamilies, fitted
    from scheduler.core.queue import QueuedJob

    pairs = simulated_pairs(0)
    asked: list[frozenset[str]] = []

    def train(unseen: frozenset[str]):  # type: ignore[no-untyped-def]
        asked.append(unseen)
        return fitted(pairs, unseen)

    pair_predictor = UnseenFamilies({"a": "rnn", "b": "cnn-small", "c": "rnn"}, train)
    queued = {}
    for i, name in enumerate("abc"):
        queued[name] = QueuedJob(Job(name, 0.0, 1), i)
        queued[name].profile = Profile(40.0 + i, 20.0, 3000.0, False)
    for one, other in ("ab", "ac", "ba"):
        assert pair_predictor.predict_pair(queued[one], queued[other]) is not None
    assert asked == [frozenset({"rnn", "cnn-small"}), frozenset({"rnn"})]
    queued["a"].profile = None
    assert pair_predictor.predict_pair(queued["a"], queued["b"]) is None


def test_where_the_pair_models_come_from_is_said() -> None:
    from models.bundle import Bundle
    from models.training.packing import fit_packing
    from models.training.simulated import simulated_pairs
    from pipeline.worlds.pairs import BUNDLE, SIMULATED, of_bundle_or_simulated

    packing = fit_packing(simulated_pairs(0), repeats=1).model
    assert of_bundle_or_simulated(None, 0)[0] == SIMULATED
    assert of_bundle_or_simulated(Bundle(), 0)[0] == SIMULATED  # it may hold durations only
    source, make = of_bundle_or_simulated(Bundle(packing=packing), 0)
    assert source == BUNDLE
    assert make() is make()


def test_a_partition_that_is_not_used_is_said(tmp_path: Path) -> None:
    """By `simulate` with its figures, and by `serve` when it starts."""
    (tmp_path / "four.yaml").write_text("vcs: {research: 4}\nprofiling: {nodes: 1}")
    spec = read_cluster(tmp_path / "four.yaml")
    table = generate(default_config("small"))
    world = plain.scenario(table, "t", spec.cluster, spec.profiling, Playing(durations="last"))
    (said,) = [note for note in world.notes_on("pellucid") if "named for profiling" in note]
    assert said.startswith("1 node is named for profiling, 25% of the GPUs")
    assert not any("named for profiling" in note for note in world.notes_on("lucid"))
    (line,) = must_know(spec, Settings(backend="simulated", bundle=None))
    assert line == said


def test_what_yaml_makes_of_references_is_told_in_a_line(tmp_path: Path) -> None:
    """A gigabyte of a few lines was written out to say that it cannot be."""
    rows = ["name: c", "vcs: {a: 2}", "profiling:", "  limit_s:", "    - &a0 [lol, lol, lol, lol]"]
    rows += [f"    - &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 13)]
    path = tmp_path / "c.yaml"
    path.write_text("\n".join(rows))
    with pytest.raises(TrackError, match=r"profiling\.limit_s is") as refused:
        read_cluster(path)
    assert len(str(refused.value)) < 4000
