"""The opener of files of others: whatever lies there, it waits for nobody and says what it is."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features import given
from features.given import (
    MIB,
    arrow_file,
    descriptor,
    opened,
    opened_text,
    read_given,
    read_text,
)


@pytest.fixture
def others(tmp_path: Path) -> Iterator[dict[str, Path]]:
    """What is no regular file, by what is said of it."""
    at = {name: tmp_path / name for name in ("pipe", "socket", "directory", "linked")}
    os.mkfifo(at["pipe"])
    at["directory"].mkdir()
    at["linked"].symlink_to(at["pipe"])
    with socket.socket(socket.AF_UNIX) as there:
        there.bind(str(at["socket"]))
        yield {**at, "device": Path("/dev/zero")}


def _all(path: Path) -> bytes:
    with opened(path) as file:
        return file.read()


def _arrow(path: Path) -> bytes:
    with arrow_file(path) as file:
        return bytes(file.read())


def _text(path: Path) -> bytes:
    with opened_text(path) as file:
        return file.read().encode()


READERS: list[Callable[[Path], bytes]] = [
    read_given,
    lambda path: read_text(path).encode(),
    _all,
    _text,
    _arrow,
]


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_regular_file_is_named(
    read: Callable[[Path], bytes], others: dict[str, Path]
) -> None:
    for name, path in others.items():
        said = f"is a {name.replace('linked', 'pipe')}, not a regular file"
        with pytest.raises(OSError, match=said) as error:
            read(path)
        assert (error.value.strerror, error.value.filename) == (said, str(path))


@pytest.mark.parametrize("read", READERS)
def test_what_is_missing_or_cannot_be_called_so(
    read: Callable[[Path], bytes], tmp_path: Path
) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none")
    for name in ("a\0b", "a" * 300, "\udcff"):
        with pytest.raises(OSError, match=r"null|too long|such file|surrogates"):
            read(tmp_path / name)


@pytest.mark.parametrize("read", READERS)
def test_a_regular_file_is_read(read: Callable[[Path], bytes], tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"some\nlines\n" * 100_000)
    assert read(tmp_path / "x") == b"some\nlines\n" * 100_000
    (tmp_path / "empty").touch()
    assert read(tmp_path / "empty") == b""
    (tmp_path / "link").symlink_to("x")
    assert len(read(tmp_path / "link")) == 1_100_000


def test_what_the_kernel_writes_is_read_though_it_says_it_holds_nothing() -> None:
    assert b"processor" in read_given("/proc/cpuinfo")
    assert b"processor" in _all(Path("/proc/cpuinfo"))


def test_more_than_is_taken_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 42)
    with pytest.raises(OSError, match="holds more than 4 MiB"):
        read_given(tmp_path / "huge")
    (tmp_path / "x").write_bytes(b"12345")
    assert read_given(tmp_path / "x", 5) == b"12345"
    with pytest.raises(OSError, match="holds more than 4 bytes"):
        read_given(tmp_path / "x", 4)


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Path]:
    """A file that another process writes to without end."""
    path = tmp_path / "growing"
    path.write_bytes(b"a" * MIB)
    write = "import sys\nwith open(sys.argv[1], 'ab', 0) as f:\n    print(flush=True)\n"
    write += "    for _ in range(2000): f.write(b'a' * 65536)\n    input()\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", write, str(path)], **pipes) as writer:  # type: ignore[call-overload]
        assert writer.stdout is not None
        writer.stdout.readline()
        yield path
        writer.kill()


def test_of_one_that_grows_what_it_held_is_read(growing: Path) -> None:
    before = growing.stat().st_size
    with opened(growing) as file:
        after = os.fstat(file.fileno()).st_size
        while growing.stat().st_size < after + MIB:
            pass
        read = file.read()
        assert before <= len(read) <= after
        assert file.seek(0, os.SEEK_END) == len(read)
    with pytest.raises(OSError, match="holds more than"):
        read_given(growing, MIB)


def test_one_that_vanishes_or_is_replaced_meanwhile(tmp_path: Path) -> None:
    """What is opened is what was looked at: never a pipe that was put there between."""
    path, pipe, stop = tmp_path / "x", tmp_path / "pipe", threading.Event()
    os.mkfifo(pipe)

    def swap() -> None:
        while not stop.is_set():
            (tmp_path / "new").write_bytes(b"whole")
            (tmp_path / "new").rename(path)
            time.sleep(0)
            os.link(pipe, tmp_path / "other")
            (tmp_path / "other").rename(path)
            time.sleep(0)
            path.unlink()
            time.sleep(0)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        found = set()
        for _ in range(3000):
            try:
                found.add(read_given(path))
            except OSError as error:
                found.add(str(error.strerror).encode())
    finally:
        stop.set()
        swapper.join()
    assert found <= {b"whole", b"is a pipe, not a regular file", b"No such file or directory"}
    assert b"whole" in found


@pytest.mark.parametrize("kind", ["pipe", "device", "directory"])
def test_what_is_put_there_after_it_was_looked_at_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    path, looked = tmp_path / "x", given.regular
    path.write_bytes(b"whole")

    def swapped(there: str | Path) -> None:
        looked(there)
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to("/dev/zero")

    monkeypatch.setattr(given, "regular", swapped)
    with pytest.raises(OSError, match=f"is a {kind}, not a regular file"):
        read_given(path)


def test_a_link_out_of_a_watched_folder_is_refused(tmp_path: Path) -> None:
    folder, outside = tmp_path / "watched", tmp_path / "outside"
    folder.mkdir()
    outside.write_bytes(b"secret")
    (folder / "own").write_bytes(b"own")
    for name, to in {"in": "own", "out": "../outside", "far": "/etc/passwd"}.items():
        (folder / name).symlink_to(to)
    assert read_given(folder / "in", within=folder) == b"own"
    (tmp_path / "called").symlink_to(folder)  # the folder itself may be called otherwise
    assert read_given(tmp_path / "called" / "own", within=tmp_path / "called") == b"own"
    for name in ("out", "far"):
        with pytest.raises(OSError, match="is a link out of its folder"):
            read_given(folder / name, within=folder)
    with pytest.raises(OSError, match="symbolic links"):
        descriptor(folder / "in", follow=False)


def test_descriptors_are_closed(others: dict[str, Path], tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1]}), tmp_path / "t")
    before = {*os.listdir("/proc/self/fd")}  # some of other tests may be closed meanwhile
    for path in (*others.values(), tmp_path / "t"):
        for read in READERS:
            try:
                read(path)
            except (OSError, UnicodeDecodeError):
                continue
    with arrow_file(tmp_path / "t") as file:
        assert pq.read_table(file).num_rows == 1
    assert {*os.listdir("/proc/self/fd")} <= before


def test_a_line_without_end_is_not_read_as_text(tmp_path: Path) -> None:
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="holds more than 256 MiB"), opened_text(tmp_path / "huge"):
        pass
