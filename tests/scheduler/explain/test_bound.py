"""A start at the latest, by limits alone."""

from __future__ import annotations

import pytest

from scheduler.explain.bound import MOST, Ahead, Bound, Held, bound
from scheduler.explain.words import starts

NODE = {0: 8}


def held(gpus: range, until: float | None, node: int = 0) -> Held:
    return Held({node: list(gpus)}, until)


@pytest.mark.parametrize(
    ("runs", "ahead", "gpus", "latest"),
    [
        ([], [], 8, 10.0),  # at once
        ([held(range(8), 100.0)], [], 1, 100.0),
        ([held(range(6), 100.0)], [], 2, 10.0),
        ([held(range(6), 100.0), held(range(6), 300.0)], [], 4, 300.0),  # two share GPUs
        ([held(range(4), 100.0), held(range(4, 8), 200.0)], [Ahead(4, 50.0)], 4, 150.0),
        ([held(range(8), 100.0)], [Ahead(8, 50.0), Ahead(2, 1000.0)], 6, 150.0),
        ([held(range(8), 5.0)], [], 1, 10.0),  # past its limit: it goes now
        ([held(range(8), 100.0)], [Ahead(8, 50.0)], 1, 150.0),  # none behind goes first
    ],
)
def test_limits_bound_a_start(
    runs: list[Held], ahead: list[Ahead], gpus: int, latest: float
) -> None:
    assert bound(NODE, runs, ahead, gpus, 10.0) == Bound(latest)


def test_a_gang_takes_one_node_or_whole_ones() -> None:
    nodes = {0: 8, 1: 8}
    runs = [held(range(5), 100.0), held(range(5), 200.0, node=1)]
    assert bound(nodes, runs, [], 4, 10.0).latest == 100.0
    assert bound(nodes, runs, [], 16, 10.0).latest == 200.0
    assert bound(nodes, runs, [], 12, 10.0).latest == 200.0  # a whole one, and four of the other


def test_what_has_no_limit_bounds_nothing_and_is_counted() -> None:
    found = bound(NODE, [held(range(8), None)], [Ahead(1, 10.0)], 1, 10.0)
    assert found == Bound(missing="1 job before it has no time limit")
    found = bound(NODE, [held(range(4), None)], [Ahead(4, None), Ahead(4, None)], 4, 10.0)
    assert found.missing == "3 jobs before it have no time limit"
    assert bound(NODE, [held(range(4), None)], [], 4, 10.0).latest == 10.0
    assert bound({}, [], [], 1, 10.0).missing == "not enough of its GPUs are on open nodes"
    assert (
        bound(NODE, [], [Ahead(1, 1.0)] * (MOST + 1), 1, 0.0).missing == "2,001 jobs are before it"
    )


def test_progress_bounds_a_start_sooner_and_the_limits_still_do() -> None:
    run = Held({0: list(range(8))}, 1000.0, 400.0)
    assert bound(NODE, [run], [], 4, 10.0) == Bound(1000.0, stated=400.0)
    assert bound(NODE, [run], [Ahead(8, 50.0)], 4, 10.0) == Bound(1050.0, stated=450.0)
    later = Held({0: list(range(8))}, 1000.0, 4000.0)  # its limit ends it before
    assert bound(NODE, [later], [], 4, 10.0) == Bound(1000.0)
    about = Held({0: list(range(8))}, 1000.0, 950.0)  # the same minute
    assert bound(NODE, [about], [], 4, 10.0) == Bound(1000.0)
    endless = bound(NODE, [Held({0: list(range(8))}, None, 400.0)], [], 4, 10.0)
    assert endless == Bound(missing="1 job before it has no time limit", stated=400.0)
    beside = [run, held(range(8), 2000.0)]  # another holds the same GPUs for longer
    assert bound(NODE, beside, [], 4, 10.0) == Bound(2000.0)


def test_what_nobody_guarantees_says_so() -> None:
    text = starts(None, None, "", 0.0, latest=7200.0, stated=3600.0)
    limits, progress = text.split("; ")
    assert limits.startswith("starts at the latest ")
    assert progress.startswith("by ")
    assert progress.endswith("when their progress says (not guaranteed)")
    unknown = starts(None, None, "not yet", 0.0, no_latest="1 job has no limit", stated=3600.0)
    assert unknown.startswith("its start is unknown: not yet; 1 job has no limit; by ")
    assert unknown.endswith("(not guaranteed)")


def test_a_bound_is_told_where_no_more_is_known() -> None:
    text = starts(None, None, "not yet", 0.0, latest=3600.0)
    assert text.startswith("starts at the latest ")
    assert "limits" in text
    both = starts(None, None, "not yet", 0.0, no_latest="3 jobs before it have no time limit")
    assert both == "its start is unknown: not yet; 3 jobs before it have no time limit"
    assert starts(60.0, None, "", 0.0, latest=3600.0).startswith("starts about ")
