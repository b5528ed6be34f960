"""Running, recording and comparing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from pipeline import runs
from pipeline.traces.synthetic.generate import default_config, generate
from pipeline.worlds import plain
from pipeline.worlds.cluster_file import read_cluster
from pipeline.worlds.playing import Playing
from pipeline.worlds.scenario import Scenario
from scheduler.simulation.recorder import DECISION_SCHEMA
from scheduler.simulation.results import JOB_SCHEMA

REQUIRED = {
    "policy", "jobs", "avg_jct_s", "avg_queue_s", "p99_queue_s", "p999_queue_s", "makespan_s",
    "gpu_utilisation", "packed_jobs", "preemptions", "decisions", "wall_s", "cpu_s",
    "peak_rss_mib",
}  # fmt: skip


def small(seed: int = 0, durations: str | None = "gpus") -> Scenario:
    table = generate(default_config("small", seed))
    spec = read_cluster(Path("pipeline/worlds/clusters/small.yaml"))
    return plain.scenario(
        table, "small", spec.cluster, spec.profiling, Playing(durations=durations, seed=seed)
    )


@pytest.mark.parametrize("policy", ["fifo", "srtf", "lucid"])
def test_a_run_writes_every_decision_and_job(tmp_path: Path, policy: str) -> None:
    scenario = small()
    figures = runs.run(scenario, policy, tmp_path)
    assert figures.keys() >= REQUIRED
    decisions = pq.read_table(tmp_path / "decisions.parquet")
    jobs = pq.read_table(tmp_path / "jobs.parquet")
    assert decisions.schema.equals(DECISION_SCHEMA)
    assert jobs.schema.equals(JOB_SCHEMA)
    assert decisions.num_rows == figures["decisions"]
    assert jobs.num_rows == figures["jobs"] == len(scenario.workload.jobs)
    assert np.isclose(np.mean(jobs.column("jct_s").to_numpy()), figures["avg_jct_s"])
    assert json.loads((tmp_path / "summary.json").read_text())["policy"] == policy
    assert not list(tmp_path.glob(".*")), "no temporary file is left"


def test_own_predictions_carry_terms_that_add_up(tmp_path: Path) -> None:
    """Cold start first, the GA2M once enough has ended: intercept + terms = score throughout."""
    figures = runs.run(small(durations="own"), "qssf", tmp_path)
    assert figures["durations"] == "own"
    table = pq.read_table(tmp_path / "decisions.parquet").to_pydict()
    bundles = json.loads((tmp_path / "bundles.json").read_text())
    scored = [i for i, score in enumerate(table["score"]) if score is not None]
    assert scored
    seen = set()
    for i in scored:
        terms = table["terms"][i]
        assert abs(table["intercept"][i] + sum(terms) - table["score"][i]) <= 1e-9
        assert len(terms) >= len(bundles[table["bundle"][i]]["terms"])  # and what is its own
        seen.add(table["bundle"][i])
    assert "coldstart" in seen


def test_comparisons_are_paired_over_seeds(tmp_path: Path) -> None:
    result = runs.compare(small, ["fifo-skip", "srtf"], [0, 1, 2], out=tmp_path)
    assert result["track"] == "small"
    assert result["seeds"] == [0, 1, 2]
    assert [row["policy"] for row in result["policies"]] == ["fifo-skip", "srtf"]
    singles = {
        policy: [runs.run(small(seed), policy)["avg_jct_s"] for seed in (0, 1, 2)]
        for policy in ("fifo-skip", "srtf")
    }
    for row in result["policies"]:
        assert row["avg_jct_s_mean"] == pytest.approx(np.mean(singles[row["policy"]]))
        deviation = np.std(singles[row["policy"]], ddof=1)
        assert row["avg_jct_s_sd"] == pytest.approx(deviation)
        assert row["avg_jct_se_s"] == pytest.approx(deviation / np.sqrt(3))
    difference = np.subtract(singles["fifo-skip"], singles["srtf"])
    (pair,) = result["paired"]
    assert pair["avg_jct_s_difference_mean"] == pytest.approx(difference.mean())
    assert pair["avg_jct_s_difference_se"] == pytest.approx(difference.std(ddof=1) / np.sqrt(3))
    kept = json.loads((tmp_path / "compare.json").read_text())
    assert kept == json.loads(json.dumps(runs.lasting(result)))
    assert not [key for key in (*kept, *kept["policies"][0]) if key.startswith(("cpu_s", "wall_s"))]
    assert (tmp_path / "srtf" / "decisions.parquet").is_file()


def test_history_before_since_is_learned_from_and_not_simulated() -> None:
    table = generate(default_config("small"))
    spec = read_cluster(Path("pipeline/worlds/clusters/small.yaml"))
    times = [job.submit_time for job in small().workload.jobs]
    since = float(np.median(times))
    scenario = plain.scenario(table, "small", spec.cluster, spec.profiling, Playing(since=since))
    assert scenario.workload.jobs
    assert all(job.submit_time >= since for job in scenario.workload.jobs)
    estimator = scenario.estimators(scenario.policy("qssf"))
    ignorant = small(durations="own").estimators(scenario.policy("qssf"))
    first = scenario.workload.jobs[0]
    said = []
    for asked in (estimator, ignorant):
        asked.submitted(first, first.submit_time)
        said.append(asked.estimate(first, first.submit_time).score)
    learned, blank = said
    assert blank is not None
    assert learned is not None
    assert not any(blank.terms)  # nobody is known to differ from all
    assert any(learned.terms)


def test_an_interrupted_run_leaves_no_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs.run(small(), "fifo", tmp_path)

    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("scheduler.simulation.engine.Engine.run", broken)
    with pytest.raises(KeyboardInterrupt):
        runs.run(small(), "fifo", tmp_path)
    assert not (tmp_path / "summary.json").exists()
    assert pq.read_table(tmp_path / "decisions.parquet").num_rows, "the old file stands"


def test_a_run_says_how_well_its_predictions_ranked(tmp_path: Path) -> None:
    known, guessed = (
        runs.run(small(durations=durations), "qssf", tmp_path / name)
        for name, durations in (("truth", "truth"), ("alike", "constant:600"))
    )
    assert known["auc_1h"] == known["auc_6h"] == 1.0
    assert guessed["auc_1h"] == guessed["auc_6h"] == 0.5
    assert runs.prediction_figures([])["auc_1h"] is None


def test_jobs_that_the_run_left_waiting_are_said_to_be_in_no_average(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "starving.py").write_text(
        "from scheduler.core.policy import Policy, in_order\n\n\n"
        "class Starving(Policy):\n"
        "    name = 'starving'\n\n"
        "    def serve(self, turn):\n"
        "        if turn.vc == 'research':\n"
        "            in_order(turn)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    result = runs.compare(small, ["starving:Starving", "fifo"], [0])
    starving, fifo = result["policies"]
    left = int(starving["jobs_mean"] - starving["ended_mean"])
    assert 0 < left < starving["jobs_mean"]
    assert fifo["ended_mean"] == fifo["jobs_mean"]
    (note,) = (note for note in result["notes"] if "not over" in note)
    jobs = int(starving["jobs_mean"])
    assert note.startswith(f"starving:Starving, open loop: {left:,} of {jobs:,} jobs were not over")
    several = runs.compare(small, ["starving:Starving"], [0, 1])
    (note,) = (note for note in several["notes"] if "not over" in note)
    assert " to " in note, "one sentence for all seeds"
