"""From candidate to champion: what is asked of a bundle before a service decides with it.

The service's own check comes first. Then both models score the same jobs, which neither saw in
training. Whatever is not better beyond chance stays a candidate, unless a person says otherwise
and why.
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
from models.training.errors import TrainingError
from models.training.judging import Judgement, judge
from models.training.tracking import Registry, Version, bundle_of, champion, promote

FIRST = "first version: there is no champion to compare it with"


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A candidate beside the champion.

    Attributes:
        candidate, champion: registered versions; no champion while there is none.
        judgement: on the same jobs; None where they cannot be compared.
        why_not: why they cannot be compared, one sentence.
    """

    candidate: Version
    champion: Version | None
    judgement: Judgement | None = None
    why_not: str = ""

    @property
    def better(self) -> bool:
        """Return whether it may become champion without a person saying so."""
        return self.champion is None or (self.judgement is not None and self.judgement.better)

    @property
    def reason(self) -> str:
        """Return the outcome as one line."""
        if self.champion is None:
            return FIRST
        return self.why_not if self.judgement is None else self.judgement.reason

    def evidence(self, **more: Any) -> Mapping[str, Any]:
        """Return what is kept with a promotion, plain JSON."""
        former = self.champion
        return {
            "bundle": self.candidate.digest,
            "former": None if former is None else asdict(former),
            "judgement": None if self.judgement is None else self.judgement.document(),
            "reason": self.reason,
            **more,
        }


def proposed(candidate: Version, registry: Registry, trace: pa.Table) -> Proposal:
    """Judge a registered version against the champion on the jobs of a trace that neither saw.

    Raises BundleError when no service could decide with the candidate.
    """
    new, present = accepted(candidate, registry), champion(registry)
    if present is None:
        return Proposal(candidate=candidate, champion=None)
    try:
        judgement = judged(new, accepted(present, registry), trace)
    except (BundleError, TrainingError) as error:
        return Proposal(candidate=candidate, champion=present, why_not=str(error))
    return Proposal(candidate=candidate, champion=present, judgement=judgement)


def judged(candidate: Bundle, champion: Bundle, trace: pa.Table) -> Judgement:
    """Compare two bundles on the jobs of a trace that were submitted after all that either learned
    from. Raises TrainingError when these are too few."""
    specs = (*candidate.duration.features, *champion.duration.features)
    rows = training_rows(trace, families=sorted({spec.family for spec in specs}))
    since = max(_learned_to(candidate), _learned_to(champion))
    unseen = rows.where((rows.time > since) & np.isfinite(rows.y))
    ids, users = trace.column("job_id").to_pylist(), trace.column("user").to_pylist()
    user = dict(zip(ids, users, strict=True))
    return judge(candidate.duration, champion.duration, unseen, [user[i] for i in unseen.job_id])


def carried_out(
    proposal: Proposal, reason: str, registry: Registry, out: Path, **more: Any
) -> Bundle:
    """Make the candidate champion, and put its bundle where services read it. Returns it.

    BundleError, and nothing changes, when no service could decide with it.
    """
    bundle = accepted(proposal.candidate, registry)
    promote(proposal.candidate, reason, proposal.evidence(**more), registry)
    bundle.save(out)
    return bundle


def accepted(version: Version, registry: Registry) -> Bundle:
    """Return a version's bundle; BundleError when no service could decide with it."""
    with TemporaryDirectory() as scratch:
        bundle = bundle_of(version, registry, scratch)
    check(bundle)
    return bundle


def in_experiment() -> bool:
    """Return whether `dvc exp run` runs this: it may register candidates, and move nothing."""
    return "DVC_EXP_BASELINE_REV" in os.environ


def _learned_to(bundle: Bundle) -> float:
    """When the last job was submitted that a bundle's durations were learned from."""
    try:
        return datetime.fromisoformat(bundle.metadata["duration"]["window_to"]).timestamp()
    except (KeyError, TypeError, ValueError):
        raise TrainingError(
            f"bundle {bundle.digest[:12]} does not say what it learned from, so nobody knows which "
            "jobs are new to it"
        ) from None
