"""A figure: what a source reports, what is measured here, and whether they agree.

A family of systems is a module of this package with

    def figures(data: Path) -> Iterable[Figure]: ...

which yields each figure as soon as it is known; `data` is the folder of the public traces. Make
figures with `within`, `exact`, `at_most`, `at_least` and `ordered`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of the table.

    Attributes:
        system: the policy or part of a system it is about.
        figure: what is measured, with its unit.
        reference: what the source reports, or the bound.
        measured: what was measured here.
        tolerance: how `measured` is held against `reference`, in words.
        holds: whether it agrees.
        cpu_s: CPU seconds spent on measuring.
        note: what a reader must know to read it right.
    """

    system: str
    figure: str
    reference: float | str
    measured: float | str
    tolerance: str
    holds: bool
    cpu_s: float
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class _Make(Protocol):
    def __call__(
        self,
        system: str,
        figure: str,
        reference: float,
        measured: float,
        cpu_s: float,
        note: str = ...,
    ) -> Figure: ...


def within(relative: float) -> _Make:
    """Return a maker of figures that must agree to `relative` of the reference:
    `within(0.05)(system, ...)`.
    """
    return _held(f"±{100 * relative:g} %", lambda ref, got: abs(got - ref) <= relative * abs(ref))


def _held(tolerance: str, agrees: Callable[[float, float], bool]) -> _Make:
    def make(
        system: str, figure: str, reference: float, measured: float, cpu_s: float, note: str = ""
    ) -> Figure:
        holds = bool(agrees(reference, measured))
        return Figure(
            system=system,
            figure=figure,
            reference=reference,
            measured=measured,
            tolerance=tolerance,
            holds=holds,
            cpu_s=cpu_s,
            note=note,
        )

    return make


exact = _held("exact", lambda ref, got: got == ref)
at_most = _held("at most", lambda ref, got: got <= ref)
at_least = _held("at least", lambda ref, got: got >= ref)


def ordered(
    system: str,
    figure: str,
    order: Sequence[str],
    values: Mapping[str, float],
    cpu_s: float,
    note: str = "",
) -> Figure:
    """Return a figure that checks whether systems come in a stated order, smallest value first."""
    found = sorted(order, key=lambda name: values[name])
    strictly = all(values[a] < values[b] for a, b in pairwise(order))
    return Figure(
        system=system,
        figure=figure,
        reference=" < ".join(order),
        measured=" < ".join(found),
        tolerance="order",
        holds=strictly,
        cpu_s=cpu_s,
        note=note,
    )


class CpuClock:
    """Counts CPU seconds of this process since the last reading."""

    def __init__(self) -> None:
        self._since = time.process_time()

    def lap(self) -> float:
        now = time.process_time()
        lap, self._since = now - self._since, now
        return lap
