"""Checks that this code can decide with a bundle, made when it is fitted, promoted and served."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

from features.job import Job, Profile
from features.spec import FeatureSpec
from features.state import FAMILIES, FeatureState
from models.bundle.errors import BundleError
from models.bundle.store import Bundle

PLAIN_JOB = Job("probe", 0.0, 1)
PLAIN_PROFILE = Profile(50.0, 50.0, 1000.0, False, sm_active_pct=50.0)


def check(bundle: Bundle) -> None:
    """Raise BundleError, with one sentence, unless this code can decide with the bundle: the
    features are those that this code keeps, and the estimate is finite.
    """
    try:
        seconds = _tried(bundle)
    except BundleError:
        raise
    except Exception as error:  # a model that is not what it says may raise anything
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise BundleError(f"bundle {bundle.digest[:12]} cannot be decided with ({why})") from None
    if not isfinite(seconds):
        raise BundleError(f"bundle {bundle.digest[:12]} estimates {seconds} s for a plain job")


def positions(bundle: Bundle, kept: Sequence[FeatureSpec]) -> list[int]:
    """Return the position of each feature of the duration model among the features `kept` of every
    job.

    BundleError when it wants one that is not kept.
    """
    places = {spec: i for i, spec in enumerate(kept)}
    for spec in bundle.duration.features:
        if spec not in places:
            raise BundleError(
                f"bundle {bundle.digest[:12]} wants a feature {spec.name!r} that is not kept "
                "(or means otherwise here): train it again with this version"
            )
    return [places[spec] for spec in bundle.duration.features]


def _tried(bundle: Bundle) -> float:
    """Return the bundle's estimate for a plain job, seconds. Also asks for its verdict on a
    plain pair, which may raise.
    """
    state = FeatureState(FAMILIES)
    picks = positions(bundle, state.features)
    if "packing" in bundle.parts:
        bundle.packing.classify(PLAIN_PROFILE)
    if "pair_speed" in bundle.parts:
        bundle.pair_speed(PLAIN_PROFILE, PLAIN_PROFILE)
    if "pair_hinge" in bundle.parts:
        bundle.pair_hinge(PLAIN_PROFILE, PLAIN_PROFILE)
    row = state.row(PLAIN_JOB, 0.0)
    return float(bundle.duration.seconds(bundle.duration.score([row[i] for i in picks])))
