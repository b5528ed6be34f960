"""`pellucid tune`: chosen on one half of a site's past, adopted only if better on the other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.worlds.small import deep
from pipeline import tuning
from pipeline.app import app
from pipeline.commands import simulate
from pipeline.errors import UserError
from pipeline.tuning import (
    KEPT,
    History,
    Tuning,
    beside,
    candidates,
    evidence,
    play,
    tail_holds,
    tune,
)
from pipeline.worlds.plain import of_workload
from pipeline.worlds.playing import Playing
from pipeline.worlds.venus import jitter
from scheduler.assembly import settings_of
from scheduler.core.settings import InvalidSettings, with_assignments
from scheduler.policies.pellucid.settings import PellucidSettings
from scheduler.service.log.header import runnable
from scheduler.simulation.work import Workload
from tests.pipeline.test_replay import dump

RIGID = {"max_wait_s": 60.0, "price": 1e9, "overload": 100.0, "backfill": 0.0}  # as FIFO
HOURS = 3600.0


@pytest.fixture(scope="module")
def past() -> History:
    return History(busy(), None)


def busy() -> Workload:
    """400 jobs that first come, first served serves badly."""
    return jitter(deep(2, 400, seed=3), 0, compress=1.4, permute=False)


def test_what_is_better_beyond_chance_is_adopted_and_says_the_way_back(past: History) -> None:
    tried = {"free": {"max_wait_s": 48 * HOURS, "price": 0.1, "backfill": 1.0}}
    done: list[int] = []
    found = tune(past, RIGID, tried, 2, tail=2.0, progress=done.append)
    assert found["adopt"], found["verdict"]
    assert found["settings"] == tried["free"]
    assert found["before"] == {"max_wait_s": 60.0, "price": 1e9, "backfill": 0.0}
    assert [row["name"] for row in found["tested_on"]] == [KEPT, "free"]
    assert found["tested_on"][1]["jct_high"] < 1
    assert done == list(range(1, tuning.replays(tried, 2) + 1))
    held = tune(past, RIGID, tried, 1)  # a fifth less mean JCT, and a longer tail
    assert not held["adopt"]
    reason = evidence(found, 400)
    assert len(reason) <= 256
    assert "mean JCT 0." in reason
    assert reason.endswith("before: max_wait_s=60.0 price=1000000000.0 backfill=0.0")


def test_another_policy_that_does_better_in_both_halves_is_named(past: History) -> None:
    """First come, first served serves these jobs badly; QSSF as well as settings that do not."""
    done: list[int] = []
    found = tune(past, RIGID, {}, 1, others=("fifo", "qssf"), tail=2.0, progress=done.append)
    assert (found["policy"], found["adopt"], found["picked"]) == ("qssf", False, None)
    rows = {row["policy"]: row for row in found["chosen_on"]}
    assert rows["qssf"]["jct_ratio"] < 0.95 < rows["fifo"]["jct_ratio"]
    assert [row["name"] for row in found["tested_on"]] == [KEPT, "the policy qssf"]
    assert found["rivals"].startswith("Better served by the policy qssf: on the half that did not")
    assert max(done) == tuning.replays({}, 1, ("fifo", "qssf")) - 1  # no settings to test
    alone = past(1, 0, RIGID)
    ends, _ = alone.simulate("qssf")
    mean_s = np.mean([job.jct_s for job in ends.jobs])
    assert found["tested_on"][1]["mean_jct_s"] == pytest.approx(mean_s)


def _played(monkeypatch: pytest.MonkeyPatch, ratios: dict[str, tuple[float, float]]) -> None:
    """Let replays take these shares of the time of the settings in force in the two halves, by
    policy, or by value of `partner_searches`."""
    wait = np.arange(800.0)

    def drawn(_: object, cell: tuning.Cell) -> np.ndarray:
        set_ = cell.settings.get("partner_searches")
        name = cell.policy if set_ is None else str(set_)
        at = ratios.get(name, (1.0, 1.0))[cell.half]
        return np.array([at * (wait + 50), at * wait])

    monkeypatch.setattr(tuning, "play", drawn)


@pytest.mark.parametrize(
    ("mine", "qssf", "policy", "says"),
    [
        ((1.2, 1.0), (0.8, 0.8), "qssf", "Better served by the policy qssf"),
        ((0.9, 0.9), (0.8, 0.8), "qssf", "Better served by the policy qssf"),
        ((0.9, 0.7), (0.8, 0.8), None, "the settings to adopt are as good"),
        ((0.7, 0.7), (0.8, 0.5), None, "No other policy does better on the first half (qssf)."),
        ((1.2, 1.0), (0.8, 1.1), None, "it is no better there"),
        ((1.2, 1.0), (1.1, 0.8), None, "No other policy does better on the first half (qssf)."),
    ],
)
def test_another_policy_must_do_better_than_the_settings_to_adopt(
    mine: tuple[float, float],
    qssf: tuple[float, float],
    policy: str | None,
    says: str,
    past: History,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _played(monkeypatch, {"7": mine, "qssf": qssf})
    found = tune(past, {}, {"mine": {"partner_searches": 7}}, 1, others=["qssf"])
    assert found["policy"] == policy
    assert says in found["rivals"]
    assert found["adopt"] == (mine[0] < 1)
    assert tune(past, {}, {"mine": {"partner_searches": 7}}, 1)["rivals"] == ""


def test_another_policy_that_makes_some_wait_longer_is_refused_for_that(
    past: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = np.arange(800.0)

    def drawn(_: object, cell: tuning.Cell) -> np.ndarray:
        late = cell.half == 1 and cell.policy == "qssf"
        jct = (0.8 if cell.policy == "qssf" else 1.0) * (wait + 50)
        return np.array([jct, np.where(wait > 700, 5 * wait, wait) if late else wait])

    monkeypatch.setattr(tuning, "play", drawn)
    found = tune(past, {}, {}, 1, others=["qssf"])
    assert (found["policy"], found["adopt"]) == (None, False)
    assert found["rivals"].endswith(": the p99 wait is longer.")


def test_what_is_worse_or_the_same_is_not(past: History) -> None:
    tried: dict[str, tuning.Values] = {"rigid": RIGID, "alike": {"partner_searches": 15}}
    found = tune(past, {}, tried, 1)
    assert (found["adopt"], found["picked"], found["settings"]) == (False, None, {})
    assert found["verdict"].startswith("Keep the settings: on the first half no candidate")
    rows = {row["name"]: row for row in found["chosen_on"]}
    assert rows["rigid"]["jct_ratio"] > 1.1
    assert rows["alike"]["jct_ratio"] == rows["alike"]["jct_high"] == 1


def test_of_candidates_that_change_nothing_hardly_one_is_adopted(
    monkeypatch: pytest.MonkeyPatch, past: History
) -> None:
    """Sixty tries of sixteen candidates that differ from what is in force by chance alone: the best
    of them looks better on the half that chooses, and the other half tells."""
    monkeypatch.setattr(tuning, "DRAWS", 20)
    rng = np.random.default_rng(5)
    jobs = rng.lognormal(7.0, 1.5, (2, 640))  # of each half

    def drawn(_: object, cell: tuning.Cell) -> tuning.Times:
        windows = np.repeat(np.exp(rng.normal(0.0, 0.05, tuning.WINDOWS)), 640 // tuning.WINDOWS)
        jct = jobs[cell.half] * windows * np.exp(rng.normal(0.0, 0.2, 640))
        return np.stack([jct, 0.3 * jct])

    monkeypatch.setattr(tuning, "play", drawn)
    tried: dict[str, tuning.Values] = {str(n): {"partner_searches": n} for n in range(16)}
    found = [tune(past, {}, tried, 1) for _ in range(60)]
    picked = [one for one in found if one["picked"]]
    assert len(picked) > 50, "chance alone nearly always finds one on the first half"
    assert sum(one["adopt"] for one in found) <= 4


def test_the_halves_share_no_job_and_the_first_is_the_history_of_the_second(past: History) -> None:
    first, second = (past(half, 0, {}) for half in (0, 1))
    ids = [[job.job_id for job in world.workload.jobs] for world in (first, second)]
    assert ids[0] + ids[1] == [job.job_id for job in past.workload.jobs]
    job = second.workload.jobs[0]
    policy = second.policy("pellucid")
    knows, learns = (w.estimators(policy).estimate(job, job.submit_time) for w in (second, first))
    assert knows != learns


def test_a_few_jobs_choose_nothing() -> None:
    with pytest.raises(UserError, match=r"319 jobs .*; 320 are the least"):
        History(deep(2, 319, seed=3), None)
    with pytest.raises(UserError, match="the least"):
        History(deep(2, 360, seed=3), None, last_days=0.01)


def _times(*by_job: np.ndarray) -> np.ndarray:
    return np.array([by_job])


def test_a_gain_of_one_window_may_be_chance() -> None:
    """All the gain in one of eight windows is no evidence; an eighth of it in each is."""
    wait = np.full(800, 100.0)
    kept = _times(wait + 50, wait)
    lucky, steady = wait.copy(), wait - 5
    lucky[:100] -= 40
    once, always = (beside("x", {}, _times(w + 50, w), kept) for w in (lucky, steady))
    assert once["jct_ratio"] == pytest.approx(always["jct_ratio"])
    assert once["jct_high"] > 1
    assert always["jct_high"] < 1


def test_jobs_that_never_ended_under_one_setting_count_under_none() -> None:
    wait = np.arange(800.0)
    kept, other = _times(wait + 1, wait), _times(wait + 1, wait)
    other[0, :, -10:] = np.nan
    row = beside("x", {}, other, kept)
    assert (row["jct_ratio"], row["p99_more_s"]) == (1, 0)
    assert row["longest_wait_s"] == 789


def test_a_longer_tail_is_refused_where_chance_does_not_explain_it() -> None:
    rng = np.random.default_rng(1)
    wait = rng.exponential(1000.0, 800)
    kept = _times(wait + 50, wait)
    assert tail_holds(beside("x", {}, kept, kept))
    longer = np.where(wait > 3000, wait * 1.08, wait * 0.5)
    assert not tail_holds(beside("x", {}, _times(longer + 50, longer), kept))


def test_candidates_are_what_differs_from_the_settings_in_force(past: History) -> None:
    mine = candidates({}, past.workload, {"mine": {"ageing": 0.3}})
    assert "the defaults" not in mine
    assert "packing late" not in mine  # no job has a profile
    assert mine["mine"] == {"ageing": 0.3}
    other = candidates({"max_wait_s": 1e12, "sharing": {"memory_margin_mib": 9}}, past.workload, {})
    assert "no bound" not in other
    assert other["no ageing"] == {"ageing": 0.0}
    assert other["the defaults"]["max_wait_s"] == 48 * HOURS
    assert "sharing.memory_margin_mib" in other["the defaults"]


def test_what_helps_is_crossed_one_by_one(past: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its ratio, two parts help alone, and more together; a third spoils it."""
    ratios = {
        (): 1.0,
        ("a",): 0.9,
        ("b",): 0.95,
        ("c",): 0.97,
        ("d",): 1.2,
        ("a", "b"): 0.8,
        ("a", "b", "c"): 0.85,
    }
    wait = np.arange(800.0)

    def replayed(worlds: object, cell: tuning.Cell) -> np.ndarray:
        at = ratios[tuple(sorted(cell.settings))]
        return np.array([at * (wait + 50), at * wait])

    monkeypatch.setattr(tuning, "play", replayed)
    monkeypatch.setattr(tuning, "with_assignments", lambda now, texts: {
        text.partition("=")[0]: 0 for text in texts
    })  # fmt: skip
    monkeypatch.setattr(tuning, "flat", lambda settings: {})
    tried: dict[str, tuning.Values] = {name.upper(): {name: 1.0} for name in "abcd"}
    done: list[int] = []
    found = tune(past, {}, tried, 1, progress=done.append)
    crossed = [row["name"] for row in found["chosen_on"] if "+" in row["name"]]
    assert crossed == ["A + B", "A + B + C"]
    assert found["picked"] == "A + B"
    assert found["adopt"]
    assert found["settings"] == {"a": 1.0, "b": 1.0}
    assert len(done) <= tuning.replays(tried, 1)


def test_every_part_of_the_policy_is_switched_off_by_one_candidate() -> None:
    """But for what is promised to users, where GPUs may be, and one threshold of two parts."""
    off = tuning.CANDIDATES | tuning.PACKING
    promised = {"sharing", "fairness", "borrowing", "gpu_types", "busy_above"}
    assert {name for values in off.values() for name in values} == (
        PellucidSettings.model_fields.keys() - promised
    )
    assert all(len(values) == 1 for values in off.values())
    for values in off.values():
        settings_of("pellucid", with_assignments({}, tuning.assignments(values)))


def test_settings_that_cannot_be_are_refused(past: History) -> None:
    with pytest.raises(InvalidSettings):
        play(past, tuning.Cell(0, 0, {"ageing": -1}))


class TestCommand:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        kept = {"predicted once": tuning.CANDIDATES["predicted once"]}
        monkeypatch.setattr(tuning, "CANDIDATES", kept)
        monkeypatch.setattr(tuning, "PACKING", {})
        monkeypatch.setattr(tuning, "LEAST", 16 * 2)

    def test_an_ingested_trace(self, small_trace: Path) -> None:
        words = ["tune", "--trace", str(small_trace), "--last-days", "2"]
        words += ["--seeds", "1", "--also", "ageing=0 price=1"]
        done = CliRunner().invoke(app, [*words, "--json"])
        assert done.exit_code == 0, done.output
        found = json.loads(done.output)
        names = [row["name"] for row in found["chosen_on"]]
        others = [f"the policy {name}" for name in runnable() if name != "pellucid"]
        assert names == [KEPT, "predicted once", "ageing=0 price=1", *others]
        assert "the policy qssf" in others
        assert found["jobs"] > 32
        assert found["change"] is None
        shown = CliRunner().invoke(app, words).output
        assert found["verdict"] in " ".join(shown.split())
        assert found["rivals"] in " ".join(shown.split())
        assert "inferred from the dump" in shown

    def test_a_dump_of_sacct(self, tmp_path: Path) -> None:
        words = ["--sacct", str(dump(tmp_path / "dump.txt", jobs=120)), "--seeds", "1", "--json"]
        done = CliRunner().invoke(app, ["tune", *words])
        assert done.exit_code == 0, done.output
        found = json.loads(done.output)
        assert found["jobs"] == 120
        assert [row["policy"] for row in found["chosen_on"][:2]] == ["pellucid"] * 2
        assert len(found["chosen_on"]) == 1 + len(runnable())

    def test_wrong_options_are_named(self, small_trace: Path) -> None:
        for words, why in (
            (["--trace", "nowhere"], "no such file"),
            (["--sacct", "nowhere"], "no such file"),
            (["--trace", "a", "--sacct", "b"], "give one of them"),
            (["--site", "a"], "--site goes with --sacct"),
            (["--cluster", "a"], "goes with"),
            (["--trace", str(small_trace), "--preview"], "give both"),
            (["--trace", str(small_trace), "--also", "agein=0"], "agein"),
            (["--database", "sqlite:////nowhere.db"], "no such file"),
        ):
            done = CliRunner().invoke(app, ["tune", *words])
            assert isinstance(done.exception, UserError), (words, done.output)
            assert why in str(done.exception)


def test_a_simulated_policy_is_tuned_by_what_has_ended_by_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = of_workload(busy(), None, Playing(loop="closed"))
    world.settings = {"pellucid": RIGID}
    free = {"max_wait_s": 48 * HOURS, "price": 0.1, "backfill": 1.0, "overload": 2.0}
    seen: list[tuple[float, int]] = []

    def chosen(past: History, now: object, tried: object, seeds: int) -> dict[str, object]:
        ends = past.workload.recorded_ends.values()
        assert all(of.duration_s > 0 for of in past.workload.work.values())
        seen.append((max(ends), len(past.workload.jobs)))
        return {"adopt": len(seen) == 1, "settings": free, "verdict": "Adopt free."}

    monkeypatch.setattr(tuning, "tune", chosen)
    every_s = 86_400.0
    Tuning(world, every_s, world.spec("pellucid").settings.plain())
    tuned, _ = world.simulate("pellucid")
    start = world.workload.jobs[0].submit_time
    ends = sorted(one.end_time for one in tuned.jobs if one.end_time is not None)
    assert seen
    for last, jobs in seen:
        assert jobs == sum(end <= last for end in ends) >= tuning.LEAST
    assert (seen[0][0] - start) > every_s
    assert world.notes[-2].startswith(f"Tuned every 1 days on what had ended by then: {len(seen)}")
    assert world.notes[-1].endswith(": Adopt free.")
    alone = of_workload(busy(), None, Playing(loop="closed"))
    alone.settings = {"pellucid": RIGID}
    before, _ = alone.simulate("pellucid")
    first = seen[0][0]
    same = [a.start_time == b.start_time for a, b in zip(tuned.jobs, before.jobs, strict=True)
            if a.start_time is not None and a.start_time < first]  # fmt: skip
    assert all(same)
    assert [a.end_time for a in tuned.jobs] != [b.end_time for b in before.jobs]


def test_a_sparse_trace_is_not_tuned_by_fewer_jobs_than_can_be_chosen_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Enough have ended in all, too few of them in the days that are replayed."""
    monkeypatch.setattr(tuning, "LAST_DAYS", 1 / 24)
    world = of_workload(busy(), None, Playing(loop="closed"))
    world.settings = {"pellucid": RIGID}
    meanwhile = Tuning(world, 86_400.0, world.spec("pellucid").settings.plain())
    outcome, _ = world.simulate("pellucid")
    assert sum(one.end_time is not None for one in outcome.jobs) > tuning.LEAST
    assert meanwhile.tries == 0


@pytest.mark.parametrize(
    ("policy", "days", "why"), [("fifo", 7.0, "only pellucid"), ("pellucid", float("nan"), "days")]
)
def test_what_cannot_be_tuned_meanwhile_is_refused(policy: str, days: float, why: str) -> None:
    with pytest.raises(UserError, match=why):
        simulate._tune(of_workload(busy(), None), policy, days)
