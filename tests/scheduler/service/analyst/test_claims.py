"""What answers claim is kept, compared with what came, and counted."""

from __future__ import annotations

from dataclasses import replace
from math import inf, log
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.event import listen

from pipeline.commands.claims import lines
from scheduler.backends.events import Event, Kind
from scheduler.explain.claims import (
    VALID_S,
    Claim,
    Record,
    interval,
    late_by,
    of_offer,
    put_off,
    same_change,
)
from scheduler.explain.claims import Kind as Claimed
from scheduler.explain.effect import ExpectedTimes, WhatIfAnswer
from scheduler.explain.whatif.counterfactuals import WhatIf
from scheduler.explain.whatif.forecasts import StartForecast, WhyNot, summary
from scheduler.explain.words import ForecastKind
from scheduler.service.log.forecasts import never
from scheduler.service.log.store import claims as kept
from scheduler.service.log.store.reads import VisibleQueries
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import claims
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.metrics import Metrics
from tests.scheduler.service.analyst.test_process import Service

Rows = dict[Claimed, Any]


@pytest.fixture
def service(store: Store, tmp_path: Path) -> Service:
    """Three of four GPUs are busy for ten minutes; `waits` asks for two."""
    made = Service(store, tmp_path)
    made.add("runs", 600, gpus=3, owner="bob")
    made.decide()
    made.add("waits", 600, gpus=2)
    made.decide(seconds=5.0)
    made.analyst.turn()
    return made


def rows(service: Service) -> Rows:
    with service.store.reading() as connection:
        found = connection.execute(select(claims).order_by(claims.c.id)).all()
    return {Claimed(row.kind): row for row in found}


def changed(service: Service, job_id: str = "waits", **to: Any) -> None:
    asked = Event(Kind.CHANGED, service.wall, job_id, "ann", body=to)
    service.store.append([asked])


def cancelled(service: Service) -> None:
    service.store.append([Event(Kind.CANCEL_ASKED, service.wall, "waits", "ann")])


def judge(service: Service, *, seconds: float = 2.0) -> Rows:
    service.decide(seconds=seconds)
    service.analyst.turn()
    service.wall += 1.5
    service.analyst.turn()
    return rows(service)


def offered(service: Service) -> dict[str, Any]:
    (offer, *_) = service.ask("why", job_id="waits", helps=True)["suggestions"]
    assert offer["changes"] == {"gpus": 1}
    assert offer["starts_now"]
    return dict(offer)


def test_an_offer_that_is_taken_is_judged_by_what_comes(service: Service) -> None:
    assert offered(service)["judged"] == 0
    made = rows(service)
    assert set(made) == {
        Claimed.OFFER_AT_ONCE, Claimed.OFFER_BESIDE, Claimed.OFFER_SPEED, Claimed.OFFER_END,
    }  # fmt: skip
    assert all(row.taken_at is None and row.judged_at is None for row in made.values())
    changed(service, gpus=1)
    made = judge(service)
    assert made[Claimed.OFFER_AT_ONCE].held
    assert made[Claimed.OFFER_AT_ONCE].taken_by == "waits"
    assert (made[Claimed.OFFER_BESIDE].held, made[Claimed.OFFER_BESIDE].came) == (True, 0.0)
    assert (made[Claimed.OFFER_SPEED].held, made[Claimed.OFFER_SPEED].came) == (True, 1.0)
    assert made[Claimed.OFFER_END].judged_at is None
    made = judge(service, seconds=601.0)
    assert made[Claimed.OFFER_END].held
    service.add("again", 600, gpus=3, owner="bob")
    service.add("waits-too", 600, gpus=2)
    service.decide(seconds=1.0)
    service.analyst.turn()
    (offer, *_) = service.ask("why", job_id="waits-too", helps=True)["suggestions"]
    assert (offer["held"], offer["judged"]) == (1, 1)


def test_an_offer_that_does_not_come_true_counts_as_soon_as_its_time_is_over(
    service: Service,
) -> None:
    offered(service)
    service.add("quicker", 600, gpus=1, owner="bob")
    service.decide()
    changed(service, gpus=1)
    made = judge(service, seconds=0.0)
    assert made[Claimed.OFFER_AT_ONCE].held is None
    made = judge(service, seconds=5.0)
    assert made[Claimed.OFFER_AT_ONCE].held is False
    assert made[Claimed.OFFER_BESIDE].judged_at is None  # it has not started
    record = VisibleQueries(service.store.engine, Viewer("x", Role.VIEWER)).claims(service.wall)
    (one,) = [one for one in record if one.kind == Claimed.OFFER_AT_ONCE]
    assert (one.held, one.judged) == (0, 1)
    text, _ = Metrics(service.store).exposition()
    assert b'pellucid_claims{kind="offer_at_once",outcome="refuted"} 1.0' in text
    shown = lines(record)
    assert any("starts at once" in line and " 0 " in line for line in shown)


def test_what_others_were_given_meanwhile_is_not_offered(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = WhatIf.suggestions

    def slowly(self: WhatIf, *args: Any, **more: Any) -> Any:
        made = found(self, *args, **more)
        assert made[0].starts_now
        service.add("quicker", 600, gpus=1, owner="bob")
        service.decide()
        return made

    monkeypatch.setattr(WhatIf, "suggestions", slowly)
    told = service.ask("why", job_id="waits", helps=True)["suggestions"]
    assert not any(one["starts_now"] for one in told)
    assert Claimed.OFFER_AT_ONCE not in rows(service)


def test_an_offer_that_is_not_taken_says_nothing(service: Service) -> None:
    offered(service)
    offered(service)
    assert len(rows(service)) == 4  # made again, it is one offer
    changed(service, gpus=1, time_limit_s=900.0)  # more than was offered
    assert not rows_of_offers(judge(service))


def rows_of_offers(made: Rows) -> list[Claimed]:
    return [kind for kind in made if kind.is_offer]


def test_an_offer_that_is_taken_late_is_another(service: Service) -> None:
    offered(service)
    service.decide(seconds=VALID_S + 1.0)
    changed(service, gpus=1)
    assert not rows_of_offers(judge(service))


def test_a_job_that_is_submitted_in_the_place_of_another_takes_its_offer(
    service: Service,
) -> None:
    offered(service)
    cancelled(service)
    service.add("other", 600, gpus=2)  # the same again
    service.decide()
    service.add("instead", 600, gpus=1)
    made = judge(service)
    assert made[Claimed.OFFER_AT_ONCE].taken_by == "instead"
    assert made[Claimed.OFFER_AT_ONCE].held


def test_who_cancels_and_asks_for_nothing_refutes_nothing(service: Service) -> None:
    offered(service)
    cancelled(service)
    judge(service)
    assert not rows_of_offers(judge(service, seconds=VALID_S + 1.0))


def test_a_job_that_starts_although_in_no_future_it_did_counts_at_once(service: Service) -> None:
    claim = Claim(Claimed.NEVER, "waits", service.wall, due=service.wall + 7 * 86_400.0)
    with service.store.writing() as connection:
        for _ in range(2):  # the first stands
            kept.keep(connection, [claim], service.analyst.state.seen)
        assert len(connection.execute(select(claims)).all()) == 1
    assert judge(service)[Claimed.NEVER].judged_at is None
    made = judge(service, seconds=600.0)[Claimed.NEVER]
    assert made.held is False
    assert made.came == pytest.approx(600.0, abs=10.0)


def test_what_lies_open_for_long_keeps_nothing_from_being_judged(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "OPEN", 1)
    claim = Claim(Claimed.NEVER, "waits", service.wall, due=service.wall + 7 * 86_400.0)
    offer = Claim(Claimed.OFFER_AT_ONCE, "waits", service.wall, {"gpus": 1}, service.wall)
    with service.store.writing() as connection:
        kept.keep(connection, [claim, offer], service.analyst.state.seen)
        late = service.wall + VALID_S + 1.0
        assert [one.claim for one in kept.judged(connection, late)] == [2]


def test_what_cannot_be_judged_yet_keeps_no_place_before_what_can(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "OPEN", 1)
    at = service.wall + VALID_S + 1.0
    waits = [Claim(Claimed.OFFER_END, f"none-{n}", at, {"gpus": n}, at) for n in range(3)]
    due = Claim(Claimed.OFFER_AT_ONCE, "waits", service.wall, {"gpus": 1}, service.wall)
    with service.store.writing() as connection:
        kept.keep(connection, [*waits, due], service.analyst.state.seen)
        found = [one for n in range(40) for one in kept.judged(connection, at + n)]
    assert {one.claim for one in found} == {4}


def test_of_what_was_sent_since_only_what_is_alike_is_read(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered(service)
    cancelled(service)
    for n in range(20):
        service.add(f"other-{n}", 600, gpus=2)
    service.decide()
    service.add("instead", 600, gpus=1)
    read, of = [], kept._as_asked
    monkeypatch.setattr(kept, "_as_asked", lambda spec: read.append(spec) or of(spec))
    assert judge(service)[Claimed.OFFER_AT_ONCE].taken_by == "instead"
    assert len(read) < 20


@pytest.mark.parametrize("about_the_cluster", [True, False])
def test_what_was_never_to_start_as_it_is_may_once_something_is_changed(
    service: Service, about_the_cluster: bool
) -> None:
    claim = Claim(Claimed.NEVER, "waits", service.wall, due=service.wall + 7 * 86_400.0)
    with service.store.writing() as connection:
        kept.keep(connection, [claim], service.analyst.state.seen)
    if about_the_cluster:
        event = Event(Kind.NODE_SET, service.wall, body={"node": 0, "open": True, "reason": ""})
        service.store.append([event])
        service.decide(seconds=600.0)
    else:
        changed(service, gpus=1)
    assert Claimed.NEVER not in judge(service)


def test_first_forecasts_count_with_those_that_are_overdue(service: Service) -> None:
    def by_p90() -> Record:
        view = VisibleQueries(service.store.engine, Viewer("x", Role.VIEWER))
        return next(one for one in view.claims(service.wall) if one.kind == Claimed.BY_P90)

    assert (by_p90().judged, by_p90().open) == (0, 1)
    with service.store.writing() as connection:
        connection.execute(
            text("UPDATE forecasts SET start_p90 = 30, start_p50 = 20 WHERE job_id = 'waits'")
        )
    service.decide(seconds=60.0)
    assert (by_p90().held, by_p90().judged, by_p90().open) == (0, 1, 0)


def test_what_a_forecast_says_of_never() -> None:
    made = {
        "too small": StartForecast(5.0, why_not=WhyNot.TOO_SMALL, estimate=ForecastKind.IMPOSSIBLE),
        "in no future": summary(5.0, [inf] * 9, [inf] * 9, 7 * 86_400.0),
        "held": StartForecast(5.0, why_not=WhyNot.HELD),
        "no time": summary(5.0, [inf] * 8, [inf] * 8, 7 * 86_400.0),
        "starts": StartForecast(5.0, 6.0, 7.0),
    }
    assert [one.job_id for one in never(made)] == ["too small", "in no future"]


def test_what_an_answer_claims() -> None:
    now, then = ExpectedTimes(start_p50=900.0), ExpectedTimes(start_p50=300.0, start_p90=400.0)
    answer = WhatIfAnswer("j", {"gpus": 1}, now=now, then=then, gain_s=600.0, futures=9)
    made = {one.kind: one.due for one in of_offer(answer, 10.0)}
    assert made == {Claimed.OFFER_SOONER: 900.0, Claimed.OFFER_P90: 400.0}
    for nothing in ({}, {"first": True}):
        assert not list(of_offer(WhatIfAnswer("j", nothing, now=now, then=then), 10.0))
    for gain_s, futures, sooner in ((0.5, 1, True), (0.0, 9, False), (600.0, 0, False)):
        kinds = {
            one.kind for one in of_offer(replace(answer, gain_s=gain_s, futures=futures), 10.0)
        }
        assert (Claimed.OFFER_SOONER in kinds) is sooner
    assert same_change({"gpu_type": None}, {"gpu_type": ""})
    assert not same_change({"gpus": 1, "vc": "a"}, {"gpus": 1})


def test_a_p90_is_put_off_until_one_in_ten_is_broken() -> None:
    assert late_by([]) == 0.4
    assert late_by([True] * 20) == pytest.approx(0.0, abs=1e-9)
    assert late_by([False]) == pytest.approx(0.58)
    assert late_by([False] * 99) == 1.5
    steady = [late_by([False, *[True] * 9] * n) for n in (3, 30)]
    assert steady[0] == pytest.approx(steady[1])
    then = ExpectedTimes(start_p50=20.0, start_p90=30.0, end_p90=90.0)
    answer = WhatIfAnswer("j", {"gpus": 1}, then=then)
    moved = put_off(answer, 10.0, log(2.0)).then
    assert moved is not None
    assert (moved.start_p50, moved.start_p90, moved.end_p90) == pytest.approx((20.0, 60.0, 120.0))
    as_it_is = replace(answer, now=ExpectedTimes(start_p50=20.0, start_p90=40.0))
    bounded = put_off(as_it_is, 10.0, log(2.0)).then
    assert bounded is not None
    assert bounded.start_p90 == 40.0
    decided = replace(answer, starts_now=True)
    assert put_off(decided, 10.0, log(2.0)) == decided


def test_the_interval_of_a_record() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    low, high = interval(31, 33)
    assert (low, high) == (pytest.approx(0.804, abs=0.002), pytest.approx(0.983, abs=0.002))
    assert interval(5, 5)[1] == 1.0
    assert interval(0, 5)[0] == 0.0


def test_of_those_who_never_start_the_first_claim_stands_and_one_look_finds_it(
    service: Service,
) -> None:
    made = [Claim(Claimed.NEVER, f"j{i}", 1.0, due=9.0) for i in range(kept.AT_ONCE)]
    later = [replace(one, made_at=2.0) for one in made]
    with service.store.writing() as connection:
        kept.keep(connection, [*made[:300], *later[:300]], 1)
        asked = list[str]()
        listen(connection, "before_cursor_execute", lambda *of: asked.append(of[2]))
        kept.keep(connection, later, 2)
        at = connection.execute(select(claims.c.made_at).order_by(claims.c.id)).scalars().all()
    assert at == [1.0] * 300 + [2.0] * 200
    assert [one.split()[0] for one in asked if "claims" in one][:-1] == ["SELECT", "INSERT"]


def test_what_is_old_or_too_much_goes(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    with service.store.writing() as connection:
        made = [Claim(Claimed.NEVER, f"j{i}", float(i)) for i in range(10)]
        kept.keep(connection, made, 0)
        assert kept.prune(connection, 3.0) == 3
        monkeypatch.setattr(kept, "MOST", 4)
        assert kept.prune(connection, 0.0) == 3
        assert [row.made_at for row in connection.execute(select(claims))] == [6.0, 7.0, 8.0, 9.0]
