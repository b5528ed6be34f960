"""What explains a job reads its dossier, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from features.codec import encode
from scheduler.core.capacity import NodeNow
from scheduler.core.decisions import Action, Decision, Reason, Score
from scheduler.core.estimates import COLD_START, ENDED_HERE
from scheduler.explain.bound import Bound
from scheduler.explain.dossier import (
    Dossier,
    Recorded,
    Stands,
    facts_of,
    needs_bound,
    needs_nodes,
)
from scheduler.explain.explanation import Standing, StartForecastRow
from scheduler.explain.job import JobRow
from scheduler.explain.render import Depth, Reader, first_words, render
from scheduler.explain.stories import story_of
from scheduler.explain.why import explain, forecast_of
from scheduler.slurm.reason import SlurmReason

ROW = JobRow(
    command=("train",),
    vc="vision",
    gpus=4,
    job_id="j",
    owner="ada",
    phase="queued",
    reason="GpusBusy",
    user="ada",
    attempt=0,
    placement={},
    partner=None,
    estimate_s=600.0,
    submitted_at=0.0,
    queued_at=0.0,
    started_at=None,
    ended_at=None,
    state=None,
    exit_code=None,
    detail="",
    cancel_asked=False,
)
WAITS = Decision(
    seq=1,
    time=0.0,
    action=Action.WAIT,
    reason=Reason.GPUS_BUSY,
    job_id="j",
    vc="vision",
    need=4,
    free=3,
    limit=8,
)
FORECAST = StartForecastRow(10.0, 500.0, 900.0, 1100.0, 1500.0)


def a_node(number: int, busy: int, *, is_open: bool = True) -> NodeNow:
    jobs = (1,) * busy + (0,) * (4 - busy)
    return NodeNow(number=number, vc="vision", gpu_type="", open=is_open, lent=False, jobs=jobs)


def a_dossier(row: JobRow = ROW, *, now: float = 60.0, own: tuple[Decision, ...] = (WAITS,),
              **stands: object) -> Dossier:  # fmt: skip
    found = Stands(row=row, now=now, **stands)  # type: ignore[arg-type]
    return Dossier(facts=facts_of(row), own=own, stands=found)


def test_the_numbers_of_a_wait_are_those_of_the_nodes_as_they_stand() -> None:
    nodes = [a_node(0, busy=4), a_node(1, busy=2)]
    told = explain(a_dossier(nodes=nodes, standing=Standing(1, 2)))
    assert first_words(told) == "needs 4 GPUs, 2 of 8 are free"
    assert told.waits[0].seconds == 60.0
    closed = explain(a_dossier(nodes=[a_node(n, busy=2 * n, is_open=False) for n in range(2)]))
    assert closed.principal[0].remedy == Reason.NODE_DRAINED
    row = next(one for one in render(closed, Depth.WHOLE, Reader.PAGE) if one.kind == "suggestions")
    assert row.text == "it can start when those GPUs are open to jobs again"
    assert explain(a_dossier(nodes=nodes)) == explain(a_dossier(nodes=nodes))


def test_nothing_is_expected_beyond_the_bound_and_before_a_forecast_there_is_one() -> None:
    of = a_dossier(forecast=FORECAST, bound=Bound(latest=700.0, stated=650.0)).stands
    assert of is not None
    made = forecast_of(of)
    assert made is not None
    assert (made.start_p50, made.start_p90, made.latest, made.stated) == (
        500.0,
        700.0,
        700.0,
        650.0,
    )
    early = forecast_of(replace(of, forecast=None))
    assert early is not None
    assert (early.start_p50, early.latest) == (None, 700.0)
    assert early.why_not == "it has not been simulated yet"
    assert forecast_of(replace(of, forecast=None, bound=None)) is None


def test_of_a_run_that_is_over_the_record_is_complete_and_says_so() -> None:
    facts = replace(facts_of(ROW), start_time=30.0, end_time=90.0, jct_s=90.0, ran_s=60.0)
    start = replace(WAITS, seq=2, time=30.0, action=Action.START, reason=Reason.EXCLUSIVE_GPUS)
    of = Dossier(facts=facts, own=(WAITS, start), beside=Recorded(policy="fifo"))
    assert of.until is None
    story = story_of(of)
    assert story.policy == "fifo"
    assert [(span.phase.value, span.seconds) for span in story.spans] == [
        ("waiting", 30.0), ("running", 60.0),
    ]  # fmt: skip
    with pytest.raises(AssertionError, match="a story"):
        explain(of)


def test_a_reader_is_asked_for_no_more_than_is_read() -> None:
    behind = replace(WAITS, reason=Reason.BEHIND_HIGHER_PRIORITY)
    assert needs_nodes(ROW, [behind, WAITS])
    assert not needs_nodes(ROW, [WAITS, behind])
    assert not needs_nodes(ROW, [])
    assert not needs_nodes(replace(ROW, phase="running"), [WAITS])
    assert needs_bound(ROW, None)
    assert needs_bound(ROW, FORECAST)
    assert not needs_bound(ROW, replace(FORECAST, estimate="impossible"))
    assert not needs_bound(replace(ROW, hold="owner"), None)
    assert not needs_bound(replace(ROW, slurm=SlurmReason(code="Priority")), None)
    assert not needs_bound(replace(ROW, phase="running"), None)


def test_no_story_ends_before_its_job_was_submitted() -> None:
    """The clock of whoever looks may be behind that of whoever submitted."""
    assert a_dossier(replace(ROW, submitted_at=70.0), now=60.0).until == 70.0
    assert a_dossier(now=60.0).until == 60.0


# Fields of an answer that hold words yet, which is fewer each time: others hold values.
WORDED = {
    "forecast.why_not",
    "forecast.no_latest",
    "prediction.text",
    "contributions.text",
}


def test_an_answer_holds_values_where_it_is_not_listed_that_it_holds_words() -> None:
    score = Score(6.0, 5.0, (1.0,), COLD_START, ("0.5",))
    spread = (("p50_s", 400.0), ("p90_s", 9000.0), ("over_1h", 0.4), (ENDED_HERE, 3.0))
    joins = replace(
        WAITS,
        seq=0,
        action=Action.ENQUEUE,
        reason=Reason.SUBMITTED,
        estimate_s=402.4,
        score=score,
        evidence=spread,
    )
    start = replace(WAITS, seq=2, time=30.0, action=Action.START, reason=Reason.EXCLUSIVE_GPUS)
    packs = replace(start, action=Action.PACK, reason=Reason.PARTNER_FOUND, partner="p",
                    tree_path=("gpu_util_pct 14 <= 43.58", "sharing score 0 (tiny)"))  # fmt: skip
    runs = replace(ROW, phase="running", started_at=30.0)
    missing = Bound(missing="1 job before it has no time limit")
    found = set[str]()
    for of in (
        a_dossier(own=(joins, WAITS), alike=[30.0, 40.0], bound=missing),
        a_dossier(runs, own=(joins, WAITS, start), forecast=FORECAST),
        a_dossier(runs, own=(joins, WAITS, packs), forecast=FORECAST),
        a_dossier(replace(runs, phase="ended", state="failed", exit_code=1, ended_at=50.0),
                  own=(joins, WAITS, start)),
        a_dossier(replace(ROW, hold="owner", held_by="ada", held_at=5.0), own=(joins, WAITS)),
    ):  # fmt: skip
        told = explain(of)
        assert told.belief is not None
        found |= set(_worded(encode(told)))
    assert found <= WORDED | {"belief.asks"}, "a command is a value"
    assert "forecast.no_latest" in found


def _worded(value: Any, path: str = "") -> Iterator[str]:
    """Yield the path of each text of several words."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _worded(one, f"{path}.{name}".lstrip("."))
    elif isinstance(value, list):
        for one in value:
            yield from _worded(one, path)
    elif isinstance(value, str) and len(value.split()) > 2:
        yield path
