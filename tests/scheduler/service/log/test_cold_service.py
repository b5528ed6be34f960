"""A service that knows nothing: three ends of a kind are enough, whatever others' bundle says."""

from __future__ import annotations

import random
from math import exp, log
from pathlib import Path

import pytest

from features.commands import digest_of
from scheduler.backends.base import Launch
from scheduler.backends.simulated import JobOutcome
from scheduler.core.decisions import Decision
from scheduler.core.estimates import COLD_START, OF_HISTORIES
from scheduler.explain.belief import EXPECTED, belief, belief_words
from scheduler.explain.terms import breakdowns
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk, lasting

PREBUILT = Path(__file__).parents[4] / "data" / "prebuilt" / "bundle"
OWNERS, COMMANDS = ("ann", "bob"), 40
NEAR = 1.5  # times the truth
LEAST_S, MOST_S = 3.0, 40_000.0


def lengths(owner: str) -> list[float]:
    """How long each command of an owner lasts, evenly in the logarithm, shuffled."""
    step = log(MOST_S / LEAST_S) / (COMMANDS - 1)
    found = [LEAST_S * exp(step * i) for i in range(COMMANDS)]
    random.Random(owner).shuffle(found)
    return found


def said(decisions: list[Decision], job_id: str) -> dict[str, float]:
    """The first numbers that are recorded of a job's duration."""
    of = next(d for d in decisions if d.job_id == job_id and "p50_s" in dict(d.evidence))
    return {name: float(value) for name, value in of.evidence}


@pytest.mark.parametrize("champion", [None, PREBUILT], ids=["no bundle", "another site's"])
@pytest.mark.parametrize("named", [False, True], ids=["by command", "by name"])
def test_after_three_ends_of_a_kind_the_median_is_near(
    store: Store, tmp_path: Path, champion: Path | None, named: bool
) -> None:
    lasts = {owner: lengths(owner) for owner in OWNERS}

    def truth(one: Launch) -> JobOutcome:
        owner, command, round_ = one.job_id.split("-")
        return lasting(lasts[owner][int(command)] * (1.0 + 0.02 * int(round_)))

    desk = Desk(store, tmp_path, truth, policy="pellucid", champion=champion)
    off = dict[str, float]()
    rounds = [(round_, command) for round_ in range(4) for command in range(COMMANDS)]
    for round_, command in rounds:
        decisions = list[Decision]()
        for owner in OWNERS:
            words = ("sleep", f"{lasts[owner][command]:g}")
            name, like = (f"try-{command}", "") if named else ("", digest_of(words, "/home"))
            job_id = f"{owner}-{command}-{round_}"
            desk.submit(job_id, owner=owner, command=words, name=name, like=like)
        for _ in range(500):
            decisions += desk.turn(1e5)
            state = desk.decider.state
            if not state.waiting and all(r.phase.over for r in state.ledger.records.values()):
                break
        if round_ == 3:
            for owner in OWNERS:
                p50_s = said(decisions, f"{owner}-{command}-3")["p50_s"]
                off[f"{owner}-{command}"] = abs(log((1 + p50_s) / (1 + lasts[owner][command])))
    assert len(off) == len(OWNERS) * COMMANDS
    far = {kind: round(exp(by), 2) for kind, by in off.items() if by > log(NEAR)}
    assert not far


def test_a_first_job_is_said_to_rest_on_nothing(store: Store, tmp_path: Path) -> None:
    desk = Desk(store, tmp_path, {}, policy="pellucid")
    desk.submit("first")
    of_first = [d for d in desk.turn(0.0) if d.job_id == "first"]
    text = _text(of_first)
    assert "That is a guess: when it was made, no job had ended here." in text
    desk.until_idle()
    desk.submit("hers")
    assert "guess" not in _text([d for d in desk.turn(0.0) if d.job_id == "hers"])
    desk.submit("his", owner="bob")
    text = _text([d for d in desk.turn(0.0) if d.job_id == "his"])
    assert "No job of its owner had ended when that was predicted: it rests on 1 job of" in text


def _text(decisions: list[Decision]) -> str:
    found = belief(decisions, None)
    assert found is not None
    return belief_words(found)


@pytest.mark.parametrize("way", ["snapshot", "upgraded"])
def test_a_record_of_statements_survives_and_is_shown_back(
    store: Store, tmp_path: Path, way: str
) -> None:
    """Ann is right, Bob is not; what each expects moves a prediction accordingly, and its terms
    add up to it."""
    lasts = {
        f"{who}{i}": lasting(s) for who, s in (("ann", 3600.0), ("bob", 30.0)) for i in range(6)
    }
    desk = Desk(store, tmp_path, lasts, policy="pellucid", snapshot_every=1)
    for i in range(6):
        for who in ("ann", "bob"):
            desk.submit(f"{who}{i}", owner=who, expect="1h")
        desk.until_idle()
    desk.restart(upgraded=way == "upgraded")
    shown = dict[str, Decision]()
    for who in ("ann", "bob", "eve"):
        desk.submit(who, owner=who, expect="8h")
        shown[who] = next(d for d in desk.turn(0.0) if d.job_id == who and d.score)
    texts = {who: _expected(d) for who, d in shown.items()}
    assert "expects 8.0 h: right in 6 of 6" in texts["ann"]
    assert "expects 8.0 h: right in 0 of 6" in texts["bob"]
    assert "no statement has ended yet" in texts["eve"]
    chances = {who: float(dict(d.evidence)["over_1h"]) for who, d in shown.items()}
    assert chances["ann"] > 0.75 > chances["eve"] > chances["bob"]


def _expected(decision: Decision) -> str:
    """What is printed of what its owner expects; the terms are checked on the way."""
    (made,) = breakdowns([decision], {COLD_START: OF_HISTORIES})
    assert made.adds_up
    assert decision.estimate_s == pytest.approx(made.seconds)
    assert EXPECTED.name in [term.name for term in made.terms]
    return made.values[EXPECTED.name]
