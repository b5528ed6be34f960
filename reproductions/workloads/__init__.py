"""Adapters that yield workloads for allocation policies."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from pipeline.errors import UserError
from reproductions.allocation.workload import AllocationWorkload

# kind -> (module, function, what PATH is)
KINDS: dict[str, tuple[str, str, str]] = {
    "gavel": ("gavel", "read_workload", "a .trace file beside simulation_throughputs.json"),
    "pollux": ("pollux", "open_workload", "a workload CSV in a folder beside traces/"),
    "tiresias": ("tiresias", "open_tiresias", "a job CSV, or the folder of the release"),
}


def open_workload(named: str) -> AllocationWorkload:
    """Return the workload of `KIND:PATH`, as the command line names it.

    Raises:
        UserError: there is no such kind, or its file cannot be read.
    """
    kind, _, path = named.partition(":")
    if kind not in KINDS or not path:
        kinds = "; ".join(f"{name}:PATH, {what}" for name, (_, _, what) in KINDS.items())
        raise UserError(f"--workload {named}: use one of {kinds}")
    module, function, what = KINDS[kind]
    read: Callable[[Path], AllocationWorkload] = getattr(
        importlib.import_module(f"reproductions.workloads.{module}"), function
    )
    if not Path(path).exists():
        raise UserError(f"--workload {named}: no such file or folder")
    try:
        return read(Path(path))
    except UserError as error:
        raise UserError(f"--workload {named}: {error} ({kind}:PATH, {what})") from None
