"""Options of the policy on the command line."""

from __future__ import annotations

import pytest

from pipeline.errors import UserError
from pipeline.worlds.settings import policy_settings


def test_options_are_read_as_what_they_are() -> None:
    given = ["fairness=0.3", "order=gittins", "requeue_after_s=600", "pack_first_above=null"]
    assert policy_settings(given) == {
        "fairness": 0.3,
        "order": "gittins",
        "requeue_after_s": 600,
        "pack_first_above": None,
    }


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("colour=red", "use NAME=VALUE with one of max_gpus, ageing"),
        ("fairness", "--set fairness: "),
        ("fairness=2", r"fairness is 2; it must lie in \[0, 1\]"),
        ("patience_s=soon", "should be a valid number"),
        ("patience_s=NaN", "should be a finite number"),
        ("patience_s=-5", "must be 0 or more"),
        ("max_gpus=1.5", "should be a valid integer"),
        ("judge=me", "use NAME=VALUE with one of"),
    ],
)
def test_options_that_cannot_be_are_refused(given: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        policy_settings([given])
