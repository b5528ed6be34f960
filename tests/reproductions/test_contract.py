"""The contract, policy by policy."""

from __future__ import annotations

from reproductions.registry import ALLOCATING
from scheduler.policies import POLICIES
from tests.reproductions.contract import AllocationContract


class TestDrf(AllocationContract):
    name = "drf"


class TestTetris(AllocationContract):
    name = "tetris"


class TestShortestRemaining(AllocationContract):
    name = "shortest-remaining"


class TestTiresias(AllocationContract):
    name = "tiresias-las"


class TestOptimus(AllocationContract):
    name = "optimus"


class TestOptimusOracle(AllocationContract):
    name = "optimus-oracle"


class TestSmd(AllocationContract):
    name = "smd"


class TestPollux(AllocationContract):
    name = "pollux"
    values = {"individuals": 16, "generations": 8}  # noqa: RUF012


class TestGavelLas(AllocationContract):
    name = "gavel-las"


class TestGavelLasPacked(AllocationContract):
    name = "gavel-las-packed"


class TestGavelLasAgnostic(AllocationContract):
    name = "gavel-las-agnostic"


class TestGavelMakespan(AllocationContract):
    name = "gavel-makespan"


class TestGavelMakespanPacked(AllocationContract):
    name = "gavel-makespan-packed"


class TestGavelFtf(AllocationContract):
    name = "gavel-ftf"


class TestGavelWaterFilling(AllocationContract):
    name = "gavel-water-filling"


class TestGavelHierarchical(AllocationContract):
    name = "gavel-hierarchical"


class TestGavelFifo(AllocationContract):
    name = "gavel-fifo"


class TestGavelGandiva(AllocationContract):
    name = "gavel-gandiva"


def test_nobody_is_left_out() -> None:
    held = {kind.name for kind in AllocationContract.__subclasses__()}
    assert held == set(ALLOCATING)


def test_two_algorithms_never_share_a_name() -> None:
    assert not set(ALLOCATING) & set(POLICIES)
