"""The audit of explanations: it finds nothing wrong in what is right, and every planted lie."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from math import inf
from pathlib import Path
from typing import Any

import pytest

from benchmarks import explanations
from benchmarks.calibration import Calibration
from benchmarks.explanations import deep, live, meanwhile
from benchmarks.explanations.__main__ import main
from benchmarks.explanations.audit import Audited, Found, audit
from benchmarks.explanations.figures import BUDGET, draws, ends, figures, verdict
from benchmarks.explanations.foretold import Foretold, Rule, forecasts, of_log
from benchmarks.explanations.judge import Account, Judge, TrialFailed, aside, starts_when
from benchmarks.explanations.log import Log, Moment
from benchmarks.explanations.reading import CODES, RAW_NAMES, found_in, readable, worded
from benchmarks.explanations.stable import agreement
from benchmarks.explanations.worlds import WORLDS, AuditWorld
from benchmarks.worlds.small import synthetic
from pipeline.worlds.scenario import Scenario
from scheduler.core.core import Core
from scheduler.core.decisions import DEPENDS, Reason
from scheduler.core.estimates import LiveEstimator
from scheduler.explain.findings import analysis
from scheduler.explain.whatif.changes import Change
from scheduler.explain.whatif.counterfactuals import Outcome, WhatIf
from scheduler.explain.whatif.forecasts import Futures, StartForecast
from scheduler.explain.whatif.memory import Memory
from scheduler.policies.fifo import FifoSkip
from scheduler.simulation.contention import SimulatedContention
from scheduler.testing.builders import Desk, a_job, cluster_of

Said = dict[str, Any]
NOW = 60.0


def account_of(core: Core) -> Account:
    runs = core.cluster.runs.values()
    return Account(
        {run.job.job_id: dict(zip(run.nodes, run.gpus, strict=True)) for run in runs},
        {run.job.job_id: run.start_time for run in runs},
    )


def asked(*runs: int, need: int = 4, nodes: int = 1) -> tuple[Judge, Said, Desk, Memory]:
    """Why `next` waits for GPUs of nodes of eight, held by runs of so many."""
    desk = Desk(FifoSkip(), cluster_of(nodes=nodes, gpus=8))
    memory = desk.core.estimator = Memory(desk.core.estimator, asks=True)
    desk.submit(*(a_job(f"r{i}", gpus=gpus) for i, gpus in enumerate(runs)))
    desk.submit(a_job("next", gpus=need, at=NOW), now=NOW)
    futures = Futures(desk.core, memory, NOW)
    said = worded(asdict(analysis(futures, "next", "", names=True, most=None)))
    return Judge(desk.core, account_of(desk.core)), said, desk, memory


def test_what_is_right_is_found_right() -> None:
    for runs in ((2, 6), (4, 4), (2, 3, 3)):
        judge, said, *_ = asked(*runs)
        found = judge.verdict(said, "next", NOW)
        assert [why for why in found.wrong if "without others" not in why] == []
        assert (found.named, found.necessary, found.fresh) == (True, True, True)
        assert found.minimal


def _somebody_else(said: Said) -> None:
    said["holders"] = [said["holders"][0] | {"job": "r0"}]


def _one_too_many(said: Said) -> None:
    said["holders"] = [said["holders"][0], said["holders"][0] | {"job": "r0"}]


def _nobody(said: Said) -> None:
    said["holders"], said["in_all"] = [], 0


def _in_vain(said: Said) -> None:
    _nobody(said)
    said["still"] = "GpusBusy"


def _free(said: Said) -> None:
    said["free"] += 1


def _of_yesterday(said: Said) -> None:
    said["in_the_way"] = said["in_the_way"].replace("0 of 8", "1 of 8")


def _older(said: Said) -> None:
    said["holders"][0]["ran_s"] += 1.0


def _place(said: Said) -> None:
    said["place"] = said["place"].replace("Number 1", "Number 2")


@pytest.mark.parametrize(
    ("lie", "name"),
    [
        (_somebody_else, "necessary"),
        (_one_too_many, "minimal"),
        (_nobody, "named"),
        (_in_vain, "necessary"),
        (_free, "fresh"),
        (_of_yesterday, "fresh"),
        (_older, "fresh"),
        (_place, "fresh"),
    ],
)
def test_a_planted_lie_is_found(lie: Callable[[Said], None], name: str) -> None:
    judge, said, *_ = asked(2, 6)
    lie(said)
    found = judge.verdict(said, "next", NOW)
    assert getattr(found, name) is False
    assert found.wrong or name == "named"


def test_who_is_not_said_to_do_as_well_must_not() -> None:
    judge, said, *_ = asked(4, 4)
    assert len(said["either"]) == 1
    assert judge.verdict(said, "next", NOW).specific  # nobody else is left to remove
    said["either"] = []
    assert judge.verdict(said, "next", NOW).specific is False


def test_sets_that_would_do_as_well_are_told_and_who_keeps_them_quiet_is_found() -> None:
    judge, said, *_ = asked(4, 4, 4, 4, 4, 4, need=8, nodes=3)
    assert [len(runs) for runs in said["instead"]] == [2, 2]
    assert "The end of 2 other jobs would do as well (2 such groups)" in said["otherwise"]
    found = judge.verdict(said, "next", NOW)
    assert (found.necessary, found.minimal, found.specific) == (True, True, True)
    for runs in said["instead"]:  # each is as true as what is named first
        said["holders"] = runs
        assert judge.verdict(said | {"instead": []}, "next", NOW).necessary
    judge, said, *_ = asked(4, 4, 4, 4, need=8, nodes=2)
    said["instead"] = []
    assert judge.verdict(said, "next", NOW).specific is False


def test_a_suggestion_that_does_not_come_true_is_found() -> None:
    judge, _, desk, _ = asked(2, 5, need=4)
    assert starts_when(desk.core, {"gpus": 1}, "next", NOW)
    assert not starts_when(desk.core, {"gpus": 3}, "next", NOW)
    assert "next" in [queued.job.job_id for queued in judge.core.queues["vc"]]


class _Suggesting(WhatIf):
    """Says of two changes that they give an earlier start: of one that does, and of a lie."""

    def suggestions(self, job_id: str, vcs: Iterable[str] = (), *, most: int = 3) -> list[Outcome]:
        now = StartForecast(self.futures.now)
        return [
            Outcome(change, now, now, False, 600.0, 9, 9)
            for change in (Change(first=True), Change(held=True))
        ]


def test_an_earlier_start_is_played_in_the_very_world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.explanations.audit.WhatIf", _Suggesting)
    engine = Audited(AuditWorld("small", _small), Path(), 1, 24, ask_every=1)
    engine.run()
    first, held = engine.played()[::2], engine.played()[1::2]
    assert all(0.0 <= start <= without < inf for start, without in first)
    assert any(start < without for start, without in first)
    assert {start for start, _ in held} == {inf}
    engine.found.earlier = held
    assert figures([engine.found])["counterfactuals"]["earlier_true"] == 0.0
    again = Audited(AuditWorld("small", _small), Path(), 1, 24, ask_every=99)
    again.run()  # a trial leaves nothing behind
    assert again._began == engine._began


def test_a_trial_leaves_nothing_behind_and_its_errors_are_told() -> None:
    seen: list[int] = []
    assert aside(lambda: seen.append(1) is None)
    assert seen == []
    with pytest.raises(TrialFailed, match="ZeroDivisionError"):
        aside(lambda: bool(1 // 0))


def _small(_: Path, seed: int) -> Scenario:
    return Scenario(
        "small", synthetic(1, seed), SimulatedContention(), lambda policy: LiveEstimator()
    )


def test_a_small_world_is_audited() -> None:
    engine = Audited(AuditWorld("small", _small, drains=0.0), Path(), 1, 8)
    engine.run()
    found = engine.found
    found.foretold = engine.promises.scored()
    made = figures([found])
    assert made["waits"] >= 8
    assert made["necessary"] == 1.0
    assert made["fresh"] == 1.0
    assert made["named"] == 1.0
    assert made["counterfactuals"]["true"] in (None, 1.0)
    assert made["readable"]["codes"] == made["readable"]["raw_names"] == 0
    assert made["forecasts"]["jobs"] > 0
    assert json.loads(json.dumps(made["worlds"]))[0]["world"] == "small"


def test_a_service_that_lives_is_audited() -> None:
    found = live.audit(2, 3)
    assert len(found.waits) >= 2
    assert all(v.named and v.fresh and v.necessary for _, _, v in found.waits)
    assert found.true == found.shown
    assert readable(found.texts)["codes"] == 0
    told = figures([found])["sentences"]
    assert (told["right"], told["wrong"]) == (1.0, {})


def test_who_judges_imports_nothing_of_what_explains_serves_or_prints() -> None:
    home, seen, found = "benchmarks.explanations", set[str](), set[str]()
    left = ["sentences", "judge", "printed"]
    while left:
        name = left.pop()
        seen.add(name)
        for node in ast.walk(
            ast.parse((Path(explanations.__path__[0]) / f"{name}.py").read_text())
        ):
            of = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            of += [one.name for one in node.names] if isinstance(node, ast.Import) else []
            found |= {one for one in of if not one.startswith(home)}
            inside = {one.removeprefix(f"{home}.") for one in of if one.startswith(f"{home}.")}
            left += inside - seen
    assert {"foreseen", "meanwhile", "asked", "log"} <= seen
    ours = {one for one in found if one.startswith(("scheduler", "pipeline", "features", "models"))}
    assert {one for one in ours if not one.startswith("scheduler.core")} == {"features.schema"}


class _Unit:
    def judge(self, known: dict[str, Any], file: Path) -> dict[str, Any]:
        return {"holds": True}


def test_every_bound_is_on_a_figure_and_one_that_was_not_measured_is_missed() -> None:
    engine = Audited(AuditWorld("small", _small), Path(), 1, 2)
    engine.run()
    engine.found.agreed = [1.0]
    rule = Rule(5.0, 30.0)
    engine.found.foretold = [Foretold("a", 10.0, 20.0, rule, 12.0, 15.0)]
    made = figures([engine.found])
    made["counterfactuals"] |= {"true": 1.0, "earlier_true": 1.0}
    made["sentences"]["right"] = 1.0
    made["services"] |= {"answered": 1.0, "age_p99_s": 0.5}
    made["ends"] |= {"kept": 4, "philly": 1}
    assert BUDGET.exists()
    told = verdict(made, _Unit())  # type: ignore[arg-type]
    assert (told["missing"], told["holds"]) == ([], True)
    made["stable"] = None
    told = verdict(made, _Unit())  # type: ignore[arg-type]
    assert (told["missing"], told["holds"]) == (["stable"], False)


def test_codes_and_raw_names_are_seen_in_a_text() -> None:
    assert found_in("it waits: GpusBusy.", CODES) == ["GpusBusy"]
    assert found_in("since gpu_util_pct 14 <= 43", RAW_NAMES) == ["gpu_util_pct"]
    assert found_in("the GPUs are busy", CODES) == []
    assert readable(["Two words."])["words_p50"] == 2


def test_agreement_counts_the_first_most() -> None:
    assert agreement("abc", "abc") == 1.0
    assert agreement("abc", "xyz") == 0.0
    assert agreement("abc", "abx") > agreement("abc", "xab")


def test_a_forecast_is_kept_or_not() -> None:
    kept = Foretold("a", 10.0, 20.0, None, None, 15.0)
    late = Foretold("b", 10.0, 20.0, None, None, 25.0)
    crude = Foretold("b", 10.0, None, None, None, 25.0)
    made = forecasts([kept, kept, late, crude])
    assert made["jobs_p90"] == pytest.approx(0.6667)
    rough = Foretold("b", 10.0, 20.0, None, None, 25.0, crude=True)
    apart = forecasts([kept, rough])
    assert (apart["jobs_p90"], apart["crude_p90"]) == (1.0, 0.0)
    (minutes,) = apart["by_wait"]
    assert (minutes["horizon"], minutes["p50"], minutes["width_s"]) == ("minutes", 0.0, 10.0)
    assert made["batches_p90"] == 0.5
    assert (made["jobs_without_any"], made["jobs_without_p90"]) == (0, 1)


def test_forecasts_of_a_service_are_those_of_its_log() -> None:
    def event(seq: int, at: float, kind: str, job: str, **body: Any) -> dict[str, Any]:
        return {"seq": seq, "at": at, "kind": kind, "job_id": job, "body": body}

    events, decisions = [event(1, 0.0, "header", "")], []
    cases = {
        "kept": (200.0, 250.0, None),
        "late": (100.0, 290.0, None),
        "rough": (9e3, 9e4, "crude"),
        "known": (15.0, 15.0, None),  # it had started when it was looked at first
        "false": (19.0, 19.0, None),  # it had not
    }
    for job, (p50, p90, how) in cases.items():
        events += [
            event(len(events) + 1, 10.0, "submitted", job, owner="ann", submitted_at=10.0),
            event(
                len(events) + 2, 20.0, "forecast", job, start_p50=p50, start_p90=p90, estimate=how
            ),
        ]  # fmt: skip
    events.append(event(len(events) + 1, 270.0, "decided", ""))
    given = {"kept": 190.0, "late": 270.0, "known": 15.0, "false": 30.0}
    for job, at in given.items():
        body = {"action": "start", "vc": "vc", "nodes": [0], "gpus": [1]}
        decisions.append({"event": len(events), "at": at, "job_id": job, "body": body})
    told = forecasts(list(of_log(Log(events, decisions))))
    (minutes,) = told["by_wait"]
    assert (minutes["jobs"], minutes["p50"], minutes["p90"]) == (3, 0.3333, 0.6667)
    assert told["under_ten_minutes"]["width_s"] == 50.0
    assert (told["jobs"], told["jobs_crude"]) == (3, 0)  # "rough" has not started


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_a_world_without_the_shared_data_is_left_out(world: AuditWorld, tmp_path: Path) -> None:
    found = audit(world, tmp_path, 3, 1)
    assert (found.waits, found.skipped) == ([], "without the shared data")


def test_deep_times_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deep, "QUEUED", 100)
    monkeypatch.setattr(deep, "NODES", 4)
    monkeypatch.setattr("sys.argv", ["explanations", "--deep", "--waits", "4"])
    with pytest.raises(SystemExit, match="0"):
        main()
    told = json.loads(capsys.readouterr().out)
    assert told["waiting"] >= 30
    assert told["named"] > 0.5
    assert told["why_p99_ms"] >= told["why_p50_ms"] > 0


@pytest.mark.parametrize(("most", "nodes"), [(0.2, [0, 1]), (0.1, [0, 1, 2])])
def test_the_judge_knows_which_nodes_are_lent(most: float, nodes: list[int]) -> None:
    cluster = {"vcs": [["a", 3], ["b", 3]], "gpus_per_node": 8}
    partition = {"nodes": [["a", 1]], "largest_share": most}
    assert Moment({"cluster": cluster, "partition": partition}).pool("a") == nodes


def test_the_judge_knows_what_a_job_says_of_itself_until_more_is_recorded() -> None:
    own = {"low_s": 40.0, "high_s": 50.0}
    said = {"seq": 2, "at": 2.0, "kind": "progress", "job_id": "j", "body": {"progress": own}}
    rows = [
        {"event": seq, "at": float(seq), "job_id": "j", "body": {"action": "wait", "estimate_s": s}}
        for seq, s in ((1, 255.0), (3, 45.0))
    ]
    start = {"seq": 1, "at": 1.0, "kind": "decided", "job_id": "", "body": {}}
    log = Log([start, said, start | {"seq": 3, "at": 3.0}], rows)
    found = [log.until(seq).predicted("j") for seq in (1, 2, 3)]
    assert found == [(255.0, 255.0), (40.0, 50.0), (45.0, 45.0)]


def test_ends_are_counted_by_the_odds_that_were_written() -> None:
    found = Found("w", ends=[(0.5, 10.0, 10.0), (0.5, 10.0, 10.1), (0.9, 5.0, None)])
    assert ends([found]) == {"0.5": {"runs": 2, "kept": 0.5}, "0.9": {"runs": 1, "kept": 0.0}}


def test_further_draws_are_of_other_seeds_and_no_service_is_asked_twice() -> None:
    found = draws(["live-service", "a", "b"], 5, 2)
    assert found == [(n, 5) for n in ("live-service", "a", "b")] + [
        (name, seed) for seed in (6, 7) for name in "ab"
    ]


def _with_ends(world: str, kept: float) -> Found:
    """A world in which that share of a hundred runs kept to the odds of nine in ten."""
    ended = [0.0] * round(100 * kept) + [9.0] * round(100 * (1.0 - kept))
    return Found(world, ends=[(0.9, 5.0, after_s) for after_s in ended])


@pytest.mark.parametrize(
    ("worlds", "exceeded"),
    [
        ({"philly-overload": 0.85, "a": 0.85, "b": 0.95, "c": 0.9, "d": 0.5}, []),
        ({"philly-overload": 0.29, "a": 0.86, "b": 0.94, "c": 0.9, "d": 0.9}, ["ends_philly"]),
        ({"philly-overload": 0.9, "a": 0.86, "b": 0.94, "c": 0.63}, ["ends_kept"]),
        ({"philly-overload": 1.0, "a": 1.0, "b": 1.0, "c": 1.0}, ["ends_kept", "ends_philly"]),
    ],
)
def test_ends_are_kept_as_often_as_the_words_say(
    worlds: dict[str, float], exceeded: list[str]
) -> None:
    few = Found("few", ends=[(0.9, 5.0, None)])
    made = figures([few, *(_with_ends(*one) for one in worlds.items())])
    found = verdict(made, Calibration())["exceeded"]
    assert [name for name in found if name.startswith("ends_")] == exceeded


def test_the_judge_knows_every_reason_that_is_no_waiting() -> None:
    stopped = {Reason.HELD_BY_OWNER, Reason.HELD_BY_OPERATOR, *DEPENDS}
    assert set(meanwhile.HELD) == {reason.value for reason in stopped}
