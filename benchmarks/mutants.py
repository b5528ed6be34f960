"""Checks whether the tests would notice bugs: it plants one at a time, and runs the tests that
should find it.

    python -m benchmarks.mutants [--json] [--only TEXT] [--workers 2] [--chaos]
    python -m benchmarks.mutants --sample 60 [--coverage FILE] [--seed 0] [--since HEAD~200]

The bugs stand in `mutants.yaml`: a file, a text in it, what is written in its place, what that
breaks, and the tests that should fail, the quickest first; or, where there are none and with
--chaos, the seeds of `benchmarks.chaos` of which one should fail. Each is planted in a copy of the
tree, in a temporary folder. Before that, all of those tests run on the copy as it is.

With --sample the bugs are drawn at random from the lines changed since a commit, and a test that
finds one is run again without it (`benchmarks.mutations`). One that no test finds is shown to mypy.
`survivors.yaml` says which of them may survive, and why. --coverage names a file that says which
tests run which line: the `.coverage` that `pip install pytest-cov; pytest -n 2 --cov=features
--cov=models --cov=pipeline --cov=profiler --cov=scheduler --cov-context=test` leaves. Without it, a
few files of tests are chosen by name and imports, and what survives these may be found by others.

Exit status 1 when a bug survives that may not, when its text is not in its file exactly once, or
when the tests fail without it.
"""

from __future__ import annotations

import argparse
import compileall
import os
import py_compile
import re
import resource
import runpy
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import yaml

from benchmarks.calibration import program
from benchmarks.mutations import CODE, covering, near, sample
from features.folders import temporary_folder

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("mutants.yaml")
MAY_SURVIVE = Path(__file__).with_name("survivors.yaml")
# What tests load, none of it ours: it takes longer than most of them.
LOADED = [
    "fastapi.testclient", "hypothesis", "numpy", "pandas", "polars", "pyarrow.parquet", "pytest",
    "sklearn", "sqlalchemy", "structlog.testing", "typer.testing",
]  # fmt: skip
FORKS = get_context("forkserver")
NO_SHRINKING = "PELLUCID_TESTS_SHRINK_NOTHING"  # that a test fails is enough
DATABASE = "PELLUCID_TEST_DATABASE"
LIMIT_S = 600.0  # longer than any of them should take; it says nothing about the bug
SAMPLED_CPU_S = 90  # the same, of the processor: a sampled one may loop for ever


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug to plant: `old` in `file` becomes `new`, which breaks `what`. One of `tests` should
    fail, or a run of `benchmarks.chaos` with one of the seeds `chaos` (FIRST:LAST, and other
    options).
    """

    file: str
    old: str
    new: str
    what: str
    tests: tuple[str, ...] = ()
    chaos: str = ""
    cpu_s: int | None = None
    harmless: str = ""  # why it may survive

    @property
    def area(self) -> str:
        """Return the package in which the bug is planted; in the scheduler, the package below
        it.
        """
        parts = Path(self.file).parts
        return "/".join(parts[: 2 if parts[0] == "scheduler" else 1])


def mutants() -> list[Mutant]:
    """Return the bugs that stand in `mutants.yaml`."""
    return [
        Mutant(**{**one, "tests": tuple(one.get("tests", "").split())})
        for one in yaml.safe_load(LIST.read_text())
    ]


def survivors() -> dict[tuple[str, str, str], str]:
    """Return the bugs that no test needs to find, with the reason for each. The key is the file,
    the text of the line, and the change ("before -> after").
    """
    found = yaml.safe_load(MAY_SURVIVE.read_text())
    return {(one["file"], one["line"], one["change"]): one["why"] for one in found}


def sampled(since: str, count: int, seed: int, coverage: Path | None) -> list[Mutant]:
    """Return bugs drawn at random from the lines changed since a commit.

    Args:
        since: the commit.
        coverage: file that records which tests run which line; None: tests are chosen by name.
    """
    tests = _covering(coverage) if coverage else _near()
    found, harmless = [], survivors()
    for file, line, before, after, changed in sample(since, count, seed):
        text, change = (ROOT / file).read_text(), f"{before} -> {after}"
        found.append(
            Mutant(
                file,
                text,
                changed,
                f"line {line}: {change}",
                tests(file, line),
                cpu_s=SAMPLED_CPU_S,
                harmless=harmless.get((file, text.splitlines()[line - 1].strip(), change), ""),
            )
        )
    return found


def _covering(coverage: Path) -> Callable[[str, int], tuple[str, ...]]:
    from coverage import CoverageData

    known = CoverageData(str(coverage))
    known.read()
    return lambda file, line: covering(known, file, line)


def _near() -> Callable[[str, int], tuple[str, ...]]:
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for folder in ("tests", *CODE)
        for path in sorted((ROOT / folder).rglob("*.py"))
        if folder != "tests" or path.name.startswith("test_")
    }
    return lambda file, line: near(file, line, texts)


def planted(text: str, mutant: Mutant) -> str:
    """Return a file's text with the bug in it. Raise ValueError when the text to replace is not in
    the file exactly once.
    """
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.file}: {mutant.old!r} is there {found} times, not once")
    return text.replace(mutant.old, mutant.new)


def copy(to: Path) -> None:
    """Copy the files of this tree that git tracks or does not ignore to a folder, and compile them.
    Compiled files are checked by content, so that a changed source is never ignored.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = ROOT / name
        if source.is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to / name)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    compileall.compile_dir(to, quiet=2, invalidation_mode=checked)


def run_tests(
    folder: Path, tests: Sequence[str], cpu_s: int | None = None
) -> tuple[int | None, str]:
    """Run tests. Return the exit status of pytest (None: it took too long) and its last lines."""
    command = ["pytest", "-x", "--tb=line", "--no-header", "-rfE"]
    return _run(folder, [*command, "-p", "no:xdist", "-p", "no:cacheprovider", *tests], cpu_s)


def run_chaos(folder: Path, seeds: str) -> tuple[int | None, str]:
    """Play seeds of `benchmarks.chaos` up to the first finding. Return its exit status (None: it
    took too long) and its last lines. It plays on PostgreSQL where PELLUCID_TEST_DATABASE names
    one."""
    on = "postgresql" if DATABASE in os.environ else "sqlite"
    how = ["--most-wrong", "1", "--database", on, "--json"]
    return _run(folder, ["benchmarks.chaos", "--seeds", *shlex.split(seeds), *how])


def run_types(folder: Path) -> tuple[int | None, str]:
    """Check types as `make test` does. Return the exit status of mypy (None: it took too long) and
    its last lines."""
    return _run(folder, ["mypy"])


def _run(folder: Path, module: Sequence[str], cpu_s: int | None = None) -> tuple[int | None, str]:
    """Run a module in a process forked from one that has imported the common modules. Return its
    exit status and its last lines. The status is None after a timeout.
    """
    said = folder / ".said"
    process = FORKS.Process(target=_forked, args=(folder, module, said, cpu_s))
    process.start()
    process.join(LIMIT_S)
    if process.exitcode is None:
        process.kill()
        process.join()
        return None, "it took too long"
    if process.exitcode == -signal.SIGXCPU:
        return None, "it took too long"
    return process.exitcode, "\n".join(said.read_text(errors="replace").splitlines()[-6:])


def _forked(folder: Path, module: Sequence[str], said: Path, cpu_s: int | None) -> None:
    if cpu_s is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
    file = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.chdir(folder)
    os.environ["PYTHONPATH"] = str(folder)
    ours = {path.name for path in ROOT.iterdir()}
    for name in [name for name in sys.modules if name.partition(".")[0] in ours]:
        del sys.modules[name]
    sys.path[:] = [str(folder), *(p for p in sys.path if p and Path(p).resolve() != ROOT)]
    sys.argv = list(module)
    runpy.run_module(module[0], run_name="__main__", alter_sys=True)


def try_one(mutant: Mutant, folder: Path, *, chaos: bool = False) -> dict[str, Any]:
    """Plant a bug in a copy of the tree, run the tests that should find it, and remove the bug
    again. Return whether it was found, and by what.

    Args:
        chaos: run the bug's seeds of `benchmarks.chaos`, where it has any, instead of its tests.
    """
    by_chaos = bool(mutant.chaos) and (chaos or not mutant.tests)
    begun, file = time.perf_counter(), folder / mutant.file
    told = {"file": mutant.file, "area": mutant.area, "what": mutant.what}
    try:
        text = file.read_text()
        file.write_text(planted(text, mutant))
    except (OSError, ValueError) as error:
        return {**told, "fate": "does not apply", "detail": str(error)}
    try:
        status, last = _judged(mutant, folder, by_chaos=by_chaos)
    finally:
        file.write_text(text)
    fate = {0: "survived", 1: "found", None: "took too long"}.get(status, "broken")
    if fate == "survived" and mutant.harmless:
        fate, last = "harmless", mutant.harmless
    seconds = round(time.perf_counter() - begun, 1)
    by = re.findall(r"^(?:FAILED|ERROR) (\S+)", last, re.MULTILINE) if fate == "found" else []
    by += re.findall(r"^--seed \d+.*", last, re.MULTILINE) if by_chaos else []
    by += ["mypy"] if re.search(r"^Found \d+ errors? in ", last, re.MULTILINE) else []
    seed = re.match(r"--seed (\d+)", by[0]) if by else None
    if fate == "found" and not by:
        fate = "broken"  # it failed in another way
    itself = [by[0].partition("[")[0]] if by else []  # a test's parameters may have spaces
    by_test = fate == "found" and itself != ["mypy"]
    if by_test and mutant.cpu_s and run_tests(folder, itself)[0] != 0:
        fate = "broken"  # that test fails without it, too
    return {
        **told,
        "fate": fate,
        "seconds": seconds,
        "by": "".join(by[:1]),
        "seed": int(seed[1]) if seed else None,
        "detail": "" if fate == "found" else last,
    }


def _judged(mutant: Mutant, folder: Path, *, by_chaos: bool) -> tuple[int | None, str]:
    """Run what should find a bug that is planted in `folder`. Return the exit status and the last
    lines of who found it, or, if nobody did, of the last who tried.

    A bug that was drawn at random and that no test finds is shown to the type checker.
    """
    if by_chaos:
        return run_chaos(folder, mutant.chaos)
    untested = 0, "no test runs it"
    status, last = run_tests(folder, mutant.tests, mutant.cpu_s) if mutant.tests else untested
    if status == 0 and mutant.cpu_s:
        typed, errors = run_types(folder)
        return (typed, errors) if typed == 1 else (status, last)
    return status, last


def measure(
    wanted: Sequence[Mutant], workers: int, *, baseline: bool = True, chaos: bool = False
) -> dict[str, Any]:
    """Try every wanted bug. Return what became of each, and, with `baseline`, whether the tests
    pass without any bug.
    """
    begun = time.perf_counter()
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONHASHSEED": "0", NO_SHRINKING: "1"}
    FORKS.set_forkserver_preload(LOADED)
    with temporary_folder("pellucid-mutants-") as base:
        folders: SimpleQueue[Path] = SimpleQueue()
        first = base / "0"
        copy(first)
        folders.put(first)
        for i in range(1, workers):
            folders.put(shutil.copytree(first, base / str(i), symlinks=True))

        def attempt(mutant: Mutant | None) -> dict[str, Any]:
            folder = folders.get()
            try:
                if mutant is not None:
                    return try_one(mutant, folder, chaos=chaos)
                if chaos:
                    ran = [run_chaos(folder, seeds) for seeds in sorted({m.chaos for m in wanted})]
                else:
                    ran = [run_tests(folder, sorted({t for one in wanted for t in one.tests}))]
                wrong = [last for status, last in ran if status != 0]
                return {"fate": "broken" if wrong else "sound", "detail": "".join(wrong[:1])}
            finally:
                folders.put(folder)

        with ThreadPoolExecutor(workers) as pool:
            told = list(pool.map(attempt, [None, *wanted] if baseline else wanted))
    without = told.pop(0) if baseline else {"fate": "sound", "detail": "not run"}
    fates = [one["fate"] for one in told]
    return {
        "without_bugs": without["fate"] if without["fate"] == "sound" else without["detail"],
        "planted": len(told),
        "found": fates.count("found"),
        "found_by_types": sum(one.get("by") == "mypy" for one in told),
        "harmless": fates.count("harmless"),
        "areas": {a: sum(m.area == a for m in wanted) for a in sorted({m.area for m in wanted})},
        "not_found": [one for one in told if one["fate"] != "found"],
        "each": told,
        "seconds": round(time.perf_counter() - begun),
        "holds": without["fate"] == "sound" and set(fates) <= {"found", "harmless"},
    }


def found(asked: argparse.Namespace) -> dict[str, Any]:
    """Choose the bugs that the command line asks for and try them. Return what became of each."""
    if asked.coverage and not asked.coverage.is_file():
        sys.exit(f"{asked.coverage} is not there")
    drawn = (
        sampled(asked.since, asked.sample, asked.seed, asked.coverage)
        if asked.sample
        else mutants()
    )
    wanted = [one for one in drawn if asked.only in f"{one.file} {one.what}"]
    wanted = [one for one in wanted if one.chaos or not asked.chaos]
    baseline = not (asked.no_baseline or asked.sample)
    return measure(wanted, asked.workers, baseline=baseline, chaos=asked.chaos)


if __name__ == "__main__":
    program(
        __doc__,
        None,
        found,
        only={"default": "", "help": "those whose file or sentence has this text"},
        workers={"type": int, "default": 2},
        no_baseline={"action": "store_true", "help": "trust the tests without bugs"},
        chaos={"action": "store_true", "help": "only those with seeds, by chaos"},
        sample={"type": int, "help": "so many bugs drawn from what has changed"},
        coverage={"type": Path, "help": "with --sample: which tests run which line"},
        seed={"type": int, "default": 0},
        since={"default": "HEAD~200", "help": "what has changed since this commit"},
    )
