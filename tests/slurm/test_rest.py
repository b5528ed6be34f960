"""Place mode whose writes go by a real slurmrestd with a token, as far as it can say them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.slurm import SlurmCluster
from features.schema import State
from scheduler.backends.local.host import own_user
from scheduler.backends.slurm.backend import SlurmBackend
from scheduler.backends.slurm.client import SlurmDown, SlurmError
from scheduler.backends.slurm.rest import RestSlurm
from scheduler.testing.backend import Does, a_launch, await_start, hear, last
from tests.slurm.site import QUICK, SlurmSite, client, shape_of

OURS = "abcdefghjkmn"


def test_jobs_are_submitted_released_and_cancelled_by_slurmrestd(
    accounted: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SlurmSite(accounted, tmp_path)
    token = accounted.token(own_user())
    slurm = RestSlurm(accounted.rest_url, own_user(), lambda: token, accounted.environment)
    backend = SlurmBackend(tmp_path / "slurm", shape_of(accounted), slurm, pace=QUICK)
    asked: list[str] = []

    def no_commands(command: tuple[str, ...], *rest: object) -> str:
        assert command[0] not in ("sbatch", "scancel")
        asked.append(command[0])
        return run(command, *rest)  # type: ignore[arg-type]

    run = slurm._run
    monkeypatch.setattr(slurm, "_run", no_commands)
    try:
        backend.launch(a_launch(site.command(Does.STAYS), OURS, gpu=3))
        backend.acknowledge([await_start(backend, site, OURS)])
        (job,) = [j for j in client(accounted).jobs() if j.name == f"{OURS}.1"]
        assert (job.state, job.nodes, job.held_gpus) == ("RUNNING", ("n1",), ((3,),))
        assert job.comment == f"pellucid:{backend.journal.site}:{OURS}/1"
        backend.stop(OURS, 1)
        assert last(hear(backend, site)).state is State.CANCELLED
        assert "squeue" in asked
    finally:
        backend.close()


def test_a_token_that_is_none_submits_nothing_and_ends_no_job(
    accounted: SlurmCluster, tmp_path: Path
) -> None:
    site = SlurmSite(accounted, tmp_path)
    words = ["x.y.z"]
    slurm = RestSlurm(accounted.rest_url, own_user(), lambda: words[0], accounted.environment)
    with pytest.raises(SlurmDown):
        slurm.cancel("999999")
    backend = SlurmBackend(tmp_path / "slurm", shape_of(accounted), slurm, pace=QUICK)
    try:
        backend.launch(a_launch(site.command(Does.ENDS), OURS))
        assert backend.reports(1.0) == []
        words[0] = accounted.token(own_user())
        time.sleep(0.5)
        assert last(hear(backend, site)).state is State.COMPLETED
        with pytest.raises(SlurmError, match="Invalid job id"):
            slurm.cancel("999999")
    finally:
        backend.close()
