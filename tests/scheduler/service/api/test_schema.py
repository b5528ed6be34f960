"""schemathesis over the OpenAPI document: no 5xx, and nothing the document does not say.

PELLUCID_SCHEMA_EXAMPLES sets how many requests are made of each operation in each role (3).
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    ignored_auth,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from scheduler.service.api.limits import Limits
from scheduler.service.log.store.schema import prepare
from scheduler.service.log.store.store import Store
from tests.scheduler.service.api.conftest import Service

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    ignored_auth,
    unsupported_method,
]


EXAMPLES = int(os.environ.get("PELLUCID_SCHEMA_EXAMPLES", "3"))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Service:
    folder: Path = tmp_path_factory.mktemp("schema")
    store = Store(f"sqlite:///{folder / 'pellucid.db'}")
    prepare(store)
    service = Service(store, folder, Limits(rate_per_s=1e6, burst=10**6, guesses_burst=10**6))
    service.submit("alice", 1000, gpus=8)
    service.submit("bob.noyce", 1000, gpus=8)
    service.turn(2)
    return service


@pytest.mark.parametrize("name", ["alice", "vera", "", "olga"], ids=lambda name: name or "nobody")
def test_no_request_makes_it_stumble(service: Service, name: str) -> None:
    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", service.app)
    headers = {"Authorization": f"Bearer {service.secrets[name]}"} if name else {}
    job = service.submit(name if name in ("alice", "olga") else "alice")
    made = 0
    service.turn()
    operations = [result.ok() for result in schema.get_all_operations()]
    assert len(operations) >= 20
    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(), real=st.booleans())
        def requests(case: schemathesis.Case, real: bool) -> None:
            nonlocal made
            made += 1
            if real and "job_id" in case.path_parameters:
                case.path_parameters["job_id"] = job
            case.call_and_validate(headers=headers, checks=CHECKS)

        requests()
    print(f"{made} requests in the role of {name or 'nobody'}")
    assert made >= len(operations) * (EXAMPLES - 1)


def test_the_document_has_examples_and_problems(service: Service) -> None:
    document = service.by("alice").get("/api/v1/openapi.json").json()
    submit = document["paths"]["/api/v1/jobs"]["post"]
    assert document["components"]["schemas"]["SubmitRequest"]["examples"]
    assert {"201", "200", "401", "403", "413", "422", "429"} <= set(submit["responses"])
    for path in document["paths"].values():
        for operation in path.values():
            assert operation["summary"]
            for status, answer in operation["responses"].items():
                if int(status) >= 400:
                    assert list(answer["content"]) == ["application/problem+json"]
    parts = document["components"]["schemas"]
    for name in ("WhatIfAnswer", "ExpectedTimes", "Moved", "OthersMoved"):
        for field, told in parts[name]["properties"].items():
            assert field == "job_id" or told["description"], f"{name}.{field}"


def test_it_is_made_once_and_beside_other_answers(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked first kept all others waiting for a third of a second of the processor."""
    beside, made = list[bool](), service.app.openapi

    def noted() -> dict[str, Any]:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            beside.append(True)
        return made()

    monkeypatch.setattr(service.app, "openapi", noted)
    assert service.by("alice").get("/api/v1/openapi.json").json() == made()
    assert beside == [True], "not in the thread that takes every request"
    assert made() is made()


def test_the_log_still_folds_after_all_that(service: Service) -> None:
    service.turn(3)
    decided = service.decider.state.ledger.records
    stored = service.by("olga").get("/api/v1/jobs", params={"limit": 500}).json()["items"]
    alive = [job["job_id"] for job in stored if job["ended_at"] is None]
    assert set(alive) <= set(decided)
