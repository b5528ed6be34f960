"""A few runs of `benchmarks.chaos`: the service loses nothing, and the harness would notice."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing.sharedctypes import RawValue
from pathlib import Path
from typing import Any

import pytest
import structlog

from benchmarks.chaos import disk, power
from benchmarks.chaos.bench import PLAYED, Bench, give_up, quiet
from benchmarks.chaos.kernel import Host, Kernel
from benchmarks.chaos.run import Plan, Simulation
from benchmarks.mutants import Mutant, mutants
from scheduler.backends.events import Event, Kind
from scheduler.backends.local.backend import LocalBackend
from scheduler.core.waiting import Waiting, WaitingMemory
from scheduler.service.decide import decider, supervisor
from scheduler.service.decide.decider import Decider
from scheduler.service.decide.supervisor import Supervisor
from scheduler.service.log.fold import State
from scheduler.service.log.ledger import REPORTS, TRANSITIONS, Ledger
from scheduler.service.log.record import Phase, Record
from scheduler.service.log.store import leases

long = pytest.mark.skipif(
    not os.environ.keys() & {"PELLUCID_WALKS", "PELLUCID_TEST_DATABASE"},
    reason="half a minute: make walks",
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    before = structlog.get_config()
    quiet()
    url = os.environ.get("PELLUCID_TEST_DATABASE")
    try:
        with Bench(tmp_path_factory.mktemp("chaos"), url) as made:
            yield made
    finally:  # who comes next hears what is logged
        structlog.configure(**before)
        logging.disable(logging.NOTSET)


def test_a_seed_is_one_run(bench: Bench) -> None:
    first, again = bench.play(Plan(11)), bench.play(Plan(11))
    assert first.wrong == []
    assert first.digest == again.digest


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_run_leaves_no_file_open(bench: Bench, seed: int) -> None:
    """Else the hundredth run of one process differs from a first one."""
    bench.play(Plan(seed))
    before = opened()
    bench.play(Plan(seed))
    assert opened() <= before


def test_a_run_leaves_this_process_as_quick_as_it_was(bench: Bench) -> None:
    """Simulated processes lower their priority, not that of the real one."""
    before = os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)
    bench.play(Plan(11))
    assert (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0)) == before


def opened() -> int:
    """Return how many files this process has open."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_real_shared_memory_may_be_collected_during_a_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated process frees it then, and the id of that process is another."""
    shared: list[Any] = [RawValue("d")]
    failed: list[Any] = []
    point = Kernel.point

    def frees(self: Kernel, where: str) -> None:
        shared.clear()
        point(self, where)

    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    monkeypatch.setattr(Kernel, "point", frees)
    bench.play(Plan(11))
    assert (shared, failed) == ([], [])


def test_a_seed_is_one_run_in_every_process() -> None:
    """What a database gives without an order comes otherwise in another process."""
    asked = [sys.executable, "-m", "benchmarks.chaos", "--seed", "1", "--json"]
    told = [subprocess.run(asked, check=True, capture_output=True).stdout for _ in range(3)]
    assert len({json.loads(line)["digest"] for line in told}) == 1


def test_nothing_is_lost_whatever_goes_wrong(bench: Bench) -> None:
    run = bench.play(Plan(1))
    assert run.wrong == []
    assert run.crashes
    there = PLAYED[0].kernel.processes
    assert max(process.ticks for process in there.values()) > len(there)  # ids are used again


def test_a_network_that_fails_costs_nothing(bench: Bench) -> None:
    run = bench.play(Plan(5))
    assert run.wrong == []
    assert run.counts()["partitions"]


def test_in_front_of_slurm_nothing_is_left_behind(bench: Bench) -> None:
    """Seed 15: who took over on another host wrote times before those of the log."""
    run = bench.play(Plan(15, slurm=True))
    assert run.wrong == []
    assert run.crashes


def test_a_run_that_is_given_up_ends_at_its_next_step(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Simulation, "decides", lambda *_: give_up())
    run = bench.play(Plan(3))
    assert run.steps < run.plan.steps / 4
    assert "the run ended early" in run.wrong[0]


def test_nobody_is_started_again_as_a_run_ends() -> None:
    """Seeds 859 and 863: a service that was started again meanwhile ran on for ever."""
    kernel = Kernel(0, most_steps=2000)
    host = Host("host")

    def served() -> None:
        kernel.spawn(kernel.process("one", host), lambda: kernel.sleep(1e6))

    def restarts() -> None:
        while True:
            if not any(one.name == "one" and one.threads for one in kernel.processes.values()):
                served()
            kernel.sleep(0.0)

    kernel.spawn(kernel.process("director", host), lambda: (kernel.sleep(1.0), kernel.stop()))
    served()
    kernel.spawn(kernel.process("nemesis", host), restarts)
    kernel.run()
    assert kernel.clock < 2.0


@pytest.fixture(scope="module")
def calm(bench: Bench) -> list[str]:
    """The crash points of a calm run: the role of who is there, and where that is."""
    assert bench.play(Plan(3, calm=True)).wrong == []
    return PLAYED[0].kernel.trace


@pytest.fixture(scope="module")
def commits(calm: list[str]) -> dict[str, int]:
    """A crash point within a transaction, by the role of who writes."""
    roles = ("api", "analyst", "decider")
    return {role: calm.index(f"{role}: before a commit") + 1 for role in roles}


@pytest.mark.parametrize("where", ["decider: before a pass", "api: after a commit"])
def test_a_process_may_die_at_any_point(bench: Bench, calm: list[str], where: str) -> None:
    run = bench.play(Plan(3, crash_at=(calm.index(where) + 1,), calm=True))
    assert run.wrong == []
    assert run.crashes == {where: 1}


def test_what_was_answered_is_there_after_a_power_cut(bench: Bench, calm: list[str]) -> None:
    run = bench.play(Plan(3, crash_at=(_last_commit(calm),), power=True, calm=True))
    assert run.wrong == []
    assert run.counts()["power_cuts"] == 1


def test_the_harness_notices_who_does_not_wait_for_the_disk(
    bench: Bench, calm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if bench.url is not None:
        pytest.skip("it has a host of its own")
    monkeypatch.setattr(disk, "FULL", 3)  # as if the service had set less
    assert bench.play(Plan(3, crash_at=(_last_commit(calm),), power=True, calm=True)).wrong


def _last_commit(calm: list[str]) -> int:
    """The crash point after the last commit of the API, by when much was answered."""
    return len(calm) - calm[::-1].index("api: after a commit")


@pytest.mark.parametrize("role", ["api", "analyst", "decider"])
def test_who_hangs_in_a_transaction_does_not_hold_up_the_service(
    bench: Bench, commits: dict[str, int], role: str
) -> None:
    """An earlier version let all wait two minutes for any but the decider."""
    run = bench.play(Plan(3, crash_at=(commits[role],), freeze_s=60.0, calm=True))
    assert run.wrong == []
    assert [one["role"] for one in run.history if one["what"] == "frozen"] == [role]


def test_the_harness_notices_who_holds_up_the_service(
    bench: Bench, commits: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    if bench.url is not None:
        pytest.skip("PostgreSQL ends such a transaction itself")
    monkeypatch.setattr(Supervisor, "_kill_who_holds_up", lambda self: None)
    run = bench.play(Plan(3, crash_at=(commits["analyst"],), freeze_s=60.0, calm=True))
    assert any("nobody decided" in line for line in run.wrong)


@long
def test_the_harness_notices_who_acts_before_writing(
    bench: Bench, calm: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Decider, "recover", lambda self: None)
    at = calm.index("decider: before a shim is asked for") + 1
    assert bench.play(Plan(3, crash_at=(at,), calm=True)).wrong


def test_the_harness_notices_a_stop_that_died_with_its_decider(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    recover = Decider.recover

    def forgets(self: Decider) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(State, "stops", lambda _: [])
            recover(self)

    def found(seed: int) -> bool:
        plan = Plan(seed, 3000, calm=True)
        struck = (
            bench.play(replace(plan, crash_at=(n,)))
            for n in bench.points(plan, "decider: before a signal")
        )
        return any("is running in the end" in line for run in struck for line in run.wrong)

    monkeypatch.setattr(Decider, "recover", forgets)
    assert any(map(found, range(2, 10)))


@pytest.mark.parametrize(
    "mutant", [one for one in mutants() if "--strike" in one.chaos], ids=lambda one: one.what
)
def test_what_a_planted_bug_is_found_by_strikes_where_it_says(bench: Bench, mutant: Mutant) -> None:
    if mutant.chaos.endswith("--power") and bench.url is not None:
        pytest.skip("it has a host of its own")
    seeds, *options = shlex.split(mutant.chaos)
    first, _, last = seeds.partition(":")
    where = options[options.index("--strike") + 1]
    plan = Plan(int(first), 3000, calm=True, power="--power" in options)
    if "--freeze" in options:
        plan = replace(plan, freeze_s=float(options[options.index("--freeze") + 1]))
    plans = [replace(plan, seed=seed) for seed in range(plan.seed, int(last or plan.seed + 1))]
    there = ((one, at) for one in plans for at in bench.points(one, where))
    struck, at = next(there, (plan, 0))
    assert at, "nobody comes by"
    run = bench.play(replace(struck, crash_at=(at,)))
    assert run.wrong == []
    frozen = [one["role"] for one in run.history if one["what"] == "frozen"]
    role = where.partition(":")[0]
    assert (run.crashes[where], frozen, run.counts()["power_cuts"]) == (
        int(not plan.power and not plan.freeze_s),
        [role] * bool(plan.freeze_s),
        int(plan.power),
    )


@long
def test_a_backlog_of_a_hundred_thousand_is_decided(bench: Bench) -> None:
    run = bench.play(Plan(1, calm=True, backlog=100_000))
    assert run.wrong == []
    assert not run.crashes


@long
def test_a_decider_that_is_killed_over_a_backlog_for_ever_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service was once so: one pass over all that came, unheard, and silence was death."""
    monkeypatch.setattr(decider, "SLICE", 10**9)
    monkeypatch.setattr(decider.pulse, "heard_by", lambda _: nullcontext())
    monkeypatch.setattr(supervisor.Silence, "look", lambda *_: None)
    monkeypatch.setattr(supervisor, "DOUBLED", 0)
    run = bench.play(Plan(1, calm=True, backlog=100_000))
    assert any("of the backlog were never decided on" in line for line in run.wrong), run.wrong


@long
def test_an_append_that_is_not_fenced_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is frozen for longer than its lease as it is about to write goes on writing."""
    bench.play(Plan(1, calm=True))
    trace = PLAYED[0].kernel.trace
    points = [n for n, where in enumerate(trace, 1) if where.endswith(": before a write")]
    monkeypatch.setattr(leases, "fence", lambda *_: None)
    tried = points[len(points) // 4 :: max(1, len(points) // 12)]
    plans = (Plan(1, calm=True, crash_at=(n,), freeze_s=5.0) for n in tried)
    assert any("was written by" in one for plan in plans for one in bench.play(plan).wrong)


@long
def test_an_end_of_an_earlier_attempt_that_counts_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    matters = Ledger.matters

    def whichever(self: Ledger, event: Event) -> bool:
        record = self.records.get(event.job_id)
        if event.kind in REPORTS and record is not None:
            event = replace(event, body={**event.body, "attempt": record.attempt})
        return matters(self, event)

    monkeypatch.setattr(Ledger, "matters", whichever)
    runs = (bench.play(Plan(seed, 3000)) for seed in range(32, 40))
    assert any("while attempt 2 runs" in one for run in runs for one in run.wrong)


@long
def test_a_hold_that_is_forgotten_after_profiling_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TRANSITIONS, (Phase.PROFILING, Kind.HELD))
    runs = (bench.play(Plan(seed, 3000)) for seed in range(32, 40))
    assert any("was held, and a pass that knew" in one for run in runs for one in run.wrong)


@long
def test_a_cancellation_that_is_lost_as_the_job_starts_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(TRANSITIONS, (Phase.STARTING, Kind.CANCEL_ASKED))
    runs = (bench.play(Plan(seed, 3000)) for seed in range(8))
    assert any("in the end, and not over" in one for run in runs for one in run.wrong)


@long
def test_a_snapshot_that_forgets_who_is_held_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = Waiting.restore

    def forgets(self: Waiting, memory: WaitingMemory) -> None:
        restore(self, replace(memory, held={}))

    monkeypatch.setattr(Waiting, "restore", forgets)
    runs = (bench.play(Plan(seed, 3000)) for seed in range(8))
    assert any("in the end, and not over" in one for run in runs for one in run.wrong)


@long
def test_an_attempt_that_begins_again_on_the_machine_that_replaces_its_own_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def whichever(self: State) -> list[Record]:
        waiting = (record for record in self.ledger.holding.values() if record.waits_to_begin)
        return sorted(waiting, key=lambda record: record.granted)

    monkeypatch.setattr(State, "launches", whichever)
    runs = (bench.play(Plan(seed, 3000)) for seed in range(8))
    assert any(" began 2 times" in one for run in runs for one in run.wrong)


@long
def test_a_launch_that_begins_after_it_was_stopped_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    prevent = LocalBackend._prevent

    def forgets(self: LocalBackend, attempt: Any, claim: Any, why: Any) -> bool:
        return why["reason"] == "barred" or prevent(self, attempt, claim, why)

    monkeypatch.setattr(LocalBackend, "_prevent", forgets)
    runs = (bench.play(Plan(seed, 3000)) for seed in range(8))
    assert any("runs on, and was stopped" in one for run in runs for one in run.wrong)


def test_a_lease_that_is_taken_too_early_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = leases.Watch._silent

    def longer(self: leases.Watch, *args: Any) -> tuple[float, bool]:
        silent_s, known = silent(self, *args)
        return 4.0 * silent_s, known

    monkeypatch.setattr(leases.Watch, "_silent", longer)
    run = bench.play(Plan(1))
    assert any("s after it was renewed, and holds for" in one for one in run.wrong)


def test_what_a_power_cut_takes_does_not_depend_on_inodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 11: who else used the file system made it give out inodes again, and the run another."""
    real = os.fstat
    monkeypatch.setattr("os.fstat", lambda file: _with_inode(real(file), 1))
    unsynced = power.Unsynced()
    waited_for, not_waited_for = tmp_path / "waited-for", tmp_path / "not"
    for path in (waited_for, not_waited_for):
        with path.open("w") as file:
            unsynced.written(file.fileno())
            file.write("written")
            file.flush()
            if path is waited_for:
                unsynced.synced(file.fileno())
    unsynced.cut(random.Random(1))
    assert (waited_for.read_text(), not_waited_for.read_text()) == ("written", "")
    assert unsynced.lost == {"content": 1}


def _with_inode(found: os.stat_result, inode: int) -> os.stat_result:
    return os.stat_result((found.st_mode, inode, *found[2:]))
