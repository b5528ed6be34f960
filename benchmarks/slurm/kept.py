"""What a generated site printed, and replays of its own `sacct`: by the policy `slurm`, and by
slurmctld itself, which ran the same submissions a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
    """What a site printed, so that its polls can be repeated without daemons.

    Attributes:
        looks: when each was, and what each command printed; the first is before any job.
        jobs: as `scontrol` had them at the end, `at`, by the ids that `why` takes.
        ids: of the submissions that Slurm took, by place.
        sacct, site: what `pellucid replay` asks for; conf: slurm.conf.
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
        """Return the site as `pellucid replay` reads it: the jobs that were submitted to it.

        Args:
            folder: an empty one.
        """
        head, *lines = self.sacct.splitlines()
        own = [line for line in lines if not _past(line)]
        dump, printed = folder / "dump.txt", folder / "site.txt"
        dump.write_text("\n".join([head, *own]) + "\n")
        printed.write_text(self.site)
        return read_site(dump, folder / "scratch", DumpOptions(printed=[printed]))


def refused(kept: Kept) -> list[str]:
    """Return why `pellucid replay` states no saving on the site's own `sacct`; none where it
    does.
    """
    with TemporaryDirectory() as folder:
        try:
            site = kept.read(Path(folder))
        except UserError as error:
            return [str(error).partition(": ")[2]]
        found = doubts(cell(site, Cell(next(one for one in VARIANTS if one.twin))))
        return [*found, *site.unlike] if found else []


def refused_second(once: Kept, again: Kept) -> list[str]:
    """Return what is wrong if slurmctld's own second run stands in for the replay. No replay can be
    expected to do better.
    """
    with TemporaryDirectory() as one, TemporaryDirectory() as other:
        first, second = once.read(Path(one)), again.read(Path(other))
    same = dict(_same(once.ids, again.ids))
    waits = {
        row["job_id"]: row["wait_s"]
        for row in second.recorded.select(["job_id", "wait_s"]).to_pylist()
    }
    record = first.replayable
    found = [(j, waits.get(_renamed(j, same))) for j in record["job_id"].to_pylist()]
    known = [(j, wait) for j, wait in found if wait is not None]
    table = {
        "job_id": pa.array([j for j, _ in known], pa.string()),
        "wait_s": pa.array([wait for _, wait in known], pa.float64()),
    }
    return misfit(backtest(pa.table(table), record))


def marked(command: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return a command with `MARK` for its mark, and the mark, "" where there is none."""
    mark = next(iter(_MARK.findall(" ".join(command))), "")
    return tuple(one.replace(mark, MARK) if mark else one for one in command), mark


def _past(line: str) -> bool:
    job_id = line.partition("|")[0]
    return job_id.isdigit() and int(job_id) >= PAST


def _same(once: Mapping[int, str], again: Mapping[int, str]) -> Iterator[tuple[str, str]]:
    for place in once.keys() & again.keys():
        yield once[place], again[place]


def _renamed(job_id: str, same: Mapping[str, str]) -> str:
    """Return a job's id in the other run, with the number of its task or component kept."""
    whole = job_id.partition("_")[0].partition("+")[0]
    return same.get(whole, "") + job_id.removeprefix(whole)
