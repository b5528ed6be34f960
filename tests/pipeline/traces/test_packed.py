"""Traces as they are published: compressed, or in an archive."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.testing.samples import samples
from pipeline.traces import TraceError, ingest, read_dataset
from tests.pipeline.traces.samples import write_helios


def zipped(data: bytes, *others: str) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.mkdir("data")
        for name in ("data/cluster_log.csv", *others):
            archive.writestr(name, data)
    return file.getvalue()


def tarred(data: bytes, *others: str) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name in ("data/cluster_log.csv", *others):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return file.getvalue()


WAYS: dict[str, Callable[[bytes], bytes]] = {
    "log.csv.gz": gzip.compress,
    "log.csv.bz2": bz2.compress,
    "log.csv.xz": lzma.compress,
    "log.zip": zipped,
    "log.tar.gz": tarred,
    "without-a-name": gzip.compress,
}


@pytest.mark.parametrize("name", WAYS)
def test_a_packed_trace_is_that_trace(name: str, tmp_path: Path) -> None:
    plain = write_helios(tmp_path, samples(50))
    packed = tmp_path / name
    packed.write_bytes(WAYS[name](plain.read_bytes()))
    ingest(plain, tmp_path / "one")
    summary = ingest(packed, tmp_path / "two")
    assert summary.kept == 50
    assert read_dataset(tmp_path / "two").equals(read_dataset(tmp_path / "one"))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (zipped(b"x" * 99, "more.csv"), "archive of several files"),
        (tarred(b"x" * 99, "more.csv"), "archive of several files"),
        (gzip.compress(b"a" * 100_000)[:40], "empty|no format"),
    ],
    ids=["zip", "tar", "cut"],  # the bytes hold the time, which differs between workers
)
def test_what_cannot_be_unpacked_is_one_line(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(data)
    with pytest.raises(TraceError, match=words):
        ingest(tmp_path / "log", tmp_path / "out")
    with pytest.raises(TraceError, match="unpack"):
        ingest(tmp_path / "log", tmp_path / "out", format="helios")


def test_a_file_that_is_cut_is_refused(tmp_path: Path) -> None:
    whole = write_helios(tmp_path, samples(2000)).read_bytes()
    (tmp_path / "log.gz").write_bytes(gzip.compress(whole)[:-2000])
    with pytest.raises(TraceError, match="cannot be unpacked"):
        ingest(tmp_path / "log.gz", tmp_path / "out", format="helios")
