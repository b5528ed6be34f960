"""What the report says of any job is what `pellucid explain` says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.bundle import Bundle
from pipeline import runs
from pipeline.demo.first import PREBUILT
from pipeline.explain import read_story
from pipeline.report import each_job as module
from pipeline.report.comparison import PolicyRun, read_comparison
from pipeline.report.each_job import EachJob, each_job, started
from pipeline.report.samples import _terms, _tree
from pipeline.report.schedule import Schedule, read_schedule
from pipeline.worlds import open_scenario
from scheduler.explain.life import waits_for_gpus
from scheduler.explain.story import sharing_words
from scheduler.explain.words import duration, factor, listed, percent, phrase

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "pipeline" / "worlds" / "clusters" / "small.yaml"
SOME = 12  # jobs of a kind that are compared


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_trace: Path) -> PolicyRun:
    folder = tmp_path_factory.mktemp("each")
    world = open_scenario(small_trace, cluster=CLUSTER, durations="own")
    runs.compare(lambda _: world, ["fifo", "pellucid"], [0], out=folder / "runs")
    return read_comparison(folder / "runs").own


@pytest.fixture(scope="module")
def schedule(run: PolicyRun) -> Schedule:
    found = read_schedule(run)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def ids(run: PolicyRun) -> list[str]:
    return list(run.jobs["job_id"].to_pylist())


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return Bundle.load(ROOT / PREBUILT / "bundle")


@pytest.fixture(scope="module")
def page(run: PolicyRun, ids: list[str], schedule: Schedule, bundle: Bundle) -> EachJob:
    return each_job(run, ids, schedule, bundle, {ids[3]: ("it was tried",)})


def test_each_job_is_explained_as_its_story_explains_it(
    run: PolicyRun, ids: list[str], page: EachJob, schedule: Schedule, bundle: Bundle
) -> None:
    jobs = page.data["jobs"]
    assert all(jobs)
    waited = [i for i, of in enumerate(jobs) if of[0]][:SOME]
    shared = [i for i, of in enumerate(jobs) if of[4] is not None][:SOME]
    assert len(waited) == len(shared) == SOME
    first = min(run.jobs["submit_time"].to_pylist())
    lit = 0
    for i in {*waited, *shared}:
        spells, why, (holders, more), steps, pair, estimate, ran, began = jobs[i]
        story = read_story(run.folder, ids[i])
        large = [
            wait
            for wait in story.waits
            if wait.share >= module.LEAST_SHARE and wait.seconds >= module.LEAST_S
        ]
        reasons = [f"{percent(wait.share)} {phrase(wait.reason)}" for wait in large]
        assert why == listed(reasons)
        assert why or i not in waited
        asked = waits_for_gpus(story.spans)
        assert spells == [[round(at - first) for at in spell] for spell in asked]
        named = [[ids.index(one.job_id), one.gpus] for one in story.held[: module.NAMED]]
        assert (holders, more) == (named, max(len(story.held) - module.NAMED, 0))
        shown = [
            (s.text, duration(s.seconds) if s.factor is None else factor(s.factor))
            for s in _terms(story)
        ]
        assert [(page.data["texts"][at], words) for at, _, words in steps] == shown
        assert (estimate, ran) == (_whole(story.job.estimate_s), _whole(story.job.ran_s))
        assert began == (started(story.job, story.sharing, schedule) if spells else "")
        assert (pair is None) == (not story.sharing)
        if pair is not None:
            partner, words, path = pair
            assert ids[partner] == story.sharing[0].partner
            assert words == " ".join([*sharing_words(story.sharing[0])][1:])
            drawing = _tree(run, story, bundle)
            assert (path is None) == (drawing is None)
            if path is not None:
                lit += 1
                assert page.paths[path] == drawing
    assert lit
    assert page.data["tried"] == {"3": ["it was tried"]}


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


def test_every_spell_on_gpus_is_in_the_schedule(
    ids: list[str], page: EachJob, schedule: Schedule
) -> None:
    drawn = page.data["schedule"]
    assert len(drawn["spells"]) == len(schedule.spells.start)
    gpus = [sum(tall for tall in spell[6::2]) for spell in drawn["spells"]]
    assert gpus == [sum(mask.bit_count() for mask in masks) for masks in schedule.spells.masks]
    assert [ids[spell[0]] for spell in drawn["spells"]] == list(schedule.spells.job)


def test_of_more_jobs_than_a_page_holds_those_that_waited_longest_are_there(
    run: PolicyRun, ids: list[str], schedule: Schedule, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 10)
    monkeypatch.setattr(module, "MOST_SPELLS", 10)
    data = each_job(run, ids, schedule, None, {}).data
    waits = dict(zip(ids, run.jobs["queue_s"].to_pylist(), strict=True))
    kept = {ids[i] for i, of in enumerate(data["jobs"]) if of is not None}
    assert len(kept) == 10
    assert min(waits[job] for job in kept) >= sorted(waits.values())[-10]
    assert data["schedule"] is None
