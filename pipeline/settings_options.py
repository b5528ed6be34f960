"""Options of `pellucid serve` made from the declared settings of the service."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args

import typer

Command = Callable[..., None]


def with_options(command: Command) -> Command:
    """Add to a command an option for each setting of the service that can be an option. Return the
    command. It gets their values as keyword arguments, None if an option is not given."""
    declared = inspect.signature(command, eval_str=True)
    own = [p for p in declared.parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = declared.replace(parameters=[*own, *_options()])  # type: ignore[attr-defined]
    return command


def _options() -> Iterator[inspect.Parameter]:
    from scheduler.service.settings import Option, Settings

    for name, field in Settings.model_fields.items():
        option = next((one for one in field.metadata if isinstance(one, Option)), None)
        if option is None:
            continue
        names = filter(None, [option.flags])
        asked = typer.Option(*names, help=field.description)
        yield inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=None,
            annotation=Annotated[_kind(field.annotation) | None, asked],
        )


def _kind(annotation: Any) -> Any:
    """Return the type as which typer reads an option for a setting with this annotation: its own
    for numbers, switches and paths, otherwise str, which the settings check."""
    kinds = [one for one in get_args(annotation) if one is not NoneType] or [annotation]
    return kinds[0] if kinds[0] in (bool, int, float, Path) else str
