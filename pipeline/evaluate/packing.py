"""`pellucid evaluate packing`: predicted sharing scores and speeds of two jobs on one GPU, on
measured pairs.

With the pairs measured on another type of GPU, it also evaluates how well models of one type
predict the pairs of the other, both ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from features.codec import Json
from features.job import Job
from models.training.packing import (
    WORTH_SHARING,
    evaluate_packing,
    evaluate_pair_hinge,
    evaluate_pair_speed,
    unseen_speeds,
)
from models.training.pairs import SHARING, PairMeasurements, modes_of, read_pairs
from models.training.transfer import RULE_PCT, as_profile, evaluate_transfer
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.queue import QueuedJob
from scheduler.policies.pellucid.speeds import Experienced, kind_of

REPEATS = 20


def run(data: Path, *, seed: int = 0, profiles: Path | None = None) -> Json:
    """Return the errors on pairs of model families left out of the fit, the accuracy of sharing
    scores, and whether the targets are met.

    Args:
        data: folder that contains `packing/`, in the format of Lucid's artifact.
        profiles: folder with `solo.parquet` and `pairs.parquet` of another GPU. The ways of sharing
            that it measured are evaluated separately, and each also by models of the other.

    Raises TrainingError when the pairs are missing or malformed.
    """
    pairs = read_pairs(data / "packing")
    speed = evaluate_pair_speed(pairs)
    tree = evaluate_packing(pairs, seed=seed, repeats=REPEATS)
    targets = {
        "mae_sum": (speed["mae_sum"], 0.095, False),
        "mae_slower": (speed["mae_slower"], 0.055, False),
        "accuracy": (speed["accuracy"], 0.875, True),
        "beats_the_rule": (speed["accuracy"], speed["rule_accuracy"], True),
        "tree_cv_accuracy": (tree["cv_accuracy"], 0.75, True),
    }
    transfer = {} if profiles is None else _transfer(pairs, profiles)
    return {
        "origin": pairs.origin,
        "pair_speed": speed,
        "pair_speed_online": online(pairs, seed=seed),
        "sharing_scores": tree,
        "targets": {
            name: {
                "value": value,
                "limit": limit,
                "met": bool(value >= limit if rising else value <= limit),
            }
            for name, (value, limit, rising) in targets.items()
        },
        **({"transfer": transfer} if transfer else {}),
    }


def online(pairs: PairMeasurements, *, seed: int = 0, orders: int = 5) -> dict[str, float]:
    """Return how well the speeds of pairs are predicted once similar pairs have run. The policy
    `pellucid` learns from running pairs in this way.

    Each pair is predicted by a tree fitted without its families, corrected by the errors on the
    pairs that came before, in `orders` random orders. Only pairs with two kinds of profile that
    were seen before count (`seen`: their share). The figures are the error of the sum of speeds,
    and how often "sum > 1.8" is predicted correctly, by the corrected prediction, by the tree alone
    (`cold_`), and by the rule "sum of utilisation <= 120 %".
    """
    unseen, _ = unseen_speeds(pairs)
    members, n = pairs.members, len(pairs)
    speed = members.speed.reshape(2, n)
    jobs = [[_watched(f"{i}.{s}", members.profile[s * n + i]) for s in (0, 1)] for i in range(n)]

    def cold(own: str, _: str) -> tuple[float, float]:
        i, side = (int(part) for part in own.split("."))
        return float(unseen[side, i]), float(unseen[1 - side, i])

    known = TablePairPredictor({q.job.job_id: 0 for pair in jobs for q in pair}, cold)
    rows = []
    for order in range(orders):
        learns, kinds = Experienced(known), set[Any]()
        for i in np.random.default_rng((seed, order)).permutation(n).tolist():
            (a, b), truth = jobs[i], float(speed[:, i].sum())
            mine = {kind_of(q.profile) for q in (a, b) if q.profile is not None}
            prediction = learns.predict_pair(a, b)
            if mine <= kinds and prediction is not None and prediction.speeds is not None:
                busy = members.profile[i, 0] + members.profile[n + i, 0]
                rows.append((truth, sum(prediction.speeds), unseen[:, i].sum(), busy))
            learns.learn(a, b, float(speed[0, i]))
            learns.learn(b, a, float(speed[1, i]))
            kinds |= mine
    truth, learned, was, busy = np.array(rows).T
    worth = truth > WORTH_SHARING
    return {
        "seen": len(rows) / (orders * n),
        "mae_sum": float(np.abs(learned - truth).mean()),
        "cold_mae_sum": float(np.abs(was - truth).mean()),
        "accuracy": float(((learned > WORTH_SHARING) == worth).mean()),
        "cold_accuracy": float(((was > WORTH_SHARING) == worth).mean()),
        "rule_accuracy": float(((busy <= RULE_PCT) == worth).mean()),
    }


def _watched(job_id: str, profile: Any) -> QueuedJob:
    queued = QueuedJob(Job(job_id, 0.0, 1), 0)
    queued.profile = as_profile(profile)
    return queued


def _transfer(pairs: PairMeasurements, profiles: Path) -> dict[str, dict[str, dict[str, float]]]:
    measured = modes_of(profiles) or SHARING[-1:]
    others = {mode: read_pairs(profiles, sharing=mode) for mode in measured}
    found = {}
    for mode, other in others.items():
        found[mode] = {
            **({"by_sm_activity": counted} if (counted := evaluate_pair_hinge(other)) else {}),
            "to_profiles": evaluate_transfer(pairs, other),
            "from_profiles": evaluate_transfer(other, pairs),
            **{
                f"judged_by_{name}": evaluate_transfer(another, other)
                for name, another in others.items()
                if name != mode
            },
        }
    return found
