"""What passes between a service and the process that reads for it.

To the reader: a packet of JSON, with the open files that it is about. From the reader: one record
of fixed length, numbers only, and the last line of an ended job as a text of bounded length. The
reader has read what tenants wrote, so it may say anything: what is no such record is refused.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import astuple, dataclass
from math import isfinite
from zlib import crc32

from features.amounts import Work
from features.plain import plain
from features.progress import Progress
from profiler.progress import table
from profiler.progress.names import COMPLAINTS, DOUBTED, SOURCES, UNITS

PACKET = 65_536  # bytes of a request; of what is larger, the files hold it
LONGEST_LINE = 300  # characters
_RECORD = struct.Struct("<I6B9d")
MOST_ANSWER = _RECORD.size + 4 * LONGEST_LINE
_BLANK = (0.0,) * 7
_DIGEST = re.compile(r"[0-9a-f]{16}")


class NoAnswer(ValueError):
    """Raised where data is not an answer that a reader could give."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of the reader process to one request.

    Attributes:
        number: number of the request.
        failed: the job's output could not be read, and the job is forgotten.
        progress: the new progress; None: no change.
        beside: the job's pace beside another job is being measured. False: its pace alone is not
            known, or nobody asked for that.
        speed: the job's speed relative to alone by that measurement; None: not known yet.
        complaint: what the last lines of the output say about memory.
        line: the last line, for display only.
        cpu_s: processor seconds spent on the request.
    """

    number: int
    failed: bool = False
    progress: Progress | None = None
    beside: bool = False
    speed: float | None = None
    complaint: str = ""
    line: str = ""
    cpu_s: float = 0.0


def sources() -> tuple[str, ...]:
    """Return the names of the formats that progress can be read by: those shipped here, then those
    of the site.
    """
    return (*SOURCES, *(row.name for row in table.own()))


def greeting() -> bytes:
    """Return the first message of a reader, with a checksum of the names of the formats it knows.
    The service refuses a reader with another checksum, whose numbers would mean other formats here.
    """
    return b"ready %08x" % crc32("\n".join(sources()).encode())


def packed(answer: Answer) -> bytes:
    """Return the answer of the reader process as bytes, in the format that it sends."""
    one, speed = answer.progress, answer.speed
    flags = answer.failed | (one is not None) << 1 | answer.beside << 2 | (speed is not None) << 3
    places = 0, 0, 0
    values = _BLANK
    if one is not None:
        doubts = sum(1 << i for i, name in enumerate(DOUBTED) if name in one.doubts.split())
        places = UNITS.index(one.unit), sources().index(one.source), doubts
        values = (one.total_s, one.low_s, one.high_s, one.done, one.of, one.unit_s, one.at_s)
    record = _RECORD.pack(
        answer.number,
        flags,
        *places,
        COMPLAINTS.index(answer.complaint),
        0,
        *values,
        0.0 if speed is None else speed,
        answer.cpu_s,
    )
    return record + answer.line[:LONGEST_LINE].encode("utf-8", "replace")


def unpacked(data: bytes) -> Answer:
    """Return the answer that bytes hold. Raises NoAnswer where a sound reader would not send
    them.
    """
    if not _RECORD.size <= len(data) <= MOST_ANSWER:
        raise NoAnswer(f"{len(data)} bytes")
    number, flags, unit, source, doubts, complaint, blank, *values = _RECORD.unpack_from(data)
    line = plain(" ".join(data[_RECORD.size :].decode("utf-8", "replace").split()))[:LONGEST_LINE]
    *values, speed, cpu_s = values
    known = complaint < len(COMPLAINTS) and doubts < 1 << len(DOUBTED) and not blank
    known = known and unit < len(UNITS) and source < len(sources()) and flags < 16
    if not known or not all(map(isfinite, (*values, speed, cpu_s))) or cpu_s < 0:
        raise NoAnswer("a value that there is not")
    progress = None
    if flags & 2:
        names = " ".join(name for i, name in enumerate(DOUBTED) if doubts >> i & 1)
        progress = _progress(values, UNITS[unit], sources()[source], names)
    if flags & 8 and not 0.0 <= speed <= 1.0:
        raise NoAnswer("a speed that there is not")
    return Answer(
        number=number,
        failed=bool(flags & 1),
        progress=progress,
        beside=bool(flags & 4),
        speed=speed if flags & 8 else None,
        complaint=COMPLAINTS[complaint],
        line=line,
        cpu_s=cpu_s,
    )


def _progress(values: list[float], unit: str, source: str, doubts: str) -> Progress:
    total, low, high, done, of, unit_s, at = values
    if not (0.0 <= low <= total <= high <= 1e15 and 0.0 <= at <= 1e15 and 0.0 <= unit_s <= 1e15):
        raise NoAnswer("times that there are not")
    return Progress(
        total_s=total,
        low_s=low,
        high_s=high,
        done=done,
        of=of,
        unit=unit,
        unit_s=unit_s,
        at_s=at,
        source=source,
        doubts=doubts,
    )


def line_of(work: Work | None) -> str:
    """Return the amount of work of a command as the line of an answer; "" for None."""
    return "" if work is None else json.dumps(astuple(work))


def work_in(line: str) -> Work | None:
    """Return the amount of work that the line of an answer tells; None where it tells none that a
    sound reader could."""
    try:
        unit, amount, batch, *digests = json.loads(line)
        numbers = [float(one) for one in (amount, batch) if one is not None]
        fits = unit in ("epoch", "step") and amount is not None and len(digests) == 3
        fits = fits and all(0.0 < one <= 1e12 for one in numbers)
        if not fits or not all(map(_DIGEST.fullmatch, digests)):
            return None
        return Work(unit, numbers[0], numbers[1] if numbers[1:] else None, *digests)
    except (ValueError, TypeError, RecursionError):
        return None
