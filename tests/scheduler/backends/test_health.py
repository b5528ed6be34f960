"""GPUs that do not answer: their nodes are drained with the reason, and opened later."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduler.backends.base import Launch, Purpose
from scheduler.backends.events import Event
from scheduler.backends.local.health import Health
from scheduler.backends.local.host import Host, HostError
from tests.profiler.fake_nvml import GPU_IS_LOST, FakeGpu, FakeNvml

LOST = {"nvmlDeviceGetHandleByIndex": GPU_IS_LOST}
WHY = "GPU 1 does not answer: the GPU is lost"


def four(lost: bool = True) -> FakeNvml:
    gpus = [FakeGpu(f"GPU-{name}") for name in "abcd"]
    gpus[1].refuses = dict(LOST) if lost else {}
    return FakeNvml(*gpus)


def asked(health: Health) -> list[Event]:
    """What a look finds once the driver was asked."""
    health._due, events = 0.0, dict[int, Event]()
    health.look(events, 1.0)
    assert events == {}
    assert health.asking is not None
    health.asking.join()
    health.look(events, 2.0)
    return list(events.values())


def begun(health: Health) -> list[Event]:
    events = dict[int, Event]()
    health.begin(events, 0.0)
    return list(events.values())


def test_a_host_serves_with_the_gpus_that_answer(tmp_path: Path) -> None:
    host = Host.here([2, 2], four())
    assert host.devices == (("GPU-a", "silent:1"), ("GPU-c", "GPU-d"))
    [event] = begun(Health(host, tmp_path / "kept"))
    assert event.body == {"node": 0, "open": False, "reason": WHY}
    launch = Launch("1", 1, Purpose.RUN, ("true",), (0,), ((1,),))
    with pytest.raises(HostError, match="GPU 1 of node 0 does not answer: the GPU is lost"):
        host.chosen(launch)


def test_too_few_and_none_are_refused_with_the_reason() -> None:
    with pytest.raises(HostError, match=r"has 3 GPUs \(GPU 1 does not answer: the GPU is lost"):
        Host.here([4, 4], four())
    with pytest.raises(HostError, match="has 0 GPUs"):
        Host.here([1], FakeNvml(FakeGpu("GPU-a", refuses=dict(LOST))))

    class Mute(FakeNvml):
        def nvmlDeviceGetCount(self) -> int:
            raise self.NVMLError(999)

    with pytest.raises(HostError, match="the NVIDIA driver does not answer"):
        Host.here([1], Mute())


def test_a_gpu_that_recovers_opens_its_node(tmp_path: Path) -> None:
    nvml = four()
    health = Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml)
    drained = [event.body for event in begun(health)]
    assert [event.body for event in asked(health)] == drained, "said again: the log drops it"
    nvml.gpus[1].refuses.clear()
    [event] = asked(health)
    assert event.body == {"node": 0, "open": True, "reason": "", "ends": WHY}
    assert health.host.devices == (("GPU-a", "GPU-b"), ("GPU-c", "GPU-d"))
    nvml.gpus[3].refuses.update(LOST)
    [event] = asked(health)
    assert event.body == {"node": 1, "open": False, "reason": WHY}


def test_what_was_drained_is_known_after_a_restart(tmp_path: Path) -> None:
    nvml = four()
    begun(Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml))
    [again] = begun(Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml))
    assert not again.body["open"], "the log may not have it: it drops what it has"
    nvml.gpus[1].refuses.clear()
    [event] = begun(Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml))
    assert event.body["open"]


def test_a_driver_that_fails_drains_every_node(tmp_path: Path) -> None:
    nvml = four(lost=False)
    health = Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml)
    nvml.broken = 999
    events = asked(health)
    assert [event.body["node"] for event in events] == [0, 1]
    assert all("does not answer" in event.body["reason"] for event in events)
    nvml.broken = 0
    assert [event.body["open"] for event in asked(health)] == [True, True]
