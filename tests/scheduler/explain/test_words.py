"""What people read holds no reason code and no raw feature name."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from benchmarks.explanations.reading import CODES, RAW_NAMES, found_in
from features.codec import decode, encode
from features.schema import State
from features.state import FEATURES
from models.bundle import PACKING_FEATURES, PAIR_FEATURES
from models.bundle.tree import Node, Tree
from scheduler.backends.events import Kind
from scheduler.core.decisions import AHEAD, ANOTHER, Action, Decision, Reason
from scheduler.core.tree_steps import (
    MISSING,
    WITHHELD,
    TreeStep,
    corrected_step,
    speed_step,
)
from scheduler.explain.explanation import Packing, WaitedFor
from scheduler.explain.life import JobFacts
from scheduler.explain.reasons import sentence
from scheduler.explain.render import decision_words, path_words
from scheduler.explain.story import build_story
from scheduler.explain.why import path_step, shares_of, values_of
from scheduler.explain.words import (
    clock_time,
    comparison,
    ended,
    event_words,
    has_gpus,
    held_words,
    overtaking,
    phrase,
    roughly,
    sentence_of,
    step_of,
)


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
        assert plain(comparison(TreeStep.of(step)))
        own = [Decision(0, 0.0, Action.PACK, Reason.PARTNER_FOUND, "a", "vc", partner="p",
                        tree_path=(step, "sharing score 0 (tiny)"))]  # fmt: skip
        (sharing,) = build_story(JobFacts("a", 1, 0.0, 0.0), own).sharing
        assert all(map(plain, sharing.tree_path))
        assert sharing.tree_path[-1] == "sharing score 0 (tiny)"


@pytest.mark.parametrize("newcomer", [True, False])
@pytest.mark.parametrize(
    "step",
    [
        *(f"{name} 14 <= 43.58" for name in dict.fromkeys([*PACKING_FEATURES, *PAIR_FEATURES])),
        "gpu_util_pct 1.5e-05 <= 43.58",
        f"gpu_mem_mib {MISSING} > 1e+04",
        f"gpu_util_sum_pct {WITHHELD} > 95.125",
        "sharing score 0 (tiny)",
        "sharing score 2 (jumbo)",
        speed_step(0.8125),
        corrected_step(0.75),
        "as like jobs",
    ],
)
def test_a_step_is_worded_from_its_values_as_from_what_was_recorded(
    step: str, newcomer: bool
) -> None:
    written = (step, f"partner: {step}")
    d = Decision(0, 0.0, Action.PACK, Reason.PARTNER_FOUND, "a", "vc", partner="p",
                 tree_path=written)  # fmt: skip
    own, joined = ([d], []) if newcomer else ([], [replace(d, job_id="p", partner="a")])
    (sharing,) = build_story(JobFacts("a", 1, 0.0, 0.0), own, joined).sharing
    path = [path_step(TreeStep.of(one)) for one in sharing.steps]
    told = decode(Packing, json.loads(json.dumps(encode(
        Packing(partner="p", path=path, speed=None, partner_speed=None, newcomer=newcomer)
    ))))  # fmt: skip
    assert path_words(told) == list(sharing.tree_path)


@pytest.mark.parametrize("reason", [Reason.WOULD_DELAY_FIRST, Reason.RESERVED_FOR_STARVING_JOB])
def test_for_whom_gpus_are_kept_is_named_behind_the_sentence(reason: Reason) -> None:
    waits = Decision(0, 0.0, Action.WAIT, reason, "a", "vc", held_by=("first",))
    assert held_words(waits) == " (job first)"


@pytest.mark.parametrize("reason", Reason)
def test_a_decision_is_worded_from_its_values_as_from_itself(reason: Reason) -> None:
    whole = Decision(0, 0.0, Action.WAIT, reason, "a_3", "vc", partner="p", need=2, free=1,
                     limit=8, position=3, blocker="a_1", held_by=("x", ANOTHER, "z"),
                     evidence=(("closed_gpus", 2.0), ("gone_in_s", 600.0)))  # fmt: skip
    bare = Decision(0, 0.0, Action.WAIT, reason, "a_3", "vc")
    for d in (whole, bare, replace(whole, need=0), replace(whole, blocker=AHEAD, partner=ANOTHER),
              replace(whole, action=Action.START), replace(whole, held_by=("a_1",))):  # fmt: skip
        spell = WaitedFor(reason=d.reason.value, seconds=1.0, share=1.0, spells=1, **values_of(d))
        told = decode(WaitedFor, json.loads(json.dumps(encode(spell))))
        assert decision_words(told, "a_3") == sentence_of(d)


def test_a_step_reads_as_a_comparison() -> None:
    told = comparison(TreeStep.of("gpu_util_pct 14 <= 43.58"))
    assert told == "GPU utilisation 14 %, not above the limit of 43.6 %"
    amp = TreeStep.of("partner: amp 1 > 0.5")
    assert comparison(amp) == "partner: mixed precision"
    assert comparison(amp, "newcomer: ", "this job: ") == "this job: mixed precision"


@pytest.mark.parametrize(
    "written",
    ["gpu_util_pct 1.5e-05 <= 43.58", "partner: gpu_mem_mib missing, taken as > 1e+04",
     "sharing score 2 (jumbo)", "partner: sharing score 0 (tiny)", "as like jobs",
     "partner: a > b"],
)  # fmt: skip
def test_a_step_of_a_record_is_read_and_written_alike(written: str) -> None:
    step = TreeStep.of(written)
    assert str(step) == written
    assert step.of_partner == written.startswith("partner: ")
    assert (step.compared is None) == ("_" not in written)
    assert (step.score is None) == ("score" not in written)


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


def test_a_missing_value_in_a_tree_is_read_as_such() -> None:
    leaf = Node(-1, 0.0, 0, 0, False, (1.0,), 1)
    tree = Tree(("gpu_mem_mib",), [Node(0, 5.0, 1, 2, True, (0.0,), 2), leaf, leaf])
    (step,) = map(TreeStep.of, tree.path([math.nan]))
    assert step.compared == ("gpu_mem_mib", None, True, 5.0)
    assert comparison(step) == "GPU memory not measured, taken as not above the limit of 5 MiB"


@pytest.mark.parametrize(
    ("action", "then", "now", "wanted"),
    [
        (Action.START, None, None, "4 GPUs were free for it alone"),
        (Action.START, None, "7", "4 GPUs were free for it alone when it started; job 7 has"
         " shared them for 30 s"),
        (Action.START, None, ANOTHER, "4 GPUs were free for it alone when it started; another job"
         " has shared them for 30 s"),
        (Action.PACK, "7", "7", "shares the GPUs of job 7"),
        (Action.PACK, "7", "8", "shares its GPUs with job 8"),
        (Action.PACK, "7", None, "started on GPUs that another job was using, and has had them"
         " alone since that job left"),
    ],
)  # fmt: skip
def test_a_running_job_is_said_to_have_its_gpus_as_it_has_them_now(
    action: Action, then: str | None, now: str | None, wanted: str
) -> None:
    reason = Reason.EXCLUSIVE_GPUS if action is Action.START else Reason.PARTNER_FOUND
    start = Decision(0, 0.0, action, reason, "1", "vc", need=4, partner=then)
    shares = shares_of([start], now, 30.0)
    assert shares is not None
    assert has_gpus(sentence(start), shares) == wanted


@pytest.mark.parametrize("state", [*State, "", "some_new_state"])
def test_how_a_job_ended_is_a_predicate_that_a_time_can_follow(state: str) -> None:
    words = ended(state)
    first = words.split()[0]
    assert first in ("completed", "failed", "was", "reached", "ran", "ended"), words
    assert plain(words)
    assert "_" not in words
    if state in list(State):
        assert words != f"ended ({phrase(state)})", "every state has words of its own"


@pytest.mark.parametrize("kind", [Kind.SUBMITTED, Kind.ENDED, Kind.FORECAST, Kind.SCORED])
def test_an_event_of_a_job_is_told_in_words(kind: Kind) -> None:
    words = event_words(kind.value)
    assert plain(words)
    assert kind is not Kind.SCORED or words == "its duration predicted"


@pytest.mark.parametrize(
    ("fewer", "shorter", "wanted"),
    [
        (False, None, "stood ahead of it in line"),
        (True, True, "stood ahead of it in line (predicted to run shorter)"),
        (True, False, "stood ahead of it in line (predicted to run longer, but on fewer GPUs)"),
        (False, False, "stood ahead of it in line (predicted to run longer)"),
    ],
)
def test_how_long_one_that_stood_ahead_was_to_run_is_said_where_it_is_known(
    fewer: bool, shorter: bool | None, wanted: str
) -> None:
    how = Action.START, Reason.EXCLUSIVE_GPUS
    assert overtaking(*how, ahead=True, fewer=fewer, shorter=shorter) == wanted


def test_no_part_of_a_list_of_reasons_has_a_comma_or_an_and_of_its_own() -> None:
    shown = {reason: phrase(reason.value) for reason in Reason}
    assert [text for text in shown.values() if "," in text or " and " in text] == []
    waits = [phrase(reason.value) for reason in list(Reason)[: list(Reason).index(Reason.PRIORITY)]]
    assert len({*waits}) == len(waits), "two reasons in the same words"
