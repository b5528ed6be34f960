"""What people read holds no reason code and no raw feature name."""

from __future__ import annotations

import pytest

from benchmarks.explanations.reading import CODES, RAW_NAMES, found_in
from features.state import FEATURES
from models.bundle import PACKING_FEATURES, PAIR_FEATURES
from scheduler.core.decisions import Action, Decision, Reason
from scheduler.explain.life import JobFacts
from scheduler.explain.story import build_story
from scheduler.explain.words import clock_time, comparison, phrase, roughly, sentence_of, step_of


def plain(text: str) -> bool:
    return not found_in(text, [*CODES, *RAW_NAMES])


@pytest.mark.parametrize("reason", Reason)
def test_no_sentence_holds_a_code(reason: Reason) -> None:
    for action in Action:
        d = Decision(0, 0.0, action, reason, "a", "vc", partner="p", need=2, free=1, limit=8,
                     position=3, blocker="b")  # fmt: skip
        assert plain(sentence_of(d))
        assert plain(step_of(d))
    assert plain(phrase(reason.value))


@pytest.mark.parametrize("name", dict.fromkeys([*PACKING_FEATURES, *PAIR_FEATURES]))
def test_no_step_through_a_packing_tree_holds_a_raw_name(name: str) -> None:
    for step in (f"{name} 14 <= 43.58", f"partner: {name} missing, taken as > 1.5"):
        assert not plain(step) or name == "amp"
        assert plain(comparison(step))
        own = [Decision(0, 0.0, Action.PACK, Reason.PARTNER_FOUND, "a", "vc", partner="p",
                        tree_path=(step, "sharing score 0 (tiny)"))]  # fmt: skip
        (sharing,) = build_story(JobFacts("a", 1, 0.0, 0.0), own).sharing
        assert all(map(plain, sharing.tree_path))
        assert sharing.tree_path[-1] == "sharing score 0 (tiny)"


def test_a_step_reads_as_a_comparison() -> None:
    told = comparison("gpu_util_pct 14 <= 43.58")
    assert told == "GPU utilisation 14 %, at most 43.6 %"
    assert comparison("partner: amp 1 > 0.5") == "partner: mixed precision"


def test_every_feature_is_said_in_words() -> None:
    assert all(spec.text and plain(spec.text) for spec in FEATURES)


def test_a_rough_duration_has_one_unit() -> None:
    shown = {s: roughly(s) for s in (7.0, 600.0, 6840.0, 259_200.0)}
    assert list(shown.values()) == ["7 s", "10 min", "1.9 h", "3 d"]


def test_a_time_of_another_year_has_its_year() -> None:
    now = 1_790_000_000.0
    assert clock_time(now + 7200, now).count(":") == 1
    assert clock_time(now + 800 * 86_400, now).split()[2] == "2028"
    assert " Dec 9999 " in clock_time(1e18, now)
