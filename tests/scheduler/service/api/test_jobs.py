"""Submitting, looking, cancelling, priorities: what the API answers, and what is in the log."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, update

from features.codec import decode
from scheduler.assembly import CoreSpec
from scheduler.backends.events import Kind
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec
from scheduler.core.settings import ProfilingPartition
from scheduler.explain.explanation import Explanation
from scheduler.explain.render import first_words
from scheduler.service.api.auth import service_user
from scheduler.service.api.changes import Changes
from scheduler.service.api.limits import Limits
from scheduler.service.api.schemas import SubmitRequest
from scheduler.service.api.writer import Writer
from scheduler.service.log.header import LogHeader, establish
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import decisions, jobs
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.api.conftest import Service
from tests.scheduler.service.desk import Desk, lasting

JOBS = "/api/v1/jobs"
BODY = {"command": ["train", "100", "30"], "vc": "vision", "gpus": 2, "name": "first"}


def test_an_idempotency_key_submits_once(service: Service) -> None:
    alice, key = service.by("alice"), {"Idempotency-Key": "a-b-c"}
    first = alice.post(JOBS, json=BODY, headers=key)
    again = alice.post(JOBS, json=BODY, headers=key)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.headers["location"] == f"{JOBS}/{first.json()['job_id']}"
    assert first.json()["job_id"] == again.json()["job_id"]
    other = alice.post(JOBS, json={**BODY, "gpus": 1}, headers=key)
    assert other.status_code == 422
    assert other.json()["type"].endswith("idempotency-key-reused")
    # another person's key is another key
    assert service.by("bob.noyce").post(JOBS, json=BODY, headers=key).status_code == 201
    assert sum(e.kind is Kind.SUBMITTED for e in service.events()) == 2


def test_many_at_once_are_each_written_once_and_those_of_one_key_together(
    service: Service,
) -> None:
    def send(number: int) -> str:
        key = {"Idempotency-Key": "k"} if number % 2 else {}
        answer = service.by("alice").post(JOBS, json=BODY, headers=key)
        return str(answer.json()["job_id"])

    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(send, range(64)))
    events = [e for e in service.events() if e.kind is Kind.SUBMITTED]
    assert sorted(e.job_id for e in events) == sorted(set(ids))
    assert len(set(ids)) == 32 + 1
    assert [e.seq for e in service.events()] == list(range(1, len(service.events()) + 1))


def pages(client: TestClient, path: str, **query: Any) -> Iterator[list[dict[str, Any]]]:
    """The pages of a list, three rows each."""
    after = None
    while True:
        asked = {"limit": 3, **query, **({"after": after} if after else {})}
        page = client.get(path, params=asked).json()
        yield page["items"]
        after = page["next"]
        if after is None:
            return


def test_lists_are_paged_by_key(service: Service) -> None:
    ids = [service.submit("alice", gpus=8) for _ in range(7)]
    seen = []
    for page in pages(service.by("alice"), JOBS):
        if not seen:
            service.submit("alice")  # a newcomer moves no page
        seen += [job["job_id"] for job in page]
    assert seen == ids[::-1]


def test_a_queue_is_paged_in_the_order_of_the_core(service: Service) -> None:
    service.submit("olga", 1000, gpus=8)
    service.turn(2)
    ids = [service.submit("olga", 100, gpus=8 if i % 3 else 4) for i in range(8)]
    service.turn(2)
    olga = service.by("olga")
    moved = olga.put(f"{JOBS}/{ids[5]}/priority", json={"priority": 3})
    assert moved.status_code == 200
    service.turn()
    core = [q.job.job_id for q in service.decider.state.core.queues["vision"]]
    entries = [one for page in pages(olga, "/api/v1/queue", vc="vision") for one in page]
    assert [entry["job"]["job_id"] for entry in entries] == core
    assert [entry["position"] for entry in entries] == list(range(1, len(core) + 1))
    assert core[0] == ids[5]


def test_a_job_moved_before_another_came_before_it_in_line(service: Service) -> None:
    running = service.submit("olga", 1000, gpus=8)
    service.turn(2)
    first, second = service.submit("alice", gpus=8), service.submit("alice", gpus=4)
    service.turn(2)
    olga = service.by("olga")
    assert olga.put(f"{JOBS}/{second}/priority", json={"priority": 5}).json()["applied"]
    assert olga.post(f"{JOBS}/{running}/cancel").status_code == 202
    service.turn(4, wait_s=5.0)
    told = olga.get(f"{JOBS}/{first}/explain").json()["overtaken"]
    # not: asked for fewer GPUs
    assert told == {"jobs": 1, "why": {"stood ahead of it in line": 1}}


def test_who_went_first_is_said_by_the_order_of_then(service: Service) -> None:
    """The job's own place has become better since: it is predicted again."""
    service.submit("olga", 1000, gpus=8)
    service.turn(2)
    first, second, third = (service.submit("alice", gpus=gpus) for gpus in (8, 4, 4))
    service.turn(2)
    began = {second: 500, third: 2 * 10**6}  # before, and after
    with service.store.engine.begin() as connection:
        own = [(first, 9e20, 400), (first, 1.0, 10**6)]
        twice = [*began.items(), (second, 501)]  # it was stopped, and began again
        for job, key, event in (*own, *((job, 5.0, event) for job, event in twice)):
            body = {"action": "wait", "reason": "GpusBusy", "priority": key, "job_id": job,
                    "time": 1.0, "vc": "vision", "seq": 10**6 + event}  # fmt: skip
            if job in began:
                body |= {"action": "start", "reason": "ExclusiveGpus"}
            row = {k: body[k] for k in ("job_id", "vc", "action", "reason")}
            row |= {"seq": 10**6 + event, "event": event, "at": 2e9, "body": json.dumps(body)}
            connection.execute(insert(decisions).values(row))
        for job, key in ((first, 1.0), (second, 5.0), (third, 5.0)):
            connection.execute(update(jobs).where(jobs.c.job_id == job).values(key=key))
    view = Reads(service.store.engine).seen_by(Viewer("olga", Role.OPERATOR))
    assert view.overtaken(first) == {
        "stood ahead of it in line": 1, "asked for fewer GPUs": 1
    }  # fmt: skip


def test_whom_the_same_pass_starts_after_a_job_did_not_go_first(service: Service) -> None:
    """They were decided to start before it began, which takes a moment on a real host."""
    running = service.submit("olga", 1000, gpus=8)
    service.turn(2)
    both = [service.submit("alice", gpus=4) for _ in range(2)]
    service.turn(2)
    olga = service.by("olga")
    assert olga.post(f"{JOBS}/{running}/cancel").status_code == 202
    service.turn(4, wait_s=5.0)
    with service.store.engine.begin() as connection:
        connection.execute(update(jobs).values(started_at=jobs.c.started_at + 0.1))
    for job in both:
        found = olga.get(f"{JOBS}/{job}").json()
        assert found["phase"] == "running"
        assert olga.get(f"{JOBS}/{job}/explain").json()["overtaken"] is None


def test_a_later_job_that_ended_while_it_was_profiled_went_first(
    store: Store, tmp_path: Path
) -> None:
    partition = ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=30.0)
    outcomes = {"runs": lasting(900.0), "waits": lasting(900.0), "brief": lasting(5.0)}
    desk = Desk(store, tmp_path, outcomes, policy="lucid", partition=partition)
    desk.submit("runs", gpus=4)
    for _ in range(5):
        desk.turn(31.0)
    desk.submit("waits", gpus=4)
    for _ in range(5):
        desk.turn(31.0)
    desk.submit("brief")
    for _ in range(5):
        desk.turn(10.0)
    assert [desk.row(job).phase for job in outcomes] == ["running", "queued", "ended"]
    view = Reads(store.engine).seen_by(Viewer("ann", Role.OPERATOR))
    assert view.overtaken("waits") == {"ended during the short profiling run that new jobs get": 1}


def test_a_priority_is_previewed_then_given(service: Service) -> None:
    service.submit("olga", 1000, gpus=8)
    service.turn(2)
    first, second = service.submit("alice", gpus=8), service.submit("alice", gpus=8)
    service.turn(2)
    olga, path = service.by("olga"), f"{JOBS}/{second}/priority"
    preview = olga.put(path, json={"priority": 5}, params={"preview": True}).json()
    assert not preview["applied"]
    assert preview["before"] == {"position": 2, "waiting": 2}
    assert preview["after"] == {"position": 1, "waiting": 2}
    assert preview["overtakes"] == 1
    assert not any(e.kind is Kind.PRIORITY_SET for e in service.events())
    assert olga.put(path, json={"priority": 5}).json()["applied"]
    service.turn()
    queue = service.decider.state.core.queues["vision"]
    assert [q.job.job_id for q in queue] == [second, first]
    # a submitter may put off a job of their own, and only that
    alice = service.by("alice")
    assert alice.put(path, json={"priority": 6}).status_code == 403
    assert alice.put(path, json={"priority": -1}).status_code == 200
    assert alice.post(JOBS, json={**BODY, "priority": 1}).status_code == 403


def test_cancel_waits_for_nobody_and_can_be_repeated(service: Service) -> None:
    running, waiting = service.submit("alice", 1000, gpus=8), service.submit("alice", gpus=8)
    service.turn(2)
    alice = service.by("alice")
    for job in (running, waiting):
        assert alice.post(f"{JOBS}/{job}/cancel").status_code == 202
    service.turn(3)
    for job in (running, waiting):
        assert alice.get(f"{JOBS}/{job}").json()["phase"] == "cancelled"
        assert alice.post(f"{JOBS}/{job}/cancel").status_code == 202
    asked = {"jobs": [running, waiting, running, "nosuch"]}
    told = alice.post(f"{JOBS}/cancel", json=asked).json()
    assert (told["asked"], told["unknown"]) == ([], ["nosuch"])
    assert sorted(told["over"]) == sorted([running, waiting])
    assert sum(e.kind is Kind.CANCEL_ASKED for e in service.events()) == 2
    over = alice.put(f"{JOBS}/{waiting}/priority", json={"priority": -1})
    assert over.status_code == 409


def test_an_explanation_has_one_dominant_reason_with_its_numbers(service: Service) -> None:
    service.submit("bob.noyce", 1000, gpus=6)
    service.turn(2)
    job = service.submit("alice", gpus=4)
    fresh = service.by("alice").get(f"{JOBS}/{job}/explain").json()
    assert fresh["reason"] == "NotYetEvaluated"
    service.turn(2)
    told = service.by("alice").get(f"{JOBS}/{job}/explain").json()
    assert told["reason"] in ("GpusBusy", "GpusFragmented")
    assert 1 <= len(told["principal"]) <= 4
    assert told["principal"][0]["reason"] == told["reason"]
    assert (told["principal"][0]["need"], told["principal"][0]["free"]) == (4, 2)
    assert told["standing"] == {"position": 1, "waiting": 1}
    made = told["forecast"]  # no future was drawn, and what bounds the start is answered
    assert (made["start_p50"], made["latest"]) == (None, None)
    assert made["no_latest"] == "1 job before it has no time limit"
    kinds = [line["kind"] for line in service.by("alice").get(f"{JOBS}/{job}/story").json()]
    assert kinds[0] == "submitted"
    assert "decision" in kinds


def test_a_place_in_line_is_that_of_now_and_names_nobody(store: Store, tmp_path: Path) -> None:
    service = Service(store, tmp_path, Limits(), "fifo")
    service.submit("olga", 1000, gpus=6)
    service.turn(2)
    first, second = (service.submit("bob.noyce", gpus=4, name="secret") for _ in range(2))
    job = service.submit("alice", gpus=2)  # would fit, and others go first
    alice = service.by("alice")
    for gone, place in (
        ("", "number 3 in line, behind 2 higher-priority jobs"),
        (second, "number 2 in line, behind a higher-priority job"),
    ):
        if gone:
            service.by("bob.noyce").post(f"{JOBS}/{gone}/cancel")
        service.turn(2)
        told = alice.get(f"{JOBS}/{job}/explain").json()
        assert (told["reason"], first_words(decode(Explanation, told))) == (
            "BehindHigherPriority",
            place,
        )
        page = alice.get(f"/jobs/{job}").text
        assert place in page
        assert not [word for word in (first, second, "secret", "bob") if word in page + str(told)]
    service.app.state.changes.close()


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"gpus": 0}, "gpus", "gpus is 0; give 1 or more"),
        ({"gpus": 9}, "gpus", "gpus: 9 is more than the 8 GPUs of vision"),
        ({"gpus": 2.5}, "gpus", "gpus is 2.5; give a whole number"),
        ({"gpus": 10**30}, "gpus", "gpus"),
        ({"gpus": None}, "gpus", "gpus is None; give a whole number"),
        ({"vc": ""}, "vc", "vc is ''; give 1 or more characters"),
        ({"vc": "v" * 129}, "vc", "vc does not fit; give 128 characters or fewer"),
        ({"vc": "mars"}, None, "vc is 'mars'; you may submit to: vision"),
        ({"vc": "speech"}, None, "vc is 'speech'; you may submit to: vision"),
        ({"gpu_type": "H900"}, "gpu_type", "gpu_type"),
        ({"command": []}, "command", "command does not fit; give 1 or more"),
        ({"command": [""]}, "", ""),
        ({"command": "rm -rf /"}, "command", "command does not fit; give a list"),
        ({"command": ["a\0b"]}, "command.0", "command"),
        ({"workdir": "../../etc"}, "workdir", "workdir"),
        ({"environment": {"TOKEN": 12345}}, "environment", "environment.TOKEN does not fit; give"),
        ({"environment": {"CUDA_VISIBLE_DEVICES": "0"}}, "environment", "environment"),
        ({"environment": {"A=B": "0"}}, "environment", "environment"),
        ({"name": "two\nlines"}, "name", "name"),
        ({"share": "perhaps"}, "share", "share is 'perhaps'; give true or false"),
        ({"time_limit_s": -1}, "time_limit_s", "time_limit_s is -1; give more than 0"),
        ({"owner": "bob.noyce"}, "owner", "there is no field 'owner'; the fields are named in"),
        ({"submitted_at": 0}, "submitted_at", "there is no field 'submitted_at'"),
    ],
)
def test_what_does_not_fit_names_its_field_in_a_sentence(
    shared: Service, change: dict[str, object], field: str | None, said: str
) -> None:
    before = len([e for e in shared.events() if e.kind is not Kind.REFUSED])
    answer = shared.by("alice").post(JOBS, json={**BODY, **change})
    problem = answer.json()
    assert answer.status_code == problem["status"] == (403 if field is None else 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem["detail"].startswith(said)
    assert not re.search("Input should|[Vv]alue error|body", problem["detail"])
    if field is not None:
        assert problem["errors"][0]["field"].startswith(f"body.{field}".rstrip("."))
        assert problem["errors"][0]["message"]
    assert len([e for e in shared.events() if e.kind is not Kind.REFUSED]) == before


def test_a_drained_node_takes_nothing_new(service: Service) -> None:
    olga = service.by("olga")
    for node in (0, 1):
        assert olga.put(f"/api/v1/nodes/{node}", json={"open": False}).status_code == 202
    job = service.submit("alice", gpus=1)
    service.turn(2)
    assert service.by("alice").get(f"{JOBS}/{job}").json()["phase"] == "queued"
    olga.put("/api/v1/nodes/0", json={"open": True})
    service.turn(2)
    assert service.by("alice").get(f"{JOBS}/{job}").json()["phase"] == "running"
    assert olga.put("/api/v1/nodes/99", json={"open": True}).status_code == 404
    assert service.by("alice").put("/api/v1/nodes/0", json={"open": True}).status_code == 403


@pytest.mark.parametrize(
    ("more", "reads", "amount"),
    [
        ({}, True, 90.0),
        ({"command": ["train.py", "c.yaml"], "amounts": {"epochs": 3}}, True, 3.0),
        ({"progress": False}, True, None),
        ({}, False, None),
    ],
)
def test_a_command_is_read_for_how_much_it_asks_for_where_its_owner_and_the_site_let_it(
    store: Store, more: dict[str, object], reads: bool, amount: float | None
) -> None:
    spec = CoreSpec.of(ClusterSpec({"vision": 1}, 8), "pellucid")
    establish(store, LogHeader(spec, 1.7e9, backend="simulated"))
    changes = Changes(store, Writer(store), lambda: 1.7e9, reads_commands=reads)
    asked = SubmitRequest.model_validate(
        {"command": ["train.py", "--epochs", "90"], "vc": "vision", **more}
    )
    viewer = Viewer("ann", Role.SUBMITTER, ("vision",), os_user=service_user())
    changes.submit(viewer, asked).result()
    [event] = [e for e in store.read(0) if e.kind is Kind.SUBMITTED]
    work = Submission.from_body(event.body).work
    assert (work and work.amount) == amount
    assert ("work" in event.body) == (amount is not None)
    assert ("like" in event.body) == (amount is not None)
    assert "90" not in str(event.body["command"])


def test_a_job_names_its_file_of_progress_and_nothing_else_of_the_service(service: Service) -> None:
    for name, status in (("PELLUCID_PROGRESS", 201), ("PELLUCID_TOKEN", 422)):
        asked = {"command": ["train", "100", "30"], "vc": "vision", "environment": {name: "own"}}
        assert service.by("alice").post("/api/v1/jobs", json=asked).status_code == status
