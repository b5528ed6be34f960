"""What a change of a job in Slurm costs, and what it takes for granted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.printed.why import sooner_lines
from scheduler.explain.effect import Sooner, Tried
from scheduler.slurm.follow.prices import Price, price
from scheduler.slurm.read.parse import SlurmJob

HOUR_S = 3600.0
FOUR = SlurmJob("1", "PENDING", "ada", "train", "main", 0.0, gpus=4, time_limit_s=10 * HOUR_S)


@pytest.mark.parametrize(
    ("to", "lasts_s", "gain_s", "costs", "assumed"),
    [
        ({"time_limit_s": HOUR_S}, 2 * HOUR_S, 600.0, "Slurm would stop it", "within that limit"),
        ({"time_limit_s": HOUR_S}, None, 600.0, "how long it runs is not known", "that limit"),
        ({"time_limit_s": HOUR_S}, 600.0, 600.0, "", "within that limit"),
        ({"gpus": 2}, 2 * HOUR_S, HOUR_S, "it ends about 1 h later than as it is", "2 times"),
        ({"gpus": 2}, 2 * HOUR_S, 3 * HOUR_S, "", "it takes 2 times as long"),
        ({"gpus": 2}, 2 * HOUR_S, None, "it runs about 2 h longer", "2 times as long"),
        ({"gpus": 1}, 3 * HOUR_S, HOUR_S, "its time limit would stop it", "4 times"),
        ({"gpus": 2}, None, HOUR_S, "how much longer it runs is not known", "2 times as long"),
        ({"partition": "other"}, HOUR_S, 600.0, "", ""),
    ],
)
def test_a_change_names_what_it_costs_and_takes_for_granted(
    to: dict[str, object], lasts_s: float | None, gain_s: float | None, costs: str, assumed: str
) -> None:
    found = price(FOUR, replace(FOUR, **to), lasts_s, gain_s)  # type: ignore[arg-type]
    assert costs in found.costs
    assert assumed in found.assumed
    assert bool(costs) is bool(found.costs)
    assert (found == Price()) is not bool(assumed)


def test_less_memory_takes_for_granted_that_it_is_enough() -> None:
    much = replace(FOUR, memory_mib=4096.0)
    assert "no more memory" in price(much, replace(much, memory_mib=1024.0), None, None).assumed


def test_the_price_is_printed_before_the_command() -> None:
    one = Tried(0.0, 0.0, 1, words="with 2 GPUs", command="scontrol x", costs="dear", assumed="so")
    (line, *_) = sooner_lines(Sooner(tried=[one]))
    assert line.endswith("with 2 GPUs it starts at once (dear; if so): scontrol x")
