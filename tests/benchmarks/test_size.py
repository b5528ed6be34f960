"""What a service does at several sizes: a real log, decided, folded, asked."""

from __future__ import annotations

import pytest

from benchmarks import size


def test_every_figure_is_of_work_that_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(size, "PASSES", 3)
    monkeypatch.setattr(size, "ASKED", 1)
    [(_, _, found)] = size.measure_all([20], ended=10, asked=6)
    assert {f"{name}_ms" for name in size.PAGES} <= set(found)
    assert {f"{name}_s" for name in size.QUESTIONS} <= set(found)
    assert found["whatif_s"] > 0
    assert 0 < found["whatif_95_s"] < 60
    assert found["pass_ms"] > 0
    assert found["fold_s"] > 0


def test_what_goes_through_the_whole_log_is_by_1000_jobs_in_it() -> None:
    found = {"pass_ms": 3.0, "fold_s": 20.0, "start_s": 2.0, "save_s": 4.0}
    assert size._largest(1_000, 3_000, found) == {
        "pass_ms": 3.0, "fold_s_by_1000": 5.0, "start_s_by_1000": 0.5, "save_s_by_1000": 1.0
    }  # fmt: skip


def test_growth_sets_the_most_that_wait_beside_the_fewest_with_as_many_ended() -> None:
    rows = [(10, 0, {"pass_ms": 2.0}), (100, 0, {"pass_ms": 5.0}), (100, 50, {"pass_ms": 9.0})]
    assert size.growth(rows) == {"pass_ms_growth": 2.5}


def test_what_95_of_100_do_not_exceed() -> None:
    assert size._of_100(95, [*range(1, 101)]) == 95
    assert size._of_100(95, [3.0, 1.0, float("inf")]) == float("inf")
    assert size._of_100(95, [float("inf"), *range(59)]) == 56
