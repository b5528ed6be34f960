"""What would have started a job of a recorded run: tried on the run, played again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from features.files import write_json
from pipeline.commands.explain import explain
from pipeline.commands.simulate import simulate
from pipeline.errors import UserError
from pipeline.explain import RunError, RunFolder, counterfactuals, read_story
from pipeline.explain.counterfactuals import _line, lines, plain
from scheduler.core.decisions import GIVES_GPUS, Reason
from scheduler.explain.life import Phase
from scheduler.explain.story import Story
from scheduler.explain.whatif.changes import Change, changed
from scheduler.explain.whatif.counterfactuals import Outcome
from scheduler.explain.whatif.forecasts import Futures, StartForecast
from scheduler.explain.whatif.trial import without

app = typer.Typer()
for command in (explain, simulate):
    app.command()(command)

OPTIONS = ["--set", "max_wait_s=7200", "--set", "fairness.weight=0.5"]
CLUSTER = Path(__file__).resolve().parents[2] / "pipeline" / "worlds" / "clusters" / "small.yaml"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_trace: Path) -> RunFolder:
    """The small synthetic trace under the policy, as the command line records it."""
    return made(tmp_path_factory.mktemp("counterfactuals") / "run", small_trace)


def made(folder: Path, trace: Path, *more: str) -> RunFolder:
    done = CliRunner().invoke(
        app,
        ["simulate", "--trace", str(trace), "--cluster", str(CLUSTER), "--durations",
         "gpus", "--policy", "pellucid", *OPTIONS, *more, "--out", str(folder), "--json"],
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    return RunFolder(folder)


def waiting(run: RunFolder, most: int) -> list[Story]:
    """Stories of jobs whose longest wait was in a queue, longest first."""
    rows = run.table("jobs.parquet", ["job_id", "queue_s"]).to_pylist()
    found = []
    for row in sorted(rows, key=lambda r: -(r["queue_s"] or 0.0)):
        story = read_story(run, row["job_id"])
        if story.waits and story.waits[0].reason is not Reason.AWAITING_PROFILE:
            found.append(story)
        if len(found) == most:
            break
    return found


def test_what_is_shown_of_a_run_is_true_of_it(
    run: RunFolder, small_trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checked on another copy of the run, stopped at the same moment."""
    monkeypatch.setattr(counterfactuals, "SAMPLES", 9)  # futures behind a gain; not behind "now"
    shown = 0
    for story in waiting(run, 4):
        job_id = story.job.job_id
        found = counterfactuals.counterfactuals(run, story)
        assert (
            found.wait.reason
            == max(
                (s for s in story.spans if s.phase is Phase.WAITING), key=lambda s: s.seconds
            ).reason
        )
        core, memory = counterfactuals.PlayedAgain(run).stand_at(found.at)
        futures = Futures(core, memory, found.at)
        for outcome in found.helped:
            assert outcome.helps
            if outcome.starts_now:
                trial = futures.trial(changed(job_id, outcome.change)).decide()
                assert trial.begins(job_id) is not None
                shown += 1
        if holders := found.wait.holders:
            gone = [h.job if h.node is None else h.node for h in holders]
            trial = futures.trial(without(gone)).decide()
            assert trial.begins(job_id, GIVES_GPUS) is not None
        assert len(lines(found)) >= 2
    assert shown >= 3


@pytest.mark.parametrize(
    ("beside", "speed", "said"),
    [
        (True, 0.58, "at once, beside another job at 58"),
        (True, None, "at once, beside another job at an unknown speed; "),
        (False, 1.0, "at once, on GPUs of its own; the forecast knows no end of it"),
        (False, None, "at once; the forecast knows no end of it"),
    ],
)
def test_a_line_says_beside_whom_and_how_fast(beside: bool, speed: float | None, said: str) -> None:
    unknown = StartForecast(9.0)
    outcome = Outcome(
        change=Change({"share": True}), now=unknown, then=unknown, starts_now=True, gain_s=None,
        earlier=0, futures=0, beside=beside, speed=speed,
    )  # fmt: skip
    assert said in _line(outcome, 9.0)


def test_an_end_counts_from_the_moment_asked_about_and_a_stop_is_none() -> None:
    then = StartForecast(9.0, 9.0, 9.0, 3609.0, 3609.0)
    outcome = Outcome(
        change=Change({"gpus": 2}), now=StartForecast(9.0), then=then, starts_now=True, gain_s=None,
        earlier=0, futures=0, costs_s=1200.0,
    )  # fmt: skip
    ends = "the forecast ends it after 1 h instead of 40 min."
    assert _line(outcome, 9.0).endswith(ends)
    stopped = _line(replace(outcome, stopped=True, costs_s=None), 9.0)
    assert stopped.endswith("its time limit would have stopped it, unfinished, after 1 h.")


def test_no_change_is_offered_that_was_foreseen_later_than_it_began(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (story,) = waiting(run, 1)
    began = next(s.start for s in story.spans if s.phase is Phase.RUNNING)

    def offered(*_: object, **__: object) -> list[Outcome]:
        return [
            Outcome(
                change=Change({"gpus": gpus}), now=StartForecast(0.0, 9e9),
                then=StartForecast(0.0, began + late_s), starts_now=False, gain_s=60.0,
                earlier=9, futures=9,
            )
            for gpus, late_s in ((1, -1.0), (2, 1.0))
        ]  # fmt: skip

    monkeypatch.setattr(counterfactuals.WhatIf, "suggestions", offered)
    (left,) = counterfactuals.counterfactuals(run, story).helped
    assert left.change.to == {"gpus": 1}


def test_jobs_asked_of_one_replay_are_answered_as_each_alone(run: RunFolder) -> None:
    how: dict[str, Any] = {"most": 2, "samples": 9, "budget_s": 600.0}
    played = counterfactuals.PlayedAgain(run)
    for story in sorted(waiting(run, 2), key=counterfactuals.asked_at):
        together = played.ask(story, counterfactuals.asked_at(story), **how)
        alone = counterfactuals.counterfactuals(run, story, **how)
        told = plain(together)
        assert told == plain(alone)
        assert told["holders"] or told["in_the_way"], "what is compared is not empty"


def test_a_run_whose_jobs_report_their_progress_is_played_again_with_the_reports(
    small_trace: Path, tmp_path: Path
) -> None:
    run = made(tmp_path / "run", small_trace, "--readable", "1", "--readable-error", "0.05")
    played = counterfactuals.PlayedAgain(run)
    stories = sorted(waiting(run, 8), key=counterfactuals.asked_at)
    for story in stories:
        at = counterfactuals.asked_at(story)
        core, _ = played.stand_at(at)
        queued = core.jobs[story.job.job_id]
        assert queued.reason is counterfactuals._reason_at(story, at)


def test_the_command_line_tells_and_prints_it(run: RunFolder) -> None:
    (story,) = waiting(run, 1)
    asked = ["explain", story.job.job_id, "--run", str(run.folder), "--counterfactuals"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert "What would have started it" in told.output
    plain = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)["counterfactuals"]
    assert plain["reason"] == story.waits[0].reason
    assert plain["holders"] or plain["helped"] or plain["not_examined"]


def test_a_moment_at_which_it_did_not_wait_is_refused(run: RunFolder) -> None:
    (story,) = waiting(run, 1)
    with pytest.raises(RunError, match="did not wait"):
        counterfactuals.counterfactuals(run, story, since_submit_s=1e9)


def test_a_run_that_does_not_say_its_world_is_refused(run: RunFolder, tmp_path: Path) -> None:
    (story,) = waiting(run, 1)
    for path in run.folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    write_json(tmp_path / "summary.json", {k: v for k, v in run.summary.items() if k != "world"})
    with pytest.raises(RunError, match="does not say what world"):
        counterfactuals.counterfactuals(RunFolder(tmp_path), story)


@pytest.mark.parametrize("option", [["--html", "a.html"], ["--counterfactuals"], ["--at", "60"]])
def test_what_only_a_simulation_answers_is_refused_of_a_service(option: list[str]) -> None:
    asked = ["explain", "j1", "--server", "http://127.0.0.1:9", *option]
    with pytest.raises(UserError, match="are for a simulated job"):
        CliRunner().invoke(app, asked, catch_exceptions=False)
