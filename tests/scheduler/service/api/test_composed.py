"""Names that look alike are the same, however they were written."""

from __future__ import annotations

import time
import unicodedata

import pytest

from scheduler.service.api import tokens
from scheduler.service.api.auth import service_user
from scheduler.service.log.store.visibility import Role
from tests.scheduler.service.api.conftest import Service, bearer

JOBS = "/api/v1/jobs"
WHOLE = "Zoë-für-José"
APART = unicodedata.normalize("NFD", WHOLE)
OTHERWISE = "\u0958"  # which is no more one character in the form that is kept


def test_a_job_has_the_name_that_is_looked_for(service: Service) -> None:
    assert APART != WHOLE
    job = {"command": ["train", "100", "30"], "vc": "vision", "name": APART, "comment": APART}
    alice = service.by("alice")
    made = alice.post(JOBS, json=job)
    assert made.status_code == 201, made.text
    assert (made.json()["name"], made.json()["comment"]) == (WHOLE, WHOLE)
    changed = alice.patch(f"{JOBS}/{made.json()['job_id']}", json={"comment": f"{APART}!"})
    assert changed.status_code == 202, changed.text
    service.turn(2)
    assert alice.get(f"{JOBS}/{made.json()['job_id']}").json()["comment"] == f"{WHOLE}!"


def test_an_array_has_one_name(service: Service) -> None:
    job = {"command": ["train", "100", "30"], "vc": "vision", "name": APART, "array": "0-1"}
    made = service.by("alice").post(f"{JOBS}/array", json=job)
    assert made.status_code == 201, made.text
    names = {row["name"] for row in service.by("alice").get(JOBS).json()["items"]}
    assert all(WHOLE in name and APART not in name for name in names)


def test_what_would_be_longer_so_is_turned_down(service: Service) -> None:
    job = {"command": ["train", "100", "30"], "vc": "vision", "name": OTHERWISE}
    refused = service.by("alice").post(JOBS, json=job)
    assert refused.status_code == 422
    assert "written as several" in refused.text


def test_a_user_has_one_name(service: Service) -> None:
    now = time.time()
    token, secret = tokens.create(
        service.store, APART, Role.SUBMITTER, vcs=("vision",), os_user=service_user(), now=now
    )
    assert token.name == WHOLE
    client = service.strangers
    job = {"command": ["train", "100", "30"], "vc": "vision"}
    assert client.post(JOBS, json=job, headers=bearer(secret)).status_code == 201
    for asked in (WHOLE, APART):
        for path in (JOBS, "/jobs"):
            found = client.get(path, params={"owner": asked}, headers=bearer(secret))
            assert WHOLE in found.text, path
            assert found.status_code == 200
    nobody = client.get(JOBS, params={"owner": "Zoe-fur-Jose"}, headers=bearer(secret))
    assert nobody.json()["items"] == []
    assert tokens.rotate(service.store, APART, now=now, overlap_s=0.0)[0].name == WHOLE
    assert {one.name for one in tokens.revoke(service.store, APART, now)} == {WHOLE}
    with pytest.raises(tokens.TokenError):
        tokens.revoke(service.store, APART, now)
