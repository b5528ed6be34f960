"""The base class of trace adapters, and the records that they return."""

from __future__ import annotations

import hashlib
import re
import zoneinfo
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import IO, BinaryIO, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from features.given import opened
from pipeline.traces.packed import BROKEN, SeveralFiles, unpacked

MAX_TEXT = 500
HEAD_BYTES = 64 << 10

REJECTS_SCHEMA = pa.schema(
    [
        pa.field("source", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        # 1-based line (or line on which the element starts) in that file
        pa.field("source_line", pa.int64(), nullable=False),
        pa.field("reason", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        # the row as it was written, cut to MAX_TEXT characters
        pa.field("text", pa.string(), nullable=False),
    ]
)


class TraceError(ValueError):
    """Raised for a trace that cannot be read with the given options. The message is one line for
    the user."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


@dataclass(frozen=True, slots=True)
class Reject:
    """A row of a trace that describes no job and is refused: its file, line number, the reason and
    its text."""

    source: str
    line: int
    reason: str
    text: str


@dataclass(slots=True)
class Batch:
    """The jobs and other rows that an adapter read from one block of a source (a trace's file).

    ``rows == len(jobs) + len(rejects) + sum(skipped.values())`` holds for every batch.

    Attributes:
        rows: number of rows of the source that this batch covers.
        jobs: table in ``TRACE_SCHEMA``, in source order.
        rejects: rows that are wrong and refused.
        skipped: number of valid rows that stand for no job of their own, by kind (steps, tasks of a
            job).
        warnings: number of doubtful values that were kept, by code of the warning.
        text: function that returns the raw text of a job's row, given its ``source_line``.
        source: name of the file the jobs came from.
    """

    rows: int
    jobs: pa.Table
    rejects: list[Reject]
    skipped: Mapping[str, int]
    warnings: Mapping[str, int]
    text: Callable[[int], str]
    source: str


@dataclass(slots=True)
class SourceFile:
    """A source file that was read: its name, and the size in bytes and the SHA-256 of its
    decompressed content."""

    name: str
    size: int = 0
    sha256: str = ""


@dataclass(slots=True)
class Meter:
    """Opens the files of a source, counts the bytes read, and computes each file's digest in the
    same pass."""

    progress: Callable[[int], None] | None = None
    files: list[SourceFile] = field(default_factory=list)
    done: int = 0

    @contextmanager
    def open(self, path: Path) -> Iterator[MeteredFile]:
        """Open a file and yield its content, decompressed. Once it is closed, its size and digest
        are in ``files``.

        The rest that the reader did not read is read at the end, so the digest is that of the whole
        content.
        """
        with _readable(path) as raw, _unpacked(raw, path) as content:
            metered = MeteredFile(content, self, path)
            yield metered
            while metered.read(1 << 20):
                pass
        self.files.append(SourceFile(path.name, metered.size, metered.digest.hexdigest()))


class MeteredFile:
    """A binary file that counts the bytes read from it and computes their digest."""

    def __init__(self, raw: IO[bytes], meter: Meter, path: Path) -> None:
        self._raw = raw
        self._path = path
        self._meter = meter
        self.size = 0
        self.digest = hashlib.sha256()

    def read(self, size: int, rest_of_line: int = 0) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end of the file.

        With ``rest_of_line``, also return up to so many bytes more, to the end of the last line.

        Raises TraceError if the file cannot be decompressed.
        """
        try:
            data = self._raw.read(size)
            if rest_of_line and data and not data.endswith(b"\n"):
                data += self._raw.readline(rest_of_line)
        except BROKEN as error:
            raise TraceError(f"{self._path.name}: cannot be unpacked ({error})") from None
        self.digest.update(data)
        self.size += len(data)
        self._meter.done += len(data)
        if self._meter.progress is not None:
            self._meter.progress(self._meter.done)
        return data


@dataclass(frozen=True, slots=True)
class Options:
    """The options for reading a source.

    Attributes:
        timezone: time zone of the source's clock times, an IANA name or ``+HH:MM``.
        origin: the time of offset 0, for formats whose times are offsets.
        meter: opens the source's files, and counts what is read.
        zone_declared, origin_declared: whether the user gave zone and origin, or they are the
            format's defaults.
        without_gpus: whether jobs without GPUs are kept.
    """

    timezone: str
    origin: datetime
    meter: Meter
    zone_declared: bool = False
    origin_declared: bool = False
    without_gpus: bool = False


class Adapter(ABC):
    """Base class of the readers of trace formats, one subclass per format.

    Rules for subclasses, tested by ``pipeline.testing.AdapterConformance``:

    - ``sniff`` looks at the head of a file (or at a directory) and answers how sure it is that
      ``read`` understands it: 0 no, 1 certain. It never raises on content.
    - ``read`` yields batches in source order, holding one block in memory at a time.
    - Jobs come in ``TRACE_SCHEMA`` exactly, times in UTC; a null means the source does not say.
    - Every row of the source is accounted for: it is a job, a reject with line and reason, or
      skipped and counted by kind. Nothing else disappears.
    - A wrong row never stops the rest. A wrong file raises ``TraceError``, and nothing else.
    - ``version`` is raised whenever the same source would give other rows.

    Class attributes:
        name: what ``--format`` takes.
        title: one line for a person.
        timezone: zone assumed when none is given; None when times carry their zone or are
            offsets, so that none applies.
        origin: instant that offset 0 stands for when none is given; None when times are dates.
        line_ids: the format has no job ids and the line number stands in.
        advice: what to do when no row is a job, by the reason most were refused for.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    title: ClassVar[str]
    timezone: ClassVar[str | None] = None
    origin: ClassVar[datetime | None] = None
    line_ids: ClassVar[bool] = False
    advice: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def sniff(self, path: Path) -> float:
        """Return how sure this adapter is that it can read the file ``path``, from 0 (it cannot) to
        1."""

    @abstractmethod
    def read(self, path: Path, options: Options) -> Iterator[Batch]:
        """Read ``path`` block by block, and yield the batches. The class names the rules for
        them.

        Raises:
            TraceError: the file as a whole is not in this format.
        """

    def files(self, path: Path) -> list[Path]:
        """Return the files that ``read`` opens, so that the caller can tell how much there is to
        read."""
        return [path]

    def options(
        self,
        timezone: str | None = None,
        origin: datetime | None = None,
        meter: Meter | None = None,
    ) -> Options:
        """Return options for reading a source, with this format's defaults for those that are None.

        Raises:
            TraceError: the zone is unknown, or zone or origin do not apply to this format.
        """
        if timezone is not None and self.timezone is None:
            raise TraceError(
                f"timezone: {timezone!r} given, but times of format {self.name} need none"
            )
        if origin is not None and self.origin is None:
            raise TraceError(f"origin: given, but times of format {self.name} are dates")
        zone = check_zone(timezone or self.timezone or "UTC")
        start = origin or self.origin or datetime(1970, 1, 1, tzinfo=UTC)
        declared = (timezone is not None, origin is not None)
        return Options(zone, start, meter or Meter(), *declared)


def check_zone(zone: str) -> str:
    """Return ``zone`` if it is a known time zone: an IANA name or ``+HH:MM``. Raise ``TraceError``
    otherwise."""
    try:
        if not re.fullmatch(r"[+-](0\d|1[0-4]):[0-5]\d", zone):
            zoneinfo.ZoneInfo(zone)
        # Arrow looks zones up for itself, and may not find what Python finds.
        pc.assume_timezone(pa.array([0], pa.timestamp("ms")), zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise TraceError(
            f"timezone: {zone!r} is not known; give an IANA name such as Asia/Shanghai,"
            " or an offset such as +08:00"
        ) from None
    return zone


def zone_of(zone: str) -> tzinfo:
    """Return the time zone of this name as Python's tzinfo. Raise ``TraceError`` if it is not
    known."""
    name = check_zone(zone)
    if name[0] in "+-":
        return datetime.strptime(name, "%z").tzinfo or UTC
    return zoneinfo.ZoneInfo(name)


@contextmanager
def _readable(path: Path) -> Iterator[BinaryIO]:
    with ExitStack() as stack:
        try:
            file = stack.enter_context(opened(path))
        except OSError as error:
            raise TraceError(f"{path}: cannot be read ({error.strerror})") from error
        yield file


@contextmanager
def _unpacked(raw: BinaryIO, path: Path) -> Iterator[IO[bytes]]:
    with ExitStack() as stack:
        try:
            content = stack.enter_context(unpacked(raw, path))
        except SeveralFiles as error:
            raise TraceError(str(error)) from None
        except BROKEN as error:
            raise TraceError(f"{path.name}: cannot be unpacked ({error})") from None
        yield content


def head(path: Path) -> bytes:
    """Return the first bytes of a file (at most `HEAD_BYTES`), decompressed, without a byte
    order mark. Return b"" if the file cannot be read."""
    try:
        with opened(path) as file, unpacked(file, path) as content:
            return content.read(HEAD_BYTES).removeprefix(b"\xef\xbb\xbf")
    except (*BROKEN, SeveralFiles):
        return b""


def shorten(text: str) -> str:
    """Return text cut to `MAX_TEXT` characters, the most that the quarantine (file of refused rows)
    keeps of a row."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def rejects_table(rejects: list[Reject]) -> pa.Table:
    """Return refused rows as a table in ``REJECTS_SCHEMA``."""
    label = REJECTS_SCHEMA.field("reason").type
    return pa.table(
        [
            pa.array([r.source for r in rejects], label),
            pa.array([r.line for r in rejects], pa.int64()),
            pa.array([r.reason for r in rejects], label),
            pa.array([shorten(r.text) for r in rejects], pa.string()),
        ],
        schema=REJECTS_SCHEMA,
    )


def add(total: Counter[str], part: Mapping[str, int]) -> None:
    """Add the counts of `part` to `total`, leaving out those that are zero."""
    total.update({key: count for key, count in part.items() if count})
