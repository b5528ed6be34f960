"""Another champion is taken while jobs wait and run; one that is no good is not."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from models.bundle import Bundle, BundleError
from scheduler.backends.events import Kind
from scheduler.core.estimates import COLD_START
from scheduler.service.log.audit import audit
from scheduler.service.log.store.store import Store
from tests.scheduler.service.desk import Desk


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Desk:
    return Desk(store, tmp_path, policy="pellucid", champion=tmp_path / "champion")


def promote(desk: Desk, bundle: Path) -> str:
    """Put a bundle where the champion is, as the pipeline does; its digest."""
    assert desk.champion is not None
    Bundle.load(bundle).save(desk.champion)
    return Bundle.load(bundle).digest


def scored_by(desk: Desk, job_id: str) -> str:
    score = desk.decider.state.core.known(job_id).score
    assert score is not None
    return score.bundle


def test_decisions_come_from_the_bundle_in_use(desk: Desk, bundles: list[Path]) -> None:
    desk.submit("cold", gpus=8)
    desk.turn()
    assert scored_by(desk, "cold") == COLD_START
    first = promote(desk, bundles[0])
    desk.turn()
    desk.submit("first", gpus=8)
    desk.turn()
    assert scored_by(desk, "first") == first
    second = promote(desk, bundles[1])
    desk.turn()
    desk.submit("second", gpus=8)
    desk.turn()
    assert [scored_by(desk, j) for j in ("cold", "first", "second")] == [COLD_START, first, second]
    found = [e.body["digest"] for e in desk.store.read(kinds=[Kind.BUNDLE])]
    assert found == [first, second]
    assert desk.decider.state.bundle == second


def test_one_that_cannot_be_used_is_refused_once(desk: Desk, bundles: list[Path]) -> None:
    first = promote(desk, bundles[0])
    desk.turn()
    promote(desk, bundles[2])
    for _ in range(3):
        desk.turn()
    [refused] = desk.store.read(kinds=[Kind.BUNDLE_REFUSED])
    assert "no duration model" in refused.body["why"]
    desk.submit("a", gpus=8)
    desk.turn()
    assert scored_by(desk, "a") == first


def test_one_that_is_damaged_is_refused(desk: Desk, bundles: list[Path]) -> None:
    assert desk.champion is not None
    promote(desk, bundles[0])
    desk.turn()
    (desk.champion / "bundle.json").write_text("{")
    desk.turn()
    assert len(desk.store.read(kinds=[Kind.BUNDLE_REFUSED])) == 1
    assert len(desk.store.read(kinds=[Kind.BUNDLE])) == 1


def test_the_log_can_be_replayed_after_the_champion_is_gone(
    desk: Desk, bundles: list[Path]
) -> None:
    assert desk.champion is not None
    for bundle in bundles[:2]:
        promote(desk, bundle)
        desk.submit(bundle.name, gpus=8)
        desk.turn()
    shutil.rmtree(desk.champion)
    desk.restart()
    desk.until_idle()
    assert audit(desk.store, desk.bundle_store.find).clean
    shutil.rmtree(desk.bundle_store.folder)
    with pytest.raises(BundleError):
        audit(desk.store, type(desk.bundle_store)(desk.bundle_store.folder).find)


def test_jobs_share_gpus_only_if_their_owners_allow(desk: Desk, bundles: list[Path]) -> None:
    promote(desk, bundles[0])
    desk.submit("a", gpus=4)
    desk.submit("alone", gpus=4, share=False)
    desk.turn()
    desk.turn(1000.0)
    partners = [desk.row(j).partner for j in ("a", "alone")]
    assert partners == [None, None]
