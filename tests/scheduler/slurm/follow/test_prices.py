"""What a change of a job in Slurm costs, and what it takes for granted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pipeline.printed.why import sooner_lines
from scheduler.explain.effect import Sooner, Tried
from scheduler.slurm.follow.prices import Price, elsewhere, price
from scheduler.slurm.read.parse import SlurmJob
from scheduler.slurm.twin.site import Partition, Qos, Site

HOUR_S = 3600.0
FOUR = SlurmJob("1", "PENDING", "ada", "train", "main", 0.0, gpus=4, time_limit_s=10 * HOUR_S)


@pytest.mark.parametrize(
    ("to", "lasts_s", "gain_s", "costs", "assumed"),
    [
        ({"time_limit_s": HOUR_S}, 2 * HOUR_S, 600.0, "Slurm would stop it", "within that limit"),
        ({"time_limit_s": HOUR_S}, None, 600.0, "how long it runs is not known", "that limit"),
        ({"time_limit_s": HOUR_S}, 600.0, 600.0, "", "within that limit"),
        (
            {"gpus": 2},
            2 * HOUR_S,
            HOUR_S,
            "it ends about 1 h later than without the change",
            "2 times",
        ),
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


WHOLE = SlurmJob("1", "PENDING", "ada", "train", "main", 0.0, num_nodes=4, cpus=64, exclusive=True)


@pytest.mark.parametrize(
    ("job", "to", "found"),
    [
        (
            WHOLE,
            {"num_nodes": 2},
            Price(
                "it ends about 2 h later than without the change",
                "its work is the same: it takes 2 times as long",
                2.0,
                2 * HOUR_S,
            ),
        ),
        (  # as many nodes, each of them whole: that takes as long as before
            WHOLE,
            {"time_limit_s": HOUR_S},
            Price(
                "it should run about 2 h: Slurm would stop it",
                "its work is done within that limit",
                lasts_s=2 * HOUR_S,
            ),
        ),
        (WHOLE, {"cpus": 32}, Price(assumed="it lasts as long with fewer CPUs")),
        (
            replace(WHOLE, exclusive=False),
            {"num_nodes": 2},
            Price(assumed="it lasts as long on 2 nodes as on 4"),
        ),
        (
            replace(WHOLE, gpus=4),  # its GPUs are as many, and they do the work
            {"num_nodes": 2},
            Price(assumed="it lasts as long on 2 nodes as on 4"),
        ),
        (WHOLE, {"partition": "other"}, Price()),
    ],
)
def test_on_fewer_whole_nodes_it_takes_longer_and_on_as_many_as_long(
    job: SlurmJob, to: dict[str, object], found: Price
) -> None:
    changed = replace(job, **to)  # type: ignore[arg-type]
    assert price(job, changed, 2 * HOUR_S, 0.0) == found


def test_another_number_of_nodes_takes_for_granted_that_it_lasts_as_long() -> None:
    two = replace(FOUR, num_nodes=2, memory_mib=4096.0)
    fewer = price(two, replace(two, num_nodes=1, memory_mib=2048.0), HOUR_S, None)
    assert fewer.assumed == "it lasts as long on 1 node as on 2, with 2 GiB of memory in all"
    more = price(two, replace(two, num_nodes=4), HOUR_S, None)
    assert more == Price(assumed="it lasts as long on 4 nodes as on 2")


def test_fewer_whole_nodes_take_longer_though_no_gpus_are_asked_for() -> None:
    whole = replace(FOUR, gpus=0, num_nodes=4, exclusive=True)
    found = price(whole, replace(whole, num_nodes=1), HOUR_S, HOUR_S)
    assert found.times == 4.0
    assert found.costs == "it ends about 2 h later than without the change"


@pytest.mark.parametrize(
    ("to", "mode", "costs"),
    [
        ({"partition": "scav"}, "REQUEUE", "jobs of others may stop it there, and it begins again"),
        ({"partition": "scav"}, "CANCEL", "jobs of others may stop it there, and it ends"),
        ({"partition": "scav"}, "SUSPEND", "jobs of others may stop it there"),
        ({"partition": "scav"}, "", ""),
        ({"partition": "same"}, "REQUEUE", ""),
        ({"qos": "dear"}, "REQUEUE", "its use counts 2.5 times as much"),
        ({"qos": "cheap"}, "REQUEUE", ""),
    ],
)
def test_another_partition_or_qos_names_what_it_costs(
    to: dict[str, str], mode: str, costs: str
) -> None:
    nodes = frozenset({"n1"})
    parts = (
        Partition("main", nodes, tier=5, preempted=mode),
        Partition("same", nodes, tier=5, preempted=mode),
        Partition("scav", nodes, tier=1, preempted=mode),
    )
    site = Site(
        nodes={},
        partitions={one.name: one for one in parts},
        config={"PreemptType": "preempt/partition_prio"},
        qos={"dear": Qos("dear", factor=2.5), "cheap": Qos("cheap", factor=0.5)},
    )
    assert elsewhere(FOUR, replace(FOUR, **to), site) == costs  # type: ignore[arg-type]


def test_the_price_is_printed_before_the_command() -> None:
    one = Tried(0.0, 0.0, 1, words="with 2 GPUs", command="scontrol x", costs="dear", assumed="so")
    (line, *_) = sooner_lines(Sooner(tried=[one]))
    assert line.endswith("with 2 GPUs it starts at once (dear; if so): scontrol x")
