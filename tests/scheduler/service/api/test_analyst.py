"""Questions that the analyst answers: why, what if, what would another priority do."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from benchmarks.explanations.reading import readable
from features.codec import decode
from pipeline.printed.jobs import lines as ps_lines
from pipeline.printed.why import after_lines, lines_of
from scheduler.explain.answer import Analysis
from scheduler.explain.explanation import Compared, Explanation
from scheduler.explain.render import first_words, in_the_way, says
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.explain.words import NEVER
from scheduler.service.analyst.process import Analyst
from scheduler.service.api import jobs as job_routes
from scheduler.service.api.limits import Limits
from scheduler.service.log.bundles import BundleStore
from scheduler.service.log.forecasts import write
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.tables import jobs
from tests.scheduler.service.api.conftest import Service
from tests.waiting import until

JOBS = "/api/v1/jobs"


@contextmanager
def analysed(store: Store, tmp_path: Path) -> Iterator[Service]:
    """A service with an analyst beside it, and a job of another that fills a cluster."""
    service = Service(store, tmp_path, Limits(rate_per_s=1e6, burst=10**6, answer_s=30.0))
    service.submit("bob.noyce", 1000, gpus=8, name="secret-of-bob")
    service.turn(2)
    analyst = Analyst(store, BundleStore(tmp_path / "bundles"), holder="test", samples=8)
    over = threading.Event()
    thread = threading.Thread(target=analyst.run, args=(over.is_set, 0.01), daemon=True)
    thread.start()
    until(lambda: store.holder("analyst"), "the analyst", every_s=0.01)
    yield service
    over.set()
    thread.join()
    service.app.state.changes.close()


@pytest.fixture
def answered(store: Store, tmp_path: Path) -> Iterator[Service]:
    with analysed(store, tmp_path) as service:
        yield service


def test_what_blocks_and_what_helps_is_tried(answered: Service) -> None:
    job = answered.submit("alice", gpus=4)
    answered.turn(2)
    told = answered.by("alice").get(f"{JOBS}/{job}/explain", params={"analyse": True})
    analysis = told.json()["analysis"]
    assert analysis["unavailable"] == ""
    assert [h["kind"] for h in analysis["holders"]] == ["running job"]
    said = in_the_way(decode(Analysis, analysis))
    assert "It needs 4 GPUs; 0 of 8 are free now." in said
    assert "1 running job of others" in said
    assert [term["what"] for term in analysis["order"]]
    assert "secret-of-bob" not in told.text
    assert "bob.noyce" not in told.text
    plain = answered.by("alice").get(f"{JOBS}/{job}/explain").json()
    assert plain["analysis"] is None


def test_the_numbers_of_one_answer_are_those_of_one_moment(
    answered: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = answered.submit("alice", gpus=4)
    answered.turn(2)

    async def later(*_: object) -> Analysis:
        where = {"position": 6, "waiting": 9}
        return Analysis(reason="GpusBusy", need=4, free=2, limit=8, **where)

    monkeypatch.setattr(job_routes, "analysis", later)
    told = answered.by("alice").get(f"{JOBS}/{job}/explain", params={"analyse": True}).json()
    assert first_words(decode(Explanation, told)) == "needs 4 GPUs, 2 of 8 are free"
    assert told["principal"][0]["free"] == told["analysis"]["free"] == 2
    assert told["standing"] == {"position": 6, "waiting": 9}


def test_the_short_answer_is_short_and_says_what_has_moved_its_start(answered: Service) -> None:
    mine = [answered.submit(who, gpus=g) for g in (1, 4, 8) for who in ("alice", "bob.noyce")][::2]
    answered.turn(2)
    texts = []
    for job in mine:
        told = answered.by("alice").get(f"{JOBS}/{job}/explain", params={"analyse": True}).json()
        assert told["analysis"]["moved"] is None
        texts.append("\n".join(lines_of(decode(Explanation, told), told["analysis"]["at"])))
        at = told["analysis"]["at"]
        cause = {"kind": "closed", "count": 1, "by_s": 2400.0}
        moved = {"since": at - 10_800.0, "by_s": 2400.0, "left_s": 7e4, "causes": [cause]}
        told["analysis"]["moved"] = moved
        said = says(decode(Analysis, told["analysis"]))
        assert said["changed"] == (
            "Its start is now expected 40 min later than foreseen 3 h ago: GPUs of 1 node are "
            "closed."
        )
        full = "\n".join(lines_of(decode(Explanation, told), told["analysis"]["at"], full=True))
        later = "\n".join(lines_of(decode(Explanation, told), told["analysis"]["at"] + 90.0))
        assert ("As of " in texts[-1], "As of 1.5 min ago (what was" in later) == (False, True)
        for text in (said["otherwise"], said["changed"], said["place"]):
            assert text in full
        assert said["changed"] not in later, "it has moved, but by little of what is left"
        moved["left_s"] = 60.0
        assert said["changed"] in "\n".join(lines_of(decode(Explanation, told), at))
    read = readable(texts)
    assert read["words_p50"] < 72, "of which twelve say that a duration is a guess"
    assert read["codes"] == read["raw_names"] == 0.0


def test_both_worlds_of_a_what_if_are_told(answered: Service) -> None:
    first, second = answered.submit("bob.noyce", gpus=8), answered.submit("alice", gpus=8)
    answered.turn(2)
    answer = answered.by("alice").post(f"{JOBS}/{second}/whatif", json={"first": True})
    told = answer.json()
    assert told["unavailable"] == ""
    assert told["then"]["position"] == 1
    assert told["futures"] >= 1
    assert first not in answer.text  # others that move are counted, not named
    assert told["others_moved"] is not None
    asked = {"json": {"priority": 9}, "params": {"preview": True}}
    told = answered.by("olga").put(f"{JOBS}/{second}/priority", **asked).json()
    assert told["after"]["position"] == told["effect"]["then"]["position"] == 1
    assert told["effect"]["unavailable"] == ""
    for vc in ("mars", "speech"):  # none, and one that she may not submit to
        odd = answered.by("alice").post(f"{JOBS}/{second}/whatif", json={"vc": vc})
        assert odd.status_code == 403
        assert odd.json()["detail"] == f"vc is '{vc}'; you may ask about: vision"
    assert answered.by("bob.noyce").post(f"{JOBS}/{first}/whatif", json={"vc": "speech"}).is_success


def test_why_after_another_and_the_order_tell_the_terms_of_both(answered: Service) -> None:
    first, second = (answered.submit("alice", gpus=8) for _ in range(2))
    theirs = answered.submit("bob.noyce", gpus=8)
    answered.turn(2)
    alice = answered.by("alice")
    told = alice.get(f"{JOBS}/{second}/after", params={"other": first}).json()
    assert (told["unavailable"], told["first"], told["started"]) == ("", True, "")
    sums = [sum(row[which] or 0.0 for row in told["terms"]) for which in ("other", "this")]
    assert sums[0] <= sums[1]
    assert alice.get(f"{JOBS}/{second}/after", params={"other": theirs}).status_code == 404
    assert told["why"].startswith(("the sum of its terms is smaller", "the sums of their terms"))
    assert after_lines(decode(Compared, told))[-1].startswith("sum ")
    same = alice.get(f"{JOBS}/{second}/after", params={"other": second}).json()
    assert same["unavailable"] == "it is the same job; name another"
    elsewhere = [answered.submit("bob.noyce", gpus=4, vc="speech") for _ in range(2)][1]
    answered.turn(2)
    asked = answered.by("bob.noyce").get(f"{JOBS}/{theirs}/after", params={"other": elsewhere})
    assert asked.json()["unavailable"] == "they stand in different lines, of vision and of speech"
    (order,) = alice.get("/api/v1/order", params={"vc": "vision"}).json()
    assert order["waiting"] == 3
    assert {row["job_id"] for row in order["rows"]} == {first, second}
    assert theirs not in str(order)
    (whole,) = answered.by("olga").get("/api/v1/order", params={"vc": "vision"}).json()
    sums = [sum(term["seconds"] for term in row["terms"]) for row in whole["rows"]]
    assert sums == sorted(sums)
    assert [row["position"] for row in whole["rows"]] == [1, 2, 3]


def test_a_job_that_ran_already_is_said_to_have(service: Service) -> None:
    first = service.submit("alice", 1000, gpus=8)
    service.turn(2)
    service.turn(3, 10.0)
    later = service.submit("alice", gpus=8)
    with service.store.writing() as connection:  # as many seconds as have passed on the cluster
        connection.execute(
            update(jobs).where(jobs.c.job_id == first).values(started_at=jobs.c.started_at - 300.0)
        )
    told = service.by("alice").get(f"{JOBS}/{later}/after", params={"other": first}).json()
    assert (told["unavailable"], told["first"], told["terms"]) == ("", True, [])
    (line,) = after_lines(decode(Compared, told))
    assert line.startswith(f"{first} went before {later}: it started ")
    assert line.endswith(f" before {later} was submitted.")


def test_a_start_that_has_passed_is_shown_to_nobody(service: Service) -> None:
    """However late the analyst is."""
    service.submit("alice", gpus=8, seconds=5000.0)
    job_id = service.submit("alice", gpus=8)
    service.turn(2)
    now = time.time()
    old = StartForecast(
        now - 900.0, now - 600.0, now - 60.0, now, now + 60.0, start_p10=now - 800.0
    )
    service.store.append([], lambda there, _: write(there, {job_id: old}, ("latest",)))
    asked = service.by("alice")
    for made in (
        asked.get(f"/api/v1/jobs/{job_id}/explain").json()["forecast"],
        asked.get(f"/api/v1/jobs/{job_id}/forecast").json()["latest"],
    ):
        assert now <= made["start_p50"] < made["start_p90"]
        assert made["start_p50"] < made["end_p50"] <= made["end_p90"]
        assert made["made_at"] == old.made_at


def test_a_preview_of_several_nodes_is_of_all_of_them(answered: Service) -> None:
    fits_one = answered.submit("alice", gpus=4)
    answered.submit("bob.noyce", 1000, gpus=8)
    answered.turn(2)

    def stuck(names: str) -> list[str]:
        asked = {"json": {"open": False}, "params": {"preview": True}}
        told = answered.by("olga").put(f"/api/v1/nodes/{names}", **asked)
        assert {one["owner"] for one in told.json()["running"]} == {"bob.noyce"}
        found: list[str] = told.json()["effect"]["stuck"]
        return found

    assert [fits_one in stuck(names) for names in ("node000", "node001")] == [False, False]
    assert fits_one in stuck("node000,node001")


# --- a virtual cluster that has become too small -------------------------------------------------


def foreseen(service: Service, job: str) -> dict[str, Any]:
    """A job of hers once the analyst has foreseen it as it stands."""

    def told() -> dict[str, Any] | None:
        row: dict[str, Any] = service.by("alice").get(f"{JOBS}/{job}").json()
        return row if row["reason"] == "VcTooSmall" and row["why_not"] else None

    row = until(told, f"a forecast of {job} beside VcTooSmall")
    assert row is not None
    return row


def test_it_is_said_first_with_what_the_virtual_cluster_will_have(answered: Service) -> None:
    job = answered.submit("alice", gpus=8)
    answered.turn(2)
    answered.by("olga").delete("/api/v1/nodes/node000")  # a job runs there: the node is still shown
    answered.turn(2)
    alice = answered.by("alice")
    asked = {"analyse": True}
    told = alice.get(f"{JOBS}/{job}/explain", params=asked).json()
    explained = decode(Explanation, told)
    text = "needs 8 GPUs, and its virtual cluster, without the nodes that are taken out, has 4"
    first, *rest = lines_of(explained, 0.0)
    assert first == f"{job} is queued: cannot start: it {text}."
    assert "fewer GPUs or for another virtual cluster" in rest[-1]
    assert rest[-1].endswith("ask an operator to add nodes.")
    assert text in "\n".join(lines_of(explained, 0.0, full=True))
    assert told["analysis"]["limit"] == 4
    row = foreseen(answered, job)
    assert (row["start_p50"], row["why_not"], row["estimate"]) == (None, NEVER, "impossible")
    heading, line = ps_lines([decode(JobRow, row)], 0.0)
    assert line[heading.index("START") :].split()[0] == "never"


def test_a_job_that_waits_for_nodes_to_come_may_start(answered: Service) -> None:
    olga = answered.by("olga")
    olga.patch("/api/v1/nodes/node000", json={"gpus": 8})
    answered.turn(2)
    waits = answered.submit("alice", gpus=12)
    answered.turn(2)
    row = foreseen(answered, waits)
    assert row["reason"] == "VcTooSmall"
    assert row["why_not"] == "it cannot start until a node is opened that is closed now"
