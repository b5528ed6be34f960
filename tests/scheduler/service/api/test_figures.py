"""Figures over many jobs: cluster, fairness, history, calibration."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from scheduler.service.log.store.tables import forecasts
from tests.scheduler.service.api.conftest import Service


@pytest.fixture(scope="module")
def played(shared: Service) -> dict[str, str]:
    """Three jobs that end one after the other, and one that runs; ids by name."""
    service = shared
    jobs = {
        "first": service.submit("alice", 100, gpus=8),
        "second": service.submit("bob.noyce", 50, gpus=8),
        "third": service.submit("bob.noyce", 50, gpus=4, vc="speech"),
    }
    service.turn(2)
    now = service.world.now()
    rows = [
        {"job_id": jobs["first"], "start_p50": now + 5, "start_p90": now + 9},
        {"job_id": jobs["second"], "start_p50": now + 50, "start_p90": now + 500},
        {"job_id": jobs["third"], "start_p50": None, "start_p90": None},
    ]
    with service.store.writing() as connection:
        for row in rows:
            connection.execute(insert(forecasts).values(basis="submission", made_at=now, **row))
    service.turn(4, 100.0)
    service.turn(4, 100.0)
    jobs["running"] = service.submit("alice", 1000, gpus=2)
    service.turn(2)
    return jobs


def test_fairness_adds_up_and_names_only_the_asker(shared: Service, played: dict[str, str]) -> None:
    def shares(who: str) -> dict[tuple[str, str], tuple[int, float]]:
        found = shared.by(who).get("/api/v1/fairness").json()
        return {(s["vc"], s["user"]): (s["jobs"], round(s["gpu_time_s"])) for s in found}

    whole = {("vision", ""): (2, 1200), ("speech", ""): (1, 200)}
    assert shares("alice") == {**whole, ("vision", "alice"): (1, 800)}
    assert shares("olga") == {
        **whole,
        ("vision", "alice"): (1, 800),
        ("vision", "bob.noyce"): (1, 400),
        ("speech", "bob.noyce"): (1, 200),
    }


def test_history_counts_what_ended(shared: Service, played: dict[str, str]) -> None:
    days = shared.by("alice").get("/api/v1/history").json()
    assert sum(day["jobs"] for day in days) == 3
    assert sum(day["gpu_time_s"] for day in days) == pytest.approx(1400, abs=1)
    assert all(day["day"] % 86_400 == 0 for day in days)
    speech = shared.by("alice").get("/api/v1/history", params={"vc": "speech"}).json()
    assert sum(day["jobs"] for day in speech) == 1
    assert shared.by("alice").get("/api/v1/history", params={"since": 9e10}).json() == []


def test_calibration_scores_what_was_promised(shared: Service, played: dict[str, str]) -> None:
    told = shared.by("vera").get("/api/v1/calibration").json()
    assert (told["jobs"], told["unavailable"]) == (2, 1)
    assert told["start_p50"] == 0.5  # the second waited 100 s, not 50
    assert told["start_p90"] == 1.0
    left_open = [told[f"open_{name}"] for name in ("jobs", "start_p50", "start_p90")]
    assert left_open == [2, 0.5, 1.0]
    assert told["end_p50"] is None


def test_what_was_claimed_is_scored_for_everybody(shared: Service, played: dict[str, str]) -> None:
    (told,) = shared.by("vera").get("/api/v1/claims").json()
    assert (told["kind"], told["held"], told["judged"]) == ("by_p90", 2, 2)
    assert 0.3 < told["low"] < told["high"] == 1.0


def test_the_map_shows_who_is_where(shared: Service, played: dict[str, str]) -> None:
    for who, label in (
        ("alice", played["running"]),
        ("bob.noyce", "another job"),
        ("vera", "another job"),
    ):
        cluster = shared.by(who).get("/api/v1/cluster").json()
        busy = [gpu["jobs"] for node in cluster["nodes"] for gpu in node["gpus"] if gpu["jobs"]]
        assert busy == [[label]] * 2
        vision, speech = cluster["vcs"]
        assert (vision["gpus"], vision["free"], vision["running"]) == (8, 6, 1)
        assert (speech["gpus"], speech["free"]) == (4, 4)


def test_who_waits_is_counted_by_cause(shared: Service, played: dict[str, str]) -> None:
    waits = [shared.submit("bob.noyce", 100, gpus=8) for _ in range(2)]
    shared.turn(2)
    seen = {who: shared.by(who).get("/api/v1/causes").json() for who in ("olga", "bob.noyce")}
    for found in seen.values():
        assert (found["waiting"], found["gpus"]) == (2, 16)
        assert sum(one["jobs"] for one in found["causes"]) == 2
        assert {one["example"] for one in found["causes"]} <= set(waits)
    assert {one["job_id"] for one in seen["olga"]["waited_for"]} >= {played["running"]}
    others = {one["job_id"] for one in seen["bob.noyce"]["waited_for"]}
    assert others <= set(waits)  # of another's job nothing is said
    assert shared.by("alice").get("/api/v1/causes").json()["waiting"] == 0
