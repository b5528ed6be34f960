"""Following the file a job's output goes to, and the one it may write its progress to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from features.amounts import Amount
from features.given import descriptor
from features.progress import Progress
from profiler.progress.names import MOST_READ, OWN_WORDS
from profiler.progress.names import VARIABLE as VARIABLE
from profiler.progress.reader import Reader

Source = Path | Callable[[], int]  # a file by its name, or what opens it: a descriptor to close


class Tail:
    """A reader of what one job writes.

    Args:
        output: its output; it may not be there yet, and may be emptied at any time.
        own: the file that `names.VARIABLE` names in its environment; None where it names none.
    """

    def __init__(
        self, output: Source, amount: Amount | None = None, own: Source | None = None
    ) -> None:
        self.reader = Reader(amount)
        self._output, self._own = output, own
        self._amount = amount
        self._offset, self.looked_s = 0, 0.0

    def look(self, at: float) -> None:
        """Take in what was written by `at` seconds after the job began."""
        self.looked_s = at
        with contextlib.suppress(OSError):
            file = _opened(self._output)
            try:
                self._read(file, at)
            finally:
                os.close(file)
        if self._own is not None:
            with contextlib.suppress(OSError):
                file = _opened(self._own)
                try:
                    self.reader.words(os.pread(file, OWN_WORDS, 0).decode("utf-8", "replace"), at)
                finally:
                    os.close(file)

    def afresh(self) -> Tail:
        """Return a new reader that starts where the last `look` stopped. Of what this one knows, it
        knows only the amount of training asked for."""
        fresh = Tail(self._output, self._amount, self._own)
        fresh._offset = self._offset
        return fresh

    def asks(self, amount: Amount) -> None:
        """Set the amount of training that the job's command states. Called when the amount becomes
        known after the job began.
        """
        self._amount = amount
        self.reader.asks(amount)

    def progress(self, at: float) -> Progress | None:
        """Return the job's progress with its predicted total duration, `at` seconds after the job
        began. Return None if unknown.
        """
        return self.reader.progress(at)

    def _read(self, file: int, at: float) -> None:
        found = os.fstat(file)
        if found.st_size < self._offset:
            self._offset = 0
        new = found.st_size - self._offset
        begin = max(self._offset, found.st_size - MOST_READ)
        self._offset = found.st_size
        self.reader.feed(os.pread(file, min(new, MOST_READ), begin), at)


def _opened(source: Source) -> int:
    return descriptor(source, follow=False) if isinstance(source, Path) else source()
