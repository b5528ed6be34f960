"""The worlds that policies are chosen and reported on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.worlds.make import HALVES, bootstrap, draw_of, offered_load, read_worlds, scenario
from benchmarks.worlds.played import Advised, Elsewhere, Played, Replicate, against, verdict
from scheduler.core.cluster import ClusterSpec
from scheduler.simulation.work import Workload
from scheduler.testing.builders import a_job

DAY_S = 86_400.0


def test_there_are_many_worlds_and_none_is_in_both_halves() -> None:
    halves = read_worlds()
    assert set(halves) == set(HALVES)
    assert min(map(len, halves.values())) >= 12
    assert not set(halves["chosen"]) & set(halves["reported"])
    every = [world for worlds in halves.values() for world in worlds.values()]
    assert len(set(map(repr, every))) == len(every), "no world is there twice"
    for worlds in halves.values():  # each half has some of each kind
        loops = Counter(world.loop for world in worlds.values())
        bare = Counter(world.profiles for world in worlds.values())
        assert min(loops["open"], loops["closed"], bare[True], bare[False]) >= 1


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("chosen: {}", "halves"),
        ("chosen: {a: {trace: venus}}\nreported: {a: {trace: philly}}", "both halves"),
        ("chosen: {a: {trace: mars}}\nreported: {}", "trace"),
        ("chosen: {a: {trace: venus, colour: red}}\nreported: {}", "colour"),
    ],
)
def test_a_file_that_is_not_as_expected_is_refused(
    tmp_path: Path, content: str, named: str
) -> None:
    path = tmp_path / "worlds.yaml"
    path.write_text(content)
    with pytest.raises(ValueError, match=named):
        read_worlds(path)


def test_a_folder_without_the_traces_is_one_line(tmp_path: Path) -> None:
    worlds = tmp_path / "worlds.yaml"
    worlds.write_text("chosen: {few: {trace: one-vc, nodes: 1}}\nreported: {}")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worlds", "--worlds", worlds, "--data", tmp_path / "no"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 1
    assert re.fullmatch(r"benchmarks\.worlds: .* is missing; .*\n", done.stderr), done.stderr


def trace() -> Workload:
    samples = [a_job(f"{day}-{i}", at=day * DAY_S + i * 600) for day in range(5) for i in range(4)]
    return Workload(
        "w", [s.job for s in samples], {s.id: s.work for s in samples}, ClusterSpec({"vc": 1})
    )


def test_a_bootstrap_draws_whole_days_and_keeps_what_is_within_them() -> None:
    found = bootstrap(trace(), 8, seed=3)
    assert found.work.keys() == {job.job_id for job in found.jobs}
    times = [job.submit_time for job in found.jobs]
    assert times == [day * DAY_S + i * 600 for day in range(8) for i in range(4)]
    days = [job.job_id.split("-")[0] for job in found.jobs]
    assert all(len(set(days[i : i + 4])) == 1 for i in range(0, 32, 4)), "a day stays together"
    assert len(set(days)) < 8, "days come again"
    assert bootstrap(trace(), 8, seed=3).jobs == found.jobs
    assert bootstrap(trace(), 8, seed=4).jobs != found.jobs


def figures(jct: float, p99: float = 1.0, wide: float | None = 1.0) -> dict[str, float | None]:
    return {"mean_jct_s": jct, "p99_wait_s": p99, "longest_wide_wait_s": wide}


def test_the_policy_stands_beside_the_best_peer_and_beside_lucid() -> None:
    found = against(
        {
            "pellucid": [figures(90.0, 3.0, None), figures(130.0, 5.0, None)],
            "lucid": [figures(150.0, 4.0, None), figures(150.0, 4.0, None)],
            "easy": [figures(100.0), figures(100.0)],
            "srtf": [figures(10.0), figures(10.0)],
        }
    )
    assert found is not None
    assert found["best_peer"] == "easy", "one that knows durations is no peer"
    assert found["mean_jct"] == pytest.approx({"ratio": 1.1, "se": 0.2})
    assert found["p99_wait"] == pytest.approx({"ratio": 1.0, "se": 0.25})
    assert found["longest_wide_wait"] is None, "nobody is wide"
    assert against({"lucid": [figures(1.0)]}) is None


def row(world: str, jct: float, p99: float = 1.0) -> dict[str, object]:
    ratio = {"mean_jct": {"ratio": jct}, "p99_wait": {"ratio": p99}, "longest_wide_wait": None}
    return {"world": world, "against": ratio}


def test_a_verdict_says_what_holds_and_where_it_does_not() -> None:
    most, below, p99, wide = verdict(
        [row("a", 0.9), row("b", 0.8), row("c", 0.99, p99=1.2), row("d", 1.02)]
    )
    assert (most["holds"], most["worst"], most["worst_ratio"]) == (True, "d", 1.02)
    assert (below["holds"], below["holds_in"], below["fails_in"]) == (True, 3, ["d"])
    assert (p99["holds"], p99["fails_in"]) == (False, ["c"])
    assert (wide["worlds"], wide["worst"]) == (0, None)
    assert not verdict([row("a", 0.9), row("b", 1.031)])[0]["holds"]
    assert not verdict([row("a", 0.9), row("b", 1.0)])[1]["holds"]


@pytest.mark.shared_data
@pytest.mark.parametrize("half", HALVES)
def test_every_world_can_be_made_and_is_as_it_says(shared_data: Path, half: str) -> None:
    for name, world in read_worlds()[half].items():
        if world.trace in ("venus", "thinned") and name != "venus-busier-closed":
            continue  # alike, and slow to read
        made = scenario(name, world, shared_data, 0, "constant:600")
        jobs = made.workload.jobs
        assert len(jobs) >= 100
        assert [job.submit_time for job in jobs] == sorted(job.submit_time for job in jobs)
        if world.load is not None:
            assert offered_load(made.workload) == pytest.approx(world.load, rel=1e-3)
        assert bool(made.workload.after) <= (world.loop != "open")
        assert (made.pair_predictor is not None) is world.profiles
        has = {bool(job.user) for job in jobs}, {job.time_limit_s is not None for job in jobs}
        assert world.users or has[0] == {False}
        assert has[1] == {world.limits}


def test_a_world_is_played_as_tuned_on_other_replicates_of_it(
    tmp_path: Path, shared_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that are better nowhere are not set, and then both are the same run."""
    monkeypatch.setattr("pipeline.tuning.CANDIDATES", {"rigid": {"max_wait_s": 1.0, "price": 1e9}})
    (tmp_path / "w.yaml").write_text(
        "chosen: {small: {trace: deep, nodes: 2, jobs: 200, profiles: false}}\nreported: {}"
    )
    played = Played(shared_data, tmp_path / "w.yaml", ("pellucid",), None, tuned=True)
    row = played(Replicate("chosen", "small", 0))
    assert (row["set"], row["run"]) == ([], "pellucid")
    assert row["policies"]["tuned"] == row["policies"]["pellucid"]
    elsewhere = Elsewhere(played, "chosen", "small")
    times = {tuple(j.submit_time for j in elsewhere(half, 0, {}).workload.jobs) for half in (0, 1)}
    here = read_worlds(tmp_path / "w.yaml")["chosen"]["small"]
    drawn = scenario("small", here, shared_data, draw_of("small", 0)).workload.jobs
    assert len(times | {tuple(j.submit_time for j in drawn)}) == 3
    for advised in (Advised("pellucid", ("max_wait_s=1.0",)), Advised("qssf", ())):
        monkeypatch.setattr("benchmarks.worlds.played._tuned", lambda *_, found=advised: found)
        other = played(Replicate("chosen", "small", 0))
        assert (other["run"], tuple(other["set"])) == advised
        assert other["policies"]["tuned"] != row["policies"]["tuned"]
        assert other["policies"]["pellucid"] == row["policies"]["pellucid"]
    named = replace(played, policies=("qssf",), tuned=False)(Replicate("chosen", "small", 0))
    assert other["policies"]["tuned"] == named["policies"]["qssf"]


def test_replicates_are_played_elsewhere_too(tmp_path: Path, shared_data: Path) -> None:
    """The command's own module is no module of the workers'."""
    worlds = tmp_path / "worlds.yaml"
    few = "{trace: one-vc, nodes: 1}"
    worlds.write_text(f"chosen: {{few: {few}}}\nreported: {{more: {few.replace('1', '2')}}}")
    asked = ["--worlds", str(worlds), "--seeds", "1", "--policies", "fifo-skip"]
    asked += ["--data", str(shared_data)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.worlds", *asked, "--where", "local:2", "--json"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert [row["world"] for row in json.loads(done.stdout)["worlds"]] == ["few", "more"]
