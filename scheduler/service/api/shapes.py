"""Answers that are put together from more than one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scheduler.service.store.reads import Forecast, JobRow, Standing


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Start and end (seconds since the epoch), and the reason to wait, in one possible world."""

    start_p50: float | None = None
    start_p90: float | None = None
    end_p50: float | None = None
    end_p90: float | None = None
    position: int | None = None
    reason: str = ""
    why_not: str = ""

    @classmethod
    def of(cls, body: Mapping[str, Any] | None) -> Foreseen | None:
        """The part of the analyst's answer that is about the job asked about, and no other."""
        if body is None:
            return None
        return cls(**{name: body[name] for name in cls.__slots__ if name in body})


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """Forecasts of a job. None: none was made yet."""

    at_submission: Forecast | None
    latest: Forecast | None


@dataclass(frozen=True, slots=True)
class Moved:
    """A job of the asker's that would start later (earlier: below 0), seconds."""

    job_id: str
    by_s: float


@dataclass(frozen=True, slots=True)
class OthersMoved:
    """How many jobs of others would start later and earlier, and by how much in all, seconds."""

    later: int = 0
    earlier: int = 0
    later_s: float = 0.0
    earlier_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """A job as it is and as it would be. `unavailable` says why there is no estimate.

    Attributes:
        words: the change, as the beginning of a sentence.
        starts_now: the core starts it at once (tried).
        gain_s: median seconds won; earlier: number of futures in which it starts earlier.
        futures: how many the figures rest on; not_examined: jobs whose move was not looked at.
        assumed: what had to be assumed, in words.
    """

    job_id: str
    changes: dict[str, Any]
    now: Foreseen | None = None
    then: Foreseen | None = None
    words: str = ""
    starts_now: bool = False
    gain_s: float | None = None
    earlier: int | None = None
    futures: int = 0
    moved: list[Moved] = field(default_factory=list)
    others_moved: OthersMoved | None = None
    not_examined: int | None = None
    assumed: list[str] = field(default_factory=list)
    unavailable: str = ""

    @classmethod
    def of(cls, job_id: str, changes: dict[str, Any], answer: Mapping[str, Any]) -> WhatIfAnswer:
        """The analyst's answer; of it only what is known to be for the asker."""
        others = answer.get("others_moved")
        plain = ("words", "starts_now", "gain_s", "earlier", "futures", "not_examined", "assumed")
        return cls(
            job_id,
            changes,
            now=Foreseen.of(answer.get("now")),
            then=Foreseen.of(answer.get("then")),
            moved=[Moved(one["job_id"], one["by_s"]) for one in answer.get("moved", ())],
            others_moved=OthersMoved(**others) if others else None,
            unavailable=str(answer.get("unavailable", "")),
            **{name: answer[name] for name in plain if name in answer},
        )


@dataclass(frozen=True, slots=True)
class PriorityEffect:
    """What another priority does to a job.

    Attributes:
        overtakes: places won; below 0: lost.
        effect: what the analyst foresees, with the reason before and after; only of a preview.
    """

    job_id: str
    priority_before: int
    priority_after: int
    applied: bool
    before: Standing | None
    after: Standing | None
    overtakes: int
    effect: WhatIfAnswer | None = None

    @classmethod
    def of(
        cls,
        job: JobRow,
        priority: int,
        before: Standing | None,
        after: Standing | None,
        effect: WhatIfAnswer | None,
        *,
        applied: bool,
    ) -> PriorityEffect:
        won = before.position - after.position if before and after else 0
        return cls(job.job_id, job.priority, priority, applied, before, after, won, effect)
