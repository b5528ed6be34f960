"""The ablation: its rows change what they say, cells are kept, and the table reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import ablation
from benchmarks.ablation import GROUPS, OFF, Row, ablate, kept_in, table
from scheduler.assembly import settings_of


@pytest.mark.parametrize("group", GROUPS)
def test_every_row_is_a_policy_that_can_be_built(group: str) -> None:
    for row in GROUPS[group].values():
        if row.policy == "pellucid":
            settings_of("pellucid", row.settings)


def test_a_cell_is_measured_once_while_the_code_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Row] = []

    def measure(data: Path, track: str, seed: int, row: Row, **_: object) -> dict[str, float]:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(row)
        return dict.fromkeys((*ablation.FIGURES, "packed_jobs"), 100.0 * seed + len(done))

    monkeypatch.setattr(ablation, "measure", measure)
    folder = tmp_path / "cells"
    with pytest.raises(KeyboardInterrupt):
        ablate(tmp_path, ["honest"], [1, 2], ["without"], kept_in(folder))
    assert done == list(OFF.values())[:3]
    sevens = dict.fromkeys((*ablation.FIGURES, "packed_jobs"), 7.0)
    monkeypatch.setattr(ablation, "measure", lambda *_, **__: sevens)
    found = ablate(tmp_path, ["honest"], [1, 2], ["without"], kept_in(folder))
    first = found["rows"][0]
    assert first["avg_jct_s"] == (101.0 + 7.0) / 2  # one kept, one measured anew
    assert first["difference_s"] == 0.0
    cells = len(list(folder.iterdir()))
    assert cells == 2 * (len(OFF) - 1)  # isolated, nobody borrows, with or without
    told = table(found)
    assert all(name in told for name in OFF)

    cell, kept = (
        ablation._cell("honest", 1, "without", next(iter(OFF)), "own", True),
        kept_in(folder),
    )
    assert kept.path(cell).exists()
    monkeypatch.setattr(ablation, "code_digest", lambda: "other")
    assert not kept_in(folder).path(cell).exists()


def test_a_world_is_a_track_of_its_own(shared_data: Path) -> None:
    """Its replicates are those of the comparison of worlds, and its cells are no month's."""
    opened = ablation._opened(shared_data, "synthetic-four-nodes", 1, Row(), "own")
    again = ablation._opened(shared_data, "synthetic-four-nodes", 2, Row(), "own")
    assert opened.cluster_gpus() == 32
    assert opened.workload.jobs != again.workload.jobs
    cells = {
        ablation._cell(track, 1, "without", "(everything on)", "own", True)
        for track in ("synthetic", "wide", "honest")
    }
    assert len(cells) == 3
