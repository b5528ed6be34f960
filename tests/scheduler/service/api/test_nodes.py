"""Nodes and settings by the API: operators only, each an event, once however often it is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.backends.events import Event, Kind
from scheduler.service.api.limits import Limits
from scheduler.service.log.audit import audit
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.store.store import Store
from tests.scheduler.service.api.conftest import Service

API = "/api/v1"


def node(service: Service, name: str) -> dict[str, Any]:
    nodes = service.by("olga").get(f"{API}/nodes").json()
    return next((one for one in nodes if one["name"] == name), {})


def test_a_node_comes_moves_and_goes(service: Service, tmp_path: Path) -> None:
    olga = service.by("olga")
    body = {"name": "gpu9", "vc": "speech"}
    assert olga.post(f"{API}/nodes", json=body).json()["changed"] is True
    service.turn()
    assert olga.post(f"{API}/nodes", json=body).json()["changed"] is False
    preview = olga.post(f"{API}/nodes?preview=true", json=body).json()
    assert (preview["changed"], preview["effect"]) == (False, None)
    assert len(node(service, "gpu9")["gpus"]) == 4, "as the others of its virtual cluster"
    clash = olga.post(f"{API}/nodes", json={**body, "gpus": 2})
    assert (clash.status_code, clash.json()["type"]) == (409, "urn:pellucid:problem:node-exists")
    big = service.submit("bob.noyce", vc="speech", gpus=8)
    service.turn()
    assert olga.get(f"{API}/jobs/{big}").json()["phase"] == "starting"
    olga.patch(f"{API}/nodes/gpu9", json={"vc": "new", "new_vc": True})
    service.turn()
    assert node(service, "gpu9")["change"] == "becomes 4 x V100 in new"
    service.turn(8, 100.0)
    assert (node(service, "gpu9")["vc"], node(service, "gpu9")["open"]) == ("new", True)
    assert olga.delete(f"{API}/nodes/gpu9", params={"reason": "sold"}).json()["changed"]
    service.turn()
    assert node(service, "gpu9") == {}
    assert olga.delete(f"{API}/nodes/gpu9").status_code == 404
    assert audit(service.store, BundleStore(tmp_path / "bundles").find, decide_again=True).clean


def test_a_cluster_without_nodes_takes_no_job_and_says_why(service: Service) -> None:
    olga = service.by("olga")
    for one in olga.get(f"{API}/nodes").json():
        assert olga.delete(f"{API}/nodes/{one['name']}").status_code == 202
    service.turn()
    answer = olga.post(f"{API}/jobs", json={"command": ["true"], "gpus": 1, "vc": "speech"})
    assert (answer.status_code, "no node for jobs" in answer.text) == (422, True), answer.text


@pytest.mark.parametrize("reason", ["\n", "\x9b2J", "\u202e", "x" * 257])
def test_a_reason_is_a_line_of_printable_text(shared: Service, reason: str) -> None:
    olga, before = shared.by("olga"), shared.events()
    for answer in (
        olga.delete(f"{API}/nodes/node001", params={"reason": reason}),
        olga.put(f"{API}/nodes/node001", json={"open": False, "reason": reason}),
    ):
        assert answer.status_code == 422
    assert shared.events() == before


@pytest.mark.parametrize("query", ["", "?preview=true"])
def test_a_virtual_cluster_is_not_made_by_a_typing_error(service: Service, query: str) -> None:
    olga = service.by("olga")
    before = service.store.last_seq()
    for answer in (
        olga.post(f"{API}/nodes{query}", json={"name": "gpu19", "vc": "visoin"}),
        olga.patch(f"{API}/nodes/node000{query}", json={"vc": "visoin"}),
    ):
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:pellucid:problem:unknown-vc"
        told = answer.json()["detail"]
        assert "no virtual cluster 'visoin'; there are: speech, vision. " in told
        assert "--new-vc" in told
    assert service.store.last_seq() == before
    made = {"name": "gpu19", "vc": "visoin", "new_vc": True}
    assert olga.post(f"{API}/nodes{query}", json=made).json()["changed"]
    if not query:  # and then it is there, before any pass
        assert olga.patch(f"{API}/nodes/node000", json={"vc": "visoin"}).status_code == 202


def test_jobs_that_could_not_start_any_more_are_named(service: Service) -> None:
    service.submit("alice", gpus=8)
    waits = service.submit("alice", gpus=8)
    service.turn()
    olga = service.by("olga")
    preview = olga.delete(f"{API}/nodes/node000", params={"preview": True}).json()
    assert (preview["never"], preview["effect"]["why_not"]) == ([waits], "no analyst is running")
    service.turn()
    assert node(service, "node000")["open"], "a preview changes nothing"
    assert olga.delete(f"{API}/nodes/node000").json()["never"] == [waits]
    service.turn()
    alice = service.by("alice")
    assert alice.get(f"{API}/jobs/{waits}").json()["reason"] == "VcTooSmall"
    drained = olga.put(f"{API}/nodes/node001", json={"open": False})
    assert drained.json()["never"] == [], "it could not start before, either"
    told = alice.get(f"{API}/jobs/{waits}/explain")
    assert told.status_code == 200
    assert told.json()["principal"][0]["reason"] == "VcTooSmall"


def test_a_submission_is_judged_by_the_cluster_as_it_is_to_be(
    service: Service, tmp_path: Path
) -> None:
    olga = service.by("olga")
    service.submit("bob.noyce", vc="speech", gpus=4, seconds=50.0)  # the cluster is looked up
    service.turn()
    olga.post(f"{API}/nodes", json={"name": "big", "vc": "new", "gpus": 16, "new_vc": True})
    asked = {"command": ["train", "1", "30"], "vc": "new", "gpus": 16}
    assert olga.post(f"{API}/jobs", json=asked).status_code == 201, "before any pass"
    service.turn()
    olga.post(f"{API}/nodes", json={"name": "more", "vc": "vision"})
    service.turn()
    service.submit("alice", gpus=12)
    olga.patch(f"{API}/nodes/node002", json={"gpus": 8})
    waits = service.submit("bob.noyce", vc="speech", gpus=8)
    too_large = {**asked, "vc": "speech", "gpus": 9}
    assert olga.post(f"{API}/jobs", json=too_large).status_code == 422
    service.turn()
    seen = service.by("bob.noyce").get(f"{API}/jobs/{waits}").json()
    assert (seen["phase"], seen["reason"]) == ("queued", "VcTooSmall")
    service.turn(8, 100.0)
    assert service.by("bob.noyce").get(f"{API}/jobs/{waits}").json()["phase"] == "ended"
    assert audit(service.store, BundleStore(tmp_path / "bundles").find, decide_again=True).clean


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/nodes/none", {"open": False}, 404),
        ("PATCH", "/nodes/node000", {}, 422),
        ("PATCH", "/nodes/node000", {"gpus": 65}, 422),
        ("PATCH", "/nodes/node000", {"colour": "red"}, 422),
        ("POST", "/nodes", {"vc": "vision"}, 422),
        ("PUT", "/settings", {"settings": {}}, 422),
        ("PUT", "/settings", {"settings": {"nonsense": 1}}, 422),
        ("PUT", "/settings", {"settings": {"ageing": -1}}, 422),
        ("PUT", "/settings", {"settings": {"ageing.more": 1}}, 422),
        ("PUT", "/settings", {"settings": {"ageing": 1.7e308}}, 422),
        ("PUT", "/settings", {"settings": {"fairness.half_life_s": 1e-300}}, 422),
        ("PUT", "/settings", {"settings": {"gpu_types.counted_on": "\ud800"}}, 422),
        ("PUT", "/settings", {"settings": {"\ud800": 1}}, 422),
        ("PUT", "/settings?preview=true", {"settings": {"ageing": -1}}, 422),
    ],
)
def test_what_cannot_be_is_turned_down_with_a_sentence(
    shared: Service, method: str, path: str, body: dict[str, Any], status: int
) -> None:
    answer = shared.by("olga").request(
        method, API + path, content=json.dumps(body), headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    assert answer.json()["detail"]


def test_only_operators_change_nodes_and_settings(service: Service) -> None:
    alice = service.by("alice")
    assert alice.put(f"{API}/nodes/0", json={"open": False}).status_code == 403
    assert alice.post(f"{API}/nodes", json={"name": "x", "vc": "vision"}).status_code == 403
    assert alice.patch(f"{API}/nodes/0", json={"vc": "speech"}).status_code == 403
    assert alice.delete(f"{API}/nodes/0").status_code == 403
    assert alice.get(f"{API}/settings").status_code == 403
    assert alice.put(f"{API}/settings", json={"settings": {"ageing": 1.0}}).status_code == 403


def test_settings_are_set_and_those_that_were_taken_are_shown(service: Service) -> None:
    olga = service.by("olga")
    asked = {"settings": {"ageing": 0.5, "fairness.weight": 1.0}, "reason": "long waits"}
    answer = olga.put(f"{API}/settings", json=asked)
    assert (answer.status_code, answer.json()["changed"]) == (202, True)
    service.turn()
    again = olga.put(f"{API}/settings", json={"settings": {"ageing": 0.5}})
    assert again.json()["changed"] is False
    at, wrong = service.events()[-1].at, {"settings": {"ageing": -1.0}}
    service.store.append([Event(Kind.SETTINGS_SET, at, actor="olga", body=wrong)])
    service.turn()
    shown = {one["name"]: one for one in olga.get(f"{API}/settings").json()}
    ageing = shown["ageing"]
    assert (ageing["value"], ageing["default"]) == (0.5, 0.05)
    assert (ageing["actor"], ageing["reason"]) == ("olga", "long waits")
    assert ageing["since"] is not None
    assert shown["fairness.weight"]["value"] == 1.0
    assert shown["max_wait_s"]["since"] is None
    assert getattr(service.decider.state.core.policy, "ageing", None) == 0.5


def test_a_type_that_the_policy_cannot_place_on_is_turned_down(
    store: Store, tmp_path: Path
) -> None:
    fifo = Service(store, tmp_path, Limits(rate_per_s=1e6, burst=10**6, answer_s=0.2), "fifo")
    body = {"name": "x", "vc": "vision", "gpu_type": "A100"}
    answer = fifo.by("olga").post(f"{API}/nodes", json=body)
    assert answer.status_code == 409
    assert "needs GPUs of one type" in answer.json()["detail"]
    fifo.app.state.changes.close()
