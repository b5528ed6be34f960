"""The process that foresees, on a database beside a decider and a simulated backend."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select

from features.codec import decode
from scheduler.backends.events import Event, Kind, canonical
from scheduler.backends.simulated import by_command
from scheduler.core.cluster import ClusterSpec
from scheduler.core.durations import seconds_of
from scheduler.core.settings import ProfilingPartition
from scheduler.explain.answer import Analysis
from scheduler.explain.render import dominant, in_the_way
from scheduler.explain.whatif.forecasts import Futures, StartForecast, WhyNot
from scheduler.explain.whatif.futures import Future
from scheduler.explain.words import ForecastKind, clock_time
from scheduler.service.analyst import process
from scheduler.service.analyst.process import LEASE, Analyst
from scheduler.service.log import fold
from scheduler.service.log.record import Phase
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import forecasts, questions
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from tests.scheduler.service.desk import Desk

RESTS = process.CPU_SHARE  # before `analysts_do_not_rest`


class Service(Desk):
    """A service on nodes of four GPUs, and its analyst; its time is passed by hand."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        policy: str = "fifo-skip",
        *,
        nodes: int = 1,
        partition: ProfilingPartition | None = None,
    ):
        cluster = ClusterSpec({"vc": nodes}, 4)
        super().__init__(
            store, folder, by_command, start=0.0, policy=policy, cluster=cluster,
            partition=partition,
        )  # fmt: skip
        self.asked = count()
        self.analyst = self.an_analyst("one")
        assert self.analyst.take_over()

    def an_analyst(self, holder: str) -> Analyst:
        return Analyst(
            self.store,
            self.bundle_store,
            holder=holder,
            samples=12,
            refresh_s=0.0,
            budget_s=30.0,
        )

    def add(self, job_id: str, seconds: int, gpus: int = 4, owner: str = "ann") -> None:
        self.submit(job_id, gpus=gpus, owner=owner, command=("sleep", str(seconds)))

    def decide(self, *, seconds: float = 0.0) -> None:
        """Let time pass, and the decider take its passes."""
        self.wall = self.world.now() + seconds
        while self.world.now() < self.wall:
            self.decider.turn(self.wall - self.world.now())
        self.decider.turn(0.0)
        self.decider.turn(0.0)

    def put(self, kind: str, **body: Any) -> str:
        asked = f"{kind} {next(self.asked)}"
        with self.store.writing() as connection:
            connection.execute(
                insert(questions).values(
                    id=asked, asked_at=self.wall, kind=kind, body=canonical(body)
                )
            )
        return asked

    def ask(self, kind: str, **body: Any) -> dict[str, Any]:
        asked = self.put(kind, **body)
        self.analyst.turn()
        with self.store.reading() as connection:
            row = connection.execute(select(questions).where(questions.c.id == asked)).one()
        assert row.answered_at is not None
        return dict(json.loads(row.answer))

    def forecast(self, job_id: str, basis: str) -> Any:
        with self.store.reading() as connection:
            query = select(forecasts).where(
                forecasts.c.job_id == job_id, forecasts.c.basis == basis
            )
            return connection.execute(query).one_or_none()


@pytest.fixture
def service(store: Store, tmp_path: Path) -> Service:
    return Service(store, tmp_path)


@pytest.fixture
def two(service: Service) -> Service:
    """One job runs, another waits for its GPUs."""
    service.add("first", 600)
    service.add("second", 600)
    service.analyst.turn()
    assert service.forecast("first", "submission") is None, "no pass has looked at it yet"
    service.decide()
    return service


@pytest.fixture
def foreseen(two: Service) -> Service:
    """Both are foreseen."""
    two.analyst.turn()
    return two


def test_what_is_submitted_is_foreseen_and_kept_in_the_log(foreseen: Service) -> None:
    running, waiting = (foreseen.forecast(job, "submission") for job in ("first", "second"))
    assert running.start_p50 == running.start_p90 == 0.0
    assert 0.0 < waiting.start_p10 <= waiting.start_p50
    assert waiting.start_p90 >= waiting.start_p50
    assert waiting.end_p50 > waiting.start_p50
    made = foreseen.store.read(kinds=[Kind.FORECAST])
    assert [e.job_id for e in made] == ["first", "second"]
    assert made[1].body["start_p90"] == waiting.start_p90
    assert made[1].body["samples"] == 12
    foreseen.decide(seconds=60.0)  # the decider goes on with them in its log
    assert foreseen.decider.state.seen == foreseen.store.last_seq()


def test_the_latest_forecast_follows_and_the_first_one_stays(foreseen: Service) -> None:
    before = foreseen.forecast("second", "submission")
    foreseen.decide(seconds=601.0)
    foreseen.analyst.turn()
    foreseen.analyst.refresh()
    assert foreseen.forecast("second", "submission") == before
    latest = foreseen.forecast("second", "latest")
    assert latest.start_p50 == latest.start_p90 == pytest.approx(600.0, abs=2.0)


def test_nothing_is_foreseen_beside_a_reason_that_came_after(foreseen: Service) -> None:
    promised = foreseen.forecast("second", "submission")
    assert foreseen.forecast("second", "latest").start_p50 is not None
    held = Event(Kind.HELD, foreseen.wall, "second", "ann", body={"operator": False})
    foreseen.store.append([held])
    foreseen.decide()
    ann = VisibleQueries(foreseen.store.engine, Viewer("ann", Role.SUBMITTER))
    assert ann.job("second").reason == "HeldByOwner"
    assert ann.job("second").start_p50 is ann.forecast("second") is None
    # nor by who has not read yet that it is held
    foreseen.analyst.refresh()
    assert foreseen.forecast("second", "latest") is None
    foreseen.analyst.turn()
    assert foreseen.forecast("second", "latest").why_not == WhyNot.HELD
    assert foreseen.forecast("second", "submission") == promised


def test_a_forecast_is_complete_however_much_is_asked_meanwhile(
    two: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = two
    reply, told, used, really = service.analyst.reply, [], [0.0], process.time.process_time
    monkeypatch.setattr(process.time, "process_time", lambda: used[0] + really())
    monkeypatch.setattr(process, "CPU_SHARE", RESTS)

    def again(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        used[0] += 5.0
        service.put("why", job_id="second")
        told.append(kind)
        assert len(told) < 100
        return reply(kind, body)

    monkeypatch.setattr(service.analyst, "reply", again)
    service.put("why", job_id="second")
    service.analyst.turn()
    assert service.analyst.latest["second"].samples == 12
    assert len(told) > 12  # between two futures each
    told.clear()
    service.add("third", 600)
    service.decide(seconds=60.0)
    service.put("why", job_id="second")
    service.analyst.turn()
    assert len(told) > process.QUESTIONS + 12  # nor does it rest for what answers took


def test_it_rests_after_a_forecast_that_took_the_processor_long(
    two: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "CPU_SHARE", RESTS)
    follow, used = Futures.follow, [0.0]
    monkeypatch.setattr(process.time, "process_time", lambda: used[0])

    def costs(*args: Any, **more: Any) -> Future:
        used[0] += 1.0
        return follow(*args, **more)

    monkeypatch.setattr(Futures, "follow", costs)
    two.analyst.turn()
    assert used[0] >= 1.0
    two.add("third", 600)
    two.decide()
    two.analyst.turn()
    assert two.forecast("third", "submission") is None
    two.wall += used[0] * (1 / RESTS - 1)
    two.analyst.turn()
    assert two.forecast("third", "submission") is not None


def test_a_forecast_that_takes_long_is_content_with_few_futures(
    two: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = Futures.follow

    def slowly(*args: Any, **more: Any) -> Future:
        two.wall += 4.0
        return follow(*args, **more)

    monkeypatch.setattr(Futures, "follow", slowly)
    two.analyst.turn()
    assert two.analyst.latest["second"].samples == 10


def test_who_asks_on_a_busy_machine_has_less_tried_and_no_later_answer(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.add("first", 600, gpus=3, owner="bob")
    service.decide()
    service.add("second", 600, gpus=2)
    service.decide(seconds=5.0)
    assert service.ask("why", job_id="second", helps=True)["suggestions"]
    assert service.analyst.helps_s == process.HELPS_S
    reply = service.analyst.reply

    def slowly(kind: str, body: dict[str, Any]) -> dict[str, Any]:
        service.wall += 60.0  # others have the cores
        return reply(kind, body)

    monkeypatch.setattr(service.analyst, "reply", slowly)
    for _ in range(8):
        told = service.ask("why", job_id="second", helps=True)
    assert service.analyst.helps_s < 0.1
    assert told["suggestions"][0]["starts_now"]  # what a decision tells is told all the same


def test_a_question_about_a_change_begins_with_the_start_that_everybody_is_told(
    service: Service,
) -> None:
    for i in range(4):
        service.add(f"job{i}", 600)
    service.decide()
    service.analyst.turn()
    row = service.forecast("job3", "latest")
    told = service.ask("whatif", job_id="job3", changes={"first": True})
    figures = ("start_p10", "start_p50", "start_p90", "end_p50", "end_p90")
    assert [told["now"][name] for name in figures] == [getattr(row, name) for name in figures]
    assert row.start_p50 < row.start_p90
    assert told["earlier"] == told["futures"] == 12
    assert told["gain_s"] == pytest.approx(row.start_p50 - told["then"]["start_p50"])
    assert told["gain_s"] > 0
    assert told["then"]["start_p50"] <= told["then"]["start_p90"] <= row.start_p90


def test_however_many_wait_each_has_a_forecast_or_a_crude_one(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "FORECAST_JOBS", 2)
    for i in range(6):
        service.add(f"job{i}", 600, gpus=4)
    service.decide()
    service.analyst.turn()
    made = [service.forecast(f"job{i}", "latest") for i in range(6)]
    assert [one.estimate == ForecastKind.CRUDE for one in made] == [False] * 3 + [True] * 3
    starts = [one.start_p50 for one in made[3:]]
    assert starts == sorted(starts)
    lasts = seconds_of(service.analyst.memory.of("job4").predicted_s)
    assert lasts > 0
    # work over GPUs: each takes all four; before anything was seen, about as the rule says
    assert starts[2] - starts[1] == pytest.approx(lasts, rel=0.3)
    assert [one for one in made[3:] if one.start_p90 <= one.start_p50] == []
    service.analyst.refresh()  # what is about the same is not written again
    assert service.forecast("job5", "latest").made_at == made[5].made_at


def test_a_job_that_is_profiled_has_a_crude_forecast_where_there_is_no_time(
    store: Store, tmp_path: Path
) -> None:
    lent = ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=60.0, max_gpus=4)
    service = Service(store, tmp_path, policy="lucid", nodes=2, partition=lent)
    service.add("first", 600)
    service.decide()
    assert service.decider.state.ledger.records["first"].phase is Phase.PROFILING
    service.analyst.samples = 0
    service.analyst.turn()
    assert service.forecast("first", "latest").estimate == ForecastKind.CRUDE


def test_a_question_changes_nothing_that_follows(store: Store, tmp_path: Path) -> None:
    """What is asked an hour after the last event leaves the fold where that event left it."""
    service = Service(store, tmp_path, policy="qssf")
    for number in range(3):
        service.add(f"j{number}", 9000, gpus=4)
    service.decide(seconds=5.0)
    service.analyst.turn()
    service.wall += 3600.0
    assert "suggestions" in service.ask("suggest", job_id="j1")
    assert "now" in service.ask("whatif", job_id="j1", changes={"gpus": 1})
    service.add("later", 9000)
    service.decide(seconds=5.0)
    service.analyst.turn()  # it follows the decisions, or raises Diverged
    assert service.analyst.state.seen == service.decider.state.seen


def test_what_cannot_be_answered_is_said(foreseen: Service) -> None:
    assert foreseen.ask("whatif", job_id="nobody", changes={})["unavailable"]
    assert "has its GPUs" in foreseen.ask("why", job_id="first")["unavailable"]
    told = foreseen.ask("whatif", job_id="second", changes={"gpus": 99})
    assert told == {"unavailable": "virtual cluster vc has 4 GPUs, not 99"}


def test_a_start_that_is_no_longer_foreseen_has_moved_by_nothing(foreseen: Service) -> None:
    analyst = foreseen.analyst
    analyst.turn()
    soon = analyst.promised["second"]
    assert soon.start_p50 is not None
    later = replace(soon, start_p50=soon.start_p50 + 90_000.0, start_p90=None)
    analyst._write({"second": later})
    assert foreseen.ask("why", job_id="second")["moved"]["by_s"] == pytest.approx(90_000.0, abs=60)
    analyst._write({"second": StartForecast(soon.made_at, why_not="not yet")})
    assert foreseen.ask("why", job_id="second")["moved"] is None


def test_one_foresees_and_another_takes_over_without_saying_it_twice(foreseen: Service) -> None:
    other = foreseen.an_analyst("two")
    assert not other.take_over()
    foreseen.wall += 100.0
    assert other.take_over()
    other.turn()
    assert len(foreseen.store.read(kinds=[Kind.FORECAST])) == 2
    holder = foreseen.store.holder(LEASE)
    assert holder is not None
    assert holder.holder == "two"


def test_forecasts_are_scored_as_jobs_start(service: Service) -> None:
    for i in range(12):
        service.add(f"j{i}", 100)
        service.decide(seconds=30.0)
        service.analyst.turn()
    service.decide(seconds=1500.0)
    service.analyst.turn()
    learned = service.analyst.waits.learned
    assert learned > 5
    again = service.an_analyst("two")
    service.wall += 100.0
    assert again.take_over()
    assert again.waits.learned == learned
    mine, others = (one.forecast(one.state.core.jobs) for one in (service.analyst, again))
    assert mine == others


def test_a_forecast_of_a_job_that_is_held_or_changed_meanwhile_is_not_scored(
    service: Service,
) -> None:
    user = PageQueries(service.store, Viewer("ann", Role.SUBMITTER))
    for job_id in ("runs", "held", "other", "waits"):  # each is foreseen between bounds
        service.add(job_id, 100)
        service.decide(seconds=10.0)
        service.analyst.turn()
    now = service.world.now()
    held = Event(Kind.HELD, now, "held", "ann", body={"operator": False})
    service.store.append([held, Event(Kind.CHANGED, now, "other", "ann", body={"gpus": 1})])
    service.decide(seconds=9000.0)
    service.analyst.turn()
    service.store.append(
        [Event(Kind.RELEASED, service.world.now(), "held", "ann", body={"operator": False})]
    )
    service.decide(seconds=1000.0)
    service.analyst.turn()
    assert [one.start for one in user.kept()] == [180.0, 10.0]  # "waits" and "runs"


def test_it_foresees_on_after_a_clock_was_mended(foreseen: Service) -> None:
    body = {"first": foreseen.store.last_seq() + 1, "by_s": 1.0}
    foreseen.store.append([Event(Kind.CLOCK_MENDED, foreseen.wall, body=body)])
    foreseen.analyst.turn()
    assert set(foreseen.analyst.state.core.jobs) == {"first", "second"}
    told = foreseen.ask("forecast", job_id="second")
    assert told["start_p50"] is not None
    assert [p.job.job_id for p in foreseen.analyst.memory.arrivals] == ["first", "second"]


@pytest.mark.parametrize("names", [False, True])
def test_what_would_help_is_the_same_whoever_asks(service: Service, names: bool) -> None:
    service.add("first", 600, gpus=2)
    service.add("others", 600, owner="bob")
    service.add("second", 600)
    service.decide()
    service.analyst.turn()  # what is shown of it as it is, is one forecast
    told = service.ask("suggest", job_id="second", names=names)
    helps = [(one["words"], one["starts_now"], one["moved"]) for one in told["suggestions"]]
    assert helps[0] == ("with 2 GPUs", True, [])
    assert told == {
        "suggestions": service.ask("why", job_id="second", helps=True, names=names)["suggestions"]
    }


def test_why_names_the_drained_node_who_drained_it_and_why(service: Service) -> None:
    body = {"node": 0, "open": False, "reason": "fan broken"}
    service.store.append([Event(Kind.NODE_SET, 0.0, actor="olga", body=body)])
    service.add("waits", 600)
    service.decide()
    told = service.ask("why", job_id="waits", names=True)
    said = "It would start without node000, drained by olga: fan broken (tried on a copy)."
    assert said in in_the_way(decode(Analysis, told))
    assert told["holders"][0]["closed"]["actor"] == "olga"
    with service.store.writing() as connection:
        connection.execute(questions.delete())
    told = service.ask("why", job_id="waits")
    assert "drained by an operator: fan broken" in in_the_way(decode(Analysis, told))
    assert "olga" not in json.dumps(told)


def test_why_names_the_gpu_that_does_not_answer_and_since_when(service: Service) -> None:
    body = {"node": 0, "closed": {"3": "the GPU is lost"}}
    service.store.append([Event(Kind.GPUS_CLOSED, 0.0, body=body)])
    service.add("waits", 600)
    service.decide()
    told = service.ask("why", job_id="waits")
    node = f"3 of 4 GPUs answer; GPU 3 does not since {clock_time(0.0, service.wall)}"
    said = f"It would start without node000, {node}: the GPU is lost (tried on a copy)."
    assert told["reason"] == "NodeDrained"
    found = decode(Analysis, told)
    assert dominant(found).startswith("needs 4 GPUs; 1 of 4 is closed to new jobs")
    assert "1 is closed" in in_the_way(found)
    assert said in in_the_way(found)
    assert service.ask("forecast", job_id="waits")["why_not"] == WhyNot.CLOSED


def test_what_other_code_decided_is_no_matter(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An analyst of another release, before the decider of that one or after it."""
    service.add("first", 600)
    service.decide()
    monkeypatch.setattr(fold, "digest_of", lambda texts: "as other code decides")
    service.wall += 100.0
    late = service.an_analyst("late")
    assert late.take_over()
    assert list(late.state.core.jobs) == ["first"]
    service.add("second", 600)
    service.decide()
    late.turn()
    assert list(late.state.core.jobs) == ["first", "second"]


def test_whoever_asks_much_waits_for_themselves(service: Service) -> None:
    """One tenant's flood of questions left five of five of another's unanswered."""
    service.add("first", 600)
    service.decide()
    rows = [
        {
            "id": f"{actor}-{number}", "asked_at": service.wall - age, "kind": "forecast",
            "body": canonical({"job_id": "first", "names": True}), "actor": actor,
        }
        for actor, age, many in (("mallory", 3.0, 40), ("ann", 1.0, 3))
        for number in range(many)
    ]  # fmt: skip
    with service.store.writing() as connection:
        connection.execute(insert(questions), rows)
    service.analyst.turn()
    with service.store.reading() as connection:
        query = select(questions.c.id).where(questions.c.answered_at.is_not(None))
        answered = set(connection.execute(query).scalars())
    assert {one for one in answered if one.startswith("ann")} == {"ann-0", "ann-1", "ann-2"}
    assert len(answered) == 16


def test_a_question_that_costs_much_counts_as_much_until_others_were_answered(
    service: Service,
) -> None:
    charge = service.analyst._charge
    charge("mallory", 2.0)
    for _ in range(3):
        charge("ann", 0.01)
    used = service.analyst._used
    assert used["ann"] < used["mallory"] / 50
    charge("ann", process.FORGOTTEN_S)
    assert service.analyst._used["mallory"] == pytest.approx(1.0, rel=0.01)
    charge("ann", 20 * process.FORGOTTEN_S)
    assert set(service.analyst._used) == {"ann"}


def test_who_asks_does_not_wait_for_a_forecast_to_be_complete_and_the_lease_is_kept(
    foreseen: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed, open_at = Futures.follow, []

    def follow(self: Futures, *args: Any, **more: Any) -> Future:
        foreseen.wall += 3.0  # each future takes its time
        with foreseen.store.reading() as connection:
            asked = connection.execute(select(questions.c.answered_at)).all()
        open_at.append([row.answered_at is None for row in asked])
        assert foreseen.store.held(LEASE)
        if len(open_at) == 4:
            foreseen.put("why", job_id="second")
        return followed(self, *args, **more)

    monkeypatch.setattr(Futures, "follow", follow)
    foreseen.analyst.refresh()
    assert len(open_at) == 10  # it takes long
    assert open_at[4] == [False]  # answered before the next future


def test_an_answer_beside_a_forecast_that_runs_is_of_now(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was of the moment at which the forecast began: it named runs that had ended."""
    service.add("first", 600)
    service.add("second", 600)
    service.add("third", 600)
    service.decide()
    service.analyst.turn()
    followed, answers = Futures.follow, list[dict[str, Any]]()

    def follow(self: Futures, *args: Any, **more: Any) -> Future:
        future = followed(self, *args, **more)
        with service.store.reading() as connection:
            answers.extend(map(json.loads, connection.scalars(select(questions.c.answer))))
        if self.seed == seed and not answers:  # the first of the forecast
            service.decide(seconds=601.0)
            service.add("new", 600)
            with service.store.writing() as connection:
                for number, job in enumerate(("third", "new")):
                    row = {"id": job, "asked_at": service.wall + number, "kind": "why"}
                    body = canonical({"job_id": job, "names": True})
                    connection.execute(insert(questions).values(**row, body=body))
        return future

    seed = service.analyst.state.covered
    monkeypatch.setattr(Futures, "follow", follow)
    service.analyst.refresh()
    third, new = answers[:2]
    assert [one["job"] for one in third["holders"]] == ["second"]  # `first` is over
    assert third["at"] >= 601.0
    assert "over" not in new["unavailable"]
    assert "second" not in service.analyst.latest  # what was foreseen before it started


def test_who_is_late_to_renew_the_lease_is_still_asked(service: Service) -> None:
    """On a busy machine 140 of 195 answers were that nobody answers."""
    service.wall += 30.0  # three times as long as the lease
    assert not service.store.held(LEASE)
    assert service.store.held(LEASE, 60.0)
    service.store.let_go(service.analyst.lease)  # type: ignore[arg-type]
    assert not service.store.held(LEASE, 60.0)


def test_the_lease_is_kept_while_a_long_log_is_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(6):
        service.add(f"job{i}", 600)
        service.decide(seconds=1.0)
    service.analyst.store.let_go(service.analyst.lease)  # type: ignore[arg-type]
    applied = fold.State.apply

    def slow(self: fold.State, event: Event) -> Any:
        service.wall += 4.0
        assert service.store.held(LEASE)
        return applied(self, event)

    monkeypatch.setattr(fold.State, "apply", slow)
    assert service.an_analyst("two").take_over()
