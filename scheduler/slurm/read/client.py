"""Runs Slurm's own commands. Each read is a process of its own; writes go to one `scontrol` that
keeps running.

With a controller that does not answer, a command takes nine seconds (22.05). So after a failure no
command is run for a while that grows with each failure, and then each has at most `PATIENCE_S`
seconds until one is answered.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from scheduler.slurm.read import parse
from scheduler.slurm.read.versions import OLDEST, Release, release_in

PATIENCE_S = 5.0
PING_PATIENCE_S = 4.0
TRY_PATIENCE_S = 3.0  # of a question that is asked beside others
READ_PATIENCE_S = 30.0  # a long queue takes its time
MOST_PRINTED = 1024**2  # bytes, against one command
PAUSES_S = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # after a failure
# What Slurm (22.05: slurm_errno.c, auth/munge, the database's client) says when it is not reached:
# whole phrases, in its own case, since a refusal repeats names that users chose.
_UNREACHABLE = re.compile(
    r"Unable to contact slurm controller"
    r"|Communication (?:connection|shutdown) failure"
    r"|Message (?:send|receive) failure"
    r"|Socket timed out on send/recv operation"
    r"|Zero Bytes were transmitted or received"
    r"|Unexpected message received"
    r"|Slurm backup controller in standby mode"
    r"|Controller is in standby mode"
    r"|Problem talking to (?:the )?database"
    r"|failed to open persistent connection to host:"
    r"|Munge (?:encode|decode) failed: "
    r"|Failed to connect to authentication agent"
    r"|Protocol authentication error"
    r"|(?:Invalid authentication credential|Authentication credential invalid)"
    r"|(?:^|: )(?:Connection refused|Connection timed out|Resource temporarily unavailable)(?= |$)"
)
# Times in seconds; the tasks of an array in full, not cut after 64 characters.
_OF_DATABASE = frozenset(("sacct", "sacctmgr"))  # slurmctld answers without it
_PLAIN = {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
_SAFE_WORD = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,:=[]/")


Warn = Callable[..., None]  # called with an event and its named values


def unheard(event: str, **values: object) -> None:
    """Do nothing with a warning. Used where the caller passes no function that logs it."""


class SlurmError(ValueError):
    """Raised when Slurm refuses a command, or the command is not installed, or the accounting
    database does not answer. The message is one line, in Slurm's own words where it gave any."""


class SlurmDown(Exception):
    """Raised when Slurm does not answer. The command may or may not have taken effect."""


class Turns:
    """Prevents commands from being run for a while after Slurm did not answer. The pause grows with
    each failure.

    Args:
        clock: function that returns seconds, which never go back.
        warn: function that is called each time that Slurm did not answer.
    """

    def __init__(self, clock: Callable[[], float], warn: Warn = unheard) -> None:
        self._clock, self._again_at, self._warn = clock, 0.0, warn
        self.failures = 0  # since it last answered

    def left_s(self) -> float:
        return max(0.0, self._again_at - self._clock())

    def failed(self, why: str) -> None:
        pause = PAUSES_S[min(self.failures, len(PAUSES_S) - 1)]
        self.failures, self._again_at = self.failures + 1, self._clock() + pause
        self._warn("slurm_down", why=why, again_in_s=pause)

    def answered(self) -> None:
        self.failures = 0


class Slurm:
    """A client of Slurm that runs Slurm's commands.

    Args:
        environment: variables that are added to the commands' environment (SLURM_CONF).
        show: for a dry run: function that is called with every command that would change something,
            which is then not run.
        clock: function that returns seconds, which never go back; used for the pauses.
        patience_s: seconds to wait for the answer of a command that reads.
        warn: function that is called when Slurm does not answer.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        *,
        show: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = READ_PATIENCE_S,
        warn: Warn = unheard,
    ) -> None:
        self._patience_s = patience_s
        plain = {name: value for name, value in os.environ.items() if not _steers(name)}
        self._environment = {**plain, **(environment or {}), **_PLAIN}
        self._show, self._clock = show, clock
        self._pen: _Pen | None = None
        self._turns = Turns(clock, warn)
        self.reads = 0  # commands that asked the controller for a list

    @property
    def dry(self) -> bool:
        """Whether this is a dry run, in which no command changes anything."""
        return self._show is not None

    # --- reading ------------------------------------------------------------------------------

    def ping(self) -> None:
        """Check that the controller answers, which costs it next to nothing. Raise SlurmDown if it
        does not."""
        try:
            text = self._run(("scontrol", "ping"), PING_PATIENCE_S)
        except SlurmError as error:  # it ends with 1 where none is up
            raise SlurmDown(str(error)) from None
        if " is UP" not in text:
            raise SlurmDown(" ".join(text.split())[:200])

    def ping_database(self) -> None:
        """Check that slurmdbd answers, by a small query. Raise SlurmError if it does not, or
        SlurmDown.
        """
        self._run(("sacctmgr", "-n", "-P", "show", "cluster", "format=cluster"), PING_PATIENCE_S)

    def jobs(self) -> list[parse.SlurmJob]:
        """Return all jobs that the controller knows. Ended jobs are among them for `MinJobAge`
        seconds after their end."""
        return parse.jobs(self.read("squeue", "--json", "-a", "-t", "all"))

    def table(self, columns: str) -> str:
        """Return the output of `squeue -O` for all jobs, with the given columns. The waiting tasks
        of an array are one record."""
        return self.read("squeue", "-h", "-a", "-t", "all", "-O", columns)

    def release(self) -> Release:
        """Return the release of Slurm's commands. Return the oldest known release if they do not
        state it.
        """
        return release_in(self._run(("squeue", "--version"), self._patience_s)) or OLDEST

    def excluded(self, job_id: str = "") -> str:
        """Return the nodes on which waiting jobs (or the given job) must not run, as lines
        ``id|n[1-2]``. Before 24.11, no column of `table` shows them."""
        only = ("-j", word(job_id)) if job_id else ()
        return self.read("squeue", "-h", "-a", "-t", "PD", *only, "-o", "%i|%x")

    def detail(self, job_id: str) -> str:
        """Return what `scontrol` prints about one job, including its GPUs on each node. Users can
        forge parts of this text."""
        return self._run(("scontrol", "-a", "show", "job", "-d", word(job_id)), PATIENCE_S)

    def outputs(self, job_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
        """Return, for each of these jobs, its number and the file to which its output goes. Parts
        of the name that are filled in at the start (``%j``) are left as the user wrote them.

        Raise SlurmError where Slurm refuses, also if one of the jobs is over.
        """
        mark = secrets.token_hex(8)  # users name the files
        columns = f"JobArrayID:|{mark}|,JobID:|{mark}|,STDOUT:|{mark}."
        jobs = ",".join(map(word, job_ids))
        text = self.read("squeue", "-h", "-a", "-j", jobs, "-O", columns)
        rows = (row.split(f"|{mark}|") for row in text.split(f"|{mark}.\n")[:-1])
        return {job_id: (number, path) for job_id, number, path in rows}

    def tried(
        self, options: Sequence[str], user: str = "", patience_s: float = TRY_PATIENCE_S
    ) -> str:
        """Return what `sbatch --test-only` prints for a job with these options. No job is
        submitted.

        Slurm judges the job with the rights of this account, or of `user`, for whom only root may
        ask. Return "" where it does not answer in time, or this account may not ask for that user.
        """
        whose: tuple[str, ...] = ()
        if user and user != _own_name():
            if os.geteuid():
                return ""
            whose = (f"--uid={user}", "--chdir=/")  # not all may read this folder
        command = ("sbatch", "--test-only", *whose, *options, "--wrap", "true")
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=patience_s,
                check=False,
            )
        except (subprocess.TimeoutExpired, OSError):
            return ""
        return f"{done.stdout}\n{done.stderr}"  # it answers as if that were an error

    def script(self, job_id: str) -> str:
        """Return the script of a batch job; "" where this account may not see it, or there is
        none. Raise SlurmDown where Slurm does not answer.
        """
        try:
            return self.read("scontrol", "write", "batch_script", word(job_id), "-")
        except SlurmError:
            return ""

    def submit_lines(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return the command line that submitted each job, by job id, from the accounting database.
        Quotes are lost. Jobs that the database does not know are left out; all are where it does
        not answer.
        """
        mark = secrets.token_hex(8)  # users write the lines, and line ends within
        which = "-j", ",".join(map(word, job_ids)), f"--delimiter={mark}", "-o", "JobID,SubmitLine"
        try:
            text = self.read("sacct", "-n", "-P", "-X", *which)
        except (SlurmDown, SlurmError):  # no accounting, or a release without this field
            return {}
        found: dict[str, list[str]] = {}
        lines: list[str] = []
        for row in text.splitlines():
            job_id, starts, line = row.partition(mark)
            if starts:
                lines = found[job_id] = []
            lines.append(line if starts else row)
        return {job_id: "\n".join(lines) for job_id, lines in found.items()}

    def nodes(self) -> list[parse.Node]:
        return parse.nodes(self.read("scontrol", "-a", "show", "nodes", "-d", "-o"))

    def read(self, *command: str) -> str:
        """Run a Slurm command that only reads, and return its output. Raise SlurmDown where Slurm
        does not answer, or did not a short while ago, and SlurmError where the command fails."""
        self.reads += 1
        return self._run(command, self._patience_s)

    # --- changing -----------------------------------------------------------------------------

    def write(self, lines: Sequence[str]) -> list[str]:
        """Run commands of `scontrol` in order. Return for each the error that it printed, "" for
        none. In a dry run, only show them.

        Raise SlurmDown where Slurm does not answer; some of the commands, from the first on, may
        have been carried out. Raise SlurmError for a command of several lines.
        """
        if self._show is not None:
            for line in lines:
                self._show(f"scontrol {line}")
            return [""] * len(lines)
        self._wait_for_turn()
        found = []
        try:
            self._pen = self._pen or _Pen(self._environment)
            for line in lines:
                error = self._pen.write(line)
                if unreachable(error):
                    raise SlurmDown(error)
                found.append(error)
        except SlurmDown as down:
            self._put_down()
            self._turns.failed(str(down))
            raise
        self._turns.answered()
        return found

    # --- processes ----------------------------------------------------------------------------

    def _run(self, command: Sequence[str], patience_s: float) -> str:
        self._wait_for_turn()
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                env=self._environment,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=patience_s if self._turns.failures == 0 else PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            if command[0] in _OF_DATABASE:
                raise SlurmError(f"{command[0]}: no answer within {patience_s:g} s") from None
            self._turns.failed(f"{command[0]}: no answer")
            raise SlurmDown(f"{command[0]}: no answer within {patience_s:g} s") from None
        except FileNotFoundError:
            raise SlurmError(f"{command[0]}: no such command; is Slurm installed here?") from None
        if done.returncode == 0:
            self._turns.answered()
            return done.stdout
        problem = " ".join(done.stderr.split()) or _ended(command[0], done.returncode)
        # a command that Slurm hangs up on while it writes is ended by this signal, without a word
        cut_off = done.returncode == -signal.SIGPIPE
        if cut_off and command[0] not in _OF_DATABASE:
            self._turns.failed(problem)
            raise SlurmDown(problem)
        if unreachable(problem) and command[0] not in _OF_DATABASE:
            self._turns.failed(problem)
            raise SlurmDown(problem)
        raise SlurmError(problem.removeprefix(f"{command[0]}: error: "))

    def _wait_for_turn(self) -> None:
        """Raise SlurmDown during the pause after Slurm did not answer, so that it is not asked too
        often."""
        if self._turns.left_s():
            raise SlurmDown("no recent answer")

    def _put_down(self) -> None:
        if self._pen is not None:
            self._pen.close()
            self._pen = None

    def close(self) -> None:
        self._put_down()


class _Pen:
    """A running `scontrol` that reads commands from stdin.

    It prints nothing for a command that succeeds, and writes errors to stderr, unbuffered. After
    each command it is given an unknown word, so that the error about this word marks the end of the
    command's own output.
    """

    def __init__(self, environment: Mapping[str, str]):
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                ["scontrol"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=dict(environment),
                bufsize=0,
            )
        except FileNotFoundError:
            raise SlurmError("scontrol: no such command; is Slurm installed here?") from None
        self._written = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._pipe("stderr"), selectors.EVENT_READ)

    def _pipe(self, name: str) -> Any:
        return getattr(self._process, name)

    def write(self, line: str) -> str:
        """Run one command. Return the error that it printed, "" for none. Raise SlurmDown where
        Slurm does not answer, and SlurmError for a command of several lines."""
        if "\n" in line or "\0" in line:
            raise SlurmError("a command of scontrol is one line")
        self._written += 1
        mark = f"end-of-{self._written}"
        try:
            self._pipe("stdin").write(f"{line}\n{mark}\n".encode())
        except OSError:
            raise SlurmDown("scontrol is gone") from None
        return self._until(f"invalid keyword: {mark}\n".encode())

    def _until(self, end: bytes) -> str:
        printed, until = bytearray(), time.monotonic() + PATIENCE_S
        sought = 0  # no `end` begins before
        while printed.find(end, sought) < 0:
            left_s = until - time.monotonic()
            if left_s <= 0 or len(printed) > MOST_PRINTED or not self._selector.select(left_s):
                raise SlurmDown("scontrol: no answer")
            sought = max(0, len(printed) - len(end) + 1)
            part = os.read(self._pipe("stderr").fileno(), 65536)
            if not part:
                raise SlurmDown("scontrol is gone")
            printed += part
        return " ".join(printed.replace(end, b"").decode("utf-8", "replace").split())

    def close(self) -> None:
        self._selector.close()
        self._process.kill()
        self._pipe("stdin").close()
        self._pipe("stderr").close()
        self._process.wait()


def quoted(text: str) -> str:
    """Return a text in quotes, as a value in a command line for `scontrol` (which keeps the
    quotes)."""
    plain = "".join(c if c.isprintable() and c not in "\"'\\" else "_" for c in text)
    return f'"{plain[:500]}"'


def word(text: str) -> str:
    """Return a word for a command line, unchanged. Raise SlurmError for an empty one, and for one
    that Slurm could read as an option or as more than one word."""
    if not text or text.startswith("-") or not set(text) <= _SAFE_WORD:
        raise SlurmError(f"{text[:40]!r} is no name that can be given to scontrol")
    return text


def to_stdout(line: str) -> None:
    """Print a command that a dry run does not carry out."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _ended(command: str, code: int) -> str:
    """Return how a command ended that printed nothing of it, as text."""
    if code >= 0:
        return f"exit code {code}"
    return f"{command} was ended by {signal.Signals(-code).name}"


def unreachable(printed: str) -> bool:
    """Return whether the text that a command printed says that Slurm cannot be reached."""
    return _UNREACHABLE.search(printed) is not None


def _own_name() -> str:
    """Return the user name of this process's account; "" where it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def _steers(name: str) -> bool:
    """Return whether an environment variable with this name changes what Slurm's commands do."""
    return name.startswith(("SBATCH_", "SQUEUE_", "SINFO_", "SALLOC_", "SCANCEL_")) or (
        name.startswith("SLURM_") and name != "SLURM_CONF"
    )
