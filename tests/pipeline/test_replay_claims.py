"""What a replay says of other policies: intervals, and which parts it is silent about."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from benchmarks.sites import HEADER, SITES, BatchSystem, settings, tasks, written
from pipeline.app import app
from pipeline.replay.claims import FACTOR, WRONG, Claim, claims, refusals
from pipeline.replay.figures import FIT_RANK, ceiling, misfit
from pipeline.replay.runs import VARIANTS, cells_of, replay, scenario
from pipeline.replay.site import DumpOptions, Site, read_site

JOBS = 40


def record(waits: Mapping[str, float]) -> pa.Table:
    """Jobs of one user, all alike in each partition."""
    rows = [(vc, wait) for vc, wait in waits.items() for _ in range(JOBS)]
    return pa.table(
        {
            "vc": [vc for vc, _ in rows],
            "wait_s": [wait for _, wait in rows],
            "gpus": [1 for _ in rows],
            "user": ["ada" for _ in rows],
        }
    )


def draws(
    *of: Mapping[str, float], ended: Mapping[str, float] = MappingProxyType({})
) -> list[dict[str, Any]]:
    """What replays give: mean waits by partition, of all, and by user, of the jobs that ended."""
    return [
        {
            "by_vc": dict(waits),
            "by_gpus": {1: float(np.mean(list(waits.values())))},
            "by_user": {"ada": float(np.mean(list(waits.values())))},
            "ended_by_vc": {vc: ended.get(vc, 1.0) for vc in waits},
            "ended_by_gpus": {1: float(np.mean([ended.get(vc, 1.0) for vc in waits]))},
            "ended_by_user": {"ada": float(np.mean([ended.get(vc, 1.0) for vc in waits]))},
        }
        for waits in of
    ]


def whole(stated: Sequence[Claim]) -> Claim:
    assert not stated[0].by
    return stated[0]


def test_the_interval_holds_what_is_counted_against_the_record_and_against_the_replay() -> None:
    stated = claims(
        record({"a": 1000.0}),
        {"slurm": draws({"a": 800.0}, {"a": 800.0}), "own": draws({"a": 300.0}, {"a": 300.0})},
        "slurm",
    )
    saving = whole(stated).savings["own"]
    assert saving.which == "less"
    assert saving.low_s == pytest.approx(800 - 300 - WRONG * 1000)
    assert saving.high_s == pytest.approx(1000 - 300 + WRONG * 1000)
    assert (saving.shorter, saving.draws) == (2, 2)
    assert "slurm" not in whole(stated).savings


def test_what_chance_moves_is_not_called_a_saving() -> None:
    calm = {"slurm": draws(*[{"a": 1000.0}] * 4), "own": draws(*[{"a": 700.0}] * 4)}
    wild = {
        "slurm": draws({"a": 400.0}, {"a": 1600.0}, {"a": 700.0}, {"a": 1300.0}),
        "own": calm["own"],
    }
    assert whole(claims(record({"a": 1000.0}), calm, "slurm")).savings["own"].which == "less"
    told = whole(claims(record({"a": 1000.0}), wild, "slurm"))
    assert told.savings["own"].which == "unclear"
    assert told.savings["own"].shorter == 2
    assert told.chance_s is not None
    assert told.chance_s > 1000


def test_a_partition_that_is_wrong_by_a_factor_is_refused_and_the_rest_is_answered_for() -> None:
    waits = {"a": 1000.0, "b": 500.0}
    replayed = {"a": 1000.0, "b": FACTOR * 500.0 + 1}
    stated = claims(
        record(waits),
        {"slurm": draws(replayed, replayed), "own": draws(*[{"a": 400.0, "b": 100.0}] * 2)},
        "slurm",
    )
    parts = {claim.name: claim for claim in stated if claim.by == "vc"}
    assert not parts["b"].savings
    assert parts["a"].savings
    assert whole(stated).jobs == JOBS
    assert whole(stated).recorded_s == 1000.0
    (line,) = refusals(stated)
    assert "partition b (40 jobs)" in line
    assert "waited 8 min 20 s on average" in line


def test_nothing_is_said_without_a_replay_of_slurms_own_schedule() -> None:
    assert claims(record({"a": 10.0}), {"own": draws({"a": 1.0})}, None) == []


def test_the_order_of_waits_is_held_to_what_two_replays_have_in_common() -> None:
    jobs = np.arange(50.0)
    near = (jobs + np.where(jobs % 2 == 0, 9, -9)).tolist()
    cells = [{"by_job": {"wait_s": jobs.tolist()}}, {"by_job": {"wait_s": near}}]
    most = ceiling(cells)
    assert 0.7 < most < 1
    assert ceiling(cells[:1]) == 1.0
    test = {
        "jobs": 50,
        "avg_wait_recorded_s": 100.0,
        "avg_wait_replayed_s": 100.0,
        "rank_correlation": FIT_RANK * most + 0.001,
    }
    assert not misfit(test, most)
    assert misfit(test)


def site(name: str, seed: int, folder: Path) -> Site:
    made = SITES[name]
    todo = tasks(made, seed)
    BatchSystem(made).play(todo)
    dump, printed = folder / "dump.txt", folder / "site.txt"
    dump.write_text(written(made, todo))
    printed.write_text(settings(made))
    return read_site(dump, folder / "scratch", DumpOptions(printed=[printed]))


def test_slurm_without_backfill_is_said_to_make_people_wait_as_it_did(tmp_path: Path) -> None:
    """The truth is a second run of a batch system that shares no code with the policy."""
    made = SITES["small"]
    before, after = tasks(made, 4), tasks(made, 4)
    BatchSystem(made).play(before)
    BatchSystem(made, interval_s=None).play(after)
    mean = [float(np.mean([task.start - task.submit for task in run])) for run in (before, after)]
    dump, printed = tmp_path / "dump.txt", tmp_path / "site.txt"
    site("small", 4, tmp_path)
    told = CliRunner().invoke(
        app,
        ["replay", "--sacct", str(dump), "--site", str(printed), "--seeds", "2", "--json",
         "--out", str(tmp_path / "page.html"), "--slurm-with", "SchedulerType=sched/builtin"],
    )  # fmt: skip
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout)
    saving = found["changed"][0]["savings"]["changed"]
    assert saving["low_s"] <= mean[0] - mean[1] <= saving["high_s"]
    assert saving["which"] == "more"
    page = (tmp_path / "page.html").read_text()
    assert "Your Slurm with SchedulerType=sched/builtin" in page


def test_slurm_without_backfill_takes_no_heterogeneous_job_and_so_none_is_compared(
    tmp_path: Path,
) -> None:
    """Played all the same, one would wait for a backfill that never comes, and all behind it."""
    site("small", 4, tmp_path)
    dump, both = tmp_path / "dump.txt", {"9001+0", "9001+1"}
    head, one, other, *rest = dump.read_text().splitlines()
    parts = [f"9001+{n}|{line.partition('|')[2]}" for n, line in enumerate((one, other))]
    dump.write_text("\n".join([head, *parts, *rest]) + "\n")
    read = read_site(dump, tmp_path / "again", DumpOptions(printed=[tmp_path / "site.txt"]))
    slurm = next(variant for variant in VARIANTS if variant.key == "slurm")
    setting = {"SchedulerType": "sched/builtin"}
    changed = replace(slurm, key="changed", title="no backfill", changed=setting)
    assert both <= {job.job_id for job in scenario(read, slurm, 0).workload.jobs}
    assert not both & {job.job_id for job in scenario(read, changed, 0).workload.jobs}
    stated = replay(read, 2, variants=[slurm, changed])["changed"][0]
    assert stated["jobs"] == read.replayable.num_rows - len(both)
    assert stated["savings"]["changed"]["shorter"] == 0


def test_a_start_that_failed_at_once_and_was_requeued_is_no_job_that_hardly_waited(
    tmp_path: Path,
) -> None:
    """slurmctld tries some jobs every six seconds: dozens of short waits that nobody had."""
    before = site("small", 4, tmp_path)
    dump, names = tmp_path / "dump.txt", HEADER.split("|")
    head, *lines = dump.read_text().splitlines()
    row = dict(zip(names, lines[-1].split("|"), strict=True))
    none = row | {"JobID": "9001", "State": "PENDING", "End": row["Start"]}
    some = row | {"JobID": "9002", "State": "PENDING"}
    attempts = ["|".join(one.values()) for one in (none, none | {"State": "REQUEUED"}, some)]
    dump.write_text("\n".join([head, *lines, *attempts]) + "\n")
    read = read_site(dump, tmp_path / "again", DumpOptions(printed=[tmp_path / "site.txt"]))
    more = {job.job_id for job in read.workload.jobs} - {job.job_id for job in before.workload.jobs}
    assert more == {"9002"}


@pytest.mark.parametrize(
    ("given", "words"),
    [("bf_interval", "give NAME=VALUE"), ("nonsense=1", "does not have this setting")],
)
def test_a_setting_that_no_replay_has_is_refused(given: str, words: str, tmp_path: Path) -> None:
    site("small", 0, tmp_path)
    told = CliRunner().invoke(
        app, ["replay", "--sacct", str(tmp_path / "dump.txt"), "--slurm-with", given]
    )
    assert told.exit_code != 0
    assert words in str(told.exception)


def test_replays_of_another_setting_are_made_only_where_it_was_asked_for(tmp_path: Path) -> None:
    twin = [variant for variant in VARIANTS if variant.key in ("slurm", "fifo")]
    assert len(cells_of(twin, 3)) == 1 + 2 * 3
    found = replay(site("small", 0, tmp_path), 1, variants=twin)
    assert found["changed"] == []


def test_nothing_is_stated_of_a_policy_in_whose_replays_jobs_never_start() -> None:
    """Those that never start waited longest, and are in no mean: the others would seem to gain."""
    waits = {"a": 1000.0, "b": 1000.0}
    own, after = draws(waits, waits), draws({"a": 10.0, "b": 1000.0}, {"a": 10.0, "b": 1000.0})
    stated = claims(record(waits), {"slurm": own, "own": after}, "slurm")
    assert whole(stated).savings["own"].which == "less"
    some = {"a": 0.5}
    starved = draws({"a": 10.0, "b": 1000.0}, {"a": 10.0, "b": 1000.0}, ended=some)
    stated = claims(record(waits), {"slurm": own, "own": starved}, "slurm")
    found = {(claim.by, claim.name): dict(claim.savings) for claim in stated}
    assert found["", ""] == {}
    assert found["vc", "a"] == {}
    assert found["vc", "b"]["own"].which == "unclear"
    stated = claims(record(waits), {"slurm": starved, "own": own}, "slurm")
    refused = {(claim.by, claim.name): claim.refused for claim in stated}
    assert "did not end" in refused["vc", "a"]
    assert not refused["vc", "b"]
