"""Options of how a trace is replayed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """Options of how a trace is replayed.

    Attributes:
        durations: source of predicted durations: `own` (the default; the bundle if one is given),
            `helios` or one of `durations.sources`.
        bundle: folder of exported models; None: durations are learned during the replay, and the
            packing models are fitted on simulated pairs.
        seed: seed of fits during the replay; seeds above 0 also move each submit time by a random 0
            to 60 s.
        since: simulate only jobs submitted from then on (seconds since the epoch); estimators may
            learn from jobs that ended before.
        compress: factor on the times between submissions.
        readable: share of the users (of the jobs, if the trace names no users) whose jobs
            report, while they are profiled or run, how long they will run in all.
        readable_error: standard deviation of ln(reported / true) of the time that these jobs have
            left.
        readable_commands: whether the commands of these jobs also state their amount of work.
        loop: open or closed loop, see `pipeline.worlds.closed_loop`; None: that of the track, or
            open.
    """

    durations: str | None = None
    bundle: Path | None = None
    seed: int = 0
    since: float | None = None
    compress: float = 1.0
    loop: str | None = None
    readable: float = 0.0
    readable_error: float = 0.1
    readable_commands: bool = False


AS_IT_IS = Playing()
