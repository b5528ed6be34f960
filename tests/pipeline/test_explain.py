"""Stories: they cover a job's life, add up, and say so when the record does not."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from io import StringIO
from itertools import product
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from benchmarks.explanations.reading import CODES, RAW_NAMES, found_in
from features.files import write_json, write_table
from pipeline import runs
from pipeline.commands.explain import explain
from pipeline.errors import UserError
from pipeline.explain import RunFolder, UnknownJob, read_story
from pipeline.explain.text import as_plain, show
from pipeline.report.page import page
from pipeline.worlds import open_scenario
from scheduler.core.decisions import Action, Decision, Fact, Reason, Score
from scheduler.explain.dossier import NOTHING_ELSE, Recorded
from scheduler.explain.drawing import view
from scheduler.explain.life import (
    Held,
    JobFacts,
    Phase,
    Span,
    placement_of,
    seconds_before,
    waits_for_gpus,
)
from scheduler.explain.remarks import remarks
from scheduler.explain.story import Story, build_story, held_words
from scheduler.explain.terms import breakdowns
from scheduler.explain.waited import wait_words, waited
from scheduler.explain.words import clock, duration, fields_worded, number, sentence_of
from scheduler.simulation.recorder import Recorder
from scheduler.simulation.results import JOB_SCHEMA

CLUSTER = Path(__file__).resolve().parents[2] / "pipeline" / "worlds" / "clusters" / "small.yaml"


# --- building ------------------------------------------------------------------------------------


def a_job(**more: object) -> JobFacts:
    known = {"gpus": 4, "submit_time": 1000.0, "duration_s": 500.0, "vc": "research"}
    return JobFacts("j", **(known | more))  # type: ignore[arg-type]


def a_decision(seq: int, time: float, action: Action, reason: Reason, **more: object) -> Decision:
    return Decision(seq, time, action, reason, "j", "research", **more)  # type: ignore[arg-type]


def a_score(
    terms: tuple[float, ...],
    *,
    off: float = 0.0,
    inputs: tuple[str, ...] = (),
    facts: tuple[Fact, ...] = (),
) -> Score:
    value = 2.0
    for term in terms:
        value += term
    return Score(value + off, 2.0, terms, "abc", inputs, facts)


BUNDLES = {
    "abc": {
        "terms": ["user_last_s", "gpus", "user_last_s & gpus"],
        "inputs": ["gpus", "user_last_s"],
        "texts": {"gpus": "GPUs asked for", "user_last_s": "this user's last job"},
        "units": {"gpus": "GPUs", "user_last_s": "s"},
    }
}


def told(story: Story) -> str:
    out = StringIO()
    show(story, Console(file=out, width=160, no_color=True, highlight=False))
    return out.getvalue()


def drawn(story: Story) -> str:
    return page("story.html", view=view(story), run="run", release="0")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, small_trace: Path) -> Path:
    """Runs of three policies on the small synthetic trace, own predictions."""
    folder = tmp_path_factory.mktemp("small")
    scenario = open_scenario(small_trace, cluster=CLUSTER)
    for policy in ("fifo", "lucid", "pellucid"):
        runs.run(scenario, policy, folder / policy)
    return folder


@cache
def everything(folder: Path) -> list[Story]:
    """Stories of jobs from all over a run."""
    run = RunFolder(folder)
    ids = run.table("jobs.parquet", ["job_id"])["job_id"].to_pylist()
    facts = {job_id: run.job(job_id) for job_id in ids[:: max(1, len(ids) // 150)]}
    own: dict[str, list[Decision]] = defaultdict(list)
    for job_id in facts:
        own[job_id], _ = run.decisions(job_id)
    return [build_story(facts[i], own[i], recorded=Recorded(bundles=run.bundles)) for i in facts]


def test_the_prediction_of_a_job_that_ended_while_profiled_is_that_of_its_decisions() -> None:
    job = a_job(start_time=1000.0, end_time=1500.0, ended_in_profiling=True)
    queued = a_decision(0, 1000.0, Action.ENQUEUE, Reason.SUBMITTED, estimate_s=250.0)
    found = build_story(job, [queued], recorded=Recorded()).estimate
    assert found.startswith("It was predicted to run 4 min 10 s; alone on its GPUs it takes 8")
    nothing = build_story(job, [], recorded=Recorded()).estimate
    assert nothing.startswith("No duration was predicted")


# --- spans and waiting ---------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fifo", "lucid"])
def test_a_simulated_life_is_covered(small: Path, policy: str) -> None:
    stories = everything(small / policy)
    assert len(stories) >= 100
    for story in stories:
        job = story.job
        assert story.problems == ()
        assert job.jct_s is not None
        assert job.queue_s is not None
        sums = {p: sum(s.seconds for s in story.spans if s.phase is p) for p in Phase}
        assert sums[Phase.WAITING] == pytest.approx(job.queue_s, abs=0.02)
        assert sums[Phase.RUNNING] == pytest.approx(job.ran_s, abs=0.02)
        assert sums[Phase.PROFILING] == pytest.approx(job.profile_s, abs=0.02)
        assert story.waited_s == pytest.approx(sums[Phase.WAITING])
        assert sum(w.share for w in story.waits) == pytest.approx(1.0 if story.waits else 0.0)


@pytest.mark.parametrize("policy", ["fifo", "lucid", "pellucid"])
def test_who_had_gpus_is_as_long_as_each_ran(small: Path, policy: str) -> None:
    run = RunFolder(small / policy)
    for job_id in run.table("jobs.parquet", ["job_id"])["job_id"].to_pylist()[::200]:
        job = run.job(job_id)
        ever = run.held(job, [(0.0, 1e11)])
        jobs = run.table("jobs.parquet", ["job_id", "vc", "ran_s"]).to_pylist()
        ran = {row["job_id"]: row["ran_s"] for row in jobs if row["vc"] == job.vc}
        ran = {other: ran_s for other, ran_s in ran.items() if ran_s >= 1.0 and other != job_id}
        assert {one.job_id: one.seconds for one in ever} == pytest.approx(ran, abs=0.02)


def test_scores_of_a_simulated_run_add_up(small: Path) -> None:
    stories = everything(small / "lucid")
    scored = [s for s in stories if s.scores]
    assert scored
    for story in scored:
        assert story.worst_gap <= 1e-9
        for b in story.scores:
            product = math.exp(b.intercept) * math.prod(t.factor for t in b.terms)
            assert product == pytest.approx(math.exp(b.score))
            folded, together = b.rest()
            assert folded + len(b.leading()) == len(b.terms)
            shown = sum(t.contribution for t in b.leading())
            assert b.intercept + shown + together == pytest.approx(b.score)


def of_each_reason(stories: list[Story]) -> list[Story]:
    """Those that are told more often than twice before by no action, reason and evidence."""
    seen = Counter[object]()
    chosen = []
    for story in stories:
        kinds = {
            (e.decision.action, e.decision.reason, *(name for name, _ in e.decision.evidence))
            for e in story.events
        }
        if any(seen[kind] < 2 for kind in kinds):
            seen.update(kinds)
            chosen.append(story)
    return chosen


@pytest.mark.parametrize("policy", ["fifo", "lucid", "pellucid"])
def test_no_story_holds_a_code_or_a_name_as_recorded(small: Path, policy: str) -> None:
    stories = of_each_reason(everything(small / policy))
    said = "\n".join(told(story) + drawn(story) for story in stories)
    assert len({e.decision.reason for story in stories for e in story.events}) > 3
    assert found_in(said, {*CODES, *RAW_NAMES}) == []
    recorded = {n for s in stories for e in s.events for n, _ in e.decision.evidence if "_" in n}
    assert ("pair_speed" in recorded) is (policy == "pellucid")
    assert found_in(said, recorded) == []
    assert re.findall(r"\b\w+_s\b", said) == []
    assert re.findall(r"\d\.\d{4,} ", re.sub(r"[+-]?\d\.\d{4} ", "", said)) == []


def test_codes_are_shown_when_asked_for(small: Path, tmp_path: Path) -> None:
    stories = everything(small / "pellucid")
    story = next(s for s in stories if s.waits and s.events[-1].decision.action is Action.PACK)
    out, page = StringIO(), tmp_path / "story.html"
    show(story, Console(file=out, width=160, no_color=True, highlight=False), codes=True)
    for text in ("PartnerFound", story.waits[0].reason.value, "p50_s", "best_partner"):
        assert text in out.getvalue()
    where = str(small / "pellucid")
    asked = (story.job.job_id, "--run", where, "--codes", "--html", str(page))
    assert "PartnerFound" in ask(*asked)[1]
    assert "PartnerFound" in page.read_text()


def test_a_pair_is_told_in_words() -> None:
    pair = (("best_partner", "b"), ("pair_speed", 0.982144), ("pair_partner_speed", 0.9926),
            ("left_s", 19491.0), ("partner_left_s", 28534.4), ("gain_s", 28033.2),
            ("asked_share", 1.70833), ("speed_on_a100", 0.5), ("cost_on_a100_s", 100.0),
            ("fairness_s", -480.0), ("share_excess", -0.12), ("marginal gain", 2.5))  # fmt: skip
    own = [a_decision(0, 1000, Action.PACK, Reason.PARTNER_FOUND, partner="b", evidence=pair,
                      free=2, limit=8, batch=(32, 1))]  # fmt: skip
    ((_, (said,)),) = remarks(build_story(a_job(), own).events)
    assert said == (
        "after that 2 of 8 GPUs are free; 32 samples on each GPU, 2 passes for each update; best "
        "job to share GPUs with: job b; beside it this job would run at 98 % of its speed alone; "
        "the other job at 99 % of its own; alone this job would run for another 5 h 25 min (the "
        "mean); alone the other job would run for another 7 h 56 min; sharing makes the sum of "
        "their times to the end 7 h 47 min shorter; "
        "all jobs together ask for 1.71 times as many GPUs as "
        "there are for "
        "this one; on a100: 50 % of full speed; on a100: 100 s with the wait for others; -8 min "
        "on its order value for past use of GPUs; its user has used 12 % less than the user's "
        "share; marginal gain 2.50"
    )


def test_partners_tell_the_same_pairing(small: Path) -> None:
    run = RunFolder(small / "lucid")
    rows = run.table("decisions.parquet", ["job_id", "partner", "action"]).to_pylist()
    packs = [row for row in rows if row["action"] == "pack"]
    assert packs
    for row in packs[:20]:
        newcomer, host = read_story(run, row["job_id"]), read_story(run, row["partner"])
        mine = next(s for s in newcomer.sharing if s.newcomer and s.partner == row["partner"])
        theirs = next(s for s in host.sharing if not s.newcomer and s.partner == row["job_id"])
        assert (mine.start, mine.end) == (theirs.start, theirs.end)
        assert mine.speeds is not None
        assert theirs.speeds == mine.speeds[::-1]
        assert len(theirs.tree_path) == len(mine.tree_path) > 0
        assert newcomer.job.end_time is not None
        assert mine.end is not None
        assert mine.end <= newcomer.job.end_time


NUMBERS = st.floats(-1e9, 1e9, allow_nan=False)
COUNTS = st.none() | st.integers(0, 10**6)
TEXTS = st.none() | st.text(max_size=8)


@st.composite
def random_decisions(draw: st.DrawFn) -> Decision:
    terms = tuple(draw(st.lists(st.floats(-50, 50), max_size=4)))
    return Decision(
        draw(st.integers(0, 99)),
        draw(st.floats(0, 5000)),
        draw(st.sampled_from(Action)),
        draw(st.sampled_from(Reason)),
        "j",
        "research",
        nodes=tuple(draw(st.lists(st.integers(0, 500), max_size=3))),
        gpus=tuple(draw(st.lists(st.integers(0, 255), max_size=3))),
        partner=draw(TEXTS),
        priority=draw(st.none() | NUMBERS),
        estimate_s=draw(st.none() | NUMBERS),
        score=draw(st.none() | st.builds(Score, NUMBERS, NUMBERS, st.just(terms), st.just("abc"))),
        tree_path=tuple(draw(st.lists(st.text(max_size=5), max_size=2))),
        speeds=draw(st.none() | st.tuples(st.floats(0.01, 1), st.floats(0.01, 1))),
        blocker=draw(TEXTS),
        need=draw(COUNTS),
        free=draw(COUNTS),
        limit=draw(COUNTS),
        position=draw(COUNTS),
    )


@settings(max_examples=60)
@given(
    st.lists(random_decisions(), max_size=12),
    st.lists(random_decisions(), max_size=3),
    st.none() | st.floats(1000, 9000),
    st.none() | NUMBERS,
)
def test_any_record_makes_a_story(
    own: list[Decision], joined: list[Decision], end: float | None, queue: float | None
) -> None:
    own = [replace(d, seq=i) for i, d in enumerate(own)]
    job = a_job(
        end_time=end,
        jct_s=None if end is None else end - 1000,
        queue_s=None if end is None else queue,
        ran_s=100.0,
        profile_s=0.0,
        estimate_s=queue,
    )
    story = build_story(job, own, joined, recorded=Recorded(bundles=BUNDLES, ends={"x": end}))
    assert told(story)
    assert drawn(story)
    assert json.dumps(as_plain(story))
    for before, after in zip(story.spans, story.spans[1:], strict=False):
        assert before.end == after.start
    if story.spans:
        assert story.spans[0].start == job.submit_time
    refused = any(d.action is Action.REFUSE for d in own)
    if end is not None and end > 1000 and not refused:
        assert story.spans[-1].end == end
        assert sum(s.seconds for s in story.spans) == pytest.approx(end - 1000)
        waiting = sum(s.seconds for s in story.spans if s.phase is Phase.WAITING)
        assert story.waited_s == pytest.approx(waiting)
        if (
            queue is not None
            and abs(queue - waiting) > 1
            and not any(e.free_pass for e in story.events)
        ):
            assert any("not explained" in p for p in story.problems)


# --- what is said --------------------------------------------------------------------------------


def a_waiter(behind: float = 8.0, queue_s: float = 1200.0) -> Story:
    score = a_score((0.7, -0.9, 0.01), inputs=("4", "7200"))
    own = [
        a_decision(0, 1000, Action.ENQUEUE, Reason.SUBMITTED, score=score, priority=40.0,
                   estimate_s=400.0, need=4),
        a_decision(1, 1000, Action.WAIT, Reason.BEHIND_HIGHER_PRIORITY, blocker="b", position=3,
                   need=4, free=1, limit=8, score=score),
        a_decision(2, 1300, Action.WAIT, Reason.GPUS_BUSY, need=4, free=1, limit=8, position=1),
        a_decision(3, 2200, Action.START, Reason.EXCLUSIVE_GPUS, nodes=(7,), gpus=(0b11110,),
                   need=4, free=4, limit=8, score=score),
    ]  # fmt: skip
    job = a_job(end_time=2700.0, jct_s=1700.0, queue_s=queue_s, ran_s=500.0, profile_s=0.0,
                estimate_s=400.0)  # fmt: skip
    return build_story(
        job,
        own,
        recorded=Recorded(bundles=BUNDLES, order_values={"j": 40.0, "b": behind}, policy="qssf"),
    )


def test_a_story_in_numbers() -> None:
    story = a_waiter()
    assert [(w.reason, w.seconds) for w in story.waits] == [
        (Reason.GPUS_BUSY, 900.0),
        (Reason.BEHIND_HIGHER_PRIORITY, 300.0),
    ]
    assert story.waits[0].share == pytest.approx(0.75)
    assert story.checked == 3
    assert story.scores[0].seqs == (0, 1, 3)
    names = [t.name for t in story.scores[0].leading()]
    assert names == ["gpus", "user_last_s", "user_last_s & gpus"]  # by size
    assert [t.value for t in story.scores[0].leading()] == ["4 GPUs", "2 h", "2 h and 4 GPUs"]
    assert story.foil == (
        (
            "Job b goes before it: its order value is 8, this job's is 40, and the smallest goes "
            "first."
        ),
    )
    (alike,) = a_waiter(behind=40.0).foil
    assert alike == (
        "Job b goes before it: both have the order value 40, and job b was submitted earlier."
    )
    assert not a_waiter(queue_s=1200.02).problems, "within the rounding of each time"
    assert len(a_waiter(queue_s=1200.04).problems) == 1


def test_a_story_in_words() -> None:
    text = told(a_waiter())
    for expected in (
        "waited 20 min. The main reason (75 % of the wait), in the numbers as it began: needs 4 ",
        "number 3 in line, behind job b",
        "node 7: GPUs 1-4",
        "this user's last job",
        "×2.01",
        "×0.41",
        "In 3 decisions the terms of the prediction add up to it",
    ):
        assert expected in text


def test_a_long_tail_of_terms_is_folded_and_names_that_were_not_kept_are_numbered() -> None:
    terms = tuple(0.5 / (i + 1) for i in range(20))
    own = [a_decision(0, 1000, Action.ENQUEUE, Reason.SUBMITTED, score=a_score(terms))]
    story = build_story(a_job(), own, recorded=Recorded(bundles={}))
    assert [t.name for t in story.scores[0].terms] == [f"term {i}" for i in range(1, 21)]
    assert any("names" in line for line in story.limits)
    rest = math.exp(sum(terms[8:]))
    assert "12 more terms together" in told(story)
    assert f"×{rest:.2f}" in told(story)


def test_terms_that_do_not_add_up_are_not_shown() -> None:
    wrong = a_score((0.7, -0.9, 0.01), off=2e-9, inputs=("4", "7200"))
    own = [a_decision(0, 1000, Action.ENQUEUE, Reason.SUBMITTED, score=wrong)]
    story = build_story(a_job(), own, recorded=Recorded(bundles=BUNDLES))
    assert len(story.problems) == 1
    assert "do not add up" in story.problems[0]
    assert story.scores[0].terms == ()
    for text in (told(story), drawn(story), json.dumps(as_plain(story))):
        assert "do not add up" in text
        assert "this user's last job" not in text
        assert "&#39;s last job" not in text
    assert as_plain(story)["scores"][0]["adds_up"] is False
    own = [replace(own[0], score=a_score((0.7, -0.9, 0.01), off=5e-10))]
    assert breakdowns(own, BUNDLES)[0].adds_up, "within rounding"


def test_a_free_profiling_pass_is_told_apart() -> None:
    own = [
        a_decision(0, 1000, Action.WAIT, Reason.AWAITING_PROFILE, need=4, free=0, limit=8),
        a_decision(1, 1050, Action.PROFILE, Reason.PROFILING_SLOT, limit=200),
        a_decision(2, 1250, Action.ENQUEUE, Reason.PROFILE_COMPLETE),
        a_decision(3, 1250, Action.WAIT, Reason.BEHIND_HIGHER_PRIORITY, blocker="b", position=9),
        a_decision(4, 1000, Action.ENQUEUE, Reason.SUBMITTED),
        a_decision(5, 1100, Action.START, Reason.EXCLUSIVE_GPUS, need=4),
    ]
    job = a_job(end_time=1600.0, jct_s=600.0, queue_s=150.0, ran_s=500.0, profile_s=0.0)
    story = build_story(job, own)
    assert story.problems == ()  # 50 s for the slot, 100 s in the queue
    assert story.waited_s == 100.0
    assert [e.free_pass for e in story.events] == [True] * 4 + [False] * 2
    assert "behind job b" not in told(story)  # of a queue that was never served


def test_a_job_that_never_ended_and_one_that_was_refused() -> None:
    waiting = build_story(a_job(), [a_decision(0, 1000, Action.WAIT, Reason.GPUS_BUSY, need=4)])
    assert waiting.spans[-1].end is None
    refused = build_story(
        a_job(refused=True),
        [a_decision(0, 1000, Action.REFUSE, Reason.INVALID_REQUEST, need=64, limit=32)],
    )
    assert "was refused" in refused.headline
    assert "asks for 64 GPUs; this virtual cluster has 32" in told(refused)
    assert "ask for fewer GPUs" in told(refused)


def test_numbers_that_were_not_recorded_are_not_made_up() -> None:
    d = a_decision(0, 0, Action.WAIT, Reason.BEHIND_HIGHER_PRIORITY, position=2)
    assert sentence_of(d) == "number 2 in line, behind a higher-priority job"
    for reason in Reason:
        assert "None" not in sentence_of(a_decision(0, 0, Action.WAIT, reason))


def test_placement_reads_masks() -> None:
    d = a_decision(0, 0, Action.START, Reason.EXCLUSIVE_GPUS, nodes=(2, 5), gpus=(255, 0b101))
    assert placement_of(d) == "node 2: GPUs 0-7; node 5: GPUs 0,2"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 s"), (1.5, "1.5 s"), (119, "119 s"), (200, "3 min 20 s"), (3599, "1 h"),
     (3660, "1 h 1 min"), (86_400, "1 d"), (475_000, "5 d 12 h"), (math.nan, "unknown"),
     (-90, "-90 s")],
)  # fmt: skip
def test_durations(value: float, text: str) -> None:
    assert duration(value) == text


@given(st.floats(0, 1e10))
def test_durations_are_never_far_off(value: float) -> None:
    sizes = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
    parts = duration(value).split()
    said = sum(float(n) * sizes[u] for n, u in zip(parts[::2], parts[1::2], strict=True))
    assert said == pytest.approx(value, rel=0.06, abs=0.5)


def test_clock_and_numbers() -> None:
    assert clock(200) == "+00:03:20"
    assert clock(-86_405) == "-1d 00:00:05"
    assert number(1234567) == "1,234,567"
    assert number(math.inf) == "–"


# --- the folder and the command ------------------------------------------------------------------

app = typer.Typer()
app.command()(explain)


def ask(*arguments: str) -> tuple[int, str, Exception | None]:
    result = CliRunner().invoke(app, list(arguments))
    error = result.exception if isinstance(result.exception, UserError) else None
    return result.exit_code, result.output, error


def test_the_command_tells_draws_and_prints_json(small: Path, tmp_path: Path) -> None:
    run = RunFolder(small / "lucid")
    job_id = run.table("jobs.parquet", ["job_id"])["job_id"][200].as_py()
    where = str(small / "lucid")
    code, text, _ = ask(job_id, "--run", where, "--html", str(tmp_path / "new" / "story.html"))
    assert code == 0
    assert job_id in text
    html = (tmp_path / "new" / "story.html").read_text()
    assert html.startswith("<!doctype html>")
    assert job_id in html
    assert [p.name for p in (tmp_path / "new").iterdir()] == ["story.html"]
    code, text, _ = ask(job_id, "--run", where, "--json")
    assert code == 0
    story = json.loads(text)
    assert story["job"]["job_id"] == job_id
    own, _ = run.decisions(job_id)
    assert [d["seq"] for d in story["decisions"]] == [d.seq for d in own]


def test_an_unknown_job_is_one_line_with_close_ids(small: Path) -> None:
    code, _, error = ask("syn-000010O", "--run", str(small / "fifo"))
    assert code != 0
    assert error is not None
    assert "\n" not in str(error)
    assert "syn-0000100" in str(error)
    with pytest.raises(UnknownJob) as caught:
        RunFolder(small / "fifo").job("????")
    assert caught.value.close == [], "nothing close is said to be close"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *product(("decisions.parquet", "jobs.parquet", "summary.json"), ["missing", "truncated"]),
        ("decisions.parquet", "without a column"),
    ],
)
def test_a_damaged_run_is_one_line(small: Path, tmp_path: Path, name: str, damage: str) -> None:
    folder = copytree(small / "fifo", tmp_path / "run")
    whole = (folder / name).read_bytes()
    if damage == "missing":
        (folder / name).unlink()
    elif damage == "without a column":
        write_table(folder / name, pq.read_table(folder / name).drop_columns(["reason"]))
    else:
        (folder / name).write_bytes(whole[: len(whole) // 2])
    _, _, error = ask("syn-0000100", "--run", str(folder))
    assert error is not None, "a traceback"
    assert name in str(error)
    assert "\n" not in str(error)


def test_a_record_that_contradicts_itself_exits_1(tmp_path: Path) -> None:
    wrong = a_score((0.7, -0.9, 0.01), off=0.5)
    a_run(tmp_path, [a_decision(0, 1000, Action.ENQUEUE, Reason.SUBMITTED, score=wrong)], a_job())
    code, text, error = ask("j", "--run", str(tmp_path))
    assert (code, error) == (1, None)
    assert "Contradiction" in text


def test_reading_back_gives_the_decisions_that_were_taken(tmp_path: Path) -> None:
    taken = [
        a_decision(0, 1000.5, Action.ENQUEUE, Reason.SUBMITTED, priority=3.0, estimate_s=9.0,
                   score=a_score((0.1, 0.2), inputs=("1", ""))),
        a_decision(1, 1001.25, Action.PACK, Reason.PARTNER_FOUND, nodes=(3,), gpus=(5,),
                   partner="p", speeds=(0.9, 0.8), tree_path=("a", "b"), need=2, free=0, limit=8,
                   position=1, blocker="q"),
    ]  # fmt: skip
    run = a_run(tmp_path, taken)
    assert run.decisions("j") == (taken, [])
    assert run.decisions("p") == ([], [taken[1]])


@pytest.mark.parametrize("recorded", ["now", "before scores named their facts"])
def test_a_later_predictions_terms_are_named_by_the_jobs_own_facts(
    tmp_path: Path, recorded: str
) -> None:
    """A job that was stopped is predicted again, with a term for the run that it outlived."""
    first = a_score((0.1, 0.2, 0.3), inputs=("1", ""))
    outlived = ("1", "", "ran for 7200 s and did not end")
    again = a_score((0.1, 0.2, 0.3, 1.5), inputs=outlived, facts=(Fact.OUTLIVED,))
    taken = [
        a_decision(0, 1000.0, Action.ENQUEUE, Reason.SUBMITTED, score=first),
        a_decision(1, 1010.0, Action.WAIT, Reason.GPUS_BUSY, score=again),
        a_decision(2, 1020.0, Action.START, Reason.EXCLUSIVE_GPUS, nodes=(0,), gpus=(1,),
                   score=again),
    ]  # fmt: skip
    write_json(tmp_path / "bundles.json", BUNDLES)
    run = a_run(tmp_path, taken, a_job(start_time=1020.0))
    if recorded != "now":
        path = tmp_path / "decisions.parquet"
        write_table(path, pq.read_table(path).drop_columns(["facts"]))
    story = read_story(run, "j")
    added = {term.name: term for term in story.scores[-1].terms}["own_outlived"]
    assert (added.text, added.value) == ("what it has outlived", outlived[-1])
    assert "unrecorded" not in told(story)


def a_run(folder: Path, decisions: list[Decision], *jobs: JobFacts) -> RunFolder:
    """A run's folder as a simulation leaves it. Times in whole milliseconds."""
    with Recorder(folder / "decisions.parquet") as record:
        record(decisions)
    rows = [{name: getattr(job, name) for name in job.__dataclass_fields__} for job in jobs]
    for row in rows:
        for name in ("submit_time", "start_time", "end_time"):
            row[name] = None if row[name] is None else round(1000 * row[name])
    columns = [pa.array([row.get(f.name) for row in rows], type=f.type) for f in JOB_SCHEMA]
    write_table(folder / "jobs.parquet", pa.Table.from_arrays(columns, schema=JOB_SCHEMA))
    write_json(folder / "summary.json", {"policy": "fifo"})
    return RunFolder(folder)


def other(
    seq: int, time: float, action: Action, job_id: str, *, vc: str = "research", gpus: int = 0b1111,
    node: int = 0, reason: Reason = Reason.EXCLUSIVE_GPUS,
) -> Decision:  # fmt: skip
    return Decision(seq, time, action, reason, job_id, vc, nodes=(node,), gpus=(gpus,))


def test_who_borrowed_the_gpus_is_told_and_who_ran_elsewhere_is_not(tmp_path: Path) -> None:
    lent = Reason.BORROWED
    run = a_run(
        tmp_path,
        [
            other(0, 900.0, Action.START, "here"),
            other(1, 900.0, Action.START, "guest", vc="other", gpus=0b11110000, reason=lent),
            other(2, 900.0, Action.START, "away", node=7, reason=lent),
            other(3, 900.0, Action.START, "theirs", vc="other", node=7),
            a_decision(4, 1000.0, Action.ENQUEUE, Reason.SUBMITTED),
            a_decision(5, 1000.0, Action.WAIT, Reason.GPUS_BUSY, need=4, free=0, limit=8),
            other(6, 1600.0, Action.START, "j"),
        ],
        a_job(start_time=1600.0, end_time=2100.0, queue_s=600.0, jct_s=1100.0),
        replace(a_job(end_time=1600.0, ran_s=700.0, estimate_s=30.0), job_id="here"),
        replace(a_job(end_time=1900.0, ran_s=1000.0, vc="other"), job_id="guest"),
        replace(a_job(end_time=3000.0), job_id="away"),
        replace(a_job(end_time=3000.0, vc="other"), job_id="theirs"),
    )
    story = read_story(run, "j")
    assert list(held_words(story.held, "research")) == [
        "Meanwhile job here had 4 GPUs for 10 min of this wait (predicted to run 30 s, ran 12 "
        "min in all).",
        "Meanwhile job guest of virtual cluster other had 4 GPUs for 10 min of this wait (ran 17 "
        "min in all).",
    ]
    for shown in (told(story), drawn(story)):
        assert "Meanwhile job here had 4 GPUs for 10 min" in " ".join(shown.split())
    assert as_plain(story)["held"][0]["job_id"] == "here"


def test_who_was_resized_had_as_many_gpus_as_it_was_given(tmp_path: Path) -> None:
    run = a_run(
        tmp_path,
        [
            other(0, 900.0, Action.START, "grows", gpus=0b1),
            other(1, 900.0, Action.START, "late", gpus=0b10),
            a_decision(2, 1000.0, Action.ENQUEUE, Reason.SUBMITTED),
            a_decision(3, 1000.0, Action.WAIT, Reason.GPUS_BUSY, need=4, free=0, limit=8),
            other(4, 1100.0, Action.RESIZE, "grows", gpus=0b11111100),
            other(5, 1300.0, Action.PREEMPT, "grows"),
            other(6, 1600.0, Action.START, "j"),
        ],
        a_job(start_time=1600.0, end_time=2100.0, queue_s=600.0, jct_s=1100.0),
        replace(a_job(), job_id="grows"),
        replace(a_job(end_time=1000.5), job_id="late"),
    )
    (grows,) = read_story(run, "j").held
    assert (grows.gpus, grows.seconds, grows.gpu_s) == (6, 300.0, 1300.0)
    (said,) = held_words([grows], "research")
    assert said == "Meanwhile job grows had up to 6 GPUs for 5 min of this wait."


def test_a_wait_that_the_end_of_the_run_cut_off_is_told_to_there(tmp_path: Path) -> None:
    run = a_run(
        tmp_path,
        [
            other(0, 900.0, Action.START, "here"),
            a_decision(1, 1000.0, Action.ENQUEUE, Reason.SUBMITTED),
            a_decision(2, 1000.0, Action.WAIT, Reason.GPUS_BUSY, need=4, free=0, limit=8),
            a_decision(3, 1100.0, Action.WAIT, Reason.GPUS_FRAGMENTED, need=4, free=4, limit=8),
            other(4, 4600.0, Action.START, "last", node=3),
        ],
        a_job(),
        replace(a_job(), job_id="here"),
        replace(a_job(), job_id="last"),
    )
    story = read_story(run, "j")
    assert story.waited_s == 3600.0
    assert story.headline.startswith(
        "Job j (4 GPUs, virtual cluster research) has waited 1 h: free GPUs on too many nodes "
        "(97 % "
        "of the wait) and too few GPUs free (2.8 % of the wait). 4 GPUs for that long are 4 GPU "
        "hours. Meanwhile, of the GPUs there, job here had 4 GPU hours. "
    )
    assert [one.seconds for one in story.held] == [3600.0]
    assert "had not ended when the run did" in story.headline


def test_a_wait_lasts_to_the_last_end_and_is_a_wait_where_nothing_followed(tmp_path: Path) -> None:
    waits = a_decision(0, 1000.0, Action.WAIT, Reason.GPUS_BUSY, need=4, free=0, limit=8)
    ends = replace(a_job(end_time=4600.0, start_time=900.0, submit_time=900.0), job_id="here")
    story = read_story(a_run(tmp_path, [waits], a_job(), ends), "j")
    assert story.waited_s == 3600.0
    alone = read_story(a_run(tmp_path, [waits], a_job()), "j")
    assert "waits. The reason, in the numbers as it began: needs 4 GPUs" in alone.headline
    nothing = read_story(a_run(tmp_path, [], a_job()), "j")
    assert "did not have to wait" not in nothing.headline
    made_of = waited(nothing.job, [], [], [], NOTHING_ELSE, live=True)
    came = wait_words("j", made_of, [], overtaken={}, began="")
    assert came == "Job j (4 GPUs, virtual cluster research) was submitted a moment ago."


def test_nobody_overtakes_a_job_that_was_refused(tmp_path: Path) -> None:
    later = other(0, 1100.0, Action.START, "later")
    jobs = (a_job(refused=True), replace(a_job(submit_time=1050.0), job_id="later"))
    assert read_story(a_run(tmp_path, [later], *jobs), "j").overtaken == {}


def test_who_overtook_is_said_by_place_in_line_before_size(tmp_path: Path) -> None:
    """184 of 223 that came first in line were said to have asked for fewer GPUs. Who starts twice
    is counted once; who ended while it was profiled went first, too."""

    def ordered(seq: int, at: float, action: Action, job: str, by: float) -> Decision:
        return replace(other(seq, at, action, job), priority=by, estimate_s=60.0 * by)

    later = {"first": (2, 10.0), "small": (2, 90.0), "large": (8, 90.0)}
    run = a_run(
        tmp_path,
        [
            ordered(0, 1000.0, Action.ENQUEUE, "j", 50.0),
            *(
                ordered(i, 1100.0, Action.START, job, by)
                for i, (job, (_, by)) in enumerate(later.items(), 1)
            ),
            other(4, 1120.0, Action.PROFILE, "ended"),
            other(5, 1140.0, Action.PROFILE, "waits"),
            ordered(6, 1200.0, Action.PREEMPT, "large", 90.0),
            ordered(7, 1300.0, Action.START, "large", 90.0),
            ordered(8, 1600.0, Action.START, "j", 50.0),
        ],
        a_job(start_time=1600.0, end_time=2100.0),
        *(replace(a_job(submit_time=1050.0), job_id=j, gpus=n) for j, (n, _) in later.items()),
        replace(
            a_job(submit_time=1050.0, end_time=1150.0, ended_in_profiling=True), job_id="ended"
        ),
        replace(a_job(submit_time=1050.0, ended_in_profiling=False), job_id="waits"),
    )
    found = read_story(run, "j").overtaken
    assert found == {
        "stood ahead of it in line (predicted to run shorter)": 1,
        "asked for fewer GPUs": 1,
        "could start on GPUs that this job could not use": 1,
        "ended during the short profiling run that new jobs get": 1,
    }


def test_more_holders_than_are_named_are_counted() -> None:
    held = [Held(f"h{i}", "v", 1, 60.0, 60.0, None, None) for i in range(6)]
    said = list(held_words(held, "v"))
    assert said[0] == "Meanwhile job h0 had 1 GPU for 60 s of this wait."
    assert said[4:] == ["2 more jobs had GPUs of the virtual cluster during a part of this wait."]
    assert len(list(held_words(held[:4], "v"))) == 4
    hours = [replace(one, gpu_s=3600.0) for one in held]
    own = [
        a_decision(0, 1000, Action.WAIT, Reason.GPUS_BUSY, need=4, free=0, limit=8),
        a_decision(1, 4600, Action.START, Reason.EXCLUSIVE_GPUS, nodes=(7,), gpus=(0b1111,)),
    ]
    headline = build_story(a_job(), own, recorded=Recorded(held=hours)).headline
    assert "job h1 had 1 GPU hour and 4 other jobs had 4 GPU hours together." in headline


@given(
    st.lists(st.floats(0, 100), min_size=2, max_size=12, unique=True), st.floats(-10, 110),
)  # fmt: skip
def test_seconds_before_a_time_are_those_of_each_spell(cuts: list[float], time: float) -> None:
    cuts = sorted(cuts)
    spells = list(zip(cuts[::2], cuts[1::2], strict=False))
    each = sum(max(0.0, min(time, end) - start) for start, end in spells)
    assert seconds_before(spells)(time) == pytest.approx(each)


def test_spells_that_touch_are_one_and_holds_are_none() -> None:
    def span(reason: Reason, start: float, end: float | None) -> Span:
        return Span(Phase.WAITING, reason, start, end)

    busy, scattered = Reason.GPUS_BUSY, Reason.GPUS_FRAGMENTED
    assert waits_for_gpus(
        [
            span(Reason.AWAITING_PROFILE, 0.0, 1.0),
            span(busy, 1.0, 2.0),
            span(scattered, 2.0, 4.0),
            Span(Phase.HELD, Reason.HELD_BY_OWNER, 4.0, 5.0),
            span(busy, 5.0, 6.0),
            Span(Phase.RUNNING, busy, 6.0, 8.0),
            span(busy, 8.0, None),
        ]
    ) == [(1.0, 4.0), (5.0, 6.0)]


def test_a_short_wait_is_a_wait() -> None:
    wait = a_decision(0, 1000, Action.WAIT, Reason.GPUS_BUSY, need=4, free=1, limit=8)
    start = a_decision(1, 1000.4, Action.START, Reason.EXCLUSIVE_GPUS, nodes=(7,), gpus=(0b1,))
    ended = a_job(end_time=1500.4, jct_s=500.4, queue_s=0.4, ran_s=500.0, profile_s=0.0)
    story = build_story(ended, [wait, start])
    assert story.waits
    assert story.headline.startswith(
        "Job j (4 GPUs, virtual cluster research) waited 0.4 s. The reason, in the numbers as it "
    )


def test_how_far_off_a_prediction_may_be_is_said_once_and_in_words() -> None:
    spread = (("p10_s", 12.0), ("p50_s", 84.0), ("p90_s", 300.0), ("mean_s", 120.0))
    own = [
        a_decision(0, 1000, Action.ENQUEUE, Reason.SUBMITTED, estimate_s=71.0, evidence=spread),
        a_decision(1, 1000, Action.WAIT, Reason.GPUS_BUSY, need=4, free=1, limit=8,
                   estimate_s=71.0, evidence=spread),
    ]  # fmt: skip
    text = told(build_story(a_job(), own))
    assert text.count("half of such jobs run at most 84 s, nine in ten at most 5 min") == 1
    assert "p10_s" not in text


def test_a_wait_that_is_told_again_is_one_wait_and_the_prediction_that_moved_is_said_once() -> None:
    moved = {"estimate_s": 7200.0, "evidence": (("predicted_before_s", 71.0),)}
    busy = {"need": 4, "free": 1, "limit": 8}
    own = [
        a_decision(0, 1000, Action.ENQUEUE, Reason.SUBMITTED, estimate_s=71.0),
        a_decision(1, 1000, Action.WAIT, Reason.GPUS_BUSY, estimate_s=71.0, **busy),
        a_decision(2, 1400, Action.WAIT, Reason.GPUS_BUSY, **moved, **busy),
        a_decision(3, 1500, Action.START, Reason.EXCLUSIVE_GPUS, nodes=(7,), gpus=(0b1,), **moved),
    ]
    ended = a_job(end_time=2000.0, jct_s=1000.0, queue_s=500.0, ran_s=500.0, profile_s=0.0)
    story = build_story(ended, own)
    assert [(span.start, span.end) for span in story.spans] == [(1000, 1500), (1500, 2000)]
    assert [(wait.seconds, wait.spells) for wait in story.waits] == [(500, 1)]
    assert "such waits" not in story.headline
    text = told(story)
    assert text.count("predicted to run 2 h (last prediction: 71 s)") == 1
    assert "predicted before" not in text


def test_a_number_that_equals_another_of_the_sentence_is_shown_all_the_same() -> None:
    numbers = {"need": 4, "free": 4, "limit": 8, "position": 4}
    own = [a_decision(0, 1000, Action.WAIT, Reason.MEMORY_GUARD, **numbers)]
    [(event, lines)] = remarks(build_story(a_job(), own).events)
    assert "4 GPUs" in event.sentence
    assert lines[0] == "4 of 8 GPUs are free; number 4 in line"


@pytest.mark.parametrize("reason", Reason)
def test_no_field_is_shown_that_the_sentence_holds(reason: Reason) -> None:
    """Each number is one of its own, so that the sentence shows which fields it holds."""
    values = {"need": 911, "free": 922, "limit": 933, "position": 944, "blocker": "b955"}
    for blocker in ("b955", None):
        d = a_decision(0, 1000, Action.WAIT, reason, **{**values, "blocker": blocker})
        fields = fields_worded(d)
        for name in ("free", "limit", "position", "blocker"):
            value = getattr(d, name)
            assert value is None or (str(value) in sentence_of(d)) is (name in fields), name
