"""What jobs print, read by a process of its own (`profiler.progress.process`).

A service asks here and parses nothing: a thread has the files copied (`features.aside`), so that a
file system that hangs keeps nobody waiting, and hands the copies to the reader, which answers with
numbers. A job whose output kills the reader, or takes more than its share of processor time, is
read no more; it runs on, and `Followed.unread` says so.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from features.amounts import Work
from features.aside import Aside, Hangs
from features.progress import Progress
from profiler import environment
from profiler.progress import names, table
from profiler.progress.wire import MOST_ANSWER, Answer, NoAnswer, greeting, unpacked, work_in

COPIED = "features.aside:copied"
MAIN = "import profiler.progress.process as p; p.main()"
BURST_S, SHARE = 2.0, 0.01  # processor time that may be spent on a job: at once, and of its time
END_S = 1.0  # who ends waits so long for another reader
WAIT_S = 60.0  # for an answer, which takes a second of processor time at most
AGAIN_S, LONGEST_S = 0.5, 60.0  # before another reader is called, doubled each time; at most
MOST_SCRIPT = 2**20 - 65_536

OVERSPENT = "reading it takes more than its share of processor time"
ENDED_READER = "reading it ended the process that reads"
NOT_READ = "what it prints cannot be read"
HANGS = "its files lie where nothing answers"
NO_READER = "the process that reads it has ended, and is not back yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """An output to be read, and what is known of its job.

    Attributes:
        output: file that the job prints to.
        own: the job's file of progress, which `profiler.progress.names.VARIABLE` names in its
            environment.
        uid: user that `own` must belong to; None: any user may own it.
        whose: `output` must belong to that user, too.
        command, script: what runs; the reader finds there how much it asks for.
        arguments: arguments of the script.
        amount: how much it is to do, by files that its command names.
    """

    output: Path
    own: Path | None = None
    uid: int | None = None
    whose: bool = False
    command: Sequence[str] = ()
    script: str = ""
    arguments: Sequence[str] = ()
    amount: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """What the output of an ended job showed; empty if it could not be read. `progress` is None,
    too, where it is no news since the last report."""

    progress: Progress | None = None
    complaint: str = ""
    line: str = ""


@dataclass(frozen=True, slots=True)
class Worked:
    """What came of a script that was to be read.

    Attributes:
        work: the amount that it asks for; None where that is not known.
        asked: there was a process that could be asked. False: it may be asked another time.
        ended: the script ended that process.
        spent_s: processor time that an answer took.
    """

    work: Work | None
    asked: bool = True
    ended: bool = False
    spent_s: float = 0.0


@dataclass(slots=True)
class _Task:
    what: str
    job: Followed
    at: float = 0.0
    for_s: float = 0.0
    asked_at: float = field(default_factory=time.monotonic)
    done: Callable[[Answer | None], None] = lambda _: None


class Reading:
    """Reads all outputs for one service, in a process that starts when first needed."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._tasks: deque[_Task] = deque()
        self._busy = self._closed = False
        self._thread: Thread | None = None
        self._reader: _Reader | None = None
        self._aside = Aside()
        self._again_at, self._pause_s = 0.0, AGAIN_S
        self._number = 0

    def warm(self) -> None:
        """Start the reading process now, so that the first to ask need not wait for it."""
        if self._thread is None:
            self.put(_Task("warm", self.follow(Asked(output=Path(os.devnull)))))

    def follow(self, asked: Asked) -> Followed:
        """Return a handle that reads one job's output from now on."""
        self._number += 1
        return Followed(self, self._number, asked)

    def work(self, asked: Asked, done: Callable[[Worked], None]) -> None:
        """Have the script and command of a job read. In another thread, `done` is called with what
        came of it."""
        job = self.follow(asked)

        def answered(answer: Answer | None) -> None:
            work = None if answer is None else work_in(answer.line)
            ended = answer is None and job.refused in (OVERSPENT, ENDED_READER)
            done(Worked(work, asked=job.unread != NO_READER, ended=ended, spent_s=job.spent_s))

        self.put(_Task("work", job, done=answered))

    @property
    def pid(self) -> int | None:
        """Return the id of the reading process; None if there is none."""
        reader = self._reader
        return None if reader is None else reader.process.pid

    @property
    def pauses(self) -> bool:
        """Return whether the process has ended and none is started for now."""
        return self._reader is None and time.monotonic() < self._again_at

    def settle(self, patience_s: float) -> bool:
        """Wait until every question is answered. Return False where that took too long."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._tasks or self._busy), patience_s)

    def close(self) -> None:
        """End the process. Open questions stay unanswered."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(5.0)  # by then it has waited for a file that hangs
            self._aside.close()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.end()

    def put(self, task: _Task) -> None:
        """Queue a task for the reading process, behind those queued before; an "end" goes before
        all others. After `close`, do nothing."""
        with self._changed:
            if self._closed:
                return
            if task.what == "end":  # somebody waits for it
                self._tasks.appendleft(task)
            else:
                self._tasks.append(task)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = Thread(target=self._work, name="reading", daemon=True)
                self._thread.start()

    # --- in its thread ------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._tasks or self._closed)
                if self._closed:
                    return
                task, self._busy = self._tasks.popleft(), True
            answer = None
            try:
                answer = self._do(task)
            except Exception:  # a defect of ours: whatever else is asked is answered all the same
                task.job.unread = NOT_READ
                logging.getLogger("pellucid.reading").exception("not_read %s", task.what)
            finally:
                task.done(answer)
                with self._changed:
                    self._busy = False
                    self._changed.notify_all()

    def _do(self, task: _Task) -> Answer | None:
        job = task.job
        if task.what == "drop":
            if self._reader is not None and job.reader is self._reader:
                self._ask(task, {})
            return None
        reader = self._called(END_S if task.what == "end" else 0.0)
        if reader is None:
            job.unread = NO_READER
            return None
        if task.what == "warm":
            return None
        if task.what == "work":
            return self._known(job, "work")
        if job.reader is not reader:
            if self._known(job, "follow") is None:
                return None
            job.reader = reader
        with contextlib.ExitStack() as stack:
            files, hangs = _copied(self._aside, job.asked)
            for file in files.values():
                stack.callback(os.close, file)
            answer = self._ask(task, files)
        job.hangs = HANGS if hangs else ""
        return answer

    def _known(self, job: Followed, what: str) -> Answer | None:
        """Send the reader process the data of a job that it does not know yet. Return its answer,
        or None if it does not answer.

        Args:
            what: "follow" its output, or find the "work" that it asks for.
        """
        asked = job.asked
        known = {
            "command": list(asked.command),
            "script": asked.script[:MOST_SCRIPT],
            "arguments": list(asked.arguments),
            "amount": dict(asked.amount),
            "own": asked.own is not None,
            "terms": list(names.TERMS),
        }
        file = os.memfd_create("asked", os.MFD_CLOEXEC)
        try:
            with open(file, "wb", closefd=False) as into:
                into.write(json.dumps(known).encode())
            return self._ask(_Task(what, job), {"asked": file})
        finally:
            os.close(file)

    def _ask(self, task: _Task, files: Mapping[str, int]) -> Answer | None:
        """Return the reader's answer. None where it gave none; `job.unread` then says why."""
        reader, job = self._reader, task.job
        assert reader is not None
        asked: dict[str, Any] = {"do": task.what, "job": job.number}
        asked |= {"at": task.at, "for": task.for_s}
        asked["then"] = task.asked_at
        answer = reader.ask(asked, files)
        if answer is None:
            job.refused = job.unread = OVERSPENT if reader.overspent else ENDED_READER
            self._again_at = time.monotonic() + self._pause_s
            self._pause_s = min(LONGEST_S, 2 * self._pause_s)
            self._reader = None
            return None
        job.spent_s += answer.cpu_s
        if answer.failed:
            job.refused = job.unread = NOT_READ
            return None
        self._pause_s = AGAIN_S
        return answer

    def _called(self, patience_s: float) -> _Reader | None:
        """Return the reader, a new one where it has died. None where none can be started within
        `patience_s`: after each death the pause before the next is twice as long."""
        if self._reader is not None and self._reader.process.poll() is None:
            return self._reader
        early_s = self._again_at - time.monotonic()
        if early_s > patience_s:
            return None
        time.sleep(max(0.0, early_s))
        self._reader = _Reader.called()
        if self._reader is None:
            self._again_at = time.monotonic() + LONGEST_S
        return self._reader


class Followed:
    """Reads one job's output: asks the reading process, and returns its answer at a later call.

    Attributes:
        unread: why it, or one of its files, is not read by now; "" while all is read.
        refused: why it is never read again; "" where it may be.
        hangs: why not all of its files were read at the last look; "" where they were.
        spent_s: processor time that was spent on it.
    """

    def __init__(self, reading: Reading, number: int, asked: Asked) -> None:
        self.number, self.asked = number, asked
        self.reader: _Reader | None = None  # that knows of it
        self.unread = self.refused = self.hangs = ""
        self.spent_s = 0.0
        self.ended: Ended | None = None
        self._reading = reading
        self._news: deque[Progress] = deque(maxlen=1)
        self._due_s, self._waits = 0.0, False

    def look(self, at_s: float) -> Progress | None:
        """Ask for the job's progress, if it is time to. Return what is new since the last answer,
        or None.

        Args:
            at_s: seconds since it began.
        """
        if at_s >= self._due_s and not self._waits and self.affordable(at_s):
            self._due_s = at_s + min(names.MOST_S, names.EVERY * at_s)
            self._waits = True
            self._reading.put(_Task("look", self, at_s, done=self._looked))
        with contextlib.suppress(IndexError):
            return self._news.pop()
        return None

    def affordable(self, at_s: float) -> bool:
        """Return whether the job's output may be read now; if not, set `unread` to the reason."""
        if self.refused:
            return False
        over = self.spent_s > BURST_S + SHARE * at_s
        if over:
            self.unread = OVERSPENT
        return not over

    def end(self, at_s: float, done: Callable[[], None]) -> None:
        """Have the last lines of an ended job read. When `ended` is set, `done` is called in
        another thread; at once, with an empty `ended`, for a job that is never read again.
        """

        def heard(answer: Answer | None) -> None:
            found = answer or Answer(0)
            self.ended = Ended(found.progress, found.complaint, found.line)
            done()

        if self.refused:
            self.ended = Ended()
            done()
        else:
            self._reading.put(_Task("end", self, at_s, done=heard))

    def beside(self, at_s: float, for_s: float) -> Paced:
        """Return a measurement, lasting `for_s`, of the pace at which the job goes on beside
        another.
        """
        return Paced(self._reading, self, at_s, for_s)

    def drop(self) -> None:
        """Stop reading this job."""
        self._reading.put(_Task("drop", self))

    def _looked(self, answer: Answer | None) -> None:
        self._waits = False
        if answer is not None:
            self.unread = self.hangs
            if answer.progress is not None:
                self._news.append(answer.progress)


class Paced:
    """Measures the pace of one job beside another, against its pace alone.

    Attributes:
        until_s: when enough was seen, seconds since it began.
        settled: `speed` will not change any more.
    """

    def __init__(self, reading: Reading, job: Followed, at_s: float, for_s: float) -> None:
        self.until_s, self.settled = at_s + for_s, False
        self._reading, self._job = reading, job
        self._speed: float | None = None
        self._waits = True
        if job.refused:
            self.settled = True
        else:
            reading.put(_Task("beside", job, at_s, for_s, done=self._begun))

    def speed(self, at_s: float) -> float | None:
        """Return the job's speed relative to alone, at most 1, by the last answer. Return None
        where none came yet, or it does not tell.
        """
        if not self._waits and not self.settled:
            self._waits = True

            def seen(answer: Answer | None) -> None:
                self._waits = False
                self._speed = None if answer is None else answer.speed
                self.settled = answer is None or at_s >= self.until_s

            self._reading.put(_Task("speed", self._job, at_s, done=seen))
        return self._speed

    def _begun(self, answer: Answer | None) -> None:
        self._waits = False
        self.settled = answer is None or not answer.beside


class _Reader:
    """A process that reads outputs, and the socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], line: socket.socket) -> None:
        self.process, self._line = process, line
        line.settimeout(WAIT_S)
        self._number = 0

    @classmethod
    def called(cls) -> _Reader | None:
        """Start a reader process and return it. Return None if no process can be started, or if its
        first message is not the expected one.
        """
        root = str(Path(__file__).resolve().parents[2])
        boot = f"import sys; sys.path.insert(0, {root!r}); {MAIN}"
        table.own.cache_clear()  # the reader reads the file again
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        number = its.fileno()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", boot, str(number), str(os.getpid())],
                pass_fds=(number,),
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env=environment.scrubbed(os.environ, _formats()),
            )
        except OSError:
            ours.close()
            return None
        finally:
            its.close()
        reader = cls(process, ours)
        if reader._received() != greeting():  # the site's formats are others by now, too
            reader.end()
            return None
        return reader

    @property
    def overspent(self) -> bool:
        """Return whether the process ended by taking more processor time than a request may."""
        return self.process.returncode == -signal.SIGPROF

    def ask(self, asked: Mapping[str, Any], files: Mapping[str, int]) -> Answer | None:
        """Send a request to the reader process and return its answer. If the process died or
        answers wrongly, end it and return None.
        """
        self._number = (self._number + 1) % 2**32
        request = json.dumps({**asked, "number": self._number, "files": list(files)})
        try:
            socket.send_fds(self._line, [request.encode()], [*files.values()])
            found = unpacked(self._received())
            if found.number == self._number:
                return found
        except (OSError, NoAnswer):
            pass
        self.end()
        return None

    def end(self) -> None:
        """End the process, if it has not ended."""
        self._line.close()
        try:
            self.process.wait(0.5)  # by itself, since nobody can ask it any more
        except subprocess.TimeoutExpired:
            self.process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)

    def _received(self) -> bytes:
        try:
            return self._line.recv(MOST_ANSWER + 1)
        except OSError:
            return b""


def _formats() -> list[str]:
    """Return the environment variable that names the site's formats, in a list; [] if it is not
    set.
    """
    return [table.VARIABLE] if table.VARIABLE in os.environ else []


def _copied(aside: Aside, asked: Asked) -> tuple[dict[str, int], bool]:
    """Return descriptors of copies of a job's files that exist, by name: its output and its own
    report; and whether one lies where nothing answers. Files of another user are left out where the
    owner matters.
    """
    found, hangs = dict[str, int](), False
    for name, path, whose, most in (
        ("output", asked.output, asked.whose, names.MOST_READ),
        ("own", asked.own, True, names.OWN_WORDS),
    ):
        if path is None:
            continue
        uid = asked.uid if whose else None
        given = str(path), most, name == "output", uid
        try:
            found[name] = aside.ask(COPIED, *given, whose=uid, place=str(path.parent))
        except Hangs:
            hangs = True
        except OSError:
            pass
    return found, hangs
