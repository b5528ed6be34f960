"""A page per system: what it is, what it was reproduced against, where it wins and loses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.explain.run import RunError, read_object
from pipeline.report.page import page, release
from pipeline.report.systems_known import KNOWN, System

# What is compared: (figure, words, smaller is better).
MEASURES = (
    ("avg_jct_s", "average JCT", True),
    ("p50_jct_s", "median JCT", True),
    ("p99_queue_s", "99th percentile of queueing", True),
    ("makespan_s", "makespan", True),
    ("gpu_utilisation", "GPU utilisation", False),
    ("ftf_user_p99", "finish-time fairness, worst user", True),
)
CLOSE = 0.02  # figures nearer than this are no difference


class SystemsError(ValueError):
    """A page that cannot be made from what was given. One line, for a person."""


@dataclass(frozen=True)
class Row:
    """One figure held against a reference, as `benchmarks.systems` writes it."""

    figure: str
    reference: str
    measured: str
    tolerance: str
    holds: bool | None
    note: str


@dataclass(frozen=True)
class World:
    """A comparison: a world, and the mean figures of every policy in it."""

    name: str
    policies: Mapping[str, Mapping[str, float]]

    def ranked(self, figure: str, smaller: bool) -> list[str]:
        """Policies with the figure, the best first."""
        have = [name for name, values in self.policies.items() if figure in values]
        return sorted(have, key=lambda n: self.policies[n][figure] * (1 if smaller else -1))


@dataclass(frozen=True)
class Standing:
    """A policy in a world: where it wins and loses, in sentences, and its figures."""

    world: str
    policy: str
    wins: list[str]
    loses: list[str]
    figures: list[tuple[str, str]]


def build(figures: Path, compares: Sequence[Path]) -> str:
    """The page.

    Args:
        figures: JSON of `python -m benchmarks.systems --json`.
        compares: `compare.json` files, or the folders that hold one.

    Raises SystemsError or RunError, naming what is missing or wrong.
    """
    rows = read_figures(figures)
    worlds = [read_world(path) for path in compares]
    sections = [_section(system, rows, worlds) for system in KNOWN]
    held = [row for found in rows.values() for row in found if row.holds is not None]
    return page(
        "systems.html",
        title="Every system, in one engine",
        release=release(),
        sections=sections,
        held=len(held),
        holding=sum(bool(row.holds) for row in held),
        told=sum(len(found) for found in rows.values()) - len(held),
        worlds=[world.name for world in worlds],
        broken=[(name, row) for name, found in rows.items() for row in found if row.holds is False],
    )


def read_figures(path: Path) -> dict[str, list[Row]]:
    """Figures by the system they are about. Raises SystemsError."""
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise SystemsError(
            f"{path} is missing; make it: python -m benchmarks.systems --json --out {path}"
        ) from None
    except OSError as error:
        raise SystemsError(f"{path} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise SystemsError(f"{path} is not JSON (truncated?)") from None
    if not isinstance(document, list) or not document:
        raise SystemsError(f"{path} holds no list of figures; see python -m benchmarks.systems")
    found: dict[str, list[Row]] = {}
    for i, entry in enumerate(document):
        try:
            row = Row(
                str(entry["figure"]),
                _number(entry["reference"]),
                _number(entry["measured"]),
                str(entry["tolerance"]),
                entry["holds"],
                str(entry.get("note", "")),
            )
            name = str(entry["system"])
        except (KeyError, TypeError, AttributeError) as error:
            raise SystemsError(
                f"{path}: figure {i + 1} does not follow the format: {error}"
            ) from None
        if row.holds not in (True, False, None):
            raise SystemsError(f"{path}: figure {i + 1}: holds is {row.holds!r}")
        found.setdefault(name, []).append(row)
    return found


def read_world(path: Path) -> World:
    """A comparison. Raises RunError naming what is missing."""
    file = path / "compare.json" if path.is_dir() else path
    document = read_object(file)
    try:
        policies = {str(row["policy"]): _means(row) for row in document["policies"]}
        name = str(document.get("track", file.parent.name))
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{file} is no comparison ({error}); see pellucid compare --out") from None
    return World(name, policies)


def _means(row: Mapping[str, Any]) -> dict[str, float]:
    return {
        key.removesuffix("_mean"): float(value)
        for key, value in row.items()
        if key.endswith("_mean") and isinstance(value, int | float)
    }


def standing(world: World, policy: str) -> Standing:
    """How a policy fares among the others of a world.

    It wins where nobody is clearly better, and loses in the lower half; what lies between is
    neither.
    """
    wins, loses = [], []
    for figure, words, smaller in MEASURES:
        order = world.ranked(figure, smaller)
        if policy not in order or len(order) < 2:
            continue
        values = {name: world.policies[name][figure] for name in order}
        place, best = order.index(policy), order[0]
        if place == 0:
            wins.append(f"{words}, {_apart(values[policy], values[order[1]])} {order[1]}")
        elif _gap(values[policy], values[best]) <= CLOSE:
            wins.append(f"{words}, as good as {best}")
        elif 2 * place >= len(order):
            away = _apart(values[policy], values[best])
            loses.append(f"{words}, number {place + 1} of {len(order)}, {away} {best}")
    mine = world.policies[policy]
    figures = [
        (words, _shown(figure, mine[figure])) for figure, words, _ in MEASURES if figure in mine
    ]
    return Standing(world.name, policy, wins, loses, figures)


def _gap(a: float, b: float) -> float:
    """How far apart two figures are, as a share of the smaller."""
    least = min(abs(a), abs(b))
    return abs(a - b) / least if least else float(a != b)


def _apart(a: float, b: float) -> str:
    """The distance of two figures, to be followed by the name of the other."""
    gap = _gap(a, b)
    if gap <= CLOSE:
        return "level with"
    return f"{gap:.0%} from" if gap < 1.0 else f"a factor of {gap + 1.0:,.1f} from"


def _shown(figure: str, value: float) -> str:
    if figure.endswith("_s"):
        return f"{value:,.0f} s"
    return f"{value:.1%}" if figure == "gpu_utilisation" else f"{value:.2f}"


def _number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.2f}".rstrip("0").rstrip(".") if abs(value) >= 100 else f"{value:.4g}"


def _section(
    system: System, rows: Mapping[str, list[Row]], worlds: Sequence[World]
) -> dict[str, Any]:
    """What the template shows of one system."""
    mine = [
        (name, row)
        for name, found in rows.items()
        if name.split()[0] in system.tags
        for row in found
    ]
    standings = [
        standing(world, policy)
        for world in worlds
        for policy in world.policies
        if policy in system.policies or policy.startswith(system.prefixes)
    ]
    return {"system": system, "rows": mine, "standings": standings}
