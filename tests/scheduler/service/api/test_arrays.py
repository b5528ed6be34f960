"""Arrays and job files: from the command line to what runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipeline.job_file import read_job
from scheduler.backends.events import Kind
from scheduler.service.api.schemas import tasks_of
from scheduler.service.log.store.payloads import payload_of
from tests.scheduler.service.api.conftest import Run, Service

ARRAY = {"command": ["train", "100", "30"], "vc": "vision", "gpus": 4, "array": "0-4:2,9"}


def test_numbers_are_read_as_sbatch_reads_them() -> None:
    assert tasks_of("0-9").numbers == list(range(10))
    assert tasks_of("1,3,7").numbers == [1, 3, 7]
    assert tasks_of("0-4:2,9").numbers == [0, 2, 4, 9]
    assert tasks_of("0-9%2") == (list(range(10)), 2)
    for wrong in ("", "a", "3-1", "0-9%", "0-9%0", "0%2,4", "0-5000", "0-4:0", "-1"):
        with pytest.raises(ValueError, match=r"sbatch|holds no number|at most"):
            tasks_of(wrong)


def test_each_task_has_its_number_and_the_array_answers_for_all(service: Service, run: Run) -> None:
    done = run("alice", "submit", "--vc", "vision", "--gpus", "4", "--array", "0-4:2,9", "--",
               "train", "100", "30")  # fmt: skip
    array = done.output.strip()
    tasks = [f"{array}_{number}" for number in (0, 2, 4, 9)]
    assert [job["job_id"] for job in json.loads(run("alice", "ps", "--json").output)] == tasks[::-1]
    with service.store.engine.connect() as connection:
        told = [payload_of(connection, task).environment["SLURM_ARRAY_TASK_ID"] for task in tasks]
    assert told == ["0", "2", "4", "9"]
    service.turn(2)
    assert f"{array}_4" in run("alice", "why", array).output  # the first one that waits
    assert run("bob.noyce", "cancel", array).exit_code != 0
    stopped = run("alice", "cancel", array).output.splitlines()
    assert sorted(stopped) == sorted(f"{task} is cancelled" for task in tasks)
    service.turn(2)
    assert json.loads(run("alice", "ps", "--json").output) == []
    assert f"{array}_9" in run("alice", "why", array).output  # all are over: the last


def test_so_many_run_at_once_and_the_array_is_held_changed_and_released(
    service: Service, run: Run
) -> None:
    array = run("alice", "submit", "--vc", "vision", "--array", "0-5%2", "--",
                "train", "100", "30").output.strip()  # fmt: skip

    def phases() -> list[str]:
        return [job["phase"] for job in json.loads(run("alice", "ps", "--json").output)][::-1]

    service.turn(2)
    assert phases() == ["running"] * 2 + ["submitted"] * 4
    why = run("alice", "why", f"{array}_2").output
    limit = f"its array lets 2 of its tasks run at once: starts once job {array}_0 has ended"
    assert limit in why
    assert "array limit" in run("alice", "ps").output
    assert "dependency" not in why + run("alice", "ps").output
    alice, html = service.by("alice"), {"Accept": "text/html"}
    assert alice.get(f"/api/v1/jobs/{array}_2").json()["reason"] == "ArrayLimit"
    for shows in ("/causes", "/", "/list"):
        text = alice.get(shows, headers=html).text
        assert "array limit" in text or limit in text, shows
        assert "depend" not in text, shows
    page = alice.get(f"/jobs/{array}_2", headers=html).text
    assert limit in " ".join(page.split())
    assert "Starts at the latest" not in page, "it waits for a task whose end nothing bounds"
    assert "other jobs have to end before it may start" in page
    assert "has waited" not in page
    held = run("alice", "hold", array).output.splitlines()
    assert held == [f"{array}_{n} is held until it is released" for n in range(2, 6)]
    service.turn(2)
    assert phases()[2:] == ["held"] * 4
    half = run("alice", "cancel", f"{array}_[4-5]").output.splitlines()
    assert half == [f"{array}_{n} is cancelled" for n in (4, 5)]
    assert "3-1 holds no number" in str(run("alice", "hold", f"{array}_[3-1]").exception)
    service.turn(1)
    assert len(run("alice", "change", array, "--time-limit", "60").output.splitlines()) == 2
    assert len(run("alice", "release", array).output.splitlines()) == 2
    most = 0
    for _ in range(40):
        service.turn(1, 20.0)
        most = max(most, phases().count("running"))
    assert most == 2
    assert phases() == []
    gone = run("alice", "hold", array)
    assert gone.exit_code != 0


def test_sent_again_it_submits_only_what_is_missing(service: Service) -> None:
    alice, key = service.by("alice"), {"Idempotency-Key": "sweep"}
    first = alice.post("/api/v1/jobs/array", json=ARRAY, headers=key)
    assert first.status_code == 201, first.text
    again = alice.post("/api/v1/jobs/array", json=ARRAY, headers=key)
    assert again.json() == first.json()
    assert sum(event.kind is Kind.SUBMITTED for event in service.events()) == 4
    other = alice.post("/api/v1/jobs/array", json={**ARRAY, "gpus": 1}, headers=key)
    assert other.status_code == 422


def test_a_job_file_asks_for_the_same(service: Service, run: Run, tmp_path: Path) -> None:
    asked = ("--vc", "vision", "--gpus", "2", "--time-limit", "1:30:00", "--env", "SEED=1",
             "--no-share", "--name", "first")  # fmt: skip
    printed = run("alice", "submit", *asked, "--print", "--", "train", "100", "a b").output
    assert service.events()[-1].kind is not Kind.SUBMITTED
    file = tmp_path / "job.yaml"
    file.write_text(printed)
    job = run("alice", "submit", "--file", str(file), "--gpus", "1", "--json")
    row = json.loads(job.output)
    assert (row["gpus"], row["time_limit_s"], row["share"], row["name"]) == (
        1,
        5400,
        False,
        "first",
    )
    assert row["command"] == ["train", "100", "a b"]


def test_a_file_that_the_command_names_says_how_much(
    service: Service, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "conf.yaml").write_text("trainer: {max_epochs: 90, lr: 0.1}\nbatch_size: 64\n")
    (tmp_path / "odd.json").write_text("{")
    where = ("submit", "--vc", "vision", "--workdir", str(tmp_path))
    named = ("--", "train", "--config=conf.yaml", "odd.json", "none.json")
    assert run("alice", *where, *named).exit_code == 0
    assert run("alice", *where, "--no-progress", *named).exit_code == 0
    one, other = (e.body for e in service.events() if e.kind is Kind.SUBMITTED)
    assert (one["work"]["unit"], one["work"]["amount"], one["work"]["batch"]) == ("epoch", 90, 64)
    assert "work" not in other


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu: 2", "gpu is no field of a job; there are command"),
        ("time-limit: soon", "time-limit is 'soon'; give seconds"),
        ("- a", "holds no `name: value` lines"),
        ("a: [", "not YAML"),
        ('command: "it\'s x"', "No closing quotation"),
        ("env: 3", "env is 3; give NAME: VALUE"),
    ],
)
def test_a_file_that_is_wrong_is_named(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(Exception, match=why):
        read_job(file)
    file.write_text("time-limit: 1:30:00\ncommand: echo 'a b'\narray: 0-3\n")
    assert read_job(file) == {"time_limit_s": 5400, "command": ["echo", "a b"], "array": "0-3"}


def test_what_is_not_there_says_what_may_have_been_meant(service: Service) -> None:
    job, theirs = service.submit("alice"), service.submit("bob.noyce")

    def said(who: str, wrong: str) -> str:
        return str(service.by(who).get(f"/api/v1/jobs/{wrong}").json()["detail"])

    wrong = job[:-1] + ("2" if job[-1] != "2" else "3")
    assert said("alice", wrong) == f"there is no such job of yours: {wrong}; did you mean {job}?"
    near = theirs[:-1] + ("2" if theirs[-1] != "2" else "3")
    for hidden in (near, theirs):
        assert said("alice", hidden) == f"there is no such job of yours: {hidden}", "nothing leaks"
    assert said("olga", near) == f"there is no such job: {near}; did you mean {theirs}?"
    digits = said("olga", "123456")
    assert digits.startswith(
        "there is no such job: 123456; no Slurm is behind this service: ids here look like "
    )
    body = {"command": ["train", "1", "1"], "vc": "vision", "array": "0-8:2"}
    array = service.by("alice").post("/api/v1/jobs/array", json=body).json()["array_id"]
    assert said("alice", f"{array}_1").endswith(f"; array {array} has no task 1")


def test_an_address_that_is_not_there_is_a_page_for_a_browser(service: Service) -> None:
    alice = service.by("alice")
    page = alice.get("/nope", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["content-type"].split(";")[0]) == (404, "text/html")
    assert "There is no page at this address." in page.text
    for path, accept in (("/api/v1/nope", "text/html"), ("/nope", "application/json")):
        told = alice.get(path, headers={"Accept": accept})
        assert (told.status_code, told.json()["status"]) == (404, 404)
