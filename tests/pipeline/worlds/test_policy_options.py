"""`--set NAME=VALUE`: values are read as in a cluster file, and refused by name."""

from __future__ import annotations

import pytest

from pipeline.errors import UserError
from pipeline.worlds.policy_options import given, given_to_all, over


def test_options_are_read_as_what_they_are() -> None:
    options = [
        "fairness.weight=0.3", "borrowing.lend_s=6e2", "pack_first_above=null", "max_wait_s=1e12",
        "fairness.users={ann: 2}", "learns_speeds=false",
    ]  # fmt: skip
    assert given("pellucid", options) == {
        "fairness": {"weight": 0.3, "users": {"ann": 2}},
        "pack_first_above": None,
        "max_wait_s": 1e12,
        "learns_speeds": False,
        "borrowing": {"lend_s": 600.0},
    }


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("colour=red", "colour: no such setting; there are: ageing, gpu_exponent"),
        ("borrowing.colour=red", r"borrowing.colour: no such setting; there are: borrowing.lend_s"),
        ("fairness", "use NAME=VALUE"),
        ("fairness.weight=2", "fairness.weight is 2: input should be less than or equal to 1"),
        ("fairness.users.ann=0", "fairness.users.ann is 0: input should be greater than 0"),
        ("max_wait_s=soon", "max_wait_s is 'soon': input should be a valid number"),
        ("max_wait_s=NaN", "should be a finite number"),
        ("max_wait_s=-5", "greater than or equal to 0"),
        ("sharing.max_gpus=1.5", "should be a valid integer"),
        ("learns_speeds=1", "should be a valid boolean"),
        ("borrowing=[", "is no value"),
    ],
)
def test_options_that_cannot_be_are_refused(option: str, said: str) -> None:
    with pytest.raises(UserError, match=f"--set: .*{said}"):
        given("pellucid", [option])


def test_an_option_is_for_every_policy_that_has_such_a_setting() -> None:
    found = given_to_all(["fifo", "lucid", "pellucid"], ["sharing.max_gpus=4", "ageing=0"])
    assert found == {
        "fifo": {},
        "lucid": {"sharing": {"max_gpus": 4}},
        "pellucid": {"sharing": {"max_gpus": 4}, "ageing": 0},
    }
    with pytest.raises(UserError, match="ageing=0: none of fifo, lucid has such a setting"):
        given_to_all(["fifo", "lucid"], ["ageing=0"])
    with pytest.raises(UserError, match="no policy 'fcfs'; there are: fifo, "):
        given_to_all(["fcfs"], [])


def test_sections_are_laid_over_one_another() -> None:
    below = {"ageing": 1, "borrowing": {"lend_s": 5, "quantile": 0.5}, "fairness": {}}
    above = {"borrowing": {"lend_s": 6}, "fairness": {"weight": 0.5}}
    assert over(below, above) == {
        "ageing": 1, "borrowing": {"lend_s": 6, "quantile": 0.5}, "fairness": {"weight": 0.5},
    }  # fmt: skip
    assert over(above, {"borrowing": None})["borrowing"] is None
