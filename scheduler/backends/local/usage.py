"""What jobs use of their GPUs over time: sampled by this host, whatever they run.

Of an attempt a few hundred spans are kept, each twice as long as before whenever there are too
many: a file of ten kilobytes beside its output, and removed with it.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from features.given import read_text
from scheduler.backends.local.spool import name_of

EVERY_S = 10.0  # from sample to sample
MOST = 240  # spans of an attempt
SUFFIX = ".usage"
MEASURES = ("util_pct", "mem_used_mib", "power_w")


@dataclass(slots=True)
class Span:
    """What was seen within a span of time, of all GPUs of a job.

    Attributes:
        util_pct: of a GPU, on average. mem_used_mib: of the fullest GPU, at most.
        power_w: of all together, on average. None: the driver does not say.
        samples: that it is of.
    """

    index: int
    samples: int = 0
    util_pct: float | None = None
    mem_used_mib: float | None = None
    power_w: float | None = None

    def add(self, other: Span) -> None:
        """Merge another span into this one."""
        both = self.samples + other.samples
        for name in ("util_pct", "power_w"):
            mine, its = getattr(self, name), getattr(other, name)
            if mine is None or its is None:
                setattr(self, name, its if mine is None else mine)
            else:
                mean = (mine * self.samples + its * other.samples) / both
                setattr(self, name, mean)
        seen = [v for v in (self.mem_used_mib, other.mem_used_mib) if v is not None]
        self.mem_used_mib, self.samples = max(seen, default=None), both


@dataclass(slots=True)
class Series:
    """What an attempt used since it was first sampled.

    Attributes:
        start: of the first span, seconds since the epoch. step_s: length of a span.
    """

    start: float
    gpus: int
    step_s: float = EVERY_S
    spans: list[Span] = field(default_factory=list)

    def add(self, at: float, seen: Collection[dict[str, float]]) -> None:
        """Take in a sample of each of its GPUs."""
        of = {name: [one[name] for one in seen if name in one] for name in MEASURES}
        util, memory, power = (of[name] for name in MEASURES)
        index = max(0, int((at - self.start) // self.step_s))
        span = Span(
            max(index, self.spans[-1].index if self.spans else 0),
            samples=1,
            util_pct=sum(util) / len(util) if util else None,
            mem_used_mib=max(memory, default=None),
            power_w=sum(power) if power else None,
        )
        self._put(span)
        while self.spans[-1].index >= MOST:
            spans, self.spans, self.step_s = self.spans, [], 2 * self.step_s
            for one in spans:
                one.index //= 2
                self._put(one)

    def _put(self, span: Span) -> None:
        if self.spans and self.spans[-1].index == span.index:
            self.spans[-1].add(span)
        else:
            self.spans.append(span)

    def record(self) -> dict[str, object]:
        """Return the series as plain values, in the form of its file."""
        rows = [
            [one.index, one.samples, *(_short(getattr(one, name)) for name in MEASURES)]
            for one in self.spans
        ]
        return {"start": self.start, "gpus": self.gpus, "step_s": self.step_s, "spans": rows}

    @classmethod
    def of(cls, record: Any) -> Series:
        """Return the series of the plain values that `record` returned. Raises ValueError,
        KeyError or TypeError."""
        start, step_s = float(record["start"]), float(record["step_s"])
        spans = [Span(int(i), int(n), *values) for i, n, *values in record["spans"][:MOST]]
        return cls(start, int(record["gpus"]), step_s, spans)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def read_usage(spool: Path, job_id: str, attempt: int) -> Series | None:
    """Return what an attempt used; None: nothing was sampled, or it is gone.

    Args:
        spool: the backend's folder.
    """
    return kept_usage(spool / "output" / f"{name_of(job_id, attempt)}{SUFFIX}")


def kept_usage(path: Path) -> Series | None:
    """Return what a file holds; None: there is none, or it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Series.of(json.loads(read_text(path)))
    return None
