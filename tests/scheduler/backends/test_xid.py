"""Xid errors in the kernel's log, and in the reason of a job that failed meanwhile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.host import Host
from scheduler.backends.local.xid import MOST, Xid, since, words_of

KERNEL = """\
6,100,9000000,-;usb 1-1: new device
4,101,50000000,-;NVRM: Xid (PCI:0000:18:00): 31, pid=99, name=python, Ch 00000008, MMU Fault
4,102,200000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
 SUBSYSTEM=pci
4,103,201000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
4,104,202000000,-;NVRM: Xid (PCI:0000:3b:00): 154
4,105,203000000,-;NVRM: Xid (PCI
"""  # noqa: E501
GONE = Xid("PCI:0000:3b:00", 79, "GPU has fallen off the bus.")


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "kmsg"
    path.write_text(KERNEL)
    return path


def test_errors_since_a_job_began(kernel: Path) -> None:
    assert since(150.0, kernel) == [GONE, Xid("PCI:0000:3b:00", 154, "")]
    assert since(0.0, kernel)[0] == Xid("PCI:0000:18:00", 31, "MMU Fault")
    assert since(300.0, kernel) == []


def test_a_log_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    assert since(0.0, tmp_path / "none") == []


def test_words() -> None:
    assert words_of([]) == ""
    one = "while it ran the driver reported Xid 79 on PCI:0000:3b:00 (GPU has fallen off the bus.)"
    assert words_of([GONE]) == one
    many = [Xid(f"PCI:{i}", 48, "") for i in range(MOST + 2)]
    assert words_of(many).endswith("Xid 48 on PCI:2 and 2 more")


@pytest.mark.parametrize(("code", "named"), [(3, True), (0, False)])
def test_a_job_that_failed_meanwhile_says_so(
    code: int, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.backends.local.xid.since", lambda at: [GONE] if at > 0 else [])
    backend = LocalBackend(tmp_path, replace(Host.with_fake([1]), fake=False))
    ended: list[Report] = []
    try:
        backend.launch(Launch("job", 1, Purpose.RUN, ("sh", "-c", f"exit {code}"), (0,), ((0,),)))
        while not ended:
            backend.heard(backend.news())  # that GPU does not answer, and is closed
            reports = backend.reports(0.2)
            backend.acknowledge(reports)
            ended += [one for one in reports if one.what is Happened.ENDED]
    finally:
        backend.close()
    assert (words_of([GONE]) in ended[0].detail) is named
    assert ("exit code 3" in ended[0].detail) is named
