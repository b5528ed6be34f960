"""Options of how a trace is played."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Playing:
    """The options by which a trace is played.

    Attributes:
        durations: `own` (the default; the bundle when one is given), `helios` or one of
            `durations.sources`.
        bundle: exported models; without one, durations are learned online and the packing
            models are fitted on simulated pairs.
        seed: seed of online fits; above 0 also of the submit times, which move by U(0, 60) s.
        since: simulate only jobs submitted from then on (seconds since the epoch); what ended
            before is history that estimators may learn from.
        compress: multiplies submit times.
        readable: share of the users whose jobs state, once profiled, how long they will have run.
        readable_error: standard deviation of ln(stated / true) of the time that these have left.
        readable_commands: the commands of these jobs state how much they do, too.
        loop: see `pipeline.worlds.closed_loop`; None: as the track has it, else open.
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
