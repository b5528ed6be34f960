"""A job that starts after others: who may ask for it, and what everybody is shown meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from features.codec import decode
from pipeline.commands import ps, why
from scheduler.explain.explanation import Explanation
from scheduler.explain.render import first_words
from scheduler.service.log.audit import audit
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.store import Store
from tests.scheduler.service.api.conftest import Service
from tests.scheduler.service.desk import Desk

JOBS = "/api/v1/jobs"


def row(service: Service, job: str) -> dict[str, Any]:
    found: dict[str, Any] = service.by("alice").get(f"{JOBS}/{job}").json()
    return found


def refused(service: Service, who: str = "alice", **asked: Any) -> str:
    body = {"command": ["train", "1", "1"], "vc": "vision", **asked}
    answer = service.by(who).post(JOBS, json=body)
    assert answer.status_code == 422, answer.text
    return str(answer.json()["detail"])


def test_it_waits_says_for_whom_and_starts_when_that_one_has_ended(service: Service) -> None:
    alice = service.by("alice")
    first = service.submit("alice", 1000.0)
    service.turn(2)
    second = service.submit("alice", 1e6, after=first)
    service.turn(2)
    shown = row(service, second)
    assert (shown["phase"], shown["reason"]) == ("submitted", "DependencyNotMet")
    assert shown["after"] == first
    told = alice.get(f"{JOBS}/{second}/explain", params={"analyse": True}).json()
    sentence = f"starts only after job {first} has ended, as its owner asked"
    assert first_words(decode(Explanation, told)) == sentence
    assert sentence in "\n".join(why.lines_of(decode(Explanation, told), 0.0, full=True))
    assert decode(JobRow, shown).waited(1e9) is None
    assert "waits for a job that it depends on" in ps.lines([decode(JobRow, shown)], 0.0)[1]
    page = alice.get(f"/jobs/{second}", headers={"Accept": "text/html"}).text
    assert sentence in page.replace("\n", " ")
    assert f"<dd>{first}</dd>" in page
    service.turn(3, 1200.0)
    assert row(service, first)["state"] == "completed"
    service.turn(2)
    ran = decode(JobRow, row(service, second))
    assert ran.phase == "running"
    assert ran.started_at is not None
    assert ran.started_at > ran.submitted_at + 900.0
    explained = decode(Explanation, alice.get(f"{JOBS}/{second}/explain").json())
    whole = sum(wait.seconds for wait in explained.waits)
    assert ran.waited(1e9) == pytest.approx(whole, abs=1.0), "ps shows what why does"
    assert audit(service.store, service.decider.bundle_store.find, decide_again=True).clean


def test_after_a_failure_it_says_that_it_never_starts_and_what_to_do(service: Service) -> None:
    alice = service.by("alice")
    first = service.submit("alice", 1000.0)
    service.turn(2)
    second = service.submit("alice", 50.0, after=first)
    third = service.submit("alice", 50.0, after_any=first)
    alice.post(f"{JOBS}/{first}/cancel")
    service.turn(4, 1.0)
    assert row(service, first)["state"] == "cancelled"
    told = alice.get(f"{JOBS}/{second}/explain").json()
    assert first_words(decode(Explanation, told)).startswith(f"cannot start: job {first}")
    assert row(service, third)["phase"] == "running"
    assert f"job {first} ended: cancelled" in refused(service, after=first)
    changed = alice.patch(f"{JOBS}/{second}", json={"after": ""})
    assert changed.status_code == 202, changed.text
    service.turn(3)
    assert row(service, second)["phase"] == "running"
    assert audit(service.store, service.decider.bundle_store.find, decide_again=True).clean


def test_it_depends_only_on_jobs_that_its_owner_may_see(service: Service) -> None:
    others = service.submit("bob.noyce")
    many = ",".join(f"j{i}" for i in range(17))
    for field in ("after", "after_any"):
        for other in (others, "nosuch"):
            said = f"there is no job '{other}' that you may see"
            assert said in refused(service, **{field: other})
        assert "give at most 16" in refused(service, **{field: many})


def test_no_two_jobs_wait_for_each_other(service: Service) -> None:
    alice = service.by("alice")
    jobs = [service.submit("alice", 1000.0, gpus=8)]
    for _ in range(3):
        jobs.append(service.submit("alice", 10.0, gpus=8, after=jobs[-1]))
    hold = service.submit("alice", 1000.0, gpus=8)
    service.turn(2)
    assert row(service, hold)["phase"] != "running"
    answer = alice.patch(f"{JOBS}/{jobs[1]}", json={"after_any": jobs[3]})
    assert answer.status_code == 422
    assert f"job {jobs[3]} waits, itself, for {jobs[1]}" in answer.json()["detail"]
    itself = alice.patch(f"{JOBS}/{hold}", json={"after": hold})
    assert itself.status_code == 422


def test_it_outlives_an_upgrade(store: Store, tmp_path: Path) -> None:
    """A new core is built from the log: what waits for others waits, what never starts does not."""
    desk = Desk(store, tmp_path)
    for name in ("runs", "fails"):
        desk.submit(name)
    desk.turn()
    desk.submit("strict", after="fails")
    desk.submit("next", after="runs")
    desk.cancel("fails")
    desk.turn(1.0)
    desk.turn(1.0)
    reasons = {name: desk.row(name).reason for name in ("strict", "next")}
    assert reasons == {"strict": "DependencyNeverMet", "next": "DependencyNotMet"}
    desk.restart(upgraded=True)
    desk.turn(1.0)
    assert {name: desk.row(name).reason for name in reasons} == reasons
    desk.cancel("strict")
    desk.until_idle()
    assert desk.row("next").state == "completed"
    assert desk.phase("strict") == "cancelled"


def test_a_program_that_is_not_there_is_refused_unless_another_job_may_make_it(
    service: Service,
) -> None:
    first = service.submit("alice", 1000.0)
    service.app.state.changes._missing = lambda *_: "there is no program 'train'"
    assert "no program 'train'" in refused(service)
    service.submit("alice", 1000.0, after=first)
