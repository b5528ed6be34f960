"""The simulated backend keeps the contract, and its world is the engine's."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from features.job import Profile
from features.schema import State
from scheduler.backends.base import Backend, Happened, Launch, Purpose, Report
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World, by_command
from scheduler.simulation.work import PairTable, Work
from scheduler.testing.backend import BackendContract, SimulatedSite, Site, a_launch, outcome_of

PROFILE = Profile(60.0, 30.0, 4000.0, True)


class InFile(SimulatedSite):
    """A world that every backend reads from its file."""

    def __init__(self, path: Path):
        self.path = path

    def open(self) -> Backend:
        self.world = World(outcome_of, path=self.path)
        return SimulatedBackend(self.world)


class TestInMemory(BackendContract):
    seeds = 60

    @pytest.fixture
    def site(self) -> Site:
        return SimulatedSite()


class TestInFile(BackendContract):
    seeds = 10

    @pytest.fixture
    def site(self, tmp_path: Path) -> Site:
        return InFile(tmp_path / "world")


def world_of(*launches: Launch, lasts_s: dict[str, float] | float = 100.0) -> World:
    """A world in which these were launched at once."""

    def outcome(launch: Launch) -> JobOutcome:
        seconds = lasts_s if isinstance(lasts_s, float) else lasts_s[launch.job_id]
        return JobOutcome(Work(seconds, profile=PROFILE))

    world = World(outcome)
    for launch in launches:
        world.launch(launch)
    return world


def all_reports(world: World, until: float = 1e5) -> list[Report]:
    found = []
    while world.now() < until:
        world.wait(until - world.now())
        found += world.unacked()
        world.acknowledge(world.unacked())
    return found


def of(reports: list[Report]) -> list[tuple[str, Happened, float]]:
    return [(r.job_id, r.what, r.at) for r in reports]


def test_time_passes_only_in_waiting_and_stops_at_what_happens() -> None:
    world = world_of(a_launch(["x"]))
    assert world.now() == 0.0
    world.acknowledge(world.unacked())
    world.wait(30.0)
    assert world.now() == 30.0
    world.wait(1000.0)
    assert world.now() == 100.0
    assert [r.ran_s for r in world.unacked()] == [100.0]


def test_a_paced_world_keeps_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", lambda s, sleep=time.sleep: (slept.append(s), sleep(s)))
    world = World(by_command, start=1000.0, pace=100.0)
    backend = SimulatedBackend(world)
    backend.launch(a_launch(["sleep", "20"]))
    (started,) = backend.reports(0.0)
    backend.acknowledge([started])
    (ended,) = backend.reports(1000.0)
    assert sum(slept) < 1000.0 / 100.0, "it does not wait for all of it"
    assert ended.at - started.at == pytest.approx(20.0)
    assert backend.now() >= ended.at


def test_partners_slow_each_other_while_both_are_there() -> None:
    world = World(lambda _: JobOutcome(Work(100.0)), speed=PairTable({}, unmeasured=0.5))
    world.launch(a_launch(["x"], "a"))
    world.acknowledge(world.unacked())
    world.wait(50.0)
    world.launch(replace(a_launch(["x"], "b"), partner="a"))
    # a has 50 s left and needs 100 for them; b has done 50 by then and goes on alone
    assert of(all_reports(world))[1:] == [
        ("a", Happened.ENDED, 150.0),
        ("b", Happened.ENDED, 200.0),
    ]
    assert world.problems == []


@pytest.mark.parametrize(
    ("work_s", "what", "at"),
    [(50.0, Happened.ENDED, 50.0), (200.0, Happened.ENDED, 200.0), (500.0, Happened.PROFILED, 200)],
)
def test_a_profiling_run_ends_by_itself_or_at_its_limit(
    work_s: float, what: Happened, at: float
) -> None:
    launch = replace(a_launch(["x"]), purpose=Purpose.PROFILE, limit_s=200.0)
    report = all_reports(world_of(launch, lasts_s=work_s))[-1]
    assert (report.what, report.at, report.profile) == (what, at, PROFILE)
    assert report.ran_s == at


def test_a_run_of_its_own_is_watched_and_a_shared_one_is_not() -> None:
    alone = replace(a_launch(["x"]), watch_s=200.0)
    shared = replace(alone, job_id="b", partner="a")
    observed = all_reports(world_of(alone, lasts_s=500.0))[1]
    assert (observed.what, observed.at, observed.profile) == (Happened.OBSERVED, 200.0, PROFILE)
    for partner_s in (500.0, 50.0):
        reports = all_reports(world_of(alone, shared, lasts_s={"a": 500.0, "b": partner_s}))
        assert Happened.OBSERVED not in [r.what for r in reports], "nor once it is alone"


def test_the_world_notes_what_no_scheduler_should_do() -> None:
    world = world_of(*(a_launch(["x"], job) for job in "abc"))
    assert world.problems == ["job c attempt 1: GPU 0 of node 0 is full"]
    world.launch(a_launch(["x"], "a", attempt=2, gpu=1))
    assert world.problems[1:] == ["job a attempt 2: an earlier attempt still runs"]


def test_a_lost_node_takes_only_its_own_jobs() -> None:
    gang = replace(a_launch(["x"], "b"), nodes=(1, 2), gpus=((0,), (0,)))
    world = world_of(a_launch(["x"], "a"), gang)
    world.lose_node(2)
    assert of(all_reports(world))[2:] == [("b", Happened.LOST, 0.0), ("a", Happened.ENDED, 100.0)]


def test_a_last_line_cut_short_never_happened(tmp_path: Path) -> None:
    path = tmp_path / "world"
    world = World(by_command, path=path)
    world.launch(a_launch(["sleep", "5"], "a"))
    world.launch(a_launch(["sleep", "5"], "b"))
    text = path.read_bytes()
    path.write_bytes(text[: text.rindex(b'"b"')])
    again = World(by_command, path=path)
    assert list(again.begun) == [("a", 1)]
    again.launch(a_launch(["true"], "c"))
    for line in path.read_text().splitlines():
        json.loads(line)


@pytest.mark.parametrize(
    ("command", "seconds", "state"),
    [
        (["sleep", "1.5", "2"], 3.5, State.COMPLETED),
        (["sleep", "nan"], 0.0, State.FAILED),
        (["sleep"], 0.0, State.FAILED),
        (["/bin/true"], 0.0, State.COMPLETED),
        (["false"], 0.0, State.FAILED),
        (["python", "train.py"], 60.0, State.COMPLETED),
    ],
)
def test_fates_are_read_from_the_command(command: list[str], seconds: float, state: State) -> None:
    assert by_command(a_launch(command)).work == Work(seconds, state)


def test_eleven_thousand_jobs_cost_little() -> None:
    world = World(lambda launch: JobOutcome(Work(1.0 + len(launch.job_id) % 7)))
    for i in range(11_000):
        world.launch(a_launch(["x"], f"job{i}", gpu=i))
    began = time.process_time()
    reports = all_reports(world, until=100.0)
    assert len(reports) == 22_000
    assert time.process_time() - began < 20, "a guard against a quadratic cost, not a benchmark"
