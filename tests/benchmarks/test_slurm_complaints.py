"""How answers to public complaints are counted, without daemons."""

from __future__ import annotations

from benchmarks.slurm.complaints import COMPLAINTS, Asked, report


def test_a_false_answer_is_not_right_and_a_short_one_is_not_false() -> None:
    one, *_ = COMPLAINTS
    asked = [Asked(one), Asked(one, short=["a figure"]), Asked(one, false=["room"], short=["x"])]
    lines = list(report(asked, 60.0))
    assert lines[-1].startswith("3 complaints in 60 s: 1 right, 1 short, 1 false;")
    assert [line.split()[0] for line in lines if one.source in line] == ["right", "SHORT", "FALSE"]


def test_each_complaint_is_another_and_has_a_right_answer() -> None:
    assert len({one.source for one in COMPLAINTS}) == len(COMPLAINTS) >= 20
    assert all(one.says or one.refused for one in COMPLAINTS)
