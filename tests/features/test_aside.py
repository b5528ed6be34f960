"""What hangs keeps nobody: neither who asks, nor who asks for something else."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
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
    [process] = aside._idle
    os.close(copied(aside, tmp_path / "x"))
    assert aside._idle == [process]


def test_a_question_that_is_too_long_ends_nobody(aside: Aside, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.close(copied(aside, tmp_path / "x"))
    [process] = aside._idle
    with pytest.raises(OSError, match="too long") as error:
        copied(aside, tmp_path / ("x" * aside_.PACKET))
    assert error.value.errno == errno.E2BIG
    os.close(copied(aside, tmp_path / "x"))
    assert aside._idle == [process]


def test_one_that_somebody_ended_is_replaced(aside: Aside, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.close(copied(aside, tmp_path / "x"))
    first = aside._idle[0].process
    first.kill()
    os.close(copied(aside, tmp_path / "x"))
    assert aside._idle[0].process.pid != first.pid


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
        [process] = aside._idle
        with pytest.raises(Hangs):
            copied(aside, hanging / "y")
        assert aside._idle == [process], "nobody was asked"
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


def _asking(aside: Aside, path: Path) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that asks for a file, and what is raised in it."""
    raised: list[BaseException] = []

    def ask() -> None:
        try:
            os.close(copied(aside, path))
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    return thread, raised


def _children() -> list[psutil.Process]:
    return psutil.Process().children()


def test_nobody_waits_for_what_another_user_asked(
    aside: Aside, hanging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside_, "PATIENCE_S", 600.0)
    (tmp_path / "x").write_bytes(b"x")
    before = {one.pid for one in _children()}
    thread, raised = _asking(aside, hanging / "x")
    until(lambda: aside._busy, "the first question")
    for _ in range(2):
        os.close(copied(aside, tmp_path / "x"))
    assert thread.is_alive()
    monkeypatch.setattr(aside_, "PATIENCE_S", 0.1)
    with pytest.raises(Hangs):  # the same user's: after that, or not at all
        copied(aside, hanging / "y")
    assert aside._busy == {hanging.name: True}

    def ended() -> bool:
        for one in _children():  # the one that hangs, and the one that is asked in its place
            if one.pid not in before:
                one.kill()
        return not thread.is_alive()

    until(ended, "the end of the question")
    assert [isinstance(one, OSError) for one in raised] == [True]
    assert aside._busy == {}
    monkeypatch.setattr(aside_, "PATIENCE_S", 600.0)
    os.close(copied(aside, tmp_path / "x"))
    assert len(aside._idle) == 1


def test_nobody_waits_long_for_a_process_that_does_not_begin(
    aside: Aside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    monkeypatch.setattr(aside_, "BEGIN_S", 0.2)
    with monkeypatch.context() as slow:
        slow.setattr(aside_, "MAIN", "import time; time.sleep(600)")
        for _ in range(2):
            with pytest.raises(OSError, match="no process begins") as error:
                copied(aside, tmp_path / "x")
            assert error.value.errno == errno.EAGAIN
            [process] = aside._idle
            assert process.process.poll() is None, "it may begin yet"
        assert aside._hung == {}, "which is not the place's fault"
        process.born -= aside_.LATE_S
        with pytest.raises(OSError, match="no process begins"):
            copied(aside, tmp_path / "x")
        assert (aside._idle, process.process.poll()) == ([], -signal.SIGKILL)
    monkeypatch.setattr(aside_, "BEGIN_S", 60.0)
    os.close(copied(aside, tmp_path / "x"))


def test_a_place_is_not_said_to_hang_while_only_a_process_begins(
    aside: Aside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    before = {one.pid for one in _children()}
    monkeypatch.setattr(aside_, "MAIN", "import time; time.sleep(600)")
    monkeypatch.setattr(aside_, "BEGIN_S", 600.0)
    monkeypatch.setattr(aside_, "PATIENCE_S", 0.1)
    thread, raised = _asking(aside, tmp_path / "x")
    until(lambda: {one.pid for one in _children()} - before, "a process that does not begin")
    with pytest.raises(OSError, match="no process begins") as error:
        copied(aside, tmp_path / "x")
    assert (error.value.errno, aside._hung) == (errno.EAGAIN, {})
    assert aside._busy == {tmp_path.name: False}

    def ended() -> bool:
        for one in _children():
            if one.pid not in before:
                one.kill()
        return not thread.is_alive()

    until(ended, "the end of the question")
    assert [str(one) for one in raised] == [str(error.value)]
    assert aside._busy == {}


@pytest.mark.parametrize("begun_first", [False, True])
def test_of_two_processes_the_one_that_has_begun_is_kept(
    aside: Aside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun_first: bool
) -> None:
    (tmp_path / "x").write_bytes(b"x")
    os.close(copied(aside, tmp_path / "x"))
    begun = aside._taken()
    monkeypatch.setattr(aside_, "MAIN", "import time; time.sleep(600)")
    late = aside_._Process([])
    for one in (begun, late) if begun_first else (late, begun):
        aside._give_back(one)
    assert aside._idle == [begun]
    assert (begun.process.poll(), late.process.poll()) == (None, -signal.SIGKILL)
    os.close(copied(aside, tmp_path / "x"))


def test_one_that_ends_as_it_begins_is_not_kept(
    aside: Aside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside_, "MAIN", "1 / 0")
    with pytest.raises(OSError, match="no process begins"):
        copied(aside, tmp_path / "x")
    until(lambda: not aside._idle or aside._idle[0].process.poll() is not None, "its end")
    with suppress(OSError):
        copied(aside, tmp_path / "x")
    assert aside._idle == []


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
