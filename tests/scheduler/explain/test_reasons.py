"""The reference of reasons has every one of them, with the sentence that people read."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from scheduler.core.decisions import ANOTHER, Action, Decision, Reason
from scheduler.explain.reasons import AT_ONCE, fields_in_sentence, next_step, sentence, summary

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reasons.md").read_text()
ENTRIES = dict(re.findall(r"^### (\w+)\n\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
DONE = set(re.findall(r"^### (\w+)$", PAGE.split("## Reasons of what was done")[1], re.MULTILINE))
# what the page calls the numbers and jobs of a sentence
SHOWN = (
    ("987,651 GPUs", "N GPUs"), ("987652", "F"), ("987653", "L"), ("987654", "P"), ("987655", "C"),
    ("job BLOCKER", "another job"), ("job PARTNER", "another job"),
)  # fmt: skip


@pytest.mark.parametrize("reason", list(Reason))
def test_every_reason_has_an_entry(reason: Reason) -> None:
    sentence = summary(
        Decision(0, 0.0, Action.WAIT, reason, "", "", partner="PARTNER", blocker="BLOCKER",
                 need=987_651, free=987_652, limit=987_653, position=987_654,
                     evidence=(("closed_gpus", 987_655),))
    )  # fmt: skip
    for given, shown in SHOWN:
        sentence = sentence.replace(given, shown)
    wanted = f"{sentence[0].upper()}{sentence[1:]}."
    assert reason.value in ENTRIES, f"docs/reasons.md lacks: ### {reason.value}, {wanted}"
    first, *rows = ENTRIES[reason.value].strip().splitlines()
    assert first == wanted
    keys = [row.split(":")[0] for row in rows if row]
    assert set(keys) <= {"- Implies", "- Next step", "- Slurm", "- Kueue"}
    assert "- Implies" in keys or reason.value in DONE
    shown = "".join(row.partition(": ")[2] for row in rows if row.startswith("- Next step"))
    step = next_step(reason)  # the page may give its beginning
    assert bool(shown) == bool(step), f"next step: {step!r} in the code, {shown!r} on the page"
    assert step.lower().startswith(shown.removesuffix(".").lower())


def test_the_page_has_no_other_and_their_order() -> None:
    assert list(ENTRIES) == [reason.value for reason in Reason]


def test_who_may_not_see_the_other_task_is_not_told_of_its_array() -> None:
    d = Decision(0, 0.0, Action.WAIT, Reason.ARRAY_LIMIT, "5_2", "", blocker="5_1", need=1)
    assert sentence(d).startswith("its array lets only so many of its tasks run at once")
    two = sentence(replace(d, evidence=((AT_ONCE, 2.0),)))
    assert two == "its array lets 2 of its tasks run at once: starts once job 5_1 has ended"
    for visible, other in ((("5_1",), "job 5_1"), ((), ANOTHER)):
        assert other in sentence(d, visible)


@pytest.mark.parametrize("visible", [None, ("BLOCKER", "PARTNER"), ()])
@pytest.mark.parametrize("reason", list(Reason))
def test_the_numbers_that_a_sentence_has_are_those_it_is_said_to_have(
    reason: Reason, visible: tuple[str, ...] | None
) -> None:
    d = Decision(0, 0.0, Action.WAIT, reason, "", "", partner="PARTNER", blocker="BLOCKER",
                 need=21, free=32, limit=43, position=54)  # fmt: skip
    numbers = {"gpus": 21, "free": 32, "limit": 43, "position": 54}
    has = {name for name, number in numbers.items() if f"{number}" in sentence(d, visible)}
    assert fields_in_sentence(d, visible) & numbers.keys() == has
