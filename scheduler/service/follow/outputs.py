"""How far jobs of Slurm are, read in the files that their output goes to.

Only of those whose user says nothing against it (`OPTED_OUT` in the comment), and only a file that
is theirs and that this process may read. Of what it holds numbers are kept, never a line.
"""

from __future__ import annotations

import pwd
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Thread

from features.amounts import of_commands
from features.progress import Progress
from features.shell import of_script
from profiler.progress.news import Follower
from profiler.progress.tail import Tail
from scheduler.backends.slurm.client import Slurm, SlurmDown, SlurmError
from scheduler.backends.slurm.parse import SlurmJob

OPTED_OUT = "pellucid:no-progress"  # in a job's comment: its output is not read
MOST = 512  # jobs whose output is read at a time
_PATTERN = re.compile(r"%(\d?)(.)")
_Run = tuple[str, float | None]  # a job, and since when it runs


class Outputs:
    """The outputs of running jobs, look after look."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._followed: dict[_Run, Follower | None] = {}  # None: not to be read
        self._news: dict[_Run, Progress] = {}
        self.reader: Thread | None = None  # of the latest look

    def look(self, jobs: Iterable[SlurmJob], now: float) -> dict[str, Progress]:
        """What the last look's reading found, by job; begins the next one, which may take as long
        as a file system does that hangs."""
        if self.reader is not None and self.reader.is_alive():
            return {}
        running = self._take(jobs)
        found = {run[0]: one for run, one in self._news.items() if run in running}
        self._news = {}
        self.reader = Thread(target=self._read, args=(running, now), daemon=True)
        self.reader.start()
        return found

    def _take(self, jobs: Iterable[SlurmJob]) -> dict[_Run, SlurmJob]:
        running = {(job.id, job.start): job for job in jobs if _to_be_read(job)}
        self._followed = {run: one for run, one in self._followed.items() if run in running}
        room = MOST - sum(one is not None for one in self._followed.values())
        new = [run for run in running if run not in self._followed][: max(0, room)]
        try:
            paths = self._slurm.outputs([run[0] for run in new]) if new else {}
        except (SlurmDown, SlurmError):  # one is over already: asked again at the next look
            return running
        for run in new:
            job = running[run]
            path = filled_in(job, *paths.get(job.id, ("", "")))
            follower = _follower(path, job.user)
            if follower is not None:  # only of one whose output is read is the script asked for
                follower.asks(of_commands(of_script(self._slurm.script(job.id))))
            self._followed[run] = follower
        return running

    def _read(self, running: Mapping[_Run, SlurmJob], now: float) -> None:
        for run in running:
            follower, since = self._followed.get(run), run[1] or now
            if follower is not None and (news := follower.look(max(0.0, now - since))):
                self._news[run] = news


def _to_be_read(job: SlurmJob) -> bool:
    runs = job.state == "RUNNING" and job.start is not None
    return runs and OPTED_OUT not in job.comment.split()


def filled_in(job: SlurmJob, number: str, path: str) -> str:
    """The file that a pattern of `sbatch --output` is for a batch job; "": it is not known."""
    array, _, task = job.id.partition("_")
    known = {"j": number, "A": array, "a": task, "u": job.user, "x": job.name, "%": "%"}
    known["N"] = job.nodes[0].partition(".")[0] if job.nodes else ""
    parts = _PATTERN.findall(path)
    if "\\" in path or any(not known.get(letter) for _, letter in parts):
        return ""
    return _PATTERN.sub(lambda found: known[found[2]].zfill(int(found[1] or 0)), path)


def _follower(path: str, user: str) -> Follower | None:
    try:
        uid = pwd.getpwnam(user).pw_uid
    except KeyError:
        return None
    return Follower(Tail(Path(path), uid=uid, whose=True)) if path.startswith("/") else None
