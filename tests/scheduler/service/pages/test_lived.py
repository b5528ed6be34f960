"""Services of their own: what people may type, what counters count."""

from __future__ import annotations

from collections import Counter
from random import Random

from fastapi.testclient import TestClient
from sqlalchemy import func, select

from scheduler.service.log.store.tables import decisions, events, jobs
from scheduler.service.metrics import Metrics
from tests.scheduler.service.pages.conftest import Lived, busy_morning
from tests.scheduler.service.pages.test_metrics import scraped, total


def test_what_people_type_is_text(lived: Lived) -> None:
    name = "<script>alert(1)</script>\" onmouseover='x'"
    job = lived.submit("ada.byron", name=name, gpus=1, vc="vision", command=["<b>", "</script>"])
    lived.settle(30)
    for path in ("/", f"/jobs/{job}", "/history?vc=<script>&owner='\"><b>&after="):
        page = lived.browser("olga").get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<b>" not in page.text


def test_counters_go_on_where_they_stopped(lived: Lived) -> None:
    often = Metrics(lived.store)
    random = Random(5)
    for _ in range(4):
        ids = busy_morning(lived, 6, random)
        _cancel(lived, ids[-1])
        scraped(often)
        lived.settle(60)
    once = Metrics(lived.store)
    read = scraped(often)
    assert read == scraped(once)
    assert read == scraped(often)
    with lived.store.engine.connect() as connection:
        kinds = connection.execute(select(events.c.kind, func.count()).group_by(events.c.kind))
        for kind, n in kinds:
            assert read["pellucid_events_total", (("kind", kind),)] == n
        assert (
            total(read, "pellucid_decisions_total")
            == connection.execute(select(func.count()).select_from(decisions)).scalar()
        )
        over = connection.execute(select(jobs).where(jobs.c.ended_at.is_not(None))).mappings().all()
    ended: Counter[tuple[str, str]] = Counter((row["vc"], row["state"]) for row in over)
    assert sum(ended.values()) > 5
    assert ended["vision", "cancelled"]
    for (vc, state), n in ended.items():
        assert read["pellucid_jobs_ended_total", (("state", state), ("vc", vc))] == n
    ran = [row for row in over if row["started_at"] is not None]
    assert total(read, "pellucid_queueing_delay_seconds_count") == len(ran)
    gpu_time = sum(row["gpus"] * (row["ended_at"] - row["started_at"]) for row in ran)
    assert abs(total(read, "pellucid_gpu_time_seconds_total") - gpu_time) < 1e-3


def _cancel(lived: Lived, job_id: str) -> None:
    owner = lived.see("olga").job(job_id).owner
    answer = TestClient(lived.app).post(
        f"/api/v1/jobs/{job_id}/cancel",
        headers={"Authorization": f"Bearer {lived.secrets[owner]}"},
    )
    assert answer.is_success, answer.text


def test_a_service_that_stopped_deciding_says_so(lived: Lived) -> None:
    assert "No decider is active" not in lived.browser("ada.byron").get("/").text
    lived.decider.let_go()
    assert "No decider is active" in lived.browser("ada.byron").get("/").text
