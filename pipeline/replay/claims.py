"""What a replay may state about other policies: by how much waiting would change, between which
bounds.

A replay differs from a second run of the site by chance (two runs of the same Slurm differ, too),
by errors of the replay, and by what was not recorded. So a saving is an interval. It covers replays
with different seeds, counts against the record as well as against the replay of Slurm's own
schedule, and is widened by the errors of replays of sites with a known truth (docs/replay.md). For
a part of the site (such as a partition) that the replay gets wrong by a large factor, nothing is
stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.replay.figures import PARTS
from pipeline.student import bound
from pipeline.tables import Floats, floats, groups
from scheduler.core.plural import count
from scheduler.explain.words import duration

COVERED = 0.9
# A part is refused where the waits replayed are so many times those recorded, or the reverse.
FACTOR = 2.0
# Waits shorter than this say nothing by their ratio (s).
SHORT_S = 60.0
# Of the waits compared: how far replays of sites with a known truth were off beside chance.
WRONG = 0.15
# Fewer jobs than this are no part of their own.
FEWEST = 10
# A part of whose jobs fewer ended in a replay is stated nothing of: those that never started waited
# longest, and are in no mean.
ENDED = 0.9


@dataclass(frozen=True, kw_only=True)
class Saving:
    """The change of the mean wait of some jobs under a policy, compared with the base: Slurm's
    own schedule, or plain backfill if that is not replayed.

    Attributes:
        low_s, high_s: 90 % interval of the seconds that a job waits less, on average; below 0: it
            waits more.
        shorter: number of replays, out of `draws`, in which the jobs waited less than under the
            base.
    """

    low_s: float
    high_s: float
    shorter: int
    draws: int

    @property
    def which(self) -> str:
        """Return whether jobs wait ``less`` or ``more`` than under the base. Return ``unclear``
        if the interval of the saved wait contains 0."""
        return "less" if self.low_s > 0 else "more" if self.high_s < 0 else "unclear"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The statement of a replay about a part of the site (a partition, a number of GPUs, a user),
    or about the whole site.

    Attributes:
        by, name: the column of the record that defines the part, and its value; both "" for the
            whole site.
        recorded_s, replayed_s: mean wait as recorded, and over the replays of the base (see
            `Saving`).
        chance_s: seconds by which a single replay may differ from `replayed_s` by chance, nine
            times in ten; None with one replay.
        refused: why nothing is stated about the part; "" if something is.
        savings: key of a variant (a policy with its settings) -> its saving.
    """

    by: str
    name: str
    jobs: int
    recorded_s: float
    replayed_s: float
    chance_s: float | None
    refused: str
    savings: Mapping[str, Saving]

    def plain(self) -> Mapping[str, Any]:
        """Return the claim with its savings as plain JSON."""
        named = {
            key: {**asdict(saving), "which": saving.which} for key, saving in self.savings.items()
        }
        return {**asdict(self), "savings": named}


def claims(
    record: pa.Table, found: Mapping[str, Sequence[Mapping[str, Any]]], base: str | None
) -> list[Claim]:
    """Return the statements about the whole site first, then about partitions, numbers of GPUs
    and users with at least `FEWEST` jobs. Return [] if `base` is None, or if no job is
    compared.

    Args:
        record: the recorded jobs that are compared.
        found: variant -> results of `figures.of_replay`, one per replay.
        base: the variant that savings are counted against (see `Saving`); None: there is none.

    The statement about the whole leaves out the partitions about which nothing is stated. If
    these are all, there is no statement about the whole."""
    if base is None or not len(record):
        return []
    wait = floats(record["wait_s"])
    parts: list[Claim] = []
    for by in PARTS:
        for name, rows in sorted(groups(record[by]).items(), key=lambda part: -len(part[1])):
            if len(rows) >= FEWEST:
                draws = {key: _draws(cells, f"by_{by}", name) for key, cells in found.items()}
                parts.append(_claim(by, name=str(name), wait=wait[rows], draws=draws, base=base))
    refused = {part.name for part in parts if part.by == "vc" and part.refused}
    kept = {name: rows for name, rows in groups(record["vc"]).items() if name not in refused}
    if not kept:
        return parts
    rows = np.concatenate(list(kept.values()))
    weights = {name: len(at) for name, at in kept.items()}
    whole = {key: _whole(cells, weights) for key, cells in found.items()}
    return [_claim(by="", name="", wait=wait[rows], draws=whole, base=base), *parts]


def _draws(cells: Sequence[Mapping[str, Any]], by: str, name: Any) -> Floats:
    """Return the mean wait of a part of the jobs (those of one user, say) in each replay, an array
    (replays,); NaN where fewer than `ENDED` of its jobs ended.

    Args:
        cells: figures of the replays.
        by: key of the kind of part, such as `by_user`.
        name: name of the part.
    """
    found = [
        cell[by].get(name, np.nan) if cell[f"ended_{by}"].get(name, 0.0) >= ENDED else np.nan
        for cell in cells
    ]
    return np.array(found, float)


def _whole(cells: Sequence[Mapping[str, Any]], weights: Mapping[Any, int]) -> Floats:
    """Return the mean wait of the jobs of some partitions in each replay, an array (replays,); NaN
    where fewer than `ENDED` of them ended.

    Args:
        cells: figures of the replays.
        weights: the number of jobs of each partition.
    """

    def of(by: str, absent: float) -> Floats:
        return np.array([[cell[by].get(name, absent) for cell in cells] for name in weights], float)

    many = np.array(list(weights.values()), float)[:, None]
    ended = of("ended_by_vc", 0.0) * many
    waited = np.where(ended > 0, of("by_vc", np.nan), 0.0) * ended
    found: Floats = waited.sum(axis=0) / np.maximum(1.0, ended.sum(axis=0))
    return np.where(ended.sum(axis=0) >= ENDED * many.sum(), found, np.nan)


def _claim(by: str, name: str, wait: Floats, draws: Mapping[str, Floats], base: str) -> Claim:
    own, recorded = draws[base], float(wait.mean())
    replayed = float(own.mean())
    why = _refused(recorded, replayed)
    return Claim(
        by=by,
        name=name,
        jobs=len(wait),
        recorded_s=recorded,
        replayed_s=replayed,
        chance_s=_chance(own) if len(own) > 1 else None,
        refused=why,
        savings={
            key: _saving(recorded, own, other)
            for key, other in draws.items()
            if key != base and not why and np.isfinite(other).all()
        },
    )


def _refused(recorded: float, replayed: float) -> str:
    """Return why nothing is stated about a part, given its mean waits (seconds) as recorded and as
    replayed; "" if something is."""
    if not np.isfinite(replayed):
        return "in a replay of Slurm's own schedule more than one in ten of its jobs did not end"
    low, high = sorted((recorded, replayed))
    if high > FACTOR * max(low, SHORT_S):
        return (
            f"its jobs waited {duration(recorded)} on average, and {duration(replayed)} in the "
            "replay of Slurm's own schedule"
        )
    return ""


def _chance(*of: Floats) -> float:
    """Return by how much a single replay may differ by chance from the mean of the given
    replays, seconds, nine times in ten. For two lists of replays, return the same for the
    difference of the two. Return 0 with fewer than two replays."""
    draws = min(len(one) for one in of)
    if draws < 2:
        return 0.0
    spread = sum(float(one.var(ddof=1)) for one in of) * (1 + 1 / draws)
    return bound(COVERED, draws - 1) * float(np.sqrt(spread))


def _saving(recorded: float, own: Floats, other: Floats) -> Saving:
    """Return the interval of the saved mean wait, seconds. It spans three ways to compute the
    saving, and is widened by chance and by the error of replays.

    Args:
        recorded: mean wait as recorded.
        own: mean wait in each replay of the base (see `Saving`).
        other: mean wait in each replay of the policy.
    """
    replayed, after = float(own.mean()), float(other.mean())
    counted = [recorded - after, replayed - after]
    if replayed > 0:
        counted.append(recorded - after * recorded / replayed)
    wrong = _chance(own, other) + WRONG * max(recorded, after)
    return Saving(
        low_s=min(counted) - wrong,
        high_s=max(counted) + wrong,
        shorter=int((other < own).sum()),
        draws=len(own),
    )


def refusals(found: Sequence[Claim]) -> Iterator[str]:
    """Yield a sentence for each partition about which nothing is stated, with the reason."""
    for claim in found:
        if claim.by == "vc" and claim.refused:
            yield f"Nothing is stated of partition {claim.name} ({count(claim.jobs, 'job')}): " + (
                f"{claim.refused}."
            )
