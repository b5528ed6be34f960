"""`pellucid evaluate duration` on a made-up month in the format of the public one."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from features.expected import expected
from features.job import Job
from features.replay import Lifetime
from features.schema import State
from features.survival import EDGES_S
from models.training.rolling import LEVELS
from pipeline.commands.evaluate import evaluate
from pipeline.errors import UserError
from pipeline.evaluate import duration
from pipeline.traces import ingest

COLUMNS = (
    "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,"
    "dataset,model,batchsize,amp,speed,gpu_util,gmem_util,gmem"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Users whose jobs are short or long by habit, over four days."""
    rng = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("data")
    (root / "venus").mkdir()
    start = datetime(2020, 9, 1, tzinfo=UTC)
    submits = np.sort(rng.integers(0, 4 * 86_400, 1600))
    with (root / "venus/cluster_full_log.csv").open("w", newline="") as file:
        file.write(f"{COLUMNS}\n")
        writer = csv.writer(file)
        for i, submit in enumerate(submits.tolist()):
            user = int(rng.integers(0, 12))
            lasts = int(np.exp(rng.normal(4 + 0.5 * user, 0.8)))
            when = (start + timedelta(seconds=submit)).strftime("%Y-%m-%d %H:%M:%S")
            gpus = (1, 1, 4, 8)[user % 4]
            work = ("CIFAR-10", "ResNet18", 64, 1, 1.0, 50.0, 20.0, 3000.0)
            row = (100 + i, f"u{user}", "v1", "", gpus, gpus, "COMPLETED", when, lasts)
            writer.writerow((*row, *work))
    with (root / "venus/peer_duration_ebm.csv").open("w", newline="") as file:
        file.write("job_id,priority\n")
        file.writelines(f"{100 + i},{-5 if i % 2 else 700}\n" for i in range(1600))
    return root


@pytest.fixture(scope="module")
def found(folder: Path) -> dict:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duration, "TEST_DAYS", 2)
        patch.setattr(duration, "ABLATED", ("calendar",))
        patch.setattr(duration, "FAMILIES", ("size", "survival"))
        return duration.run(folder, ablation=True)


def test_every_model_is_judged_on_the_same_rows(found: dict) -> None:
    jobs = found["test"]["jobs"]
    assert 600 < jobs < 1000
    names = {"ga2m", "history", "lightgbm_l1", "lightgbm_l2", "constant_median", "peer_ebm"}
    assert names | {"ewma_user_gpus"} <= found["duration"].keys()
    assert {row["n"] for row in found["duration"].values()} == {jobs}
    cold, warm = found["cold_users"], found["warm_users"]
    assert cold["ga2m"]["n"] + warm["ga2m"]["n"] == jobs


def test_what_can_be_learned_is_learned(found: dict) -> None:
    rows = found["duration"]
    assert rows["ga2m"]["spearman"] > 0.7
    assert rows["history"]["tail_auc_1h"] > 0.85
    assert rows["ga2m"]["mae_log10"] < rows["constant_median"]["mae_log10"] / 1.5
    every = found["intervals"]["ratios"]["all"]
    assert every["coverage_80"] == pytest.approx(80, abs=8)
    assert every["pinball"] < 0.3
    groups = found["intervals"]["ratios"]
    classes = ("1 GPU", "2-4 GPUs", "5-8 GPUs", "> 8 GPUs")
    assert sum(groups[name]["n"] for name in classes) == every["n"]
    assert groups["> 8 GPUs"]["coverage_80"] is None
    without = found["ablation"]["without survival"]
    assert without["spearman"] < rows["ga2m"]["spearman"] - 0.05
    assert "with calendar" in found["ablation"]


def test_the_curve_of_hazards_is_judged_beside_the_distribution_of_decisions(found: dict) -> None:
    own = found["intervals"]["hazards"]["all"]
    assert own["coverage_80"] == pytest.approx(80, abs=8)
    assert own["pinball"] < 0.3
    constant = found["duration"]["constant_median"]["mae_log10"]
    assert found["duration"]["history_median"]["mae_log10"] < constant / 1.5


def test_what_an_order_earns_is_the_work_done_before_a_jobs_end() -> None:
    """Of an hour on 2 GPUs, ten hours on 1 and two on 1."""
    rows = SimpleNamespace(
        time=np.array([0.0, 1.0, 2.0]), gpus=np.array([2, 1, 1]),
        y=np.array([3600.0, 36_000.0, 7200.0]),
    )  # fmt: skip
    none = np.empty((3, 0))
    believed = duration.Believed(
        hazards=none, quantiles=none, chances=none,
        score=np.log1p([3600.0, 60.0, 7200.0]), means=np.array([5000.0, 20_000.0, 7200.0]),
    )  # fmt: skip
    found = duration.ordered(believed, rows, np.full(3, True))  # type: ignore[arg-type]
    before = {name: one["before_h"] for name, one in found.items()}
    assert before["GPUs alone"] == pytest.approx((10 + 12 + 14) / 3)
    assert before["the predicted number"] == pytest.approx((10 + 12 + 14) / 3)
    assert before["the mean of the curve"] == before["truth"] == pytest.approx((2 + 4 + 14) / 3)
    assert found["GPUs alone"]["earned"] == 0.0
    assert found["the mean of the curve"]["earned"] == 1.0
    assert found["the predicted number"]["earned"] == pytest.approx(0.0)
    nobody = duration.ordered(believed, rows, np.full(3, False))  # type: ignore[arg-type]
    assert {one["earned"] for one in nobody.values()} == {0.0}


def test_the_terms_of_the_sum_share_its_variance(found: dict) -> None:
    shares = found["shares"]
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-3)
    assert shares["like_user"] > 0.2  # what users do is all there is to know here
    assert shares["like_limit"] == 0.0


def test_quantiles_of_a_curve_are_the_shares_that_end_by_then() -> None:
    hazards = np.zeros((2, len(EDGES_S) + 1))
    hazards[:, EDGES_S.index(3600.0)] = 0.8  # eight in ten in the stretch that ends at an hour
    hazards[:, -1] = 1.0
    found = duration.curve_quantiles(hazards, np.array([np.inf, 2000.0]))
    assert (found[0, :5] > 1800.0).all()
    assert found[0, LEVELS.index(0.75)] < 3600.0 < found[0, LEVELS.index(0.9)]
    assert found[0, LEVELS.index(0.5)] == pytest.approx(1801 * 2 ** (0.5 / 0.8), rel=0.01)
    assert found[1].max() == 2000.0


def test_another_trace_is_judged_likewise(folder: Path, found: dict, tmp_path: Path) -> None:
    ingest(folder / "venus/cluster_full_log.csv", tmp_path / "trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duration, "TEST_DAYS", 2)
        patch.setattr(duration, "FAMILIES", ("size", "survival"))
        other = duration.run(tmp_path, trace=tmp_path / "trace", run=_a_run(tmp_path))
    assert other["duration"]["history"] == found["duration"]["history"]
    assert "peer_ebm" not in other["duration"]
    then, alone = (other["in_schedule"][of] for of in ("in the schedule", "without a queue"))
    assert then["n"] == alone["n"] < found["test"]["jobs"], "those that ended there"
    assert then["auc_1h"] == 0.5 < alone["auc_1h"], "one prediction for all"
    assert "its jobs in the run" in duration.text(other)


def _a_run(folder: Path) -> Path:
    """A run in which every job was predicted 600 s, and every third did not end."""
    ids = [str(100 + i) for i in range(1600)]
    ends = [None if i % 3 == 0 else 1.0 for i in range(1600)]
    run = pa.table({"job_id": ids, "estimate_s": [600.0] * 1600, "end_time": ends})
    (folder / "run").mkdir()
    pq.write_table(run, folder / "run" / "jobs.parquet")
    return folder / "run"


def test_a_cold_start_is_reported_by_days_of_history(found: dict) -> None:
    days = found["history_days"]
    assert set(days) == {"1", "3", "7", "14"}
    assert days["1"]["ga2m"]["n"] > 0
    assert days["7"] == {}


def test_the_figures_are_json_and_a_page(found: dict) -> None:
    json.loads(json.dumps(found, allow_nan=False))
    page = duration.text(found)
    assert "lightgbm_l1" in page
    assert "without survival" in page


def test_the_jobs_ended_by_then_are_counted_by_user() -> None:
    class Some:
        time = np.array([0.0, 10.0, 20.0, 20.0])
        end_time = np.array([5.0, 20.0, np.nan, 30.0])

    count = duration.ended_before_submission(["a", "a", "a", "b"], Some())  # type: ignore[arg-type]
    assert count.tolist() == [0, 1, 1, 0]


def test_bad_requests_are_one_line(tmp_path: Path) -> None:
    import typer

    app = typer.Typer()
    app.command()(evaluate)
    for args, says in (
        (["weather"], "choose one of duration"),
        (["duration", "--data", str(tmp_path)], "no venus/cluster_full_log.csv"),
        (["arrivals", "--ablation"], "only duration has it"),
        (["packing", "--trace", str(tmp_path)], "only duration has it"),
        (["packing", "--run", str(tmp_path)], "only duration has it"),
    ):
        result = CliRunner().invoke(app, args)
        assert isinstance(result.exception, UserError)
        assert says in str(result.exception)


def test_half_of_those_who_state_a_length_are_right() -> None:
    """The others' statements have nothing to do with the job."""
    lives = [
        Lifetime(
            Job(f"{user}-{i}", 60.0 * i, 1, f"user {user}", "vc"),
            60.0 * i,
            60.0 * i + 2.0**i,
            State.COMPLETED,
            2.0**i,
        )
        for user in range(8)
        for i in range(16)
    ]
    found = duration.stating(lives, 0.5, seed=1)
    assert [life.job.job_id for life in found] == [life.job.job_id for life in lives]
    held: dict[str, list[bool]] = {}
    for life in found:
        between = expected(life.job.expect)
        if between is not None and life.duration_s is not None:
            held.setdefault(life.job.user, []).append(between[0] <= life.duration_s <= between[1])
    shares = sorted(sum(mine) / len(mine) for mine in held.values())
    assert len(shares) == 4
    assert max(shares[:2]) < 0.5 < 0.8 < min(shares[2:])
