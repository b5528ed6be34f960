"""Stores what a generated site printed, and judges replays of its own `sacct`: the replay by the
policy `slurm`, and a second run of the same submissions by slurmctld itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa

from pipeline.errors import UserError
from pipeline.replay.figures import backtest, doubts, misfit
from pipeline.replay.runs import VARIANTS, Cell, cell
from pipeline.replay.site import DumpOptions, Site, read_site

PAST = 10**6  # ids of jobs from here on are of what accounting was given
MARK = "<mark>"  # of a table, where it was a number drawn for that look
_MARK = re.compile(r"\b[0-9a-f]{16}\b")
Look = tuple[float, dict[tuple[str, ...], str]]


@dataclass
class Kept:
    """The recorded output of a site, from which its polls can be repeated without daemons.

    Attributes:
        looks: for each poll, its time and the output of each command; the first is before any job.
        jobs: maps a job id, as `why` takes it, to the record that `scontrol` printed at the end.
        at: time at which `jobs` was read.
        ids: maps the index of a submission to the job id, for submissions that Slurm accepted.
        sacct: output of the `sacct` command that `pellucid replay` asks for.
        site: output of the other commands that `pellucid replay` asks for.
        conf: text of slurm.conf.
    """

    seed: int
    looks: list[Look] = field(default_factory=list)
    jobs: dict[str, dict[str, str]] = field(default_factory=dict)
    at: float = 0.0
    ids: dict[int, str] = field(default_factory=dict)
    sacct: str = ""
    site: str = ""
    conf: str = ""

    def read(self, folder: Path) -> Site:
        """Return the site, with the jobs submitted to it, as `pellucid replay` reads it.

        Args:
            folder: an empty folder for intermediate files.
        """
        head, *lines = self.sacct.splitlines()
        own = [line for line in lines if not _past(line)]
        dump, printed = folder / "dump.txt", folder / "site.txt"
        dump.write_text("\n".join([head, *own]) + "\n")
        printed.write_text(self.site)
        return read_site(dump, folder / "scratch", DumpOptions(printed=[printed]))


def refused(kept: Kept) -> list[str]:
    """Replay the site's own `sacct` as `pellucid replay` does. Return the reasons why no saving
    would be stated; an empty list if one would be.
    """
    with TemporaryDirectory() as folder:
        try:
            site = kept.read(Path(folder))
        except UserError as error:
            return [str(error).partition(": ")[2]]
        found = doubts(cell(site, Cell(next(one for one in VARIANTS if one.twin))))
        return [*found, *site.unlike] if found else []


def refused_second(once: Kept, again: Kept) -> list[str]:
    """Treat slurmctld's second run of the same submissions as if it were the replay. Return the
    reasons why no saving would be stated. No replay can be expected to do better.

    Args:
        once: the first run.
        again: the second run.
    """
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        first, second = once.read(Path(one)), again.read(Path(other))
    renamed = renames(once, again)
    waits = {
        row["job_id"]: row["wait_s"]
        for row in second.recorded.select(["job_id", "wait_s"]).to_pylist()
    }
    record = first.replayable
    found = [(j, waits.get(renamed(j))) for j in record["job_id"].to_pylist()]
    known = [(j, wait) for j, wait in found if wait is not None]
    table = {
        "job_id": pa.array([j for j, _ in known], pa.string()),
        "wait_s": pa.array([wait for _, wait in known], pa.float64()),
    }
    return misfit(backtest(pa.table(table), record))


def marked(command: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return a command in which its random marker (16 hexadecimal digits, drawn for each poll) is
    replaced by `MARK`, and that marker; "" where the command has none.
    """
    mark = next(iter(_MARK.findall(" ".join(command))), "")
    return tuple(one.replace(mark, MARK) if mark else one for one in command), mark


def renames(once: Kept, again: Kept) -> Callable[[str], str]:
    """Return a function from the id of a job in one run of a site to its id in another run. It
    returns an id of no job where the other run did not take the submission.
    """
    return partial(_renamed, same=dict(_same(once.ids, again.ids)))


def _past(line: str) -> bool:
    job_id = line.partition("|")[0]
    return job_id.isdigit() and int(job_id) >= PAST


def _same(once: Mapping[int, str], again: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for place in once.keys() & again.keys():
        yield once[place], again[place]


def _renamed(job_id: str, same: Mapping[str, str]) -> str:
    """Return the id that a job has in the other run. `same` maps ids of submissions; the number of
    a task or component is kept.
    """
    whole = job_id.partition("_")[0].partition("+")[0]
    return same.get(whole, "") + job_id.removeprefix(whole)
