"""Every policy against the one contract."""

from __future__ import annotations

from typing import ClassVar

from reproductions.published.free_profiling import LoanSchedule
from scheduler.core.pairs import TablePairPredictor
from scheduler.core.policy import Policy
from scheduler.core.profiling import Stage
from scheduler.policies import POLICIES, build
from scheduler.testing.policy import PolicyContract
from scheduler.testing.worlds import World
from tests.reproductions.baselines.lucid import lucid


class TestFifo(PolicyContract):
    name = "fifo"


class TestFifoSkip(PolicyContract):
    name = "fifo-skip"
    skips = True


class TestEasy(PolicyContract):
    name = "easy"


class TestSlurm(PolicyContract):
    name = "slurm"
    follows = False  # it learns nothing: Slurm's own state is read at each look


class TestSjf(PolicyContract):
    name = "sjf"


class TestSrtf(PolicyContract):
    name = "srtf"


class TestQssf(PolicyContract):
    name = "qssf"


class TestLucid(PolicyContract):
    name = "lucid"
    chosen: ClassVar = {"quiet_jobs": 2.0}


class TestTiresias(PolicyContract):
    name = "tiresias"
    round_s = 60.0


class TestHorus(PolicyContract):
    name = "horus"
    skips = True


class TestPellucid(PolicyContract):
    name = "pellucid"
    skips = True


class TestPellucidBesideWider(PolicyContract):
    """It puts narrow jobs on some of the GPUs of wider ones, too."""

    name = "pellucid"
    skips = True
    chosen: ClassVar = {"pack_narrower": True}


class TestPellucidKeepingForTheFirst(PolicyContract):
    """It keeps GPUs for the first in line, whoever that is."""

    name = "pellucid"
    chosen: ClassVar = {"keeps_for_first": True, "order_by": "submitted"}


class TestLucidAlwaysPacking(PolicyContract):
    """Without a forecast packing is always on, and so is passing those that do not fit."""

    name = "lucid"
    skips = True

    def policy(self, world: World) -> Policy:
        return lucid(TablePairPredictor(world.scores), cluster=world.spec)


class TestLucidProfiledBeforehand(TestLucidAlwaysPacking):
    """Profiles come free, so that nearly every job may be packed."""

    follows = False  # the loans of its stage are of one simulation

    def stage(self, world: World, policy: Policy) -> Stage:
        return LoanSchedule([], {s.id: s.work.profile for s in world.samples if s.work.profile})


def test_every_registered_policy_is_held_to_the_contract() -> None:
    held = {t.name for t in PolicyContract.__subclasses__() if t.__module__ == __name__}
    assert held == set(POLICIES), "a subclass of PolicyContract for each, in this file"


def test_policies_are_built_under_their_own_name() -> None:
    assert {name: build(name).name for name in POLICIES} == {name: name for name in POLICIES}
