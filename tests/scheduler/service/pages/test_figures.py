"""Drift, lives, forecasts: the arithmetic behind the pages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from itertools import product
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import delete, select

from features.schema import State
from features.spec import FeatureSpec
from models.bundle import Axis, Bundle
from scheduler.charts.drift import drift, drift_of
from scheduler.explain.whatif.forecasts import StartForecast
from scheduler.explain.words import percent
from scheduler.service.log.forecasts import write
from scheduler.service.log.store.rows import JobRow
from scheduler.service.log.store.tables import forecasts
from scheduler.service.pages.board import Block, NodeRow, board
from scheduler.service.pages.figures import GRACE_S, Promise, history, promises
from scheduler.service.pages.queries import Kept, PageQueries
from scheduler.service.pages.story import page_of
from tests.scheduler.service.pages.conftest import Lived, of_each_kind

AXIS = Axis(FeatureSpec("x", "continuous", "size", text="x"), cuts=tuple(map(float, range(1, 20))))


def _values(low: float, high: float, n: int, seed: int) -> list[str]:
    return [f"{v:.6g}" for v in np.random.default_rng(seed).uniform(low, high, n)]


def test_jobs_like_the_training_rows_are_steady() -> None:
    weights = np.array([0.0, *[500.0] * 20])
    for seed in range(20):
        drift = drift_of(AXIS, weights, _values(0, 20, 400, seed), True)
        assert drift.verdict == "steady"
        assert drift.index < 3 * drift.noise


def test_a_shift_is_seen_and_named() -> None:
    weights = np.array([0.0, *[500.0] * 20])
    drift = drift_of(AXIS, weights, _values(12, 20, 400, 0), True)
    assert drift.verdict == "shifted"
    missing = drift_of(AXIS, weights, [""] * 300, True)
    assert missing.verdict == "shifted"
    assert missing.most.startswith("missing: 100 % of jobs, 0 % in training")
    assert drift_of(AXIS, weights, _values(12, 20, 20, 0), True).verdict == "too few jobs"


def test_jobs_that_say_themselves_how_long_they_run_are_counted_like_the_others() -> None:
    model = Bundle.load(Path(__file__).parents[4] / "data" / "prebuilt" / "bundle").duration
    row = ("",) * len(model.axes)
    found = drift(model, [(*row, "90 epochs of 480 s")] * 300, True)
    assert found == drift(model, [row] * 300, True) != []
    assert drift(model, [row[1:]] * 300, True) != found, "those are of another model"


def test_the_index_is_the_population_stability_index() -> None:
    axis = Axis(FeatureSpec("k", "nominal", "size", text="k"), categories=("a", "b"))
    weights = np.array([0.0, 800.0, 200.0, 0.0])
    drift = drift_of(axis, weights, ["a"] * 50 + ["b"] * 50, sees_names=False)
    p = np.array([800.5, 200.5]) / 1001
    q = np.array([50.5, 50.5]) / 101
    assert drift.index == pytest.approx(float(((q - p) * np.log(q / p)).sum()))
    assert drift.most.startswith("one category")


def test_spans_cover_a_life(busy: Lived) -> None:
    queries = PageQueries(busy.store, busy.viewer("olga"))
    jobs = of_each_kind(queries.jobs(limit=200).items)
    pages = [page_of(queries, job.job_id) for job in jobs]
    spans = [span for page in pages for span in page.drawn.story.spans]
    assert {"waiting", "profiling", "running"} <= {span.phase for span in spans}
    for page in pages:
        at = page.job.submitted_at
        for span in page.drawn.story.spans:
            assert span.start == at
            assert span.end is not None
            at = span.end
        assert at == page.end
        assert not page.drawn.story.problems
        left = [seg.left + seg.width for seg in page.drawn.timeline]
        assert all(edge <= 100.001 for edge in left)


@pytest.mark.parametrize(
    ("kept", "jobs", "verdict"),
    [
        (None, 0, "no forecast to score yet"),
        (0.9, 1000, "as promised"),
        (0.7, 1000, "too hopeful"),
        (0.99, 1000, "too cautious"),
        (0.9, 19, "too few to tell"),
        (0.9, 20, "as promised"),
    ],
)
def test_a_promise_is_judged_by_its_jobs(kept: float | None, jobs: int, verdict: str) -> None:
    assert Promise("x", "all jobs", 0.9, kept, jobs, jobs, kept).verdict == verdict


@pytest.fixture
def foreseen(busy: Lived) -> Iterator[list[JobRow]]:
    """Jobs that have begun, and what was foreseen of each as it was submitted."""
    began = [job for job in busy.see("olga").jobs(limit=200).items if job.started_at is not None]
    random, made = Random(4), {}
    for job in began:
        p50 = job.submitted_at + random.uniform(0.0, 600.0)
        p90 = p50 + random.choice([0.0, 100.0, 600.0])
        made[job.job_id] = StartForecast(job.submitted_at, p50, p90, None, None)
    with busy.store.writing() as connection:
        write(connection, made, ["submission"])
    yield began
    with busy.store.writing() as connection:
        connection.execute(delete(forecasts))


def test_coverage_of_the_jobs_that_were_served_is_published(
    busy: Lived, foreseen: list[JobRow]
) -> None:
    with busy.store.reading() as connection:
        made = {row.job_id: row for row in connection.execute(select(forecasts))}
    left_open = [job for job in foreseen if made[job.job_id].start_p50 < made[job.job_id].start_p90]
    kept = [job.started_at <= made[job.job_id].start_p90 + GRACE_S for job in left_open]
    share = sum(kept) / len(kept)
    assert 0 < share < 1
    queries = PageQueries(busy.store, busy.viewer("ada.byron"))
    line = next(one for one in promises(queries).lines if one.text == "started by the p90 forecast")
    assert (line.kept, line.jobs) == (share, len(kept))
    batches = Counter(one.batch for one in queries.kept())
    sent = Counter((job.owner, job.submitted_at // 3600) for job in foreseen)
    assert sorted(batches.values()) == sorted(sent.values())
    assert 1.0 <= line.batches <= len(sent)
    page = unescape(busy.browser("ada.byron").get("/forecasts").text)
    row = next(r for r in re.findall(r"<tr>.*?</tr>", page, re.S) if line.among in r and "p90" in r)
    assert percent(share) in row
    assert str(len(kept)) in row
    (claim,) = [one for one in queries.claims(queries.now()) if one.kind == "by_p90"]
    shown = next(r for r in re.findall(r"<tr>.*?</tr>", page, re.S) if claim.what in r)
    assert f">{claim.judged}<" in shown
    assert percent(claim.low) in shown


def told(kept: list[Kept]) -> list[Promise]:
    """Of forecasts that were kept or not: how many started by the nine in ten of them."""
    view = SimpleNamespace(
        kept=lambda: kept, unforeseen=lambda: 0, claims=lambda _: [], now=lambda: 0.0
    )
    lines = promises(view).lines  # type: ignore[arg-type]
    return [line for line in lines if line.text == "started by the p90 forecast"]


def test_a_batch_that_is_late_as_one_proves_little() -> None:
    kept = [Kept(10.0, 20.0, None, None, 15.0, None, batch) for batch in range(9)]
    kept += [Kept(10.0, 20.0, None, None, 99.0, None, 9)] * 9
    line = told(kept)[0]
    assert (line.kept, line.jobs, line.kept_each) == (0.5, 18, 0.9)
    assert line.batches == pytest.approx(18**2 / (9 + 81))
    assert Promise("x", "x", 0.9, 0.7, 100, 4.0, 0.9).verdict == "too few to tell"
    assert Promise("x", "x", 0.9, 0.7, 100, 100.0, 0.7).verdict == "too hopeful"


def test_forecasts_are_judged_by_what_they_left_open() -> None:
    made = [(0.0, 0.0, 0.0)] * 90 + [(10.0, 20.0, 15.0)] * 9 + [(10.0, 9000.0, 9999.0)]
    kept = [Kept(p50, p90, None, None, start, None, i) for i, (p50, p90, start) in enumerate(made)]
    found = [(line.kept, line.jobs) for line in told(kept)]
    assert found == [(0.9, 10), (1.0, 9), (0.0, 1), (0.99, 100)]


def test_every_part_of_the_board_is_of_the_virtual_cluster_that_is_chosen(busy: Lived) -> None:
    queries = PageQueries(busy.store, busy.viewer("olga"))
    nodes = queries.cluster()
    names = {node.vc for node in nodes}
    assert len(names) > 1
    for vc in names:
        page = board(queries, vc)
        own = [node for node in nodes if node.vc == vc]
        gpus = [gpu for node in own for gpu in node.gpus]
        tiles = {label: value for value, label, _ in page.tiles}
        here = [job for job in queries.placed() if job.vc == vc]
        assert tiles["GPUs in use"] == f"{sum(bool(g.jobs) for g in gpus)} of {len(gpus)}"
        assert tiles["GPUs shared by two"] == str(sum(len(g.jobs) > 1 for g in gpus))
        assert tiles["jobs on GPUs"] == str(len(here))
        assert tiles["nodes"] == str(len(own))
        assert tiles["jobs waiting"] == str(sum(queue.waiting for queue in page.queues))
        assert {m.name for m in page.map} == {queue.vc for queue in page.queues} == {vc}
        assert page.running == here
    on_gpus = {
        vc: int({label: value for value, label, _ in board(queries, vc).tiles}["jobs on GPUs"])
        for vc in (*names, "")
    }
    assert on_gpus.pop("") == sum(on_gpus.values())


def test_every_part_of_the_history_obeys_every_filter(busy: Lived) -> None:
    queries = PageQueries(busy.store, busy.viewer("olga"))
    whole, now = queries.outcomes(), queries.now()
    for state in {one.state for one in whole} | {State.OUT_OF_MEMORY.value}:
        for vc, owner in product({"", *(o.vc for o in whole)}, {"", *(o.user for o in whole)}):
            for start in (0.0, now - 120.0):
                page = history(queries, start, vc=vc, owner=owner, state=state, after="")
                wanted = [o for o in whole if o.state == state and vc in ("", o.vc)
                          and owner in ("", o.user) and o.ended_at >= start]  # fmt: skip
                assert page.jobs == len(wanted)
                drawn = [c for c in page.charts if c.name == "ended"]
                counts = sum(int(n) for c in drawn for _, *row in c.rows for n in row)
                assert counts == (len(wanted) if len(wanted) > 1 else 0)
                tops = dict[float, int]()
                begins = sorted({bar["from"] for c in drawn for bar in c.spec["data"]["values"]})
                for bar in (bar for c in drawn for bar in c.spec["data"]["values"]):
                    assert bar["from"] < bar["to"]
                    assert not any(bar["from"] < at < bar["to"] for at in begins), "on the next"
                for bar in (bar for c in drawn for bar in c.spec["data"]["values"]):
                    assert bar["over"] == tops.get(bar["from"], 0), "it stands on the one before"
                    tops[bar["from"]] = bar["up_to"]
                assert sum(tops.values()) == counts
                rows = [job for job in page.page.items if job.started_at is not None]
                assert len(rows) == min(len(wanted), 50)
                assert all(job.state == state and vc in ("", job.vc) for job in rows)
                assert all(owner in ("", job.owner) for job in rows)
                assert all((job.ended_at or 0.0) >= start for job in rows)


def test_jobs_without_a_name_are_not_of_one_name(lived: Lived) -> None:
    for named in ({}, {"name": "resnet"}):
        first = lived.submit("ada.byron", vc="vision", gpus=1, profile=False, **named)
        lived.settle(4000.0)
        again = lived.submit("ada.byron", vc="vision", gpus=1, profile=False, **named)
        view = PageQueries(lived.store, lived.viewer("ada.byron"))
        assert view.job(first).ended_at is not None
        assert len(view.alike(view.job(again))) == len(named)
        lived.settle(4000.0)


def test_the_words_of_a_node_say_whose_it_is_and_what_is_closed() -> None:
    block = Block(first=1, width=2, lane="", job_id="a", label="a", css="", tip="job a, 2 GPUs")
    for profiling, silent, words in (
        (False, [], "job a, 2 GPUs"),
        (True, ["a", "b"], "for profiling: job a, 2 GPUs; 2 GPUs closed"),
    ):
        node: Any = SimpleNamespace(profiling=profiling, silent=silent)
        assert NodeRow(node, [block]).words == words
        assert NodeRow(node, []).words != words
