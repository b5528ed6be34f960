"""What Prometheus reads is what the tables say, however often and by whomever it is read."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from random import Random

import yaml
from sqlalchemy import func, select

from scheduler.backends.events import Event, Kind
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, events, forecasts, jobs
from scheduler.service.metrics import Counts, Metrics
from tests.scheduler.service.pages.conftest import Lived, busy_morning, scraped

DEPLOY = Path(__file__).parents[4] / "deploy"
DASHBOARD = DEPLOY / "grafana" / "pellucid.json"
ALERTS = DEPLOY / "prometheus" / "pellucid-alerts.yaml"


def total(read: dict[tuple[str, tuple[tuple[str, str], ...]], float], name: str) -> float:
    return sum(value for (found, _), value in read.items() if found == name)


def test_gauges_say_what_is_so(busy: Lived) -> None:
    read = scraped(Metrics(busy.store))
    assert total(read, "pellucid_gpus") == 12
    view = busy.app.state.reads.seen_by(busy.viewer("olga"))
    gpus = [gpu for node in view.cluster() for gpu in node.gpus]
    shared = sum(v for (n, labels), v in read.items()
                 if n == "pellucid_gpus" and ("use", "shared") in labels)  # fmt: skip
    assert shared == sum(len(gpu.jobs) == 2 for gpu in gpus) > 0
    with busy.store.engine.connect() as connection:
        live = connection.execute(
            select(func.count()).select_from(jobs).where(jobs.c.ended_at.is_(None))
        ).scalar()
    assert total(read, "pellucid_jobs") == live


def test_no_label_names_a_job_or_a_user(busy: Lived) -> None:
    labels = {name for _, pairs in scraped(Metrics(busy.store)) for name, _ in pairs}
    assert labels <= {
        "vc", "phase", "state", "use", "kind", "action", "reason", "lease", "process", "version",
        "le", "of", "outcome",
    }  # fmt: skip
    text = Metrics(busy.store).exposition()[0].decode()
    assert "ada.byron" not in text
    for line in text.splitlines():
        assert line.startswith(("pellucid_", "# HELP pellucid_", "# TYPE pellucid_"))


def test_dashboard_and_alerts_ask_for_metrics_that_are_there(busy: Lived) -> None:
    known = {name for name, _ in scraped(Metrics(busy.store, Counts.of(["decider"])))}
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(asked) >= 8
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    asked += [rule["expr"] for group in groups for rule in group["rules"]]
    known.add("pellucid_unread_since_timestamp_seconds")  # there only while Slurm is silent
    for expression in asked:
        for name in re.findall(r"pellucid_\w+", expression):
            assert name in known, expression
        for kind in re.findall(r'kind="(\w+)"', expression):
            assert kind in {*Kind}, expression


def test_panels_lead_to_pages_that_are_there(busy: Lived) -> None:
    text = DASHBOARD.read_text()
    links = set(re.findall(r'"url": "([^"]+)"', text))
    assert len(links) >= 7
    with busy.store.engine.connect() as connection:
        ids = connection.execute(select(jobs.c.job_id)).scalars().all()
    for link in links:
        assert link.startswith("${pellucid}/"), link
        path = re.sub(r"\$\{(job|__field\.labels\.hpc_job)\}", ids[0], link.split("}", 1)[1])
        assert "$" not in path, link
        answer = busy.browser("olga").get(path)
        assert answer.status_code == 200, link
    assert any("hpc_job" in link for link in links), "of a job's GPU use its page is a click away"


def test_alerts_cover_a_refused_model_a_stale_look_and_broken_forecasts() -> None:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    rules = {rule["alert"]: rule["expr"] for group in groups for rule in group["rules"]}
    assert "bundle_refused" in rules["PellucidModelRefused"]
    assert "pellucid_unread_since" in rules["PellucidStaleLook"]
    assert "pellucid_start_forecasts" in rules["PellucidForecastsBroken"]


def test_a_slurm_that_is_silent_is_seen_by_prometheus(store: Store) -> None:
    name = "pellucid_unread_since_timestamp_seconds"

    def of() -> dict[str, float]:
        read = scraped(Metrics(store))
        return {dict(labels)["of"]: value for (n, labels), value in read.items() if n == name}

    assert of() == {}
    body = {"failed": "no answer", "unread_since": 900.0, "database_since": 800.0}
    store.append([Event(Kind.ADVISED, 1000.0, body=body)])
    assert of() == {"slurm": 900.0, "slurmdbd": 800.0}
    back = {"failed": "", "unread_since": None, "database_since": None}
    store.append([Event(Kind.ADVISED, 1010.0, body=back)])
    assert of() == {}


def test_forecasts_that_were_kept_and_that_were_not_are_counted(store: Store) -> None:
    now = store.clock.now()

    def outcomes() -> tuple[float, float]:
        read = scraped(Metrics(store))
        name = "pellucid_start_forecasts"
        kept, late = (read[name, (("outcome", o),)] for o in ("kept", "late"))
        return kept, late

    def job(name: str, started: float | None, p90: float, p50: float | None = None) -> None:
        row = dict.fromkeys(("job_id", "name", "owner"), name)
        given = {"phase": "running" if started else "queued", "submitted_at": now - 900}
        with store.writing() as connection:
            seq = connection.execute(select(func.coalesce(func.max(jobs.c.submitted_seq), 0)))
            at = (seq.scalar() or 0) + 1
            need = {"vc": "vision", "gpus": 1, "spec": "{}", "submitted_seq": at,
                    "updated_seq": at}  # fmt: skip
            connection.execute(jobs.insert().values(**row, **given, **need, started_at=started))
            made = {"basis": "submission", "made_at": now - 900, "job_id": name}
            start = now - 850 if p50 is None else p50
            connection.execute(forecasts.insert().values(**made, start_p50=start, start_p90=p90))

    assert outcomes() == (0, 0)
    job("kept", now - 600, now - 500)
    job("late", now - 300, now - 500)
    job("waits and was to have started", None, now - 100)
    job("waits", None, now + 100)
    job("certain to start at once", now - 300, now - 500, p50=now - 500)
    assert outcomes() == (1, 2)


def test_counters_go_on_where_they_stopped(lived: Lived) -> None:
    often = Metrics(lived.store)
    random = Random(5)
    for _ in range(4):
        ids = busy_morning(lived, 6, random)
        lived.app.state.changes.cancel(lived.viewer("olga"), lived.see("olga").job(ids[-1]))
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
