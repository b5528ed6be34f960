"""Finds the adapter for a trace: one of those in ``ADAPTERS``, one described in YAML, or any
``module:Class``."""

from __future__ import annotations

from pathlib import Path

from features.plugins import load_class
from pipeline.traces.acme import Acme
from pipeline.traces.base import Adapter, TraceError, head
from pipeline.traces.described import described, shipped
from pipeline.traces.finished import Finished
from pipeline.traces.helios import Helios, HeliosFull
from pipeline.traces.openb import Openb
from pipeline.traces.pai import Pai
from pipeline.traces.philly import Philly
from pipeline.traces.philly_flat import PhillyFlat
from pipeline.traces.sacct import Sacct
from pipeline.traces.spot import Spot
from pipeline.traces.swf import Swf

ADAPTERS: tuple[type[Adapter], ...] = (
    Helios,
    HeliosFull,
    Philly,
    PhillyFlat,
    Pai,
    Openb,
    Spot,
    Acme,
    Swf,
    Sacct,
    Finished,
)
FORMATS: dict[str, type[Adapter]] = {adapter.name: adapter for adapter in ADAPTERS}


def adapter_for(path: Path, format: str = "auto") -> Adapter:
    """Return the adapter of the format named, or, for "auto", the one that recognises the file at
    ``path``.

    Raises:
        TraceError: there is no such path or format, or no adapter (or more than one) recognises the
            file.
    """
    if format != "auto":
        adapter = adapter_class(format)()
    if not path.exists():
        raise TraceError(f"{path}: does not exist")
    return adapter if format != "auto" else _recognised(path)


def adapter_class(format: str) -> type[Adapter]:
    """Return the adapter class that ``format`` names: a known format, a YAML file with a
    description, or ``module:Class``.

    Raises:
        TraceError: there is no such class, or it is no adapter.
    """
    known = {**FORMATS, **shipped()}
    if format in known:
        return known[format]
    if format.endswith((".yaml", ".yml")):
        return described(Path(format))
    if ":" not in format:
        names = f"auto, {', '.join(known)}"
        raise TraceError(
            f"format: {format!r} is none of {names}, nor a description (.yaml), nor module:Class"
        )
    try:
        return load_class(format, Adapter)  # type: ignore[type-abstract]
    except ValueError as error:
        raise TraceError(f"format: {error}") from error


def _recognised(path: Path) -> Adapter:
    adapters = [adapter() for adapter in (*ADAPTERS, *shipped().values())]
    sure = sorted(((a.sniff(path), a) for a in adapters), key=lambda pair: -pair[0])
    if sure[0][0] == 0:
        raise TraceError(
            f"{path.name}: {_looks(path)}; say --format {'|'.join(FORMATS)}, "
            "or describe it in YAML (pipeline/traces/described.py)"
        )
    if sure[0][0] == sure[1][0]:
        raise TraceError(
            f"{path.name}: may be {sure[0][1].name} or {sure[1][1].name}; say --format"
        )
    return sure[0][1]


def _looks(path: Path) -> str:
    if path.is_dir():
        return "is a directory, but not one of PAI 2020 tables"
    start = head(path)
    if not start:
        return "is empty, or an archive of several files: unpack it, and name one of them"
    if b"\0" in start:
        return "is a binary file"
    first = start.split(b"\n", 1)[0].decode("utf-8", "replace").strip()
    return f"is in no format known here (first line {first[:60]!r})"


def source_bytes(path: Path) -> int | None:
    """Return the number of bytes that reading ``path`` takes, or None if that cannot be found out
    beforehand."""
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in Pai().files(path))
        return path.stat().st_size
    except OSError:
        return None
