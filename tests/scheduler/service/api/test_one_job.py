"""One job, on every surface that says how long it waited and what was predicted of it."""

from __future__ import annotations

import re
from html import unescape

import pytest

from features.codec import decode
from scheduler.explain.belief import words
from scheduler.explain.explanation import Explanation
from scheduler.explain.words import duration
from scheduler.service.log.audit import audit
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.visibility import Role, Viewer
from scheduler.service.pages.queries import PageQueries
from tests.scheduler.service.api.conftest import Run, Service

JOBS = "/api/v1/jobs"
HELD_S = 600.0


def page_text(service: Service, address: str) -> str:
    answer = service.by("alice").get(address, headers={"Accept": "text/html"})
    assert answer.status_code == 200, answer.text
    text = re.sub(r"<[^>]+>", " ", re.sub(r"<(style|script).*?</\1>", "", answer.text, flags=re.S))
    return " ".join(unescape(text).split())


def cell(service: Service, address: str, label: str) -> list[str]:
    html = service.by("alice").get(address, headers={"Accept": "text/html"}).text
    return [one.strip() for one in re.findall(rf'data-label="{label}">([^<]*)<', html)]


def test_waited_and_predicted_are_the_same_figures_everywhere(service: Service, run: Run) -> None:
    """It waits behind another job, is held for ten minutes, waits again, runs and ends. The time of
    the hold is no waiting on any surface."""
    alice = service.by("alice")
    service.submit("bob.noyce", 5000.0, gpus=8)
    service.turn(2)
    job = service.submit("alice", 50.0)
    service.turn(2)
    waits = decode(JobRow, alice.get(f"{JOBS}/{job}").json())
    told = decode(Explanation, alice.get(f"{JOBS}/{job}/explain").json())
    assert waits.phase == "queued"
    assert told.at is not None
    assert waits.waited(told.at) == pytest.approx(told.waited_s, abs=1e-6)
    service.turn(2, 100.0)
    assert alice.put(f"{JOBS}/{job}/hold").status_code == 202
    service.turn(2, HELD_S)
    assert alice.delete(f"{JOBS}/{job}/hold").is_success
    service.turn(2, 20.0)
    waits = decode(JobRow, alice.get(f"{JOBS}/{job}").json())
    assert waits.phase == "queued"
    assert waits.waits_since is not None
    assert waits.waited_s is not None
    assert waits.waits_since - waits.waited_s > waits.submitted_at + HELD_S - 1.0
    [cause] = alice.get("/api/v1/causes").json()["causes"]
    assert cause["oldest"] == waits.waits_since - waits.waited_s, "as 'longest' of why --all"
    phases = PageQueries(service.store, Viewer("alice", Role.SUBMITTER)).phases()
    assert phases["vision", "queued"][1] == cause["oldest"], "as 'longest wait now'"
    service.turn(9, 1000.0)

    row = decode(JobRow, alice.get(f"{JOBS}/{job}").json())
    assert row.state == "completed"
    assert row.started_at is not None
    waited_s = row.waited(0.0)
    assert waited_s is not None
    assert waited_s < row.started_at - row.submitted_at - HELD_S + 1.0, "a hold is no waiting"
    told = decode(Explanation, alice.get(f"{JOBS}/{job}/explain").json())
    assert told.waited_s == pytest.approx(waited_s, abs=1e-6)
    assert sum(one.seconds for one in told.waits) == pytest.approx(waited_s, abs=1e-6)
    waited = duration(waited_s)

    why, listed = run("alice", "why", job).output, run("alice", "ps", "--all").output
    assert f"it had waited {waited}" in " ".join(why.split())
    assert waited in next(line for line in listed.splitlines() if line.startswith(job))
    assert f"it had waited {waited}" in page_text(service, f"/jobs/{job}")
    assert f"{waited} (" in page_text(service, f"/jobs/{job}"), "its parts, by reason"
    assert cell(service, "/history", "waited") == [waited]
    assert waited in cell(service, "/fairness", "longest")
    assert f"median wait in seven days {waited}" in page_text(service, "/list?owner=alice")
    shares = alice.get("/api/v1/fairness").json()
    assert [one["max_wait_s"] for one in shares if one["user"] == "alice"] == [waited_s]

    assert row.estimate_s is not None
    predicted = duration(row.estimate_s)
    assert cell(service, "/history", "predicted") == [predicted]
    assert f"predicted to run {predicted}" in page_text(service, f"/jobs/{job}")
    assert told.belief is not None
    lasts = f"It was to run {words(told.belief.p50_s, told.belief.p90_s)}"
    assert lasts in " ".join(run("alice", "why", job, "--full").output.split())
    assert lasts in page_text(service, f"/jobs/{job}")
    assert told.predicted_s is None or told.predicted_s == pytest.approx(row.estimate_s)
    assert audit(service.store, service.decider.bundle_store.find, decide_again=True).clean


def test_a_job_that_is_cancelled_while_it_waits_waits_no_longer(service: Service) -> None:
    service.submit("bob.noyce", 5000.0, gpus=8)
    service.turn(2)
    job, alice = service.submit("alice", 50.0), service.by("alice")
    service.turn(2, 100.0)
    assert alice.post(f"{JOBS}/cancel", json={"jobs": [job]}).is_success
    service.turn(2, 100.0)
    row = decode(JobRow, alice.get(f"{JOBS}/{job}").json())
    assert row.phase == "cancelled"
    assert row.waits_since is None
    assert row.waited(1e12) == row.waited(0.0) == row.waited_s
