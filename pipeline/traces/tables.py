"""The base class of adapters that read one delimited file with one job per line."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from features.schema import State
from pipeline.traces.base import Adapter, Batch, MeteredFile, Options, TraceError, head
from pipeline.traces.cast import localise, states
from pipeline.traces.check import Draft
from pipeline.traces.delimited import Column, Layout, layout_for, parse, split_header
from pipeline.traces.text import Block, blocks


class TableAdapter(Adapter):
    """Base class of formats with a header line and one job on each further line.

    A subclass names its columns, and computes the fields of the schema from them in ``convert``.

    Class attributes:
        columns: the columns to read.
        delimiter: the character between columns.
        states: the source's names of states -> states of the schema.
    """

    columns: ClassVar[tuple[Column, ...]]
    delimiter: ClassVar[str] = ","
    states: ClassVar[Mapping[str, State]] = {}

    def sniff(self, path: Path) -> float:
        """Return how sure the adapter is that it can read the file, 0 to 1, by its header line: 0
        unless every required column is there, and more if more of the columns are known."""
        names = split_header(head(path).split(b"\n", 1)[0], self.delimiter)
        if not names or any(c.required and c.source not in names for c in self.columns):
            return 0.0
        known = {column.source for column in self.columns}
        return 0.5 + 0.5 * sum(name in known for name in names) / len(names)

    def layout(self, names: list[str], path: Path) -> Layout:
        """Return the layout for parsing a file with these column names."""
        return layout_for(names, self.columns, f"{path.name} as {self.name}", self.delimiter)

    def read(self, path: Path, options: Options) -> Iterator[Batch]:
        with options.meter.open(path) as file:
            yield from self._read(file, path, options)

    def _read(self, file: MeteredFile, path: Path, options: Options) -> Iterator[Batch]:
        layout: Layout | None = None
        for block in blocks(file):
            if layout is None:
                header, block = split_first_line(block)
                layout = self.layout(split_header(header, self.delimiter), path)
            if block.data:
                frame = parse(block, layout, path.name)
                draft = Draft.of(frame, path.name, block.text)
                if self.line_ids:
                    ids = [f"line-{line}" for line in draft.lines.tolist()]
                    draft.columns["job_id"] = pa.array(ids, pa.string())
                self.convert(draft, options)
                yield draft.batch()
        if layout is None:
            raise TraceError(f"{path.name}: is empty")

    @abstractmethod
    def convert(self, draft: Draft, options: Options) -> None:
        """Replace the parsed columns of ``draft`` by the fields of the schema, in place."""

    def map_states(self, draft: Draft) -> None:
        """Replace the column ``state`` of ``draft`` by states of the schema, using the mapping
        ``states``. Unknown ones give warnings."""
        draft.columns["state"], odd = states(draft.columns["state"], self.states)
        draft.warnings.update(odd)

    def localise(self, draft: Draft, zone: str, *names: str, after: Any = None) -> None:
        """Convert the columns `names` of clock times to UTC, in place. Where a clock change makes a
        time ambiguous, choose the time that is not before the one in the previous column (for the
        first column, in `after`)."""
        previous = after
        for name in names:
            if name in draft.columns:
                times, moved = localise(draft.columns[name], zone, previous)
                draft.columns[name] = previous = times
                draft.warnings["clock_change_time"] += moved


def split_first_line(block: Block) -> tuple[bytes, Block]:
    """Return (first line that is not blank, rest of the block); both are empty if all lines are
    blank."""
    data, line = block.data, block.first_line
    while data:
        first, _, data = data.partition(b"\n")
        line += 1
        if first.strip():
            return first, Block(data, line)
    return b"", Block(b"", line)
