"""What jobs use of their GPUs over time, as sampled by this host, whatever they run.

For each attempt a few hundred spans of time are kept. When there are too many, each becomes twice
as long. So the file beside the attempt's output stays at about ten kilobytes; it is removed with
the output.
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
    """What was sampled within a span of time, over all GPUs of a job.

    Attributes:
        index: number of the span in its series.
        samples: number of samples.
        util_pct: mean utilisation of a GPU, percent.
        mem_used_mib: largest memory use of the fullest GPU, MiB.
        power_w: mean power of all GPUs together, watts. None: the driver does not give it.
    """

    index: int
    samples: int = 0
    util_pct: float | None = None
    mem_used_mib: float | None = None
    power_w: float | None = None

    def add(self, other: Span) -> None:
        """Merge another span of the same job into this one: means are weighted by samples, memory
        is the larger.
        """
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
        start: when the first span began, seconds since the epoch.
        gpus: number of its GPUs. step_s: length of a span, seconds.
    """

    start: float
    gpus: int
    step_s: float = EVERY_S
    spans: list[Span] = field(default_factory=list)

    def add(self, at: float, seen: Collection[dict[str, float]]) -> None:
        """Add one sample of each of the attempt's GPUs, taken at `at` (seconds since the epoch)."""
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
        """Return a series from the plain values that `record` returned. Raise ValueError, KeyError
        or TypeError for any other values.
        """
        start, step_s = float(record["start"]), float(record["step_s"])
        spans = [Span(int(i), int(n), *values) for i, n, *values in record["spans"][:MOST]]
        return cls(start, int(record["gpus"]), step_s, spans)


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def read_usage(spool: Path, job_id: str, attempt: int) -> Series | None:
    """Return what an attempt used of its GPUs. Return None where nothing was sampled, or the
    samples were removed.

    Args:
        spool: the backend's folder.
    """
    return kept_usage(spool / "output" / f"{name_of(job_id, attempt)}{SUFFIX}")


def kept_usage(path: Path) -> Series | None:
    """Return the series that a file holds, or None where there is no file, or it cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        return Series.of(json.loads(read_text(path)))
    return None
