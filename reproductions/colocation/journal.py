"""Measurements on disk, one JSON line each, appended and synced as they are made.

Killing the bench loses at most the measurement in progress: a half-written last line is cut off at
the next opening. What was measured, on which device and in which way, is fixed by the header; a
folder is not continued on another machine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from features.given import LARGE, read_given
from profiler.errors import BadOption
from reproductions.colocation.workloads import Config

Sharing = Literal["alone", "time-slicing", "mps"]
NAME = "measurements.jsonl"
SCHEMA = "pellucid.colocate/1"


@dataclass(frozen=True, slots=True)
class Item:
    """What is measured: one configuration alone, or two together, in one mode of sharing."""

    configs: tuple[Config, ...]
    sharing: Sharing = "alone"

    def __str__(self) -> str:
        how = "" if self.sharing != "mps" else " (mps)"
        return " + ".join(map(str, self.configs)) + how


@dataclass(frozen=True, slots=True)
class Measurement:
    """One repeat of one item.

    Attributes:
        rates: true steps per second of each job, in the order of the item's configs.
        usage: field -> mean over the window (`profiler.samplers.FIELDS`), whole GPU, both jobs.
        torch_mem_mib: what torch reserved at most, per job; None on a CPU.
        step_s, step_confidence: step time estimated from outside; solo only.
        outcome: ``ok``, ``does not fit`` (memory) or ``failed``.
    """

    item: Item
    measured_at: str
    seconds: float
    rates: tuple[float, ...] = ()
    usage: dict[str, float] = field(default_factory=dict)
    torch_mem_mib: tuple[float | None, ...] = ()
    step_s: float | None = None
    step_confidence: float | None = None
    outcome: Literal["ok", "does not fit", "failed"] = "ok"
    text: str = ""


def _parse(line: str) -> Measurement:
    raw: dict[str, Any] = json.loads(line)
    configs = tuple(Config(**config) for config in raw["item"]["configs"])
    raw["item"] = Item(configs, raw["item"]["sharing"])
    raw["rates"], raw["torch_mem_mib"] = tuple(raw["rates"]), tuple(raw["torch_mem_mib"])
    return Measurement(**raw)


class Journal:
    """The measurements of one folder."""

    def __init__(self, folder: Path, header: dict[str, Any]) -> None:
        """Open or begin a journal. `header` must equal the stored one.

        Raises:
            BadOption: the folder holds measurements made differently, or a file that is no journal.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.header = {"schema": SCHEMA, **header}
        self.measurements: list[Measurement] = []
        if self.path.exists() and self.path.stat().st_size:
            self._load()
        else:
            self._append(json.dumps(self.header))

    def _load(self) -> None:
        text = read_given(self.path, LARGE)
        whole = text[: text.rfind(b"\n") + 1]
        if len(whole) < len(text):
            with self.path.open("r+b") as file:
                file.truncate(len(whole))
        lines = whole.decode(errors="replace").split("\n")[:-1]
        try:
            stored = dict(json.loads(lines[0])) if lines else {}
        except (ValueError, TypeError):
            raise BadOption(f"{self.path} is no journal of measurements") from None
        for key, value in self.header.items():
            if stored.get(key) != value:
                raise BadOption(
                    f"{self.path} was measured with {key} {stored.get(key)!r}, this is {value!r}; "
                    "choose another folder"
                )
        self.header = stored
        for number, line in enumerate(lines[1:], start=2):
            try:
                self.measurements.append(_parse(line))
            except (ValueError, KeyError, TypeError) as error:
                raise BadOption(
                    f"{self.path}, line {number}: not a measurement ({error})"
                ) from None

    def _append(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def add(self, measurement: Measurement) -> None:
        """Append one measurement to the file on disk, then count it."""
        self._append(json.dumps(asdict(measurement)))
        self.measurements.append(measurement)

    def of(self, item: Item) -> Iterator[Measurement]:
        """Yield every measurement of an item, repeats and failures included."""
        return (m for m in self.measurements if m.item == item)

    def rates(self, item: Item, place: int = 0) -> list[float]:
        """Return the steps per second of one of the item's jobs in every successful repeat."""
        return [m.rates[place] for m in self.of(item) if m.outcome == "ok"]
