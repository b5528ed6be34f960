"""A record that was written before a field of a job was known takes its default, wherever it is
read: the optional keys are dropped from the stored records, and everything is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from features.codec import decode
from pipeline.printed.jobs import lines
from scheduler.backends.events import Kind, canonical
from scheduler.backends.submission import Submission
from scheduler.core.request import FIELDS
from scheduler.service.api.limits import Limits
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.export import finished
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import events, jobs
from tests.scheduler.service.api.conftest import Service
from tests.scheduler.service.conftest import empty_database

ASKED: dict[str, Any] = {
    "gpus": 8, "name": "n", "workdir": "/tmp", "cpus": 2.0, "memory_mib": 9.0, "gpu_type": "V100",
    "time_limit_s": 90.0, "share": False, "profile": False, "priority": -1, "comment": "table 3",
    "after": "", "after_any": "", "progress": False, "notify": True,
    "expect": "6h",
}  # fmt: skip
DEFAULTS = {
    one.name: None if one.default is MISSING else one.default
    for one in fields(Submission)
    if one.default is not MISSING or one.default_factory is not MISSING
}
PAGES = ("/", "/history?period=all", "/fairness?period=all", "/jobs/{}", "/jobs/{}?codes=1",
         "/jobs/{}/blockers", "/jobs/{}/act?do=change&gpus=1", "/jobs/{}/act?do=hold")  # fmt: skip
ANSWERS = ("", "/story", "/explain", "/forecast")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, postgresql: str) -> Iterator[Service]:
    folder: Path = tmp_path_factory.mktemp("older")
    store = Store(empty_database(folder, postgresql))
    prepare(store)
    made = Service(store, folder, Limits(rate_per_s=1e6, burst=10**6, answer_s=0.0))
    made.app.state.changes.mails = True
    for seconds in (1.0, 1e6, 1e6):  # one that is over, one that runs, one that waits
        made.submit("alice", seconds, **ASKED)
        made.turn(4, wait_s=2.0)
    yield made
    made.app.state.changes.close()
    store.close()


def without(store: Store, *names: str) -> None:
    """Store what the records of jobs held without some of it."""
    with store.engine.begin() as connection:
        for table, key, column in ((jobs, jobs.c.job_id, "spec"), (events, events.c.seq, "body")):
            found = select(key, table.c[column])
            if table is events:
                found = found.where(events.c.kind == Kind.SUBMITTED.value)
            for row in connection.execute(found).all():
                kept = {k: v for k, v in json.loads(row[1]).items() if k not in names}
                this = update(table).where(key == row[0])
                connection.execute(this.values({column: canonical(kept)}))


def test_a_record_without_its_optional_keys_reads_as_their_defaults(
    service: Service, tmp_path: Path
) -> None:
    with service.store.engine.connect() as connection:
        was = connection.execute(select(jobs)).mappings().all()
        log = connection.execute(select(events)).mappings().all()
    without(service.store, *DEFAULTS)
    try:
        client = service.by("alice")
        listed = client.get("/api/v1/jobs").json()["items"]
        assert {one["phase"] for one in listed} == {"ended", "running", "queued"}
        rows = [decode(JobRow, one) for one in listed]
        assert len(lines(rows, 0.0)) == 1 + len(listed)
        columns = set(jobs.c.keys())  # what has a column of its own is read there
        for key in DEFAULTS.keys() & listed[0].keys() - columns:
            assert [one[key] for one in listed] == [DEFAULTS[key]] * len(listed), key
        for one in listed:
            for answer in ANSWERS:
                found = client.get(f"/api/v1/jobs/{one['job_id']}{answer}")
                assert found.status_code == 200, (answer, found.text)
            for page in PAGES:
                found = client.get(page.format(one["job_id"]), headers={"Accept": "text/html"})
                assert found.status_code in (200, 409), (page, found.text)
        assert finished(service.store).num_rows == 1
        found_out = audit(service.store, BundleStore(tmp_path))
        assert not [d for d in found_out.divergences if d.where == "jobs" and "spec" in d.what]
    finally:
        with service.store.engine.begin() as connection:
            for row in was:
                connection.execute(update(jobs).where(jobs.c.job_id == row["job_id"]).values(row))
            for row in log:
                connection.execute(update(events).where(events.c.seq == row["seq"]).values(row))


def test_every_field_is_asked_for() -> None:
    missing = sorted(FIELDS.keys() - ASKED.keys() - {"vc"})
    assert missing == [], f"ASKED above lacks {missing}: add what a job may ask for"
