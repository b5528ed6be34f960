"""Student's t against the printed tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.student import bound, within


@given(st.floats(0, 50), st.integers(1, 200))
def test_it_is_that_of_scipy(t: float, degrees: int) -> None:
    assert within(t, degrees) == pytest.approx(1 - 2 * stats.t.sf(t, degrees), abs=1e-9)


@given(st.floats(0.01, 0.999), st.integers(1, 200))
def test_the_bound_is_its_inverse(chance: float, degrees: int) -> None:
    assert within(bound(chance, degrees), degrees) == pytest.approx(chance, abs=1e-9)


def test_the_table_that_everybody_knows() -> None:
    assert [round(bound(0.95, n), 3) for n in (1, 3, 4, 15)] == [12.706, 3.182, 2.776, 2.131]
