"""Whole runs decide what they decided before; and what would be noticed if they did not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.digests import BLOCK, EXPECTED, RUNS, Digests, Found, differences, play
from scheduler.core.decisions import Action, Decision, Reason, Score


@pytest.fixture(scope="module")
def expected() -> dict[str, Found]:
    return json.loads(EXPECTED.read_text())


@pytest.mark.parametrize("name", ["demo-pellucid", "demo-lucid", "demo-tiresias", "demo-easy"])
def test_the_demo_is_decided_as_before(
    expected: dict[str, Found], tmp_path: Path, name: str
) -> None:
    assert play(name, tmp_path) == expected[name]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["published-lucid"])
def test_the_published_track_is_decided_as_before(
    expected: dict[str, Found], shared_data: Path, name: str
) -> None:
    assert play(name, shared_data) == expected[name]


def test_every_run_has_its_digests(expected: dict[str, Found]) -> None:
    assert list(expected) == list(RUNS)


START = Decision(
    0, 1.5e9, Action.START, Reason.EXCLUSIVE_GPUS, "a", "vc", (1,), (3,), priority=7.0,
    score=Score(1.0, 0.5, (0.25, 0.25), "model-1"), evidence=(("head_room", 0.5),),
)  # fmt: skip
WAIT = Decision(
    1, 1.5e9, Action.WAIT, Reason.GPUS_BUSY, "b", "vc", need=2, free=1, held_by=("a",),
    evidence=(("gone_in_s", 90.0),),
)  # fmt: skip


def found(decisions: Iterable[Decision]) -> Found:
    sink = Digests()
    for decision in decisions:
        sink([decision])
    sink.flush()
    kinds = {"record": sink.record, "effects": sink.effects, "holders": sink.holders}
    return {kind: digest.found() for kind, digest in kinds.items()}


@pytest.mark.parametrize(
    ("changed", "differing"),
    [
        ([replace(START, reason=Reason.BORROWED), WAIT], ["record"]),
        ([replace(START, priority=7.001), WAIT], ["record"]),
        ([replace(START, evidence=(("head_room", 0.4),)), WAIT], ["record"]),
        ([START, replace(WAIT, reason=Reason.GPUS_FRAGMENTED)], ["record"]),
        ([START, replace(WAIT, held_by=("c",))], ["holders"]),
        ([START, replace(WAIT, evidence=(("gone_in_s", 80.0),))], ["holders"]),
        ([START], ["record", "holders"]),
        ([WAIT, START], ["record"]),
        ([replace(START, gpus=(5,)), WAIT], ["record", "effects"]),
        ([replace(START, partner="c"), WAIT], ["record", "effects"]),
        ([replace(START, time=1.5e9 + 1), WAIT], ["record", "effects"]),
        ([replace(START, priority=7.0 + 1e-14), WAIT], []),
        ([replace(START, score=Score(1.0, 0.5, (0.25, 0.25), "stored otherwise")), WAIT], []),
    ],
)
def test_which_digest_differs(changed: list[Decision], differing: list[str]) -> None:
    lines = differences(found([START, WAIT]), found(changed))
    assert [line.split()[0] for line in lines] == differing


def test_the_first_block_that_differs_is_named() -> None:
    many = [replace(START, seq=i, time=1.5e9 + i) for i in range(3 * BLOCK)]
    other = list(many)
    other[BLOCK + 10] = replace(many[BLOCK + 10], nodes=(2,))
    record, effects = differences(found(many), found(other))
    assert f"lines {BLOCK:,} to {2 * BLOCK - 1:,}" in record
    assert f"lines {BLOCK:,} to {2 * BLOCK - 1:,}" in effects
    assert differences(found(many), found(many)) == []
    (record, effects) = differences(found(many), found(many[:-1]))
    assert f"lines {2 * BLOCK:,} to" in record
