"""Measures what a newcomer meets first: how fast, how large, how long, and whether links and
commands work.

    python -m benchmarks.front_door --json [--quick]

CPU seconds of `--version`, `--help`, and of `ps` and `why` against a service with one waiting job
(the least of five, user and system time of the process); words of the README and of a report, the
size of that report; links of all pages that lead nowhere, and commands that do not exist. Without
`--quick`, this takes minutes, and adds: what the base install takes on disk, which files of the
packages its wheel lacks, and what axe finds on every page: the service's, the report, the site of
the docs (after `make docs`). Prints whether the budget in `front_door_budget.json` holds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import urlopen

from benchmarks.calibration import program, spent
from benchmarks.pages import ROOT, broken_links, commands, mistake, pages, words
from benchmarks.serving import serving
from benchmarks.wheel import build, install, left_out, sizes_mb
from pipeline import runs
from pipeline.report.build import Inputs
from pipeline.report.build import build as build_report
from pipeline.traces.synthetic import generate as synthetic
from pipeline.worlds import open_scenario

BUDGET = Path(__file__).with_name("front_door_budget.json")
REPEATS = 5
GPUS = "8"  # of the job that waits, on a cluster of four
CLUSTER = "name: door\ngpus_per_node: 4\nvcs: {door: 2}\n"
PELLUCID = (sys.executable, "-m", "pipeline.cli")
SITE = ROOT / "docs" / "_build" / "html"
SERVED = ("", "nodes", "settings", "jobs", "history", "fairness", "models", "forecasts", "login")


def cpu_s(*said: str) -> float:
    """Run a `pellucid` command several times. Return the least CPU seconds that it took."""
    return min(spent(*PELLUCID, *said, cwd=ROOT)[1] for _ in range(REPEATS))


@contextmanager
def service() -> Iterator[str]:
    """Start a service in which one job runs and another waits. Yield the id of the waiting job, and
    stop the service when the block ends.
    """
    words = "--fake-gpus", "--policy", "fifo", "--log-level", "error"
    with TemporaryDirectory() as folder, serving(Path(folder), *words, cluster=CLUSTER) as served:
        os.environ["PELLUCID_SERVER"] = served.address
        os.environ.pop("PELLUCID_TOKEN", None)
        first, last = _submitted(), _submitted()
        yield last
        for job in (last, first):
            subprocess.run([*PELLUCID, "cancel", job], cwd=ROOT, stdout=subprocess.DEVNULL)


def _submitted() -> str:
    command = [*PELLUCID, "submit", "--vc", "door", "--gpus", GPUS, "--", "sleep", "600"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.split()[0]


def start(look: Sequence[Path]) -> dict[str, Any]:
    """Return the CPU seconds of `--version`, `--help`, `ps` and `why`, and what axe finds on the
    service's pages and on the page files `look`.
    """
    figures: dict[str, Any] = {"version_cpu_s": cpu_s("--version"), "help_cpu_s": cpu_s("--help")}
    with service() as waiting:
        figures |= {"ps_cpu_s": cpu_s("ps"), "why_cpu_s": cpu_s("why", waiting)}
        if look:
            own = [
                f"{os.environ['PELLUCID_SERVER']}/{name}" for name in (*SERVED, f"jobs/{waiting}")
            ]
            figures |= looked_at(own, [page.as_uri() for page in look])
    return figures


def looked_at(served: Sequence[str], files: Sequence[str]) -> dict[str, Any]:
    """Return the violations that axe finds on served and stored pages, and the size of the largest
    served page.
    """
    from benchmarks.axe import violations

    found = violations([*served, *files])
    return {
        "served_mb": max(len(urlopen(address).read()) for address in served) / 1e6,
        "looked_at": len(served) + len(files),
        "axe_violations": sum(found.values()),
        "axe_where": {address.rpartition("/")[2]: count for address, count in found.items()},
    }


def installed() -> dict[str, Any]:
    """Return which files the wheel lacks, and how much disk an installation takes with all the
    libraries it needs.
    """
    with TemporaryDirectory() as folder:
        wheel = build(Path(folder, "wheel"))
        sizes = sizes_mb(install(wheel, Path(folder, "venv")))
        largest = {name: round(size) for name, size in list(sizes.items())[:6]}
        return {
            "wheel_mb": wheel.stat().st_size / 1e6,
            "left_out": len(left_out(wheel)),
            "installed_mb": sum(sizes.values()),
            "largest_mb": largest,
        }


def reading() -> dict[str, float]:
    """Return figures on the documentation: words of the README, number of pages, broken links, and
    commands that do not exist.
    """
    every = pages()
    shown = [said for page in every for said in commands(page)]
    return {
        "readme_words": words(ROOT / "README.md"),
        "pages": len(every),
        "broken_links": sum(len(broken_links(page)) for page in every),
        "commands": len(shown),
        "wrong_commands": sum(mistake(said) is not None for said in shown),
    }


def report(page: Path) -> dict[str, float]:
    """Write a report on a small trace to `page`. Return its size and words (without tables)."""
    with TemporaryDirectory() as folder:
        trace, compared = Path(folder, "trace"), Path(folder, "compared")
        synthetic.write(synthetic.default_config("small"), trace)
        world = open_scenario(trace, durations="own")
        runs.compare(lambda _: world, ["fifo", "qssf", "srtf"], [0], out=compared)
        html = build_report(Inputs(compare=compared, trace=trace)).html
    page.write_text(html)
    text = re.sub(r"<(style|svg|script|table)\b.*?</\1>", " ", html, flags=re.DOTALL)
    return {
        "report_mb": len(html.encode()) / 1e6,
        "report_words": len(re.sub(r"<[^>]+>", " ", text).split()),
    }


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Return all figures by name; with `--quick`, only the figures that take less than minutes to
    measure."""
    site = [] if asked.quick else sorted(SITE.rglob("*.html"))
    if not site and not asked.quick:
        sys.exit("the site of the docs is not there: make docs, or --quick")
    with TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        figures: dict[str, Any] = report(page) | start([] if asked.quick else [page, *site])
    return figures | reading() | ({} if asked.quick else installed())


if __name__ == "__main__":
    quick = {"action": "store_true", "help": "build no wheel, open no browser"}
    program(__doc__, BUDGET, measure, quick=quick)
