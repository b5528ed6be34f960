"""The decider: from a submission to an end, and whatever comes between."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from features.clock import Clock
from scheduler.assembly import CoreSpec
from scheduler.backends.base import Launch
from scheduler.backends.events import Event, Kind
from scheduler.backends.simulated import JobOutcome, SimulatedBackend
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.decisions import Reason
from scheduler.core.settings import InvalidSettings, ProfilingPartition
from scheduler.service.decide import decider as deciders
from scheduler.service.log.audit import audit
from scheduler.service.log.header import LogHeader, LogHeaderError, establish
from scheduler.service.log.store.leases import LeaseLost
from scheduler.service.log.store.store import Store
from scheduler.simulation.work import Work
from tests.scheduler.service.desk import CLUSTER, START, Desk


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path)


def clean(desk: Desk) -> bool:
    return audit(desk.store, desk.bundle_store.find, decide_again=True).divergences == []


def test_a_line_of_the_log_leads_to_the_event_behind_it(store: Store, tmp_path: Path) -> None:
    with capture_logs() as lines:
        desk = Desk(store, tmp_path)
        desk.submit("a")
        desk.until_idle()
    events = {event.seq: event for event in store.read()}
    [launch] = [line for line in lines if line["event"] == "launch"]
    assert (launch["job"], launch["attempt"], launch["holder"]) == ("a", 1, desk.decider.holder)
    assert events[launch["cause"]].kind is Kind.DECIDED
    told = [line for line in lines if line["event"] in ("started", "ended")]
    assert [line["event"] for line in told] == ["started", "ended"]
    for line in told:
        event = events[line["seq"]]
        assert (str(event.kind), event.job_id) == (line["event"], line["job"])
    passes = [line for line in lines if line["event"] == "decided"]
    assert passes
    assert all(events[line["seq"]].cause == line["cause"] for line in passes)


PARTITION = ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=30.0, max_gpus=4)


class TestPhases:
    def test_a_job_runs_and_ends(self, desk: Desk) -> None:
        desk.submit("a", gpus=2)
        assert desk.phase("a") == "submitted"
        desk.turn()
        row = desk.row("a")
        assert (row.phase, row.attempt, row.nodes) == ("starting", 1, "[[0,[0,1]]]")
        desk.turn()
        assert desk.phase("a") == "running"
        desk.turn(100.0)
        row = desk.row("a")
        assert (row.phase, row.state, row.exit_code) == ("ended", "completed", 0)
        assert (row.started_at, row.ended_at) == (START, START + 60.0)
        assert row.nodes == "[]"
        assert desk.kinds("a") == ["submitted", "started", "ended"]
        assert clean(desk)

    def test_its_limits_go_along_with_it(self, desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        sent, launch = list[Launch](), SimulatedBackend.launch

        def noted(self: SimulatedBackend, asked: Launch) -> None:
            sent.append(asked)
            launch(self, asked)

        monkeypatch.setattr(SimulatedBackend, "launch", noted)
        desk.submit("a", time_limit_s=7.0, memory_mib=512.0)
        desk.turn()
        assert [(one.time_limit_s, one.memory_mib, one.limit_s) for one in sent] == [
            (7.0, 512.0, None)
        ]

    def test_one_that_does_not_fit_is_queued_with_a_reason(self, desk: Desk) -> None:
        desk.submit("a", gpus=8)
        desk.submit("b")
        desk.turn()
        row = desk.row("b")
        assert (row.phase, row.reason) == ("queued", Reason.GPUS_BUSY)
        assert row.queued_at == START
        desk.until_idle()
        assert desk.row("b").started_at == START + 60.0

    def test_one_that_can_never_run_is_refused(self, desk: Desk) -> None:
        desk.submit("large", gpus=9)
        desk.submit("elsewhere", vc="none")
        desk.submit("other_type", gpu_type="A100")
        desk.submit("right_type", gpu_type="v100")
        desk.turn()
        assert [desk.row(j).reason for j in ("large", "elsewhere", "other_type")] == [
            Reason.INVALID_REQUEST,
            Reason.INVALID_REQUEST,
            Reason.NO_MATCHING_GPU_TYPE,
        ]
        assert desk.phase("large") == "refused"
        assert "GPU type" in desk.row("other_type").detail
        assert desk.phase("right_type") == "starting"

    def test_profiling_is_a_phase_of_its_own(self, store: Store, tmp_path: Path) -> None:
        desk = Desk(store, tmp_path, policy="lucid", partition=PARTITION)
        desk.submit("a")
        desk.submit("b", gpus=4)
        desk.submit("opted_out", profile=False)
        desk.turn()
        assert [desk.phase(j) for j in ("a", "b", "opted_out")] == [
            "profiling",
            "submitted",
            "starting",
        ]
        assert desk.row("b").reason == Reason.AWAITING_PROFILE
        desk.until_idle()
        assert desk.kinds("a") == ["submitted", "started", "profiled", "started", "ended"]
        assert desk.row("a").attempt == 2
        assert clean(desk)

    def test_one_that_cannot_be_started_fails_and_teaches_nothing(
        self, store: Store, tmp_path: Path
    ) -> None:
        refused = JobOutcome(Work(1.0), refused="no such command")
        desk = Desk(store, tmp_path, {"a": refused})
        desk.submit("a")
        desk.until_idle()
        row = desk.row("a")
        assert (row.phase, row.state, row.detail) == ("ended", "failed", "no such command")
        assert row.reason == Reason.NOT_STARTED
        assert clean(desk)

    def test_one_that_is_lost_is_not_run_again(self, desk: Desk) -> None:
        desk.submit("a")
        desk.turn()
        desk.world.lose_node(0)
        desk.until_idle()
        row = desk.row("a")
        assert (row.phase, row.state, row.attempt) == ("lost", "node_fail", 1)
        assert row.reason == Reason.LOST


class TestCancel:
    def test_before_anybody_looked(self, desk: Desk) -> None:
        desk.submit("a")
        desk.cancel("a")
        desk.turn()
        row = desk.row("a")
        assert (row.phase, row.state, row.attempt) == ("cancelled", "cancelled", 0)
        assert not desk.world.begun
        assert clean(desk)

    def test_while_queued_lets_the_next_go(self, desk: Desk) -> None:
        desk.submit("a", gpus=4)
        desk.submit("b", gpus=8)
        desk.submit("c", gpus=4)
        desk.turn()
        assert desk.phase("c") == "queued"
        desk.cancel("b")
        desk.turn()
        assert (desk.phase("b"), desk.row("b").reason) == ("cancelled", Reason.CANCELLED)
        assert desk.phase("c") == "starting"

    def test_while_being_profiled_it_does_not_come_back(self, store: Store, tmp_path: Path) -> None:
        desk = Desk(store, tmp_path, policy="lucid", partition=PARTITION)
        desk.submit("a")
        desk.turn()
        desk.cancel("a")
        desk.until_idle()
        assert (desk.phase("a"), desk.row("a").attempt) == ("cancelled", 1)

    def test_while_running_stops_it(self, desk: Desk) -> None:
        desk.submit("a")
        desk.turn()
        desk.turn(20.0)
        desk.cancel("a")
        desk.turn()
        assert desk.row("a").cancel_asked
        desk.turn()
        row = desk.row("a")
        assert (row.phase, row.state) == ("cancelled", "cancelled")
        assert row.ended_at < START + 60.0


class TestRestart:
    def test_it_goes_on_where_it_was(self, desk: Desk) -> None:
        for i in range(6):
            desk.submit(f"job{i}", gpus=4)
            desk.turn(10.0)
            desk.restart()
        desk.until_idle()
        assert all(desk.phase(f"job{i}") == "ended" for i in range(6))
        assert len(desk.world.begun) == 6
        assert not desk.world.problems
        assert clean(desk)

    def test_what_the_backend_forgot_is_lost(self, desk: Desk) -> None:
        desk.submit("a")
        desk.turn()
        desk.turn()
        desk.world.begun.clear()
        desk.restart()
        desk.turn()
        assert desk.phase("a") == "lost"

    @pytest.mark.parametrize(("ran", "phase"), [(True, "ended"), (False, "lost")])
    def test_what_was_reported_and_no_pass_knows_is_not_begun_again(
        self, desk: Desk, ran: bool, phase: str
    ) -> None:
        desk.submit("a")
        desk.turn()
        reports = [Event(Kind.STARTED, START, "a", body={"attempt": 1})]
        if ran:
            body = {"attempt": 1, "state": "completed", "ran_s": 60.0, "exit_code": 0}
            reports.append(Event(Kind.ENDED, START + 60.0, "a", body=body))
        desk.store.append(reports)
        desk.world.begun.clear()  # a power cut: what the backend had on disk is gone
        desk.restart()
        desk.until_idle()
        assert desk.phase("a") == phase
        assert not desk.world.begun
        assert desk.kinds("a").count("lost") == (not ran)
        assert clean(desk)

    def test_what_was_decided_and_not_begun_begins_and_is_not_lost(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk.submit("a")
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedBackend, "launch", lambda *_: None)
            desk.turn()
        assert not desk.world.begun
        desk.restart()
        desk.until_idle()
        assert desk.phase("a") == "ended"
        assert list(desk.world.begun) == [("a", 1)]

    def test_a_stop_that_was_not_carried_out_is_repeated(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk.submit("a")
        desk.turn()
        desk.turn(1.0)
        desk.cancel("a")
        with monkeypatch.context() as patch:
            patch.setattr(SimulatedBackend, "stop", lambda *_: None)
            desk.turn()
        desk.restart()
        desk.turn()
        assert desk.phase("a") == "cancelled"

    def test_one_that_was_replaced_can_do_nothing(self, desk: Desk) -> None:
        desk.submit("a")
        old = desk.decider
        desk.restart()
        with pytest.raises(LeaseLost):
            old.turn(0.0)
        desk.until_idle()
        assert clean(desk)

    def test_a_time_of_day_that_is_set_back_is_in_the_log_once(self, desk: Desk) -> None:
        since_boot = [0.0]
        desk.store.clock = desk.decider.clock = Clock(lambda: desk.wall, lambda: since_boot[0])
        desk.turn()
        desk.wall -= 3600.0
        for _ in range(3):
            desk.turn()
        [event] = desk.store.read(kinds=[Kind.CLOCK_WENT_BACK])
        assert event.body == {"by_s": 3600.0}
        since_boot[0] += 80_000.0
        desk.wall += 80_000.0
        desk.turn()
        desk.wall -= 5.0
        desk.turn()
        assert len(desk.store.read(kinds=[Kind.CLOCK_WENT_BACK])) == 2
        assert clean(desk)

    def test_a_time_of_day_that_is_set_far_forward_is_said_once(self, desk: Desk) -> None:
        since_boot = [0.0]
        clock = Clock(lambda: desk.wall, lambda: since_boot[0])
        desk.store.clock = desk.decider.clock = clock
        desk.decider._clock_seen = clock.now(), clock.monotonic()
        with capture_logs() as said:
            for step_s in (0.0, 60.0, 30 * 86400.0, 0.0):
                desk.wall += step_s
                desk.turn()
            since_boot[0] += 80_000.0
            desk.wall += 80_000.0
            desk.turn()
        told = [line["by_s"] for line in said if line["event"] == "clock_went_forward"]
        assert told == [30 * 86400.0]


class Died(Exception):
    """In the middle of a turn."""


class TestOrder:
    """First the log, with its tables; then the world."""

    def dies_as(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: Kind, *, written: bool = False
    ) -> None:
        """Let one turn die as it is to write an event of this kind, or has just written it."""
        append = desk.store.append

        def dying(new: Sequence[Event], *args: Any, **more: Any) -> list[Event]:
            dies = any(event.kind is kind for event in new)
            if dies and written:
                append(new, *args, **more)
            if dies:
                raise Died
            return append(new, *args, **more)

        with monkeypatch.context() as patch:
            patch.setattr(desk.store, "append", dying)
            with pytest.raises(Died):
                desk.until_idle()

    def test_nothing_begins_that_is_not_in_the_log(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        desk.submit("a")
        self.dies_as(desk, monkeypatch, Kind.DECIDED)
        assert not desk.world.begun
        desk.restart()
        desk.until_idle()
        assert list(desk.world.begun) == [("a", 1)]

    @pytest.mark.parametrize(
        ("kind", "written"),
        [(Kind.STARTED, False), (Kind.ENDED, False), (Kind.STARTED, True), (Kind.ENDED, True)],
    )
    def test_a_report_is_acknowledged_once_it_is_in_the_log(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch, kind: Kind, written: bool
    ) -> None:
        desk.submit("a")
        self.dies_as(desk, monkeypatch, kind, written=written)
        desk.restart()
        desk.until_idle()
        again = ["started"] if written and kind is Kind.STARTED else []
        assert desk.kinds("a") == ["submitted", "started", *again, "ended"]
        assert desk.phase("a") == "ended"

    def test_a_pass_is_in_the_log_and_in_the_tables_or_in_neither(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def dies(*_: Any, **__: Any) -> None:
            raise Died

        desk.submit("a")
        with monkeypatch.context() as patch:
            patch.setattr(deciders, "write_pass", dies)
            with pytest.raises(Died):
                desk.turn()
        assert desk.store.read(kinds=[Kind.DECIDED]) == []
        desk.restart()
        desk.until_idle()
        assert clean(desk)

    def test_what_is_asked_for_while_a_pass_is_made_is_in_the_next(
        self, desk: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        append = desk.store.append

        def slow(new: Sequence[Event], *args: Any, **more: Any) -> list[Event]:
            if any(event.kind is Kind.DECIDED for event in new):
                monkeypatch.undo()
                desk.submit("b")
            return append(new, *args, **more)

        desk.submit("a")
        monkeypatch.setattr(desk.store, "append", slow)
        desk.turn()
        assert (desk.phase("a"), desk.phase("b")) == ("starting", "submitted")
        desk.turn()
        assert desk.phase("b") == "starting"
        assert clean(desk)


class TestLogHeader:
    def test_what_an_earlier_version_wrote_down_and_nothing_reads_any_more_is_left_out(
        self,
    ) -> None:
        body = LogHeader(CoreSpec.of(ClusterSpec({"vc": 1}, 4), "pellucid"), 0.0).body()
        with pytest.raises(InvalidSettings, match="requeue: no such setting"):
            LogHeader.from_body({**body, "settings": {"requeue": {"after_s": 60.0}}})
        asked = Submission(job_id="j", command=("train",), owner="ann", vc="vc", submitted_at=0.0)
        gone = {"resumable": True, "checkpoint_s": 30.0}
        assert Submission.from_body({**asked.body(), **gone}) == asked

    def test_another_backend_is_refused(self, desk: Desk) -> None:
        with pytest.raises(LogHeaderError, match="when this database was made"):
            establish(desk.store, LogHeader(CoreSpec.of(CLUSTER, "fifo"), START, backend="local"))

    def test_the_same_goes_on(self, desk: Desk) -> None:
        again = LogHeader(CoreSpec.of(CLUSTER, "fifo"), START + 9.0, backend="simulated")
        assert establish(desk.store, again).start == START

    @pytest.mark.parametrize("policy", ["sjf", "srtf", "tiresias"])
    def test_a_policy_that_cannot_be_lived_with_is_refused(self, policy: str) -> None:
        with pytest.raises(LogHeaderError, match="a service cannot run it"):
            LogHeader(CoreSpec.of(CLUSTER, policy), START)


def test_a_cancelled_or_lost_job_teaches_no_duration(desk: Desk) -> None:
    desk.submit("a", gpus=8)
    desk.submit("b")
    desk.turn()
    learned = []
    estimator = desk.decider.state.core.estimator
    estimator.ended = lambda *given: learned.append(given)  # type: ignore[method-assign]
    desk.cancel("b")
    desk.world.lose_node(0)
    desk.until_idle()
    assert learned == []


def test_an_earlier_wake_is_kept_and_a_later_one_gives_way(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, asked = desk.decider.state, [START + 50.0]
    monkeypatch.setattr(state.core, "next_wake", lambda now: asked[0])
    state.wake_at = START + 10.0
    state.take(state.seen, START)
    assert state.wake_at == START + 10.0
    asked[0] = START + 5.0
    state.take(state.seen, START)
    assert state.wake_at == START + 5.0


def test_what_a_job_wrote_last_is_not_in_the_services_log() -> None:
    body = {"attempt": 1, "state": "failed", "exit_code": 1, "detail": "token=abc"}
    ended = Event(Kind.ENDED, START, "a", body=body)
    assert deciders._shown(ended) == {"attempt": 1, "state": "failed", "exit_code": 1}
    lost = Event(Kind.LOST, START, "a", body={"attempt": 1, "detail": "not to be found"})
    assert deciders._shown(lost)["detail"] == "not to be found"


def test_a_backend_is_closed_where_the_lease_cannot_be_taken_for_a_full_disk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[SimulatedBackend] = []
    closed: list[SimulatedBackend] = []
    monkeypatch.setattr(SimulatedBackend, "close", lambda backend: closed.append(backend))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def opens() -> SimulatedBackend:
        opened.append(SimulatedBackend(desk.world))
        return opened[-1]

    desk.wall += 60.0
    other = desk.another("two")
    monkeypatch.setattr(other, "_open_backend", opens)
    with monkeypatch.context() as patch:
        patch.setattr(desk.store, "take", full)
        with pytest.raises(OSError, match="No space"):
            other.take_over()
    assert closed == opened, "else it waits for its own lock when it opens it again"
    assert other.take_over()
