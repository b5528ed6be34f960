"""Daemons that die: every answer says so within 15 seconds, and no longer once they are back."""

from __future__ import annotations

import json
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.slurm import SlurmCluster
from tests.slurm.test_serve import Serve, submit
from tests.waiting import PATIENCE_S, until


def ready(serve: Serve) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{serve.port}/ready", timeout=PATIENCE_S
        ) as answer:
            return dict(json.load(answer), since=answer.headers["Pellucid-Slurm-Unread-Since"])
    except OSError:  # it begins
        return {"status": ""}


def test_a_dead_controller_is_named_in_every_answer_and_forgotten_when_it_is_back(
    tmp_path: Path,
) -> None:
    with SlurmCluster(nodes=2) as slurm:
        submit(slurm, "--gpus=1")
        serve = Serve(slurm, tmp_path / "advise", "advise", "main")
        try:
            until(lambda: ready(serve)["status"] == "ok", "a first look")
            slurm.kill_controller()
            died = time.time()
            until(lambda: ready(serve)["status"] == "stale", "it to be found out")
            found = ready(serve)
            # a test waits for no time; how long it took is shown with -s
            print(f"found out after {time.time() - died:.1f} s")
            assert int(found["since"]) <= round(died)
            assert "does not answer: what is shown is of " in found["checks"]["slurm"]
            slurm.start_controller()
            until(lambda: ready(serve)["status"] == "ok", "it to be read again")
        finally:
            serve.end()


def test_a_dead_slurmdbd_is_named_in_every_answer_and_forgotten_when_it_is_back(
    tmp_path: Path,
) -> None:
    with SlurmCluster(nodes=1, accounting=True) as slurm:
        submit(slurm, "--gpus=1")
        serve = Serve(slurm, tmp_path / "advise", "advise", "main")
        try:
            until(lambda: ready(serve)["status"] == "ok", "a first look")
            slurm.kill_database()
            died = time.time()
            until(lambda: ready(serve)["status"] == "stale", "it to be found out")
            found = ready(serve)
            print(f"found out after {time.time() - died:.1f} s")
            assert found["since"] is None, "slurmctld answers"
            assert "limits, accounts and shares are of " in found["checks"]["slurmdbd"]
            assert "slurmdbd does not answer" in serve.pellucid("ps").stderr
            slurm.start_database()
            until(lambda: ready(serve)["status"] == "ok", "it to be read again")
        finally:
            serve.end()
