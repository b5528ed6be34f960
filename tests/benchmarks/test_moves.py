"""A service is killed, and moves, under load: nothing is lost or doubled, and it stops cleanly."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import moves

pytestmark = pytest.mark.skipif(
    not os.environ.keys() & {"PELLUCID_WALKS", "PELLUCID_TEST_DATABASE"},
    reason="a real service is killed and moved, for a minute: make walks",
)
# PostgreSQL: `make test-service`
NAMES = [n for n in moves.ALL if "postgres" not in n or "PELLUCID_TEST_DATABASE" in os.environ]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_on_the_way(open_folder: Callable[[], Path], name: str) -> None:
    asked = Namespace(older=None, load_s=1.5, kills=1)
    try:
        found = moves.ALL[name](open_folder(), asked)
    except moves.Impossible as why:
        pytest.skip(str(why))
    assert found["wrong"] == {}
    assert found["ready_while_nobody_decides"] == 0
    if name == "kill":
        assert found["jobs"] > 0
    elif name == "upgrade":
        assert found["schema"][0] <= found["schema"][1]
        assert found["leases_in_log"] >= 2
        assert found["ran_on"] > 0
    else:
        assert found["in_backup"] >= found["answered_before_the_backup"] > 0
        assert found["ran_when_it_was_taken"] > 0
        assert found["jobs"] > found["in_backup"] - found["ran_when_it_was_taken"]
