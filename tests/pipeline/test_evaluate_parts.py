"""`pellucid evaluate bundle|packing|arrivals`: what they print, and what they refuse."""

from __future__ import annotations

import json

import pytest

from models.training.errors import TrainingError
from models.training.pairs import PairMeasurements
from models.training.simulated import simulated_pairs
from pipeline.evaluate import arrivals, bundle, packing


@pytest.mark.parametrize("module", [arrivals, bundle, packing])
def test_data_that_is_not_there_is_named_in_one_line(module, tmp_path):
    with pytest.raises(TrainingError) as caught:
        module.run(tmp_path)
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.shared_data
def test_a_bundle_scores_what_interpret_does_without_it(shared_data):
    found = bundle.run(shared_data)
    json.dumps(found)
    assert found["parity"] < 1e-9
    assert found["libraries_loaded"] == []
    assert found["rows"] == 10_000
    assert set(found["targets"]) == set(bundle.LIMITS)  # times are told, and decide no test


def test_what_pairs_were_seen_to_do_corrects_what_is_believed_of_others_like_them():
    slower = simulated_pairs(3, pairs=500)
    for side in "ab":  # what no profile shows
        slower.frame.loc[slower.frame[f"model_{side}"] == "rnn", f"speed_{side}"] *= 0.6
    found = packing.online(PairMeasurements(slower.frame, "measured", "made up"), orders=1)
    assert found["seen"] > 0.8
    assert found["mae_sum"] < 0.9 * found["cold_mae_sum"]
    assert found["accuracy"] > found["cold_accuracy"]


def test_arrival_targets_follow_from_the_figures():
    mae = {"ga2m": 4.0, "naive_1d": 6.0, "naive_7d": 5.0}
    assert arrivals._verdict("jobs@1h", mae) == {"mae": 4.0, "limit": 5.0, "met": True}
    assert not arrivals._verdict("jobs@next", mae)["met"]
