"""What a command leaves whose shim it killed: ended as one where there are control groups, found
where there are none, and where it would not end nothing new is sent there."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from features.clock import boot_id
from profiler import procs
from scheduler.backends.base import Happened, Launch
from scheduler.backends.events import Event, Kind
from scheduler.backends.local import backend as local
from scheduler.backends.local import cgroup
from scheduler.backends.local.backend import LocalBackend
from scheduler.backends.local.host import Host
from scheduler.backends.local.leftovers import on_gpus
from scheduler.backends.local.spool import start_ticks
from scheduler.testing.backend import a_launch, await_start, hear, last
from tests.profiler.fake_nvml import FakeGpu, FakeNvml
from tests.scheduler.backends.test_end_to_end import a_job, a_service, over, phases, turn_until
from tests.scheduler.backends.test_local import ThisHost, crash, sh, site
from tests.scheduler.backends.test_local_profiling import Lab
from tests.waiting import until

__all__ = ["site"]

grouped = pytest.mark.skipif(cgroup.base() is None, reason="needs a cgroup v2 that can be written")
# it waits until its shim has seen it start, leaves session, environment and output, and kills it
ESCAPE = (
    "setsid env -i /bin/sh -c 'echo $$ > {pid}; exec sleep 1000' > /dev/null 2>&1 < /dev/null & "
    "while [ ! -s {pid} ]; do sleep 0.05; done; sleep 0.3; kill -9 $PPID"
)


def escaped(site: ThisHost) -> int:
    """Let a command escape; the process that went on."""
    backend, file = site.open(), site.folder / "escaped"
    backend.launch(a_launch(sh(ESCAPE.format(pid=file))))
    assert last(hear(backend, site)).what is Happened.LOST
    return int(file.read_text())


@grouped
def test_what_escapes_is_ended_with_its_group(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scheduler.backends.local.leftovers.orphans", lambda _: [])
    assert not procs.alive(escaped(site))


def test_without_groups_it_is_found_among_the_orphans(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroup, "base", lambda: None)
    assert not procs.alive(escaped(site))


@grouped
def test_a_command_runs_in_a_group_of_its_own_that_goes_with_it(site: ThisHost) -> None:
    backend = site.open()
    backend.launch(a_launch(sh("cat /proc/self/cgroup")))
    ended = hear(backend, site)
    assert last(ended).exit_code == 0
    text = backend.output("a", 1).read_text()
    [name] = {line.rpartition("/")[2] for line in text.splitlines() if line.startswith("0::")}
    assert name.startswith(cgroup.PREFIX)
    base = cgroup.base()
    assert base is not None
    assert not (base / name).exists()
    backend.acknowledge(ended)
    backend.launch(a_launch(("/no/such/command",), "none"))
    assert last(hear(backend, site)).what is Happened.NOT_STARTED
    group = backend._attempts["none@1"].claim["group"]
    assert group
    assert not Path(group).exists()


# --- where the kernel has no such groups, or more of them -----------------------------------------


def a_process(folder: Path, groups: str, mounts: str) -> Path:
    (folder / "cgroup").write_text(groups)
    (folder / "mountinfo").write_text(mounts)
    return folder


@pytest.mark.parametrize(
    ("groups", "mounts", "found"),
    [
        ("0::/a/b\n", "1 2 0:3 / /sys/fs/cgroup rw - cgroup2 x rw\n", "/sys/fs/cgroup/a/b"),
        ("3:cpu:/x\n0::/\n", "1 2 0:3 / /c/unified rw - cgroup2 x rw\n", "/c/unified"),
        ("0::/a/b\n", "1 2 0:3 /a /mnt rw - cgroup2 x rw\n", "/mnt/b"),
        ("3:cpu:/x\n", "1 2 0:3 / /sys/fs/cgroup/cpu rw - cgroup x rw,cpu\n", None),
        ("0::/a\n", "1 2 0:3 / /proc rw - proc x rw\n", None),
    ],
)
def test_the_group_of_a_process(
    tmp_path: Path, groups: str, mounts: str, found: str | None
) -> None:
    assert cgroup.own(a_process(tmp_path, groups, mounts)) == (found and Path(found))


def test_a_kernel_that_cannot_end_a_group_at_once_has_none(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").touch()
    assert cgroup.base(tmp_path) is None
    assert list(tmp_path.iterdir()) == [tmp_path / "cgroup.procs"], "the trial is gone"
    assert cgroup.base(tmp_path / "nowhere") is None


def test_memory_and_processes_are_held_to_where_they_are_counted(tmp_path: Path) -> None:
    cgroup.base(tmp_path / "supervisor")
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+pids", "written last, alone"
    group = tmp_path / "pellucid-1"
    cgroup.make(group, 100.0)  # nothing counts them
    assert list(group.iterdir()) == []
    for name in ("memory.max", "memory.oom.group", "pids.max"):
        (group / name).touch()
    cgroup.make(group, None)
    assert (group / "pids.max").read_text() == str(cgroup.PIDS)
    assert (group / "memory.max").read_text() == ""
    cgroup.make(group, 100.0)
    assert (group / "memory.max").read_text() == str(100 * 2**20)
    assert (group / "memory.oom.group").read_text() == "1"


def test_of_a_group_that_does_not_end_its_processes_are_told(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "cgroup.procs").write_text("12\n")
    (tmp_path / "cgroup.procs").write_text("7\n")
    assert cgroup.end(tmp_path, 0.05) == [7, 12]
    assert (tmp_path / "cgroup.kill").read_text() == "1"
    assert cgroup.end(tmp_path / "nowhere") == []


# --- what would not end ---------------------------------------------------------------------------


def news_of(backend: LocalBackend) -> Sequence[Event]:
    def news() -> Sequence[Event]:
        backend.acknowledge(backend.reports(0.1))
        return backend.news()

    return until(news, "news of it")


def test_nothing_is_told_of_an_attempt_before_its_node_is_drained(
    site: ThisHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "clear_up", lambda *_: [4711])
    monkeypatch.setattr(cgroup, "base", lambda: None)  # which nobody would clear up
    backend = site.open()
    backend.launch(a_launch(sh("exec sleep 1000")))
    started = await_start(backend, site)
    site.lose("a")
    news_of(backend)
    backend = site.open()  # it crashed before anybody heard
    assert backend.reports(0) == []
    [event] = backend.news()
    assert event.kind is Kind.NODE_SET
    assert event.body["node"] == 0
    assert not event.body["open"]
    assert "4711" in event.body["reason"]
    backend.heard([event])
    assert backend.news() == []
    lost = last(backend.reports(0))
    assert lost.what is Happened.LOST
    assert "still there: 4711" in lost.detail
    assert started.pid is not None
    procs.send([started.pid], 9)


def test_its_gpus_are_given_to_nobody_until_an_operator_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched: list[Launch] = []
    launch = LocalBackend.launch

    def noted(self: LocalBackend, one: Launch) -> None:
        launched.append(one)
        launch(self, one)

    monkeypatch.setattr(LocalBackend, "launch", noted)
    monkeypatch.setattr(local, "clear_up", lambda *_: [4711])
    monkeypatch.setattr(cgroup, "base", lambda: None)  # which nobody would clear up
    service = a_service(tmp_path)
    service.submit(a_job("first", "sleep 0.3; kill -9 $PPID; exec sleep 1000", gpus=2))
    decider = service.decider()
    turn_until(decider, lambda: phases(service)["first"] == "lost")
    drained = [r for r in decider.state.ledger.nodes.records.values() if not r.open]
    assert len(drained) == 1
    assert drained[0].reason == "processes of job first would not end: 4711"
    service.submit(*(a_job(f"next{i}", "exit 0", gpus=2) for i in range(3)))
    turn_until(decider, lambda: over(service))
    assert [one.nodes for one in launched].count((drained[0].node,)) == 1
    assert len(launched) == 4
    decider.let_go()


@pytest.fixture
def sleeper() -> Iterator[int]:
    process = subprocess.Popen(["sleep", "1000"])
    yield process.pid
    process.kill()
    process.wait()


def test_who_computes_on_its_gpus_and_is_nobodys_is_found(sleeper: int, tmp_path: Path) -> None:
    gpu = FakeGpu("GPU-a", processes={sleeper: 10.0, 2**22 + 1: None})
    claim: dict[str, Any] = {"ticks": start_ticks(sleeper), "boot": boot_id()}
    assert on_gpus(["GPU-a"], claim, [], FakeNvml(gpu)) == [sleeper]
    parent = procs.parent_and_state(sleeper)
    assert parent is not None
    assert on_gpus(["GPU-a"], claim, [parent[0]], FakeNvml(gpu)) == [], "another attempt's"
    later = {**claim, "ticks": claim["ticks"] + 1}
    assert on_gpus(["GPU-a"], later, [], FakeNvml(gpu)) == [], "it was there before"
    assert on_gpus(["GPU-a"], {**claim, "boot": "other"}, [], FakeNvml(gpu)) == []
    for broken in (FakeNvml(broken=9), FakeNvml()):
        assert on_gpus(["GPU-a"], claim, [], broken) == []


def test_a_lost_attempt_on_gpus_that_are_in_use_is_told_so(tmp_path: Path) -> None:
    nvml = FakeNvml(FakeGpu("GPU-a", processes={}), FakeGpu("GPU-b"))
    lab = Lab(tmp_path, Host((("GPU-a", "GPU-b"),)), nvml)
    lab.backend.launch(a_launch(sh("sleep 1; kill -9 $PPID; exec sleep 1000")))
    lab.hear(Happened.STARTED)
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            nvml.gpus[0].processes[other.pid] = 100.0
            [event] = news_of(lab.backend)
            assert str(other.pid) in event.body["reason"]
            assert other.poll() is None, "it is not known to be ours, and left alone"
        finally:
            other.kill()
            crash(lab.backend)


def test_a_gpu_that_recovers_opens_only_what_was_drained_for_it(tmp_path: Path) -> None:
    decider = a_service(tmp_path).decider()
    backend, nodes = decider.backend, decider.state.ledger.nodes
    assert isinstance(backend, LocalBackend)

    def says(is_open: bool, **more: str) -> bool:
        body = {"node": 0, "open": is_open, "reason": "", **more}
        backend._news[Kind.NODE_SET, 0] = Event(Kind.NODE_SET, backend.now(), body=body)
        turn_until(decider, lambda: not backend.news())
        return decider.state.ledger.nodes.records[0].open

    assert nodes.records[0].open
    assert not says(False, reason="GPU 1 does not answer: the GPU is lost")
    assert says(True, ends="GPU 1 does not answer: the GPU is lost")
    assert not says(False, reason="the fan is replaced")
    assert not says(True, ends="GPU 1 does not answer: the GPU is lost")
