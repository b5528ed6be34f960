"""Whatever a setting is accepted to be, the policy decides and what it decides can be logged."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from features.job import Profile
from features.schema import State
from reproductions.registry import ALLOCATING
from scheduler.assembly import settings_of
from scheduler.backends.events import canonical
from scheduler.core.core import Core
from scheduler.core.settings import InvalidSettings, accepted_by, describe, flat, read
from scheduler.policies import POLICIES
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import World, a_cluster, worlds

WITH_SETTINGS = [name for name, kind in POLICIES.items() if accepted_by(kind).model_fields]

MODELS = [accepted_by(one) for one in (*POLICIES.values(), *ALLOCATING.values())]
NUMBERS = [0.0, 1e-300, 1e-6, 0.5, 1.0, 2.0, 1e12, 1e13, 1.7e308, -1e12, 0, 1, 10**12, 10**400]
WORDS = ["", "V100", "ann", "vca", "mean", "predicted", "\ud800", "a\nb"]
ANYTHING: list[Any] = [
    *NUMBERS, *WORDS, None, True, False, *([one] for one in NUMBERS),
    *({word: one} for word in WORDS for one in NUMBERS),
]  # fmt: skip


def nested(name: str, value: Any) -> dict[str, Any]:
    for part in reversed(name.split(".")):
        value = {part: value}
    found: dict[str, Any] = value
    return found


def over(values: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    found = dict(values)
    for name, value in more.items():
        there = found.get(name)
        both = isinstance(there, dict) and isinstance(value, dict)
        found[name] = over(there, value) if both else value  # type: ignore[arg-type]
    return found


@cache
def accepted(policy: str) -> dict[str, list[Any]]:
    """By setting, what of `ANYTHING` it may be."""
    names = [one.name for one in describe(accepted_by(POLICIES[policy])) if not one.section]
    found: dict[str, list[Any]] = {name: [] for name in names}
    for name, value in product(names, ANYTHING):
        try:
            settings_of(policy, nested(name, value))
        except InvalidSettings as error:
            said = str(error)
            said.encode()
        else:
            found[name].append(value)
            said = ""
        assert "\n" not in said, "one line"
    assert all(found.values())
    return found


@st.composite
def values(draw: st.DrawFn, policy: str) -> dict[str, Any]:
    """Of some settings."""
    found: dict[str, Any] = {}
    there = accepted(policy)
    for name in draw(st.lists(st.sampled_from(sorted(there)), unique=True)):
        found = over(found, nested(name, draw(st.sampled_from(there[name]))))
    return found


def decided(core: Core, world: World) -> list[str]:
    """Every job comes; then, in turns, all that run end and others begin."""
    lines: list[str] = []

    def decide(now: float) -> None:
        lines.extend(canonical(d.body()) for d in core.decide(now))

    now = 0.0
    for sample in world.samples:
        now = sample.job.submit_time
        core.submitted(sample.job, now)
        decide(now)
    for _ in range(4):
        now += 60.0
        for run in list(core.cluster.runs.values()):
            if run.profiling:
                core.profile_ended(run.job.job_id, Profile(20.0, 10.0, 500.0), now)
            else:
                core.ended(run.job.job_id, State.COMPLETED, now - run.start_time, now)
        decide(now)
    return lines


@pytest.mark.parametrize("policy", WITH_SETTINGS)
@settings(deadline=None, max_examples=60)
@given(data=st.data(), world=worlds())
def test_what_is_accepted_can_be_decided_with(
    policy: str, data: st.DataObject, world: World
) -> None:
    contract = PolicyContract()
    contract.name, contract.chosen = policy, data.draw(values(policy))
    chosen = settings_of(policy, contract.chosen)
    canonical(flat(chosen)).encode()
    try:
        made = contract.policy(world)
    except InvalidSettings:
        reject()  # speeds for other types of GPU than the world has
    core = Core(
        a_cluster(world, profiles=made.capabilities.profiles),
        made,
        contract.estimator(world, made),
        profiling=contract.stage(world, made),
    )
    assert decided(core, world)


@pytest.mark.parametrize("kind", MODELS)
def test_defaults_are_accepted(kind: Any) -> None:
    assert read(kind, kind().plain()) == kind()


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"ageing": 1.7e308}, "ageing is 1.7e\\+308: a number other than 0 must be"),
        ({"ageing": 1e-300}, "ageing is 1e-300: a number other than 0 must be"),
        ({"partner_searches": 10**30}, "partner_searches is 1000.*: a number other than 0"),
        ({"fairness": {"users": {"ann": 1e13}}}, "fairness.users is .*: a number other than 0"),
        ({"gpu_types": {"counted_on": "\ud800"}}, "counted_on is '.ud800': holds a character"),
        ({"gpu_types": {"speeds": {"a\nb": 1.0}}}, "speeds is .*: holds a character"),
    ],
)
def test_what_cannot_be_reckoned_with_or_shown_is_refused(
    chosen: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidSettings, match=expected):
        settings_of("pellucid", chosen)


@pytest.mark.parametrize("kind", MODELS)
def test_every_setting_says_what_it_is(kind: Any) -> None:
    for one in describe(kind):
        assert len(one.description.split()) > 1, one.name
