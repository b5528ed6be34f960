"""What people ask of a service in front of Slurm: by the command line, and in whose turn."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert
from typer.testing import CliRunner

from pipeline.app import app
from scheduler.explain.words import clock_time
from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.app import create_app
from scheduler.service.log.questions import ETA, TRIED
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import questions
from scheduler.service.log.store.visibility import Role
from scheduler.service.settings import Settings
from scheduler.slurm.follow.answers import answer_questions
from tests.scheduler.service.api.conftest import address_of
from tests.scheduler.service.api.test_commands import listening
from tests.scheduler.slurm.follow.test_follow import EVERYTHING, NOW, Scene


@pytest.fixture
def environment(store: Store) -> Iterator[dict[str, str]]:
    """Of ada, who has an array of which a task runs, one of which all run, and a job."""
    scene = Scene(store, "slurm", order=False)
    runs: dict[str, Any] = {"state": "RUNNING", "start": NOW, "user": "ada", **EVERYTHING}
    waiting = [scene.job(f"1_{n}", user="ada", reason="Priority") for n in (10, 9, 3)]
    others = [scene.job("12", user="ada"), scene.job("14_1", user="ben"), scene.job("2_1", **runs)]
    scene.look(scene.job("1_1", **runs), *waiting, *others)
    assert scene.follower.lease is not None
    store.let_go(scene.follower.lease)  # else what would help is asked of it, who is not there
    _, secret = tokens.create(store, "ada", Role.SUBMITTER, os_user=service_user(), now=time.time())
    settings = Settings(database=address_of(store), auth="on", backend="slurm")
    for address in listening(create_app(settings, store=store)):
        yield {"PELLUCID_SERVER": address, "PELLUCID_TOKEN": secret, "COLUMNS": "160"}


@pytest.mark.parametrize(
    ("named", "first"),
    [
        ("1", "1 is an array; 1_3 is its first task that waits."),
        ("1_[3-10%2]", "1_[3-10%2] is an array; 1_3 is its first task that waits."),
        ("2", "2 is an array; 2_1 is its first task that runs."),
    ],
)
def test_an_array_is_answered_for_by_its_first_task(
    environment: dict[str, str], named: str, first: str
) -> None:
    lines = CliRunner().invoke(app, ["why", named], env=environment).output.splitlines()
    task = first.split("; ")[1].split()[0]
    assert lines[0] == first
    assert lines[1].startswith(f"{task} is ")


def test_other_ids_are_of_themselves(environment: dict[str, str]) -> None:
    for named in ("1_10", "12"):
        told = CliRunner().invoke(app, ["why", named], env=environment).output
        assert told.startswith(f"{named} is "), told
        assert "array" not in told
    for named in ("14", "14_[1]", "3"):  # of somebody else, and of nobody
        done = CliRunner().invoke(app, ["why", named], env=environment)
        assert str(done.exception).startswith("there is no such job of yours: ")


def test_a_heterogeneous_job_is_answered_for_by_all_of_its_components(store: Store) -> None:
    scene = Scene(store, "slurm", order=False)
    parts = [scene.job(f"7+{n}", user="ada", gpus=4, reason="Resources") for n in (1, 0)]
    scene.look(*parts, scene.job("8", user="ben"))
    assert scene.follower.lease is not None
    store.let_go(scene.follower.lease)
    for told in asked_of(store, "why", "7"):
        lines = told.splitlines()
        assert lines[0] == "7 is a heterogeneous job of 2 components."
        heads = [line.split()[0] for line in lines if " is queued: " in line]
        assert heads == ["7+0", "7+1"]


def asked_of(store: Store, *words: str) -> Iterator[str]:
    """What ada's command line prints, both streams."""
    _, secret = tokens.create(store, "ada", Role.OPERATOR, os_user=service_user(), now=time.time())
    settings = Settings(database=address_of(store), auth="on", backend="slurm")
    for address in listening(create_app(settings, store=store)):
        environment = {"PELLUCID_SERVER": address, "PELLUCID_TOKEN": secret, "COLUMNS": "160"}
        done = CliRunner().invoke(app, list(words), env=environment)
        yield f"{done.output}{done.exception or ''}"


def _says(told: str, text: str, seen: float, began: float) -> bool:
    """Whether it is said with a moment as it was written then or is now: a midnight may lie
    between.
    """
    return any(text.format(clock_time(seen, at)) in told for at in (began, time.time()))


def test_every_answer_says_since_when_slurm_does_not_answer(store: Store) -> None:
    """Two minutes after slurmctld had died `ps` and `why` went on without a word."""
    scene = Scene(store, "slurm", order=False)
    scene.look(scene.job("12", user="ada", reason="Priority"))
    seen, scene.slurm.down = scene.now, True
    scene.now += 8.0
    scene.follower._is_ready()
    assert not scene.follower._is_back()  # between two looks
    silent, began = "Slurm does not answer: what is shown is of {}", time.time()
    for words in (("ps",), ("ps", "--all")):
        for told in asked_of(store, *words):
            assert _says(told, silent, seen, began), told
    assert scene.follower.answer(TRIED, {"job_id": "12"})["unavailable"].startswith(
        "Slurm does not"
    )
    api = TestClient(create_app(Settings(database=address_of(store), backend="slurm"), store=store))
    ready = api.get("/ready")
    assert ready.json()["status"] == "stale"
    assert ready.json()["checks"]["slurm"].startswith("does not answer: what is shown is of ")
    assert int(ready.headers["pellucid-slurm-unread-since"]) == round(seen)
    scene.slurm.down = False
    assert scene.follower._is_back()
    scene.look(scene.job("12", user="ada", reason="Priority"))
    for told in asked_of(store, "ps"):
        assert "does not answer" not in told


def test_every_answer_says_since_when_slurmdbd_does_not_answer(store: Store) -> None:
    """Limits that were read before stay: a site without limits lets everybody start."""
    scene = Scene(store, "slurm", order=False)
    scene.slurm.says["qos"] = "lab||||gres/gpu=2|||||||||||||||||||||"
    job = scene.job("12", user="ada", reason="Priority")
    scene.look(job)
    scene.follower.ask_database()
    known = scene.follower._planner.site
    assert known is not None
    assert "lab" in known.qos
    seen, scene.slurm.database = scene.now, False
    scene.now += 8.0
    scene.follower.ask_database()  # between two looks
    scene.follower._is_ready()
    scene.now += 8.0
    scene.follower.ask_database()
    silent = "slurmdbd does not answer: limits, accounts and shares are of {}, "
    began = time.time()
    for told in asked_of(store, "ps"):
        assert _says(told, silent, seen, began), told
    api = TestClient(create_app(Settings(database=address_of(store), backend="slurm"), store=store))
    ready = api.get("/ready")
    assert ready.json()["status"] == "stale"
    told = ready.json()["checks"]["slurmdbd"]
    assert told == f"does not answer: limits, accounts and shares are of {clock_time(seen, seen)}"
    assert int(ready.headers["pellucid-slurmdbd-unread-since"]) == round(seen)
    assert "pellucid-slurm-unread-since" not in ready.headers
    for asked in ({}, {"HX-Target": "part-board"}):
        assert f"Slurmdbd {told}." in api.get("/", headers=asked).text
    scene.follower._looks = 0  # the look that reads the site again
    scene.look(job)
    assert scene.follower._planner.site is not known
    assert scene.follower._planner.site is not None
    assert scene.follower._planner.site.qos == known.qos
    scene.slurm.database = True
    scene.now += 8.0
    scene.follower.ask_database()
    scene.look(job)
    assert scene.follower._planner.site.faults == ()
    time.sleep(1.1)  # for which the finding is good
    for told in asked_of(store, "ps"):
        assert "does not answer" not in told
    assert "does not answer" not in api.get("/").text


def test_whatif_says_that_why_tells_what_would_help(environment: dict[str, str]) -> None:
    told = CliRunner().invoke(app, ["whatif", "12", "--gpus", "2"], env=environment).output
    why = "in front of Slurm, `pellucid why 12` ends with what would help"
    assert told == f"estimate unavailable: {why}\n"


def test_who_asks_much_waits_for_themselves(store: Store) -> None:
    now = store.clock.now()
    with store.writing() as connection:
        for number, actor in enumerate(("ada", "ada", "ada", "ben")):
            row = {"id": str(number), "asked_at": now + number / 1000, "kind": ETA}
            body = f'{{"of": "{actor}{number}"}}'
            connection.execute(insert(questions).values(**row, body=body, actor=actor))
    order: list[str] = []

    def answer(_: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        order.append(asked["of"])
        return {}

    answer_questions(store, answer)
    assert order == ["ada0", "ben3", "ada1", "ada2"]
