"""The options `--policy NAME --set NAME=VALUE`, which are the same in all commands that take a
policy."""

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
    """Return the settings of a policy in options `NAME=VALUE`. Raises UserError if there is no such
    policy, or if it does not accept an option.

    Args:
        named: returns the class of a policy, given its name.
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
    """Return the settings in options `NAME=VALUE` for several policies: {policy: settings}. Each
    option applies to all policies that have such a setting.

    Raises UserError if there is no such policy, if none has such a setting, or if a value is not
    accepted.
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
    """Return the name of the setting that an option such as `name.part=value` sets, as a whole or
    in part."""
    return option.partition("=")[0].partition(".")[0]


def over(below: Mapping[str, Any], above: Mapping[str, Any]) -> Json:
    """Return the values of `below`, overridden by those of `above`, section by section."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        both = isinstance(under, Mapping) and isinstance(value, Mapping)
        found[name] = over(under, value) if both else value  # type: ignore[arg-type]
    return found
