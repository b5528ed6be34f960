"""The spool on a disk that is full, and what it takes for a living process."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from scheduler.backends.local.spool import CLAIM, OVER, Spool, SpoolBusy, start_ticks


def test_a_claim_that_does_not_fit_on_the_disk_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel first writes what fits and says how much; only the next write fails."""
    spool, write, room = Spool(tmp_path / "spool"), os.write, [5]

    def full(file: int, text: bytes) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "no space left")
        fits, room[0] = text[: room[0]], 0
        return write(file, fits)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="no space"):
        spool.claim("job@1", {CLAIM: {"job_id": "job", "attempt": 1}})
    assert spool.names() == []


def test_who_stops_waiting_for_the_lock_leaves_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decider that ends while it waits for the spool of the last one."""

    def ends(_: float) -> None:
        raise KeyboardInterrupt

    spool = Spool(tmp_path / "spool")
    held = spool.lock(0.0)
    opened = os.listdir("/proc/self/fd")
    with pytest.raises(SpoolBusy):
        spool.lock(-1.0)
    monkeypatch.setattr(time, "sleep", ends)
    with pytest.raises(KeyboardInterrupt):
        spool.lock(1.0)
    assert os.listdir("/proc/self/fd") == opened
    os.close(held)


def test_a_claim_is_on_disk_before_anybody_acts_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First what it says, then its folder, then the name of the folder: a power cut at any moment
    leaves either nothing or a claim that can be read."""
    spool, done, rename = Spool(tmp_path / "spool"), [], os.rename

    def synced(file: int) -> None:
        done.append(Path(os.readlink(f"/proc/self/fd/{file}")).name)

    def renamed(source: Path, target: Path) -> None:
        done.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "rename", renamed)
    assert spool.claim("job@1", {CLAIM: {"job_id": "job", "attempt": 1}})
    content, folder, *after = done
    assert content.endswith(".partial")
    assert folder.startswith(".")
    assert after == ["rename", "attempts"]
    done.clear()
    spool.record("job@1", OVER, {"exit": 0}, durable=True)
    assert [name.endswith(".partial") or name for name in done] == [True, "job@1"]


def test_a_process_that_ended_is_none_though_nobody_has_asked_how() -> None:
    """Its parent died or hangs: it has a number still, and begins and holds nothing."""
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)  # it has ended, and is left unasked
    try:
        assert " Z " in Path(f"/proc/{process}/stat").read_text()
        assert start_ticks(process) is None
    finally:
        os.waitpid(process, 0)
    assert start_ticks(os.getpid()) is not None


def test_the_oldest_outputs_go_with_what_was_sampled(tmp_path: Path) -> None:
    spool, made = Spool(tmp_path / "spool"), 1000
    for name in ("kept@1", "old@1", "young@1"):
        for suffix, size in ((".log", 2**20), (".usage", 1000)):
            path = spool.output / f"{name}{suffix}"
            path.write_bytes(bytes(size))
            made += 1
            os.utime(path, (made, made))
    spool.prune_output(2.1, {"kept@1"})
    assert sorted(path.name for path in spool.output.iterdir()) == [
        "kept@1.log", "kept@1.usage", "young@1.log", "young@1.usage",
    ]  # fmt: skip
