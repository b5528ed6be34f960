"""A world that a contract fails in can be read, and pasted into a test."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from scheduler import testing
from scheduler.testing import World, worlds


def test_a_failing_property_prints_its_example() -> None:
    @settings(database=None, derandomize=True)
    @given(world=worlds())
    def broken(world: World) -> None:
        assert not world.samples

    with pytest.raises(AssertionError) as caught:
        broken()
    shown = "\n".join(caught.value.__notes__)
    pasted = re.search(r"world=(World\(.*)^\),", shown, re.DOTALL | re.MULTILINE)
    assert pasted, shown
    assert isinstance(eval(pasted[1] + ")", vars(testing)), World)


@given(world=worlds())
def test_a_world_is_written_as_the_call_that_makes_it(world: World) -> None:
    assert eval(repr(world), vars(testing)) == world
