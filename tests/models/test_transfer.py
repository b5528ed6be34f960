"""Models of one GPU on the pairs of another, from the files of a colocation bench."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from models.bundle import Bundle
from models.training.errors import TrainingError
from models.training.packing import fit_pair_speed
from models.training.pairs import PairMeasurements, modes_of, read_bench, read_pairs
from models.training.simulated import simulated_pairs
from models.training.transfer import evaluate_transfer
from reproductions.colocation.schema import PAIR_SCHEMA, SOLO_SCHEMA


def written(pairs: PairMeasurements, folder: Path, device: str = "gpu") -> Path:
    """The pairs as the bench would have written them."""
    frame = pairs.frame
    common = {
        "repeats": 3,
        "tight": True,
        "device": device,
        "device_name": "Example GPU",
        "measured_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    names = {"model": "model", "dataset": "dataset", "batch": "batch_size", "amp": "amp"}
    sides = []
    for side in "ab":
        fields = [*names, "gpu_util_pct", "gpu_mem_util_pct", "gpu_mem_mib"]
        part = frame[[f"{name}_{side}" for name in fields]].set_axis(fields, axis=1)
        sides.append(part.rename(columns=names))
    solo = pd.concat(sides).fillna({"dataset": "synthetic"})
    solo = solo.drop_duplicates(list(names.values()))
    rows = [{**row, **common} for row in solo.to_dict("records")]
    pq.write_table(pa.Table.from_pylist(rows, schema=SOLO_SCHEMA), folder / "solo.parquet")
    rows = []
    for pair in frame.fillna({"dataset_a": "synthetic", "dataset_b": "synthetic"}).to_dict(
        "records"
    ):
        row = {**common, "sharing": "time-slicing"}
        for i, side in ((1, "a"), (2, "b")):
            row |= {f"{new}_{i}": pair[f"{old}_{side}"] for old, new in names.items()}
            row[f"speed_{i}"] = pair[f"speed_{side}"]
        rows += [row, {**row, "sharing": "mps", "speed_1": 1.0, "speed_2": 1.0}]
    pq.write_table(pa.Table.from_pylist(rows, schema=PAIR_SCHEMA), folder / "pairs.parquet")
    return folder


@pytest.fixture(scope="module")
def here() -> PairMeasurements:
    return simulated_pairs(1, pairs=150)


def test_the_files_of_a_bench_are_read_back(here: PairMeasurements, tmp_path: Path) -> None:
    read = read_pairs(written(here, tmp_path))
    assert len(read) == len(here)
    assert read.origin == "measured"
    assert read.source == "Example GPU, time-slicing"
    for side in "ab":
        for column in (f"speed_{side}", f"gpu_util_pct_{side}", f"gpu_mem_mib_{side}"):
            assert read.frame[column].tolist() == pytest.approx(here.frame[column].tolist())
    assert set(read_bench(tmp_path, sharing="mps").frame["speed_a"]) == {1.0}


def test_how_the_gpu_was_shared_goes_with_the_pairs_and_their_models(
    here: PairMeasurements, tmp_path: Path
) -> None:
    bench = written(here, tmp_path)
    assert modes_of(bench) == ("mps", "time-slicing")
    assert read_pairs(bench).sharing == "time-slicing"
    measured = read_pairs(bench, sharing="mps")
    fitted = fit_pair_speed(measured)
    assert (
        Bundle(pair_speed=fitted.model, metadata={"pair_speed": fitted.metadata}).sharing == "mps"
    )
    pq.write_table(measured.table(), tmp_path / "kept.parquet")
    assert read_pairs(tmp_path / "kept.parquet").sharing == "mps"
    with pytest.raises(TrainingError, match="measured under mps, not under time-slicing"):
        read_pairs(tmp_path / "kept.parquet", sharing="time-slicing")
    with pytest.raises(TrainingError, match="must be mps or time-slicing"):
        read_pairs(bench, sharing="telepathy")
    pq.write_table(here.table(), tmp_path / "silent.parquet")
    assert read_pairs(tmp_path / "silent.parquet").sharing == ""
    assert read_pairs(tmp_path / "silent.parquet", sharing="mps").sharing == "mps"


def test_a_cpu_bench_and_an_unknown_way_of_sharing_are_refused(
    here: PairMeasurements, tmp_path: Path
) -> None:
    written(here, tmp_path)
    with pytest.raises(TrainingError, match=r"solo\.parquet: no such file$"):
        read_bench(tmp_path / "elsewhere")
    with pytest.raises(TrainingError, match="no telepathy pair"):
        read_bench(tmp_path, sharing="telepathy")
    written(here, tmp_path, device="cpu")
    with pytest.raises(TrainingError, match="measured on a CPU"):
        read_bench(tmp_path)
    (tmp_path / "pairs.parquet").write_bytes(b"PAR1")
    with pytest.raises(TrainingError, match=r"pairs\.parquet"):
        read_bench(tmp_path)


def test_a_gpu_on_which_everything_is_slower_is_noticed(here: PairMeasurements) -> None:
    frame = here.frame.copy()
    for side in "ab":
        frame[f"speed_{side}"] *= 0.7
    slower = PairMeasurements(frame, "measured", "a slower GPU")
    away = evaluate_transfer(here, slower)["there"]
    same = evaluate_transfer(here, here)["there"]
    assert away["tree_mae_sum"] > same["tree_mae_sum"] + 0.3
