"""Nodes by name, all of one kind (``[a|b]``), and so many of each (``[a*2&b*1]``).

What is expected is what slurmctld 22.05.8 did.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from scheduler.slurm.twin.capacity import Capacity, Free, Room, _room, choose, suits
from scheduler.slurm.twin.limits import Usage
from scheduler.slurm.twin.passes import Passes
from scheduler.slurm.twin.site import Ask, Partition, Share, Site, SiteNode

NODES = {
    name: SiteNode(name, 8, 64_000, (("gpu", 4),), frozenset(features), weight=weight)
    for name, features, weight in (
        ("a1", "a", 5), ("a2", "a", 5), ("b1", "b", 1), ("b2", "b", 1),
        ("b3", "bc", 9), ("p1", "", 9),
    )
}  # fmt: skip
SITE = Site(NODES, {"p": Partition("p", frozenset(NODES))})


def chosen(busy: str = "", **asked: Any) -> list[str] | None:
    """The nodes of a job while others have some whole."""
    capacity = Capacity.of(SITE)
    capacity.take(Share(name, 8, 0.0, (("gpu", 4),)) for name in busy.split())
    ask = Ask("1", partitions=("p",), **asked)
    names = [n for n in sorted(NODES, key=SITE.order.__getitem__) if suits(ask, NODES[n])]
    found = choose(ask, capacity, names, SITE)
    return None if found is None else [share.node for share in found]


@pytest.mark.parametrize(
    ("features", "busy", "nodes"),
    [
        ("[a|b]", "", ["a1", "a2"]),  # of those that would do the first as written
        ("[b|a]", "", ["b1", "b2"]),
        ("[a|b]", "a1", ["b1", "b2"]),
        ("[a|b]", "a1 b1 b2", None),  # never one of each
        ("a|b", "a1 b1 b2", ["a2", "b3"]),
        ("[a|c]", "a1", None),
    ],
)
def test_all_nodes_are_of_one_kind(features: str, busy: str, nodes: list[str] | None) -> None:
    assert chosen(busy, features=features, nodes=2, max_nodes=2) == nodes


@pytest.mark.parametrize("wanted", ["a", "ab", "ba", "aab", "abab", "cab"])
@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("of", list(product(("a", "b", "ab"), repeat=3)))
def test_kinds_are_tried_in_turn_however_often_they_are_named(
    of: tuple[str, ...], nodes: int, wanted: str
) -> None:
    """As if each were tried by itself, on the nodes that have it."""
    there = {f"n{i}": SiteNode(f"n{i}", 8, 64_000, (), frozenset(one)) for i, one in enumerate(of)}
    site = Site(there, {"p": Partition("p", frozenset(there))})
    ask = Ask("1", partitions=("p",), nodes=nodes, max_nodes=nodes)
    asked = replace(ask, features=f"[{'|'.join(wanted)}]")
    for busy in product((False, True), repeat=3):
        capacity = Capacity.of(site)
        capacity.take(Share(n, 8, 0.0) for n, has in zip(there, busy, strict=True) if has)
        alone = (
            choose(ask, capacity, [name for name in there if kind in there[name].features], site)
            for kind in wanted
        )
        expected = next((found for found in alone if found is not None), None)
        assert choose(asked, capacity, list(there), site) == expected


@pytest.mark.parametrize(
    ("features", "asked", "busy", "nodes"),
    [
        ("[a*1&b*1]", {}, "", {"a1", "b1"}),
        ("[a*1&b*1]", {}, "a1 a2", None),
        ("[a*2&b*1]", {}, "", {"a1", "a2", "b1"}),
        ("[a*2&b*1]", {"nodes": 4}, "", {"a1", "a2", "b1", "b2"}),  # the rest as they come
        ("[a*2&b*1]", {"nodes": 2, "max_nodes": 2}, "", None),
        ("[a*1&c*1]", {"nodes": 4, "max_nodes": 4}, "", None),  # in brackets all are of either
        ("[c*1&b*3]", {}, "", None),  # none counts twice
        ("a*1", {"nodes": 2, "max_nodes": 2}, "b1", {"a1", "b2"}),
        ("[a*1&c*1]", {"gpus": (("gpu", 4),), "gpus_per_node": True}, "a1", {"a2", "b3"}),
        ("[a*1&c*1]", {"gpus": (("gpu", 6),)}, "", {"a1", "b3"}),
    ],
)
def test_so_many_nodes_have_each(
    features: str, asked: dict[str, Any], busy: str, nodes: set[str] | None
) -> None:
    found = chosen(busy, features=features, **asked)
    assert (found if found is None else set(found)) == nodes


@pytest.mark.parametrize("features", ["[a*1&c]", "(a|c)&c", "[a&c]", "[a*1|c*1]", "a*1&c*1"])
def test_of_what_is_not_known_any_of_its_kinds_will_do(features: str) -> None:
    assert chosen("a1", features=features, nodes=2, max_nodes=2) == ["a2", "b3"]


def test_nodes_that_would_do_are_of_the_kinds_asked_for_unless_a_plain_count_is_less() -> None:
    look = Passes(SITE, 0.0, Capacity.of(SITE), Usage(), {})
    ask = Ask("1", partitions=("p",), nodes=2, max_nodes=2, features="[a*1&c*1]")
    assert look.would_do(ask, sorted(NODES)) == ["a1", "a2", "b3"]
    plain = replace(ask, features="a*1")
    assert look.would_do(plain, sorted(NODES)) == sorted(NODES)
    assert look.would_do(replace(plain, features="a*2"), sorted(NODES)) == ["a1", "a2"]


SIX = Site(
    {
        f"n{n}": SiteNode(f"n{n}", 8, 64_000, (), frozenset("a" if n < 4 else "b"))
        for n in range(1, 7)
    },
    {"p": Partition("p", frozenset(f"n{n}" for n in range(1, 7)))},
)


@pytest.mark.parametrize(
    ("busy", "asked", "nodes"),
    [
        ("", {"nodes": 2, "req_nodes": frozenset({"n3"})}, "n3 n4"),
        ("", {"nodes": 3, "req_nodes": frozenset({"n5"})}, "n5 n6 n4"),
        ("", {"nodes": 2, "req_nodes": frozenset({"n6"})}, "n6 n5"),
        ("n4", {"nodes": 2, "req_nodes": frozenset({"n3"})}, "n3 n2"),
        ("n4", {"nodes": 3, "req_nodes": frozenset({"n5"})}, "n5 n6 n1"),
        ("n4", {"nodes": 4, "req_nodes": frozenset({"n2"})}, "n2 n3 n1 n5"),
        ("n4", {"nodes": 2, "features": "b*1"}, "n5 n6"),
        ("n4", {"nodes": 3, "features": "b*1"}, "n5 n6 n1"),
        ("n4", {"nodes": 3, "features": "[a*1&b*1]"}, "n1 n5 n6"),
        ("n4", {"nodes": 3, "features": "[a*1&b*1]", "req_nodes": frozenset({"n6"})}, "n1 n5 n6"),
        ("n4", {"nodes": 2, "features": "[a*1&b*1]", "req_nodes": frozenset({"n6"})}, ""),
        ("n1", {"nodes": 2, "features": "[b*1&a*1]", "req_nodes": frozenset({"n5"})}, "n2 n5"),
    ],
)
def test_the_others_are_the_next_ones_upwards_from_a_node_named_then_down(
    busy: str, asked: dict[str, Any], nodes: str
) -> None:
    capacity = Capacity.of(SIX)
    capacity.take(Share(name, 8, 0.0) for name in busy.split())
    ask = Ask("1", partitions=("p",), exclusive=True, max_nodes=asked["nodes"], **asked)
    found = choose(ask, capacity, list(SIX.nodes), SIX)
    assert [share.node for share in found or ()] == nodes.split()


@pytest.mark.parametrize("busy", ["", "a1 a2 b1 b2 b3"])
def test_a_feature_that_is_named_five_hundred_times_is_tried_once(
    busy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user may write so, and every node is asked in every pass."""
    asked = Counter[str]()

    def counted(ask: Ask, free: Free, node: SiteNode) -> Room | None:
        asked[node.name] += 1
        return _room(ask, free, node)

    monkeypatch.setattr("scheduler.slurm.twin.capacity._room", counted)
    for features in ("[b|a]", f"[{'b|' * 500}a]", f"[{'b|' * 250}{'a|' * 250}a]"):
        assert chosen(busy, features=features, nodes=2) == (None if busy else ["b1", "b2"])
        assert max(asked.values()) <= 2  # as a choice of several nodes may ask each again
        asked.clear()


def test_a_long_constraint_is_read_once_for_all_nodes_of_the_same_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[str]()
    monkeypatch.setattr(
        "scheduler.slurm.twin.capacity.re.split",
        lambda at, text: read.append(text) or [text],
    )
    wanted = "|".join(["b"] * 100 + ["d"])
    nodes = [SiteNode(f"n{n}", 8, 1.0, (), frozenset({"x", "y"})) for n in range(1000)]
    assert not any(suits(Ask("1", features=wanted), node) for node in nodes)
    assert len(read) <= 2 * 101


def test_what_a_job_has_of_a_node_is_free_again_once_it_ends() -> None:
    free = Free.of(SiteNode("n", 8, 64_000.0, (("a100", 4),), gres=(("nvme:fast", 3),)))
    share = Share("n", 2, 1_000.0, (("a100", 1),), (("nvme", 2),))
    free.take(share)
    assert (free.cpus, free.memory_mib, free.gpus, free.jobs) == (6, 63_000.0, {"a100": 3}, 1)
    assert free.left_of("nvme") == 1
    free.take(share, sign=-1)
    assert (free.cpus, free.gpus, free.jobs, free.left_of("nvme")) == (8, {"a100": 4}, 0, 3)
