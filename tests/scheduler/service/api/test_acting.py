"""What owners and operators do about waiting jobs: who may, what comes of it, what is logged."""

from __future__ import annotations

from typing import Any

import pytest

from features.codec import decode
from scheduler.backends.events import Kind
from scheduler.explain.effect import command_of
from scheduler.explain.explanation import Explanation
from scheduler.explain.render import first_words
from scheduler.service.analyst.process import Analyst
from scheduler.service.api.acting import Acting
from scheduler.service.api.changes import Changes
from scheduler.service.api.problems import Problem
from scheduler.service.api.schemas import ChangeRequest
from scheduler.service.api.writer import Writer
from scheduler.service.log.audit import audit
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.api.conftest import Service

JOBS = "/api/v1/jobs"
ALICE = Viewer("alice", Role.SUBMITTER, ("vision", "speech"))


@pytest.fixture
def waiting(service: Service) -> str:
    """A job of alice's that waits behind one that fills its virtual cluster."""
    return service.waiting(gpus=8, name="sweep-1")


@pytest.fixture(scope="module")
def unchanged(shared: Service) -> str:
    """A job that waits, for requests that change nothing."""
    return shared.waiting(gpus=8)


def row(service: Service, job: str, who: str = "alice") -> dict[str, Any]:
    found: dict[str, Any] = service.by(who).get(f"{JOBS}/{job}").json()
    return found


def test_a_change_is_logged_with_its_author_and_keeps_the_place(
    service: Service, waiting: str
) -> None:
    before = row(service, waiting)
    answer = service.by("alice").patch(f"{JOBS}/{waiting}", json={"gpus": 4, "share": False})
    assert answer.status_code == 202
    told = answer.json()
    asked = {"gpus": 4, "share": False}
    assert (told["changes"], told["needed"], told["applied"]) == (asked, True, True)
    service.turn(2)
    after = row(service, waiting)
    assert (after["gpus"], after["share"], after["phase"]) == (4, False, "queued")
    assert after["submitted_at"] == before["submitted_at"]
    assert after["queued_at"] == before["queued_at"] is not None
    assert after["command"] == before["command"]
    [event] = [e for e in service.events() if e.kind is Kind.CHANGED]
    assert (event.actor, event.body) == ("alice", asked)
    again = service.by("alice").patch(f"{JOBS}/{waiting}", json={"gpus": 4})
    assert (again.status_code, again.json()["needed"]) == (202, False)
    lines = service.by("alice").get(f"{JOBS}/{waiting}/story").json()
    [line] = [line for line in lines if line["kind"] == "changed"]
    assert (line["actor"], line["body"]) == ("alice", asked)
    assert audit(service.store, service.decider.bundle_store.find, decide_again=True).clean


def test_a_changed_job_starts_as_what_it_is_then_as_foreseen(
    service: Service, waiting: str
) -> None:
    body = {"gpus": 4, "vc": "speech"}
    analyst = Analyst(service.store, service.decider.bundle_store, holder="test", samples=12)
    assert analyst.take_over()
    told = analyst.reply("whatif", {"job_id": waiting, "changes": body, "others": True})
    assert told["starts_now"]
    changed = service.by("bob.noyce").patch(f"{JOBS}/{waiting}", json={"vc": "speech"})
    assert changed.status_code == 404
    assert service.by("olga").patch(f"{JOBS}/{waiting}", json=body).status_code == 202
    service.turn(2)
    shown = row(service, waiting)
    assert (shown["phase"], shown["vc"], list(shown["placement"])) == ("running", "speech", ["2"])
    late = service.by("alice").patch(f"{JOBS}/{waiting}", json={"gpus": 1})
    assert late.status_code == 409
    assert "only a job that waits" in late.json()["detail"]
    longer = service.by("alice").patch(f"{JOBS}/{waiting}", json={"time_limit_s": 9000.0})
    assert "once it runs its time limit stays" in longer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 422, "say what is to be different"),
        ({"gpus": 9}, 422, "more than the 8 GPUs of vision"),
        ({"gpu_type": "A100"}, 422, "is in no node"),
        ({"vc": "speech"}, 403, "you may submit to: vision"),
        ({"priority": 3}, 422, "priority"),
        ({"time_limit_s": -1}, 422, "time_limit_s"),
    ],
)
def test_what_cannot_be_is_turned_down(
    shared: Service, unchanged: str, body: dict[str, Any], status: int, words: str
) -> None:
    for preview in ("false", "true"):
        answer = shared.by("alice").patch(f"{JOBS}/{unchanged}?preview={preview}", json=body)
        assert answer.status_code == status, answer.text
        assert words in answer.json()["detail"]
    assert not [e for e in shared.events() if e.kind is Kind.CHANGED]


def test_a_held_job_does_not_start_and_says_by_whom_it_is_held(
    service: Service, waiting: str
) -> None:
    alice = service.by("alice")
    for _ in range(2):
        assert alice.put(f"{JOBS}/{waiting}/hold").status_code == 202
        service.turn(2)
    assert len([e for e in service.events() if e.kind is Kind.HELD]) == 1
    shown = row(service, waiting)
    assert (shown["phase"], shown["hold"], shown["held_by"]) == ("held", "owner", "alice")
    assert decode(JobRow, shown).waited(1e12) == shown["held_at"] - shown["submitted_at"]
    service.turn(5, 2000.0)
    assert row(service, waiting)["phase"] == "held"
    told = alice.get(f"{JOBS}/{waiting}/explain", params={"analyse": True}).json()
    assert first_words(decode(Explanation, told)) == "its owner holds it back"
    before_s = told["held_at"] - told["times"]["submitted_at"]
    assert told["waited_s"] <= before_s, "what it is held for is no waiting"
    assert told["analysis"] is None
    queue = alice.get("/api/v1/queue", params={"vc": "vision"}).json()
    assert queue["items"] == []
    assert alice.delete(f"{JOBS}/{waiting}/hold").json()["needed"]
    service.turn(2)
    assert row(service, waiting)["phase"] == "running"
    waited_s = sum(wait["seconds"] for wait in told["waits"])
    told = alice.get(f"{JOBS}/{waiting}/explain").json()
    assert not any("Held" in wait["reason"] for wait in told["waits"])
    assert sum(wait["seconds"] for wait in told["waits"]) == pytest.approx(waited_s, abs=1.0)
    assert not alice.delete(f"{JOBS}/{waiting}/hold").is_success
    assert audit(service.store, service.decider.bundle_store.find, decide_again=True).clean


def test_of_a_held_job_the_analyst_says_so(service: Service, waiting: str) -> None:
    service.by("alice").put(f"{JOBS}/{waiting}/hold")
    service.turn(2)
    analyst = Analyst(service.store, service.decider.bundle_store, holder="test", samples=12)
    assert analyst.take_over()
    assert "held" in analyst.reply("forecast", {"job_id": waiting})["why_not"]
    assert "held" in analyst.reply("why", {"job_id": waiting})["unavailable"]
    order = analyst.reply("order", {"vc": "vision", "owner": "alice", "limit": 9})
    assert order["rows"] == []
    assert order["held"] == [{"job_id": waiting, "gpus": 8, "priority": 0}]
    free = analyst.reply("whatif", {"job_id": waiting, "changes": {"held": False}})
    assert (free["now"]["start_p50"], free["then"]["start_p50"] is None) == (None, False)
    assert free["earlier"] == free["futures"]


def test_a_suggestion_names_the_command() -> None:
    changes = {"gpu_type": "", "time_limit_s": 1800.0, "share": True}
    said = "pellucid change abc --gpu-type '' --time-limit 1800 --share"
    assert command_of("abc", changes) == said
    assert command_of("abc", {"first": True}) == ""


def test_messages_that_nobody_would_send_are_refused(service: Service, waiting: str) -> None:
    service.app.state.changes.host_mib = 4096.0
    large = {"command": ["train", "1", "30"], "vc": "vision", "memory_mib": 99_999_999}
    told = service.by("alice").post(JOBS, json=large)
    assert "99,999,999 MiB is more than the 4,096 MiB of the service's host" in told.text
    asked = {"command": ["train", "1", "30"], "vc": "vision", "notify": True}
    for answer in (
        service.by("alice").post(JOBS, json=asked),
        service.by("alice").patch(f"{JOBS}/{waiting}", json={"notify": True}),
    ):
        assert answer.status_code == 422
        assert "sends no messages: `mail_program` is not set" in answer.json()["detail"]


def test_where_slurm_decides_its_own_command_is_named(service: Service, waiting: str) -> None:
    row = service.app.state.reads.seen_by(ALICE).job(waiting)
    writer = Writer(service.store)
    follows = Changes(service.store, writer, lambda: 0.0, follows=True)
    acting = Acting(follows, ALICE)
    for act, how in (
        (
            lambda: acting.change(row, ChangeRequest.model_validate({"gpus": 1})),
            f"scontrol update JobId={waiting}",
        ),
        (lambda: acting.hold(row), f"scontrol hold {waiting}"),
        (lambda: acting.release(row), f"scontrol release {waiting}"),
    ):
        with pytest.raises(Problem, match="Slurm decides here") as refused:
            act()
        assert (refused.value.status, how in refused.value.detail) == (409, True)
