"""`pellucid tune` on a service: its log is the past, and its settings are what is changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest

from features.files import write_table
from features.schema import TRACE_SCHEMA
from pipeline import tuning
from pipeline.app import app  # noqa: F401  (the command is imported before it is changed)
from pipeline.traces import ingest
from scheduler.backends.events import Kind
from scheduler.service.log.header import runnable
from tests.pipeline.test_tuning import busy
from tests.scheduler.service.api.conftest import Run, Service

SINCE_MS = 1_700_000_000_000


@pytest.fixture
def past(tmp_path: Path) -> list[str]:
    """The options of a trace and its cluster."""
    jobs = busy()
    empty = dict.fromkeys(TRACE_SCHEMA.names)
    rows = []
    for number, job in enumerate(jobs.jobs):
        submit, ran = round(job.submit_time * 1000) + SINCE_MS, jobs.work[job.job_id].duration_s
        times = {"submit_time": submit, "start_time": submit, "duration_s": ran}
        names = {"job_id": job.job_id, "user": job.user, "name": job.name, "vc": job.vc}
        more = {"gpus": job.gpus, "state": "completed", "source_line": number}
        rows.append({**empty, **times, **names, **more, "end_time": submit + round(ran * 1000)})
    table = pa.Table.from_pylist(rows, schema=TRACE_SCHEMA)
    write_table(tmp_path / "finished.parquet", table)
    ingest(tmp_path / "finished.parquet", tmp_path / "site")
    (tmp_path / "site.yaml").write_text("vcs: {all: 2}\n")
    return ["--trace", str(tmp_path / "site"), "--cluster", str(tmp_path / "site.yaml")]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CANDIDATES", {})
    monkeypatch.setattr(tuning, "PACKING", {})


def test_a_setting_is_previewed_adopted_with_its_evidence_and_taken_back(
    service: Service, run: Run, past: list[str]
) -> None:
    rigid = ["max_wait_s=60.0", "overload=100.0", "backfill=0.0", "price=1000000000.0"]
    assert run("olga", "settings", "set", *rigid).exit_code == 0
    service.turn()
    before = json.loads(run("olga", "settings", "show", "--json").output)
    words = ["tune", *past, "--seeds", "1", "--tail", "2", "--adopt"]

    shown = run("olga", *words, "--preview").output
    assert "Adopt the defaults: on the half that did not choose it" in " ".join(shown.split())
    assert "Nothing is changed." in shown
    assert json.loads(run("olga", "settings", "show", "--json").output) == before

    done = run("olga", *words)
    assert done.exit_code == 0, done.output
    [back] = re.findall(r"To go back: pellucid (settings set .*)", " ".join(done.output.split()))
    service.turn()
    event = [event for event in service.events() if event.kind is Kind.SETTINGS_SET][-1]
    assert event.actor == "olga"
    assert event.body["settings"]["max_wait_s"] == 172_800.0
    reason = event.body["reason"]
    assert re.match(r"tune 20\S+: the defaults: mean JCT 0\.\d+ times \[", reason)
    assert "jobs; before: max_wait_s=60.0 overload=100.0" in reason
    again = json.loads(run("olga", *words, "--json").output)
    assert (again["adopt"], again["change"]) == (False, None)  # it is so already

    assert run("olga", *back.split()).exit_code == 0
    service.turn()
    after = json.loads(run("olga", "settings", "show", "--json").output)
    assert [one["value"] for one in after] == [one["value"] for one in before]


def test_the_past_is_the_services_own(
    service: Service, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuning, "LEAST", 16)
    for number in range(20):
        service.submit("alice", 50.0 + number, gpus=1 + number % 2)
        service.turn(2, wait_s=5.0)
    refused = run("olga", "tune", "--database", service.database)
    assert "are the least to choose by" in str(refused.exception)
    service.turn(30, wait_s=30.0)
    words = ["tune", "--database", service.database, "--also", "ageing=0", "--seeds", "1", "--json"]
    found = json.loads(run("olga", *words).output)
    assert found["jobs"] == 20
    names = [row["name"] for row in found["chosen_on"]]
    others = [f"the policy {name}" for name in runnable() if name != "pellucid"]
    assert names == ["as it is", "ageing=0", *others]
    assert found["chosen_on"][0]["mean_jct_s"] > 50.0
