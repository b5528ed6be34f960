"""The example of `docs/adding-a-policy.md` keeps the contract; `docs/policy.md` is complete."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings

from scheduler.core.decisions import Reason
from scheduler.core.policy import Policy
from scheduler.policies.pellucid.policy import Pellucid
from tests.scheduler import contract
from tests.scheduler.builders import a_job, cluster_of, play
from tests.scheduler.contract import PolicyContract
from tests.scheduler.worlds import World, watch, worlds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "adding-a-policy.md"


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def names() -> dict[str, Any]:
    """The page's policy, and what its other examples take for granted."""
    known: dict[str, Any] = {
        "PolicyContract": PolicyContract,
        "Reason": Reason,
        "a_job": a_job,
        "cluster_of": cluster_of,
        "play": play,
        "__name__": "docs",
    }
    for block in blocks():
        exec(compile(block, str(PAGE), "exec", dont_inherit=True), known)
    return known


def test_the_example_test_passes() -> None:
    names()["test_a_small_job_passes_a_large_one"]()


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(world=worlds())
def test_the_example_keeps_the_contract(world: World) -> None:
    known = names()
    page: PolicyContract = known["TestAged"]()
    assert (page.name, page.skips) == ("aged", True)

    def policy(world: World) -> Policy:
        made: Policy = known["Aged"]()
        return made

    page.policy = policy  # type: ignore[method-assign]  # not registered: built here
    watched = watch(world, page.core(world))
    contract.check_every_job_ends_once(watched)
    contract.check_work_is_conserved(watched)
    contract.check_gangs_and_sharing(watched)
    contract.check_stories(watched)
    contract.check_sentences(watched.decisions)


def test_the_page_of_the_policy_lists_every_parameter_with_its_default() -> None:
    page = (PAGE.parent / "policy.md").read_text()
    listed = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", page, re.MULTILINE))
    taken = inspect.signature(Pellucid).parameters
    assert listed == {name: repr(given.default) for name, given in taken.items()}
