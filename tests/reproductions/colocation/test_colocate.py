"""The bench: order, repeats, resumption, statistics, and a small campaign for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler import procs
from profiler.errors import BadOption, NotSupported
from reproductions.colocation import campaign, mps
from reproductions.colocation.bench import Bench, Plan, Settings, all_pairs
from reproductions.colocation.journal import Item, Journal, Measurement
from reproductions.colocation.schema import PAIR_SCHEMA, SOLO_SCHEMA
from reproductions.colocation.statistics import mean_of, ratio_of
from reproductions.colocation.tables import solo_table, write_tables
from reproductions.colocation.worker import Progress, Worker, WorkerFailed
from reproductions.colocation.workloads import Config, all_configs
from tests.profiler.fake_nvml import FakeGpu, FakeNvml
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
HEADER = {"device": "gpu", "name": "Fake", "size": "full"}
A, B, C = Config("BERT", 8), Config("GPT", 4, True), Config("VGG", 32)
WHEN = "2026-01-02T03:04:05+00:00"


def measured(item: Item, *rates: float, **more: Any) -> Measurement:
    return Measurement(item, WHEN, 5.0, rates, torch_mem_mib=(None,) * len(rates), **more)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path, HEADER)


def test_interval_of_known_samples() -> None:
    # Student's t for 3 degrees of freedom: 3.1824
    found = mean_of([9.0, 10.0, 11.0, 10.0])
    assert found.value == 10
    assert found.sd == pytest.approx(np.sqrt(2 / 3))
    assert found.half_width == pytest.approx(3.1824 * np.sqrt(2 / 3) / 2 / 10, rel=1e-4)
    assert not mean_of([5.0]).tight(0.5)
    assert mean_of([5.0, 5.0]).tight(0.0)
    with pytest.raises(ValueError, match="no measurement"):
        mean_of([])
    with pytest.raises(ValueError, match="no progress"):
        ratio_of([1.0], [0.0, 0.0])


def test_a_ratio_carries_both_uncertainties() -> None:
    found = ratio_of([4.0, 5.0, 6.0], [10.0, 10.1, 9.9])
    assert found.value == pytest.approx(0.5)
    assert found.half_width > mean_of([4.0, 5.0, 6.0]).half_width


def test_pairs_cover_every_combination_of_families_first() -> None:
    configs = all_configs()
    pairs = all_pairs(configs, seed=1)
    assert len(pairs) == len(set(pairs)) == len(configs) * (len(configs) + 1) // 2
    families = len({config.model for config in configs})
    combinations = families * (families + 1) // 2
    first = Counter(frozenset((a.model, b.model)) for a, b in pairs[:combinations])
    assert len(first) == combinations
    assert pairs != all_pairs(configs, seed=2)
    assert pairs == all_pairs(configs, seed=1)


def feed(plan: Plan, item: Item, rng: np.random.Generator, spread: float, limit: int) -> int:
    """Measure one item as the plan asks; returns how often."""
    count = 0
    for chosen in plan.rounds([item]):
        assert count < limit
        plan.journal.add(
            measured(chosen, *(10 * (1 + spread * rng.normal()) for _ in chosen.configs))
        )
        count += 1
    return count


def test_repeats_end_when_tight_or_used_up(journal: Journal) -> None:
    plan, rng = Plan(journal, Settings(min_repeats=2, max_repeats=5)), np.random.default_rng(0)
    assert feed(plan, Item((A,)), rng, 0.0, 9) == 2
    assert feed(plan, Item((B,)), rng, 0.5, 9) == 5
    table = solo_table(journal, 0.05).to_pylist()
    assert [(row["model"], row["repeats"], row["tight"]) for row in table] == [
        ("BERT", 2, True),
        ("GPT", 5, False),
    ]


def test_what_does_not_fit_is_not_tried_again_and_failures_are_bounded(journal: Journal) -> None:
    plan = Plan(journal, Settings(max_repeats=3))
    journal.add(measured(Item((A,)), outcome="does not fit"))
    assert plan.done(Item((A,)))
    for _ in range(3):
        assert not plan.done(Item((B,)))
        journal.add(measured(Item((B,)), outcome="failed"))
    assert plan.done(Item((B,)))
    assert solo_table(journal, 0.05).num_rows == 0


def test_pairs_wait_for_both_members_alone(journal: Journal) -> None:
    plan = Plan(journal, Settings())
    journal.add(measured(Item((A,)), 10.0))
    assert plan.pairs([(A, B), (A, A)], "mps") == [Item((A, A), "mps")]


def test_a_journal_survives_a_torn_line_and_refuses_another_device(tmp_path: Path) -> None:
    first = Journal(tmp_path, HEADER)
    kept = measured(Item((A, B), "mps"), 3.5, 4.5, usage={"util_pct": 90.0})
    first.add(kept)
    with first.path.open("a") as file:
        file.write('{"item": {"configs": [{"mo')  # the machine was switched off here
    second = Journal(tmp_path, HEADER)
    assert second.measurements == [kept]
    second.add(measured(Item((C,)), 1.0))
    assert len(Journal(tmp_path, HEADER).measurements) == 2
    with pytest.raises(BadOption, match="name 'Fake', this is 'Other'"):
        Journal(tmp_path, {**HEADER, "name": "Other"})


def test_a_folder_is_not_gone_on_with_on_another_gpu_of_the_same_name(tmp_path: Path) -> None:
    def bench(uuid: str) -> Bench:
        return Bench(Settings(), tmp_path, nvml_module=FakeNvml(FakeGpu(uuid)))

    bench("GPU-a").close()
    bench("GPU-a").close()
    with pytest.raises(BadOption, match="uuid 'GPU-a', this is 'GPU-b'"):
        bench("GPU-b")


@given(st.binary(max_size=200))
@settings(max_examples=40)
def test_a_damaged_journal_is_a_message_not_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    folder = tmp_path_factory.mktemp("journal")
    Journal(folder, HEADER)
    with (folder / "measurements.jsonl").open("ab") as file:
        file.write(junk.replace(b"\n", b" ").strip() + b"\n")
    with pytest.raises(BadOption, match="line 2"):
        Journal(folder, HEADER)
    (folder / "measurements.jsonl").write_bytes(junk.replace(b"\n", b" ") + b"\n")
    with pytest.raises(BadOption):
        Journal(folder, HEADER)


def test_tables_have_their_schema_and_relative_speeds(journal: Journal) -> None:
    usage = {"util_pct": 95.0, "mem_util_pct": 40.0, "mem_used_mib": 4000.0, "mem_peak_mib": 4100.0,
             "power_w": 500.0}  # fmt: skip
    for rate in (10.0, 10.2):
        journal.add(measured(Item((A,)), rate, usage={**usage, "tree_mem_mib": 3900.0},
                             step_s=0.1, step_confidence=0.8))  # fmt: skip
        journal.add(measured(Item((B,)), 2 * rate, usage=usage))
    journal.add(measured(Item((A, B), "time-slicing"), 5.05, 10.1, usage=usage))
    journal.add(measured(Item((C, C), "time-slicing"), 5.0, 5.0))  # alone unknown: no row
    solo, pairs = write_tables(journal, journal.path.parent, 0.05)
    assert solo.schema.equals(SOLO_SCHEMA)
    assert pairs.schema.equals(PAIR_SCHEMA)
    assert pq.read_table(journal.path.parent / "solo.parquet").equals(solo)
    bert, gpt = solo.to_pylist()
    assert (bert["gpu_mem_mib"], gpt["gpu_mem_mib"]) == (3900, 4100)
    assert bert["step_s_estimate"] == 0.1
    (pair,) = pairs.to_pylist()
    assert pair["speed_1"] == pytest.approx(0.5)
    assert pair["speed_2"] == pytest.approx(0.5)
    assert (pair["amp_1"], pair["amp_2"], pair["tight"]) == (False, True, False)
    assert pair["half_width_1_pct"] is None  # one repeat: not known


def test_committed_tables_follow_from_their_measurements(tmp_path: Path) -> None:
    folders = [path.parent for path in (ROOT / "data" / "profiles").glob("*/solo.parquet")]
    assert folders
    for folder in folders:
        copy = tmp_path / folder.name
        copy.mkdir()
        (copy / "measurements.jsonl").write_bytes((folder / "measurements.jsonl").read_bytes())
        write_tables(Journal(copy, {}), copy, Settings().tolerance)
        for name in ("solo.parquet", "pairs.parquet"):
            made, kept = pq.read_table(copy / name), pq.read_table(folder / name)
            assert made.schema == kept.schema
            for field in made.schema:
                if field.type == pa.float64():  # Python 3.12 adds floats up more exactly than 3.11
                    found, wanted = made[field.name].to_numpy(), kept[field.name].to_numpy()
                    np.testing.assert_allclose(found, wanted, rtol=1e-12, err_msg=field.name)
                else:
                    assert made[field.name].equals(kept[field.name]), field.name


@pytest.mark.parametrize(
    ("name", "value"),
    [("group", 0), ("settle_s", -0.1), ("pair_s", 0.0)],
)
def test_settings_that_measure_nothing_are_refused(name: str, value: Any) -> None:
    with pytest.raises(BadOption, match=name):
        Settings(**{name: value})


def test_rates_come_from_reports_inside_the_window() -> None:
    worker = Worker.__new__(Worker)
    steps = (0, 10, 20, 60, 100, 110)
    worker.progress = [Progress(float(t), n) for t, n in enumerate(steps)]
    assert worker.rate(1.5, 4.5) == 40.0  # between the reports at 2 and 4
    assert worker.rate(2.9, 3.1) == 40.0  # too few inside: the nearest outside
    worker.progress = [Progress(0.0, 0)]
    with pytest.raises(WorkerFailed, match="no progress"):
        worker.rate(1.0, 2.0)


CONTROL = """#!{python}
import os, signal, sys, time
assert sys.argv[1] == "-f"
{body}
open(os.path.join(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "control"), "w").close()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", ""),
        ("sys.exit('no device is supported')", "no device is supported"),
        (None, "nvidia-cuda-mps-control is not installed"),
    ],
)
def test_mps_runs_for_as_long_as_it_is_needed_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str | None, why: str
) -> None:
    if body is not None:
        control = tmp_path / mps.CONTROL
        control.write_text(CONTROL.format(python=sys.executable, body=body))
        control.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    before = set(procs.descendants(os.getpid()))
    if why:
        with pytest.raises(NotSupported, match=why), mps.daemon(tmp_path, ""):
            pass
    else:
        with mps.daemon(tmp_path, "GPU-a") as clients:
            assert Path(clients["CUDA_MPS_PIPE_DIRECTORY"], "control").exists()
            assert len(set(procs.descendants(os.getpid())) - before) == 2
    assert set(procs.descendants(os.getpid())) <= before


def small_campaign(folder: Path) -> list[str]:
    return [
        sys.executable, "-m", "reproductions.colocation.campaign",
        "--device", "cpu", "--tiny", "--json",
        "--solo-seconds", "0.5", "--pair-seconds", "0.5", "--out", str(folder),
        "NeuMF/32", "A2C/8", "--minutes", "4", "--pairs", "1", "--mps",
    ]  # fmt: skip


@pytest.mark.usefixtures("torch")
def test_a_campaign_killed_with_9_leaves_no_worker_goes_on_and_describes_itself(
    tmp_path: Path,
) -> None:
    journal = tmp_path / "measurements.jsonl"
    bench = subprocess.Popen(small_campaign(tmp_path), cwd=ROOT, stderr=subprocess.DEVNULL)

    def measured() -> bool:
        assert bench.poll() is None
        return journal.exists() and journal.read_text().count("\n") >= 3

    until(measured, "three lines of the journal")
    tree = procs.all_descendants(bench.pid)
    assert len(tree) >= 2
    os.kill(bench.pid, signal.SIGKILL)
    bench.wait()
    until(lambda: not any(map(procs.alive, tree)), "the end of its workers")
    kept = journal.read_text().splitlines()

    done = subprocess.run(
        small_campaign(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["complete"]
    assert (summary["solo"], summary["pairs"], summary["measurements"]) == (2, 1, 6)
    lines = journal.read_text().splitlines()
    assert lines[: len(kept) - 1] == kept[:-1]  # nothing was measured again
    assert len(lines) == 7
    pair = pq.read_table(tmp_path / "pairs.parquet").to_pylist()[0]
    assert 0.05 < pair["speed_1"] < 2
    assert pair["gpu_util_pct"] is None
    card = (tmp_path / "README.md").read_text()
    for words in ("2 of 2 configurations alone", "NeuMF/32", "time-slicing: 1 pairs", "torch 2"):
        assert words in card
    assert "{" not in card


@pytest.mark.usefixtures("torch")
def test_a_worker_that_dies_is_a_failed_measurement_not_the_end() -> None:
    with Worker("cpu", "tiny", threads=1) as worker:
        worker.await_event("hello", timeout_s=60)
        worker.order(Config("NeuMF", 32))
        worker.ready(60)
        os.kill(worker.pid, signal.SIGKILL)
        with pytest.raises(WorkerFailed, match=r"died|ended"):
            worker.follow_past(time.monotonic() + 60, 60)
        assert not worker.alive
        worker.abandon()


def test_without_torch_a_bench_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotSupported, match=r"pellucid\[profiler\]"):
        campaign.campaign(campaign.TINY, tmp_path, 1.0, [], None, False)
