"""The rules that every backend must keep, as tests. Subclass `BackendContract` and give it a
`Site`:

class TestMine(BackendContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[Site]: ...

A site is what lies outside the service: dropping a backend and opening another on the same site is
what a crash of the service looks like.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Protocol

import pytest

from features.states import State
from scheduler.backends.base import Backend, Happened, Launch, Purpose, Report
from scheduler.backends.simulated import JobOutcome, SimulatedBackend, World
from scheduler.simulation.work import Work


class Does(StrEnum):
    """What the commands of the test suite do."""

    ENDS = "ends"  # at once, with exit code 0
    FAILS = "fails"  # at once, with exit code 3
    DIES = "dies"  # at once, of SIGSEGV
    STAYS = "stays"  # for far longer than any test
    GROWS = "grows"  # past MEMORY_MIB, and stays
    IS_NOT = "is not"  # there is no such command


MEMORY_MIB = 48.0


class Site(Protocol):
    """What lies outside a backend and outlives it, such as a host with its processes.

    Attributes:
        short_s: a time limit that is soon over, seconds on the backend's clock.
        step_s: seconds for which to wait for reports at a time.
        nodes: numbers of the nodes on which a gang (a job on several nodes) may run.
    """

    short_s: float
    step_s: float

    def open(self) -> Backend:
        """Return a backend as the service opens it. The backend opened before was dropped without
        being closed.
        """
        ...

    def command(self, does: Does) -> tuple[str, ...]: ...

    def begins(self, job_id: str) -> int:
        """Return how often the command of a job really began."""
        ...

    def lose(self, job_id: str) -> None:
        """Destroy the processes of a job, and all knowledge of how the job ended."""
        ...


def outcome_of(launch: Launch) -> JobOutcome:
    """Return the outcome of one of the suite's commands."""
    match Does(launch.command[0]):
        case Does.ENDS:
            return JobOutcome(Work(0.5))
        case Does.FAILS:
            return JobOutcome(Work(0.5, State.FAILED), exit_code=3)
        case Does.DIES:
            return JobOutcome(Work(0.5, State.FAILED), exit_code=139)
        case Does.GROWS:
            return JobOutcome(Work(1e6), memory_mib=1000.0)
        case Does.IS_NOT:
            return JobOutcome(Work(0.0), refused="command not found")
        case Does.STAYS:
            return JobOutcome(Work(1e6))


class SimulatedSite:
    """A simulated world, without processes, that is handed from one backend to the next."""

    short_s, step_s = 10.0, 5.0

    def __init__(self) -> None:
        self.world = World(outcome_of)

    def open(self) -> Backend:
        return SimulatedBackend(self.world)

    def command(self, does: Does) -> tuple[str, ...]:
        return (does.value,)

    def begins(self, job_id: str) -> int:
        return sum(job == job_id for job, _ in self.world.begun)

    def lose(self, job_id: str) -> None:
        self.world.lose_node(0)


def a_launch(command: Sequence[str], job_id: str = "a", attempt: int = 1, gpu: int = 0) -> Launch:
    return Launch(
        job_id=job_id,
        attempt=attempt,
        purpose=Purpose.RUN,
        command=tuple(command),
        nodes=(0,),
        gpus=((gpu,),),
    )


def hear(backend: Backend, site: Site, count: int = 1, tries: int = 1200) -> list[Report]:
    """Wait until `count` attempts have ended. Acknowledge all reports but the last ones of
    attempts. Return all reports. Raise AssertionError after `tries` waits.
    """
    found: list[Report] = []
    for _ in range(tries):
        reports = list(backend.reports(site.step_s))
        if sum(r.what.final for r in reports) >= count:
            return found + reports
        backend.acknowledge(under_way := [r for r in reports if not r.what.final])
        found += under_way
    raise AssertionError(f"no end within {tries} looks: {found} {backend.reports(0)}")


def await_start(backend: Backend, site: Site, job_id: str = "a") -> Report:
    for _ in range(12_000):
        for report in backend.reports(site.step_s):
            if report.job_id == job_id and report.what is Happened.STARTED:
                return report
        time.sleep(0.01)  # what is not acknowledged is sent again at once
    raise AssertionError("it did not start")


def last(reports: Sequence[Report]) -> Report:
    (report,) = [r for r in reports if r.what.final]
    return report


def could_begin(report: Report) -> set[int]:
    """Return how often a command may have begun, by the last report of its attempt."""
    if report.what is Happened.NOT_STARTED:
        return {0}
    # one that was stopped may not have come to say so
    return {0, 1} if report.state is State.CANCELLED else {1}


class BackendContract:
    """The contract of a backend, as tests.

    Attributes:
        seeds: number of random histories that are tried.
    """

    seeds = 3

    # --- how it ends --------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("does", "state", "code"),
        [
            (Does.ENDS, State.COMPLETED, 0),
            (Does.FAILS, State.FAILED, 3),
            (Does.DIES, State.FAILED, 128 + 11),
        ],
    )
    def test_an_end_is_reported_with_its_exit_code(
        self, site: Site, does: Does, state: State, code: int
    ) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(does)))
        started, ended = hear(backend, site)
        assert (started.what, ended.what) == (Happened.STARTED, Happened.ENDED)
        assert (ended.job_id, ended.attempt) == ("a", 1)
        assert (ended.state, ended.exit_code) == (state, code)
        assert ended.at >= started.at
        assert ended.ran_s is not None
        assert ended.ran_s >= 0
        assert ended.profile is None
        assert ended.detail or code == 0, "a failure says something"

    def test_the_time_limit_is_kept(self, site: Site) -> None:
        backend = site.open()
        launch = replace(a_launch(site.command(Does.STAYS)), time_limit_s=site.short_s)
        backend.launch(launch)
        ended = last(hear(backend, site))
        assert (ended.what, ended.state) == (Happened.ENDED, State.TIMEOUT)
        assert ended.ran_s is not None
        assert ended.ran_s >= 0.9 * site.short_s

    def test_the_memory_limit_is_kept(self, site: Site) -> None:
        backend = site.open()
        backend.launch(replace(a_launch(site.command(Does.GROWS)), memory_mib=MEMORY_MIB))
        ended = last(hear(backend, site))
        assert (ended.what, ended.state) == (Happened.ENDED, State.OUT_OF_MEMORY)

    def test_what_cannot_start_is_reported_once_and_has_not_begun(self, site: Site) -> None:
        backend = site.open()
        launch = a_launch(site.command(Does.IS_NOT))
        backend.launch(launch)
        backend.launch(launch)
        (report,) = hear(backend, site)
        assert report.what is Happened.NOT_STARTED
        assert report.detail
        assert site.begins("a") == 0

    def test_a_gang_is_one_attempt(self, site: Site) -> None:
        backend = site.open()
        gang = replace(a_launch(site.command(Does.ENDS)), nodes=(0, 1), gpus=((0, 1), (0,)))
        backend.launch(gang)
        reports = hear(backend, site)
        assert [r.what for r in reports] == [Happened.STARTED, Happened.ENDED]
        assert site.begins("a") == 1

    def test_a_job_on_some_of_the_gpus_of_a_wider_one_ends_without_it(self, site: Site) -> None:
        backend = site.open()
        wide = a_launch(site.command(Does.STAYS), "wide")
        backend.launch(replace(wide, nodes=(0, 1), gpus=((0, 1), (0,))))
        await_start(backend, site, "wide")
        narrow = a_launch(site.command(Does.ENDS), "narrow", gpu=1)
        backend.launch(replace(narrow, partner="wide"))
        ended = last(hear(backend, site))
        assert (ended.job_id, ended.state) == ("narrow", State.COMPLETED)
        backend.acknowledge([ended])
        backend.stop("wide", 1)
        ended = last(hear(backend, site))
        assert (ended.job_id, ended.state) == ("wide", State.CANCELLED)

    def test_what_was_lost_is_reported(self, site: Site) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.STAYS)))
        await_start(backend, site)
        site.lose("a")
        assert last(hear(backend, site)).what is Happened.LOST

    def test_what_was_lost_while_nobody_looked_is_reported(self, site: Site) -> None:
        first = site.open()
        first.launch(a_launch(site.command(Does.STAYS)))
        await_start(first, site)
        site.lose("a")
        assert last(hear(site.open(), site)).what is Happened.LOST

    # --- at most once -------------------------------------------------------------------------

    def test_launching_again_changes_nothing(self, site: Site) -> None:
        backend = site.open()
        launch = a_launch(site.command(Does.ENDS))
        for _ in range(3):
            backend.launch(launch)
        reports = hear(backend, site)
        backend.launch(launch)
        backend.acknowledge(reports)
        backend.launch(launch)
        assert list(backend.reports(site.short_s)) == []
        again = site.open()
        again.launch(launch)
        assert list(again.reports(site.short_s)) == []
        assert site.begins("a") == 1

    def test_attempts_are_distinct(self, site: Site) -> None:
        backend = site.open()
        for attempt in (1, 2):
            backend.launch(a_launch(site.command(Does.FAILS), attempt=attempt))
            ended = last(reports := hear(backend, site))
            assert ended.attempt == attempt
            backend.acknowledge(reports)
        assert site.begins("a") == 2
        assert backend.begun() >= {("a", 1), ("a", 2)}

    def test_stopping_ends_it_and_stopping_again_changes_nothing(self, site: Site) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.STAYS)))
        await_start(backend, site)
        backend.stop("a", 1)
        backend.stop("a", 1)
        ended = last(reports := hear(backend, site))
        assert (ended.what, ended.state) == (Happened.ENDED, State.CANCELLED)
        backend.acknowledge(reports)
        backend.stop("a", 1)
        assert list(backend.reports(site.short_s)) == []

    def test_stopping_what_is_over_leaves_it_as_it_ended(self, site: Site) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.FAILS)))
        backend.acknowledge([await_start(backend, site)])
        before = hear(backend, site)
        backend.stop("a", 1)
        assert list(backend.reports(site.short_s)) == before

    def test_stopping_another_attempt_leaves_this_one_alone(self, site: Site) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.STAYS), attempt=2))
        await_start(backend, site)
        backend.stop("a", 1)
        report = last(reports := hear(backend, site))
        assert (report.attempt, report.what) == (1, Happened.NOT_STARTED)
        backend.acknowledge(reports)
        assert list(backend.reports(site.short_s)) == []
        backend.stop("a", 2)
        assert last(hear(backend, site)).state is State.CANCELLED

    def test_a_stop_before_the_launch_prevents_it(self, site: Site) -> None:
        backend = site.open()
        backend.stop("a", 1)
        backend.launch(a_launch(site.command(Does.ENDS)))
        (report,) = hear(backend, site)
        assert (report.what, report.state) == (Happened.NOT_STARTED, State.CANCELLED)
        again = site.open()
        again.launch(a_launch(site.command(Does.ENDS)))
        assert [r.what for r in hear(again, site)] == [Happened.NOT_STARTED]
        assert ("a", 1) not in again.begun()
        assert site.begins("a") == 0

    def test_a_stop_right_after_the_launch_ends_it_or_prevents_it(self, site: Site) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.STAYS)))
        backend.stop("a", 1)
        report = last(hear(backend, site))
        assert report.what in (Happened.ENDED, Happened.NOT_STARTED)
        assert report.state is State.CANCELLED

    # --- reported until acknowledged, whoever asks --------------------------------------------

    def test_reports_are_repeated_until_they_are_acknowledged(self, site: Site) -> None:
        backend = site.open()
        backend.launch(a_launch(site.command(Does.ENDS)))
        started = await_start(backend, site)
        assert started in backend.reports(0)
        backend.acknowledge([started])
        (ended,) = hear(backend, site)
        assert ended.what is Happened.ENDED
        assert list(backend.reports(0)) == [ended]
        backend.acknowledge([ended])
        backend.acknowledge([started, ended])
        assert list(backend.reports(0)) == []

    def test_an_end_is_not_forgotten_by_a_crash(self, site: Site) -> None:
        first = site.open()
        first.launch(a_launch(site.command(Does.FAILS)))
        before = last(hear(first, site))
        again = site.open()
        after = last(hear(again, site))
        assert (after.what, after.state, after.exit_code) == (
            before.what,
            before.state,
            before.exit_code,
        )
        # one is when the end was seen, the other when it was written: a busy machine is slow
        assert after.at == pytest.approx(before.at, abs=30.0)
        again.acknowledge(hear(again, site))
        assert list(site.open().reports(site.short_s)) == []

    def test_what_ran_through_a_crash_is_found_again(self, site: Site) -> None:
        first = site.open()
        first.launch(a_launch(site.command(Does.STAYS)))
        first.acknowledge([await_start(first, site)])
        again = site.open()
        assert ("a", 1) in again.begun()
        again.launch(a_launch(site.command(Does.STAYS)))
        assert list(again.reports(0)) == [], "its start was acknowledged"
        again.stop("a", 1)
        assert last(hear(again, site)).state is State.CANCELLED
        assert site.begins("a") <= 1

    def test_an_end_during_the_crash_is_reported(self, site: Site) -> None:
        first = site.open()
        launch = replace(a_launch(site.command(Does.STAYS)), time_limit_s=site.short_s)
        first.launch(launch)
        await_start(first, site)
        again = site.open()
        assert last(hear(again, site)).state is State.TIMEOUT

    def test_begun_lists_what_began(self, site: Site) -> None:
        backend = site.open()
        assert backend.begun() == frozenset()
        backend.launch(a_launch(site.command(Does.ENDS), "a"))
        backend.launch(a_launch(site.command(Does.STAYS), "b", gpu=1))
        await_start(backend, site, "b")
        hear(backend, site)
        assert site.open().begun() == {("a", 1), ("b", 1)}

    def test_the_clock_never_goes_back(self, site: Site) -> None:
        backend = site.open()
        seen = [backend.now()]
        for does in (Does.ENDS, Does.FAILS):
            backend.launch(a_launch(site.command(does), does.value))
            reports = hear(backend, site)
            seen += [r.at for r in reports]
            seen.append(backend.now())
            backend.acknowledge(reports)
            backend = site.open()
            seen.append(backend.now())
        assert seen == sorted(seen)

    # --- all of it at random ------------------------------------------------------------------

    def test_whatever_is_asked_in_any_order_each_attempt_is_over_once(self, site: Site) -> None:
        for seed in range(self.seeds):
            self.at_random(site, seed)

    def at_random(self, site: Site, seed: int) -> None:
        source = random.Random(seed)
        does = {f"{seed}job{i}": source.choice(list(Does)) for i in range(8)}
        finals: dict[tuple[str, int], Report] = {}
        named: set[tuple[str, int]] = set()
        backend = site.open()
        for _ in range(40):
            job = source.choice(list(does))
            match source.randint(0, 9):
                case 0:
                    backend = site.open()
                case 1 | 2:
                    backend.stop(job, 1)
                    named.add((job, 1))
                case 3 | 4:
                    self._listen(backend, site, source, finals)
                case _:
                    gpu = int(job[-1]) // 2
                    launch = a_launch(site.command(does[job]), job, gpu=gpu)
                    backend.launch(replace(launch, memory_mib=MEMORY_MIB))
                    named.add((job, 1))
        backend = site.open()
        for job, attempt in named:
            backend.stop(job, attempt)
        for _ in range(500):
            if named <= finals.keys():
                break
            self._listen(backend, site, source, finals)
        assert finals.keys() == named, f"seed {seed}"
        for (job, _), report in finals.items():
            assert site.begins(job) in could_begin(report), (seed, job, does[job], report)

    def _listen(
        self,
        backend: Backend,
        site: Site,
        source: random.Random,
        finals: dict[tuple[str, int], Report],
    ) -> None:
        """Acknowledge a random part of the reports. Add the last reports of attempts among them to
        `finals`, by (job id, attempt).
        """
        reports = list(backend.reports(site.step_s / 10))
        some = source.sample(reports, source.randint(0, len(reports)))
        for report in some:
            if report.what.final:
                key = report.job_id, report.attempt
                assert key not in finals, "reported again after it was acknowledged"
                finals[key] = report
        backend.acknowledge(some)
