"""What hangs keeps nobody: neither who asks, nor who asks for something else."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from features import aside as aside_
from features.aside import Aside, Hangs
from tests import hung
from tests.waiting import until

COPIED = "features.aside:copied"


@pytest.fixture
def aside() -> Iterator[Aside]:
    one = Aside()
    yield one
    one.close()


def copied(aside: Aside, path: Path, most: int = 100, *, end: bool = True, uid: Any = None) -> int:
    file: int = aside.ask(
        COPIED, str(path), most, end, uid, whose=path.parent.name, place=str(path.parent)
    )
    return file


def test_a_copy_has_the_size_and_the_part_of_the_file(aside: Aside, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"a" * 1000 + b"b" * 100)
    for end, part in ((True, b"b" * 100), (False, b"a" * 100)):
        file = copied(aside, tmp_path / "x", end=end)
        assert os.fstat(file).st_size == 1100
        assert os.pread(file, 100, 1000 if end else 0) == part
        assert os.pread(file, 100, 500) == b"\0" * 100
        os.close(file)


def test_what_is_refused_is_said_as_by_the_opener(aside: Aside, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("x")
    (tmp_path / "x").write_bytes(b"x")
    for name, number in (("pipe", errno.EINVAL), ("link", errno.ELOOP), ("none", errno.ENOENT)):
        with pytest.raises(OSError, match=name) as error:
            copied(aside, tmp_path / name)
        assert error.value.errno == number
    with pytest.raises(PermissionError, match="another user"):
        copied(aside, tmp_path / "x", uid=os.geteuid() + 1)
    os.close(copied(aside, tmp_path / "x", uid=os.geteuid()))


def test_a_defect_of_ours_ends_nobody(aside: Aside, tmp_path: Path) -> None:
    with pytest.raises(OSError, match="TypeError") as error:
        aside.ask(COPIED, whose=None, place="")
    assert error.value.errno == errno.EIO
    (tmp_path / "x").write_bytes(b"x")
    assert aside._process is not None
    process = aside._process
    os.close(copied(aside, tmp_path / "x"))
    assert aside._process is process


def test_a_question_that_is_too_long_ends_nobody(aside: Aside, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.close(copied(aside, tmp_path / "x"))
    process = aside._process
    with pytest.raises(OSError, match="too long") as error:
        copied(aside, tmp_path / ("x" * aside_.PACKET))
    assert error.value.errno == errno.E2BIG
    os.close(copied(aside, tmp_path / "x"))
    assert aside._process is process


def test_one_that_somebody_ended_is_replaced(aside: Aside, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.close(copied(aside, tmp_path / "x"))
    assert aside._process is not None
    first = aside._process.process
    first.kill()
    os.close(copied(aside, tmp_path / "x"))
    assert aside._process.process.pid != first.pid


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder in which whatever is looked at hangs; it can be ended by a signal."""
    return hung.pretended(monkeypatch, tmp_path / "hung")


def test_what_hangs_is_let_alone_for_a_while_each_time_longer(
    aside: Aside, hanging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    pause_s = 0.0
    for _ in range(3):
        with pytest.raises(Hangs, match="lies where nothing answers") as error:
            copied(aside, hanging / "x")
        assert error.value.filename == str(hanging)
        os.close(copied(aside, tmp_path / "x"))
        [one] = aside._hung.values()
        assert one.pause_s == max(2 * pause_s, aside_.PAUSE_S)
        pause_s = one.pause_s
        process = aside._process
        with pytest.raises(Hangs):
            copied(aside, hanging / "y")
        assert aside._process is process, "nobody was asked"
        one.until = time.monotonic() - 1.0
    monkeypatch.setattr(aside_, "MAIN", "import features.aside as a; a.main()")
    hanging.mkdir()
    (hanging / "x").write_bytes(b"x")
    aside.close()
    os.close(copied(aside, hanging / "x"))
    assert aside._hung == {}


def test_who_has_many_that_hang_waits_with_all_and_nobody_else_does(
    aside: Aside, hanging: Path, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"x")

    def asked(path: Path, whose: str) -> int:
        given = str(path), 100, True, None
        file: int = aside.ask(COPIED, *given, whose=whose, place=str(path.parent))
        return file

    for number in range(aside_.MOST_PLACES):
        os.close(asked(tmp_path / "x", "eve"))
        with pytest.raises(Hangs):
            asked(hanging / str(number) / "x", "eve")
    with pytest.raises(Hangs):
        asked(tmp_path / "x", "eve")
    os.close(asked(tmp_path / "x", "ann"))
    aside._hung["eve", str(hanging / "0")].until = 0.0
    os.close(asked(tmp_path / "x", "eve"))


@pytest.mark.skipif(not hung.can_mount(), reason="nothing can be mounted here")
@pytest.mark.parametrize("silent", [hung.GETATTR, hung.OPEN, hung.READ, hung.FLUSH])
def test_a_file_system_that_stops_answering(
    aside: Aside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: int
) -> None:
    """Whoever looks at a file of it can be ended by no signal, and so is left."""
    monkeypatch.setattr(aside_, "PATIENCE_S", 2.0)
    (tmp_path / "x").write_bytes(b"x")
    (tmp_path / "there").mkdir()
    with hung.mounted(tmp_path / "there", silent):
        with pytest.raises(Hangs):
            copied(aside, tmp_path / "there" / "x")
        [one] = aside._hung.values()
        assert one.left.poll() is None, "it hangs still"
        one.until = 0.0
        with pytest.raises(Hangs):  # and so nobody else is sent there
            copied(aside, tmp_path / "there" / "x")
        assert [*aside._hung.values()] == [one], "nobody was asked"
        os.close(copied(aside, tmp_path / "x"))
    until(lambda: not psutil.pid_exists(one.left.pid) or one.left.poll() is not None, "its end")


@pytest.mark.skipif(not hung.can_mount(), reason="nothing can be mounted here")
def test_a_file_system_that_answers(aside: Aside, tmp_path: Path) -> None:
    with hung.mounted(tmp_path, 0):
        file = copied(aside, tmp_path / "x")
    assert os.pread(file, 100, 0) == hung.CONTENT
    os.close(file)
