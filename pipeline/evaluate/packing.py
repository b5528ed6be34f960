"""`pellucid evaluate packing`: sharing scores and pair speeds on measured pairs.

With the tables of a colocation campaign on another GPU beside them, also how well the models of
one GPU judge the pairs of the other, both ways.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from models.training.packing import evaluate_packing, evaluate_pair_speed
from models.training.pairs import SHARING, PairMeasurements, modes_of, read_pairs
from models.training.transfer import evaluate_transfer

REPEATS = 20


def run(data: Path, *, seed: int = 0, profiles: Path | None = None) -> dict[str, Any]:
    """Errors on pairs of unseen families, accuracy of the score tree, and the targets.

    Args:
        data: folder with `packing/`, in the artifact's format.
        profiles: folder with `solo.parquet` and `pairs.parquet` of another GPU. Each way of sharing
            that it measured is judged apart, and each by models of the other.

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


def _transfer(pairs: PairMeasurements, profiles: Path) -> dict[str, Any]:
    measured = modes_of(profiles) or SHARING[-1:]
    others = {mode: read_pairs(profiles, sharing=mode) for mode in measured}
    found: dict[str, Any] = {}
    for mode, other in others.items():
        found[mode] = {
            "to_profiles": evaluate_transfer(pairs, other),
            "from_profiles": evaluate_transfer(other, pairs),
            **{
                f"judged_by_{name}": evaluate_transfer(another, other)
                for name, another in others.items()
                if name != mode
            },
        }
    return found
