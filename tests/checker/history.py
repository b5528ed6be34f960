"""A history, by what its records are about."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

Entry = Mapping[str, Any]
OVER = ("ended", "cancelled", "refused", "lost")
STARTS = ("start", "pack")


class History:
    """The records, sorted."""

    def __init__(self, records: Iterable[Entry]):
        self.records = list(records)
        self.by: dict[str, list[Entry]] = defaultdict(list)
        for one in self.records:
            self.by[one["what"]].append(one)
        self.begins: Entry = self.by["begins"][0] if self.by["begins"] else {}
        self.calls, self.log = self.by["call"], self.by["log"]
        self.began, self.ended = self.by["began"], self.by["ended"]
        self.final: dict[str, Entry] = {one["job_id"]: one for one in self.by["final"]}
        self.cause: dict[int, int] = {
            one["seq"]: one["cause"] for one in self.log if one["kind"] == "decided"
        }
        self.decisions = [one for one in self.by["decision"] if one["event"] in self.cause]

    def events(self, job: str, *kinds: str) -> list[Entry]:
        """Of a job, in the order of the log."""
        return [e for e in self.log if e["job"] == job and e["kind"] in kinds]

    def accepted(self, *ops: str) -> list[Entry]:
        """Calls that were answered well."""
        return [
            call
            for call in self.calls
            if call["op"] in ops and call["status"] is not None and 200 <= call["status"] < 300
        ]

    def starts(self) -> list[tuple[Entry, int]]:
        """Decisions that give a job GPUs to run, each with the last event its pass knew of."""
        return [(d, self.cause[d["event"]]) for d in self.decisions if d["action"] in STARTS]
