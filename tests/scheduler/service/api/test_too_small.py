"""A job whose virtual cluster has become too small: every answer says that it cannot start."""

from __future__ import annotations

from typing import Any

import pytest

from features.codec import decode
from pipeline.commands import ps, why
from scheduler.explain.explanation import Explanation
from scheduler.explain.words import NEVER
from scheduler.service.log.store.rows import JobRow
from tests.scheduler.service.api.conftest import Service
from tests.scheduler.service.api.test_analyst import answered  # noqa: F401
from tests.waiting import until

API = "/api/v1"


def foreseen(service: Service, job: str) -> dict[str, Any]:
    """A job of hers once the analyst has foreseen it as it stands."""

    def told() -> dict[str, Any] | None:
        row: dict[str, Any] = service.by("alice").get(f"{API}/jobs/{job}").json()
        return row if row["reason"] == "VcTooSmall" and row["why_not"] else None

    row = until(told, f"a forecast of {job} beside VcTooSmall")
    assert row is not None
    return row


pytestmark = pytest.mark.usefixtures("answered")


def test_it_is_said_first_with_what_the_virtual_cluster_will_have(answered: Service) -> None:  # noqa: F811
    job = answered.submit("alice", gpus=8)
    answered.turn(2)
    answered.by("olga").delete(f"{API}/nodes/node000")  # a job runs there: the node is still shown
    answered.turn(2)
    alice = answered.by("alice")
    asked = {"analyse": True}
    told = alice.get(f"{API}/jobs/{job}/explain", params=asked).json()
    explained = decode(Explanation, told)
    text = "needs 8 GPUs, and its virtual cluster, without the nodes that are taken out, has 4"
    first, *rest = why.lines_of(explained, 0.0)
    assert first == f"{job} is queued: cannot start: it {text}."
    assert "fewer GPUs or for another virtual cluster" in rest[-1]
    assert rest[-1].endswith("ask an operator to add nodes.")
    assert text in "\n".join(why.lines_of(explained, 0.0, full=True))
    assert told["analysis"]["limit"] == 4
    row = foreseen(answered, job)
    assert (row["start_p50"], row["why_not"], row["estimate"]) == (None, NEVER, "impossible")
    heading, line = ps.lines([decode(JobRow, row)], 0.0)
    assert line[heading.index("START") :].split()[0] == "never"


def test_a_job_that_waits_for_nodes_to_come_may_start(answered: Service) -> None:  # noqa: F811
    olga = answered.by("olga")
    olga.patch(f"{API}/nodes/node000", json={"gpus": 8})
    answered.turn(2)
    waits = answered.submit("alice", gpus=12)
    answered.turn(2)
    row = foreseen(answered, waits)
    assert row["reason"] == "VcTooSmall"
    assert row["why_not"] == "not enough of its GPUs are on open nodes"
