"""Coverage over jobs and over batches of jobs that are late together."""

from __future__ import annotations

import pytest

from benchmarks.forecast import coverage
from scheduler.testing.builders import a_job


def test_a_batch_that_is_late_as_one_widens_the_interval() -> None:
    jobs = {str(i): a_job(str(i), user=f"u{i % 50}").job for i in range(100)}
    alone = coverage({j: int(j) % 50 >= 5 for j in jobs}, jobs)
    assert (alone["p90"], alone["p90_per_batch"]) == pytest.approx((0.9, 0.9))
    assert (alone["batches"], alone["batches_effective"]) == (50, 50.0)
    low, high = alone["interval"]
    assert 0.8 < low < 0.9 < high < 0.98

    late = {f"x{i}": a_job(f"x{i}", user="x").job for i in range(100)}
    both = coverage({j: j in jobs for j in jobs | late}, jobs | late)
    assert both["p90"] == 0.5
    assert both["p90_per_batch"] == pytest.approx(50 / 51)
    assert both["largest_batch"] == 100
    assert both["batches_effective"] == pytest.approx(200**2 / (50 * 4 + 100**2))
    assert both["interval"][1] - both["interval"][0] > 0.4


def test_without_jobs_there_is_no_coverage() -> None:
    assert coverage({}, {}) == {"jobs": 0, "p90": None}
