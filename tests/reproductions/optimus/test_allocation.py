"""Marginal gains, and what a resize has to pay."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean

from hypothesis import given, settings
from hypothesis import strategies as st

from reproductions.optimus.marginal import GpuJob, allocate_gpus
from reproductions.optimus.oracle import OptimusOracle
from reproductions.optimus.policy import Optimus
from reproductions.optimus.resizing import Resizing
from reproductions.workloads.pollux import applications, open_workload, recorded

# --- gains ----------------------------------------------------------------------------------------


def linear(job_id: str, seconds: float, most: int = 8, group: int = 1) -> GpuJob:
    return GpuJob(job_id, lambda gpus: seconds / gpus, most, group)


def counts(jobs: list[GpuJob], gpus: int, **more: object) -> dict[str, int]:
    found = allocate_gpus(jobs, gpus, **more)  # type: ignore[arg-type]
    return {job_id: grant.gpus for job_id, grant in found.items()}


def test_a_whole_node_more_passes_a_dip_at_its_edge() -> None:
    def left_s(gpus: int) -> float:
        return 100.0 / gpus + (15.0 if gpus > 4 else 0.0)

    assert counts([GpuJob("a", left_s, 16)], 16) == {"a": 4}
    assert counts([GpuJob("a", left_s, 16)], 16, node_gpus=4)["a"] == 4, "8 would be 27.5 s"

    def steeper(gpus: int) -> float:
        return 400.0 / gpus + (45.0 if gpus > 4 else 0.0)

    assert counts([GpuJob("a", steeper, 16)], 16) == {"a": 4}
    assert counts([GpuJob("a", steeper, 16)], 16, node_gpus=4) == {"a": 16}


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.floats(1, 1e4), st.integers(1, 12), st.integers(1, 3)), max_size=8),
    st.integers(0, 20),
    st.sampled_from(["seconds", "relative"]),
)
def test_no_more_gpus_than_there_are(
    jobs: list[tuple[float, int, int]], gpus: int, objective: str
) -> None:
    made = [linear(str(i), s, most, group) for i, (s, most, group) in enumerate(jobs)]
    found = counts(made, gpus, objective=objective, node_gpus=4)
    assert sum(found.values()) <= gpus
    assert all(found[job.job_id] <= job.most for job in made)
    assert all(found[job.job_id] % job.group == 0 for job in made)


# --- resizing -------------------------------------------------------------------------------------


def test_a_resize_has_to_pay_for_itself() -> None:
    cost = Resizing(cost_s=30.0)
    assert cost.worth(100.0, 99.0, 0.0), "nothing is lost before the first start"
    cost.changed(0.0)
    assert not cost.worth(1000.0, 500.0, 60.0), "too soon after the last one"
    assert cost.worth(1000.0, 500.0, 600.0)
    assert not cost.worth(1000.0, 950.0, 600.0)


def test_costs_and_lifetimes_are_learned() -> None:
    cost = Resizing(cost_s=30.0, lasts_s=3600.0)
    for now in range(0, 6000, 600):
        cost.changed(float(now), 130.0)
    assert 120.0 < cost.cost_s < 130.0
    assert 600.0 < cost.lasts_s < 800.0
    assert not cost.worth(20_000.0, 19_000.0, 1e6), "little of it lasts so long"


# --- schedules ------------------------------------------------------------------------------------


def test_the_oracle_repeats_every_recorded_completion(shared_data: Path) -> None:
    folder = shared_data / "pollux"
    apps = applications(folder / "traces")
    world = open_workload(folder / "workloads" / "workload-6.csv", apps=apps)
    found = {r.job.job_id: r.jct_s for r in world.simulate(OptimusOracle()).jobs}
    assert found == recorded(folder / "results-jobload", "optimus")["workload-6"]
    own = [r.jct_s for r in world.simulate(Optimus()).jobs]
    assert fmean(own) < 0.75 * fmean(found.values())
