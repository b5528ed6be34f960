"""`--policy NAME --set NAME=VALUE`: the same wherever a policy is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from features.codec import Json
from pipeline.errors import UserError
from scheduler.core.settings import (
    Configurable,
    InvalidSettings,
    UnknownPolicy,
    accepted_by,
    read,
    with_assignments,
)
from scheduler.policies import policy_named

Named = Callable[[str], type[Configurable]]


def given(policy: str, options: Sequence[str], named: Named = policy_named) -> Json:
    """Return the settings of a policy that options `NAME=VALUE` state. Raises UserError for an
    option that is not accepted.

    Args:
        named: finds the class of a policy.
    """
    try:
        kind = named(policy)
        values = with_assignments({}, options)
        read(accepted_by(kind), values)
    except UnknownPolicy as error:
        raise UserError(f"--policy: {error}") from None
    except InvalidSettings as error:
        raise UserError(f"--set: policy {policy}: {error}") from None
    return values


def given_to_all(
    policies: Sequence[str], options: Sequence[str], named: Named = policy_named
) -> dict[str, Json]:
    """Return the given settings by policy. Each option is for all policies that have such a
    setting.

    UserError: there is no such policy, or none with such a setting, or a value cannot be.
    """
    try:
        fields = {policy: accepted_by(named(policy)).model_fields for policy in policies}
    except UnknownPolicy as error:
        raise UserError(f"--policies: {error}") from None
    for option in options:
        if not any(_field(option) in there for there in fields.values()):
            raise UserError(f"--set {option}: none of {', '.join(policies)} has such a setting")
    return {
        policy: given(policy, [option for option in options if _field(option) in there], named)
        for policy, there in fields.items()
    }


def _field(option: str) -> str:
    """Return the field of the settings that an option such as `name.part=value` sets, wholly or
    in part.
    """
    return option.partition("=")[0].partition(".")[0]


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    """Return plain values with others on top, section by section."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        found[name] = over(under, value) if both else value  # type: ignore[arg-type]
    return found
