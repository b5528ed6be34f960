"""Reproductions of other systems, where they are installed: loaded by name, imported by nobody."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol, cast

from pipeline import runs
from pipeline.errors import UserError
from pipeline.worlds.policy_options import Configurable

ENTRY = "reproductions.entry"


class Workload(runs.World, Protocol):
    """A world of allocations, with settings by policy."""

    settings: Mapping[str, Mapping[str, Any]]

    def runnable(self) -> list[str]:
        """The policies for which it has all statistics."""
        ...

    def check(self, name: str) -> None:
        """ValueError when a policy needs what it has not."""
        ...


class Systems(Protocol):
    """What `reproductions.entry` has."""

    ALLOCATING: Mapping[str, type[Configurable]]

    def peer_named(self, name: str) -> type[Configurable]: ...

    def open_scenario(
        self, named: str, seed: int, *, settings: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Workload: ...


def systems() -> Systems:
    """The reproductions. UserError where they, or the libraries they need, are not installed."""
    try:
        return cast(Systems, import_module(ENTRY))
    except ModuleNotFoundError as error:
        needs = f"--workload needs {error.name}, which is not installed"
        raise UserError(f"{needs}: pip install 'pellucid[reproductions]'") from None


def allocating() -> Mapping[str, type[Configurable]]:
    """Their policies by name; none where they are not installed."""
    try:
        return systems().ALLOCATING
    except UserError:
        return {}
