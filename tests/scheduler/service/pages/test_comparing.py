"""Models week by week and side by side on the same jobs; what moved a user's estimates."""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

import pytest

from features.spec import Value
from models.bundle import AdditiveModel, Bundle
from scheduler.service.log.beside import Ended
from scheduler.service.log.served import WEEK_S, count
from scheduler.service.pages import contrast as contrasted
from scheduler.service.pages.contrast import LEAST, NOW_S, Scored, contrast, movement
from tests.scheduler.service.pages.bundle import small_bundle
from tests.scheduler.service.pages.conftest import Lived, busy_morning

SMALL = small_bundle()
NOW = 1.7e9


def changed(intercept: float = 6.0, gpus: float = 1.0) -> Bundle:
    """The small models with another intercept, and a shape of GPUs so many times as high."""
    model = SMALL.duration
    terms = [replace(model.terms[0], scores=gpus * model.terms[0].scores), *model.terms[1:]]
    return replace_model(AdditiveModel(model.axes, terms, intercept, model.link))


def replace_model(model: AdditiveModel) -> Bundle:
    return Bundle(duration=model, packing=SMALL.packing, metadata=SMALL.metadata)


def job(i: int, gpus: str, ran_s: float) -> Ended:
    return Ended(f"user{i % 6}", (gpus, "5", "V100"), ran_s, f"job-{i}")


def test_two_models_are_compared_on_the_same_jobs() -> None:
    ended = [job(i, "8" if i % 2 else "1", 400.0) for i in range(60)]
    other = changed(gpus=2.0)
    found = contrast(SMALL, other, ended, "former")
    assert found.found.jobs == 60
    both = {group.of: group for group in found.groups}
    for gpus, name in ((1.0, "1 GPU"), (8.0, "5 to 8 GPUs")):
        off = [
            abs(of.duration.score([gpus, 5.0, "V100"]) - math.log1p(400.0)) for of in (SMALL, other)
        ]
        assert [both[name].before, both[name].after] == pytest.approx(off)
    assert found.moved[0].job_id == "job-1", "that of 8 GPUs moves most"
    [(mine, others)] = found.shapes
    assert mine.title == others.title
    assert mine.label != others.label
    assert found.only == ()
    assert contrast(SMALL, changed(), ended, "former").shapes == ()


def test_a_term_that_one_lacks_is_said() -> None:
    model = SMALL.duration
    fewer = replace_model(AdditiveModel(model.axes, model.terms[:2], 6.0, model.link))
    found = contrast(SMALL, fewer, [], "former")
    assert len(found.only) == 2
    assert all(line.endswith(": only the first") for line in found.only)


def scored(
    i: int, age_s: float, gpus: str, of: Bundle = SMALL, ran_s: float | None = 60.0
) -> Scored:
    values: list[Value] = [float(gpus), 5.0, "V100"]
    return Scored(
        job_id=f"job-{i}-{age_s}",
        at=NOW - age_s,
        bundle=of.digest,
        value=of.duration.score(values),
        inputs=(gpus, "5", "V100"),
        ran_s=ran_s,
    )


def test_the_usual_value_is_that_of_those_that_have_one() -> None:
    assert contrasted._middle([1.0, None, math.nan, 2.0, 6.0]) == "2"
    assert contrasted._middle([None, math.nan]) == "none"


def test_what_moved_the_estimates_of_a_user_adds_up() -> None:
    jobs = [scored(i, 60.0, "8", ran_s=120.0) for i in range(4)]
    jobs += [scored(i, NOW_S + 60.0, "1") for i in range(5)]
    found = movement(jobs, SMALL, {SMALL.digest: SMALL}, NOW)
    assert (found.then, found.now, found.models, found.enough) == (5, 4, None, True)
    terms = SMALL.duration.explain([8.0, 5.0, "V100"]).terms
    before = SMALL.duration.explain([1.0, 5.0, "V100"]).terms
    assert found.estimate == pytest.approx(sum(terms) - sum(before))
    assert sum(one.score for one in found.movers) + found.rest == pytest.approx(found.estimate)
    first = found.movers[0]
    assert first.score == pytest.approx(0.6)
    assert (first.then, first.now) == ("1", "8")
    assert found.lasted == pytest.approx(math.log1p(120.0) - math.log1p(60.0))


def test_what_a_change_of_the_models_did_is_told_apart() -> None:
    former = changed(intercept=5.0)
    jobs = [scored(i, 60.0, "1") for i in range(4)]
    jobs += [scored(i, NOW_S + 60.0, "1", former) for i in range(4)]
    found = movement(jobs, SMALL, {one.digest: one for one in (SMALL, former)}, NOW)
    assert found.models == pytest.approx(1.0)
    assert found.estimate == pytest.approx(1.0)
    assert found.movers == ()
    gone = movement(jobs, SMALL, {SMALL.digest: SMALL}, NOW)
    assert (gone.enough, gone.then, gone.now) == (False, 0, 4)
    assert not movement(jobs[: LEAST - 1], SMALL, {SMALL.digest: SMALL}, NOW).enough


def test_an_operator_compares_the_models_in_use_and_nobody_else_may(lived: Lived) -> None:
    lived.settle(1)
    client = lived.browser("olga")
    page = client.get("/models/compare").text
    assert "there is nothing to compare it with" in page
    other = changed(gpus=2.0)
    other.save(lived.settings.state_dir / "champion")
    lived.settle(60)
    busy_morning(lived, 30, Random(0))
    end = (lived.world.now() // WEEK_S + 1) * WEEK_S
    count(lived.store, lived.settings.state_dir, end)
    page = client.get("/models/compare").text
    assert "not settled yet" in page
    assert "until now" not in page
    count(lived.store, lived.settings.state_dir, lived.world.now())
    page = client.get("/models/compare").text
    assert "until now" in page
    assert "not settled yet" not in page
    for digest in (SMALL.digest, other.digest):
        assert f'<option value="{digest}"' in page
    assert f"{other.digest[:12]} and {SMALL.digest[:12]} on the same jobs" in page
    assert "Errors by group" in page
    assert "Predictions that differ most" in page
    assert "Shapes that differ most" in page
    turned = client.get("/models/compare", params={"one": SMALL.digest, "other": other.digest}).text
    assert f"{other.digest[:12]} and {SMALL.digest[:12]} on the same jobs" in turned
    same = client.get("/models/compare", params={"one": SMALL.digest, "other": SMALL.digest})
    assert "Choose two." in same.text
    none = client.get("/models/compare", params={"one": "../x", "other": SMALL.digest})
    assert none.status_code == 200
    assert "There are no such models." in none.text
    assert "jobs decided" in page
    for path in ("/models/compare", "/models/moved?owner=olga"):
        assert lived.browser("ada.byron").get(path).status_code == 403


def test_jobs_that_still_run_are_told_apart_from_those_that_ended(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived.settle(1)
    client = lived.browser("olga")
    other = changed(gpus=2.0)
    other.save(lived.settings.state_dir / "champion")
    lived.settle(60)
    busy_morning(lived, 12, Random(0))
    seen = [job(i, "1", 400.0) for i in range(60)]
    seen += [replace(job(i, "1", 900.0), running=True) for i in range(60, 63)]
    monkeypatch.setattr("scheduler.service.pages.comparing.as_of", lambda *_: seen)
    page = client.get("/models/compare").text
    assert "on 60 jobs that ended and 3 that still ran, of 6 users" in page
    assert "and that ended" not in page
    monkeypatch.setattr("scheduler.service.pages.comparing.as_of", lambda *_: seen[:60])
    page = client.get("/models/compare").text
    assert "on 60 jobs that ended, of 6 users" in page


def test_a_user_of_many_jobs_is_compared_with_their_past(
    lived: Lived, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of this week left no room for those before."""
    monkeypatch.setattr("scheduler.service.pages.contrast.MOST", 4)
    lived.settle(1)
    for week in range(2):
        for _ in range(6):
            lived.submit("ada.byron", gpus=1, vc="vision")
            lived.settle(3000)
        if not week:
            lived.decider.turn(NOW_S)
    page = lived.browser("olga").get("/models/moved", params={"owner": "ada.byron"}).text
    assert "Too few" not in page
    assert "latest 4 jobs of the last seven days" in page
    assert "those of the latest 4 jobs of the three weeks before" in page


def test_an_operator_finds_what_moved_a_users_estimates(lived: Lived) -> None:
    lived.settle(1)
    client = lived.browser("olga")
    assert "term by term" in client.get("/models/moved").text
    none = client.get("/models/moved", params={"owner": "ada.byron"}).text
    assert "Too few: 0 jobs of the last seven days and 0 of the three weeks before" in none
    for gpus in (1, 4):
        for _ in range(4):
            lived.submit("ada.byron", gpus=gpus, vc="vision")
            lived.settle(3000)
        if gpus == 1:
            lived.decider.turn(NOW_S)
    page = client.get("/models/moved", params={"owner": "ada.byron"}).text
    assert "4 jobs of the last seven days" in page
    assert "4 jobs of the three weeks before" in page
    assert "latest" not in page, "they are all there were"
    assert "all other terms" in page
    shown = client.get("/histories", params={"owner": "ada.byron"})
    assert "/models/moved?owner=ada.byron" in shown.text
