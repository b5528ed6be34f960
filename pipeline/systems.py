"""Loads the reproductions of other systems, if they are installed. No module imports them directly:
they are loaded by name."""

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
    """The interface of a world of allocations (for peers such as Gavel), with settings by
    policy."""

    settings: Mapping[str, Mapping[str, Any]]

    def runnable(self) -> list[str]:
        """Return the names of the policies that can be simulated here, because the workload has all
        statistics that they need."""
        ...

    def check(self, name: str) -> None:
        """Raise ValueError if the policy `name` needs statistics that the workload lacks."""
        ...


class Systems(Protocol):
    """The attributes of the module `reproductions.entry` that are used here."""

    ALLOCATING: Mapping[str, type[Configurable]]

    def peer_named(self, name: str) -> type[Configurable]: ...

    def open_scenario(
        self, named: str, seed: int, *, settings: Mapping[str, Mapping[str, Any]] | None = None
    ) -> Workload: ...


class Published(Protocol):
    """The attributes of the module `reproductions.published.track` that are used here."""

    def scenario(
        self, venus: Venus, *, durations: str | None = None, quirks: bool = True
    ) -> Scenario: ...


def systems() -> Systems:
    """Return the module with the policies that hand out allocations. Raise UserError if it, or a
    package that it needs, is not installed."""
    return cast(Systems, _loaded(ENTRY, "--workload"))


def published() -> Published:
    """Return the module of the track `published`. Raise UserError if it is not installed."""
    return cast(Published, _loaded("reproductions.published.track", "--track published"))


def helios(seed: int) -> Estimator:
    """Return an estimator that predicts durations as the system Helios does. Raise UserError if it
    is not installed."""
    module = _loaded("reproductions.baselines.helios", "--durations helios")
    return cast(Estimator, module.OnlineHelios(seed=seed))


def allocating() -> Mapping[str, type[Configurable]]:
    """Return the policies that hand out allocations, by name; {} if they are not installed."""
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
