"""Reproductions of other systems, where they are installed. They are loaded by name and imported by
nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Protocol, cast

from pipeline import runs
from pipeline.errors import UserError
from pipeline.worlds.scenario import Scenario
from pipeline.worlds.venus import Venus
from scheduler.core.estimates import Estimator
from scheduler.core.settings import Configurable

ENTRY = "reproductions.entry"


class Workload(runs.World, Protocol):
    """A world of allocations, with the settings of each policy there."""

    settings: Mapping[str, Mapping[str, Any]]

    def runnable(self) -> list[str]:
        """Return the policies for which the world has all statistics."""
        ...

    def check(self, name: str) -> None:
        """Raise ValueError when a policy needs statistics that the world lacks."""
        ...


class Systems(Protocol):
    """The part of `reproductions.entry` that is used here."""

    ALLOCATING: Mapping[str, type[Configurable]]

    def peer_named(self, name: str) -> type[Configurable]: ...

    def open_scenario(
        self, named: str, seed: int, *, settings: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Workload: ...


class Published(Protocol):
    """The part of `reproductions.published.track` that is used here."""

    def scenario(
        self, venus: Venus, *, durations: str | None = None, quirks: bool = True
    ) -> Scenario: ...


def systems() -> Systems:
    """Return the policies of allocations. Raise UserError where they, or what they need, are not
    installed.
    """
    return cast(Systems, _loaded(ENTRY, "--workload"))


def published() -> Published:
    """Return the track `published`. Raise UserError where it is not installed."""
    return cast(Published, _loaded("reproductions.published.track", "--track published"))


def helios(seed: int) -> Estimator:
    """Return an estimator that predicts durations as Helios does. Raise UserError where that is not
    installed.
    """
    module = _loaded("reproductions.baselines.helios", "--durations helios")
    return cast(Estimator, module.OnlineHelios(seed=seed))


def allocating() -> Mapping[str, type[Configurable]]:
    """Return the policies of allocations by name; none where they are not installed."""
    try:
        return systems().ALLOCATING
    except UserError:
        return {}


def _loaded(module: str, option: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        needs = f"{option} needs {error.name}, which is not installed"
        raise UserError(f"{needs}: pip install 'pellucid[reproductions]'") from None
