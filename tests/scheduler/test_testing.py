"""A world that a contract fails in can be read, and pasted into a test."""

from __future__ import annotations

import re

import pytest
from hypothesis import core, given, settings

from scheduler import testing
from scheduler.core.policy import Policy
from scheduler.core.turn import Turn
from scheduler.policies.fifo import Fifo
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


def test_a_contract_prints_the_world_it_fails_in_whatever_else_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Plug-ins of pytest may keep Hypothesis from printing arguments."""

    class Idle(Fifo):
        def serve(self, turn: Turn) -> None:
            """Nobody is ever started."""

    class TestIdle(testing.PolicyContract):
        name = "fifo"

        def policy(self, world: World) -> Policy:
            return Idle()

    class Silent(core.RepresentationPrinter):  # type: ignore[name-defined,misc]
        def pretty(self, *told: object, **more: object) -> None:
            """Nothing."""

    monkeypatch.setattr(core, "RepresentationPrinter", Silent)
    with pytest.raises(AssertionError) as caught:
        TestIdle().test_keeps_the_contract()
    shown = "\n".join(caught.value.__notes__)
    pasted = re.search(r"in this world:\n(World\(.*?^\))", shown, re.DOTALL | re.MULTILINE)
    assert pasted, shown
    assert isinstance(eval(pasted[1], vars(testing)), World)
