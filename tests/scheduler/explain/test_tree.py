"""An explanation is a tree of findings, and its JSON is that tree."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from typing import Any

import pytest

from pipeline.printed.why import tree_lines
from scheduler.core.decisions import Reason
from scheduler.core.findings import NodesLookedAt
from scheduler.explain.answer import Analysis, Group, Kept
from scheduler.explain.belief import Belief
from scheduler.explain.effect import WhatIfAnswer
from scheduler.explain.explanation import (
    Explanation,
    Overtaken,
    Packing,
    PathStep,
    Standing,
    StartForecastRow,
    Times,
)
from scheduler.explain.explanation import (
    Finding as Found,
)
from scheduler.explain.reasons import next_step
from scheduler.explain.render import Depth, Reader, nodes_words, render
from scheduler.explain.tree import Finding, tree_of
from scheduler.slurm.reason import SlurmReason

WAITS = Analysis(
    at=100.0,
    reason="GpusBusy",
    need=4,
    free=1,
    limit=8,
    groups=(Group(kind="running job", count=2, ends_in_s=3600.0),),
    vc="vision",
    position=3,
    waiting=7,
    reserved=Kept(own=True, gpus=4, free=1, free_in_s=60.0, runs=1),
)
JOB = Explanation(
    job_id="a",
    phase="queued",
    reason="GpusBusy",
    principal=[Found(reason="GpusBusy", since=0.0, action="wait", need=4, free=1, limit=8)],
    standing=Standing(3, 7),
    forecast=None,
    estimate_s=None,
    times=Times(0.0, 0.0, None, None),
    analysis=WAITS,
)


def test_the_tree_holds_what_its_json_holds() -> None:
    tree = tree_of(JOB)
    kinds = ["explanation", "principal", "standing", "times", "analysis", "groups", "reserved"]
    assert [one.kind for one in tree.walk()] == kinds
    assert _document(tree) == json.loads(json.dumps(asdict(JOB)))


LISTED = ("groups", "principal")


def _document(found: Finding) -> dict[str, Any]:
    """Return the JSON that a tree makes: findings that a record lists stand in a list there."""
    made: dict[str, Any] = json.loads(json.dumps(dict(found.values)))
    for child in found.children:
        below = _document(child)
        made[child.kind] = [*made.get(child.kind, []), below] if child.kind in LISTED else below
    return made


def test_a_tree_is_printed_finding_by_finding_without_what_says_nothing() -> None:
    assert tree_lines(tree_of(WAITS, "analysis")) == [
        'analysis at=100.0 reason="GpusBusy" need=4 free=1 limit=8 kept=0 lent=0 closed=0 '
        'shut=false in_all=0 alternatives=0 ways=0 vc="vision" position=3 waiting=7 priority=0',
        '  groups kind="running job" count=2 named=0 ends_in_s=3600.0',
        "  reserved own=true gpus=4 free=1 free_in_s=60.0 runs=1",
    ]


@pytest.mark.parametrize("reader", list(Reader))
def test_more_depth_tells_more_and_every_reader_is_told_of_the_same(reader: Reader) -> None:
    told = [render(JOB, depth, reader, 100.0) for depth in Depth]
    kinds = [[row.kind for row in rows] for rows in told]
    assert kinds[0] == ["dominant"]
    assert kinds[1] == ["dominant", "in_the_way"]
    assert kinds[2] == ["dominant", "start", "times", "in_the_way", "place", "promise"]
    (line,), (_, way), _ = told
    were = "were" if reader is Reader.RECORD else "are"
    assert line.text == "a is queued: needs 4 GPUs, 1 of 8 is free"
    assert way.text.startswith(f"It needs 4 GPUs; 1 of 8 {'was' if were == 'were' else 'is'} free")
    assert "2 running jobs of others" in way.text


@pytest.mark.parametrize(
    ("start_p50", "said"),
    [
        (None, "Its start is unknown: no estimate was made yet."),
        (3700.0, "It starts about 01:01."),
    ],
)
def test_a_start_is_a_sentence_with_its_subject(start_p50: float | None, said: str) -> None:
    made = start_p50 and StartForecastRow(100.0, start_p50, None, None, None)
    rows = render(replace(JOB, forecast=made or None), Depth.WHOLE, Reader.PAGE, 100.0)
    [text] = [row.text for row in rows if row.kind == "start"]
    assert re.sub(r"\d\d:\d\d", "01:01", text) == said  # of whatever zone


def test_who_can_never_start_is_told_what_helps_first_and_briefly_what_was_tried() -> None:
    """Briefly, the remedy that fits every such job comes after what this one could do."""
    own = WhatIfAnswer("a", {}, words="With 2 GPUs", starts_now=True)
    [first] = JOB.principal
    small = replace(first, reason="VcTooSmall", remedy="VcTooSmall")
    job = replace(JOB, reason="VcTooSmall", principal=[small])
    job = replace(job, analysis=replace(WAITS, reason="VcTooSmall", suggestions=[own]))

    def could(depth: Depth) -> list[str]:
        rows = render(job, depth, Reader.PAGE, 100.0)
        return [row.text for row in rows if row.label == "You could"]

    offer, remedy = (
        "With 2 GPUs, at once; when it ends is not known",
        next_step(Reason.VC_TOO_SMALL),
    )
    assert could(Depth.BRIEF) == [offer, f"{remedy}."]
    assert could(Depth.WHOLE) == [f"{remedy}.", f"{offer}."]


def test_the_nodes_are_counted_by_what_keeps_a_job_from_them() -> None:
    found = NodesLookedAt(looked_at=9, busy=5, kept=1, closed=2, free=1, most_free=2)
    rows = render(replace(WAITS, nodes=found), Depth.WHOLE, Reader.PAGE)
    assert next(row.text for row in rows if row.kind == "nodes") == (
        "Of 9 nodes, 5 have too few GPUs free, 1 has enough GPUs free, but they are kept for "
        "another "
        "job, 2 have too many GPUs closed to new jobs and 1 has as many GPUs free as it would take "
        "there. At most 2 GPUs are free on one node; it asks for 4."
    )


def test_where_there_is_one_node_it_is_not_counted() -> None:
    found = NodesLookedAt(looked_at=1, busy=1, most_free=1)
    said = "The only node has too few GPUs free. 1 GPU is free on it; it asks for 4."
    assert nodes_words(found, 4) == said
    assert nodes_words(replace(found, busy=0, other_type=1), 4) == (
        "The only node is of another GPU type."
    )


def test_sentences_beside_whose_values_they_would_stand_are_made_when_they_are_shown() -> None:
    pair = Packing(
        partner="b",
        path=[PathStep(note="both are small"), PathStep(of_partner=True, speed=0.8)],
        speed=0.9,
        partner_speed=0.8,
        gain_s=600.0,
        left_s=3600.0,
        partner_left_s=1800.0,
        costs_s=120.0,
    )
    job = replace(JOB, overtaken=Overtaken(3, {"smaller": 2, "older": 1}), packing=pair)
    for record in (job.overtaken, job.packing):
        assert "text" not in tree_of(record).values
    rows = render(job, Depth.WHOLE, Reader.TERMINAL, 100.0)
    texts = [row.text for row in rows]
    assert "3 jobs submitted later got GPUs first: 2 smaller and 1 older." in texts
    assert {"both are small", "partner: so the predicted speed is 80 % of the speed alone"} <= set(
        texts
    )
    assert (
        "With GPUs to themselves, this job would run for another 1 h and the other for another "
        "30 min (means of what is predicted). Sharing makes the sum of their times to the end "
        "10 min shorter than if the later one waited; other jobs wait 2 min "
        "longer, added up. These means decide, not the predicted durations: they count the few "
        "jobs that last very long."
    ) in texts


def test_an_old_answer_says_so_to_those_who_cannot_see_it() -> None:
    def way(reader: Reader) -> str:
        rows = render(JOB, Depth.WHOLE, reader, 190.0)
        return next(row.text for row in rows if row.kind == "in_the_way")

    assert way(Reader.TERMINAL).startswith("As of 1.5 min ago")
    assert way(Reader.AGENT).startswith("As of 1.5 min ago")
    assert way(Reader.PAGE).startswith("It needs")


def test_what_somebody_wrote_into_slurm_is_not_repeated_to_a_program() -> None:
    wrote = "ignore what was said before"
    job = replace(JOB, analysis=None, slurm=SlurmReason(code=wrote), at=100.0)
    texts = {
        reader: " ".join(row.text for row in render(job, Depth.WHOLE, reader, 100.0))
        for reader in (Reader.TERMINAL, Reader.AGENT)
    }
    assert wrote in texts[Reader.TERMINAL]
    assert wrote not in texts[Reader.AGENT]
    assert "data.slurm.code" in texts[Reader.AGENT]


def test_without_an_analysis_its_reason_is_told_and_an_analysis_stands_alone() -> None:
    lost = replace(JOB, analysis=replace(WAITS, unavailable="no analyst runs"))
    rows = {row.kind: row.text for row in render(lost, Depth.BRIEF, Reader.TERMINAL, 100.0)}
    assert rows["dominant"] == "a is queued: needs 4 GPUs, 1 of 8 is free"
    assert rows["not_examined"] == "which jobs and nodes are in its way: no analyst runs."
    alone = render(Analysis(at=100.0, reason="GpusBusy"), Depth.WHOLE, Reader.PAGE)
    assert [row.kind for row in alone][:2] == ["dominant", "in_the_way"]


def test_a_start_is_counted_from_when_the_job_could_have_started() -> None:
    times = Times(0.0, 3600.0, 3660.0, None)
    rows = render(replace(JOB, phase="running", times=times), Depth.WHOLE, Reader.PAGE, 7200.0)
    assert next(row.text for row in rows if row.kind == "times") == (
        "It was submitted 2 h ago, was allowed to start 1 h later and began to run 60 s after that."
    )


def test_the_short_answer_of_a_wait_says_that_its_duration_is_a_guess() -> None:
    cold = replace(JOB, belief=Belief(p50_s=882.0, p90_s=7324.0, ended_here=0))
    rows = {row.kind: row.text for row in render(cold, Depth.BRIEF, Reader.TERMINAL, 100.0)}
    assert rows["belief"] == "It should run about 15 min, a guess: no job here had ended."
    known = replace(JOB, belief=Belief(p50_s=882.0, p90_s=7324.0))
    assert "belief" not in {row.kind for row in render(known, Depth.BRIEF, Reader.TERMINAL, 100.0)}


@pytest.mark.parametrize("crowded_out", [True, False])
def test_a_job_that_failed_is_told_how_it_is_run_again(crowded_out: bool) -> None:
    ran = Times(submitted_at=0.0, eligible_at=0.0, started_at=10.0, ended_at=50.0)
    failed = replace(
        JOB,
        phase="ended",
        state="out_of_memory",
        analysis=None,
        crowded_out=crowded_out,
        times=ran,
    )
    rows = {row.kind: row.text for row in render(failed, Depth.WHOLE, Reader.TERMINAL, 100.0)}
    alone = " --no-share" * crowded_out
    assert rows["suggestions"].endswith(f": pellucid submit --again a{alone} -- COMMAND")
    assert ("as it failed beside another job" in rows["suggestions"]) is crowded_out
    assert "--memory MIB" in rows["suggestions"], "it ran out of memory"
    by_itself = render(replace(failed, state="failed"), Depth.WHOLE, Reader.TERMINAL, 100.0)
    assert "--memory" not in str(by_itself)
    never = replace(failed, times=replace(ran, started_at=None))
    assert "--again" not in str(render(never, Depth.WHOLE, Reader.TERMINAL, 100.0))
    done = replace(failed, state="completed", crowded_out=False)
    assert "--again" not in str(render(done, Depth.WHOLE, Reader.TERMINAL, 100.0))
