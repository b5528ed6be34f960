"""Invented jobs for the tests of trace adapters.

A writer of a format leaves out the fields for which the format has no column. ``raw`` overrides the
text of a value: ``gpus``, ``submit``, ``start``, ``end`` or ``duration``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

BASE = datetime(2023, 3, 30, 20, 0, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Sample:
    """A job that the tests write in a format; times in UTC, whole seconds."""

    job_id: str
    user: str
    vc: str
    gpus: int
    submit: datetime
    start: datetime
    end: datetime
    state: str = "completed"
    raw: Mapping[str, str] = field(default_factory=dict)

    @property
    def duration(self) -> int:
        return max(0, int((self.end - self.start).total_seconds()))

    def with_raw(self, **raw: str) -> Sample:
        return replace(self, raw=raw)


def samples(count: int = 12) -> list[Sample]:
    """Return `count` invented jobs, in the order of submission. If there are more than a few, they
    span two months."""
    states = ("completed", "failed", "cancelled")
    jobs = []
    for i in range(count):
        submit = BASE + timedelta(hours=9 * i, seconds=7 * i)
        start = submit + timedelta(seconds=31 * i)
        end = start + timedelta(seconds=60 + 977 * i)
        gpus = (1, 2, 8, 16)[i % 4]
        jobs.append(
            Sample(
                job_id=str(7000 + i),
                user=f"u{i % 3}",
                vc=f"vc{i % 2}",
                gpus=gpus,
                submit=submit,
                start=start,
                end=end,
                state=states[i % 3],
            )
        )
    return jobs


def clock(when: datetime, zone: str, separator: str = " ") -> str:
    return when.astimezone(ZoneInfo(zone)).strftime(f"%Y-%m-%d{separator}%H:%M:%S")


def rows(header: str, lines: Sequence[Sequence[object]], delimiter: str = ",") -> str:
    body = [delimiter.join(str(value) for value in line) for line in lines]
    return "\n".join(([header] if header else []) + body) + "\n"
