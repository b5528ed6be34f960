"""When Python collects garbage."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from features.garbage import Seldom, collected, uncollected


class Knot:
    """An object that refers to itself: only a collection frees it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_inside_but_where_it_is_asked_for() -> None:
    with uncollected():
        assert not gc.isenabled()
        with collected():
            assert gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with collected():
        assert gc.isenabled()
    assert gc.isenabled()


def test_what_refers_to_itself_is_collected_once_in_several_turns() -> None:
    seldom, alive = Seldom(3), []
    for _ in range(8):
        with seldom:
            assert not gc.isenabled()
            alive.append(weakref.ref(Knot()))
        assert gc.isenabled()
        gc.collect()  # what a turn left is not looked through
    assert [one() is None for one in alive] == [True] * 7 + [False]
    gc.unfreeze()
    gc.collect()
    assert alive[-1]() is None


def test_a_turn_that_fails_leaves_collections_on() -> None:
    with pytest.raises(KeyError), Seldom(3):
        raise KeyError
    assert gc.isenabled()
