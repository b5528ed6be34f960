"""`pellucid serve` itself in its two modes, as a dry run: commands are shown, nothing changes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from benchmarks.slurm import SlurmCluster
from benchmarks.slurm.processes import free_ports
from pipeline.app import app
from tests.waiting import until

MAIN = [sys.executable, "-c", "from pipeline.cli import main; main()"]
USER = "backup"


@pytest.fixture(scope="module")
def site() -> Iterator[SlurmCluster]:
    """Two nodes: their 16 GPUs are taken, and five jobs wait."""
    with SlurmCluster(nodes=2) as slurm:
        for gpus in (8, 8):
            submit(slurm, f"--gpus={gpus}")
        submit(slurm, "--gpus=4", "--nice=100")  # whatever order is wanted, not
        for gpus in (2, 8, 1):  # Slurm's: in it the first of them all comes last
            submit(slurm, f"--gpus={gpus}")
        until(lambda: [j["job_state"] for j in slurm.jobs().values()].count("RUNNING") == 2, "two")
        submit(slurm, "--gpus=1", "--begin=now+1hour")
        yield slurm


def submit(slurm: SlurmCluster, *asked: str) -> str:
    script = ["--output=/dev/null", "--chdir=/tmp", "--time=60", "--wrap", "sleep 600"]
    return slurm.run("sbatch", "--parsable", *asked, *script, user=USER).stdout.strip()


class Serve:
    """One service; its commands are its standard output."""

    def __init__(self, slurm: SlurmCluster, folder: Path, mode: str, partition: str) -> None:
        folder.mkdir()
        self.shown, self.port = folder / "shown", free_ports(1)[0]
        self._environment = {**os.environ, **slurm.environment, "OMP_NUM_THREADS": "1"}
        asked = [
            "serve", "--backend", "slurm", "--slurm-mode", mode, "--slurm-partitions", partition,
            "--dry-run", "--database", f"sqlite:///{folder}/p.db", "--state-dir", folder / "state",
            "--port", str(self.port),
        ]  # fmt: skip
        with self.shown.open("wb") as shown, (folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [*MAIN, *map(str, asked)], env=self._environment, stdout=shown, stderr=log
            )

    def commands(self) -> list[str]:
        lines = self.shown.read_text().splitlines()
        return [line for line in lines if line.startswith(("scontrol ", "sbatch ", "scancel "))]

    def pellucid(self, *words: str) -> Result:
        server = {"PELLUCID_SERVER": f"http://127.0.0.1:{self.port}"}
        return CliRunner().invoke(app, words, env=server)

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(60)


def standing(slurm: SlurmCluster) -> dict[int, tuple[Any, ...]]:
    names = "job_state", "priority", "admin_comment", "comment", "tres_per_node", "required_nodes"
    return {job_id: tuple(job[name] for name in names) for job_id, job in slurm.jobs().items()}


def test_a_dry_run_of_each_mode_shows_its_commands_and_changes_nothing(
    site: SlurmCluster, tmp_path: Path
) -> None:
    was = standing(site)
    serving = {mode: Serve(site, tmp_path / mode, mode, "main") for mode in ("advise", "order")}
    try:
        until(lambda: len(serving["order"].commands()) >= 4, "order's commands")
        waiting = "3"
        until(lambda: serving["advise"].pellucid("why", waiting).exit_code == 0, "an answer")
        why = serving["advise"].pellucid("why", waiting).stdout
        later = serving["advise"].pellucid("why", "7").stdout
        asked = serving["advise"].pellucid("submit", "--gpus", "1", "--", "true")
        unknown = serving["advise"].pellucid("why", "999")
        in_order = serving["order"].pellucid("why", waiting).stdout
    finally:
        codes = [one.end() for one in serving.values()]
    assert codes == [0, 0]
    shown = {mode: one.commands() for mode, one in serving.items()}
    assert shown["advise"] == []
    assert any(" priority=" in line for line in shown["order"])
    assert any(" AdminComment=" in line for line in shown["order"])
    every = " ".join(line for lines in shown.values() for line in lines)
    assert "scancel" not in every
    assert " requeue" not in every
    assert standing(site) == was
    assert "submitted " in why
    assert " was allowed to start " in why
    for told in (why, in_order):
        assert f"{waiting} is queued: Slurm says " in told
    assert "7 is queued: Slurm says BeginTime: it may not begin before " in later
    assert "use sbatch" in str(asked.exception)
    assert "no such job" in str(unknown.exception)
