"""A GPU that is lost while a service runs real commands: it alone is closed, and comes back."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from scheduler.assembly import CoreSpec
from scheduler.backends.events import Kind
from scheduler.backends.local import health
from scheduler.backends.local.backend import Bounds, LocalBackend
from scheduler.backends.local.host import Host
from scheduler.core.cluster import ClusterSpec
from scheduler.service.decide.decider import Decider
from scheduler.service.log.header import LogHeader
from tests.profiler.fake_nvml import GPU_IS_LOST, FakeGpu, FakeNvml
from tests.scheduler.backends.test_end_to_end import a_job, over, phases, turn_until
from tests.scheduler.live import Service

TOLD = "GPU 0 of node node000, which it runs on, does not answer: the GPU is lost"


@pytest.fixture
def nvml() -> FakeNvml:
    return FakeNvml(*(FakeGpu(f"GPU-{name}", processes={}) for name in "abc"))


@pytest.fixture
def service(tmp_path: Path, nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setattr(health, "EVERY_S", 0.2)
    bounds = Bounds(grace_s=0.3, check_s=0.1)
    header = LogHeader(CoreSpec.of(ClusterSpec({"vc": 1}, 3), "fifo"), time.time())
    return Service(
        tmp_path,
        header,
        lambda: LocalBackend(
            tmp_path / "local", Host.here([3], nvml), bounds=bounds, nvml_module=nvml
        ),
    )


def closed(decider: Decider) -> list[int]:
    return [one.gpu for one in decider.state.ledger.nodes.records[0].closed_gpus]


def output(decider: Decider, job_id: str) -> str:
    assert isinstance(decider.backend, LocalBackend)
    return decider.backend.output(job_id, 1).read_text()


def test_the_others_serve_on_and_it_returns_by_itself_over_a_restart(
    service: Service, nvml: FakeNvml, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    decider = service.decider()
    service.submit(a_job("on", f"until [ -e {gate} ]; do sleep 0.05; done"))
    turn_until(decider, lambda: phases(service)["on"] == "running")
    nvml.gpus[0].refuses["nvmlDeviceGetHandleByIndex"] = GPU_IS_LOST
    turn_until(decider, lambda: closed(decider) == [0])
    assert service.rows()["on"]["detail"] == TOLD
    service.submit(*(a_job(f"next{i}", "echo $CUDA_VISIBLE_DEVICES", gpus=2) for i in range(2)))
    turn_until(decider, lambda: phases(service)["next1"] == "ended")
    assert phases(service)["on"] == "running", "nobody waited for it"
    assert output(decider, "next0") == output(decider, "next1") == "GPU-b,GPU-c\n"
    service.submit(a_job("all", "echo $CUDA_VISIBLE_DEVICES", gpus=3))
    gate.touch()
    turn_until(decider, lambda: phases(service)["on"] == "ended")
    assert phases(service)["all"] == "queued"
    decider.let_go()

    decider = service.decider()
    assert closed(decider) == [0]
    turn_until(decider, lambda: phases(service)["all"] == "queued")
    nvml.gpus[0].refuses.clear()
    turn_until(decider, lambda: over(service))
    assert closed(decider) == []
    assert output(decider, "all") == "GPU-a,GPU-b,GPU-c\n"
    events = [event for event in service.store.read(0) if event.kind is Kind.GPUS_CLOSED]
    assert [event.body["closed"] for event in events] == [{"0": "the GPU is lost"}, {}], (
        "once each, whoever started"
    )
    decider.let_go()


def test_one_that_recovered_while_no_service_ran_is_open_again(
    service: Service, nvml: FakeNvml
) -> None:
    decider = service.decider()
    nvml.gpus[1].refuses["nvmlDeviceGetHandleByIndex"] = GPU_IS_LOST
    turn_until(decider, lambda: closed(decider) == [1])
    decider.let_go()
    nvml.gpus[1].refuses.clear()
    decider = service.decider()
    turn_until(decider, lambda: closed(decider) == [])
    service.submit(a_job("all", "exit 0", gpus=3))
    turn_until(decider, lambda: over(service))
    decider.let_go()
