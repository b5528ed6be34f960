"""The durations and odds of an answer are made again from what it says of them, and no more."""

from __future__ import annotations

import json
from math import expm1, log1p
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from scheduler.core.settings import ProfilingPartition
from scheduler.explain.explanation import Explanation
from scheduler.service.log.store.dossiers import explained
from scheduler.service.log.store.reads import Reads
from scheduler.service.log.store.store import Store
from scheduler.service.log.store.visibility import Role, Viewer
from tests.scheduler.service.analyst.test_process import Service

OVER = {"over_1h": 3600.0, "over_6h": 21_600.0, "over_1d": 86_400.0}
# as `scheduler.core.receipts` has it: 0 s, the stretches of `features.survival`, two weeks
MOMENTS = [0, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
           172_800, 345_600, 1_209_600]  # fmt: skip


def straight(xs: list[float], ys: list[float], x: float) -> float:
    """On straight lines through some points; flat beyond them."""
    if x <= xs[0]:
        return ys[0]
    for x0, x1, y0, y1 in zip(xs, xs[1:], ys, ys[1:], strict=False):
        if x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return ys[-1]


def picked(some: list[float], n: int) -> list[float]:
    return [some[int((i + 0.5) * len(some) / n)] for i in range(n)]


def made_again(curve: dict[str, Any]) -> list[float]:
    """The durations of a curve, by what its receipt says alone."""
    logs, shares = [log1p(at) for at in MOMENTS], curve["ended"]
    outlived_s, n = curve["outlived_s"], curve["own"]
    found = [(1 + curve["predicted_s"]) * ratio - 1 for ratio in curve["ratios"]]
    if n:
        left = 1 - straight(logs, shares, log1p(outlived_s) - curve["shift"]) * (outlived_s > 0)
        for i in range(n):
            at = straight(shares, logs, 1 - left + left * (i + 0.5) / n)
            found.append(expm1(at + curve["shift"]))
    found = sorted(max(outlived_s, min(curve["most_s"], one)) for one in found)
    for claim in curve["claims"]:
        low, high, points = claim["low_s"], claim["high_s"], claim["points"]
        within = [one for one in found if low <= one <= high]
        others = [one for one in found if one < low or one > high]
        if claim["even"]:
            first, last = log1p(max(low, outlived_s)), log1p(high)
            within = [expm1(first + (last - first) * (i + 0.5) / len(found)) for i in range(64)]
        found = sorted(picked(within, points) + picked(others, len(found) - points))
    return found


def level(durations: list[float], share: float) -> float:
    middles = [(i + 0.5) / len(durations) for i in range(len(durations))]
    return straight(middles, durations, share)


def answer(service: Service, job_id: str) -> dict[str, Any]:
    """`why --json` of a job."""
    view = Reads(service.store.engine).seen_by(Viewer("op", Role.OPERATOR))
    found = explained(view, job_id, service.wall)
    told: dict[str, Any] = json.loads(TypeAdapter(Explanation).dump_json(found))
    return told


def adds_up(told: dict[str, Any], now: float) -> dict[str, Any]:
    """Check each number of a prediction by what the answer says of it; the curve."""
    runs = told["phase"] == "running"
    ran_s = now - told["times"]["started_at"] if runs else 0.0  # no figure lies before now
    total = told["intercept"] + sum(term["log_seconds"] for term in told["contributions"])
    assert expm1(total) == pytest.approx(told["predicted_s"], rel=1e-9)
    curve, belief = told["curve"], told["belief"]
    durations = made_again(curve)
    assert len(durations) == 64
    for name, share in (("p50_s", 0.5), ("p90_s", 0.9)):
        lasts_s = max(ran_s, level(durations, share))
        assert lasts_s == pytest.approx(belief[name], rel=1e-6, abs=1e-3)
    assert set(belief["odds"]) == set(OVER)
    for name, over_s in OVER.items():
        assert sum(one > over_s for one in durations) / 64 == belief["odds"][name]
    return dict(curve)


@pytest.fixture
def service(store: Store, tmp_path: Path) -> Service:
    """A service that has seen a few jobs end, with a node for profiling."""
    partition = ProfilingPartition(nodes={"vc": 1}, largest_share=1, limit_s=30.0)
    found = Service(store, tmp_path, policy="pellucid", nodes=2, partition=partition)
    for i in range(12):
        found.add(f"past{i}", 20 * (i + 1) if i % 3 else 9000, gpus=1, owner=["ann", "bob"][i % 2])
        found.decide(seconds=40.0)
    found.decide(seconds=20_000.0)
    return found


def test_the_numbers_of_a_prediction_add_up_as_it_goes_on(service: Service) -> None:
    service.add("other", 4000, gpus=1)
    service.decide()
    service.add("first", 5000, gpus=4, owner="bob")  # is profiled, and then waits
    service.submit("next", gpus=4, command=("sleep", "8000"), expect="2h")
    seen: dict[tuple[str, str], dict[str, Any]] = {}
    for _ in range(16):
        service.decide(seconds=40.0 if len(seen) < 2 else 1500.0)
        service.analyst.turn()
        for job_id in ("first", "next"):
            told = answer(service, job_id)
            if told["phase"] in ("queued", "running"):
                seen[job_id, told["phase"]] = adds_up(told, service.wall)
    assert set(seen) == {(j, at) for j in ("first", "next") for at in ("queued", "running")}
    assert seen["first", "queued"]["outlived_s"] > 0, "the pass did not end it"
    assert seen["next", "queued"]["claims"], "what its owner expects moves it"
    assert seen["next", "running"]["outlived_s"] > 0
    assert all(0 < one["own"] < 64 for one in seen.values())
