"""Real processes through the decider: submitted, run, failed, cancelled, timed out, and killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.assembly import CoreSpec
from scheduler.backends.events import Kind
from scheduler.backends.local.backend import Bounds, LocalBackend
from scheduler.backends.local.host import Host
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.service.decide.decider import Decider
from scheduler.service.log.header import LogHeader
from tests.scheduler.backends.test_local import sh
from tests.scheduler.live import Service
from tests.waiting import until

CLUSTER = ClusterSpec({"vc": 3}, gpus_per_node=2, name="here")
PARTITION = ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=1.5, max_gpus=2)


def a_service(folder: Path, policy: str = "fifo", start: float = 0.0) -> Service:
    bounds = Bounds(grace_s=0.3, check_s=0.1)
    host = Host.with_fake([2, 2, 2])
    header = LogHeader(CoreSpec.of(CLUSTER, policy, profiling=PARTITION), start or time.time())
    return Service(folder, header, lambda: LocalBackend(folder / "local", host, bounds=bounds))


def a_job(job_id: str, script: str, **more: Any) -> Submission:
    asked: dict[str, Any] = {"gpus": 1, "profile": False, "workdir": "/", **more}
    command = asked.pop("command", sh(script))
    return Submission(
        job_id=job_id, command=command, owner="ada", vc="vc", submitted_at=time.time(), **asked
    )


def turn_until(decider: Decider, done: Callable[[], bool]) -> None:
    def turned() -> bool:
        decider.turn(0.1)
        return done()

    assert done() or until(turned, "the jobs", every_s=0.0)


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return a_service(tmp_path)


def phases(service: Service) -> dict[str, str]:
    return {job: str(row["phase"]) for job, row in service.rows().items()}


def over(service: Service) -> bool:
    return set(phases(service).values()) <= {"ended", "cancelled", "refused", "lost"}


def test_every_way_of_ending(service: Service) -> None:
    service.submit(
        a_job("good", "echo $CUDA_VISIBLE_DEVICES", gpus=2),
        a_job("bad", "echo no such dataset; exit 7"),
        a_job("absent", "", command=("/no/such/command",)),
        a_job("slow", "exec sleep 100", time_limit_s=0.4),
        a_job("stopped", "exec sleep 100"),
        a_job("never", "exec sleep 100", gpus=4),  # waits for the whole cluster
        a_job("too wide", "exit 0", gpus=40),
    )
    decider = service.decider()
    turn_until(decider, lambda: phases(service)["stopped"] == "running")
    service.cancel("never", time.time())
    service.cancel("stopped", time.time())
    turn_until(decider, lambda: over(service))
    found = {
        job: (row["phase"], row["state"], row["exit_code"]) for job, row in service.rows().items()
    }
    assert found == {
        "good": ("ended", "completed", 0),
        "bad": ("ended", "failed", 7),
        "absent": ("ended", "failed", None),
        "slow": ("ended", "timeout", None),
        "stopped": ("cancelled", "cancelled", None),
        "never": ("cancelled", "cancelled", None),
        "too wide": ("refused", None, None),
    }
    rows = service.rows()
    assert rows["bad"]["detail"] == "exit code 7: no such dataset"
    assert "/no/such/command" in str(rows["absent"]["detail"])
    decider.let_go()


def test_a_look_on_the_partition_comes_first_and_counts_when_it_is_enough(
    tmp_path: Path,
) -> None:
    service = a_service(tmp_path, "lucid")
    service.submit(
        a_job("debug", "exit 0", profile=True),
        a_job("long", "[ $PELLUCID_ATTEMPT = 2 ] || sleep 100; echo 2", profile=True),
    )
    decider = service.decider()
    turn_until(decider, lambda: over(service))
    assert service.rows()["debug"]["attempt"] == 1, "it ended while it was looked at"
    assert service.rows()["long"]["attempt"] == 2
    backend = decider.backend
    assert isinstance(backend, LocalBackend)
    assert backend.output("long", 1).read_text() == "", "stopped at the limit, to be run later"
    assert backend.output("long", 2).read_text() == "2\n"
    [looked] = [e for e in service.store.read() if e.job_id == "long" and e.kind is Kind.PROFILED]
    assert looked.body.get("profile") is None, "fake GPUs: nothing is made up"
    decider.let_go()


DECIDER = """
import sys
from pathlib import Path
from tests.scheduler.backends.test_end_to_end import a_service, over
service = a_service(Path(sys.argv[1]), start=float(sys.argv[2]))
decider = service.decider()
while not over(service):
    decider.turn(0.1)
decider.let_go()
"""


def test_a_service_killed_again_and_again_runs_every_job_once(tmp_path: Path) -> None:
    start, marks = time.time(), tmp_path / "marks"
    service, jobs = a_service(tmp_path, start=start), [f"job{i:02}" for i in range(30)]
    for i, job in enumerate(jobs):
        script = f"echo {job} >> {marks}; sleep 0.{i % 5}; exit {i % 3}"
        service.submit(a_job(job, script))
    command = [sys.executable, "-c", DECIDER, str(tmp_path), str(start)]
    for wait_s in (1.3, 1.7, None):
        process = subprocess.Popen(command, cwd=Path(__file__).parents[3])
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
        process.wait()
    assert process.returncode == 0
    assert Counter(marks.read_text().split()) == dict.fromkeys(jobs, 1)
    ends = [e for e in service.store.each() if e.kind is Kind.ENDED]
    assert Counter(e.job_id for e in ends) == dict.fromkeys(jobs, 1)
    assert {e.job_id: e.body["exit_code"] for e in ends} == {
        job: i % 3 for i, job in enumerate(jobs)
    }
    assert not any((tmp_path / "local" / "attempts").iterdir())
    service.decider().let_go()  # folds the log anew: every pass is decided as it was
    assert service.store.read(kinds=[Kind.EPOCH]) == []
