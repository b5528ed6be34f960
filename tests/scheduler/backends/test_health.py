"""GPUs that do not answer: each is closed alone with the reason, and opened later."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest

from scheduler.backends.base import Launch, Purpose
from scheduler.backends.events import Event, Kind
from scheduler.backends.local import health as module
from scheduler.backends.local.health import Health, News
from scheduler.backends.local.host import Host, HostError
from tests.profiler.fake_nvml import GPU_IS_LOST, FakeGpu, FakeNvml

LOST = {"nvmlDeviceGetHandleByIndex": GPU_IS_LOST}
WHY = "the GPU is lost"


def four(lost: bool = True) -> FakeNvml:
    gpus = [FakeGpu(f"GPU-{name}") for name in "abcd"]
    gpus[1].refuses = dict(LOST) if lost else {}
    return FakeNvml(*gpus)


def asked(health: Health) -> list[Event]:
    """What a look finds once the driver was asked."""
    health._due, news = 0.0, News()
    health.look(news, 1.0)
    assert news == {}
    assert health.asking is not None
    health.asking.join()
    health.look(news, 2.0)
    return list(news.values())


def begun(health: Health) -> list[Event]:
    news = News()
    health.begin(news, 0.0)
    return list(news.values())


def bodies(events: list[Event]) -> list[Any]:
    assert {event.kind for event in events} <= {Kind.GPUS_CLOSED}
    return [event.body for event in events]


ALL_ANSWER = [{"node": 0, "closed": {}}, {"node": 1, "closed": {}}]


def test_a_host_serves_with_the_gpus_that_answer(tmp_path: Path) -> None:
    host = Host.here([2, 2], four())
    assert host.devices == (("GPU-a", "silent:1"), ("GPU-c", "GPU-d"))
    found = bodies(begun(Health(host, tmp_path / "kept")))
    assert found == [{"node": 0, "closed": {"1": WHY}}, {"node": 1, "closed": {}}]
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


def test_a_gpu_that_is_lost_is_closed_alone_and_opened_when_it_recovers(tmp_path: Path) -> None:
    nvml = four(lost=False)
    health = Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml)
    assert bodies(begun(health)) == ALL_ANSWER
    assert asked(health) == [], "nothing is new"
    nvml.gpus[3].refuses.update(LOST)
    assert bodies(asked(health)) == [{"node": 1, "closed": {"1": WHY}}]
    assert health.host.chosen(Launch("1", 1, Purpose.RUN, ("true",), (1,), ((0,),))) == ("GPU-c",)
    nvml.gpus[2].refuses.update(LOST)
    assert bodies(asked(health)) == [{"node": 1, "closed": {"0": WHY, "1": WHY}}]
    nvml.gpus[3].refuses.clear()
    assert bodies(asked(health)) == [{"node": 1, "closed": {"0": WHY}}]


def test_one_that_was_silent_from_the_start_recovers(tmp_path: Path) -> None:
    nvml = four()
    health = Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml)
    begun(health)
    nvml.gpus[1].refuses.clear()
    assert bodies(asked(health)) == [{"node": 0, "closed": {}}]
    assert health.host.devices == (("GPU-a", "GPU-b"), ("GPU-c", "GPU-d"))


def test_what_recovered_while_no_service_ran_is_said_at_the_start(tmp_path: Path) -> None:
    """The log knows it as closed: every node is told of."""
    nvml = four(lost=False)
    assert bodies(begun(Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml))) == ALL_ANSWER


def test_one_that_hangs_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvml, answers = four(lost=False), Signal()
    health = Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml)
    begun(health)
    whole, calls = nvml.nvmlDeviceGetHandleByIndex, list[int]()

    def hangs(index: int) -> object:
        calls.append(index)
        if index == 2:
            answers.wait()
        return whole(index)

    nvml.nvmlDeviceGetHandleByIndex = hangs  # type: ignore[method-assign]
    monkeypatch.setattr(module, "PATIENCE_S", 0.2)
    assert bodies(asked(health)) == [{"node": 1, "closed": {"0": "the driver hangs"}}]
    assert asked(health) == []
    assert sorted(calls) == [0, 0, 1, 1, 2, 3, 3], "it is not asked again while it hangs"
    answers.set()
    health._hang[2].join()
    assert bodies(asked(health)) == [{"node": 1, "closed": {}}]


def test_a_driver_that_fails_closes_every_gpu(tmp_path: Path) -> None:
    nvml = four(lost=False)
    health = Health(Host.here([2, 2], nvml), tmp_path / "kept", nvml)
    begun(health)
    nvml.broken = 999
    found = bodies(asked(health))
    assert [(body["node"], list(body["closed"])) for body in found] == [
        (0, ["0", "1"]),
        (1, ["0", "1"]),
    ]
    assert all("does not answer" in why for body in found for why in body["closed"].values())
    nvml.broken = 0
    assert bodies(asked(health)) == ALL_ANSWER


def test_nodes_that_an_earlier_release_drained_for_a_gpu_are_opened(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text(json.dumps({"0": "GPU 1 does not answer: the GPU is lost"}))
    health = Health(Host.here([2, 2], four()), kept)
    opened, *_ = begun(health)
    assert opened.kind is Kind.NODE_SET
    assert opened.body["open"]
    assert opened.body["ends"] == "GPU 1 does not answer: the GPU is lost"
    assert kept.exists(), "until it is in the log"
    health.heard(opened)
    assert not kept.exists()


def test_one_that_is_not_listed_after_a_restart_keeps_its_place(tmp_path: Path) -> None:
    known, all_there = tmp_path / "gpus.json", four(lost=False)
    Host.here([2, 2], all_there).keep(known)
    fewer = FakeNvml(*(all_there.gpus[i] for i in (0, 2, 3)))
    host = Host.here([2, 2], fewer, known=known)
    assert host.devices == (("GPU-a", "GPU-b"), ("GPU-c", "GPU-d"))
    health = Health(host, tmp_path / "kept", fewer)
    gone = {"1": "it is not listed any more"}
    assert bodies(begun(health)) == [{"node": 0, "closed": gone}, {"node": 1, "closed": {}}]
    fewer.gpus.insert(1, all_there.gpus[1])
    assert bodies(asked(health)) == [{"node": 0, "closed": {}}]


def test_fewer_gpus_than_the_cluster_has_are_refused_where_the_others_are_not_known(
    tmp_path: Path,
) -> None:
    known, nvml = tmp_path / "gpus.json", four(lost=False)
    fewer = FakeNvml(*nvml.gpus[:3])
    with pytest.raises(HostError, match="has 3 GPUs"):
        Host.here([2, 2], fewer, known=known)
    Host.here([2, 2], four(lost=True)).keep(known)
    assert not known.exists(), "one of them has no name"
    Host.here([2, 2], nvml).keep(known)
    for sizes in ([4], [1, 3], [2, 2, 1]):
        with pytest.raises(HostError, match="has 3 GPUs"):
            Host.here(sizes, fewer, known=known)
    other = FakeNvml(*nvml.gpus[:2], FakeGpu("GPU-new"))
    with pytest.raises(HostError, match="has 3 GPUs"):
        Host.here([2, 2], other, known=known)
    known.write_text("nothing")
    with pytest.raises(HostError, match="has 3 GPUs"):
        Host.here([2, 2], fewer, known=known)
