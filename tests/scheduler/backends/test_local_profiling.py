"""Profiling on this host: what is watched, for how long, and never a made-up figure."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from features.job import Profile
from features.schema import State
from profiler import procs
from scheduler.backends.base import Happened, Launch, Purpose, Report
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.host import Host, HostError, read_declared
from scheduler.backends.local.spool import Spool, name_of
from scheduler.backends.local.watch import Tree
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.service.backends import host_of
from scheduler.service.settings import Settings
from scheduler.testing.backend import a_launch
from tests.profiler.fake_nvml import FakeGpu, FakeNvml
from tests.scheduler.backends.test_local import ThisHost, crash, sh
from tests.waiting import until

LIMIT_S = 0.7
DECLARED = Profile(70.0, 35.0, 9000.0, True, sm_active_pct=55.0)
SOON = {"grace_s": 0.2, "check_s": 0.05}


class Lab(ThisHost):
    """A spool whose backend is opened again and again, on fake or (faked) real GPUs."""

    backend: LocalBackend

    def __init__(self, folder: Path, host: Host, nvml: Any = None):
        super().__init__(folder, host, nvml)
        self.open()

    def open(self, **bounds: float) -> LocalBackend:
        return super().open(**SOON, **bounds)

    def hear(self, want: Happened) -> Report:
        """Wait for a report of this kind, acknowledging what comes before it, news of nodes too."""

        def heard() -> Report | None:
            self.backend.heard(self.backend.news())
            for report in self.backend.reports(0.1):
                if report.what is want:
                    return report
                self.backend.acknowledge([report])
            return None

        found = until(heard, f"report of {want}", every_s=0.0)
        assert found is not None
        return found


def a_look(script: str = "exec sleep 100", **more: Any) -> Launch:
    launch = a_launch(sh(script))
    return replace(launch, **{"purpose": Purpose.PROFILE, "limit_s": LIMIT_S, **more})


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Lab]:
    """Fake GPUs; a profile is declared for `train_*`."""
    path = tmp_path / "profiles.json"
    entry = {"command": "*train_*", "gpu_util_pct": 70, "gpu_mem_util_pct": 35, "sm_active_pct": 55}
    path.write_text(json.dumps([{**entry, "gpu_mem_mib": 9000, "amp": True}]))
    lab = Lab(tmp_path, Host.with_fake([2], read_declared(path)))
    yield lab
    lab.close()


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu("GPU-0", util=lambda: (80, 40), used_mib=300.0)


@pytest.fixture
def real(tmp_path: Path, gpu: FakeGpu) -> Iterator[Lab]:
    """GPUs with a driver, faked at the driver."""
    nvml = FakeNvml(gpu, FakeGpu("GPU-1"))
    lab = Lab(tmp_path, Host.here([2], nvml), nvml)
    yield lab
    lab.close()


def test_on_fake_gpus_a_declared_profile_is_reported_and_nothing_made_up(fake: Lab) -> None:
    fake.backend.launch(a_look())
    fake.backend.launch(a_look("exec sleep 100 # train_resnet", job_id="known", gpus=((1,),)))
    reports: dict[str, Report] = {}
    while len(reports) < 2:
        report = fake.hear(Happened.PROFILED)
        fake.backend.acknowledge([report])
        reports[report.job_id] = report
    assert reports["known"].profile == DECLARED
    report = reports["a"]
    assert report.profile is None
    assert "fake GPUs" in report.detail
    assert report.ran_s is not None
    assert report.ran_s >= LIMIT_S - 0.05
    assert report.state is None
    fake.backend.launch(a_look("exit 3 # train_resnet", job_id="short", limit_s=60.0))
    ended = fake.hear(Happened.ENDED)
    assert (ended.profile, ended.state, ended.exit_code) == (DECLARED, State.FAILED, 3)


def test_a_run_is_watched_where_a_profile_can_be_known(fake: Lab) -> None:
    watched = replace(a_launch(sh("exec sleep 100 # train_x")), watch_s=0.2)
    fake.backend.launch(watched)
    fake.backend.launch(replace(watched, job_id="b", command=sh("exec sleep 100"), gpus=((1,),)))
    observed = fake.hear(Happened.OBSERVED)
    assert (observed.job_id, observed.profile) == ("a", DECLARED)
    fake.backend.acknowledge([observed])
    assert Happened.OBSERVED not in [r.what for r in fake.backend.reports(0.5)]


def test_only_its_own_gpus_are_looked_at_and_seen(real: Lab) -> None:
    real.backend.launch(a_look("echo $CUDA_VISIBLE_DEVICES; exec sleep 100", gpus=((1,),)))
    profile = real.hear(Happened.PROFILED).profile
    assert profile is not None
    assert real.backend.output("a", 1).read_text() == "GPU-1\n"
    assert profile.gpu_mem_mib == 0.0


def test_a_run_of_its_own_is_observed_once_and_goes_on(real: Lab, gpu: FakeGpu) -> None:
    real.backend.launch(replace(a_launch(sh("exec sleep 100")), watch_s=LIMIT_S))
    real.hear(Happened.STARTED)
    gpu.used_mib = 5300.0
    observed = real.hear(Happened.OBSERVED)
    profile = observed.profile
    assert profile is not None
    assert (profile.gpu_util_pct, profile.gpu_mem_util_pct) == (80.0, 40.0)
    assert profile.gpu_mem_mib == 5000.0, "what was in use before is not its own"
    real.backend.acknowledge([observed])
    real.open()
    assert list(real.backend.reports(LIMIT_S + 0.5)) == [], "observed before, and acknowledged"
    real.backend.stop("a", 1)
    assert real.hear(Happened.ENDED).profile is None


def test_a_run_that_gets_a_partner_is_not_observed(real: Lab) -> None:
    alone = replace(a_launch(sh("exec sleep 100")), watch_s=0.3)
    real.backend.launch(alone)
    real.hear(Happened.STARTED)
    real.backend.launch(replace(alone, job_id="b", partner="a"))
    found = []
    for _ in range(3):
        reports = real.backend.reports(0.3)
        found += [r.what for r in reports]
        real.backend.acknowledge(reports)
    assert found == [Happened.STARTED, Happened.STARTED]
    real.open()
    assert list(real.backend.reports(0.5)) == [], "nor after the service came back"


def test_a_look_goes_on_through_a_crash_of_the_service_and_is_not_forgotten_by_another(
    real: Lab, gpu: FakeGpu
) -> None:
    real.backend.launch(a_look())
    real.hear(Happened.STARTED)
    gpu.used_mib = 4300.0
    real.open()
    profile = real.hear(Happened.PROFILED).profile
    assert profile is not None
    assert profile.gpu_mem_mib == 4000.0, "what was there before is remembered"
    real.open()
    assert real.hear(Happened.PROFILED).profile == profile


def test_a_look_that_ended_while_the_service_was_away_has_no_profile_and_says_so(
    real: Lab, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    real.backend.launch(a_look(f"while [ ! -e {go_on} ]; do sleep 0.05; done", limit_s=60.0))
    real.hear(Happened.STARTED)
    crash(real.backend)
    go_on.touch()
    until(lambda: Spool(real.folder / "spool").read(name_of("a", 1), "over"), "it to end")
    real.open()
    ended = real.hear(Happened.ENDED)
    assert (ended.state, ended.profile) == (State.COMPLETED, None)
    # its shim may still have been there for a moment, and been watched
    assert "watched" in ended.detail or "no samples" in ended.detail


@pytest.mark.parametrize(("broken", "word"), [(9, "NVIDIA"), (0, "GPU is lost")])
def test_a_driver_that_does_not_answer_or_fails_midway_costs_the_profile_and_not_the_end(
    real: Lab, monkeypatch: pytest.MonkeyPatch, broken: int, word: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("GPU is lost")

    real.nvml.broken = broken
    monkeypatch.setattr("scheduler.backends.local.watch.judge", fail)
    real.backend.launch(a_look(limit_s=0.3))
    report = real.hear(Happened.PROFILED)
    assert report.profile is None
    assert word in report.detail


def test_its_own_time_limit_ends_it_for_good_if_it_is_shorter(fake: Lab) -> None:
    fake.backend.launch(a_look(time_limit_s=0.3))
    ended = fake.hear(Happened.ENDED)
    assert ended.state is State.TIMEOUT
    assert ended.detail.startswith("ran for its 0.3 s")


# --- the host -------------------------------------------------------------------------------------


def test_gpus_are_dealt_out_to_nodes() -> None:
    nvml = FakeNvml(*(FakeGpu(f"GPU-{i}") for i in range(5)))
    host = Host.here([2, 2], nvml)
    assert host.devices == (("GPU-0", "GPU-1"), ("GPU-2", "GPU-3"))
    assert not host.fake
    uneven = Host.here([3, 1], nvml)
    assert uneven.devices == (("GPU-0", "GPU-1", "GPU-2"), ("GPU-3",))
    with pytest.raises(HostError, match="2 nodes with 8 GPUs, this host has 5 GPUs"):
        Host.here([4, 4], nvml)
    with pytest.raises(HostError, match="declare fake GPUs instead"):
        Host.here([1], FakeNvml(broken=12))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{", "profiles"),
        ("{}", "a list"),
        ('[{"gpu_util_pct": 1}]', "entry 0: expected an object with a command"),
        ('[{"command": "x", "gpu_util_pct": 101}]', "gpu_util_pct is 101"),
        ('[{"command": "x", "gpu_util_pct": "a"}]', "gpu_util_pct is 'a'"),
        (
            '[{"command": "x", "gpu_util_pct": 1, "gpu_mem_util_pct": 1, "gpu_mem_mib": 1,'
            ' "sm_active_pct": 101}]',
            "sm_active_pct is 101",
        ),
        (
            '[{"command": "x", "gpu_util_pct": 1, "gpu_mem_util_pct": 1, "gpu_mem_mib": 1,'
            ' "amp": 2}]',
            "amp is 2",
        ),
    ],
)
def test_a_wrong_file_of_profiles_is_named(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "profiles.json"
    path.write_text(text)
    with pytest.raises(HostError, match=word):
        read_declared(path)


def test_a_cluster_whose_nodes_differ_asks_for_no_more_gpus_than_it_has() -> None:
    groups = {"vc": [NodeGroup("", 1, 8), NodeGroup("", 2, 1)]}
    host = host_of(Settings(fake_gpus=True), ClusterSpec.mixed(groups))
    assert [len(gpus) for gpus in host.devices] == [8, 1, 1]


def test_thousands_of_processes_of_one_job_are_listed_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost_s, there = 0.0, list[int]()

    def descendants(root: int) -> list[int]:
        begun = time.thread_time()
        while time.thread_time() < begun + cost_s:
            pass
        return [root, *there]

    monkeypatch.setattr(procs, "descendants", descendants)
    tree = Tree(7)
    for pid in (8, 9):  # few: each is seen as it comes
        there.append(pid)
        until(lambda: tree()[-1] == there[-1], "a new one", every_s=0.01)
    cost_s = 0.2
    there.append(10)
    until(lambda: tree()[-1] == 10, "a new one", every_s=0.01)
    begun, cost_s = time.thread_time(), 1.0
    for _ in range(20):  # readings of two seconds
        assert tree() == [7, 8, 9, 10], "the list that took 0.2 s holds for 20"
    assert time.thread_time() - begun < 0.1
