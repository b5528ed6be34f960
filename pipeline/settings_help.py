"""`--help` of a command that takes policies ends with the settings of those that were named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typer.core import TyperCommand


class WithSettings(TyperCommand):
    """A command with `--policy` or `--policies`; where none is named, `pellucid`'s are shown."""

    _named: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, word in enumerate(args):
            option, equals, value = word.partition("=")
            if option in ("--policy", "--policies"):
                text = value if equals else "".join(args[at + 1 : at + 2])
                self._named = tuple(name for name in text.split(",") if name)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        import typer

        shown = [f"Policies: {', '.join(policies(ctx.info_name))}, or module:Class."]
        if ctx.info_name == "compare":
            names = ", ".join([*allocating(), "module:Class"])
            shown.append(f"On a --workload: {names}.")
        typer.echo("\n\n".join([*shown, *map(settings_of, self._named or ("pellucid",))]))


def policies(command: str) -> list[str]:
    """Those that a command can run."""
    if command == "serve":
        from scheduler.service.log.header import runnable

        return runnable(follows=True)
    from scheduler.policies import POLICIES

    return list(POLICIES)


def allocating() -> Mapping[str, Any]:
    """Policies of allocations; none where scipy is not installed, which they are written with."""
    try:
        from scheduler.peers.registry import ALLOCATING
    except ModuleNotFoundError:
        return {}
    return ALLOCATING


def settings_of(policy: str) -> str:
    """The settings of a policy, one a line, with default, unit and limits."""
    from scheduler.core.settings import UnknownPolicy, describe
    from scheduler.policies import POLICIES, policy_named

    try:
        peer = None if policy in POLICIES else allocating().get(policy)
        settings = (peer or policy_named(policy)).Settings
    except UnknownPolicy as error:
        return str(error)
    lines = []
    for one in describe(settings):
        said = f"{one.name}={one.written}" + (f" {one.unit}" if one.unit else "")
        limits = f" ({one.accepts})" if one.accepts else ""
        lines.append(f"  {said:40s} {one.description}{limits}")
    return "\n".join([f"Settings of {policy} (--set NAME=VALUE):", *(lines or ["  none"])])
