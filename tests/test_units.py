"""Units for systemd and the container: they are read, and drop what rights they can."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from benchmarks.pages import mistake
from scheduler.service.settings import ORDER_LEASE_S, Settings
from tests.docs.walk import walked
from tests.waiting import until

DEPLOY = Path(__file__).parents[1] / "deploy"
UNITS = sorted(DEPLOY.rglob("*.service"))
NAMES = [str(unit.relative_to(DEPLOY)) for unit in UNITS]
ONCE = "systemd/pellucid-tune.service"
IMAGE = DEPLOY / "container"
ROOT = DEPLOY.parent


def said_by(unit: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE))


def test_there_are_units() -> None:
    assert NAMES == [
        "slurm/pellucid-advise.service",
        "slurm/pellucid-order.service",
        ONCE,
        "systemd/pellucid.service",
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if name != ONCE])
def test_it_says_that_it_lives_and_gives_up_rights(name: str) -> None:
    said = said_by(DEPLOY / name)
    assert said["Type"] == "notify"
    assert int(said["WatchdogSec"]) >= 30
    assert int(said["LimitNOFILE"]) >= 65_536
    assert said["StateDirectoryMode"] == "0700"
    assert "--keep-log" in said["ExecStart"]
    for kept in ("CAP_SYS_ADMIN", "CAP_NET_ADMIN", "CAP_SYS_MODULE", "CAP_NET_RAW", "~"):
        assert kept not in said["CapabilityBoundingSet"]
    assert mistake(["pellucid", *said["ExecStart"].split()[1:]]) is None


def test_what_tunes_at_night_can_read_the_log_and_nothing_else() -> None:
    said, service = said_by(DEPLOY / ONCE), said_by(DEPLOY / "systemd" / "pellucid.service")
    assert mistake(["pellucid", *said["ExecStart"].split()[1:]]) is None
    assert f"sqlite:///{service['WorkingDirectory']}/" in said["ExecStart"]
    assert said["ReadWritePaths"] == service["WorkingDirectory"]
    assert said["CapabilityBoundingSet"] == ""
    assert (DEPLOY / ONCE).with_suffix(".timer").is_file()


def test_order_is_taken_back_by_the_configuration_of_the_service() -> None:
    said = said_by(DEPLOY / "slurm" / "pellucid-order.service")
    config = "--config /etc/pellucid/order.yaml"
    assert config in said["ExecStart"]
    assert said["ExecStopPost"].endswith(config)
    assert float(said["TimeoutStopSec"]) >= ORDER_LEASE_S + 10, "it waits for a lease first"
    assert mistake(["pellucid", *said["ExecStopPost"].split()[1:]]) is None


def test_who_has_a_right_in_slurm_answers_nobody_and_shares_nothing_with_who_does() -> None:
    units = DEPLOY / "slurm"
    order, advise = (said_by(units / f"pellucid-{m}.service") for m in ("order", "advise"))
    assert "--slurm-mode order --api-workers 0" in order["ExecStart"]
    assert "--slurm-mode advise" in advise["ExecStart"]
    assert "--api-workers" not in advise["ExecStart"]
    for shared in ("User", "StateDirectory", "WorkingDirectory"):
        assert order[shared] != advise[shared]
    readme = (DEPLOY / "slurm" / "README.md").read_text()
    asked, orders = (yaml.safe_load(t) for t in re.findall(r"```yaml\n(.*?)```", readme, re.DOTALL))
    for mode, written, said in (("advise", asked, advise), ("order", orders, order)):
        assert Settings(**written).slurm_mode == mode
        assert written["state_dir"] == said["WorkingDirectory"]
        assert written["database"].startswith(f"sqlite:///{written['state_dir']}/")


def test_what_only_looks_has_no_right_at_all() -> None:
    said = said_by(DEPLOY / "slurm" / "pellucid-advise.service")
    assert said["User"] == "pellucid"
    assert said["CapabilityBoundingSet"] == said["AmbientCapabilities"] == ""
    assert said["ProtectSystem"] == "strict"
    assert said["NoNewPrivileges"] == said["ProtectHome"] == said["PrivateDevices"] == "yes"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_systemd_reads_it(unit: Path, tmp_path: Path) -> None:
    program = tmp_path / "pellucid"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    text = unit.read_text().replace("/opt/pellucid/bin/pellucid", str(program))
    copy = tmp_path / "pellucid-checked.service"
    copy.write_text(re.sub("(munge|slurmctld).service|^User=.*", "", text, flags=re.M))
    asked = ["systemd-analyze", "verify", "--man=no", str(copy)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if "pellucid" in line]
    newer = "'DelegateSubgroup' in section"  # systemd 254; an older one leaves it out
    assert [line for line in said if newer not in line] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
@pytest.mark.parametrize("unit", UNITS, ids=NAMES)
def test_its_exposure_is_3_at_most_or_what_jobs_need(unit: Path) -> None:
    """Jobs run with what their unit allows: its rest of 5.2 is theirs."""
    most = 52 if unit.name == "pellucid.service" else 30  # tenths
    asked = ["systemd-analyze", "security", "--offline=yes", f"--threshold={most}", str(unit)]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_says_of_all_that_it_leaves_open_why() -> None:
    unit = DEPLOY / "systemd" / "pellucid.service"
    asked = ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(unit)]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    left = re.findall(r"^✗ (\w+)=~?(\S*)", told, re.MULTILINE)
    assert ("User", "/DynamicUser=") in left
    said = " ".join(re.findall(r"^#.*", unit.read_text(), re.MULTILINE))
    rights = said_by(unit)["CapabilityBoundingSet"].split()
    for right in rights:
        assert right.removeprefix("CAP_") in said
    named = {what if what.startswith("@") else name for name, what in left}
    assert [one for one in sorted(named - {"CapabilityBoundingSet"}) if one not in said] == []


def test_the_image_runs_a_command_that_is_there_without_rights() -> None:
    text = (IMAGE / "Containerfile").read_text()
    for said in re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE):
        assert mistake(["pellucid", *yaml.safe_load(said)]) is None
    named = re.findall(r"PELLUCID_(\w+)=", text)
    assert named
    assert {name.lower() for name in named} <= Settings.model_fields.keys()
    for stage in re.split(r"^FROM ", text, flags=re.MULTILINE)[2:]:
        assert re.findall(r"^USER (.*)$", stage, re.MULTILINE)[-1] == "65010:65010"


def test_all_stages_stand_on_one_base_which_has_a_digest_if_one_is_given() -> None:
    text = (IMAGE / "Containerfile").read_text()
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE}", "${BASE}", "service"]
    [base] = re.findall(r"^ARG BASE=(\S+)$", text, re.MULTILINE)
    digest = f"sha256:{'0123456789abcdef' * 4}"
    for given, right in (
        ("", True), (f"{base}@{digest}", True), (f"ghcr.io/a/b@{digest}", True),
        (base, False), (f"{base}@{digest[:-1]}", False), (f"{base}@{digest}0", False),
        ("python@sha256:latest", False),
    ):  # fmt: skip
        asked = ["make", "-s", "-C", str(ROOT), "image-base", f"IMAGE_BASE={given}"]
        done = subprocess.run(asked, cwd=IMAGE, capture_output=True, text=True, check=False)
        assert (done.returncode == 0) is right, (given, done.stderr)
        assert ("names no digest" in done.stdout) is not right


def test_every_container_gives_up_what_it_can() -> None:
    services = yaml.safe_load((IMAGE / "compose.yaml").read_text())["services"]
    stages = set(re.findall(r"^FROM \S+ AS (\w+)$", (IMAGE / "Containerfile").read_text(), re.M))
    assert len(services) == 2
    for service in services.values():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        build = service["build"]
        assert build["target"] in stages
        assert (IMAGE / build["context"] / build["dockerfile"]).resolve().is_file()


@walked
def test_the_container_starts_with_the_commands_that_its_compose_file_gives(tmp_path: Path) -> None:
    """Without a container: its environment, its command, in the order that is documented."""
    service = (IMAGE / "Containerfile").read_text().split("\nFROM ")[2]
    environment = dict(re.findall(r"\b(PELLUCID_\w+)=(\S+)", service))
    environment = {k: v.replace("/var/lib/pellucid", str(tmp_path)) for k, v in environment.items()}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        environment["PELLUCID_PORT"] = str(free.getsockname()[1])
    command = json.loads(re.findall(r"^CMD (\[.*\])$", service, re.MULTILINE)[-1])
    documented = re.findall(
        r"compose\.yaml run --build --rm (\w+) (.*)$", (IMAGE / "compose.yaml").read_text(), re.M
    )
    assert [name for name, _ in documented] == ["pellucid", "advise"]

    environment = {**os.environ, **environment}
    pellucid = [sys.executable, "-m", "pipeline.cli"]
    refused = subprocess.run(
        [*pellucid, *command], env=environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 2, refused.stderr  # open to others, and nobody has a token
    subprocess.run(
        [*pellucid, *documented[0][1].split()], env=environment, cwd=tmp_path, check=True
    )
    with subprocess.Popen([*pellucid, *command], env=environment, cwd=tmp_path) as running:
        try:
            port = environment["PELLUCID_PORT"]
            until(lambda: running.poll() is None and ready(port), "the service to be ready")
        finally:
            running.terminate()


def ready(port: str) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/ready") as answer:
            return bool(answer.status == 200)
    except OSError:  # nobody listens yet, or it is not ready
        return False
