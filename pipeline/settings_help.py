"""Adds the settings of policies to a command's `--help`, if the command line names the policies."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from typer.core import TyperCommand


class WithSettings(TyperCommand):
    """A command with the option `--policy` or `--policies`, and with the policies' settings in its
    help."""

    _named: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for at, word in enumerate(args):
            option, equals, value = word.partition("=")
            if option in ("--policy", "--policies"):
                text = value if equals else "".join(args[at + 1 : at + 2])
                self._named = tuple(name for name in text.split(",") if name)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.info_name == "serve":
            self._show_defaults()
        super().format_help(ctx, formatter)
        import typer

        from pipeline.systems import allocating

        shown = [f"Policies: {', '.join(policies(ctx.info_name))}, or module:Class."]
        if ctx.info_name == "compare":
            names = ", ".join([*allocating(), "module:Class"])
            shown.append(f"On a --workload: {names}.")
        shown = [_wrapped(line, 2) for line in shown]
        if not self._named:
            option = "--policies" if ctx.info_name == "compare" else "--policy"
            shown.append(f"{option} NAME --help ends with the settings of that policy.")
        typer.echo("\n\n".join([*shown, *map(settings_of, self._named)]))

    def _show_defaults(self) -> None:
        """Show, as the default of each option, the default of the service's setting of that
        name."""
        from scheduler.service.settings import Settings

        for param in self.params:
            field = Settings.model_fields.get(param.name or "")
            if field is not None and field.default not in (None, ""):
                param.default = field.default


def policies(command: str) -> list[str]:
    """Return the names of the policies that a command can run."""
    if command in ("serve", "serve-demo"):
        from scheduler.service.log.header import runnable

        return runnable(follows=command == "serve")  # the demo runs no Slurm
    from scheduler.policies import POLICIES

    return list(POLICIES)


def settings_of(policy: str) -> str:
    """Return a text with the settings of a policy, one per line, with default, unit and limits.
    If there is no such policy, return a text that says so."""
    from pipeline.systems import allocating
    from scheduler.core.settings import UnknownPolicy, accepted_by, describe
    from scheduler.policies import POLICIES, policy_named

    try:
        peer = None if policy in POLICIES else allocating().get(policy)
        settings = accepted_by(peer or policy_named(policy))
    except UnknownPolicy as error:
        return str(error)
    lines = []
    for one in describe(settings):
        setting = f"{one.name}={one.written}" + (f" {one.unit}" if one.unit else "")
        limits = f" ({one.accepts})" if one.accepts else ""
        lines.append(_wrapped(f"  {setting:40s} {one.description}{limits}", 43))
    return "\n".join([f"Settings of {policy} (--set NAME=VALUE):", *(lines or ["  none"])])


def _wrapped(line: str, indent: int) -> str:
    """Return a line wrapped to the width of the terminal; lines after the first are indented by
    `indent` columns."""
    wide = max(60, shutil.get_terminal_size().columns)
    return textwrap.fill(line, wide, subsequent_indent=" " * indent, break_on_hyphens=False)
