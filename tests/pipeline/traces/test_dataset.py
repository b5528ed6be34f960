"""Datasets on disk: replaced whole or not at all, read back in order."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from features.schema import TRACE_SCHEMA
from pipeline.testing.samples import samples
from pipeline.traces import TraceError, ingest, jobs_in_order, read_dataset
from pipeline.traces import dataset as dataset_module
from tests.pipeline.traces.samples import write_helios, write_openb


def test_replaces_an_older_dataset_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    ingest(write_helios(tmp_path, samples()), out)
    (out / "leftover").write_text("x")
    ingest(write_openb(tmp_path, samples(3)), out)
    assert len(read_dataset(out)) == 3
    assert not (out / "leftover").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_leaves_other_things_alone(tmp_path: Path) -> None:
    source = write_helios(tmp_path, samples())
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter1.tex").write_text("precious")
    with pytest.raises(TraceError, match="left alone"):
        ingest(source, folder)
    with pytest.raises(TraceError, match="is a file"):
        ingest(source, folder / "chapter1.tex")
    assert (folder / "chapter1.tex").read_text() == "precious"


def test_interrupted_run_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = write_helios(tmp_path, samples()), tmp_path / "out"
    ingest(source, out)
    before = read_dataset(out)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dataset_module.DatasetWriter, "write", stop)
    with pytest.raises(KeyboardInterrupt):
        ingest(source, out)
    assert read_dataset(out).equals(before)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_same_source_gives_the_same_bytes(tmp_path: Path) -> None:
    source = write_helios(tmp_path, samples())
    for name in ("a", "b"):
        ingest(source, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(files) >= 4
    for file in files:
        if (tmp_path / "a" / file).is_file():
            assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_ties_keep_the_order_of_the_source(tmp_path: Path) -> None:
    jobs = samples(8)
    same = [job.with_raw(submit="2023-03-31 04:00:00") for job in jobs]
    ingest(write_helios(tmp_path, [*reversed(same)]), tmp_path / "out")
    assert read_dataset(tmp_path / "out")["job_id"].to_pylist() == [j.job_id for j in same[::-1]]


def test_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="holds no dataset"):
        read_dataset(tmp_path)
    ingest(write_helios(tmp_path, samples()), tmp_path / "out")
    part = next((tmp_path / "out").glob("month=*/*.parquet"))
    part.write_bytes(b"PAR1 not really")
    with pytest.raises(TraceError, match="cannot be read"):
        read_dataset(tmp_path / "out")


def test_jobs_in_order_tell_nothing_of_the_outcome(tmp_path: Path) -> None:
    ingest(write_helios(tmp_path, samples()), tmp_path / "out")
    jobs = list(jobs_in_order(read_dataset(tmp_path / "out")))
    assert [job.job_id for job in jobs] == [job.job_id for job in samples()]
    assert [job.submit_time for job in jobs] == [job.submit.timestamp() for job in samples()]
    assert jobs[0].user == "u0"
    assert jobs[0].name == ""
    assert list(jobs_in_order(TRACE_SCHEMA.empty_table())) == []


def test_provenance(tmp_path: Path) -> None:
    import hashlib

    source = write_helios(tmp_path, samples())
    ingest(source, tmp_path / "out")
    provenance = json.loads((tmp_path / "out" / "provenance.json").read_text())
    (file,) = provenance["files"]
    assert file["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    names = ("schema_version", "timezone", "origin", "rows_in", "kept", "quarantined")
    assert [provenance[name] for name in names] == [1, "Asia/Shanghai", None, 12, 12, 0]


def test_progress_counts_bytes(tmp_path: Path) -> None:
    source = write_helios(tmp_path, samples())
    seen: list[int] = []
    ingest(source, tmp_path / "out", progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == source.stat().st_size


def test_labels_of_many_files_share_one_dictionary(tmp_path: Path) -> None:
    ingest(write_helios(tmp_path, samples(40)), tmp_path / "out")
    table = read_dataset(tmp_path / "out")
    user = table["user"]
    assert user.num_chunks == 1
    assert isinstance(user.chunk(0), pa.DictionaryArray)
    assert sorted(user.chunk(0).dictionary.to_pylist()) == ["u0", "u1", "u2"]
