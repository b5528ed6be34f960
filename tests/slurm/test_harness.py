"""The private cluster itself: it survives what tests do to it, and leaves nothing behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.slurm import SlurmCluster, SlurmError
from tests.waiting import until

OWN_S = 98_000_000 + os.getpid()  # what no other run on this host sleeps


@pytest.mark.parametrize("killed", [False, True])
def test_jobs_outlive_their_controller(cluster: SlurmCluster, killed: bool) -> None:
    job = int(cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap=sleep 900").stdout)
    until(lambda: cluster.jobs()[job]["job_state"] == "RUNNING", "it to run")
    if killed:
        state, runs = cluster.folder / "state" / "job_state", time.time()
        until(lambda: state.stat().st_mtime > runs, "slurmctld to save it", not_yet=(OSError,))
        cluster.kill_controller()
    else:
        cluster.stop_controller()
    assert not _up(cluster)
    cluster.start_controller()
    assert cluster.jobs()[job]["job_state"] == "RUNNING"
    assert cluster.jobs()[job]["restart_cnt"] == 0
    cluster.run("scancel", str(job))


def test_nodes_go_down_and_come_back(cluster: SlurmCluster) -> None:
    cluster.mark("n3", "drain")
    assert cluster.node_states()["n3"].startswith("drain")
    cluster.mark("n3", "resume")
    cluster.kill_node("n3")
    until(lambda: cluster.node_states()["n3"].startswith("down"), "n3 to be missed")
    cluster.start_node("n3")
    cluster.wait_idle()


def test_nothing_is_left_of_a_cluster_whose_jobs_run() -> None:
    with SlurmCluster(nodes=1, gpus=2) as slurm:
        hiding = f"env -i setsid sleep {OWN_S}.5 & sleep {OWN_S}"
        slurm.run("sbatch", "--output=/dev/null", f"--wrap={hiding}")
        until(lambda: len(_sleepers()) == 2, "the job to run")
        folder = slurm.folder
        assert _managers(folder)
    assert _sleepers() == []
    assert _managers(folder) == []
    assert not folder.exists()


def _up(cluster: SlurmCluster) -> bool:
    return "is UP" in cluster.run("scontrol", "ping", check=False).stdout


def _managers(folder: Path) -> list[int]:
    """Step managers (slurmstepd), which write their titles over their environments."""
    found = []
    for process in psutil.process_iter(["name", "cwd"]):
        if process.info["name"] == "slurmstepd" and str(folder) in (process.info["cwd"] or ""):
            found.append(process.pid)
    return found


def _sleepers() -> list[int]:
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if process.info["cmdline"] in (["sleep", f"{OWN_S}.5"], ["sleep", f"{OWN_S}"])
    ]


def test_a_daemon_that_does_not_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.slurm.config.SLURM_USER", "nobody-of-that-name")
    with pytest.raises(SlurmError, match="nobody-of-that-name"), SlurmCluster():
        raise AssertionError("it came up")
