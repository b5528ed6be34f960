"""Users' secrets: in a command, an environment, a token. Once the job is over, they are nowhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scheduler.backends.base import Launch
from scheduler.backends.simulated import JobOutcome
from scheduler.service.api.writer import Room
from scheduler.service.log.audit import audit
from scheduler.service.log.snapshots import StateCheckpoints
from scheduler.simulation.work import Work
from tests.scheduler.service.api.conftest import Service
from tests.scheduler.service.api.test_privacy import addresses
from tests.scheduler.service.conftest import rows_of

WORD, VALUE = "canary-in-a-command", "canary-in-an-environment"
JOBS = "/api/v1/jobs"


def everything_answered(service: Service, who: str, job_id: str) -> str:
    """What every address that can be read answers."""
    client = service.by(who)
    return "".join(client.get(one).text for one in addresses(service, {job_id: ("alice", 0)}))


def test_what_a_job_runs_is_gone_when_it_is_over(
    service: Service, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    launched: list[Launch] = []

    def outcome(launch: Launch) -> JobOutcome:
        launched.append(launch)
        return JobOutcome(Work(50.0))

    service.world._truth = outcome
    service.decider.snapshots = StateCheckpoints(
        tmp_path / "snapshots", service.decider.bundle_store.find
    )
    environment = {"WANDB_API_KEY": VALUE}
    job = service.submit("alice", command=["train", "--key", WORD], environment=environment)
    service.turn(2)
    assert (launched[0].command, launched[0].environment) == (("train", "--key", WORD), environment)
    shown = service.by("alice").get(f"{JOBS}/{job}").json()
    assert shown["command"] == ["train", "--key", WORD]
    for who in ("alice", "olga"):
        assert VALUE not in everything_answered(service, who, job), "it is never shown again"
    assert WORD not in everything_answered(service, "bob.noyce", job)
    log = json.dumps([dict(event.body) for event in service.events()])
    assert WORD not in log
    assert VALUE not in log
    service.decider._keep()  # while it runs

    service.turn(3, wait_s=400.0)
    assert service.by("alice").get(f"{JOBS}/{job}").json()["phase"] == "ended"
    service.decider._keep()
    rows = rows_of(service.store)
    output = "".join(capfd.readouterr())
    for canary in (WORD, VALUE, *service.secrets.values()):
        assert canary not in rows
        assert canary not in output
    for who in ("alice", "olga"):
        assert WORD not in everything_answered(service, who, job)
    if service.store.is_sqlite:
        with service.store.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert any(path.suffix == ".snapshot" for path in files)
        for path in files:
            content = path.read_bytes()
            assert VALUE.encode() not in content, path
            assert WORD.encode() not in content, path
    assert audit(service.store, service.decider.bundle_store.find, decide_again=True).clean


def test_a_job_that_is_cancelled_as_it_waits_leaves_nothing(service: Service) -> None:
    job = service.submit("alice", environment={"KEY": VALUE})
    assert service.by("alice").post(f"{JOBS}/{job}/cancel").status_code == 202
    service.turn(2)
    assert VALUE not in rows_of(service.store)


def test_commands_and_environments_of_one_submitter_take_so_many_bytes(service: Service) -> None:
    """An earlier version kept 1,200 of 224 KB each in the decider's memory, and in the log."""
    service.app.state.changes._room = Room(0, 100_000)
    large = {"command": ["train", "1", "1"], "vc": "vision", "environment": {"A": "x" * 30_000}}
    answers = [service.by("alice").post(JOBS, json=large) for _ in range(4)]
    assert [answer.status_code for answer in answers] == [201, 201, 201, 429]
    assert answers[-1].json()["type"].endswith(":too-many-bytes")
    assert service.by("bob.noyce").post(JOBS, json=large).status_code == 201
    assert service.by("alice").post(JOBS, json={**large, "environment": {}}).status_code == 201


def test_what_stays_in_the_log_counts_and_is_bounded(service: Service) -> None:
    service.app.state.changes._room = Room(0, 10_000)
    deep = {"command": ["train"], "vc": "vision", "workdir": "/" + "x" * 4000}
    answers = [service.by("alice").post(JOBS, json=deep) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [201, 201, 429]
    long = {"command": ["x" * 4097], "vc": "vision"}
    assert service.by("bob.noyce").post(JOBS, json=long).status_code == 422
