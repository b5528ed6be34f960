"""Answers that are put together from more than one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from shlex import quote
from typing import Annotated, Any

from pydantic import Field

from scheduler.service.log.store.reads import JobRow, Standing, StartForecastRow


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Start and end (seconds since the epoch), and the reason to wait, in one possible world."""

    start_p10: Annotated[float | None, Field(description="In one of ten.")] = None
    start_p50: Annotated[float | None, Field(description="It starts by then in half.")] = None
    start_p90: Annotated[float | None, Field(description="In nine of ten.")] = None
    end_p50: Annotated[float | None, Field(description="It ends by then in half.")] = None
    end_p90: Annotated[float | None, Field(description="In nine of ten.")] = None
    position: Annotated[int | None, Field(description="Place in line, from 1.")] = None
    reason: Annotated[str, Field(description="Reason code of its waiting; empty: none.")] = ""
    why_not: Annotated[str, Field(description="Why there is no estimate.")] = ""

    @classmethod
    def of(cls, body: Mapping[str, Any] | None) -> Foreseen | None:
        """The part of the analyst's answer that is about the job asked about, and no other."""
        if body is None:
            return None
        return cls(**{name: body[name] for name in cls.__slots__ if name in body})


@dataclass(frozen=True, slots=True)
class ForecastAnswer:
    """Forecasts of a job. None: none was made yet."""

    at_submission: StartForecastRow | None
    latest: StartForecastRow | None


@dataclass(frozen=True, slots=True)
class Moved:
    """A job of the asker's that would start later or earlier."""

    job_id: str
    by_s: Annotated[float, Field(description="Seconds later; earlier: below 0.")]


@dataclass(frozen=True, slots=True)
class OthersMoved:
    """Jobs of others that would start later or earlier."""

    later: Annotated[int, Field(description="Jobs that would start later.")] = 0
    earlier: Annotated[int, Field(description="Jobs that would start earlier.")] = 0
    later_s: Annotated[float, Field(description="Seconds later, in all.")] = 0.0
    earlier_s: Annotated[float, Field(description="Seconds earlier, in all.")] = 0.0


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """A job as it is and as it would be, in the same futures."""

    job_id: str
    changes: Annotated[dict[str, Any], Field(description="What was to be different.")]
    now: Annotated[Foreseen | None, Field(description="As it is.")] = None
    then: Annotated[Foreseen | None, Field(description="As it would be.")] = None
    words: Annotated[str, Field(description="The change, as the beginning of a sentence.")] = ""
    starts_now: Annotated[bool, Field(description="The core, tried, starts it at once.")] = False
    gain_s: Annotated[
        float | None, Field(description="Seconds it starts earlier, p50 beside p50.")
    ] = None
    earlier: Annotated[int | None, Field(description="Futures in which it starts earlier.")] = None
    futures: Annotated[int, Field(description="Futures the figures rest on.")] = 0
    moved: Annotated[
        list[Moved], Field(description="Other jobs of the asker's that would move.")
    ] = field(default_factory=list)
    others_moved: Annotated[
        OthersMoved | None, Field(description="Jobs of others that would move, counted.")
    ] = None
    not_examined: Annotated[int | None, Field(description="Jobs whose start was not forecast.")] = (
        None
    )
    assumed: Annotated[list[str], Field(description="What was taken for granted, in words.")] = (
        field(default_factory=list)
    )
    unavailable: Annotated[str, Field(description="Why there is no answer; empty: there is.")] = ""
    command: Annotated[
        str, Field(description="What does it, and keeps the place; empty: nothing does.")
    ] = ""

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
            command=command_of(job_id, changes),
            **{name: answer[name] for name in plain if name in answer},
        )


_OPTIONS = {
    "gpus": "--gpus {}", "time_limit_s": "--time-limit {}", "vc": "--vc {}",
    "gpu_type": "--gpu-type {}", "share": "--{}share", "profile": "--{}profile",
}  # fmt: skip


def command_of(job_id: str, changes: Mapping[str, Any]) -> str:
    """The command that makes a change to a waiting job; "" when none does."""
    if not changes or changes.keys() - _OPTIONS.keys():
        return ""
    words = []
    for name, value in changes.items():
        given = ("" if value else "no-") if isinstance(value, bool) else quote(str(value))
        if isinstance(value, float):
            given = f"{value:g}"
        words.append(_OPTIONS[name].format(given))
    return f"pellucid change {job_id} {' '.join(words)}"


@dataclass(frozen=True, slots=True)
class JobChange:
    """What was asked of a waiting job.

    Attributes:
        changes: what is different; empty: nothing.
        needed: it was not so already. applied: False for a preview.
        effect: of a preview: what the analyst foresees.
    """

    job_id: str
    changes: dict[str, Any]
    needed: bool
    applied: bool
    effect: WhatIfAnswer | None = None


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
