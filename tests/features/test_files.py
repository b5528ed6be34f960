"""Files appear whole, whoever else writes and whenever the writer dies."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from features.files import (
    LOCK,
    FolderBusy,
    leftovers,
    only_writer,
    replacing,
    write_json,
    write_table,
    write_whole,
)
from pipeline.console import user_errors
from pipeline.errors import UserError

ROOT = Path(__file__).parents[2]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# --- one writer -----------------------------------------------------------------------------------


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_whole(tmp_path / "new" / "text", "günther\n")
    write_whole(tmp_path / "new" / "bytes", b"\x00\xff")
    write_json(tmp_path / "new" / "json", {"b": [1, None]})
    write_table(tmp_path / "new" / "table", pa.table({"x": [1, 2]}))
    assert (tmp_path / "new" / "text").read_text("utf-8") == "günther\n"
    assert (tmp_path / "new" / "bytes").read_bytes() == b"\x00\xff"
    assert (tmp_path / "new" / "json").read_text() == '{\n  "b": [\n    1,\n    null\n  ]\n}\n'
    assert pq.read_table(tmp_path / "new" / "table").column("x").to_pylist() == [1, 2]
    assert names(tmp_path / "new") == ["bytes", "json", "table", "text"]
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "text", "", folders=False)


@pytest.mark.parametrize("old", [None, "old"])
def test_a_writer_that_fails_changes_nothing(tmp_path: Path, old: str | None) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_text(old)
    with pytest.raises(UnicodeEncodeError), replacing(path) as partial:
        partial.write_text("half \udc80", "utf-8")
    assert (path.read_text() if path.exists() else None) == old
    assert names(tmp_path) == ([] if old is None else ["file"])


def test_names_as_long_as_they_may_be(tmp_path: Path) -> None:
    path = tmp_path / ("ü" * 127)
    write_whole(path, "x")
    assert path.read_text() == "x"


def test_the_mode_is_the_umask_s_or_what_was_there_unless_it_is_a_secret(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "open", "")
        write_whole(tmp_path / "secret", "", mode=0o600)
        for kept in (0o600, 0o664):
            (tmp_path / "old").touch()
            (tmp_path / "old").chmod(kept)
            write_whole(tmp_path / "old", "new")
            assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == kept
        write_whole(tmp_path / "old", "new", mode=0o600)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == {"open": 0o640, "secret": 0o600, "old": 0o600}


def test_folders_that_are_made_for_a_durable_file_are_on_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr("features.files.sync", synced.append)
    write_whole(tmp_path / "a" / "b" / "file", "x", durable=True)
    folders = {path for path in synced if path.is_dir()}
    assert folders == {tmp_path, tmp_path / "a", tmp_path / "a" / "b"}


@pytest.mark.parametrize("durable", [True, False])
def test_durable_is_the_content_before_the_name_and_then_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    done: list[object] = []
    rename = os.replace

    def synced(file: int) -> None:
        done.append(os.readlink(f"/proc/self/fd/{file}").endswith(".partial") or "folder")

    def renamed(source: Path, target: Path) -> None:
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    write_whole(tmp_path / "file", "x", durable=durable)
    assert done == ([True, "rename", "folder"] if durable else ["rename"])


# --- several --------------------------------------------------------------------------------------


def test_two_writers_of_one_file_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with replacing(path) as first:
        with replacing(path) as second:
            first.write_text("first")
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first"
    assert names(tmp_path) == ["file"]


KILLED = """
import sys, time
from pathlib import Path
from features.files import only_writer, replacing
with only_writer(Path(sys.argv[1])), replacing(Path(sys.argv[1], "file")) as partial:
    partial.write_text("half")
    print("there", flush=True)
    time.sleep(600)
"""


def test_who_was_killed_leaves_the_old_file_and_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    command = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        busy = f"is being written by process {process.pid} on "
        with pytest.raises(FolderBusy, match=busy), only_writer(tmp_path):
            pytest.fail("two writers")
        process.send_signal(signal.SIGKILL)
    assert (tmp_path / "file").read_text() == "old"
    with only_writer(tmp_path):
        (stale,) = leftovers(tmp_path)
        assert stale.read_text() == "half"
        write_whole(tmp_path / "file", "new")
    assert (tmp_path / "file").read_text() == "new"
    assert not (tmp_path / LOCK).exists()
    with pytest.raises(FolderBusy), only_writer(tmp_path / "new"), only_writer(tmp_path / "new"):
        pytest.fail("two writers")
    assert names(tmp_path / "new") == []


# --- what is not replaced -------------------------------------------------------------------------


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (os.mkfifo, "a pipe"),
        (os.mkdir, "a directory"),
        (a_socket, "a socket"),
        (lambda path: path.symlink_to("/dev/full"), "a device"),
    ],
)
def test_only_a_regular_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], None], said: str
) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    make(Path("out"))
    before = os.lstat("out")
    with pytest.raises(UserError, match=f"^out: is {said}, not a regular file$"), user_errors():
        write_whole("out", "x")
    after = os.lstat("out")
    assert (after.st_mode, after.st_ino) == (before.st_mode, before.st_ino)
    assert names(tmp_path) == ["out"]
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a link another user's")
@pytest.mark.parametrize("there", [True, False])
def test_a_link_that_another_user_put_into_a_folder_of_everybodys_is_refused(
    tmp_path: Path, there: bool
) -> None:
    """`--html /tmp/x.html` replaced whatever file of root's the link named."""
    kept, folder = tmp_path / "kept", tmp_path / "everybodys"
    folder.mkdir()
    folder.chmod(0o1777)
    link = folder / "x.html"
    link.symlink_to(kept)
    os.lchown(link, 65534, 65534)
    if there:
        kept.write_text("kept")
    with pytest.raises(OSError, match="is a link that another user has put there"):
        write_whole(link, "new")
    assert kept.exists() is there
    os.lchown(link, 0, 0)
    write_whole(link, "new")
    assert kept.read_text() == "new"


def test_the_lock_of_a_folder_empties_nothing_that_it_links_to(tmp_path: Path) -> None:
    """Whoever owned the folder of `--out` had the file it names overwritten."""
    kept, folder = tmp_path / "kept", tmp_path / "run"
    kept.write_text("kept")
    folder.mkdir()
    (folder / LOCK).symlink_to(kept)
    with pytest.raises(OSError, match="symbolic links"), only_writer(folder):
        pass
    assert kept.read_text() == "kept"


def test_a_link_stays_and_what_it_points_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link"
    link.symlink_to("there/file")
    for content in ("first", "second"):  # there is none at first
        write_whole(link, content)
        assert link.is_symlink()
        assert (tmp_path / "there" / "file").read_text() == content
    assert names(tmp_path / "there") == ["file"]


# --- one way to do it -----------------------------------------------------------------------------

FOLDERS = {  # these rename whole folders
    "pipeline/traces/dataset.py",
    "scheduler/backends/local/spool.py",
    "scheduler/service/log/bundles.py",
}


RENAMES = re.compile(
    r"\bos\.(replace|rename)\(|\.(replace|rename)\(\w*(path|out|target|file)\)|mkstemp|NamedTemporary"
)


def test_nobody_else_renames_files() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for package in ("features", "models", "profiler", "scheduler", "pipeline", "reproductions")
        for path in (ROOT / package).rglob("*.py")
        if RENAMES.search(path.read_text())
    }
    assert found - FOLDERS == {"features/files.py", "scheduler/service/log/restore.py"}
