"""Converts the output of ``sacct --json`` to the text that ``sacct --parsable2`` prints, one line
per job.

It reads the layouts of Slurm 22.05 to 23.02 (plain numbers, one state) and of 23.11 and later
(numbers with a flag whether they are set, lists of states). Times in the text are in UTC.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

from pipeline.traces.base import TraceError
from pipeline.traces.sacct_records import BAR

COLUMNS = (
    "JobID", "JobIDRaw", "JobName", "SubmitLine", "User", "Account", "Cluster", "Partition", "QOS",
    "Reservation", "Reason", "Priority", "Flags", "Submit", "Eligible", "Start", "End",
    "ElapsedRaw", "TimelimitRaw", "ExitCode", "NNodes", "NodeList", "ReqTRES", "AllocTRES", "State",
)  # fmt: skip
_JOBS = re.compile(rb'"jobs"\s*:\s*\[')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[{}]', re.DOTALL)  # a text that is cut is one, too
_NEXT = re.compile(rb'\}\s*,\s*(?=\{\s*"account"\s*:)')  # every job begins with its account
_GAP = re.compile(rb"[\s,]*")
CHUNK = 4 << 20
MOST = 64 << 20  # bytes of one job
AFTER = 1 << 20  # beyond its end, among which the rest of a cut text is
_UNLIMITED = 0xFFFFFFFE
_WORD = re.compile(r"[^,=|\s]{1,80}")


class Readable(Protocol):
    """A binary file that can be read."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, b"" at the end."""


def is_json(head: bytes) -> bool:
    """Return whether a file that begins with these bytes is a JSON object."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{"


def is_sacct(head: bytes) -> bool:
    """Return whether a JSON file that begins with these bytes is an output of sacct."""
    return is_json(head) and any(
        mark in head for mark in (b'"allocation_nodes"', b"dbv0.0.", b'"submission"')
    )


class SacctText:
    """The JSON output of sacct, which can be read as lines of text: a header, then one line for
    each job.

    A job that cannot be read becomes a line with its first bytes, which no reader accepts as a job.

    Reading raises TraceError if the file has no list of jobs, or ends before or within the
    first of them. A later job that is cut off becomes such a line, too."""

    def __init__(self, file: Readable, name: str) -> None:
        self._lines = _lines(file, name)

    def readline(self, _: int = -1, /) -> bytes:
        """Return the next line, b"" at the end."""
        return next(self._lines, b"")

    def read(self, size: int, rest_of_line: int = 0) -> bytes:
        """Return whole lines, of `size` bytes or a few more in all; b"" at the end."""
        found, length = list[bytes](), 0
        while length < size and (line := self.readline()):
            found.append(line)
            length += len(line)
        return b"".join(found)


def _lines(file: Readable, name: str) -> Iterator[bytes]:
    yield "|".join(COLUMNS).encode() + b"\n"
    for raw, job in _Jobs(file, name):
        try:
            fields = _fields(job)
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError):
            start = b" ".join(raw[:400].split())[:200]
            yield start.replace(b"|", b" ") + b"\n"
        else:
            yield "|".join(fields[name] for name in COLUMNS).encode("utf-8", "replace") + b"\n"


class _Jobs:
    """Yields (text, value) for each job in the list of jobs; the value is None if it cannot be
    read."""

    def __init__(self, file: Readable, name: str) -> None:
        self._file, self._name = file, name
        self._data, self._at, self._over = b"", 0, False

    def __iter__(self) -> Iterator[tuple[bytes, Any]]:
        self._begin()
        read = 0
        while True:
            gap = _GAP.match(self._data, self._at)
            self._at = gap.end() if gap else self._at
            if self._at == len(self._data):
                if not self._more():
                    if not read:
                        raise self._is_cut("before")
                    return
                continue
            if self._data[self._at : self._at + 1] == b"]":
                return
            end, job = self._next()
            if job is None and not read and self._over and end == len(self._data):
                raise self._is_cut("within")
            read += 1
            raw = self._data[self._at : end]
            self._at = end
            yield raw, job

    def _is_cut(self, where: str) -> TraceError:
        return TraceError(
            f"{self._name} as sacct: this JSON ends {where} its first job: it was cut, or its disk "
            "was full; make the dump again with sacct --json"
        )

    def _begin(self) -> None:
        """Move to the first job of the file. Raises TraceError if there is no list of jobs."""
        while (found := _JOBS.search(self._data)) is None:
            if len(self._data) > MOST or not self._more():
                raise TraceError(f'{self._name} as sacct: this JSON has no list "jobs"')
        self._at = found.end()

    def _next(self) -> tuple[int, Any]:
        """Return (position where the present job's object ends, its value). If the object is cut
        off or never ends, return (position where the next object begins, None)."""
        while len(self._data) - self._at <= MOST:
            end = _end(self._data, self._at)
            job = None if end is None else _read(self._data[self._at : end])
            if end is not None and job is not None:
                return end, job
            if end is not None and len(self._data) - end > AFTER:
                break  # more of the file does not mend it
            if not self._more():
                break
        while (following := _NEXT.search(self._data, self._at + 1)) is None:
            if len(self._data) - self._at > MOST or not self._more():
                return len(self._data), None
        return following.start() + 1, None

    def _more(self) -> bool:
        """Read one more chunk of the file. Return False if the file has ended."""
        more = b"" if self._over else self._file.read(CHUNK)
        self._data, self._at = self._data[self._at :] + more, 0
        self._over = not more
        return bool(more)


def _end(data: bytes, at: int) -> int | None:
    """Return the position after the object that begins at byte `at`; None if it does not end within
    `data`."""
    depth = 0
    for token in _TOKEN.finditer(data, at):
        if token[0] == b"{":
            depth += 1
        elif token[0] == b"}":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _read(raw: bytes) -> Any:
    """Return the value of a JSON object; None if the bytes are no JSON."""
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:  # what is none was written as Latin-1, as far as can be known
        text = raw.decode("latin-1")
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None


# --- fields --------------------------------------------------------------------------------------


def _fields(job: Mapping[str, Any]) -> dict[str, str]:
    """Return the columns of a job as text, by sacct's name. Raises LookupError, TypeError,
    ValueError or AttributeError if `job` does not have the layout of a job."""
    times, tres, state = job["time"], job.get("tres") or {}, _state(job["state"]["current"])
    association = job.get("association") or {}
    raw = str(int(job["job_id"]))
    return {
        "JobID": _job_id(raw, job),
        "JobIDRaw": raw,
        "JobName": _free(job.get("name")),
        "SubmitLine": _free(job.get("submit_line")),
        "User": _plain(job.get("user") or association.get("user")),
        "Account": _plain(job.get("account") or association.get("account")),
        "Cluster": _plain(job.get("cluster")),
        "Partition": _plain(job.get("partition")),
        "QOS": _plain(job.get("qos")),
        "Reservation": _plain((job.get("reservation") or {}).get("name")),
        "Reason": _plain(job["state"].get("reason")),
        "Priority": _number(job.get("priority")),
        "Flags": ",".join(_plain(flag) for flag in job.get("flags") or ()),
        "Submit": _moment(times["submission"]),
        "Eligible": _moment(times.get("eligible")),
        "Start": _moment(times.get("start")),
        "End": _moment(times.get("end")),
        "ElapsedRaw": _number(times.get("elapsed")),
        "TimelimitRaw": _number(times.get("limit"), none="UNLIMITED"),
        "ExitCode": _exit_code(job.get("exit_code"), state),
        "NNodes": _number(job.get("allocation_nodes")),
        "NodeList": _plain(job.get("nodes")),
        "ReqTRES": _tres(tres.get("requested")),
        "AllocTRES": _tres(tres.get("allocated")),
        "State": state,
    }


def _job_id(raw: str, job: Mapping[str, Any]) -> str:
    array, het = job.get("array") or {}, job.get("het") or {}
    of_array, of_het = _number(array.get("job_id")), _number(het.get("job_id"))
    if of_array not in ("", "0"):
        if task := _number(array.get("task_id")):
            return f"{of_array}_{task}"
        waits = array.get("task")
        if isinstance(waits, str) and re.fullmatch(r"[\d,%:-]+", waits):
            return f"{of_array}_[{waits}]"
    if of_het not in ("", "0"):
        return f"{of_het}+{_number(het.get('job_offset')) or 0}"
    return raw


def _number(value: Any, none: str = "") -> str:
    """Return a whole number as text: "" if it is not set, `none` if it is unlimited."""
    if isinstance(value, Mapping):
        if value.get("infinite"):
            return none
        value = value["number"] if value.get("set", True) else None
    if value is None or isinstance(value, bool) or value == "":
        return ""
    if isinstance(value, float) and value == float("inf"):
        return none
    whole = int(value)
    return none if whole >= _UNLIMITED and none else str(whole)


def _moment(value: Any) -> str:
    seconds = _number(value)
    if seconds in ("", "0"):
        return "Unknown"
    return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%S")


def _state(current: Any) -> str:
    """Return a job's state in one word. If there are several states, it is REQUEUED if that is
    among them (so ended this run, not the job), otherwise the first."""
    words = [current] if isinstance(current, str) else list(current)
    return _plain("REQUEUED" if "REQUEUED" in words else words[0])


def _exit_code(code: Any, state: str) -> str:
    """Return ``status:signal`` of a job. Return "" for 0:0 of a job that did not complete: release
    22.05 writes 0:0 for failed jobs."""
    code = code or {}
    status, signal = _number(code.get("return_code")) or "0", code.get("signal") or {}
    number = _number(signal.get("signal_id", signal.get("id"))) or "0"
    if status == number == "0" and state != "COMPLETED":
        return ""
    return f"{status}:{number}"


def _tres(found: Any) -> str:
    """Return TRES as sacct prints them: ``cpu=4,gres/gpu=2,mem=1000M``."""
    parts = []
    for one in found or ():
        kind, name, count = one["type"], one.get("name") or "", _number(one.get("count"))
        word = f"{kind}/{name}" if name else str(kind)
        if count and _WORD.fullmatch(word):
            parts.append(f"{word}={count}{'M' if kind == 'mem' else ''}")
    return ",".join(parts)


def _free(value: Any) -> str:
    """Return text that a user wrote as one line, with bars replaced, because a bar separates
    columns."""
    return " ".join(_string(value).split()).replace("|", BAR)


def _plain(value: Any) -> str:
    return " ".join(_string(value).split()).replace("|", "_")


def _string(value: Any) -> str:
    """Return a text that can be written as UTF-8, with halves of surrogate pairs replaced. Return
    "" if `value` is no text."""
    text = value if isinstance(value, str) else ""
    return text.encode("utf-8", "replace").decode()
