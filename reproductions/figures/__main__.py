"""Every system of the sources against its own published or recorded figures.

    python -m reproductions.figures [--only FAMILY ...] [--json | --markdown] [--out FILE]

Prints one row per figure: what the source reports, what is measured here, and whether they agree.
`docs/policies.md` has the main ones. Exit status 1 when a figure does not hold, 2 when the data is
not there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path

import reproductions.figures
from features.files import write_whole
from reproductions.figures.figure import CpuClock, Figure

NOT_A_FAMILY = {"__main__", "figure"}


def families() -> list[str]:
    """Return the modules of this package that have figures, by name."""
    found = (module.name for module in pkgutil.iter_modules(reproductions.figures.__path__))
    return sorted(name for name in found if name not in NOT_A_FAMILY)


def measure(names: list[str], data: Path) -> Iterator[tuple[str, Figure]]:
    """Yield (family, figure) for every figure of the given families, as soon as it is computed.
    Progress is printed to standard error.
    """
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        clock = CpuClock()
        for figure in importlib.import_module(f"reproductions.figures.{name}").figures(data):
            print(f"  {sentence(figure)}", file=sys.stderr, flush=True)
            yield name, figure
        print(f"{name}: {clock.lap():.1f} CPU s", file=sys.stderr, flush=True)


def sentence(figure: Figure) -> str:
    """Return one figure on one line."""
    verdict = "holds" if figure.holds else "DOES NOT HOLD"
    return (
        f"{verdict}: {figure.system}, {figure.figure}: {number(figure.measured)} "
        f"(reference {number(figure.reference) or 'none'}, {figure.tolerance}; "
        f"{figure.cpu_s:.1f} CPU s)"
    )


def number(value: float | str) -> str:
    """Return a value for reading: a number with seven significant digits, a text as it is."""
    return value if isinstance(value, str) else f"{value:.7g}"


def markdown(rows: list[tuple[str, Figure]]) -> str:
    """Return all figures as a table in Markdown."""
    lines = [
        "| system | figure | reference | measured | tolerance | holds | CPU s |",
        "|---|---|---|---|---|---|---|",
    ]
    for _, f in rows:
        holds = "yes" if f.holds else "**no**"
        cells = (f.system, f.figure, number(f.reference), number(f.measured), f.tolerance, holds)
        lines.append(f"| {' | '.join(cells)} | {f.cpu_s:.1f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m reproductions.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", choices=families(), default=families())
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument("--out", type=Path, help="file to write to, instead of printing")
    arguments = parser.parse_args()
    if not arguments.data.is_dir():
        parser.error(f"--data {arguments.data}: no such folder; it holds the public traces")
    rows = list(measure(arguments.only, arguments.data))
    if arguments.json:
        text = json.dumps([{"family": name, **f.to_json()} for name, f in rows], indent=2)
    elif arguments.markdown:
        text = markdown(rows)
    else:
        text = "\n".join(sentence(f) for _, f in rows)
    if arguments.out is None:
        print(text)
    else:
        write_whole(arguments.out, f"{text}\n")
    sys.exit(1 if not all(f.holds for _, f in rows) else 0)


if __name__ == "__main__":
    main()
