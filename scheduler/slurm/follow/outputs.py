"""The progress of Slurm's jobs, read from their output files, and the amount of work that their
scripts ask for.

Output is read only of jobs whose user has not opted out (`OPTED_OUT` in the comment), and only from
a file that belongs to the user and that this process may read. A separate process reads it, with
the job's script. It returns numbers, never a line of text.
"""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, zip_longest
from pathlib import Path
from typing import TypeVar

from features.amounts import Work
from features.progress import Progress
from profiler.progress.apart import BURST_S, Asked, Followed, Reading, Worked
from scheduler.slurm.read.client import Slurm, SlurmDown, SlurmError
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.read.request import RequestError, script_of

AT_ONCE = 64  # new ones a look, since Slurm is asked for the script of each
OPTED_OUT = "pellucid:no-progress"  # in a job's comment: its output is not read
MOST = 512  # jobs whose output is read at a time, of each user as many as of any other
LONGEST = 16_384  # characters of a line that submitted a job: of a longer one nothing is taken
_LIVE = "PENDING", "RUNNING"
_PATTERN = re.compile(r"%(\d?)(.)")
_GIVEN = re.compile(r"\$\{?[1-9@*]")  # in a script: what it is called with
PATIENCE_S = 5.0  # for the amounts of work of one look
FADES = 0.9  # what a user's scripts took counts so much less at each look
_Run = tuple[str, float | None]  # a job, and since when it runs
_One = TypeVar("_One")


class Outputs:
    """Reads the output files of running jobs at each poll of Slurm.

    Attributes:
        reading: the process that reads them.
        unread: maps a job id to the reason why its progress is unknown.
    """

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._followed: dict[_Run, Followed | None] = {}  # None: not to be read
        self._work: dict[str, Work | None] = {}  # by jobs or arrays; None: not known
        self._waits = set[str]()  # of them, those that are not answered yet
        self._spent: dict[str, float] = {}  # processor time on scripts, by user, fading
        self._filled: dict[str, tuple[SlurmJob, SlurmJob]] = {}  # jobs as read, and with it
        self.reading = Reading()
        self.unread: dict[str, str] = {}

    def look(self, jobs: Iterable[SlurmJob], now: float) -> dict[str, Progress]:
        """Return the progress that was found since the last poll, by job id, and have the outputs
        read again. Another process reads them, since a file system may hang."""
        found, self.unread = dict[str, Progress](), {}
        running = self._take(jobs)
        for run in running:
            followed, since = self._followed.get(run), run[1] or now
            if followed is None:
                continue
            if news := followed.look(max(0.0, now - since)):
                found[run[0]] = news
            if followed.unread:
                self.unread[run[0]] = followed.unread
        return found

    def with_work(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Return the jobs with the amount of work that their scripts ask for. The script of a job
        or array is read once, when it is first seen; those of at most `AT_ONCE` a look are, once
        those of the looks before are, and last those of users whose scripts take long. One that
        nobody could be asked about is read later. What it asks for is known as long as the job is
        shown, also once it has ended."""
        jobs = list(jobs)
        shown = {_array(j): j for j in reversed(jobs) if _is_open(j)}
        for one in self._work.keys() - shown.keys():  # in place: another thread writes, too
            self._work.pop(one, None)
        asked = {_array(j): j for j in reversed(jobs) if j.state in _LIVE and _is_open(j)}
        new_of = {one: job.user for one, job in asked.items() if one not in self._work}
        spent = list(self._spent.items())  # another thread writes
        self._spent = {user: of * FADES for user, of in spent if of > 0.1}
        idle = not (self._waits or self.reading.pauses)
        new = self._next(asked, new_of) if idle else []
        scripts = dict[str, str]()
        with suppress(SlurmDown):  # the others are asked for at a later look
            for job in new:
                scripts[job.id] = self._slurm.script(job.id)
        words = self._words([j for j, text in scripts.items() if not text or _GIVEN.search(text)])
        new = [job for job in new if job.id in scripts]
        for job in new:
            self._work[_array(job)] = None
            submitted = words.get(job.id, [])
            if scripts[job.id] or submitted:
                nothing = Asked(output=Path(os.devnull), script=scripts[job.id], command=submitted)
                self._waits.add(_array(job))
                self.reading.work(
                    replace(nothing, arguments=submitted[1:]), partial(self._known, job)
                )
        if new:
            self.reading.settle(PATIENCE_S)
        before, self._filled = self._filled, {}
        for job in jobs:
            work = self._work.get(_array(job)) if _is_open(job) else None
            known = before.get(job.id)
            same = known is not None and known[0] is job and known[1].work == work
            filled = known if same and known else (job, replace(job, work=work) if work else job)
            self._filled[job.id] = filled
        return [filled for _, filled in self._filled.values()]

    def _next(self, asked: Mapping[str, SlurmJob], new_of: Mapping[str, str]) -> list[SlurmJob]:
        """Return the jobs whose scripts are read at this look. One whose user's scripts took long
        comes after all others, since it may end the process that reads.

        Args:
            asked: maps each job or array to a job of it.
            new_of: maps those that are not read yet to their users.
        """
        slow = {one: user for one, user in new_of.items() if self._spent.get(user, 0.0) > BURST_S}
        quick = {one: user for one, user in new_of.items() if one not in slow}
        return [asked[one] for one in (*_dealt(quick), *_dealt(slow))][:AT_ONCE]

    def _known(self, job: SlurmJob, found: Worked) -> None:
        """Keep the amount of work of a job or array that is still there. It may be known only at a
        later look."""
        array = _array(job)
        spent_s = found.spent_s + (2 * BURST_S if found.ended else 0.0)
        self._spent[job.user] = self._spent.get(job.user, 0.0) + spent_s
        if not found.asked:
            self._work.pop(array, None)
        elif array in self._work:
            self._work[array] = found.work
        self._waits.discard(array)

    def close(self) -> None:
        """End the process that reads the outputs."""
        self.reading.close()

    def _take(self, jobs: Iterable[SlurmJob]) -> dict[_Run, SlurmJob]:
        running = {(job.id, job.start): job for job in jobs if _to_be_read(job)}
        known = self._followed
        no_use = {run for run, one in known.items() if one is None and run in running}
        whose = {run: job.user for run, job in running.items() if run not in no_use}
        dealt = _dealt({run: whose[run] for run in sorted(whose, key=lambda r: r not in known)})
        kept = {*dealt, *no_use}
        for run in [run for run in known if run not in kept]:
            followed = known.pop(run)
            if followed is not None:
                followed.drop()
        new = [run for run in dealt if run not in known][:AT_ONCE]
        try:
            paths = self._slurm.outputs([run[0] for run in new]) if new else {}
        except (SlurmDown, SlurmError):  # one is over already: asked again at the next look
            return running
        asked = {run: self._asked(running[run], paths) for run in new}
        try:  # only of those whose output is read
            scripts = {
                run[0]: self._slurm.script(run[0]) for run, one in asked.items() if one is not None
            }
        except SlurmDown:
            return running
        words = self._words([j for j, text in scripts.items() if not text or _GIVEN.search(text)])
        for run, one in asked.items():
            if one is not None:
                script, submitted = scripts[run[0]], words.get(run[0], [])
                one = replace(one, script=script, command=submitted, arguments=submitted[1:])
            self._followed[run] = self.reading.follow(one) if one is not None else None
        return running

    def _asked(self, job: SlurmJob, paths: Mapping[str, tuple[str, str]]) -> Asked | None:
        """Return what the reading process is to read for a job; None where it is to read
        nothing."""
        try:
            uid = pwd.getpwnam(job.user).pw_uid
        except KeyError:
            return None
        path = filled_in(job, *paths.get(job.id, ("", "")))
        return Asked(output=Path(path), uid=uid, whose=True) if path.startswith("/") else None

    def _words(self, job_ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the words of each job's command, by job id: the script or program and its
        arguments, taken from the line that submitted the job. Jobs without a known line are left
        out.
        """
        lines = self._slurm.submit_lines(job_ids) if job_ids else {}
        return {job_id: submitted(line) for job_id, line in lines.items()}


def _dealt(whose: Mapping[_One, str]) -> list[_One]:
    """Return the runs whose output is read, or the jobs, at most `MOST`. The users take turns, so
    that each gets as many as the others.

    Args:
        whose: maps each to its user.
    """
    of = dict[str, list[_One]]()
    for run, user in whose.items():
        of.setdefault(user, []).append(run)
    turns = zip_longest(*of.values())
    return list(islice((run for turn in turns for run in turn if run is not None), MOST))


def _to_be_read(job: SlurmJob) -> bool:
    return job.state == "RUNNING" and job.start is not None and _is_open(job)


def _is_open(job: SlurmJob) -> bool:
    """Return whether the job's user has not opted out."""
    return OPTED_OUT not in job.comment.split()


def _array(job: SlurmJob) -> str:
    """Return the number of a job, or of the array whose task it is: they have one script."""
    return job.id.partition("_")[0]


def submitted(line: str) -> list[str]:
    """Return the script with its arguments from a line of sbatch, or what `--wrap` runs. Return all
    words where the options cannot be read, and [] for a line longer than `LONGEST`. The line has
    lost its quotes.
    """
    words = line.split() if len(line) <= LONGEST else []
    wrapped = next((i for i, word in enumerate(words) if word.startswith("--wrap")), None)
    if wrapped is not None:
        first = words[wrapped].partition("=")[2]
        return [*filter(None, [first]), *words[wrapped + 1 :]]
    try:
        return script_of(words[1:])
    except RequestError:
        return words


def filled_in(job: SlurmJob, number: str, path: str) -> str:
    """Return the file that a pattern of `sbatch --output` names for a batch job, or "" where that
    is not known."""
    array, _, task = job.id.partition("_")
    known = {"j": number, "A": array, "a": task, "u": job.user, "x": job.name, "%": "%"}
    known["N"] = job.nodes[0].partition(".")[0] if job.nodes else ""
    parts = _PATTERN.findall(path)
    if "\\" in path or any(not known.get(letter) for _, letter in parts):
        return ""
    return _PATTERN.sub(lambda found: known[found[2]].zfill(int(found[1] or 0)), path)
