"""From candidate to champion: what is asked of a bundle before a service decides with it.

The service's own check comes first. Then both models score the same jobs, which neither saw in
training, and both decide in a replay of them. Whatever is not better beyond chance stays a
candidate, unless a person says otherwise and why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa

from features.rows import training_rows
from models.bundle import Bundle, BundleError
from models.bundle.acceptance import check
from models.bundle.doubts import DOUBTS_NAME, write_doubts
from models.training.errors import TrainingError
from models.training.judging import (
    Judgement,
    Paired,
    better_in_all,
    judge,
    most_telling,
    undecided,
    weeks_more,
)
from models.training.tracking import (
    Registry,
    TrainedOn,
    Version,
    bundle_of,
    champion,
    log_training,
    promote,
    registered,
)
from pipeline.replaying import DRAWS, Replay, replayed
from pipeline.worlds.venus import TrackError
from scheduler.assembly import CoreSpec

FIRST = "first version: there is no champion to compare it with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A candidate and the champion, and how they compare.

    Attributes:
        candidate, champion: registered versions; no champion while there is none.
        judgement: the comparison on the same jobs; None if there is none.
        replay: the comparison in the same replayed weeks; None if there is none.
        why_not: why the two cannot be compared, one sentence; "" if they were, or if there is
            no champion.
    """

    candidate: Version
    champion: Version | None
    judgement: Judgement | None = None
    replay: Replay | None = None
    why_not: str = ""

    @property
    def figures(self) -> tuple[Paired, ...]:
        """Return all figures by which both were compared."""
        judged = () if self.judgement is None else self.judgement.figures
        return judged + (() if self.replay is None else self.replay.figures)

    @property
    def better(self) -> bool:
        """Return whether the candidate may become champion without a person's decision: if it
        is better beyond chance, or if there is no champion."""
        if self.champion is None:
            return True
        both = self.judgement is not None and self.replay is not None
        return both and better_in_all(self.figures)

    @property
    def reason(self) -> str:
        """Return the outcome as one line: the most telling figure, why the two were not
        compared, or that there is no champion."""
        if self.champion is None:
            return FIRST
        if self.judgement is None or self.replay is None:
            return self.why_not
        telling = most_telling(self.figures)
        return (self.judgement if telling in self.judgement.figures else self.replay).reason

    @property
    def undecided(self) -> bool:
        """Return whether the jobs are too few to say that the candidate is better, or worse.
        Return False if the two were not compared."""
        return self.judgement is not None and self.replay is not None and undecided(self.figures)

    @property
    def weeks_more(self) -> int | None:
        """Return how many more weeks of jobs it takes to tell that the candidate is better, if
        it stays as far ahead. Return None if it is ahead in nothing, or if the jobs suffice to
        decide."""
        if self.judgement is None or not self.undecided:
            return None
        return weeks_more(self.figures, self.judgement.days)

    @property
    def outlook(self) -> str:
        """Return a sentence on how many more weeks of jobs it takes to tell that the candidate is
        better, if it stays as far ahead, or that it is ahead in nothing. Return "" if the jobs
        suffice to tell whether it is better or worse, or if the two were not compared."""
        if not self.undecided:
            return ""
        if self.weeks_more is None:
            return "Not enough evidence yet, and it is ahead in nothing."
        weeks = "a week" if self.weeks_more == 1 else f"{self.weeks_more} weeks"
        return f"Not enough evidence yet: about {weeks} more, if it stays as far ahead."

    @property
    def doubts(self) -> list[str]:
        """Return the figures in which the candidate is worse beyond chance, a line each."""
        return [str(figure) for figure in self.figures if figure.verdict == "worse"]

    def evidence(self, **more: Any) -> Mapping[str, Any]:
        """Return the evidence that is kept with a promotion, as plain JSON, with the values
        `more` added."""
        former = self.champion
        return {
            "bundle": self.candidate.digest,
            "former": None if former is None else asdict(former),
            "judgement": None if self.judgement is None else self.judgement.document(),
            "replay": None if self.replay is None else self.replay.document(),
            "compared": [str(figure) for figure in self.figures],
            "reason": self.reason,
            "undecided": self.undecided,
            "weeks_more": self.weeks_more,
            "outlook": self.outlook,
            **more,
        }


def proposed(
    candidate: Version,
    registry: Registry,
    trace: pa.Table,
    spec: CoreSpec,
    *,
    draws: int = DRAWS,
) -> Proposal:
    """Compare a registered version with the champion on the jobs of a trace that neither
    learned from. Return the comparison. If there is no champion, or the two cannot be compared,
    the result says so.

    Args:
        spec: cluster on which the jobs are replayed.
        draws: number of replays of the jobs with each of the two models.

    Raises BundleError if no service could decide with the candidate."""
    new, present = accepted(candidate, registry), champion(registry)
    if present is None:
        return Proposal(candidate=candidate, champion=None)
    judgement = None
    try:
        old = accepted(present, registry)
        judgement = judged(new, old, trace)
        replay = replayed(new, old, trace, spec, since=seen_until(new, old), draws=draws)
    except (BundleError, TrainingError, TrackError) as error:
        return Proposal(
            candidate=candidate, champion=present, judgement=judgement, why_not=str(error)
        )
    return Proposal(candidate=candidate, champion=present, judgement=judgement, replay=replay)


def judged(candidate: Bundle, champion: Bundle, trace: pa.Table) -> Judgement:
    """Compare the durations that two bundles predict for the jobs of a trace that were
    submitted after all jobs that either learned from. Return the judgement. Raise TrainingError
    if these jobs are too few."""
    specs = (*candidate.duration.features, *champion.duration.features)
    rows = training_rows(trace, families=sorted({spec.family for spec in specs}))
    unseen = rows.where((rows.time > seen_until(candidate, champion)) & np.isfinite(rows.y))
    ids, users = trace.column("job_id").to_pylist(), trace.column("user").to_pylist()
    user = dict(zip(ids, users, strict=True))
    return judge(candidate.duration, champion.duration, unseen, [user[i] for i in unseen.job_id])


def carried_out(
    proposal: Proposal, reason: str, registry: Registry, out: Path, **more: Any
) -> Bundle:
    """Make the candidate champion, and write its bundle to `out`, where services read it, with
    the figures in which it is worse. Return the bundle.

    Raise BundleError, and change nothing, if no service could decide with it."""
    bundle = accepted(proposal.candidate, registry)
    promote(proposal.candidate, reason, proposal.evidence(**more), registry)
    if proposal.doubts:  # before the bundle, which is all that a service watches
        write_doubts(out, bundle.digest, proposal.doubts)
    else:  # one bundle is one folder, whoever promoted it
        (out / DOUBTS_NAME).unlink(missing_ok=True)
    bundle.save(out)
    return bundle


def accepted(version: Version, registry: Registry) -> Bundle:
    """Return a version's bundle. Raises BundleError if no service could decide with it."""
    with TemporaryDirectory() as scratch:
        bundle = bundle_of(version, registry, scratch)
    check(bundle)
    return bundle


def register(folder: Path, registry: Registry, *, by: str, why: str) -> Version:
    """Return the version that holds the bundle in a folder; register the bundle if no version
    does.

    Args:
        by, why: who proposes it, and why; kept with its run.

    Raises BundleError if no service could decide with it."""
    bundle = Bundle.load(folder)
    check(bundle)
    known = registered(bundle.digest, registry)
    if known is not None:
        return known
    made = bundle.metadata.get("duration") or {}
    return log_training(
        folder,
        params={"proposed_by": by, "proposed_why": why},
        metrics={},
        data=TrainedOn(digest=str(made.get("data_digest", ""))),
        registry=registry,
    )


def in_experiment() -> bool:
    """Return whether this runs under `dvc exp run`. Then it may register candidates, but change no
    champion.
    """
    return "DVC_EXP_BASELINE_REV" in os.environ


def seen_until(*bundles: Bundle) -> float:
    """Return the submit time (seconds since the epoch) of the last job from which any of the
    bundles learned. Raises TrainingError if a bundle does not record it."""
    return max(map(_learned_to, bundles))


def _learned_to(bundle: Bundle) -> float:
    """Return when the last job was submitted that a bundle's durations were learned from,
    seconds since the epoch. Raises TrainingError if the bundle does not record it."""
    try:
        return datetime.fromisoformat(bundle.metadata["duration"]["window_to"]).timestamp()
    except (KeyError, TypeError, ValueError):
        raise TrainingError(
            f"bundle {bundle.digest[:12]} does not say what it learned from, so nobody knows which "
            "jobs are new to it"
        ) from None
