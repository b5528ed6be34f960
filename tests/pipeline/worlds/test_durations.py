"""The sources of predicted durations: rules that know little, and what they may see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from features.schema import State
from pipeline.worlds import TrackError, durations
from pipeline.worlds.durations import OLD_NAMES, UNKNOWN_S, Make, chosen, sources
from reproductions.baselines.qssf import Qssf
from reproductions.baselines.sjf import Sjf
from scheduler.core.cluster import ClusterSpec
from scheduler.core.estimates import Estimator
from scheduler.policies.fifo import Fifo
from scheduler.simulation.work import Workload
from scheduler.testing.builders import Sample, a_job

SAMPLES = [
    a_job("a", gpus=1, for_=100.0, user="u"),
    a_job("b", gpus=1, for_=400.0, user="v"),
    a_job("c", gpus=8, for_=5_000.0, user="u"),
]
ASKED = a_job("x", gpus=1, for_=77.0, user="u")


def offered(*, limit_s: float | None = None) -> dict[str, Make]:
    samples = [*SAMPLES, ASKED]
    jobs = [replace(s.job, time_limit_s=limit_s) for s in samples]
    return sources(Workload("w", jobs, {s.id: s.work for s in samples}, ClusterSpec({"vc": 1})), 0)


def told(name: str, ended: list[Sample], **more: float) -> Estimator:
    estimator = chosen(name, offered(**more))(Qssf())
    for now, sample in enumerate([*ended, ASKED]):
        estimator.submitted(sample.job, float(now))
    for now, sample in enumerate(ended):
        estimator.ended(sample.id, State.COMPLETED, sample.work.duration_s, 10_000.0 + now)
    return estimator


def seconds(name: str, ended: list[Sample] = SAMPLES) -> float:
    return told(name, ended).estimate(ASKED.job, 20_000.0).seconds


def test_rules_say_what_they_are_named_for() -> None:
    assert seconds("constant:1234.5") == 1234.5
    assert seconds("truth") == 77.0
    assert seconds("last") == 5_000.0, "the job of the same user that ended last"
    assert seconds("gpu-count") == pytest.approx((101 * 401) ** 0.5 - 1), "a geometric mean"


def test_rules_say_something_before_anything_ended() -> None:
    for name in ("last", "gpu-count"):
        assert seconds(name, []) == UNKNOWN_S


def test_limits_are_offered_where_jobs_have_them() -> None:
    assert "slurm-limit" not in offered()
    limited = replace(ASKED.job, time_limit_s=3_600.0)
    assert told("slurm-limit", SAMPLES, limit_s=60.0).estimate(limited, 0.0).seconds == 3_600.0


def test_each_run_gets_an_estimator_of_its_own_and_names_it() -> None:
    for name in offered():
        make = chosen(name, offered())
        assert make(Qssf()).name == name
        assert make(Fifo()).name == "none", "a policy that asks for nothing is given nothing"
        assert make(Sjf()).name == "truth", "a yardstick knows"
    assert chosen("last", offered())(Qssf()) is not chosen("last", offered())(Qssf())


def test_older_names_still_mean_the_same() -> None:
    for old, new in OLD_NAMES.items():
        assert chosen(old, offered())(Qssf()).name == new


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("guess", "use one of"),
        ("constant:", "a number of seconds"),
        ("constant:-1", "a number of seconds"),
        ("constant:nan", "a number of seconds"),
        ("constant:1e99", "at most 1e"),
        ("slurm-limit", "no job of this trace has a time limit"),
    ],
)
def test_what_is_not_offered_is_refused_in_one_line(name: str, why: str) -> None:
    with pytest.raises(TrackError, match=f"--durations {name}: .*{why}"):
        chosen(name, offered())


def test_what_needs_the_extra_says_so_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durations, "TRAINS", False)
    assert "lightgbm" not in offered()
    with pytest.raises(TrackError, match=r"lightgbm needs the extra: pip install"):
        chosen("lightgbm", offered())
