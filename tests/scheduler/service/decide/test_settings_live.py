"""Every setting of every policy does something, and the same in simulation and in the service.

Each is set to another value in a world where it should matter. The engine plays that world for
`simulate`, the service's decider plays it from its log, on the simulated backend.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from features.job import Profile
from features.schema import State
from features.state import FeatureState
from models.bundle import (
    AdditiveModel,
    Axis,
    Bundle,
    Node,
    PackingModel,
    PairSpeedModel,
    Term,
    Tree,
)
from models.bundle.packing import PACKING_FEATURES, PAIR_FEATURES
from pipeline.worlds.policy_options import over
from pipeline.worlds.scenario import Scenario
from scheduler.assembly import CoreSpec
from scheduler.backends.submission import Submission
from scheduler.core.cluster import ClusterSpec, NodeGroup
from scheduler.core.decisions import Decision, Reason
from scheduler.core.estimates import Estimator, LiveEstimator
from scheduler.core.pairs import pair_predictor_of
from scheduler.core.policy import Policy
from scheduler.core.settings import ProfilingPartition, accepted_by, describe
from scheduler.policies import POLICIES
from scheduler.service.log.header import LogHeader, runnable
from scheduler.simulation.contention import SimulatedContention
from scheduler.simulation.work import Work, Workload
from tests.scheduler.live import Live, told

START = 1_700_000_000.0
ALIKE = ClusterSpec({"a": 3, "b": 2}, gpus_per_node=2, gpu_memory_mib=24_576.0, name="alike")
TYPES = ClusterSpec.mixed(
    {"a": [NodeGroup("fast", 1, 2), NodeGroup("slow", 2, 2)], "b": [NodeGroup("slow", 2, 2)]},
    name="types",
)
PARTITION = ProfilingPartition(
    nodes={"a": 1}, largest_share=1, limit_s=40.0, max_gpus=2, known_s=600.0
)
JOBS = 36


@dataclass(frozen=True)
class Case:
    """A value for a setting, what else is set for it to matter, and the first world to look at."""

    value: Any
    beside: Mapping[str, Any] = field(default_factory=dict)
    cluster: ClusterSpec = ALIKE
    first: int = 0


FAIR = {"fairness": {"weight": 1.0, "half_life_s": 900.0}}
CASES: dict[str, dict[str, Case]] = {
    "pellucid": {
        "ageing": Case(50.0),
        "gpu_exponent": Case(2.0, {"ageing": 2.0}),
        "order_by": Case("predicted"),
        "max_wait_s": Case(60.0),
        "overload": Case(50.0, {"max_wait_s": 60.0}),
        "backfill": Case(50.0, {"max_wait_s": 60.0}),
        "price": Case(1e9, {"max_wait_s": 60.0}),
        "hold_price": Case(1e9, {"max_wait_s": 60.0}),
        "pack_first_above": Case(None),
        "pack_narrower": Case(True),
        "keeps_for_first": Case(True),
        "predict_again_s": Case(60.0),
        "busy_above": Case(50.0),
        "profile_above": Case(1e9),
        "partner_searches": Case(0),
        "learns_speeds": Case(False, first=60),
        "sharing.mode": Case("exclusive"),
        "sharing.max_gpus": Case(1),
        "sharing.memory_margin_mib": Case(20_000.0),
        "sharing.unmeasured": Case(True, {"sharing": {"mode": "mps"}}),
        "fairness.weight": Case(1.0, {"fairness": {"half_life_s": 900.0}}),
        "fairness.half_life_s": Case(60.0, FAIR),
        "fairness.users": Case({"ada": 50.0}, FAIR),
        "fairness.vcs": Case({"a": 50.0}, {**FAIR, "borrowing": {}}),
        "borrowing": Case({}),
        "borrowing.lend_s": Case(100.0, {"borrowing": {}}),
        "borrowing.quantile": Case(0.05, {"borrowing": {"lend_s": 100.0}}),
        "borrowing.reserve_nodes": Case(1, {"borrowing": {}}),
        "borrowing.scarce_below": Case(1.0, {"borrowing": {}}),
        "gpu_types.speeds": Case({"fast": 1.0, "slow": 0.2}, cluster=TYPES),
        "gpu_types.wait_for_faster": Case(
            False, {"gpu_types": {"speeds": {"fast": 1.0, "slow": 0.2}}}, TYPES
        ),
    },
    "lucid": {
        "quiet_jobs": Case(20.0),
        "sharing_limit": Case(0),
        "priority_factor": Case(0.5),
        "sharing.unmeasured": Case(True, {"sharing": {"mode": "time-slicing"}}),
        "sharing.mode": Case("exclusive"),
        "sharing.max_gpus": Case(1),
        "sharing.memory_margin_mib": Case(20_000.0),
    },
    "horus": {
        "limit_pct": Case(20.0),
        "sharing.mode": Case("exclusive"),
        "sharing.max_gpus": Case(1),
        "sharing.memory_margin_mib": Case(20_000.0),
    },
    "easy": {"default_limit_s": Case(10.0)},
}
NOT_HERE = {
    "tiresias": "stops jobs that did not agree to it: no service runs it",
    "pellucid": {
        "gpu_types.counted_on": "asks a bundle for a model of GPU types, which none here has",
    },
    "horus": {"sharing.unmeasured": "asks no measured pairs"},
}
EVERY = [(policy, name) for policy, cases in CASES.items() for name in cases]


def a_bundle() -> Bundle:
    """Durations by GPUs and what is known of the user; two that use little share well."""
    specs = {spec.name: spec for spec in FeatureState().features}
    axis = Axis(specs["gpus"], cuts=(2.0, 4.0))
    table = np.array([0.0, -1.0, 0.5, 1.0])
    term = Term((0,), table, np.array([0.0, 60.0, 30.0, 10.0]), np.zeros(4))
    user = Axis(specs["like_user"], cuts=(-0.1, 0.1))
    known = Term((1,), np.array([0.0, -0.35, 0.0, 0.35]), np.full(4, 25.0), np.zeros(4))
    packing = Tree(PACKING_FEATURES, (
        Node(0, 40.0, 1, 2, True, (0.5, 0.5, 0.0), 10),
        Node(-1, 0.0, -1, -1, True, (1.0, 0.0, 0.0), 5),
        Node(-1, 0.0, -1, -1, True, (0.0, 1.0, 0.0), 5),
    ))  # fmt: skip
    pair = Tree(PAIR_FEATURES, (
        Node(1, 90.0, 1, 2, True, (0.9,), 10),
        Node(-1, 0.0, -1, -1, True, (0.97,), 5),
        Node(-1, 0.0, -1, -1, True, (0.75,), 5),
    ))  # fmt: skip
    return Bundle(
        duration=AdditiveModel([axis, user], [term, known], 5.5),
        packing=PackingModel(packing),
        pair_speed=PairSpeedModel(pair),
    )


def a_workload(seed: int) -> tuple[list[Submission], dict[str, Work]]:
    """Bursts of jobs of a few users, some that do not share."""
    source = random.Random(seed)
    submissions, work, now = [], {}, START
    for i in range(JOBS):
        now += source.expovariate(1 / (6.0 if i % 12 < 9 else 300.0))
        job_id = f"job{i:02}"
        name = source.choice(["resnet", "bert", "", ""])
        submissions.append(
            Submission(
                job_id=job_id,
                command=("train",),
                owner=source.choice(["ada", "ada", "bob", "eve"]),
                vc=source.choice(["a", "a", "a", "b"]),
                gpus=source.choice([1, 1, 1, 2, 2]),
                submitted_at=now,
                name=f"{name}-run-{i}" if name else "",
                share=source.random() > 0.1,
            )
        )
        profile = Profile(
            float(source.randint(5, 90)), 20.0, float(source.choice([2000, 9000, 14_000]))
        )
        seconds = source.choice([source.uniform(20, 90), source.uniform(200, 1500)])
        work[job_id] = Work(seconds, State.COMPLETED, profile=profile)
    return submissions, work


def simulated(spec: CoreSpec, seed: int) -> list[Any]:
    """What `simulate` decides."""
    submissions, work = a_workload(seed)
    bundle = a_bundle()

    def estimator(policy: Policy) -> Estimator:
        made = LiveEstimator()
        made.use(bundle)
        return made

    scenario = Scenario(
        "settings",
        Workload("settings", [one.job() for one in submissions], work, spec.cluster),
        SimulatedContention(),
        estimator,
        pair_predictor=lambda: pair_predictor_of(bundle),  # type: ignore[arg-type, return-value]
        profiling=spec.profiling,
        settings={spec.policy: spec.settings.plain()},
    )
    decisions: list[Decision] = []
    scenario.simulate(spec.policy, sink=decisions.extend)
    return [told(d) for d in decisions]


def live(spec: CoreSpec, seed: int, folder: Path, crash_every: int = 0) -> list[Any]:
    """What the service decides, however often it is restarted."""
    submissions, work = a_workload(seed)
    header = LogHeader(spec, START, backend="simulated")
    champion = folder / "champion"
    a_bundle().save(champion)
    played = Live(header, work, folder, champion)
    found = played.play(submissions, crash_every=crash_every)
    assert played.world.problems == []
    return found


def spec_of(policy: str, values: Mapping[str, Any], cluster: ClusterSpec = ALIKE) -> CoreSpec:
    partition = PARTITION if cluster is ALIKE else None
    return CoreSpec.of(cluster, policy, values, partition)


def check_same(spec: CoreSpec, seed: int, folder: Path, crash_every: int = 0) -> list[Any]:
    wanted, found = simulated(spec, seed), live(spec, seed, folder, crash_every)
    for mine, theirs in zip(found, wanted, strict=False):
        assert mine == theirs  # the first difference says more than all of them
    assert len(found) == len(wanted)
    return found


def nested(name: str, value: Any) -> dict[str, Any]:
    section, dot, inner = name.partition(".")
    return {section: {inner: value}} if dot else {name: value}


@pytest.mark.parametrize(("policy", "name"), EVERY)
def test_a_setting_changes_what_is_decided_and_alike(
    policy: str, name: str, tmp_path: Path
) -> None:
    case = CASES[policy][name]
    before = spec_of(policy, case.beside, case.cluster)
    values = over(case.beside, nested(name, case.value))
    after = spec_of(policy, values, case.cluster)
    seed = next(
        (s for s in range(case.first, 96) if simulated(before, s) != simulated(after, s)), None
    )
    assert seed is not None, f"{policy}: {name} changes nothing in any of the worlds"
    check_same(after, seed, tmp_path)


def test_every_setting_is_here_or_it_is_said_why_not() -> None:
    for policy, kind in POLICIES.items():
        reasons = NOT_HERE.get(policy, {})
        if isinstance(reasons, str):
            assert policy not in runnable()
            continue
        wanted = {
            one.name
            for one in describe(accepted_by(kind))
            if not one.section or one.default is None
        }
        assert wanted == set(CASES.get(policy, {})) | set(reasons)


@pytest.mark.parametrize("policy", ["lucid", "pellucid"])
def test_what_is_lent_and_known_is_alike_after_restarts(policy: str, tmp_path: Path) -> None:
    """The profiling stage's queue, its loan and what it knows are folded from the log."""
    spec = CoreSpec.of(ALIKE, policy, {}, PARTITION.model_copy(update={"scale_from": "b"}))
    found = check_same(spec, 0, tmp_path, crash_every=7)
    seen = {reason for _, _, reason, *_ in found}
    assert seen >= {Reason.PROFILING_SLOT, Reason.PROFILE_COMPLETE, Reason.PROFILE_KNOWN}
    if policy == "lucid":
        assert seen >= {
            Reason.AWAITING_PROFILE, Reason.PROFILING_BACKLOG, Reason.PROFILING_IDLE
        }  # fmt: skip


@pytest.mark.parametrize("policy", sorted(set(runnable()) - set(CASES)))
def test_a_policy_without_settings_of_its_own_decides_alike(policy: str, tmp_path: Path) -> None:
    check_same(spec_of(policy, {}), 0, tmp_path)


combinations = st.fixed_dictionaries(
    {},
    optional={
        "ageing": st.sampled_from([0.0, 5.0]),
        "gpu_exponent": st.sampled_from([0.0, 1.0]),
        "max_wait_s": st.sampled_from([0.0, 60.0, 600.0]),
        "overload": st.sampled_from([1.0, 3.0]),
        "backfill": st.sampled_from([0.0, 50.0]),
        "price": st.sampled_from([0.0, 0.1, 1e9]),
        "pack_first_above": st.sampled_from([None, 1.2]),
        "predict_again_s": st.sampled_from([0.0, 60.0]),
        "busy_above": st.sampled_from([0.0, 2.0]),
        "profile_above": st.sampled_from([0.0, 1e9]),
        "partner_searches": st.sampled_from([0, 1]),
        "learns_speeds": st.booleans(),
        "sharing": st.fixed_dictionaries({"max_gpus": st.sampled_from([1, 2])}),
        "fairness": st.fixed_dictionaries(
            {"weight": st.sampled_from([0.0, 0.5]), "half_life_s": st.sampled_from([60.0, 900.0])}
        ),
        "borrowing": st.sampled_from([None, {}, {"lend_s": 300.0}, {"reserve_nodes": 1}]),
    },
)


@settings(max_examples=8)
@given(values=combinations, seed=st.integers(0, 50))
def test_settings_together_decide_alike(values: dict[str, Any], seed: int) -> None:
    with TemporaryDirectory() as folder:
        check_same(spec_of("pellucid", values), seed, Path(folder))
