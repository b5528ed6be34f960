"""What jobs print is read by a process that can do nothing else, and is believed nothing else."""

from __future__ import annotations

import ctypes
import errno
import json
import math
import os
import random
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import pytest

from features.aside import Aside
from features.progress import Progress
from profiler.progress import apart, names, process
from profiler.progress.apart import Asked, Followed, Reading
from profiler.progress.formats import FORMATS
from profiler.progress.names import COMPLAINTS, SOURCES, TABLE, Terms
from profiler.progress.news import Follower
from profiler.progress.reader import OWN
from profiler.progress.tail import Tail
from profiler.progress.wire import Answer, NoAnswer, packed, unpacked
from tests.waiting import until

SAID = Progress(900.0, 800.0, 1200.0, 3.0, 9.0, "epoch", 100.0, 300.0, "tqdm", "early repeats")


@pytest.fixture
def reading() -> Iterator[Reading]:
    reading = Reading()
    yield reading
    reading.close()


def looked(found: Followed, reading: Reading, at: float) -> Progress | None:
    """A look, and what it showed."""
    found.look(at)
    assert reading.settle(60.0)
    return found._news.pop() if found._news else None


# --- what comes back ------------------------------------------------------------------------------


def test_what_is_read_apart_is_what_is_read_here(reading: Reading, tmp_path: Path) -> None:
    output = tmp_path / "output"
    found, here = reading.follow(Asked(output=output)), Follower(Tail(output))
    heard = 0
    for at in range(0, 1200, 40):  # what is read apart is dated a moment later: no look at a limit
        with output.open("a") as file:
            file.write(f"Epoch {at // 40}/40 - loss: 0.1\n")
        told, same = looked(found, reading, float(at)), here.look(float(at))
        assert (told is None) == (same is None)
        if told is not None and same is not None:
            assert astuple(told)[:5] == pytest.approx(astuple(same)[:5], rel=0.02)
            assert (told.source, told.doubts) == (same.source, same.doubts)
            heard += 1
    assert heard > 1
    assert found.unread == ""


def test_what_was_asked_for_is_read_in_command_and_script(reading: Reading, tmp_path: Path) -> None:
    output = tmp_path / "output"
    for asked in (
        Asked(output=output, command=["python", "t.py", "--max_steps", "500"]),
        Asked(output=output, script="#!/bin/sh\nsrun python t.py --max_steps 500\n"),
        Asked(output=output, command=["python", "t.py"], amount={"steps": 500.0}),
    ):
        output.unlink(missing_ok=True)
        found, told = reading.follow(asked), None
        for at in range(0, 301, 30):
            with output.open("a") as file:
                file.write(f"step: {at} loss: 2.1\n")
            told = looked(found, reading, float(at)) or told
        assert told is not None
        assert told.total_s == pytest.approx(500.0, rel=0.1)


@pytest.mark.parametrize(
    ("text", "complaint", "line"),
    [
        (
            "a\nRuntimeError: CUDA out of memory.\n",
            COMPLAINTS[1],
            "RuntimeError: CUDA out of memory.",
        ),
        ("MemoryError\n", COMPLAINTS[2], "MemoryError"),
        ("no such \x1b]0;x\x07thing\n\n", "", "no such \\x1b]0;x\\x07thing"),
        ("", "", ""),
        ("é" * 1000, "", "é" * 300),
    ],
)
def test_the_last_words_of_a_job(
    reading: Reading, tmp_path: Path, text: str, complaint: str, line: str
) -> None:
    (tmp_path / "output").write_text(text)
    found, told = reading.follow(Asked(output=tmp_path / "output")), list[bool]()
    found.end(10.0, lambda: told.append(True))
    assert reading.settle(60.0)
    assert told == [True]
    assert found.ended is not None
    assert (found.ended.complaint, found.ended.line) == (complaint, line)


def test_a_file_of_somebody_else_is_not_read(reading: Reading, tmp_path: Path) -> None:
    (tmp_path / "output").write_text("Epoch 1/3\n" * 3)
    (tmp_path / "own").write_text("5/10")
    asked, aside = (
        Asked(output=tmp_path / "output", own=tmp_path / "own", uid=os.geteuid() + 1),
        Aside(),
    )
    assert apart._copied(aside, replace(asked, whose=True)) == ({}, False)
    found, hangs = apart._copied(aside, asked)
    assert ([*found], hangs) == (["output"], False)
    os.close(found["output"])
    aside.close()


def test_every_name_that_a_reading_may_have_is_known() -> None:
    assert {row.name for row in FORMATS} | {OWN, TABLE, "eta"} <= set(SOURCES)
    assert len(SOURCES) < 256


# --- what is believed -----------------------------------------------------------------------------


def test_an_answer_comes_as_it_was_sent() -> None:
    for answer in (
        Answer(7),
        Answer(7, progress=SAID, cpu_s=0.5),
        Answer(7, progress=replace(SAID, source=TABLE)),
        Answer(2**32 - 1, failed=True),
        Answer(1, beside=True, speed=0.25),
        Answer(1, complaint=COMPLAINTS[1], line="it failed"),
    ):
        assert unpacked(packed(answer)) == answer


def test_what_no_sound_reader_says_is_refused() -> None:
    draw, refused = random.Random(3), 0
    sound = packed(Answer(7, progress=SAID, speed=0.5, line="x" * 100))
    for _ in range(20_000):
        data = bytearray(sound)
        for _ in range(draw.randint(1, 6)):
            data[draw.randrange(min(len(data), 82))] = draw.randrange(256)
        data = data[: draw.choice([len(data)] * 9 + [draw.randrange(len(data))])]
        try:
            found = unpacked(bytes(data))
        except NoAnswer:
            refused += 1
            continue
        assert found.cpu_s >= 0
        assert len(found.line) <= 300
        assert found.speed is None or 0 <= found.speed <= 1
        if found.progress is not None:
            one = found.progress
            assert one.source in SOURCES
            assert 0 <= one.low_s <= one.total_s <= one.high_s < math.inf
            assert math.isfinite(one.done + one.of)
    assert refused > 5000
    for length in (0, 1, 10_000):
        with pytest.raises(NoAnswer):
            unpacked(b"\0" * length)


def _reader(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Put another program in the place of the reader: one that was taken over."""
    monkeypatch.setattr(apart, "MAIN", f"exec({code!r})")


LIES = """
import socket, sys, json, os
from profiler.progress.wire import greeting
line = socket.socket(fileno=int(sys.argv[1]))
line.send(greeting())
while True:
    data, files, _, _ = socket.recv_fds(line, 65536, 4)
    if not data: break
    for file in files: os.close(file)
    line.send(%s)
"""


@pytest.mark.parametrize("said", ["b'x' * 100", "b''", "b'\\xff' * 82", "b'A' * 60000", "data"])
def test_a_reader_that_was_taken_over_is_ended(
    monkeypatch: pytest.MonkeyPatch, reading: Reading, tmp_path: Path, said: str
) -> None:
    _reader(monkeypatch, LIES % said)
    found = reading.follow(Asked(output=tmp_path / "output"))
    assert looked(found, reading, 20.0) is None
    assert found.unread == apart.ENDED_READER
    assert reading.pid is None


STATUS = Path("/proc/self/status")
RIGHTS = """
import sys, os, socket, json
from profiler.progress import process
from profiler.progress.wire import Answer, greeting, packed
line, ready = socket.socket(fileno=int(sys.argv[1])), greeting()
process.shut_in(int(sys.argv[2]))
def tried(what):
    try:
        what()
        return "done"
    except BaseException as error:
        return type(error).__name__
line.send(ready)
said = ""
while True:
    data, files, _, _ = socket.recv_fds(line, 65536, 4)
    if not data: break
    asked = json.loads(data)
    may = {
        "open": tried(lambda: open("/etc/hostname")),
        "make": tried(lambda: open("/tmp/made-by-a-reader", "w")),
        "fork": tried(os.fork),
        "run": tried(lambda: os.execv("/bin/true", ["true"])),
        "connect": tried(lambda: socket.socket().connect(("127.0.0.1", PORT))),
        "tell": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
        "kill": tried(lambda: os.kill(int(sys.argv[2]), 0)),
        "grow": tried(lambda: bytearray(2 << 30)),
    }
    line.send(packed(Answer(asked["number"], line=json.dumps(may))))
"""


@pytest.mark.skipif(
    os.geteuid() != 0, reason="what an account may, its reader may without Landlock"
)
def test_it_may_do_nothing_but_read_what_it_is_given(
    monkeypatch: pytest.MonkeyPatch, reading: Reading, tmp_path: Path
) -> None:
    import json
    import socket

    Path("/tmp/made-by-a-reader").unlink(missing_ok=True)  # by one that was let
    with socket.create_server(("127.0.0.1", 0)) as server:
        _reader(monkeypatch, RIGHTS.replace("PORT", str(server.getsockname()[1])))
        found = reading.follow(Asked(output=tmp_path / "output"))
        found.end(1.0, lambda: None)
        assert reading.settle(60.0)
    assert found.ended is not None
    may = json.loads(found.ended.line)
    assert may["make"] in ("PermissionError", "OSError")
    assert may["fork"] == "BlockingIOError"
    assert may["connect"] in ("OSError", "PermissionError", "ConnectionRefusedError")
    if os.uname().machine in process._ARCHITECTURES and "Seccomp" in STATUS.read_text():
        assert may["tell"] == may["connect"] == "PermissionError"
    assert may["kill"] == "PermissionError"
    assert may["grow"] == "MemoryError"
    assert not Path("/tmp/made-by-a-reader").exists()


@pytest.mark.parametrize(
    ("machine", "largest", "asks"),
    [
        ("x86_64", 2**63 - 1, True),
        ("aarch64", 2**63 - 1, True),
        ("x86_64", 2**31 - 1, False),  # its calls have other numbers in 32 bits
        ("riscv64", 2**63 - 1, False),
    ],
)
def test_the_kernel_is_asked_to_refuse_sockets_where_their_number_is_known(
    monkeypatch: pytest.MonkeyPatch, machine: str, largest: int, asks: bool
) -> None:
    monkeypatch.setattr(process.os, "uname", lambda: SimpleNamespace(machine=machine))
    monkeypatch.setattr(process.sys, "maxsize", largest)
    kernel = mock.Mock()
    process._talks_to_nobody(kernel)
    asked = [one.args[:2] for one in kernel.prctl.call_args_list]
    assert asked == ([(22, 2)] if asks else []), "PR_SET_SECCOMP, SECCOMP_MODE_FILTER"


def _answer(rules: bytes, architecture: int, call: int) -> int:
    """Run a filter as the kernel does (linux/filter.h), and return what it answers to a call."""
    program, at, value = list(struct.iter_unpack("HBBI", rules)), 0, 0
    while True:
        code, if_so, if_not, of = program[at]
        if code == 0x06:
            return int(of)
        if code == 0x20:
            value = {0: call, 4: architecture}[of]
        else:
            at += if_so if {0x15: value == of, 0x35: value >= of}[code] else if_not
        at += 1


@pytest.mark.parametrize("machine", process._ARCHITECTURES)
def test_the_kernel_refuses_sockets_and_what_makes_them_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, machine: str
) -> None:
    monkeypatch.setattr(process.os, "uname", lambda: SimpleNamespace(machine=machine))
    found = list[bytes]()

    def prctl(_: int, __: int, asked: Any, *___: int) -> None:
        count, at = struct.unpack("HP", asked)
        found.append(ctypes.string_at(at, 8 * count))

    process._talks_to_nobody(SimpleNamespace(prctl=prctl))  # type: ignore[arg-type]
    [rules] = found
    own, makes_socket = process._ARCHITECTURES[machine]
    refused = {makes_socket, 425, 2**30, 2**30 + 41}  # io_uring_setup, calls of x32
    allowed = {0, 1, 3, 24, 60, 222, 424, 426, 460, makes_socket - 1, makes_socket + 1}
    assert {_answer(rules, own, call) for call in refused} == {0x50000 | errno.EPERM}
    assert {_answer(rules, own, call) for call in allowed} == {0x7FFF0000}
    assert {_answer(rules, 3, call) for call in allowed | refused} == {0x50000 | errno.EPERM}


def test_it_holds_nothing_but_its_line(reading: Reading, tmp_path: Path) -> None:
    found = reading.follow(Asked(output=tmp_path / "output"))
    looked(found, reading, 20.0)
    assert reading.pid is not None
    it = psutil.Process(reading.pid)
    assert it.num_fds() <= 5
    if os.geteuid() == 0:
        assert it.uids().real == it.gids().real == process.READER


@pytest.mark.skipif(os.geteuid() != 0, reason="another account's reader is made by root")
def test_who_runs_as_nobody_can_neither_end_it_nor_slow_it(
    reading: Reading, tmp_path: Path
) -> None:
    found = reading.follow(Asked(output=tmp_path / "output"))
    looked(found, reading, 20.0)
    it, child = reading.pid, os.fork()
    assert it is not None
    if not child:
        status = 1
        with suppress(BaseException):
            os.setgroups([])
            os.setresgid(65_534, 65_534, 65_534)
            os.setresuid(65_534, 65_534, 65_534)
            for attempt in (
                lambda: os.kill(it, signal.SIGKILL),
                lambda: os.setpriority(os.PRIO_PROCESS, it, 19),
                lambda: os.listdir(f"/proc/{it}/fd"),
            ):
                with pytest.raises(PermissionError):
                    attempt()
            status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    looked(found, reading, 40.0)
    assert found.unread == ""


# --- when it dies ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (signal.SIGKILL, apart.ENDED_READER),
        (signal.SIGSEGV, apart.ENDED_READER),
        (signal.SIGPROF, apart.OVERSPENT),
    ],
)
def test_who_ends_the_reader_is_read_no_more_and_the_others_are(
    reading: Reading, tmp_path: Path, number: int, why: str
) -> None:
    for name in "ab":
        (tmp_path / name).write_text("")
    bad, good = (reading.follow(Asked(output=tmp_path / name)) for name in "ab")
    looked(good, reading, 1.0)
    pid = reading.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    bad.look(20.0)
    assert not reading.settle(0.2)
    os.kill(pid, number)
    os.kill(pid, signal.SIGCONT)
    assert reading.settle(60.0)
    assert bad.unread == bad.refused == why
    assert bad.look(40.0) is None
    assert reading.settle(0.0), "it is not asked again"
    told: Progress | None = None
    at = 20.0
    while told is None:
        with (tmp_path / "b").open("a") as file:
            file.write(f"step {at:.0f}/1000\n")
        told = looked(good, reading, at)
        at += 20.0
        time.sleep(0.05)  # another reader is not called at once
    assert good.unread == ""
    assert reading.pid not in (None, pid)
    ends = list[bool]()
    bad.end(1.0, lambda: ends.append(True))
    assert ends == [True]


def test_the_kernel_ends_a_request_that_takes_too_long(tmp_path: Path) -> None:
    """A pattern holds Python up, and no signal handler of its own would run."""
    code = (
        "import re, signal; from profiler.progress import process as p;"
        "signal.setitimer(signal.ITIMER_PROF, 0.3); re.fullmatch('(a+)+b', 'a' * 60)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, check=False)
    assert done.returncode == -signal.SIGPROF


SPINS = """
from profiler.progress import process
right = process.Desk.answer
def answer(self, asked, files):
    while asked["do"] == "look": pass
    return right(self, asked, files)
process.Desk.answer, process.ONCE_S = answer, 0.2
process.main()
"""


def test_a_request_that_takes_too_long_is_ended_and_its_job_read_no_more(
    monkeypatch: pytest.MonkeyPatch, reading: Reading, tmp_path: Path
) -> None:
    _reader(monkeypatch, SPINS)
    found = reading.follow(Asked(output=tmp_path / "output"))
    assert looked(found, reading, 20.0) is None
    assert found.unread == found.refused == apart.OVERSPENT


def test_who_takes_more_than_its_share_waits_until_it_has_not(
    reading: Reading, tmp_path: Path
) -> None:
    found = reading.follow(Asked(output=tmp_path / "output"))
    found.spent_s = apart.BURST_S + 1.0
    assert found.look(10.0) is None
    assert found.unread == apart.OVERSPENT
    assert not found.refused
    looked(found, reading, 1.0 / apart.SHARE + 1.0)
    assert found.unread == ""


def test_a_defect_of_ours_is_said_of_its_job_and_whoever_asks_next_is_answered(
    reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "output"
    output.write_text("Epoch 1/40 - loss: 0.1\n")
    found = reading.follow(Asked(output=output))

    def broken(*_: object) -> None:
        raise KeyError("a defect")

    with monkeypatch.context() as patched:
        patched.setattr(Reading, "_do", broken)
        assert looked(found, reading, 40.0) is None
    assert found.unread == apart.NOT_READ
    looked(found, reading, 80.0)
    assert found.unread == ""


def test_a_job_that_was_forgotten_is_read_no_more(tmp_path: Path) -> None:
    desk, told = process.Desk(), tmp_path / "asked"
    asked = {"command": [], "script": "", "arguments": [], "amount": {}, "own": False}
    told.write_text(json.dumps({**asked, "terms": list(names.TERMS)}))
    request = {"job": 1, "at": 9.0, "for": 0.0, "then": time.monotonic()}
    with told.open("rb") as file:
        desk.answer({**request, "do": "follow"}, {"asked": file.fileno()})
    look = {**request, "do": "look"}
    assert desk.answer(look, {}) == Answer(0)
    desk.forget(1)
    with pytest.raises(AssertionError, match="it is followed first"):
        desk.answer(look, {})


def test_no_process_is_left_behind(tmp_path: Path) -> None:
    reading = Reading()
    looked(reading.follow(Asked(output=tmp_path / "output")), reading, 20.0)
    pid = reading.pid
    assert pid is not None
    reading.close()
    assert not psutil.pid_exists(pid)
    code = (
        "import sys, os; from pathlib import Path; from profiler.progress.apart import *\n"
        "r = Reading(); r.follow(Asked(output=Path('/dev/null'))).look(1.0); r.settle(60)\n"
        "print(r.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=False)
    until(lambda: not psutil.pid_exists(int(done.stdout)), "the reader to go")


# --- what it costs --------------------------------------------------------------------------------


def test_reading_a_typical_job_takes_a_hundredth_of_a_core_at_most(
    reading: Reading, tmp_path: Path
) -> None:
    """A bar that is drawn ten times a second, looked at as often as it would be in an hour."""
    output = tmp_path / "output"
    found, at, written = reading.follow(Asked(output=output)), 2.0, 0
    while at < 3600.0:
        with output.open("a") as file:
            for step in range(written, int(10 * at)):
                file.write(f"\rEpoch 3:  45%|####5     | {step}/36000 [00:12<00:15, 10.0it/s]")
        written = int(10 * at)
        looked(found, reading, at)
        at += max(2.0, min(names.MOST_S, names.EVERY * at))
    assert found.spent_s < 0.01 * 3600.0
    assert Terms() == names.TERMS
