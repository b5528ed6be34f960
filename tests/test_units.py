"""Units for systemd: it reads them, and they drop what rights they can."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

UNITS = sorted((Path(__file__).parents[1] / "deploy").rglob("*.service"))


def test_there_are_units() -> None:
    assert [unit.parent.name for unit in UNITS] == ["slurm", "systemd"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.parent.name)
def test_it_says_that_it_lives_and_gives_up_rights(unit: Path) -> None:
    said = dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))
    assert said["Type"] == "notify"
    assert int(said["WatchdogSec"]) >= 30
    assert int(said["LimitNOFILE"]) >= 65_536
    assert said["StateDirectoryMode"] == "0700"
    assert "--keep-log" in said["ExecStart"]
    for kept in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_MODULE", "CAP_NET_RAW", "~"):
        assert kept not in said["CapabilityBoundingSet"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.parent.name)
def test_systemd_reads_it(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "pellucid"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = unit.read_text().replace("/opt/pellucid/bin/pellucid", str(program))
    copy = tmp_path / "pellucid-checked.service"
    copy.write_text(re.sub("slurmctld.service|User=slurm", "", text))
    asked = ["systemd-analyze", "verify", "--man=no", str(copy)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if "pellucid" in line] == []
